//! Encrypted sockets: libzmq, which knows CURVE, behind the gate's listeners and in front of the same queues.
//!
//! ```text
//! peer <-> gate: connections, greeting, frame headers, stalls <-> unix stream <-> libzmq: CURVE <-> queues of the daemon
//! ```
//! No peer reaches libzmq but through the gate. For each connection that the gate has accepted libzmq listens at a unix socket
//! made for that one alone, in a directory that is closed to others, under a ZAP domain that is the connection's number. So every
//! handshake and every message is known to belong to a connection, and the gate can hold or cut it. The handler of ZAP lets in the
//! keys of the settings; the number that it gives as `User-Id` carries the rights of the key, as the numbers of plain connections
//! carry theirs.
//!
//! The other way round, libzmq connecting to the gate, looks simpler and is not safe: a session of a connecting socket that meets
//! bytes that it cannot decrypt ends by itself, and the socket keeps its address. The memory goes to the next session, and
//! `zmq_disconnect` of the first one ends that. A listener outlives its session, so that `zmq_unbind` ends what it is asked to.
//!
//! libzmq keeps the frames of a message until the last has come, however many they are. What a connection has passed on
//! since its last whole message is therefore bounded here ([`unfinished_bytes_max`]).
//!
//! What libzmq holds counts in the same totals as what plain connections make us hold. The gate adds the length of a frame when it passes
//! its header on, which waits for its turn while there is no room; the thread of the socket subtracts what it receives. Beyond
//! [`super::SHORT_BYTES`] these bytes count as those of long messages that have begun. What libzmq has to send counts among what waits for
//! peers, from when it is given until the gate has read as much. A connection counts until libzmq has been told to let go of it.

mod directory;
mod flow;
mod worker;

pub(super) use self::directory::PrivateDirectory;
use self::directory::socket_in;
use super::inbox::Inbox;
use super::permit::{ConnectionPermit, Reader, Streams, Writer, is_reset};
use super::settings::ENCRYPTED_BYTES;
use super::turns::{Entrance, Watch};
use super::zmtp::{self, GREETING_LEN};
use super::{
    Count, Counters, CurveSettings, PeerLimits, Phase, Publication, Reason, Reply, Request, SocketName, StartError,
    peer_number, plain_number, spawn,
};
use crate::access::Rights;
use crate::keys::SecretKey;
use crossbeam_channel::{Sender, unbounded};
use flow::{Begun, FRAME_BYTES, Flow, Frames, OVERHEAD, PING_LEN, PONG_LEN};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use worker::Worker;

/// Endpoint of the ZAP handler, which admits keys.
const ZAP_ENDPOINT: &str = "inproc://zeromq.zap.01";

/// Set in the numbers of connections that came in here, so that replies find their way back.
const CURVE_BIT: u64 = 1 << 55;

/// Messages that libzmq holds for a connection before it reads no more of it.
const RECEIVED_MAX: i32 = 16;

/// Messages that libzmq holds towards a connection before it drops further ones.
const SENT_MAX: i32 = 1024;

/// Replies that wait for libzmq before further ones wait in the daemon's queue: whose they are does not matter here, so
/// none may be dropped for want of room.
const REPLIES_MAX: usize = 256;

/// Publications that wait for libzmq before further ones are dropped.
const PUBLICATIONS_MAX: usize = 64;

/// Pairs of descriptors that are to be left before libzmq is asked to listen, connect and accept: where it has none for what it
/// accepts it ends the process.
const SPARE_PAIRS: usize = 4;

/// Most that a thread goes without looking at the phase, milliseconds.
const POLL_INTERVAL_MS: i64 = 100;

/// Bytes moved at a time.
const CHUNK: usize = 16 << 10;

/// How often a connection that waits for room, or takes some, looks at the time.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

/// Pause while a thread has no room for a reply.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// libzmq had nothing to send if nothing came from it for so long; and when that is looked at again.
const NOTHING_COMES: Duration = Duration::from_millis(200);
const LOOKS_AGAIN: Duration = Duration::from_secs(2);

/// Bytes of one connection that may be in libzmq. It must be more than two messages: of a message that is not whole a part is there,
/// and room for the next frame is needed before that is passed on.
fn inside_bytes_max(limits: &PeerLimits) -> u64 {
    (2 * limits.message_bytes_max as u64 + (1 << 20)).max(4 << 20)
}

