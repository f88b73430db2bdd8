//! What connections may cost all together: their number, their addresses and identities, and the bytes that they make us hold.

use super::turns::Watch;
use super::under_way::{ConnectionShare, UnderWay};
use super::{
    CONNECTION_BITS, Counters, PeerLimits, Reason, Request, SHORT_BYTES, SocketName, peer_number, plain_number,
};
use crate::access::{Access, Rights};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;
/// Both halves of a peer's stream.
pub(super) type Streams = (Reader, Writer);

/// A log line about peers at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Numbers of addresses. Two that have one number, since so many others came in between, share their turns.
const ADDRESSES: u64 = 1 << 15;

/// Descriptors of an encrypted connection: the peer's stream, both ends of the one behind the gate, and one at which libzmq listens for
/// it. A plain one has the peer's stream alone.
const DESCRIPTORS_ENCRYPTED: u64 = 4;

/// Descriptors left for everything else in the process.
const DESCRIPTORS_RESERVED: u64 = 128;

/// Connections without which a daemon is of no use: those of a producer, a subscriber, an operator, and their libraries' second ones.
const CONNECTIONS_LEAST: u64 = 8;

/// Open files that a process must be allowed.
pub const DESCRIPTORS_MIN: u64 = DESCRIPTORS_RESERVED + CONNECTIONS_LEAST * DESCRIPTORS_ENCRYPTED;

/// Connections in the midst of a long message that go on between two turns of all others of their thread.
const LONG_TURNS: usize = 4;

/// What all connections share.
pub(super) struct Gate {
    pub(super) access: Access,
    pub(super) limits: PeerLimits,
    pub(super) counters: Arc<Counters>,
    /// What waits of clients.
    pub(super) requests: Watch<Request>,
    register: Mutex<Register>,
    /// Long messages that have been begun, by [`Gate::under_way`].
    under_way: [Mutex<UnderWay>; 2],
    /// By [`Gate::long_turns`].
    long_turns: [Semaphore; 2],
    next_connection: AtomicU64,
}

/// Bytes for which there is room now, beside what waits for all peers.
pub(super) fn room(limits: &PeerLimits, counters: &Counters) -> u64 {
    let sockets = [&counters.ingest, &counters.control, &counters.publish];
    let total: u64 = sockets.iter().map(|s| s.backlog_bytes.get()).sum();
    (limits.backlog_bytes_total_max as u64).saturating_sub(total)
}

/// Whether a message of so many bytes may be put behind as many as wait for a peer: while it is not far behind, and there is room or it
/// has no more than a short message then.
pub(super) fn has_room(limits: &PeerLimits, counters: &Counters, waiting: u64, bytes: u64) -> bool {
    let is_short = waiting.saturating_add(bytes) <= SHORT_BYTES as u64;
    waiting < limits.backlog_bytes_max as u64 && (is_short || bytes <= room(limits, counters))
}

#[derive(Default)]
struct Register {
    connections: usize,
    by_address: HashMap<IpAddr, FromAddress>,
    /// Addresses that have come; one that comes again is another.
    addresses: u64,
    /// Identities that connected peers gave themselves, by socket.
    identities: HashSet<(SocketName, Vec<u8>)>,
    last_log: Option<Instant>,
    unlogged: u64,
}

/// The connections of one address.
struct FromAddress {
    connections: usize,
    /// Number of the address, below [`ADDRESSES`].
    number: u64,
}

impl Gate {
    /// A gate with no connections.
    pub(super) fn new(access: Access, limits: PeerLimits, requests: Watch<Request>, counters: Arc<Counters>) -> Self {
        Self {
            access,
            limits,
            counters,
            requests,
            register: Mutex::new(Register::default()),
            under_way: Default::default(),
            long_turns: [(); 2].map(|()| Semaphore::new(LONG_TURNS)),
            next_connection: AtomicU64::new(1),
        }
    }

    /// Count a peer that is refused or cut, and say so at a bounded rate.
    pub(super) fn count_cut(&self, socket: SocketName, connection: u64, address: Option<IpAddr>, reason: Reason) {
        let Some(unlogged) = self.count(socket, reason) else { return };
        let (reason, peer) = (reason.name(), shown(address));
        log::warn!(
            "event=peer_disconnected socket={socket} reason={reason} connection={connection} peer={peer} unlogged={unlogged}"
        );
    }

    /// Count the end of a connection. Whether it may be logged, as with [`Gate::may_log`].
    fn count(&self, socket: SocketName, reason: Reason) -> Option<u64> {
        self.counters.socket(socket).cut[reason as usize].add(1);
        self.may_log()
    }

    /// Count a connection that could not be accepted, and say so at a bounded rate.
    pub(super) fn count_accept_failed(&self, socket: SocketName, error: &io::Error) {
        self.counters.accept_failed.add(1);
        if let Some(unlogged) = self.may_log() {
            log::warn!("event=accept_failed socket={socket} error={error:?} unlogged={unlogged}");
        }
    }

