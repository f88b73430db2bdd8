"""Daemons that end with the test, and a network path that can be cut."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pytest
import zmq

from criticd import Client, Sender, Subscriber, aio
from criticd.testing import Daemon

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("CRITICD_BIN", str(ROOT / "target" / "release" / "criticd"))
# So that every number below can be predicted: no model selection unless a test asks for it.
CALM = ("critic.refit_first_rows=0", "critic.refit_score_drop=0")

# How long anything may take before a test gives up, the one deadline of this suite: machines may be busy.
PATIENCE_S = 120.0

Start = Callable[..., Daemon]
# From another place in each run: two runs of the suite may share a machine.
PORTS = itertools.count(os.getpid())


def when(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE_S:.0f} s")
        time.sleep(0.02)


def free_port() -> int:
    """A port below the range from which the system picks ports; each worker of pytest has a part of its own there.

    So nobody else gets it while a daemon that comes back to it is away. The daemon's own tests have those below 20 000.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    while True:
        port = 20_000 + 1000 * worker + next(PORTS) % 1000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, so that where several run at once none is left alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some environments leave files where they are run."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer for an answer, a start or a stop than is waited for by default."""
    monkeypatch.setattr("criticd.client.SILENCE_MS", round(1000 * PATIENCE_S))
    for of in (Client, aio.Client, Daemon, Sender):
        defaults = of.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "timeout_s", PATIENCE_S)
    for waits in (Daemon.terminate, Subscriber.wait, aio.Subscriber.wait):
        monkeypatch.setattr(waits, "__defaults__", (PATIENCE_S,))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a daemon with the arguments of `criticd.testing.Daemon`, on ports to which it can come back."""
    daemons: list[Daemon] = []

    def launch(*settings: str, **options: Any) -> Daemon:
        endpoints = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("ingest", "control", "publish")}
        endpoints["http"] = f"127.0.0.1:{free_port()}"
        daemons.append(Daemon(*settings, **{"endpoints": endpoints, **options}))
        return daemons[-1]

    yield launch
    for daemon in daemons:
        daemon.close()


class Route:
    """A network path to a TCP endpoint: `endpoint` leads there until it is cut, and again when it is healed."""

    def __init__(self, endpoint: str) -> None:
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.whole, self.cuts = True, 0
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()
        self.passed = 0
        self.more = threading.Condition(self.lock)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and make none until healed."""
        with self.lock:
            self.whole = False
            self.cuts += 1
            for connection in self.connections:
                # Not closed here: the threads that read them still hold them.
                shut(connection)
            self.connections.clear()

    def heal(self) -> None:
        """Let connections through again."""
        with self.lock:
            self.whole = True

    def wait_for_bytes(self, count: int) -> None:
        """Until this number of bytes has gone towards the daemon, since the beginning."""
        with self.more:
            assert self.more.wait_for(lambda: self.passed >= count, PATIENCE_S)

    def close(self) -> None:
        self.cut()
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                whole, cuts = self.whole, self.cuts
            if not whole:
                near.close()
                continue
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            with self.lock:
                # Cut in between: the threads will see that, and end at once.
                self.connections += [near, far]
                if self.cuts > cuts:
                    shut(near)
                    shut(far)
            threading.Thread(target=self._pump, args=(near, far, True, cuts), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False, cuts), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, count: bool, cuts: int) -> None:
        try:
            while data := source.recv(65_536):
                with self.more:
                    # Healed or not, this connection is cut.
                    if self.cuts > cuts:
                        break
                    if count:
                        self.passed += len(data)
                        self.more.notify_all()
                sink.sendall(data)
        except OSError:
            pass
        shut(source)
        shut(sink)
        source.close()


def shut(connection: socket.socket) -> None:
    # It may have been shut from the other side.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def route() -> Iterator[Callable[[str], Route]]:
    """Lay a path that can be cut to an endpoint."""
    routes: list[Route] = []

    def lay(endpoint: str) -> Route:
        routes.append(Route(endpoint))
        return routes[-1]

    yield lay
    for laid in routes:
        laid.close()


class Catcher:
    """Stands where the daemon's ingest would be, and keeps what comes, read by somebody else's decoder."""

    def __init__(self) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"

    def batches(self, rows: int) -> list[dict[str, Any]]:
        """Messages until there are enough rows, and whatever else is there."""
        found: list[dict[str, Any]] = []
        while True:
            wait = round(1000 * PATIENCE_S) if sum(len(batch["rewards"]) for batch in found) < rows else 0
            if not self.socket.poll(wait):
                break
            found.append(msgpack.unpackb(self.socket.recv(), object_hook=msgpack_numpy.decode))
        return found

    def rows(self, rows: int) -> dict[str, dict[str, Any]]:
        """The columns of each stream, in order; their `seq` must have no gaps, beginning at 0."""
        streams: dict[str, list[dict[str, Any]]] = {}
        for batch in self.batches(rows):
            assert batch["v"] == 1
            streams.setdefault(batch["stream"], []).append(batch)
        joined = {}
        for name, batches in streams.items():
            assert len({batch["session"] for batch in batches}) == 1
            expected = 0
            for batch in batches:
                assert batch["seq"] == expected
                expected += len(batch["rewards"])
            keys = [key for key, value in batches[0].items() if isinstance(value, np.ndarray)]
            joined[name] = {key: np.concatenate([batch[key] for batch in batches]) for key in keys}
        return joined


@pytest.fixture
def catcher() -> Iterator[Catcher]:
    """Catch what a sender without acknowledgements sends."""
    caught = Catcher()
    yield caught
    caught.socket.close(linger=0)


class Puppet(threading.Thread):
    """A control socket that answers by rule: `reply` gets each request and returns the keys of its reply.

    `requests` keeps all but the `hello` and `streams` that a sender opens with, which it answers on its own.
    """

    def __init__(self, reply: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        super().__init__(daemon=True)
        self.reply, self.requests, self.over = reply, list[dict[str, Any]](), threading.Event()
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.streams: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        while not self.over.is_set():
            if not self.socket.poll(20):
                continue
            peer, payload = self.socket.recv_multipart()
            request = msgpack.unpackb(payload, object_hook=msgpack_numpy.decode)
            if request["op"] == "hello":
                answer: dict[str, Any] | None = {"error": {"code": "unknown_op", "message": "an older daemon"}}
            elif request["op"] == "streams":
                answer = {"streams": self.streams}
            else:
                self.requests.append(request)
                answer = self.reply(request)
            if answer is not None:
                whole = {"v": 1, "id": request["id"], "ok": "error" not in answer, **answer}
                self.socket.send_multipart([peer, msgpack.packb(whole, default=msgpack_numpy.encode)])
        self.socket.close(linger=0)


@pytest.fixture
def puppet() -> Iterator[Callable[..., Puppet]]:
    """Make a puppet."""
    puppets: list[Puppet] = []

    def make(reply: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Puppet:
        puppets.append(Puppet(reply))
        return puppets[-1]

    yield make
    for made in puppets:
        made.over.set()
        made.join()