/// Bytes that a connection may pass on without a whole message among them. Messages that wait in libzmq because a queue of
/// the daemon is full are whole and allowed. Heartbeats count, so that a peer that says nothing else for days is cut and
/// connects again.
fn unfinished_bytes_max(limits: &PeerLimits) -> u64 {
    ((RECEIVED_MAX as usize + 2) * (limits.message_bytes_max + OVERHEAD) + (1 << 20)) as u64
}

/// What the threads here and the gate share.
struct Shared {
    limits: PeerLimits,
    counters: Arc<Counters>,
    /// Public keys as they come in a handshake, and whose they are.
    clients: HashMap<Vec<u8>, (String, Rights)>,
    /// What waits of clients.
    requests: Watch<Request>,
    /// Connections that libzmq has, those that are over included.
    flows: Mutex<HashMap<u64, Arc<Flow>>>,
    /// Whether rows wait for the inbox. The gate cuts no producer as stalled then, since the daemon does not read them.
    rows_wait: AtomicBool,
}

/// Something for libzmq.
enum Outgoing {
    Reply(Reply),
    Publication(Publication),
}

impl Outgoing {
    fn bytes(&self) -> u64 {
        match self {
            Self::Reply(reply) => reply.payload.len() as u64,
            Self::Publication(publication) => publication.payload.len() as u64,
        }
    }
}

/// What becomes of connections.
enum Change {
    /// `listens` is told when libzmq does, and dropped if it cannot.
    Come { connection: u64, path: PathBuf, listens: oneshot::Sender<()> },
    /// `let_go` is dropped when libzmq has nothing of it any more.
    Gone { connection: u64, path: PathBuf, let_go: oneshot::Sender<()> },
}

/// The way of connections to one of libzmq's sockets.
#[derive(Clone)]
pub(super) struct CurveListener {
    socket: SocketName,
    shared: Arc<Shared>,
    directory: PathBuf,
    /// At most two for each connection that the gate allows.
    changes: Sender<Change>,
    bell: Wakeup,
    phase: watch::Receiver<Phase>,
}

/// The way of replies and publications to one of libzmq's sockets, which is flushed at a stop when this has been dropped.
pub(super) struct SendQueue {
    counters: Arc<Counters>,
    outgoing: mpsc::Sender<Outgoing>,
    /// Bytes that wait there.
    bytes: Count,
    // After the queue: its thread is to see that nothing more can come.
    bell: Wakeup,
}

/// Wakes the thread of a socket; once more when it is dropped.
#[derive(Clone)]
struct Wakeup(Arc<StdUnixStream>);

impl Wakeup {
    fn ring(&self) {
        // Full of such bytes it wakes as well.
        let _ = (&*self.0).write(&[0]);
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        self.ring();
    }
}

/// What whole messages become.
pub(super) enum Incoming {
    Rows(Inbox),
    Requests(Entrance<Request>),
    Subscriptions,
}

/// Where libzmq's sockets are made: each in a thread of its own.
pub(super) struct Curve {
    context: zmq::Context,
    shared: Arc<Shared>,
    secret_key: SecretKey,
    phase: watch::Receiver<Phase>,
}

