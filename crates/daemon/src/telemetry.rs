//! What the daemon's threads say for those who watch (`crate::monitor`, `crate::http`): a feed that never waits, and a few measurements.
//!
//! The monitor hears of events and of the status, and gets the rows that arrived. Nothing is computed for it on the core's
//! thread: a window shares its rows, and what finds the queue full is dropped.

use crate::learner::window::Window;
use crate::panics;
use crate::wire::{DatedEvent, Status};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use prometheus_client::metrics::histogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Notices that may wait for the watcher.
const NOTICES: usize = 256;
/// Pause before something that has panicked is begun again.
const PAUSE: Duration = Duration::from_millis(100);
/// How much nicer a thread is that watches.
const NICE: i32 = 10;
/// Where more than this wait, rows are kept back: each notice of them may keep alive what the window has forgotten.
const ROWS_WAITING: usize = 8;

/// Something to watch.
#[derive(Clone, Debug)]
pub enum BusEvent {
    /// What the daemon knows about itself.
    Status(Arc<Status>),
    /// Something that happened.
    Event(Box<DatedEvent>),
    /// Rows that have arrived.
    Rows {
        /// Retained rows, among them all that have arrived since the notice before.
        window: Window,
        /// Numbers and names of the streams that sent something last.
        streams: Vec<(u32, String)>,
    },
    /// The receiver panics.
    #[cfg(test)]
    Panic,
}

/// The end at which the daemon's threads speak.
#[derive(Debug)]
pub struct EventBus {
    notices: Sender<BusEvent>,
    pulse: Arc<Heartbeat>,
    /// Rows before this offset have been handed over.
    rows_from: u64,
}

/// A feed and the end at which it is heard.
pub fn feed(pulse: Arc<Heartbeat>) -> (EventBus, Receiver<BusEvent>) {
    let (notices, receiver) = bounded(NOTICES);
    (EventBus { notices, pulse, rows_from: 0 }, receiver)
}

impl EventBus {
    /// Pass a status on.
    pub fn status(&mut self, status: Arc<Status>) {
        self.pulse.beat();
        self.offer(BusEvent::Status(status));
    }

    /// Pass an event on.
    pub fn event(&mut self, event: Box<DatedEvent>) {
        self.offer(BusEvent::Event(event));
    }

    /// Hand over the rows that have arrived since the last time. If there is no room they come with the next ones. `streams`
    /// gives numbers and names of the streams that sent something last; it is called only if there are new rows.
    pub fn rows(&mut self, window: &Window, streams: impl FnOnce() -> Vec<(u32, String)>) {
        if self.rows_from < window.end() && self.notices.len() <= ROWS_WAITING {
            self.offer(BusEvent::Rows { window: window.from_offset(self.rows_from), streams: streams() });
            self.rows_from = window.end();
        }
    }

    fn offer(&self, notice: BusEvent) {
        // A watcher that has ended or does not keep up misses it; there is another status in a second.
        if let Err(TrySendError::Full(_)) = self.notices.try_send(notice) {
            self.pulse.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether the core is alive.
#[derive(Debug)]
pub struct Heartbeat {
    started: Instant,
    /// Milliseconds after the start at which the core last published its status; 0 before the first.
    beat_ms: AtomicU64,
    stopping: AtomicBool,
    warming: AtomicBool,
    missed: AtomicU64,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            beat_ms: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            warming: AtomicBool::new(false),
            missed: AtomicU64::new(0),
        }
    }
}

impl Heartbeat {
    fn beat(&self) {
        self.beat_ms.store((self.started.elapsed().as_millis() as u64).max(1), Ordering::Relaxed);
    }

    /// Time since the core last published its status; none before the first, while it is still starting.
    pub fn silence(&self) -> Option<Duration> {
        let beat = self.beat_ms.load(Ordering::Relaxed);
        (beat > 0).then(|| self.started.elapsed().saturating_sub(Duration::from_millis(beat)))
    }

