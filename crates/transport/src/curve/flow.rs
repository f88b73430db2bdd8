//! What is known of a connection between the gate and libzmq: what has gone in, and what has come out.

use super::super::link::TURN_BYTES;
use super::super::permit::Gate;
use super::super::under_way::ConnectionShare;
use super::super::zmtp::HeaderReader;
use super::super::{Counters, Reason, SHORT_BYTES, SocketName};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// What CURVE adds to a frame, in bytes: name, nonce, authenticator, flags.
pub(super) const OVERHEAD: usize = 33;

/// What libzmq takes for a frame beside its bytes, about.
pub(super) const FRAME_BYTES: u64 = 128;

/// Lengths of the frames of a PING and of its answer. libzmq answers PINGs by itself; these are all that it takes and gives by itself.
pub(super) const PING_LEN: u64 = (OVERHEAD + b"\x04PING".len() + 2) as u64;
pub(super) const PONG_LEN: u64 = (OVERHEAD + b"\x04PONG".len()) as u64;

/// The thread of the socket wakes the gate each time it has received this many bytes more of a connection.
const NOTICE_BYTES: u64 = 32 << 10;

/// A connection between the gate and libzmq.
pub(super) struct Flow {
    pub(super) socket: SocketName,
    /// Whether its key was accepted.
    pub(super) admitted: AtomicBool,
    /// What it is known as then.
    pub(super) number: AtomicU64,
    pub(super) refused: Mutex<Option<Reason>>,
    /// Bytes passed on to libzmq.
    pub(super) passed: AtomicU64,
    /// As many as had been passed on when the last whole message was received.
    pub(super) whole: AtomicU64,
    /// Bytes of the frames whose headers have been passed on, and of those received, with [`FRAME_BYTES`] for each.
    pub(super) entered: AtomicU64,
    pub(super) received: AtomicU64,
    /// Bytes that wait in libzmq for the peer, about.
    pub(super) waiting: Mutex<u64>,
    /// The lengths of the two frames of each publication among these.
    publications: Mutex<VecDeque<(u64, u64)>>,
    /// Bytes that the gate has read from libzmq.
    pub(super) taken: AtomicU64,
    /// Told when there is less in libzmq, in either direction.
    pub(super) progress: Notify,
    /// Whether the peer sends nothing more.
    pub(super) left: AtomicBool,
    /// Whether reading or writing has found that its connection broke.
    pub(super) reset: AtomicBool,
    /// Whether the connection is over.
    pub(super) gone: AtomicBool,
    /// Taken by the side that disconnects.
    pub(super) cut: Mutex<Option<oneshot::Sender<Reason>>>,
}

impl Flow {
    pub(super) fn new(socket: SocketName, cut: oneshot::Sender<Reason>) -> Self {
        Self {
            socket,
            admitted: AtomicBool::new(false),
            number: AtomicU64::new(0),
            refused: Mutex::default(),
            passed: AtomicU64::new(0),
            whole: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            received: AtomicU64::new(0),
            waiting: Mutex::default(),
            publications: Mutex::default(),
            taken: AtomicU64::new(0),
            progress: Notify::new(),
            left: AtomicBool::new(false),
            reset: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            cut: Mutex::new(Some(cut)),
        }
    }

    /// Bytes of the peer that are in libzmq.
    pub(super) fn inside(&self) -> u64 {
        self.entered.load(Ordering::Relaxed).saturating_sub(self.received.load(Ordering::Relaxed))
    }

    /// So many bytes have left libzmq.
    pub(super) fn receive(&self, bytes: u64) {
        let before = self.received.fetch_add(bytes, Ordering::Relaxed);
        if before / NOTICE_BYTES != (before + bytes) / NOTICE_BYTES {
            self.progress.notify_one();
        }
    }

    /// Bytes that libzmq holds for the peer, about: what it adds on its own counts as sent only.
    pub(super) fn waiting(&self) -> u64 {
        *self.waiting.lock()
    }

    /// So many bytes more wait for the peer.
    pub(super) fn give(&self, bytes: u64, counters: &Counters) {
        *self.waiting.lock() += bytes;
        counters.socket(self.socket).backlog_bytes.add(bytes);
    }

    /// A publication more waits, if libzmq does not drop it.
    pub(super) fn give_publication(&self, frames: (u64, u64), counters: &Counters) {
        self.publications.lock().push_back(frames);
        self.give(frames.0 + frames.1, counters);
    }

