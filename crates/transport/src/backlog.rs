//! What waits for one peer, and all peers that messages are put out for.

use super::permit::{self, Gate, Writer};
use super::topics::SubscriberTopics;
use super::zmtp::write_header;
use super::{Publication, Reply, SHORT_BYTES, SocketName};
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;
use tokio::io::AsyncWrite;

/// Longest payload in bytes that is copied behind what waits; longer ones are shared with whoever else has them.
const COPIED_MAX: usize = 4096;

/// Pieces that are written at once, and bytes.
const PIECES: usize = 16;
const WRITTEN_MAX: usize = 64 << 10;

/// An empty tail gives memory beyond this back, in bytes.
const IDLE_CAPACITY: usize = 16 << 10;

/// What waits for a peer. Whoever has something for it puts it in; its link writes.
pub(super) struct Backlog {
    gate: Arc<Gate>,
    socket: SocketName,
    state: Mutex<BacklogState>,
}

struct BacklogState {
    /// Long payloads, and what stands between them.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    /// The bytes of both.
    bytes: usize,
    /// When the peer was last without anything to take, if there is something.
    behind_since: Option<Instant>,
    /// When it last took a byte, or when there was something again.
    last_progress: Instant,
    /// Woken when there is something to write.
    link: Option<Waker>,
    /// What it has asked for, if it is a subscriber.
    asked: SubscriberTopics,
}

impl Backlog {
    pub(super) fn new(gate: &Arc<Gate>, socket: SocketName) -> Self {
        let state = BacklogState {
            pieces: VecDeque::new(),
            tail: BytesMut::new(),
            bytes: 0,
            behind_since: None,
            last_progress: Instant::now(),
            link: None,
            asked: SubscriberTopics::new(gate.limits.subscriptions_max, Arc::clone(&gate.counters)),
        };
        Self { gate: Arc::clone(gate), socket, state: Mutex::new(state) }
    }

    /// Put a message of one frame, or of a short first one and another, behind what waits. Where there is no room it is dropped, and
    /// counted.
    pub(super) fn push(&self, first: Option<&[u8]>, payload: &Bytes) -> bool {
        let mut state = self.state.lock();
        let (waiting, bytes) = (state.bytes as u64, payload.len() as u64);
        let has_room = permit::has_room(&self.gate.limits, &self.gate.counters, waiting, bytes);
        if has_room {
            let bytes = state.write(first, payload);
            self.add(&mut state, bytes);
        } else {
            self.gate.counters.socket(self.socket).backlog_dropped.add(1);
        }
        has_room
    }

    /// Put a reply there, behind an empty frame where one came with the request.
    pub(super) fn reply(&self, delimiter: bool, payload: Vec<u8>) {
        if self.push(delimiter.then_some(&[]), &payload.into()) {
            self.gate.counters.replies_sent.add(1);
        }
    }

    /// Put commands there. To a peer far behind they are of no use.
    pub(super) fn push_commands(&self, frames: &[u8]) {
        let mut state = self.state.lock();
        if state.bytes < SHORT_BYTES {
            state.tail.extend_from_slice(frames);
            self.add(&mut state, frames.len());
        }
    }

    /// So many bytes more wait.
    fn add(&self, state: &mut BacklogState, bytes: usize) {
        if state.bytes == 0 {
            state.last_progress = Instant::now();
            state.behind_since = Some(state.last_progress);
        }
        state.bytes += bytes;
        self.gate.counters.socket(self.socket).backlog_bytes.add(bytes as u64);
        state.link.take().into_iter().for_each(Waker::wake);
    }

    /// Write some of what waits: how much. Without anything the task is woken when there is.
    pub(super) fn poll_write(&self, writer: &mut Writer, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock();
        if state.bytes == 0 {
            state.link = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let counters = self.gate.counters.socket(self.socket);
        let written = {
            let (mut left, mut slices) = (WRITTEN_MAX, [IoSlice::new(&[]); PIECES]);
            let pieces = state.pieces.iter().map(|piece| &piece[..]).chain([&state.tail[..]]);
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(pieces) {
                let piece = &piece[..piece.len().min(left)];
                *slice = IoSlice::new(piece);
                left -= piece.len();
                count += 1;
            }
            ready!(Pin::new(writer).poll_write_vectored(cx, &slices[..count]))?
        };
        state.consume(written);
        counters.backlog_bytes.subtract(written as u64);
        counters.bytes_out.add(written as u64);
        Poll::Ready(Ok(written))
    }

    /// Nothing more can be written.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        self.gate.counters.socket(self.socket).backlog_bytes.subtract(state.bytes as u64);
        (state.pieces, state.tail, state.bytes, state.behind_since) = (VecDeque::new(), BytesMut::new(), 0, None);
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Since when something waits, and since when none of it has been taken.
    pub(super) fn behind(&self) -> Option<(Instant, Instant)> {
        let state = self.state.lock();
        state.behind_since.map(|since| (since, state.last_progress))
    }

    /// Change what the subscriber has asked for.
    pub(super) fn ask<T>(&self, change: impl FnOnce(&mut SubscriberTopics) -> T) -> T {
        change(&mut self.state.lock().asked)
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.clear();
    }
}

impl BacklogState {
    /// Write a message behind the others; gives its length.
    fn write(&mut self, first: Option<&[u8]>, payload: &Bytes) -> usize {
        let before = self.tail.len();
        if let Some(first) = first {
            write_header(true, first.len(), &mut self.tail);
            self.tail.extend_from_slice(first);
        }
        write_header(false, payload.len(), &mut self.tail);
        let head = self.tail.len() - before;
        if payload.len() <= COPIED_MAX {
            self.tail.extend_from_slice(payload);
        } else {
            self.pieces.extend([self.tail.split().freeze(), payload.clone()]);
        }
        head + payload.len()
    }

