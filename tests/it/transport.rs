//! The transport over real sockets: what it promises to well-behaved peers, and what others cannot do to them.
//!
//! Peers are written by hand over plain streams, so that they can misbehave; two tests use the crate's own sockets.

use crate::support::zmtp::{COMMAND, LONG, MORE, frame, greeting};
use crate::support::{PATIENCE, until};
use bytes::Bytes;
use criticd::transport::turns::Share;
use criticd::transport::{
    self, Endpoint, PeerLimits, Publication, Reason, Reply, Request, Settings, StartError, Transport,
};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One request of each peer waits.
const ONE: Share = Share { peer_bytes: 1, total_bytes: 1 };

// ---- a peer by hand ----

enum Stream {
    Tcp(TcpStream),
    Ipc(UnixStream),
}

impl Stream {
    fn connect(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Tcp { host, port } => Self::Tcp(TcpStream::connect((host.as_str(), *port)).unwrap()),
            Endpoint::Ipc(path) => Self::Ipc(UnixStream::connect(path).unwrap()),
        }
        .with_deadline()
    }

    fn with_deadline(self) -> Self {
        match &self {
            Self::Tcp(s) => s.set_read_timeout(Some(PATIENCE)).and(s.set_write_timeout(Some(PATIENCE))),
            Self::Ipc(s) => s.set_read_timeout(Some(PATIENCE)).and(s.set_write_timeout(Some(PATIENCE))),
        }
        .unwrap();
        self
    }

    fn try_clone(&self) -> Self {
        match self {
            Self::Tcp(s) => Self::Tcp(s.try_clone().unwrap()),
            Self::Ipc(s) => Self::Ipc(s.try_clone().unwrap()),
        }
    }

    fn close(&self) {
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
            Self::Ipc(s) => s.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(buf),
            Self::Ipc(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(buf),
            Self::Ipc(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Client {
    stream: Stream,
}

fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type.as_bytes()), ("Identity", identity)] {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value);
    }
    frame(COMMAND, &body)
}

impl Client {
    /// Connect and greet, no more.
    fn greet(endpoint: &Endpoint) -> Self {
        Self::greet_over(Stream::connect(endpoint))
    }

    fn greet_over(stream: Stream) -> Self {
        let mut client = Self { stream };
        client.write(&greeting());
        let mut theirs = [0; 64];
        client.stream.read_exact(&mut theirs).unwrap();
        assert_eq!((theirs[0], theirs[9], theirs[10], &theirs[12..16]), (0xff, 0x7f, 3, &b"NULL"[..]));
        client
    }

    /// A producer of version 3.1, as libzmq is one.
    fn connect_newer(endpoint: &Endpoint) -> Self {
        let mut client = Self { stream: Stream::connect(endpoint) };
        let mut first = greeting();
        first[11] = 1;
        client.write(&first);
        client.stream.read_exact(&mut [0; 64]).unwrap();
        client.introduced("PUSH", b"")
    }

    fn connect(endpoint: &Endpoint, socket_type: &str) -> Self {
        Self::connect_as(endpoint, socket_type, b"")
    }

    fn connect_as(endpoint: &Endpoint, socket_type: &str, identity: &[u8]) -> Self {
        Self::greet(endpoint).introduced(socket_type, identity)
    }

    /// From the address 127.0.0.2.
    fn connect_from_another_address(endpoint: &Endpoint, socket_type: &str) -> Self {
        let Endpoint::Tcp { port, .. } = endpoint else { panic!("{endpoint} has no address") };
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], *port)).into()).unwrap();
        Self::greet_over(Stream::Tcp(socket.into()).with_deadline()).introduced(socket_type, b"")
    }

    fn introduced(self, socket_type: &str, identity: &[u8]) -> Self {
        let mut client = self;
        client.write(&ready(socket_type, identity));
        let (flags, body) = client.read_frame().unwrap();
        assert_eq!((flags, &body[..6]), (COMMAND, &b"\x05READY"[..]));
        client
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn send(&mut self, frames: &[&[u8]]) {
        for (i, body) in frames.iter().enumerate() {
            self.write(&frame(if i + 1 < frames.len() { MORE } else { 0 }, body));
        }
    }

    fn read_frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut flags = [0];
        self.stream.read_exact(&mut flags)?;
        let len = if flags[0] & LONG == 0 {
            let mut len = [0];
            self.stream.read_exact(&mut len)?;
            len[0].into()
        } else {
            let mut len = [0; 8];
            self.stream.read_exact(&mut len)?;
            u64::from_be_bytes(len)
        };
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body)?;
        Ok((flags[0] & !LONG, body))
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let (flags, body) = self.read_frame().unwrap();
            assert_eq!(flags & COMMAND, 0, "a message was expected");
            frames.push(body);
            if flags & MORE == 0 {
                return frames;
            }
        }
    }

    /// Wait until the daemon closes this connection.
    fn assert_closed(&mut self) {
        let mut sink = [0; 4096];
        loop {
            match self.stream.read(&mut sink) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return,
                Err(e) => panic!("the connection should have been closed: {e}"),
            }
        }
    }

    /// Subscribe to `topic` and wait until messages of it arrive.
    fn subscribe(&mut self, transport: &Transport, topic: &str) {
        self.send(&[&[b"\x01", topic.as_bytes()].concat()]);
        let (done, publish) = (Arc::new(AtomicBool::new(false)), transport.publish.clone());
        let probe = publication(topic, b"probe");
        let stop = Arc::clone(&done);
        let prober = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                publish.send(probe.clone()).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        assert_eq!(self.receive(), [topic.as_bytes(), b"probe"]);
        done.store(true, Ordering::Relaxed);
        prober.join().unwrap();
    }

    /// The next publication that is no probe of [`Self::subscribe`].
    fn next_publication(&mut self) -> Vec<Vec<u8>> {
        loop {
            let message = self.receive();
            if message[1] != b"probe" {
                return message;
            }
        }
    }
}

