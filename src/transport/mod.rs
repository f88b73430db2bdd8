//! Opaque frames in and out of the daemon over ZeroMQ: three sockets, bounded queues, and a gate in front.
//!
//! ```text
//!            gate thread                      on a thread of                      the daemon
//! PUSH   ->  listener, limits  -> unix -> ingest:  PULL, its own             ->  Transport::ingest
//! DEALER <-> listener, limits <-> unix <-> control: ROUTER, the gate         ->  Transport::control
//!                                                                            <-  Transport::replies
//! SUB    <-  listener, limits <-  unix <-  publish: PUB, its own             <-  Transport::publish
//! ```
//!
//! The crate `zeromq` makes the sockets but never meets a peer: it binds unix sockets in a private directory, and the
//! gate pipes to them what peers send, after it has checked handshakes, frame headers and limits. So a peer that
//! misbehaves, stalls or floods loses its connection; other peers notice nothing.
//!
//! Every queue has a capacity and one answer when it is full:
//!
//! | queue | full |
//! | --- | --- |
//! | [`Transport::ingest`] | the ingest thread waits, TCP slows the producers; nothing is lost |
//! | [`Transport::control`], a peer's share | this peer is not read any more; others are, and replies go out |
//! | [`Transport::control`], the total | peers of which something waits are not read any more |
//! | [`Transport::replies`], [`Transport::publish`] | the sender waits, or drops with `try_send`: its choice |
//! | a peer's backlog in the gate | its newest replies or publications are dropped and counted; at half of it the peer is not read, and gets no turn |
//! | long messages that are not whole yet | peers that have begun further ones are not read any more |
//!
//! All of these are bounded in bytes ([`Settings::queues_bytes`]). Requests are taken in turns between peers (`turns.rs`).
//!
//! A runtime of tokio lives in this folder and nowhere else.

pub mod client;
#[cfg(feature = "curve")]
mod curve;
mod endpoint;
mod gate;
pub mod inspect;
pub mod turns;
mod zmq;
mod zmtp;

#[cfg(feature = "curve")]
pub use curve::CurveSettings;
pub use endpoint::{Endpoint, EndpointError, IPC_PATH_BYTES_MAX};

use crate::access::{Access, Right, Rights};
use bytes::Bytes;
use crossbeam_channel::{Receiver, SendError, Sender, TrySendError};
use endpoint::{BindError, Listener, PrivateDirectory};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use turns::{Share, Turns};

/// The three sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketName {
    /// PULL: experience, fire and forget.
    Ingest,
    /// ROUTER: requests and replies.
    Control,
    /// PUB: snapshots and events.
    Publish,
}

impl SocketName {
    /// The name as it stands in the configuration and in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Control => "control",
            Self::Publish => "publish",
        }
    }

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

/// Messages of at most so many bytes pass whatever others make us hold: there is room for one of each connection.
pub const SHORT_BYTES: usize = 64 << 10;

