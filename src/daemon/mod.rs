//! The running daemon: threads around [`core::Core`], and the order in which they start and stop.
//!
//! ```text
//! transport (gate, PULL, ROUTER, PUB) --ingest--> core --publish--> transport
//!                                     --control-> control --calls--> core --replies--> transport
//!                                                 control answers queries from the board, without waiting for the core
//!                                     core --tasks--> refit --done--> core
//!                                     core --notices--> http, which shows them to browsers and Prometheus
//! ```
//! Every arrow is a bounded queue. Full: ingest and control make the peers wait; calls are answered `overloaded`;
//! publications are dropped (a later one replaces them); tasks hold one refit at a time; done is never full;
//! notices are dropped.

pub mod core;
pub mod ledger;
pub mod memory;
pub mod quarantine;
pub mod recovery;
pub mod survey;
pub mod telemetry;
pub mod warm_start;

use self::core::{Board, Call, Caller, Core, Now, Output, Queues, RefitDone};
use self::ledger::CheckpointDone;
use self::quarantine::Quarantine;
use self::recovery::RecoverError;
use self::telemetry::{Feed, Pulse, Restarts, Stage, Timings};
use self::warm_start::{Fed, Feeding, WarmStart, WarmStartError};
use crate::config::Config;
use crate::http::{self, Http};
use crate::journal::checkpoint::{Checkpoint, Checkpoints, Directory};
use crate::journal::store::SqliteStorage;
use crate::keys::{KeyError, KeyPair};
use crate::learner::model::Model;
use crate::learner::refit::{self, Candidate, RefitJob};
use crate::learner::window::Window;
use crate::panics;
use crate::snapshot::{Ask, Evaluation, Evaluator, Scratch, Snapshot};
#[cfg(feature = "curve")]
use crate::transport::CurveSettings;
use crate::transport::{self, Endpoint, Endpoints, Outbox, Publication, Reply, Request, SocketName, Transport};
use crate::wire::{self, ArrayForm, ErrorCode, Op, WireError};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded, never, select};
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use sd_notify::NotifyState;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Calls that may wait for the core.
const CALLS: usize = 256;
/// Queries that may wait for rows to be learned.
const QUERIES_WAITING: usize = 1024;
/// Queries of many states that may be under way at a time.
const LARGE_QUERIES: usize = 64;
/// Requests that are looked at between two slices of a large query.
const BETWEEN_SLICES: usize = 64;
/// Multiplications of one slice of a large query: a fraction of a millisecond.
const SLICE_WORK: usize = 20_000_000;
/// Queries of at most so many multiplications are answered where they arrive: some microseconds, as long as it takes to
/// hand them over. Those for mean and variance of one state, with a dictionary of some four hundred elements.
const AT_ONCE_WORK: usize = 200_000;
/// Longer requests are not even looked at there.
const AT_ONCE_BYTES: usize = 4096;
/// Encoded snapshots kept for clients that fetch them page by page.
const PAGED_MAX: usize = 4;
/// A query that waits for rows is answered after so long that they have not come.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Old models that may wait to be dropped elsewhere.
const GARBAGE: usize = 4;
/// Between two status publications.
const TICK: Duration = Duration::from_secs(1);
/// Most that the core goes without looking at its clock.
const NAP: Duration = Duration::from_millis(10);
/// At a stop, messages already taken are learned for at most so long.
const DRAIN: Duration = Duration::from_millis(1000);
/// At a stop, replies and publications are sent for at most so long.
const FLUSH: Duration = Duration::from_millis(500);
/// What `hello` says that this daemon can do, beyond what every daemon of the protocol's version can.
const FEATURES: [&str; 6] = ["hello", "pages", "kernels", "journal", "returns", "policies"];
/// Rows are taken at once as many as are learned in about so long: a sync is shared by many, and no client waits for long.
const LEARN_AT_ONCE: Duration = Duration::from_millis(10);
/// But at least so many, where there are.
const GROUP_ROWS_MIN: u64 = 256;
/// Bytes that are written to the journal at a time, at most, unless one message has more.
const GROUP_BYTES: usize = 4 << 20;
/// What a client is told to wait when the core's queue is full, milliseconds.
const RETRY_MS: u64 = 50;
/// What whoever appends is told to wait while a table is learned first, milliseconds.
const WARMING_MS: u64 = 1000;

/// Why the daemon did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An endpoint cannot be parsed.
    Endpoint {
        /// Which setting.
        setting: &'static str,
        /// Why.
        source: transport::EndpointError,
    },
    /// The sockets cannot be bound.
    Transport(transport::StartError),
    /// The dashboard's address cannot be bound.
    Http(http::StartError),
    /// The data directory cannot be written.
    DataDir {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another daemon uses the data directory.
    Locked {
        /// Which one.
        path: PathBuf,
    },
    /// What is in the data directory cannot be gone on with.
    Recover {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: RecoverError,
    },
    /// The table that is to be learned first cannot be.
    WarmStart(WarmStartError),
    /// The daemon's secret key cannot be used.
    Keys(KeyError),
    /// A thread cannot be started.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { setting, source } => write!(f, "{setting}: {source}"),
            Self::Transport(e) => write!(f, "{e}"),
            Self::Http(e) => write!(f, "{e}"),
            Self::DataDir { path, source } => {
                write!(f, "cannot write to {}: {source}; choose another with --data-dir", path.display())
            }
            Self::Locked { path } => {
                write!(f, "another daemon uses {}; choose another directory with --data-dir", path.display())
            }
            Self::Recover { source: RecoverError::Settings(why), .. } => f.write_str(why),
            Self::Recover { path, source } => {
                let path = path.display();
                write!(
                    f,
                    "{source}\nNothing has been changed. See what is there with `criticd inspect {path}`; `criticd repair \
                     --truncate {path}` says what would be lost if the journal were cut where it is still good"
                )
            }
            Self::WarmStart(e) => write!(f, "{e}"),
            Self::Keys(e) => write!(f, "curve_secret_key: {e}"),
            Self::Thread(e) => write!(f, "cannot start a thread: {e}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Endpoint { source, .. } => Some(source),
            Self::Transport(e) => Some(e),
            Self::Http(e) => Some(e),
            Self::DataDir { source, .. } | Self::Thread(source) => Some(source),
            Self::Recover { source, .. } => Some(source),
            Self::WarmStart(e) => Some(e),
            Self::Keys(source) => Some(source),
            Self::Locked { .. } => None,
        }
    }
}

/// What the core is told from outside besides messages.
enum Command {
    Reload(Arc<Config>),
    /// Learn what has been taken, publish a last time, end.
    Stop,
    #[cfg(test)]
    Panic,
}

/// Work of the refit thread.
enum Task {
    Run { critic: usize, job: Box<RefitJob> },
    CatchUp { critic: usize, candidate: Box<Candidate>, window: Window },
}

/// A running daemon. Dropping it without [`Daemon::stop`] closes its sockets at once.
pub struct Daemon {
    /// Where its sockets are bound.
    pub endpoints: Endpoints,
    http: Option<Http>,
    pulse: Arc<Pulse>,
    config: Mutex<Arc<Config>>,
    transport: Option<Transport>,
    commands: Sender<Command>,
    stop_refits: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    warm_start: Option<(Arc<warm_start::Told>, JoinHandle<()>)>,
    endpoints_file: PathBuf,
}

/// What a start is doing before the sockets are bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beginning {
    /// Rows of the journal are learned again.
    Recovering {
        /// So many have been.
        rows: u64,
        /// So many there are.
        of: u64,
    },
    /// The table that is to be learned first is checked.
    Checking(crate::table::Progress),
}

/// Both clocks, read together.
#[derive(Clone, Copy)]
struct Clock {
    started: Instant,
}

