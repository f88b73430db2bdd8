//! What came of predictions, in one place: returns beside the values that foretold them (calibration), whether to believe the values
//! (trust), the state variables on which they hang (shares), and the events that bear on them.
//!
//! ```text
//! core --notices--> monitor --trust, shares--> board, from which the core's next status has them
//!                           --notices--> the page, if there is one: it reads the monitor, and so do the metrics
//! ```
//! A thread of the daemon runs it whether or not the dashboard is on, at low priority.

mod calibration;
mod event_log;
mod pairs;
mod refused;
mod shares;
mod state_sample;
mod trust;

use self::calibration::Calibration;
pub(crate) use self::calibration::REWARDS;
pub(crate) use self::event_log::{Mark, Marks};
pub(crate) use self::pairs::KeptPairs;
pub(crate) use self::shares::{Shares, shares};
pub(crate) use self::state_sample::Visited;
use self::trust::{Came, TrustCase};
pub(crate) use self::trust::{parts_of_read_only, split};
use crate::board::Board;
use crate::clock::Clock;
use crate::learner::Settings;
use crate::learner::window::Window;
use crate::telemetry::{self, BusEvent};
use crate::wire::status::TrustStatus;
use crate::wire::{DatedEvent, Status};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// Seconds after which shares of the variance are found again under the same model, about.
const SHARES_S: u64 = 60;
/// Shares are found again after this many times as long as finding them took: that is 2 % of the time.
const SHARES_REST: u32 = 49;

/// What has come of the predictions of each critic.
#[derive(Debug)]
pub struct Monitor {
    names: Vec<String>,
    /// Rewards of each critic.
    rewards: Vec<usize>,
    board: Arc<Board>,
    marks: Marks,
    calibrations: Vec<Calibration>,
    visited: Visited,
    /// Offset behind the last row, once rows have come, and the Unix time by which the last row since the start did: a start hands over
    /// rows of an earlier run.
    heard: Option<u64>,
    last_row: Option<f64>,
    /// The last one.
    status: Option<Arc<Status>>,
    /// Times that there was one.
    seconds: u64,
    /// Which of these found the shares of each critic last.
    found_at: Vec<u64>,
    /// When shares may be found again.
    shares_after: Instant,
}

impl Monitor {
    /// Nothing has come yet of these critics.
    pub(crate) fn new(critics: &[Settings], board: Arc<Board>) -> Self {
        Self {
            names: critics.iter().map(|critic| critic.name.clone()).collect(),
            rewards: critics.iter().map(|critic| critic.rewards.len()).collect(),
            board,
            marks: Marks::default(),
            calibrations: critics.iter().map(Calibration::new).collect(),
            visited: Visited::default(),
            heard: None,
            last_row: None,
            status: None,
            seconds: 0,
            found_at: vec![0; critics.len()],
            shares_after: Instant::now(),
        }
    }