// ---- a transport ----

fn loopback() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

/// No peer is given up because the machine stands still.
fn limits() -> PeerLimits {
    let [handshake_timeout, stall_timeout, saturated_timeout] = [PATIENCE; 3];
    PeerLimits { handshake_timeout, stall_timeout, saturated_timeout, ..PeerLimits::default() }
}

fn settings() -> Settings {
    let limits = limits();
    Settings { ingest: loopback(), control: loopback(), publish: loopback(), limits, ..Settings::default() }
}

fn start() -> Transport {
    start_with(limits())
}

fn start_with(limits: PeerLimits) -> Transport {
    transport::start(Settings { limits, ..settings() }).unwrap()
}

fn ipc(directory: &Path, name: &str) -> Endpoint {
    format!("ipc://{}", directory.join(name).display()).parse().unwrap()
}

fn ipc_settings(directory: &Path) -> Settings {
    Settings {
        ingest: ipc(directory, "ingest"),
        control: ipc(directory, "control"),
        publish: ipc(directory, "publish"),
        limits: limits(),
        ..Settings::default()
    }
}

fn publication(topic: &str, payload: &[u8]) -> Publication {
    Publication { topic: topic.to_owned(), payload: Bytes::copy_from_slice(payload) }
}

/// Answer every request with what `answer` makes of it, until the queue is disconnected.
fn answer(transport: &Transport, answer: impl Fn(Request) -> Vec<u8> + Send + 'static) {
    let (control, replies) = (transport.control.clone(), transport.replies.clone());
    thread::spawn(move || {
        while let Ok(request) = control.recv_timeout(PATIENCE) {
            let peer = request.peer;
            if replies.send(Reply { peer, payload: answer(request) }).is_err() {
                return;
            }
        }
    });
}

fn echo(transport: &Transport) {
    answer(transport, |request| request.payload.to_vec());
}

fn round_trips(transport: &Transport) {
    let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    producer.send(&[b"row"]);
    assert_eq!(transport.ingest.recv_timeout(PATIENCE).unwrap(), "row");

    echo(transport);
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    client.send(&[b"question"]);
    assert_eq!(client.receive(), [b"question"]);

    let mut subscriber = Client::connect(&transport.endpoints.publish, "SUB");
    subscriber.subscribe(transport, "event.");
    transport.publish.send(publication("status", b"not subscribed")).unwrap();
    transport.publish.send(publication("event.adopted", b"payload")).unwrap();
    assert_eq!(subscriber.next_publication(), [&b"event.adopted"[..], b"payload"]);
}

// ---- what well-behaved peers get ----

#[test]
fn messages_make_the_round_over_tcp_on_ports_that_the_system_chose() {
    let transport = start();
    for endpoint in [&transport.endpoints.ingest, &transport.endpoints.control, &transport.endpoints.publish] {
        assert!(matches!(endpoint, Endpoint::Tcp { port, .. } if *port != 0), "{endpoint}");
    }
    round_trips(&transport);
    // They are counted when they are on their way.
    until("the message to be counted", || transport.counters.ingest_messages.get() == 1);
    until("the reply to be counted", || transport.counters.replies_sent.get() == 1);
    assert_eq!(transport.dead_thread(), None);
    transport.shutdown(PATIENCE);
}

#[test]
fn messages_make_the_round_over_ipc_which_only_our_user_may_use() {
    let directory = tempfile::tempdir().unwrap();
    let transport = transport::start(ipc_settings(directory.path())).unwrap();
    let mode = directory.path().join("control").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    round_trips(&transport);
    transport.shutdown(PATIENCE);
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "the sockets are removed");
}

#[test]
fn the_crates_own_sockets_are_served() {
    use zeromq::{PushSocket, ReqSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};
    let transport = start();
    echo(&transport);
    let (endpoints, publish) = (transport.endpoints.clone(), transport.publish.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut push = PushSocket::new();
        push.connect(&endpoints.ingest.to_string()).await.unwrap();
        push.send("row".into()).await.unwrap();

        let mut req = ReqSocket::new();
        req.connect(&endpoints.control.to_string()).await.unwrap();
        req.send("question".into()).await.unwrap();
        assert_eq!(req.recv().await.unwrap().get(0).unwrap(), "question");

        let mut sub = SubSocket::new();
        sub.connect(&endpoints.publish.to_string()).await.unwrap();
        sub.subscribe("status").await.unwrap();
        let message: ZmqMessage = loop {
            publish.send(publication("status", b"fine")).unwrap();
            tokio::select! {
                message = sub.recv() => break message.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        };
        assert_eq!((message.get(0).unwrap(), message.get(1).unwrap()), (&Bytes::from("status"), &Bytes::from("fine")));
        tokio::task::spawn_blocking(move || transport.ingest.recv_timeout(PATIENCE).map(|m| assert_eq!(m, "row")))
            .await
            .unwrap()
            .unwrap();
    });
}

#[test]
fn a_delimiter_comes_back_where_one_was_sent() {
    let transport = start();
    echo(&transport);
    let mut req = Client::connect(&transport.endpoints.control, "REQ");
    req.send(&[b"", b"a"]);
    assert_eq!(req.receive(), [&b""[..], b"a"]);
    let mut dealer = Client::connect(&transport.endpoints.control, "DEALER");
    dealer.send(&[b"b"]);
    assert_eq!(dealer.receive(), [b"b"]);
    dealer.send(&[b"", b"c"]);
    assert_eq!(dealer.receive(), [&b""[..], b"c"]);
}