impl Clock {
    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Now { uptime: self.started.elapsed().as_secs_f64(), unix }
    }
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
        progress: &mut dyn FnMut(Beginning),
    ) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let data_dir = |source| StartError::DataDir { path: config.data_dir.clone(), source };
        prepare_directory(&config.data_dir).map_err(data_dir)?;
        let lock = lock(&config.data_dir)?;
        let endpoints_file = config.data_dir.join("endpoints.json");
        // Left by a daemon that was killed: clients take the file for a sign that all is ready.
        match std::fs::remove_file(&endpoints_file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(data_dir(e)),
            _ => {}
        }
        let clock = Clock { started: Instant::now() };
        // Asked for first: what is wrong there is wrong whatever the journal holds.
        let keys = if config.curve_endpoints().next().is_some() { config.curve_secret_key.as_deref() } else { None };
        let keys = keys.map(KeyPair::load).transpose().map_err(StartError::Keys)?;
        let core = open_core(&config, clock, &mut |rows, of| progress(Beginning::Recovering { rows, of }))?;
        let mut checking = |done| progress(Beginning::Checking(done));
        let plan = match warm_start {
            Some(warm) => warm_start::plan(warm, &config, &core, &mut checking).map_err(StartError::WarmStart)?,
            None => None,
        };
        let (board, timings) = (core.board(), Timings::default());
        let mut at_once = AtOnce::new(Arc::clone(&board), &config, timings.clone());
        let settings = transport_settings(&config, keys.as_ref())?;
        let transport = transport::start_answering(settings, move |request| at_once.answer(request));
        let transport = transport.map_err(StartError::Transport)?;
        let pulse = Arc::new(Pulse::default());
        let (feed, notices) = telemetry::feed(Arc::clone(&pulse));
        let http_restarts = Restarts::default();
        let sources = http::Sources {
            board: Arc::clone(&board),
            notices,
            pulse: Arc::clone(&pulse),
            timings: timings.clone(),
            counters: Arc::clone(&transport.counters),
            endpoints: transport.endpoints.clone(),
            restarts: http_restarts.clone(),
        };
        let http = Http::start(&config, sources).map_err(StartError::Http)?;
        let stop_refits = Arc::new(AtomicBool::new(false));
        let (commands, command_queue) = bounded(4);
        let (calls, call_queue) = bounded(CALLS);
        let (wants, want_queue) = bounded(CALLS);
        let (fresh, fresh_queue) = bounded(1);
        let (tasks, task_queue) = bounded(1);
        let (done, done_queue) = bounded(2);
        let (garbage, garbage_queue) = bounded(GARBAGE);
        let (checkpoints, checkpoint_queue) = bounded::<Box<Checkpoint>>(1);
        let (written, written_queue) = bounded(1);

        let mut daemon = Self {
            endpoints: transport.endpoints.clone(),
            pulse,
            commands,
            stop_refits: Arc::clone(&stop_refits),
            threads: Vec::new(),
            warm_start: None,
            endpoints_file,
            config: Mutex::new(Arc::clone(&config)),
            transport: None,
            http: None,
        };
        let control = Control {
            requests: transport.control.clone(),
            replies: transport.replies.clone(),
            calls,
            wants,
            fresh: fresh_queue,
            board,
            timings: timings.clone(),
            config: Arc::clone(&config),
            clock,
            waiting: Vec::new(),
            large: VecDeque::new(),
            paged: VecDeque::new(),
            scratch: Scratch::default(),
            evaluation: Evaluation::default(),
        };
        let warm = match plan {
            Some(plan) => {
                let started = plan.start(Arc::clone(&daemon.pulse));
                let (feeding, told, thread) = started.map_err(StartError::Thread)?;
                daemon.warm_start = Some((told, thread));
                Some(feeding)
            }
            None => None,
        };
        let learning = Learning {
            ingest: transport.ingest.clone(),
            warm,
            calls: call_queue,
            wants: want_queue,
            done: done_queue,
            commands: command_queue,
            tasks,
            garbage,
            fresh,
            replies: transport.replies.clone(),
            publish: transport.publish.clone(),
            core,
            appends: Vec::new(),
            timings: timings.clone(),
            feed: http.is_some().then_some(feed),
            quarantine: Quarantine::new(&config.data_dir, config.quarantine_max),
            checkpoints,
            written: written_queue,
            config: Arc::clone(&config),
            clock,
            dropped_publications: 0,
            footprint_told: false,
            row_seconds: 0.0,
            refit_restarts: Restarts::default(),
            http_restarts: http_restarts.clone(),
            adopting: None,
            ingest_ended: false,
            calls_ended: false,
            deadline: None,
            _lock: Some(lock),
        };
        let directory = Directory::new(&config.data_dir);
        let restarts = learning.refit_restarts.clone();
        let threads = refit_threads(config.refit_threads);
        let refits = Refits { tasks: task_queue, garbage: garbage_queue, done, stop: stop_refits, threads, restarts };
        daemon.transport = Some(transport);
        daemon.http = http;
        daemon.spawn("refit", move || refits.run())?;
        daemon.spawn("checkpoint", move || write_checkpoints(&directory, &checkpoint_queue, &written))?;
        daemon.spawn("control", move || control.run())?;
        daemon.spawn("core", move || learning.run())?;
        let encrypted = daemon.transport.as_ref().map_or(&[][..], |transport| &transport.encrypted);
        let public_key = keys.as_ref().map(|keys| keys.public.as_str());
        write_endpoints(&daemon.endpoints_file, &daemon.endpoints, encrypted, public_key, daemon.http_address())
            .map_err(|source| StartError::DataDir { path: daemon.endpoints_file.clone(), source })?;
        notify_systemd(&[NotifyState::Ready]);
        Ok(daemon)
    }

    /// Where the dashboard is bound, unless it is off.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
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

    /// The name of a thread that has ended although nobody asked it to: a bug. The daemon should be stopped.
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
                std::thread::sleep(NAP);
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
            // Nobody takes what it reads any more, so that it ends with its next batch.
            wait(&reader, DRAIN);
        }
        if let Some(control) = threads.get("control") {
            wait(control, DRAIN);
        }
        if let Some(transport) = self.transport.take() {
            transport.shutdown(FLUSH);
        }
        if let Some(http) = self.http.take() {
            http.stop();
        }
        if let Some(refit) = threads.get("refit") {
            wait(refit, DRAIN + FLUSH);
        }
        if let Some(checkpoint) = threads.remove("checkpoint") {
            // One that is half written would have to be written again.
            drop(checkpoint.join());
        }
        drop(std::fs::remove_file(&self.endpoints_file));
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
        limits: transport::Limits {
            message_bytes_max: limits.message_bytes_max,
            frame_bytes_max: limits.frame_bytes_max.unwrap_or(limits.message_bytes_max),
            parts_max: limits.parts_max,
            connections_max: limits.connections_max,
            connections_per_address_max: limits.connections_per_address_max,
            subscriptions_max: limits.subscriptions_max,
            handshake_timeout: Duration::from_millis(limits.handshake_timeout_ms),
            stall_timeout: Duration::from_millis(limits.stall_timeout_ms),
            saturated_timeout: Duration::from_millis(limits.saturated_timeout_ms),
            idle_timeout: Duration::from_millis(limits.idle_timeout_ms),
            ..transport::Limits::default()
        },
        ingest: parse("ingest", &config.ingest)?,
        control: parse("control", &config.control)?,
        publish: parse("publish", &config.publish)?,
        ..transport::Settings::default()
    })
}

fn prepare_directory(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Tell systemd, where it has started us and asks to be told (`Type=notify`).
fn notify_systemd(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        log::debug!("event=notify_failed why={:?}", e.to_string());
    }
}

