//! Retained rows read from the journal, other policies judged by them, and answers of the past, beside the core.
//!
//! The control thread puts requests into three short queues, one for pages of rows, one for evaluations and one for the past, of each
//! peer one at a time. Evaluations and questions about the past wait as they came, and are read when their turn comes. A thread for each
//! queue reads the journal with a connection of its own and sends the answer.

use super::bounds::{EVALUATED_BYTES, EVALUATED_ELEMENTS, EVALUATIONS, JOURNAL_PIECE};
use super::core::Caller;
use super::core::caller::{stopped, unreadable};
use super::queries::past;
use super::recovery::group_of;
use crate::board::Board;
use crate::config::Config;
use crate::journal::store::{GroupHeader, SqliteStorage, Storage, StoreError};
use crate::journal::{Record, TakenRows};
use crate::learner::action::{ActionColumns, ActionValue, Column};
use crate::learner::batch::{BatchError, Given};
use crate::learner::off_policy::{ESS_MIN, Fault, Findings, Judged, LearnedQ, Policy, Taught, learn};
use crate::learner::{Lambda, Settings, effective_tolerance};
use crate::math::dictionary::StoppingRule;
use crate::panics;
use crate::snapshot::Snapshot;
use crate::state::removals::Removals;
use crate::transition::Rows;
use crate::transport::{Outbox, Reply};
use crate::wire::status::EvaluationsStatus;
use crate::wire::{self, Answers, ErrorCode, EvaluateRequest, Op, RetainedRows, Span, WireError};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Retry time that a peer gets whose request has no place, milliseconds.
const RETRY_MS: u64 = 1000;
/// Rows of a page at most, and their numbers.
const PAGE_ROWS: usize = 4096;
const PAGE_NUMBERS: usize = 1 << 16;
/// Groups of episodes of the doubly robust estimate, unless the request says.
const FOLDS: usize = 5;

/// What is asked for.
#[derive(Debug)]
pub(super) enum EvaluationAsked {
    Rows(Span),
    /// The message as it came.
    Evaluate(Bytes),
    /// A question about the past, as it came.
    Past(Bytes),
}

/// The queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum QueueName {
    Rows,
    Evaluate,
    Past,
}

impl EvaluationAsked {
    fn line(&self) -> QueueName {
        match self {
            Self::Rows(_) => QueueName::Rows,
            Self::Evaluate(_) => QueueName::Evaluate,
            Self::Past(_) => QueueName::Past,
        }
    }
}

/// A request in a queue.
#[derive(Debug)]
pub(super) struct EvaluationTask {
    caller: Caller,
    asked: EvaluationAsked,
    /// Whether its sender has left.
    gone: Arc<AtomicBool>,
}

/// Requests that are waiting or being worked on, and how far the work is.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// By connection and queue.
    under_way: Mutex<HashMap<(u64, QueueName), Arc<AtomicBool>>>,
    /// Share of the running evaluation that is done, as bits of a 64-bit float.
    share: AtomicU64,
}

impl Desk {
    /// What `status` says.
    pub(super) fn status(&self) -> EvaluationsStatus {
        let under_way = self.under_way.lock().keys().filter(|(_, line)| *line == QueueName::Evaluate).count() as u64;
        EvaluationsStatus { under_way, share: f64::from_bits(self.share.load(Ordering::Relaxed)) }
    }

    fn set_share(&self, share: f64) {
        self.share.store(share.to_bits(), Ordering::Relaxed);
    }
}

/// Where the control thread leaves requests.
#[derive(Debug)]
pub(super) struct Entrance {
    /// In the order of [`QueueName`].
    queues: [Sender<EvaluationTask>; 3],
    desk: Arc<Desk>,
    /// Whether there is a journal to read.
    journal: bool,
}

/// The entrance, and the queues behind it: of pages, of evaluations, and of the past.
pub(super) fn entrance(journal: bool) -> (Entrance, [Receiver<EvaluationTask>; 3]) {
    let queues = [(); 3].map(|()| bounded(EVALUATIONS));
    let [rows, evaluations, past] = queues.each_ref().map(|(_, queue)| queue.clone());
    (Entrance { queues: queues.map(|(queue, _)| queue), desk: Arc::default(), journal }, [rows, evaluations, past])
}

