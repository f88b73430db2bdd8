//! What stands in front of the sockets: the public listeners, and for each connection a link that checks and pipes.
//!
//! One thread with a runtime of its own, so that it goes on while a socket behind it waits; only the control socket,
//! which never waits for a peer, shares it. A link is a small state
//! machine over four halves of streams:
//!
//! ```text
//! peer -- read --> Scanner -- up -----> write --> socket behind        read only when `up` is empty: back-pressure
//! peer <- write -- down <---- Filter <- read  --- socket behind        always read: the queue behind stays short
//! ```
//!
//! The gate shakes hands with both sides by itself. To the ROUTER it introduces every connection under a number of its
//! own, whatever identity the peer has.

#[cfg(feature = "curve")]
use super::curve;
use super::endpoint::{Listener, SocketFile};
use super::turns::Watch;
use super::zmq::{connection_identity, spawn};
use super::zmtp::{self, Filter, Introduced, Introduction, Room, Scanner};
use super::{Counters, Limits, Phase, Reason, Request, SHORT_BYTES, SocketName, StartError, peer_number};
use crate::access::{Access, Rights};
use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::Sleep;

pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Bytes taken from a stream at once; on the stack, so an idle connection holds none.
const CHUNK: usize = 64 << 10;

/// Bytes that a link moves before others have their turn.
const TURN_BYTES: usize = CHUNK;

/// Commands that a peer may send in a second; beyond that it is read no further until the second is over.
const COMMANDS_PER_SECOND: u32 = 50_000;

/// A buffer that is empty gives memory beyond this back, in bytes.
const IDLE_CAPACITY: usize = 16 << 10;

/// How often a link with bytes waiting looks at the time.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Pause after a connection could not be accepted: without descriptors the listener stays ready.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A log line about peers at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Descriptors of one connection: the peer's stream, and both ends of the one behind the gate.
const DESCRIPTORS_PER_CONNECTION: u64 = 3;

/// Descriptors left for everything else in the process.
const DESCRIPTORS_RESERVED: u64 = 128;

/// A public listener and the path of the socket behind it, for each socket.
pub(super) struct Listeners {
    pub(super) ingest: (Listener, PathBuf),
    pub(super) control: (Listener, PathBuf),
    pub(super) publish: (Listener, PathBuf),
    /// Encrypted ones, and what is behind them.
    #[cfg(feature = "curve")]
    pub(super) curve: Vec<(SocketName, Listener, curve::CurveListener)>,
}

/// Start the gate's thread, which runs `runtime`, and on it `control`, the socket behind that door.
#[expect(clippy::too_many_arguments, reason = "each is one end of a channel, and there is one caller")]
pub(super) fn start(
    runtime: Runtime,
    control: impl Future<Output = ()> + Send + 'static,
    doors: Listeners,
    access: Access,
    mut limits: Limits,
    requests: Watch<Request>,
    counters: Arc<Counters>,
    phase: watch::Receiver<Phase>,
) -> Result<JoinHandle<()>, StartError> {
    limits.connections_max = affordable_connections(limits.connections_max);
    let gate = Arc::new(Gate {
        access,
        limits,
        requests,
        counters,
        register: Mutex::new(Register::default()),
        unfinished: AtomicU64::new(0),
        next_connection: AtomicU64::new(1),
    });
    let doors = {
        let _context = runtime.enter();
        let plain = [
            (SocketName::Ingest, doors.ingest),
            (SocketName::Control, doors.control),
            (SocketName::Publish, doors.publish),
        ];
        let open = plain.map(|(socket, (listener, path))| Door::open(socket, listener, Behind::Plain(path)));
        #[cfg(feature = "curve")]
        let open = open.into_iter().chain(
            doors.curve.into_iter().map(|(socket, listener, front)| Door::open(socket, listener, Behind::Curve(front))),
        );
        open.into_iter().collect::<io::Result<Vec<_>>>().map_err(StartError::internal("public listener"))?
    };
    spawn("criticd-gate", move || {
        runtime.block_on(async {
            let mut closed = phase.clone();
            for door in doors {
                tokio::spawn(door.accept_all(Arc::clone(&gate), phase.clone()));
            }
            // A task, which wakes itself without a call to the system.
            if let Err(ended) = tokio::spawn(control).await {
                std::panic::resume_unwind(ended.into_panic());
            }
            // The other end only goes away with the transport.
            let _ = closed.wait_for(|p| *p == Phase::Closed).await;
        });
        // Dropping the runtime closes every connection.
    })
}