impl Curve {
    /// Start the handler of ZAP.
    pub(super) fn start(
        settings: &CurveSettings,
        limits: &PeerLimits,
        requests: &Entrance<Request>,
        counters: &Arc<Counters>,
        phase: &watch::Receiver<Phase>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<Self, StartError> {
        let context = zmq::Context::new();
        let clients = settings.clients.iter().map(|client| {
            let key = crate::keys::decode(&client.key).expect("the settings were checked");
            (key.to_vec(), (client.name.clone(), client.rights))
        });
        let shared = Arc::new(Shared {
            limits: limits.clone(),
            counters: Arc::clone(counters),
            clients: clients.collect(),
            requests: Watch::clone(requests),
            flows: Mutex::default(),
            rows_wait: AtomicBool::new(false),
        });
        let zap = context.socket(zmq::REP).and_then(|zap| {
            zap.set_linger(0)?;
            zap.bind(ZAP_ENDPOINT)?;
            Ok(zap)
        });
        let zap = zap.map_err(internal)?;
        let (judge, until) = (Arc::clone(&shared), phase.clone());
        threads.push(spawn("criticd-keys", move || judge.judge(&zap, &until))?);
        Ok(Self { context, shared, secret_key: settings.secret_key.clone(), phase: phase.clone() })
    }

    /// Start the thread of one socket.
    pub(super) fn open(
        &self,
        socket: SocketName,
        incoming: Incoming,
        directory: &Path,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(CurveListener, SendQueue), StartError> {
        let limits = &self.shared.limits;
        let kind = match socket {
            SocketName::Ingest => zmq::PULL,
            SocketName::Control => zmq::ROUTER,
            SocketName::Publish => zmq::XPUB,
        };
        let prepare = || {
            let socket = self.context.socket(kind)?;
            socket.set_curve_server(true)?;
            socket.set_curve_secretkey(self.secret_key.bytes())?;
            socket.set_maxmsgsize((limits.frame_bytes_max + OVERHEAD) as i64)?;
            socket.set_handshake_ivl(i32::try_from(limits.handshake_timeout.as_millis()).unwrap_or(i32::MAX))?;
            socket.set_rcvhwm(RECEIVED_MAX)?;
            socket.set_sndhwm(if kind == zmq::XPUB { PUBLICATIONS_MAX as i32 } else { SENT_MAX })?;
            socket.set_linger(0)?;
            match kind {
                zmq::ROUTER => {
                    socket.set_router_mandatory(true)?;
                    // Or a second of one name would be left hanging; so it is cut when it asks something.
                    socket.set_router_handover(true)?;
                }
                zmq::XPUB => socket.set_xpub_verbose(true)?,
                _ => {}
            }
            Ok(socket)
        };
        let libzmq = prepare().map_err(internal)?;
        let (wake, woken) = StdUnixStream::pair().map_err(StartError::internal("wake-up"))?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true).map_err(StartError::internal("wake-up"))?;
        }
        let (changes, changed) = unbounded();
        let (outgoing, out) = mpsc::channel(if socket == SocketName::Publish { PUBLICATIONS_MAX } else { REPLIES_MAX });
        let bytes = Count::default();
        let worker = Worker {
            socket,
            libzmq,
            incoming: Some(incoming),
            shared: Arc::clone(&self.shared),
            phase: self.phase.clone(),
            changed,
            out,
            out_bytes: bytes.clone(),
            woken,
            routes: HashMap::new(),
            topics: HashMap::new(),
            leaving: Vec::new(),
            messages: 0,
            held: None,
        };
        let name = match socket {
            SocketName::Ingest => "criticd-c-rows",
            SocketName::Control => "criticd-c-ctrl",
            SocketName::Publish => "criticd-c-pub",
        };
        threads.push(spawn(name, move || worker.run())?);
        let (shared, bell) = (Arc::clone(&self.shared), Wakeup(Arc::new(wake)));
        let outlet = SendQueue { counters: Arc::clone(&shared.counters), outgoing, bytes, bell: bell.clone() };
        let front =
            CurveListener { socket, shared, directory: directory.to_owned(), changes, bell, phase: self.phase.clone() };
        Ok((front, outlet))
    }
}

fn internal(error: zmq::Error) -> StartError {
    StartError::Internal { what: "encrypted socket", source: io::Error::other(error) }
}

impl Shared {
    /// Decide about keys until the transport closes.
    fn judge(&self, zap: &zmq::Socket, phase: &watch::Receiver<Phase>) {
        while phase.borrow().deadline().is_none() {
            if !matches!(zap.poll(zmq::POLLIN, POLL_INTERVAL_MS), Ok(n) if n > 0) {
                continue;
            }
            let Ok(request) = zap.recv_multipart(0) else { continue };
            let number = request.get(1).cloned().unwrap_or_default();
            let (status, text, user) = match self.admit(&request) {
                Some(user) => ("200", "OK", user),
                None => ("400", "unauthorised", String::new()),
            };
            let reply = [b"1.0", &number[..], status.as_bytes(), text.as_bytes(), user.as_bytes(), b""];
            // It only fails when the context ends.
            let _ = zap.send_multipart(reply, 0);
        }
    }

