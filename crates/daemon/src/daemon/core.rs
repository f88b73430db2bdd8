//! What the daemon does with what it is given: batches, requests, candidates and ticks in, outputs out. No threads, no
//! sockets, no clock of its own: every moment is passed in.
//!
//! One turn of the loop around it is: take, commit, apply, act.
//!
//! - *take*: [`Core::ingest`], [`Core::call`] and the like put what came into the intake, or note what is asked for.
//! - [`Core::commit`] stores it as one group and acknowledges it.
//! - [`Core::apply`] applies the stored group to the state: the critics learn.
//! - [`Core::act`] judges, starts and hands out what is due. What it decides about the state is a record that waits in the
//!   intake for the next turn, which takes nothing else in.
//!
//! None of these calls another.

mod actions;
mod advice;
mod alarms;
mod appends;
pub(super) mod caller;
mod checkpoints;
mod critic_status;
mod drift;
pub(super) mod head_changes;
pub(crate) mod intake;
mod plot;
mod ports;
mod publisher;
mod rebuilds;
mod reconfigure;
mod refits;
mod refusals;
mod removals;
mod status;
mod what_if;
mod work;

pub use caller::{Asker, Caller};
pub use ports::{Asked, Call, Now, Output, RefitDone, RefusedAppend, publication};
pub use refusals::Refused;

use super::ledger::{CheckpointDone, Ledger};
use super::memory::Footprint;
use super::rebuild::RebuildDone;
use super::recovery::{self, OnTheWay, Progress, RecoverError, Watched};
use crate::board::Board;
use crate::config::Config;
use crate::journal::GroupWriter;
use crate::journal::checkpoint::{Checkpoint, Checkpoints};
use crate::journal::store::Storage;
use crate::learner::Event;
use crate::learner::window::Window;
use crate::state::State;
use crate::state::record::{AdviceRequest, Group, Mark, Record, SkippedRows};
use crate::transition::{Batch, Names};
use crate::transport::Reply;
use crate::wire::status::{QueuesStatus, RecoveredStatus};
use crate::wire::{self, ErrorCode, Op, Status, WireError};
use checkpoints::CheckpointDesk;
use drift::DriftDesk;
use intake::{Admitted, Intake};
use plot::Plots;
use ports::event;
pub use publisher::REFRESH_SHARE;
use publisher::{Publisher, Refreshed};
use rebuilds::RebuildDesk;
pub(super) use reconfigure::{change, contradiction};
use reconfigure::{configured, lacking_actions, lacking_columns, log_advisors, set_aside, with_recorded_means};
use refits::RefitDesk;
use refusals::Refusals;
use status::Figures;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that a critic learns at once which begins when there are rows already.
const HEAD_ROWS: u64 = 1024;

/// The whole daemon but its threads and sockets.
#[derive(Debug)]
pub struct Core {
    config: Arc<Config>,
    /// None: nothing is kept.
    ledger: Option<Ledger>,
    state: State,
    intake: Intake,
    /// The group that is being written. It stays here while the ledger cannot write it.
    writing: Option<Group>,
    /// The group that is stored, and is to be applied.
    stored: Option<Group>,
    /// Whether the group that is being written has been applied already: settings of a start that cannot write.
    ahead: bool,
    /// Why critics learn nothing any more, where they do not.
    given_up: Vec<Option<String>>,
    /// Callers whose requests to advisors are in the group that is stored.
    advised: Vec<Caller>,
    /// Answers to changes of heads that are stored: they leave when the board goes by them.
    changed_heads: Vec<Reply>,
    /// Critics whose failing rows are now recorded as skipped: `act` rebuilds them.
    to_rebuild: Vec<String>,
    refits: RefitDesk,
    rebuilds: RebuildDesk,
    /// Of each critic.
    drift: Vec<DriftDesk>,
    publisher: Publisher,
    plots: Plots,
    refusals: Refusals,
    checkpoints: CheckpointDesk,
    figures: Figures,
    out: Vec<Output>,
}

impl Core {
    /// A daemon that has seen nothing, and keeps nothing.
    pub fn new(config: Arc<Config>) -> Self {
        let mut state = State::new(config.window_rows);
        let configured = Record::Configured(configured(&config, 0, &Names::default()));
        let group = Group { end: Mark::default(), first_offset: 0, time: 0.0, records: vec![configured] };
        state.apply(group).expect("settings fit whatever was before");
        Self::with(config, None, state, None)
    }

    fn with(config: Arc<Config>, ledger: Option<Ledger>, state: State, recovered: Option<RecoveredStatus>) -> Self {
        let critics = config.critics.len();
        let core = Self {
            intake: Intake::new(Arc::clone(&config), &state),
            writing: None,
            stored: None,
            ahead: false,
            given_up: vec![None; critics],
            advised: Vec::new(),
            changed_heads: Vec::new(),
            to_rebuild: Vec::new(),
            refits: RefitDesk::new(critics, ledger.is_some()),
            rebuilds: RebuildDesk::default(),
            drift: (0..critics).map(|_| DriftDesk::default()).collect(),
            publisher: Publisher::new(config.critics.iter().map(|settings| settings.name.clone())),
            plots: Plots::default(),
            refusals: Refusals::default(),
            checkpoints: CheckpointDesk::default(),
            figures: Figures::new(recovered, state.end().offset),
            out: Vec::new(),
            config,
            ledger,
            state,
        };
        core.publisher.settle(core.intake.shape(), core.intake.names());
        core.publisher.board().set_removals(core.state.removals().clone());
        core
    }