/// Raise the limit on open descriptors to what `wanted` connections need, or give the number that it allows.
fn affordable_connections(wanted: usize) -> usize {
    let needed = DESCRIPTORS_RESERVED + wanted as u64 * DESCRIPTORS_PER_CONNECTION;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(mut allowed) = current.filter(|&current| current < needed) else {
        return wanted;
    };
    let raised = maximum.map_or(needed, |maximum| needed.min(maximum));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok() {
        allowed = raised;
    }
    let affordable = allowed.saturating_sub(DESCRIPTORS_RESERVED) / DESCRIPTORS_PER_CONNECTION;
    let affordable = usize::try_from(affordable).unwrap_or(usize::MAX).clamp(1, wanted.max(1));
    if affordable < wanted {
        log::warn!("event=few_descriptors allowed={allowed} connections_max={affordable} wanted={wanted}");
    }
    affordable
}

/// What all connections share.
struct Gate {
    access: Access,
    limits: Limits,
    counters: Arc<Counters>,
    /// What waits of clients.
    requests: Watch<Request>,
    register: Mutex<Register>,
    /// Bytes of long messages that have been begun.
    unfinished: AtomicU64,
    next_connection: AtomicU64,
}

#[derive(Default)]
struct Register {
    connections: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Identities that connected peers gave themselves, by socket.
    identities: HashSet<(SocketName, Vec<u8>)>,
    last_log: Option<Instant>,
    unlogged: u64,
}

impl Gate {
    /// Count a peer that is refused or cut, and say so at a bounded rate.
    fn count_cut(&self, socket: SocketName, connection: u64, address: Option<IpAddr>, reason: Reason) {
        self.counters.socket(socket).cut[reason as usize].add(1);
        let Some(unlogged) = self.may_log() else { return };
        let address = address.map_or_else(|| "ipc".to_owned(), |a| a.to_string());
        let reason = reason.name();
        log::warn!(
            "event=peer_disconnected socket={socket} reason={reason} connection={connection} peer={address} unlogged={unlogged}"
        );
    }

    /// Count a connection that could not be accepted, and say so at a bounded rate.
    fn count_accept_failed(&self, socket: SocketName, error: &io::Error) {
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

    /// What may wait for one peer now, beside what waits for others.
    fn room(&self) -> Room {
        let sockets = [&self.counters.ingest, &self.counters.control, &self.counters.publish];
        let total: u64 = sockets.iter().map(|s| s.backlog_bytes.get()).sum();
        let left = (self.limits.backlog_bytes_total_max as u64).saturating_sub(total);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Room { backlog: self.limits.backlog_bytes_max, long: left, short: SHORT_BYTES }
    }

    /// Whether so many bytes more of long messages may be begun; they are counted then. One may always be, however long.
    fn begin(&self, bytes: u64) -> bool {
        let before = self.unfinished.load(Ordering::Relaxed);
        let fits = before == 0 || before + bytes <= self.limits.unfinished_bytes_max as u64;
        let begins = fits && (before == 0 || !self.requests.is_full());
        if begins {
            self.unfinished.fetch_add(bytes, Ordering::Relaxed);
        }
        begins
    }
}

/// A connection's place among the limited ones; given back when this is dropped.
pub(super) struct ConnectionPermit {
    gate: Arc<Gate>,
    socket: SocketName,
    connection: u64,
    address: Option<IpAddr>,
    rights: Rights,
    identity: Option<Vec<u8>>,
}

impl ConnectionPermit {
    fn take(gate: &Arc<Gate>, socket: SocketName, address: Option<IpAddr>, rights: Rights) -> Result<Self, Reason> {
        if !rights.has_any(socket.needs()) {
            return Err(Reason::Unauthorised);
        }
        let mut register = gate.register.lock();
        if register.connections >= gate.limits.connections_max {
            return Err(Reason::TooManyConnections);
        }
        if let Some(address) = address {
            let from_address = register.by_address.entry(address).or_insert(0);
            if *from_address >= gate.limits.connections_per_address_max {
                return Err(Reason::TooManyFromAddress);
            }
            *from_address += 1;
        }
        register.connections += 1;
        drop(register);
        gate.counters.socket(socket).connections.add(1);
        gate.counters.socket(socket).accepted.add(1);
        let connection = gate.next_connection.fetch_add(1, Ordering::Relaxed);
        Ok(Self { gate: Arc::clone(gate), socket, connection, address, rights, identity: None })
    }