    /// What a connection is to be known as, if its key may come.
    fn admit(&self, request: &[Vec<u8>]) -> Option<String> {
        let [version, _, domain, _, _, mechanism, key] = request else { return None };
        let connection: u64 = std::str::from_utf8(domain).ok()?.parse().ok()?;
        let flow = Arc::clone(self.flows.lock().get(&connection)?);
        let refuse = |reason| {
            *flow.refused.lock() = Some(reason);
            None
        };
        if version != b"1.0" || mechanism != b"CURVE" {
            return refuse(Reason::UnsupportedMechanism);
        }
        let Some((name, rights)) = self.clients.get(key) else { return refuse(Reason::Unauthorised) };
        if !rights.has_any(flow.socket.needs()) {
            return refuse(Reason::Unauthorised);
        }
        let number = peer_number(connection, *rights) | CURVE_BIT;
        flow.number.store(number, Ordering::Relaxed);
        flow.admitted.store(true, Ordering::Release);
        let shown = plain_number(connection);
        log::info!("event=client_admitted socket={} client={name} connection={shown}", flow.socket);
        Some(number.to_string())
    }
}

impl SendQueue {
    /// Hand over a reply that belongs here, waiting while there is no room; gives it back if it does not. The thread that
    /// makes room waits for no peer.
    pub(super) async fn take_reply(&self, reply: Reply) -> Option<Reply> {
        if reply.peer.connection & CURVE_BIT == 0 {
            return Some(reply);
        }
        let bytes = reply.payload.len() as u64;
        while self.is_full(bytes) && !self.outgoing.is_closed() {
            tokio::time::sleep(FULL_PAUSE).await;
        }
        self.bytes.add(bytes);
        match self.outgoing.send(Outgoing::Reply(reply)).await {
            Ok(()) => self.bell.ring(),
            // The thread has ended.
            Err(_) => self.counters.replies_dropped.add(1),
        }
        None
    }

    fn is_full(&self, bytes: u64) -> bool {
        let before = self.bytes.get();
        before > 0 && before + bytes > ENCRYPTED_BYTES as u64
    }

    /// Publish to those who are here as well.
    pub(super) fn publish(&self, publication: &Publication) {
        let outgoing = Outgoing::Publication(publication.clone());
        let bytes = outgoing.bytes();
        if self.is_full(bytes) {
            self.counters.publish.backlog_dropped.add(1);
            return;
        }
        self.bytes.add(bytes);
        match self.outgoing.try_send(outgoing) {
            Ok(()) => self.bell.ring(),
            Err(_) => {
                self.bytes.subtract(bytes);
                self.counters.publish.backlog_dropped.add(1);
            }
        }
    }
}

/// Add to a greeting what of `bytes` belongs to it, and check it once it is whole: how many do.
fn greet(greeting: &mut Vec<u8>, bytes: &[u8]) -> Result<usize, Reason> {
    let part = bytes.len().min(GREETING_LEN - greeting.len());
    greeting.extend_from_slice(&bytes[..part]);
    if part > 0 && greeting.len() == GREETING_LEN {
        zmtp::check_greeting(greeting, b"CURVE")?;
    }
    Ok(part)
}

impl CurveListener {
    fn tell(&self, change: Change) {
        // A thread that has ended has no connections.
        let _ = self.changes.send(change);
        self.bell.ring();
    }

    /// Serve a connection until it is over; why it was cut, if it was.
    pub(super) async fn serve(&self, seat: &ConnectionPermit, (mut reader, mut writer): Streams) -> Option<Reason> {
        let connection = seat.connection();
        let (cut, cutting) = oneshot::channel();
        let flow = Arc::new(Flow::new(self.socket, cut));
        self.shared.flows.lock().insert(connection, Arc::clone(&flow));
        let path = socket_in(&self.directory, connection);
        let (let_go, forgotten) = oneshot::channel();
        let mut begun = Begun::new(&seat.gate, self.socket);
        let guest =
            CurvePeer { front: self, connection, flow: Arc::clone(&flow), path: path.clone(), let_go: Some(let_go) };
        if !has_descriptors() {
            return Some(Reason::TooManyConnections);
        }
        let connected = tokio::time::timeout(self.shared.limits.handshake_timeout, self.connect(connection, &path));
        let Ok(Ok(inner)) = connected.await else { return Some(Reason::Internal) };
        let (mut inner_reader, mut inner_writer) = inner.into_split();
        let reason = tokio::select! {
            reason = self.pump_up(seat, &flow, &mut begun, &mut reader, &mut inner_writer) => Some(reason),
            reason = self.pump_down(&flow, &mut inner_reader, &mut writer) => reason,
            reason = self.watch(&flow) => Some(reason),
            Ok(reason) = cutting => Some(reason),
        };
        drop((reader, writer, inner_reader, inner_writer));
        begun.leave();
        drop(guest);
        // Its place is taken, and its bytes count, until libzmq has nothing of it: or many that come and go would fill memory.
        let _ = forgotten.await;
        flow.take(u64::MAX, &self.shared.counters);
        let refused = *flow.refused.lock();
        refused.or(reason)
    }