    /// [`Core::open_watched`] with reports of progress alone.
    ///
    /// # Errors
    /// The same.
    pub fn open(
        config: Arc<Config>,
        storage: Box<dyn Storage>,
        checkpoints: Arc<dyn Checkpoints>,
        now: Now,
        progress: Progress<'_>,
    ) -> Result<Self, RecoverError> {
        let mut watched = |rows, of| {
            progress(rows, of);
            OnTheWay::Continue
        };
        Self::open_watched(config, storage, checkpoints, now, &mut watched)
    }

    /// The daemon that `storage` and `checkpoints` remember, or one that has seen nothing if they are empty. What it takes in
    /// from here on is stored there before it is acknowledged. If nothing can be written now it is read-only. `watched` is
    /// asked after each group that is learned again what to do.
    ///
    /// # Errors
    /// If what is there cannot be all that was acknowledged, or contradicts the settings: nothing has been written then. Or if
    /// `watched` stops it.
    pub fn open_watched(
        config: Arc<Config>,
        mut storage: Box<dyn Storage>,
        checkpoints: Arc<dyn Checkpoints>,
        now: Now,
        watched: Watched<'_>,
    ) -> Result<Self, RecoverError> {
        let (store, window_rows) = (storage.as_mut(), config.window_rows);
        let recovered = recovery::recover_watched(store, checkpoints.as_ref(), window_rows, watched)?;
        let config = with_recorded_means(&config, &recovered.state).map_err(RecoverError::Settings)?;
        let contradicted = recovered.state.shape().and_then(|shape| contradiction(&config, shape));
        let lacking =
            || lacking_columns(&config, &recovered.state).or_else(|| lacking_actions(&config, &recovered.state));
        if let Some(why) = contradicted.or_else(lacking) {
            return Err(RecoverError::Settings(why));
        }
        let kept =
            set_aside(&recovered.state, &config.critics, checkpoints.as_ref()).map_err(RecoverError::Settings)?;
        let ledger = Ledger::new(storage, Arc::clone(&checkpoints), config.ledger(), &recovered, now)?;
        let said = RecoveredStatus { set_aside: kept, ..status::recovered(&recovered, ledger.torn_bytes()) };
        let mut core = Self::with(Arc::clone(&config), Some(ledger), recovered.state, Some(said));
        for skipped in recovered.skipped {
            core.report_skipped(&skipped, now);
            core.intake.decide(Record::Skipped(skipped));
        }
        let wanted = configured(&config, core.first_of_new_critics(), core.intake.said_names());
        if !core.state.configured().is_some_and(|known| known.says(&wanted)) {
            log_advisors(&core.state, &wanted);
            core.intake.decide(Record::Configured(wanted));
        }
        // From here on the state has the critics of the settings.
        if !core.commit(now, &|| now.uptime) {
            core.apply_ahead(now);
        }
        core.apply(now);
        core.intake.set_demands(head_changes::demands(&core.state));
        for index in 0..core.given_up.len() {
            if let Some(why) = core.state.why_halted(index).map(str::to_owned) {
                core.give_up(index, &why, now);
            }
        }
        core.want_rebuilds();
        Ok(core)
    }

    /// Offset of the first row that a critic learns which begins now: a few rows, so that it answers soon and the start takes no
    /// longer. The others come with its rebuild.
    fn first_of_new_critics(&self) -> u64 {
        let (end, start) = (self.state.end().offset, self.state.window().map_or(0, Window::start));
        end.saturating_sub(HEAD_ROWS.min(self.config.window_rows as u64)).max(start)
    }

    /// Critics that have failed, or that have not seen all rows of the journal, are learned again from it.
    fn want_rebuilds(&mut self) {
        let Some(first) = self.ledger.as_ref().and_then(Ledger::first_offset) else { return };
        for (index, learner) in self.state.critics().iter().enumerate() {
            let is_partial = learner.first_row() > first && learner.first_row() < self.state.end().offset;
            if is_partial || self.given_up[index].is_some() {
                // None of them has a caller, so that there is always room.
                drop(self.rebuilds.want(&learner.settings().name, None));
            }
        }
        (0..self.given_up.len()).for_each(|index| self.want_missing_heads(index));
        self.rebuild_influenced();
    }

    /// Apply what a start has decided although it cannot be stored yet: settings, and rows that critics leave out. Nothing is
    /// acknowledged before it is stored, and another start would decide the same.
    fn apply_ahead(&mut self, now: Now) {
        let Some(ledger) = &mut self.ledger else { return };
        let Some(group) = self.writing.take().or_else(|| self.intake.close(now.unix)) else { return };
        let end = ledger.hold_back(GroupWriter::of(&group), group.time);
        let group = Group { end, ..group };
        drop(self.state.apply(group.clone()).expect("settings fit whatever was before"));
        (self.writing, self.ahead) = (Some(group), true);
    }

    /// The number of this run of the daemon, in publications and in `status`: another one at each start.
    pub fn set_run(&mut self, run: u64) {
        self.publisher.run = run;
    }

