//! The core's thread: it takes what waits in the queues, turns the core, and hands out what comes of it.

use super::bounds::{CALLS, DRAIN, GROUP_BYTES, POLL_INTERVAL, TICK};
use super::core::{Asked, Call, Core, Now, Output, RefitDone, publication};
use super::evaluations::Desk;
use super::ledger::CheckpointDone;
use super::quarantine::Quarantine;
use super::queries::Forwarded;
use super::rebuild::RebuildDone;
use super::rebuild_thread::RebuildTask;
use super::refit_thread::Task;
use super::removal::{RemovalFound, RemovalJob};
use super::systemd::notify as notify_systemd;
use super::tombstones::Keeper;
use super::warm_start::{Feeding, WarmStartInput};
use super::what_if_thread::Task as Question;
use crate::clock::Clock;
use crate::config::Config;
use crate::http::PageQuestion;
use crate::journal::checkpoint::Checkpoint;
use crate::learner::model::Model;
use crate::telemetry::{EventBus, Restarts, Stage, Timings};
use crate::transport::turns::{ITEM_BYTES, Turns};
use crate::transport::{Counters, Outbox, Publication, Reply};
use crate::wire::status::{QueueStatus, QueuesStatus};
use crate::wire::{self, ErrorCode, Op, WireError};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, never, select};
use sd_notify::NotifyState;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Commands to the core, besides messages.
pub(super) enum Command {
    Reload(Arc<Config>),
    /// Learn what has been taken, publish a last time, end.
    Stop,
    #[cfg(test)]
    Panic,
}

/// Target learning time of one group: large enough to amortise a sync, small enough to bound latency.
const LEARN_AT_ONCE: Duration = Duration::from_millis(10);
/// Reading what is taken at once, and answering requests that bring no rows, take no longer than this, but for the last.
const TAKE_AT_ONCE: Duration = Duration::from_millis(10);
/// Of that, what goes into requests that bring no rows.
const ANSWER_AT_ONCE: Duration = Duration::from_micros(500);
/// Bytes of replies waiting for the gate from which on the core answers no request that brings no rows. The gate passes them on
/// in turns: the core would end up waiting for it, and rows and other clients for the core.
const REPLIES_AHEAD_BYTES: u64 = 2 << 20;
/// How long it then waits at most for something else.
const AHEAD_PAUSE: Duration = Duration::from_millis(1);
/// Work budget of a group, in multiplications, for requests whose work is done when the group is applied, and for changes of
/// policy that come with rows: about [`LEARN_AT_ONCE`]. The last may exceed it.
const WORK_AT_ONCE: u64 = 10_000_000;
/// While rows wait, their share of the learner's time beside such requests: this to one.
const PARTS_OF_ROWS: f64 = 15.0;
/// Most row-time debt of requests, seconds.
const ROW_DEBT_MAX_S: f64 = 2.0;
/// Share of the most that was owed below which rows are again as fast as without the requests.
const STILL_IN_DEBT: f64 = 0.125;
/// For so long rows get the learner at most before such a request, whatever is owed.
const WAITED_MAX: Duration = Duration::from_secs(4);
/// Rows of a group at least, if that number waits.
const GROUP_ROWS_MIN: u64 = 256;
/// Where learning has taken so long, as at a refresh of many running chains, requests are taken before the snapshot that is due, which
/// may take as long again.
const SNAPSHOT_APART: Duration = Duration::from_millis(50);
/// Retry time of appends during a warm start, milliseconds.
const WARMING_MS: u64 = 1000;

/// Where things come from.
pub(super) struct Inbox {
    pub(super) ingest: Receiver<Bytes>,
    pub(super) calls: Turns<Forwarded>,
    /// Rows that queries wait for.
    pub(super) wants: Receiver<u64>,
    pub(super) done: Receiver<RefitDone>,
    pub(super) rebuilt: Receiver<RebuildDone>,
    /// Rows that were to be found, to be taken back.
    pub(super) found: Receiver<RemovalFound>,
    pub(super) written: Receiver<CheckpointDone>,
    /// Questions of pages to models of the transition.
    pub(super) pages: Receiver<PageQuestion>,
    pub(super) commands: Receiver<Command>,
}

/// Where things go.
pub(super) struct Outlets {
    pub(super) tasks: Sender<Task>,
    pub(super) rebuilds: Sender<RebuildTask>,
    pub(super) removals: Sender<Box<RemovalJob>>,
    /// Questions to models of the transition.
    pub(super) questions: Sender<Question>,
    pub(super) garbage: Sender<Box<Model>>,
    /// A notice that there are new snapshots on the board.
    pub(super) fresh: Sender<()>,
    pub(super) checkpoints: Sender<Box<Checkpoint>>,
    /// The file of rows that were taken back.
    pub(super) tombstones: Keeper,
    pub(super) replies: Outbox<Reply>,
    pub(super) publish: Outbox<Publication>,
    pub(super) dropped_publications: u64,
    /// Of the transport: they have what subscribers ask for.
    pub(super) counters: Arc<Counters>,
}