    /// Connect to a socket at which libzmq listens for that alone.
    async fn connect(&self, connection: u64, path: &Path) -> io::Result<UnixStream> {
        let (listens, it_listens) = oneshot::channel();
        self.tell(Change::Come { connection, path: path.to_owned(), listens });
        it_listens.await.map_err(io::Error::other)?;
        let stream = UnixStream::connect(path).await?;
        std::fs::remove_file(path)?;
        Ok(stream)
    }

    /// Pass on what the peer sends, looking at the greeting and at the headers of frames. Ends only with a reason to cut it:
    /// when the peer sends nothing more, libzmq finds the end, and the other direction ends.
    async fn pump_up(
        &self,
        seat: &ConnectionPermit,
        flow: &Flow,
        begun: &mut Begun<'_>,
        reader: &mut Reader,
        inner: &mut OwnedWriteHalf,
    ) -> Reason {
        let limits = &self.shared.limits;
        let counters = self.shared.counters.socket(self.socket);
        let unfinished_max = unfinished_bytes_max(limits);
        let mut chunk = vec![0; CHUNK];
        let mut greeting = Vec::new();
        let mut frames = Frames::new(limits.frame_bytes_max + OVERHEAD);
        let mut messages: u64 = 0; // frames after the handshake: each of a producer's is a message or a heartbeat
        loop {
            self.wait_for_turn(flow, begun).await;
            let n = match self.read(flow, begun, reader, &mut chunk).await {
                Ok(n) => n,
                Err(reason) => return reason,
            };
            if n == 0 {
                flow.left.store(true, Ordering::Relaxed);
                if flow.admitted.load(Ordering::Acquire) {
                    let whole = messages.saturating_sub(u64::from(frames.left > 0));
                    seat.count_end(flow.reset.load(Ordering::Relaxed), whole, frames.begun());
                }
                // Whatever was sent before goes to libzmq, which then closes its end.
                let _ = inner.shutdown().await;
                return std::future::pending().await;
            }
            counters.bytes_in.add(n as u64);
            let mut at = match greet(&mut greeting, &chunk[..n]) {
                Ok(at) => at,
                Err(reason) => return reason,
            };
            let passed = flow.passed.fetch_add(n as u64, Ordering::Relaxed) + n as u64;
            if !flow.admitted.load(Ordering::Acquire) && passed > limits.handshake_bytes_max as u64 {
                return Reason::HandshakeTooLong;
            }
            if passed.saturating_sub(flow.whole.load(Ordering::Relaxed)) > unfinished_max {
                return Reason::MessageTooLarge;
            }
            let mut written = 0;
            loop {
                let frame = match frames.next(&chunk[at..n]) {
                    Ok(None) => break,
                    Ok(Some(frame)) => frame,
                    Err(reason) => return reason,
                };
                let header = at + frame.header;
                at += frame.end;
                // Those of the handshake are short, and no message.
                if !flow.admitted.load(Ordering::Acquire) {
                    if frame.len > limits.handshake_bytes_max as u64 {
                        return Reason::HandshakeTooLong;
                    }
                    continue;
                }
                let bytes = frame.len + FRAME_BYTES;
                if !self.has_room(flow, begun, bytes) {
                    // What comes before it goes on: it may end a message, and make room.
                    if inner.write_all(&chunk[written..header]).await.is_err() {
                        return std::future::pending().await;
                    }
                    written = header;
                    if let Some(reason) = self.wait_for_room(flow, begun, bytes).await {
                        return reason;
                    }
                }
                flow.entered.fetch_add(bytes, Ordering::Relaxed);
                messages += 1;
            }
            if inner.write_all(&chunk[written..n]).await.is_err() {
                // The other direction finds out, and knows whether that is a fault.
                return std::future::pending().await;
            }
            begun.give_way(n).await;
        }
    }

