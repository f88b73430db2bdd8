//! Models as they were when a number of rows had been stored, which the page asks for: a thread learns them again from the journal, one
//! moment at a time, and the last few stay.

use super::query_budget::Refusal;
use crate::panics;
use crate::snapshot::Snapshot;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A reader who has not asked for a moment for this long has left.
const LEFT: Duration = Duration::from_secs(3);
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
    moments: Arc<Mutex<Moments>>,
}

#[derive(Debug, Default)]
struct Moments {
    /// Newest last. What could not be told is there until somebody has read it.
    known: VecDeque<(u64, Result<Models, String>)>,
    running: Option<MomentUnderWay>,
    /// What is learned next.
    wanted: Option<u64>,
    /// Whether there is a thread.
    works: bool,
}

/// A moment that is learned: its offset, rows that are done, and all of them.
#[derive(Clone, Debug)]
struct MomentUnderWay {
    offset: u64,
    done: Arc<AtomicU64>,
    of: Arc<AtomicU64>,
    /// When it was asked for last.
    asked: Instant,
}

impl LookingBack {
    pub(super) fn new(relearn: Relearn) -> Self {
        Self { relearn, moments: Arc::default() }
    }

    /// The model of a critic as it was, without its variance.
    ///
    /// # Errors
    /// [`Refusal::Later`] while it is learned; `Invalid` where that moment cannot be told.
    pub(super) fn get(&self, critic: &str, offset: u64) -> Result<Arc<Snapshot>, Refusal> {
        let mut moments = self.moments.lock();
        if let Some(at) = moments.known.iter().position(|(known, _)| *known == offset) {
            let (_, models) = &moments.known[at];
            let Ok(models) = models else {
                let why = moments.known.remove(at).and_then(|(_, models)| models.err());
                return Err(Refusal::Invalid(why.unwrap_or_default()));
            };
            let own = models.iter().find(|(name, _)| name == critic);
            let (_, model) = own.ok_or_else(|| Refusal::Invalid("there was no such critic then".to_owned()))?;
            return model.clone().map_err(Refusal::Invalid);
        }
        if let Some(running) = moments.running.as_mut().filter(|running| running.offset == offset) {
            running.asked = Instant::now();
            let share = running.percent();
            return Err(Refusal::Later(format!("learning the rows before row {offset} again: {share} %")));
        }
        // The reader of the other moment may have left.
        let left = |running: &&MomentUnderWay| running.asked.elapsed() > LEFT;
        moments.running.iter().filter(left).for_each(MomentUnderWay::stop);
        moments.wanted = Some(offset);
        if !moments.works {
            let (relearn, shared) = (self.relearn.clone(), Arc::clone(&self.moments));
            let work = move || run(&relearn, &shared);
            let spawned = std::thread::Builder::new().name("criticd-then".into()).spawn(work);
            moments.works = spawned.map(|_| true).map_err(|e| Refusal::Invalid(e.to_string()))?;
        }
        Err(Refusal::Later(format!("the rows before row {offset} are to be learned again")))
    }
}

/// Learn what is wanted, until nothing is.
fn run(relearn: &Relearn, shared: &Mutex<Moments>) {
    // Learning and answering go first. Without that things are only slower.
    if let Err(e) = rustix::process::nice(5) {
        log::debug!("event=priority_unchanged why={e}");
    }
    loop {
        let own = {
            let mut moments = shared.lock();
            let Some(offset) = moments.wanted.take() else {
                moments.works = false;
                return;
            };
            let (done, of, asked) = (Arc::default(), Arc::default(), Instant::now());
            moments.running.insert(MomentUnderWay { offset, done, of, asked }).clone()
        };
        // A bug costs this moment, not those that follow.
        let learn = || (relearn.0)(own.offset, &mut |done, of| own.goes_on(done, of));
        let models = catch_unwind(AssertUnwindSafe(learn)).unwrap_or_else(|panic| Err(panics::message(&*panic)));
        let light = |(name, model): (String, Result<Snapshot, String>)| {
            (name, model.map(|model| Arc::new(model.without_variance())))
        };
        let models = models.map(|models| models.into_iter().map(light).collect());
        let mut moments = shared.lock();
        moments.running = None;
        if !own.is_stopped() {
            moments.known.push_back((own.offset, models));
            while moments.known.len() > MOMENTS {
                moments.known.pop_front();
            }
        }
    }
}

impl Drop for LookingBack {
    fn drop(&mut self) {
        let mut moments = self.moments.lock();
        moments.wanted = None;
        moments.running.iter().for_each(MomentUnderWay::stop);
    }
}

impl MomentUnderWay {
    fn stop(&self) {
        self.done.store(STOP, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.done.load(Ordering::Relaxed) == STOP
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
    fn moments_are_learned_in_turn_and_an_abandoned_one_is_given_up() {
        let (told, heard) = bounded::<u64>(10);
        let (go, going) = bounded::<()>(0);
        let relearn = move |offset: u64, progress: &mut dyn FnMut(u64, u64) -> bool| {
            told.send(offset).unwrap();
            assert_ne!(offset, 50, "injected");
            while progress(1, 4) {
                if going.recv_timeout(Duration::from_millis(1)).is_ok() {
                    let models = [("a", Ok(model(1))), ("b", Err("no model then".to_owned()))];
                    return Ok(models.map(|(name, model)| (name.to_owned(), model)).into());
                }
            }
            Err("stopped".to_owned())
        };
        let then = LookingBack::new(Relearn(Arc::new(relearn)));
        let later = |refused: &Result<_, Refusal>| matches!(refused, Err(Refusal::Later(_)));
        let wait = |critic: &str, offset| loop {
            match then.get(critic, offset) {
                Err(Refusal::Later(_)) => std::thread::yield_now(),
                found => return found,
            }
        };
        assert!(later(&then.get("a", 30)));
        assert_eq!(heard.recv(), Ok(30));
        // Another reader waits until that is done.
        assert!(later(&then.get("b", 40)) && later(&then.get("a", 30)));
        go.send(()).unwrap();
        assert!(wait("a", 30).unwrap().variance.is_none());
        assert_eq!(heard.recv(), Ok(40));
        // Its reader has left.
        then.moments.lock().running.as_mut().unwrap().asked -= 2 * LEFT;
        assert!(later(&then.get("a", 50)));
        assert_eq!(heard.recv(), Ok(50));
        assert!(matches!(wait("a", 50), Err(Refusal::Invalid(why)) if why.contains("injected")));
        assert!(later(&then.get("b", 60)));
        go.send(()).unwrap();
        assert_eq!(wait("b", 60), Err(Refusal::Invalid("no model then".to_owned())));
        assert!(matches!(then.get("c", 60), Err(Refusal::Invalid(_))));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [60], "what is known is not learned again");
    }
}