    /// So many bytes have been taken.
    fn consume(&mut self, mut taken: usize) {
        self.bytes -= taken;
        self.last_progress = Instant::now();
        if self.bytes == 0 {
            self.behind_since = None;
        }
        while let Some(piece) = self.pieces.front_mut() {
            let part = taken.min(piece.len());
            piece.advance(part);
            taken -= part;
            if !piece.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.tail.advance(taken);
        // What has been taken from the front is memory too.
        if self.tail.is_empty() && self.tail.try_reclaim(IDLE_CAPACITY + 1) {
            self.tail = BytesMut::new();
        }
    }
}

/// The peers of a socket for whom something may be put out, by the numbers of their connections.
#[derive(Default)]
pub(super) struct Peers(Mutex<HashMap<u64, Arc<Backlog>>>);

impl Peers {
    pub(super) fn join(&self, connection: u64, backlog: &Arc<Backlog>) {
        self.0.lock().insert(connection, Arc::clone(backlog));
    }

    pub(super) fn leave(&self, connection: u64) {
        self.0.lock().remove(&connection);
    }

    /// Put a reply out for the client that asked, if it is still there; else it is counted.
    pub(super) fn reply(&self, Reply { peer, payload }: Reply, gate: &Gate) {
        let backlog = self.0.lock().get(&peer.connection).cloned();
        match backlog {
            Some(backlog) => backlog.reply(peer.delimiter, payload),
            None => gate.counters.replies_dropped.add(1),
        }
    }