    /// Wait until the peer has read what it asked for before, and until that has been taken up.
    async fn wait_for_turn(&self, flow: &Flow, begun: &mut Begun<'_>) {
        let came = Instant::now();
        while flow.waiting() > self.shared.limits.backlog_bytes_max as u64 / 2 {
            flow.progress.notified().await;
            begun.follow(flow.inside());
        }
        if self.socket == SocketName::Control {
            let number = flow.number.load(Ordering::Relaxed);
            loop {
                tokio::select! {
                    () = poll_fn(|cx| self.shared.requests.poll_room(number, cx)) => break,
                    () = flow.progress.notified() => begun.follow(flow.inside()),
                }
            }
        }
        // Nothing was read meanwhile: nothing can have become whole.
        begun.since += came.elapsed();
    }

    /// Read some bytes of the peer. What libzmq has of it meanwhile becomes less.
    async fn read(
        &self,
        flow: &Flow,
        begun: &mut Begun<'_>,
        reader: &mut Reader,
        chunk: &mut [u8],
    ) -> Result<usize, Reason> {
        loop {
            tokio::select! {
                n = reader.read(&mut *chunk) => {
                    flow.reset.fetch_or(n.is_err(), Ordering::Relaxed);
                    return Ok(n.unwrap_or(0));
                }
                () = flow.progress.notified() => {}
                () = tokio::time::sleep(ROOM_INTERVAL), if begun.bytes() > 0 => {}
            }
            begun.follow(flow.inside());
            if let Some(reason) = self.has_stopped(flow, begun, 0) {
                return Err(reason);
            }
        }
    }

    /// Whether a frame of so many bytes may be passed on: what the peer has in libzmq is no more than it may be then.
    fn has_room(&self, flow: &Flow, begun: &mut Begun<'_>, bytes: u64) -> bool {
        let inside = flow.inside();
        begun.follow(inside);
        inside + bytes <= inside_bytes_max(&self.shared.limits) && begun.begin(inside, bytes)
    }

    /// Wait for that; why the peer is cut, if it is.
    async fn wait_for_room(&self, flow: &Flow, begun: &mut Begun<'_>, bytes: u64) -> Option<Reason> {
        while !self.has_room(flow, begun, bytes) {
            tokio::select! {
                () = flow.progress.notified() => {}
                () = poll_fn(|cx| begun.poll_call(cx)) => {}
                // Requests that are taken up make room without a word.
                () = tokio::time::sleep(ROOM_INTERVAL) => {}
            }
            let reason = self.has_stopped(flow, begun, bytes);
            if reason.is_some() {
                return reason;
            }
        }
        None
    }

    /// Whether nothing of the peer has become whole for too long: with the frame of so many bytes that is to come its message is longer
    /// than any may be, or others wait for its room.
    fn has_stopped(&self, flow: &Flow, begun: &mut Begun<'_>, bytes: u64) -> Option<Reason> {
        let limits = &self.shared.limits;
        let received = flow.received.load(Ordering::Relaxed);
        if received != begun.received || self.waits_for_us() {
            (begun.received, begun.since) = (received, Instant::now());
        }
        if begun.bytes() == 0 || begun.since.elapsed() < limits.stall_timeout {
            return None;
        }
        if flow.inside() + bytes > inside_bytes_max(limits) {
            return Some(Reason::MessageTooLarge);
        }
        begun.gate.lacks_room(self.socket).then_some(Reason::Stalled)
    }

    /// Whether a producer waits until rows before its own have been taken up.
    fn waits_for_us(&self) -> bool {
        self.socket == SocketName::Ingest && self.shared.rows_wait.load(Ordering::Relaxed)
    }