    /// The number of the connection.
    #[cfg(feature = "curve")]
    pub(super) fn connection(&self) -> u64 {
        self.connection
    }

    /// Reserve the identity that the peer gave itself; an empty one is none.
    fn claim(&mut self, identity: Vec<u8>) -> Result<(), Reason> {
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
    fn release_identity(&mut self) {
        if let Some(identity) = self.identity.take() {
            self.gate.register.lock().identities.remove(&(self.socket, identity));
        }
    }

    fn count_cut(&self, reason: Reason) {
        self.gate.count_cut(self.socket, self.connection, self.address, reason);
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
            *from_address -= 1;
            if *from_address == 0 {
                register.by_address.remove(&address);
            }
        }
    }
}

/// A public listener in the gate's runtime.
enum DoorListener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

/// What connections are piped to.
#[derive(Clone)]
enum Behind {
    /// A socket of the crate, at this path.
    Plain(PathBuf),
    /// One of libzmq's.
    #[cfg(feature = "curve")]
    Curve(curve::CurveListener),
}

/// One socket's public listener, and the way to what is behind it.
struct Door {
    socket: SocketName,
    listener: DoorListener,
    _file: Option<SocketFile>,
    behind: Behind,
}

impl Door {
    fn open(socket: SocketName, listener: Listener, behind: Behind) -> io::Result<Self> {
        let (listener, file) = match listener {
            Listener::Tcp(listener) => (DoorListener::Tcp(TcpListener::from_std(listener)?), None),
            Listener::Ipc(listener, file) => (DoorListener::Ipc(UnixListener::from_std(listener)?), Some(file)),
        };
        Ok(Self { socket, listener, _file: file, behind })
    }

