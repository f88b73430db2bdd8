//! What the daemon does with what it is told: batches, requests, candidates and ticks in, outputs out. No threads, no
//! sockets, no clock of its own: every moment is passed in.

use super::ledger::{CheckpointDone, Ledger};
use super::memory::Footprint;
use super::recovery::{self, Progress, RecoverError, Recovered};
use super::streams::{StreamLimits, Streams};
use crate::config::Config;
use crate::journal::checkpoint::{Checkpoint, Checkpoints};
use crate::journal::store::{Mark, Storage};
use crate::journal::{Configured, GroupWriter, Quarantined};
use crate::learner::model::Model;
use crate::learner::refit::{Candidate, RefitJob, RefitReport};
use crate::learner::window::Window;
use crate::learner::{Event, Learner, Verdict};
use crate::math::posterior::Scale;
use crate::snapshot::{Evaluator, Snapshot};
use crate::transition::{Batch, BatchParts, Rows};
use crate::transport::{Peer, Publication, Reply};
use crate::wire::{self, ArrayForm, ErrorCode, Id, Op, Optimised, WireError};
use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Adoption pauses remembered for the percentiles of `status`.
const PAUSES: usize = 1024;
/// Share of the learner's time that refreshing the answering snapshot may take while rows wait.
const REFRESH_SHARE: f64 = 0.25;
/// Offsets that are remembered as waited for.
const WANTED_MAX: usize = 1024;
/// Least time between two `weights` publications, seconds.
const WEIGHTS_INTERVAL_S: f64 = 0.1;
/// Least time between two log lines or events about rejected rows, seconds.
const REJECTED_INTERVAL_S: f64 = 1.0;
/// `optimise` requests that may wait for one critic, and requests for a checkpoint.
const WAITERS_MAX: usize = 64;
/// Largest model that is adopted where adoptions are recorded: the database takes values of less than a gigabyte. A dictionary of
/// about 4000 elements comes near it.
const MODEL_BYTES_MAX: usize = 768 << 20;
/// Refused messages kept for the quarantine between two looks at them.
const REFUSED_AT_ONCE: usize = 64;
/// Bytes that are kept of a refused message.
const REFUSED_BYTES: usize = 4096;

/// Streams that `status` tells of by name.
const STREAMS_TOLD: usize = 32;

/// What waits in the queues around the core, and how much may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Messages of producers.
    pub ingest: [usize; 2],
    /// Requests that only the core can answer.
    pub calls: [usize; 2],
    /// Messages to subscribers.
    pub publish: [usize; 2],
}

/// A moment: both clocks at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Seconds since the daemon started; never goes back.
    pub uptime: f64,
    /// Unix seconds, for people.
    pub unix: f64,
}

/// The snapshots that queries are answered from, laid out for that: one slot per critic, replaced whole.
#[derive(Debug, Default)]
pub struct Board {
    slots: Vec<(String, RwLock<Option<Arc<Evaluator>>>)>,
}

impl Board {
    fn new(names: impl Iterator<Item = String>) -> Self {
        Self { slots: names.map(|name| (name, RwLock::new(None))).collect() }
    }

    /// Index of the critic called `name`; the first one if no name is given.
    ///
    /// # Errors
    /// `unknown_critic`, with those there are.
    pub fn critic(&self, name: Option<&str>) -> Result<usize, WireError> {
        let Some(name) = name else { return Ok(0) };
        self.slots.iter().position(|(known, _)| known == name).ok_or_else(|| {
            let known: Vec<&str> = self.slots.iter().map(|(known, _)| known.as_str()).collect();
            let message = format!("there is no critic \"{name}\"; there is {}", known.join(", "));
            WireError::of(ErrorCode::UnknownCritic, "critic", message)
        })
    }

    /// The present snapshot of a critic, if it has one.
    pub fn get(&self, critic: usize) -> Option<Arc<Snapshot>> {
        self.slots[critic].1.read().as_ref().map(|evaluator| Arc::clone(evaluator.snapshot()))
    }

    /// What evaluates it.
    pub fn evaluator(&self, critic: usize) -> Option<Arc<Evaluator>> {
        self.slots[critic].1.read().clone()
    }

    /// Replace it.
    pub(super) fn set(&self, critic: usize, snapshot: Snapshot) {
        // Laid out here, once, and not by the first who asks: that one would wait for it.
        let evaluator = Arc::new(Evaluator::new(snapshot));
        // The old one is dropped after the lock is given back.
        let old = self.slots[critic].1.write().replace(evaluator);
        drop(old);
    }
}

/// A request that only the core can answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Who asked.
    pub peer: Peer,
    /// Echoed.
    pub id: Id,
    /// How tensors are written.
    pub form: ArrayForm,
    /// What is asked.
    pub op: Op,
}

/// Something for the threads around the core to do.
#[derive(Debug)]
pub enum Output {
    /// Answer a peer.
    Reply(Reply),
    /// Publish; dropped if the publisher's queue is full, a later one replaces it.
    Publish(Publication),
    /// Select a model.
    Refit {
        /// Index of the critic.
        critic: usize,
        /// What it needs.
        job: Box<RefitJob>,
    },
    /// Let a candidate learn what arrived since it was fitted.
    CatchUp {
        /// Index of the critic.
        critic: usize,
        /// The candidate.
        candidate: Box<Candidate>,
        /// The retained rows.
        window: Window,
    },
    /// Drop this elsewhere: it is large.
    Garbage(Box<Model>),
    /// Encode and write a checkpoint.
    Checkpoint(Box<Checkpoint>),
}

/// How a refit ended, told by the thread that ran it.
#[derive(Debug)]
pub struct RefitDone {
    /// Index of the critic.
    pub critic: usize,
    /// The candidate, or why there is none.
    pub result: Result<Candidate, String>,
    /// Seconds since it was started; of catching up, since that was.
    pub seconds: f64,
}

/// A message that was refused where nobody could be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Unix seconds.
    pub time: f64,
    /// Name of the error code; "learner_failed" for rows that were taken in and could not be learned.
    pub code: &'static str,
    /// Field at fault.
    pub field: Option<&'static str>,
    /// Row at fault.
    pub index: Option<usize>,
    /// A sentence for people.
    pub message: String,
    /// The message, or its beginning.
    pub payload: Vec<u8>,
}

#[derive(Debug, Default)]
struct RefitCounts {
    started: u64,
    adopted: u64,
    rejected: u64,
    failed: u64,
}

#[derive(Debug)]
struct Critic {
    name: String,
    learner: Learner,
    /// Why it no longer learns, if it does not.
    failed: Option<String>,
    revision: u64,
    /// Generation and dictionary size of the last publication.
    published: Option<(u64, usize)>,
    published_whole_at: f64,
    /// Rows that the last whole snapshot had learned.
    published_whole_offset: u64,
    published_at: f64,
    /// The board has what subscribers have not been told.
    unpublished: bool,
    /// Of the snapshot on the board, for the status.
    shown: Option<Shown>,
    refits: RefitCounts,
    refit_seconds: f64,
    last_refit: Value,
    pauses: VecDeque<f64>,
    waiting: Vec<(Peer, Id, ArrayForm)>,
    waiting_for_running: Vec<(Peer, Id, ArrayForm)>,
    /// Those who are told of an adoption as soon as answers come from the model that was adopted.
    waiting_for_answers: Vec<(Peer, Id, ArrayForm)>,
    failed_snapshots: u64,
}

/// An append that is answered when its rows are stored.
#[derive(Debug)]
struct Ack {
    peer: Peer,
    id: Id,
    form: ArrayForm,
    accepted: u64,
    duplicates: u64,
    next_seq: u64,
}

/// What has been taken in and is not stored yet: the next group. Whatever is not a row is recorded when everything before
/// it has been stored and learned, so that it stands before the rows of its group.
#[derive(Debug, Default)]
struct Pending {
    group: GroupWriter,
    /// Unix seconds when its first row came: the time of all that is in it.
    time: Option<f64>,
    /// The rows, as the window will have them.
    rows: Option<Rows>,
    acks: Vec<Ack>,
    /// An adoption that is told when it is stored.
    adopted: Option<AdoptedHere>,
    /// Whether the group is with the ledger, which has not been able to write it.
    stuck: bool,
}

