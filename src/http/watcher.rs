//! The thread that keeps what the page shows, and draws its heat maps.

use super::calibration::Calibration;
use super::errors::errors;
use super::history::{History, number};
use super::map::View;
use super::path::{PathQuery, along};
use super::recent::{Recent, Rewards};
use super::relevance::{RelevanceQuery, relevance};
use crate::board::Board;
use crate::config::Config;
use crate::learner::window::Window;
use crate::picture::Colours;
use crate::snapshot::{Evaluator, Snapshot};
use crate::telemetry::{self, BusEvent};
use crate::transport::Endpoints;
use crate::wire::status::{CriticStatus, ModelStatus};
use crate::wire::{self, Status};
use bytes::Bytes;
use crossbeam_channel::{Receiver, select};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Events kept as marks.
const MARKS: usize = 100;
/// Visited states kept, how many are taken each time rows come, and how many are shown.
const STATES: usize = 2048;
const STATES_EACH: usize = 64;
const STATES_SHOWN: usize = 300;
/// Answers kept: those of the open pages.
const ANSWERS: usize = 24;
/// For how long what is said of errors and of relevances may stay as it is under one model.
const ERRORS_AGE: Duration = Duration::from_secs(5);
const RELEVANCE_AGE: Duration = Duration::from_secs(30);
/// Share of the time that may go into answers, how much of it may be saved up, and how much may be owed for a view
/// that has not been seen yet; seconds.
const SHARE: f64 = 0.02;
const SAVED: f64 = 0.25;
const OWED: f64 = 1.0;
/// With more state variables than this an adoption does not say what became of the kernel.
const KERNEL_DIM: usize = 64;
/// Colours of a colour map.
const COLOURS: usize = 256;
/// How much nicer this thread is than the others.
const NICE: i32 = 10;

/// What is shown of one moment.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// Rises by one with every frame; 0 before the first.
    pub(super) number: u64,
    /// The `status` of the daemon; none before the first.
    pub(super) status: Option<Arc<Status>>,
    /// A message to an open page.
    pub(super) news: String,
}

/// A question to the watcher.
pub(super) enum Ask {
    /// All that a page needs to begin with: a JSON document.
    History(oneshot::Sender<String>),
    /// Something that takes the model.
    Draw(Question, oneshot::Sender<Result<Bytes, Refusal>>),
}

/// What a page asks of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Question {
    /// A heat map or a curve.
    Map(View),
    /// The value along a trajectory.
    Path(PathQuery),
    /// Errors over the axes of a view, and the worst states.
    Errors(View),
    /// How much of the value hangs on each variable.
    Relevance(RelevanceQuery),
}

