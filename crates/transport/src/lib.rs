//! Opaque frames in and out of the daemon over ZeroMQ: three sockets, bounded queues, and a gate that speaks ZMTP.
//!
//! ```text
//!            criticd-gate                                      the daemon
//! PUSH   ->  handshake, limits, a message of each in turn  ->  Transport::ingest
//! DEALER ->  handshake, limits, small ones answered        ->  Transport::control
//!        <-  what waits for each client                    <-  Transport::replies
//!            criticd-fan-out
//! SUB    <-  what waits for each subscriber                <-  Transport::publish
//! ```
//!
//! The gate checks handshakes, frame headers and limits as it reads, and each connection holds its own messages. So a peer that
//! misbehaves, stalls or floods loses its connection; other peers notice nothing.
//!
//! Every queue has a capacity and one answer when it is full:
//!
//! | queue | full |
//! | --- | --- |
//! | [`Transport::ingest`] | each producer waits with one message and is not read, TCP slows it; nothing is lost |
//! | [`Transport::control`], a peer's share | this peer is not read any more; others are, and replies go out |
//! | [`Transport::control`], the total | peers of which something waits are not read any more |
//! | [`Transport::replies`], [`Transport::publish`] | the sender waits, or drops with `try_send`: its choice |
//! | a peer's backlog in the gate | its newest replies or publications are dropped and counted; at half of it the peer is not read, and gets no turn |
//! | long messages until they are whole, those of producers until they are in [`Transport::ingest`], with what libzmq holds of encrypted ones | peers that have begun further ones are not read until it is their turn |
//!
//! All of these are bounded in bytes ([`Settings::queues_bytes`]). Requests are taken in turns between peers (`turns.rs`).
//!
//! In the daemon, runtimes of tokio live in this crate and in `http`.

pub mod access;
mod backlog;
mod counters;
#[cfg(feature = "curve")]
mod curve;
mod endpoint;
mod error;
mod gate;
mod inbox;
pub mod inspect;
pub mod keys;
mod link;
mod outbox;
mod outward;
mod permit;
mod settings;
mod topics;
pub mod turns;
mod under_way;
mod zmtp;

pub use counters::{Count, Counters, Queued, Reason, SocketCounters};
pub use criticd_protocol::endpoint::{Endpoint, EndpointError, IPC_PATH_BYTES_MAX};
pub use criticd_protocol::sockets as client;
pub use error::StartError;
pub use outbox::{Outbox, Outgoing, Outgoings};
pub use permit::DESCRIPTORS_MIN;
#[cfg(feature = "curve")]
pub use settings::CurveSettings;
pub use settings::{PeerLimits, SHORT_BYTES, Settings};
pub use topics::Topics;

use crate::access::{Right, Rights};
use backlog::Peers;
use bytes::Bytes;
use crossbeam_channel::Receiver;
use endpoint::Listener;
use gate::Inside;
use inbox::{Inbox, Rows};
use link::Behind;
use parking_lot::Mutex;
use permit::Gate;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
#[cfg(feature = "curve")]
use turns::Entrance;
use turns::Turns;

criticd_protocol::named! {
    /// The three sockets.
    pub enum SocketName {
        /// PULL: experience, fire and forget.
        Ingest = "ingest",
        /// ROUTER: requests and replies.
        Control = "control",
        /// PUB: snapshots and events.
        Publish = "publish",
    }
}

impl SocketName {
    /// The rights of which a peer needs one to be let in.
    fn needs(self) -> &'static [Right] {
        match self {
            Self::Ingest => &[Right::Append],
            // Each request is looked at by itself.
            Self::Control => &Right::ALL,
            Self::Publish => &[Right::Query],
        }
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the sockets are bound, with the ports that the system chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Where producers push.
    pub ingest: Endpoint,
    /// Where clients ask.
    pub control: Endpoint,
    /// Where subscribers listen.
    pub publish: Endpoint,
}

/// Who asked, and in which form: enough to send a reply back. No two connections of a transport have equal numbers, so
/// a late reply never reaches another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Number of the connection; its highest byte has the peer's rights ([`Peer::rights`]), and the bits above the lowest
    /// [`CONNECTION_BITS`] are equal for connections of one address.
    pub connection: u64,
    /// Whether an empty frame came before the payload, as REQ sends it: then one goes before the reply.
    pub delimiter: bool,
}

/// Bits of [`Peer::connection`] below those that hold the rights.
const NUMBER_BITS: u32 = 56;
/// Bits of [`Peer::connection`] that count connections: at 1000 new ones a second they last for 34 years.
pub const CONNECTION_BITS: u32 = 40;