/// One daemon at a time: the lock goes with the process, however it ends.
///
/// # Errors
/// If another process has it, or the file cannot be made.
pub fn lock(directory: &Path) -> Result<std::fs::File, StartError> {
    let path = directory.join("lock");
    let open = || {
        use std::os::unix::fs::OpenOptionsExt;
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)
    };
    let file = open().map_err(|source| StartError::DataDir { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StartError::Locked { path: directory.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(StartError::DataDir { path, source }),
    }
}

fn open_core(config: &Arc<Config>, clock: Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<Core, StartError> {
    let directory = &config.data_dir;
    if !config.journal {
        if SqliteStorage::exists(directory) {
            log::warn!("event=journal_ignored why=\"journal is off in the settings\"");
        }
        return Ok(Core::new(Arc::clone(config)));
    }
    let refused = |source| StartError::Recover { path: directory.clone(), source };
    let started = Instant::now();
    let storage = SqliteStorage::open(directory).map_err(|e| refused(RecoverError::Store(e)))?;
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(directory));
    let core =
        Core::open(Arc::clone(config), Box::new(storage), checkpoints, clock.now(), progress).map_err(refused)?;
    let recovered = core.recovered();
    log::info!(
        "event=recovered offset={} from_checkpoint={} rows_replayed={} torn_bytes={} seconds={:.3}",
        recovered["offset"],
        recovered["from_checkpoint"],
        recovered["rows_replayed"],
        recovered["torn_bytes"],
        started.elapsed().as_secs_f64()
    );
    for fault in recovered["faults"].as_array().into_iter().flatten() {
        log::warn!("event=checkpoint_passed_over why={fault}");
    }
    Ok(core)
}

/// The thread that writes checkpoints.
fn write_checkpoints(directory: &Directory, queue: &Receiver<Box<Checkpoint>>, written: &Sender<CheckpointDone>) {
    for checkpoint in queue {
        let started = Instant::now();
        let Checkpoint { group, offset, needs_from, .. } = *checkpoint;
        let bytes = checkpoint.encode();
        drop(checkpoint);
        let result = directory.write(group, &bytes).map(|()| bytes.len() as u64).map_err(|e| e.to_string());
        let seconds = started.elapsed().as_secs_f64();
        // A core that has ended has no use for it.
        drop(written.send(CheckpointDone { group, offset, needs_from, result, seconds }));
    }
}

/// Written whole or not at all: clients wait for this file to appear.
fn write_endpoints(
    path: &Path,
    endpoints: &Endpoints,
    encrypted: &[(SocketName, Endpoint)],
    public_key: Option<&str>,
    http: Option<SocketAddr>,
) -> std::io::Result<()> {
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
    let fresh = path.with_extension("json.new");
    let mut file = std::fs::File::create(&fresh)?;
    writeln!(file, "{text:#}")?;
    file.sync_all()?;
    std::fs::rename(fresh, path)
}

/// The core's thread.
struct Learning {
    ingest: Receiver<Bytes>,
    /// A table that is learned before anything that producers send.
    warm: Option<Feeding>,
    calls: Receiver<(Call, Instant)>,
    wants: Receiver<u64>,
    done: Receiver<RefitDone>,
    commands: Receiver<Command>,
    tasks: Sender<Task>,
    garbage: Sender<Box<Model>>,
    fresh: Sender<()>,
    replies: Outbox<Reply>,
    publish: Outbox<Publication>,
    core: Core,
    /// When the appends were received that this round answers.
    appends: Vec<Instant>,
    timings: Timings,
    /// None where nobody watches.
    feed: Option<Feed>,
    quarantine: Quarantine,
    checkpoints: Sender<Box<Checkpoint>>,
    written: Receiver<CheckpointDone>,
    config: Arc<Config>,
    clock: Clock,
    dropped_publications: u64,
    /// Whether the log has what may be kept.
    footprint_told: bool,
    /// Seconds that learning a row takes, of late; 0 before the first.
    row_seconds: f64,
    refit_restarts: Restarts,
    http_restarts: Restarts,
    /// The critic whose adoption has been decided, and since when that keeps the learner.
    adopting: Option<(usize, Instant)>,
    ingest_ended: bool,
    calls_ended: bool,
    /// At a stop, when it ends at the latest.
    deadline: Option<Instant>,
    /// Held as long as the data directory is written to.
    _lock: Option<std::fs::File>,
}

impl Learning {
    fn run(mut self) {
        // The first status says that the daemon is ready.
        let mut next_tick = Instant::now();
        // Fed by the one thread that matters: where it hangs systemd starts the daemon again.
        let watchdog = sd_notify::watchdog_enabled().map(|interval| interval / 3);
        let mut next_feed = Instant::now();
        self.core.set_warm_start(self.warm.as_ref().map(Feeding::rows));
        loop {
            // What has been decided is stored before anything more is taken in.
            if !self.core.has_decided() || self.core.read_only().is_some() {
                if !self.receive() {
                    break;
                }
                self.take_what_waits();
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
            self.carry_out();
            let over = (self.ingest_ended || self.warm.is_some()) && self.calls_ended;
            if self.deadline.is_some_and(|deadline| over || Instant::now() >= deadline) {
                break;
            }
        }
        self.finish();
    }

    /// Wait for something, not for long. Returns false when nobody is left who could ask for a stop.
    fn receive(&mut self) -> bool {
        // What cannot be stored is not read: TCP fills, and producers wait. So they do while a table is learned.
        let storable = self.core.read_only().is_none();
        let takes_live_rows = !self.ingest_ended && storable && self.warm.is_none();
        let ingest = if takes_live_rows { self.ingest.clone() } else { never() };
        let warm = self.warm.as_ref().filter(|_| storable && self.deadline.is_none());
        let table = warm.map_or_else(never, |feeding| feeding.queue.clone());
        let calls = if self.calls_ended { never() } else { self.calls.clone() };
        let now = self.clock.now();
        select! {
            recv(ingest) -> message => match message {
                Ok(message) => {
                    let since = Instant::now();
                    self.core.ingest(&message, now);
                    self.timings.stages.passed(Stage::Decode, since, 0);
                }
                Err(_) => self.ingest_ended = true,
            },
            recv(table) -> fed => self.warm_start(fed.ok(), now),
            recv(calls) -> call => match call {
                Ok(call) => self.call(call, now),
                Err(_) => self.calls_ended = true,
            },
            recv(self.done) -> done => if let Ok(done) = done {
                self.core.refit_done(done);
            },
            recv(self.wants) -> offset => if let Ok(offset) = offset {
                self.core.want(offset);
            },
            recv(self.written) -> done => if let Ok(done) = done {
                self.core.checkpoint_done(&done, now);
            },
            recv(self.commands) -> command => match command {
                Ok(Command::Reload(config)) => match self.core.reload(Arc::clone(&config)) {
                    Ok(()) => self.config = config,
                    Err(why) => log::error!("event=reload_refused why={why:?}"),
                },
                #[cfg(test)]
                Ok(Command::Panic) => panic!("injected"),
                Ok(Command::Stop) => self.deadline = self.deadline.or(Some(Instant::now() + DRAIN)),
                // Dropped without a stop: nobody listens any more.
                Err(_) => return false,
            },
            default(NAP) => {}
        }
        true
    }

    /// Commit, apply, act on what has been taken in; then what is due beside that.
    fn turn(&mut self) {
        let clock = self.clock;
        let uptime = || clock.now().uptime;
        let (since, rows) = (Instant::now(), self.core.waiting_rows());
        let stored = self.core.commit(clock.now(), &uptime);
        // Acknowledged before it is learned.
        self.carry_out();
        let since = self.timings.stages.passed(Stage::Journal, since, if stored { rows } else { 0 });
        if stored {
            self.core.apply(clock.now());
            let learned = self.timings.stages.passed(Stage::Learn, since, rows);
            self.note_pace(rows, learned - since);
            self.note_pause();
            self.core.act(clock.now());
            self.adopting = self.core.adopting().map(|critic| (critic, learned));
        } else {
            // It stands still for the disk.
            self.adopting = None;
        }
        self.end_warm_start(&uptime);
        let since = Instant::now();
        self.core.sync_if_due(clock.now(), &uptime);
        let since = self.timings.stages.passed(Stage::Journal, since, 0);
        self.refresh_if_due(since);
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
    fn warm_start(&mut self, fed: Option<Fed>, now: Now) {
        let Some(feeding) = &mut self.warm else { return };
        match fed {
            Some(Fed::Rows(batch)) => {
                let rows = batch.len();
                match self.core.warm_start(batch, now) {
                    Ok(()) => {
                        feeding.took(rows);
                        self.core.set_warm_start(Some(feeding.rows()));
                    }
                    Err(error) => feeding.fail(&error.to_string()),
                }
            }
            Some(Fed::Last) => feeding.end(),
            Some(Fed::Fault(why)) => feeding.fail(&why),
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
        }
    }

    fn call(&mut self, (call, received): (Call, Instant), now: Now) {
        if matches!(call.op, Op::Append(_)) {
            if self.warm.is_some() {
                let message = "the table given with --warm-start is learned first; send this again";
                let error = WireError::new(ErrorCode::Overloaded, message);
                let error = WireError { retry_after_ms: Some(WARMING_MS), ..error };
                drop(self.replies.send(call.caller.refuse(&error)));
                return;
            }
            self.appends.push(received);
        }
        self.core.call(call, now);
    }

    fn tick(&mut self) {
        self.core.set_queues(Queues {
            ingest: [self.ingest.len(), self.config.inbox_messages],
            calls: [self.calls.len(), CALLS],
            publish: [self.publish.len(), self.publish.capacity()],
        });
        if !self.footprint_told
            && let Some(footprint) = self.core.footprint()
        {
            footprint.log();
            self.footprint_told = true;
        }
        self.core.tick(self.clock.now());
        if let (Some(feed), Some(window)) = (&mut self.feed, self.core.window()) {
            feed.rows(window);
        }
    }

    fn note_pace(&mut self, rows: u64, spent: Duration) {
        /// What the last group counts.
        const WEIGHT: f64 = 0.1;
        if rows > 0 {
            let latest = spent.as_secs_f64() / rows as f64;
            let weight = if self.row_seconds == 0.0 { 1.0 } else { WEIGHT };
            self.row_seconds += weight * (latest - self.row_seconds);
        }
    }

    /// Rows that are taken at once. It depends on the clock, as everything does that cuts the stream into groups: what was
    /// cut is in the journal.
    fn group_rows(&self) -> u64 {
        let most = self.config.batch_rows_max as u64;
        // A pace of 0 makes this infinite, and the conversion the largest there is.
        let in_time = (LEARN_AT_ONCE.as_secs_f64() / self.row_seconds) as u64;
        in_time.clamp(GROUP_ROWS_MIN.min(most), most)
    }

    /// More of what is there already, up to one group: rows are learned together, which is faster. Messages are counted too:
    /// not every one brings a row.
    fn take_what_waits(&mut self) {
        let since = Instant::now();
        let now = self.clock.now();
        let storable = self.core.read_only().is_none();
        let most = self.group_rows();
        for _ in 0..most {
            let full = self.core.waiting_rows() >= most;
            if full || self.core.waiting_bytes() >= GROUP_BYTES {
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
            } else if storable && let Ok(message) = self.ingest.try_recv() {
                self.core.ingest(&message, now);
                idle = false;
            }
            if let Ok(call) = self.calls.try_recv() {
                self.call(call, now);
                idle = false;
            }
            if idle {
                break;
            }
        }
        while let Ok(offset) = self.wants.try_recv() {
            self.core.want(offset);
        }
        self.timings.stages.passed(Stage::Decode, since, self.core.waiting_rows());
    }

    fn refresh_if_due(&mut self, since: Instant) {
        let now = self.clock.now();
        if self.core.refresh_due(now) {
            let clock = self.clock;
            let rows = self.core.offset() - self.core.offset_at_refresh();
            self.core.refresh(now, &|| clock.now());
            // One notice in the queue is enough.
            let _ = self.fresh.try_send(());
            self.timings.stages.passed(Stage::Publish, since, rows);
        }
    }

    fn carry_out(&mut self) {
        for output in self.core.take_outputs() {
            match output {
                // The transport never waits for a peer here.
                Output::Reply(reply) => drop(self.replies.send(reply)),
                Output::Publish(publication) => {
                    if let Some(feed) = &mut self.feed {
                        feed.publication(&publication.topic, &publication.payload);
                    }
                    if let Err(TrySendError::Full(_)) = self.publish.try_send(publication) {
                        self.dropped_publications += 1;
                        if self.dropped_publications.is_power_of_two() {
                            log::warn!("event=publications_dropped count={}", self.dropped_publications);
                        }
                    }
                }
                // The refit thread holds one task at a time, and the core hands out one.
                Output::Refit { critic, job } => drop(self.tasks.send(Task::Run { critic, job })),
                Output::CatchUp { critic, candidate, window } => {
                    drop(self.tasks.send(Task::CatchUp { critic, candidate, window }));
                }
                Output::Garbage(model) => drop(self.garbage.try_send(model)),
                // The core hands out one at a time.
                Output::Checkpoint(checkpoint) => drop(self.checkpoints.send(checkpoint)),
            }
        }
        for received in self.appends.drain(..) {
            self.timings.append.observe(received.elapsed().as_secs_f64());
        }
    }

    fn finish(&mut self) {
        let lost = self.ingest.len();
        if lost > 0 {
            log::warn!("event=not_learned messages={lost} why=\"the stop would have taken too long\"");
        }
        let now = self.clock.now();
        if let Err(why) = self.core.close(now) {
            log::error!("event=not_closed why={why:?}");
        }
        self.core.publish_last(now);
        self.carry_out();
        self.quarantine.keep(&self.core.take_refused());
        log::info!("event=stopped seq={}", self.core.offset());
    }
}

/// Answers small queries where they arrive, on the transport's thread: that takes no longer than handing them over, and
/// spares them two changes of thread, each of which may find its processor busy. All else is left to [`Control`], and so is
/// whatever is wrong with a query.
struct AtOnce {
    board: Arc<Board>,
    limits: wire::Limits,
    timings: Timings,
    scratch: Scratch,
    evaluation: Evaluation,
}

impl AtOnce {
    fn new(board: Arc<Board>, config: &Config, timings: Timings) -> Self {
        let limits = config.limits.wire();
        Self { board, limits, timings, scratch: Scratch::default(), evaluation: Evaluation::default() }
    }

    fn answer(&mut self, request: &Request) -> Option<Vec<u8>> {
        let payload = &request.payload;
        if payload.len() > AT_ONCE_BYTES || !wire::is_query(payload) {
            return None;
        }
        let started = Instant::now();
        let wire::Request { id, arrays, op } = wire::decode_request(payload, &self.limits).ok()?;
        op.permitted(request.peer.rights()).ok()?;
        let Op::Value { states, rows, dim, critic, ask, min_offset } = &op else { return None };
        let model = self.board.evaluator(self.board.critic(critic.as_deref()).ok()?)?;
        let snapshot = model.snapshot();
        let learned = min_offset.is_none_or(|needed| snapshot.offset >= needed);
        if *dim != snapshot.dim() || !learned || rows * state_work(snapshot, *ask) > AT_ONCE_WORK {
            return None;
        }
        model.evaluate_into(states, *ask, &mut self.scratch, &mut self.evaluation).ok()?;
        let reply = wire::Reply::Value { evaluation: &self.evaluation, snapshot };
        let payload = wire::encode_reply(&id, arrays, &reply);
        self.timings.query.observe(started.elapsed().as_secs_f64());
        Some(payload)
    }
}

/// The thread that answers clients: queries itself, the rest through the core.
struct Control {
    requests: Receiver<Request>,
    replies: Outbox<Reply>,
    /// Each with the moment when it was received.
    calls: Sender<(Call, Instant)>,
    wants: Sender<u64>,
    fresh: Receiver<()>,
    board: Arc<Board>,
    timings: Timings,
    config: Arc<Config>,
    clock: Clock,
    waiting: Vec<ValueQuery>,
    /// Queries of many states: each is answered a slice at a time, in turns, and all others go in between.
    large: VecDeque<LargeQuery>,
    paged: VecDeque<Paged>,
    /// Kept, so that an answer allocates nothing but its message.
    scratch: Scratch,
    evaluation: Evaluation,
}

/// A query that is being answered slice by slice, from one snapshot.
struct LargeQuery {
    query: ValueQuery,
    model: Arc<Evaluator>,
    started: Instant,
    /// Rows of `evaluation` that are done.
    done: usize,
    evaluation: Evaluation,
}

/// An encoded snapshot that is being fetched in pages.
struct Paged {
    critic: usize,
    variance: bool,
    form: ArrayForm,
    revision: u64,
    bytes: Vec<u8>,
}

/// A `value` request.
struct ValueQuery {
    caller: Caller,
    /// (rows, dim), row-major.
    states: Vec<f64>,
    rows: usize,
    dim: usize,
    /// The first one if there is no name.
    critic: Option<String>,
    ask: Ask,
    /// Rows that the snapshot must have learned.
    min_offset: Option<u64>,
    /// When it was received.
    since: Instant,
}

impl ValueQuery {
    /// Rows that the snapshot must have learned.
    fn needs(&self) -> u64 {
        self.min_offset.unwrap_or(0)
    }
}

impl Control {
    fn run(mut self) {
        let fresh = self.fresh.clone();
        loop {
            if !self.large.is_empty() {
                if !self.answer_a_slice() {
                    break;
                }
                continue;
            }
            select! {
                recv(self.requests) -> request => match request {
                    Ok(request) => self.handle(request),
                    Err(_) => break,
                },
                recv(fresh) -> notice => match notice {
                    Ok(()) => self.answer_waiting(),
                    Err(_) => break,
                },
                default(TICK) => self.answer_waiting(),
            }
        }
        for query in std::mem::take(&mut self.waiting) {
            let message = format!("row {} was not learned before the daemon stopped", query.needs());
            let error = WireError::of(ErrorCode::NotReady, "min_offset", message);
            self.send(query.caller.refuse(&error));
        }
    }

    fn handle(&mut self, request: Request) {
        let Request { peer, payload } = request;
        #[cfg(test)]
        assert!(payload[..] != *b"panic", "injected");
        let request = match wire::decode_request(&payload, &self.config.limits.wire()) {
            Ok(request) => request,
            Err(refused) => {
                let payload = wire::encode_error(&refused.id, &refused.error);
                return self.send(Reply { peer, payload });
            }
        };
        let wire::Request { id, arrays: form, op } = request;
        let caller = Caller { peer, id, form };
        if let Err(error) = op.permitted(peer.rights()) {
            return self.send(caller.refuse(&error));
        }
        let started = Instant::now();
        match op {
            Op::Ping => {
                let uptime_s = self.clock.now().uptime;
                self.send(caller.reply(&wire::Reply::Ping { version: env!("CARGO_PKG_VERSION"), uptime_s }));
            }
            Op::Hello => self.send(caller.reply(&wire::Reply::Hello(&self.greeting()))),
            Op::Snapshot { critic, variance, page, revision } => {
                let reply = match page {
                    None => self
                        .model(critic.as_deref())
                        .map(|model| caller.reply(&wire::Reply::Snapshot { snapshot: model.snapshot(), variance })),
                    Some(page) => self.page(&caller, critic.as_deref(), variance, page, revision),
                };
                self.send(reply.unwrap_or_else(|error| caller.refuse(&error)));
                self.timings.query.observe(started.elapsed().as_secs_f64());
            }
            Op::Value { states, rows, dim, critic, ask, min_offset } => {
                self.value(ValueQuery { caller, states, rows, dim, critic, ask, min_offset, since: started });
            }
            op => self.forward(Call { caller, op }),
        }
    }

    fn greeting(&self) -> wire::Greeting<'_> {
        let learned = || (0..self.config.critics.len()).find_map(|critic| self.board.get(critic));
        let expected = self.config.expected_dim();
        wire::Greeting {
            version: env!("CARGO_PKG_VERSION"),
            // The last one only where there is one.
            features: &FEATURES[..FEATURES.len() - usize::from(!self.config.journal)],
            limits: self.config.limits.wire(),
            critics: self.config.critics.iter().map(|critic| critic.name.as_str()).collect(),
            state_dim: expected.map(|(dim, _)| dim).or_else(|| learned().map(|snapshot| snapshot.dim())),
        }
    }

    fn forward(&mut self, call: Call) {
        if let Err(TrySendError::Full((call, _))) = self.calls.try_send((call, Instant::now())) {
            self.send(call.caller.refuse(&WireError::overloaded(RETRY_MS)));
        }
    }

    fn model(&self, critic: Option<&str>) -> Result<Arc<Evaluator>, WireError> {
        let index = self.board.critic(critic)?;
        self.board.evaluator(index).ok_or_else(|| {
            let needed = self.config.critics[index].warmup_rows;
            WireError::new(ErrorCode::NotReady, format!("there is no model before {needed} rows have arrived"))
        })
    }

    /// One page of a snapshot's encoding. All pages of one revision come from one encoding, kept while clients fetch it.
    fn page(
        &mut self,
        caller: &Caller,
        critic: Option<&str>,
        variance: bool,
        page: u64,
        revision: Option<u64>,
    ) -> Result<Reply, WireError> {
        let index = self.board.critic(critic)?;
        let fits = |kept: &Paged| {
            (kept.critic, kept.variance, kept.form) == (index, variance, caller.form)
                && revision.is_none_or(|revision| revision == kept.revision)
        };
        // Without a revision the newest is meant. Answers are refreshed more often than they are published, so that one revision
        // may have several contents: clients that fetch the same one share its first encoding.
        let newest = if revision.is_none() { Some(self.model(critic)?) } else { None };
        let kept = |kept: &Paged| fits(kept) && newest.as_ref().is_none_or(|m| m.snapshot().revision == kept.revision);
        if !self.paged.iter().any(kept) {
            let model = newest.map_or_else(|| self.model(critic), Ok)?;
            let snapshot = model.snapshot();
            if let Some(asked) = revision.filter(|&revision| revision != snapshot.revision) {
                let message =
                    format!("revision {asked} is not kept any more; start again at page 0 without a revision");
                return Err(WireError::of(ErrorCode::NotReady, "revision", message));
            }
            if self.paged.len() == PAGED_MAX {
                self.paged.pop_front();
            }
            let bytes = wire::encode_snapshot(snapshot, caller.form, variance);
            let (revision, form) = (snapshot.revision, caller.form);
            self.paged.push_back(Paged { critic: index, variance, form, revision, bytes });
        }
        let kept = self.paged.iter().rev().find(|kept| fits(kept)).expect("it has just been made sure of");
        let mut pages = kept.bytes.chunks(wire::PAGE_BYTES);
        let count = pages.len() as u64;
        let Some(data) = usize::try_from(page).ok().and_then(|page| pages.nth(page)) else {
            return Err(WireError::of(ErrorCode::OutOfRange, "page", format!("there are {count} pages, from 0")));
        };
        let (revision, bytes) = (kept.revision, kept.bytes.len() as u64);
        Ok(caller.reply(&wire::Reply::Page { page, pages: count, revision, bytes, data }))
    }

    /// What waits beside the large queries, then a slice of one of those. False when no more requests will come and all have
    /// been answered.
    fn answer_a_slice(&mut self) -> bool {
        let mut open = true;
        for _ in 0..BETWEEN_SLICES {
            match self.requests.try_recv() {
                Ok(request) => self.handle(request),
                Err(e) => {
                    open = e == TryRecvError::Empty;
                    break;
                }
            }
        }
        if self.fresh.try_recv().is_ok() {
            self.answer_waiting();
        }
        let Some(mut large) = self.large.pop_front() else { return open };
        match large.advance(&mut self.scratch, &mut self.evaluation) {
            Ok(false) => self.large.push_back(large),
            Ok(true) => {
                let LargeQuery { query, model, evaluation, .. } = &large;
                self.answer_value(&query.caller, model.snapshot(), Ok(evaluation));
                self.timings.query.observe(large.started.elapsed().as_secs_f64());
            }
            Err(error) => self.answer_value(&large.query.caller, large.model.snapshot(), Err(error)),
        }
        open || !self.large.is_empty()
    }

    /// Answer from one snapshot, so that no answer mixes two; or wait until a snapshot has learned enough.
    fn value(&mut self, query: ValueQuery) {
        let started = Instant::now();
        let reply = match self.model_for(&query) {
            Ok(Some(model)) if query.rows > slice_rows(model.snapshot(), query.ask) => {
                if self.large.len() < LARGE_QUERIES {
                    return self.large.push_back(LargeQuery::new(query, model, started));
                }
                query.caller.refuse(&WireError::overloaded(RETRY_MS))
            }
            Ok(Some(model)) => {
                let done = model.evaluate_into(&query.states, query.ask, &mut self.scratch, &mut self.evaluation);
                let evaluation = done.map(|()| &self.evaluation).map_err(WireError::from);
                self.answer_value(&query.caller, model.snapshot(), evaluation);
                return self.timings.query.observe(started.elapsed().as_secs_f64());
            }
            Ok(None) if query.since.elapsed() > WAIT_MAX => {
                let message = format!("row {} has not been learned for {} s", query.needs(), WAIT_MAX.as_secs());
                query.caller.refuse(&WireError::of(ErrorCode::NotReady, "min_offset", message))
            }
            Ok(None) if self.waiting.len() < QUERIES_WAITING => {
                // If the queue is full the core is about to look at it anyway.
                let _ = self.wants.try_send(query.needs());
                return self.waiting.push(query);
            }
            Ok(None) => query.caller.refuse(&WireError::overloaded(RETRY_MS)),
            Err(error) => query.caller.refuse(&error),
        };
        self.send(reply);
        self.timings.query.observe(started.elapsed().as_secs_f64());
    }

    /// The model that a query is answered from; none if its rows are still to be learned.
    fn model_for(&self, query: &ValueQuery) -> Result<Option<Arc<Evaluator>>, WireError> {
        let model = match self.model(query.critic.as_deref()) {
            // Rows that are to be waited for may be the ones that make the first model.
            Err(e) if e.code == ErrorCode::NotReady && query.min_offset.is_some() => return Ok(None),
            model => model?,
        };
        let (dim, snapshot) = (query.dim, model.snapshot());
        if dim != snapshot.dim() {
            let message = format!("states have {} numbers here, these have {dim}", snapshot.dim());
            return Err(WireError::of(ErrorCode::WrongDimension, "states", message));
        }
        Ok((snapshot.offset >= query.needs()).then_some(model))
    }

    fn answer_value(&self, caller: &Caller, snapshot: &Snapshot, evaluation: Result<&Evaluation, WireError>) {
        self.send(match evaluation {
            Ok(evaluation) => caller.reply(&wire::Reply::Value { evaluation, snapshot }),
            Err(error) => caller.refuse(&error),
        });
    }

    fn answer_waiting(&mut self) {
        for query in std::mem::take(&mut self.waiting) {
            self.value(query);
        }
    }

    fn send(&self, reply: Reply) {
        // A transport that has ended has no use for it.
        drop(self.replies.send(reply));
    }
}

/// States that are evaluated without a look at other requests.
fn slice_rows(snapshot: &Snapshot, ask: Ask) -> usize {
    /// At least so many: blocks are faster than single states.
    const LEAST: usize = 16;
    (SLICE_WORK / state_work(snapshot, ask)).max(LEAST)
}

/// Multiplications that a state takes, about; at least 1.
fn state_work(snapshot: &Snapshot, ask: Ask) -> usize {
    // A kernel takes a few dozen, and they are worked off 32 at a time.
    let (size, kernel) = (snapshot.dictionary.nrows().max(1).next_multiple_of(32), 32 + snapshot.dim());
    size * if ask.needs_variance() { kernel + size } else { kernel }
}

impl LargeQuery {
    fn new(query: ValueQuery, model: Arc<Evaluator>, started: Instant) -> Self {
        let evaluation = Evaluation::zeros(model.snapshot(), query.rows, query.ask);
        Self { query, model, started, done: 0, evaluation }
    }

    /// Evaluate the next slice; whether that was the last.
    fn advance(&mut self, scratch: &mut Scratch, found: &mut Evaluation) -> Result<bool, WireError> {
        let ValueQuery { states, rows, dim, ask, .. } = &self.query;
        let count = slice_rows(self.model.snapshot(), *ask).min(rows - self.done);
        let slice = &states[self.done * dim..(self.done + count) * dim];
        self.model.evaluate_into(slice, *ask, scratch, found).map_err(|fault| {
            let index = fault.index.map(|index| index + self.done);
            WireError { index, ..fault.into() }
        })?;
        self.evaluation.place(self.done, found);
        self.done += count;
        Ok(self.done == *rows)
    }
}

/// Threads that models are selected on: what the settings say, else all cores but one, which learns.
fn refit_threads(setting: Option<usize>) -> usize {
    setting.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1))
}

