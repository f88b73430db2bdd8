//! The thread of one of libzmq's sockets.

use super::super::permit::{has_room, room};
use super::super::{Count, Peer, Phase, Publication, Reason, Reply, Request, SHORT_BYTES, SocketName};
use super::{
    Change, FRAME_BYTES, Flow, Incoming, OVERHEAD, Outgoing, POLL_INTERVAL_MS, RECEIVED_MAX, Shared, endpoint,
    number_of,
};
use bytes::Bytes;
use crossbeam_channel::Receiver;
use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::sync::{oneshot, watch};

/// Messages taken before commands get their turn.
const TURN: usize = 64;

/// While a queue of the daemon is full, how often it is tried, milliseconds.
const RETRY_MS: i64 = 5;

/// The thread of one of libzmq's sockets.
pub(super) struct Worker {
    pub(super) socket: SocketName,
    pub(super) libzmq: zmq::Socket,
    /// None once nothing more may be taken.
    pub(super) incoming: Option<Incoming>,
    pub(super) shared: Arc<Shared>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) changed: Receiver<Change>,
    pub(super) out: mpsc::Receiver<Outgoing>,
    /// Bytes that wait there.
    pub(super) out_bytes: Count,
    pub(super) woken: StdUnixStream,
    /// What libzmq calls the connections that asked something.
    pub(super) routes: HashMap<u64, Vec<u8>>,
    /// Topics that connections have asked for.
    pub(super) topics: HashMap<u64, HashSet<Vec<u8>>>,
    /// Connections that have gone, and of which something may not have been received.
    pub(super) leaving: Vec<Leaving>,
    /// Messages received.
    pub(super) messages: u64,
    /// Rows that the inbox had no room for.
    pub(super) held: Option<Vec<u8>>,
}

/// A connection that has gone.
pub(super) struct Leaving {
    connection: u64,
    path: PathBuf,
    /// Messages that had been received then.
    since: u64,
    /// Dropped when libzmq has nothing of it any more.
    _let_go: oneshot::Sender<()>,
}

impl Worker {
    pub(super) fn run(mut self) {
        loop {
            let phase = *self.phase.borrow();
            if phase != Phase::Running && self.socket != SocketName::Publish {
                // The queues of the daemon end when all senders are gone.
                self.held = None;
                self.incoming = None;
            }
            while let Ok(change) = self.changed.try_recv() {
                self.change(change);
            }
            let nothing_comes = loop {
                match self.out.try_recv() {
                    Ok(outgoing) => {
                        self.out_bytes.subtract(outgoing.bytes());
                        self.send(outgoing);
                    }
                    Err(TryRecvError::Empty) => break false,
                    Err(TryRecvError::Disconnected) => break true,
                }
            };
            let mut nap = POLL_INTERVAL_MS;
            match phase {
                Phase::Closing(deadline) | Phase::Closed(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
                    let left = i32::try_from(left).unwrap_or(i32::MAX);
                    if nothing_comes || left == 0 {
                        // Written while the context ends, with the last of these threads.
                        let _ = self.libzmq.set_linger(left);
                        return;
                    }
                    nap = nap.min(left.into());
                }
                Phase::Running | Phase::Draining => {}
            }
            self.retry();
            let mut empty = !self.wait(nap) && self.held.is_none();
            for _ in 0..TURN {
                if empty || self.held.is_some() {
                    break;
                }
                empty = !self.receive();
            }
            self.forget(empty);
        }
    }

    /// Let go of connections of which everything has been received. Where messages never end that shows in the bytes, or when every
    /// connection has had as many turns as libzmq holds messages of one.
    fn forget(&mut self, empty: bool) {
        if self.leaving.is_empty() {
            return;
        }
        let turns = (RECEIVED_MAX as u64 + 2) * self.shared.flows.lock().len() as u64;
        let leaving = std::mem::take(&mut self.leaving);
        let (gone, left): (Vec<_>, Vec<_>) = leaving.into_iter().partition(|leaving| {
            let nothing_inside = || self.flow(leaving.connection).is_none_or(|flow| flow.inside() == 0);
            empty || self.messages - leaving.since > turns || nothing_inside()
        });
        self.leaving = left;
        for Leaving { connection, path, .. } in gone {
            self.shared.flows.lock().remove(&connection);
            self.routes.remove(&connection);
            let topics = self.topics.remove(&connection).into_iter().flatten();
            topics.for_each(|topic| self.shared.counters.topics.leave(&topic));
            // As unbind does, which the crate lacks: both end what belongs to an address. It never listened there if that failed.
            let _ = self.libzmq.disconnect(&endpoint(&path));
        }
    }