/// What one peer, or all of them together, may cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Longest message that is taken, all its frames together, in bytes. Each connection may make us hold one that it
    /// never finishes.
    pub message_bytes_max: usize,
    /// Longest frame that is taken in bytes; the announcement is believed only below it.
    pub frame_bytes_max: usize,
    /// Frames in one message.
    pub parts_max: usize,
    /// Connections of all three sockets together. Each needs three descriptors: [`start`] raises the process's limit on
    /// those as far as it may, and lowers this if that is too little.
    pub connections_max: usize,
    /// Connections from one IP address, all three sockets together; peers on unix sockets have no address.
    pub connections_per_address_max: usize,
    /// Topics that one subscriber may have.
    pub subscriptions_max: usize,
    /// Time from the connection until greeting and READY have arrived.
    pub handshake_timeout: Duration,
    /// Bytes of greeting and READY together.
    pub handshake_bytes_max: usize,
    /// Length of the identity that a peer may give itself in bytes.
    pub identity_bytes_max: usize,
    /// How long a peer may accept no byte although there are some for it.
    pub stall_timeout: Duration,
    /// How long a peer may be behind without catching up once.
    pub saturated_timeout: Duration,
    /// How long a connection may carry no byte in either direction.
    pub idle_timeout: Duration,
    /// What waits for one peer, in bytes; it may be exceeded by one message.
    pub backlog_bytes_max: usize,
    /// What waits for all peers together, in bytes; beyond it a peer gets short messages only, and is behind by
    /// [`SHORT_BYTES`] at most.
    pub backlog_bytes_total_max: usize,
    /// Bytes of messages longer than [`SHORT_BYTES`] that peers may have begun and not finished, all together.
    pub unfinished_bytes_max: usize,
    /// Silence on a TCP connection before the kernel asks whether the other end is still there. It asks every
    /// fifth of that time and gives up after five questions.
    pub keepalive_idle: Duration,
    /// How long the kernel waits for bytes sent over TCP to be confirmed before it gives the connection up.
    pub unconfirmed_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 1 << 20,
            frame_bytes_max: 1 << 20,
            parts_max: 16,
            connections_max: 2048,
            connections_per_address_max: 1024,
            subscriptions_max: 64,
            handshake_timeout: Duration::from_secs(5),
            handshake_bytes_max: 4096,
            identity_bytes_max: 64,
            stall_timeout: Duration::from_secs(10),
            saturated_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(3600),
            backlog_bytes_max: 16 << 20,
            backlog_bytes_total_max: 256 << 20,
            unfinished_bytes_max: 64 << 20,
            keepalive_idle: Duration::from_secs(15),
            unconfirmed_timeout: Duration::from_secs(30),
        }
    }
}

/// Where to listen and how much to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where producers push.
    pub ingest: Endpoint,
    /// Where clients ask.
    pub control: Endpoint,
    /// Where subscribers listen.
    pub publish: Endpoint,
    /// Whether TCP addresses other than loopback may be bound, where nothing is encrypted.
    pub allow_remote: bool,
    /// Who may do what there.
    pub access: Access,
    /// The keys of the encrypted sockets.
    #[cfg(feature = "curve")]
    pub curve: Option<CurveSettings>,
    /// Where further sockets listen that are encrypted with CURVE; needs `curve`.
    pub encrypted: Vec<(SocketName, Endpoint)>,
    /// What peers may cost.
    pub limits: Limits,
    /// Capacity of [`Transport::ingest`] in messages.
    pub inbox_messages: usize,
    /// Capacity of [`Transport::ingest`] in bytes; it may be exceeded by one message.
    pub inbox_bytes: usize,
    /// What may wait in [`Transport::control`].
    pub requests: Share,
    /// Capacity of each of [`Transport::replies`] and [`Transport::publish`] in bytes; it may be exceeded by one message of each
    /// thread that sends.
    pub outbox_bytes: usize,
    /// Capacity of [`Transport::replies`].
    pub replies: usize,
    /// Capacity of [`Transport::publish`].
    pub publications: usize,
}

impl Default for Settings {
    /// The ports of the protocol, on loopback.
    fn default() -> Self {
        let loopback = |port| Endpoint::Tcp { host: "127.0.0.1".to_owned(), port };
        Self {
            ingest: loopback(5750),
            control: loopback(5751),
            publish: loopback(5752),
            allow_remote: false,
            access: Access::default(),
            #[cfg(feature = "curve")]
            curve: None,
            encrypted: Vec::new(),
            limits: Limits::default(),
            inbox_messages: 1024,
            inbox_bytes: 16 << 20,
            requests: Share { peer_bytes: 4 << 20, total_bytes: 64 << 20 },
            outbox_bytes: 32 << 20,
            replies: 1024,
            publications: 256,
        }
    }
}