/// An adoption, as it is told.
#[derive(Debug)]
struct AdoptedHere {
    critic: usize,
    report: RefitReport,
    /// Scores of the model before and of this one.
    scores: Option<(f64, f64)>,
}

impl Pending {
    fn rows(&self) -> u64 {
        self.rows.as_ref().map_or(0, |rows| rows.len() as u64)
    }
}

/// The state of the whole daemon but its threads and sockets.
#[derive(Debug)]
pub struct Core {
    config: Arc<Config>,
    /// None: nothing is kept.
    ledger: Option<Ledger>,
    pending: Pending,
    /// Refits that ended while nothing could be written.
    postponed: Vec<RefitDone>,
    /// Who waits for a checkpoint.
    checkpoint_waiters: Vec<(Peer, Id, ArrayForm)>,
    /// Who waits for the one after the one that is being written.
    checkpoint_waiters_next: Vec<(Peer, Id, ArrayForm)>,
    /// What the start found, for `status`.
    recovered: Value,
    /// Rows on which learners failed.
    quarantined_rows: u64,
    refit_restarts: u64,
    http_restarts: u64,
    /// Messages refused on ingest, for the quarantine; bounded.
    refused: Vec<Refused>,
    streams: Streams,
    /// Memory of the last batch, for the next one.
    spare: BatchParts,
    /// Likewise of its rows' flags: which of them start a chain.
    chains: Vec<bool>,
    /// Memory of the last group's rows, for the next one.
    spare_rows: Rows,
    window: Option<Window>,
    critics: Vec<Critic>,
    board: Arc<Board>,
    refit_busy: bool,
    rejected: BTreeMap<&'static str, u64>,
    rejected_since_report: u64,
    rejected_reported_at: f64,
    last_rejected: Option<WireError>,
    /// Rows that were known already, on both sockets.
    duplicates: u64,
    /// Offsets that somebody waits for a snapshot to have learned.
    wanted: BTreeSet<u64>,
    next_refresh: f64,
    offset_at_refresh: u64,
    rate: Rate,
    queues: Queues,
    /// Rows taken in and rows there are of a table that is learned first.
    warm_start: Option<(u64, u64)>,
    out: Vec<Output>,
}

/// Rows per second, averaged over a few seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    at: f64,
    rows: u64,
    per_second: f64,
}

impl Core {
    /// A daemon that has seen nothing.
    pub fn new(config: Arc<Config>) -> Self {
        let critics: Vec<Critic> = config
            .critics
            .iter()
            .map(|settings| Critic {
                name: settings.name.clone(),
                learner: Learner::new(settings.clone(), config.state_names.clone()),
                failed: None,
                revision: 0,
                published: None,
                published_whole_at: f64::NEG_INFINITY,
                published_whole_offset: 0,
                published_at: f64::NEG_INFINITY,
                unpublished: false,
                shown: None,
                refits: RefitCounts::default(),
                refit_seconds: 0.0,
                last_refit: Value::Null,
                pauses: VecDeque::new(),
                waiting: Vec::new(),
                waiting_for_running: Vec::new(),
                waiting_for_answers: Vec::new(),
                failed_snapshots: 0,
            })
            .collect();
        Self {
            board: Arc::new(Board::new(critics.iter().map(|critic| critic.name.clone()))),
            ledger: None,
            pending: Pending::default(),
            postponed: Vec::new(),
            checkpoint_waiters: Vec::new(),
            checkpoint_waiters_next: Vec::new(),
            recovered: Value::Null,
            quarantined_rows: 0,
            refit_restarts: 0,
            http_restarts: 0,
            refused: Vec::new(),
            streams: Streams::new(),
            spare: BatchParts::default(),
            chains: Vec::new(),
            spare_rows: Rows::default(),
            window: None,
            critics,
            refit_busy: false,
            rejected: BTreeMap::new(),
            rejected_since_report: 0,
            rejected_reported_at: f64::NEG_INFINITY,
            last_rejected: None,
            duplicates: 0,
            wanted: BTreeSet::new(),
            next_refresh: f64::MIN_POSITIVE,
            offset_at_refresh: 0,
            rate: Rate::default(),
            queues: Queues::default(),
            warm_start: None,
            out: Vec::new(),
            config,
        }
    }

    /// The daemon that `storage` and `checkpoints` remember, or one that has seen nothing if they are empty. What it takes in
    /// from here on is stored there before it is acknowledged.
    ///
    /// # Errors
    /// If what is there cannot be all that was acknowledged, or contradicts the settings.
    pub fn open(
        config: Arc<Config>,
        mut storage: Box<dyn Storage>,
        checkpoints: Arc<dyn Checkpoints>,
        now: Now,
        progress: Progress<'_>,
    ) -> Result<Self, RecoverError> {
        let mut recovered = recovery::recover(storage.as_mut(), checkpoints.as_ref(), config.window_rows, progress)?;
        let mut core = Self::new(Arc::clone(&config));
        if let Some(window) = &recovered.window {
            let found = window.dim();
            if let Some((dim, key)) = config.expected_dim().filter(|&(dim, _)| dim != found) {
                let why =
                    format!("{key} is for {dim} state variables, but the journal holds states of {found} numbers");
                return Err(RecoverError::Settings(why));
            }
        }
        let ledger = Ledger::new(storage, checkpoints, config.ledger(), &recovered)?;
        core.recovered = recovered_status(&recovered, ledger.torn_bytes());
        core.ledger = Some(ledger);
        core.window = recovered.window.take();
        core.streams = std::mem::take(&mut recovered.streams);
        let configured = recovered.configured.take();
        let known = std::mem::take(&mut recovered.learners);
        for quarantined in &recovered.quarantined {
            core.report_quarantined(quarantined, now);
            core.pending.group.quarantined(quarantined);
        }
        let from = core.window.as_ref().map_or(0, Window::start);
        let (critics, names) = (config.critics.clone(), config.state_names.clone());
        let wanted = Configured { critics, names, from };
        let same = |known: &Configured| (&known.critics, &known.names) == (&wanted.critics, &wanted.names);
        let learners = if configured.as_ref().is_some_and(same) {
            known
        } else {
            core.pending.group.configured(&wanted);
            recovery::configure(known, &wanted)
        };
        for (critic, learner) in core.critics.iter_mut().zip(learners) {
            critic.learner = learner;
        }
        core.rate.rows = core.offset();
        Ok(core)
    }

    /// Where queries are answered from.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// The retained rows, once there are any.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// What `status` is to say of the queues around the core.
    pub fn set_queues(&mut self, queues: Queues) {
        self.queues = queues;
    }

    /// What `status` is to say of a table that is learned before live rows: rows taken in, rows there are.
    pub fn set_warm_start(&mut self, rows: Option<(u64, u64)>) {
        self.warm_start = rows;
    }

    /// How often the thread that runs refits, and those that serve HTTP, had to be started again, for `status`.
    pub fn set_restarts(&mut self, refit: u64, http: u64) {
        (self.refit_restarts, self.http_restarts) = (refit, http);
    }

    /// What the start found in the data directory, as `status` has it.
    pub fn recovered(&self) -> &Value {
        &self.recovered
    }

    /// Rows taken in that are not stored yet.
    pub fn waiting_rows(&self) -> u64 {
        self.pending.rows()
    }

    /// Bytes of what is taken in and not stored yet.
    pub fn waiting_bytes(&self) -> usize {
        self.pending.group.bytes()
    }

    /// Why nothing is taken in, if that is so: what was taken in cannot be stored. Messages on ingest must wait then.
    pub fn read_only(&self) -> Option<&str> {
        self.ledger.as_ref().and_then(Ledger::failure)
    }

    /// Rows stored so far; without a journal, rows taken in.
    pub fn offset(&self) -> u64 {
        self.window.as_ref().map_or(0, Window::end)
    }