    /// Whether a line about peers may be logged now, and if so how many were left out since the last.
    fn may_log(&self) -> Option<u64> {
        let mut register = self.register.lock();
        if register.last_log.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            register.unlogged += 1;
            return None;
        }
        register.last_log = Some(Instant::now());
        Some(std::mem::take(&mut register.unlogged))
    }

    /// Long messages that have been begun: those of producers, who may have to wait for the learner, count apart from the others, so
    /// that requests go on meanwhile. They count until they have been taken, those of others until they are whole.
    fn under_way(&self, socket: SocketName) -> MutexGuard<'_, UnderWay> {
        self.under_way[usize::from(socket == SocketName::Ingest)].lock()
    }

    /// Turns of connections in the midst of a long message: a short message waits for a few of these, however many there are. Each of
    /// the gate's threads has its own.
    pub(super) fn long_turns(&self, socket: SocketName) -> &Semaphore {
        &self.long_turns[usize::from(socket == SocketName::Publish)]
    }

    /// The most bytes that either of the two may have: no message is too long for it.
    fn under_way_max(&self) -> u64 {
        (self.limits.unfinished_bytes_max / 2).max(self.limits.message_bytes_max) as u64
    }

    /// Whether so many bytes more of long messages of one connection may be begun; they are counted then. Else it waits for its turn.
    /// What it has itself of that message does not count against it: one message of one connection may always be begun, of a producer
    /// once all before it have been taken.
    pub(super) fn begin(&self, socket: SocketName, part: &mut ConnectionShare, bytes: u64) -> bool {
        let behind_requests = socket != SocketName::Ingest && self.requests.is_full();
        let most = if behind_requests { 0 } else { self.under_way_max() };
        let begins = self.under_way(socket).begin(part, bytes, most);
        if begins {
            self.counters.queued.unfinished.add(bytes);
        }
        begins
    }

    /// All but so many bytes of what a connection has begun are whole, or come no more.
    pub(super) fn end(&self, socket: SocketName, part: &mut ConnectionShare, left: u64) {
        if part.bytes() > left {
            let gone = self.under_way(socket).end(part, left);
            self.counters.queued.unfinished.subtract(gone);
        }
    }

    /// What a connection has begun is whole, and stays counted until there is room for it.
    pub(super) fn pass(&self, socket: SocketName, part: &mut ConnectionShare) {
        if part.bytes() > 0 {
            self.under_way(socket).pass(part);
        }
    }

    /// A connection waits no longer for room, or never did.
    pub(super) fn leave(&self, socket: SocketName, part: &mut ConnectionShare) {
        if part.waits() {
            self.under_way(socket).leave(part);
        }
    }

    /// Ready when a connection that waits for room should ask for it again; its task is woken then.
    pub(super) fn poll_call(&self, socket: SocketName, part: &ConnectionShare, cx: &mut Context<'_>) -> Poll<()> {
        self.under_way(socket).poll_call(part, cx)
    }

    /// Whether one that waits needs the room that others have.
    pub(super) fn lacks_room(&self, socket: SocketName) -> bool {
        self.under_way(socket).lacks_room(self.under_way_max())
    }
}

/// A connection's place among the limited ones; given back when this is dropped.
pub(super) struct ConnectionPermit {
    pub(super) gate: Arc<Gate>,
    pub(super) socket: SocketName,
    /// Number of the connection, and above it that of its address.
    connection: u64,
    address: Option<IpAddr>,
    rights: Rights,
    identity: Option<Vec<u8>>,
}

impl ConnectionPermit {
    pub(super) fn take(
        gate: &Arc<Gate>,
        socket: SocketName,
        address: Option<IpAddr>,
        rights: Rights,
    ) -> Result<Self, Reason> {
        if !rights.has_any(socket.needs()) {
            return Err(Reason::Unauthorised);
        }
        let mut register = gate.register.lock();
        if register.connections >= gate.limits.connections_max {
            return Err(Reason::TooManyConnections);
        }
        let mut number = 0;
        if let Some(address) = address {
            // Number 0 is that of local sockets.
            let next = register.addresses % (ADDRESSES - 1) + 1;
            let new = FromAddress { connections: 0, number: next };
            let from_address = register.by_address.entry(address).or_insert(new);
            if from_address.connections >= gate.limits.connections_per_address_max {
                return Err(Reason::TooManyFromAddress);
            }
            from_address.connections += 1;
            number = from_address.number;
            register.addresses += u64::from(number == next);
        }
        register.connections += 1;
        drop(register);
        gate.counters.socket(socket).connections.add(1);
        gate.counters.socket(socket).accepted.add(1);
        let connection = gate.next_connection.fetch_add(1, Ordering::Relaxed) | number << CONNECTION_BITS;
        Ok(Self { gate: Arc::clone(gate), socket, connection, address, rights, identity: None })
    }

    /// What the daemon calls the connection.
    pub(super) fn number(&self) -> u64 {
        peer_number(self.connection, self.rights)
    }