    /// Accept connections until the transport takes nothing more from the peers of this socket.
    async fn accept_all(self, gate: Arc<Gate>, mut phase: watch::Receiver<Phase>) {
        let is_over = |p: &Phase| match self.socket {
            SocketName::Ingest | SocketName::Control => *p != Phase::Running,
            SocketName::Publish => matches!(p, Phase::Closing(_) | Phase::Closed),
        };
        loop {
            let accepted = tokio::select! {
                _ = phase.wait_for(is_over) => return,
                accepted = self.accept(&gate.limits) => accepted,
            };
            match accepted {
                Ok((reader, writer, address)) => self.admit(&gate, &phase, reader, writer, address),
                Err(error) => {
                    gate.count_accept_failed(self.socket, &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self, limits: &Limits) -> io::Result<(Reader, Writer, Option<IpAddr>)> {
        match &self.listener {
            DoorListener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A connection that is gone already fails here; its link finds out by itself.
                if let Err(error) = prepare(&stream, limits) {
                    log::debug!("event=socket_option_failed socket={} error={error:?}", self.socket);
                }
                let (reader, writer) = stream.into_split();
                Ok((Box::new(reader), Box::new(writer), Some(address.ip())))
            }
            DoorListener::Ipc(listener) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                Ok((Box::new(reader), Box::new(writer), None))
            }
        }
    }

    fn admit(
        &self,
        gate: &Arc<Gate>,
        phase: &watch::Receiver<Phase>,
        reader: Reader,
        writer: Writer,
        address: Option<IpAddr>,
    ) {
        let rights = match &self.behind {
            Behind::Plain(_) => gate.access.rights(address),
            // Its key will tell.
            #[cfg(feature = "curve")]
            Behind::Curve(_) => Rights::ALL,
        };
        match ConnectionPermit::take(gate, self.socket, address, rights) {
            Ok(seat) => drop(tokio::spawn(serve(seat, reader, writer, self.behind.clone(), phase.clone()))),
            Err(reason) => gate.count_cut(self.socket, 0, address, reason),
        }
    }
}

fn prepare(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(limits.keepalive_idle)
        .with_interval((limits.keepalive_idle / 5).max(Duration::from_secs(1)))
        .with_retries(5);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(limits.unconfirmed_timeout))?;
    Ok(())
}

/// One connection, from its greeting to its end.
async fn serve(
    mut seat: ConnectionPermit,
    mut reader: Reader,
    mut writer: Writer,
    behind: Behind,
    phase: watch::Receiver<Phase>,
) {
    #[cfg_attr(not(feature = "curve"), expect(clippy::infallible_destructuring_match, reason = "there is one kind"))]
    let path = match behind {
        Behind::Plain(path) => path,
        #[cfg(feature = "curve")]
        Behind::Curve(front) => {
            let reason = front.serve(&seat, reader, writer).await;
            reason.into_iter().for_each(|reason| seat.count_cut(reason));
            return;
        }
    };
    let timeout = seat.gate.limits.handshake_timeout;
    let handshake = tokio::time::timeout(timeout, shake_hands(&mut seat, &mut reader, &mut writer));
    let peer = match handshake.await.unwrap_or(Err(Some(Reason::HandshakeTimeout))) {
        Ok(peer) => peer,
        Err(reason) => {
            reason.into_iter().for_each(|reason| seat.count_cut(reason));
            return;
        }
    };
    let Ok(inner) = UnixStream::connect(&path).await else {
        if *phase.borrow() == Phase::Running {
            seat.count_cut(Reason::Internal);
        }
        return;
    };
    let mut link = Link::new(seat, reader, writer, inner, phase, peer.knows_pong);
    link.pass_up(&peer.read_ahead);
    while !link.is_over() {
        poll_fn(|cx| link.poll_step(cx)).await;
        if link.moved >= TURN_BYTES {
            link.moved = 0;
            // A peer that always has something for us is not the only one.
            tokio::task::yield_now().await;
        }
    }
}

/// What a socket behind the gate is called, what the gate calls itself towards it, and which peers may come.
fn socket_types(socket: SocketName) -> (&'static str, &'static str, &'static [&'static [u8]]) {
    match socket {
        SocketName::Ingest => ("PULL", "PUSH", &[b"PUSH"]),
        SocketName::Control => ("ROUTER", "DEALER", &[b"DEALER", b"REQ"]),
        SocketName::Publish => ("PUB", "SUB", &[b"SUB"]),
    }
}

/// What a handshake tells beside the identity.
struct Peer {
    /// What it sent beyond its READY.
    read_ahead: BytesMut,
    knows_pong: bool,
}

/// Exchange greeting and READY with the peer. An error without a reason: it left.
async fn shake_hands(
    seat: &mut ConnectionPermit,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<Peer, Option<Reason>> {
    let (own_type, _, peer_types) = socket_types(seat.socket);
    let mut introduction = Introduction::new(&seat.gate.limits);
    let mut bytes = BytesMut::new();
    // Old and new libzmq both wait for the beginning of ours before they go on.
    writer.write_all(&zmtp::greeting(1)).await.map_err(|_| None)?;
    let ready = loop {
        match introduction.take(&mut bytes)? {
            Some(Introduced::Greeting) => writer.write_all(&zmtp::ready(own_type, b"")).await.map_err(|_| None)?,
            Some(Introduced::Ready(ready)) => break ready,
            None => read_more(seat, reader, &mut bytes).await?,
        }
    };
    if !peer_types.contains(&&ready.socket_type[..]) {
        return Err(Some(Reason::WrongSocketType));
    }
    seat.claim(ready.identity)?;
    Ok(Peer { read_ahead: bytes, knows_pong: introduction.knows_pong == Some(true) })
}

/// Read a small piece: most of what a peer sends beyond its READY stays in the kernel, and a handshake holds hardly more
/// than it may have.
async fn read_more(seat: &ConnectionPermit, reader: &mut Reader, bytes: &mut BytesMut) -> Result<(), Option<Reason>> {
    let mut chunk = [0; 512];
    let n = reader.read(&mut chunk).await.map_err(|_| None)?;
    if n == 0 {
        return Err(None);
    }
    seat.gate.counters.socket(seat.socket).bytes_in.add(n as u64);
    bytes.extend_from_slice(&chunk[..n]);
    Ok(())
}

/// A connection after its handshake. It outlives its peer until the socket behind has read all that the peer sent.
struct Link {
    seat: ConnectionPermit,
    phase: watch::Receiver<Phase>,
    /// `None` once the peer sends nothing more, or is cut.
    reader: Option<Reader>,
    /// `None` once the peer takes nothing more, or is cut.
    writer: Option<Writer>,
    inner_reader: Reader,
    inner_writer: Writer,
    inner_is_shut: bool,
    inner_is_gone: bool,
    scanner: Scanner,
    filter: Filter,
    /// Checked bytes for the socket behind; the peer is read only while there are none.
    up: BytesMut,
    /// Bytes for the peer.
    down: BytesMut,
    /// As much of `down`, and of what has begun to come for it, as is in the counters.
    down_counted: u64,
    /// When `down` last stopped being empty, if it is not.
    behind_since: Option<Instant>,
    /// When the peer last accepted a byte, or `down` last stopped being empty.
    last_progress: Instant,
    /// Runs while there is something to watch.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the peer last sent or accepted a byte.
    last_sign: Instant,
    /// Runs always, and looks at `last_sign`.
    idle_timer: Pin<Box<Sleep>>,
    /// Bytes read from the peer and from the socket behind since others had their turn.
    moved: usize,
    /// Bytes counted for a long message that has been begun, and since when it has been under way.
    begun: u64,
    begun_since: Instant,
    /// Whether the client is so far behind that it gets no turn.
    is_paused: bool,
    /// When the second began in which commands are counted, and how many there were before it.
    second: (Instant, u32),
}

impl Link {
    fn new(
        seat: ConnectionPermit,
        reader: Reader,
        writer: Writer,
        inner: UnixStream,
        phase: watch::Receiver<Phase>,
        knows_pong: bool,
    ) -> Self {
        let (_, own_type, _) = socket_types(seat.socket);
        let (inner_reader, inner_writer) = inner.into_split();
        let mut up = BytesMut::from(&zmtp::greeting(0)[..]);
        let identity = connection_identity(peer_number(seat.connection, seat.rights));
        up.extend_from_slice(&zmtp::ready(own_type, &identity));
        let scanner = Scanner::new(&seat.gate.limits, seat.socket == SocketName::Publish, knows_pong);
        let idle_timer = Box::pin(tokio::time::sleep(seat.gate.limits.idle_timeout));
        Self {
            seat,
            phase,
            reader: Some(reader),
            writer: Some(writer),
            inner_reader: Box::new(inner_reader),
            inner_writer: Box::new(inner_writer),
            inner_is_shut: false,
            inner_is_gone: false,
            scanner,
            filter: Filter::new(),
            up,
            down: BytesMut::new(),
            down_counted: 0,
            behind_since: None,
            last_progress: Instant::now(),
            timer: None,
            last_sign: Instant::now(),
            idle_timer,
            moved: 0,
            begun: 0,
            begun_since: Instant::now(),
            is_paused: false,
            second: (Instant::now(), 0),
        }
    }

    /// What the connection is called behind the gate.
    fn number(&self) -> u64 {
        peer_number(self.seat.connection, self.seat.rights)
    }

    /// Whether nothing is left to do: the socket behind is gone, and what it sent has been written or cannot be.
    fn is_over(&self) -> bool {
        self.inner_is_gone && (self.down.is_empty() || self.writer.is_none())
    }

    /// Move bytes in any direction; ready when something changed.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.place_pongs();
        let mut changed = self.poll_inner_write(cx).is_ready();
        changed |= self.poll_peer_read(cx).is_ready();
        changed |= self.poll_inner_read(cx).is_ready();
        self.place_pongs();
        self.note_backlog();
        changed |= self.poll_peer_write(cx).is_ready();
        self.note_backlog();
        changed |= self.poll_timer(cx).is_ready();
        changed |= self.poll_idle_timer(cx).is_ready();
        if changed { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Check bytes of the peer and pass them on, or cut it.
    fn pass_up(&mut self, bytes: &[u8]) {
        if let Err(reason) = self.scanner.scan(bytes, &mut self.up) {
            self.cut(reason);
        }
        self.count_begun();
    }

    /// Keep the bytes of long messages that have been begun in step with the one that is under way here. Whether there is room
    /// for it.
    fn count_begun(&mut self) -> bool {
        let wanted = match self.scanner.unfinished() {
            bytes if bytes > SHORT_BYTES as u64 && self.reader.is_some() => bytes,
            _ => 0,
        };
        if wanted < self.begun {
            self.seat.gate.unfinished.fetch_sub(self.begun - wanted, Ordering::Relaxed);
            self.begun = wanted;
        } else if wanted > self.begun && self.seat.gate.begin(wanted - self.begun) {
            if self.begun == 0 {
                self.begun_since = Instant::now();
            }
            self.begun = wanted;
        }
        wanted == self.begun
    }

    /// Close the peer's connection. What it sent before still goes to the socket behind.
    fn cut(&mut self, reason: Reason) {
        self.seat.count_cut(reason);
        self.reader = None;
        self.lose_writer();
    }

    fn lose_writer(&mut self) {
        self.writer = None;
        self.down = BytesMut::new();
        self.seat.release_identity();
        self.leave();
    }

    /// The peer takes no more answers: drop its requests.
    fn leave(&mut self) {
        if self.seat.socket == SocketName::Control {
            self.reader = None;
            self.seat.gate.requests.leave(self.number());
        }
    }

    /// Whether the peer must wait before more is read from it.
    fn is_held(&self) -> bool {
        let asks_too_much = self.seat.socket == SocketName::Control
            && (self.is_behind() || !self.seat.gate.requests.has_room(self.number()));
        let commands = self.scanner.commands.wrapping_sub(self.second.1);
        let is_noise = commands > COMMANDS_PER_SECOND && self.second.0.elapsed() < Duration::from_secs(1);
        let has_no_room = self.scanner.unfinished() > self.begun.max(SHORT_BYTES as u64);
        !self.up.is_empty() || asks_too_much || is_noise || has_no_room
    }

    /// Whether a client has as many answers waiting that it should read some first.
    fn is_behind(&self) -> bool {
        self.down.len() >= self.seat.gate.limits.backlog_bytes_max / 2
    }

    fn poll_peer_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.count_begun() || self.is_held() {
            if self.seat.socket == SocketName::Control {
                // Woken when there is room for more of its requests.
                let _ = self.seat.gate.requests.poll_room(self.number(), cx);
            }
            return Poll::Pending;
        }
        if self.second.0.elapsed() >= Duration::from_secs(1) {
            self.second = (Instant::now(), self.scanner.commands);
        }
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let mut storage = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(&mut storage);
        let read = ready!(Pin::new(reader).poll_read(cx, &mut chunk));
        if read.is_err() {
            self.lose_writer();
        }
        if read.is_err() || chunk.filled().is_empty() {
            self.reader = None;
            self.seat.release_identity();
        } else {
            self.seat.gate.counters.socket(self.seat.socket).bytes_in.add(chunk.filled().len() as u64);
            self.last_sign = Instant::now();
            self.moved += chunk.filled().len();
            self.pass_up(chunk.filled());
        }
        Poll::Ready(())
    }

    fn poll_inner_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner_is_gone {
            return Poll::Pending;
        }
        if !self.up.is_empty() {
            match ready!(Pin::new(&mut self.inner_writer).poll_write(cx, &self.up)) {
                Ok(n) if n > 0 => consume(&mut self.up, n),
                _ => self.lose_inner(),
            }
            return Poll::Ready(());
        }
        if self.reader.is_some() || self.inner_is_shut {
            return Poll::Pending;
        }
        // The peer sends nothing more and all of it is passed on: the socket behind may find the end.
        self.inner_is_shut = ready!(Pin::new(&mut self.inner_writer).poll_shutdown(cx)).is_ok();
        if !self.inner_is_shut {
            self.lose_inner();
        }
        Poll::Ready(())
    }

    fn poll_inner_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner_is_gone {
            return Poll::Pending;
        }
        let mut storage = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(&mut storage);
        let read = ready!(Pin::new(&mut self.inner_reader).poll_read(cx, &mut chunk));
        if read.is_err() || chunk.filled().is_empty() {
            self.lose_inner();
            return Poll::Ready(());
        }
        self.moved += chunk.filled().len();
        if self.writer.is_none() {
            return Poll::Ready(());
        }
        match self.filter.pass(chunk.filled(), self.seat.gate.room(), &mut self.down) {
            Ok(dropped) => self.seat.gate.counters.socket(self.seat.socket).backlog_dropped.add(dropped),
            Err(_) => self.lose_inner(),
        }
        Poll::Ready(())
    }

