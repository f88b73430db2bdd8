//! Models as they were when a number of rows had been stored, which the page asks for: a thread learns them again from the journal, one
//! moment at a time, and the last few stay.

use super::query_budget::Refusal;
use crate::snapshot::Snapshot;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Moments whose models stay.
const MOMENTS: usize = 4;
/// Stands in the place of rows that are done where the thread is to end.
const STOP: u64 = u64::MAX;

/// The models of all critics at an offset, or why one has none.
type Models = Vec<(String, Result<Arc<Snapshot>, String>)>;
/// What learns them again. It calls with the number of rows that are done and of all of them, and hears whether to go on.
type Learn = dyn Fn(u64, &mut dyn FnMut(u64, u64) -> bool) -> Result<Vec<(String, Result<Snapshot, String>)>, String>
    + Send
    + Sync;

/// How models of before are learned again.
#[derive(Clone)]
pub struct Relearn(pub Arc<Learn>);

impl fmt::Debug for Relearn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relearn")
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct LookingBack {
    relearn: Relearn,
    found: Arc<Mutex<Moments>>,
    /// Held by the thread that learns: there is one at a time.
    turn: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Moments {
    /// Newest last.
    known: VecDeque<(u64, Result<Models, String>)>,
    running: Option<MomentUnderWay>,
}

/// A moment that is learned: its offset, rows that are done, and all of them.
#[derive(Clone, Debug)]
struct MomentUnderWay {
    offset: u64,
    done: Arc<AtomicU64>,
    of: Arc<AtomicU64>,
}

impl LookingBack {
    pub(super) fn new(relearn: Relearn) -> Self {
        Self { relearn, found: Arc::default(), turn: Arc::default() }
    }

    /// The model of a critic as it was, without its variance.
    ///
    /// # Errors
    /// [`Refusal::Later`] while it is learned; `Invalid` where that moment cannot be told.
    pub(super) fn get(&self, critic: &str, offset: u64) -> Result<Arc<Snapshot>, Refusal> {
        let mut found = self.found.lock();
        if let Some((_, models)) = found.known.iter().find(|(known, _)| *known == offset) {
            let models = models.as_ref().map_err(|why| Refusal::Invalid(why.clone()))?;
            let own = models.iter().find(|(name, _)| name == critic);
            let (_, model) = own.ok_or_else(|| Refusal::Invalid("there was no such critic then".to_owned()))?;
            return model.clone().map_err(Refusal::Invalid);
        }
        match &found.running {
            Some(running) if running.offset == offset => {}
            other => {
                other.iter().for_each(MomentUnderWay::stop);
                found.running = Some(self.begin(offset).map_err(|e| Refusal::Invalid(e.to_string()))?);
            }
        }
        let share = found.running.as_ref().map_or(0, MomentUnderWay::percent);
        Err(Refusal::Later(format!("learning the rows before row {offset} again: {share} %")))
    }

    fn begin(&self, offset: u64) -> std::io::Result<MomentUnderWay> {
        let running = MomentUnderWay { offset, done: Arc::default(), of: Arc::default() };
        let (own, found, turn) = (running.clone(), Arc::clone(&self.found), Arc::clone(&self.turn));
        let Relearn(relearn) = self.relearn.clone();
        let work = move || {
            // Learning and answering go first. Without that things are only slower.
            if let Err(e) = rustix::process::nice(5) {
                log::debug!("event=priority_unchanged why={e}");
            }
            let _turn = turn.lock();
            let models = relearn(offset, &mut |done, of| own.goes_on(done, of));
            let light = |(name, model): (String, Result<Snapshot, String>)| {
                (name, model.map(|model| Arc::new(model.without_variance())))
            };
            let mut found = found.lock();
            if own.done.load(Ordering::Relaxed) == STOP {
                return;
            }
            found.running = None;
            found.known.push_back((offset, models.map(|models| models.into_iter().map(light).collect())));
            while found.known.len() > MOMENTS {
                found.known.pop_front();
            }
        };
        std::thread::Builder::new().name("criticd-then".into()).spawn(work)?;
        Ok(running)
    }
}

impl Drop for LookingBack {
    fn drop(&mut self) {
        self.found.lock().running.iter().for_each(MomentUnderWay::stop);
    }
}

impl MomentUnderWay {
    fn stop(&self) {
        self.done.store(STOP, Ordering::Relaxed);
    }

    fn goes_on(&self, done: u64, of: u64) -> bool {
        self.of.store(of, Ordering::Relaxed);
        let going = |before: u64| (before != STOP).then_some(done);
        self.done.fetch_update(Ordering::Relaxed, Ordering::Relaxed, going).is_ok()
    }

    fn percent(&self) -> u64 {
        let (done, of) = (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed));
        if of == 0 { 0 } else { (100 * u128::from(done) / u128::from(of)).min(100) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::*;
    use crossbeam_channel::bounded;

    #[test]
    fn a_moment_is_learned_once_and_another_takes_its_place() {
        let (told, heard) = bounded::<u64>(10);
        let (go, going) = bounded::<()>(0);
        let relearn = move |offset: u64, progress: &mut dyn FnMut(u64, u64) -> bool| {
            told.send(offset).unwrap();
            while progress(1, 4) {
                if going.recv_timeout(std::time::Duration::from_millis(1)).is_ok() {
                    let models = [("a", Ok(model(1))), ("b", Err("no model then".to_owned()))];
                    return Ok(models.map(|(name, model)| (name.to_owned(), model)).into());
                }
            }
            Err("stopped".to_owned())
        };
        let then = LookingBack::new(Relearn(Arc::new(relearn)));
        let later = |refused: &Result<_, Refusal>| matches!(refused, Err(Refusal::Later(_)));
        assert!(later(&then.get("a", 30)) && later(&then.get("a", 30)));
        assert_eq!(heard.recv(), Ok(30));
        // The reader has moved on.
        assert!(later(&then.get("b", 40)));
        assert_eq!(heard.recv(), Ok(40));
        go.send(()).unwrap();
        while later(&then.get("a", 40)) {
            std::thread::yield_now();
        }
        assert!(then.get("a", 40).unwrap().variance.is_none());
        assert_eq!(then.get("b", 40), Err(Refusal::Invalid("no model then".to_owned())));
        assert!(matches!(then.get("c", 40), Err(Refusal::Invalid(_))));
        assert!(heard.is_empty(), "what is known is not learned again, and what was given up is over");
    }
}