impl Outlets {
    /// Publish, unless too much waits to be published: then this is dropped, and a later publication replaces it.
    fn offer(&mut self, publication: Publication) {
        if let Err(TrySendError::Full(_)) = self.publish.try_send(publication) {
            self.dropped_publications += 1;
            if self.dropped_publications.is_power_of_two() {
                log::warn!("event=publications_dropped count={}", self.dropped_publications);
            }
        }
    }
}

/// The core's thread.
pub(super) struct Learning {
    inbox: Inbox,
    outlets: Outlets,
    core: Core,
    /// A table that is learned before anything that producers send.
    pub(super) warm: Option<Feeding>,
    /// Where the monitor hears of rows, events and status; none in tests without one.
    pub(super) feed: Option<EventBus>,
    pub(super) timings: Timings,
    pub(super) refit_restarts: Restarts,
    pub(super) http_restarts: Restarts,
    /// Held as long as the data directory is written to.
    pub(super) lock: Option<std::fs::File>,
    quarantine: Quarantine,
    /// Evaluations of other policies, which run beside the core.
    pub(super) evaluations: Arc<Desk>,
    /// When the appends were received that this turn answers.
    appends: Vec<Instant>,
    config: Arc<Config>,
    clock: Clock,
    /// Whether the log has what may be kept.
    footprint_told: bool,
    pace: Pace,
    /// The critic whose adoption has been decided, and since when that keeps the learner.
    adopting: Option<(usize, Instant)>,
    ingest_ended: bool,
    calls_ended: bool,
    /// At a stop, when it ends at the latest.
    deadline: Option<Instant>,
}

impl Learning {
    /// The core's thread without a table, without anybody who watches.
    pub(super) fn new(core: Core, config: Arc<Config>, clock: Clock, inbox: Inbox, outlets: Outlets) -> Self {
        Self {
            quarantine: Quarantine::new(&config.data_dir, config.quarantine_max),
            inbox,
            outlets,
            core,
            warm: None,
            feed: None,
            timings: Timings::default(),
            refit_restarts: Restarts::default(),
            http_restarts: Restarts::default(),
            lock: None,
            evaluations: Arc::default(),
            appends: Vec::new(),
            config,
            clock,
            footprint_told: false,
            pace: Pace::default(),
            adopting: None,
            ingest_ended: false,
            calls_ended: false,
            deadline: None,
        }
    }

    pub(super) fn run(mut self) {
        // The first status says that the daemon is ready.
        let mut next_tick = Instant::now();
        // The watchdog is fed by the one thread that matters: where it hangs systemd starts the daemon again.
        let watchdog = sd_notify::watchdog_enabled().map(|interval| interval / 3);
        let mut next_feed = Instant::now();
        self.core.set_warm_start(self.warm.as_ref().map(Feeding::rows));
        loop {
            // What has been decided is stored before anything more is taken in.
            if !self.core.has_decided() || self.core.read_only().is_some() {
                if !self.receive() {
                    break;
                }
                self.drain_inbox();
            }
            self.turn();
            if let Some(interval) = watchdog
                && Instant::now() >= next_feed
            {
                next_feed = Instant::now() + interval;
                notify_systemd(&[NotifyState::Watchdog]);
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.core.set_restarts(self.refit_restarts.get(), self.http_restarts.get());
                self.tick();
                self.quarantine.keep(&self.core.take_refused());
            }
            self.dispatch();
            let over = (self.ingest_ended || self.warm.is_some()) && self.calls_ended;
            if self.deadline.is_some_and(|deadline| over || Instant::now() >= deadline) {
                break;
            }
        }
        self.finish();
        drop(self.lock);
    }

