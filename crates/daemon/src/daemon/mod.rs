//! The running daemon: threads around [`core::Core`], and the order in which they start and stop.
//!
//! ```text
//! transport (gate, PULL, ROUTER, PUB) --ingest--> core --publish--> transport
//!                                     --control-> control --calls--> core --replies--> transport
//!                                                 control answers queries from the board, without waiting for the core
//!                                     core --tasks--> refit --done--> core
//!                                     core --notices--> monitor, which judges the critics
//!                                                       monitor --notices--> http, which shows them to browsers and Prometheus
//! ```
//! Every arrow is a bounded queue. Full: ingest and control make the peers wait; calls beyond a peer's share are
//! answered `overloaded`;
//! publications are dropped (a later one replaces them); tasks hold one refit at a time; done is never full;
//! notices are dropped.

mod act;
pub mod archive;
pub mod as_of;
mod bounds;
pub mod core;
mod endpoints_file;
pub mod erase;
mod evaluations;
mod learning;
pub mod ledger;
mod lock;
pub mod memory;
pub mod outlook;
pub mod quarantine;
mod queries;
pub mod rebuild;
mod rebuild_thread;
pub mod recovery;
mod refit_thread;
pub mod removal;
pub mod replace;
mod starting;
pub mod survey;
mod systemd;
pub mod tombstones;
pub mod union;
pub mod warm_start;
mod what_if;
mod what_if_thread;

