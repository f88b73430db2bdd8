//! The thread that keeps what the page shows, and draws its heat maps.

use super::episodes::Episodes;
use super::errors::errors;
use super::head_list::heads;
use super::looking_back::LookingBack;
use super::map::Of;
use super::model_archive::KeptModels;
use super::page_delta::{News, apart, brief};
use super::path::along;
use super::persistence::{Past, PastFile, Shelf};
use super::query_budget::{LastAnswers, ModelQuestion, Refusal};
use super::relevance::relevance;
use super::row_buffer::Recent;
use super::stream_positions::newest;
use super::time_series::History;
use super::truth::Told;
use super::what_if::{PageQuestion, WhatIf, WhatIfFound};
use super::what_if_query::{Asking, CourseQuery, Followers, PlanQuery};
use crate::board::Board;
use crate::clock::Clock;
use crate::colour::Colours;
use crate::config::Config;
use crate::hindsight::Rewards;
use crate::learner::Settings;
use crate::learner::window::Window;
use crate::monitor::{Monitor, REWARDS, number, split};
use crate::snapshot::{Evaluator, Snapshot};
use crate::telemetry::{self, BusEvent};
use crate::transport::Endpoints;
use crate::wire::status::CriticStatus;
use crate::wire::{self, Status};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, select};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// Colours of a colour map.
const COLOURS: usize = 256;

/// What is shown of one moment.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// Rises by one with every frame; 0 before the first.
    pub(super) number: u64,
    /// The `status` of the daemon; none before the first.
    pub(super) status: Option<Arc<Status>>,
    /// How predictions compare with the newest returns, of each reward with enough of them.
    pub(super) quality: Vec<Quality>,
    /// Messages that were refused in the last ten minutes.
    pub(super) refused: u64,
    /// The messages to open pages.
    pub(super) news: News,
}

/// Error, bias and coverage of the newest returns of one reward.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quality {
    /// Name of the critic.
    pub(super) critic: String,
    /// Name of the reward without its unit, or its number among the critic's, counted from 0.
    pub(super) reward: String,
    pub(super) numbers: [f64; 3],
}

/// A question to the watcher.
pub(super) enum Ask {
    /// All that a page needs to begin with, the past of the critic of this name, by default the first: a JSON document.
    History(Option<String>, oneshot::Sender<String>),
    /// Something that takes the model.
    Draw(ModelQuestion, oneshot::Sender<Result<Bytes, Refusal>>),
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
    /// What has come of predictions, which another thread judges.
    monitor: Arc<Mutex<Monitor>>,
    history: History,
    recent: Recent,
    episodes: Episodes,
    /// Of each critic.
    rewards: Vec<Rewards>,
    kept: KeptModels,
    told: Arc<Told>,
    answers: LastAnswers,
    /// None where nothing outlives the daemon.
    past: Option<PastFile>,
    /// What the last frame said of each critic to pages that show another one.
    briefs: Vec<String>,
}

impl Watcher {
    pub(super) fn new(
        config: &Config,
        endpoints: Endpoints,
        board: Arc<Board>,
        (monitor, notices): (Arc<Mutex<Monitor>>, Receiver<BusEvent>),
        asks: Receiver<Ask>,
        frames: watch::Sender<Arc<Frame>>,
    ) -> Self {
        let critics = &config.critics;
        let names: Vec<String> = critics.iter().map(|critic| critic.name.clone()).collect();
        let rewards: Vec<Rewards> = critics
            .iter()
            .map(|c| Rewards {
                discount: c.discount,
                columns: c.rewards.clone(),
                successor: c.action_value.as_ref().map(|of| of.successor),
            })
            .collect();
        let of_critic = |critic: &Settings| {
            let keys = CRITIC_SERIES.iter().map(|(key, _)| (*key).to_owned());
            let of_reward = |h: usize| CALIBRATION_SERIES.iter().map(move |key| of_reward(key, h));
            let keys = keys.chain((0..critic.rewards.len().min(REWARDS)).flat_map(of_reward));
            keys.map(|key| format!("{}.{key}", critic.name)).collect::<Vec<String>>()
        };
        let of_critics = critics.iter().flat_map(of_critic);
        let columns = SERIES.iter().map(|(key, _)| (*key).to_owned()).chain(of_critics);
        Self {
            history: History::new(columns.collect()),
            monitor,
            names,
            state_dim: config.expected_dim().map(|(dim, _)| dim),
            endpoints,
            board,
            notices,
            asks,
            frames,
            frame: Arc::default(),
            recent: Recent::new(&rewards),
            episodes: Episodes::default(),
            rewards,
            kept: KeptModels::default(),
            told: Arc::default(),
            answers: LastAnswers::default(),
            past: None,
            briefs: Vec::new(),
        }
    }