    /// Wait for something, not for long. Returns false when all senders of commands are gone.
    fn receive(&mut self) -> bool {
        // Heard before what else waits: a long message may take seconds to learn, and a stop would wait for several.
        if let Ok(command) = self.inbox.commands.try_recv() {
            self.handle(command);
            return true;
        }
        // What cannot be stored is not read: TCP fills, and producers wait. So they do while a table is learned.
        let storable = self.core.read_only().is_none();
        let takes_live_rows = !self.ingest_ended && storable && self.warm.is_none();
        let ingest = if takes_live_rows { self.inbox.ingest.clone() } else { never() };
        let warm = self.warm.as_ref().filter(|_| storable && self.deadline.is_none());
        let table = warm.map_or_else(never, |feeding| feeding.queue.clone());
        let calls = if self.calls_ended { never() } else { self.inbox.calls.bell().clone() };
        let (now, begun) = (self.clock.now(), Instant::now());
        select! {
            recv(ingest) -> message => match message {
                Ok(message) => {
                    let since = Instant::now();
                    self.pace.rest(since - begun);
                    self.core.ingest(&message, now);
                    self.timings.stages.passed(Stage::Decode, since, 0);
                }
                Err(_) => self.ingest_ended = true,
            },
            recv(table) -> fed => {
                self.pace.rest(begun.elapsed());
                self.warm_start(fed.ok(), now);
            }
            // They are taken with what else waits.
            recv(calls) -> _ => {
                self.pace.rest(begun.elapsed());
                self.calls_ended = self.inbox.calls.is_over();
            }
            recv(self.inbox.done) -> done => if let Ok(done) = done {
                self.core.refit_done(done);
            },
            recv(self.inbox.rebuilt) -> done => if let Ok(done) = done {
                self.core.rebuild_done(done);
            },
            recv(self.inbox.found) -> found => if let Ok(found) = found {
                self.core.removal_found(found);
            },
            recv(self.inbox.wants) -> offset => if let Ok(offset) = offset {
                self.core.want(offset);
            },
            recv(self.inbox.written) -> done => if let Ok(done) = done {
                self.core.checkpoint_done(&done, now);
            },
            recv(self.inbox.pages) -> question => match question {
                Ok(question) => self.core.ask_for_page(question, now),
                // There is no page.
                Err(_) => self.inbox.pages = never(),
            },
            recv(self.inbox.commands) -> command => match command {
                Ok(command) => self.handle(command),
                // Dropped without a stop: no caller is left.
                Err(_) => return false,
            },
            default(self.poll_timeout()) => self.pace.rest(begun.elapsed()),
        }
        true
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Reload(config) => match self.core.reload(Arc::clone(&config)) {
                Ok(()) => self.config = config,
                Err(why) => log::error!("event=reload_refused why={why:?}"),
            },
            #[cfg(test)]
            Command::Panic => panic!("injected"),
            Command::Stop => self.deadline = self.deadline.or(Some(Instant::now() + DRAIN)),
        }
    }

    /// Whether the core answers no request until replies have left, since too many wait for the gate. At a stop it answers all
    /// that it can.
    fn is_ahead(&self) -> bool {
        self.deadline.is_none() && self.outlets.replies.bytes() >= REPLIES_AHEAD_BYTES
    }

    /// How long to wait for something: not at all where requests are left over, but for those that owe time to rows, or wait for the
    /// gate.
    fn poll_timeout(&self) -> Duration {
        match self.inbox.calls.is_empty() {
            true => POLL_INTERVAL,
            false if self.pace.only_long_replies => AHEAD_PAUSE,
            false if self.pace.only_in_debt => POLL_INTERVAL.min(Duration::from_secs_f64(self.pace.row_debt_s)),
            false => Duration::ZERO,
        }
    }

    /// Commit, apply, act on what has been taken in; then what is due beside that.
    fn turn(&mut self) {
        let clock = self.clock;
        let uptime = || clock.now().uptime;
        let (begun, rows) = (Instant::now(), self.core.waiting_rows());
        let has_requests = self.core.waiting_work().0 > 0;
        let mut spent = Duration::ZERO;
        let stored = self.core.commit(clock.now(), &uptime);
        // Acknowledged before it is learned.
        self.dispatch();
        let since = self.timings.stages.passed(Stage::Journal, begun, if stored { rows } else { 0 });
        if stored {
            self.core.apply(clock.now());
            let learned = self.timings.stages.passed(Stage::Learn, since, rows);
            spent = learned - since;
            self.pace.note(rows, has_requests, [since - begun, spent]);
            self.note_pause();
            self.core.act(clock.now());
            self.adopting = self.core.adopting().map(|critic| (critic, learned));
        } else {
            // It stands still for the disk.
            self.adopting = None;
            self.core.act_unstorable(clock.now());
        }
        self.end_warm_start(&uptime);
        let since = Instant::now();
        self.core.sync_if_due(clock.now(), &uptime);
        let since = self.timings.stages.passed(Stage::Journal, since, 0);
        if self.core.first_snapshot_due() || !self.pace.postpones_snapshot(spent) {
            self.refresh_if_due(since);
        }
    }

    /// What the learner stands still for at an adoption: the judgement, and the group that the model is stored in.
    fn note_pause(&mut self) {
        if let Some((critic, since)) = self.adopting.take() {
            let seconds = since.elapsed().as_secs_f64();
            self.core.record_pause(critic, seconds);
            self.timings.adoption_pause.observe(seconds);
        }
    }

    /// Rows of the table that is learned first.
    fn warm_start(&mut self, fed: Option<WarmStartInput>, now: Now) {
        let Some(feeding) = &mut self.warm else { return };
        match fed {
            Some(WarmStartInput::Rows(batch)) => {
                let rows = batch.len();
                match self.core.warm_start(batch, now) {
                    Ok(()) => {
                        feeding.took(rows);
                        self.core.set_warm_start(Some(feeding.rows()));
                    }
                    Err(error) => feeding.fail(&error.to_string()),
                }
            }
            Some(WarmStartInput::Last) => feeding.end(),
            Some(WarmStartInput::Fault(why)) => feeding.fail(&why),
            None => feeding.fail("the thread that reads the table ended unexpectedly; please report this with the log"),
        }
    }

    /// When all of the table is stored live rows have their turn.
    fn end_warm_start(&mut self, clock: &dyn Fn() -> f64) {
        let ended = self.warm.as_ref().is_some_and(Feeding::ended) && self.core.waiting_rows() == 0;
        if ended && self.core.read_only().is_none() && self.core.make_durable(self.clock.now(), clock) {
            let offset = self.core.offset();
            self.warm.take().into_iter().for_each(|feeding| feeding.complete(offset));
            self.core.set_warm_start(None);
            self.core.refit_all();
        }
    }

    fn call(&mut self, forwarded: Forwarded, now: Now) {
        let Forwarded { caller, asked, since } = forwarded;
        match asked {
            Asked::Append(_) if self.warm.is_some() => {
                let message = "the table given with --warm-start is learned first; send this again";
                let error = WireError::new(ErrorCode::Overloaded, message);
                let error = WireError { retry_after_ms: Some(WARMING_MS), ..error };
                drop(self.outlets.replies.send(caller.refuse(&error)));
            }
            Asked::Append(payload) => {
                self.appends.push(since);
                self.core.append(&caller, &payload, now);
            }
            Asked::Refused(refused) => self.core.refuse_append(&caller, *refused, now),
            Asked::Op(op) => self.core.call(Call { caller, op }, now),
        }
    }

    fn tick(&mut self) {
        let queue = |waiting: usize, max: usize| QueueStatus { waiting: waiting as u64, max: max as u64 };
        self.core.set_queues(QueuesStatus {
            ingest: queue(self.inbox.ingest.len(), self.config.inbox_messages),
            calls: queue(self.inbox.calls.len(), CALLS.total_bytes / ITEM_BYTES),
            publish: queue(self.outlets.publish.len(), self.outlets.publish.capacity()),
            evaluations: self.evaluations.status(),
        });
        self.core.set_connections_broken(self.outlets.counters.ingest.broken());
        if !self.footprint_told
            && let Some(footprint) = self.core.footprint()
        {
            footprint.log();
            self.footprint_told = true;
        }
        self.core.tick(self.clock.now());
        self.outlets.tombstones.keep(&self.core);
        if let (Some(feed), Some(window)) = (&mut self.feed, self.core.window()) {
            feed.rows(window, || self.core.recent_streams());
        }
    }

    /// More of what is there already, up to one group: rows are learned together, which is faster. Messages and time are
    /// bounded too: not every message brings a row. Requests come in turns between peers.
    fn drain_inbox(&mut self) {
        let since = Instant::now();
        let now = self.clock.now();
        let storable = self.core.read_only().is_none();
        let most = self.pace.group_rows(self.config.batch_rows_max as u64);
        let mut answering = Duration::ZERO;
        (self.pace.only_in_debt, self.pace.only_long_replies) = (false, false);
        for _ in 0..most {
            let (of_requests, of_rows) = self.core.waiting_work();
            let is_long = self.core.waiting_rows() >= most || self.core.waiting_bytes() >= GROUP_BYTES;
            if is_long || of_rows >= WORK_AT_ONCE || since.elapsed() >= TAKE_AT_ONCE {
                break;
            }
            let mut idle = true;
            if let Some(feeding) = &self.warm {
                if storable
                    && self.deadline.is_none()
                    && let Ok(fed) = feeding.queue.try_recv()
                {
                    self.warm_start(Some(fed), now);
                    idle = false;
                }
            } else if storable && let Ok(message) = self.inbox.ingest.try_recv() {
                self.core.ingest(&message, now);
                idle = false;
            }
            let brings_rows = |call: &Forwarded| matches!(call.asked, Asked::Append(_));
            let is_ahead = self.is_ahead();
            let may_answer = answering < ANSWER_AT_ONCE && !is_ahead;
            // At a stop all are answered that can be.
            let may_work = (self.pace.row_debt_s == 0.0 || self.deadline.is_some()) && of_requests < WORK_AT_ONCE;
            let is_wanted = |call: &Forwarded| brings_rows(call) || (may_answer && (may_work || !works_later(call)));
            if let Some(call) = self.inbox.calls.next_of(is_wanted) {
                let (is_answer, is_work, begun) = (!brings_rows(&call), works_later(&call), Instant::now());
                self.call(call, now);
                if is_answer {
                    answering += begun.elapsed();
                }
                if is_work {
                    self.pace.add_debt(begun.elapsed().as_secs_f64());
                }
                idle = false;
            }
            if idle {
                (self.pace.only_in_debt, self.pace.only_long_replies) = (may_answer, is_ahead);
                break;
            }
        }
        self.calls_ended = self.calls_ended || self.inbox.calls.is_over();
        while let Ok(offset) = self.inbox.wants.try_recv() {
            self.core.want(offset);
        }
        let gone: HashSet<u64> = self.inbox.calls.take_gone().into_iter().collect();
        if !gone.is_empty() {
            self.core.forget(&gone);
        }
        self.timings.stages.passed(Stage::Decode, since, self.core.waiting_rows());
    }

    fn refresh_if_due(&mut self, since: Instant) {
        let now = self.clock.now();
        if self.core.refresh_due(now) {
            let clock = self.clock;
            let rows = self.core.offset() - self.core.offset_at_refresh();
            self.core.heads_are_asked(self.outlets.counters.topics.beginning_with("head."));
            self.core.refresh(now, &|| clock.now());
            // One notice in the queue is enough.
            let _ = self.outlets.fresh.try_send(());
            self.timings.stages.passed(Stage::Publish, since, rows);
        } else {
            self.core.publish_owed_plots(now);
        }
    }

    fn dispatch(&mut self) {
        for output in self.core.take_outputs() {
            match output {
                // The transport never waits for a peer here.
                Output::Reply(reply) => drop(self.outlets.replies.send(reply)),
                Output::Publish(publication) => self.outlets.offer(publication),
                Output::Event(event) => {
                    self.outlets.offer(publication(&event));
                    if let Some(feed) = &mut self.feed {
                        feed.event(event);
                    }
                }
                Output::Status(status) => {
                    let payload = wire::encode_status(&status).into();
                    if let Some(feed) = &mut self.feed {
                        feed.status(status);
                    }
                    self.outlets.offer(Publication { topic: "status".into(), payload });
                }
                // The refit thread holds one task at a time, and the core hands out one.
                Output::Refit { critic, job, spent } => {
                    drop(self.outlets.tasks.send(Task::Run { critic, job, spent }));
                }
                Output::CatchUp { critic, candidate, window } => {
                    drop(self.outlets.tasks.send(Task::CatchUp { critic, candidate, window }));
                }
                // So does the thread of rebuilds.
                Output::Rebuild(job) => drop(self.outlets.rebuilds.send(RebuildTask::Run(job))),
                Output::FollowRebuild(rebuilt) => drop(self.outlets.rebuilds.send(RebuildTask::Follow(rebuilt))),
                Output::Remove(job) => drop(self.outlets.removals.send(job)),
                // There is a place for each that the core hands out.
                Output::WhatIf(asker, job) => drop(self.outlets.questions.send((asker, job))),
                Output::Garbage(model) => drop(self.outlets.garbage.try_send(model)),
                // The core hands out one at a time.
                Output::Checkpoint(checkpoint) => drop(self.outlets.checkpoints.send(checkpoint)),
            }
        }
        for received in self.appends.drain(..) {
            self.timings.append.observe(received.elapsed().as_secs_f64());
        }
    }

    fn finish(&mut self) {
        let lost = self.inbox.ingest.len();
        if lost > 0 {
            log::warn!("event=not_learned messages={lost} why=\"the stop would have taken too long\"");
        }
        let now = self.clock.now();
        if let Err(why) = self.core.close(now) {
            log::error!("event=not_closed why={why:?}");
        }
        self.core.publish_last(now);
        self.dispatch();
        self.quarantine.keep(&self.core.take_refused());
        log::info!("event=stopped offset={}", self.core.offset());
    }
}