    /// The number of the connection, and above it that of its address.
    #[cfg(feature = "curve")]
    pub(super) fn connection(&self) -> u64 {
        self.connection
    }

    /// Reserve the identity that the peer gave itself; an empty one is none.
    pub(super) fn claim(&mut self, identity: Vec<u8>) -> Result<(), Reason> {
        if identity.is_empty() {
            return Ok(());
        }
        if identity.len() > self.gate.limits.identity_bytes_max {
            return Err(Reason::IdentityTooLong);
        }
        if !self.gate.register.lock().identities.insert((self.socket, identity.clone())) {
            return Err(Reason::IdentityInUse);
        }
        self.identity = Some(identity);
        Ok(())
    }

    /// The peer has left or was cut: it, or another, may come again under its identity.
    pub(super) fn release_identity(&mut self) {
        if let Some(identity) = self.identity.take() {
            self.gate.register.lock().identities.remove(&(self.socket, identity));
        }
    }

    pub(super) fn count_cut(&self, reason: Reason) {
        self.gate.count_cut(self.socket, plain_number(self.connection), self.address, reason);
    }

    /// The peer sends nothing more, after so many whole messages and so many bytes of one that is not. If that is a producer of
    /// which something may be lost, count it and say so. Clients and subscribers are missing an answer then, and know.
    pub(super) fn count_end(&self, is_reset: bool, messages: u64, begun: Option<u64>) {
        let reason = match begun {
            // What was written to a local socket has come, however its connection ends.
            _ if is_reset && self.address.is_some() => Reason::Reset,
            Some(_) => Reason::MidMessage,
            None => return,
        };
        if self.socket != SocketName::Ingest {
            return;
        }
        let Some(unlogged) = self.gate.count(self.socket, reason) else { return };
        let (reason, peer, connection) = (reason.name(), shown(self.address), plain_number(self.connection));
        let bytes = begun.unwrap_or(0);
        log::warn!(
            "event=connection_broken socket=ingest reason={reason} connection={connection} peer={peer} messages={messages} \
             bytes_of_next={bytes} unlogged={unlogged}"
        );
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.release_identity();
        self.gate.counters.socket(self.socket).connections.subtract(1);
        let mut register = self.gate.register.lock();
        register.connections -= 1;
        let Some(address) = self.address else { return };
        if let Some(from_address) = register.by_address.get_mut(&address) {
            from_address.connections -= 1;
            if from_address.connections == 0 {
                register.by_address.remove(&address);
            }
        }
    }
}

/// Whether writing has failed because the connection broke, and not because the peer has closed in good order.
pub(super) fn is_reset(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::BrokenPipe
}

/// A peer's address in log lines.
fn shown(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "ipc".to_owned(), |address| address.to_string())
}

/// Raise the limit on open descriptors to what `wanted` connections need, or give the number that it allows. They may be encrypted,
/// where that is so.
pub(super) fn affordable_connections(wanted: usize, encrypted: bool) -> usize {
    let each = if encrypted { DESCRIPTORS_ENCRYPTED } else { 1 };
    let needed = DESCRIPTORS_RESERVED + wanted as u64 * each;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(mut allowed) = current.filter(|&current| current < needed) else {
        return wanted;
    };
    let raised = maximum.map_or(needed, |maximum| needed.min(maximum));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok() {
        allowed = raised;
    }
    let affordable = allowed.saturating_sub(DESCRIPTORS_RESERVED) / each;
    let affordable = usize::try_from(affordable).unwrap_or(usize::MAX).clamp(1, wanted.max(1));
    if affordable < wanted {
        log::warn!("event=few_descriptors allowed={allowed} connections_max={affordable} wanted={wanted}");
    }
    affordable
}

#[cfg(test)]
mod tests {
    use super::super::turns::{Share, turns};
    use super::*;

    #[test]
    fn no_message_is_too_long_for_its_bound() {
        let limits = PeerLimits { message_bytes_max: 5 << 20, unfinished_bytes_max: 4 << 20, ..PeerLimits::default() };
        let (entrance, _turns) = turns(Share { peer_bytes: 1 << 20, total_bytes: 1 << 20 });
        let counters: Arc<Counters> = Arc::default();
        let gate = Gate::new(Access::default(), limits, Watch::clone(&entrance), Arc::clone(&counters));
        let (mut one, mut other, bytes) = (ConnectionShare::default(), ConnectionShare::default(), 5 << 20);
        let control = SocketName::Control;
        assert!(gate.begin(control, &mut one, bytes) && !gate.begin(control, &mut other, bytes));
        assert!(gate.lacks_room(control) && !gate.lacks_room(SocketName::Ingest));
        gate.end(control, &mut one, 0);
        assert!(gate.begin(control, &mut other, bytes) && !gate.lacks_room(control));
        assert_eq!((counters.queued.unfinished.get(), other.waits()), (bytes, false));
    }
}