    /// Put questions to models of the transition to the core.
    pub(super) fn ask(&mut self, core: Sender<PageQuestion>, limits: wire::Limits) {
        self.kept.what_if = Some(WhatIf::new(core, limits));
    }

    /// Continue the past that an earlier run has kept on this shelf, and keep this run's there.
    pub(super) fn resume_from(&mut self, shelf: Shelf) {
        self.kept.then = Some(LookingBack::new(shelf.relearn.clone()));
        let file = self.past.insert(PastFile::new(shelf));
        let generation = |index: usize| self.board.evaluator(index).map_or(0, |model| model.snapshot().generation);
        let present: Vec<(&str, u64)> =
            self.names.iter().enumerate().map(|(index, name)| (name.as_str(), generation(index))).collect();
        if let Err(why) = self.kept.read(file.directory(), &present) {
            log::warn!("event=models_ignored why={:?}", why.to_string());
        }
        let Some(past) = file.read() else { return };
        self.history.resume(&past.history, Clock::start().now().unix, &[REFUSED]);
        file.refused = self.history.last(REFUSED).unwrap_or(0.0);
        self.monitor.lock().resume(past.marks, &past.calibrations);
    }

    /// Write down what another run goes on from, unless nothing can be stored now; `last` at a stop.
    fn keep(&mut self, last: bool) {
        let storable = self.frame.status.as_ref().is_some_and(|status| status.read_only.is_none());
        let Some(file) = self.past.as_mut().filter(|_| storable) else { return };
        let (marks, calibrations) = self.monitor.lock().keep();
        file.write(&Past { history: self.history.keep(), marks, calibrations });
        if let Err(e) = self.kept.write(file.directory(), last) {
            log::warn!("event=models_unwritten why={:?}", e.to_string());
        }
    }

    /// What a simulator in this process tells the page, as soon as it does.
    pub(super) fn told(&self) -> Arc<Told> {
        Arc::clone(&self.told)
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
        // The last notices belong to the past that is kept.
        while let Ok(notice) = self.notices.try_recv() {
            self.hear(notice);
        }
        self.keep(true);
    }

    fn hear(&mut self, notice: BusEvent) {
        match notice {
            BusEvent::Rows { window, streams } => self.rows(&window, &streams),
            // The monitor has its mark.
            BusEvent::Event(_) => {}
            BusEvent::Status(status) => self.status(status),
            #[cfg(test)]
            BusEvent::Panic => panic!("injected"),
        }
    }

    fn rows(&mut self, window: &Window, streams: &[(u32, String)]) {
        self.recent.take(window, streams, Clock::start().now().unix);
        self.episodes.take(window);
    }