/// Rows, and how long it took to store and to apply them.
#[derive(Clone, Copy, Debug, Default)]
struct TimedRows {
    rows: u64,
    storing: Duration,
    applying: Duration,
}

/// How long rows take, and the debt of requests to rows.
#[derive(Debug, Default)]
struct Pace {
    /// Seconds that learning a row takes, of late; 0 before the first.
    row_seconds: f64,
    /// The same of storing it.
    stored_seconds: f64,
    /// Seconds that rows get at their pace, if some wait, before another request is taken whose work is done when its group is applied.
    row_debt_s: f64,
    /// The most that it was since nothing was owed.
    largest_debt_s: f64,
    /// The rows since the last request.
    since_request: TimedRows,
    /// How long nothing has waited since the last rows.
    rested: Duration,
    /// Whether the requests that are left over are those that owe time to rows.
    only_in_debt: bool,
    /// Whether they wait until the gate has passed replies on.
    only_long_replies: bool,
    /// The last turn has left its snapshot to this one.
    postponed: bool,
}

impl Pace {
    /// Whether a turn that has learned for so long leaves its snapshot to the next one; never two in a row.
    fn postpones_snapshot(&mut self, spent: Duration) -> bool {
        self.postponed = spent >= SNAPSHOT_APART && !self.postponed;
        self.postponed
    }