impl Settings {
    /// Bytes that all of the transport's queues hold together at the most, but for single messages that exceed a bound.
    pub fn queues_bytes(&self) -> usize {
        let Limits { message_bytes_max, connections_max, backlog_bytes_total_max, unfinished_bytes_max, .. } =
            self.limits;
        // Of each connection: a short message on its way in, once in the gate and once behind it, and short replies.
        let each = 4 * SHORT_BYTES;
        let inward = self.inbox_bytes + self.requests.total_bytes + unfinished_bytes_max;
        inward + backlog_bytes_total_max + 2 * self.outbox_bytes + connections_max * each + 4 * message_bytes_max
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
    /// Number of the connection; its highest byte says what the peer may do ([`Peer::rights`]), so that nobody has to be
    /// asked.
    pub connection: u64,
    /// Whether an empty frame came before the payload, as REQ sends it: then one goes before the reply.
    pub delimiter: bool,
}

/// Bits of [`Peer::connection`] below those that hold the rights.
const NUMBER_BITS: u32 = 56;

impl Peer {
    /// What it may do.
    pub fn rights(&self) -> Rights {
        Rights::from_byte((self.connection >> NUMBER_BITS) as u8)
    }
}

/// The number under which a connection with these rights is known behind the gate.
pub(crate) fn peer_number(connection: u64, rights: Rights) -> u64 {
    connection | u64::from(rights.to_byte()) << NUMBER_BITS
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asked.
    pub peer: Peer,
    /// What. Where it is shown to `at_once` it shares its memory with what arrived around it.
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

/// A number that only rises, or a level, written by the transport's threads.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn subtract(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// Why the gate refused or cut a peer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The reason as a word for log lines and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

reasons! {
    /// There are as many connections as there may be.
    TooManyConnections => "too_many_connections",
    /// There are as many from its address as there may be.
    TooManyFromAddress => "too_many_from_address",
    /// Its address, or its key, gives it no right to be there.
    Unauthorised => "unauthorised",
    /// Its handshake took too long.
    HandshakeTimeout => "handshake_timeout",
    /// Its handshake was too long.
    HandshakeTooLong => "handshake_too_long",
    /// It speaks another protocol.
    BadGreeting => "bad_greeting",
    /// It speaks a version before ZMTP 3.0.
    UnsupportedVersion => "unsupported_version",
    /// It wants another mechanism than NULL.
    UnsupportedMechanism => "unsupported_mechanism",
    /// Its READY is none.
    BadReady => "bad_ready",
    /// Its socket is of a type that does not go with ours.
    WrongSocketType => "wrong_socket_type",
    /// The identity it gave itself is too long.
    IdentityTooLong => "identity_too_long",
    /// A connected peer has that identity.
    IdentityInUse => "identity_in_use",
    /// It gave itself an identity on the encrypted control socket, where libzmq could not keep it from being taken over.
    NamedItself => "named_itself",
    /// A frame is, or announces itself as, too long.
    FrameTooLarge => "frame_too_large",
    /// The frames of a message are too long together.
    MessageTooLarge => "message_too_large",
    /// A message has too many frames.
    TooManyParts => "too_many_parts",
    /// A frame's flags have bits that no version has.
    ReservedFlags => "reserved_flags",
    /// A command is malformed.
    BadCommand => "bad_command",
    /// A subscriber sent what is no subscription.
    BadSubscription => "bad_subscription",
    /// A subscriber has as many topics as it may have.
    TooManySubscriptions => "too_many_subscriptions",
    /// It accepted no byte for too long, or left a long message unfinished while others waited to begin one.
    Stalled => "stalled",
    /// It was behind for too long.
    Saturated => "saturated",
    /// Nothing came from it and nothing went to it for too long.
    Idle => "idle",
    /// The socket behind the gate could not be reached or gave the connection up.
    Internal => "internal",
}

/// What happened on one socket since the start.
#[derive(Debug, Default)]
pub struct SocketCounters {
    /// Connections now, those in their handshake included.
    pub connections: Count,
    /// Connections accepted.
    pub accepted: Count,
    /// Bytes read from peers.
    pub bytes_in: Count,
    /// Bytes written to peers.
    pub bytes_out: Count,
    /// Bytes that wait for peers now, those of a message that has begun to come included.
    pub backlog_bytes: Count,
    /// Messages that were meant for a peer and dropped because its backlog was full.
    pub backlog_dropped: Count,
    cut: [Count; Reason::ALL.len()],
}

impl SocketCounters {
    /// Peers refused or cut for `reason`.
    pub fn cut(&self, reason: Reason) -> u64 {
        self.cut[reason as usize].get()
    }
}

/// What happened since the start; read it at any time.
#[derive(Debug, Default)]
pub struct Counters {
    /// At the gate, towards producers.
    pub ingest: SocketCounters,
    /// At the gate, towards clients.
    pub control: SocketCounters,
    /// At the gate, towards subscribers.
    pub publish: SocketCounters,
    /// Messages handed to [`Transport::ingest`].
    pub ingest_messages: Count,
    /// Messages on ingest that were dropped because they had more than one frame.
    pub ingest_malformed: Count,
    /// Requests answered at once, or handed to [`Transport::control`].
    pub requests: Count,
    /// Messages on control that were dropped because their frames were not a request.
    pub control_malformed: Count,
    /// Replies handed on towards their client.
    pub replies_sent: Count,
    /// Replies dropped because their client had left or its queue was full. Those that the gate dropped later are in
    /// `control.backlog_dropped`.
    pub replies_dropped: Count,
    /// Publications handed on towards the subscribers.
    pub publications_sent: Count,
    /// Failures to accept a connection, for want of descriptors mostly.
    pub accept_failed: Count,
}

impl Counters {
    /// Those of one socket.
    pub fn socket(&self, name: SocketName) -> &SocketCounters {
        match name {
            SocketName::Ingest => &self.ingest,
            SocketName::Control => &self.control,
            SocketName::Publish => &self.publish,
        }
    }
}

/// Why the transport did not start; nothing stays bound.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The host's name stands for no address.
    Unresolved {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// What the resolver said.
        source: io::Error,
    },
    /// The address can be reached from other machines, and that was not allowed.
    Remote {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// The address it stands for.
        address: SocketAddr,
    },
    /// The endpoint is in use.
    InUse {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// The path of an ipc endpoint belongs to a file that is no socket.
    NotASocket {
        /// Which socket.
        socket: SocketName,
        /// The file.
        path: PathBuf,
    },
    /// The endpoint could not be bound for another reason.
    Bind {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// What the transport needs inside could not be made: its private directory, a thread, a runtime.
    Internal {
        /// What was being made.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved { socket, endpoint, source } => {
                write!(f, "{socket}: {endpoint}: the host's name cannot be resolved: {source}")
            }
            Self::Remote { socket, endpoint, address } => write!(
                f,
                "{socket}: {endpoint} is {}, which other machines may reach, and nothing is encrypted; bind a loopback \
                 address, or say who may connect with `allow` and set insecure = true",
                address.ip()
            ),
            Self::InUse { socket, endpoint, .. } => {
                write!(f, "{socket}: {endpoint} is in use: is another criticd running? choose another with --{socket}")
            }
            Self::NotASocket { socket, path } => {
                write!(f, "{socket}: {} exists and is not a socket; it is not replaced", path.display())
            }
            Self::Bind { socket, endpoint, source } => write!(f, "{socket}: {endpoint} cannot be bound: {source}"),
            Self::Internal { what, source } => write!(
                f,
                "the transport could not create its {what}: {source}; private files are in {}, which TMPDIR sets",
                std::env::temp_dir().display()
            ),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unresolved { source, .. }
            | Self::InUse { source, .. }
            | Self::Bind { source, .. }
            | Self::Internal { source, .. } => Some(source),
            Self::Remote { .. } | Self::NotASocket { .. } => None,
        }
    }
}

impl StartError {
    fn bind(socket: SocketName, endpoint: &Endpoint, error: BindError) -> Self {
        let endpoint = endpoint.clone();
        match error {
            BindError::Unresolved(source) => Self::Unresolved { socket, endpoint, source },
            BindError::Remote(address) => Self::Remote { socket, endpoint, address },
            BindError::InUse(source) => Self::InUse { socket, endpoint, source },
            BindError::NotASocket(path) => Self::NotASocket { socket, path },
            BindError::Io(source) => Self::Bind { socket, endpoint, source },
        }
    }