    fn status(&mut self, status: Arc<Status>) {
        for critic in 0..self.names.len() {
            if let Some(model) = self.board.get(critic) {
                self.kept.note(critic, &model);
            }
        }
        let monitor = Arc::clone(&self.monitor);
        let mut monitor = monitor.lock();
        let row = self.row(&status, &monitor);
        self.history.push(&row);
        let frame = self.frame.number + 1;
        let (rest, critics) = apart(&status);
        let common = json!({
            "number": frame,
            "status": rest,
            "quality": self.newest(&monitor),
            "states": monitor.visited().spread(),
            "episodes": self.episodes.news(),
            "ended": self.told.ended.get(),
        });
        let (marks, calibrations) = monitor.news();
        let own = |((k, critic), calibration): ((usize, Value), Value)| {
            let (name, kept) = (&self.names[k], self.kept.generations(k));
            let point: Vec<Value> =
                (0..SERIES.len()).chain(self.columns(k)).map(|column| number(row[column])).collect();
            let marks: Vec<_> = marks.iter().filter(|mark| mark.concerns(name)).collect();
            let parts = json!({
                "critic": name,
                "own": critic,
                "point": point,
                "calibration": calibration,
                "kept": kept,
                "marks": marks,
            });
            (name.clone(), parts)
        };
        let own = critics.into_iter().enumerate().zip(calibrations).map(own).collect();
        let news = News::new(&common, own, &mut self.briefs, &status.critics);
        let (quality, refused) = (self.quality(&status, &monitor), monitor.refused_lately(&status));
        drop(monitor);
        self.frame = Arc::new(Frame { number: frame, status: Some(status), quality, refused, news });
        self.frames.send_replace(Arc::clone(&self.frame));
        if self.past.as_ref().is_some_and(PastFile::is_due) {
            self.keep(false);
        }
    }

    /// Of each reward with enough returns.
    fn quality(&self, status: &Status, monitor: &Monitor) -> Vec<Quality> {
        let of_critic = |(k, critic): (usize, &String)| -> Vec<Quality> {
            let names = status.critic(critic).map_or(&[][..], |of| &of.reward_names);
            let reward = |h: usize| names.get(h).map_or_else(|| h.to_string(), |name| split(name).0.to_owned());
            let known = monitor.latest(k).enumerate().filter_map(|(h, latest)| Some((h, latest?)));
            known.map(|(h, numbers)| Quality { critic: critic.clone(), reward: reward(h), numbers }).collect()
        };
        self.names.iter().enumerate().flat_map(of_critic).collect()
    }

    /// The numbers of a moment, in the order of the history's columns.
    fn row(&self, status: &Status, monitor: &Monitor) -> Vec<f64> {
        let refused = self.past.as_ref().map_or(0.0, |file| file.refused);
        let read = |(name, read): &Series<Status>| {
            read(status).unwrap_or(f64::NAN) + if *name == REFUSED { refused } else { 0.0 }
        };
        let mut row: Vec<f64> = SERIES.iter().map(read).collect();
        for (k, name) in self.names.iter().enumerate() {
            let critic = status.critic(name);
            row.extend(CRITIC_SERIES.iter().map(|(_, read)| critic.and_then(read).unwrap_or(f64::NAN)));
            row.extend(monitor.latest(k).flat_map(|latest| latest.unwrap_or([f64::NAN; CALIBRATION_SERIES.len()])));
        }
        row
    }

    /// Columns of the history that belong to a critic; the daemon's columns come first.
    fn columns(&self, critic: usize) -> Range<usize> {
        let width = |of: &Rewards| CRITIC_SERIES.len() + CALIBRATION_SERIES.len() * of.columns.len().min(REWARDS);
        let from = SERIES.len() + self.rewards[..critic].iter().map(width).sum::<usize>();
        from..from + width(&self.rewards[critic])
    }

    /// Error and coverage of the newest returns of each critic's first reward, as a list of critics shows them; null of one with too few.
    fn newest(&self, monitor: &Monitor) -> Vec<Value> {
        let short = |v: f64| number(format!("{v:.1e}").parse().unwrap_or(v));
        let of = |[error, _, coverage]: [f64; 3]| json!([short(error), short(coverage)]);
        let latest = |k| monitor.latest(k).next().flatten().map_or(Value::Null, of);
        (0..self.names.len()).map(latest).collect()
    }

    fn answer(&mut self, ask: Ask) {
        // A page that has closed needs no answer.
        match ask {
            Ask::History(critic, reply) => drop(reply.send(self.beginning(critic.as_deref()))),
            Ask::Draw(question, reply) if !reply.is_closed() => drop(reply.send(self.draw(question))),
            Ask::Draw(..) => {}
        }
    }

