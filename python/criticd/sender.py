"""Experience on its way to the daemon, without the program that makes it ever waiting for a network."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy.typing as npt
import zmq

from criticd._delivery import Appending, Counters, Ledger, Pushing, Run, Stream
from criticd._protocol import Address, CriticdError, Invalid
from criticd._rows import Rows
from criticd._spool import Spool
from criticd.client import Client
from criticd.keys import Keys

log = logging.getLogger("criticd")


class Full(CriticdError):
    """A reliable sender holds as many rows as it may, and the daemon has not taken any in the time allowed."""


class Sender:
    """Sends transitions to a daemon, from a thread of its own.

    Without `reliable` it is made for control loops: `send` puts the row into a bounded queue and returns at once. If
    the daemon is away for so long that the queue fills up, new rows are dropped and counted (`counters.dropped`); rows
    that were on the way when a daemon died are lost.

    With `reliable` every row is acknowledged. What is not is sent again, after a broken connection or a restart of the
    daemon too, and the daemon learns nothing twice. A daemon that comes back with less than it had acknowledged is sent
    the last 64 batches of each stream again. If the queue is full `send` waits. With a `spool`, rows are kept on disk
    while the daemon is away, and sent by the next sender with this spool if the program ends first.

    Arguments:

    - `endpoint` of the ingest socket, or of the control socket if `reliable`; or `data_dir` of the daemon, where its
      endpoints are looked up, again after a restart. If both are left out, the directory in the environment variable
      CRITICD_DATA_DIR, or the default endpoint.
    - `stream`: whose experience this is, unless a call names another.
    - `session`: one run of the program; a new one by default, which ends the one before. `resume` goes on with the
      session of that name where the daemon has got to: see `position`.
    - `policy`: name of the policy that acts, unless a call names another; an attribute that may be set. A name that differs
      from the one before announces another policy from that row on: what critics do then is their setting `on_new_policy`.
    - `queue_rows`: rows held in memory at most. `batch_rows`: rows of one message at most. `linger_s`: how long a row
      may wait for company. `window`: batches sent ahead of their acknowledgement.
    - `spool`: a file; `spool_bytes`: its limit.
    - `timeout_s`: how long a reliable `send` waits for room before it raises `Full`, None for ever; also how long
      `close` takes at most, None for 5 seconds.
    - `keys`: for a socket that is encrypted with CURVE.

    A sender may be used by several threads. Close it, or use it in a `with` statement, so that the last rows arrive.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        stream: str = "default",
        session: str | None = None,
        reliable: bool = False,
        resume: bool = False,
        policy: str | None = None,
        queue_rows: int = 65_536,
        batch_rows: int = 512,
        linger_s: float = 0.02,
        window: int = 16,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int = 256 << 20,
        timeout_s: float | None = None,
        keys: Keys | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        if min(queue_rows, batch_rows, window) < 1:
            raise ValueError("queue_rows, batch_rows and window are at least 1")
        if (resume or spool is not None) and not reliable:
            raise ValueError("resume and spool need reliable=True: only acknowledgements tell where to go on")
        if resume and session is None:
            raise ValueError("resume needs the name of the session to go on with")
        self.stream, self.reliable, self.queue_rows, self.batch_rows = stream, reliable, queue_rows, batch_rows
        self.session = secrets.token_hex(8) if session is None else session
        self.timeout_s, self.policy = timeout_s, policy
        self._streams: dict[str, Stream] = {}
        self._shape: tuple[int, int] | None = None
        self._ledger = Ledger()
        self._closed = False
        address = Address.of("control" if reliable else "ingest", endpoint, data_dir, keys)
        context = context or zmq.Context.instance()
        disk = None if spool is None else Spool(spool, spool_bytes)
        try:
            if disk is not None and not resume and disk.ends(self.session):
                raise ValueError(f"the spool holds rows of session {self.session!r}: go on with it (resume=True)")
            if resume:
                self._resume(address, context, disk)
        except BaseException:
            if disk is not None:
                disk.close()
            raise
        self._ledger.counters.spooled = 0 if disk is None else disk.rows
        self._thread: Appending | Pushing
        if reliable:
            streams = self._streams.values()
            self._thread = Appending(self._ledger, address, batch_rows, linger_s, context, window, disk, streams)
        else:
            self._thread = Pushing(self._ledger, address, batch_rows, linger_s, context)
        self._thread.start()
        atexit.register(self.close)

    def send(
        self,
        state: npt.ArrayLike,
        reward: npt.ArrayLike,
        next_state: npt.ArrayLike,
        *,
        terminated: bool = False,
        truncated: bool = False,
        action: npt.ArrayLike | None = None,
        discount: float | None = None,
        time: float | None = None,
        behavior_prob: float | None = None,
        target_prob: float | None = None,
        next_action: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
        policy: str | None = None,
        stream: str | None = None,
    ) -> bool:
        """Send one transition; whether it was taken, which without `reliable` is not so if the queue is full.

        `state`, `next_state` (D,): where the step began, and where it really led, at the end of an episode too.
        `terminated`: nothing of value can follow. `truncated`: stopped from outside, `next_state` keeps its value.
        `reward` and `action` may be numbers or arrays. Rows that follow each other belong together if `next_state` of
        one is `state` of the next. Arrays are copied.

        For learning about another policy than the one that acts: `behavior_prob` is the probability, or density, under
        which the action was taken, `target_prob` that of the same action under the policy to be judged; `next_action`,
        or the `next_action_probs` (C,) of discrete actions, is what that policy does in `next_state`. `policy` names the
        one that acts.

        Raises `Invalid` for rows that the daemon would refuse, `Full` if a reliable sender has no room in time, and
        `Refused` if the daemon has turned this stream down.
        """
        said = (behavior_prob, target_prob, next_action, next_action_probs)
        rows = Rows.single(state, reward, next_state, terminated, truncated, action, discount, time, *said)
        return self._take(self.stream if stream is None else stream, self._named(rows, policy))

    def send_batch(
        self,
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_states: npt.ArrayLike,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        actions: npt.ArrayLike | None = None,
        discounts: npt.ArrayLike | None = None,
        times: npt.ArrayLike | None = None,
        behavior_probs: npt.ArrayLike | None = None,
        target_probs: npt.ArrayLike | None = None,
        next_actions: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
        policy: str | None = None,
        stream: str | None = None,
    ) -> int:
        """Send n consecutive transitions of one stream, as arrays with a leading axis of n; how many were taken."""
        said = (behavior_probs, target_probs, next_actions, next_action_probs)
        rows = Rows.table(states, rewards, next_states, terminated, truncated, actions, discounts, times, *said)
        return self._take_table(stream, self._named(rows, policy))

    def send_trajectory(
        self,
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        terminated: bool = False,
        truncated: bool = False,
        actions: npt.ArrayLike | None = None,
        discounts: npt.ArrayLike | None = None,
        times: npt.ArrayLike | None = None,
        behavior_probs: npt.ArrayLike | None = None,
        target_probs: npt.ArrayLike | None = None,
        next_actions: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
        policy: str | None = None,
        stream: str | None = None,
    ) -> int:
        """Send a piece of a trajectory: n + 1 states and the n rewards between them; how many rows were taken.

        `terminated` and `truncated` say how its last step ended.
        """
        said = (behavior_probs, target_probs, next_actions, next_action_probs)
        rows = Rows.table(states, rewards, None, None, None, actions, discounts, times, *said)
        return self._take_table(stream, self._named(rows.ending(terminated, truncated), policy))

    def send_step(
        self,
        streams: Sequence[str],
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_states: npt.ArrayLike,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        actions: npt.ArrayLike | None = None,
        behavior_probs: npt.ArrayLike | None = None,
        target_probs: npt.ArrayLike | None = None,
        next_actions: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
        policy: str | None = None,
    ) -> int:
        """Send one transition of each of n streams: row i belongs to `streams[i]`. How many rows were taken: all, or 0.

        One call for all copies of a vector environment is cheaper than one each.
        """
        said = (behavior_probs, target_probs, next_actions, next_action_probs)
        rows = Rows.table(states, rewards, next_states, terminated, truncated, actions, None, None, *said)
        rows = self._named(rows, policy)
        if len(streams) != rows.count:
            raise Invalid("streams", f"names {len(streams)} streams for {rows.count} rows")
        if not rows.count:
            return 0
        self._check_shape(rows)
        books = [self._book(name) for name in streams]
        self.wait_for_room(rows.count)
        with self._ledger.lock:
            self._check(books)
            fits = self.reliable or self.has_room(rows.count)
            placed = []
            for book in books:
                placed.append((book, book.next_index))
                book.next_index += 1
                book.taken += fits
            if not fits:
                self._ledger.counters.dropped += rows.count
                return 0
            self._ledger.counters.taken += rows.count
            self._ledger.queue.put((placed, rows))
        return rows.count

    def position(self, stream: str | None = None) -> int:
        """How many rows of the session this sender numbers as sent before the next one.

        After `resume`, the row to go on with: the daemon, or the spool, has those before it.
        """
        book = self._streams.get(self.stream if stream is None else stream)
        return 0 if book is None else book.next_index

    @property
    def counters(self) -> Counters:
        """What became of the rows so far, a copy."""
        return replace(self._ledger.counters)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all rows sent before this call have come to their end, without lingering; whether they have.

        Their end is the daemon's acknowledgement if the sender is `reliable`; otherwise that they were handed to the
        socket. Raises `Refused` if the daemon has turned a stream down.
        """
        ledger = self._ledger
        with ledger.lock:
            wanted = [(book, book.taken) for book in self._streams.values()]
            ledger.flushes += 1
        ledger.nudge()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s

        def over() -> bool:
            return all(book.finished >= taken for book, taken in wanted) and not ledger.counters.spooled

        try:
            with ledger.progress:
                while not over() and not ledger.finished:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    # Woken by every batch that has left; now and then in any case.
                    ledger.progress.wait(0.5 if left is None else min(0.5, left))
        finally:
            with ledger.lock:
                ledger.flushes -= 1
        self._raise_failures()
        return over()

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is left for at most `timeout_s` (5 by default), then end.

        What could not be sent is kept in the spool if there is one, else it is counted as lost and a warning is logged.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if timeout_s is None:
            timeout_s = 5.0 if self.timeout_s is None else self.timeout_s
        self._thread.deadline = time.monotonic() + timeout_s
        with self._ledger.lock:
            self._ledger.stop = True
        self._ledger.nudge()
        self._thread.join()
        counters = self.counters
        if counters.lost or counters.dropped:
            log.warning("sender of session %r closed: %s", self.session, counters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None:
            self._raise_failures()

    def _resume(self, address: Address, context: zmq.Context[zmq.Socket[bytes]], spool: Spool | None) -> None:
        """Take up the session where the daemon, or what is spooled for it, has got to."""
        waits = 5.0 if self.timeout_s is None else self.timeout_s
        where, keys = address.data_dir, address.keys
        client = Client(address.endpoint, data_dir=where, timeout_s=waits, keys=keys, context=context)
        with client:
            positions = client.streams()
        ends = {name: position.next_seq for name, position in positions.items() if position.session == self.session}
        for name, end in ({} if spool is None else spool.ends(self.session)).items():
            ends[name] = max(end, ends.get(name, 0))
        for name, end in ends.items():
            self._streams[name] = Stream(name, self.session, next_index=end)

    def _named(self, rows: Rows, policy: str | None) -> Rows:
        return rows.of_policy(self.policy if policy is None else policy)

    def _book(self, name: str) -> Stream:
        book = self._streams.get(name)
        if book is None:
            if not 1 <= len(name.encode()) <= 256:
                raise Invalid("stream", "a name has 1 to 256 bytes")
            with self._ledger.lock:
                book = self._streams.setdefault(name, Stream(name, self.session))
        return book

    def _take_table(self, stream: str | None, rows: Rows) -> int:
        name, taken = self.stream if stream is None else stream, 0
        # In pieces, so that a batch need not fit into the queue as a whole.
        step = min(self.batch_rows, self.queue_rows)
        for start in range(0, rows.count, step):
            part = rows.part(start, min(rows.count, start + step))
            taken += part.count * self._take(name, part)
        return taken

    def _take(self, name: str, rows: Rows) -> bool:
        self._check_shape(rows)
        book = self._book(name)
        self.wait_for_room(rows.count)
        ledger = self._ledger
        with ledger.lock:
            self._check((book,))
            index = book.next_index
            book.next_index += rows.count
            # Rows that are left out are numbered all the same: the gap tells the daemon that they are missing.
            if not (self.reliable or self.has_room(rows.count)):
                ledger.counters.dropped += rows.count
                return False
            book.taken += rows.count
            ledger.counters.taken += rows.count
            run = book.open
            if run is not None and run.takes(index, rows, self.batch_rows):
                run.add(rows)
            else:
                book.open = run = Run(index, rows.layout, [rows.data], rows.count)
                ledger.queue.put((book, run))
        return True

    def has_room(self, rows: int = 1) -> bool:
        """Whether so many rows can be sent without waiting or dropping any."""
        held = self._ledger.held
        return held + rows <= self.queue_rows or held == 0

    def wait_for_room(self, rows: int = 1) -> None:
        """Wait until a reliable sender has room for so many rows; `Full` after `timeout_s`. Others never wait."""
        if not self.reliable or self.has_room(rows):
            return
        ledger = self._ledger
        deadline = float("inf") if self.timeout_s is None else time.monotonic() + self.timeout_s
        with ledger.progress:
            while not self.has_room(rows) and not (self._closed or ledger.finished):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Full(
                        f"{ledger.held} rows wait for the daemon, which has taken none for {self.timeout_s} s: see "
                        "whether it runs; a larger queue_rows or a spool bridges longer absences"
                    )
                ledger.progress.wait(min(0.5, left))

    def _check_shape(self, rows: Rows) -> None:
        shape = (rows.layout.dim, rows.layout.rewards)
        if self._shape is None:
            self._shape = shape
        elif self._shape != shape:
            what = "state" if shape[0] != self._shape[0] else "reward"
            raise Invalid(what, f"of other dimensions (D, H) than those before: {shape} after {self._shape}")

    def _check(self, books: Sequence[Stream]) -> None:
        if self._closed:
            raise CriticdError("this sender is closed")
        if self._ledger.failed is not None:
            raise CriticdError(f"the sender's thread has failed: {self._ledger.failed!r}") from self._ledger.failed
        for book in books:
            if book.error is not None:
                # A new one each time: they gather where they have been raised.
                raise copy(book.error)

    def _raise_failures(self) -> None:
        for book in list(self._streams.values()):
            if book.error is not None:
                # A new one each time: they gather where they have been raised.
                raise copy(book.error)
        if self._ledger.failed is not None:
            raise CriticdError(f"the sender's thread has failed: {self._ledger.failed!r}") from self._ledger.failed
