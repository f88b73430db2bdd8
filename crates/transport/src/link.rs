//! One connection after its handshake: a small state machine over the halves of its stream.
//!
//! ```text
//! peer -- read --> Scanner -- whole messages --> rows, requests, topics     not read while its last one has no room: back-pressure
//! peer <- write -- Backlog <-- replies, publications, PONGs
//! ```

use super::backlog::{Backlog, Peers};
use super::inbox::Rows;
use super::permit::{self, ConnectionPermit, Reader, Streams, Writer};
use super::turns::Entrance;
use super::under_way::ConnectionShare;
use super::zmtp::{self, Message, Scanner, Sent};
use super::{Peer, Reason, Request, SHORT_BYTES, SocketName};
use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

/// Bytes taken from a stream at once; on the stack, so an idle connection holds none.
const CHUNK: usize = 64 << 10;

/// Bytes that a connection moves before others have their turn.
pub(super) const TURN_BYTES: usize = CHUNK;

/// A row takes as long as so many bytes, so does a request that is handed over, and one that is answered at once.
const ROW_BYTES: usize = TURN_BYTES / 256;
const REQUEST_BYTES: usize = TURN_BYTES / 64;
const ANSWER_BYTES: usize = TURN_BYTES / 8;

/// Commands that a peer may send in a second; beyond that it is read no further until the second is over.
const COMMANDS_PER_SECOND: u32 = 50_000;

