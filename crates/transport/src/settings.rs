//! Where the transport listens, and how much it holds.

use super::Endpoint;
use super::SocketName;
use super::turns::Share;
use crate::access::Access;
#[cfg(feature = "curve")]
use crate::access::KnownClient;
#[cfg(feature = "curve")]
use crate::keys::SecretKey;
use std::time::Duration;

/// Messages of at most so many bytes pass whatever others make us hold: there is room for one of each connection.
pub const SHORT_BYTES: usize = 64 << 10;

/// Bytes of replies, and of publications, that wait for the threads in front of libzmq; one message may exceed each.
pub(super) const ENCRYPTED_BYTES: usize = 4 << 20;

/// What one peer, or all of them together, may cost.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerLimits {
    /// Longest message that is taken, all its frames together, in bytes. Each connection may make us hold one that it
    /// never finishes.
    pub message_bytes_max: usize,
    /// Longest frame that is taken in bytes; the announcement is believed only below it.
    pub frame_bytes_max: usize,
    /// Frames in one message.
    pub parts_max: usize,
    /// Connections of all sockets together. Each needs a descriptor, four where some are encrypted: [`super::start`] raises the
    /// process's limit on those as far as it may, and lowers this if that is too little.
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
    /// Bytes of messages longer than [`SHORT_BYTES`] that peers may have begun and not finished, all together: half of it on
    /// ingest, where they count until they are in the inbox, half on the other sockets, where that is not less than one message.
    pub unfinished_bytes_max: usize,
    /// Silence on a TCP connection before the kernel asks whether the other end is still there. It asks every
    /// fifth of that time and gives up after five questions.
    pub keepalive_idle: Duration,
    /// How long the kernel waits for bytes sent over TCP to be confirmed before it gives the connection up.
    pub unconfirmed_timeout: Duration,
}

impl Default for PeerLimits {
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
    pub limits: PeerLimits,
    /// Capacity of [`super::Transport::ingest`] in messages.
    pub inbox_messages: usize,
    /// Capacity of [`super::Transport::ingest`] in bytes; it may be exceeded by one message.
    pub inbox_bytes: usize,
    /// What may wait in [`super::Transport::control`].
    pub requests: Share,
    /// Capacity of each of [`super::Transport::replies`] and [`super::Transport::publish`] in bytes; it may be exceeded by
    /// one message of each thread that sends.
    pub outbox_bytes: usize,
    /// Capacity of [`super::Transport::replies`].
    pub replies: usize,
    /// Capacity of [`super::Transport::publish`].
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
            limits: PeerLimits::default(),
            inbox_messages: 1024,
            inbox_bytes: 2 << 20,
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
        let PeerLimits { message_bytes_max, connections_max, backlog_bytes_total_max, unfinished_bytes_max, .. } =
            self.limits;
        // Of each connection: a short message on its way in, what was read behind it, and short replies.
        let each = 3 * SHORT_BYTES;
        let inward = self.inbox_bytes + self.requests.total_bytes + unfinished_bytes_max.max(2 * message_bytes_max);
        let outward = backlog_bytes_total_max + 2 * self.outbox_bytes;
        // What waits there, and what their threads see room for at the same moment as those of the plain sockets.
        let encrypted = if cfg!(feature = "curve") { 2 * (ENCRYPTED_BYTES + 2 * message_bytes_max) } else { 0 };
        // Of the inbox, the requests and both kinds of long messages each may be exceeded by a message, and what waits for peers by one of
        // clients and one of subscribers.
        inward + outward + encrypted + connections_max * each + 6 * message_bytes_max
    }
}

/// The keys of the encrypted sockets.
#[cfg(feature = "curve")]
#[derive(Clone, Debug, PartialEq)]
pub struct CurveSettings {
    /// The daemon's own.
    pub secret_key: SecretKey,
    /// Who may come.
    pub clients: Vec<KnownClient>,
}