    /// Pass on what libzmq sends, until it closes. A peer that takes nothing more is forgotten; what it sent before is still
    /// read by libzmq.
    async fn pump_down(&self, flow: &Flow, inner: &mut OwnedReadHalf, writer: &mut Writer) -> Option<Reason> {
        let limits = &self.shared.limits;
        let counters = self.shared.counters.socket(self.socket);
        let mut chunk = vec![0; CHUNK];
        let mut behind_since: Option<Instant> = None;
        let mut gone = false;
        let (mut greeting, mut frames, mut before) = (GREETING_LEN, Frames::new(usize::MAX), 0);
        loop {
            let n = match inner.try_read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Nothing waits: it has caught up.
                    behind_since = None;
                    let mut patience = NOTHING_COMES;
                    loop {
                        if let Ok(read) = tokio::time::timeout(patience, inner.read(&mut chunk)).await {
                            break read;
                        }
                        // Nor does libzmq have anything, whatever was counted.
                        flow.take(u64::MAX, &self.shared.counters);
                        patience = LOOKS_AGAIN;
                    }
                }
                read => read,
            };
            let Ok(n @ 1..) = n else { break };
            flow.taken.fetch_add(n as u64, Ordering::Relaxed);
            flow.take(n as u64, &self.shared.counters);
            let mut at = greeting.min(n);
            greeting -= at;
            while let Some(frame) = frames.next(&chunk[at..n]).unwrap_or_default() {
                at += frame.end;
                if frame.len == PONG_LEN {
                    // The PING that it answers is in libzmq no longer.
                    flow.receive(PING_LEN + FRAME_BYTES);
                } else {
                    let is_publication = flow.came_out((before, frame.len), &self.shared.counters);
                    before = if is_publication { 0 } else { frame.len };
                }
            }
            let mut rest = &chunk[..n];
            while !gone && !rest.is_empty() {
                match tokio::time::timeout(limits.stall_timeout, writer.write(rest)).await {
                    Err(_) => return Some(Reason::Stalled),
                    Ok(Ok(written @ 1..)) => {
                        counters.bytes_out.add(written as u64);
                        rest = &rest[written..];
                    }
                    Ok(taken) => {
                        gone = true;
                        flow.reset.fetch_or(taken.is_err_and(|error| is_reset(&error)), Ordering::Relaxed);
                    }
                }
            }
            if behind_since.get_or_insert_with(Instant::now).elapsed() > limits.saturated_timeout {
                return Some(Reason::Saturated);
            }
        }
        // libzmq has closed: after the peer, or because it could make nothing of what came.
        let is_fault = !gone && !flow.left.load(Ordering::Relaxed) && *self.phase.borrow() == Phase::Running;
        is_fault.then_some(Reason::BadCommand)
    }

    /// Wait until the handshake has taken too long, or nothing has gone either way for too long.
    async fn watch(&self, flow: &Flow) -> Reason {
        let limits = &self.shared.limits;
        tokio::time::sleep(limits.handshake_timeout).await;
        if !flow.admitted.load(Ordering::Acquire) {
            return Reason::HandshakeTimeout;
        }
        let sign = || flow.passed.load(Ordering::Relaxed) + flow.taken.load(Ordering::Relaxed);
        let (mut last, mut since) = (sign(), Instant::now());
        loop {
            tokio::time::sleep((limits.idle_timeout / 4).max(Duration::from_millis(25))).await;
            // One that we keep waiting is not to blame for its silence.
            if sign() != last || self.waits_for_us() {
                (last, since) = (sign(), Instant::now());
            } else if since.elapsed() >= limits.idle_timeout {
                return Reason::Idle;
            }
        }
    }
}

/// A connection's entry at the thread of the socket, which lets go of it when this is dropped.
struct CurvePeer<'a> {
    front: &'a CurveListener,
    connection: u64,
    flow: Arc<Flow>,
    path: PathBuf,
    let_go: Option<oneshot::Sender<()>>,
}

impl Drop for CurvePeer<'_> {
    fn drop(&mut self) {
        self.flow.gone.store(true, Ordering::Relaxed);
        if self.front.socket == SocketName::Control && self.flow.admitted.load(Ordering::Acquire) {
            self.front.shared.requests.leave(self.flow.number.load(Ordering::Relaxed));
        }
        // Gone already where the gate has connected.
        let _ = std::fs::remove_file(&self.path);
        if let Some(let_go) = self.let_go.take() {
            let path = std::mem::take(&mut self.path);
            self.front.tell(Change::Gone { connection: self.connection, path, let_go });
        }
    }
}

/// Whether the process may open some files more.
fn has_descriptors() -> bool {
    [(); SPARE_PAIRS].map(|()| StdUnixStream::pair()).iter().all(Result::is_ok)
}

fn endpoint(path: &Path) -> String {
    format!("ipc://{}", path.display())
}

/// The gate's number of a connection.
fn number_of(number: u64) -> u64 {
    number & (CURVE_BIT - 1)
}