    fn internal(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Internal { what, source }
    }
}

/// Pause of a sender while an [`Outbox`] is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// How far the life of a transport has come; it only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Nothing is taken from peers any more; what is held goes out.
    Draining,
    /// The daemon reads our queues no more: send the queued messages until the instant, then end.
    Closing(Instant),
    /// The gate ends: all others have.
    Closed,
}

/// What an [`Outbox`] holds.
pub trait Outgoing {
    /// Bytes of the message.
    fn bytes(&self) -> usize;
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

/// A bounded queue that a socket's thread empties: it wakes that thread, and no other stands between.
#[derive(Debug)]
pub struct Outbox<T> {
    queue: mpsc::Sender<T>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// The other end of an [`Outbox`].
#[derive(Debug)]
pub(crate) struct Outgoings<T> {
    queue: mpsc::Receiver<T>,
    bytes: Arc<AtomicUsize>,
}

impl<T: Outgoing> Outgoings<T> {
    fn taken(&self, item: T) -> T {
        self.bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
        item
    }

    /// The next item; none when no more can come.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        let item = self.queue.recv().await?;
        Some(self.taken(item))
    }

    /// The next item, if there is one.
    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        let item = self.queue.try_recv().ok()?;
        Some(self.taken(item))
    }

    /// Refuse further items.
    pub(crate) fn close(&mut self) {
        self.queue.close();
    }
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bytes: Arc::clone(&self.bytes), bytes_max: self.bytes_max }
    }
}