    /// Two frames have come out of libzmq; whether they are a publication. Those that were given before it, and have not come, libzmq has
    /// dropped.
    pub(super) fn came_out(&self, frames: (u64, u64), counters: &Counters) -> bool {
        let mut publications = self.publications.lock();
        let Some(place) = publications.iter().position(|given| *given == frames) else { return false };
        let dropped: u64 = publications.drain(..=place).take(place).map(|(topic, payload)| topic + payload).sum();
        drop(publications);
        self.take(dropped, counters);
        true
    }

    /// So many wait no longer, or all that do.
    pub(super) fn take(&self, bytes: u64, counters: &Counters) {
        if bytes == u64::MAX {
            self.publications.lock().clear();
        }
        let mut waiting = self.waiting.lock();
        let fewer = bytes.min(*waiting);
        *waiting -= fewer;
        drop(waiting);
        if fewer > 0 {
            counters.socket(self.socket).backlog_bytes.subtract(fewer);
            self.progress.notify_one();
        }
    }

    pub(super) fn cut(&self, reason: Reason) {
        if let Some(cut) = self.cut.lock().take() {
            // Without a receiver the connection is over.
            let _ = cut.send(reason);
        }
    }
}

/// What a connection has in libzmq beyond a short message: counted among long messages that have begun.
pub(super) struct Begun<'a> {
    pub(super) gate: &'a Gate,
    pub(super) socket: SocketName,
    part: ConnectionShare,
    /// Bytes passed on since others had their turn.
    moved: usize,
    /// What had been received when something was last, and when that was: later, by the time in which the peer waited for us.
    pub(super) received: u64,
    pub(super) since: Instant,
}

impl<'a> Begun<'a> {
    pub(super) fn new(gate: &'a Gate, socket: SocketName) -> Self {
        Self { gate, socket, part: ConnectionShare::default(), moved: 0, received: 0, since: Instant::now() }
    }

    /// Bytes that are counted.
    pub(super) fn bytes(&self) -> u64 {
        self.part.bytes()
    }

    /// So many bytes are in libzmq: the room of those that have left it goes back.
    pub(super) fn follow(&mut self, inside: u64) {
        self.gate.end(self.socket, &mut self.part, long(inside));
    }

    /// Whether so many bytes more may go in; else it waits for its turn.
    pub(super) fn begin(&mut self, inside: u64, bytes: u64) -> bool {
        self.follow(inside);
        let more = long(inside + bytes).saturating_sub(self.part.bytes());
        if more == 0 {
            self.leave();
            return true;
        }
        let is_first = self.part.bytes() == 0;
        let begins = self.gate.begin(self.socket, &mut self.part, more);
        if begins && is_first {
            self.since = Instant::now();
        }
        begins
    }

    /// So many bytes have been passed on: let others have their turn now and then, as plain connections do.
    pub(super) async fn give_way(&mut self, bytes: usize) {
        self.moved += bytes;
        if self.moved >= TURN_BYTES {
            self.moved = 0;
            let _turn = if self.bytes() > 0 { self.gate.long_turns(self.socket).acquire().await.ok() } else { None };
            tokio::task::yield_now().await;
        }
    }

    /// It asks for no more room. What is in libzmq counts until that has let go of it.
    pub(super) fn leave(&mut self) {
        self.gate.leave(self.socket, &mut self.part);
    }

    /// Ready when it may be its turn.
    pub(super) fn poll_call(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.gate.poll_call(self.socket, &self.part, cx)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.follow(0);
        self.leave();
    }
}

/// What counts of so many bytes: no more than a short message has its place.
fn long(bytes: u64) -> u64 {
    if bytes > SHORT_BYTES as u64 { bytes } else { 0 }
}

/// Encrypted frames; their bodies cannot be read here.
pub(super) struct Frames {
    pub(super) header: HeaderReader,
    /// Bytes of the present body that are still to come.
    pub(super) left: u64,
    /// Bytes of the last body.
    len: u64,
    pub(super) most: usize,
}

/// A frame whose header has come.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    /// Where the part of its header begins that was looked at now, and where it ends.
    pub(super) header: usize,
    pub(super) end: usize,
    pub(super) len: u64,
}

impl Frames {
    pub(super) fn new(most: usize) -> Self {
        Self { header: HeaderReader::default(), left: 0, len: 0, most }
    }

    /// Bytes that have come of a frame that is not whole; `None` between two frames.
    pub(super) fn begun(&self) -> Option<u64> {
        match self.left {
            0 => (!self.header.is_empty()).then_some(0),
            left => Some(self.len - left),
        }
    }