#[test]
fn messages_with_other_frames_are_counted_and_the_next_is_served() {
    let transport = start();
    echo(&transport);
    let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    producer.send(&[b"a", b"b"]);
    producer.send(&[b"whole"]);
    assert_eq!(transport.ingest.recv_timeout(PATIENCE).unwrap(), "whole");
    assert_eq!(transport.counters.ingest_malformed.get(), 1);
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    client.send(&[b"a", b"b", b"c"]);
    client.send(&[b""]);
    client.send(&[b"good"]);
    assert_eq!(client.receive(), [b"good"]);
    assert_eq!(transport.counters.control_malformed.get(), 2);
}

#[test]
fn a_ping_is_answered_on_every_socket() {
    let transport = start();
    let endpoints = &transport.endpoints;
    for (endpoint, kind) in [(&endpoints.ingest, "PUSH"), (&endpoints.control, "DEALER"), (&endpoints.publish, "SUB")] {
        let mut client = Client::connect(endpoint, kind);
        client.write(&frame(COMMAND, b"\x04PING\x00\x64hello"));
        assert_eq!(client.read_frame().unwrap(), (COMMAND, b"\x04PONGhello".to_vec()));
    }
}

#[test]
fn subscriptions_may_come_as_commands() {
    let transport = start();
    let mut subscriber = Client::connect(&transport.endpoints.publish, "SUB");
    subscriber.write(&frame(COMMAND, b"\x09SUBSCRIBEa"));
    subscriber.subscribe(&transport, "b");
    transport.publish.send(publication("a", b"1")).unwrap();
    assert_eq!(subscriber.next_publication(), [b"a", b"1"]);
    subscriber.write(&frame(COMMAND, b"\x06CANCELa"));
    // The command is in force once a later one is.
    subscriber.send(&[b"\x00b"]);
    subscriber.subscribe(&transport, "c");
    transport.publish.send(publication("a", b"2")).unwrap();
    transport.publish.send(publication("c", b"3")).unwrap();
    assert_eq!(subscriber.next_publication(), [b"c", b"3"]);
}

#[test]
fn what_a_producer_sent_arrives_although_it_left_at_once() {
    let transport = start();
    for i in 0..50_u8 {
        let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
        producer.send(&[&[i]]);
        drop(producer);
    }
    let mut arrived: Vec<_> = (0..50).map(|_| transport.ingest.recv_timeout(PATIENCE).unwrap()[0]).collect();
    arrived.sort_unstable();
    assert_eq!(arrived, (0..50).collect::<Vec<_>>());
    until("the connections to go", || transport.counters.ingest.connections.get() == 0);
}

// ---- back-pressure ----

/// Push `count` numbered messages of 64 KiB on a thread of its own; the counter says how many are written.
fn push_numbered(client: &Client, count: u64) -> (Arc<AtomicU64>, thread::JoinHandle<()>) {
    let mut stream = client.stream.try_clone();
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let writer = thread::spawn(move || {
        let mut body = vec![0; 64 << 10];
        for i in 0..count {
            body[..8].copy_from_slice(&i.to_le_bytes());
            stream.write_all(&frame(0, &body)).unwrap();
            counter.store(i + 1, Ordering::SeqCst);
        }
    });
    (written, writer)
}

#[test]
fn a_full_inbox_slows_the_producer_and_loses_nothing() {
    let transport = transport::start(Settings { inbox_messages: 4, ..settings() }).unwrap();
    let producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    // 64 MiB: the buffers on the way, the kernel's included, hold a fraction of it.
    let count = 1024;
    let (written, writer) = push_numbered(&producer, count);
    until("the inbox to be full", || transport.ingest.is_full());
    for i in 0..count {
        let ahead = written.load(Ordering::SeqCst).saturating_sub(i);
        assert!(ahead < count / 2, "{ahead} messages are under way");
        let message = transport.ingest.recv_timeout(PATIENCE).unwrap();
        assert_eq!(u64::from_le_bytes(message[..8].try_into().unwrap()), i);
    }
    writer.join().unwrap();
    assert!(transport.ingest.is_empty());
}

#[test]
fn a_producer_whose_pings_cannot_be_read_hears_from_us_all_the_same() {
    let transport = transport::start(Settings { inbox_messages: 1, ..settings() }).unwrap();
    let mut producer = Client::connect_newer(&transport.endpoints.ingest);
    producer.write(&frame(COMMAND, b"\x04PING\x00\x64first"));
    assert_eq!(producer.read_frame().unwrap(), (COMMAND, b"\x04PONGfirst".to_vec()));
    // Its next PING would come behind the messages.
    let (_, writer) = push_numbered(&producer, 1024);
    for _ in 0..3 {
        assert_eq!(producer.read_frame().unwrap(), (COMMAND, b"\x04PONG".to_vec()));
    }
    // Another producer's handshake and PING do not wait for the inbox either.
    let mut other = Client::connect(&transport.endpoints.ingest, "PUSH");
    other.write(&frame(COMMAND, b"\x04PING\x00\x64other"));
    assert_eq!(other.read_frame().unwrap(), (COMMAND, b"\x04PONGother".to_vec()));
    let drained = transport.ingest.clone();
    let drain = thread::spawn(move || (0..1024).for_each(|_| drop(drained.recv_timeout(PATIENCE).unwrap())));
    writer.join().unwrap();
    drain.join().unwrap();
}

/// Push messages that begin with `name` on a thread of its own, until the kernel takes no more and `stop` is set. How many, then.
fn push_until(
    mut stream: Stream,
    name: u8,
    stop: &Arc<AtomicBool>,
    written: &Arc<AtomicU64>,
) -> thread::JoinHandle<u64> {
    let (stop, written) = (Arc::clone(stop), Arc::clone(written));
    thread::spawn(move || {
        let message = frame(0, &[name; 4 << 10]);
        let mut count = 0;
        while !stop.load(Ordering::SeqCst) {
            stream.write_all(&message).unwrap();
            count += 1;
            written.fetch_add(1, Ordering::SeqCst);
        }
        count
    })
}

