//! Every setting under `[limits]`, and `streams_max`: what is within it is served, what is beyond it is refused, over real
//! sockets and through the configuration.

use crate::support::daemon::{ANY_HTTP, Running};
use crate::support::http::get;
use crate::support::zmtp::{COMMAND, LONG, MORE, frame, greeting};
use crate::support::{PATIENCE, until};
use criticd::client::ClientError;
use criticd::config::{Config, ConfigParts, Limits};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::TcpStream;

fn start(change: impl FnOnce(&mut ConfigParts)) -> Running {
    Running::start(|parts| {
        parts.http = ANY_HTTP.into();
        change(parts);
    })
}

fn with(change: impl FnOnce(&mut Limits)) -> Running {
    start(|parts| change(&mut parts.limits))
}

impl Running {
    fn peer(&self, socket: &str) -> Peer {
        let ends = &self.daemon.endpoints;
        let (endpoint, kind) = match socket {
            "ingest" => (&ends.ingest, "PUSH"),
            "control" => (&ends.control, "DEALER"),
            _ => (&ends.publish, "SUB"),
        };
        Peer::connect(&endpoint.to_string(), kind)
    }

    /// Peers cut for `reason` so far.
    fn cut(&self, reason: &str) -> u64 {
        let text = get(self.daemon.http_address().unwrap(), "/metrics").text();
        let line = text.lines().find(|line| line.contains(&format!("reason=\"{reason}\""))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A peer by hand, which says what no library would.
struct Peer(TcpStream);

impl Peer {
    /// A connection over which nothing has been said.
    fn silent(endpoint: &str) -> Self {
        let stream = TcpStream::connect(endpoint.strip_prefix("tcp://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn connect(endpoint: &str, kind: &str) -> Self {
        Self::try_connect(endpoint, kind).unwrap()
    }

    fn try_connect(endpoint: &str, kind: &str) -> io::Result<Self> {
        let mut peer = Self::silent(endpoint);
        peer.0.write_all(&greeting())?;
        let len = u8::try_from(kind.len()).unwrap();
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0".as_slice(), &[len], kind.as_bytes()].concat();
        peer.0.write_all(&frame(COMMAND, &ready))?;
        peer.0.read_exact(&mut [0; 64])?;
        peer.read()?;
        Ok(peer)
    }

    fn send(&mut self, frames: &[&[u8]]) {
        for (i, body) in frames.iter().enumerate() {
            // A connection that is cut while we write is what some of these tests wait for.
            let _ = self.0.write_all(&frame(if i + 1 < frames.len() { MORE } else { 0 }, body));
        }
    }

    /// All frames of the next message or command.
    fn read(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        loop {
            let mut flags = [0];
            self.0.read_exact(&mut flags)?;
            let mut len = [0; 8];
            self.0.read_exact(&mut len[if flags[0] & LONG == 0 { 7 } else { 0 }..])?;
            let mut body = vec![0; usize::try_from(u64::from_be_bytes(len)).unwrap()];
            self.0.read_exact(&mut body)?;
            frames.push(body);
            if flags[0] & MORE == 0 {
                return Ok(frames);
            }
        }
    }

    /// Whether a request made of these frames is answered; if not, the connection is closed.
    fn is_answered(&mut self, frames: &[&[u8]]) -> bool {
        self.send(frames);
        match self.read() {
            Ok(_) => true,
            Err(e) => {
                assert!(matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{e}");
                false
            }
        }
    }

    /// Wait until the daemon closes the connection.
    fn wait_for_close(&mut self) {
        while self.read().is_ok() {}
        match self.0.read(&mut [0]) {
            Ok(0) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the connection should have been closed: {other:?}"),
        }
    }
}

fn code(result: Result<Value, ClientError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(ClientError::Refused(refusal)) => refusal.code,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn message_bytes_max() {
    let running = with(|limits| limits.message_bytes_max = 2000);
    let (half, most) = ([0; 1000], [0; 2000]);
    let mut peer = running.peer("control");
    assert!(peer.is_answered(&[b"", &most]));
    assert!(!peer.is_answered(&[&half, &half, b"x"]), "one byte more, in three frames");
    assert_eq!(running.cut("message_too_large"), 1);
}

#[test]
fn frame_bytes_max() {
    let running = with(|limits| limits.frame_bytes_max = Some(1024));
    let mut peer = running.peer("control");
    assert!(peer.is_answered(&[b"", &[0; 1024]]));
    assert!(!peer.is_answered(&[b"", &[0; 1025]]));
    assert_eq!(running.cut("frame_too_large"), 1);
}

#[test]
fn parts_max() {
    let running = with(|limits| limits.parts_max = 3);
    let mut peer = running.peer("control");
    // Three frames are no request either, but no reason to be cut off.
    peer.send(&[b"a", b"b", b"c"]);
    assert!(peer.is_answered(&[b"x"]));
    assert!(!peer.is_answered(&[b"a", b"b", b"c", b"d"]));
    assert_eq!(running.cut("too_many_parts"), 1);
}

#[test]
fn rows_per_batch_max() {
    let running = with(|limits| limits.rows_per_batch_max = 3);
    let mut requester = running.requester();
    let mut append = |rows: usize| {
        let states = vec![vec![0.0]; rows + 1];
        let batch = json!({"stream": "s", "seq": 0, "states": states, "rewards": vec![1.0; rows]});
        code(requester.ask("append", batch, PATIENCE))
    };
    assert_eq!(append(4), "too_large");
    assert_eq!(append(3), "ok");
}

#[test]
fn query_rows_max() {
    let running = with(|limits| limits.query_rows_max = 3);
    let mut requester = running.requester();
    let mut value = |rows: usize| code(requester.ask("value", json!({"states": vec![vec![0.0]; rows]}), PATIENCE));
    assert_eq!(value(4), "too_large");
    assert_eq!(value(3), "not_ready");
}

#[test]
fn streams_max() {
    let running = start(|parts| parts.streams_max = 2);
    let mut requester = running.requester();
    let mut append = |stream: &str| {
        let row = json!({"stream": stream, "seq": 0, "state": [0.0], "next_state": [0.5], "reward": 1.0});
        code(requester.ask("append", row, PATIENCE))
    };
    assert_eq!([append("a"), append("b"), append("c"), append("b")], ["ok", "ok", "too_many_streams", "ok"]);
}

#[test]
fn connections_max() {
    let running = with(|limits| limits.connections_max = 2);
    let control = running.daemon.endpoints.control.to_string();
    let first = running.peer("ingest");
    let _second = running.peer("publish");
    assert!(Peer::try_connect(&control, "DEALER").is_err());
    assert_eq!(running.cut("too_many_connections"), 1);
    drop(first);
    until("the place is free again", || Peer::try_connect(&control, "DEALER").is_ok());
}

#[test]
fn connections_per_address_max() {
    let running = with(|limits| limits.connections_per_address_max = 2);
    let control = running.daemon.endpoints.control.to_string();
    let first = running.peer("ingest");
    let _second = running.peer("publish");
    assert!(Peer::try_connect(&control, "DEALER").is_err());
    assert_eq!(running.cut("too_many_from_address"), 1);
    drop(first);
    until("the place is free again", || Peer::try_connect(&control, "DEALER").is_ok());
}

#[test]
fn subscriptions_max() {
    let running = with(|limits| limits.subscriptions_max = 2);
    let mut peer = running.peer("publish");
    for topic in [b"\x01a".as_slice(), b"\x01b", b"\x00b", b"\x01status"] {
        peer.send(&[topic]);
    }
    assert_eq!(peer.read().unwrap()[0], b"status");
    peer.send(&[b"\x01c"]);
    peer.wait_for_close();
    assert_eq!(running.cut("too_many_subscriptions"), 1);
}

#[test]
fn handshake_timeout_ms() {
    let running = with(|limits| limits.handshake_timeout_ms = 100);
    let mut peer = Peer::silent(&running.daemon.endpoints.control.to_string());
    let mut greeting = [0; 64];
    peer.0.read_exact(&mut greeting).unwrap();
    peer.wait_for_close();
    assert_eq!(running.cut("handshake_timeout"), 1);
}

/// Ask for pings until nothing more can be written, and read no reply. The peer stays connected until it is dropped.
fn flood(running: &Running) -> (Peer, std::thread::JoinHandle<()>) {
    let peer = running.peer("control");
    let mut writer = peer.0.try_clone().unwrap();
    let ping = frame(0, b"\x83\xa1v\x01\xa2id\x01\xa2op\xa4ping").repeat(1000);
    let flooder = std::thread::spawn(move || while writer.write_all(&ping).is_ok() {});
    (peer, flooder)
}

#[test]
fn stall_timeout_ms() {
    let running = with(|limits| limits.stall_timeout_ms = 300);
    let (_peer, flooder) = flood(&running);
    until("the peer that reads nothing is cut", || running.cut("stalled") == 1);
    flooder.join().unwrap();
    assert_eq!(code(running.requester().ask("ping", json!({}), PATIENCE)), "ok");
}

#[test]
fn saturated_timeout_ms() {
    let running = with(|limits| (limits.stall_timeout_ms, limits.saturated_timeout_ms) = (60_000, 300));
    let (_peer, flooder) = flood(&running);
    until("the peer that is never done is cut", || running.cut("saturated") == 1);
    flooder.join().unwrap();
    assert_eq!(code(running.requester().ask("ping", json!({}), PATIENCE)), "ok");
}

#[test]
fn idle_timeout_ms() {
    let running = with(|limits| limits.idle_timeout_ms = 200);
    for socket in ["ingest", "control", "publish"] {
        running.peer(socket).wait_for_close();
    }
    assert_eq!(running.cut("idle"), 3);
    // A subscriber that is sent something now and then is not idle: status comes once a second.
    let running = with(|limits| limits.idle_timeout_ms = 20_000);
    let mut subscriber = running.peer("publish");
    subscriber.send(&[b"\x01status"]);
    for _ in 0..2 {
        assert_eq!(subscriber.read().unwrap()[0], b"status");
    }
    assert_eq!(running.cut("idle"), 0);
}

#[test]
fn every_limit_has_its_test() {
    let printed = Config::default().print();
    let section = printed.split("[limits]").nth(1).unwrap().split("[[critic]]").next().unwrap();
    let names = section.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" =").map(|(key, _)| key));
    let source = include_str!("limits.rs");
    let mut count = 0;
    for name in names.filter(|name| !name.contains(' ')) {
        assert!(source.contains(&format!("\nfn {name}() {{")), "{name} has no test");
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn a_producer_above_the_limit_hears_that_its_connection_has_gone() {
    let running = with(|limits| limits.message_bytes_max = 1024);
    let sender = running.sender();
    sender.send(vec![0; 1025]).unwrap();
    until("the connection has gone", || sender.send(vec![0; 10]).is_err());
}
