//! One connection after its handshake: a small state machine over four halves of streams.
//!
//! ```text
//! peer -- read --> Scanner -- up -----> write --> socket behind        read only when `up` is empty: back-pressure
//! peer <- write -- down <---- Filter <- read  --- socket behind        always read: the queue behind stays short
//! ```

use super::permit::{self, ConnectionPermit, Reader, Writer};
use super::under_way::Part;
use super::zmq::connection_identity;
use super::zmtp::{self, Filter, Scanner};
use super::{Phase, Reason, SHORT_BYTES, SocketName};
use bytes::{Buf, BytesMut};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::Sleep;

/// Bytes taken from a stream at once; on the stack, so an idle connection holds none.
const CHUNK: usize = 64 << 10;

/// Bytes that a connection moves before others have their turn.
pub(super) const TURN_BYTES: usize = CHUNK;

/// Commands that a peer may send in a second; beyond that it is read no further until the second is over.
const COMMANDS_PER_SECOND: u32 = 50_000;

/// A buffer that is empty gives memory beyond this back, in bytes.
const IDLE_CAPACITY: usize = 16 << 10;

/// How often a link with bytes waiting looks at the time.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What a socket is called towards its peers, what the gate calls itself towards the one behind it, and which peers may come.
pub(super) fn socket_types(socket: SocketName) -> (&'static str, &'static str, &'static [&'static [u8]]) {
    match socket {
        // The one behind is a ROUTER, which says whose message it has.
        SocketName::Ingest => ("PULL", "DEALER", &[b"PUSH"]),
        SocketName::Control => ("ROUTER", "DEALER", &[b"DEALER", b"REQ"]),
        SocketName::Publish => ("PUB", "SUB", &[b"SUB"]),
    }
}

/// The stream to the socket behind the gate.
struct Inner {
    reader: Reader,
    writer: Writer,
    /// Whether the socket behind has been shown the end.
    is_shut: bool,
    is_gone: bool,
}

/// A long message that a peer has begun.
struct Begun {
    /// Bytes counted for it.
    part: Part,
    /// Since when it has been under way, but for the time in which the peer waited for us.
    since: Instant,
    /// When that was last looked at.
    looked: Instant,
    /// Where in `up` it stands while there is no room for it. The socket behind makes room for a message as soon as it sees how long
    /// that is, so it does not see it yet.
    held_from: Option<usize>,
}

impl Begun {
    fn new(now: Instant) -> Self {
        Self { part: Part::default(), since: now, looked: now, held_from: None }
    }

    /// How long the peer has had to send the rest. Where it waits for us now, it did so since this was asked last.
    fn age(&mut self, now: Instant, waits_for_us: bool) -> Duration {
        if waits_for_us {
            self.since += now - self.looked;
        }
        self.looked = now;
        now - self.since
    }
}

/// A connection after its handshake. It outlives its peer until the socket behind has read all that the peer sent.
pub(super) struct Link {
    phase: watch::Receiver<Phase>,
    /// `None` once the peer sends nothing more, or is cut.
    reader: Option<Reader>,
    /// `None` once the peer takes nothing more, or is cut.
    writer: Option<Writer>,
    /// Whether writing to the peer has found that the connection broke: reading finds its end then, and no error.
    is_reset: bool,
    inner: Inner,
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
    begun: Begun,
    /// Whether the client is so far behind that it gets no turn.
    is_paused: bool,
    /// When the second began in which commands are counted, and how many there were before it.
    second: (Instant, u32),
    /// Last: it is given back when the streams are closed.
    seat: ConnectionPermit,
}