impl Entrance {
    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Put a request into its queue; it is answered from there.
    ///
    /// # Errors
    /// `not_ready` without a journal; `overloaded`, if the queue is full or the peer has such a request under way.
    pub(super) fn put(&self, caller: &Caller, asked: EvaluationAsked) -> Result<(), WireError> {
        if !self.journal {
            let message = "there is no journal to read rows from: `journal` is off in the settings";
            return Err(WireError::new(ErrorCode::NotReady, message));
        }
        let line = asked.line();
        let (key, gone) = ((caller.peer.connection, line), Arc::<AtomicBool>::default());
        let mut under_way = self.desk.under_way.lock();
        if under_way.contains_key(&key) {
            return Err(WireError::overloaded(RETRY_MS));
        }
        let task = EvaluationTask { caller: caller.clone(), asked, gone: Arc::clone(&gone) };
        self.queues[line as usize].try_send(task).map_err(|_| WireError::overloaded(RETRY_MS))?;
        under_way.insert(key, gone);
        Ok(())
    }

    /// Forget what a peer that has left asked for.
    pub(super) fn leave(&self, connection: u64) {
        let under_way = self.desk.under_way.lock();
        for line in [QueueName::Rows, QueueName::Evaluate, QueueName::Past] {
            under_way.get(&(connection, line)).iter().for_each(|gone| gone.store(true, Ordering::Relaxed));
        }
    }
}