    /// Rows that the answering snapshots have learned.
    pub fn offset_at_refresh(&self) -> u64 {
        self.offset_at_refresh
    }

    /// What there is to do, in order; the list is empty afterwards.
    pub fn take_outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.out.drain(..)
    }

    /// Take a message of the ingest socket in. What is wrong with it is counted and reported at a bounded rate.
    pub fn ingest(&mut self, payload: &[u8], now: Now) {
        let spare = std::mem::take(&mut self.spare);
        let taken = wire::decode_ingest_into(payload, &self.config.limits.wire(), spare).and_then(|batch| {
            let taken = self.take(&batch, false, now);
            self.spare = batch.into_parts();
            taken
        });
        if let Err(error) = taken {
            *self.rejected.entry(error.code.name()).or_default() += 1;
            self.rejected_since_report += 1;
            let WireError { code, field, index, message, .. } = error.clone();
            let payload = payload[..payload.len().min(REFUSED_BYTES)].to_vec();
            self.keep_refused(Refused { time: now.unix, code: code.name(), field, index, message, payload });
            self.last_rejected = Some(error);
        }
    }

    /// Take rows of a table in, as those of the ingest socket are.
    ///
    /// # Errors
    /// If they are refused: none of them is learned.
    pub fn warm_start(&mut self, batch: &Batch, now: Now) -> Result<(), WireError> {
        self.take(batch, false, now).map(drop)
    }

    /// The newest session of a stream, if the stream is known.
    pub fn session(&self, stream: &str) -> Option<&str> {
        self.streams.session(stream)
    }

    /// Make durable what is stored. Returns whether it is.
    pub fn make_durable(&mut self, now: Now, clock: &dyn Fn() -> f64) -> bool {
        self.ledger.as_mut().is_none_or(|ledger| ledger.sync(now, clock))
    }

    /// Number a batch and put its new rows behind the others: all of them or none.
    fn take(&mut self, batch: &Batch, strict: bool, now: Now) -> Result<(u64, u64, u64), WireError> {
        if self.read_only().is_some() {
            let message = "what is received cannot be stored just now; queries are answered";
            return Err(WireError::new(ErrorCode::ReadOnly, message));
        }
        self.check_shape(batch.dim(), batch.rewards_per_row())?;
        let offset = self.offset() + self.pending.rows();
        let limits = StreamLimits { max: self.config.streams_max, idle_rows: self.config.streams_idle_rows };
        let admission = self.streams.admit(batch, strict, offset, limits)?;
        self.duplicates += admission.duplicates as u64;
        let new = batch.len() - admission.duplicates;
        if new > 0 {
            let shape = (batch.dim(), batch.rewards_per_row());
            let spare = &mut self.spare_rows;
            let rows = self.pending.rows.get_or_insert_with(|| match (spare.dim, spare.rewards_per_row) == shape {
                true => std::mem::take(spare),
                false => Rows::new(shape.0, shape.1),
            });
            let time = *self.pending.time.get_or_insert(now.unix);
            self.chains.clear();
            self.streams.commit(batch, &admission, offset, time, |starts_chain, _| self.chains.push(starts_chain));
            rows.extend_from_batch(admission.number, &self.chains, batch, admission.duplicates);
            if self.ledger.is_some() {
                self.pending.group.take(admission.number, batch, admission.duplicates, &self.chains);
            }
        }
        Ok((new as u64, admission.duplicates as u64, admission.next_seq))
    }

    /// What may be kept at most, once the state's dimension is settled.
    pub fn footprint(&self) -> Option<Footprint> {
        let rewards = || self.config.critics.iter().flat_map(|critic| &critic.rewards).max().map_or(1, |last| last + 1);
        let (dim, rewards) = self.shape().or_else(|| self.config.expected_dim().map(|(dim, _)| (dim, rewards())))?;
        Some(Footprint::of(&self.config, dim, rewards))
    }

    /// State dimension and rewards per row, once there is a row.
    fn shape(&self) -> Option<(usize, usize)> {
        let stored = self.window.as_ref().map(|window| (window.dim(), window.rewards_per_row()));
        stored.or_else(|| self.pending.rows.as_ref().map(|rows| (rows.dim, rows.rewards_per_row)))
    }

    /// Whether rows of states (`state_dim`,) and `found` rewards may be taken in.
    ///
    /// # Errors
    /// `wrong_dimension`, if they are not like the rows before them, or the settings forbid them.
    pub fn check_shape(&self, state_dim: usize, found: usize) -> Result<(), WireError> {
        let shape = self.shape();
        let expected = shape.map(|(dim, _)| (dim, "")).or(self.config.expected_dim());
        if let Some((dim, key)) = expected.filter(|&(dim, _)| dim != state_dim) {
            let why = if key.is_empty() { String::new() } else { format!(" (setting {key})") };
            let message = format!("states have {dim} numbers here{why}, these have {state_dim}");
            return Err(WireError::of(ErrorCode::WrongDimension, "state", message));
        }
        if let Some((_, rewards)) = shape.filter(|&(_, h)| h != found) {
            let message = format!("rows have {rewards} rewards here, these have {found}");
            return Err(WireError::of(ErrorCode::WrongDimension, "reward", message));
        }
        for critic in &self.config.critics {
            if let Some(column) = critic.rewards.iter().find(|&&column| column >= found) {
                let message = format!("critic \"{}\" learns reward {column}, rows have {found} rewards", critic.name);
                return Err(WireError::of(ErrorCode::WrongDimension, "reward", message));
            }
        }
        Ok(())
    }

    /// Answer a request, now or later.
    pub fn call(&mut self, call: Call, now: Now) {
        let Call { peer, id, form, op } = call;
        let result = match op {
            // Answered when its rows, or those that they repeat, are stored.
            Op::Append(batch) => self.take(&batch, true, now).map(|(accepted, duplicates, next_seq)| {
                let id = id.clone();
                self.pending.acks.push(Ack { peer, id, form, accepted, duplicates, next_seq });
                None
            }),
            Op::Status => {
                let status = self.status(now);
                Ok(Some(wire::encode_reply(&id, form, &wire::Reply::Status(&status))))
            }
            Op::Streams => {
                let positions = self.streams.positions();
                Ok(Some(wire::encode_reply(&id, form, &wire::Reply::Streams(&positions))))
            }
            Op::Optimise { critic, wait } => self.optimise(critic.as_deref(), wait, (peer, id.clone(), form)),
            Op::Checkpoint => self.ask_checkpoint((peer, id.clone(), form), now),
            Op::NewPolicy { .. } => Err(WireError::new(ErrorCode::Internal, "policies are not applied")),
            Op::Value { .. } | Op::Snapshot { .. } | Op::Ping | Op::Hello => {
                Err(WireError::new(ErrorCode::Internal, "a query reached the learner"))
            }
        };
        match result {
            Ok(Some(payload)) => self.out.push(Output::Reply(Reply { peer, payload })),
            Ok(None) => {}
            Err(error) => {
                let payload = wire::encode_error(&id, &error);
                self.out.push(Output::Reply(Reply { peer, payload }));
            }
        }
    }

    fn optimise(
        &mut self,
        critic: Option<&str>,
        wait: bool,
        (peer, id, form): (Peer, Id, ArrayForm),
    ) -> Result<Option<Vec<u8>>, WireError> {
        let critic = &mut self.critics[self.board.critic(critic)?];
        if let Some(why) = &critic.failed {
            return Err(WireError::new(ErrorCode::Internal, format!("this critic has failed: {why}")));
        }
        if critic.learner.model().is_none() {
            let needed = critic.learner.settings().warmup_rows;
            let message = format!("no model yet: {} of {needed} rows have arrived", critic.learner.learned());
            return Err(WireError::new(ErrorCode::NotReady, message));
        }
        if wait
            && critic.waiting.len() + critic.waiting_for_running.len() + critic.waiting_for_answers.len() >= WAITERS_MAX
        {
            return Err(WireError::overloaded(1000));
        }
        critic.learner.request_refit();
        if wait {
            critic.waiting.push((peer, id, form));
            return Ok(None);
        }
        Ok(Some(wire::encode_reply(&id, form, &wire::Reply::Optimise(&Optimised::Started))))
    }

    fn ask_checkpoint(&mut self, waiter: (Peer, Id, ArrayForm), now: Now) -> Result<Option<Vec<u8>>, WireError> {
        // What was received before the request is covered.
        self.step(now);
        let failed = self.critics.iter().find(|critic| critic.failed.is_some());
        if let Some(critic) = failed {
            let message = format!("critic {} has failed: what is left of it is not worth keeping", critic.name);
            return Err(WireError::new(ErrorCode::Internal, message));
        }
        let Some(ledger) = &self.ledger else {
            let message = "there is no journal, and so no checkpoint: `journal` is off in the settings";
            return Err(WireError::new(ErrorCode::NotReady, message));
        };
        if ledger.failure().is_some() {
            return Err(WireError::new(ErrorCode::ReadOnly, "nothing can be stored just now"));
        }
        if let Some(offset) = ledger.checkpoint_is_fresh() {
            let (_, id, form) = waiter;
            return Ok(Some(wire::encode_reply(&id, form, &wire::Reply::Checkpoint { offset })));
        }
        if self.checkpoint_waiters.len() + self.checkpoint_waiters_next.len() >= WAITERS_MAX {
            return Err(WireError::overloaded(1000));
        }
        // One that is being written does not cover what came since it was begun.
        if ledger.checkpoint_running() {
            self.checkpoint_waiters_next.push(waiter);
        } else {
            self.checkpoint_waiters.push(waiter);
            self.checkpoint_if_due(now);
        }
        Ok(None)
    }

    /// If a checkpoint is due or waited for, hand out a copy of everything that a start needs, behind the last group. Copying is
    /// what this costs here; encoding and writing is done elsewhere. While a critic has failed there are none: a start makes it
    /// anew from the last one before.
    fn checkpoint_if_due(&mut self, now: Now) {
        let Some(ledger) = &self.ledger else { return };
        let wanted = ledger.checkpoint_due() || (!self.checkpoint_waiters.is_empty() && !ledger.checkpoint_running());
        if !wanted || self.critics.iter().any(|critic| critic.failed.is_some()) {
            return;
        }
        // What has been done must not be done again by a start from here. No rows wait: they have just been learned.
        if !self.commit(now, &|| now.uptime) {
            return;
        }
        let Some(ledger) = &mut self.ledger else { return };
        // A checkpoint must never know more than the journal does.
        if !ledger.sync(now, &|| now.uptime) {
            return;
        }
        ledger.checkpoint_started();
        let checkpoint = self.checkpoint(now);
        self.out.push(Output::Checkpoint(Box::new(checkpoint)));
    }

    /// Everything that a start behind the last group needs. It is that group's state once it has been learned ([`Core::step`]).
    pub fn checkpoint(&self, now: Now) -> Checkpoint {
        let Mark { id, offset, crc } = self.ledger.as_ref().map_or_else(Mark::default, Ledger::end);
        let learners: Vec<Learner> = self.critics.iter().map(|critic| critic.learner.clone()).collect();
        let window = offset.saturating_sub(self.config.window_rows as u64);
        let needs_from = learners.iter().map(Learner::needs_from).fold(window, u64::min);
        Checkpoint {
            group: id,
            crc,
            offset,
            needs_from,
            time: now.unix,
            shape: self.shape(),
            streams: self.streams.clone(),
            // New critics have begun by now.
            configured: Some(Configured { from: 0, ..self.configured() }),
            learners,
        }
    }

    /// Settings of the critics as they are recorded.
    fn configured(&self) -> Configured {
        let from = self.window.as_ref().map_or(0, Window::start);
        Configured { critics: self.config.critics.clone(), names: self.config.state_names.clone(), from }
    }

    /// A checkpoint that was handed out has been written, or has not.
    pub fn checkpoint_done(&mut self, done: &CheckpointDone, now: Now) {
        let Some(ledger) = &mut self.ledger else { return };
        ledger.checkpoint_done(done, now);
        let offset = done.offset;
        for (peer, id, form) in std::mem::take(&mut self.checkpoint_waiters) {
            let payload = match &done.result {
                Ok(_) => wire::encode_reply(&id, form, &wire::Reply::Checkpoint { offset }),
                Err(why) => {
                    let message = format!("the checkpoint could not be written: {why}");
                    wire::encode_error(&id, &WireError::new(ErrorCode::Internal, message))
                }
            };
            self.out.push(Output::Reply(Reply { peer, payload }));
        }
        if let Ok(bytes) = done.result {
            let details = map(json!({"offset": offset, "bytes": bytes, "seconds": done.seconds}));
            self.out.push(event("checkpoint", now, &details));
        }
        self.checkpoint_waiters = std::mem::take(&mut self.checkpoint_waiters_next);
    }

    /// Before the end: store what has been received, make it durable, and write a last checkpoint, here and now.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&mut self, now: Now) -> Result<(), String> {
        self.step(now);
        // What the step itself has to record.
        self.commit(now, &|| now.uptime);
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if !ledger.sync(now, &|| now.uptime) {
            return Err(ledger.failure().unwrap_or_default().to_owned());
        }
        if ledger.checkpoint_is_fresh().is_some() || ledger.checkpoint_running() {
            return Ok(());
        }
        if self.critics.iter().any(|critic| critic.failed.is_some()) {
            return Ok(());
        }
        let checkpoints = ledger.checkpoints();
        let checkpoint = self.checkpoint(now);
        checkpoints.write(checkpoint.group, &checkpoint.encode()).map_err(|e| e.to_string())?;
        log::info!("event=checkpoint offset={}", checkpoint.offset);
        self.ledger.as_mut().map_or(Ok(()), Ledger::tidy)
    }

    /// Somebody waits for a snapshot that has learned `offset` rows. At most 1024 are remembered, the nearest.
    pub fn want(&mut self, offset: u64) {
        self.wanted.insert(offset);
        if self.wanted.len() > WANTED_MAX {
            self.wanted.pop_last();
        }
    }

    /// Store what has been taken in, as one group, and acknowledge it. Returns whether everything is stored. `clock` tells the
    /// seconds since the start.
    pub fn commit(&mut self, now: Now, clock: &dyn Fn() -> f64) -> bool {
        if self.pending.stuck || self.read_only().is_some() {
            return false;
        }
        if let Some(ledger) = &mut self.ledger
            && !self.pending.group.is_empty()
        {
            let group = std::mem::take(&mut self.pending.group);
            let time = self.pending.time.take().unwrap_or(now.unix);
            if !ledger.commit(group, time, now, clock) {
                self.pending.stuck = true;
                self.refuse_appends();
                return false;
            }
        }
        self.stored(now);
        true
    }

    /// What was taken in last is stored: the window gets the rows, and those who sent them are told.
    fn stored(&mut self, now: Now) {
        self.pending.time = None;
        if let Some(rows) = self.pending.rows.take() {
            let window = self.window.get_or_insert_with(|| {
                let mut window = Window::new(rows.dim, rows.rewards_per_row, self.config.window_rows);
                window.hold(0);
                window
            });
            window.extend(&rows, 0..rows.len());
            self.spare_rows = rows;
            self.spare_rows.clear();
            self.streams.settle();
        }
        let offset = self.offset();
        for Ack { peer, id, form, accepted, duplicates, next_seq } in std::mem::take(&mut self.pending.acks) {
            let reply = wire::Reply::Append { accepted, duplicates, next_seq, offset };
            let payload = wire::encode_reply(&id, form, &reply);
            self.out.push(Output::Reply(Reply { peer, payload }));
        }
        if let Some(AdoptedHere { critic, report, scores }) = self.pending.adopted.take() {
            self.adopted(critic, &report, scores, now);
        }
    }

    /// Nobody is told that rows were stored that may not be. If they are stored later, sending them again does no harm.
    fn refuse_appends(&mut self) {
        let error = WireError::new(ErrorCode::ReadOnly, "the rows could not be stored; send them again later");
        for Ack { peer, id, .. } in std::mem::take(&mut self.pending.acks) {
            let payload = wire::encode_error(&id, &error);
            self.out.push(Output::Reply(Reply { peer, payload }));
        }
    }

    /// Try again to store what could not be stored, if it is time.
    pub fn retry_if_due(&mut self, now: Now) {
        let Some(ledger) = &mut self.ledger else { return };
        if !ledger.retry_due(now) || !ledger.retry(now) {
            return;
        }
        self.pending.stuck = false;
        self.stored(now);
        self.step(now);
        for done in std::mem::take(&mut self.postponed) {
            self.refit_done(done, now);
        }
    }

    /// Make durable what was stored, where the settings leave that for later.
    pub fn sync_if_due(&mut self, now: Now, clock: &dyn Fn() -> f64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.sync_if_due(now, clock);
        }
    }

    /// Store and learn what has been taken in, and hand out what is due: a refit, a checkpoint.
    pub fn step(&mut self, now: Now) {
        if !self.commit(now, &|| now.uptime) {
            return;
        }
        let mut failed = Vec::new();
        if let Some(window) = &self.window {
            for (index, critic) in self.critics.iter_mut().enumerate().filter(|(_, c)| c.failed.is_none()) {
                let from = critic.learner.learned();
                // One critic's bug must not take the others down.
                match catch_unwind(AssertUnwindSafe(|| critic.learner.step(window))) {
                    Ok(events) => {
                        for event in events {
                            report_event(critic, event, now, &mut self.out);
                        }
                    }
                    Err(panic) => {
                        let (critic, why, to) = (critic.name.clone(), panic_message(&panic), window.end());
                        failed.push((index, Quarantined { critic, from, to, why }));
                    }
                }
            }
        }
        if !failed.is_empty() {
            self.quarantine(&failed, now);
        }
        let learned = self.critics.iter().filter(|c| c.failed.is_none()).map(|c| c.learner.learned()).min();
        if let Some(window) = &mut self.window {
            window.hold(learned.unwrap_or(u64::MAX));
        }
        self.start_refit(now);
        self.checkpoint_if_due(now);
        self.report_rejected(now);
    }

    /// Learners have failed on the rows of the last group. With a journal they are made anew as they were before, and go on
    /// without these rows; without one they are not looked at again.
    fn quarantine(&mut self, failed: &[(usize, Quarantined)], now: Now) {
        if self.ledger.is_some() {
            for (_, quarantined) in failed.iter().filter(|(_, quarantined)| quarantined.from < quarantined.to) {
                self.report_quarantined(quarantined, now);
                self.pending.group.quarantined(quarantined);
            }
        }
        // If that cannot be recorded just now they stand still, and a restart makes them anew.
        let recorded = self.commit(now, &|| now.uptime);
        for (index, Quarantined { why, .. }) in failed {
            let restored = if recorded { self.restore(*index) } else { Err("nothing can be stored".into()) };
            if let Err(hindrance) = restored {
                self.fail(*index, &format!("{why} (not restored: {hindrance})"), now);
            }
        }
    }

    /// Make one learner anew from the journal.
    fn restore(&mut self, index: usize) -> Result<(), String> {
        let window_rows = self.config.window_rows;
        let ledger = self.ledger.as_mut().ok_or("there is no journal")?;
        let checkpoints = ledger.checkpoints();
        let recovered = recovery::recover(ledger.storage(), checkpoints.as_ref(), window_rows, &mut |_, _| {});
        let mut recovered = recovered.map_err(|e| e.to_string())?;
        if let Some(more) = recovered.quarantined.first() {
            return Err(format!("it fails on rows {} to {} as well", more.from, more.to));
        }
        if index >= recovered.learners.len() {
            return Err("it is not in the journal".into());
        }
        self.critics[index].learner = recovered.learners.swap_remove(index);
        Ok(())
    }

    fn report_quarantined(&mut self, quarantined: &Quarantined, now: Now) {
        let Quarantined { critic, from, to, why } = quarantined;
        log::error!("event=quarantined critic={critic} from={from} to={to} why={why:?}");
        self.quarantined_rows += to - from;
        let details = map(json!({"critic": critic, "from": from, "to": to, "reason": why}));
        self.out.push(event("quarantined", now, &details));
        let message = format!("critic {critic} leaves out rows {from} to {to}: {why}");
        self.keep_refused(Refused {
            time: now.unix,
            code: "learner_failed",
            field: None,
            index: None,
            message,
            payload: Vec::new(),
        });
    }

    /// Keep a refused message for the quarantine, unless there are too many since the last [`Core::take_refused`].
    fn keep_refused(&mut self, refused: Refused) {
        if self.refused.len() < REFUSED_AT_ONCE {
            self.refused.push(refused);
        }
    }

    /// Messages that were refused on ingest since this was asked last, at most some.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    fn fail(&mut self, index: usize, why: &str, now: Now) {
        let critic = &mut self.critics[index];
        log::error!("event=critic_failed critic={} offset={} why={why:?}", critic.name, critic.learner.learned());
        critic.failed = Some(why.to_owned());
        let details = map(json!({"critic": critic.name, "reason": why}));
        let outcome = Optimised::Rejected { generation: critic.learner.generation(), reason: why.to_owned() };
        answer(&mut critic.waiting, &outcome, &mut self.out);
        answer(&mut critic.waiting_for_running, &outcome, &mut self.out);
        answer(&mut critic.waiting_for_answers, &outcome, &mut self.out);
        self.out.push(event("critic_failed", now, &details));
    }

    fn start_refit(&mut self, now: Now) {
        let Some(window) = &self.window else { return };
        if self.refit_busy {
            return;
        }
        // Those asked for come first.
        let due = |critic: &Critic| critic.failed.is_none().then(|| critic.learner.refit_due()).flatten();
        let asked = self.critics.iter().position(|c| !c.waiting.is_empty() && due(c).is_some());
        let Some(index) = asked.or_else(|| self.critics.iter().position(|c| due(c).is_some())) else { return };
        let critic = &mut self.critics[index];
        let reason = critic.learner.refit_due().expect("it was due a moment ago");
        critic.waiting_for_running.append(&mut critic.waiting);
        match critic.learner.refit_job(window, reason) {
            Ok(job) => {
                critic.refits.started += 1;
                self.refit_busy = true;
                log::info!(
                    "event=refit_started critic={} reason={} rows={} generation={}",
                    critic.name,
                    reason.name(),
                    window.len(),
                    critic.learner.generation()
                );
                let details = map(json!({
                    "critic": critic.name, "reason": reason.name(), "rows": window.len(),
                    "generation": critic.learner.generation(), "offset": window.end(),
                }));
                self.out.push(event("refit_started", now, &details));
                self.out.push(Output::Refit { critic: index, job: Box::new(job) });
            }
            Err(e) => {
                critic.refits.failed += 1;
                self.record_refit_end(index);
                self.reject(index, &e.to_string(), None, now);
            }
        }
    }

    /// A refit has ended without an adoption, which moves the next one: that is recorded with the next group.
    fn record_refit_end(&mut self, index: usize) {
        if self.ledger.is_some() {
            self.pending.group.refit_ended(&self.critics[index].name);
        }
    }

    /// A refit thread has something to say. Returns whether a model was adopted.
    pub fn refit_done(&mut self, done: RefitDone, now: Now) -> bool {
        // Rows that have been taken in belong to the model before; and what it comes to is recorded behind them.
        self.step(now);
        if self.read_only().is_some() {
            self.postponed.push(done);
            return false;
        }
        let RefitDone { critic: index, result, seconds } = done;
        let critic = &mut self.critics[index];
        if let Some(why) = critic.failed.clone() {
            // It failed while the refit ran: whoever waits is told, and the thread is free for the others.
            self.refit_busy = false;
            self.reject(index, &why, None, now);
            return false;
        }
        critic.refit_seconds += seconds;
        let window = self.window.as_ref().expect("a refit ran on rows");
        let too_large = |candidate: &Candidate| self.ledger.is_some() && candidate.model.bytes() > MODEL_BYTES_MAX;
        let result = match result {
            Ok(candidate) if too_large(&candidate) => {
                Err(format!("a model of {} bytes is too large for the journal", candidate.model.bytes()))
            }
            other => other,
        };
        match result {
            Err(why) => {
                critic.learner.refit_failed();
                critic.refits.failed += 1;
                self.refit_busy = false;
                self.record_refit_end(index);
                self.reject(index, &why, None, now);
                false
            }
            Ok(candidate) => match catch_unwind(AssertUnwindSafe(|| critic.learner.consider(candidate, window))) {
                Ok(Verdict::Behind(candidate)) => {
                    let candidate = Box::new(candidate);
                    self.out.push(Output::CatchUp { critic: index, candidate, window: window.clone() });
                    false
                }
                Ok(Verdict::Adopted { report, scores, old }) => {
                    self.refit_busy = false;
                    self.out.extend(old.map(Output::Garbage));
                    self.pending.adopted = Some(AdoptedHere { critic: index, report, scores });
                    if self.ledger.is_some() {
                        self.pending.group.adopted(&critic.name, &critic.learner.adoption());
                    }
                    // Nobody sees the new model before it is stored.
                    self.commit(now, &|| now.uptime)
                }
                Ok(Verdict::Rejected { report, why }) => {
                    self.refit_busy = false;
                    critic.refits.rejected += 1;
                    self.record_refit_end(index);
                    self.reject(index, &why.to_string(), Some(&report), now);
                    false
                }
                Err(panic) => {
                    self.refit_busy = false;
                    let why = panic_message(&panic);
                    match self.restore(index) {
                        Ok(()) => {
                            let critic = &mut self.critics[index];
                            critic.learner.refit_failed();
                            critic.refits.failed += 1;
                            self.record_refit_end(index);
                            self.reject(index, &why, None, now);
                        }
                        Err(_) => self.fail(index, &why, now),
                    }
                    false
                }
            },
        }
    }

    fn adopted(&mut self, index: usize, report: &RefitReport, scores: Option<(f64, f64)>, now: Now) {
        let critic = &mut self.critics[index];
        critic.refits.adopted += 1;
        let mut details = refit_details(critic, report);
        details.insert("outcome".into(), "adopted".into());
        if let Some((before, after)) = scores {
            details.insert("score_before".into(), before.into());
            details.insert("score_after".into(), after.into());
        }
        let nats = |evidence: Option<f64>| evidence.map_or("none".into(), |e| format!("{e:.1}"));
        log::info!(
            "event=adopted critic={} generation={} seq={} lambda={} evidence={} evidence_before={} dictionary={} seconds={:.2}",
            critic.name,
            critic.learner.generation(),
            critic.learner.learned(),
            critic.learner.model().map_or(1.0, |model| model.lambda()),
            nats(report.evidence_after),
            nats(report.evidence_before),
            report.dictionary_size,
            critic.refit_seconds
        );
        critic.refit_seconds = 0.0;
        critic.last_refit = Value::Object(details.clone());
        critic.waiting_for_answers.append(&mut critic.waiting_for_running);
        self.out.push(event("adopted", now, &details));
        self.next_refresh = 0.0;
    }

    fn reject(&mut self, index: usize, why: &str, report: Option<&RefitReport>, now: Now) {
        let critic = &mut self.critics[index];
        log::info!(
            "event=refit_rejected critic={} generation={} seq={} why={why:?}",
            critic.name,
            critic.learner.generation(),
            critic.learner.learned()
        );
        let mut details = report.map_or_else(
            || map(json!({"critic": critic.name, "generation": critic.learner.generation()})),
            |report| refit_details(critic, report),
        );
        details.insert("outcome".into(), "rejected".into());
        details.insert("reason".into(), why.into());
        critic.refit_seconds = 0.0;
        critic.last_refit = Value::Object(details.clone());
        let rejected = Optimised::Rejected { generation: critic.learner.generation(), reason: why.to_owned() };
        answer(&mut critic.waiting_for_running, &rejected, &mut self.out);
        self.out.push(event("refit_rejected", now, &details));
    }

    /// How long the learner stood still for an adoption, seconds.
    pub fn record_pause(&mut self, critic: usize, seconds: f64) {
        let pauses = &mut self.critics[critic].pauses;
        if pauses.len() == PAUSES {
            pauses.pop_front();
        }
        pauses.push_back(seconds);
    }

    /// Whether the answering snapshots should be made anew: at once after an adoption or where somebody waits for what has
    /// been learned, else within a share of the learner's time. Once more when no row follows a snapshot that was made too
    /// soon after a publication to be published itself.
    pub fn refresh_due(&self, now: Now) -> bool {
        if self.pending.stuck {
            // The model may hold what is not stored.
            return false;
        }
        let awaited = self.wanted.first().is_some_and(|&wanted| wanted <= self.offset());
        let stale = self.offset() > self.offset_at_refresh;
        let in_time = now.uptime >= self.next_refresh;
        self.next_refresh == 0.0 || (stale && (awaited || in_time)) || (in_time && self.publication_due(now))
    }

    /// Whether subscribers are owed something although no rows arrive: the weights after the last rows, and then a whole
    /// snapshot of them. Where the stream pauses they would otherwise be withheld until it goes on.
    fn publication_due(&self, now: Now) -> bool {
        let interval = self.config.snapshot_interval_ms as f64 / 1000.0;
        self.critics.iter().filter(|critic| critic.failed.is_none() && critic.learner.model().is_some()).any(|critic| {
            let whole = critic.learner.learned() > critic.published_whole_offset;
            (critic.unpublished && now.uptime >= critic.published_at + WEIGHTS_INTERVAL_S)
                || (whole && now.uptime >= critic.published_whole_at + interval)
        })
    }

    /// Make the answering snapshots anew and publish what is due. `clock` is read again afterwards, since this takes time.
    pub fn refresh(&mut self, now: Now, clock: &dyn Fn() -> Now) {
        for index in 0..self.critics.len() {
            self.refresh_critic(index, now);
        }
        self.offset_at_refresh = self.offset();
        self.wanted = self.wanted.split_off(&(self.offset_at_refresh + 1));
        let spent = clock().uptime - now.uptime;
        self.next_refresh = (now.uptime + spent / REFRESH_SHARE).max(f64::MIN_POSITIVE);
    }

    fn refresh_critic(&mut self, index: usize, now: Now) {
        let config = Arc::clone(&self.config);
        let critic = &mut self.critics[index];
        critic.unpublished = false;
        if critic.failed.is_some() || critic.learner.model().is_none() {
            return;
        }
        let snapshot = match catch_unwind(AssertUnwindSafe(|| critic.learner.snapshot(true))) {
            Ok(Ok(snapshot)) => snapshot,
            Ok(Err(e)) => {
                // The last good snapshot stays.
                if critic.failed_snapshots.is_power_of_two() || critic.failed_snapshots == 0 {
                    log::warn!("event=snapshot_failed critic={} why={e}", critic.name);
                }
                critic.failed_snapshots += 1;
                // Tried again an interval later, not at once.
                critic.published_whole_at = now.uptime;
                let generation = critic.learner.generation();
                answer(&mut critic.waiting_for_answers, &Optimised::Adopted { generation }, &mut self.out);
                return;
            }
            Err(panic) => return self.fail(index, &panic_message(&panic), now),
        };
        let present = (snapshot.generation, snapshot.dictionary.nrows());
        let same_generation = critic.published.is_some_and(|(generation, _)| generation == present.0);
        let whole =
            !same_generation || now.uptime - critic.published_whole_at >= config.snapshot_interval_ms as f64 / 1000.0;
        let weights = same_generation && now.uptime - critic.published_at >= WEIGHTS_INTERVAL_S;
        let mut snapshot = Snapshot { revision: critic.revision, time: now.unix, ..snapshot };
        if whole || weights {
            critic.revision += 1;
            snapshot.revision = critic.revision;
            let known = critic.published.map_or(0, |(_, rows)| rows);
            let publication = if whole {
                critic.published_whole_at = now.uptime;
                critic.published_whole_offset = snapshot.offset;
                let payload = encode_bounded(&snapshot, config.publish_variance, config.publish_bytes_max);
                Publication { topic: format!("snapshot.{}", critic.name), payload: payload.into() }
            } else {
                // A grown dictionary needs a variance of its own size.
                let grown = known < present.1 && config.publish_variance;
                let mut payload = wire::encode_weights(&snapshot, known, grown);
                if payload.len() > config.publish_bytes_max {
                    payload = wire::encode_weights(&snapshot, known, false);
                }
                Publication { topic: format!("weights.{}", critic.name), payload: payload.into() }
            };
            critic.published = Some(present);
            critic.published_at = now.uptime;
            self.out.push(Output::Publish(publication));
        } else {
            critic.unpublished = true;
        }
        let generation = snapshot.generation;
        critic.shown = Some(Shown::of(&snapshot));
        self.board.set(index, snapshot);
        let critic = &mut self.critics[index];
        answer(&mut critic.waiting_for_answers, &Optimised::Adopted { generation }, &mut self.out);
    }

    /// The last snapshots before the end, whole.
    pub fn publish_last(&mut self, now: Now) {
        for index in 0..self.critics.len() {
            self.critics[index].published_whole_at = f64::NEG_INFINITY;
            self.refresh_critic(index, now);
        }
        self.rejected_reported_at = f64::NEG_INFINITY;
        self.report_rejected(now);
    }

    fn report_rejected(&mut self, now: Now) {
        if self.rejected_since_report == 0 || now.uptime - self.rejected_reported_at < REJECTED_INTERVAL_S {
            return;
        }
        let last = self.last_rejected.take().expect("something was rejected");
        log::warn!("event=rejected rows={} last={last}", self.rejected_since_report);
        let details = map(json!({
            "messages": self.rejected_since_report,
            "code": last.code.name(),
            "message": last.message,
            "field": last.field,
            "index": last.index,
            "by_code": self.rejected,
        }));
        self.out.push(event("rejected", now, &details));
        self.rejected_since_report = 0;
        self.rejected_reported_at = now.uptime;
    }

    /// Once a second: the status publication.
    pub fn tick(&mut self, now: Now) {
        let elapsed = now.uptime - self.rate.at;
        if elapsed >= 0.5 {
            let rows = self.offset();
            let latest = (rows - self.rate.rows) as f64 / elapsed;
            // About three seconds of memory.
            let weight = 1.0 - (-elapsed / 3.0).exp();
            self.rate.per_second += weight * (latest - self.rate.per_second);
            (self.rate.at, self.rate.rows) = (now.uptime, rows);
        }
        self.report_rejected(now);
        let payload = wire::encode_status(&self.status(now)).into();
        self.out.push(Output::Publish(Publication { topic: "status".into(), payload }));
    }

    /// Take over settings that may change at run time.
    ///
    /// # Errors
    /// If that cannot be recorded now: then nothing is taken over.
    pub fn reload(&mut self, config: Arc<Config>, now: Now) -> Result<(), String> {
        self.step(now);
        if let Some(why) = self.read_only() {
            return Err(why.to_owned());
        }
        for (critic, settings) in self.critics.iter_mut().zip(&config.critics) {
            critic.learner.set_settings(settings.clone());
        }
        let before = self.configured();
        self.config = config;
        let after = self.configured();
        if self.ledger.is_some() && before != after {
            self.pending.group.configured(&after);
        }
        Ok(())
    }

    /// The state of everything, for people and dashboards (`proto/README.md`).
    pub fn status(&self, now: Now) -> Map<String, Value> {
        let bytes_per_row = self.window.as_ref().map(|w| Rows::bytes_per_row(w.dim(), w.rewards_per_row()));
        let critics: Vec<Value> = self.critics.iter().map(critic_status).collect();
        let queue = |[waiting, most]: [usize; 2]| json!({"waiting": waiting, "max": most});
        map(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": now.uptime,
            "time": now.unix,
            "durable": self.ledger.is_some(),
            "read_only": self.read_only(),
            "journal": self.ledger.as_ref().map(Ledger::status),
            "recovered": self.recovered,
            "warm_start": self.warm_start.map(|(rows, of)| json!({"rows": rows, "of": of})),
            "quarantined_rows": self.quarantined_rows,
            "refit_restarts": self.refit_restarts,
            "http_restarts": self.http_restarts,
            "offset": self.offset(),
            "rows_per_second": self.rate.per_second,
            "streams": self.streams.len(),
            "recent_streams": self.streams.recent(STREAMS_TOLD),
            "queues": {
                "ingest": queue(self.queues.ingest),
                "calls": queue(self.queues.calls),
                "publish": queue(self.queues.publish),
            },
            "state_dim": self.window.as_ref().map(Window::dim),
            "rewards_per_row": self.window.as_ref().map(Window::rewards_per_row),
            "window": {
                "rows": self.window.as_ref().map_or(0, Window::len),
                "rows_max": self.config.window_rows,
                "bytes": self.window.as_ref().map_or(0, Window::bytes),
                "bytes_per_row": bytes_per_row,
            },
            "memory": self.footprint().map(|footprint| footprint.to_json()),
            "rejected": self.rejected,
            "duplicates": self.duplicates,
            "critics": critics,
        }))
    }
}