    /// A group of `rows` rows took so long to store and to apply. What that is above the pace of rows counts for the requests: so does
    /// what comes after them, as where a new model solves its weights more often. What is below it is paid back.
    fn note(&mut self, rows: u64, has_requests: bool, [storing, applying]: [Duration; 2]) {
        if rows > 0 {
            self.rested = Duration::ZERO;
        }
        let spent = storing + applying;
        let of_rows = rows as f64 * (self.row_seconds + self.stored_seconds);
        if has_requests {
            self.since_request = TimedRows::default();
        }
        if self.row_seconds == 0.0 {
            // Nothing can be told apart yet.
            self.row_debt_s = 0.0;
        } else if has_requests || self.row_debt_s > 0.0 {
            self.add_debt(spent.as_secs_f64() - of_rows);
            self.row_debt_s = (self.row_debt_s - of_rows).max(0.0);
        }
        if !has_requests && rows > 0 {
            // The pace is that without requests: what they make slow is over when most is paid back.
            if self.row_debt_s <= self.largest_debt_s * STILL_IN_DEBT {
                note_rows(&mut self.stored_seconds, storing.as_secs_f64() / rows as f64);
                note_rows(&mut self.row_seconds, applying.as_secs_f64() / rows as f64);
            }
            let TimedRows { rows: all, storing: stored, applying: applied } = &mut self.since_request;
            (*all, *stored, *applied) = (*all + rows, *stored + storing, *applied + applying);
        }
        let TimedRows { rows, storing, applying } = self.since_request;
        if self.row_debt_s > 0.0 && storing + applying >= WAITED_MAX {
            // Rows have become slower for another reason: this is their pace now.
            self.stored_seconds = storing.as_secs_f64() / rows as f64;
            self.row_seconds = applying.as_secs_f64() / rows as f64;
            self.row_debt_s = 0.0;
        }
        if self.row_debt_s == 0.0 {
            self.largest_debt_s = 0.0;
        }
    }