/// Wait until a number rises no more.
fn until_still(what: &str, number: &AtomicU64) {
    let before = Cell::new(0);
    until(what, || {
        thread::sleep(Duration::from_millis(200));
        let now = number.load(Ordering::SeqCst);
        before.replace(now) == now && now > 0
    });
}

#[test]
fn what_a_producer_has_sent_arrives_although_it_closes_while_it_is_held() {
    let transport = transport::start(Settings { inbox_messages: 1, ..settings() }).unwrap();
    let ingest = &transport.endpoints.ingest;
    let [closes, mut listens, mut asks] = [(); 3].map(|()| Client::connect_newer(ingest));
    // This one is sent a PONG at each turn of the timer while it is held: by these the others' turns are counted.
    asks.write(&frame(COMMAND, b"\x04PING\x00\x64first"));
    assert_eq!(asks.read_frame().unwrap(), (COMMAND, b"\x04PONGfirst".to_vec()));

    let turns = Arc::new(AtomicU64::new(0));
    let (mut pongs, counted) = (Client { stream: asks.stream.try_clone() }, Arc::clone(&turns));
    let counter = thread::spawn(move || {
        while let Ok(read) = pongs.read_frame() {
            assert_eq!(read, (COMMAND, b"\x04PONG".to_vec()));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });

    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let push = |client: &Client, name| push_until(client.stream.try_clone(), name, &stop, &written);
    let writers = [push(&closes, 0), push(&listens, 1), push(&asks, 2)];
    until_still("the producers to be held", &written);
    // They may have stood still for want of a processor.
    until("the one that asks to be held", || turns.load(Ordering::SeqCst) > 0);
    stop.store(true, Ordering::SeqCst);
    // Each is in the midst of a message: it ends with a whole one.
    let mut arrived = [0; 3];
    let take = |arrived: &mut [u64; 3]| {
        let message = transport.ingest.recv_timeout(PATIENCE).unwrap();
        assert!(message.len() == 4 << 10 && message.iter().all(|byte| *byte == message[0]));
        arrived[usize::from(message[0])] += 1;
    };
    while !writers.iter().all(|writer| writer.is_finished()) {
        take(&mut arrived);
    }
    let sent = writers.map(|writer| writer.join().unwrap());
    drop(closes);
    let Stream::Tcp(stream) = &listens.stream else { panic!("it is a TCP connection") };
    stream.shutdown(Shutdown::Write).unwrap();
    let before = turns.load(Ordering::SeqCst);
    until("some turns to pass", || turns.load(Ordering::SeqCst) >= before + 5);
    while arrived.iter().sum::<u64>() < sent.iter().sum() {
        take(&mut arrived);
    }
    assert_eq!(arrived, sent);
    let mut heard = Vec::new();
    listens.stream.read_to_end(&mut heard).unwrap();
    assert!(heard.is_empty(), "it was sent {heard:?}");
    assert!(transport.counters.ingest.broken().is_empty());
    asks.stream.close();
    counter.join().unwrap();
}

/// A connection that is closed breaks: the other end hears of a reset, and not of an end.
fn reset(client: Client) {
    let Stream::Tcp(stream) = client.stream else { panic!("only TCP has resets") };
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn connections_of_producers_that_break_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    for settings in [settings(), ipc_settings(directory.path())] {
        let transport = transport::start(settings).unwrap();
        let (ingest, control) = (&transport.endpoints.ingest, &transport.endpoints.control);
        let broken = |reason| transport.counters.ingest.cut(reason);
        let next = || transport.ingest.recv_timeout(PATIENCE).unwrap();
        let producer = |bytes: &[u8]| {
            let mut producer = Client::connect(ingest, "PUSH");
            producer.send(&[b"whole"]);
            producer.write(bytes);
            assert_eq!(next(), "whole");
            producer
        };
        let message = frame(0, &[7; 300]);
        let ends =
            [&message[..1], &message[..9], &message[..200], &frame(MORE, b"first"), &frame(COMMAND, b"\x04PING")[..3]];
        for (count, bytes) in (1..).zip(ends) {
            drop(producer(bytes));
            until("an end within a message to be counted", || broken(Reason::MidMessage) == count);
        }
        drop(producer(b""));
        let mut client = Client::connect(control, "DEALER");
        client.write(&message[..200]);
        drop(client);
        let counters = &transport.counters;
        until("all to have gone", || counters.ingest.connections.get() + counters.control.connections.get() == 0);
        assert_eq!((broken(Reason::MidMessage), broken(Reason::Reset)), (5, 0));
        assert_eq!(counters.control.cut(Reason::MidMessage), 0, "a client knows what was not answered");
        if matches!(ingest, Endpoint::Tcp { .. }) {
            reset(producer(b""));
            until("a reset to be counted", || broken(Reason::Reset) == 1);
            reset(producer(&message[..200]));
            until("a reset within a message to be counted", || broken(Reason::Reset) == 2);
            assert_eq!(broken(Reason::MidMessage), 5);
        }
    }
}

#[test]
fn replies_go_out_while_requests_wait() {
    let transport = transport::start(Settings { requests: ONE, ..settings() }).unwrap();
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    for i in 0..200_u8 {
        client.send(&[&[i]]);
    }
    until("the queue to be full", || !transport.control.is_empty());
    for i in 0..200_u8 {
        let request = transport.control.recv_timeout(PATIENCE).unwrap();
        assert_eq!(request.payload[..], [i]);
        transport.replies.send(Reply { peer: request.peer, payload: vec![i] }).unwrap();
        assert_eq!(client.receive(), [[i]]);
    }
}

#[test]
fn a_client_beyond_its_share_is_not_read_and_others_are() {
    let share = Share { peer_bytes: 256 << 10, total_bytes: 1 << 20 };
    let transport = transport::start(Settings { requests: share, ..settings() }).unwrap();
    let greedy = Client::connect(&transport.endpoints.control, "DEALER");
    // 64 MiB: the buffers on the way, the kernel's included, hold a fraction of it.
    let count = 1024;
    let (written, writer) = push_numbered(&greedy, count);
    until("its share to be full", || transport.control.bytes() >= share.peer_bytes);
    let mut modest = Client::connect(&transport.endpoints.control, "DEALER");
    modest.send(&[b"question"]);
    until("the question", || transport.control.next_of(|request| request.payload[..] == *b"question").is_some());
    for _ in 0..count {
        // What has passed the gate when it was held, of one connection, comes on top.
        assert!(transport.control.bytes() < share.peer_bytes + (1 << 20), "{} bytes", transport.control.bytes());
        transport.control.recv_timeout(PATIENCE).unwrap();
    }
    writer.join().unwrap();
    assert_eq!(written.load(Ordering::SeqCst), count);
}

#[test]
fn many_connections_of_an_address_get_the_turns_of_one() {
    let transport = start();
    let control = &transport.endpoints.control;
    let mut many: Vec<Client> = (0..20).map(|_| Client::connect_from_another_address(control, "DEALER")).collect();
    many.iter_mut().for_each(|client| client.send(&[b"one of many"]));
    until("all of them to wait", || transport.control.len() == 20);
    let mut other = Client::connect(control, "DEALER");
    (0..3).for_each(|_| other.send(&[b"other"]));
    until("the others to wait", || transport.control.len() == 23);
    let order: Vec<bool> = (0..6).map(|_| transport.control.next().unwrap().payload[..] == *b"other").collect();
    assert_eq!(order, [false, true, false, true, false, true]);
}

#[test]
fn what_a_client_asked_for_goes_with_it() {
    let transport = start();
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    for i in 0..50_u8 {
        client.send(&[&[i]]);
    }
    until("all to wait", || transport.control.len() == 50);
    let peer = transport.control.recv_timeout(PATIENCE).unwrap().peer;
    drop(client);
    until("none to wait", || transport.control.is_empty());
    assert!(transport.control.take_gone().contains(&peer.connection));
}

#[test]
fn long_messages_that_are_begun_are_bounded_in_all() {
    let limits = PeerLimits { unfinished_bytes_max: 2 << 20, stall_timeout: Duration::from_millis(300), ..limits() };
    let transport = start_with(limits);
    // More than may be begun: they say that a mebibyte follows, send some of it, and stop.
    let mut halves: Vec<_> = (0..5).map(|_| Client::connect(&transport.endpoints.ingest, "PUSH")).collect();
    for half in &mut halves {
        let header = [&[LONG][..], &(1_u64 << 20).to_be_bytes()].concat();
        half.write(&header);
        half.write(&[0; 32 << 10]);
    }
    // Short ones pass, and long ones as soon as there is room.
    let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    producer.send(&[b"short"]);
    assert_eq!(transport.ingest.recv_timeout(PATIENCE).unwrap(), "short");
    producer.send(&[&[7; 1 << 20]]);
    assert_eq!(transport.ingest.recv_timeout(PATIENCE).unwrap().len(), 1 << 20);
    until("those that stopped to be cut", || transport.counters.ingest.cut(Reason::Stalled) > 0);
}

#[test]
fn whole_messages_that_the_daemon_has_not_taken_are_bounded_in_all() {
    // Each is longer than what is read of a connection at once.
    const LEN: usize = 160 << 10;
    const MESSAGES: usize = 64;
    const ROOM: u64 = 1 << 20;
    let limits = PeerLimits { unfinished_bytes_max: 2 << 20, message_bytes_max: 1 << 20, ..limits() };
    let transport = transport::start(Settings { inbox_bytes: 1, limits, ..settings() }).unwrap();
    let (counters, endpoint) = (&transport.counters, transport.endpoints.ingest.clone());
    thread::scope(|scope| {
        for k in 0..MESSAGES {
            let mut producer = Client::connect(&endpoint, "PUSH");
            let _ = scope.spawn(move || producer.send(&[&[k as u8; LEN]]));
        }
        // Nobody reads them. They wait until no more comes in.
        let before = Cell::new(0);
        until("the producers to wait", || {
            thread::sleep(Duration::from_millis(300));
            let now = counters.ingest.bytes_in.get();
            before.replace(now) == now && transport.ingest.len() == 1
        });
        // One in the inbox, those that have room, and of each connection a piece of the next one.
        let pieces = MESSAGES * (transport::SHORT_BYTES + 512);
        let most = ROOM + (LEN + pieces) as u64;
        assert!(before.get() <= most, "{} bytes came in, at most {most}", before.get());
        assert!(counters.queued.unfinished.get() <= ROOM);
        let mut seen: Vec<u8> =
            (0..MESSAGES).map(|_| transport.ingest.recv_timeout(PATIENCE).unwrap()[LEN - 1]).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..MESSAGES as u8).collect::<Vec<_>>());
    });
    until("all to be taken", || counters.queued.unfinished.get() == 0);
}