/// The number of a connection without that of its address, as log lines have it.
fn plain_number(connection: u64) -> u64 {
    connection & ((1 << CONNECTION_BITS) - 1)
}

impl Peer {
    /// What it may do.
    pub fn rights(&self) -> Rights {
        Rights::from_byte((self.connection >> NUMBER_BITS) as u8)
    }
}

/// The number under which the daemon knows a connection with these rights.
pub fn peer_number(connection: u64, rights: Rights) -> u64 {
    connection | u64::from(rights.to_byte()) << NUMBER_BITS
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asked.
    pub peer: Peer,
    /// What.
    pub payload: Bytes,
    /// When it was received.
    pub since: Instant,
}

/// An answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Who asked. A reply to one that has left is dropped and counted.
    pub peer: Peer,
    /// The answer.
    pub payload: Vec<u8>,
}

/// A message to all subscribers of a topic's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// First frame.
    pub topic: String,
    /// Second frame.
    pub payload: Bytes,
}

impl Outgoing for Reply {
    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

impl Outgoing for Publication {
    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// How far the life of a transport has come; it only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Phase {
    Running,
    /// Nothing is taken from peers any more; what is held goes out.
    Draining,
    /// The daemon reads our queues no more: send the queued messages until the instant, then end.
    Closing(Instant),
    /// The same, and the gate ends: all others have.
    Closed(Instant),
}

impl Phase {
    /// Until when messages are sent, if none are taken from the daemon any more.
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Running | Self::Draining => None,
            Self::Closing(deadline) | Self::Closed(deadline) => Some(*deadline),
        }
    }
}

/// The three sockets, running. Dropping it closes them at once; [`Transport::shutdown`] first sends what is queued.
pub struct Transport {
    /// Where the sockets are bound.
    pub endpoints: Endpoints,
    /// Where the encrypted ones are.
    pub encrypted: Vec<(SocketName, Endpoint)>,
    /// Messages of producers, each in its order; full: producers wait. Disconnected once everything taken before
    /// [`Transport::stop_receiving`] has been read. A message counts in the queue's bytes until it is dropped: do not keep it.
    pub ingest: Receiver<Bytes>,
    /// Requests of clients, taken in turns; a client beyond its share waits. Over when `ingest` is.
    pub control: Turns<Request>,
    /// Answers to them; full: the sender waits. Replies to one client arrive in the order in which they were handed in.
    pub replies: Outbox<Reply>,
    /// Messages to subscribers; full: the sender waits, or drops with `try_send`.
    pub publish: Outbox<Publication>,
    /// What happened so far.
    pub counters: Arc<Counters>,
    running: Running,
}

/// What ends the threads, and the threads.
struct Running {
    phase: tokio::sync::watch::Sender<Phase>,
    /// Those of encrypted sockets.
    threads: Vec<JoinHandle<()>>,
    gate: Vec<JoinHandle<()>>,
    #[cfg(feature = "curve")]
    directory: Option<curve::PrivateDirectory>,
}

/// Start a thread under `name`.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(StartError::internal("thread"))
}

/// Bind the three endpoints, all or none, and start the threads behind them. Not from within an async runtime.
///
/// # Errors
/// [`StartError`]; it names the socket, and nothing stays bound.
pub fn start(settings: Settings) -> Result<Transport, StartError> {
    start_answering(settings, |_| None)
}

