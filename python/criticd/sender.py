"""Experience on its way to the daemon, without the program that makes it ever waiting for a network."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import secrets
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy.typing as npt
import zmq

from criticd._delivery import Appending, Counters, Ledger, Run, Stream
from criticd._fork import watch
from criticd._protocol import Address, CriticdError, Endpoints, Invalid, refuse_keywords
from criticd._push import Pushing
from criticd._refusals import Refusal, Sent, Watch, refusal
from criticd._rows import Rows
from criticd._spool import Spool
from criticd.client import Client
from criticd.keys import Keys

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("criticd")


_SINGLE = "a sender with a spool, or one that resumes a session, cannot be used in two processes: make a sender there"


class Full(CriticdError):
    """A reliable sender may hold no more rows, and the daemon has not taken any in the time allowed.

    ```python
    try:
        sender.send([0.0], 1.0, [0.5])
    except Full:
        print(sender.counters)
    ```
    """


class Sender:
    """Sends transitions to a daemon, from a thread of its own.

    ```python
    with Sender(stream="robot", reliable=True) as sender:
        sender.send([0.0], 1.0, [0.5], truncated=True)
    ```

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
    - `session`: one run of the program; a new one by default, which ends the previous one. `resume` continues the
      session of that name where the daemon has got to: see `position`.
    - `policy`: name of the policy that acts, unless a call names another; an attribute that may be set. A name that
      differs from the one before announces another policy from that row on: critics then follow their setting
      `on_new_policy`.
    - `names`: what the state variables are called, a unit in brackets behind a name: `["x [m]", "battery [V]"]`. The
      daemon keeps the first names that it gets, and shows them wherever it shows states.
    - `reward_names`: the same of the rewards: `["energy [J]"]`. `action_names`: of the discrete actions by their
      numbers, `["left", "right"]`, or of the numbers of an action.
    - `queue_rows`: rows held in memory at most. `batch_rows`: rows of one message at most. `linger_s`: how long a row
      may wait for company. `window`: batches sent ahead of their acknowledgement.
    - `spool`: a file; `spool_bytes`: its limit.
    - `timeout_s`: how long a reliable `send` waits for room before it raises `Full`, None for ever; also how long
      `close` takes at most, None for 5 seconds.
    - `keys`: for a socket that is encrypted with CURVE.
    - `control`, `publish`: where a sender without `reliable` asks which of its rows were refused. They are known where
      the daemon was found through its data directory or at its default endpoint. Elsewhere the sender cannot
      ask, and logs a warning.

    A sender may be used by several threads. Close it, or use it in a `with` statement, so that the last rows arrive.

    In a forked process, and where it is unpickled, a sender makes a connection and a session of its own, and its stream
    is called NAME/1, NAME/2 and so on, since two sessions of one stream would end each other. Rows that wait stay with
    the process that took them. A sender with a spool, or that resumes a session, cannot be copied: `CriticdError`.
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
        names: Sequence[str] | None = None,
        reward_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        queue_rows: int = 65_536,
        batch_rows: int = 512,
        linger_s: float = 0.02,
        window: int = 16,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int = 256 << 20,
        timeout_s: float | None = None,
        keys: Keys | None = None,
        control: str | None = None,
        publish: str | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        if min(queue_rows, batch_rows, window) < 1:
            raise ValueError("queue_rows, batch_rows and window are at least 1")
        if (resume or spool is not None) and not reliable:
            raise ValueError("resume and spool need reliable=True: only acknowledgements give the position")
        if resume and session is None:
            raise ValueError("resume needs the name of the session to go on with")
        self.stream, self.reliable, self.queue_rows, self.batch_rows = stream, reliable, queue_rows, batch_rows
        self.session = secrets.token_hex(8) if session is None else session
        self.timeout_s, self.policy = timeout_s, policy
        self.names: tuple[str, ...] | None = None
        self.reward_names: tuple[str, ...] = ()
        self.action_names: tuple[str, ...] = ()
        self._shape: tuple[int, int] | None = None
        self.call_numbers(names, reward_names, action_names)
        self._linger_s, self._window = linger_s, window
        self._streams: dict[str, Stream] = {}
        self._ledger = Ledger()
        self._closed = False
        self._copies = 0
        self._single = resume or spool is not None
        self._address = Address.of("control" if reliable else "ingest", endpoint, data_dir, keys)
        self._control, self._publish = control, publish
        self._context = context
        self._thread: Appending | Pushing | None = None
        self._watch: Watch | None = None
        disk = None if spool is None else Spool(spool, spool_bytes)
        try:
            if disk is not None and not resume and disk.ends(self.session):
                raise ValueError(f"the spool holds rows of session {self.session!r}: go on with it (resume=True)")
            if resume:
                self._resume(self._address, context or zmq.Context.instance(), disk)
        except BaseException:
            if disk is not None:
                disk.close()
            raise
        self._ledger.counters.spooled = 0 if disk is None else disk.rows
        self._begin(disk)
        if not reliable and self._watch is None:
            log.warning(
                "rows that the daemon refuses go unnoticed here: give `control=` (and `publish=`), "
                "its addresses beside %s",
                self._address.endpoint,
            )
        atexit.register(self.close)
        watch(self)

    def _begin(self, disk: Spool | None = None) -> None:
        """Start the threads of this process."""
        context = self._context or zmq.Context.instance()
        ledger, address = self._ledger, self._address
        if self.reliable:
            streams = self._streams.values()
            self._thread = Appending(
                ledger, address, self.batch_rows, self._linger_s, context, self._window, disk, streams
            )
        else:
            control, publish = self._beside("control", self._control), self._beside("publish", self._publish)
            if control is not None:
                self._watch = Watch(control, publish, address.keys, context, self._sent, ledger.refused)
            look = None if self._watch is None else self._watch.look
            self._thread = Pushing(ledger, address, self.batch_rows, self._linger_s, context, look)
            if self._watch is not None:
                self._watch.start()
        self._thread.start()
        if multiprocessing.parent_process() is not None:
            # Children of `multiprocessing` end without the functions that `atexit` knows.
            from multiprocessing.util import Finalize

            Finalize(None, self.close, exitpriority=10)

    def _beside(self, socket: str, said: str | None) -> Address | None:
        """The daemon's other socket called `socket`, None if it is not known."""
        address, standard = self._address, Endpoints()
        if said is None and address.data_dir is None:
            if address.endpoint != standard.ingest:
                return None
            said = getattr(standard, socket)
        return Address.of(socket, said, address.data_dir, address.keys)

    def _sent(self) -> list[Sent]:
        """What the thread has handed to its socket so far."""
        shape = self._shape
        if shape is None:
            return []
        books = list(self._streams.values())
        return [Sent(b.name, b.session, b.reached, b.handed, shape) for b in books if b.handed]

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
        **unknown: NoReturn,
    ) -> bool:
        """Send one transition; whether it was taken, which without `reliable` is not so if the queue is full.

        ```python
        sender.send([0.0], 1.0, [0.5], terminated=True)
        ```

        `state`, `next_state` (D,): where the step began, and where it really led, at the end of an episode too.
        `terminated`: nothing of value can follow. `truncated`: stopped from outside, `next_state` keeps its value.
        `reward` and `action` may be numbers or arrays. Rows that follow each other belong together if `next_state` of
        one is `state` of the next. Arrays are copied.

        For learning about another policy than the one that acts: `behavior_prob` is the probability, or density, under
        which the action was taken, `target_prob` the probability of the same action under the policy to be judged;
        `next_action`, or the `next_action_probs` (C,) of discrete actions, is what that policy does in `next_state`.
        `policy` names the one that acts.

        Raises `Invalid` for rows that the daemon would refuse, `Full` if a reliable sender has no room in time, and
        `Refused` if the daemon has turned this stream down.
        """
        refuse_keywords(unknown, {"done": "say terminated if nothing of value can follow, truncated if it was cut off"})
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
        """Send n consecutive transitions of one stream, as arrays with a leading axis of n; how many were taken.

        ```python
        sender.send_batch(states, rewards, next_states, terminated=terminated)
        ```
        """
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

        ```python
        sender.send_trajectory([[0.0], [0.5], [0.7]], [1.0, 0.5], truncated=True)
        ```

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

        ```python
        sender.send_step(["a", "b"], [[0.0], [0.1]], [1.0, 0.9], [[0.5], [0.6]])
        ```

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
        """A copy of the counters of the rows so far."""
        return replace(self._ledger.counters)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Streams whose rows the daemon refuses, with the reason and a remedy; each was logged once as a warning.

        Without `reliable` it takes a second or so until a refusal is known.
        """
        if self._watch is not None:
            return self._watch.refusals
        errors = [(book.name, book.error) for book in list(self._streams.values())]
        return tuple(refusal(name, e.code, e.message) for name, e in errors if e is not None)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all rows sent before this call have come to their end, without lingering; whether they have.

        ```python
        assert sender.flush(timeout_s=60.0)
        ```

        Their end is the daemon's acknowledgement if the sender is `reliable`; otherwise that they were handed to a
        socket that is connected. Raises `Refused` if the daemon has turned a stream down.
        """
        ledger = self._ledger
        if self._thread is None:
            return True
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
        if self._thread is None:
            return
        deadline = time.monotonic() + timeout_s
        self._thread.deadline = deadline
        with self._ledger.lock:
            self._ledger.stop = True
        self._ledger.nudge()
        self._thread.join()
        if self._watch is not None:
            self._watch.end(max(0.0, min(2.0, deadline - time.monotonic())))
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

    def __repr__(self) -> str:
        kind = "reliable" if self.reliable else "not reliable"
        counters = self._ledger.counters
        state = f"{counters.taken} rows taken, {counters.sent} sent, {counters.refused} refused, {counters.lost} lost"
        return f"<criticd.Sender to {self._address}, stream {self.stream!r}, {kind}: {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._single:
            raise CriticdError(_SINGLE)
        self._copies += 1
        address = self._address
        options = {
            "data_dir": address.data_dir,
            "stream": f"{self.stream}/{self._copies}",
            "reliable": self.reliable,
            "queue_rows": self.queue_rows,
            "batch_rows": self.batch_rows,
            "linger_s": self._linger_s,
            "window": self._window,
            "timeout_s": self.timeout_s,
            "keys": address.keys,
            "control": self._control,
            "publish": self._publish,
        }
        return _unpickled, (address.endpoint, options)

    def _before_fork(self) -> None:
        self._copies += 1

    def _after_fork(self) -> None:
        """Forget what belongs to the parent. Threads and sockets are made when the first row comes."""
        self.stream, self._copies = f"{self.stream}/{self._copies}", 0
        self.session = secrets.token_hex(8)
        self._streams, self._ledger = {}, Ledger()
        self._thread, self._watch, self._context = None, None, None

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
            self._streams[name] = Stream(name, self.session, next_index=end, **self._called())

    def _named(self, rows: Rows, policy: str | None) -> Rows:
        return rows.of_policy(self.policy if policy is None else policy)

    def _book(self, name: str) -> Stream:
        book = self._streams.get(name)
        if book is None:
            if not 1 <= len(name.encode()) <= 256:
                raise Invalid("stream", "a name has 1 to 256 bytes")
            with self._ledger.lock:
                book = self._streams.setdefault(name, Stream(name, self.session, **self._called()))
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
            # Dropped rows keep their numbers: the gap shows the daemon that they are missing.
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

    def call_numbers(
        self,
        names: Sequence[str] | None = None,
        reward_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        """Say what numbers are called, as the arguments of the sender do, before the first row is sent."""
        before = self.names, self.reward_names, self.action_names
        states = self.names if names is None else _checked_names(names)
        rewards = self.reward_names if reward_names is None else _checked_names(reward_names, "reward_names")
        actions = self.action_names if action_names is None else _checked_names(action_names, "action_names")
        if self._shape is not None and (states, rewards, actions) != before:
            raise CriticdError("rows have been sent already: say what their numbers are called before the first")
        self.names, self.reward_names, self.action_names = states, rewards, actions

    def _called(self) -> dict[str, Any]:
        names = {"state_names": self.names or (), "reward_names": self.reward_names}
        return {**names, "action_names": self.action_names}

    def has_room(self, rows: int = 1) -> bool:
        """Whether that many rows can be sent without waiting or dropping any."""
        held = self._ledger.held
        return held + rows <= self.queue_rows or held == 0

    def wait_for_room(self, rows: int = 1) -> None:
        """Wait until a reliable sender has room for that many rows; `Full` after `timeout_s`. Others never wait."""
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
            if self.names is not None and len(self.names) != shape[0]:
                count = len(self.names)
                raise Invalid("names", f"{count} of them for states of {shape[0]} numbers; give one for each")
            if self.reward_names and len(self.reward_names) != max(shape[1], 1):
                count = len(self.reward_names)
                raise Invalid("reward_names", f"{count} of them for {max(shape[1], 1)} rewards; give one for each")
            # How many discrete actions there are the daemon knows.
            numbers, count = rows.layout.actions, len(self.action_names)
            if numbers > 1 and count not in (0, numbers):
                raise Invalid("action_names", f"{count} of them for actions of {numbers} numbers; give one for each")
            self._shape = shape
        elif self._shape != shape:
            (dim, rewards), (dim_before, rewards_before) = shape, self._shape
            if dim != dim_before:
                raise Invalid("state", f"has {dim} numbers, rows before had {dim_before}")
            said = _reward(rewards), _reward(rewards_before)
            raise Invalid("reward", f"is {said[0]}, rows before had {said[1]}: send all in one form")

    def _check(self, books: Sequence[Stream]) -> None:
        if self._closed:
            raise CriticdError("this sender is closed")
        if self._thread is None:
            if self._single:
                raise CriticdError(_SINGLE)
            self._begin()
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


def _checked_names(names: Sequence[str], field: str = "names") -> tuple[str, ...]:
    """Names of state variables, rewards or actions as the daemon takes them."""
    if isinstance(names, str):
        raise Invalid(field, f"a list of names, one for each number, and not the text {names!r}")
    checked = tuple(str(name) for name in names)
    if any(not 1 <= len(name.encode()) <= 256 for name in checked):
        raise Invalid(field, "a name has 1 to 256 bytes")
    if len(set(checked)) < len(checked):
        raise Invalid(field, "two of them are the same; give each a name of its own")
    return checked


def _reward(count: int) -> str:
    """What a reward of `count` numbers is, as `Layout.rewards` counts them."""
    if not count:
        return "a plain number"
    return f"an array of {count} number{'s' if count > 1 else ''}"


def _unpickled(endpoint: str | None, options: dict[str, Any]) -> Sender:
    return Sender(endpoint, **options)
