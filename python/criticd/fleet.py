"""More than one learner: workers that learn the streams of many robots, and a coordinator that makes one model of all.

```python
with Fleet(2, discount=0.95) as fleet:
    for name, rows in robots.items():
        fleet.learn(**rows, stream=name)
    fleet.select()
    value, deviation = fleet([[0.0], [0.5]], std=True)
```

Sums of different streams add up exactly, so that the model is the one of a learner that has learned all rows. `Fleet`
has each part in a process of its own on this machine, `criticd.ray.start` on the machines of a Ray cluster.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np
import numpy.typing as npt

from criticd._fleet_coordinator import Coordinator
from criticd._fleet_links import (
    COORDINATOR,
    Link,
    Patience,
    Process,
    Remote,
    RemoteError,
    worker_name,
)
from criticd._fleet_page import Page
from criticd._fleet_pool import stable_hash
from criticd._fleet_status import FleetStatus, WorkerStatus
from criticd._fleet_worker import MORE, Worker
from criticd._frames import States
from criticd._protocol import Array, CriticdError, Invalid, Message, Refused, unpack
from criticd.learner import Learner
from criticd.snapshot import Snapshot, Values

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Coordinator",
    "Fleet",
    "FleetStatus",
    "Parts",
    "Patience",
    "Producer",
    "RemoteError",
    "Worker",
    "WorkerStatus",
]


class Parts(Protocol):
    """Where the parts of a fleet are, and how they are called and started."""

    def link(self, who: str) -> Link:
        """A way to a part."""
        ...

    def start(self, who: str) -> None:
        """Start a part, and wait until it answers."""
        ...

    def lives(self, who: str) -> bool:
        """Whether it runs."""
        ...

    def stop(self) -> None:
        """End all of them."""
        ...


class Producer:
    """Sends the rows of streams to their workers, and waits until they are durable.

    ```python
    producer = fleet.producer()
    producer.learn(states, rewards, next_states, stream="arm")
    ```

    Each row is counted once: it has a number in its stream, and a worker knows the next one. While a worker is away its
    rows are sent again, for `Patience.rows_s`. One producer sends a stream at a time; threads take turns. Pickles lead
    to the same fleet.

    `closed` says that the fleet is, where the producer is in its process.
    """

    def __init__(self, parts: Parts, workers: int, patience: Patience, closed: threading.Event | None = None) -> None:
        self._parts, self._workers, self._patience = parts, workers, patience
        self._closed = closed or threading.Event()
        self._begin()

    def _begin(self) -> None:
        self._links = [self._parts.link(worker_name(k)) for k in range(self._workers)]
        self._coordinator = self._parts.link(COORDINATOR)
        self._lock = threading.Lock()
        self._id = secrets.token_hex(8)
        self._streams: dict[str, tuple[int, int]] = {}
        """Of each stream its worker, and the number of its next row."""
        self._elsewhere: dict[str, int] = {}
        """Where the coordinator has said that others are."""

    def __getstate__(self) -> tuple[Parts, int, Patience]:
        return self._parts, self._workers, self._patience

    def __setstate__(self, state: tuple[Parts, int, Patience]) -> None:
        self._parts, self._workers, self._patience = state
        self._closed = threading.Event()
        self._begin()

    def learn(
        self,
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_states: npt.ArrayLike | None = None,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        stream: str = "default",
        **more: Any,
    ) -> int:
        """Send rows of one stream; return how many rows of it have been acknowledged in all.

        The arguments are as of `Learner.learn`. Returns when the rows are on the disk of their worker. Raises
        `Invalid` with the field at fault, and `RemoteError` where the worker has been away for too long: those rows may
        be durable or not; where they are, sending them again counts them twice. So it is with the `CriticdError` that
        says that the fleet was closed meanwhile. A stream has one producer at a time: after another one `Refused` says
        that its numbers are taken, and a new `Producer` goes on.
        """
        columns = _columns(states, rewards, next_states, terminated, truncated, more)
        end = time.monotonic() + self._patience.rows_s
        with self._lock:
            while True:
                _check_open(self._closed)
                try:
                    return self._send(stream, columns)
                except RemoteError as error:
                    waits = error.away or error.worker is None
                    if not self._closed.is_set() and (not waits or time.monotonic() > end):
                        self._streams.pop(stream, None)
                        raise RemoteError(error.who, "learn", error.message, away=error.away) from error
                    self._look_elsewhere(stream)
                except Refused as error:
                    if error.code != "sequence_gap" or time.monotonic() > end:
                        self._streams.pop(stream, None)
                        raise
                time.sleep(self._patience.retry_s)

    def _send(self, stream: str, columns: Message) -> int:
        if stream not in self._streams:
            self._streams[stream] = self._position(stream)
        worker, seq = self._streams[stream]
        said = self._links[worker].call("append", stream=stream, seq=seq, columns=columns, sender=self._id)
        if said.get("moved"):
            place = self._coordinator.call("where", stream=stream)
            if place["worker"] == worker:
                raise RemoteError(COORDINATOR, "where", f"stream {stream!r} is on its way from {worker_name(worker)}")
            # Its number stays: whoever has it now knows the next one.
            self._streams[stream] = (place["worker"], seq)
            return self._send(stream, columns)
        self._streams[stream] = (worker, seq + len(columns["rewards"]))
        return seq + len(columns["rewards"])

    def _position(self, stream: str) -> tuple[int, int]:
        """Where the next row of a stream goes, and its number."""
        worker = self._elsewhere.pop(stream, stable_hash(stream) % self._workers)
        said = self._links[worker].call("position", stream=stream)
        if said["moved"]:
            worker = self._coordinator.call("where", stream=stream)["worker"]
            said = self._links[worker].call("position", stream=stream)
        return worker, said["next_seq"]

    def _look_elsewhere(self, stream: str) -> None:
        """A stream of a worker that is away may have moved."""
        with contextlib.suppress(RemoteError):
            worker = self._coordinator.call("where", stream=stream)["worker"]
            if stream in self._streams:
                self._streams[stream] = (worker, self._streams[stream][1])
            else:
                self._elsewhere[stream] = worker


class Fleet:
    """Workers and a coordinator, and how to use them.

    ```python
    with Fleet(2, "fleet-of-arms", discount=0.95) as fleet:
        fleet.learn(states, rewards, next_states, terminated=terminated, stream="arm-7")
        fleet.select()
        value, deviation = fleet([[0.0], [0.5]], std=True)
        print(fleet.status())
    ```

    - `workers`: how many. The streams are spread over them by their names.
    - `directory`: where journals and epochs are kept. A fleet that starts there again has all rows. Without it they are
      in a temporary directory, which is removed at the end.
    - `settings` are as of a `Learner`. Rows cannot be forgotten, and drift is not watched.
    - `pool_rows`: rows that a selection sees at most. The first selection comes with `select_rows` rows, further ones
      each time that rows are four times their number; None leaves them to `select`.
    - `patience`: all that depends on the clock.
    - `parts`: where the parts run, if not in processes of this machine: what `criticd.ray` passes.

    A part that ends is started again. Values come from the newest model, also while parts are away; `age_s` of the
    status says how old it is.
    """

    def __init__(
        self,
        workers: int,
        directory: str | os.PathLike[str] | None = None,
        *,
        pool_rows: int = 20_000,
        select_rows: int | None = 2048,
        patience: Patience | None = None,
        parts: Callable[[Mapping[str, Any], Patience], Parts] | None = None,
        discount: float = 0.99,
        **settings: Any,
    ) -> None:
        if workers < 1:
            raise Invalid("workers", f"must be at least 1, is {workers}")
        settings = {key: value for key, value in {"discount": discount, **settings}.items() if value is not None}
        # What is wrong with them is better said here than by a process.
        Learner(**settings).close()
        self._patience, self._workers = patience or Patience(), workers
        self._temporary = directory is None
        self._directory = Path(tempfile.mkdtemp(prefix="criticd-fleet-") if directory is None else directory).absolute()
        options = {
            "directory": str(self._directory),
            "workers": workers,
            "settings": settings,
            "pool_rows": pool_rows,
            "select_rows": select_rows,
        }
        self._names = [*map(worker_name, range(workers)), COORDINATOR]
        self._stopped = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._held: tuple[int, Snapshot] | None = None
        self._pages: list[Page] = []
        made = parts or Processes
        self._parts = made(options, self._patience)
        try:
            for name in self._names:
                self._parts.start(name)
        except BaseException:
            self.close()
            raise
        self._coordinator = self._parts.link(COORDINATOR)
        self._own = self.producer()
        self._supervisor = threading.Thread(target=self._supervise, name="criticd-fleet", daemon=True)
        self._supervisor.start()

    def _supervise(self) -> None:
        while not self._stopped.wait(min(0.2, self._patience.interval_s)):
            for name in self._names:
                if not self._stopped.is_set() and not self._parts.lives(name):
                    # One that cannot start, for whatever reason, is tried again; who calls it hears that it is away.
                    with contextlib.suppress(Exception):
                        self._parts.start(name)

    def producer(self) -> Producer:
        """Another sender of rows, for a thread or a process of its own."""
        return Producer(self._parts, self._workers, self._patience, self._stopped)

    def learn(
        self,
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_states: npt.ArrayLike | None = None,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        stream: str = "default",
        **more: Any,
    ) -> int:
        """Send rows of one stream, as `Producer.learn` does."""
        return self._own.learn(
            states, rewards, next_states, terminated=terminated, truncated=truncated, stream=stream, **more
        )

    def _asked(self, op: str, **arguments: Any) -> Message:
        """The answer of the coordinator."""
        return self._patiently(self._coordinator, self._patience.start_s, op, **arguments)

    def _patiently(self, link: Link, patience_s: float, op: str, **arguments: Any) -> Message:
        """The answer of a part, which may be about to start anew."""
        end = time.monotonic() + patience_s
        while True:
            _check_open(self._stopped)
            try:
                return link.call(op, **arguments)
            except RemoteError as error:
                if not self._stopped.is_set() and (not error.away or time.monotonic() > end):
                    raise
            time.sleep(self._patience.retry_s)

    def select(self, *, wait: bool = True) -> FleetStatus:
        """Select a model by chains of all workers, in which they learn all their rows anew.

        With `wait`, return when it is in force, with all rows of workers that are there. Until then answers come
        from the model before. Raises `CriticdError` if no model can be selected.
        """
        before = self.status().generation
        self._asked("select")
        end = time.monotonic() + self._patience.epoch_s + self._patience.start_s
        while wait:
            status = self.status()
            if status.generation > before and not (status.selecting or status.coming):
                break
            if status.fault is not None and not (status.selecting or status.coming):
                raise CriticdError(status.fault)
            if time.monotonic() > end:
                raise RemoteError(COORDINATOR, "select", "is not done in time: `status()` says which workers lag")
            time.sleep(self._patience.retry_s)
            if status.coming:
                self._asked("round")
            elif not status.selecting and status.generation == before:
                # The coordinator has started anew meanwhile.
                self._asked("select")
        return self.status()

    def merge(self, *, wait: bool = True) -> Snapshot:
        """The model of this moment: every worker is asked what its rows add up to.

        With `wait`, all rows that have been acknowledged before are in it; while a worker is away it waits for that, as
        long as rows may. Raises `Refused` with code `not_ready` before the first selection.
        """
        end = time.monotonic() + self._patience.rows_s
        while True:
            self._asked("round")
            status = self.status()
            late = [
                each.name for each in status.workers if each.rows != each.merged or each.fault or each.heard_s is None
            ]
            if not (wait and late and status.generation):
                return self.snapshot()
            if time.monotonic() > end:
                raise RemoteError(
                    late[0], "merge", "lags behind its rows; merge(wait=False) is the model without them", away=True
                )
            time.sleep(self._patience.retry_s)

    def snapshot(self) -> Snapshot:
        """The newest model. While the coordinator is away, the last one that was seen.

        Raises `Refused` with code `not_ready` before the first selection.
        """
        _check_open(self._stopped)
        have = self._held[0] if self._held is not None else 0
        try:
            said = self._coordinator.call("snapshot", have=have)
        except RemoteError:
            if self._held is None:
                said = self._asked("snapshot", have=have)
            else:
                return self._held[1]
        except Refused:
            # It has just started anew, and knows less than this program.
            if self._held is None:
                raise
            return self._held[1]
        if said["model"] is not None:
            self._held = (said["revision"], Snapshot.of(unpack(said["model"])))
        assert self._held is not None
        return self._held[1]

    @overload
    def __call__(self, states: States, std: Literal[False] = False) -> Array: ...
    @overload
    def __call__(self, states: States, std: Literal[True]) -> tuple[Array, Array]: ...
    @overload
    def __call__(self, states: States, std: bool = False, *, returns: Literal[True], known: bool = False) -> Values: ...
    @overload
    def __call__(self, states: States, std: bool = False, *, returns: bool = False, known: Literal[True]) -> Values: ...
    def __call__(
        self, states: States, std: bool = False, *, returns: bool = False, known: bool = False
    ) -> Array | tuple[Array, Array] | Values:
        """The value of `states` in the newest model, as a `Snapshot` says it."""
        return self.snapshot()(states, std, returns=returns, known=known)  # type: ignore[call-overload, no-any-return]

    def status(self) -> FleetStatus:
        """Workers, lag, epoch. Raises `RemoteError` while the coordinator is away."""
        return FleetStatus.of(self._asked("status"))

    def move(self, stream: str, to: int, *, lost: bool = False) -> None:
        """Let another worker go on with a stream, from the end of its chain on, or from a cut where that does not come.

        The rows so far stay where they are. With `lost` its worker is not asked, since it will not come back: rows that
        it has acknowledged behind its last message are then missing, unless it comes back after all. Returns when that
        is done. Raises `RemoteError` if a worker is away for too long.
        """
        end = time.monotonic() + self._patience.rows_s
        while not self._asked("move", stream=stream, to=to, lost=lost)["moved"]:
            if time.monotonic() > end:
                raise RemoteError(worker_name(to), "move", f"stream {stream!r} could not be moved: a worker is away")
            time.sleep(self._patience.retry_s)

    def remove(
        self, stream: str, rows: tuple[int, int] | None = None, *, wait: bool = True, erase: bool = False
    ) -> int:
        """Take rows of a stream back, whichever workers have them. Returns how many these are.

        `rows` are two sequence numbers, of the first and of the row behind the last; without them all rows so far go.
        The chains that they belonged to end before them and begin behind them. A producer that sends them again hears
        that they are known. With `wait`, return when the model has nothing of them: their sums are gone at once, and a
        new selection follows, since they had a part in the one before. Raises `RemoteError` if a worker is away for too
        long: call again. Without `wait` the coordinator selects by itself, when it has heard of it.

        The journals keep the bytes of these rows, unless `erase` is set: then, at the end, each worker writes its
        journal anew without any row that was ever taken back. It takes no other calls meanwhile. Names of streams stay,
        and numbers of rows, and so does the next state of a row before one that is gone. Copies of journals are yours.

        ```python
        fleet.remove("arm-7", erase=True)           # the whole robot, and its bytes
        fleet.remove("arm-8", (12_000, 12_500))     # a sensor that lied
        ```
        """
        first, end = (0, None) if rows is None else rows
        if first < 0 or (end is not None and end <= first):
            raise Invalid("rows", f"must be two ascending numbers from 0 on, are {first} and {end}")
        if erase and not wait:
            raise Invalid("erase", "comes when nothing has these rows any more: it needs `wait`")
        asked = {"stream": stream, "first": first, "end": end}
        links = [self._parts.link(name) for name in self._names[: self._workers]]
        said = [self._patiently(link, self._patience.rows_s, "remove", **asked) for link in links]
        count = sum(int(each["rows"]) for each in said)
        if not wait:
            return count
        if self.status().generation:
            self.merge()
        until = time.monotonic() + 2 * self._patience.epoch_s + self._patience.start_s
        while True:
            self._asked("round")
            status = self.status()
            if not (status.owes or status.coming):
                break
            if time.monotonic() > until:
                raise RemoteError(COORDINATOR, "select", "is not done in time: `status()` says which workers lag")
            time.sleep(self._patience.retry_s)
        for name, link in zip(self._names, links if erase else [], strict=False):
            while "waits" in self._patiently(link, max(self._patience.rows_s, until - time.monotonic()), "erase"):
                if time.monotonic() > until:
                    raise RemoteError(name, "erase", "still learns rows again, or a new epoch: call again")
                time.sleep(self._patience.retry_s)
        return count

    def page(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Show the status to browsers until the fleet is closed. Returns the address of the page.

        `host` is the address of this program's machine at which it listens; whoever reaches that sees the page. Port 0
        is one that is free. The same as JSON is at `/status`.

        ```python
        print(fleet.page(port=5760))
        ```
        """
        _check_open(self._stopped)
        # Of its own, since others wait for rounds.
        link = self._parts.link(COORDINATOR)
        page = Page(lambda: FleetStatus.of(link.call("status")), host, port)
        self._pages.append(page)
        return page.address

    @property
    def parts(self) -> Parts:
        """Where the parts run."""
        return self._parts

    def close(self) -> None:
        """End all parts. Rows and epochs stay in the directory, if one was named.

        Whoever asks from then on, or waits for an answer, gets a `CriticdError` that says so.
        """
        self._stopped.set()
        while self._pages:
            self._pages.pop().close()
        # Before the supervisor ends, since it may wait for a part that does not start; and what it has started then.
        self._parts.stop()
        if self._supervisor is not None:
            self._supervisor.join()
            self._parts.stop()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<criticd.fleet.Fleet: {self._workers} workers in {self._directory}>"