/// [`start`], with `at_once` shown every request that is not encrypted, on the thread where it arrives: what it answers
/// is spared two changes of thread and never comes to [`Transport::control`]. The bytes of producers and clients wait for it,
/// so it must take no longer than handing a request over does, some microseconds, and wait for nothing.
///
/// # Errors
/// As [`start`].
pub fn start_answering(
    settings: Settings,
    at_once: impl FnMut(&Request) -> Option<Vec<u8>> + Send + 'static,
) -> Result<Transport, StartError> {
    let Bound { ingest, control, publish, encrypted } = Bound::bind(&settings)?;
    let endpoints = Endpoints { ingest: ingest.1, control: control.1, publish: publish.1 };
    let encrypted_endpoints: Vec<_> = encrypted.iter().map(|(socket, _, end)| (*socket, end.clone())).collect();
    let counters = Arc::new(Counters::default());
    let (phase, watch) = tokio::sync::watch::channel(Phase::Running);
    // If a later step fails, dropping this ends the threads that exist.
    let mut running = Running {
        phase,
        threads: Vec::new(),
        gate: Vec::new(),
        #[cfg(feature = "curve")]
        directory: None,
    };

    let queued = &counters.queued;
    let (inbox, ingest_queue) = Inbox::new(settings.inbox_messages, settings.inbox_bytes, queued.ingest.clone());
    let (entrance, control_queue) = turns::turns_counted(settings.requests, queued.requests.clone());
    #[cfg(feature = "curve")]
    let (inbox, Encrypted { listeners, to_control, to_publish }) =
        Encrypted::open(&settings, encrypted, (inbox, &entrance), (&counters, &watch), &mut running)?;
    #[cfg(feature = "curve")]
    let elsewhere = move |reply: Reply| {
        let queue = to_control.clone();
        async move {
            match queue {
                Some(queue) => queue.take_reply(reply).await,
                None => Some(reply),
            }
        }
    };
    #[cfg(feature = "curve")]
    let also = move |publication: &Publication| to_publish.iter().for_each(|queue| queue.publish(publication));
    #[cfg(not(feature = "curve"))]
    let (elsewhere, also) = (|reply: Reply| std::future::ready(Some(reply)), |_: &Publication| {});

    let mut limits = settings.limits;
    limits.connections_max = permit::affordable_connections(limits.connections_max, !encrypted_endpoints.is_empty());
    let gate = Gate::new(settings.access, limits, turns::Watch::clone(&entrance), Arc::clone(&counters));
    let (gate, clients, subscribers) = (Arc::new(gate), Arc::<Peers>::default(), Arc::<Peers>::default());
    let (replies, replies_queue) = Outbox::counted(settings.replies, settings.outbox_bytes, queued.replies.clone());
    let (publish_queue, publications) =
        Outbox::counted(settings.publications, settings.outbox_bytes, queued.publications.clone());
    let send = outward::send_replies(replies_queue, elsewhere, Arc::clone(&clients), watch.clone(), Arc::clone(&gate));
    let fan_out = outward::publish(publications, also, Arc::clone(&subscribers), watch.clone(), Arc::clone(&gate));
    let requests = Behind::Requests { at_once: Arc::new(Mutex::new(at_once)), entrance: Some(entrance), clients };
    let doors = [
        (SocketName::Ingest, ingest.0, Inside::Plain(Behind::Rows(Arc::new(Rows::new(inbox))))),
        (SocketName::Control, control.0, Inside::Plain(requests)),
        (SocketName::Publish, publish.0, Inside::Plain(Behind::Subscriptions(subscribers))),
    ];
    let doors = doors.into_iter();
    #[cfg(feature = "curve")]
    let doors = doors.chain(listeners);
    let (of_subscribers, others) = doors.partition(|(socket, ..)| *socket == SocketName::Publish);
    running.gate.push(gate::start("criticd-fan-out", fan_out, of_subscribers, &gate, &watch)?);
    running.gate.push(gate::start("criticd-gate", send, others, &gate, &watch)?);
    log_endpoints(&endpoints, &encrypted_endpoints);
    let (ingest, control, publish, encrypted) = (ingest_queue, control_queue, publish_queue, encrypted_endpoints);
    Ok(Transport { endpoints, encrypted, ingest, control, replies, publish, counters, running })
}

/// Whether all endpoints of the settings can be bound now: they are, and given back.
///
/// # Errors
/// If one is in use, or nothing can listen there.
pub fn check_endpoints(settings: &Settings) -> Result<(), StartError> {
    Bound::bind(settings).map(drop)
}

/// The public listeners and where they are bound.
struct Bound {
    ingest: (Listener, Endpoint),
    control: (Listener, Endpoint),
    publish: (Listener, Endpoint),
    encrypted: Vec<(SocketName, Listener, Endpoint)>,
}

impl Bound {
    /// Bind all endpoints of the settings, or none.
    fn bind(settings: &Settings) -> Result<Self, StartError> {
        let bind = |socket, endpoint: &Endpoint, allow_remote| {
            Listener::bind(endpoint, allow_remote).map_err(|error| StartError::bind(socket, endpoint, error))
        };
        let plain = |socket, endpoint| bind(socket, endpoint, settings.allow_remote);
        // Their peers need keys, so these endpoints may be on any address.
        let encrypted = |(socket, endpoint): &(SocketName, Endpoint)| {
            bind(*socket, endpoint, true).map(|(listener, endpoint)| (*socket, listener, endpoint))
        };
        Ok(Self {
            ingest: plain(SocketName::Ingest, &settings.ingest)?,
            control: plain(SocketName::Control, &settings.control)?,
            publish: plain(SocketName::Publish, &settings.publish)?,
            encrypted: settings.encrypted.iter().map(encrypted).collect::<Result<_, _>>()?,
        })
    }
}