/// The thread that selects models.
struct Refits {
    tasks: Receiver<Task>,
    garbage: Receiver<Box<Model>>,
    done: Sender<RefitDone>,
    stop: Arc<AtomicBool>,
    /// Threads that a model is selected on.
    threads: usize,
    restarts: Restarts,
}

impl Refits {
    /// Until the core has ended. A panic that no task has caught costs what was under way, and is counted.
    fn run(self) {
        // Learning and answering go before what this thread does. Without that things are only slower.
        if let Err(e) = rustix::process::nice(5) {
            log::debug!("event=priority_kept why={e}");
        }
        self.restarts.keep("refit", || !self.stop.load(Ordering::Relaxed), || self.work());
    }

    fn work(&self) {
        let pool = self.pool();
        loop {
            select! {
                recv(self.tasks) -> task => match task {
                    Ok(task) => self.carry_out(task, pool.as_ref()),
                    Err(_) => break,
                },
                recv(self.garbage) -> model => match model {
                    Ok(model) => drop(model),
                    Err(_) => break,
                },
            }
        }
    }

    /// The threads of model selection, if they are several.
    fn pool(&self) -> Option<ThreadPool> {
        // They inherit this thread's priority.
        let threads = ThreadPoolBuilder::new().num_threads(self.threads).thread_name(|_| "refit".into());
        let pool = (self.threads > 1).then(|| threads.build()).transpose();
        pool.unwrap_or_else(|e| {
            log::warn!("event=refit_threads_missing why=\"{e}\"");
            None
        })
    }