class Processes:
    """The parts of a fleet as processes of this machine. Pickles reach the same ones."""

    def __init__(self, options: Mapping[str, Any], patience: Patience) -> None:
        self._directory, self._patience = Path(options["directory"]), patience
        self._directory.mkdir(parents=True, exist_ok=True)
        self.processes = {
            who: Process(self._directory, who, {**options, "number": number}, patience)
            for number, who in enumerate([*map(worker_name, range(options["workers"])), COORDINATOR])
        }

    def link(self, who: str) -> Link:
        """See `Parts`."""
        return Remote(self._directory, who, self._patience)

    def start(self, who: str) -> None:
        """See `Parts`."""
        self.processes[who].start()
        self.processes[who].wait()

    def lives(self, who: str) -> bool:
        """See `Parts`."""
        return self.processes[who].lives()

    def stop(self) -> None:
        """See `Parts`."""
        for process in self.processes.values():
            process.stop()

    def __getstate__(self) -> tuple[Path, Patience]:
        return self._directory, self._patience

    def __setstate__(self, state: tuple[Path, Patience]) -> None:
        # Who gets it may call the parts, and cannot end them.
        self._directory, self._patience = state
        self.processes = {}


def _check_open(closed: threading.Event) -> None:
    if closed.is_set():
        raise CriticdError("the fleet is closed")