use self::bounds::{CALLS, DRAIN, POLL_INTERVAL, QUESTIONS};
use self::core::Core;
use self::endpoints_file::EndpointsFile;
use self::evaluations::Evaluations;
use self::learning::{Command, Inbox, Learning, Outlets};
use self::ledger::CheckpointDone;
use self::lock::{claim, shelf};
pub use self::lock::{lock, owner};
use self::outlook::Outlook;
use self::queries::{Control, FastPath, Ports};
use self::rebuild_thread::Rebuilds;
use self::recovery::{NEWER_REMEDY, OnTheWay, RecoverError};
use self::refit_thread::Refits;
use self::removal::{RemovalFound, RemovalJob, RemovalThread};
use self::replace::Interrupted;
use self::starting::Report;
pub use self::starting::starting;
use self::systemd::notify as notify_systemd;
use self::tombstones::{Keeper, TOMBSTONES};
use self::warm_start::{Feeding, WarmStart, WarmStartError};
use self::what_if_thread::WhatIf;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::http::{self, Http, PageQuestion};
use crate::journal::checkpoint::{Checkpoint, Checkpoints, Directory};
use crate::journal::store::SqliteStorage;
use crate::keys::{KeyError, KeyPair};
use crate::monitor::{self, Monitor};
use crate::refit_work;
use crate::telemetry::{self, BusEvent, EventBus, Heartbeat, Restarts, StartProgress, Timings};
#[cfg(feature = "curve")]
use crate::transport::CurveSettings;
use crate::transport::turns::turns;
use crate::transport::{self, DESCRIPTORS_MIN, Endpoint, Endpoints, SocketName, Transport};
use crate::wire::status::RecoveredStatus;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use sd_notify::NotifyState;
use serde_json::json;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Offsets that queries wait for and the core has not heard of.
const WANTS: usize = 256;
/// Old models that may wait to be dropped elsewhere.
const GARBAGE: usize = 4;
/// Between two checkpoints of a long start.
const KEEP: Duration = Duration::from_secs(60);
/// At a stop, replies and publications are sent for at most so long.
const FLUSH: Duration = Duration::from_millis(500);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An endpoint cannot be parsed.
    #[error("{setting}: {source}")]
    Endpoint {
        /// Which setting.
        setting: &'static str,
        /// Why.
        source: transport::EndpointError,
    },
    /// The sockets cannot be bound.
    #[error("{0}")]
    Transport(#[source] transport::StartError),
    /// The dashboard's address cannot be bound.
    #[error("{0}")]
    Http(#[source] http::ServerStartError),
    /// The data directory cannot be written.
    #[error("cannot write to {path}: {source}; choose another with --data-dir")]
    DataDir {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another daemon uses the data directory.
    #[error(
        "another criticd{} uses {path}; end it with `criticd stop {path}`, or choose another directory with --data-dir",
        .process.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    Locked {
        /// Which one.
        path: PathBuf,
        /// Its process, if that can be seen from here.
        process: Option<u32>,
    },
    /// A repair, a reset or a restore of the data directory was interrupted.
    #[error("{}", unfinished(.path, *.what))]
    Unfinished {
        /// Which one.
        path: PathBuf,
        /// What it was.
        what: Interrupted,
    },
    /// What is in the data directory cannot be gone on with.
    #[error("{}", not_recovered(.path, .source))]
    Recover {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: RecoverError,
    },
    /// Rows that were taken back from data of later cannot be taken back from these.
    #[error(
        "rows that {path} names are to be taken back before anything is answered, and cannot be: {why}\nWhere these \
         rows may be learned after all, move that file away"
    )]
    Tombstones {
        /// The file that names them.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The table that is to be learned first cannot be.
    #[error("{0}")]
    WarmStart(#[source] WarmStartError),
    /// The daemon's secret key cannot be used.
    #[error("curve_secret_key: {0}")]
    Keys(#[source] KeyError),
    /// The process may open too few files.
    #[error(
        "the process may open {allowed} files (ulimit -n), and the daemon needs {DESCRIPTORS_MIN} for itself and a few \
         connections, and three for each further one, four with keys; raise the limit (LimitNOFILE in a unit)"
    )]
    FewDescriptors {
        /// How many it may.
        allowed: u64,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// Number this run, and have answers before the first question.
fn begin_run(core: &mut Core, clock: Clock) {
    core.set_run((1000.0 * clock.now().unix) as u64);
    core.refresh(clock.now(), &|| clock.now());
}

/// What was interrupted in the directory `path`, and how to go on.
fn unfinished(path: &Path, what: Interrupted) -> String {
    let path = path.display();
    match what {
        Interrupted::Plan => {
            format!("a repair, reset or restore of {path} was interrupted; finish it with `criticd repair {path}`")
        }
        Interrupted::Restore => format!(
            "a restore to {path} was interrupted before any of it was in place; run `criticd restore BACKUP {path}` \
             again, or give it up with `criticd repair {path}`"
        ),
        Interrupted::Repair => format!(
            "a repair of {path} was interrupted before it had changed anything; `criticd repair {path}` begins it again"
        ),
    }
}

/// Why what is in the directory `path` cannot be gone on with, and what to do.
fn not_recovered(path: &Path, source: &RecoverError) -> String {
    let path = path.display();
    let remedy = match source {
        RecoverError::Settings(_) | RecoverError::Stopped => return source.to_string(),
        _ if source.is_newer() => NEWER_REMEDY.to_owned(),
        RecoverError::Store(_) => format!("Check the owner, the mode and the disk of {path}"),
        _ => format!(
            "See what is there with `criticd inspect {path}`; `criticd repair --truncate {path}` says what would be lost if \
             the journal were cut where it is still good"
        ),
    };
    format!("{source}\nNothing has been changed. {remedy}")
}

impl StartError {
    /// Whether the start was stopped on request.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Recover { source: RecoverError::Stopped, .. } | Self::WarmStart(WarmStartError::Stopped))
    }
}

/// A running daemon. Dropping it without [`Daemon::stop`] closes its sockets at once.
pub struct Daemon {
    /// Where its sockets are bound.
    pub endpoints: Endpoints,
    http: Option<Http>,
    pulse: Arc<Heartbeat>,
    config: Mutex<Arc<Config>>,
    transport: Option<Transport>,
    commands: Sender<Command>,
    stop_refits: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    warm_start: Option<(Arc<warm_start::WarmStartProgress>, JoinHandle<()>)>,
    endpoints_file: EndpointsFile,
    /// Locks the data directory until [`Daemon::stop`] has removed the endpoints file. The core's thread holds the same lock.
    lock: Option<std::fs::File>,
}

/// What the core's thread is started with.
struct CoreStart {
    core: Core,
    clock: Clock,
    timings: Timings,
    tombstones: Keeper,
    feed: EventBus,
    http_restarts: Restarts,
    pages: Receiver<PageQuestion>,
    warm: Option<Feeding>,
    lock: std::fs::File,
}

/// What a start is doing before the sockets are bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StartupProgress {
    /// Rows of the journal are learned again.
    Recovering {
        /// Rows read so far.
        rows: u64,
        /// Rows in all.
        of: u64,
    },
    /// The table that is to be learned first is checked.
    Checking(crate::table::Progress),
}

impl Daemon {
    /// Bind the sockets, start the threads, write `endpoints.json`.
    ///
    /// # Errors
    /// If any of that fails; nothing stays bound.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, None, &mut |_| {})
    }

    /// Go on where the journal in the data directory ends, and check the table that is to be learned before live rows, if
    /// there is one, telling `progress` how far that is; then as [`Daemon::start`].
    ///
    /// # Errors
    /// If any of that fails; nothing stays bound.
    pub fn start_with(
        config: Config,
        warm_start: Option<&WarmStart>,
        progress: &mut dyn FnMut(StartupProgress),
    ) -> Result<Self, StartError> {
        Self::start_unless(&AtomicBool::new(false), config, warm_start, progress)
    }

    /// As [`Daemon::start_with`]; while the journal is read and while the table is checked, it ends soon after `stop` is set, with an
    /// error that [`StartError::is_stopped`] knows.
    ///
    /// # Errors
    /// If any of that fails; nothing stays bound.
    pub fn start_unless(
        stop: &AtomicBool,
        config: Config,
        warm_start: Option<&WarmStart>,
        progress: &mut dyn FnMut(StartupProgress),
    ) -> Result<Self, StartError> {
        if let Some(allowed) = getrlimit(Resource::Nofile).maximum.filter(|&allowed| allowed < DESCRIPTORS_MIN) {
            return Err(StartError::FewDescriptors { allowed });
        }
        let config = Arc::new(config);
        let (lock, endpoints_file) = claim(&config.data_dir)?;
        let clock = Clock::start();
        // Asked for first: what is wrong there is wrong whatever the journal holds.
        let keys = if config.curve_endpoints().next().is_some() { config.curve_secret_key.as_deref() } else { None };
        let keys = keys.map(KeyPair::load).transpose().map_err(StartError::Keys)?;
        // Bound first, so that an address in use is noticed before a long journal is read.
        let listener = http::Listener::bind(&config).map_err(StartError::Http)?;
        let settings = transport_settings(&config, keys.as_ref())?;
        transport::check_endpoints(&settings).map_err(StartError::Transport)?;
        let recovered: Arc<StartProgress> = Arc::default();
        let serve =
            |listener| http::Starting::serve(&config, listener, Arc::clone(&recovered)).map_err(StartError::Http);
        let starting = listener.as_ref().map(serve).transpose()?;
        let mut report = Report::new(&config.data_dir, stop);
        let mut core = open_core(&config, clock, &mut report, &mut |rows, of| {
            recovered.set(rows, of);
            progress(StartupProgress::Recovering { rows, of });
        })?;
        let tombstones = honour_tombstones(&config, &mut core, clock, stop)?;
        begin_run(&mut core, clock);
        let mut checking = |done: crate::table::Progress| {
            progress(StartupProgress::Checking(done));
            report.checking(done.fraction)
        };
        let plan = warm_start.map(|warm| warm_start::plan(warm, &config, &core, &mut checking)).transpose();
        let plan = plan.map_err(StartError::WarmStart)?.flatten();
        let (board, timings) = (core.board(), Timings::default());
        let mut at_once = FastPath::new(Arc::clone(&board), &config, timings.clone(), clock);
        let transport = transport::start_answering(settings, move |request| at_once.answer(request));
        let transport = transport.map_err(StartError::Transport)?;
        let (pulse, http_restarts) = (Arc::new(Heartbeat::default()), Restarts::default());
        let ((feed, notices), (questions, pages)) = (telemetry::feed(Arc::clone(&pulse)), bounded(1));
        let (monitor, (page, shown)) = (Monitor::shared(&config.critics, &board), bounded(http::NOTICES));
        let sources = http::Sources {
            board,
            monitor: Arc::clone(&monitor),
            notices: shown,
            pulse: Arc::clone(&pulse),
            timings: timings.clone(),
            counters: Arc::clone(&transport.counters),
            endpoints: transport.endpoints.clone(),
            restarts: http_restarts.clone(),
            shelf: shelf(&config, &lock)?,
            questions,
        };
        drop(starting);
        let http = listener.map(|listener| Http::start_on(&config, listener, sources)).transpose();
        let http = http.map_err(StartError::Http)?;
        let (commands, command_queue) = bounded(4);
        let mut daemon = Self {
            endpoints: transport.endpoints.clone(),
            pulse,
            commands,
            stop_refits: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            warm_start: None,
            endpoints_file,
            lock: lock.try_clone().ok(),
            config: Mutex::new(Arc::clone(&config)),
            transport: None,
            http: None,
        };
        let warm = plan.map(|plan| daemon.read_table(plan)).transpose()?;
        daemon.http = http;
        daemon.start_monitor(monitor, notices, page, http_restarts.clone())?;
        let start = CoreStart { core, clock, timings, tombstones, feed, http_restarts, pages, warm, lock };
        daemon.start_threads(start, transport, command_queue)?;
        daemon.announce(keys.as_ref())?;
        Ok(daemon)
    }

    /// Start the thread that judges what came of predictions, and passes on to the `page` what it hears.
    fn start_monitor(
        &mut self,
        monitor: Arc<Mutex<Monitor>>,
        notices: Receiver<BusEvent>,
        page: Sender<BusEvent>,
        restarts: Restarts,
    ) -> Result<(), StartError> {
        let page = self.http.is_some().then_some(page);
        let run = move || monitor::run(&monitor, &notices, page.as_ref());
        self.spawn("monitor", move || {
            telemetry::step_back();
            restarts.keep("monitor", || true, run);
        })
    }

    /// Start reading a table that is to be learned first.
    fn read_table(&mut self, plan: warm_start::WarmStartPlan) -> Result<Feeding, StartError> {
        let started = plan.start(Arc::clone(&self.pulse));
        let (feeding, told, thread) = started.map_err(StartError::Thread)?;
        self.warm_start = Some((told, thread));
        Ok(feeding)
    }

    /// Start the threads around the core, and the core's last.
    fn start_threads(
        &mut self,
        start: CoreStart,
        transport: Transport,
        commands: Receiver<Command>,
    ) -> Result<(), StartError> {
        let CoreStart { core, clock, timings, tombstones, feed, http_restarts, pages, warm, lock } = start;
        let config = Arc::clone(&self.config.lock());
        let ((calls, call_queue), (wants, want_queue)) = (turns(CALLS), bounded(WANTS));
        let ((fresh, fresh_queue), (tasks, task_queue)) = (bounded(1), bounded(1));
        let ((done, done_queue), (questions, question_queue)) = (bounded(2), bounded(QUESTIONS));
        let (garbage, garbage_queue) = bounded(GARBAGE);
        let ((rebuilds, rebuild_queue), (rebuilt, rebuilt_queue)) = (bounded(1), bounded(1));
        let (removals, found_queue) = self.start_removals(&config)?;
        let what_if = WhatIf { tasks: question_queue, under_way: core.asking(), replies: transport.replies.clone() };
        let ((checkpoints, checkpoint_queue), (written, written_queue)) = (bounded::<Box<Checkpoint>>(1), bounded(1));
        let (requests, replies) = (transport.control.clone(), transport.replies.clone());
        let pulse = Arc::clone(&self.pulse);
        let (evaluations, evaluation_queues) = evaluations::entrance(config.journal);
        let desk = Arc::clone(evaluations.desk());
        let ports = Ports { requests, replies, calls, wants, fresh: fresh_queue, evaluations, pulse };
        let control = Control::new(ports, core.board(), Arc::clone(&config), timings.clone(), clock);
        let inbox = Inbox {
            ingest: transport.ingest.clone(),
            calls: call_queue,
            wants: want_queue,
            done: done_queue,
            rebuilt: rebuilt_queue,
            found: found_queue,
            written: written_queue,
            pages,
            commands,
        };
        let (replies, publish) = (transport.replies.clone(), transport.publish.clone());
        let evaluators = evaluation_queues.map(|tasks| Evaluations {
            directory: config.data_dir.clone(),
            tasks,
            replies: replies.clone(),
            board: core.board(),
            config: Arc::clone(&config),
            desk: Arc::clone(&desk),
            stop: Arc::clone(&self.stop_refits),
        });
        let (counters, dropped_publications) = (Arc::clone(&transport.counters), 0);
        let outlets = Outlets {
            tasks,
            rebuilds,
            removals,
            questions,
            garbage,
            fresh,
            checkpoints,
            tombstones,
            replies,
            publish,
            dropped_publications,
            counters,
        };
        self.transport = Some(transport);
        let mut learning = Learning::new(core, Arc::clone(&config), clock, inbox, outlets);
        (learning.warm, learning.lock) = (warm, Some(lock));
        (learning.feed, learning.timings, learning.http_restarts) = (Some(feed), timings, http_restarts);
        learning.evaluations = desk;
        let (stop, restarts) = (Arc::clone(&self.stop_refits), learning.refit_restarts.clone());
        let threads = refit_work::threads(config.refit_threads);
        let refits = Refits { tasks: task_queue, garbage: garbage_queue, done, stop, threads, restarts };
        let (directory, stop) = (Directory::new(&config.data_dir), Arc::clone(&self.stop_refits));
        let rebuilds = Rebuilds { directory: config.data_dir.clone(), tasks: rebuild_queue, done: rebuilt, stop };
        for (name, evaluator) in ["rows", "evaluate", "past"].into_iter().zip(evaluators) {
            self.spawn(name, move || evaluator.run())?;
        }
        self.spawn("what-if", move || what_if.run())?;
        self.spawn("rebuild", move || rebuilds.run())?;
        self.spawn("refit", move || refits.run())?;
        self.spawn("checkpoint", move || write_checkpoints(&directory, &checkpoint_queue, &written))?;
        self.spawn("control", move || control.run())?;
        self.spawn("core", move || learning.run())
    }

    /// Start the thread that looks for rows that are to be taken back. Returns where it takes tasks, and where it answers.
    fn start_removals(
        &mut self,
        config: &Config,
    ) -> Result<(Sender<Box<RemovalJob>>, Receiver<RemovalFound>), StartError> {
        let ((tasks, queue), (done, found)) = (bounded(1), bounded(1));
        let (directory, stop) = (config.data_dir.clone(), Arc::clone(&self.stop_refits));
        let thread = RemovalThread { directory, tasks: queue, done, stop };
        self.spawn("remove", move || thread.run())?;
        Ok((tasks, found))
    }

    /// Write `endpoints.json`, which is the sign that all is ready, and tell systemd.
    fn announce(&self, keys: Option<&KeyPair>) -> Result<(), StartError> {
        let encrypted = self.transport.as_ref().map_or(&[][..], |transport| &transport.encrypted);
        let public_key = keys.map(|keys| keys.public.as_str());
        let text = endpoints_text(&self.endpoints, encrypted, public_key, self.http_address());
        self.endpoints_file.announce(text)?;
        notify_systemd(&[NotifyState::Ready]);
        Ok(())
    }

    /// Where the dashboard is bound, unless it is off.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
    }

    /// Let the dashboard compare the model with the true value, from a simulator.
    pub fn show_truth(&self, truth: http::Truth) {
        self.http.iter().for_each(|http| http.show_truth(truth.clone()));
    }

    /// Let the dashboard say what a demo has shown, now that it has ended.
    pub fn show_end(&self, sentence: &str) {
        self.http.iter().for_each(|http| http.show_end(sentence.to_owned()));
    }

    /// How far the table is that is learned before live rows, if there is one.
    pub fn warm_start(&self) -> Option<warm_start::Progress> {
        self.warm_start.as_ref().map(|(told, _)| told.progress())
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run).map_err(StartError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Write `endpoints.json` if it is not there, because the start could not or because somebody has deleted it.
    pub fn keep_endpoints(&self) {
        self.endpoints_file.keep();
    }

    /// The name of a thread that ended without a request: a bug. The daemon should be stopped.
    pub fn dead_thread(&self) -> Option<String> {
        // The core comes last: where it has ended, others end as well.
        let own = self.threads.iter().rev().find(|t| t.is_finished()).and_then(|t| t.thread().name());
        let others = || self.transport.as_ref().and_then(Transport::dead_thread);
        own.or_else(others).or_else(|| self.http.as_ref().and_then(Http::dead_thread)).map(str::to_owned)
    }

    /// Take over what may change at run time.
    ///
    /// # Errors
    /// The settings that differ and need a restart; nothing is taken over then.
    pub fn reload(&self, config: Config) -> Result<Vec<String>, Vec<String>> {
        let mut present = self.config.lock();
        let changed = present.reloadable_from(&config)?;
        let config = Arc::new(config);
        *present = Arc::clone(&config);
        drop(present);
        // A full queue or a core that has ended: the next reload, or the watchdog, will tell.
        drop(self.commands.try_send(Command::Reload(config)));
        Ok(changed)
    }

    /// Stop: take no more, learn what has been taken (for at most a second), publish a last snapshot, close.
    pub fn stop(mut self) {
        notify_systemd(&[NotifyState::Stopping]);
        self.stop_refits.store(true, Ordering::Relaxed);
        self.pulse.stop();
        if let Some(transport) = &self.transport {
            transport.stop_receiving();
        }
        drop(self.commands.send_timeout(Command::Stop, DRAIN));
        let started = Instant::now();
        // Neither a refit in the middle of a factorisation nor a queue of large queries is waited for: if they take too long they
        // are left to end by themselves. They own nothing but copies.
        let wait = |thread: &JoinHandle<()>, longest: Duration| {
            while !thread.is_finished() && started.elapsed() < longest {
                std::thread::sleep(POLL_INTERVAL);
            }
        };
        let mut threads: HashMap<String, JoinHandle<()>> = self
            .threads
            .drain(..)
            .map(|thread| (thread.thread().name().unwrap_or_default().to_owned(), thread))
            .collect();
        if let Some(core) = threads.remove("core") {
            // If it panicked it has said so.
            drop(core.join());
        }
        if let Some((_, reader)) = self.warm_start.take() {
            // Its queue has no receiver any more, so it ends with its next batch.
            wait(&reader, DRAIN);
        }
        for name in ["control", "monitor"] {
            threads.get(name).into_iter().for_each(|thread| wait(thread, DRAIN));
        }
        if let Some(transport) = self.transport.take() {
            transport.shutdown(FLUSH);
        }
        if let Some(http) = self.http.take() {
            http.stop();
        }
        for background in
            ["refit", "rebuild", "remove", "evaluate", "rows"].iter().filter_map(|name| threads.get(*name))
        {
            wait(background, DRAIN + FLUSH);
        }
        if let Some(checkpoint) = threads.remove("checkpoint") {
            // One that is half written would have to be written again.
            drop(checkpoint.join());
        }
        self.endpoints_file.remove();
        drop(self.lock.take());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop_refits.store(true, Ordering::Relaxed);
    }
}