    /// From now on nothing is taken in any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is taken in any more.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// From now on a table is learned first, or is no more.
    pub fn set_warming(&self, warming: bool) {
        self.warming.store(warming, Ordering::Relaxed);
    }

    /// Whether live rows have to wait for a table.
    pub fn warming(&self) -> bool {
        self.warming.load(Ordering::Relaxed)
    }

    /// Notices that the watcher missed because it did not keep up.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// Number of restarts after panics; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Restarts(Arc<AtomicU64>);

impl Restarts {
    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Do `work`, and again after each panic while it is `wanted`: a panic costs what was under way, is counted and logged.
    pub fn keep(&self, thread: &str, wanted: impl Fn() -> bool, mut work: impl FnMut()) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
            let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            log::error!("event=thread_restarted thread={thread} count={count} why={:?}", panics::message(&*panic));
            if !wanted() {
                return;
            }
            // What panics again at once must not cost a processor.
            std::thread::sleep(PAUSE);
        }
    }
}

/// Durations in seconds: histograms that clones share.
#[derive(Clone, Debug)]
pub struct Timings {
    /// From the arrival of an append until its acknowledgement is on its way.
    pub append: Histogram,
    /// From taking a query up until its answer is on its way; waiting for rows that it asked for is not counted.
    pub query: Histogram,
    /// For which the learner stands still at an adoption.
    pub adoption_pause: Histogram,
    /// Where the core's time goes.
    pub stages: Arc<Stages>,
}

impl Default for Timings {
    fn default() -> Self {
        // From 10 microseconds in steps of a factor of about three.
        let buckets = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0];
        let histogram = || Histogram::new(buckets);
        Self { append: histogram(), query: histogram(), adoption_pause: histogram(), stages: Arc::default() }
    }
}

criticd_learner::named! {
    /// What the core's thread does with rows, one after the other.
    pub enum Stage {
        /// Messages are read and checked, their rows numbered and put into the next group.
        Decode = "decode",
        /// Groups are written, and synced where the settings say so.
        Journal = "journal",
        /// Learners step through the rows.
        Learn = "learn",
        /// Snapshots are made, encoded and handed to the publisher.
        Publish = "publish",
    }
}

/// Time spent and rows that passed, by [`Stage`]: written by the core's thread once a round, read by anybody.
#[derive(Debug, Default)]
pub struct Stages([Spent; Stage::ALL.len()]);

#[derive(Debug, Default)]
struct Spent {
    nanoseconds: AtomicU64,
    rows: AtomicU64,
}

impl Stages {
    /// `rows` have passed `stage`, which took from `since` until now; gives the time now, where the next stage begins.
    pub fn passed(&self, stage: Stage, since: Instant, rows: u64) -> Instant {
        let (spent, now) = (&self.0[stage as usize], Instant::now());
        spent.nanoseconds.fetch_add((now - since).as_nanos() as u64, Ordering::Relaxed);
        spent.rows.fetch_add(rows, Ordering::Relaxed);
        now
    }

    /// Seconds that a stage has taken so far.
    pub fn seconds(&self, stage: Stage) -> f64 {
        self.0[stage as usize].nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9
    }

    /// Rows that have passed a stage so far; a snapshot counts those that it has learned since the one before.
    pub fn rows(&self, stage: Stage) -> u64 {
        self.0[stage as usize].rows.load(Ordering::Relaxed)
    }
}

/// Processor seconds of the threads of this process by name (cut to 15 bytes, as the system keeps it), summed over threads of one
/// name; empty where the system does not tell.
pub fn thread_seconds() -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        // The first of three numbers is the time on a processor in nanoseconds.
        let spent = read("schedstat").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        if let (Some(name), Some(spent)) = (read("comm"), spent) {
            *seconds.entry(name.trim_end().to_owned()).or_insert(0.0) += spent as f64 * 1e-9;
        }
    }
    seconds
}