/// What is behind the encrypted listeners, and the ways to them.
#[cfg(feature = "curve")]
#[derive(Default)]
struct Encrypted {
    listeners: Vec<(SocketName, Listener, Inside)>,
    to_control: Option<Arc<curve::SendQueue>>,
    to_publish: Option<curve::SendQueue>,
}

#[cfg(feature = "curve")]
impl Encrypted {
    /// Start the threads of the encrypted sockets, if there are keys. They fill the same two queues as the plain ones: the inbox for
    /// those comes back.
    fn open(
        settings: &Settings,
        bound: Vec<(SocketName, Listener, Endpoint)>,
        (inbox, requests): (Inbox, &Entrance<Request>),
        (counters, phase): (&Arc<Counters>, &tokio::sync::watch::Receiver<Phase>),
        running: &mut Running,
    ) -> Result<(Inbox, Self), StartError> {
        let mut opened = Self::default();
        let Some(keys) = &settings.curve else { return Ok((inbox, opened)) };
        let takes_rows = bound.iter().any(|(socket, ..)| *socket == SocketName::Ingest);
        let (inbox, mut encrypted) = match inbox.halves() {
            [plain, encrypted] if takes_rows => (plain, Some(encrypted)),
            _ => (inbox, None),
        };
        let directory = curve::PrivateDirectory::create().map_err(StartError::internal("private directory"))?;
        let (directory, limits) = (running.directory.insert(directory).path(), &settings.limits);
        let curve = curve::Curve::start(keys, limits, requests, counters, phase, &mut running.threads)?;
        for (socket, listener, _) in bound {
            let incoming = match socket {
                // There is one of each.
                SocketName::Ingest => curve::Incoming::Rows(encrypted.take().expect("one socket takes rows")),
                SocketName::Control => curve::Incoming::Requests(requests.clone()),
                SocketName::Publish => curve::Incoming::Subscriptions,
            };
            let (front, queue) = curve.open(socket, incoming, directory, &mut running.threads)?;
            opened.listeners.push((socket, listener, Inside::Curve(front)));
            match socket {
                SocketName::Ingest => {}
                SocketName::Control => opened.to_control = Some(Arc::new(queue)),
                SocketName::Publish => opened.to_publish = Some(queue),
            }
        }
        Ok((inbox, opened))
    }
}

fn log_endpoints(endpoints: &Endpoints, encrypted: &[(SocketName, Endpoint)]) {
    let Endpoints { ingest, control, publish } = endpoints;
    log::info!("event=listening ingest={ingest} control={control} publish={publish}");
    for (socket, endpoint) in encrypted {
        log::info!("event=listening_encrypted socket={socket} endpoint={endpoint}");
    }
}

impl Transport {
    /// Take no further message from peers, and no further connection but from subscribers. What was taken stays in the
    /// queues; when it has been read, `ingest` and `control` are disconnected. Replies and publications still go out.
    pub fn stop_receiving(&self) {
        self.running.advance(Phase::Draining);
    }

    /// The name of a thread that ended without a request (a bug in us): the daemon should
    /// stop. `None` if all is well.
    pub fn dead_thread(&self) -> Option<&str> {
        let is_over = |t: &&JoinHandle<()>| t.is_finished();
        let may_end = *self.running.phase.borrow() != Phase::Running;
        let threads = self.running.gate.iter().chain(self.running.threads.iter().filter(|_| !may_end));
        threads.into_iter().find(is_over).map(|t| t.thread().name().unwrap_or("transport"))
    }

    /// Send what was put into `replies` and `publish` before, for at most `deadline`, then close everything, join the
    /// threads and remove the files. Messages and requests that were not read are lost: to lose none, call
    /// [`Transport::stop_receiving`] and read until both queues are disconnected.
    pub fn shutdown(mut self, deadline: Duration) {
        self.running.close(deadline);
    }
}

impl Running {
    /// Go to `phase`, unless it or a later one is reached.
    fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            if is_later {
                *now = phase;
            }
            is_later
        });
    }

    fn close(&mut self, deadline: Duration) {
        let deadline = Instant::now() + deadline;
        self.advance(Phase::Closing(deadline));
        // A thread that panicked has said so; there is nothing to add.
        self.threads.drain(..).for_each(|t| drop(t.join()));
        self.advance(Phase::Closed(deadline));
        self.gate.drain(..).for_each(|t| drop(t.join()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}