#[test]
fn answers_that_wait_are_bounded_in_all() {
    let limits = PeerLimits { backlog_bytes_total_max: 4 << 20, ..limits() };
    let transport = start_with(limits);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = Client::connect(&transport.endpoints.control, "DEALER");
            client.send(&[b"question"]);
            let peer = transport.control.recv_timeout(PATIENCE).unwrap().peer;
            (client, peer)
        })
        .collect();
    // More than the kernel's buffers hold for each.
    for _ in 0..24 {
        for (_, peer) in &clients {
            transport.replies.send(Reply { peer: *peer, payload: vec![1; 1 << 20] }).unwrap();
        }
    }
    until("some to be dropped", || transport.counters.control.backlog_dropped.get() > 0);
    let waiting = transport.counters.control.backlog_bytes.get();
    assert!(waiting <= (4 << 20) + 8 * transport::SHORT_BYTES as u64, "{waiting} bytes wait");
    // A short answer passes.
    let mut other = Client::connect(&transport.endpoints.control, "DEALER");
    other.send(&[b"question"]);
    let peer = transport.control.recv_timeout(PATIENCE).unwrap().peer;
    transport.replies.send(Reply { peer, payload: b"answer".to_vec() }).unwrap();
    assert_eq!(other.receive(), [b"answer"]);
}