fn recovered_status(recovered: &Recovered, torn_bytes: u64) -> Value {
    json!({
        "offset": recovered.end.offset,
        "from_checkpoint": recovered.from_checkpoint,
        "rows_replayed": recovered.rows_replayed,
        "groups_read": recovered.groups_read,
        "torn_bytes": torn_bytes,
        "faults": recovered.faults,
    })
}

/// What the status says of a snapshot.
#[derive(Clone, Copy, Debug)]
struct Shown {
    lambda: f64,
    provisional: bool,
    /// Factor on deviations of returns and the pairs behind it, where their spread is known.
    returns: Option<(f64, u64)>,
}

impl Shown {
    fn of(snapshot: &Snapshot) -> Self {
        let returns = snapshot.returns.as_ref().map(|spread| (spread.factor, spread.pairs));
        Self { lambda: snapshot.lambda, provisional: snapshot.provisional, returns }
    }
}

fn critic_status(critic: &Critic) -> Value {
    let learner = &critic.learner;
    let mut pauses: Vec<f64> = critic.pauses.iter().copied().collect();
    pauses.sort_by(f64::total_cmp);
    let quantile =
        |q: f64| (!pauses.is_empty()).then(|| 1000.0 * pauses[((pauses.len() - 1) as f64 * q).round() as usize]);
    let counts = learner.counts();
    let mut status = map(json!({
        "name": critic.name,
        "failed": critic.failed,
        "generation": learner.generation(),
        "revision": critic.revision,
        "learned": learner.learned(),
        "discount": learner.settings().discount,
        "dictionary_max": learner.settings().dictionary_max,
        "warmup_rows": learner.settings().warmup_rows,
        "refit": {
            "running": learner.refit_running(),
            "next_at": learner.next_refit(),
            "started": critic.refits.started,
            "adopted": critic.refits.adopted,
            "rejected": critic.refits.rejected,
            "failed": critic.refits.failed,
            "last": critic.last_refit,
        },
        "adoption_pause_ms": {
            "count": pauses.len(), "p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0),
        },
        "counts": {
            "novel_when_full": counts.novel_when_full,
            "refreshes": counts.refreshes,
            "failed_refreshes": counts.failed_refreshes,
            "failed_snapshots": critic.failed_snapshots,
            "cuts": counts.cuts,
            "terminations": counts.terminations,
        },
    }));
    // What a panic has left of a model is not to be looked into.
    if let Some(model) = learner.model().filter(|_| critic.failed.is_none()) {
        let hyper = model.hyperparameters();
        let score = model.score();
        let tolerance = model.dictionary().tolerance() / model.dictionary().kernel().diagonal();
        status.extend(map(json!({
            "dictionary_size": model.dictionary().len(),
            "tolerance": tolerance,
            "tolerance_to_noise": tolerance * hyper.kernel.diagonal() / hyper.noise_variance,
            "running_chains": model.running_chains(),
            "transitions": model.statistics().rows,
            "rows_effective": model.statistics().forgets().then(|| model.statistics().effective_rows()),
            "bytes": model.bytes() + learner.kept_bytes(),
            "policy": learner.policy(),
            "policies_kept": learner.kept_policies().collect::<Vec<_>>(),
            "score": score.mean(),
            "score_recent": (score.rows > 0).then_some(score.recent),
        })));
        if let Some(Shown { lambda, provisional, returns }) = critic.shown {
            let returns = returns.map(|(factor, pairs)| json!({"factor": factor, "pairs": pairs}));
            status.extend(map(json!({"lambda": lambda, "provisional": provisional, "returns": returns})));
        }
        status.extend(map(wire::hyperparameters_to_json(&hyper, Some(model.inputs()))));
        if let Some(posterior) = model.posterior() {
            status.insert("log_evidence".into(), posterior.log_evidence().into());
            let Scale { signal, .. } = posterior.scale();
            status.insert("scale_since_adoption".into(), signal.into());
        }
    }
    Value::Object(status)
}

