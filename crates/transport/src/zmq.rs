//! The three sockets of the crate `zeromq`, behind the gate: those of ingest and of publications each on a thread and a runtime
//! of its own, since a full inbox or a large publication holds them up. That of requests never waits for a peer and runs on
//! `criticd-gate`: a request and its reply are spared a change of thread each. Replies to encrypted connections pass
//! through here, and those behind them wait while the thread of their socket has no room; it waits for no peer either.
//!
//! Producers push and get no answer; the socket behind them is a ROUTER too, since that says whose message it has received.
//!
//! What was found about version 0.7 and is heeded here: nothing is flushed when a socket closes; a ROUTER's `send` that
//! waits for a full peer which then leaves never wakes up, so it is polled once and not awaited; a ROUTER with one peer
//! alone forgets the bound of what it sends, so an internal peer that never speaks stays connected; a receive loop that
//! never yields starves the other peers.

use super::endpoint::listen_at;
use super::permit::Gate;
use super::turns::Entrance;
use super::{
    Count, Counters, Never, Outbox, Outgoing, Outgoings, Peer, Phase, Publication, Reply, Request, SHORT_BYTES,
    SocketName, StartError,
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use zeromq::{
    DealerSocket, PubSocket, RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketRecv, SocketSend, ZmqError,
    ZmqMessage,
};

/// Messages taken before other tasks of the thread get their turn.
const TURN: usize = 64;
/// A request that is answered at once takes as long as so many that are handed over.
const ANSWERED: usize = 8;

/// Pause while the inbox is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// At closing, everything has left when nothing left the gate for this long.
const QUIET: Duration = Duration::from_millis(200);

/// How often that is looked at.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);

/// At closing, peers for which something waits in the gate are given up when they all take nothing for this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Identities that the gate gives its connections have this many bytes.
const CONNECTION_BYTES: usize = size_of::<u64>();

/// What the threads behind the gate share.
pub(super) struct Behind {
    pub(super) counters: Arc<Counters>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) closing: Receiver<Never>,
}

/// Where the control socket's requests go and its replies come from.
pub(super) struct ControlEnds<A, E> {
    /// Answers small queries at once; these are not handed over.
    pub(super) at_once: A,
    /// Queue of these answers.
    pub(super) answers: Outbox<Reply>,
    pub(super) requests: Entrance<Request>,
    pub(super) replies: Outgoings<Reply>,
    /// Replies that it does not give back are not for this socket. Further ones wait for it.
    pub(super) elsewhere: E,
    /// Dropped when all is over.
    pub(super) over: Sender<Never>,
}

/// A runtime that runs on the thread that blocks on it, with input, output and time.
pub(super) fn runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::internal("runtime"))
}

/// Start a thread under `name`.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(StartError::internal("thread"))
}

/// Let `socket` listen at `path`, for the gate to connect to.
fn bind<S: Socket>(runtime: &Runtime, socket: &mut S, path: &Path) -> Result<(), StartError> {
    let listener = listen_at(path).map_err(StartError::internal("private socket"))?;
    runtime.block_on(socket.bind_listener(listener)).map(drop).map_err(internal)
}

fn internal(error: ZmqError) -> StartError {
    StartError::Internal { what: "private socket", source: io::Error::other(error) }
}

/// Wait until no further message may be taken.
async fn draining(phase: &mut watch::Receiver<Phase>) {
    // If the other end is gone the transport is, too.
    let _ = phase.wait_for(|p| *p != Phase::Running).await;
}

/// Wait until nothing more is handed over to be sent.
async fn closing(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|p| matches!(p, Phase::Closing(_) | Phase::Closed)).await;
}

impl Behind {
    /// ROUTER: one thread that receives, and waits while `inbox` is full. The gate hears which producers' long messages it has taken.
    pub(super) fn start_ingest(
        &self,
        path: &Path,
        inbox: Inbox,
        gate: Arc<Gate>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), StartError> {
        let runtime = runtime()?;
        let mut socket = runtime.block_on(async { RouterSocket::new() });
        bind(&runtime, &mut socket, path)?;
        let (counters, closing, mut phase) = (Arc::clone(&self.counters), self.closing.clone(), self.phase.clone());
        threads.push(spawn("criticd-ingest", move || {
            runtime.block_on(async {
                tokio::select! {
                    () = draining(&mut phase) => {}
                    () = take_rows(&mut socket, &inbox, &gate, &closing, &counters) => {}
                }
                drop(socket);
            });
        })?);
        Ok(())
    }

