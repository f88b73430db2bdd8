//! The dashboard, metrics and health of a running daemon over HTTP: one page, read-only, for browsers and Prometheus.
//!
//! ```text
//! core --notices--> monitor --notices--> watcher --frames--> server --events--> browsers
//!                                        watcher <---asks--- server <--requests-- browsers, Prometheus
//! ```
//! The watcher keeps a history, shows what [`crate::monitor`] has found, which judges with or without a page, and evaluates heat maps from the board's
//! snapshots, values along trajectories, errors and relevances. The grid is evaluated here and not in the browser because a
//! snapshot with its variance has m² numbers, 8 MB at m = 1000, every second, and a phone would need seconds for one
//! picture; a grid is 40 kB whatever m is. It may take 2 % of one processor, at low priority, on a thread of its own; the
//! server's thread never computes.
//!
//! | bounded | full |
//! | --- | --- |
//! | connections (64, 48 of one address) | further ones are asked about health and metrics only; silent ones are closed after 15 s |
//! | those beside them (64) | one gives way: of the address that has most of them, the oldest that has not asked |
//! | open pages (16) | 503 |
//! | frames for a page (1: the newest) | a slow browser loses those in between, and asks for the history again |
//! | bytes for a browser that takes none | cut off after 30 s |
//! | answers of more than 64 KiB (4 MiB of all, and of metrics; one may exceed it) | 503; an open page misses the frame |
//! | asks for the watcher (32) | 503 |
//! | questions to models of the transition (1 of all pages, 4 answers) | the page hears so, and asks again |
//! | answers that take the model (2 % of the time) | an older one to the same question, else 503 |
//! | earlier models for comparison (8 of a critic, 16 MiB) | the oldest is forgotten |
//!
//! There is no password, so the server listens on loopback unless the settings allow more, answers no request under a
//! host name that it does not know (a page from elsewhere could otherwise reach it under its own name), and lets no other
//! site read or frame its answers.

mod connection_slots;
mod episodes;
mod errors;
mod guard;
mod head_list;
mod looking_back;
mod map;
mod metrics;
mod model_archive;
mod page;
mod page_delta;
mod path;
mod persistence;
mod query_budget;
mod relevance;
mod response_budget;
mod row_buffer;
mod server;
mod starting;
mod stream_positions;
mod time_series;
mod trajectories;
mod truth;
mod watcher;
mod what_if;
mod what_if_query;

pub use self::looking_back::Relearn;
pub use self::persistence::Shelf;
use self::response_budget::WAITING_BYTES;
pub use self::truth::Truth;
use self::what_if::ANSWERS;
pub use self::what_if::{PageQuestion, WaitingPage, WhatIfFound};
use crate::board::Board;
use crate::config::Config;
use crate::monitor::Monitor;
use crate::telemetry::{self, BusEvent, Heartbeat, Restarts, StartProgress, Timings};
use crate::transport::{Counters, Endpoints};
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Questions that may wait for the watcher, and notices.
const ASKS: usize = 32;
pub(crate) const NOTICES: usize = 8;
/// At a stop, the past is written for at most so long.
const KEEPING: Duration = Duration::from_secs(1);

/// What the page is made from.
pub struct Sources {
    /// Where queries are answered from.
    pub board: Arc<Board>,
    /// What has come of predictions.
    pub monitor: Arc<Mutex<Monitor>>,
    /// What the core tells, once the monitor has heard it.
    pub notices: Receiver<BusEvent>,
    /// Whether it is alive.
    pub pulse: Arc<Heartbeat>,
    /// How long things take.
    pub timings: Timings,
    /// What happens at the sockets.
    pub counters: Arc<Counters>,
    /// Where the sockets are.
    pub endpoints: Endpoints,
    /// Counts how often its threads had to be started again.
    pub restarts: Restarts,
    /// The place for the past that the page shows; none without a journal.
    pub shelf: Option<Shelf>,
    /// Where questions to models of the transition go.
    pub questions: Sender<PageQuestion>,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerStartError {
    /// The host's name stands for no address.
    #[error("http: {address}: the host's name cannot be resolved: {source}")]
    Unresolved {
        /// As it was written.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The address can be reached from other machines, and that was not allowed.
    #[error(
        "http: {address} is {}, which other machines may reach, and nothing is encrypted; bind a loopback address, or \
         say who may connect with `allow` and set insecure = true",
        .resolved.ip()
    )]
    Remote {
        /// As it was written.
        address: String,
        /// What it stands for.
        resolved: SocketAddr,
    },
    /// The address is in use.
    #[error(
        "http: {address} is in use: is another criticd running? choose another address with --http HOST:PORT (port 0 \
         for any), or --http off for no dashboard"
    )]
    InUse {
        /// As it was written.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The address could not be bound for another reason, or no thread be started.
    #[error("http: {address} cannot be bound: {source}")]
    Bind {
        /// As it was written.
        address: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The address of the settings, bound, before there is anything to show.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Bind it; none if the dashboard is switched off.
    ///
    /// # Errors
    /// [`ServerStartError`]; nothing stays bound.
    pub fn bind(config: &Config) -> Result<Option<Self>, ServerStartError> {
        if config.http == "off" {
            return Ok(None);
        }
        let listener = bind(&config.http, config.insecure)?;
        let failed = |source| ServerStartError::Bind { address: config.http.clone(), source };
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address }))
    }
}

