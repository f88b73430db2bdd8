//! What happened on the sockets since the start, for metrics.

use super::SocketName;
use super::topics::Topics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises, or a level, written by the transport's threads. Clones are the same number.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }
}

criticd_protocol::named! {
    /// Why the gate refused or cut a peer, or how its connection broke.
    #[non_exhaustive]
    pub enum Reason {
        /// There are as many connections as there may be.
        TooManyConnections = "too_many_connections",
        /// There are as many from its address as there may be.
        TooManyFromAddress = "too_many_from_address",
        /// Its address, or its key, gives it no right to be there.
        Unauthorised = "unauthorised",
        /// Its handshake took too long.
        HandshakeTimeout = "handshake_timeout",
        /// Its handshake was too long.
        HandshakeTooLong = "handshake_too_long",
        /// It speaks another protocol.
        BadGreeting = "bad_greeting",
        /// It speaks a version before ZMTP 3.0.
        UnsupportedVersion = "unsupported_version",
        /// It wants another mechanism than NULL.
        UnsupportedMechanism = "unsupported_mechanism",
        /// Its READY is none.
        BadReady = "bad_ready",
        /// Its socket is of a type that does not go with ours.
        WrongSocketType = "wrong_socket_type",
        /// The identity it gave itself is too long.
        IdentityTooLong = "identity_too_long",
        /// A connected peer has that identity.
        IdentityInUse = "identity_in_use",
        /// It gave itself an identity on the encrypted control socket, where libzmq could not keep it from being taken over.
        NamedItself = "named_itself",
        /// A frame is, or announces itself as, too long.
        FrameTooLarge = "frame_too_large",
        /// The frames of a message are too long together.
        MessageTooLarge = "message_too_large",
        /// A message has too many frames.
        TooManyParts = "too_many_parts",
        /// A frame's flags have bits that no version has.
        ReservedFlags = "reserved_flags",
        /// A command is malformed.
        BadCommand = "bad_command",
        /// A subscriber sent what is no subscription.
        BadSubscription = "bad_subscription",
        /// A subscriber has as many topics as it may have.
        TooManySubscriptions = "too_many_subscriptions",
        /// It accepted no byte for too long, or left a long message unfinished while others waited to begin one.
        Stalled = "stalled",
        /// It was behind for too long.
        Saturated = "saturated",
        /// Nothing came from it and nothing went to it for too long.
        Idle = "idle",
        /// The socket behind the gate, which encrypted connections have, could not be reached.
        Internal = "internal",
        /// A producer's connection was reset, or the network carried it no longer: what it had sent and we had not received is gone.
        Reset = "reset",
        /// A producer's connection ended within a message.
        MidMessage = "mid_message",
    }
}

impl Reason {
    /// How connections of producers break, by their own side or on the way: rows that were sent may be lost then.
    pub const BROKEN: [Self; 2] = [Self::Reset, Self::MidMessage];
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
    /// Bytes that wait for peers now.
    pub backlog_bytes: Count,
    /// Messages that were meant for a peer and dropped because its backlog was full.
    pub backlog_dropped: Count,
    pub(super) cut: [Count; Reason::ALL.len()],
}

impl SocketCounters {
    /// Peers refused or cut for `reason`, or whose connection broke so.
    pub fn cut(&self, reason: Reason) -> u64 {
        self.cut[reason as usize].get()
    }

    /// Connections that broke, by how; those that never happened are left out.
    pub fn broken(&self) -> BTreeMap<String, u64> {
        let counts = Reason::BROKEN.map(|reason| (reason.name().to_owned(), self.cut(reason)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// Bytes that wait now in the transport's own queues. What waits for peers is in [`SocketCounters::backlog_bytes`].
#[derive(Debug, Default)]
pub struct Queued {
    /// Messages of producers that are in their queue and the daemon has not taken.
    pub ingest: Count,
    /// Requests that the daemon has not taken, with what each counts beside its message.
    pub requests: Count,
    /// Messages longer than a short one that are not whole, as long as they say they are; those of producers until they are in
    /// [`Queued::ingest`].
    pub unfinished: Count,
    /// Replies that the gate has not taken.
    pub replies: Count,
    /// Publications that the gate has not taken.
    pub publications: Count,
}

impl Queued {
    /// Each queue with its name.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("ingest", self.ingest.get()),
            ("requests", self.requests.get()),
            ("unfinished", self.unfinished.get()),
            ("replies", self.replies.get()),
            ("publications", self.publications.get()),
        ]
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
    /// Messages handed to [`super::Transport::ingest`].
    pub ingest_messages: Count,
    /// Messages on ingest that were dropped because they had more than one frame.
    pub ingest_malformed: Count,
    /// Requests answered at once, or handed to [`super::Transport::control`].
    pub requests: Count,
    /// Messages on control that were dropped because their frames were not a request.
    pub control_malformed: Count,
    /// Replies put behind what waits for their client.
    pub replies_sent: Count,
    /// Replies dropped because their client had left, or libzmq had no room. Those for which the gate had none are in
    /// `control.backlog_dropped`.
    pub replies_dropped: Count,
    /// Publications put behind what waits for each subscriber that asked for them.
    pub publications_sent: Count,
    /// Failures to accept a connection, for want of descriptors mostly.
    pub accept_failed: Count,
    /// What waits now.
    pub queued: Queued,
    /// Subscriptions there are now.
    pub topics: Topics,
}

impl Counters {
    /// The counters of one socket.
    pub fn socket(&self, name: SocketName) -> &SocketCounters {
        match name {
            SocketName::Ingest => &self.ingest,
            SocketName::Control => &self.control,
            SocketName::Publish => &self.publish,
        }
    }
}
