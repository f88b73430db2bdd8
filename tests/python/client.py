"""A client of criticd on pyzmq alone, and the daemon as a child process: what these tests stand on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import numpy.typing as npt
import zmq

Array = npt.NDArray[np.float64]
Map = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
# How long anything may take before a test gives up, the one deadline of this suite: nothing here is about speed, and
# machines may be busy. What makes progress meanwhile may take as long again each time.
PATIENCE_S = 120.0
BINARY = os.environ.get("CRITICD_BIN", str(ROOT / "target" / "release" / "criticd"))
PACKAGED = os.environ.get("CRITICD_PACKAGED_BIN", BINARY)
"""The program that packages hold: without what needs a library of the system."""


def pack(message: Map) -> bytes:
    """A message of the protocol: version, and numpy arrays as msgpack-numpy writes them."""
    return msgpack.packb({"v": 1, **message}, default=msgpack_numpy.encode)


def unpack(payload: bytes) -> Map:
    return msgpack.unpackb(payload, object_hook=msgpack_numpy.decode)


def when(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.05)


def settles(check: Callable[[], object]) -> None:
    """Wait until the assertions of `check` hold: what they look at may still be on its way."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(0.1)


class Refused(Exception):
    """An error reply."""

    def __init__(self, error: Map) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.error = error
        self.code: str = error["code"]


class Control:
    """Requests on the control socket, one at a time. REQ sockets send the empty delimiter frame, DEALER ones do not."""

    def __init__(self, endpoint: str, kind: int = zmq.DEALER, heartbeat_ms: int = 0) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, round(1000 * PATIENCE_S))
        if heartbeat_ms:
            self.socket.setsockopt(zmq.HEARTBEAT_IVL, heartbeat_ms)
            # By default a heartbeat later. What was asked has no reply where a connection is given up.
            self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * PATIENCE_S))
        self.socket.connect(endpoint)
        self.count = 0

    def raw(self, payload: bytes, timeout_s: float = PATIENCE_S) -> Map:
        """The reply to these very bytes, whatever it is."""
        self.socket.send(payload)
        if not self.socket.poll(round(1000 * timeout_s)):
            raise TimeoutError(f"no reply within {timeout_s} s")
        return unpack(self.socket.recv())

    def ask(self, op: str, timeout_s: float = PATIENCE_S, **fields: Any) -> Map:
        self.count += 1
        reply = self.raw(pack({"id": self.count, "op": op, **fields}), timeout_s)
        assert reply["v"] == 1 and reply["id"] == self.count, reply
        if not reply["ok"]:
            raise Refused(reply["error"])
        return reply

    def wait_for_offset(self, rows: int, timeout_s: float = PATIENCE_S) -> Map:
        """The status, once so many rows have been taken in; it gives up when none has come for `timeout_s`."""
        return self._wait_for(rows, timeout_s, lambda status: status["offset"])

    def wait_for_learned(self, rows: int) -> Map:
        """The status, once every critic has learned so many rows: a busy daemon does a while after it has taken them in."""
        return self._wait_for(rows, PATIENCE_S, lambda status: min(each["learned"] for each in status["critics"]))

    def _wait_for(self, rows: int, timeout_s: float, of: Callable[[Map], int]) -> Map:
        deadline, most = time.monotonic() + timeout_s, 0
        while (found := of(status := self.ask("status"))) < rows:
            if found > most:
                deadline, most = time.monotonic() + timeout_s, found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{most} of {rows} rows, and none more for {timeout_s:.0f} s")
            time.sleep(0.02)
        return status

    def close(self) -> None:
        self.socket.close()