    /// The socket behind has closed: because the peer has, because the transport stops, or else by a fault.
    fn lose_inner(&mut self) {
        self.inner_is_gone = true;
        self.up = BytesMut::new();
        if self.reader.take().is_some() && *self.phase.borrow() == Phase::Running {
            self.seat.count_cut(Reason::Internal);
        }
    }

    fn poll_peer_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.down.is_empty() {
            return Poll::Pending;
        }
        let Some(writer) = &mut self.writer else { return Poll::Pending };
        match ready!(Pin::new(writer).poll_write(cx, &self.down)) {
            Ok(n) if n > 0 => {
                consume(&mut self.down, n);
                self.last_progress = Instant::now();
                self.last_sign = self.last_progress;
                self.seat.gate.counters.socket(self.seat.socket).bytes_out.add(n as u64);
            }
            _ => self.lose_writer(),
        }
        Poll::Ready(())
    }

    /// Put waiting PONGs between two messages. To a peer far behind they are of no use.
    fn place_pongs(&mut self) {
        if self.scanner.pongs.is_empty() || !self.filter.is_between_messages() {
            return;
        }
        if self.writer.is_some() && self.down.len() < SHORT_BYTES {
            self.down.extend_from_slice(&self.scanner.pongs);
        }
        self.scanner.pongs.clear();
    }

    /// Keep the counter, and the time since when the peer is behind, in step with `down`.
    fn note_backlog(&mut self) {
        let backlog = &self.seat.gate.counters.socket(self.seat.socket).backlog_bytes;
        // What has begun to come is counted as a whole: there must be room for it.
        let promised = if self.writer.is_some() { self.filter.promised() } else { 0 };
        let waiting = self.down.len() as u64 + promised;
        backlog.add(waiting);
        backlog.subtract(self.down_counted);
        self.down_counted = waiting;
        if self.seat.socket == SocketName::Control && self.is_paused != self.is_behind() {
            self.is_paused = self.is_behind();
            self.seat.gate.requests.pause(self.number(), self.is_paused);
        }
        if self.down.is_empty() {
            self.behind_since = None;
        } else if self.behind_since.is_none() {
            let now = Instant::now();
            self.behind_since = Some(now);
            self.last_progress = now;
        }
    }

    /// While bytes wait, look now and then whether they wait too long.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_kept_waiting = self.is_held() && self.writer.is_some();
        if self.behind_since.is_none() && !is_kept_waiting && self.begun == 0 {
            return Poll::Pending;
        }
        let interval = WATCH_INTERVAL.min(self.seat.gate.limits.stall_timeout / 4).max(Duration::from_millis(1));
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(interval)));
        ready!(timer.as_mut().poll(cx));
        self.timer = None;
        self.look_at_the_time();
        Poll::Ready(())
    }

    /// Cut a peer that has given no sign of life for too long, else look again when it would have.
    fn poll_idle_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.reader.is_none() {
            return Poll::Pending;
        }
        ready!(self.idle_timer.as_mut().poll(cx));
        let limit = self.seat.gate.limits.idle_timeout;
        // One that we keep waiting is not to blame for its silence.
        if self.last_sign.elapsed() >= limit && !self.is_held() {
            self.cut(Reason::Idle);
        } else {
            let wait = limit.saturating_sub(self.last_sign.elapsed()).max(WATCH_INTERVAL);
            self.idle_timer.as_mut().reset(tokio::time::Instant::now() + wait);
        }
        Poll::Ready(())
    }

    fn look_at_the_time(&mut self) {
        let limits = &self.seat.gate.limits;
        match self.behind_since {
            Some(_) if self.last_progress.elapsed() >= limits.stall_timeout => self.cut(Reason::Stalled),
            Some(since) if since.elapsed() >= limits.saturated_timeout => self.cut(Reason::Saturated),
            _ if self.has_stopped_short() => self.cut(Reason::Stalled),
            Some(_) => {}
            // A PING may wait behind messages that cannot be read yet. Unanswered, libzmq gives the connection up and
            // with it what is under way; any sign of life prevents that.
            None if self.scanner.knows_pong && self.is_held() => {
                self.scanner.pongs.extend_from_slice(&zmtp::pong(b""));
            }
            None => {}
        }
    }
}

impl Link {
    /// Whether it has not finished a long message for so long that others who wait to begin one go first.
    fn has_stopped_short(&self) -> bool {
        let gate = &self.seat.gate;
        let is_full = 2 * gate.unfinished.load(Ordering::Relaxed) > gate.limits.unfinished_bytes_max as u64;
        is_full && self.begun > 0 && self.up.is_empty() && self.begun_since.elapsed() >= gate.limits.stall_timeout
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.seat.gate.unfinished.fetch_sub(self.begun, Ordering::Relaxed);
        self.leave();
        self.seat.gate.counters.socket(self.seat.socket).backlog_bytes.subtract(self.down_counted);
    }
}

/// Remove `n` bytes from the front; a buffer that was large and is empty is given back.
fn consume(buffer: &mut BytesMut, n: usize) {
    buffer.advance(n);
    if buffer.is_empty() && buffer.capacity() > IDLE_CAPACITY {
        *buffer = BytesMut::new();
    }
}