    /// The same for several threads.
    pub(crate) fn shared(critics: &[Settings], board: &Arc<Board>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self::new(critics, Arc::clone(board))))
    }

    /// Begin with what an earlier run has kept.
    pub(crate) fn resume(&mut self, marks: Marks, calibrations: &[KeptPairs]) {
        self.marks = marks.resumed(&self.names);
        for (index, (name, calibration)) in self.names.iter().zip(&mut self.calibrations).enumerate() {
            let generation = self.board.get(index).map_or(0, |model| model.generation);
            for kept in calibrations.iter().filter(|kept| kept.critic == *name) {
                calibration.resume(kept, generation);
            }
        }
    }

    /// What another run begins with.
    pub(crate) fn keep(&self) -> (Marks, Vec<KeptPairs>) {
        let pairs = self.names.iter().zip(&self.calibrations);
        (self.marks.clone(), pairs.flat_map(|(name, calibration)| calibration.keep(name)).collect())
    }

    /// Take in what the core tells, at the Unix time `now`. Returns it for the page, a status with what was found of its critics.
    pub(crate) fn hear(&mut self, notice: BusEvent, now: f64) -> BusEvent {
        match &notice {
            BusEvent::Rows { window, .. } => self.rows(window, now),
            BusEvent::Event(event) => self.marks.event(DatedEvent::clone(event), self.status.as_deref()),
            BusEvent::Status(status) => return BusEvent::Status(self.judge(status)),
            #[cfg(test)]
            BusEvent::Panic => {}
        }
        notice
    }

    fn rows(&mut self, window: &Window, now: f64) {
        if self.heard.is_some_and(|end| end < window.end()) {
            self.last_row = Some(now);
        }
        self.heard = Some(window.end());
        self.visited.take(window);
        for (index, calibration) in self.calibrations.iter_mut().enumerate() {
            let model = self.board.evaluator(index).filter(|model| calibration.is_about(model.snapshot()));
            calibration.take(window, model);
        }
    }

    /// The status with a judgement of each critic's values, which later ones of the daemon have as well.
    fn judge(&mut self, status: &Status) -> Arc<Status> {
        self.marks.complete(status);
        let mut judged = status.clone();
        for (index, name) in self.names.iter().enumerate() {
            let trust = self.trust(index, status);
            if let Some(critic) = judged.critics.iter_mut().find(|critic| critic.name == *name) {
                critic.trust.clone_from(&trust);
                self.board.set_trust(index, critic.generation, trust);
            }
        }
        let judged = Arc::new(judged);
        self.status = Some(Arc::clone(&judged));
        self.seconds += 1;
        judged
    }

    /// Whether to believe the values of each reward of a critic.
    fn trust(&self, index: usize, status: &Status) -> Vec<TrustStatus> {
        let name = &self.names[index];
        let Some(critic) = status.critic(name) else { return Vec::new() };
        let refused = self.refused_lately(status);
        let cause = self.marks.refused().cause(status.time);
        let (adopted, last_row) = (self.marks.last_takeover(name), self.last_row);
        let (drifted, alarm) = (self.marks.last_drift(name), self.marks.alarm(name));
        let came = self.calibrations[index].evidence(critic.generation);
        let came =
            came.map(|found| found.map_or_else(Came::TooFew, Came::Enough)).chain(std::iter::repeat(Came::NotCompared));
        let (cause, cut_after) = (cause.as_ref(), self.calibrations[index].cut_after());
        let judge = |(reward, came)| {
            TrustCase { status, critic, reward, came, cut_after, refused, cause, alarm, drifted, adopted, last_row }
                .judge()
        };
        (0..self.rewards[index]).zip(came).map(judge).collect()
    }

    /// Find the shares of one critic's variables, of the one for which that was longest ago: where its generation is another, or a minute
    /// has gone by.
    fn find_shares(&mut self) {
        if Instant::now() < self.shares_after {
            return;
        }
        let stale = |index: usize| {
            let (model, known) = (self.board.evaluator(index)?, self.board.judged(index));
            let is_due = self.seconds - self.found_at[index] >= SHARES_S || known.shares.is_empty();
            (is_due || known.generation != model.snapshot().generation).then_some((index, model))
        };
        let found_at = |(index, _): &(usize, _)| self.found_at[*index];
        let Some((index, model)) = (0..self.names.len()).filter_map(stale).min_by_key(found_at) else {
            return;
        };
        self.found_at[index] = self.seconds;
        let (generation, dim) = (model.snapshot().generation, model.snapshot().state_dim());
        let before = telemetry::used();
        let found = shares(0, &self.visited.places(model.snapshot()), &model);
        // Processor time: on a busy machine it takes longer, but no more of the others' time.
        self.shares_after = Instant::now() + telemetry::used().saturating_sub(before) * SHARES_REST;
        if let Ok(Shares { states: 1.., mut shares }) = found {
            shares.truncate(dim);
            self.board.set_shares(index, generation, shares);
        }
    }

    /// Messages that were refused in the ten minutes before a status.
    pub(crate) fn refused_lately(&self, status: &Status) -> u64 {
        self.marks.refused().lately(status.time)
    }

    /// States that were visited last.
    pub(crate) fn visited(&self) -> &Visited {
        &self.visited
    }

    /// Events of a critic, and those that belong to none.
    pub(crate) fn marks<'a>(&'a self, critic: &'a str) -> impl Iterator<Item = &'a Mark> {
        self.marks.of(critic)
    }

    /// Events, and predictions of each critic with the returns that came, since the last time.
    pub(crate) fn news(&mut self) -> (Vec<Mark>, Vec<Value>) {
        (self.marks.news(), self.calibrations.iter_mut().map(Calibration::news).collect())
    }

    /// Predictions of a critic and the returns that came: the pairs themselves, if `with_pairs`, and how they compare.
    pub(crate) fn calibration(&self, critic: usize, with_pairs: bool) -> Value {
        self.calibrations[critic].to_json(with_pairs)
    }

    /// Error, bias and coverage of the newest returns of each of a critic's rewards, as far as they are compared; none of too few.
    pub(crate) fn latest(&self, critic: usize) -> impl Iterator<Item = Option<[f64; 3]>> {
        self.calibrations[critic].latest()
    }
}