fn transport_settings(
    config: &Config,
    #[cfg_attr(not(feature = "curve"), expect(unused_variables))] keys: Option<&KeyPair>,
) -> Result<transport::Settings, StartError> {
    let parse = |setting, text: &str| text.parse().map_err(|source| StartError::Endpoint { setting, source });
    let limits = &config.limits;
    let encrypted = config.curve_endpoints().map(|(setting, text)| {
        let socket = match setting {
            "curve_ingest" => SocketName::Ingest,
            "curve_control" => SocketName::Control,
            _ => SocketName::Publish,
        };
        Ok((socket, parse(setting, text)?))
    });
    let encrypted = encrypted.collect::<Result<Vec<_>, _>>()?;
    Ok(transport::Settings {
        #[cfg(feature = "curve")]
        curve: keys.map(|keys| CurveSettings { secret_key: keys.secret.clone(), clients: config.clients.clone() }),
        encrypted,
        allow_remote: config.insecure,
        access: config.access(),
        inbox_messages: config.inbox_messages,
        limits: transport_limits(limits),
        ingest: parse("ingest", &config.ingest)?,
        control: parse("control", &config.control)?,
        publish: parse("publish", &config.publish)?,
        ..transport::Settings::default()
    })
}

/// What peers may cost, by the settings.
fn transport_limits(limits: &config::Limits) -> transport::PeerLimits {
    let (others, stall_timeout) = (transport::PeerLimits::default(), Duration::from_millis(limits.stall_timeout_ms));
    transport::PeerLimits {
        message_bytes_max: limits.message_bytes_max,
        frame_bytes_max: limits.frame_bytes_max.unwrap_or(limits.message_bytes_max),
        parts_max: limits.parts_max,
        connections_max: limits.connections_max,
        connections_per_address_max: limits.connections_per_address_max,
        subscriptions_max: limits.subscriptions_max,
        handshake_timeout: Duration::from_millis(limits.handshake_timeout_ms),
        stall_timeout,
        // The kernel counts bytes that a peer does not read as unconfirmed, and would be the first to give it up.
        unconfirmed_timeout: others.unconfirmed_timeout.max(stall_timeout),
        saturated_timeout: Duration::from_millis(limits.saturated_timeout_ms),
        idle_timeout: Duration::from_millis(limits.idle_timeout_ms),
        ..others
    }
}

