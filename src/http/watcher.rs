//! The thread that keeps what the page shows, and draws its heat maps.

use super::calibration::Calibration;
use super::history::{History, number};
use super::map::View;
use crate::board::Board;
use crate::learner::Settings;
use crate::learner::window::Window;
use crate::picture::Colours;
use crate::snapshot::Snapshot;
use crate::telemetry::{self, BusEvent};
use crate::transport::Endpoints;
use crate::wire::status::{CriticStatus, ModelStatus};
use crate::wire::{self, Status};
use bytes::Bytes;
use crossbeam_channel::{Receiver, select};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{oneshot, watch};

/// Events kept as marks.
const MARKS: usize = 100;
/// Visited states kept, how many are taken each time rows come, and how many are shown.
const STATES: usize = 2048;
const STATES_EACH: usize = 64;
const STATES_SHOWN: usize = 300;
/// Pictures kept.
const PICTURES: usize = 8;
/// Share of the time that may go into pictures, how much of it may be saved up, and how much may be owed for a view
/// that has not been seen yet; seconds.
const SHARE: f64 = 0.02;
const SAVED: f64 = 0.25;
const OWED: f64 = 0.5;
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
    /// A picture.
    Map(View, oneshot::Sender<Result<Bytes, Refusal>>),
}

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refusal {
    /// There is no model yet.
    NotReady,
    /// The view makes no sense.
    Invalid(String),
    /// Pictures have taken enough time until the next second.
    Busy,
}

/// A picture that has been drawn.
struct Picture {
    view: View,
    snapshot: Arc<Snapshot>,
    bytes: Bytes,
}

/// The thread's state.
pub(super) struct Watcher {
    names: Vec<String>,
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
    pictures: VecDeque<Picture>,
    /// Seconds that pictures may take, and when they were last counted.
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
        critics: &[Settings],
        endpoints: Endpoints,
        board: Arc<Board>,
        notices: Receiver<BusEvent>,
        asks: Receiver<Ask>,
        frames: watch::Sender<Arc<Frame>>,
    ) -> Self {
        let names: Vec<String> = critics.iter().map(|critic| critic.name.clone()).collect();
        let of_critics = names.iter().flat_map(|name| CRITIC_SERIES.map(|(key, _)| format!("{name}.{key}")));
        let columns = SERIES.iter().map(|(key, _)| (*key).to_owned()).chain(of_critics);
        Self {
            history: History::new(columns.collect()),
            calibrations: critics.iter().map(Calibration::new).collect(),
            names,
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
            pictures: VecDeque::new(),
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
            BusEvent::Rows(window) => self.rows(&window),
            BusEvent::Event(payload) => self.event(&payload),
            BusEvent::Status(status) => self.status(status),
            #[cfg(test)]
            BusEvent::Panic => panic!("injected"),
        }
    }

    fn rows(&mut self, window: &Window) {
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
        for name in &self.names {
            let critic = status.critic(name);
            row.extend(CRITIC_SERIES.iter().map(|(_, read)| critic.and_then(read).unwrap_or(f64::NAN)));
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
            Ask::Map(view, reply) if !reply.is_closed() => drop(reply.send(self.picture(view))),
            Ask::Map(..) => {}
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

    /// The picture of a view: that of the newest model if time allows, else one that was drawn before.
    fn picture(&mut self, view: View) -> Result<Bytes, Refusal> {
        let index = self.board.critic(view.critic.as_deref()).map_err(|e| Refusal::Invalid(e.message))?;
        let model = self.board.evaluator(index).ok_or(Refusal::NotReady)?;
        let snapshot = Arc::clone(model.snapshot());
        let now = Instant::now();
        let passed = now.duration_since(std::mem::replace(&mut self.counted, now)).as_secs_f64();
        self.budget = (self.budget + SHARE * passed).min(SAVED);
        let known = self.pictures.iter().position(|picture| picture.view == view);
        if let Some(known) = known {
            let picture = &self.pictures[known];
            if Arc::ptr_eq(&picture.snapshot, &snapshot) || self.budget <= 0.0 {
                return Ok(picture.bytes.clone());
            }
        } else if self.budget <= -OWED {
            return Err(Refusal::Busy);
        }
        let grid = view.grid(snapshot.dim(), snapshot.weights.ncols()).map_err(Refusal::Invalid)?;
        let recent = self.states.iter().rev().filter(|state| state.len() == snapshot.dim()).take(STATES_SHOWN);
        let bytes: Bytes =
            grid.draw(&model, recent.map(Vec::as_slice)).map_err(|e| Refusal::Invalid(e.to_string()))?.into();
        self.budget -= now.elapsed().as_secs_f64();
        self.counted = Instant::now();
        if let Some(known) = known {
            self.pictures.remove(known);
        } else if self.pictures.len() == PICTURES {
            self.pictures.pop_front();
        }
        self.pictures.push_back(Picture { view, snapshot, bytes: bytes.clone() });
        Ok(bytes)
    }
}

/// A column of the history, and the number of a status that stands in it.
type Series<T> = (&'static str, fn(&T) -> Option<f64>);

/// Columns of the history.
const SERIES: [Series<Status>; 7] = [
    ("time", |status| Some(status.time)),
    ("offset", |status| Some(status.offset as f64)),
    ("rows_per_second", |status| Some(status.rows_per_second)),
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

/// The kernel of a critic's model, if it is small enough to be remembered.
fn kernel(critic: &CriticStatus) -> Option<Value> {
    let ModelStatus { kernel, noise, inputs, dictionary_size, .. } = critic.model.as_ref()?;
    (inputs.scale.len() <= KERNEL_DIM)
        .then(|| json!({"kernel": kernel, "noise": noise, "scale": inputs.scale, "dictionary_size": dictionary_size}))
}