impl Link {
    pub(super) fn new(
        seat: ConnectionPermit,
        reader: Reader,
        writer: Writer,
        inner: UnixStream,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let (_, own_type, _) = socket_types(seat.socket);
        let (inner_reader, inner_writer) = inner.into_split();
        let inner =
            Inner { reader: Box::new(inner_reader), writer: Box::new(inner_writer), is_shut: false, is_gone: false };
        let mut up = BytesMut::from(&zmtp::greeting(0)[..]);
        let identity = connection_identity(seat.number());
        up.extend_from_slice(&zmtp::ready(own_type, &identity));
        let subscriber = (seat.socket == SocketName::Publish).then(|| Arc::clone(&seat.gate.counters));
        let scanner = Scanner::new(&seat.gate.limits, subscriber);
        let idle_timer = Box::pin(tokio::time::sleep(seat.gate.limits.idle_timeout));
        Self {
            seat,
            phase,
            reader: Some(reader),
            writer: Some(writer),
            is_reset: false,
            inner,
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
            begun: Begun::new(Instant::now()),
            is_paused: false,
            second: (Instant::now(), 0),
        }
    }

    /// Pipe until both sides are done, beginning with what the peer sent behind its handshake.
    pub(super) async fn run(mut self, read_ahead: &[u8]) {
        self.pass_up(read_ahead);
        while !self.is_over() {
            poll_fn(|cx| self.poll_step(cx)).await;
            if self.moved >= TURN_BYTES {
                self.moved = 0;
                // A peer that always has something for us is not the only one. Of those with long messages a few go on at a time:
                // a short message of another waits for these, and not for all.
                let long = self.begun.part.bytes() > 0;
                let _turn = if long { self.seat.gate.long_turns(self.seat.socket).acquire().await.ok() } else { None };
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether nothing is left to do: the socket behind is gone, and what it sent has been written or cannot be.
    fn is_over(&self) -> bool {
        self.inner.is_gone && (self.down.is_empty() || self.writer.is_none())
    }

    /// Move bytes in any direction; ready when something changed.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.place_pongs();
        // What was held goes on if there is room now.
        self.count_begun();
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
        match self.scanner.scan(bytes, &mut self.up) {
            Ok(()) => {
                if !self.count_begun() {
                    self.begun.held_from = Some(self.scanner.long_from);
                }
            }
            Err(reason) => self.cut(reason),
        }
    }

    /// Keep the bytes of long messages that have been begun in step with the one that is under way here. Whether there is room
    /// for it.
    fn count_begun(&mut self) -> bool {
        let (gate, socket, begun) = (&self.seat.gate, self.seat.socket, &mut self.begun);
        if let Some(bytes) = self.scanner.long_whole.take() {
            // The room of one message goes back before the next one asks for some: others may be waiting for it.
            if socket == SocketName::Ingest {
                // One of several frames had as much as it might have become.
                gate.end(socket, &mut begun.part, bytes);
                gate.pass(self.seat.number(), &mut begun.part);
            } else {
                gate.end(socket, &mut begun.part, 0);
            }
        }
        let wanted = match self.scanner.unfinished() {
            // A socket that waits for the learner holds the beginning of a message whose peer has left, until it finds the end.
            _ if self.reader.is_none() && socket == SocketName::Ingest && !self.inner.is_gone => begun.part.bytes(),
            bytes if bytes > SHORT_BYTES as u64 && self.reader.is_some() => bytes,
            _ => 0,
        };
        let more = wanted.saturating_sub(begun.part.bytes());
        if more == 0 {
            gate.end(socket, &mut begun.part, wanted);
            gate.leave(socket, &mut begun.part);
        } else if gate.begin(socket, &mut begun.part, more) {
            begun.since = Instant::now();
            begun.looked = begun.since;
        }
        let has_room = wanted == begun.part.bytes();
        if has_room && self.reader.is_some() {
            begun.held_from = None;
        }
        has_room
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
            self.seat.gate.requests.leave(self.seat.number());
        }
    }

    /// The socket behind takes nothing more of what the peer has sent.
    fn forget(&self) {
        if self.seat.socket == SocketName::Ingest {
            self.seat.gate.forget(self.seat.number());
        }
    }

    /// Whether the peer must wait before more is read from it.
    fn is_held(&self) -> bool {
        self.is_noisy() || self.waits_for_us()
    }

    fn is_noisy(&self) -> bool {
        let commands = self.scanner.commands.wrapping_sub(self.second.1);
        commands > COMMANDS_PER_SECOND && self.second.0.elapsed() < Duration::from_secs(1)
    }

    /// Whether it must wait for room, or until what it has sent is taken up, or answered.
    fn waits_for_us(&self) -> bool {
        let is_client = self.seat.socket == SocketName::Control;
        self.waits_for_this_thread() || (is_client && !self.seat.gate.requests.has_room(self.seat.number()))
    }

    /// The same, but for the room of requests, which another thread makes.
    fn waits_for_this_thread(&self) -> bool {
        let is_behind = self.seat.socket == SocketName::Control && self.is_behind();
        let has_no_room = self.scanner.unfinished() > self.begun.part.bytes().max(SHORT_BYTES as u64);
        !self.up.is_empty() || is_behind || has_no_room
    }

    /// Whether a client has as many answers waiting that it should read some first.
    fn is_behind(&self) -> bool {
        self.down.len() >= self.seat.gate.limits.backlog_bytes_max / 2
    }

    fn poll_peer_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.count_begun() || self.is_noisy() || self.waits_for_this_thread() {
            // Woken when it is its turn to begin a long message: which may be by now, since other threads give room back.
            return self.seat.gate.poll_call(self.seat.socket, &self.begun.part, cx);
        }
        if self.seat.socket == SocketName::Control {
            // And when there is room for more of its requests. Asked once: it may be there a moment later.
            ready!(self.seat.gate.requests.poll_room(self.seat.number(), cx));
        }
        if self.second.0.elapsed() >= Duration::from_secs(1) {
            self.second = (Instant::now(), self.scanner.commands);
        }
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let mut storage = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(&mut storage);
        let read = ready!(Pin::new(reader).poll_read(cx, &mut chunk));
        if read.is_err() || chunk.filled().is_empty() {
            self.end(read.err());
        } else {
            self.seat.gate.counters.socket(self.seat.socket).bytes_in.add(chunk.filled().len() as u64);
            self.last_sign = Instant::now();
            self.moved += chunk.filled().len();
            self.pass_up(chunk.filled());
        }
        Poll::Ready(())
    }