    /// Put a publication out for all that have asked for it.
    pub(super) fn publish(&self, Publication { topic, payload }: &Publication) {
        for backlog in self.0.lock().values() {
            if backlog.ask(|asked| asked.has(topic.as_bytes())) {
                backlog.push(Some(topic.as_bytes()), payload);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::{Behind, Link};
    use super::super::permit::{ConnectionPermit, Streams};
    use super::super::turns::{Share, Watch, turns};
    use super::super::zmtp::Scanner;
    use super::super::{PeerLimits, Rights};
    use super::*;
    use crate::access::Access;

    fn gate(limits: PeerLimits) -> Arc<Gate> {
        let (entrance, _turns) = turns(Share { peer_bytes: 1, total_bytes: 1 });
        Arc::new(Gate::new(Access::default(), limits, Watch::clone(&entrance), Arc::default()))
    }

    /// Names of peers, and what each took in turn.
    type Taken = Vec<(u8, Vec<u8>)>;

    /// A peer that takes at most so many bytes at once.
    #[derive(Clone)]
    struct Taker {
        most: usize,
        name: u8,
        taken: Arc<Mutex<Taken>>,
    }

    impl Taker {
        fn new(most: usize) -> Self {
            Self { most, name: 0, taken: Arc::default() }
        }

        fn bytes(&self) -> Vec<u8> {
            self.taken.lock().iter().flat_map(|(_, bytes)| bytes.clone()).collect()
        }
    }

    impl AsyncWrite for Taker {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let bytes = &bytes[..bytes.len().min(self.most)];
            self.taken.lock().push((self.name, bytes.to_vec()));
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn write_all(backlog: &Backlog, taker: &Taker) {
        let (mut writer, mut cx): (Writer, _) = (Box::new(taker.clone()), Context::from_waker(Waker::noop()));
        while let Poll::Ready(written) = backlog.poll_write(&mut writer, &mut cx) {
            assert!(written.unwrap() > 0);
        }
    }

    #[test]
    fn what_waits_is_written_in_its_order_however_it_is_taken() {
        let gate = gate(PeerLimits::default());
        let long = Bytes::from(vec![7; COPIED_MAX + 1]);
        let long_frame = [&[2][..], &(long.len() as u64).to_be_bytes(), &long[..]].concat();
        let expected = [&[0, 1, b'a'][..], &[1, 0], &long_frame, &[4, 1, 9], &[1, 1, b't'], &long_frame].concat();
        let expected = [&expected[..], &[0, 1, b'b']].concat();
        for most in [1, 10, COPIED_MAX, 1 << 20] {
            let (backlog, taker) = (Backlog::new(&gate, SocketName::Publish), Taker::new(most));
            assert!(backlog.push(None, &Bytes::from_static(b"a")) && backlog.push(Some(b""), &long));
            backlog.push_commands(&[4, 1, 9]);
            assert!(backlog.push(Some(b"t"), &long) && backlog.push(None, &Bytes::from_static(b"b")));
            assert_eq!(backlog.bytes(), expected.len());
            assert_eq!(gate.counters.publish.backlog_bytes.get(), expected.len() as u64);
            assert!(backlog.behind().is_some());
            write_all(&backlog, &taker);
            assert_eq!((taker.bytes(), backlog.bytes()), (expected.clone(), 0), "{most} at once");
            assert!(backlog.behind().is_none());
            assert!(backlog.push(None, &long));
            drop(backlog);
            assert_eq!(gate.counters.publish.backlog_bytes.get(), 0);
        }
        assert_eq!(gate.counters.publish.bytes_out.get(), 4 * expected.len() as u64);
    }

    #[test]
    fn a_message_begins_within_the_bound_or_is_dropped() {
        let gate = gate(PeerLimits { backlog_bytes_max: 300, ..PeerLimits::default() });
        let (backlog, taker) = (Backlog::new(&gate, SocketName::Control), Taker::new(1 << 20));
        let kept = [200, 200, 1].map(|len| backlog.push(None, &Bytes::from(vec![0; len])));
        assert_eq!((kept, gate.counters.control.backlog_dropped.get()), ([true, true, false], 1));
        write_all(&backlog, &taker);
        assert!(backlog.push(None, &Bytes::from_static(b"again")));
    }

    #[test]
    fn where_all_together_have_too_much_a_peer_gets_short_messages() {
        let gate = gate(PeerLimits { backlog_bytes_total_max: 10, ..PeerLimits::default() });
        let backlog = Backlog::new(&gate, SocketName::Publish);
        let push = |len: usize| backlog.push(Some(b"topic"), &Bytes::from(vec![0; len]));
        assert_eq!(
            [SHORT_BYTES + 1, SHORT_BYTES / 2, SHORT_BYTES / 4, SHORT_BYTES / 2].map(push),
            [false, true, true, false]
        );
        assert_eq!(gate.counters.publish.backlog_dropped.get(), 2);
    }

    #[test]
    fn publications_go_to_those_that_asked_and_share_their_memory() {
        let gate = gate(PeerLimits::default());
        let (peers, payload) = (Peers::default(), Bytes::from(vec![1; COPIED_MAX + 1]));
        let backlogs = [(); 3].map(|()| Arc::new(Backlog::new(&gate, SocketName::Publish)));
        for (connection, (backlog, topic)) in (0..).zip(backlogs.iter().zip(["weights.", "", "event."])) {
            backlog.ask(|asked| asked.subscribe(topic.into())).unwrap();
            peers.join(connection, backlog);
        }
        let publication = Publication { topic: "weights.a".into(), payload: payload.clone() };
        peers.publish(&publication);
        assert_eq!([0, 1, 2].map(|k: usize| backlogs[k].bytes() > 0), [true, true, false]);
        assert!(backlogs[..2].iter().all(|backlog| backlog.state.lock().pieces[1].as_ptr() == payload.as_ptr()));
        peers.leave(0);
        let before = backlogs[0].bytes();
        peers.publish(&publication);
        assert_eq!(backlogs[0].bytes(), before);
    }

    /// Of those with long answers a few go on between two turns of the others.
    #[test]
    fn long_answers_to_many_stand_before_few_bytes_of_a_short_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (gate, peers) = (gate(PeerLimits::default()), Arc::<Peers>::default());
            let taken = Taker::new(usize::MAX).taken;
            let mut link = |name: u8| {
                let seat = ConnectionPermit::take(&gate, SocketName::Publish, None, Rights::ALL).unwrap();
                let number = seat.number();
                let taker = Taker { most: usize::MAX, name, taken: Arc::clone(&taken) };
                let (reader, never) = tokio::io::simplex(1);
                let behind = Behind::Subscriptions(Arc::clone(&peers));
                let scanner = Scanner::introduced(&gate.limits, seat.socket);
                let streams: Streams = (Box::new(reader), Box::new(taker));
                let mut link = Link::new(seat, streams, behind, scanner, BytesMut::new());
                tokio::spawn(async move {
                    link.run().await;
                    drop(never);
                });
                Arc::clone(&peers.0.lock()[&number])
            };
            let long = Bytes::from(vec![7; 1 << 20]);
            let many: Vec<_> = (1..=32).map(&mut link).collect();
            let short = link(0);
            many.iter().for_each(|backlog| assert!((0..4).all(|_| backlog.push(None, &long))));
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            taken.lock().clear();
            assert!(short.push(None, &Bytes::from_static(b"answer")));
            while short.bytes() > 0 {
                tokio::task::yield_now().await;
            }
            let before: usize =
                taken.lock().iter().take_while(|(name, _)| *name != 0).map(|(_, bytes)| bytes.len()).sum();
            assert!(many.iter().all(|backlog| backlog.bytes() > 0));
            assert!(before <= 2 * 4 * WRITTEN_MAX, "{before} bytes");
        });
    }
}
