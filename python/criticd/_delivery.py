"""The threads behind a `Sender`: they take rows from its queue, cut them into batches and bring them to the daemon.

One thread owns everything here but the queue, and the numbers that `Ledger` says are the producer's. A producer never
waits for a socket, a file or a lock that this thread holds while it works.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from criticd._protocol import Address, Hello, Limits, Malformed, Message, Refused, answer, pack
from criticd._rows import Layout, Rows
from criticd._spool import Spool
from criticd.client import Position, control_socket, monitor_of, position_pages

log = logging.getLogger("criticd")

KEPT = 64
"""Acknowledged batches of each stream that are kept, to be sent again if the daemon comes back with less."""
_GULP = 16
"""Items taken from the queue before other threads get a chance to run: batches, or steps of many streams."""
_SILENCE_S = 30.0
"""A daemon that owes replies and says nothing for so long is given up, and connected to anew."""
_RETRY_S = 0.5
"""Pause after an answer that asks for patience without saying how much."""
_PATIENCE = frozenset({"overloaded", "read_only", "not_ready"})
"""Codes after which the same batch may be taken later."""
_ENDING_MS = 10_000
"""libzmq ends a socket within this time after it has sent, or dropped, what the socket held."""


NAMED = 4096
"""Rows after which the names of the state variables are said again."""


@dataclass(eq=False)
class Stream:
    """One session of one stream. Rows are counted from 0 by `index`; on the wire they are numbered from `base`."""

    name: str
    origin: str
    session: str = ""
    base: int = 0
    # The producer's, under the ledger's lock. Rows are added to the open run until the thread makes a batch of it.
    next_index: int = 0
    taken: int = 0
    open: Run | None = None
    # The thread's.
    finished: int = 0
    # Rows handed to a connected socket, and the index behind the last of them.
    handed: int = 0
    reached: int = 0
    error: Refused | None = None
    renewals: int = 0
    pending: deque[Run] = field(default_factory=deque)
    since: float = 0.0
    out: deque[Batch] = field(default_factory=deque)
    sent: int = 0
    kept: deque[Batch] = field(default_factory=lambda: deque(maxlen=KEPT))
    # What the state variables are called, if the producer says so.
    state_names: tuple[str, ...] = ()
    # And the rewards.
    reward_names: tuple[str, ...] = ()
    # And the actions.
    action_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.session = self.session or self.origin


@dataclass(slots=True, eq=False)
class Run:
    """Rows that will make a batch: consecutive, and laid out alike.

    A list of bytes, so that many rows that wait are few objects to Python's garbage collector, whose pauses a control
    loop would feel.
    """

    index: int
    layout: Layout
    parts: list[bytes]
    count: int

    def takes(self, index: int, rows: Rows, most: int) -> bool:
        """Whether these rows follow, and do not make it longer than `most`."""
        return index == self.index + self.count and rows.layout == self.layout and self.count + rows.count <= most

    def add(self, rows: Rows) -> None:
        """Make it longer."""
        self.parts.append(rows.data)
        self.count += rows.count


@dataclass(eq=False)
class Batch:
    """Consecutive rows of a stream, the first with number `index`."""

    stream: Stream
    index: int
    rows: Rows
    spooled: int | None = None
    acknowledged: bool = False

    @property
    def end(self) -> int:
        """Index of the row behind the last."""
        return self.index + self.rows.count

    def fields(self) -> Message:
        """The batch as the protocol has it."""
        stream = self.stream
        seq = self.index - stream.base
        columns = self.rows.layout.columns(self.rows.data)
        # With the first message, and now and then again: a socket without acknowledgements may have lost it.
        if seq == 0 or self.index // NAMED != self.end // NAMED:
            named = ("state_names", "reward_names", "action_names")
            columns.update((key, list(names)) for key in named if (names := getattr(stream, key)))
        return {"stream": stream.name, "session": stream.session, "seq": seq, **columns}


@dataclass
class Counters:
    """Counts of the rows of a sender.

    ```python
    print(sender.counters.sent, sender.counters.dropped)
    ```

    `taken`: rows that `send` took. `dropped`: rows that it did not take, because its queue was full (only without
    `reliable`). `sent`: handed to a connection that stood, and not lost at the end. `acknowledged`: the daemon has them
    (only with `reliable`). `refused`: the daemon turned them down; without `reliable` they are counted as sent as well,
    and the number is a lower bound, known a second or so later. `lost`: given up because the daemon forgot them and
    they were no longer kept, or because the sender was closed before it could send them; without `reliable` some of
    these may have arrived, at most 16 messages and 8 KiB. `resent`: sent once more. `spooled`: rows on disk now.
    `reconnects`: times that a connection was made, but for the first.
    """

    taken: int = 0
    dropped: int = 0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    lost: int = 0
    resent: int = 0
    spooled: int = 0
    reconnects: int = 0


Item = tuple[Stream, Run] | tuple[list[tuple[Stream, int]], Rows] | None
"""A run of one stream, which may still grow; or one row for each of several streams; or a nudge."""


class Ledger:
    """What producers and the thread share.

    Each number has one writer: `taken`, `dropped`, `flushes` and `stop` the producers, under `lock`; all else the
    thread. `progress` is notified when rows have left.
    """

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.progress = threading.Condition()
        self.counters = Counters()
        self.released = 0
        self.wake = threading.Event()
        self.flushes = 0
        self.stop = False
        self.finished = False
        self.failed: BaseException | None = None

    @property
    def held(self) -> int:
        """Rows in memory."""
        return self.counters.taken - self.released

    @property
    def hurry(self) -> bool:
        """Whether rows are to be sent without waiting for more."""
        return self.stop or self.flushes > 0

    def refused(self, rows: int) -> None:
        """Note how many rows were refused so far, as far as is known without acknowledgements."""
        self.counters.refused = rows

    def nudge(self) -> None:
        """Have the thread look up."""
        self.wake.set()
        self.queue.put(None)


class Thread(threading.Thread):
    """Collecting rows, common to both ways of sending."""

    def __init__(self, ledger: Ledger, address: Address, batch_rows: int, linger_s: float, context: Any) -> None:
        super().__init__(name="criticd-sender", daemon=True)
        self.ledger, self.address, self.batch_rows, self.linger_s = ledger, address, batch_rows, linger_s
        self.context = context
        self.limits = Limits()
        self.busy: dict[Stream, None] = {}

    def run(self) -> None:
        try:
            self.deliver()
        except BaseException as error:
            log.exception("the sender's thread ended")
            self.ledger.failed = error
        finally:
            self.ledger.finished = True
            self.tell()

    def deliver(self) -> None:
        raise NotImplementedError

    def collect(self, item: Item) -> None:
        if item is None:
            return
        whose, what = item
        if isinstance(whose, Stream):
            assert isinstance(what, Run)
            self.put(whose, what)
            return
        assert isinstance(what, Rows)
        layout, width = what.layout, 8 * what.layout.width
        for position, (stream, index) in enumerate(whose):
            data = what.data[position * width : (position + 1) * width]
            last = stream.pending[-1] if stream.pending else None
            # Written out, since a vector environment makes many of these.
            if (
                last is not None
                and last is not stream.open
                and last.index + last.count == index
                and last.layout is layout
                and last.count < self.batch_rows
            ):
                last.parts.append(data)
                last.count += 1
            else:
                self.put(stream, Run(index, layout, [data], 1))

    def put(self, stream: Stream, run: Run) -> None:
        if stream.error is not None:
            self.seal(stream, run)
            self.give_up(stream, run.count, "refused")
            return
        if not stream.pending:
            stream.since = time.monotonic()
            self.busy[stream] = None
        stream.pending.append(run)

    def seal(self, stream: Stream, run: Run) -> None:
        """Have the producers add nothing more to it."""
        with self.ledger.lock:
            if stream.open is run:
                stream.open = None

    def ripe(self, stream: Stream) -> bool:
        """Whether there is a whole batch of what is pending."""
        return len(stream.pending) > 1 or (bool(stream.pending) and stream.pending[0].count >= self.batch_rows)

    def drain(self) -> bool:
        """Take at most a gulp from the queue; whether there is more."""
        for _ in range(_GULP):
            try:
                self.collect(self.ledger.queue.get_nowait())
            except queue.Empty:
                return False
        return True

    def due(self, stream: Stream, now: float) -> bool:
        return bool(stream.pending) and (self.ledger.hurry or now - stream.since >= self.linger_s or self.ripe(stream))

    def form(self, stream: Stream) -> Batch:
        """The next batch of what is pending, cut to what one message may hold."""
        run = stream.pending.popleft()
        self.seal(stream, run)
        layout, data, count = run.layout, b"".join(run.parts), run.count
        fits = max(1, (self.limits.message_bytes - 4096) // (8 * layout.width))
        most = min(self.limits.rows_per_batch, fits)
        if count > most:
            cut = most * 8 * layout.width
            stream.pending.appendleft(Run(run.index + most, layout, [data[cut:]], count - most))
            data, count = data[:cut], most
        if stream.pending:
            stream.since = time.monotonic() - self.linger_s
        else:
            self.busy.pop(stream, None)
        return Batch(stream, run.index, Rows(layout, count, data))

    def finish(self, stream: Stream, rows: int) -> None:
        """Note how many rows of the stream have come to their end, good or bad."""
        stream.finished += rows

    def give_up(self, stream: Stream, rows: int, why: str) -> None:
        counters = self.ledger.counters
        setattr(counters, why, getattr(counters, why) + rows)
        self.finish(stream, rows)
        self.ledger.released += rows
        self.tell()

    def tell(self) -> None:
        with self.ledger.progress:
            self.ledger.progress.notify_all()


class Link:
    """A socket and its connection to an endpoint, which says when it stands and when it breaks."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str) -> None:
        self.endpoint = endpoint
        self.socket = socket
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
        self.monitor = monitor_of(self.socket, events)
        self.poller = zmq.Poller()
        self.poller.register(self.socket, zmq.POLLIN)
        self.poller.register(self.monitor, zmq.POLLIN)
        self.connected = self.broken = False
        self.socket.connect(endpoint)

    def receive(self, timeout_s: float) -> list[bytes]:
        """What has come within that time. Sets `connected` and `broken`."""
        ready = dict(self.poller.poll(round(1000 * timeout_s)))
        payloads: list[bytes] = []
        if self.socket in ready:
            while len(payloads) < _GULP and self.socket.poll(0):
                payloads.append(self.socket.recv())
        self.stands()
        return payloads

    def stands(self, timeout_ms: int = 0) -> bool:
        """Whether the connection stands, after what happens to it within that time. Sets `connected` and `broken`."""
        while self.monitor.poll(timeout_ms):
            timeout_ms = 0
            made = recv_monitor_message(self.monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.broken |= self.connected and not made
            self.connected = made
        return self.connected

    def close(self, linger_ms: int = 0) -> bool:
        """Let the socket go, after that time at the latest; whether all that it held has left before.

        libzmq sends in the background, and a program that ends does not wait for it. So this does.
        """
        began = time.monotonic()
        self.socket.close(linger=linger_ms)
        while self.monitor.poll(linger_ms + _ENDING_MS):
            if recv_monitor_message(self.monitor)["event"] == zmq.EVENT_MONITOR_STOPPED:
                break
        took_ms = 1000 * (time.monotonic() - began)
        self.monitor.close(linger=0)
        return took_ms < linger_ms


class Appending(Thread):
    """Acknowledged appends: what is not acknowledged is sent again until it is.

    At most `window` batches are unanswered at a time. Batches of one stream are sent in order; if one is not taken,
    all behind it are sent again. While the spool holds anything, everything new goes behind it. Batches of two sessions
    of one stream are never under way together, since the newer would end the older.
    """

    def __init__(
        self,
        ledger: Ledger,
        address: Address,
        batch_rows: int,
        linger_s: float,
        context: Any,
        window: int,
        spool: Spool | None,
        streams: Iterable[Stream],
    ) -> None:
        super().__init__(ledger, address, batch_rows, linger_s, context)
        self.window, self.spool = window, spool
        self.deadline = float("inf")
        self.numbers = 0
        self.under_way: dict[int, Batch] = {}
        self.unsent: dict[Stream, None] = {}
        self.sessions: dict[tuple[str, str], Stream] = {(s.name, s.origin): s for s in streams}
        self.doubled = False
        self.read_through = 0
        self.pause_until = 0.0
        self.heard_at = 0.0

    def deliver(self) -> None:
        first = True
        while not self.over():
            link = self.connect()
            if link is None:
                break
            if not first:
                self.ledger.counters.reconnects += 1
            first = False
            try:
                if self.greet(link):
                    self.exchange(link)
            except Malformed as error:
                log.warning("what %s says cannot be understood, connecting anew: %s", link.endpoint, error)
                time.sleep(min(_RETRY_S, max(0.0, self.deadline - time.monotonic())))
            finally:
                link.close()
                self.put_back()
        self.leave()

    def over(self) -> bool:
        """Whether the sender is closed, and everything has come to its end or its time is over."""
        ledger = self.ledger
        if not ledger.stop:
            return False
        if time.monotonic() >= self.deadline:
            return True
        nothing = ledger.queue.empty() and not self.busy and not self.unsent and not self.under_way
        return nothing and (self.spool is None or not self.spool.batches)

    def leaving(self) -> bool:
        """Whether to wait for a daemon no more: what is left can go to the spool at once."""
        return self.over() or (self.ledger.stop and self.spool is not None)

    def connect(self) -> Link | None:
        """A connection that stands. Meanwhile what comes is spooled."""
        while not self.leaving():
            endpoint = self.address.resolve()
            link = None if endpoint is None else Link(control_socket(self.context, self.address.keys), endpoint)
            # A daemon that has come back may have other ports.
            until = time.monotonic() + (1.0 if self.address.data_dir else _SILENCE_S)
            while not self.leaving() and time.monotonic() < until:
                if link is None:
                    time.sleep(self.linger_s)
                else:
                    link.receive(self.linger_s)
                    if link.connected:
                        return link
                while self.drain():
                    pass
                self.spool_pending()
                if link is None:
                    break
            if link is not None:
                link.close()
        return None

    def greet(self, link: Link) -> bool:
        """Learn the daemon's limits and where our streams stand; False if the connection broke over it."""
        hello = self.call(link, "hello")
        if isinstance(hello, dict):
            self.limits = Hello.of(hello).limits
        if hello is None:
            return False
        pages = position_pages([stream.name for stream in self.sessions.values()] or [""])
        known: dict[str, Position] | None = None
        ask = next(pages)
        while known is None:
            streams = self.call(link, ask.op, ask.fields)
            if streams is None:
                return False
            self.pause_until = 0.0
            if isinstance(streams, Refused):
                # Nothing is known of our streams then; each batch will be told where it stands.
                return True
            try:
                ask = pages.send(streams)
            except StopIteration as done:
                known = done.value
        for stream in self.sessions.values():
            position = known.get(stream.name)
            if position is None:
                self.resume(stream, 0)
            elif position.session == stream.session:
                self.resume(stream, position.next_seq)
        return True

    def call(self, link: Link, op: str, fields: Message | None = None) -> Message | Refused | None:
        self.numbers += 1
        number, since = self.numbers, time.monotonic()
        if not link.socket.poll(1000, zmq.POLLOUT):
            return None
        link.socket.send(pack({"id": number, "op": op, **(fields or {})}))
        while not link.broken and time.monotonic() - since < _SILENCE_S and not self.over():
            for payload in link.receive(self.linger_s):
                found, reply = answer(payload)
                if found == number:
                    return reply
            while self.drain():
                pass
        return None

    def exchange(self, link: Link) -> None:
        """Send and hear until the connection breaks or all is done."""
        self.heard_at = time.monotonic()
        while not link.broken and not self.over():
            more = self.drain()
            sent = self.send(link)
            timeout = 0.0 if more or sent else self.linger_s
            for payload in link.receive(timeout):
                self.heard_at = time.monotonic()
                self.hear(*answer(payload))
            if not self.under_way:
                self.heard_at = time.monotonic()
            elif time.monotonic() - self.heard_at > _SILENCE_S:
                log.warning("no reply from %s for %.0f s: connecting anew", link.endpoint, _SILENCE_S)
                return

    def send(self, link: Link) -> bool:
        """Fill the window; whether anything was sent."""
        now = time.monotonic()
        if self.spool is not None and self.spool.batches:
            self.spool_pending()
            self.unspool()
        else:
            room = self.window - len(self.under_way) - self.waiting()
            for stream in list(self.busy):
                # What cannot be sent yet stays pending, where it grows into larger batches.
                while room > 0 and self.due(stream, now):
                    self.line_up(self.form(stream))
                    room -= 1
        if now < self.pause_until:
            return False
        any_sent = False
        for stream in list(self.unsent):
            while stream in self.unsent and len(self.under_way) < self.window and self.may_send(stream):
                batch = stream.out[stream.sent]
                if not link.socket.poll(0, zmq.POLLOUT):
                    return any_sent
                self.numbers += 1
                link.socket.send(pack({"id": self.numbers, "op": "append", **batch.fields()}))
                self.under_way[self.numbers] = batch
                self.ledger.counters.sent += batch.rows.count
                stream.sent += 1
                any_sent = True
                if stream.sent == len(stream.out):
                    del self.unsent[stream]
        return any_sent

    def waiting(self) -> int:
        return sum(len(stream.out) - stream.sent for stream in self.unsent)

    def may_send(self, stream: Stream) -> bool:
        """Whether no other session of the stream is under way or before it in line."""
        if not self.doubled:
            return True
        for other in self.unsent:
            if other is stream:
                break
            if other.name == stream.name:
                return False
        return all(b.stream is stream or b.stream.name != stream.name for b in self.under_way.values())

    def register(self, stream: Stream) -> None:
        if self.sessions.setdefault((stream.name, stream.origin), stream) is not stream:
            raise AssertionError("one session of a stream, two books")
        self.doubled = len({name for name, _ in self.sessions}) < len(self.sessions)

    def line_up(self, batch: Batch) -> None:
        stream = batch.stream
        if (stream.name, stream.origin) not in self.sessions:
            self.register(stream)
        stream.out.append(batch)
        self.unsent[stream] = None

    def hear(self, number: Any, reply: Message | Refused) -> None:
        batch = self.under_way.pop(number, None)
        if batch is None:
            return
        stream = batch.stream
        if not isinstance(reply, Refused):
            if int(reply.get("next_seq", 0)) < batch.end - stream.base:
                # No daemon of this protocol says so.
                raise Malformed(f"a batch was acknowledged up to row {reply.get('next_seq')} only")
            self.acknowledge(stream, batch.end)
        elif reply.code == "sequence_gap" and reply.expected_seq is not None:
            self.rewind(stream)
            self.resume(stream, reply.expected_seq)
        elif reply.code in _PATIENCE:
            self.rewind(stream)
            wait = _RETRY_S if reply.retry_after_ms is None else reply.retry_after_ms / 1000
            self.pause_until = max(self.pause_until, time.monotonic() + wait)
        else:
            self.fail(stream, reply)

    def acknowledge(self, stream: Stream, index: int) -> None:
        """The daemon has all rows of the stream before `index`."""
        counters = self.ledger.counters
        while stream.out and stream.out[0].end <= index:
            batch = stream.out.popleft()
            stream.sent = max(0, stream.sent - 1)
            stream.kept.append(batch)
            if batch.acknowledged:
                continue
            batch.acknowledged = True
            counters.acknowledged += batch.rows.count
            self.finish(stream, batch.rows.count)
            if batch.spooled is None:
                self.ledger.released += batch.rows.count
            else:
                assert self.spool is not None
                self.spool.remove(batch.spooled, batch.rows)
                counters.spooled = self.spool.rows
        if stream.sent == len(stream.out):
            self.unsent.pop(stream, None)
        self.tell()

    def rewind(self, stream: Stream) -> None:
        """All that is under way of the stream will be sent again."""
        if stream.sent == 0:
            return
        for number in [number for number, batch in self.under_way.items() if batch.stream is stream]:
            del self.under_way[number]
        self.ledger.counters.resent += sum(stream.out[i].rows.count for i in range(stream.sent))
        stream.sent = 0
        self.unsent = {stream: None} | self.unsent

    def resume(self, stream: Stream, expected_seq: int) -> None:
        """Go on with row `expected_seq` of the session, which may be one that was acknowledged before."""
        expected = stream.base + expected_seq
        self.acknowledge(stream, expected)
        first = stream.out[0].index if stream.out else None
        if first is None and stream.kept:
            first = stream.kept[-1].end
        if first is None or expected >= first:
            return
        # The daemon knows less than it has acknowledged.
        while stream.kept and (first is None or first > expected):
            batch = stream.kept.pop()
            stream.out.appendleft(batch)
            first = batch.index
            self.ledger.counters.resent += batch.rows.count
        self.unsent = {stream: None} | self.unsent
        if first > expected:
            missing = first - expected
            self.ledger.counters.lost += missing
            stream.renewals += 1
            stream.session, stream.base = f"{stream.origin}.{stream.renewals}", first
            log.warning(
                "the daemon has forgotten rows of stream %r, and %d of them are not kept here; going on as session %r",
                stream.name,
                missing,
                stream.session,
            )

    def fail(self, stream: Stream, refused: Refused) -> None:
        """The stream cannot go on: its next `send` says why."""
        stream.error = refused
        log.error("stream %r ends: %s", stream.name, refused)
        self.rewind(stream)
        self.unsent.pop(stream, None)
        while stream.out:
            batch = stream.out.popleft()
            if batch.acknowledged:
                continue
            if batch.spooled is not None:
                assert self.spool is not None
                self.spool.remove(batch.spooled, batch.rows)
                self.ledger.counters.spooled = self.spool.rows
                self.ledger.counters.refused += batch.rows.count
                self.finish(stream, batch.rows.count)
            else:
                self.give_up(stream, batch.rows.count, "refused")
        while stream.pending:
            self.give_up(stream, self.form(stream).rows.count, "refused")
        self.tell()

    def put_back(self) -> None:
        """The connection is gone: whatever was under way goes to the spool, or waits in memory."""
        for stream in self.sessions.values():
            self.rewind(stream)
        self.under_way.clear()
        if self.spool is None:
            return
        for stream in list(self.unsent):
            full = deque[Batch]()
            for batch in stream.out:
                if batch.acknowledged:
                    stream.kept.append(batch)
                elif batch.spooled is None and (full or not self.spool_batch(batch)):
                    full.append(batch)
            # What does not fit waits in memory, in order, behind what is on disk.
            for batch in reversed(full):
                self.unform(batch)
            stream.out.clear()
        self.unsent.clear()
        self.read_through = 0

    def spool_pending(self) -> None:
        """Put what waits in memory on disk, as far as there is room."""
        if self.spool is None:
            return
        now = time.monotonic()
        for stream in list(self.busy):
            while self.due(stream, now):
                batch = self.form(stream)
                if not self.spool_batch(batch):
                    self.unform(batch)
                    return

    def unform(self, batch: Batch) -> None:
        """Back to the front of what is pending."""
        rows = batch.rows
        batch.stream.pending.appendleft(Run(batch.index, rows.layout, [rows.data], rows.count))
        self.busy[batch.stream] = None

    def spool_batch(self, batch: Batch) -> bool:
        assert self.spool is not None
        stream = batch.stream
        if (stream.name, stream.origin) not in self.sessions:
            self.register(stream)
        if not self.spool.add(stream.name, stream.origin, stream.session, stream.base, batch.index, batch.rows):
            return False
        self.ledger.released += batch.rows.count
        self.ledger.counters.spooled = self.spool.rows
        self.tell()
        return True

    def unspool(self) -> None:
        """Line up the next batches on disk."""
        assert self.spool is not None
        room = self.window - len(self.under_way) - self.waiting()
        if room <= 0:
            return
        for record in self.spool.read(self.read_through, room):
            key = (record.stream, record.origin)
            if key not in self.sessions:
                self.register(Stream(record.stream, record.origin, record.session, record.base))
            stream = self.sessions[key]
            self.read_through = record.id
            if stream.error is not None:
                self.spool.remove(record.id, record.rows)
                self.ledger.counters.spooled = self.spool.rows
                self.ledger.counters.refused += record.rows.count
                self.finish(stream, record.rows.count)
                continue
            self.line_up(Batch(stream, record.index, record.rows, spooled=record.id))

    def leave(self) -> None:
        """The end: what is left goes to the spool, or is lost."""
        while self.drain():
            pass
        self.put_back()
        self.spool_pending()
        for stream in list(self.busy):
            while stream.pending:
                self.give_up(stream, self.form(stream).rows.count, "lost")
        for stream in self.sessions.values():
            for batch in stream.out:
                if batch.spooled is None and not batch.acknowledged:
                    self.give_up(stream, batch.rows.count, "lost")
        if self.spool is not None:
            self.spool.close()


__all__ = ["Appending", "Batch", "Counters", "Layout", "Ledger", "Link", "Rows", "Spool", "Stream", "Thread"]