fn report_event(critic: &Critic, happened: Event, now: Now, out: &mut Vec<Output>) {
    let (name, learner) = (&critic.name, &critic.learner);
    match happened {
        Event::FirstModel => log::info!("event=first_model critic={name} seq={}", learner.learned()),
        Event::DictionaryFull => {
            let size = learner.model().map_or(0, |model| model.dictionary().len());
            log::warn!(
                "event=dictionary_full critic={name} size={size} generation={} hint=\"the next refit chooses again; raise dictionary_max to keep more\"",
                learner.generation()
            );
            let generation = learner.generation();
            out.push(event(
                "dictionary_full",
                now,
                &map(json!({"critic": name, "size": size, "generation": generation})),
            ));
        }
        Event::NewPolicy { offset, policy } => {
            let generation = learner.generation();
            let told = policy.as_deref().unwrap_or("");
            log::info!("event=new_policy critic={name} offset={offset} policy={told:?} generation={generation}");
            let details = json!({"critic": name, "offset": offset, "policy": policy, "generation": generation});
            out.push(event("new_policy", now, &map(details)));
        }
    }
}

fn refit_details(critic: &Critic, report: &RefitReport) -> Map<String, Value> {
    let mut details = wire::refit_report_to_json(report);
    details.extend(map(json!({
        "critic": critic.name,
        "generation": critic.learner.generation(),
        "offset": critic.learner.learned(),
        "seconds": critic.refit_seconds,
    })));
    details
}