#[test]
fn what_is_answered_at_once_is_not_handed_over() {
    let at_once = |request: &transport::Request| request.payload[0].is_multiple_of(2).then(|| request.payload.to_vec());
    let transport = transport::start_answering(Settings { requests: ONE, ..settings() }, at_once).unwrap();
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    for i in (0..200_u8).step_by(2) {
        client.send(&[&[i]]);
        assert_eq!(client.receive(), [[i]]);
    }
    client.send(&[&[7]]);
    let request = transport.control.recv_timeout(PATIENCE).unwrap();
    assert_eq!(request.payload[..], [7]);
    client.send(&[&[8]]);
    assert_eq!(client.receive(), [[8]], "it does not wait for the one before");
    transport.replies.send(Reply { peer: request.peer, payload: vec![7] }).unwrap();
    assert_eq!(client.receive(), [[7]]);
    assert_eq!(transport.counters.requests.get(), 102);
    transport.shutdown(PATIENCE);
}

// ---- what others cannot do ----

#[test]
fn an_absurd_frame_length_costs_only_that_peer() {
    let transport = start();
    let mut good = Client::connect(&transport.endpoints.ingest, "PUSH");
    let absurd = [&[LONG][..], &(1_u64 << 62).to_be_bytes()].concat();
    let mut bad = Client::connect(&transport.endpoints.ingest, "PUSH");
    bad.send(&[b"before"]);
    bad.write(&absurd);
    bad.assert_closed();
    assert_eq!(transport.ingest.recv_timeout(PATIENCE).unwrap(), "before", "what was sound is delivered");
    let mut early = Client::greet(&transport.endpoints.ingest);
    early.write(&[&[COMMAND | LONG][..], &absurd[1..]].concat());
    early.assert_closed();
    good.send(&[b"after"]);
    assert_eq!(transport.ingest.recv_timeout(PATIENCE).unwrap(), "after");
    assert_eq!(transport.counters.ingest.cut(Reason::FrameTooLarge), 1);
    assert_eq!(transport.counters.ingest.cut(Reason::HandshakeTooLong), 1);
}

#[test]
fn messages_of_too_many_frames_or_bytes_are_cut() {
    let transport = start_with(PeerLimits { message_bytes_max: 1000, ..limits() });
    let mut many = Client::connect(&transport.endpoints.control, "DEALER");
    many.write(&frame(MORE, b"").repeat(17));
    many.assert_closed();
    let mut long = Client::connect(&transport.endpoints.ingest, "PUSH");
    long.write(&[frame(MORE, &[0; 600]), frame(0, &[0; 401])].concat());
    long.assert_closed();
    assert_eq!(transport.counters.control.cut(Reason::TooManyParts), 1);
    assert_eq!(transport.counters.ingest.cut(Reason::MessageTooLarge), 1);
}

#[test]
fn noise_harms_nobody() {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let transport = start();
    let endpoints = transport.endpoints.clone();
    for (endpoint, kind) in [(&endpoints.ingest, "PUSH"), (&endpoints.control, "DEALER"), (&endpoints.publish, "SUB")] {
        for _ in 0..30 {
            let mut noise = [0; 512];
            random.fill(&mut noise);
            // Some frames start well, so that the noise gets further.
            noise[0] &= 7;
            let _ = Client::greet(endpoint).stream.write_all(&noise);
            let mut introduced = Client::connect(endpoint, kind);
            let _ = introduced.stream.write_all(&noise);
        }
    }
    // What of it was a whole message has arrived like any other.
    until("the noise to be over", || {
        transport.ingest.try_iter().for_each(drop);
        while transport.control.next().is_some() {}
        let counters = &transport.counters;
        [&counters.ingest, &counters.control, &counters.publish].iter().all(|c| c.connections.get() == 0)
    });
    round_trips(&transport);
    assert_eq!(transport.dead_thread(), None);
}

#[test]
fn a_peer_that_does_not_finish_its_handshake_is_cut() {
    let transport = start_with(PeerLimits { handshake_timeout: Duration::from_millis(100), ..limits() });
    let mut silent = Client { stream: Stream::connect(&transport.endpoints.ingest) };
    let mut halfway = Client::greet(&transport.endpoints.control);
    silent.assert_closed();
    halfway.assert_closed();
    assert_eq!(transport.counters.ingest.cut(Reason::HandshakeTimeout), 1);
    assert_eq!(transport.counters.control.cut(Reason::HandshakeTimeout), 1);
}

#[test]
fn other_protocols_mechanisms_and_socket_types_are_refused() {
    let transport = start();
    let ingest = &transport.endpoints.ingest;
    let first_bytes = |change: fn(&mut [u8; 64])| {
        let mut bytes = greeting();
        change(&mut bytes);
        let mut client = Client { stream: Stream::connect(ingest) };
        client.write(&bytes);
        client.assert_closed();
    };
    first_bytes(|g| *g = *b"GET / HTTP/1.1\r\nHost: somebody-who-is-quite-lost.example.org\r\n\r\n");
    first_bytes(|g| g[10] = 1);
    first_bytes(|g| g[12..17].copy_from_slice(b"CURVE"));
    let mut wrong = Client::greet(ingest);
    wrong.write(&ready("PUB", b""));
    wrong.assert_closed();
    for reason in
        [Reason::BadGreeting, Reason::UnsupportedVersion, Reason::UnsupportedMechanism, Reason::WrongSocketType]
    {
        assert_eq!(transport.counters.ingest.cut(reason), 1, "{}", reason.name());
    }
}

