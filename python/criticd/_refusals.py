"""Unacknowledged rows that the daemon refused, with the reason and a remedy.

The daemon sends no answers on its ingest socket. It publishes `event.rejected` when it has refused something, and names
the streams as far as it could read them. On its control socket it says how far each session has got, and what it
refused last of it: an event that came before the subscription is not missed. A sender learns from all of these which of
its own rows were refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import zmq

from criticd._protocol import Address, CriticdError, Message, unpack
from criticd.client import STREAMS_PER_REQUEST, Client, Position, positions_of
from criticd.keys import Keys

log = logging.getLogger("criticd")

_TOPIC = "event.rejected"
_TURN_S = 0.5
"""How often the thread looks for announcements."""
_SETTLED_S = 1.0
"""Rows that were not taken within this time, while the daemon refused some, were refused."""
_REMEDIES = {
    "wrong_dimension": "the daemon has learned from other states or rewards: send these to a daemon of their own "
    "(`criticd serve --data-dir DIR`), or set its data aside with `criticd reset` and start it again",
    "fenced": "another sender uses the same stream: give each one a name of its own, Sender(stream=...)",
    "conflict": "the rows of this session were other ones before: leave `session` out, so that each run has its own",
    "too_many_streams": "use fewer stream names, or raise the setting streams_max",
    "too_large": "make messages smaller: Sender(batch_rows=...)",
    "unauthorised": "give this key or address the right to append, in the daemon's settings",
    "read_only": "the daemon cannot store rows, and its status says why: if the disk is full, make room; "
    "Sender(reliable=True) keeps rows meanwhile",
}
_OTHER_REMEDY = "`criticd quarantine list` shows what was refused"


@dataclass(frozen=True)
class Refusal:
    """Rows of a `stream` that the daemon has not taken: why, as `code` and `message`, and a `remedy`.

    ```python
    for refusal in sender.refusals:
        print(refusal.stream, refusal.message, refusal.remedy)
    ```
    """

    stream: str
    code: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"rows of stream {self.stream!r} are refused: {self.code}: {self.message}; {self.remedy}"


def refusal(stream: str, code: str, message: str) -> Refusal:
    """A refusal with the remedy for its code."""
    return Refusal(stream, code, message, _REMEDIES.get(code, _OTHER_REMEDY))


@dataclass(frozen=True)
class Sent:
    """What was handed to the socket of one stream: rows of `session` up to `end`, `rows` of them, (D, H) each."""

    stream: str
    session: str
    end: int
    rows: int
    shape: tuple[int, int]


@dataclass
class _Suspect:
    """A stream that the daemon has not followed to its end: where it stood, since when, and rows sent by then."""

    at: tuple[str, int] | None
    since: float
    rows: int


class Auditor:
    """Compares what was sent with what the daemon has taken. No sockets, no clock.

    `refused` is the number of rows that it did not take, at least; `found` the refusals so far, one for each stream.
    """

    def __init__(self) -> None:
        self.found: dict[str, Refusal] = {}
        self._refused: dict[str, int] = {}
        self._suspects: dict[str, _Suspect] = {}
        self._ours: set[str] = set()
        self._event: Message | None = None
        self._named: dict[str, Message] = {}
        self._counted: dict[str, int] = {}

    @property
    def refused(self) -> int:
        """Rows of all streams that were refused, as far as is known."""
        return sum(self._refused.values())

    @property
    def unsettled(self) -> bool:
        """Whether a later check may find more."""
        return bool(self._suspects)

    def rejected(self, event: Message) -> None:
        """The daemon has announced that it refused something, perhaps of another sender's rows."""
        for entry in event.get("streams", [{**event, "stream": None}]):
            if entry["stream"] is None:
                # It may concern any stream.
                self._event = entry
            else:
                self._named[entry["stream"]] = entry

    def remembered(self, sent: Sent, entry: Message | None) -> None:
        """The daemon remembers that it refused rows of this stream, if `entry` is there, perhaps of another session."""
        if entry is None or entry["session"] != sent.session:
            return
        # Once for each message: later rows may only be on their way.
        if entry["messages"] > self._counted.get(sent.stream, 0):
            self._counted[sent.stream] = entry["messages"]
            self._named[sent.stream] = entry

    def compare(
        self, sent: Iterable[Sent], positions: dict[str, Position], state_dim: int | None, now: float
    ) -> list[Refusal]:
        """Refusals that are new, after a look at the daemon's `positions` and state dimension at second `now`."""
        new = []
        for stream in sent:
            known = self._judge(stream, positions.get(stream.stream), state_dim, now)
            if known is None:
                continue
            before = self.found.get(known.stream)
            self.found[known.stream] = known
            if before is None or before.code != known.code:
                new.append(known)
        if not self._suspects:
            self._event, self._named = None, {}
        return new

    def _judge(self, sent: Sent, position: Position | None, state_dim: int | None, now: float) -> Refusal | None:
        if state_dim is not None and state_dim != sent.shape[0]:
            self._refused[sent.stream] = sent.rows
            message = f"states have {state_dim} numbers there, these have {sent.shape[0]}"
            return refusal(sent.stream, "wrong_dimension", message)
        ours = position is not None and position.session == sent.session
        if ours:
            self._ours.add(sent.stream)
        taken = position.next_seq if position is not None and ours else 0
        if taken >= sent.end:
            self._suspects.pop(sent.stream, None)
            return None
        at = None if position is None else (position.session, position.next_seq)
        suspect = self._suspects.get(sent.stream)
        if suspect is None or (ours and suspect.at != at):
            # What is on its way may be taken yet.
            self._suspects[sent.stream] = _Suspect(at, now, sent.rows)
            return None
        event = self._named.get(sent.stream, self._event)
        fenced = position is not None and not ours and (event is not None or sent.stream in self._ours)
        if now - suspect.since < _SETTLED_S or not (fenced or event is not None):
            return None
        # Of another session's stream: rows until the first look may have been taken, before that session began.
        missing = sent.end - taken if position is None or ours else sent.rows - suspect.rows
        self._refused[sent.stream] = max(self._refused.get(sent.stream, 0), min(sent.rows, missing))
        if fenced:
            return refusal(sent.stream, "fenced", "a newer session of this stream exists")
        assert event is not None
        code, message = str(event.get("code")), str(event.get("message"))
        return refusal(sent.stream, code, message)