/// Bytes of this process that are in memory, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| 1024 * kib)
}

/// Let this thread be nicer than the others: what learns and answers goes first. Without it things are only slower.
pub fn step_back() {
    if let Err(e) = rustix::process::nice(NICE) {
        log::debug!("event=priority_unchanged why={e}");
    }
}

/// Processor time of this thread since it began.
pub fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("time that was used is not negative")
}

/// How far a start has got, for those who ask before it is over.
#[derive(Debug, Default)]
pub struct StartProgress {
    rows: AtomicU64,
    of: AtomicU64,
}

impl StartProgress {
    /// Note how many rows have been learned again, and of how many.
    pub fn set(&self, rows: u64, of: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }

    /// Rows learned again, and rows there are.
    pub fn get(&self) -> (u64, u64) {
        (self.rows.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::{Batch, BatchParts};

    #[test]
    fn stages_add_up() {
        let stages = Stages::default();
        let start = Instant::now();
        let next = stages.passed(Stage::Decode, start, 5);
        stages.passed(Stage::Decode, next, 2);
        let (seconds, all) = (stages.seconds(Stage::Decode), start.elapsed().as_secs_f64());
        assert!(seconds <= all, "{seconds} of {all}");
        assert_eq!(Stage::ALL.map(|stage| stages.rows(stage)), [7, 0, 0, 0]);
        assert_eq!(stages.seconds(Stage::Learn), 0.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_are_told_apart_by_name() {
        let (stop, stopped) = bounded::<()>(0);
        let thread = std::thread::Builder::new().name("a-thread-of-many-letters".into());
        let (started, running) = bounded(1);
        let thread = thread.spawn(move || {
            started.send(()).unwrap();
            stopped.recv().unwrap_err();
        });
        running.recv().unwrap();
        assert!(thread_seconds().contains_key("a-thread-of-man"), "{:?}", thread_seconds());
        drop(stop);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn the_process_knows_its_size() {
        assert!(resident_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn what_panics_is_done_again_and_counted_until_nobody_wants_it() {
        let restarts = Restarts::default();
        let mut calls = 0;
        restarts.keep(
            "test",
            || true,
            || {
                calls += 1;
                assert!(calls == 3, "injected");
            },
        );
        assert_eq!((restarts.get(), calls), (2, 3));
        restarts.clone().keep("test", || false, || panic!("injected"));
        assert_eq!(restarts.get(), 3);
    }

    #[test]
    fn a_watcher_that_does_not_keep_up_delays_nobody() {
        let pulse = Arc::new(Heartbeat::default());
        let (mut feed, heard) = feed(Arc::clone(&pulse));
        assert_eq!(pulse.silence(), None);
        (0..NOTICES + 5).for_each(|_| feed.status(Arc::default()));
        assert_eq!((heard.len(), pulse.missed()), (NOTICES, 5));
        assert!(pulse.silence().is_some());

        // Rows that found no room come later, none are skipped.
        let batch = Batch::new(BatchParts {
            stream: "s".into(),
            dim: 1,
            rewards_per_row: 1,
            states: vec![0.0, 1.0],
            rewards: vec![0.0],
            ..BatchParts::default()
        });
        let batch = batch.unwrap();
        let mut window = Window::new(1, 1, 100);
        window.push(0, true, &batch, 0);
        feed.rows(&window, || vec![(0, "s".into())]);
        assert_eq!(heard.try_iter().count(), NOTICES);
        window.push(0, false, &batch, 0);
        feed.rows(&window, || vec![(0, "s".into())]);
        let Ok(BusEvent::Rows { window: rows, streams }) = heard.try_recv() else { panic!("rows were expected") };
        assert_eq!((rows.start(), rows.end(), streams), (0, 2, vec![(0, "s".into())]));
        feed.rows(&window, || vec![(0, "s".into())]);
        assert!(heard.is_empty());
    }
}