    /// ROUTER: a future that receives and sends, for `runtime`, whose thread it never blocks.
    pub(super) fn open_control<A, E, F>(
        &self,
        runtime: &Runtime,
        path: &Path,
        ends: ControlEnds<A, E>,
    ) -> Result<impl Future<Output = ()> + Send + use<A, E, F>, StartError>
    where
        A: FnMut(&Request) -> Option<Vec<u8>> + Send + 'static,
        E: Fn(Reply) -> F + Send + 'static,
        F: Future<Output = Option<Reply>> + Send + 'static,
    {
        let mut socket = runtime.block_on(async { RouterSocket::new() });
        bind(runtime, &mut socket, path)?;
        let mut silent = runtime.block_on(async { DealerSocket::new() });
        runtime.block_on(silent.connect(&format!("ipc://{}", path.display()))).map_err(internal)?;
        let (counters, phase) = (Arc::clone(&self.counters), self.phase.clone());
        let ControlEnds { at_once, answers, requests, replies, elsewhere, over } = ends;
        Ok(async move {
            let (send, receive) = socket.split();
            let receive = take_requests(receive, (at_once, answers), requests, phase.clone(), &counters);
            let send = send_replies(send, replies, elsewhere, phase.clone(), &counters);
            tokio::join!(receive, send);
            drop((silent, over));
        })
    }

    /// PUB: one thread that sends; `also` is shown each publication.
    pub(super) fn start_publish(
        &self,
        path: &Path,
        publications: Outgoings<Publication>,
        also: impl Fn(&Publication) + Send + 'static,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), StartError> {
        let runtime = runtime()?;
        // A PUB starts a task when it is made.
        let mut socket = runtime.block_on(async { PubSocket::new() });
        bind(&runtime, &mut socket, path)?;
        let (counters, phase) = (Arc::clone(&self.counters), self.phase.clone());
        threads.push(spawn("criticd-publish", move || {
            runtime.block_on(publish(socket, publications, also, phase, &counters));
        })?);
        Ok(())
    }
}

/// Where messages of producers are put in: bounded in messages and in bytes, which one message may exceed. It keeps their order. Who
/// puts in takes a message of each connection in turn, so that a producer waits for what is in here, and for one message of each other.
pub(super) struct Inbox {
    queue: Sender<Bytes>,
    held: Held,
    /// The same of all that put messages in.
    counted: Count,
    /// Beside the queue's capacity.
    messages_max: usize,
    bytes_max: usize,
}

/// What one of those that put messages in has there.
#[derive(Clone, Default)]
struct Held {
    messages: Count,
    bytes: Count,
}

/// A message that counts until its last reader drops it.
struct Counted {
    payload: Bytes,
    held: Held,
    counted: Count,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let bytes = self.payload.len() as u64;
        self.held.messages.subtract(1);
        self.held.bytes.subtract(bytes);
        self.counted.subtract(bytes);
    }
}

impl Inbox {
    /// An inbox for so much, and its other end. What waits in it is counted there.
    pub(super) fn new(messages: usize, bytes_max: usize, counted: Count) -> (Self, Receiver<Bytes>) {
        let (queue, messages) = bounded(messages);
        (Self { queue, held: Held::default(), counted, messages_max: usize::MAX, bytes_max }, messages)
    }

    /// For two that put messages in, each with half of the room, so that neither keeps the other out.
    #[cfg(feature = "curve")]
    pub(super) fn halves(&self) -> [Self; 2] {
        let messages_max = (self.queue.capacity().unwrap_or(usize::MAX) / 2).max(1);
        let bytes_max = self.bytes_max / 2;
        let half = || Self {
            queue: self.queue.clone(),
            held: Held::default(),
            counted: self.counted.clone(),
            messages_max,
            bytes_max,
        };
        [half(), half()]
    }

    /// Whether a message of so many bytes has no room.
    fn is_full(&self, bytes: usize) -> bool {
        let (messages, before) = (self.held.messages.get(), self.held.bytes.get());
        let too_many = self.queue.is_full() || messages >= self.messages_max as u64;
        too_many || (before > 0 && before + bytes as u64 > self.bytes_max as u64)
    }