impl<T: Outgoing> Outbox<T> {
    /// A queue of at most `capacity` items, at least 1, and so many bytes, which one item may exceed; and its other end.
    pub(crate) fn new(capacity: usize, bytes_max: usize) -> (Self, Outgoings<T>) {
        let (queue, receiver) = mpsc::channel(capacity);
        let bytes = Arc::new(AtomicUsize::new(0));
        (Self { queue, bytes: Arc::clone(&bytes), bytes_max }, Outgoings { queue: receiver, bytes })
    }

    /// Hand an item over, waiting while the queue is full. Not from within an async runtime.
    ///
    /// # Errors
    /// If the transport has ended, with the item.
    pub fn send(&self, mut item: T) -> Result<(), SendError<T>> {
        loop {
            match self.try_send(item) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(item)) => return Err(SendError(item)),
                Err(TrySendError::Full(refused)) => item = refused,
            }
            // The thread at the other end waits for no peer: this is over soon.
            std::thread::sleep(FULL_PAUSE);
        }
    }

    /// Hand an item over, unless the queue is full.
    ///
    /// # Errors
    /// If it is, or the transport has ended, with the item.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let (bytes, before) = (item.bytes(), self.bytes.load(Ordering::Relaxed));
        if before > 0 && before + bytes > self.bytes_max && !self.queue.is_closed() {
            return Err(TrySendError::Full(item));
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue.try_send(item).map_err(|refused| {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            match refused {
                mpsc::error::TrySendError::Full(item) => TrySendError::Full(item),
                mpsc::error::TrySendError::Closed(item) => TrySendError::Disconnected(item),
            }
        })
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.capacity() - self.queue.capacity()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that may wait.
    pub fn capacity(&self) -> usize {
        self.queue.max_capacity()
    }
}