    /// Go on to the next frame whose header ends within these bytes; without one, to their end.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<Frame>, Reason> {
        let body = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.left -= body as u64;
        let mut rest = &bytes[body..];
        let Some(header) = self.header.take(&mut rest)? else { return Ok(None) };
        if header.len > self.most as u64 {
            return Err(Reason::FrameTooLarge);
        }
        (self.left, self.len) = (header.len, header.len);
        Ok(Some(Frame { header: body, end: bytes.len() - rest.len(), len: header.len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerLimits;
    use crate::access::Access;
    use crate::turns::{Share, Watch, turns};
    use std::sync::Arc;

    #[test]
    fn headers_are_found_however_the_frames_are_cut() {
        let short = [&[0_u8, 40][..], &[7; 40]].concat();
        let long = [&[2_u8][..], &300_u64.to_be_bytes(), &[7; 300]].concat();
        let bytes = [&short[..], &long, &short].concat();
        for size in 1..=bytes.len() {
            let (mut frames, mut lens, mut before) = (Frames::new(300), Vec::<u64>::new(), 0);
            for chunk in bytes.chunks(size) {
                let mut at = 0;
                while let Some(frame) = frames.next(&chunk[at..]).unwrap() {
                    // What comes before the header belongs to the frames before.
                    let header = before + at + frame.header;
                    assert!(header >= lens.iter().map(|len| len + 2).sum::<u64>() as usize, "in pieces of {size}");
                    at += frame.end;
                    lens.push(frame.len);
                }
                before += chunk.len();
            }
            assert_eq!(lens, [40, 300, 40], "in pieces of {size}");
        }
        assert_eq!(Frames::new(299).next(&long), Err(Reason::FrameTooLarge));
    }

    #[test]
    fn what_is_in_libzmq_counts_among_the_long_messages_of_all() {
        let limits = PeerLimits { unfinished_bytes_max: 4 << 20, ..PeerLimits::default() };
        let counters: Arc<Counters> = Arc::default();
        let (entrance, _turns) = turns(Share { peer_bytes: 1 << 20, total_bytes: 1 << 20 });
        let gate = Gate::new(Access::default(), limits, Watch::clone(&entrance), Arc::clone(&counters));
        let begun = |socket| Begun::new(&gate, socket);
        let (mut one, mut other) = (begun(SocketName::Control), begun(SocketName::Control));
        let short = SHORT_BYTES as u64;
        assert!(one.begin(0, short) && counters.queued.unfinished.get() == 0, "a short message has its place");
        assert!(one.begin(short, (3 << 19) - short) && !other.begin(0, 1 << 20), "both together have too much");
        let mut rows = begun(SocketName::Ingest);
        assert!(rows.begin(0, 1 << 20), "rows have their own room");
        assert_eq!(counters.queued.unfinished.get(), (3 << 19) + (1 << 20));
        // What has been received makes room for the other, which has asked first, and not for what this one sends next.
        assert!(!one.begin(short, 1 << 20) && other.begin(0, 1 << 20) && !one.begin(short, 1 << 20));
        assert!(one.begin(10, 20), "a short message has its place still");
        assert!(other.begin(1 << 20, 1 << 20) && !one.begin(10, 1 << 20));
        other.follow(1 << 20);
        assert_eq!(counters.queued.unfinished.get(), 2 << 20);
        assert!(one.begin(10, (1 << 20) - 10));
        drop((one, other, rows));
        assert_eq!(counters.queued.unfinished.get(), 0);
    }

    #[test]
    fn a_publication_that_libzmq_drops_counts_until_a_later_one_comes() {
        let (flow, counters) = (Flow::new(SocketName::Publish, oneshot::channel().0), Counters::default());
        for frames in [(40, 100), (40, 200), (50, 300), (40, 100)] {
            flow.give_publication(frames, &counters);
        }
        assert_eq!(flow.waiting(), 870);
        assert!(!flow.came_out((20, 40), &counters) && flow.came_out((40, 100), &counters));
        flow.take(140, &counters);
        assert_eq!(flow.waiting(), 730);
        assert!(flow.came_out((40, 100), &counters), "the two before it never came");
        assert_eq!((flow.waiting(), counters.publish.backlog_bytes.get()), (140, 140));
        flow.take(140, &counters);
        assert_eq!(flow.waiting(), 0);
    }

    #[test]
    fn what_libzmq_adds_is_no_credit() {
        let (flow, counters) = (Flow::new(SocketName::Control, oneshot::channel().0), Counters::default());
        flow.give(100, &counters);
        flow.take(140, &counters);
        flow.give(60, &counters);
        assert_eq!((flow.waiting(), counters.control.backlog_bytes.get()), (60, 60));
        flow.take(u64::MAX, &counters);
        assert_eq!((flow.waiting(), counters.control.backlog_bytes.get()), (0, 0));
    }
}