    /// Nothing waited for so long. Gaps within a fast stream pay back as rows do; where none has come for a while no row has to wait.
    fn rest(&mut self, idle: Duration) {
        self.rested += idle;
        let left = if self.has_rested() { 0.0 } else { self.row_debt_s - idle.as_secs_f64() };
        self.row_debt_s = left.max(0.0);
    }

    fn has_rested(&self) -> bool {
        self.rested >= POLL_INTERVAL
    }

    /// Requests took `seconds` of the learner's time: rows may take that long before the next of them.
    fn add_debt(&mut self, seconds: f64) {
        if self.has_rested() {
            return;
        }
        self.row_debt_s = (self.row_debt_s + PARTS_OF_ROWS * seconds).min(ROW_DEBT_MAX_S);
        self.largest_debt_s = self.largest_debt_s.max(self.row_debt_s);
    }

    /// Rows that are taken at once, of at most `most`. It depends on the clock, as everything does that cuts the stream into
    /// groups: what was cut is in the journal.
    fn group_rows(&self, most: u64) -> u64 {
        // A pace of 0 makes this infinite, and the conversion the largest there is.
        let in_time = (LEARN_AT_ONCE.as_secs_f64() / self.row_seconds) as u64;
        in_time.clamp(GROUP_ROWS_MIN.min(most), most)
    }
}

/// The mean seconds of a row, of late, after a group in which it was `latest`.
fn note_rows(seconds: &mut f64, latest: f64) {
    /// What the last group counts.
    const WEIGHT: f64 = 0.1;
    let weight = if *seconds == 0.0 { 1.0 } else { WEIGHT };
    *seconds += weight * (latest - *seconds);
}