def _columns(
    states: npt.ArrayLike,
    rewards: npt.ArrayLike,
    next_states: npt.ArrayLike | None,
    terminated: npt.ArrayLike | None,
    truncated: npt.ArrayLike | None,
    more: Mapping[str, Any],
) -> Message:
    """Rows as arrays with the axis of rows. What is in them the worker checks."""
    points = np.asarray(states, float)
    if points.ndim == 1:
        raise Invalid("states", "must be (n, D): one row is [state]")
    if next_states is None:
        points, following = points[:-1], points[1:]
    else:
        following = np.asarray(next_states, float)
    found: Message = {"states": points, "rewards": np.asarray(rewards, float), "next_states": following}
    for name, flags in (("terminated", terminated), ("truncated", truncated)):
        if flags is not None:
            found[name] = np.asarray(flags, bool)
    for name, column in more.items():
        if name not in MORE:
            raise Invalid(name, f"is no column of rows: these are {', '.join(MORE)}")
        if column is not None:
            found[name] = column if name == "policy" else np.asarray(column, float)
    if len(found["rewards"]) == 0 or len(points) != len(found["rewards"]) or len(following) != len(points):
        raise Invalid(
            "rewards", f"{len(found['rewards'])} rewards of {len(points)} states and {len(following)} next states"
        )
    return found