fn open_core(
    config: &Arc<Config>,
    clock: Clock,
    report: &mut Report<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Core, StartError> {
    let directory = &config.data_dir;
    let refused = |source| StartError::Recover { path: directory.clone(), source };
    if !config.journal {
        if SqliteStorage::exists(directory) {
            log::warn!("event=journal_ignored why=\"journal is off in the settings\"");
        }
        let known = Config::clone(config).with_means_of(&[]);
        return Ok(Core::new(Arc::new(known.map_err(|e| refused(RecoverError::Settings(e.to_string())))?)));
    }
    let started = Instant::now();
    let mut storage = SqliteStorage::open(directory).map_err(|e| refused(RecoverError::Store(e)))?;
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(directory));
    let mut kept = started;
    let mut watched = |rows, of| {
        progress(rows, of);
        if !report.recovering(rows, of) {
            return OnTheWay::Stop;
        }
        if kept.elapsed() < KEEP {
            return OnTheWay::Continue;
        }
        kept = Instant::now();
        OnTheWay::Checkpoint(clock.now().unix)
    };
    match Outlook::of_watched(&mut storage, checkpoints.as_ref(), config, &mut watched) {
        Ok(outlook) => outlook.log(),
        Err(stopped @ RecoverError::Stopped) => return Err(refused(stopped)),
        // What is wrong with the journal the recovery says.
        Err(_) => {}
    }
    let core = Core::open_watched(Arc::clone(config), Box::new(storage), checkpoints, clock.now(), &mut watched);
    report.recovered();
    let core = core.map_err(refused)?;
    if let Some(RecoveredStatus { offset, from_checkpoint, rows_replayed, torn_bytes, faults, .. }) = core.recovered() {
        let from = from_checkpoint.map_or_else(|| "null".to_owned(), |offset| offset.to_string());
        log::info!(
            "event=recovered offset={offset} from_checkpoint={from} rows_replayed={rows_replayed} \
             torn_bytes={torn_bytes} seconds={:.3}",
            started.elapsed().as_secs_f64()
        );
        faults.iter().for_each(|fault| log::warn!("event=checkpoint_skipped why={fault:?}"));
    }
    Ok(core)
}