    /// The first message to a page that has just been opened. It has the past of `critic` alone, since the past of a hundred critics
    /// would be megabytes.
    fn beginning(&self, critic: Option<&str>) -> String {
        // A page that asks for a critic that is gone is shown the first.
        let shown = self.names.iter().position(|name| Some(name.as_str()) == critic).unwrap_or(0);
        let monitor = self.monitor.lock();
        let calibrations: Vec<Value> =
            (0..self.names.len()).map(|critic| monitor.calibration(critic, critic == shown)).collect();
        let colours = |map: Colours| -> String {
            let hex = |k| {
                let [r, g, b] = map.rgb(k as f64 / (COLOURS - 1) as f64);
                format!("{r:02x}{g:02x}{b:02x}")
            };
            (0..COLOURS).map(hex).collect()
        };
        let status = self.frame.status.as_deref().map(|status| {
            let (mut rest, critics) = apart(status);
            let each = critics.into_iter().zip(&status.critics).enumerate();
            let critics = each.map(|(k, (whole, critic))| if k == shown { whole } else { brief(critic) });
            rest["critics"] = critics.collect();
            rest
        });
        let columns = || (0..SERIES.len()).chain(self.columns(shown));
        let generations: Vec<Vec<u64>> = (0..self.names.len()).map(|k| self.kept.generations(k)).collect();
        let whole = json!({
            "number": self.frame.number,
            "status": status,
            "history": self.history.to_json(columns()),
            "state_dim": self.state_dim,
            "columns": columns().map(|k| &self.history.columns()[k]).collect::<Vec<_>>(),
            "quality": self.newest(&monitor),
            "marks": monitor.marks(&self.names[shown]).collect::<Vec<_>>(),
            "states": monitor.visited().spread(),
            "calibration": calibrations,
            "kept": {"generations": generations, "bytes": self.kept.bytes()},
            "episodes": self.episodes.all(),
            "truth": self.told.truth.get().is_some(),
            "ended": self.told.ended.get(),
            "endpoints": {
                "ingest": self.endpoints.ingest.to_string(),
                "control": self.endpoints.control.to_string(),
                "publish": self.endpoints.publish.to_string(),
            },
            "colours": {"value": colours(Colours::Value), "deviation": colours(Colours::Deviation)},
        });
        whole.to_string()
    }

    /// The answer to a question, of the newest model as far as time allows.
    fn draw(&mut self, question: ModelQuestion) -> Result<Bytes, Refusal> {
        let index = self.board.critic(question.critic()).map_err(|e| Refusal::Invalid(e.message))?;
        match &question {
            ModelQuestion::Plan(query) => return Ok(self.planned(index, query)?.document.to_string().into()),
            ModelQuestion::Course(query) => return self.course(index, query),
            _ => {}
        }
        let (snapshot, model) = self.model(index, &question)?;
        let mut answers = std::mem::take(&mut self.answers);
        let compute = |question: &ModelQuestion| {
            let model = model.unwrap_or_else(|| Arc::new(Evaluator::new(Arc::clone(&snapshot))));
            self.compute(question, &model, &self.rewards[index])
        };
        let answer = answers.give(question, &snapshot, self.recent.end(), compute);
        self.answers = answers;
        answer
    }

    /// What the model of the transition answers.
    fn supposed(&mut self, index: usize, asking: Asking) -> Result<WhatIfFound, Refusal> {
        let present = self.board.get(index).ok_or(Refusal::NotReady)?;
        let what_if = self.kept.what_if.as_mut().ok_or(Refusal::NotReady)?;
        what_if.ask(asking, (present.generation, present.offset))
    }

    fn planned(&mut self, index: usize, query: &PlanQuery) -> Result<WhatIfFound, Refusal> {
        let asking = query.asking(&self.names[index]);
        self.supposed(index, asking)
    }

    /// A course, with what came where it begins in a row.
    fn course(&mut self, index: usize, query: &CourseQuery) -> Result<Bytes, Refusal> {
        let (asking, came) = query.asking(&self.names[index], &self.recent).map_err(Refusal::Invalid)?;
        let mut document = self.supposed(index, asking)?.document;
        if let Some(Followers { states, terminated }) = came {
            document["came"] = json!({"states": states, "terminated": terminated});
        }
        Ok(document.to_string().into())
    }