class Daemon:
    """`criticd serve` in a directory of its own. Arguments are KEY=VALUE settings; `config` is the text of a file."""

    def __init__(self, directory: Path, *settings: str, config: str = "", endpoints: Map | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.config = directory, directory / "criticd.toml"
        self.config.write_text(config)
        ends = endpoints or {name: "tcp://127.0.0.1:0" for name in ("ingest", "control", "publish")}
        ends = {"http": "127.0.0.1:0", **ends}
        command = [BINARY, "serve", "--config", str(self.config), "--data-dir", str(directory / "data")]
        for name, endpoint in ends.items():
            command += [f"--{name}", endpoint]
        for setting in settings:
            command += ["--set", setting]
        file = directory / "data" / "endpoints.json"
        file.unlink(missing_ok=True)
        # With Python's signals, a write beyond RLIMIT_FSIZE is an error, as on a full disk, and ends no process.
        with (directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, restore_signals=False)
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("criticd did not start:\n" + self.log())
            time.sleep(0.01)
        self.endpoints: dict[str, str] = json.loads(file.read_text())
        self.sockets: list[Any] = []
        self._shared: Control | None = None

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def alive(self) -> bool:
        return self.process.poll() is None

    def push(self, **options: int) -> zmq.Socket[bytes]:
        return self._socket(zmq.PUSH, "ingest", options)

    def subscribe(self, *topics: str, **options: int) -> zmq.Socket[bytes]:
        socket = self._socket(zmq.SUB, "publish", options)
        for topic in topics:
            socket.subscribe(topic)
        return socket

    def control(self, kind: int = zmq.DEALER, heartbeat_ms: int = 0) -> Control:
        control = Control(self.endpoints["control"], kind, heartbeat_ms)
        self.sockets.append(control)
        return control

    def shared_control(self) -> Control:
        """One and the same connection at each call, never idle: what is asked as it is closed has no reply."""
        if self._shared is None:
            self._shared = self.control(heartbeat_ms=100)
        return self._shared

    def _socket(self, kind: int, name: str, options: dict[str, int]) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        for option, value in {"SNDTIMEO": round(1000 * PATIENCE_S), **options}.items():
            socket.setsockopt(getattr(zmq, option), value)
        socket.connect(self.endpoints[name])
        self.sockets.append(socket)
        return socket

    def memory_mib(self, what: str = "VmRSS") -> float:
        """A line of /proc/PID/status: VmRSS is what is resident now, VmHWM the most that ever was."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1]) / 1024
        raise KeyError(what)

    def metric(self, sample: str) -> float:
        """A number of /metrics, by its name with its labels."""
        with urllib.request.urlopen(f"http://{self.endpoints['http']}/metrics", timeout=PATIENCE_S) as page:
            lines = page.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(sample + " ")).rpartition(" ")[2])

    def terminate(self, timeout_s: float = PATIENCE_S) -> tuple[int, float]:
        """Exit code and seconds after a SIGTERM."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s), time.monotonic() - started

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for socket in self.sockets:
            socket.close()
        if self.alive():
            self.kill()


def receive(subscriber: zmq.Socket[bytes], timeout_s: float = PATIENCE_S) -> tuple[str, Map]:
    """The next publication: topic and payload."""
    if not subscriber.poll(round(1000 * timeout_s)):
        raise TimeoutError(f"nothing was published within {timeout_s} s")
    topic, payload = subscriber.recv_multipart()
    return topic.decode(), unpack(payload)


def listening(subscriber: zmq.Socket[bytes]) -> None:
    """Wait until the daemon knows all that a socket has subscribed to; what comes meanwhile is dropped.

    It takes subscriptions in order, and a status comes each second.
    """
    subscriber.subscribe("status")
    while receive(subscriber)[0] != "status":
        pass
    subscriber.unsubscribe("status")


def kernel_rows(snapshot: Map, states: npt.ArrayLike) -> Array:
    """k_m(z) of states (n, D), a row each: (n, m)."""
    kernel, inputs = snapshot["kernel"], snapshot["inputs"]
    z = (np.asarray(states, float) - inputs["shift"]) / inputs["scale"]
    difference = z[:, None, :] - snapshot["dictionary"][None, :, :]
    kinds = kernel.get("kinds", ["real"] * z.shape[1])
    steps = difference**2
    for d, kind in enumerate(kinds):
        if kind == "category":
            steps[..., d] = 2.0 * (difference[..., d] != 0)
        elif kind != "real":
            steps[..., d] = (2 * np.sin(np.pi * difference[..., d] / float(kind.split(":")[1]))) ** 2
    squared = steps @ kernel["relevance"]
    if "factors" in kernel:
        real = np.array([kind == "real" for kind in kinds])
        squared = squared + ((difference @ (kernel["factors"] * real).T) ** 2).sum(axis=-1)
    a = np.sqrt(5 * squared)
    matern = kernel.get("profile", "gaussian") == "matern52"
    shape = (1 + a + a**2 / 3) * np.exp(-a) if matern else np.exp(-squared / 2)
    return kernel["signal_variance"] * shape + kernel["bias_variance"]


def evaluate(snapshot: Map, states: npt.ArrayLike) -> tuple[Array, Array | None]:
    """Mean and variance of V at states (n, D), from the snapshot and nothing else (proto/README.md, "Snapshot")."""
    k, kernel = kernel_rows(snapshot, states), snapshot["kernel"]
    mean = snapshot.get("level", 0.0) + k @ snapshot["weights"]
    if "variance" not in snapshot:
        return mean, None
    explained = np.einsum("ij,jk,ik->i", k, snapshot["variance"], k)
    return mean, kernel["signal_variance"] + kernel["bias_variance"] - explained


def rounding(snapshot: Map, states: npt.ArrayLike) -> tuple[Array, Array]:
    """What rounding may do to mean and variance at states, whoever adds them up: a share of the sum of magnitudes.

    With hardly any noise the dictionary comes close to singular. Weights and C are then large and of either sign, and
    both results are small differences of large terms.
    """
    k = kernel_rows(snapshot, states)
    variance = (
        np.einsum("ij,jk,ik->i", k, np.abs(snapshot["variance"]), k) if "variance" in snapshot else np.zeros(len(k))
    )
    return 1e-14 * (k @ np.abs(snapshot["weights"])), 1e-14 * variance