/// Take rows back that the data have and the list beside them names.
fn honour_tombstones(config: &Config, core: &mut Core, clock: Clock, stop: &AtomicBool) -> Result<Keeper, StartError> {
    tombstones::honour(&config.data_dir, core, clock.now(), stop).map_err(|why| {
        let path = config.data_dir.clone();
        match stop.load(Ordering::Relaxed) {
            true => StartError::Recover { path, source: RecoverError::Stopped },
            false => StartError::Tombstones { path: path.join(TOMBSTONES), why },
        }
    })
}

/// The thread that writes checkpoints.
fn write_checkpoints(directory: &Directory, queue: &Receiver<Box<Checkpoint>>, written: &Sender<CheckpointDone>) {
    for checkpoint in queue {
        let started = Instant::now();
        let Checkpoint { group, offset, replay_from, .. } = *checkpoint;
        let bytes = checkpoint.encode();
        drop(checkpoint);
        let result = directory.write(group, &bytes).map(|()| bytes.len() as u64).map_err(|e| e.to_string());
        let seconds = started.elapsed().as_secs_f64();
        // A core that has ended has no use for it.
        drop(written.send(CheckpointDone { group, offset, replay_from, result, seconds }));
    }
}

/// The text of `endpoints.json`.
fn endpoints_text(
    endpoints: &Endpoints,
    encrypted: &[(SocketName, Endpoint)],
    public_key: Option<&str>,
    http: Option<SocketAddr>,
) -> String {
    let mut text = json!({
        "ingest": endpoints.ingest.to_string(),
        "control": endpoints.control.to_string(),
        "publish": endpoints.publish.to_string(),
    });
    for (socket, endpoint) in encrypted {
        text[format!("curve_{socket}")] = endpoint.to_string().into();
    }
    if let Some(key) = public_key {
        text["curve_public_key"] = key.into();
    }
    if let Some(http) = http {
        text["http"] = http.to_string().into();
    }
    format!("{text:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Requester;
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};

    #[test]
    fn a_thread_that_panics_is_named_and_the_journal_is_closed_with_all_that_was_acknowledged() {
        for thread in ["core", "control", "checkpoint"] {
            let directory = tempfile::tempdir().unwrap();
            let any_port = || "tcp://127.0.0.1:0".to_owned();
            let start = || {
                let config = Config::new(crate::config::ConfigParts {
                    data_dir: directory.path().to_owned(),
                    ingest: any_port(),
                    control: any_port(),
                    publish: any_port(),
                    http: "off".into(),
                    ..crate::config::ConfigParts::default()
                });
                Daemon::start(config.unwrap()).unwrap()
            };
            let mut daemon = start();
            let long = Duration::from_secs(60);
            let connect = |daemon: &Daemon| Requester::connect(&daemon.endpoints.control.to_string(), long).unwrap();
            let mut requester = connect(&daemon);
            let mut pendulum = Pendulum::new(1, 0.3);
            let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
            for batch in sim::batches("p", "run", &steps) {
                let id = requester.post_append(&batch).unwrap();
                requester.reply(id, long).unwrap();
            }
            assert_eq!(daemon.dead_thread(), None);
            match thread {
                "core" => daemon.commands.send(Command::Panic).unwrap(),
                "control" => drop(requester.post_bytes(|_| b"panic".to_vec()).unwrap()),
                other => daemon.spawn(other, || panic!("injected")).unwrap(),
            }
            // Others may be seen to end before it, as they wait for it.
            while daemon.dead_thread().as_deref() != Some(thread) {
                std::thread::sleep(POLL_INTERVAL);
            }
            daemon.stop();
            // The process that has the journal open holds the lock.
            drop(lock(directory.path()).unwrap());
            let daemon = start();
            let status = connect(&daemon).ask("status", json!({}), long).unwrap();
            assert_eq!((status["offset"].as_u64(), status["recovered"]["offset"].as_u64()), (Some(100), Some(100)));
            daemon.stop();
        }
    }

    #[test]
    fn the_kernel_gives_no_peer_up_that_may_still_stall() {
        let found = |stall_timeout_ms| {
            transport_limits(&config::Limits { stall_timeout_ms, ..config::Limits::default() }).unconfirmed_timeout
        };
        assert_eq!((found(10_000), found(90_000)), (Duration::from_secs(30), Duration::from_secs(90)));
    }

    #[test]
    fn a_stop_waits_for_no_query_and_no_refit() {
        let daemon = |name: &str, held: Receiver<()>| {
            let (commands, _) = bounded(1);
            let endpoint: transport::Endpoint = "tcp://127.0.0.1:0".parse().unwrap();
            let endpoints = Endpoints { ingest: endpoint.clone(), control: endpoint.clone(), publish: endpoint };
            let mut daemon = Daemon {
                endpoints,
                http: None,
                pulse: Arc::default(),
                config: Mutex::new(Arc::new(Config::default())),
                transport: None,
                commands,
                stop_refits: Arc::new(AtomicBool::new(false)),
                threads: Vec::new(),
                warm_start: None,
                endpoints_file: EndpointsFile::new("no such directory".as_ref()),
                lock: None,
            };
            daemon.spawn(name, move || assert!(held.recv().is_err())).unwrap();
            daemon
        };
        for name in ["control", "refit"] {
            let ((hold, held), (stopped, over)) = (bounded(0), bounded(1));
            let daemon = daemon(name, held);
            std::thread::spawn(move || {
                daemon.stop();
                stopped.send(())
            });
            assert!(over.recv_timeout(Duration::from_secs(60)).is_ok(), "{name} is waited for");
            drop(hold);
        }
    }
}