class Watch(threading.Thread):
    """Queries and listens for a sender, and logs each refusal once. `tell` receives the number of refused rows."""

    def __init__(
        self,
        control: Address,
        publish: Address | None,
        keys: Keys | None,
        context: Any,
        sent: Callable[[], list[Sent]],
        tell: Callable[[int], None],
    ) -> None:
        super().__init__(name="criticd-refusals", daemon=True)
        self.auditor = Auditor()
        self.refusals: tuple[Refusal, ...] = ()
        self._client = Client(control.endpoint, data_dir=control.data_dir, timeout_s=1.0, keys=keys, context=context)
        self._publish, self._keys, self._context = publish, keys, context
        self._sent, self._tell = sent, tell
        self._over = threading.Event()
        self._look = threading.Event()

    def look(self) -> None:
        """Have it compare soon: rows have been sent over a new connection."""
        self._look.set()

    def end(self, timeout_s: float) -> None:
        """Look a last time, then end, within about `timeout_s` seconds."""
        self._deadline = time.monotonic() + timeout_s
        self._over.set()
        self._look.set()
        self.join(timeout_s + 1.0)

    def run(self) -> None:
        socket, endpoint, known = None, None, True
        try:
            while not self._over.is_set():
                found = None if self._publish is None else self._publish.resolve()
                if found != endpoint:
                    if socket is not None:
                        socket.close(linger=0)
                    socket, endpoint = self._listening(found), found
                heard = self._hear(socket)
                if heard or not known or self.auditor.unsettled or self._look.is_set():
                    self._look.clear()
                    known = self._compare()
            self._look_last(socket)
        except Exception:
            # Rows go on without it: none is to be lost because refused ones cannot be counted.
            log.exception("refused rows cannot be looked for any more")
        finally:
            if socket is not None:
                socket.close(linger=0)
            self._client.close()

    def _listening(self, endpoint: str | None) -> Any:
        if endpoint is None:
            return None
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        if self._keys is not None:
            self._keys.use(socket)
        socket.subscribe(_TOPIC)
        socket.connect(endpoint)
        return socket

    def _hear(self, socket: Any) -> bool:
        """Whether the daemon has announced refusals, after a turn, or less if there is something to look at."""
        self._look.wait(_TURN_S)
        heard = False
        while socket is not None and socket.poll(0):
            self.auditor.rejected(unpack(socket.recv_multipart()[-1]))
            heard = True
        return heard

    def _look_last(self, socket: Any) -> None:
        # The last rows have just gone: whether they are taken is known a moment later.
        known = self._compare()
        while (self.auditor.unsettled or not known) and time.monotonic() < self._deadline:
            time.sleep(0.02)
            if socket is not None and socket.poll(20):
                self.auditor.rejected(unpack(socket.recv_multipart()[-1]))
            known = self._compare()

    def _compare(self) -> bool:
        """Whether the daemon has answered, so that nothing is left to ask."""
        sent = self._sent()
        if not sent:
            return True
        try:
            dim = self._client.hello().state_dim
            positions = self._taken(sent)
        except CriticdError as error:
            log.debug("what the daemon has taken is not known: %s", error)
            return False
        new = self.auditor.compare(sent, positions, dim, time.monotonic())
        # Whoever sees a refusal finds its rows counted.
        self._tell(self.auditor.refused)
        self.refusals = tuple(self.auditor.found.values())
        for found in new:
            log.warning("%s", found)
        return True

    def _taken(self, sent: list[Sent]) -> dict[str, Position]:
        """Where these streams stand, as far as the daemon knows them. Notes what it has refused of them."""
        positions: dict[str, Position] = {}
        for first in range(0, len(sent), STREAMS_PER_REQUEST):
            part = sent[first : first + STREAMS_PER_REQUEST]
            reply = self._client.request("streams", names=[each.stream for each in part])
            positions |= positions_of(reply)
            for each in part:
                self.auditor.remembered(each, reply.get("refused", {}).get(each.stream))
        return positions