/// How often a link with bytes waiting looks at the time.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What a socket is called towards its peers, and which of these may come.
pub(super) fn socket_types(socket: SocketName) -> (&'static str, &'static [&'static [u8]]) {
    match socket {
        SocketName::Ingest => ("PULL", &[b"PUSH"]),
        SocketName::Control => ("ROUTER", &[b"DEALER", b"REQ"]),
        SocketName::Publish => ("PUB", &[b"SUB"]),
    }
}

/// What answers small requests on the thread on which they arrive.
pub(super) type AtOnce = Mutex<dyn FnMut(&Request) -> Option<Vec<u8>> + Send>;

/// What becomes of what peers send.
#[derive(Clone)]
pub(super) enum Behind {
    Rows(Arc<Rows>),
    Requests {
        at_once: Arc<AtOnce>,
        /// None once nothing more may be taken.
        entrance: Option<Entrance<Request>>,
        clients: Arc<Peers>,
    },
    Subscriptions(Arc<Peers>),
}

/// A long message that a peer has begun.
struct Begun {
    /// Bytes counted for it.
    part: ConnectionShare,
    /// Since when it has been under way, but for the time in which the peer waited for us.
    since: Instant,
    /// When that was last looked at.
    looked: Instant,
}

impl Begun {
    fn new(now: Instant) -> Self {
        Self { part: ConnectionShare::default(), since: now, looked: now }
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

/// A connection after its handshake. It outlives its peer until all that the peer sent is taken.
pub(super) struct Link {
    /// `None` once the peer sends nothing more, or is cut.
    reader: Option<Reader>,
    /// `None` once the peer takes nothing more, or is cut.
    writer: Option<Writer>,
    /// Whether writing to the peer has found that the connection broke: reading finds its end then, and no error.
    is_reset: bool,
    scanner: Scanner,
    behind: Behind,
    /// What has been read and not looked at; the peer is read only while there is nothing.
    unread: BytesMut,
    /// A row for which there is no room yet.
    row: Option<Vec<u8>>,
    backlog: Arc<Backlog>,
    /// Runs while there is something to watch.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the peer last sent or accepted a byte.
    last_sign: Instant,
    /// Runs always, and looks at `last_sign`.
    idle_timer: Pin<Box<Sleep>>,
    /// Bytes read and written since others had their turn, with what messages took.
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
    /// `scanner` has read the peer's handshake, and `unread` is what came behind it.
    pub(super) fn new(
        seat: ConnectionPermit,
        (reader, writer): Streams,
        behind: Behind,
        scanner: Scanner,
        unread: BytesMut,
    ) -> Self {
        let backlog = Arc::new(Backlog::new(&seat.gate, seat.socket));
        match &behind {
            Behind::Rows(_) => {}
            Behind::Requests { clients: peers, .. } | Behind::Subscriptions(peers) => {
                peers.join(seat.number(), &backlog);
            }
        }
        let idle_timer = Box::pin(tokio::time::sleep(seat.gate.limits.idle_timeout));
        let now = Instant::now();
        Self {
            seat,
            reader: Some(reader),
            writer: Some(writer),
            is_reset: false,
            scanner,
            behind,
            unread,
            row: None,
            backlog,
            timer: None,
            last_sign: now,
            idle_timer,
            moved: 0,
            begun: Begun::new(now),
            is_paused: false,
            second: (now, 0),
        }
    }

    /// Carry messages until the peer is gone, all that it sent is taken, and what waits for it is written or cannot be.
    pub(super) async fn run(&mut self) {
        while !self.is_over() {
            poll_fn(|cx| self.poll_step(cx)).await;
            if self.moved >= TURN_BYTES {
                self.moved = 0;
                // A peer that always has something for us is not the only one. Of those with long messages, in either direction, a few go
                // on at a time: a short message of another waits for these, and not for all.
                let long = self.begun.part.bytes() > 0 || self.backlog.bytes() > SHORT_BYTES;
                let _turn = if long { self.seat.gate.long_turns(self.seat.socket).acquire().await.ok() } else { None };
                tokio::task::yield_now().await;
            }
        }
    }

    /// Take nothing more of the peer but the row that waits for room. Clients and subscribers still get what is put out for them.
    pub(super) fn stop_taking(&mut self) {
        match &mut self.behind {
            Behind::Rows(_) => {
                self.unread.clear();
                self.close();
            }
            Behind::Requests { entrance, .. } => *entrance = None,
            Behind::Subscriptions(_) => {}
        }
    }

    fn is_over(&self) -> bool {
        let nothing_comes = self.reader.is_none() && self.unread.is_empty() && self.row.is_none();
        nothing_comes && (self.writer.is_none() || self.backlog.bytes() == 0)
    }

    /// Move bytes in any direction; ready when something changed.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut changed = self.poll_put(cx).is_ready();
        changed |= self.poll_take(cx).is_ready();
        if !self.scanner.pongs.is_empty() && self.writer.is_some() {
            self.backlog.push_commands(&std::mem::take(&mut self.scanner.pongs));
        }
        self.pause();
        changed |= self.poll_write(cx).is_ready();
        self.pause();
        changed |= self.poll_timer(cx).is_ready();
        changed |= self.poll_idle_timer(cx).is_ready();
        if changed { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Keep the bytes of long messages that have been begun in step with the one that is under way here. Whether there is room
    /// for it.
    fn count_begun(&mut self) -> bool {
        let (gate, socket, begun) = (&self.seat.gate, self.seat.socket, &mut self.begun);
        let wanted = match self.scanner.unfinished() {
            // It counts until it has been put in.
            _ if self.row.is_some() => begun.part.bytes(),
            bytes if bytes > SHORT_BYTES as u64 && self.reader.is_some() => bytes,
            _ => 0,
        };
        let more = wanted.saturating_sub(begun.part.bytes());
        if more == 0 {
            gate.end(socket, &mut begun.part, wanted);
            gate.leave(socket, &mut begun.part);
            return true;
        }
        let has_room = gate.begin(socket, &mut begun.part, more);
        if has_room {
            self.scanner.reserve();
            begun.since = Instant::now();
            begun.looked = begun.since;
        }
        has_room
    }

    /// Put the row in that waits, if it is its turn.
    fn poll_put(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Behind::Rows(rows) = &self.behind else { return Poll::Pending };
        ready!(rows.poll_put(self.seat.number(), &mut self.row, cx));
        self.seat.gate.counters.ingest_messages.add(1);
        self.seat.gate.end(self.seat.socket, &mut self.begun.part, 0);
        Poll::Ready(())
    }

    /// Take what has been read, or read more, unless the peer has to wait.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
        if !self.unread.is_empty() {
            let mut unread = std::mem::take(&mut self.unread);
            let left = self.take_in(&unread, cx);
            unread.advance(unread.len() - left);
            self.unread = if left > 0 { unread } else { BytesMut::new() };
            return Poll::Ready(());
        }
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let mut storage = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(&mut storage);
        let read = ready!(Pin::new(reader).poll_read(cx, &mut chunk));
        let chunk = chunk.filled();
        if read.is_err() || chunk.is_empty() {
            self.end(read.err());
            return Poll::Ready(());
        }
        self.seat.gate.counters.socket(self.seat.socket).bytes_in.add(chunk.len() as u64);
        self.last_sign = Instant::now();
        let left = self.take_in(chunk, cx);
        self.unread = chunk[chunk.len() - left..].into();
        self.moved += chunk.len();
        Poll::Ready(())
    }

    /// Take messages from the front of `bytes` as long as there is room for them and others need not wait, or cut the peer. How many
    /// bytes are left.
    fn take_in(&mut self, mut bytes: &[u8], cx: &mut Context<'_>) -> usize {
        let mut goes_on = Ok(true);
        while goes_on == Ok(true) {
            goes_on = match self.scanner.next(&mut bytes) {
                Ok(None) => return 0,
                Ok(Some(sent)) => self.take(sent, cx),
                Err(reason) => Err(reason),
            };
        }
        match goes_on {
            Ok(_) => bytes.len(),
            Err(reason) => {
                self.cut(reason);
                0
            }
        }
    }

    /// Take one thing; whether there is room for more.
    fn take(&mut self, sent: Sent, cx: &mut Context<'_>) -> Result<bool, Reason> {
        let goes_on = match (sent, &self.behind) {
            (Sent::Message(message), Behind::Rows(_)) => self.take_row(message, cx),
            (Sent::Message(message), Behind::Requests { .. }) => self.take_request(message),
            // Neither comes: a handshake is over, and messages of subscribers are subscriptions.
            (Sent::Greeting | Sent::Ready(_), _) | (Sent::Message(_), Behind::Subscriptions(_)) => {
                return Err(Reason::BadCommand);
            }
            (Sent::Subscribe(topic), _) => return self.backlog.ask(|asked| asked.subscribe(topic)).map(|()| true),
            (Sent::Cancel(topic), _) => {
                self.backlog.ask(|asked| asked.cancel(&topic));
                return Ok(true);
            }
        };
        // The room of one message goes back before the next one asks for some: others may be waiting for it.
        if self.row.is_none() {
            self.seat.gate.end(self.seat.socket, &mut self.begun.part, 0);
        }
        Ok(goes_on && self.moved < TURN_BYTES)
    }

    fn take_row(&mut self, message: Message, cx: &mut Context<'_>) -> bool {
        self.moved += ROW_BYTES;
        self.row = message.row();
        if self.row.is_none() {
            self.seat.gate.counters.ingest_malformed.add(1);
            return true;
        }
        let is_in = self.poll_put(cx).is_ready();
        if !is_in {
            self.seat.gate.pass(self.seat.socket, &mut self.begun.part);
        }
        is_in
    }

    fn take_request(&mut self, message: Message) -> bool {
        let Behind::Requests { at_once, entrance: Some(entrance), .. } = &self.behind else { return true };
        let counters = &self.seat.gate.counters;
        let Some((delimiter, payload)) = message.request() else {
            counters.control_malformed.add(1);
            return true;
        };
        counters.requests.add(1);
        let peer = Peer { connection: self.seat.number(), delimiter };
        let request = Request { peer, payload: payload.into(), since: Instant::now() };
        let answer = at_once.lock()(&request);
        if let Some(answer) = answer {
            self.moved += ANSWER_BYTES;
            self.backlog.reply(delimiter, answer);
            return true;
        }
        self.moved += REQUEST_BYTES;
        entrance.put(peer.connection, request.payload.len(), request);
        entrance.has_room(peer.connection)
    }

    /// The peer sends nothing more: it has closed, or the connection broke.
    fn end(&mut self, error: Option<io::Error>) {
        self.seat.count_end(self.is_reset || error.is_some(), self.scanner.whole, self.scanner.begun());
        if error.is_some() {
            self.lose_writer();
        }
        self.reader = None;
        self.scanner.end();
        self.seat.release_identity();
    }

    /// Close the peer's connection. What it sent before is still taken.
    fn cut(&mut self, reason: Reason) {
        self.seat.count_cut(reason);
        self.close();
    }

    fn close(&mut self) {
        self.reader = None;
        self.lose_writer();
    }

    fn lose_writer(&mut self) {
        self.writer = None;
        self.seat.release_identity();
        self.leave();
    }

    /// The peer takes nothing more: drop what waits for it, and a client's requests.
    fn leave(&mut self) {
        match &self.behind {
            Behind::Rows(_) => {}
            Behind::Subscriptions(peers) => peers.leave(self.seat.number()),
            Behind::Requests { clients, .. } => {
                clients.leave(self.seat.number());
                self.reader = None;
                self.unread.clear();
                self.seat.gate.requests.leave(self.seat.number());
            }
        }
        self.backlog.clear();
    }

    /// Whether the peer must wait before more is read from it.
    fn is_held(&self) -> bool {
        self.is_noisy() || self.waits_for_us()
    }

    /// Whether it sends too many commands. Of a peer that sends nothing more, what it has sent is taken.
    fn is_noisy(&self) -> bool {
        let commands = self.scanner.commands.wrapping_sub(self.second.1);
        self.reader.is_some() && commands > COMMANDS_PER_SECOND && self.second.0.elapsed() < Duration::from_secs(1)
    }

    /// Whether it must wait for room, or until what it has sent is taken up, or answered.
    fn waits_for_us(&self) -> bool {
        let is_client = self.seat.socket == SocketName::Control;
        self.waits_for_this_thread() || (is_client && !self.seat.gate.requests.has_room(self.seat.number()))
    }

    /// The same, but for the room of requests, which another thread makes.
    fn waits_for_this_thread(&self) -> bool {
        let has_no_room = self.scanner.unfinished() > self.begun.part.bytes().max(SHORT_BYTES as u64);
        self.row.is_some() || self.is_behind() || has_no_room
    }

    /// Whether this is a client that has as many answers waiting that it should read some first.
    fn is_behind(&self) -> bool {
        self.seat.socket == SocketName::Control && self.backlog.bytes() >= self.seat.gate.limits.backlog_bytes_max / 2
    }

    /// A client that is behind gets no turn.
    fn pause(&mut self) {
        if self.is_paused != self.is_behind() {
            self.is_paused = !self.is_paused;
            self.seat.gate.requests.pause(self.seat.number(), self.is_paused);
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(writer) = &mut self.writer else { return Poll::Pending };
        match ready!(self.backlog.poll_write(writer, cx)) {
            Ok(n) if n > 0 => {
                self.last_sign = Instant::now();
                self.moved += n;
            }
            written => {
                self.is_reset |= written.is_err_and(|error| permit::is_reset(&error));
                self.lose_writer();
            }
        }
        Poll::Ready(())
    }

    /// While bytes wait, look now and then whether they wait too long.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_kept_waiting = self.is_held() && (self.writer.is_some() || self.reader.is_some());
        if self.backlog.behind().is_none() && !is_kept_waiting && self.begun.part.bytes() == 0 {
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
        match self.backlog.behind() {
            Some((_, progress)) if progress.elapsed() >= limits.stall_timeout => self.cut(Reason::Stalled),
            Some((since, _)) if since.elapsed() >= limits.saturated_timeout => self.cut(Reason::Saturated),
            _ if has_stopped => self.cut(Reason::Stalled),
            Some(_) => {}
            // A further PING may wait behind messages that cannot be read yet. Unanswered, libzmq gives the connection up and with
            // it what is under way; any sign of life prevents that. Nobody else is sent what it has not asked for: the peer may
            // have closed, and whatever reaches a closed TCP socket makes its kernel throw away the rows that it still has for us.
            None if self.scanner.pings && self.is_held() && self.writer.is_some() => {
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
        if let Behind::Rows(rows) = &self.behind {
            rows.leave(self.seat.number());
        }
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::super::inbox::Inbox;
    use super::super::permit::Gate;
    use super::super::turns::{Share, Watch, turns};
    use super::super::{Count, PeerLimits, Rights};
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
        let gate = Gate::new(Access::default(), PeerLimits::default(), Watch::clone(&entrance), Arc::default());
        let seat = ConnectionPermit::take(&Arc::new(gate), SocketName::Ingest, None, Rights::ALL).unwrap();
        // A command without a name, the shortest there is.
        let noise = Cursor::new([4, 1, 0].repeat(1_000_000));
        let rows = Behind::Rows(Arc::new(Rows::new(Inbox::new(1, 1, Count::default()).0)));
        let scanner = Scanner::introduced(&seat.gate.limits, seat.socket);
        let streams: Streams = (Box::new(noise), Box::new(tokio::io::sink()));
        let mut link = Link::new(seat, streams, rows, scanner, BytesMut::new());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            let before = link.scanner.commands;
            assert!(link.poll_take(&mut cx).is_ready(), "which begins a second, where one is over");
            // One that this test cannot outlast.
            link.second.0 = Instant::now() + Duration::from_secs(3600);
            while link.poll_take(&mut cx).is_ready() {}
            let bound = COMMANDS_PER_SECOND..COMMANDS_PER_SECOND + CHUNK as u32 / 3;
            assert!(link.is_held() && bound.contains(&(link.scanner.commands - before)), "{}", link.scanner.commands);
            link.second.0 = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
            assert!(!link.is_held());
        }
        // What it has sent before it was cut is taken all the same.
        link.second.0 = Instant::now() + Duration::from_secs(3600);
        link.unread = BytesMut::from(&[4, 1, 0].repeat(3)[..]);
        assert!(link.is_held() && link.poll_take(&mut cx).is_pending());
        link.cut(Reason::Stalled);
        assert!(link.poll_take(&mut cx).is_ready() && link.unread.is_empty());
    }
}
