//! A subscriber that puts the published models together and compares each with the truth, on a thread of its own.

use super::chart::{Kernel, lengthscale, two_digits};
use super::world::{Accuracy, Truth, World};
use crate::client::{ClientError, ConnectionError, Models, Requester, Subscriber, Update};
use crate::transport::Endpoints;
use crate::wire::status::LastRefit;
use crate::wire::{self, DatedEvent, Event, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the thread looks whether it should end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What has been seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct AudienceView {
    /// Rows learned, and per second, as the daemon says.
    pub(super) offset: u64,
    pub(super) rows_per_second: f64,
    /// Offset of the row at which the next model selection is due.
    pub(super) next_refit_at: Option<u64>,
    /// Of the latest model.
    pub(super) generation: Option<u64>,
    pub(super) dictionary: usize,
    pub(super) lambda: f64,
    pub(super) kernel: Option<Kernel>,
    /// Of the variance of the value, for each variable, as the daemon says; empty before it has found them.
    pub(super) shares: Vec<Option<f64>>,
    pub(super) accuracy: Option<Accuracy>,
    /// A refit runs.
    pub(super) refitting: bool,
    /// Errors of the last model before the first refit, and of the first one after it.
    pub(super) before_first_refit: Option<f64>,
    pub(super) after_first_refit: Option<f64>,
    /// Models received.
    pub(super) models: u64,
    /// Events in words, taken by the display.
    pub(super) news: Vec<String>,
}

/// The subscriber's thread.
pub(super) struct Audience {
    view: Arc<Mutex<AudienceView>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Audience {
    /// Subscribe to everything, and watch one critic.
    pub(super) fn join(
        endpoints: &Endpoints,
        critic: &str,
        world: World,
        truth: Arc<Truth>,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let subscriber = Subscriber::connect(&endpoints.publish.to_string(), &[""], patience)?;
        let requester = Requester::connect(&endpoints.control.to_string(), patience)?;
        let (view, stop) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let member = Member {
            requester,
            patience,
            critic: critic.to_owned(),
            world,
            truth,
            models: Models::default(),
            adopted: None,
            full: false,
            view: Arc::clone(&view),
            started: Instant::now(),
        };
        let ends = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("audience".into())
            .spawn(move || member.run(&subscriber, &ends))
            .map_err(ConnectionError::Internal)?;
        Ok(Self { view, stop, thread: Some(thread) })
    }

    pub(super) fn view(&self) -> MutexGuard<'_, AudienceView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave, and say what was seen.
    pub(super) fn finish(mut self) -> AudienceView {
        self.leave();
        self.view().clone()
    }

    fn leave(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        self.leave();
    }
}

struct Member {
    requester: Requester,
    patience: Duration,
    /// The one that is watched.
    critic: String,
    world: World,
    truth: Arc<Truth>,
    models: Models,
    /// An adoption whose model has not arrived yet.
    adopted: Option<LastRefit>,
    /// The dictionary has been full.
    full: bool,
    view: Arc<Mutex<AudienceView>>,
    started: Instant,
}

impl Member {
    fn run(mut self, subscriber: &Subscriber, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match subscriber.receive(LOOK_INTERVAL) {
                Ok(Some((topic, payload))) => {
                    if let Err(e) = self.take(&topic, &payload) {
                        self.say(&format!("a publication was of no use: {e}"));
                    }
                }
                Ok(None) => {}
                Err(e) => return self.say(&e.to_string()),
            }
        }
    }

    fn view(&self) -> MutexGuard<'_, AudienceView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: &str) {
        let line = format!("{:6.1} s  {what}", self.started.elapsed().as_secs_f64());
        self.view().news.push(line);
    }

    fn take(&mut self, topic: &str, payload: &[u8]) -> Result<(), ClientError> {
        if topic == "status" {
            let status = Status::from_json(&wire::to_json(payload)?)?;
            let mut view = self.view();
            (view.offset, view.rows_per_second) = (status.offset, status.rows_per_second);
            if let Some(critic) = status.critic(&self.critic) {
                (view.next_refit_at, view.shares) = (critic.refit.next_at, critic.shares.clone());
            }
            return Ok(());
        }
        if topic.starts_with("event.") {
            // A newer daemon has kinds of which nothing is known here.
            if let Ok(DatedEvent { event, .. }) = DatedEvent::from_json(&wire::to_json(payload)?)
                && event.critic().is_none_or(|critic| critic == self.critic)
            {
                self.event(event);
            }
            return Ok(());
        }
        if topic.split_once('.').is_some_and(|(_, critic)| critic != self.critic) {
            return Ok(());
        }
        match self.models.apply(topic, payload)? {
            Update::Fresh(critic) => self.model(&critic),
            Update::Missed(critic) => {
                let snapshot = self.requester.snapshot(Some(&critic), self.patience)?;
                self.models.insert(snapshot);
                self.model(&critic);
            }
            Update::Other => {}
        }
        Ok(())
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::RefitStarted { .. } => {
                self.view().refitting = true;
            }
            Event::Adopted(refit) => {
                self.view().refitting = false;
                self.adopted = Some(*refit);
            }
            Event::RefitRejected(refit) => {
                self.view().refitting = false;
                self.say(&format!("kept the model: {}", refit.reason.as_deref().unwrap_or("no reason given")));
            }
            Event::DictionaryFull { size, .. } if !self.full => {
                // Every later model fills it again; that is no news.
                self.full = true;
                self.say(&format!("the dictionary is full with {size} states"));
            }
            Event::Rejected(rejected) => self.say(&format!("rows were refused: {:?}", rejected.message)),
            _ => {}
        }
    }

    /// Compare the critic's new model with the truth.
    fn model(&mut self, critic: &str) {
        let Some(snapshot) = self.models.get(critic) else { return };
        let accuracy = self.truth.compare(snapshot);
        let kernel = Kernel::new(self.world, snapshot);
        let (generation, size) = (snapshot.generation, snapshot.dictionary.nrows());
        let before = {
            let mut view = self.view();
            let before = view.clone();
            match view.generation {
                // The first model of all has seen no refit.
                None => view.before_first_refit = Some(accuracy.rms),
                Some(known) if known == generation && view.after_first_refit.is_none() => {
                    view.before_first_refit = Some(accuracy.rms);
                }
                Some(_) if view.after_first_refit.is_none() => view.after_first_refit = Some(accuracy.rms),
                Some(_) => {}
            }
            view.models += 1;
            view.generation = Some(generation);
            view.dictionary = size;
            view.lambda = snapshot.lambda;
            view.kernel = Some(kernel.clone());
            view.accuracy = Some(accuracy);
            before
        };
        if let Some(event) = self.adopted.take_if(|event| event.generation == generation) {
            self.say(&adoption(&event, &before, &kernel, accuracy.rms));
        }
    }
}