/// Whether the work that a request causes is done when the group is applied that it is stored with.
fn works_later(call: &Forwarded) -> bool {
    let Asked::Op(op) = &call.asked else { return false };
    matches!(op, Op::Suggest { .. } | Op::Report { .. } | Op::NewPolicy { .. } | Op::ChangeHeads { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::core::Caller;
    use crate::learner::removal::Offsets;
    use crate::transport::Peer;
    use crate::transport::turns::turns;
    use crate::wire::{ArrayForm, Id};
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};
    use crossbeam_channel::{bounded, unbounded};

    fn learning(ingest: Receiver<Bytes>) -> Learning {
        learning_with(ingest, turns(CALLS).1)
    }

    fn learning_with(ingest: Receiver<Bytes>, calls: Turns<Forwarded>) -> Learning {
        learning_of(Arc::default(), ingest, calls)
    }

    fn learning_of(config: Arc<Config>, ingest: Receiver<Bytes>, calls: Turns<Forwarded>) -> Learning {
        let (wants, done, rebuilt, written, commands) = (never(), never(), never(), never(), never());
        let inbox = Inbox { ingest, calls, wants, done, rebuilt, found: never(), written, pages: never(), commands };
        let outlets = Outlets {
            tasks: bounded(1).0,
            rebuilds: bounded(1).0,
            removals: bounded(1).0,
            questions: bounded(1).0,
            garbage: bounded(1).0,
            fresh: bounded(1).0,
            checkpoints: bounded(1).0,
            tombstones: Keeper::new(&config.data_dir, Offsets::default()),
            replies: Outbox::new(1, 1).0,
            publish: Outbox::new(1, 1).0,
            dropped_publications: 0,
            counters: Arc::default(),
        };
        Learning::new(Core::new(Arc::clone(&config)), config, Clock::start(), inbox, outlets)
    }

    #[test]
    fn messages_without_new_rows_do_not_keep_the_core_from_its_work() {
        let (sender, receiver) = bounded(10_000);
        (0..10_000).for_each(|_| sender.send(Bytes::from_static(b"garbage")).unwrap());
        let mut learning = learning(receiver);
        learning.drain_inbox();
        let most = Config::default().batch_rows_max;
        assert!(
            most < 9000 && learning.inbox.ingest.len() >= 10_000 - most,
            "{} of 10000 are left",
            learning.inbox.ingest.len()
        );
    }

    #[test]
    fn a_stop_is_heard_before_messages_that_wait() {
        let (sender, receiver) = bounded(100);
        (0..100).for_each(|_| sender.send(Bytes::from_static(b"garbage")).unwrap());
        for _ in 0..20 {
            let (commands, heard) = bounded(1);
            let mut learning = learning(receiver.clone());
            learning.inbox.commands = heard;
            commands.send(Command::Stop).unwrap();
            assert!(learning.receive() && learning.deadline.is_some());
        }
        assert_eq!(receiver.len(), 100);
    }

    #[test]
    fn a_peer_has_few_places_and_none_when_it_has_left() {
        let (entrance, calls) = turns(CALLS);
        let mut learning = learning_with(never(), calls);
        let (mut pendulum, now) = (Pendulum::new(1, 0.3), Now { uptime: 1.0, unix: 1e9 });
        let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
        sim::batches("p", "", &steps).iter().for_each(|batch| learning.core.ingest(&wire::encode_ingest(batch), now));
        learning.core.step(now);
        learning.core.take_outputs().for_each(drop);
        let mut refused = |asks: bool| {
            let peer = Peer { connection: 1, delimiter: false };
            let caller = Caller { peer, id: Id::nil(), form: ArrayForm::List };
            let asked = Asked::Op(Op::Refit { critic: None, wait: true });
            if asks {
                entrance.put(1, 0, Forwarded { caller, asked, since: Instant::now() });
            } else {
                entrance.leave(1);
            }
            learning.drain_inbox();
            learning.core.take_outputs().filter(|output| matches!(output, Output::Reply(_))).count()
        };
        assert_eq!([true; 9].map(&mut refused), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!([false, true].map(&mut refused), [0, 0]);
    }

    #[test]
    fn rows_are_taken_as_they_can_be_learned() {
        let (mut pace, most) = (Pace::default(), 4096);
        let ms = Duration::from_millis;
        assert_eq!(pace.group_rows(most), most, "nothing is known yet");
        pace.note(100, false, [Duration::ZERO, ms(1)]);
        assert!((999..=1000).contains(&pace.group_rows(most)), "{}", pace.group_rows(most));
        pace.note(100, true, [Duration::ZERO, ms(5000)]);
        assert!((999..=1000).contains(&pace.group_rows(most)), "requests do not make rows slow");
        (0..200).for_each(|_| pace.note(100, false, [Duration::ZERO, ms(1000)]));
        assert_eq!(pace.group_rows(most), GROUP_ROWS_MIN);
        pace.note(0, false, [Duration::ZERO, ms(1_000_000)]);
        (0..200).for_each(|_| pace.note(100_000, false, [Duration::ZERO, Duration::from_micros(10)]));
        assert_eq!(pace.group_rows(most), most);
    }

    #[test]
    fn requests_are_taken_between_long_learning_and_its_snapshot() {
        let (mut pace, long) = (Pace::default(), SNAPSHOT_APART);
        let turns = [Duration::ZERO, long, long, long, Duration::ZERO, long, Duration::ZERO];
        let postponed = turns.map(|spent| pace.postpones_snapshot(spent));
        assert_eq!(postponed, [false, true, false, true, false, true, false]);
    }

    #[test]
    fn requests_get_a_sixteenth_of_the_time_that_rows_wait() {
        let (mut pace, ms) = (Pace::default(), Duration::from_millis);
        let is_near = |owed: f64, milliseconds: f64| (owed - 1e-3 * milliseconds).abs() < 1e-9;
        pace.note(100, false, [Duration::ZERO, ms(1)]);
        pace.note(100, true, [Duration::ZERO, ms(21)]);
        assert!(is_near(pace.row_debt_s, 15.0 * 20.0 - 1.0), "{}", pace.row_debt_s);
        // Storing counts as well, and taking requests in.
        pace.add_debt(1e-3);
        pace.note(0, true, [ms(2), ms(1)]);
        assert!(is_near(pace.row_debt_s, 299.0 + 15.0 * 4.0), "{}", pace.row_debt_s);
        pace.row_debt_s = 0.179;
        (0..17).for_each(|_| pace.note(1000, false, [Duration::ZERO, ms(10)]));
        assert!(is_near(pace.row_debt_s, 9.0));
        pace.note(1000, false, [Duration::ZERO, ms(10)]);
        assert_eq!(pace.row_debt_s, 0.0);
        // Short gaps of the stream pay as well.
        pace.row_debt_s = 0.179;
        pace.rest(ms(1));
        assert!(is_near(pace.row_debt_s, 178.0));
        pace.rest(POLL_INTERVAL);
        assert_eq!(pace.row_debt_s, 0.0);
        // Nor does a request that comes where no rows do owe anything.
        pace.note(0, true, [ms(1), ms(1)]);
        assert_eq!(pace.row_debt_s, 0.0);
        pace.note(1000, true, [ms(1), ms(10)]);
        assert!(is_near(pace.row_debt_s, 15.0 - 10.0), "{}", pace.row_debt_s);
    }

    #[test]
    fn rows_that_requests_make_slow_count_for_the_requests() {
        let (mut pace, ms) = (Pace::default(), Duration::from_millis);
        pace.note(1000, false, [Duration::ZERO, ms(10)]);
        pace.note(0, true, [Duration::ZERO, ms(10)]);
        pace.note(1000, false, [Duration::ZERO, ms(20)]);
        assert!((pace.row_debt_s - 0.29).abs() < 1e-9, "{}", pace.row_debt_s);
        // Where one group is slow and the next as much faster, nothing is owed for that.
        let mut uneven = Pace { row_seconds: 1e-5, row_debt_s: 1.0, largest_debt_s: 1.0, ..Pace::default() };
        (0..10).for_each(|k| uneven.note(1000, false, [Duration::ZERO, ms(if k % 2 == 0 { 15 } else { 5 })]));
        assert!((0.8..0.95).contains(&uneven.row_debt_s), "{}", uneven.row_debt_s);
        // However often requests come, what they make slow is not taken for the pace of rows.
        for _ in 0..1000 {
            pace.row_debt_s = 0.0;
            pace.note(0, true, [Duration::ZERO, ms(1)]);
            (0..5).for_each(|_| pace.note(1000, false, [Duration::ZERO, ms(12)]));
            while pace.row_debt_s > 0.0 {
                pace.note(1000, false, [Duration::ZERO, ms(10)]);
            }
        }
        assert!((pace.row_seconds - 1e-5).abs() < 1e-7, "{}", pace.row_seconds);
        // Rows that have become slower for good do not keep requests out, however many wait.
        pace.note(0, true, [Duration::ZERO, ms(10)]);
        let wait = |pace: &mut Pace| {
            let owes = |_: &u32| {
                pace.note(1000, false, [Duration::ZERO, ms(30)]);
                pace.row_debt_s > 0.0
            };
            (0..10_000).take_while(owes).count()
        };
        let first = wait(&mut pace);
        assert!((100..140).contains(&first), "{first}");
        pace.note(1000, true, [Duration::ZERO, ms(32)]);
        let second = wait(&mut pace);
        assert!(second < 5, "{second}");
    }

    #[test]
    fn nothing_is_owed_before_the_pace_of_rows_is_known() {
        let (mut pace, ms) = (Pace::default(), Duration::from_millis);
        pace.add_debt(0.1);
        pace.note(4096, true, [ms(1), ms(100)]);
        assert_eq!(pace.row_debt_s, 0.0);
        pace.note(1000, false, [Duration::ZERO, ms(10)]);
        pace.note(1000, true, [Duration::ZERO, ms(12)]);
        assert!((pace.row_debt_s - (0.03 - 0.01)).abs() < 1e-9, "{}", pace.row_debt_s);
    }

    #[test]
    fn no_more_work_of_requests_is_taken_at_once_than_a_turn_may_take() {
        const ELEMENTS: u64 = 120;
        const WAITING: u64 = 200;
        let text =
            "[[advisor]]\nname = \"default\"\nlengthscales = [0.001]\noutputs = [{ mean = 0.0, deviation = 1.0 }]\n";
        let config = Arc::new(Config::from_toml(text).unwrap());
        let (entrance, calls) = turns(CALLS);
        let (sender, ingest) = unbounded();
        let mut learning = learning_of(Arc::clone(&config), ingest, calls);
        let now = Now { uptime: 1.0, unix: 1e9 };
        let put = |op: Op| {
            let peer = Peer { connection: 1, delimiter: false };
            let caller = Caller { peer, id: Id::nil(), form: ArrayForm::List };
            entrance.put(1, 0, Forwarded { caller, asked: Asked::Op(op), since: Instant::now() });
        };
        let suggest = |at: u64| Op::Suggest { advisor: None, context: vec![at as f64] };
        let report = |decision_id: u64| Op::Report { advisor: None, decision_id, cost: 1.0 };
        let carry_out = |learning: &mut Learning, op: Op| {
            put(op);
            learning.drain_inbox();
            learning.core.step(now);
            learning.core.take_outputs().for_each(drop);
        };
        // No rows come yet.
        learning.pace.rest(POLL_INTERVAL);
        // Its dictionary grows with each context.
        (0..ELEMENTS).for_each(|k| carry_out(&mut learning, suggest(k)));
        (0..ELEMENTS).for_each(|k| carry_out(&mut learning, report(k)));
        (0..WAITING).for_each(|k| carry_out(&mut learning, suggest(k)));
        assert_eq!(learning.core.waiting_work(), (0, 0));
        for k in 0..WAITING {
            put(report(ELEMENTS + k));
            put(suggest(k));
        }
        (0..100).for_each(|_| learning.drain_inbox());
        let (work, _) = learning.core.waiting_work();
        assert!((WORK_AT_ONCE..WORK_AT_ONCE + ELEMENTS.pow(3) + 100 * ELEMENTS.pow(2)).contains(&work), "{work}");
        let left = learning.inbox.calls.len();
        assert!(left > 0, "the others wait");
        let before = Instant::now();
        learning.core.step(now);
        println!("{work} multiplications took {:?}", before.elapsed());
        // While rows wait they are taken, and no such request.
        learning.pace.row_debt_s = 1.0;
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..10_000).map(|_| pendulum.step()).collect();
        for batch in steps.chunks(16).flat_map(|some| sim::batches("p", "", some)) {
            sender.send(wire::encode_ingest(&batch).into()).unwrap();
        }
        learning.drain_inbox();
        assert_eq!((learning.inbox.calls.len(), learning.core.waiting_work().0), (left, 0));
        assert!(learning.core.waiting_rows() > 0);
    }
}