/// The three sockets, running. Dropping it closes them at once; [`Transport::shutdown`] first sends what is queued.
pub struct Transport {
    /// Where the sockets are bound.
    pub endpoints: Endpoints,
    /// Where the encrypted ones are.
    pub encrypted: Vec<(SocketName, Endpoint)>,
    /// Messages of producers, each in its order; full: producers wait. Disconnected once everything taken before
    /// [`Transport::stop_receiving`] has been read. A message shares its memory with its neighbours: do not keep it.
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
    /// Dropped to say to threads that wait on queues of the daemon: closing.
    closing: Option<Sender<Never>>,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected once the control socket has sent what it had to.
    control_is_over: Receiver<Never>,
    gate: Option<JoinHandle<()>>,
    directory: PrivateDirectory,
}

/// Never sent: a channel of it only ever disconnects.
enum Never {}

/// Bind the three endpoints, all or none, and start the threads behind them. Not from within an async runtime.
///
/// # Errors
/// [`StartError`]; it names the socket, and nothing stays bound.
pub fn start(settings: Settings) -> Result<Transport, StartError> {
    start_answering(settings, |_| None)
}

/// [`start`], with `at_once` shown every request that is not encrypted, on the thread where it arrives: what it answers
/// is spared two changes of thread and never comes to [`Transport::control`]. Everybody's bytes wait for it, so it must take
/// no longer than handing a request over does, some microseconds, and wait for nothing.
///
/// # Errors
/// As [`start`].
pub fn start_answering(
    settings: Settings,
    at_once: impl FnMut(&Request) -> Option<Vec<u8>> + Send + 'static,
) -> Result<Transport, StartError> {
    let bind = |socket, endpoint: &Endpoint| {
        Listener::bind(endpoint, settings.allow_remote).map_err(|error| StartError::bind(socket, endpoint, error))
    };
    let (ingest, ingest_endpoint) = bind(SocketName::Ingest, &settings.ingest)?;
    let (control, control_endpoint) = bind(SocketName::Control, &settings.control)?;
    let (publish, publish_endpoint) = bind(SocketName::Publish, &settings.publish)?;
    // Their peers need keys, so these endpoints may be on any address.
    let bind_encrypted = |(socket, endpoint): &(SocketName, Endpoint)| {
        let bound = Listener::bind(endpoint, true).map_err(|error| StartError::bind(*socket, endpoint, error));
        bound.map(|(listener, endpoint)| (*socket, listener, endpoint))
    };
    let encrypted = settings.encrypted.iter().map(bind_encrypted).collect::<Result<Vec<_>, _>>()?;
    let encrypted_endpoints: Vec<_> = encrypted.iter().map(|(socket, _, end)| (*socket, end.clone())).collect();
    let directory = PrivateDirectory::create().map_err(StartError::internal("private directory"))?;
    let counters = Arc::new(Counters::default());
    let (phase, watch) = tokio::sync::watch::channel(Phase::Running);
    let (closing, closing_watch) = crossbeam_channel::bounded(0);
    let (over, control_is_over) = crossbeam_channel::bounded(0);
    let mut running =
        Running { phase, closing: Some(closing), threads: Vec::new(), control_is_over, gate: None, directory };
    // Dropped before `running`, which waits for it, should a later step fail.
    let over = over;

    let (inbox, ingest_queue) = zmq::Inbox::new(settings.inbox_messages, settings.inbox_bytes);
    let (requests, control_queue) = turns::turns(settings.requests);

    // If a later step fails, dropping `running` ends the threads that exist.
    #[cfg(feature = "curve")]
    let (mut fronts, mut to_control, mut to_publish) = (Vec::new(), None, None);
    #[cfg(feature = "curve")]
    if let Some(keys) = &settings.curve {
        let curve = curve::Curve::start(keys, &settings.limits, &requests, &counters, &watch, &mut running.threads)?;
        for (socket, listener, _) in encrypted {
            let incoming = match socket {
                SocketName::Ingest => curve::Incoming::Rows(inbox.clone()),
                SocketName::Control => curve::Incoming::Requests(requests.clone()),
                SocketName::Publish => curve::Incoming::Subscriptions,
            };
            let directory = running.directory.join("");
            let (front, outlet) = curve.open(socket, incoming, &directory, &mut running.threads)?;
            fronts.push((socket, listener, front));
            match socket {
                SocketName::Ingest => {}
                SocketName::Control => to_control = Some(Arc::new(outlet)),
                SocketName::Publish => to_publish = Some(outlet),
            }
        }
    }
    #[cfg(feature = "curve")]
    let (elsewhere, also) = {
        let elsewhere = move |reply| {
            let outlet = to_control.clone();
            async move {
                match outlet {
                    Some(outlet) => outlet.take_reply(reply).await,
                    None => Some(reply),
                }
            }
        };
        let also = move |publication: &Publication| to_publish.iter().for_each(|outlet| outlet.publish(publication));
        (elsewhere, also)
    };
    #[cfg(not(feature = "curve"))]
    let (elsewhere, also) = (|reply: Reply| std::future::ready(Some(reply)), |_: &Publication| {});
    let behind = zmq::Behind { counters: Arc::clone(&counters), phase: watch.clone(), closing: closing_watch };
    let doors = gate::Listeners {
        ingest: (ingest, running.directory.join("ingest")),
        control: (control, running.directory.join("control")),
        publish: (publish, running.directory.join("publish")),
        #[cfg(feature = "curve")]
        curve: fronts,
    };
    let threads = &mut running.threads;
    behind.start_ingest(&doors.ingest.1, inbox, threads)?;
    let (replies, replies_queue) = Outbox::new(settings.replies, settings.outbox_bytes);
    let runtime = zmq::runtime()?;
    let (answers, waiting) = (replies.clone(), turns::Watch::clone(&requests));
    let ends = zmq::ControlEnds { at_once, answers, requests, replies: replies_queue, elsewhere, over };
    let control = behind.open_control(&runtime, &doors.control.1, ends)?;
    let (publish, publications) = Outbox::new(settings.publications, settings.outbox_bytes);
    behind.start_publish(&doors.publish.1, publications, also, threads)?;
    running.gate = Some(gate::start(
        runtime,
        control,
        doors,
        settings.access,
        settings.limits,
        waiting,
        Arc::clone(&counters),
        watch,
    )?);

    let endpoints = Endpoints { ingest: ingest_endpoint, control: control_endpoint, publish: publish_endpoint };
    log::info!(
        "event=listening ingest={} control={} publish={}",
        endpoints.ingest,
        endpoints.control,
        endpoints.publish
    );
    for (socket, endpoint) in &encrypted_endpoints {
        log::info!("event=listening_encrypted socket={socket} endpoint={endpoint}");
    }
    Ok(Transport {
        endpoints,
        encrypted: encrypted_endpoints,
        ingest: ingest_queue,
        control: control_queue,
        replies,
        publish,
        counters,
        running,
    })
}

impl Transport {
    /// Take no further message from peers, and no further connection but from subscribers. What was taken stays in the
    /// queues; when it has been read, `ingest` and `control` are disconnected. Replies and publications still go out.
    pub fn stop_receiving(&self) {
        self.running.advance(Phase::Draining);
    }

    /// The name of a thread that ended without a request (a bug in us or in `zeromq`): the daemon should
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
        let rank = |phase: &Phase| match phase {
            Phase::Running => 0,
            Phase::Draining => 1,
            Phase::Closing(_) => 2,
            Phase::Closed => 3,
        };
        self.phase.send_if_modified(|now| {
            let is_later = rank(&phase) > rank(now);
            if is_later {
                *now = phase;
            }
            is_later
        });
    }

    fn close(&mut self, deadline: Duration) {
        self.advance(Phase::Closing(Instant::now() + deadline));
        drop(self.closing.take());
        // A thread that panicked has said so; there is nothing to add.
        self.threads.drain(..).for_each(|t| drop(t.join()));
        let Err(_) = self.control_is_over.recv();
        self.advance(Phase::Closed);
        drop(self.gate.take().map(JoinHandle::join));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}