impl Question {
    fn critic(&self) -> Option<&str> {
        match self {
            Self::Map(view) | Self::Errors(view) => view.critic.as_deref(),
            Self::Path(query) => query.critic.as_deref(),
            Self::Relevance(query) => query.critic.as_deref(),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refusal {
    /// There is no model yet.
    NotReady,
    /// The question makes no sense.
    Invalid(String),
    /// Answers have taken enough time until the next second.
    Busy,
}

/// An answer that has been given.
struct Answer {
    question: Question,
    snapshot: Arc<Snapshot>,
    /// Offset behind the last row that was known.
    end: u64,
    given: Instant,
    bytes: Bytes,
}

impl Answer {
    /// Whether another one would say the same, or nearly.
    fn is_fresh(&self, snapshot: &Arc<Snapshot>, end: u64) -> bool {
        let same = Arc::ptr_eq(&self.snapshot, snapshot);
        let young = |most| self.snapshot.generation == snapshot.generation && self.given.elapsed() < most;
        match &self.question {
            Question::Map(_) => same,
            Question::Path(_) => same && self.end == end,
            Question::Errors(_) => young(ERRORS_AGE),
            Question::Relevance(_) => young(RELEVANCE_AGE),
        }
    }
}

/// The thread's state.
pub(super) struct Watcher {
    names: Vec<String>,
    /// What the settings say of the state dimension.
    state_dim: Option<usize>,
    endpoints: Endpoints,
    board: Arc<Board>,
    notices: Receiver<BusEvent>,
    asks: Receiver<Ask>,
    frames: watch::Sender<Arc<Frame>>,
    frame: Arc<Frame>,
    history: History,
    marks: VecDeque<Map<String, Value>>,
    mark: u64,
    /// Marks that have changed since the last frame, by number.
    changed: Vec<u64>,
    calibrations: Vec<Calibration>,
    /// Visited states, newest last.
    states: VecDeque<Vec<f64>>,
    seen: u64,
    recent: Recent,
    /// Of each critic.
    rewards: Vec<Rewards>,
    answers: VecDeque<Answer>,
    /// Seconds that answers may take, and when they were last counted.
    budget: f64,
    counted: Instant,
}

/// Let this thread be nicer than the others: what learns and answers goes first. Without it things are only slower.
pub(super) fn step_back() {
    if let Err(e) = rustix::process::nice(NICE) {
        log::debug!("event=priority_unchanged why={e}");
    }
}

impl Watcher {
    pub(super) fn new(
        config: &Config,
        endpoints: Endpoints,
        board: Arc<Board>,
        notices: Receiver<BusEvent>,
        asks: Receiver<Ask>,
        frames: watch::Sender<Arc<Frame>>,
    ) -> Self {
        let critics = &config.critics;
        let names: Vec<String> = critics.iter().map(|critic| critic.name.clone()).collect();
        let keys = || CRITIC_SERIES.iter().map(|(key, _)| key).chain(&CALIBRATION_SERIES);
        let of_critics = names.iter().flat_map(|name| keys().map(move |key| format!("{name}.{key}")));
        let columns = SERIES.iter().map(|(key, _)| (*key).to_owned()).chain(of_critics);
        Self {
            history: History::new(columns.collect()),
            calibrations: critics.iter().map(Calibration::new).collect(),
            names,
            state_dim: config.expected_dim().map(|(dim, _)| dim),
            endpoints,
            board,
            notices,
            asks,
            frames,
            frame: Arc::default(),
            marks: VecDeque::new(),
            mark: 0,
            changed: Vec::new(),
            states: VecDeque::new(),
            seen: 0,
            recent: Recent::default(),
            rewards: critics.iter().map(|c| Rewards { discount: c.discount, columns: c.rewards.clone() }).collect(),
            answers: VecDeque::new(),
            budget: SAVED,
            counted: Instant::now(),
        }
    }

    /// Until the server has ended.
    pub(super) fn run(&mut self) {
        let mut notices = self.notices.clone();
        loop {
            select! {
                recv(notices) -> notice => match notice {
                    Ok(notice) => self.hear(notice),
                    Err(_) => notices = crossbeam_channel::never(),
                },
                recv(self.asks) -> ask => match ask {
                    Ok(ask) => self.answer(ask),
                    Err(_) => break,
                },
            }
        }
    }

    fn hear(&mut self, notice: BusEvent) {
        match notice {
            BusEvent::Rows { window, streams } => self.rows(&window, &streams),
            BusEvent::Event(payload) => self.event(&payload),
            BusEvent::Status(status) => self.status(status),
            #[cfg(test)]
            BusEvent::Panic => panic!("injected"),
        }
    }

    fn rows(&mut self, window: &Window, streams: &[(u32, String)]) {
        self.recent.take(window, streams);
        let from = self.seen.max(window.start());
        self.seen = window.end();
        let step = (window.end() - from).div_ceil(STATES_EACH as u64).max(1);
        for (rows, range, first) in window.since(from) {
            let skipped = (first - from).next_multiple_of(step) - (first - from);
            for i in (range.start + skipped as usize..range.end).step_by(step as usize) {
                if self.states.len() == STATES {
                    self.states.pop_front();
                }
                self.states.push_back(rows.state(i).to_vec());
            }
        }
        for (index, calibration) in self.calibrations.iter_mut().enumerate() {
            calibration.take(window, self.board.evaluator(index));
        }
    }

    fn event(&mut self, payload: &[u8]) {
        let Ok(Value::Object(mut mark)) = wire::to_json(payload) else { return };
        for key in ["v", "type"] {
            mark.remove(key);
        }
        if mark["event"] == "adopted"
            && let Some(status) = &self.frame.status
            && let Some(kernel) = mark["critic"].as_str().and_then(|name| status.critic(name)).and_then(kernel)
        {
            mark.insert("kernel_before".into(), kernel);
        }
        self.mark += 1;
        mark.insert("number".into(), self.mark.into());
        self.changed.push(self.mark);
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    fn status(&mut self, status: Arc<Status>) {
        // The first status after an adoption has the kernel that was adopted.
        for mark in self.marks.iter_mut().filter(|m| m["event"] == "adopted" && !m.contains_key("kernel_after")) {
            let critic = mark["critic"].as_str().and_then(|name| status.critic(name));
            if let Some(kernel) = critic.filter(|c| Some(c.generation) >= mark["generation"].as_u64()).and_then(kernel)
            {
                mark.insert("kernel_after".into(), kernel);
                self.changed.push(mark["number"].as_u64().unwrap_or(0));
            }
        }
        let row = self.row(&status);
        self.history.push(&row);
        let point: Vec<Value> = row.iter().map(|v| number(*v)).collect();
        self.changed.sort_unstable();
        self.changed.dedup();
        let changed = std::mem::take(&mut self.changed);
        let is_changed = |mark: &&Map<String, Value>| mark["number"].as_u64().is_some_and(|n| changed.contains(&n));
        let marks: Vec<&Map<String, Value>> = self.marks.iter().filter(is_changed).collect();
        let number = self.frame.number + 1;
        let calibration: Vec<Value> = self.calibrations.iter_mut().map(Calibration::news).collect();
        let news = json!({
            "number": number,
            "status": *status,
            "point": point,
            "marks": marks,
            "states": self.spread(),
            "calibration": calibration,
        });
        let news = news.to_string();
        self.frame = Arc::new(Frame { number, status: Some(status), news });
        self.frames.send_replace(Arc::clone(&self.frame));
    }

    /// The numbers of a moment, in the order of the history's columns.
    fn row(&self, status: &Status) -> Vec<f64> {
        let mut row: Vec<f64> = SERIES.iter().map(|(_, read)| read(status).unwrap_or(f64::NAN)).collect();
        for (name, calibration) in self.names.iter().zip(&self.calibrations) {
            let critic = status.critic(name);
            row.extend(CRITIC_SERIES.iter().map(|(_, read)| critic.and_then(read).unwrap_or(f64::NAN)));
            row.extend(calibration.latest().unwrap_or([f64::NAN; CALIBRATION_SERIES.len()]));
        }
        row
    }

    /// Where visited states lie: nearly all, and the middle, of each state variable.
    fn spread(&self) -> Value {
        let dim = self.states.back().map_or(0, Vec::len);
        let mut quantiles = [Vec::new(), Vec::new(), Vec::new()];
        for axis in 0..dim {
            let mut values: Vec<f64> = self.states.iter().map(|state| state[axis]).collect();
            values.sort_by(f64::total_cmp);
            for (out, q) in quantiles.iter_mut().zip([0.005, 0.5, 0.995]) {
                out.push(number(values[((values.len() - 1) as f64 * q).round() as usize]));
            }
        }
        let [low, median, high] = quantiles;
        json!({"low": low, "median": median, "high": high})
    }

    fn answer(&mut self, ask: Ask) {
        // A page that has closed needs no answer.
        match ask {
            Ask::History(reply) => drop(reply.send(self.beginning())),
            Ask::Draw(question, reply) if !reply.is_closed() => drop(reply.send(self.draw(question))),
            Ask::Draw(..) => {}
        }
    }

    /// All that there is to know, for a page that has just been opened.
    fn beginning(&self) -> String {
        let colours = |map: Colours| -> String {
            let hex = |k| {
                let [r, g, b] = map.rgb(k as f64 / (COLOURS - 1) as f64);
                format!("{r:02x}{g:02x}{b:02x}")
            };
            (0..COLOURS).map(hex).collect()
        };
        let whole = json!({
            "number": self.frame.number,
            "status": self.frame.status.as_deref(),
            "history": self.history.to_json(),
            "state_dim": self.state_dim,
            "columns": self.history.columns(),
            "marks": self.marks,
            "states": self.spread(),
            "calibration": self.calibrations.iter().map(Calibration::all).collect::<Vec<_>>(),
            "endpoints": {
                "ingest": self.endpoints.ingest.to_string(),
                "control": self.endpoints.control.to_string(),
                "publish": self.endpoints.publish.to_string(),
            },
            "colours": {"value": colours(Colours::Value), "deviation": colours(Colours::Deviation)},
        });
        whole.to_string()
    }

    /// The answer to a question: that of the newest model if time allows, else one that was given before.
    fn draw(&mut self, question: Question) -> Result<Bytes, Refusal> {
        let index = self.board.critic(question.critic()).map_err(|e| Refusal::Invalid(e.message))?;
        let model = self.board.evaluator(index).ok_or(Refusal::NotReady)?;
        let now = Instant::now();
        let passed = now.duration_since(std::mem::replace(&mut self.counted, now)).as_secs_f64();
        self.budget = (self.budget + SHARE * passed).min(SAVED);
        let end = self.recent.end();
        let known = self.answers.iter().position(|answer| answer.question == question);
        if let Some(known) = known {
            let answer = &self.answers[known];
            if answer.is_fresh(model.snapshot(), end) || self.budget <= 0.0 {
                return Ok(answer.bytes.clone());
            }
        } else if self.budget <= -OWED {
            return Err(Refusal::Busy);
        }
        let before = telemetry::used();
        let bytes = self.compute(&question, &model, &self.rewards[index]).map_err(Refusal::Invalid)?;
        // Processor time: on a busy machine an answer takes longer, but no more of the others' time.
        self.budget -= telemetry::used().saturating_sub(before).as_secs_f64();
        if let Some(known) = known {
            self.answers.remove(known);
        } else if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        let snapshot = Arc::clone(model.snapshot());
        self.answers.push_back(Answer { question, snapshot, end, given: Instant::now(), bytes: bytes.clone() });
        Ok(bytes)
    }

    fn compute(&self, question: &Question, model: &Evaluator, rewards: &Rewards) -> Result<Bytes, String> {
        let snapshot = model.snapshot();
        let dim = snapshot.dim();
        let visited = || self.states.iter().rev().map(Vec::as_slice).filter(move |state| state.len() == dim);
        match question {
            Question::Map(view) => {
                let grid = view.grid(dim, snapshot.weights.ncols())?;
                grid.draw(model, visited().take(STATES_SHOWN)).map(Bytes::from).map_err(|e| e.to_string())
            }
            Question::Path(query) => along(query, &self.recent, model, rewards).map(Bytes::from),
            Question::Errors(view) => errors(view, &self.recent, model, rewards).map(Bytes::from),
            Question::Relevance(query) => relevance(query, &visited().collect::<Vec<_>>(), model).map(Bytes::from),
        }
    }
}

/// A column of the history, and the number of a status that stands in it.
type Series<T> = (&'static str, fn(&T) -> Option<f64>);

/// Columns of the history.
const SERIES: [Series<Status>; 8] = [
    ("time", |status| Some(status.time)),
    ("offset", |status| Some(status.offset as f64)),
    ("rows_per_second", |status| Some(status.rows_per_second)),
    ("refused", |status| Some(status.rejected.values().sum::<u64>() as f64)),
    ("queue_ingest", |status| Some(status.queues.ingest.waiting as f64)),
    ("queue_calls", |status| Some(status.queues.calls.waiting as f64)),
    ("window_bytes", |status| Some(status.window.bytes as f64)),
    ("resident_bytes", |_| telemetry::resident_bytes().map(|bytes| bytes as f64)),
];

/// The same for each critic.
const CRITIC_SERIES: [Series<CriticStatus>; 7] = [
    ("log_evidence", |critic| critic.model.as_ref()?.log_evidence),
    ("held_out_error", |critic| critic.held_out_error),
    ("score", |critic| critic.model.as_ref()?.score),
    ("score_recent", |critic| critic.model.as_ref()?.score_recent),
    ("dictionary_size", |critic| Some(critic.model.as_ref()?.dictionary_size as f64)),
    ("running_chains", |critic| Some(critic.model.as_ref()?.running_chains as f64)),
    ("generation", |critic| Some(critic.generation as f64)),
];

/// The same, of the newest pairs of prediction and return.
const CALIBRATION_SERIES: [&str; 3] = ["error", "bias", "coverage"];

/// The kernel of a critic's model, if it is small enough to be remembered.
fn kernel(critic: &CriticStatus) -> Option<Value> {
    let ModelStatus { kernel, noise, inputs, dictionary_size, .. } = critic.model.as_ref()?;
    (inputs.scale.len() <= KERNEL_DIM)
        .then(|| json!({"kernel": kernel, "noise": noise, "scale": inputs.scale, "dictionary_size": dictionary_size}))
}