/// Everybody who waited for a refit is told how it ended.
fn answer(waiting: &mut Vec<(Peer, Id, ArrayForm)>, outcome: &Optimised, out: &mut Vec<Output>) {
    for (peer, id, form) in waiting.drain(..) {
        let payload = wire::encode_reply(&id, form, &wire::Reply::Optimise(outcome));
        out.push(Output::Reply(Reply { peer, payload }));
    }
}

/// The whole snapshot if it fits, else the announcement of it.
fn encode_bounded(snapshot: &Snapshot, variance: bool, bytes_max: usize) -> Vec<u8> {
    let whole = wire::encode_snapshot(snapshot, ArrayForm::Tensor, variance);
    if whole.len() <= bytes_max {
        return whole;
    }
    let means = if variance { wire::encode_snapshot(snapshot, ArrayForm::Tensor, false) } else { Vec::new() };
    if variance && means.len() <= bytes_max { means } else { wire::encode_announcement(snapshot, whole.len()) }
}

fn event(kind: &str, now: Now, details: &Map<String, Value>) -> Output {
    let payload = wire::encode_event(kind, now.unix, details).into();
    Output::Publish(Publication { topic: format!("event.{kind}"), payload })
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => unreachable!("not a map: {other}"),
    }
}

/// What a caught panic said.
pub(super) fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::memory::{MemoryCheckpoints, MemoryStorage};
    use crate::sim::{self, Step, pendulum::Pendulum};

    fn pendulum(rows: usize) -> Vec<Batch> {
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..rows).map(|_| pendulum.step()).collect();
        steps.chunks(20).flat_map(|part| sim::batches("pendulum", "", part)).collect()
    }

    #[test]
    fn a_learner_that_fails_on_a_batch_goes_on_without_it_and_so_does_replay() {
        let text = "[[critic]]\nname = \"frail\"\nrefit_first_rows = 0\ndictionary_max = 20\nseed = 666\n\
                    [[critic]]\nname = \"sound\"\nrefit_first_rows = 0\ndictionary_max = 20\n";
        let config = Arc::new(Config::from_toml(text).unwrap());
        let disk = Arc::default();
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let open = || {
            let storage = Box::new(MemoryStorage::on(Arc::clone(&disk)));
            let now = Now { uptime: 0.0, unix: 1e9 };
            Core::open(Arc::clone(&config), storage, Arc::clone(&checkpoints), now, &mut |_, _| {}).unwrap()
        };
        let now = Now { uptime: 1.0, unix: 1e9 };
        let mut core = open();
        for (i, batch) in pendulum(200).iter().enumerate() {
            core.ingest(&wire::encode_ingest(batch), now);
            // The learner with this seed cannot bear the group at offset 100.
            crate::learner::FAULT.set((i == 5).then_some((666, 100)));
            core.step(now);
            crate::learner::FAULT.set(None);
        }
        let status = core.status(now);
        assert_eq!((&status["critics"][0]["failed"], &status["quarantined_rows"]), (&Value::Null, &json!(20)));
        assert_eq!(
            (&status["critics"][0]["learned"], &status["critics"][0]["transitions"]),
            (&json!(200), &json!(180))
        );
        assert_eq!(status["critics"][1]["transitions"], 200);
        let told =
            core.take_outputs().filter(|o| matches!(o, Output::Publish(p) if p.topic == "event.quarantined")).count();
        assert_eq!((told, core.take_refused().len()), (1, 1));
        let state = core.checkpoint(now).encode();
        drop(core);
        let again = open();
        assert!(again.checkpoint(now).encode() == state);
        drop(again);

        // A daemon that died of it before that was recorded finds out when it starts.
        crate::learner::FAULT.set(Some((666, 140)));
        let mut core = open();
        core.step(now);
        let transitions = |core: &Core| core.status(now)["critics"][0]["transitions"].clone();
        assert_eq!(transitions(&core), 160);
        crate::learner::FAULT.set(None);
        let state = core.checkpoint(now).encode();
        drop(core);
        let again = open();
        assert_eq!(transitions(&again), 160);
        assert!(again.checkpoint(now).encode() == state);
    }

    #[test]
    fn whoever_waits_for_a_critic_that_fails_is_told() {
        let mut core = Core::new(Arc::new(Config::default()));
        let now = Now { uptime: 1.0, unix: 1e9 };
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
        sim::batches("pendulum", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        let ask = |core: &mut Core, connection| {
            let peer = Peer { connection, delimiter: false };
            let op = Op::Optimise { critic: None, wait: true };
            core.call(Call { peer, id: Id::nil(), form: ArrayForm::List, op }, now);
        };
        // The first request starts a refit, the second waits for the next one.
        ask(&mut core, 1);
        core.step(now);
        ask(&mut core, 2);
        core.fail(0, "a bug", now);
        let told = core.take_outputs().filter(|output| matches!(output, Output::Reply(_))).count();
        assert_eq!(told, 2);
        // What a panic has left of its model is not looked at again.
        assert!(core.status(now)["critics"][0].get("dictionary_size").is_none());
    }
}