    /// The model that a question is about: an earlier one where it names a generation that is not the present one. That one
    /// comes without its evaluator, which takes time to make.
    fn model(
        &mut self,
        index: usize,
        question: &ModelQuestion,
    ) -> Result<(Arc<Snapshot>, Option<Arc<Evaluator>>), Refusal> {
        let present = self.board.evaluator(index).ok_or(Refusal::NotReady)?;
        if present.snapshot().actions.is_some() && matches!(question, ModelQuestion::Heads(_)) {
            return Err(Refusal::Invalid("this critic learns values of actions, and has no heads".to_owned()));
        }
        match question.of() {
            Some(Of::Generation(wanted)) if wanted != present.snapshot().generation => {
                let gone = || Refusal::Invalid(format!("generation {wanted} is not kept"));
                let kept = self.kept.get(index, wanted).ok_or_else(gone)?;
                Ok((kept, None))
            }
            Some(Of::Then(offset)) => {
                let none = || Refusal::Invalid("there is no journal to learn the past from again".to_owned());
                let then = self.kept.then.as_ref().ok_or_else(none)?;
                Ok((then.get(&self.names[index], offset)?, None))
            }
            Some(Of::Plan(query)) => {
                let model = self.planned(index, &query)?.model;
                Ok((model.ok_or(Refusal::NotReady)?, None))
            }
            _ => Ok((Arc::clone(present.snapshot()), Some(present))),
        }
    }

    fn compute(&self, question: &ModelQuestion, model: &Evaluator, rewards: &Rewards) -> Result<Bytes, String> {
        let snapshot = model.snapshot();
        let dim = snapshot.state_dim();
        match question {
            ModelQuestion::Map(view) => {
                let monitor = self.monitor.lock();
                let visited = monitor.visited().of_dim(dim);
                if let Some(Of::Head(name)) = &view.of {
                    let alone = alone(snapshot, name)?;
                    let grid = view.grid(dim, 1)?;
                    return grid.draw(&alone, &visited).map(Bytes::from).map_err(|e| e.to_string());
                }
                let grid = view.grid(dim, snapshot.weights.ncols())?;
                if view.of == Some(Of::Truth) {
                    let truth = self.told.truth.get().ok_or("no simulator in this process knows the truth")?;
                    return grid.draw_truth(truth, &visited).map(Bytes::from);
                }
                grid.draw(model, &visited).map(Bytes::from).map_err(|e| e.to_string())
            }
            ModelQuestion::Path(query) => along(query, &self.recent, model, rewards).map(Bytes::from),
            ModelQuestion::Errors(view) => errors(view, &self.recent, model, rewards).map(Bytes::from),
            ModelQuestion::Heads(query) => {
                heads(query, &self.monitor.lock().visited().of_dim(dim), model).map(Bytes::from)
            }
            ModelQuestion::Newest(query) => newest(query, &self.recent, dim).map(Bytes::from),
            ModelQuestion::Relevance(query) => {
                relevance(query, &self.monitor.lock().visited().places(snapshot), model).map(Bytes::from)
            }
            ModelQuestion::Plan(_) | ModelQuestion::Course(_) => {
                Err("a question to a model of the transition".to_owned())
            }
        }
    }
}

/// The head of this name as a value function of its own.
fn alone(snapshot: &Snapshot, name: &str) -> Result<Evaluator, String> {
    let number = snapshot.position_of_head(name);
    let number = number.ok_or_else(|| format!("this critic has no head \"{name}\""))?;
    Ok(Evaluator::new(snapshot.head_alone(number, true)))
}

/// A column of the history, and the number of a status that stands in it.
type Series<T> = (&'static str, fn(&T) -> Option<f64>);

/// The column of messages refused, earlier runs included.
const REFUSED: &str = "refused";

/// Columns of the history.
const SERIES: [Series<Status>; 8] = [
    ("time", |status| Some(status.time)),
    ("offset", |status| Some(status.offset as f64)),
    ("rows_per_second", |status| Some(status.rows_per_second)),
    (REFUSED, |status| Some(status.rejected.values().sum::<u64>() as f64)),
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

/// The column of reward h: the first reward's has the name alone.
fn of_reward(key: &str, h: usize) -> String {
    if h == 0 { key.to_owned() } else { format!("{key}:{h}") }
}