/// One line on what an adoption changed: why the model was chosen, lengthscales, error.
fn adoption(event: &LastRefit, before: &AudienceView, kernel: &Kernel, rms: f64) -> String {
    let found = event.found.as_ref();
    let chosen = match found.and_then(|found| found.selection.as_ref()) {
        Some(held_out) => ("held-out error", held_out.present_score, Some(held_out.score), 3),
        None => {
            ("evidence", found.and_then(|found| found.evidence_before), found.and_then(|found| found.evidence_after), 0)
        }
    };
    let why = match chosen {
        (what, Some(from), Some(to), places) => format!("{what} {from:.places$} → {to:.places$}, "),
        (what, None, Some(to), places) => format!("{what} {to:.places$}, "),
        _ => String::new(),
    };
    let scales: Vec<String> = kernel
        .variables
        .iter()
        .enumerate()
        .map(|(i, v)| {
            let from = before.kernel.as_ref().map(|k| format!("{} → ", lengthscale(k.variables[i].lengthscale)));
            format!("{} {}{}", v.name, from.unwrap_or_default(), lengthscale(v.lengthscale))
        })
        .collect();
    let error = before.accuracy.map(|a| format!("{} → ", two_digits(a.rms))).unwrap_or_default();
    format!("model {}: {why}lengthscales {}, RMS error {error}{}", event.generation, scales.join(", "), two_digits(rms))
}
