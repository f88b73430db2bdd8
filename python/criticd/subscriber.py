"""The newest value function, always at hand."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from criticd._fork import stays, watch
from criticd._protocol import Address, CriticdError, Malformed, Message, Unreachable, unpack
from criticd.client import Client, connect_anew, monitor_of
from criticd.keys import Keys
from criticd.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("criticd")

_TURN_S = 0.1
"""How long the thread listens before it looks up."""
_FETCH_PAUSE_S = 0.2
"""Least time between two requests for a whole model."""


CHANGES = ("drift", "forked", "swapped", "dismissed", "returned")
"""Events of a world that changes; `proto/events.md` has the keys of each."""


@dataclass(frozen=True)
class Change:
    """What a critic tells of a world that changes.

    ```python
    critic.on_change(lambda change: print(change.kind, change.offset))
    ```

    `kind` is "drift" (its errors are no longer what they were), "forked" (a second model learns beside the first),
    "swapped" (the second one answers now), "dismissed" (the first one stays) or "returned" (a model from before answers
    again); `offset` is the row at which that happened. `details` has the other keys of the event, such as `since`,
    `size`, `statistic`, `variables` and `streams` of a drift.
    """

    kind: str
    critic: str
    offset: int
    details: Mapping[str, Any]

    @classmethod
    def of(cls, message: Message) -> Change:
        """From an event as it was published. Raises `KeyError` where a key is missing."""
        kind, critic, offset = message["event"], message["critic"], message["offset"]
        known = ("v", "type", "event", "time", "critic", "offset")
        return cls(kind, critic, offset, {key: value for key, value in message.items() if key not in known})


ALARMS = ("alarm", "alarm_ended")
"""Events of returns that are foretold to fall too low."""


@dataclass(frozen=True)
class Alarm:
    """The return from a row on will probably fall below what the setting `alarm` names, or does so no longer.

    ```python
    critic.on_alarm(lambda alarm: print(alarm.stream, alarm.raised))
    ```

    `raised` says which of the two. `head` is the head that it is about, None for the critic's first reward. `offset` is
    the row that raises or ends the alarm of `stream`, `since` the row that raised it. `value` is the value predicted
    there, None where the chain has ended. What comes of alarms stands in `Client.status()`, under `alarms` of the
    critic.
    """

    raised: bool
    critic: str
    head: str | None
    stream: str
    offset: int
    since: int
    below: float
    value: float | None

    @classmethod
    def of(cls, message: Message) -> Alarm:
        """From an event as it was published. Raises `KeyError` where a key is missing."""
        where = (message["critic"], message["head"], message["stream"], message["offset"], message["since"])
        return cls(message["event"] == "alarm", *where, message["below"], message["value"])


@dataclass
class Received:
    """What a subscriber has seen.

    Whole `snapshots` published, `weights` taken over, `gaps` where one was missed, `fetched` models asked of the
    control socket, `changes` of the world, `alarms` raised or ended, `refused` messages that made no sense, and
    `connections` made.
    """

    snapshots: int = 0
    weights: int = 0
    gaps: int = 0
    fetched: int = 0
    changes: int = 0
    alarms: int = 0
    refused: int = 0
    connections: int = 0


class Follower:
    """Which model is the newest, decided message by message. No sockets, no clock.

    `latest` never goes back in generation, revision and offset, unless the connection broke in between: then there may
    be another daemon, or the same one that has forgotten. `wanting` says that the whole model should be asked for.
    """

    def __init__(self, critic: str, variance: bool, head: str | None = None) -> None:
        self.critic, self.variance, self.head = critic, variance, head
        self.latest: Snapshot | None = None
        self.wanting = True
        self.received = Received()
        self._forgetful = False

    def connected(self) -> None:
        """A connection was made: whatever was published before it was missed."""
        self.received.connections += 1
        self._forgetful = self.wanting = True

    def publication(self, message: Message) -> bool:
        """Take a published message; whether `latest` is another now. Raises `Malformed`."""
        kind = message.get("type")
        # Topics are compared by prefix: "snapshot.default" gets the ones of a critic called "default2" as well.
        if (message.get("critic"), message.get("head")) != (self.critic, self.head):
            return False
        if kind == "snapshot":
            return self.whole(Snapshot.of(message), published=True)
        if kind == "announcement":
            newest = (message["generation"], message["revision"])
            self.wanting |= self.latest is None or newest > (self.latest.generation, self.latest.revision)
            return False
        if kind != "weights" or self.latest is None:
            return False
        after = self.latest.followed_by(message)
        if after is None:
            if (message["generation"], message["revision"]) > (self.latest.generation, self.latest.revision):
                self.received.gaps += 1
                self.wanting = True
            return False
        self.received.weights += 1
        self.latest = after
        self.wanting |= self.variance and after.covariance is None
        return True

    def whole(self, snapshot: Snapshot, published: bool) -> bool:
        """Take a whole model; whether it is newer than the one at hand."""
        if published:
            self.received.snapshots += 1
        else:
            self.received.fetched += 1
        before = self.latest
        if before is not None and not self._forgetful:
            if _age(snapshot) < _age(before):
                return False
            if _age(snapshot) == _age(before) and (snapshot.covariance is None or before.covariance is not None):
                return False
        self.latest, self._forgetful = snapshot, False
        self.wanting = self.variance and snapshot.covariance is None
        return True


def _age(snapshot: Snapshot) -> tuple[int, int, int]:
    return snapshot.generation, snapshot.revision, snapshot.offset


def topics(critic: str, head: str | None = None) -> tuple[str, ...]:
    """What to subscribe to."""
    models = (f"snapshot.{critic}", f"weights.{critic}") if head is None else (f"head.{critic}.{head}",)
    return *models, *(f"event.{kind}" for kind in CHANGES + ALARMS)


def publish_socket(context: Any, keys: Keys | None) -> Any:
    """A SUB socket that notices when the daemon has gone silently."""
    socket = context.socket(zmq.SUB)
    connect_anew(socket, keys)
    return socket


class Subscriber:
    """Follows what a critic publishes; `latest` is its newest model, or None before there is one.

    ```python
    with Subscriber() as critic:
        value, deviation = critic.wait(60)([[0.0], [0.5]], std=True)
    ```

    `publish` and `control` are the daemon's endpoints, "tcp://127.0.0.1:5752" and "tcp://127.0.0.1:5751" by default; or
    give its `data_dir`, which CRITICD_DATA_DIR may do as well. `critic` is the daemon's first one unless it is named.
    With `head` it follows that head of the critic: its models are called "critic.head" and are used as any other.
    With `variance` models that were published without it are asked for whole. With `keys` both connections are
    encrypted.

    A thread listens. When it is late, has missed a message, or a model is too large to be published, it asks for the
    model on the control socket. It outlives restarts of the daemon; a model of before stays until there is a new one.
    All attributes and methods may be used from any thread.
    """

    def __init__(
        self,
        publish: str | None = None,
        control: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        critic: str | None = None,
        head: str | None = None,
        variance: bool = True,
        keys: Keys | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self._address = Address.of("publish", publish, data_dir, keys)
        self._context = context or zmq.Context.instance()
        self._client = Client(control, data_dir=data_dir, timeout_s=2.0, keys=keys, context=self._context)
        self._critic, self._head, self._variance = critic, head, variance
        self._follower: Follower | None = None
        self._changed = threading.Condition()
        self._latest: Snapshot | None = None
        self._count = 0
        self._listeners: list[Callable[[], None]] = []
        self._change_listeners: list[Callable[[Change], None]] = []
        self._alarm_listeners: list[Callable[[Alarm], None]] = []
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._forked = False
        self._thread = threading.Thread(target=self._run, name="criticd-subscriber", daemon=True)
        self._thread.start()
        watch(self)

    def __repr__(self) -> str:
        latest = self._latest
        what = "no model yet" if latest is None else f"generation {latest.generation}, {latest.offset} rows"
        return f"<criticd.Subscriber to {self._address}: {what}>"

    @property
    def latest(self) -> Snapshot | None:
        """The newest model, or None."""
        self._check_process()
        return self._latest

    @property
    def received(self) -> Received:
        """What has come so far, a copy."""
        self._check_process()
        return Received() if self._follower is None else replace(self._follower.received)

    def wait(self, timeout_s: float | None = 10.0, *, generation: int = 0, offset: int = 0) -> Snapshot:
        """The newest model, once there is one of at least this `generation` that has learned at least `offset` rows.

        ```python
        model = critic.wait(60.0, generation=1)
        ```

        Raises `TimeoutError`, where there was no connection `Unreachable`.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._check_process()
                latest = self._latest
                if latest is not None and latest.generation >= generation and latest.offset >= offset:
                    return latest
                self._check()
                left = deadline - time.monotonic()
                if left <= 0:
                    if self.received.connections == 0:
                        raise Unreachable(str(self._address), timeout_s or 0.0)
                    what = "no model yet" if latest is None else f"generation {latest.generation}, row {latest.offset}"
                    raise TimeoutError(
                        f"after {timeout_s:g} s there is {what}: is the daemon at {self._address} sent any rows? It "
                        "makes its first model after a few dozen"
                    )
                self._changed.wait(min(left, 0.5))

    def updates(self, timeout_s: float | None = None) -> Iterator[Snapshot]:
        """Every model that is newer than the one before, skipping those that come while the last is still in use.

        Ends when none comes for `timeout_s`, or when the subscriber is closed.
        """
        seen = 0
        while True:
            deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
            with self._changed:
                self._check_process()
                while self._count == seen or self._latest is None:
                    if self._over.is_set() or time.monotonic() >= deadline:
                        return
                    self._check()
                    self._changed.wait(min(0.5, deadline - time.monotonic()))
                seen, latest = self._count, self._latest
            yield latest

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called, in the subscriber's thread, whenever `latest` has changed. It must not wait."""
        self._check_process()
        with self._changed:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Have it called no more."""
        with self._changed:
            self._listeners.remove(listener)

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Have `listener` called, in the subscriber's thread, with every `Change` of the world that its critic tells.

        It must not wait; what it raises is logged. Events that are published while there is no connection are lost: the
        last "drift" stands in `Client.status()`, under `drift` of the critic.
        """
        self._check_process()
        with self._changed:
            self._change_listeners.append(listener)

    def on_alarm(self, listener: Callable[[Alarm], None]) -> None:
        """Have `listener` called, in the subscriber's thread, with every `Alarm` of its critic that is raised or ends.

        With a `head` those about that head alone. It must not wait; what it raises is logged. Events that are published
        while there is no connection are lost: which alarms are on stands in `Client.status()`, under `alarms` of the
        critic.
        """
        self._check_process()
        with self._changed:
            self._alarm_listeners.append(listener)

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._over.is_set()

    def close(self) -> None:
        """Stop listening. `latest` stays."""
        self._over.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise stays(self)

    def _before_fork(self) -> None:
        pass

    def _after_fork(self) -> None:
        """Its thread is the parent's: nothing comes here."""
        self._changed = threading.Condition()
        self._forked = True

    def _check_process(self) -> None:
        """A model of the moment of the fork would pass for the newest, for ever."""
        if self._forked:
            raise CriticdError(
                "this subscriber listens in another process, from which this one was forked: make one here"
            )

    def _check(self) -> None:
        self._check_process()
        if self._failure is not None:
            raise CriticdError(f"the subscriber's thread has failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            critic = self._first_critic() if self._critic is None else self._critic
            self._follower = Follower(critic, self._variance, self._head)
            while not self._over.is_set():
                self._listen(self._follower)
        except BaseException as failure:
            log.exception("the subscriber's thread ended")
            self._failure = failure
        finally:
            self._client.close()
            with self._changed:
                self._tell()

    def _first_critic(self) -> str:
        while not self._over.is_set():
            try:
                return self._client.hello().critics[0]
            except CriticdError:
                self._over.wait(_TURN_S)
        return "default"

    def _listen(self, follower: Follower) -> None:
        """One connection, or attempts at one to the endpoint that is known now."""
        endpoint = self._address.resolve()
        if endpoint is None:
            self._over.wait(_TURN_S)
            return
        socket = publish_socket(self._context, self._address.keys)
        monitor = monitor_of(socket, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        try:
            for topic in topics(follower.critic, follower.head):
                socket.subscribe(topic)
            socket.connect(endpoint)
            standing, since, fetched_at = False, time.monotonic(), 0.0
            while not self._over.is_set():
                poller.poll(round(1000 * _TURN_S))
                while monitor.poll(0):
                    standing = recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
                    since = time.monotonic()
                    if standing:
                        follower.connected()
                changed = False
                while socket.poll(0):
                    changed |= self._take(follower, socket.recv_multipart())
                # First what lies there, which may be all that is wanted.
                if standing and follower.wanting and time.monotonic() - fetched_at >= _FETCH_PAUSE_S:
                    changed |= self._fetch(follower)
                    fetched_at = time.monotonic()
                if changed:
                    self._show(follower.latest)
                # A daemon that has come back may have other ports.
                if not standing and self._address.data_dir is not None and time.monotonic() - since > 1.0:
                    return
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)

    def _take(self, follower: Follower, frames: list[bytes]) -> bool:
        try:
            message = unpack(frames[-1])
            if message.get("type") == "event":
                if message.get("event") in ALARMS:
                    self._tell_alarm(follower, Alarm.of(message))
                else:
                    self._tell_change(follower, Change.of(message))
                return False
            return follower.publication(message)
        except (Malformed, KeyError, TypeError) as error:
            follower.received.refused += 1
            follower.wanting = True
            log.warning("a publication cannot be used: %s", error)
            return False

    def _tell_change(self, follower: Follower, change: Change) -> None:
        if change.critic != follower.critic:
            return
        follower.received.changes += 1
        with self._changed:
            listeners = list(self._change_listeners)
        for listener in listeners:
            try:
                listener(change)
            except Exception:
                log.exception("a listener for changes has failed")

    def _tell_alarm(self, follower: Follower, alarm: Alarm) -> None:
        if alarm.critic != follower.critic or (follower.head is not None and alarm.head != follower.head):
            return
        follower.received.alarms += 1
        with self._changed:
            listeners = list(self._alarm_listeners)
        for listener in listeners:
            try:
                listener(alarm)
            except Exception:
                log.exception("a listener for alarms has failed")

    def _fetch(self, follower: Follower) -> bool:
        try:
            model = self._client.snapshot(follower.critic, variance=self._variance, head=follower.head)
            return follower.whole(model, published=False)
        except CriticdError as error:
            # There may be no model yet, or no daemon: the next turn will tell.
            log.debug("no model could be fetched: %s", error)
            return False

    def _show(self, latest: Snapshot | None) -> None:
        with self._changed:
            self._latest = latest
            self._count += 1
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            listener()