    /// Put a message in, unless the inbox is full.
    pub(super) fn try_send(&self, payload: Bytes) -> Result<(), TrySendError<Bytes>> {
        let bytes = payload.len();
        if self.is_full(bytes) {
            return Err(TrySendError::Full(payload));
        }
        self.held.messages.add(1);
        self.held.bytes.add(bytes as u64);
        self.counted.add(bytes as u64);
        let counted = Counted { payload: payload.clone(), held: self.held.clone(), counted: self.counted.clone() };
        // What comes back, since the other half was quicker, is not counted: or it would wait for itself.
        self.queue.try_send(Bytes::from_owner(counted)).map_err(|error| match error {
            TrySendError::Full(_) => TrySendError::Full(payload),
            TrySendError::Disconnected(_) => TrySendError::Disconnected(payload),
        })
    }

    /// Put a message in, waiting while the inbox is full; false if the daemon reads no more.
    fn hand_over(&self, mut payload: Bytes, closing: &Receiver<Never>) -> bool {
        loop {
            match self.try_send(payload) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(refused)) => payload = refused,
            }
            if matches!(closing.try_recv(), Err(TryRecvError::Disconnected)) {
                return false;
            }
            std::thread::sleep(FULL_PAUSE);
        }
    }
}

/// The next item for a socket to send; none when all senders are gone, or at closing, when all that was handed
/// over before has been taken.
async fn next<T: Outgoing>(queue: &mut Outgoings<T>, phase: &mut watch::Receiver<Phase>) -> Option<T> {
    tokio::select! {
        biased;
        item = queue.recv() => item,
        () = closing(phase) => {
            // Waiting senders learn that there will be no room.
            queue.close();
            queue.recv().await
        }
    }
}

/// Receive until the daemon reads no more. While `inbox` is full this blocks the thread and with it the crate's side of
/// every ingest connection; the gate goes on by itself.
async fn take_rows(
    socket: &mut RouterSocket,
    inbox: &Inbox,
    gate: &Gate,
    closing: &Receiver<Never>,
    counters: &Counters,
) {
    let mut taken = 0_usize;
    loop {
        taken += 1;
        if taken.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
        let Ok(message) = socket.recv().await else {
            // It keeps the faults of peers to itself; should it say one, a series of them would not starve the rest.
            tokio::task::yield_now().await;
            continue;
        };
        let mut frames = message.into_vecdeque();
        let connection = frames.pop_front().and_then(|identity| parse_identity(&identity));
        let bytes: usize = frames.iter().map(Bytes::len).sum();
        let mut waits = false;
        match (frames.pop_front(), frames.is_empty()) {
            (Some(payload), true) => {
                waits = inbox.is_full(bytes);
                if !inbox.hand_over(payload, closing) {
                    return;
                }
                counters.ingest_messages.add(1);
            }
            _ => counters.ingest_malformed.add(1),
        }
        if bytes > SHORT_BYTES {
            connection.into_iter().for_each(|connection| gate.take(connection));
        }
        if waits {
            // Others have sent something meanwhile; only after a pause does the socket hear of it.
            tokio::task::yield_now().await;
        }
    }
}