/// Take in what the core tells until it ends, and pass it on to the page, if there is one: a page that does not keep up is waited for.
pub(crate) fn run(monitor: &Mutex<Monitor>, notices: &Receiver<BusEvent>, page: Option<&Sender<BusEvent>>) {
    for notice in notices {
        let notice = monitor.lock().hear(notice, Clock::start().now().unix);
        let is_second = matches!(notice, BusEvent::Status(_));
        // A page that has ended hears nothing more.
        page.into_iter().for_each(|page| drop(page.send(notice.clone())));
        if is_second {
            monitor.lock().find_shares();
        }
    }
}

/// A number with seven significant digits, enough for a picture; null if it is not finite. Times keep milliseconds.
pub(crate) fn number(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if value.abs() > 1e9 {
        return ((value * 1000.0).round() / 1000.0).into();
    }
    format!("{value:.6e}").parse::<f64>().unwrap_or(value).into()
}

/// A model and rows for the tests of what is made from them.
#[cfg(test)]
pub(crate) mod testing {
    use crate::learner::window::Window;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::snapshot::{Evaluator, Snapshot};
    use crate::transition::{Batch, BatchParts};
    use nalgebra::DMatrix;
    use std::sync::Arc;

    /// V(x) is about 10 near x = 0, with a variance of 1 and noise of 3.
    pub(crate) fn model(offset: u64) -> Arc<Evaluator> {
        let hyperparameters = Hyperparameters {
            kernel: Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1e-12)),
            noise: NoiseModel::Correlated,
            noise_variance: 3.0,
        };
        Arc::new(Evaluator::new(Snapshot {
            offset,
            transitions: offset,
            variance: Some(DMatrix::zeros(1, 1)),
            ..Snapshot::of(0.5, hyperparameters, DMatrix::zeros(1, 1), DMatrix::from_element(1, 1, 10.0))
        }))
    }

    /// A row of one-dimensional states.
    pub(crate) struct Row {
        pub(crate) stream: u32,
        pub(crate) starts: bool,
        pub(crate) state: f64,
        pub(crate) reward: f64,
        pub(crate) terminated: bool,
    }

    pub(crate) fn push(window: &mut Window, row: &Row) {
        let batch = Batch::new(BatchParts {
            stream: "s".into(),
            dim: 1,
            rewards_per_row: 1,
            states: vec![row.state],
            next_states: Some(vec![row.state]),
            rewards: vec![row.reward],
            terminated: Some(vec![row.terminated]),
            ..BatchParts::default()
        });
        window.push(row.stream, row.starts, &batch.unwrap(), 0);
    }
}