    fn carry_out(&self, task: Task, pool: Option<&ThreadPool>) {
        let started = Instant::now();
        let critic = match &task {
            Task::Run { critic, .. } | Task::CatchUp { critic, .. } => *critic,
        };
        let stop = &*self.stop;
        let keep_going = || !stop.load(Ordering::Relaxed);
        // A bug in model selection costs this candidate, not the daemon.
        let result = catch_unwind(AssertUnwindSafe(|| match task {
            Task::Run { job, .. } => {
                let budget = Duration::from_secs_f64(refit::SEARCH_SHARE * job.settings.refit_budget_s);
                let run = || refit::run(&job, &keep_going, &|| started.elapsed() < budget);
                pool.map_or_else(run, |pool| pool.install(run)).map_err(|e| e.to_string())
            }
            Task::CatchUp { mut candidate, window, .. } => {
                candidate.catch_up(&window, &keep_going).map_err(|e| e.to_string()).map(|()| *candidate)
            }
        }));
        let result = result.unwrap_or_else(|panic| Err(format!("the refit panicked: {}", panics::message(&*panic))));
        let seconds = started.elapsed().as_secs_f64();
        drop(self.done.send(RefitDone { critic, result, seconds }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Right, Rights};
    use crate::client::Requester;
    use crate::sim::{self, Step, pendulum::Pendulum};
    use crate::snapshot::ReturnSpread;
    use crate::transport::Peer;
    use crate::wire::Id;
    use nalgebra::DMatrix;
    use serde_json::Value;

    fn learning(ingest: Receiver<Bytes>) -> Learning {
        let config = Arc::new(Config::default());
        Learning {
            ingest,
            warm: None,
            calls: never(),
            wants: never(),
            done: never(),
            commands: never(),
            tasks: bounded(1).0,
            garbage: bounded(1).0,
            fresh: bounded(1).0,
            replies: Outbox::new(1).0,
            publish: Outbox::new(1).0,
            core: Core::new(Arc::clone(&config)),
            appends: Vec::new(),
            timings: Timings::default(),
            feed: None,
            quarantine: Quarantine::new(Path::new("nowhere"), 0),
            checkpoints: bounded(1).0,
            written: never(),
            config,
            clock: Clock { started: Instant::now() },
            dropped_publications: 0,
            footprint_told: false,
            row_seconds: 0.0,
            refit_restarts: Restarts::default(),
            http_restarts: Restarts::default(),
            adopting: None,
            ingest_ended: false,
            calls_ended: false,
            deadline: None,
            _lock: None,
        }
    }

    #[test]
    fn messages_without_new_rows_do_not_keep_the_core_from_its_work() {
        let (sender, receiver) = bounded(10_000);
        (0..10_000).for_each(|_| sender.send(Bytes::from_static(b"garbage")).unwrap());
        let mut learning = learning(receiver);
        learning.take_what_waits();
        let most = Config::default().batch_rows_max;
        assert!(most < 9000 && learning.ingest.len() >= 10_000 - most, "{} of 10000 are left", learning.ingest.len());
    }

    #[test]
    fn a_panic_of_the_refit_thread_costs_nothing_but_a_count() {
        let (tasks, queue) = bounded(1);
        let (done, results) = bounded(1);
        let restarts = Restarts::default();
        let (stop, threads) = (Arc::default(), 2);
        let refits = Refits { tasks: queue, garbage: never(), done, stop, threads, restarts: restarts.clone() };
        let thread = std::thread::spawn(move || refits.run());
        // A window without the rows that a refit needs: whatever becomes of it, it is answered, and the thread goes on.
        for _ in 0..2 {
            let snapshot = {
                let mut core = Core::new(Arc::new(Config::default()));
                let mut pendulum = Pendulum::new(1, 0.3);
                let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
                let now = Now { uptime: 1.0, unix: 1e9 };
                sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
                core.step(now);
                core.refresh(now, &|| now);
                (*core.board().get(0).unwrap()).clone()
            };
            let job = RefitJob {
                settings: crate::learner::Settings { refit_budget_s: -1.0, ..crate::learner::Settings::default() },
                window: Window::new(2, 1, 10),
                current: snapshot,
                names: None,
                reason: refit::RefitReason::Requested,
                dictionary_share: 1.0,
                seed: 0,
            };
            tasks.send(Task::Run { critic: 0, job: Box::new(job) }).unwrap();
            let done = results.recv_timeout(Duration::from_secs(60)).unwrap();
            // A time budget below zero is a bug of whoever made the job: it panics.
            assert!(done.result.unwrap_err().contains("panicked"));
        }
        drop(tasks);
        thread.join().unwrap();
        assert_eq!(restarts.get(), 0, "a task's panic is caught with the task");
    }

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
                std::thread::sleep(NAP);
            }
            daemon.stop();
            // Whoever has the journal open has the lock.
            drop(lock(directory.path()).unwrap());
            let daemon = start();
            let status = connect(&daemon).ask("status", json!({}), long).unwrap();
            assert_eq!((status["offset"].as_u64(), status["recovered"]["offset"].as_u64()), (Some(100), Some(100)));
            daemon.stop();
        }
    }

    #[test]
    fn a_stop_waits_for_no_query_and_no_refit() {
        let daemon = |name: &str| {
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
                endpoints_file: PathBuf::from("no such file"),
            };
            daemon.spawn(name, || std::thread::sleep(Duration::from_secs(4))).unwrap();
            daemon
        };
        for name in ["control", "refit"] {
            let started = Instant::now();
            daemon(name).stop();
            assert!(started.elapsed() < Duration::from_millis(1900), "{name}: {:?}", started.elapsed());
        }
    }

    /// The snapshot on the board, learned with another lambda, and knowing how returns scatter.
    fn with_returns(board: &Board) -> Arc<Snapshot> {
        let snapshot = board.get(0).unwrap();
        let m = snapshot.dictionary.nrows();
        let returns = Some(ReturnSpread {
            level: vec![0.5],
            weights: DMatrix::from_fn(m, 1, |i, _| (i as f64).sin()),
            floor: vec![0.1],
            factor: 1.25,
            pairs: 40,
        });
        board.set(0, Snapshot { returns, lambda: 0.8, provisional: true, ..(*snapshot).clone() });
        board.get(0).unwrap()
    }

    fn control(requests: Receiver<Request>, replies: Outbox<Reply>, board: Arc<Board>) -> Control {
        Control {
            requests,
            replies,
            calls: bounded(1).0,
            wants: bounded(1).0,
            fresh: never(),
            board,
            timings: Timings::default(),
            config: Arc::new(Config::default()),
            clock: Clock { started: Instant::now() },
            waiting: Vec::new(),
            large: VecDeque::new(),
            paged: VecDeque::new(),
            scratch: Scratch::default(),
            evaluation: Evaluation::default(),
        }
    }

    #[test]
    fn small_queries_go_between_the_slices_of_large_ones() {
        let mut core = Core::new(Arc::new(Config::default()));
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..500).map(|_| pendulum.step()).collect();
        let now = Now { uptime: 1.0, unix: 1e9 };
        sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        core.refresh(now, &|| now);
        let board = core.board();
        let snapshot = with_returns(&board);
        let most = slice_rows(&snapshot, Ask::VARIANCE);
        let (queue, requests) = bounded(100);
        let (replies, mut answers) = Outbox::new(100);
        let state = |i: usize| vec![(i % 100) as f64 / 30.0, (i % 7) as f64];
        let ask = |id: u64, states: Vec<Vec<f64>>| {
            let fields = json!({"states": states, "variance": true, "returns": true, "known": true, "arrays": "list"});
            let payload = wire::encode_request(id, "value", fields.as_object().unwrap()).into();
            let connection = transport::peer_number(id, Rights::ALL);
            queue.send(Request { peer: Peer { connection, delimiter: false }, payload }).unwrap();
        };
        ask(1, (0..3 * most + 5).map(state).collect());
        ask(2, (0..most + 1).map(state).chain([vec![1e300, 0.0]]).collect());
        ask(3, vec![state(4)]);
        ask(4, (0..most).map(state).collect());
        drop(queue);
        control(requests, replies, Arc::clone(&board)).run();
        let mut answer = || {
            let Reply { peer, payload } = answers.try_recv().unwrap();
            (peer.connection ^ transport::peer_number(0, Rights::ALL), wire::to_json(&payload).unwrap())
        };
        let (first, second, third, fourth) = (answer(), answer(), answer(), answer());
        assert_eq!([first.0, second.0], [3, 4], "what takes one slice comes first");
        assert_eq!(
            (third.0, &third.1["error"]["code"], &third.1["error"]["index"]),
            (2, &json!("out_of_range"), &json!(most + 1))
        );
        assert_eq!(fourth.0, 1);
        for at in [1, most, 3 * most] {
            let Evaluation { mean, variance, return_variance, known, extrapolates } =
                snapshot.evaluate(&state(at), Ask::ALL).unwrap();
            let numbers = [mean[0], variance.unwrap()[0], return_variance.unwrap()[0], known.unwrap()[0]];
            for (key, expected) in ["mean", "variance", "return_variance", "known"].into_iter().zip(numbers) {
                assert_eq!(fourth.1[key][at].as_f64().unwrap(), expected, "{key} {at}");
            }
            assert_eq!(fourth.1["extrapolates"][at], json!(extrapolates.unwrap()[0]), "{at}");
        }
        assert_eq!(fourth.1["mean"].as_array().unwrap().len(), 3 * most + 5);
    }

    #[test]
    fn small_queries_are_answered_where_they_arrive_and_no_others() {
        let config = Config::default();
        let mut core = Core::new(Arc::new(config.clone()));
        let board = core.board();
        let mut at_once = AtOnce::new(Arc::clone(&board), &config, Timings::default());
        let mut ask = |op: &str, fields: Value, rights: Rights| {
            let payload = wire::encode_request(7, op, fields.as_object().unwrap()).into();
            let peer = Peer { connection: transport::peer_number(1, rights), delimiter: false };
            at_once.answer(&Request { peer, payload }).map(|payload| wire::to_json(&payload).unwrap())
        };
        let value = |states: Value| json!({"states": states, "variance": true, "arrays": "list"});
        assert_eq!(ask("value", value(json!([[0.5, 1.0]])), Rights::ALL), None, "there is no model yet");
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..500).map(|_| pendulum.step()).collect();
        let now = Now { uptime: 1.0, unix: 1e9 };
        sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        core.refresh(now, &|| now);
        let answer = ask("value", value(json!([[0.5, 1.0], [0.1, 0.2]])), Rights::ALL).unwrap();
        let expected = board.get(0).unwrap().evaluate(&[0.5, 1.0, 0.1, 0.2], Ask::VARIANCE).unwrap();
        assert_eq!(answer["mean"], json!(expected.mean.as_slice()));
        assert_eq!(answer["variance"], json!(expected.variance));
        assert_eq!((&answer["id"], &answer["offset"]), (&json!(7), &json!(500)));
        assert!(["return_variance", "known", "extrapolates"].iter().all(|key| answer.get(key).is_none()), "{answer}");
        let expected = with_returns(&board).evaluate(&[0.5, 1.0], Ask::ALL).unwrap();
        let all = json!({"states": [[0.5, 1.0]], "returns": true, "known": true, "arrays": "list"});
        let answer = ask("value", all, Rights::ALL).unwrap();
        assert_eq!(answer.get("variance"), None, "it was not asked for");
        assert_eq!(answer["return_variance"], json!(expected.return_variance.unwrap().as_slice()));
        assert_eq!(answer["known"], json!(expected.known));
        assert_eq!(answer["extrapolates"], json!(expected.extrapolates));
        assert_eq!((&answer["lambda"], &answer["provisional"]), (&json!(0.8), &json!(true)));
        let with = |key: &str, field: Value| {
            let mut fields = value(json!([[0.5, 1.0]]));
            fields[key] = field;
            fields
        };
        assert!(ask("value", with("min_offset", json!(500)), Rights::ALL).is_some());
        for left in [
            with("min_offset", json!(501)),
            with("critic", json!("nobody")),
            with("states", json!([[0.5, 1e300]])),
            with("states", json!([[0.5]])),
            with("states", json!([])),
            with("states", json!("none")),
            with("states", json!(vec![[0.5, 1.0]; 200])),
        ] {
            assert_eq!(ask("value", left.clone(), Rights::ALL), None, "{left}");
        }
        assert_eq!(ask("value", value(json!([[0.5, 1.0]])), vec![Right::Append].into()), None, "it may not ask");
        for op in ["ping", "snapshot", "status"] {
            assert_eq!(ask(op, json!({}), Rights::ALL), None, "{op}");
        }
        let noise = |payload: &'static [u8]| {
            let peer = Peer { connection: transport::peer_number(1, Rights::ALL), delimiter: false };
            at_once.answer(&Request { peer, payload: Bytes::from_static(payload) })
        };
        assert!([&b""[..], b"value", b"\x82\xa2op\xa5value", b"\x81\xa2op"].map(noise).iter().all(Option::is_none));
    }

    #[test]
    fn rows_are_taken_as_they_can_be_learned() {
        let mut learning = learning(never());
        let most = Config::default().batch_rows_max as u64;
        assert_eq!(learning.group_rows(), most, "nothing is known yet");
        learning.note_pace(100, Duration::from_millis(1));
        assert!((999..=1000).contains(&learning.group_rows()), "{}", learning.group_rows());
        (0..200).for_each(|_| learning.note_pace(100, Duration::from_secs(1)));
        assert_eq!(learning.group_rows(), GROUP_ROWS_MIN);
        learning.note_pace(0, Duration::from_secs(1000));
        (0..200).for_each(|_| learning.note_pace(100_000, Duration::from_micros(10)));
        assert_eq!(learning.group_rows(), most);
    }

    #[test]
    fn pages_of_one_revision_fit_together() {
        let mut core = Core::new(Arc::new(Config::default()));
        let mut pendulum = Pendulum::new(1, 0.3);
        let mut learn = |uptime: f64| {
            let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
            let now = Now { uptime, unix: 1e9 };
            sim::batches("pendulum", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
            core.step(now);
            core.refresh(now, &|| now);
            core.board()
        };
        let board = learn(1.0);
        let mut control = control(never(), Outbox::new(1).0, board);
        let peer = Peer { connection: 1, delimiter: false };
        let caller = Caller { peer, id: Id::nil(), form: ArrayForm::Tensor };
        let mut page = |revision| {
            let payload = control.page(&caller, None, true, 0, revision).unwrap().payload;
            let reply = wire::to_json(&payload).unwrap();
            (reply["revision"].as_u64().unwrap(), payload)
        };
        let (revision, first) = page(None);
        // Answers are newer than the last publication, whose revision they bear.
        learn(1.01);
        let (other, _) = page(None);
        let (_, again) = page(Some(revision));
        assert_eq!(other, revision);
        assert!(again == first, "two encodings under one revision");
    }
}