/// The thread behind one queue.
pub(super) struct Evaluations {
    /// Where the journal is.
    pub(super) directory: PathBuf,
    pub(super) tasks: Receiver<EvaluationTask>,
    pub(super) replies: Outbox<Reply>,
    pub(super) board: Arc<Board>,
    pub(super) config: Arc<Config>,
    pub(super) desk: Arc<Desk>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Evaluations {
    /// Until the control thread has ended.
    pub(super) fn run(self) {
        // Learning and answering go before what this thread does. Without that things are only slower.
        if let Err(e) = rustix::process::nice(5) {
            log::debug!("event=priority_unchanged why={e}");
        }
        let mut past = past::KeptPast::default();
        for EvaluationTask { caller, asked, gone } in &self.tasks {
            let keep_going = || !self.stop.load(Ordering::Relaxed) && !gone.load(Ordering::Relaxed);
            let line = asked.line();
            // A bug costs this answer, not the daemon.
            let reply = catch_unwind(AssertUnwindSafe(|| self.answer(&caller, asked, &mut past, &keep_going)));
            let reply = reply.unwrap_or_else(|panic| {
                let message = format!("the evaluation panicked: {}", panics::message(&*panic));
                Err(WireError::new(ErrorCode::Internal, message))
            });
            self.desk.under_way.lock().remove(&(caller.peer.connection, line));
            if line == QueueName::Evaluate {
                self.desk.set_share(0.0);
            }
            // A transport that has ended has no use for it.
            drop(self.replies.send(reply.unwrap_or_else(|error| caller.refuse(&error))));
        }
    }

    fn answer(
        &self,
        caller: &Caller,
        asked: EvaluationAsked,
        past: &mut past::KeptPast,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> Result<Reply, WireError> {
        let journal = || Journal::open(&self.directory, self.board.removals());
        match asked {
            EvaluationAsked::Past(payload) => past.answer(caller, &payload, &self.config, keep_going),
            EvaluationAsked::Rows(span) => Ok(caller.reply(&wire::Reply::Rows(&journal()?.page(span)?))),
            EvaluationAsked::Evaluate(payload) => {
                let request = read(&payload, &self.config.limits.wire())?;
                let critic = self.board.critic(request.critic.as_deref())?;
                let settings = &self.config.critics[critic];
                let model = self.board.get(critic);
                let taken = journal()?.rows(request.span, request.answers.as_ref(), keep_going)?;
                let rows = [taken.from, taken.to];
                let share = |share: f64| self.desk.set_share(share);
                let judging = Judging { settings, model: model.as_deref(), request: &request, keep_going };
                let (findings, is_fitted) = judging.run(&taken, &share)?;
                let generation = model.filter(|_| is_fitted).map(|model| model.generation);
                Ok(caller.reply(&wire::Reply::Evaluate { findings: &findings, rows, generation }))
            }
        }
    }
}

/// The request in a message.
fn read(payload: &[u8], limits: &wire::Limits) -> Result<EvaluateRequest, WireError> {
    let draft = wire::read_request(payload, limits).map_err(|refused| refused.error)?;
    match draft.decode(limits).map_err(|refused| refused.error)?.op {
        Op::Evaluate(request) => Ok(request),
        _ => Err(WireError::new(ErrorCode::Internal, "another request waited among evaluations")),
    }
}

/// The journal, read beside the daemon.
struct Journal {
    storage: SqliteStorage,
    /// Offsets of its first row, and behind its last.
    bounds: (u64, u64),
    /// Rows that were taken back: none of them is there.
    removals: Arc<Removals>,
}

/// Rows as they were received, in order; between them only rows are missing that were taken back.
#[derive(Default)]
struct Taken {
    /// Offset of the first one, and behind the last.
    from: u64,
    to: u64,
    /// Each with the part of it that is meant.
    parts: Vec<(TakenRows, std::ops::Range<usize>)>,
}

impl Taken {
    fn len(&self) -> usize {
        self.parts.iter().map(|(_, range)| range.len()).sum()
    }

    /// Each row: its message, its place in it.
    fn each(&self) -> impl Iterator<Item = (&TakenRows, usize)> {
        self.parts.iter().flat_map(|(taken, range)| range.clone().map(move |i| (taken, i)))
    }

    /// What `of` finds in a row, NaN where that is nothing: as wide as the widest.
    fn column<'a>(&'a self, of: impl Fn(&'a TakenRows, usize) -> Option<&'a [f64]>) -> Column {
        let width = self.each().filter_map(|(taken, i)| of(taken, i).map(<[f64]>::len)).max().unwrap_or(0);
        let mut values = Vec::with_capacity(width * self.len());
        for (taken, i) in self.each() {
            match of(taken, i).filter(|found| found.len() == width) {
                Some(found) => values.extend_from_slice(found),
                None => values.resize(values.len() + width, f64::NAN),
            }
        }
        Column { width, values }
    }

    /// A number of each row, NaN where it has none.
    fn numbers(&self, of: impl Fn(&TakenRows, usize) -> Option<f64>) -> Column {
        let values: Vec<f64> = self.each().map(|(taken, i)| of(taken, i).unwrap_or(f64::NAN)).collect();
        let width = usize::from(values.iter().any(|value| !value.is_nan()));
        Column { width, values: if width == 0 { Vec::new() } else { values } }
    }
}

impl Journal {
    fn open(directory: &std::path::Path, removals: Arc<Removals>) -> Result<Self, WireError> {
        let mut storage = SqliteStorage::open_beside(directory).map_err(unreadable)?;
        let empty = || WireError::new(ErrorCode::NotReady, "there are no rows yet");
        let ends = |storage: &mut SqliteStorage| -> Result<Option<(u64, u64)>, StoreError> {
            let Some((first, last)) = storage.bounds()? else { return Ok(None) };
            let first = storage.headers(first, 1)?.first().map(|head| head.first_offset);
            let end = storage.headers(last, 1)?.first().map(GroupHeader::end);
            Ok(first.zip(end))
        };
        let bounds = ends(&mut storage).map_err(unreadable)?;
        Ok(Self { bounds: bounds.filter(|(first, end)| first < end).ok_or_else(empty)?, storage, removals })
    }

    /// Offset of the first row that is meant.
    fn start(&self, span: Span) -> Result<u64, WireError> {
        let (first, end) = self.bounds;
        match span {
            Span::Last(last) => Ok(self.removals.offsets().back_from(end, last).max(first)),
            Span::From(from) if (first..=end).contains(&from) => Ok(from),
            Span::From(from) => {
                let message = format!("the journal has the rows {first} to {end}, none from {from} on");
                Err(WireError::of(ErrorCode::OutOfRange, "from", message))
            }
        }
    }

    /// Rows from offset `from` on.
    fn count_from(&self, from: u64) -> u64 {
        let all = from..self.bounds.1;
        all.end - all.start - self.removals.offsets().count_within(&all)
    }

    /// At most `most` rows from offset `from` on, and no more after [`EVALUATED_BYTES`] of numbers.
    fn take(&mut self, from: u64, most: usize, keep_going: &dyn Fn() -> bool) -> Result<Taken, WireError> {
        let to = self.bounds.1.min(self.removals.offsets().stretched(from, from.saturating_add(most as u64)));
        let mut taken = Taken { from, to: from, parts: Vec::new() };
        let mut next = group_of(&mut self.storage, from).map_err(unreadable)?;
        let (mut reached, mut room) = (from, EVALUATED_BYTES);
        while reached < to && room > 0 {
            if !keep_going() {
                return Err(stopped());
            }
            let groups = self.storage.read(next, JOURNAL_PIECE).map_err(unreadable)?;
            let Some(last) = groups.last() else { break };
            next = last.id + 1;
            for stored in groups {
                let mut offset = stored.first_offset;
                for record in self.removals.clean(stored.group().map_err(unreadable)?).records {
                    let rows = match record {
                        Record::Rows(rows) => rows,
                        Record::Hole(rows) => {
                            offset += rows;
                            reached = reached.max(offset.min(to));
                            continue;
                        }
                        _ => continue,
                    };
                    let (begins, ends) = (offset, offset + rows.batch.len() as u64);
                    offset = ends;
                    let row = rows.batch.bytes().div_ceil(rows.batch.len()).max(1);
                    let fits = reached.saturating_add((room / row) as u64);
                    if fits < to.min(ends) {
                        room = 0;
                    }
                    let range = reached.max(begins)..to.min(ends).min(fits);
                    if range.start < range.end {
                        room = room.saturating_sub(row * (range.end - range.start) as usize);
                        reached = range.end;
                        taken.to = reached;
                        taken.parts.push((rows, (range.start - begins) as usize..(range.end - begins) as usize));
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Rows that follow one another, from `from` on or from the first row behind: their first offset, and the offset behind the last.
    fn piece(&self, from: u64) -> (u64, u64) {
        let (end, holes) = (self.bounds.1, self.removals.offsets());
        let from = holes.first_behind(from).filter(|hole| hole.start <= from).map_or(from, |hole| hole.end.min(end));
        (from, holes.first_behind(from).map_or(end, |hole| hole.start.min(end)))
    }

    /// A page of rows.
    fn page(&mut self, span: Span) -> Result<RetainedRows, WireError> {
        let (from, to) = self.piece(self.start(span)?);
        // One row says how many numbers rows have.
        let one = self.take(from, 1, &|| true)?;
        let numbers = one.each().next().map_or(1, |(taken, i)| {
            taken.batch.dim() + taken.batch.action(i).map_or(0, <[f64]>::len) + taken.batch.rewards_per_row() + 1
        });
        let most = usize::try_from(to - from).unwrap_or(usize::MAX).min((PAGE_NUMBERS / numbers).clamp(1, PAGE_ROWS));
        let taken = self.take(from, most, &|| true)?;
        let actions = taken.column(|taken, i| taken.batch.action(i));
        let mut places: HashMap<&str, u32> = HashMap::new();
        let mut page = RetainedRows { from, end: self.bounds.1, ..RetainedRows::default() };
        for (rows, i) in taken.each() {
            let batch = &rows.batch;
            (page.dim, page.rewards_per_row) = (batch.dim(), batch.rewards_per_row());
            page.states.extend_from_slice(batch.state(i));
            page.rewards.extend_from_slice(batch.reward(i));
            page.behavior_probs.push(batch.behavior_prob(i).unwrap_or(f64::NAN));
            page.streams.push(rows.stream);
            page.seqs.push(batch.seq().map(|seq| seq + i as u64));
            let named = *places.entry(batch.stream()).or_insert_with(|| {
                page.names.push(batch.stream().to_owned());
                page.names.len() as u32 - 1
            });
            page.named.push(named);
            page.starts.push(rows.starts_chain[i]);
            page.terminated.push(batch.terminated(i));
            page.truncated.push(batch.truncated(i));
        }
        (page.action_width, page.actions) = (actions.width, actions.values);
        Ok(page)
    }

    /// The rows of an evaluation: the rows that `answers` are of, or the rows in `span`.
    fn rows(
        &mut self,
        span: Span,
        answers: Option<&Answers>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Taken, WireError> {
        let from = self.start(span)?;
        let of_answers = answers.map(|answers| answers.given().values.len() / answers.given().width);
        let taken = self.take(from, of_answers.unwrap_or(wire::EVALUATED_MAX), keep_going)?;
        let wanted = of_answers.or(if let Span::Last(_) = span { Some(self.count_from(from) as usize) } else { None });
        let most = taken.len();
        if wanted.is_some_and(|wanted| wanted > most) && (most as u64) < self.count_from(from) {
            let field = if of_answers.is_some() { "from" } else { "last" };
            let mib = EVALUATED_BYTES >> 20;
            let message = format!("an evaluation takes rows of {mib} MiB of numbers, from {from} on {most} of them");
            return Err(WireError::of(ErrorCode::TooLarge, field, message));
        }
        match of_answers {
            Some(answered) if answered != taken.len() => {
                let message = format!("answers {answered} states, there are {} rows from {from} on", taken.len());
                Err(WireError::of(ErrorCode::WrongShape, "from", message))
            }
            _ if taken.len() == 0 => Err(WireError::new(ErrorCode::NotReady, "there are no such rows yet")),
            _ => Ok(taken),
        }
    }
}

/// An evaluation, and what it needs.
struct Judging<'a> {
    settings: &'a Settings,
    /// The critic's model, whose kernel the fitted Q has.
    model: Option<&'a Snapshot>,
    request: &'a EvaluateRequest,
    keep_going: &'a (dyn Fn() -> bool + Sync),
}

/// A reason without findings.
struct Failed(WireError);

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        let error = WireError::new(ErrorCode::OutOfRange, fault.message);
        Self(WireError { index: fault.row, ..error })
    }
}

impl From<BatchError> for Failed {
    fn from(e: BatchError) -> Self {
        Self(match e {
            BatchError::Stopped => stopped(),
            e => WireError::new(ErrorCode::Internal, format!("no Q can be fitted: {e}")),
        })
    }
}

impl Judging<'_> {
    /// The findings, and whether a Q was fitted for them.
    fn run(&self, taken: &Taken, share: &dyn Fn(f64)) -> Result<(Findings, bool), WireError> {
        let of_actions = self.model.and_then(|model| Some((model, &model.actions.as_ref()?.space)));
        let policy = self.request.answers.as_ref().map(|answers| {
            let column = |given: &wire::Given| Column { width: given.width, values: given.values.clone() };
            match answers {
                Answers::Probabilities(given) => Policy::Probabilities(column(given)),
                Answers::Actions(given) => {
                    let discrete = of_actions.is_some_and(|(_, space)| space.choices() > 0);
                    Policy::Actions { taken: column(given), discrete }
                }
            }
        });
        if let Some(policy) = &policy {
            let Some((_, space)) = of_actions else {
                let message = "a policy is judged by a critic of action values that has a model: name one, or send rows with \
                               target_prob";
                return Err(WireError::of(ErrorCode::NotReady, "critic", message));
            };
            let field = if policy.is_stochastic() { "probs" } else { "actions" };
            policy.check(taken.len(), space).map_err(|fault| {
                let error = WireError::of(ErrorCode::OutOfRange, field, fault.message);
                WireError { index: fault.row, ..error }
            })?;
        }
        let judged = self.judged(taken, policy).map_err(|Failed(error)| error)?;
        let fitted = match of_actions.filter(|_| judged.policy.is_some()) {
            None => None,
            Some((model, space)) => {
                let groups = (self.request.folds.unwrap_or(FOLDS), self.request.seed);
                let fit = &mut |of: &ActionValue, rows: &Rows, taught| self.fit(model, of, rows, taught);
                let found = judged.fitted(space.clone(), groups, fit, &mut |done| share(done));
                Some(found.map_err(|Failed(error)| error)?)
            }
        };
        let is_fitted = fitted.is_some();
        let findings = judged.findings(fitted, self.request.ess_min.unwrap_or(ESS_MIN));
        if findings.judgement.is_none() && !is_fitted {
            let message =
                "rows lack behavior_prob or target_prob, and no policy is given: there is nothing to judge by";
            return Err(WireError::of(ErrorCode::MissingField, "probs", message));
        }
        Ok((findings, is_fitted))
    }

    /// The rows of whole episodes, if there are any: those that were running before, or run still, are left out.
    fn judged(&self, taken: &Taken, policy: Option<Policy>) -> Result<Judged, Failed> {
        let (episodes, whole) = episodes(taken);
        let any = whole.contains(&true);
        let kept: Vec<usize> = (0..episodes.len()).filter(|&i| !any || whole[episodes[i] as usize]).collect();
        let first = taken.each().next().map(|(taken, _)| &taken.batch);
        let (dim, reward) = (first.map_or(1, |batch| batch.dim()), self.settings.rewards[0]);
        let mut rows = Rows::new(dim, 1);
        let some = |column: Column| Column {
            values: kept
                .iter()
                .flat_map(|&i| &column.values[i * column.width..(i + 1) * column.width])
                .copied()
                .collect(),
            ..column
        };
        let columns = ActionColumns {
            actions: some(taken.column(|taken, i| taken.batch.action(i))),
            behavior_probs: some(taken.numbers(|taken, i| taken.batch.behavior_prob(i))),
            target_probs: some(taken.numbers(|taken, i| taken.batch.target_prob(i))),
            next_actions: some(taken.column(|taken, i| taken.batch.next_action(i))),
            next_action_probs: some(taken.column(|taken, i| taken.batch.next_action_probs(i))),
        };
        let all: Vec<(&TakenRows, usize)> = taken.each().collect();
        for &k in &kept {
            let (from, i) = all[k];
            let batch = &from.batch;
            rows.states.extend_from_slice(batch.state(i));
            rows.next_states.extend_from_slice(batch.next_state(i));
            rows.rewards.push(batch.reward(i)[reward]);
            rows.discounts.push(batch.discount(i).unwrap_or(f64::NAN));
            rows.ratios.push(1.0);
            rows.streams.push(from.stream);
            rows.terminated.push(batch.terminated(i));
            rows.truncated.push(batch.truncated(i));
            rows.starts_chain.push(from.starts_chain[i]);
        }
        let policy = policy.map(|policy| match policy {
            Policy::Probabilities(column) => Policy::Probabilities(some(column)),
            Policy::Actions { taken, discrete } => Policy::Actions { taken: some(taken), discrete },
        });
        let mut judged = Judged {
            episodes: renumbered(kept.iter().map(|&i| episodes[i])),
            rows,
            columns,
            policy,
            discount: self.settings.discount,
            rho_max: self.request.rho_max.filter(|limit| limit.is_finite()),
        };
        if let Some(policy) = &judged.policy {
            policy.fill(&judged.rows, &mut judged.columns)?;
        }
        Ok(judged)
    }

    /// Q of `rows` by kernel and noise of the critic's model.
    fn fit(&self, model: &Snapshot, of: &ActionValue, rows: &Rows, taught: Taught) -> Result<LearnedQ, Failed> {
        let settings = Settings {
            action_value: Some(of.clone()),
            lambda: Lambda::Fixed(0.0),
            estimate_scale: false,
            rho_max: self.request.rho_max,
            rewards: vec![0],
            prior_mean: 0.0,
            heads: Vec::new(),
            forgetting: None,
            ..self.settings.clone()
        };
        let (inputs, hyperparameters) = (&model.inputs, &model.hyperparameters);
        let given = Given { settings: &settings, rows, first: 0, inputs, hyperparameters, lambda: 0.0 };
        let enough = StoppingRule { tolerance: effective_tolerance(&settings, hyperparameters), trace: 0.0 };
        let chosen = given.select(enough, settings.dictionary_max, self.keep_going)?;
        let most = if taught == Taught::All { EVALUATED_ELEMENTS } else { 0 };
        Ok(learn(&given, chosen.dictionary, most, self.keep_going)?)
    }
}

/// Number of the episode of each row, and of each episode whether its first row and its end are there.
fn episodes(taken: &Taken) -> (Vec<u32>, Vec<bool>) {
    let mut of_row = Vec::with_capacity(taken.len());
    let (mut begun, mut ended): (Vec<bool>, Vec<bool>) = (Vec::new(), Vec::new());
    let mut running: HashMap<u32, u32> = HashMap::new();
    let mut after_end: HashMap<u32, bool> = HashMap::new();
    for (rows, i) in taken.each() {
        let starts = rows.starts_chain[i] || after_end.get(&rows.stream) == Some(&true);
        let episode = match running.get(&rows.stream) {
            Some(&episode) if !starts => episode,
            before => {
                // Another one begins: the one before was cut here at the latest.
                before.iter().for_each(|&&before| ended[before as usize] = true);
                begun.push(starts);
                ended.push(false);
                let episode = begun.len() as u32 - 1;
                running.insert(rows.stream, episode);
                episode
            }
        };
        let ends = rows.batch.terminated(i) || rows.batch.truncated(i);
        ended[episode as usize] |= ends;
        after_end.insert(rows.stream, ends);
        of_row.push(episode);
    }
    let whole = begun.iter().zip(&ended).map(|(begun, ended)| *begun && *ended).collect();
    (of_row, whole)
}

/// The same episodes, numbered from 0 without gaps.
fn renumbered(episodes: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let mut next = 0;
    episodes
        .map(|episode| {
            *numbers.entry(episode).or_insert_with(|| {
                next += 1;
                next - 1
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::{Batch, BatchParts};
    use crate::transport::Peer;
    use crate::wire::{ArrayForm, Id};

    fn caller(connection: u64) -> Caller {
        Caller { peer: Peer { connection, delimiter: false }, id: Id::nil(), form: ArrayForm::List }
    }

    #[test]
    fn each_peer_has_one_request_in_a_queue_that_ends() {
        let code = |result: Result<(), WireError>| result.map_err(|error| error.code);
        let page = || EvaluationAsked::Rows(Span::Last(10));
        let (without, _) = entrance(false);
        assert_eq!(code(without.put(&caller(1), page())), Err(ErrorCode::NotReady));
        let (entrance, [pages, _evaluations, _past]) = entrance(true);
        for connection in 0..EVALUATIONS as u64 {
            assert_eq!(code(entrance.put(&caller(connection), page())), Ok(()));
            assert_eq!(code(entrance.put(&caller(connection), page())), Err(ErrorCode::Overloaded));
        }
        assert_eq!(code(entrance.put(&caller(99), page())), Err(ErrorCode::Overloaded), "the queue is full");
        assert_eq!(entrance.desk().status().under_way, 0, "pages are no evaluations");
        entrance.leave(0);
        let gone = |task: EvaluationTask| task.gone.load(Ordering::Relaxed);
        assert_eq!((gone(pages.recv().unwrap()), gone(pages.recv().unwrap())), (true, false));
    }

    fn taken(stream: u32, starts: &[bool], terminated: &[bool]) -> TakenRows {
        let n = starts.len();
        let parts = BatchParts {
            stream: format!("s{stream}"),
            dim: 1,
            rewards_per_row: 1,
            states: vec![0.0; n],
            next_states: Some(vec![0.0; n]),
            rewards: vec![0.0; n],
            terminated: Some(terminated.to_vec()),
            ..BatchParts::default()
        };
        TakenRows { stream, starts_chain: starts.to_vec(), batch: Batch::new(parts).unwrap() }
    }

    #[test]
    fn episodes_begin_and_end_in_their_streams_and_whole_ones_are_known() {
        let (yes, no) = (true, false);
        let parts = [
            // The end of an episode that began before, a whole one, and one that is cut by a gap.
            taken(0, &[no, no, no, no, no], &[no, yes, no, yes, no]),
            taken(1, &[yes], &[no]),
            taken(0, &[yes, no], &[no, yes]),
            taken(1, &[no], &[no]),
        ];
        let parts = parts.into_iter().map(|rows| (rows.clone(), 0..rows.batch.len())).collect();
        let (of_row, whole) = episodes(&Taken { parts, ..Taken::default() });
        assert_eq!(of_row, [0, 0, 1, 1, 2, 3, 4, 4, 3]);
        assert_eq!(whole, [false, true, true, false, true]);
        assert_eq!(renumbered([4, 4, 1, 4].into_iter()), [0, 0, 1, 0]);
    }
}