#[test]
fn an_identity_that_is_live_is_refused_until_its_peer_leaves() {
    let transport = start();
    echo(&transport);
    let control = &transport.endpoints.control;
    let mut first = Client::connect_as(control, "DEALER", b"me");
    let mut second = Client::greet(control);
    second.write(&ready("DEALER", b"me"));
    second.assert_closed();
    let mut long = Client::greet(control);
    long.write(&ready("DEALER", &[b'x'; 65]));
    long.assert_closed();
    assert_eq!(transport.counters.control.cut(Reason::IdentityInUse), 1);
    assert_eq!(transport.counters.control.cut(Reason::IdentityTooLong), 1);
    first.send(&[b"still here"]);
    assert_eq!(first.receive(), [b"still here"]);
    first.stream.close();
    until("the peer to go", || transport.counters.control.connections.get() == 0);
    let mut third = Client::connect_as(control, "DEALER", b"me");
    third.send(&[b"here again"]);
    assert_eq!(third.receive(), [b"here again"]);
}

#[test]
fn connections_are_limited_altogether_and_by_address() {
    let directory = tempfile::tempdir().unwrap();
    let limits = PeerLimits { connections_max: 3, connections_per_address_max: 2, ..limits() };
    let ingest = ipc(directory.path(), "ingest");
    let transport = transport::start(Settings { ingest, limits, ..settings() }).unwrap();
    let control = &transport.endpoints.control;
    let keep = [Client::connect(control, "DEALER"), Client::connect(control, "DEALER")];
    Client { stream: Stream::connect(control) }.assert_closed();
    let last = Client::connect(&transport.endpoints.ingest, "PUSH");
    Client { stream: Stream::connect(&transport.endpoints.ingest) }.assert_closed();
    assert_eq!(transport.counters.control.cut(Reason::TooManyFromAddress), 1);
    assert_eq!(transport.counters.ingest.cut(Reason::TooManyConnections), 1);
    drop((keep, last));
    until("the places to be free", || transport.counters.control.connections.get() == 0);
    Client::connect(control, "DEALER");
}

#[test]
fn subscriptions_are_limited() {
    let transport = start_with(PeerLimits { subscriptions_max: 2, ..limits() });
    let mut subscriber = Client::connect(&transport.endpoints.publish, "SUB");
    [b"\x01a", b"\x01b", b"\x01c"].iter().for_each(|s| subscriber.send(&[*s]));
    subscriber.assert_closed();
    assert_eq!(transport.counters.publish.cut(Reason::TooManySubscriptions), 1);
}

#[test]
fn a_client_that_never_reads_its_replies_delays_no_other() {
    let limits = PeerLimits { backlog_bytes_max: 4 << 20, stall_timeout: Duration::from_millis(500), ..limits() };
    let transport = start_with(limits);
    answer(&transport, |_| vec![7; 64 << 10]);
    let deaf = Client::connect(&transport.endpoints.control, "DEALER");
    let mut stream = deaf.stream.try_clone();
    let flood = thread::spawn(move || while stream.write_all(&frame(0, b"more!")).is_ok() {});
    let mut other = Client::connect(&transport.endpoints.control, "DEALER");
    for _ in 0..200 {
        other.send(&[b"question"]);
        assert_eq!(other.receive(), [[7; 64 << 10]]);
    }
    until("the deaf client to be cut", || transport.counters.control.cut(Reason::Stalled) == 1);
    other.send(&[b"question"]);
    assert_eq!(other.receive(), [[7; 64 << 10]]);
    drop(deaf);
    flood.join().unwrap();
}

#[test]
fn a_dead_subscriber_is_cut_and_the_others_miss_nothing() {
    let transport = start_with(PeerLimits { stall_timeout: Duration::from_millis(500), ..limits() });
    let mut dead = Client::connect(&transport.endpoints.publish, "SUB");
    dead.subscribe(&transport, "n");
    let mut alive = Client::connect(&transport.endpoints.publish, "SUB");
    alive.subscribe(&transport, "n");
    let mut payload = vec![0; 64 << 10];
    let mut i = 0_u64;
    let start = Instant::now();
    while transport.counters.publish.cut(Reason::Stalled) == 0 {
        assert!(start.elapsed() < PATIENCE, "the dead subscriber was never cut");
        payload[..8].copy_from_slice(&i.to_le_bytes());
        transport.publish.send(publication("n", &payload)).unwrap();
        assert_eq!(alive.next_publication()[1], payload);
        i += 1;
    }
    until("it to be gone", || transport.counters.publish.connections.get() == 1);
}

#[test]
fn a_subscriber_that_never_catches_up_is_cut_and_its_backlog_is_bounded() {
    let limits = PeerLimits { backlog_bytes_max: 1 << 20, saturated_timeout: Duration::from_millis(500), ..limits() };
    let transport = start_with(limits);
    let mut slow = Client::connect(&transport.endpoints.publish, "SUB");
    slow.subscribe(&transport, "n");
    let start = Instant::now();
    let payload = vec![0; 64 << 10];
    while transport.counters.publish.cut(Reason::Saturated) == 0 {
        assert!(start.elapsed() < PATIENCE, "the slow subscriber was never cut");
        transport.publish.send(publication("n", &payload)).unwrap();
        thread::sleep(Duration::from_micros(200));
    }
    assert!(transport.counters.publish.backlog_dropped.get() > 0);
}