/// What is served while the daemon starts: that it is alive, that it is not ready, and how far it is. Dropped, it ends.
pub struct Starting {
    running: Option<tokio::sync::watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Serve on `listener`.
    ///
    /// # Errors
    /// [`ServerStartError`], if no thread can be started.
    pub fn serve(config: &Config, listener: &Listener, progress: Arc<StartProgress>) -> Result<Self, ServerStartError> {
        let failed = |source| ServerStartError::Bind { address: config.http.clone(), source };
        let routers = starting::routers(progress, guard::Guard::new(listener.address, &config.http_hosts));
        let (running, over) = tokio::sync::watch::channel(());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (listener, access) = (listener.listener.try_clone().map_err(failed)?, config.access());
        let serve = move || runtime.block_on(server::serve(&listener, &access, routers, over));
        let thread = std::thread::Builder::new().name("http".into()).spawn(serve).map_err(failed)?;
        Ok(Self { running: Some(running), thread: Some(thread) })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        drop(self.running.take());
        // One that panicked has said so.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// The running server and its watcher. Dropping it without [`Http::stop`] ends them too, without waiting.
pub struct Http {
    address: SocketAddr,
    /// Dropped to end the server, which ends the watcher.
    running: tokio::sync::watch::Sender<()>,
    threads: Vec<JoinHandle<()>>,
    told: Arc<truth::Told>,
}

impl Http {
    /// Bind the address of the settings and start serving; nothing if it is switched off.
    ///
    /// # Errors
    /// [`ServerStartError`]; nothing stays bound.
    pub fn start(config: &Config, sources: Sources) -> Result<Option<Self>, ServerStartError> {
        Listener::bind(config)?.map(|listener| Self::start_on(config, listener, sources)).transpose()
    }

    /// Start serving on a bound address.
    ///
    /// # Errors
    /// [`ServerStartError`], if no thread can be started.
    pub fn start_on(config: &Config, listener: Listener, sources: Sources) -> Result<Self, ServerStartError> {
        let failed = |source| ServerStartError::Bind { address: config.http.clone(), source };
        let Listener { listener, address } = listener;
        let Sources { board, monitor, notices, pulse, timings, counters, endpoints, restarts, shelf, questions } =
            sources;
        let (asks, asked) = bounded(ASKS);
        let (frames, frame) = tokio::sync::watch::channel(Arc::default());
        let mut watcher = watcher::Watcher::new(config, endpoints, board, (monitor, notices), asked, frames);
        watcher.ask(questions, config.limits.wire());
        if let Some(shelf) = shelf {
            watcher.resume_from(shelf);
        }
        let told = watcher.told();
        let site = server::Site {
            asks,
            frame: frame.clone(),
            pulse: Arc::clone(&pulse),
            metrics: metrics::Metrics::new(timings, pulse, counters, frame),
            guard: guard::Guard::new(address, &config.http_hosts),
            access: config.access(),
        };
        let (running, over) = tokio::sync::watch::channel(());
        // Made here, so that what can fail does so before anything is promised.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run).map_err(failed)
        };
        // A panic costs what was under way, and the daemon nothing.
        let wanted = |over: &tokio::sync::watch::Receiver<()>| over.has_changed().is_ok();
        let (watcher_restarts, watcher_over) = (restarts.clone(), over.clone());
        let (access, routers) = (site.access.clone(), server::routers(site));
        let serve = move || {
            let listen = || runtime.block_on(server::serve(&listener, &access, routers.clone(), over.clone()));
            restarts.keep("http", || wanted(&over), listen);
        };
        let watch = move || {
            telemetry::step_back();
            watcher_restarts.keep("watcher", || wanted(&watcher_over), || watcher.run());
        };
        let threads = vec![spawn("http", Box::new(serve))?, spawn("watcher", Box::new(watch))?];
        log::info!("event=dashboard open=http://{address}/");
        Ok(Self { address, running, threads, told })
    }

    /// Where it is bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Let the page compare the model with the true value. A second call has no effect.
    pub fn show_truth(&self, truth: Truth) {
        // A simulator has one truth.
        let _ = self.told.truth.set(truth);
    }

    /// Let the page say what a demo has shown, now that it has ended. A second call has no effect.
    pub fn show_end(&self, sentence: String) {
        let _ = self.told.ended.set(sentence);
    }

    /// The name of a thread that ended without a request.
    pub fn dead_thread(&self) -> Option<&str> {
        self.threads.iter().find(|t| t.is_finished()).map(|t| t.thread().name().unwrap_or("http"))
    }

    /// Close every connection, and let the watcher write down the past. It is not waited for long: a question may take it a
    /// while, and a disk may hang.
    pub fn stop(self) {
        drop(self.running);
        let started = Instant::now();
        for thread in self.threads {
            let is_server = thread.thread().name() == Some("http");
            while !is_server && !thread.is_finished() && started.elapsed() < KEEPING {
                std::thread::sleep(Duration::from_millis(5));
            }
            if is_server || thread.is_finished() {
                // One that panicked has said so.
                drop(thread.join());
            }
        }
    }
}

/// Plans that pages have asked for and that stay at most: those that are known, and the one that is being answered.
pub fn kept_plans(config: &Config) -> usize {
    let plans = config.critics.iter().any(|critic| critic.world) && config.http != "off";
    if plans { ANSWERS + 1 } else { 0 }
}

/// Bytes that wait on connections at most, where the settings have the server at all.
pub fn waiting_bytes(config: &Config) -> usize {
    if config.http == "off" { 0 } else { WAITING_BYTES }
}

fn bind(address: &str, allow_remote: bool) -> Result<TcpListener, ServerStartError> {
    let given = || address.to_owned();
    let unresolved = |source| ServerStartError::Unresolved { address: given(), source };
    let resolved: Vec<SocketAddr> = address.to_socket_addrs().map_err(unresolved)?.collect();
    if let Some(&remote) = resolved.iter().find(|a| !a.ip().is_loopback()).filter(|_| !allow_remote) {
        return Err(ServerStartError::Remote { address: given(), resolved: remote });
    }
    TcpListener::bind(&resolved[..]).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServerStartError::InUse { address: given(), source },
        _ => ServerStartError::Bind { address: given(), source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::core::Core;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    #[test]
    fn a_watcher_that_panics_is_started_again_and_the_page_served() {
        let parts = crate::config::ConfigParts { http: "127.0.0.1:0".into(), ..crate::config::ConfigParts::default() };
        let config = Config::new(parts).unwrap();
        let (notices, heard) = bounded(4);
        let endpoint: crate::transport::Endpoint = "tcp://127.0.0.1:0".parse().unwrap();
        let restarts = Restarts::default();
        let board = Core::new(Arc::new(config.clone())).board();
        let sources = Sources {
            monitor: Monitor::shared(&config.critics, &board),
            board,
            notices: heard,
            pulse: Arc::default(),
            timings: Timings::default(),
            counters: Arc::default(),
            endpoints: Endpoints { ingest: endpoint.clone(), control: endpoint.clone(), publish: endpoint },
            restarts: restarts.clone(),
            shelf: None,
            questions: bounded(1).0,
        };
        let http = Http::start(&config, sources).unwrap().unwrap();
        for count in 1..=2 {
            notices.send(BusEvent::Panic).unwrap();
            while restarts.get() < count {
                std::thread::yield_now();
            }
            // What needs the watcher's answer is answered again.
            let mut browser = TcpStream::connect(http.address()).unwrap();
            let host = http.address();
            write!(browser, "GET /api/history HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
            let mut reply = String::new();
            browser.read_to_string(&mut reply).unwrap();
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        }
        assert_eq!((http.dead_thread(), restarts.get()), (None, 2));
        http.stop();
    }
}