    /// Wait until there is something to do, for at most `nap` milliseconds; whether there is something to receive.
    fn wait(&mut self, nap: i64) -> bool {
        let listens = self.incoming.is_some() && self.held.is_none();
        let events = if listens { zmq::POLLIN } else { zmq::PollEvents::empty() };
        let mut items = [self.libzmq.as_poll_item(events), zmq::PollItem::from_fd(self.woken.as_raw_fd(), zmq::POLLIN)];
        // An interruption is as good as an event.
        let _ = zmq::poll(&mut items, if self.held.is_some() { RETRY_MS } else { nap });
        let (readable, woken) = (items[0].is_readable(), items[1].is_readable());
        if woken {
            let mut sink = [0; 256];
            while matches!((&self.woken).read(&mut sink), Ok(n) if n == sink.len()) {}
        }
        listens && readable
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Come { connection, path, listens } => {
                let bound = self
                    .libzmq
                    .set_zap_domain(&connection.to_string())
                    .and_then(|()| self.libzmq.bind(&endpoint(&path)));
                match bound {
                    Ok(()) => {
                        // Its task may have given up.
                        let _ = listens.send(());
                    }
                    Err(error) => log::error!("event=encrypted_socket_failed socket={} why={error}", self.socket),
                }
            }
            Change::Gone { connection, path, let_go } => {
                self.leaving.push(Leaving { connection, path, since: self.messages, _let_go: let_go });
            }
        }
    }

    fn flow(&self, connection: u64) -> Option<Arc<Flow>> {
        self.shared.flows.lock().get(&connection).cloned()
    }

    /// Take one whole message; whether there was one.
    fn receive(&mut self) -> bool {
        let mut frames = Vec::new();
        let mut number = None;
        loop {
            let Ok(mut frame) = self.libzmq.recv_msg(zmq::DONTWAIT) else { return false };
            number = number.or_else(|| frame.gets("User-Id")?.parse::<u64>().ok());
            let more = frame.get_more();
            frames.push(frame);
            if !more {
                break;
            }
        }
        self.messages += 1;
        // Nothing comes from connections that were not let in.
        let Some(number) = number else { return true };
        let connection = number_of(number);
        if self.socket == SocketName::Control {
            // Nobody waits for an answer.
            if self.flow(connection).is_none() {
                return true;
            }
            let route = frames.remove(0);
            // Names that the ROUTER gives begin with a zero byte, which no other may: replies to them reach no other peer.
            if route.first() != Some(&0) {
                self.flow(connection).iter().for_each(|flow| flow.cut(Reason::NamedItself));
                return true;
            }
            self.routes.entry(connection).or_insert_with(|| route.to_vec());
        }
        if let Some(flow) = self.flow(connection) {
            flow.whole.store(flow.passed.load(Ordering::Relaxed), Ordering::Relaxed);
            let bytes: usize = frames.iter().map(|frame| frame.len()).sum();
            match self.socket {
                // A subscription may have come in more than one form, and not every one is handed on.
                SocketName::Publish => flow.received.store(flow.entered.load(Ordering::Relaxed), Ordering::Relaxed),
                _ => flow.receive((bytes + frames.len() * OVERHEAD) as u64 + frames.len() as u64 * FRAME_BYTES),
            }
            if bytes > self.shared.limits.message_bytes_max {
                flow.cut(Reason::MessageTooLarge);
                return true;
            }
            if frames.len() > self.shared.limits.parts_max {
                flow.cut(Reason::TooManyParts);
                return true;
            }
        }
        self.take(number, frames);
        true
    }

    fn take(&mut self, number: u64, mut frames: Vec<zmq::Message>) {
        let counters = &self.shared.counters;
        match &self.incoming {
            Some(Incoming::Rows(_)) => match (frames.pop(), frames.is_empty()) {
                (Some(frame), true) => self.held = Some(frame.to_vec()),
                _ => counters.ingest_malformed.add(1),
            },
            Some(Incoming::Requests(requests)) => {
                let (delimiter, payload) = match &frames[..] {
                    [payload] if !payload.is_empty() => (false, payload),
                    [delimiter, payload] if delimiter.is_empty() => (true, payload),
                    _ => return counters.control_malformed.add(1),
                };
                let payload = Bytes::copy_from_slice(payload);
                let request = Request { peer: Peer { connection: number, delimiter }, payload, since: Instant::now() };
                counters.requests.add(1);
                requests.put(number, request.payload.len(), request);
            }
            Some(Incoming::Subscriptions) => self.subscription(number_of(number), &frames),
            None => {}
        }
        self.retry();
    }

    /// Count what a subscriber asks for; libzmq has noted it already.
    fn subscription(&mut self, connection: u64, frames: &[zmq::Message]) {
        let Some(flow) = self.flow(connection) else { return };
        let ([1, topic @ ..], 1) = (frames.first().map_or(&[][..], |frame| &frame[..]), frames.len()) else {
            // What is neither subscription nor cancellation has no use.
            let [0, topic @ ..] = frames.first().map_or(&[][..], |frame| &frame[..]) else {
                flow.cut(Reason::BadSubscription);
                return;
            };
            if self.topics.get_mut(&connection).is_some_and(|topics| topics.remove(topic)) {
                self.shared.counters.topics.leave(topic);
            }
            return;
        };
        let topics = self.topics.entry(connection).or_default();
        if topics.insert(topic.to_vec()) {
            self.shared.counters.topics.join(topic);
        }
        if topics.len() > self.shared.limits.subscriptions_max {
            flow.cut(Reason::TooManySubscriptions);
        }
    }

    /// Put what is held into the inbox, if there is room now.
    fn retry(&mut self) {
        let (Some(rows), Some(Incoming::Rows(inbox))) = (self.held.take(), &self.incoming) else { return };
        match inbox.try_send(rows) {
            Err(rows) => self.held = Some(rows),
            Ok(()) => self.shared.counters.ingest_messages.add(1),
        }
        self.shared.rows_wait.store(self.held.is_some(), Ordering::Relaxed);
    }

    fn send(&mut self, outgoing: Outgoing) {
        let counters = &self.shared.counters;
        match outgoing {
            Outgoing::Reply(Reply { peer, payload }) => {
                let connection = number_of(peer.connection);
                let bytes = (payload.len() + OVERHEAD) as u64;
                let sent = self.routes.get(&connection).zip(self.flow(connection)).is_some_and(|(route, flow)| {
                    let is_gone = flow.gone.load(Ordering::Relaxed);
                    if is_gone || !has_room(&self.shared.limits, counters, flow.waiting(), bytes) {
                        return false;
                    }
                    // First: the gate may have read it before this thread goes on.
                    flow.give(bytes, counters);
                    let delimiter: &[&[u8]] = if peer.delimiter { &[b""] } else { &[] };
                    let frames = [&route[..]].into_iter().chain(delimiter.iter().copied()).chain([&payload[..]]);
                    let sent = self.libzmq.send_multipart(frames, zmq::DONTWAIT).is_ok();
                    if !sent {
                        flow.take(bytes, counters);
                    }
                    sent
                });
                if sent { &counters.replies_sent } else { &counters.replies_dropped }.add(1);
            }
            Outgoing::Publication(publication) => self.publish(&publication),
        }
    }

    /// libzmq gives every subscriber what it gives one. So one that is too far behind is cut, and what is too much for all together, or
    /// for one because of what others do not read, is left out.
    fn publish(&self, Publication { topic, payload }: &Publication) {
        let (limits, counters) = (&self.shared.limits, &self.shared.counters);
        let bytes = (topic.len() + payload.len() + 2 * OVERHEAD) as u64;
        let hears = |topics: &HashSet<Vec<u8>>| topics.iter().any(|asked| topic.as_bytes().starts_with(asked));
        let audience = self.topics.iter().filter(|(_, topics)| hears(topics));
        let audience = audience.filter_map(|(connection, _)| self.flow(*connection));
        let audience = audience.filter(|flow| !flow.gone.load(Ordering::Relaxed));
        let (behind, audience): (Vec<_>, Vec<_>) =
            audience.partition(|flow| flow.waiting() >= limits.backlog_bytes_max as u64);
        behind.iter().for_each(|flow| flow.cut(Reason::Saturated));
        let has_room = |flow: &Arc<Flow>| has_room(limits, counters, flow.waiting(), bytes);
        let all_bytes = bytes.saturating_mul(audience.len() as u64);
        if (bytes > SHORT_BYTES as u64 && all_bytes > room(limits, counters)) || !audience.iter().all(has_room) {
            counters.publish.backlog_dropped.add(audience.len() as u64);
            return;
        }
        let frames = ((topic.len() + OVERHEAD) as u64, (payload.len() + OVERHEAD) as u64);
        audience.iter().for_each(|flow| flow.give_publication(frames, counters));
        // Of a subscriber for whom too many wait libzmq drops the newest.
        let _ = self.libzmq.send_multipart([topic.as_bytes(), &payload[..]], zmq::DONTWAIT);
    }
}