    /// The peer sends nothing more: it has closed, or the connection broke.
    fn end(&mut self, error: Option<io::Error>) {
        self.seat.count_end(self.is_reset || error.is_some(), self.scanner.whole, self.scanner.begun());
        if error.is_some() {
            self.lose_writer();
        }
        self.reader = None;
        self.seat.release_identity();
    }

    fn poll_inner_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner.is_gone {
            return Poll::Pending;
        }
        if self.reader.is_none()
            && let Some(from) = self.begun.held_from.take()
        {
            // It never becomes whole.
            self.up.truncate(from);
        }
        let free = self.begun.held_from.unwrap_or(self.up.len());
        if free > 0 {
            match ready!(Pin::new(&mut self.inner.writer).poll_write(cx, &self.up[..free])) {
                Ok(n) if n > 0 => {
                    consume(&mut self.up, n);
                    self.begun.held_from = self.begun.held_from.map(|from| from - n);
                }
                _ => self.lose_inner(),
            }
            return Poll::Ready(());
        }
        if self.reader.is_some() || self.inner.is_shut {
            return Poll::Pending;
        }
        // The peer sends nothing more and all of it is passed on: the socket behind may find the end.
        self.inner.is_shut = ready!(Pin::new(&mut self.inner.writer).poll_shutdown(cx)).is_ok();
        if !self.inner.is_shut {
            self.lose_inner();
        }
        Poll::Ready(())
    }

    fn poll_inner_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner.is_gone {
            return Poll::Pending;
        }
        let mut storage = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(&mut storage);
        let read = ready!(Pin::new(&mut self.inner.reader).poll_read(cx, &mut chunk));
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
        self.inner.is_gone = true;
        self.up = BytesMut::new();
        self.forget();
        self.seat.gate.end(self.seat.socket, &mut self.begun.part, 0);
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
            written => {
                self.is_reset |= written.is_err_and(|error| permit::is_reset(&error));
                self.lose_writer();
            }
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
        // In one step: links of the other thread look at it meanwhile.
        match waiting.checked_sub(self.down_counted) {
            Some(0) => {}
            Some(more) => backlog.add(more),
            None => backlog.subtract(self.down_counted - waiting),
        }
        self.down_counted = waiting;
        if self.seat.socket == SocketName::Control && self.is_paused != self.is_behind() {
            self.is_paused = self.is_behind();
            self.seat.gate.requests.pause(self.seat.number(), self.is_paused);
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
        let is_kept_waiting = self.is_held() && (self.writer.is_some() || self.reader.is_some());
        if self.behind_since.is_none() && !is_kept_waiting && self.begun.part.bytes() == 0 {
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
        let has_stopped = self.has_stopped_short();
        let limits = &self.seat.gate.limits;
        match self.behind_since {
            Some(_) if self.last_progress.elapsed() >= limits.stall_timeout => self.cut(Reason::Stalled),
            Some(since) if since.elapsed() >= limits.saturated_timeout => self.cut(Reason::Saturated),
            _ if has_stopped => self.cut(Reason::Stalled),
            Some(_) => {}
            // A further PING may wait behind messages that cannot be read yet. Unanswered, libzmq gives the connection up and with
            // it what is under way; any sign of life prevents that. Nobody else is sent what it has not asked for: the peer may
            // have closed, and whatever reaches a closed TCP socket makes its kernel throw away the rows that it still has for us.
            None if self.scanner.pings && self.is_held() => {
                self.scanner.pongs.extend_from_slice(&zmtp::pong(b""));
            }
            None => {}
        }
    }

    /// Whether it has not finished a long message for so long, although we read what it sends, that others who wait for its room go
    /// first.
    fn has_stopped_short(&mut self) -> bool {
        let waits_for_us = self.waits_for_us();
        let age = self.begun.age(Instant::now(), waits_for_us);
        let gate = &self.seat.gate;
        self.reader.is_some()
            && self.begun.part.bytes() > 0
            && age >= gate.limits.stall_timeout
            && gate.lacks_room(self.seat.socket)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.seat.gate.end(self.seat.socket, &mut self.begun.part, 0);
        self.seat.gate.leave(self.seat.socket, &mut self.begun.part);
        self.leave();
        self.forget();
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

#[cfg(test)]
mod tests {
    use super::super::permit::Gate;
    use super::super::turns::{Share, Watch, turns};
    use super::super::{Limits, Rights};
    use super::*;
    use crate::access::Access;
    use std::io::Cursor;
    use std::task::Waker;

    #[test]
    fn a_message_does_not_age_while_its_peer_waits_for_us() {
        let start = Instant::now();
        let mut begun = Begun::new(start);
        let mut age = |second: u64, waits| begun.age(start + Duration::from_secs(second), waits).as_secs();
        assert_eq!([age(1, false), age(2, true), age(50, true)], [1, 1, 1]);
        assert_eq!([age(53, false), age(54, true), age(55, false)], [4, 4, 5]);
    }

    #[test]
    fn a_peer_of_too_many_commands_is_read_no_further_until_the_second_is_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let (entrance, _turns) = turns(Share { peer_bytes: 1, total_bytes: 1 });
        let gate = Gate::new(Access::default(), Limits::default(), Watch::clone(&entrance), Arc::default());
        let seat = ConnectionPermit::take(&Arc::new(gate), SocketName::Ingest, None, Rights::ALL).unwrap();
        // A command without a name, the shortest there is.
        let noise = Cursor::new([4, 1, 0].repeat(1_000_000));
        let (inner, _behind) = UnixStream::pair().unwrap();
        let (_phase, phase) = watch::channel(Phase::Running);
        let mut link = Link::new(seat, Box::new(noise), Box::new(tokio::io::sink()), inner, phase);
        link.up.clear();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            let before = link.scanner.commands;
            assert!(link.poll_peer_read(&mut cx).is_ready(), "which begins a second, where one is over");
            // One that this test cannot outlast.
            link.second.0 = Instant::now() + Duration::from_secs(3600);
            while link.poll_peer_read(&mut cx).is_ready() {}
            let bound = COMMANDS_PER_SECOND..COMMANDS_PER_SECOND + CHUNK as u32 / 3;
            assert!(link.is_held() && bound.contains(&(link.scanner.commands - before)), "{}", link.scanner.commands);
            link.second.0 = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
            assert!(!link.is_held());
        }
    }
}