    /// Where queries are answered from.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(self.publisher.board())
    }

    /// Numbers and names of the streams that sent something last.
    pub fn recent_streams(&self) -> Vec<(u32, String)> {
        self.state.streams().numbered(status::STREAMS_LISTED)
    }

    /// The retained rows, once there are any.
    pub fn window(&self) -> Option<&Window> {
        self.state.window()
    }

    /// What `status` is to say of the queues around the core.
    pub fn set_queues(&mut self, queues: QueuesStatus) {
        self.figures.queues = queues;
    }

    /// What `status` is to say of connections of producers that broke.
    pub fn set_connections_broken(&mut self, by_reason: BTreeMap<String, u64>) {
        self.figures.connections_broken = by_reason;
    }

    /// What `status` is to say of a table that is learned before live rows: rows taken in, rows there are.
    pub fn set_warm_start(&mut self, rows: Option<(u64, u64)>) {
        self.figures.warm_start = rows;
    }

    /// How often the thread that runs refits, and those that serve HTTP, had to be started again, for `status`.
    pub fn set_restarts(&mut self, refit: u64, http: u64) {
        (self.figures.refit_restarts, self.figures.http_restarts) = (refit, http);
    }

    /// What the start found in the data directory; none without a journal.
    pub fn recovered(&self) -> Option<&RecoveredStatus> {
        self.figures.recovered.as_ref()
    }

    /// Rows taken in that are not stored yet.
    pub fn waiting_rows(&self) -> u64 {
        self.intake.rows()
    }

    /// Bytes of what is taken in and not stored yet.
    pub fn waiting_bytes(&self) -> usize {
        self.intake.bytes()
    }

    /// Whether something has been decided that is to be stored before more is taken in.
    pub fn has_decided(&self) -> bool {
        self.intake.has_decisions()
    }

    /// The critic whose adoption has been decided and is not in force yet.
    pub fn adopting(&self) -> Option<usize> {
        self.refits.adopting()
    }

    /// Why nothing is taken in, if that is so: what was taken in cannot be stored. Messages on ingest must wait then.
    pub fn read_only(&self) -> Option<&str> {
        self.ledger.as_ref().and_then(Ledger::failure)
    }

    /// Rows learned so far, all of them stored before.
    pub fn offset(&self) -> u64 {
        self.state.end().offset
    }

    /// Rows that the answering snapshots have learned.
    pub fn offset_at_refresh(&self) -> u64 {
        self.publisher.offset()
    }

    /// What there is to do, in order; the list is empty afterwards.
    pub fn take_outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.out.drain(..)
    }

    /// Messages that were refused since this was asked last, at most some.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        self.refusals.take()
    }

    /// What may be kept at most, once the state's dimension is settled.
    pub fn footprint(&self) -> Option<Footprint> {
        let rewards = || self.config.critics.iter().flat_map(|critic| &critic.rewards).max().map_or(1, |last| last + 1);
        let expected = || self.config.expected_dim().map(|(dim, _)| (dim, rewards()));
        let (dim, rewards) = self.intake.shape().or_else(expected)?;
        let critics: Vec<_> = self.state.critics().iter().map(|learner| learner.settings()).collect();
        Some(Footprint::of_critics(&self.config, &critics, dim, rewards))
    }

    /// Whether rows of states (`state_dim`,) and `found` rewards may be taken in.
    ///
    /// # Errors
    /// `wrong_dimension`, if they are not like the rows before them, or the settings forbid them.
    pub fn check_shape(&self, state_dim: usize, found: usize) -> Result<(), WireError> {
        self.intake.check_shape(state_dim, found)
    }

    // ---- take

    /// Take a message of the ingest socket in. What is wrong with it is counted and reported at a bounded rate.
    pub fn ingest(&mut self, payload: &[u8], now: Now) {
        let memory = self.intake.memory();
        let batch = wire::decode_ingest_into(payload, &self.config.limits.wire(), memory);
        match batch.and_then(|batch| self.take(batch, false, now)) {
            Ok(admitted) => self.figures.note_missing(admitted.missing),
            Err(error) => self.refusals.refuse(error, payload, now),
        }
    }

    /// Take rows of a table in, like rows of the ingest socket.
    ///
    /// # Errors
    /// If they are refused: none of them is learned.
    pub fn warm_start(&mut self, batch: Batch, now: Now) -> Result<(), WireError> {
        self.take(batch, false, now).map(drop)
    }

    fn take(&mut self, batch: Batch, strict: bool, now: Now) -> Result<Admitted, WireError> {
        self.check_writable()?;
        self.intake.take(batch, strict, now.unix)
    }

    fn check_writable(&self) -> Result<(), WireError> {
        let message = "the daemon cannot store rows now; it still answers queries";
        self.read_only().map_or(Ok(()), |_| Err(WireError::new(ErrorCode::ReadOnly, message)))
    }

    /// Take a request in. It is answered now or later.
    pub fn call(&mut self, call: Call, now: Now) {
        let Call { caller, op } = call;
        let result = match op {
            Op::Append(batch) => self.append_batch(batch, &caller, now).map(|()| None),
            Op::Status => {
                let status = self.status(now);
                Ok(Some(caller.reply(&wire::Reply::Status(&status))))
            }
            Op::Streams { names, from } => {
                let known = self.state.streams();
                let refused = names.as_ref().map(|names| self.refusals.of(names)).unwrap_or_default();
                let (streams, next) = match names {
                    Some(names) => (known.of(names.iter()), None),
                    None => known.page(from, wire::STREAMS_PER_PAGE),
                };
                Ok(Some(caller.reply(&wire::Reply::Streams { streams: &streams, refused: &refused, next })))
            }
            Op::Refit { critic, wait } => self.refit(critic.as_deref(), wait, &caller),
            Op::Heads { critic, names, from } => {
                self.list_heads(critic.as_deref(), names.as_deref(), from, &caller).map(Some)
            }
            Op::ChangeHeads { critic, add, remove, labels } => {
                self.change_heads(critic.as_deref(), (add, remove, labels), &caller).map(|()| None)
            }
            Op::Suggest { advisor, context } => {
                self.advise(advisor.as_deref(), AdviceRequest::Suggest { context }, &caller).map(|()| None)
            }
            Op::Report { advisor, decision_id, cost } => {
                self.advise(advisor.as_deref(), AdviceRequest::Report { decision_id, cost }, &caller).map(|()| None)
            }
            Op::Remove(request) => self.remove(request, &caller).map(|()| None),
            Op::Rebuild { critic, wait } => self.rebuild_from_journal(critic.as_deref(), wait, &caller),
            Op::Plan(request) => self.plan(request, &caller, now).map(|()| None),
            Op::Rollout(request) => self.rollout(request, &caller, now).map(|()| None),
            Op::Checkpoint => self.checkpoints.ask(self.ledger.as_ref(), caller.clone()).map(|()| None),
            Op::NewPolicy { critic, policy } => self.new_policy(critic, policy, &caller).map(|()| None),
            Op::Value { .. }
            | Op::Act(_)
            | Op::Rows(_)
            | Op::Evaluate(_)
            | Op::Snapshot { .. }
            | Op::Ping
            | Op::Hello => Err(WireError::new(ErrorCode::Internal, "a query reached the learner")),
        };
        let reply = result.unwrap_or_else(|error| Some(caller.refuse(&error)));
        self.out.extend(reply.map(Output::Reply));
    }

    /// Announce a policy. The caller is answered when that is stored.
    fn new_policy(&mut self, critic: Option<String>, policy: Option<String>, caller: &Caller) -> Result<(), WireError> {
        self.check_writable()?;
        if critic.is_some() {
            self.publisher.board().critic(critic.as_deref())?;
        }
        self.intake.announce(critic, policy, caller.clone());
        Ok(())
    }

    /// A rebuild has come back. It is judged in this turn.
    pub fn rebuild_done(&mut self, done: RebuildDone) {
        self.rebuilds.take_result(done);
    }

    /// A refit has come back. It is judged in this turn, behind the rows that were taken in before.
    pub fn refit_done(&mut self, done: RefitDone) {
        self.refits.take_result(done);
    }

    /// A query waits for a snapshot that has learned `offset` rows. At most 1024 are remembered, the nearest.
    pub fn want(&mut self, offset: u64) {
        self.publisher.want(offset);
    }

    /// Take over settings that may change at run time. Critics have them from the next group on.
    ///
    /// # Errors
    /// If that cannot be recorded now: then nothing is taken over.
    pub fn reload(&mut self, config: Arc<Config>) -> Result<(), String> {
        if let Some(why) = self.read_only() {
            return Err(why.to_owned());
        }
        let from = self.first_of_new_critics();
        let names = self.intake.said_names().clone();
        let config = Arc::new(Config::clone(&config).keeping_means_of(&self.config.critics));
        let (before, after) = (configured(&self.config, from, &names), configured(&config, from, &names));
        self.intake.set_config(Arc::clone(&config));
        self.config = config;
        if !(before.from == after.from && before.says(&after)) {
            self.intake.decide(Record::Configured(after));
        }
        Ok(())
    }

    // ---- commit

    /// Store what has been taken in, as one group, and acknowledge it; or try again to store what could not be stored, if it is
    /// time. Returns whether everything is stored. `clock` tells the seconds since the start.
    pub fn commit(&mut self, now: Now, clock: &dyn Fn() -> f64) -> bool {
        if let Some(ledger) = &mut self.ledger
            && ledger.failure().is_some()
            && !(ledger.retry_due(now) && ledger.retry(now))
        {
            return false;
        }
        if self.stored.is_some() {
            // It is to be applied first.
            return true;
        }
        if self.writing.is_none() {
            self.writing = self.intake.close(now.unix);
            if let (Some(ledger), Some(group)) = (&mut self.ledger, &self.writing)
                && !ledger.commit(GroupWriter::of(group), group.time, now, clock)
            {
                self.out.extend(self.intake.refuse().map(Output::Reply));
                self.checkpoints.refuse(&mut self.out);
                return false;
            }
        }
        if let Some(group) = &mut self.writing {
            let unrecorded = Mark { id: self.state.end().id + 1, ..group.end };
            group.end = self.ledger.as_ref().map_or(unrecorded, Ledger::end);
        }
        let offset = self.writing.as_ref().map_or(self.state.end().offset, |group| group.end.offset);
        self.stored = self.writing.take();
        if std::mem::take(&mut self.ahead) {
            self.stored = None;
        }
        self.publisher.settle(self.intake.shape(), self.intake.names());
        self.out.extend(self.intake.acknowledge(offset).map(Output::Reply));
        self.advised = self.intake.take_advised();
        self.changed_heads.extend(self.intake.acknowledge_heads());
        if !self.changed_heads.is_empty() {
            self.publisher.request_refresh();
        }
        true
    }

    // ---- apply

    /// Apply the group that has been stored, if there is one: the critics learn its rows.
    pub fn apply(&mut self, now: Now) {
        let Some(group) = self.stored.take() else { return };
        let with_other_heads = head_changes::changed_by(&group.records);
        let applied = self.state.apply(group).expect("what was admitted behind a state can be applied to it");
        self.intake.reuse_rows(applied.rows);
        self.answer_advised(applied.advised);
        self.out.extend(applied.replaced.into_iter().map(Output::Garbage));
        let mut other_models = Vec::new();
        for (critic, event) in applied.events {
            if matches!(event, Event::Swapped { .. } | Event::Returned { .. }) {
                self.publisher.request_refresh();
            }
            if matches!(event, Event::Swapped { .. } | Event::Returned { .. } | Event::NewPolicy { .. }) {
                other_models.push(critic);
            }
            let learner = &self.state.critics()[critic];
            match event {
                Event::Drift(alarm) => {
                    self.drift[critic].alarm(learner, self.state.streams(), &alarm, now, &mut self.out);
                }
                Event::Warning(warning) => alarms::report(learner, self.state.streams(), warning, now, &mut self.out),
                event => self.drift[critic].report(learner, event, now, &mut self.out),
            }
        }
        self.to_rebuild.extend(applied.skipped.into_iter().map(|skipped| skipped.critic));
        if self.refits.applied(&self.state, now, &mut self.out) {
            self.publisher.request_refresh();
        }
        if let Some(index) = self.rebuilds.applied(&self.state, now, &mut self.out) {
            self.given_up[index] = None;
            self.refits.rebuilt(index);
            if self.refits.is_waited_for(index) {
                self.state.request_refit(index);
            }
            self.publisher.request_refresh();
            // Others may have come while it ran.
            self.want_missing_heads(index);
        }
        self.removal_applied();
        for failed in applied.failed {
            self.skip(failed, now);
        }
        self.heads_changed(&with_other_heads);
        // A model of before may lack heads that came since.
        other_models.into_iter().for_each(|index| self.want_missing_heads(index));
    }

    /// A critic has failed on the rows of the last group, and is halted. With a journal it is recorded that it leaves them out,
    /// and it is rebuilt; without one it is given up.
    fn skip(&mut self, failed: SkippedRows, now: Now) {
        let index = self.state.critics().iter().position(|learner| learner.settings().name == failed.critic);
        let index = index.expect("a critic has failed");
        if self.ledger.is_none() {
            self.give_up(index, &format!("{} (not restored: there is no journal)", failed.why), now);
        } else if failed.from >= failed.to {
            self.give_up(index, &format!("{} (not restored: it fails without new rows)", failed.why), now);
        } else {
            self.report_skipped(&failed, now);
            self.intake.decide(Record::Skipped(failed));
        }
    }

    fn report_skipped(&mut self, skipped: &SkippedRows, now: Now) {
        let SkippedRows { critic, from, to, why } = skipped;
        log::error!("event=rows_skipped critic={critic} from={from} to={to} why={why:?}");
        self.figures.skipped_rows += to - from;
        let (from, to) = (*from, *to);
        let told = wire::Event::RowsSkipped { critic: critic.clone(), from, to, reason: why.clone() };
        self.out.push(event(told, now));
        let message = format!("critic {critic} leaves out rows {from} to {to}: {why}");
        let (code, payload) = ("learner_failed", Vec::new());
        self.refusals.keep(Refused { time: now.unix, code, field: None, index: None, message, payload });
    }

    fn give_up(&mut self, index: usize, why: &str, now: Now) {
        self.state.halt(index, why);
        let learner = &self.state.critics()[index];
        let name = &learner.settings().name;
        log::error!("event=critic_failed critic={name} offset={} why={why:?}", learner.learned());
        self.refits.give_up(index, learner.generation(), why, &mut self.out);
        let failed = wire::Event::CriticFailed { critic: name.clone(), reason: why.to_owned() };
        self.out.push(event(failed, now));
        self.given_up[index] = Some(why.to_owned());
    }

    // ---- act

    /// Do what is due, when everything that was taken in has been stored and applied: rebuild a critic, judge a refit, start
    /// one, hand out a checkpoint, report what was refused.
    pub fn act(&mut self, now: Now) {
        for name in std::mem::take(&mut self.to_rebuild) {
            self.rebuild(&name, now);
        }
        self.act_on_removals(now);
        self.act_on_refits(now);
        if !self.intake.has_decisions() {
            let decided = self.rebuilds.judge(&self.state, self.config.window_rows, now, &mut self.out);
            decided.into_iter().for_each(|record| self.intake.decide(record));
            self.rebuilds.start(&self.state, now, &mut self.out);
        }
        let unsettled = self.is_unsettled();
        if let Some(ledger) = &mut self.ledger {
            self.checkpoints.act(ledger, &self.state, unsettled, now, &mut self.out);
        }
        self.out.extend(self.refusals.report(false, now));
    }

    /// A checkpoint that was handed out has been written, or has not.
    pub fn checkpoint_done(&mut self, done: &CheckpointDone, now: Now) {
        if let Some(ledger) = &mut self.ledger {
            ledger.checkpoint_done(done, now);
            self.checkpoints.written(done, now, &mut self.out);
        }
    }

    // ---- turns

    /// Turns that take nothing more in, until nothing is left that was decided. They end where something cannot be stored.
    pub fn step(&mut self, now: Now) {
        loop {
            if !self.commit(now, &|| now.uptime) {
                return self.act_unstorable(now);
            }
            self.apply(now);
            self.act(now);
            if !self.has_decided() {
                return;
            }
        }
    }

    /// Make durable what is stored. Returns whether it is.
    pub fn make_durable(&mut self, now: Now, clock: &dyn Fn() -> f64) -> bool {
        self.ledger.as_mut().is_none_or(|ledger| ledger.sync(now, clock))
    }

    /// Make durable what was stored, where the settings leave that for later.
    pub fn sync_if_due(&mut self, now: Now, clock: &dyn Fn() -> f64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.sync_if_due(now, clock);
        }
    }

    /// Before the end: store what has been received, make it durable, and write a last checkpoint, here and now.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&mut self, now: Now) -> Result<(), String> {
        self.step(now);
        let unsettled = self.is_unsettled();
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if !ledger.sync(now, &|| now.uptime) {
            return Err(ledger.failure().unwrap_or_default().to_owned());
        }
        if unsettled || ledger.checkpoint_is_fresh().is_some() || ledger.checkpoint_running() {
            return Ok(());
        }
        let checkpoint = Checkpoint::of(&self.state, now.unix);
        ledger.checkpoints().write(checkpoint.group, &checkpoint.encode()).map_err(|e| e.to_string())?;
        log::info!("event=checkpoint offset={}", checkpoint.offset);
        ledger.compact()
    }

    /// Everything that a start behind the last group needs.
    pub fn checkpoint(&self, now: Now) -> Checkpoint {
        Checkpoint::of(&self.state, now.unix)
    }

    // ---- publish

    /// How long the learner stood still for an adoption, seconds.
    pub fn record_pause(&mut self, critic: usize, seconds: f64) {
        self.refits.paused(critic, seconds);
    }

    /// Subscribers ask for these topics of heads, `head.<critic>.<name>`: what they are about is published.
    pub fn heads_are_asked(&mut self, topics: Vec<String>) {
        self.publisher.asked(topics);
    }

    /// Whether it is time for [`Core::refresh`].
    pub fn refresh_due(&self, now: Now) -> bool {
        self.publisher.due(&self.state, self.config.snapshot_interval_ms as f64 / 1000.0, now)
    }

    /// Whether a critic waits for its first snapshot.
    pub fn first_snapshot_due(&self) -> bool {
        self.publisher.first_due(&self.state)
    }

    /// Refresh the answering snapshots and publish what is due. `clock` is read again afterwards, since this takes time.
    pub fn refresh(&mut self, now: Now, clock: &dyn Fn() -> Now) {
        (0..self.given_up.len()).for_each(|index| self.refresh_critic(index, false, now));
        self.show_learning_heads();
        // Who hears of a change finds it made.
        self.out.extend(self.changed_heads.drain(..).map(Output::Reply));
        self.publisher.refreshed(&self.state, clock().uptime - now.uptime, now);
    }

    fn refresh_critic(&mut self, index: usize, last: bool, now: Now) {
        if self.state.is_halted(index) {
            return;
        }
        let learner = &self.state.critics()[index];
        match self.publisher.refresh(index, learner, &self.config, last, now, &mut self.out) {
            Refreshed::Nothing => {}
            Refreshed::Answers { generation } => {
                self.refits.answers_come_from(index, generation, &mut self.out);
                self.publish_plot(index, now);
            }
            Refreshed::Panicked(why) => self.give_up(index, &why, now),
        }
    }

    /// Publish the numbers of newest rows that came too soon after the last ones: a pause of the stream would withhold them.
    pub fn publish_owed_plots(&mut self, now: Now) {
        for index in 0..self.given_up.len() {
            let (owed, end) = (self.plots.is_owed(index, &self.config, now), self.state.window().map(Window::end));
            // If the board is older the next refresh publishes them.
            if owed && self.publisher.board().get(index).map(|snapshot| snapshot.offset) == end {
                self.publish_plot(index, now);
            }
        }
    }

    /// The newest row's numbers, if the settings ask for them.
    fn publish_plot(&mut self, index: usize, now: Now) {
        if let (Some(model), Some(window)) = (self.publisher.board().evaluator(index), self.state.window()) {
            let plot = self.plots.publish(index, &model, window, &self.config, now);
            self.out.extend(plot.map(Output::Publish));
        }
    }

    /// The last snapshots before the end, whole.
    pub fn publish_last(&mut self, now: Now) {
        (0..self.given_up.len()).for_each(|index| self.refresh_critic(index, true, now));
        self.out.extend(self.changed_heads.drain(..).map(Output::Reply));
        self.out.extend(self.refusals.report(true, now));
    }

    /// Once a second: the status publication.
    pub fn tick(&mut self, now: Now) {
        self.figures.note_rows(self.offset(), now);
        self.show_learning_heads();
        self.ledger.iter_mut().for_each(|ledger| ledger.check_in_place(now));
        self.out.extend(self.refusals.report(false, now));
        self.out.push(Output::Status(Arc::new(self.status(now))));
    }

    /// The state of everything, for people and dashboards.
    pub fn status(&self, now: Now) -> Status {
        let mut status = Status {
            run: self.publisher.run,
            pid: Some(u64::from(std::process::id())),
            data_dir: self.ledger.as_ref().and(status::absolute(&self.config.data_dir)),
            durable: self.ledger.is_some(),
            read_only: self.read_only().map(str::to_owned),
            journal: self.journal_status(),
            memory: self.footprint().map(|footprint| footprint.status()),
            rejected: self.refusals.by_code(),
            duplicates: self.intake.duplicates(),
            critics: (0..self.given_up.len()).map(|index| self.critic_status(index)).collect(),
            advisors: self.state.advisors().iter().map(advice::status).collect(),
            removals: self.removals_status(),
            ..Status::default()
        };
        self.figures.enter(&mut status, now);
        status::enter_state(&mut status, &self.state, self.config.window_rows);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::work::RESTORE_ROWS_MAX;
    use super::*;
    use crate::journal::memory::{MemoryCheckpoints, MemoryStorage};
    use crate::transport::Peer;
    use crate::wire::{ArrayForm, Id};
    use criticd_sim::{self as sim, Step, pendulum::Pendulum, walk::Walk};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

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
        let transitions =
            |core: &Core, critic: usize| core.status(now).critics[critic].model.as_ref().map(|model| model.transitions);
        let status = core.status(now);
        assert_eq!((&status.critics[0].failed, status.skipped_rows), (&None, 20));
        assert_eq!((status.critics[0].learned, transitions(&core, 0)), (200, Some(180)));
        assert_eq!(transitions(&core, 1), Some(200));
        let is_told =
            |o: &Output| matches!(o, Output::Event(of) if matches!(of.event, wire::Event::RowsSkipped { .. }));
        let told = core.take_outputs().filter(is_told).count();
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
        assert_eq!(transitions(&core, 0), Some(160));
        crate::learner::FAULT.set(None);
        let state = core.checkpoint(now).encode();
        drop(core);
        let again = open();
        assert_eq!(transitions(&again, 0), Some(160));
        assert!(again.checkpoint(now).encode() == state);
    }

    #[test]
    fn a_critic_that_fails_behind_many_rows_is_learned_again_beside_the_core() {
        let text = "[[critic]]\nname = \"frail\"\nrefit_first_rows = 0\ndictionary_max = 8\nseed = 668\n";
        let (disk, now) = (Arc::default(), Now { uptime: 1.0, unix: 1e9 });
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let storage = Box::new(MemoryStorage::on(Arc::clone(&disk)));
        let config = Arc::new(Config::from_toml(text).unwrap());
        let mut core = Core::open(config, storage, checkpoints, now, &mut |_, _| {}).unwrap();
        let rows = RESTORE_ROWS_MAX as usize + 44;
        for (i, batch) in pendulum(rows).iter().enumerate() {
            core.ingest(&wire::encode_ingest(batch), now);
            crate::learner::FAULT.set((20 * (i + 1) == rows).then_some((668, 20 * i as u64)));
            core.step(now);
            crate::learner::FAULT.set(None);
        }
        let is_job = |output| if let Output::Rebuild(job) = output { Some(job) } else { None };
        let jobs: Vec<_> = core.take_outputs().filter_map(is_job).collect();
        let [job] = &jobs[..] else { panic!("{} rebuilds", jobs.len()) };
        let failed = core.status(now).critics[0].failed.clone().unwrap();
        assert!(failed.contains("learns the journal again"), "{failed}");
        let result = job.run(&mut MemoryStorage::on(disk), &|| true).map(Box::new);
        core.rebuild_done(RebuildDone { critic: "frail".into(), result, seconds: 0.0 });
        core.step(now);
        let critic = core.status(now).critics.remove(0);
        assert_eq!((critic.failed, critic.learned), (None, rows as u64));
        assert_eq!(critic.model.map(|model| model.transitions), Some(rows as u64 - 20));
    }

    #[test]
    fn a_critic_that_fails_in_every_replay_costs_itself_alone() {
        let text = "[[critic]]\nname = \"frail\"\nrefit_first_rows = 0\ndictionary_max = 20\nseed = 667\n\
                    [[critic]]\nname = \"sound\"\nrefit_first_rows = 0\ndictionary_max = 20\n";
        let open = |text: &str, storage, checkpoints| {
            let now = Now { uptime: 0.0, unix: 1e9 };
            Core::open(Arc::new(Config::from_toml(text).unwrap()), storage, checkpoints, now, &mut |_, _| {}).unwrap()
        };
        let (disk, now) = (Arc::default(), Now { uptime: 1.0, unix: 1e9 });
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let start = |text: &str| open(text, Box::new(MemoryStorage::on(Arc::clone(&disk))), Arc::clone(&checkpoints));
        let mut core = start(text);
        for batch in pendulum(600) {
            core.ingest(&wire::encode_ingest(&batch), now);
            core.step(now);
        }
        let sound = rmp_serde::to_vec_named(&core.state.critics()[1]).unwrap();
        drop(core);
        crate::learner::FAULT.set(Some((667, u64::MAX)));
        let mut core = start(text);
        let failed = |core: &Core| {
            core.status(now).critics.iter().map(|critic| critic.failed.clone().unwrap_or_default()).collect::<Vec<_>>()
        };
        assert!(failed(&core)[0].contains("on purpose") && failed(&core)[1].is_empty(), "{:?}", failed(&core));
        assert!(rmp_serde::to_vec_named(&core.state.critics()[1]).unwrap() == sound);
        // The other one goes on, and checkpoints are written.
        pendulum(700)[30..].iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        assert_eq!(core.state.critics()[1].learned(), core.offset());
        core.close(now).unwrap();
        let learned = core.offset();
        drop(core);
        crate::learner::FAULT.set(None);
        let core = start(text);
        assert_eq!((core.offset(), core.recovered().unwrap().rows_replayed), (learned, 0));
        assert!(failed(&core)[0].contains("on purpose"), "a checkpoint knows it");
        drop(core);
        // With other settings it begins again.
        let core = start(&text.replace("seed = 667", "seed = 667\ndiscount = 0.5"));
        assert_eq!(failed(&core), ["", ""]);
        assert!(core.state.critics()[0].model().is_some());
    }

    #[test]
    fn a_change_of_the_world_is_told_and_followed_and_so_it_is_in_a_replay() {
        let text = "window_rows = 500\n[[critic]]\nname = \"main\"\nrefit_first_rows = 0\ndictionary_max = 30\ndiscount = 0.8\n";
        let config = Arc::new(Config::from_toml(text).unwrap());
        let disk = Arc::default();
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let now = Now { uptime: 1.0, unix: 1e9 };
        let open = || {
            let storage = Box::new(MemoryStorage::on(Arc::clone(&disk)));
            Core::open(Arc::clone(&config), storage, Arc::clone(&checkpoints), now, &mut |_, _| {}).unwrap()
        };
        let (mut walk, mut rng, mut core) = (Walk::new(1, Some(50), 0.0), ChaCha8Rng::seed_from_u64(1), open());
        let (mut events, mut wholes) = (Vec::new(), Vec::new());
        for group in 0..140 {
            let mut steps: Vec<Step> = (0..100).map(|_| walk.step()).collect();
            for step in &mut steps {
                let sign = if group < 100 { 1.0 } else { -1.0 };
                let noise = 0.3 * (rng.random::<f64>() + rng.random::<f64>() - 1.0);
                step.reward = sign * step.state[0] + noise;
            }
            sim::batches("walk", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
            core.step(now);
            core.refresh(now, &|| now);
            for output in core.take_outputs() {
                match output {
                    Output::Event(dated) => events.push(dated.event),
                    Output::Publish(publication) if publication.topic == "snapshot.main" => {
                        wholes.push(wire::to_json(&publication.payload).unwrap()["generation"].clone());
                    }
                    _ => {}
                }
            }
            if group == 101 {
                // Between the change and its alarm.
                let checkpoint = core.checkpoint(now);
                checkpoints.write(checkpoint.group, &checkpoint.encode()).unwrap();
            }
        }
        let [
            wire::Event::Drift(alarm),
            wire::Event::Forked { .. },
            wire::Event::Swapped { from, kept, generation, .. },
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert!(alarm.since.abs_diff(10_000) < 600, "{alarm:?}");
        assert!(alarm.size.is_finite() && alarm.size != 0.0 && alarm.streams.is_empty(), "{alarm:?}");
        assert_eq!((kept.as_deref(), *generation), (Some("generation-1"), 2));
        // Subscribers get the model that answers now whole, although the last snapshot is not a second old.
        assert_eq!(wholes, [1, 2]);
        let drift = core.status(now).critics.remove(0).model.unwrap().drift;
        assert_eq!((drift.sensitivity.as_str(), drift.alarms, drift.forked), ("normal", 1, false));
        assert_eq!((drift.kept_models, drift.changed_at), (vec!["generation-1".to_owned()], *from));
        assert_eq!(drift.last.as_ref(), Some(alarm));
        let state = core.checkpoint(now).encode();
        drop(core);
        assert!(open().checkpoint(now).encode() == state);
    }

    /// A heat rises over twenty rows now and then, and the row behind it costs ten.
    fn failing(rows: u64) -> Vec<Step> {
        let (mut rng, mut heat) = (ChaCha8Rng::seed_from_u64(3), 0.0);
        let mut state = vec![0.0];
        let mut step = |seq| {
            let fails = heat >= 1.0;
            heat = if fails || (heat == 0.0 && rng.random::<f64>() > 0.01) { 0.0 } else { heat + 0.05 };
            let next_state = vec![heat + 0.1 * (rng.random::<f64>() - 0.5)];
            let reward = rng.random::<f64>() - 0.5 - if fails { 10.0 } else { 0.0 };
            let state = std::mem::replace(&mut state, next_state.clone());
            Step { seq, state, action: 0.0, reward, next_state, terminated: false, truncated: false }
        };
        (0..rows).map(&mut step).collect()
    }

    #[test]
    fn alarms_are_told_and_their_record_outlives_a_restart() {
        let text = "[[critic]]\nname = \"main\"\nrefit_first_rows = 0\ndictionary_max = 20\ndiscount = 0.9\n\
                    heads = [{ name = \"paid\", cumulant = { kind = \"reward\", index = 0 } }]\n\
                    alarm = { head = \"paid\", below = -3.0, false_alarms = 0.02 }\n";
        let config = Arc::new(Config::from_toml(text).unwrap());
        let disk = Arc::default();
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let now = Now { uptime: 1.0, unix: 1e9 };
        let open = || {
            let storage = Box::new(MemoryStorage::on(Arc::clone(&disk)));
            Core::open(Arc::clone(&config), storage, Arc::clone(&checkpoints), now, &mut |_, _| {}).unwrap()
        };
        let (mut core, mut events) = (open(), Vec::new());
        for (group, steps) in failing(8000).chunks(100).enumerate() {
            sim::batches("press", "", steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
            core.step(now);
            for output in core.take_outputs() {
                if let Output::Event(dated) = output
                    && let wire::Event::Alarm(fall) | wire::Event::AlarmEnded(fall) = &dated.event
                {
                    events.push((matches!(dated.event, wire::Event::Alarm(_)), fall.clone()));
                }
            }
            if group == 50 {
                let checkpoint = core.checkpoint(now);
                checkpoints.write(checkpoint.group, &checkpoint.encode()).unwrap();
            }
        }
        let alarms = core.status(now).critics.remove(0).alarms;
        let [alarm] = &alarms[..] else { panic!("one alarm: {alarms:?}") };
        let raised = events.iter().filter(|(raised, _)| *raised).count();
        assert_eq!((raised as u64, alarm.head.as_deref()), (alarm.raised, Some("paid")));
        let [(true, first), (false, ended)] = &events[..2] else { panic!("two events") };
        assert_eq!((first.stream.as_str(), first.head.as_deref(), first.below), ("press", Some("paid"), -3.0));
        assert_eq!(ended.since, first.offset);
        assert!(alarm.hits >= 20 && alarm.missed < alarm.fell / 2 && alarm.missing == 0, "{alarm:?}");
        assert!(alarm.lead_rows.is_some_and(|rows| rows > 2.0) && alarm.lead_s.is_none(), "{alarm:?}");
        let state = core.checkpoint(now).encode();
        drop(core);
        let again = open();
        assert_eq!(again.status(now).critics[0].alarms, alarms);
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
            let op = Op::Refit { critic: None, wait: true };
            let caller = Caller { peer, id: Id::nil(), form: ArrayForm::List };
            core.call(Call { caller, op }, now);
        };
        // The first request starts a refit, the second waits for the next one.
        ask(&mut core, 1);
        core.step(now);
        ask(&mut core, 2);
        core.give_up(0, "a bug", now);
        let told = core.take_outputs().filter(|output| matches!(output, Output::Reply(_))).count();
        assert_eq!(told, 2);
        // What a panic has left of its model is not looked at again.
        assert!(core.status(now).critics[0].model.is_none());
    }
}