/// Receive requests until no further may be taken. The gate holds back peers that have asked for too much already.
async fn take_requests(
    mut socket: RouterRecvHalf,
    (mut at_once, answers): (impl FnMut(&Request) -> Option<Vec<u8>>, Outbox<Reply>),
    requests: Entrance<Request>,
    mut phase: watch::Receiver<Phase>,
    counters: &Counters,
) {
    let mut left = TURN;
    loop {
        if left == 0 {
            tokio::task::yield_now().await;
            left = TURN;
        }
        let received = tokio::select! {
            () = draining(&mut phase) => return,
            received = socket.recv() => received,
        };
        left -= 1;
        match received.map(parse_request) {
            Ok(Some(request)) => {
                counters.requests.add(1);
                if is_answered(&request, &mut at_once, &answers) {
                    left = left.saturating_sub(ANSWERED - 1);
                } else {
                    // Copied: what is counted is what it holds, and not what arrived around it.
                    let Request { peer, payload, since } = request;
                    let request = Request { peer, payload: Bytes::copy_from_slice(&payload), since };
                    requests.put(peer.connection, payload.len(), request);
                }
            }
            Ok(None) => counters.control_malformed.add(1),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Whether a request had an answer at once that is on its way.
fn is_answered(
    request: &Request,
    at_once: &mut impl FnMut(&Request) -> Option<Vec<u8>>,
    answers: &Outbox<Reply>,
) -> bool {
    // Where there is no room for an answer the daemon gives it, and waits.
    if answers.len() >= answers.capacity() {
        return false;
    }
    let answer = at_once(request).map(|payload| answers.try_send(Reply { peer: request.peer, payload }));
    matches!(answer, Some(Ok(())))
}

/// The connection's number, perhaps an empty frame, the payload; anything else is no request.
fn parse_request(message: ZmqMessage) -> Option<Request> {
    let mut frames = message.into_vec();
    let payload = frames.pop()?;
    let (delimiter, identity) = match &frames[..] {
        [identity] => (false, identity),
        [identity, delimiter] if delimiter.is_empty() => (true, identity),
        _ => return None,
    };
    if payload.is_empty() && !delimiter {
        return None;
    }
    let connection = parse_identity(identity)?;
    Some(Request { peer: Peer { connection, delimiter }, payload, since: Instant::now() })
}

/// Send replies until no further can come, then until they have left.
async fn send_replies<F: Future<Output = Option<Reply>>>(
    mut socket: RouterSendHalf,
    mut replies: Outgoings<Reply>,
    elsewhere: impl Fn(Reply) -> F,
    mut phase: watch::Receiver<Phase>,
    counters: &Counters,
) {
    let mut sent = 0_usize;
    while let Some(reply) = next(&mut replies, &mut phase).await {
        let Some(Reply { peer, payload }) = elsewhere(reply).await else { continue };
        let long = payload.len() / SHORT_BYTES;
        let mut message = ZmqMessage::from(Bytes::copy_from_slice(&connection_identity(peer.connection)));
        if peer.delimiter {
            message.push_back(Bytes::new());
        }
        message.push_back(payload.into());
        let is_sent = matches!(poll_once(socket.send(message)), Poll::Ready(Ok(())));
        if is_sent { &counters.replies_sent } else { &counters.replies_dropped }.add(1);
        sent += 1;
        pause(sent, long).await;
    }
    drop(elsewhere);
    settle(SocketName::Control, &phase, counters).await;
}

/// Let others have their turn after so many messages, and after a long one as often as it takes to pass it on: the socket
/// holds no more than the message that it has been given last.
async fn pause(sent: usize, long: usize) {
    for _ in 0..2 * long + usize::from(sent.is_multiple_of(TURN)) {
        tokio::task::yield_now().await;
    }
}

/// The identity under which the gate introduces a connection to a ROUTER.
pub(super) fn connection_identity(connection: u64) -> [u8; CONNECTION_BYTES] {
    connection.to_be_bytes()
}

/// The connection that the gate has introduced so.
fn parse_identity(identity: &[u8]) -> Option<u64> {
    identity.try_into().ok().map(u64::from_be_bytes)
}

/// Poll a future once and drop it: a send that would have to wait does not happen.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Send publications until no further can come, then until they have left.
async fn publish(
    mut socket: PubSocket,
    mut publications: Outgoings<Publication>,
    also: impl Fn(&Publication),
    mut phase: watch::Receiver<Phase>,
    counters: &Counters,
) {
    let mut sent = 0_usize;
    while let Some(publication) = next(&mut publications, &mut phase).await {
        also(&publication);
        let Publication { topic, payload } = publication;
        let mut message = ZmqMessage::from(Bytes::from(topic));
        message.push_back(payload);
        // A PUB only puts the message into its own queue, which is emptied at each turn.
        if socket.send(message).await.is_ok() {
            counters.publications_sent.add(1);
        }
        sent += 1;
        if sent.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
    }
    drop(also);
    settle(SocketName::Publish, &phase, counters).await;
}

/// Wait until nothing has left the gate towards the peers of `socket` for a while, or closing may take no longer: the
/// crate sends nothing after its socket is closed and does not say what it still holds.
async fn settle(socket: SocketName, phase: &watch::Receiver<Phase>, counters: &Counters) {
    let now = *phase.borrow();
    let Phase::Closing(deadline) = now else { return };
    let socket = counters.socket(socket);
    let mut sent = socket.bytes_out.get();
    // By looks: while this thread stands still those that send may stand still as well.
    let (mut quiet, mut left) = (Duration::ZERO, deadline.saturating_duration_since(Instant::now()));
    while socket.connections.get() > 0 && !left.is_zero() {
        tokio::time::sleep(SETTLE_INTERVAL).await;
        left = left.saturating_sub(SETTLE_INTERVAL);
        let patience = if socket.backlog_bytes.get() > 0 { PATIENCE } else { QUIET };
        if socket.bytes_out.get() != sent {
            (sent, quiet) = (socket.bytes_out.get(), Duration::ZERO);
        } else {
            quiet += SETTLE_INTERVAL;
        }
        if quiet >= patience {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Dealer, Push};
    use crate::{Settings, start};

    /// The inbox of these tests holds so many messages.
    const INBOX: usize = 8;

    #[test]
    fn of_a_flood_few_messages_stand_before_those_of_another_producer() {
        let (patience, any_port) = (Duration::from_secs(60), || "tcp://127.0.0.1:0".parse().unwrap());
        let settings = Settings { ingest: any_port(), control: any_port(), publish: any_port(), ..Settings::default() };
        let transport = start(Settings { inbox_messages: INBOX, ..settings }).unwrap();
        let connect = || Push::connect(&transport.endpoints.ingest, patience).unwrap();
        let (slow, flooder) = (connect(), connect());
        let arrived = || transport.counters.ingest.bytes_in.get();
        let next = || transport.ingest.recv_timeout(patience).unwrap()[0];
        // When their first messages have come, nothing of their handshakes is on its way.
        for (producer, name) in [(&slow, 1), (&flooder, 0)] {
            producer.send(vec![name]).unwrap();
            assert_eq!(next(), name);
        }
        let mut expected = arrived();
        let mut send = |producer: &Push, message: Vec<u8>| {
            expected += message.len() as u64 + if message.len() > 255 { 9 } else { 2 };
            producer.send(message).unwrap();
            while arrived() < expected {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // So many stand in the flooder's connection, or in the inbox, whenever the other sends.
        let mut taken = 5 * INBOX;
        for _ in 0..5 {
            (0..taken).for_each(|_| send(&flooder, vec![0; 1000]));
            while !transport.ingest.is_full() {
                std::thread::sleep(Duration::from_millis(1));
            }
            send(&slow, vec![1]);
            // With another handshake the gate has had a turn: it has passed on what it had read.
            drop(Dealer::connect(&transport.endpoints.control, patience).unwrap());
            taken = std::iter::from_fn(|| (next() == 0).then_some(())).count();
            // Those in the inbox, the one that waits for it, and one in turn.
            assert!((INBOX..=INBOX + 4).contains(&taken), "{taken} messages came first");
        }
    }

    #[cfg(feature = "curve")]
    #[test]
    fn who_puts_in_much_leaves_half_of_the_inbox() {
        let (inbox, queue) = Inbox::new(4, 100, Count::default());
        let [one, other] = inbox.halves();
        let is_taken = |inbox: &Inbox, bytes: usize| inbox.try_send(vec![0; bytes].into()).is_ok();
        assert_eq!([10, 10, 1].map(|bytes| is_taken(&one, bytes)), [true, true, false], "two of four messages");
        assert_eq!([40, 11].map(|bytes| is_taken(&other, bytes)), [true, false], "40 of 50 bytes");
        assert_eq!(inbox.counted.get(), 60);
        drop(queue.recv().unwrap());
        assert!(is_taken(&one, 1));
    }

    #[cfg(feature = "curve")]
    #[test]
    fn both_halves_together_are_no_more_than_the_inbox() {
        for size in [1, 3] {
            let (inbox, queue) = Inbox::new(size, 100, Count::default());
            let [one, other] = inbox.halves();
            let [first, second] = [&one, &other].map(|half| half.try_send(vec![0; 40].into()).is_ok());
            assert_eq!((first, second), (true, size > 1), "capacity {size}");
            assert!(one.try_send(vec![0].into()).is_err());
            queue.try_iter().for_each(drop);
            assert_eq!((inbox.counted.get(), other.held.messages.get()), (0, 0));
            assert!(other.try_send(vec![0; 40].into()).is_ok());
        }
    }

    fn message(frames: &[&[u8]]) -> ZmqMessage {
        let frames: Vec<_> = frames.iter().map(|f| Bytes::copy_from_slice(f)).collect();
        ZmqMessage::try_from(frames).unwrap()
    }

    #[test]
    fn a_request_has_an_identity_perhaps_a_delimiter_and_a_payload() {
        let id = &connection_identity(7)[..];
        let peer = |delimiter| Peer { connection: 7, delimiter };
        let parse = |frames: &[&[u8]]| parse_request(message(frames)).map(|r| (r.peer, r.payload.to_vec()));
        assert_eq!(parse(&[id, b"x"]), Some((peer(false), b"x".to_vec())));
        assert_eq!(parse(&[id, b"", b"x"]), Some((peer(true), b"x".to_vec())));
        assert_eq!(parse(&[id, b"", b""]), Some((peer(true), Vec::new())));
        for bad in [&[id][..], &[id, b""], &[id, b"x", b"y"], &[id, b"", b"x", b"y"], &[b"short", b"x"]] {
            assert_eq!(parse(bad), None);
        }
    }
}