// ---- the beginning and the end ----

#[test]
fn a_socket_that_a_dead_process_left_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the file outlives its listener");
    let transport = transport::start(ipc_settings(directory.path())).unwrap();
    let error = transport::start(ipc_settings(directory.path())).err().unwrap();
    assert!(matches!(error, StartError::InUse { .. }), "{error}");
    round_trips(&transport);
    transport.shutdown(PATIENCE);

    std::fs::write(&path, "notes").unwrap();
    let error = transport::start(ipc_settings(directory.path())).err().unwrap();
    assert!(matches!(error, StartError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
    assert!(!directory.path().join("ingest").exists(), "nothing stays bound");
}

#[test]
fn an_address_in_use_is_named_with_what_to_do() {
    let transport = start();
    let again = Settings { control: transport.endpoints.control.clone(), ..settings() };
    let message = transport::start(again).err().unwrap().to_string();
    let endpoint = transport.endpoints.control.to_string();
    assert!(message.contains(&endpoint) && message.contains("--control"), "{message}");
}

#[test]
fn other_machines_are_let_in_only_on_request() {
    let everywhere: Endpoint = "tcp://0.0.0.0:0".parse().unwrap();
    let remote = Settings { publish: everywhere, ..settings() };
    let message = transport::start(remote.clone()).err().unwrap().to_string();
    assert!(message.contains("publish: tcp://0.0.0.0:0") && message.contains("insecure"), "{message}");
    transport::start(Settings { allow_remote: true, ..remote }).unwrap().shutdown(PATIENCE);
}

#[test]
fn a_name_that_stands_for_nothing_is_refused() {
    let nowhere = Settings { ingest: "tcp://no-such-host.invalid:0".parse().unwrap(), ..settings() };
    let error = transport::start(nowhere).err().unwrap();
    assert!(matches!(error, StartError::Unresolved { .. }), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn after_stop_receiving_the_queues_end_with_what_was_taken() {
    let transport = start();
    let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    producer.send(&[b"row"]);
    client.send(&[b"question"]);
    until("both to be taken", || transport.ingest.len() == 1 && transport.control.len() == 1);
    transport.stop_receiving();
    assert_eq!(transport.ingest.iter().collect::<Vec<_>>(), ["row"]);
    let requests: Vec<_> = std::iter::from_fn(|| transport.control.recv_timeout(PATIENCE).ok()).collect();
    assert_eq!(requests.len(), 1);
    transport.replies.send(Reply { peer: requests[0].peer, payload: b"answer".to_vec() }).unwrap();
    assert_eq!(client.receive(), [b"answer"]);
    assert_eq!(transport.dead_thread(), None);
    transport.shutdown(PATIENCE);
}

#[test]
fn stop_receiving_does_not_lose_the_message_that_waits_for_the_inbox() {
    let transport = transport::start(Settings { inbox_messages: 1, ..settings() }).unwrap();
    let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    (0..100_u8).for_each(|i| producer.send(&[&[i]]));
    until("the inbox to be full", || transport.ingest.is_full());
    transport.stop_receiving();
    let taken: Vec<_> = transport.ingest.iter().map(|m| m[0]).collect();
    assert_eq!(taken, (0..taken.len() as u8).collect::<Vec<_>>());
    assert_eq!(taken.len() as u64, transport.counters.ingest_messages.get());
    producer.assert_closed();
}

#[test]
fn shutdown_sends_what_is_queued() {
    let transport = start();
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    let mut subscriber = Client::connect(&transport.endpoints.publish, "SUB");
    subscriber.subscribe(&transport, "n");
    client.send(&[b"question"]);
    let peer = transport.control.recv_timeout(PATIENCE).unwrap().peer;
    // More than the kernel's buffers hold, read while the transport closes.
    let body = |i: u8| vec![i; 64 << 10];
    let reader = thread::spawn(move || {
        (0..150_u8).for_each(|i| assert_eq!(client.receive(), [body(i)]));
        client.assert_closed();
    });
    let listener = thread::spawn(move || {
        (0..150_u8).for_each(|i| assert_eq!(subscriber.next_publication()[1], body(i)));
        subscriber.assert_closed();
    });
    for i in 0..150_u8 {
        transport.replies.send(Reply { peer, payload: body(i) }).unwrap();
        transport.publish.send(publication("n", &body(i))).unwrap();
    }
    transport.shutdown(PATIENCE);
    reader.join().unwrap();
    listener.join().unwrap();
}

#[test]
fn shutdown_gives_up_on_a_peer_that_takes_nothing() {
    let transport = start();
    let mut deaf = Client::connect(&transport.endpoints.control, "DEALER");
    deaf.send(&[b"question"]);
    let peer = transport.control.recv_timeout(PATIENCE).unwrap().peer;
    for _ in 0..200 {
        transport.replies.send(Reply { peer, payload: vec![0; 64 << 10] }).unwrap();
    }
    // It would have twice as long as is waited for here.
    let ending = thread::spawn(move || transport.shutdown(2 * PATIENCE));
    until("it to give up", || ending.is_finished());
    ending.join().unwrap();
}

#[test]
fn shutdown_does_not_wait_for_a_daemon_that_no_longer_reads() {
    let transport = transport::start(Settings { inbox_messages: 1, requests: ONE, ..settings() }).unwrap();
    let mut producer = Client::connect(&transport.endpoints.ingest, "PUSH");
    let mut client = Client::connect(&transport.endpoints.control, "DEALER");
    for _ in 0..200 {
        producer.send(&[b"row"]);
        client.send(&[b"question"]);
    }
    let (ingest, control) = (transport.ingest.clone(), transport.control.clone());
    until("both queues to be full", || ingest.is_full() && !control.is_empty());
    transport.shutdown(Duration::ZERO);
    assert_eq!(ingest.len(), 1);
}
