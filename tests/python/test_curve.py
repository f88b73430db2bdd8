"""Encrypted sockets: plain pyzmq clients with keys, those without, and those who mean ill. Needs `--features curve`."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import socket
import stat
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import client
import numpy as np
import pytest
import zmq
import zmq.auth
import zmq.utils.z85
from client import PATIENCE_S, ROOT, Control, Daemon, Map, Refused, pack, receive, unpack, when
from nacl.public import Box, PrivateKey, PublicKey
from test_attacks import append_of_bytes, evaluation_of_bytes, long_states, query
from zmq.utils.monitor import recv_monitor_message

BINARY = os.environ.get("CRITICD_CURVE_BIN", str(ROOT / "target" / "curve" / "criticd"))
pytestmark = pytest.mark.skipif(not Path(BINARY).exists(), reason="there is no criticd built with --features curve")

NUMBERS = itertools.count()
WATCHED: list[Any] = []
RIGHTS: dict[str, list[str]] = {
    "arm": ["append"],
    "planner": ["query"],
    "operator": ["administer"],
    "all": ["append", "query", "administer"],
}


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S, **options)


@dataclass
class Ring:
    """Keys of the daemon and its clients, in a directory."""

    directory: Path

    def secret_file(self, name: str) -> Path:
        return self.directory / f"{name}.key_secret"

    def pair(self, name: str) -> tuple[bytes, bytes]:
        """As pyzmq reads them: public, secret."""
        public, secret = zmq.auth.load_certificate(self.secret_file(name))
        assert secret is not None
        return public, secret

    def config(self, clients: dict[str, list[str]], extra: str = "") -> str:
        """Settings with every encrypted socket, for these clients and their rights."""
        lines = [f'curve_{name} = "tcp://127.0.0.1:0"' for name in ("ingest", "control", "publish")]
        lines += [f'curve_secret_key = "{self.secret_file("daemon")}"', extra]
        for name, rights in clients.items():
            lines += ["[[clients]]", f'name = "{name}"', f'key = "{self.pair(name)[0].decode()}"', f"rights = {rights}"]
        return "\n".join(lines)


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Ring:
    ring = Ring(tmp_path_factory.mktemp("keys"))
    for name in ("daemon", "stranger", *RIGHTS):
        made = run("keys", "make", name, "--dir", ring.directory)
        assert made.returncode == 0, made.stderr
    return ring


class Encrypted:
    """A daemon with encrypted sockets, and sockets of clients that have keys."""

    def __init__(self, daemon: Daemon, ring: Ring) -> None:
        self.daemon, self.ring = daemon, ring

    def socket(
        self, kind: int, name: str, who: str = "all", server: str = "daemon", events: bool = True, **options: int
    ) -> Any:
        """A socket on its way, and the events of its connection."""
        found: Any = zmq.Context.instance().socket(kind)
        self.daemon.sockets.append(found)
        found.setsockopt(zmq.LINGER, 0)
        for option, value in options.items():
            found.setsockopt(getattr(zmq, option), value)
        found.curve_publickey, found.curve_secretkey = self.ring.pair(who)
        found.curve_serverkey = self.ring.pair(server)[0]
        if kind == zmq.SUB:
            found.subscribe("")
        monitor = watch(self.daemon, found) if events else None
        found.connect(self.daemon.endpoints[f"curve_{name}"])
        return found, monitor

    def control(self, who: str = "all", kind: int = zmq.DEALER, **options: int) -> Control:
        control = Control.__new__(Control)
        control.socket = self.socket(kind, "control", who, events=False, **options)[0]
        control.count = 0
        return control

    def number(self, sample: str) -> float:
        """A number of /metrics, by its name with its labels."""
        with urllib.request.urlopen(f"http://{self.daemon.endpoints['http']}/metrics", timeout=PATIENCE_S) as page:
            text = page.read().decode()
        return float(re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]

    def cut(self, reason: str) -> int:
        """Peers refused or cut off for a reason."""
        return int(self.number(f'criticd_disconnected_peers_total{{reason="{reason}"}}'))

    def unfinished_mib(self) -> float:
        """What counts among long messages that are not whole."""
        return self.number('criticd_queued_bytes{queue="unfinished"}') / 2**20

    def backlog_mib(self) -> float:
        """Replies that wait for clients."""
        return self.number('criticd_backlog_bytes{socket="control"}') / 2**20

    def wait_for_cut(self, reason: str, count: int = 1) -> None:
        when(lambda: self.cut(reason) >= count, f"{count} peers cut for {reason}")

    def works(self) -> None:
        """Somebody who means well is served."""
        assert self.daemon.alive()
        control = self.control()
        control.ask("ping")
        control.close()

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.daemon.process.pid}/fd").iterdir()))


Start = Callable[..., Encrypted]


@pytest.fixture
def start(tmp_path: Path, ring: Ring, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a daemon for some clients: `start(*settings, clients=RIGHTS, extra=...)`."""
    monkeypatch.setattr(client, "BINARY", BINARY)
    daemons: list[Daemon] = []

    def launch(*settings: str, clients: dict[str, list[str]] = RIGHTS, extra: str = "") -> Encrypted:
        # Who stands still within a handshake is cut off after 5 s by default, and hears nothing of its rights.
        settings = ("limits.handshake_timeout_ms=600000", *settings)
        daemons.append(Daemon(tmp_path / "d", *settings, config=ring.config(clients, extra)))
        return Encrypted(daemons[-1], ring)

    yield launch
    # First: libzmq waits for ever to tell of an event where the other end of a monitor has been closed.
    for watched in WATCHED:
        if not watched.closed:
            watched.disable_monitor()
    WATCHED.clear()
    for daemon in daemons:
        daemon.close()


def watch(daemon: Daemon, found: Any) -> Any:
    """The events of a socket's connections. The default addresses of monitors are used again while they are still bound."""
    monitor = found.get_monitor_socket(addr=f"inproc://monitor-{next(NUMBERS)}")
    daemon.sockets.append(monitor)
    WATCHED.append(found)
    return monitor


def handshake(monitor: Any) -> int:
    """What became of a connection's handshake: the event that says so."""
    ends = {
        zmq.EVENT_HANDSHAKE_SUCCEEDED,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_DISCONNECTED,
    }
    while monitor.poll(round(1000 * PATIENCE_S)):
        event = int(recv_monitor_message(monitor)["event"])
        if event in ends:
            return event
    raise TimeoutError("nothing became of the handshake")


def walk(rows: int, **fields: Any) -> Map:
    states = 0.5 * np.sin(np.arange(rows + 1) / 5.0)[:, None]
    return {"states": states, "rewards": states[:-1, 0], **fields}


def test_append_query_subscribe(start: Start) -> None:
    encrypted = start("critic.warmup_rows=20", "critic.refit_first_rows=0")
    # By default one that is not answered within another 200 ms ends the connection: a busy machine may take longer.
    beats = {"HEARTBEAT_IVL": 200, "HEARTBEAT_TIMEOUT": 20_000}
    subscriber, _ = encrypted.socket(zmq.SUB, "publish", **beats)
    for kind in (zmq.DEALER, zmq.REQ):
        control = encrypted.control(kind=kind, **beats)
        stream = f"kind-{kind}"
        reply = control.ask("append", stream=stream, seq=0, **walk(50))
        assert (reply["accepted"], reply["next_seq"]) == (50, 50)
        assert control.ask("append", stream=stream, seq=0, **walk(50))["duplicates"] == 50
    push, _ = encrypted.socket(zmq.PUSH, "ingest", **beats)
    for i in range(20):
        push.send(pack({"stream": "pushed", "seq": 50 * i, **walk(50)}))
    offset = control.wait_for_offset(1100)["offset"]
    value = control.ask("value", states=[[0.1]], variance=True, min_offset=offset)
    assert value["offset"] >= 1100 and np.isfinite(value["mean"]).all()
    topics = set()
    while not {"status", "snapshot.default"} <= topics:
        topic, payload = receive(subscriber, PATIENCE_S)
        topics.add(topic)
        assert payload["v"] == 1
    # The same model, whichever way it is asked for.
    plain = encrypted.daemon.control().ask("value", states=[[0.1]], min_offset=offset)
    assert plain["mean"] == value["mean"]


def test_many_requests_at_a_time_and_large_ones(start: Start) -> None:
    encrypted = start("critic.dictionary_max=10", "critic.refit_first_rows=0")
    control = encrypted.control()
    for i in range(500):
        control.socket.send(pack({"id": i, "op": "ping"}))
    answers = []
    while len(answers) < 500 and control.socket.poll(round(1000 * PATIENCE_S)):
        answers.append(unpack(control.socket.recv())["id"])
    assert answers == list(range(500)), encrypted.daemon.log()[-2000:]
    rows = 4000
    states = np.random.default_rng(0).normal(size=(rows + 1, 20))
    reply = control.ask("append", stream="wide", seq=0, states=states, rewards=states[:-1, 0])
    assert reply["accepted"] == rows
    control.wait_for_offset(rows)


def test_what_a_producer_sent_arrives_although_it_left_at_once(start: Start) -> None:
    encrypted = start("critic.refit_first_rows=0")
    rows = 0
    for i in range(30):
        push, _ = encrypted.socket(zmq.PUSH, "ingest", events=False)
        for j in range(20):
            push.send(pack({"stream": f"s{i}", "seq": 10 * j, **walk(10)}))
        push.close(linger=round(1000 * PATIENCE_S))
        rows += 200
    encrypted.control().wait_for_offset(rows)


def test_producers_wait_while_the_inbox_is_full(start: Start) -> None:
    encrypted = start("inbox_messages=16", "batch_rows_max=64", "critic.refit_first_rows=0")
    push, _ = encrypted.socket(zmq.PUSH, "ingest")
    for i in range(2000):
        push.send(pack({"stream": "s", "seq": 20 * i, **walk(20)}))
    status = encrypted.control().wait_for_offset(40_000)
    assert status["offset"] == 40_000


def test_keys_that_are_not_listed_are_refused(start: Start) -> None:
    encrypted = start()
    for i, (kind, name) in enumerate([(zmq.DEALER, "control"), (zmq.PUSH, "ingest"), (zmq.SUB, "publish")]):
        _, monitor = encrypted.socket(kind, name, who="stranger")
        assert handshake(monitor) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        encrypted.wait_for_cut("unauthorised", i + 1)
    # One that takes somebody else for the daemon cannot even say hello.
    _, monitor = encrypted.socket(zmq.DEALER, "control", server="stranger")
    assert handshake(monitor) != zmq.EVENT_HANDSHAKE_SUCCEEDED
    _, monitor = encrypted.socket(zmq.DEALER, "control")
    assert handshake(monitor) == zmq.EVENT_HANDSHAKE_SUCCEEDED
    encrypted.works()


def test_plain_clients_are_refused(start: Start) -> None:
    encrypted = start()
    daemon = encrypted.daemon
    for kind, name in ((zmq.DEALER, "control"), (zmq.PUSH, "ingest"), (zmq.SUB, "publish")):
        plain: Any = zmq.Context.instance().socket(kind)
        daemon.sockets.append(plain)
        monitor = watch(daemon, plain)
        plain.connect(daemon.endpoints[f"curve_{name}"])
        assert handshake(monitor) != zmq.EVENT_HANDSHAKE_SUCCEEDED
    # One that is patient enough to say who it is.
    host, port = daemon.endpoints["curve_control"].removeprefix("tcp://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(52, b"\0"))
        encrypted.wait_for_cut("unsupported_mechanism")
    # And the other way round: keys are no use where nobody asks for them.
    daemon.endpoints["curve_control"] = daemon.endpoints["control"]
    _, monitor = encrypted.socket(zmq.DEALER, "control")
    assert handshake(monitor) != zmq.EVENT_HANDSHAKE_SUCCEEDED


OPERATIONS: list[tuple[str, Map, set[str]]] = [
    ("append", {"stream": "s", "seq": 0, "state": [0.0], "next_state": [0.5], "reward": 1.0}, {"append"}),
    ("value", {"states": [[0.0]]}, {"query"}),
    ("snapshot", {}, {"query"}),
    ("status", {}, {"query"}),
    ("hello", {}, {"query", "append"}),
    ("ping", {}, {"query", "append"}),
    ("streams", {}, {"query", "append"}),
    ("refit", {}, {"administer"}),
    ("checkpoint", {}, {"administer"}),
]


@pytest.mark.parametrize("who", RIGHTS)
def test_each_key_has_its_rights(start: Start, who: str) -> None:
    encrypted, rights = start(), set(RIGHTS[who])
    control = encrypted.control(who)
    for op, fields, needed in OPERATIONS:
        try:
            control.ask(op, **fields)
            code = "ok"
        except Refused as refused:
            code = refused.code
        assert (code != "unauthorised") == bool(rights & needed), (op, code)
    for kind, name, needed in ((zmq.PUSH, "ingest", "append"), (zmq.SUB, "publish", "query")):
        _, monitor = encrypted.socket(kind, name, who)
        expected = zmq.EVENT_HANDSHAKE_SUCCEEDED if needed in rights else zmq.EVENT_HANDSHAKE_FAILED_AUTH
        assert handshake(monitor) == expected, name
    # Plain sockets on loopback are none of the keys' business.
    encrypted.daemon.control().ask("status")


def test_garbage_at_the_port(start: Start) -> None:
    encrypted = start("limits.handshake_timeout_ms=500")
    encrypted.works()
    before, memory = encrypted.descriptors(), encrypted.daemon.memory_mib()
    host, port = encrypted.daemon.endpoints["curve_control"].removeprefix("tcp://").rsplit(":", 1)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
    noise = np.random.default_rng(1).bytes
    cases = [
        noise(5000),
        b"GET / HTTP/1.1\r\n\r\n" * 20,
        greeting[:30],
        greeting,
        greeting + noise(3000),
        greeting + b"\x04\xc8\x05HELLO\x01\x00" + noise(192),
        greeting + b"\x06" + struct.pack(">Q", 1 << 40) + b"\x05HELLO",
        greeting + b"\x02" + struct.pack(">Q", (1 << 63) - 1),
        greeting + b"\x00\x00" * 20_000,
        greeting + b"\x01\x00" * 20_000,
        b"",
    ]
    connections = []
    for case in cases * 10:
        connection = socket.create_connection((host, int(port)))
        connections.append(connection)
        try:
            connection.sendall(case)
        except OSError:
            # It was cut already.
            pass
    encrypted.works()
    for connection in connections:
        connection.settimeout(PATIENCE_S)
        try:
            while connection.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        connection.close()
    encrypted.works()
    when(lambda: encrypted.descriptors() <= before + 8, "the descriptors are given back")
    assert encrypted.daemon.memory_mib() < memory + 64


def test_a_client_that_never_reads_its_replies(start: Start) -> None:
    encrypted = start("limits.stall_timeout_ms=1000")
    other, question = encrypted.control(), pack({"id": 1, "op": "ping"})
    flooder, _ = encrypted.socket(zmq.DEALER, "control", RCVHWM=1, SNDHWM=1000, RCVBUF=4096)
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            if flooder.poll(50, zmq.POLLOUT):
                flooder.send(question)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        longest, deadline = 0.0, time.monotonic() + PATIENCE_S
        while encrypted.cut("stalled") == 0:
            began = time.monotonic()
            assert began < deadline, "it is cut"
            other.ask("ping")
            longest = max(longest, time.monotonic() - began)
        print(f"\nothers were answered within {1000 * longest:.0f} ms")
    finally:
        over.set()
        thread.join()
    encrypted.works()


def test_a_subscriber_that_never_reads(start: Start) -> None:
    calm = ("critic.dictionary_max=50", "critic.refit_first_rows=0")
    encrypted = start("limits.stall_timeout_ms=1000", "snapshot_interval_ms=10", "critic.warmup_rows=20", *calm)
    dead, _ = encrypted.socket(zmq.SUB, "publish", RCVHWM=1, RCVBUF=4096)
    alive, _ = encrypted.socket(zmq.SUB, "publish")
    receive(alive, PATIENCE_S)
    control, seq, deadline = encrypted.control(), 0, time.monotonic() + PATIENCE_S
    while encrypted.cut("stalled") == 0:
        assert time.monotonic() < deadline, "it is cut"
        # Of 300 numbers to a state, so that a model is large.
        states = np.random.default_rng(seq).normal(size=(101, 300))
        control.ask("append", stream="s", seq=seq, states=states, rewards=states[:-1, 0])
        seq += 100
        while alive.poll(0):
            alive.recv_multipart()
    receive(alive, PATIENCE_S)
    assert dead.poll(round(1000 * PATIENCE_S))


def test_limits_hold_for_those_with_keys_too(start: Start) -> None:
    encrypted = start(
        "limits.message_bytes_max=2000",
        "limits.frame_bytes_max=1024",
        "limits.parts_max=3",
        "limits.subscriptions_max=2",
    )

    def sends(frames: list[bytes], reason: str) -> None:
        sender = encrypted.control().socket
        sender.send_multipart(frames)
        encrypted.wait_for_cut(reason)

    control = encrypted.control()
    with pytest.raises(Refused, match="malformed"):
        reply = control.raw(bytes(1024))
        raise Refused(reply["error"])
    sends([bytes(1025)], "frame_too_large")
    sends([bytes(1000), bytes(1000), b"x"], "message_too_large")
    sends([b"a", b"b", b"c", b"d"], "too_many_parts")
    subscriber, _ = encrypted.socket(zmq.SUB, "publish")
    receive(subscriber, PATIENCE_S)
    subscriber.subscribe("a")
    subscriber.subscribe("b")
    encrypted.wait_for_cut("too_many_subscriptions")
    encrypted.works()


def test_connections_identities_and_silence_are_limited(start: Start) -> None:
    # Whether a connection is idle is looked at when the time for its handshake is over.
    encrypted = start("limits.connections_max=3", "limits.idle_timeout_ms=8000", "limits.handshake_timeout_ms=5000")
    monitors, idle = list[Any](), 0

    def a_fourth_is_refused() -> bool:
        """Whether it is, of four that come one after the other. Where this process stands still the first are idle for too long by then."""
        nonlocal idle
        monitors.clear()
        for _ in range(3):
            monitors.append(encrypted.socket(zmq.DEALER, "control", RECONNECT_IVL=-1)[1])
            assert handshake(monitors[-1]) == zmq.EVENT_HANDSHAKE_SUCCEEDED
        _, fourth = encrypted.socket(zmq.DEALER, "control", RECONNECT_IVL=-1)
        if handshake(fourth) != zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return True
        idle += 4
        encrypted.wait_for_cut("idle", idle)
        return False

    when(a_fourth_is_refused, "one too many to be refused")
    encrypted.wait_for_cut("too_many_connections")
    assert encrypted.cut("too_many_connections") == 1
    encrypted.wait_for_cut("idle", idle + 3)
    for monitor in monitors:
        assert handshake(monitor) == zmq.EVENT_DISCONNECTED


def test_nobody_takes_over_the_name_of_another(start: Start) -> None:
    encrypted = start()
    for count in (1, 2):
        named: Any = zmq.Context.instance().socket(zmq.DEALER)
        encrypted.daemon.sockets.append(named)
        named.curve_publickey, named.curve_secretkey = encrypted.ring.pair("all")
        named.curve_serverkey = encrypted.ring.pair("daemon")[0]
        named.routing_id, named.linger, named.reconnect_ivl = b"twin", 0, -1
        named.connect(encrypted.daemon.endpoints["curve_control"])
        named.send(pack({"id": 1, "op": "ping"}))
        encrypted.wait_for_cut("named_itself", count)
        assert not named.poll(0)
    encrypted.works()


class Hostile:
    """A client with a key, by hand (RFC 26), so that it can say what no library would."""

    def __init__(self, encrypted: Encrypted, name: str, kind: bytes, who: str = "all") -> None:
        host, port = encrypted.daemon.endpoints[f"curve_{name}"].removeprefix("tcp://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        public, secret = (zmq.utils.z85.decode(key) for key in encrypted.ring.pair(who))
        server = PublicKey(zmq.utils.z85.decode(encrypted.ring.pair("daemon")[0]))
        ours, count = PrivateKey.generate(), struct.Struct(">Q")
        self.socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(52, b"\0"))
        self.read(64)
        proof = Box(ours, server).encrypt(bytes(64), b"CurveZMQHELLO---" + count.pack(1)).ciphertext
        self.frame(4, b"\x05HELLO\x01\x00" + bytes(72) + bytes(ours.public_key) + count.pack(1) + proof)
        welcome = self.answer()
        opened = Box(ours, server).decrypt(welcome[24:], b"WELCOME-" + welcome[8:24])
        theirs, cookie = PublicKey(opened[:32]), opened[32:]
        vouch = Box(PrivateKey(secret), theirs).encrypt(bytes(ours.public_key) + bytes(server), b"VOUCH---" + bytes(16))
        socket_type = b"\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        initiate = public + bytes(16) + vouch.ciphertext + socket_type
        self.box, self.sent, self.count = Box(ours, theirs), 1, count
        sealed = self.box.encrypt(initiate, b"CurveZMQINITIATE" + count.pack(1)).ciphertext
        self.frame(4, b"\x08INITIATE" + cookie + count.pack(1) + sealed)
        assert self.answer()[:6] == b"\x05READY"

    def read(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            more = self.socket.recv(length - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def frame(self, flags: int, body: bytes) -> None:
        short = len(body) < 256
        head = struct.pack(">BB", flags, len(body)) if short else struct.pack(">BQ", flags | 2, len(body))
        self.socket.sendall(head + body)

    def answer(self) -> bytes:
        flags, length = self.read(2)
        if flags & 2:
            length = struct.unpack(">Q", bytes([length]) + self.read(7))[0]
        return self.read(length)

    def message(self, body: bytes, more: bool) -> None:
        self.sent += 1
        sealed = self.box.encrypt(bytes([more]) + body, b"CurveZMQMESSAGEC" + self.count.pack(self.sent)).ciphertext
        self.frame(0, b"\x07MESSAGE" + self.count.pack(self.sent) + sealed)


def test_a_message_that_never_ends_is_cut(start: Start) -> None:
    # Frames without a body take more room than bytes: they are waited for first.
    encrypted = start("limits.message_bytes_max=20000", "limits.stall_timeout_ms=1000")
    encrypted.works()
    memory = encrypted.daemon.memory_mib()
    for name, kind in (("ingest", b"PUSH"), ("control", b"DEALER"), ("publish", b"SUB")):
        for size in (0, 10_000):
            before, hostile = encrypted.cut("message_too_large"), Hostile(encrypted, name, kind)
            with pytest.raises(OSError):
                for _ in range(1_000_000):
                    hostile.message(bytes(size), more=True)
            encrypted.wait_for_cut("message_too_large", before + 1)
            hostile.socket.close()
    assert encrypted.daemon.memory_mib() < memory + 64
    # The same by hand, within the limits, is served.
    hostile = Hostile(encrypted, "control", b"DEALER")
    hostile.message(pack({"id": 1, "op": "ping"}), more=False)
    assert hostile.answer()[:8] == b"\x07MESSAGE"
    # What was not encrypted with our key is no message.
    hostile.frame(0, b"\x07MESSAGE" + bytes(8 + 40))
    with pytest.raises((EOFError, OSError)):
        hostile.answer()
    encrypted.works()


@pytest.mark.long
@pytest.mark.parametrize("seconds", [10.0, pytest.param(90.0, marks=pytest.mark.nightly)])
def test_what_cannot_be_decrypted_costs_its_sender_alone(start: Start, seconds: float) -> None:
    encrypted = start("limits.connections_per_address_max=1000")
    encrypted.works()
    until, ended, answered = time.monotonic() + seconds, list[bool](), list[bool]()

    def goes_on() -> bool:
        """For some seconds, and until there was enough of both, however slow the machine is."""
        is_enough = len(ended) > 10 and len(answered) > 10
        return time.monotonic() < until or (not is_enough and time.monotonic() < until + PATIENCE_S)

    def sends_garbage() -> None:
        while goes_on():
            with contextlib.suppress(EOFError, OSError):
                hostile = Hostile(encrypted, "control", b"DEALER")
                hostile.frame(0, b"\x07MESSAGE" + bytes(8 + 40))
                with contextlib.suppress(EOFError, OSError):
                    hostile.answer()
                hostile.socket.close()
                ended.append(True)

    def asks() -> None:
        # Sessions of libzmq come and go; each of these may have the memory of one that met garbage.
        context: Any = zmq.Context()
        while goes_on():
            asking = context.socket(zmq.DEALER)
            asking.linger = 0
            asking.curve_publickey, asking.curve_secretkey = encrypted.ring.pair("all")
            asking.curve_serverkey = encrypted.ring.pair("daemon")[0]
            asking.connect(encrypted.daemon.endpoints["curve_control"])
            asking.send(pack({"id": 1, "op": "ping"}))
            assert asking.poll(round(1000 * PATIENCE_S)), "one that means well is answered"
            asking.close()
            answered.append(True)
        context.term()

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        threads = [pool.submit(program) for program in (sends_garbage, sends_garbage, asks, asks, asks)]
        for thread in threads:
            thread.result()
    assert len(ended) > 10 and len(answered) > 10
    assert encrypted.daemon.alive()


def half_message(hostile: Hostile) -> None:
    """Say that a frame of about a mebibyte follows, and send a part of it."""
    hostile.socket.sendall(struct.pack(">BQ", 2, 2**20 - 100) + bytes(60_000))


@pytest.mark.parametrize("name, kind", [("control", b"DEALER"), ("ingest", b"PUSH")])
def test_what_libzmq_holds_counts_in_the_total_of_all(start: Start, name: str, kind: bytes) -> None:
    encrypted = start("limits.stall_timeout_ms=60000")
    encrypted.works()
    memory = encrypted.daemon.memory_mib()
    hostile = [Hostile(encrypted, name, kind) for _ in range(60)]
    for each in hostile:
        half_message(each)
    # 32 MiB of long messages may have begun, those of plain clients included, and no more.
    when(lambda: encrypted.unfinished_mib() > 31, "as many to have begun as may")
    time.sleep(0.5)
    assert encrypted.unfinished_mib() <= 33
    assert encrypted.daemon.memory_mib() < memory + 64
    # Short requests pass. So do rows and requests where the long messages are of the other kind.
    encrypted.works()
    control, states = encrypted.control(), np.random.default_rng(0).normal(size=(2001, 8))
    rows = {"stream": "long", "seq": 0, "states": states, "rewards": states[:-1, 0]}
    if name == "ingest":
        assert control.ask("append", **rows)["accepted"] == 2000
    else:
        push, _ = encrypted.socket(zmq.PUSH, "ingest")
        push.send(pack(rows))
        control.wait_for_offset(2000)
    # What has gone makes room, once libzmq has let go of it.
    for each in hostile:
        each.socket.close()
    when(lambda: encrypted.unfinished_mib() == 0, "the room to be given back")
    control.socket.send(pack({"id": 1, "op": "ping", "what": "x" * 2**19}))
    assert "ok" in unpack(control.socket.recv())


def test_one_that_stops_within_a_message_gives_way(start: Start) -> None:
    encrypted = start("limits.stall_timeout_ms=1000")
    hostile = [Hostile(encrypted, "control", b"DEALER") for _ in range(40)]
    for each in hostile:
        half_message(each)
    control = encrypted.control()
    control.socket.send(pack({"id": 1, "op": "ping", "what": "x" * 2**19}))
    assert control.socket.poll(round(1000 * PATIENCE_S))
    encrypted.wait_for_cut("stalled")
    for each in hostile:
        each.socket.close()


def test_replies_that_wait_in_libzmq_are_counted(start: Start) -> None:
    calm = ("critic.dictionary_max=200", "critic.tolerance=1e-6", "critic.refit_first_rows=0")
    encrypted = start("limits.stall_timeout_ms=60000", "limits.saturated_timeout_ms=60000", *calm)
    control = encrypted.control()
    states = np.random.default_rng(0).normal(size=(1001, 4))
    control.ask("append", stream="s", seq=0, states=states, rewards=states[:-1, 0])
    control.ask("value", states=states[:1], min_offset=1000)
    greedy, _ = encrypted.socket(zmq.DEALER, "control", RCVHWM=1, RCVBUF=4096)
    for _ in range(200):
        # Some 350 kB each.
        greedy.send(pack({"id": 1, "op": "snapshot", "variance": True, "arrays": "list"}))
    when(lambda: encrypted.backlog_mib() > 8, "its share of replies to wait")
    for _ in range(50):
        control.ask("ping")
    assert encrypted.backlog_mib() < 17
    greedy.disable_monitor()
    greedy.close()
    when(lambda: encrypted.backlog_mib() == 0, "nothing to wait for one that has left")


FLOODS: dict[str, tuple[bytes, bool]] = {
    "long queries": (query(1, long_states(width=4)), True),
    "queries of another dimension": (query(1, long_states()), True),
    "queries for rows to come, never read": (query(1, long_states(width=4), min_offset=2**62), False),
    "appends": (append_of_bytes("flood"), True),
    "evaluations": (evaluation_of_bytes(), True),
    "snapshots, never read": (pack({"id": 1, "op": "snapshot", "variance": True, "arrays": "list"}), False),
    "names of streams": (
        pack({"id": 1, "op": "streams", "names": [f"{k:08d}".ljust(248, "n") for k in range(1024)]}),
        True,
    ),
    "an unknown key": (pack({"id": 1, "op": "ping", "what": [1] * 1_000_000}), True),
}


@pytest.mark.long
@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_from_one_key_takes_no_turn_of_another(start: Start, what: str) -> None:
    encrypted = start("critic.dictionary_max=100", "critic.refit_first_rows=0")
    control, (request, reads) = encrypted.control(), FLOODS[what]
    states = np.random.default_rng(0).normal(size=(501, 4))
    control.ask("append", stream="s", seq=0, states=states, rewards=states[:-1, 0])
    control.ask("value", states=states[:1], min_offset=500)
    most = control.ask("status")["memory"]["queues_bytes_max"] / 2**20 + 256
    floods = [encrypted.socket(zmq.DEALER, "control", events=False, SNDHWM=20)[0] for _ in range(4)]
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            for asking in floods:
                if asking.poll(0, zmq.POLLOUT):
                    asking.send(request)
                while reads and asking.poll(0):
                    asking.recv()
            time.sleep(0.001)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        longest, until = 0.0, time.monotonic() + 4
        for seq in itertools.count(500):
            began = time.monotonic()
            control.ask("ping")
            row = {"state": [0.0] * 4, "next_state": [0.5] * 4, "reward": 1.0}
            assert control.ask("append", stream="s", seq=seq, **row)["accepted"] == 1
            longest = max(longest, time.monotonic() - began)
            if began > until:
                break
        print(f"\na ping and an append took {1000 * longest:.0f} ms at the most")
        assert encrypted.daemon.memory_mib("VmHWM") < most
    finally:
        over.set()
        thread.join()
    for asking in floods:
        asking.close()
    encrypted.works()
    assert encrypted.daemon.terminate()[0] == 0


def test_coming_and_going_leaves_nothing_behind(start: Start) -> None:
    encrypted = start()
    for _ in range(20):
        encrypted.works()
    before, memory = encrypted.descriptors(), encrypted.daemon.memory_mib()
    for _ in range(300):
        control = encrypted.control()
        control.ask("ping")
        control.close()
    when(lambda: encrypted.descriptors() <= before + 8, "the descriptors are given back")
    assert encrypted.daemon.memory_mib() < memory + 32
    assert encrypted.daemon.terminate()[0] == 0


def test_what_was_asked_before_a_stop_is_answered(start: Start) -> None:
    encrypted = start()
    control, subscriber = encrypted.control(), encrypted.socket(zmq.SUB, "publish")[0]
    receive(subscriber, PATIENCE_S)
    control.ask("append", stream="s", seq=0, **walk(500))
    code, _ = encrypted.daemon.terminate()
    assert code == 0
    # The last snapshot comes through, within the time that `receive` waits.
    topic, payload = receive(subscriber)
    while topic != "snapshot.default" or payload["offset"] < 500:
        topic, payload = receive(subscriber)
    assert payload["offset"] == 500


def test_many_answers_at_a_stop(start: Start) -> None:
    encrypted = start()
    asking, each = [encrypted.control() for _ in range(3)], 300
    asking[0].ask("append", stream="s", seq=0, **walk(50))
    for control in asking:
        control.ask("ping")
        for i in range(each):
            # Of rows that never come: all are answered at the stop, and are more than the queue of replies holds.
            control.socket.send(pack({"id": i, "op": "value", "states": [[0.0]], "min_offset": 10_000}))
        control.socket.send(pack({"id": "last", "op": "ping"}))
        assert unpack(control.socket.recv())["id"] == "last", "all before it have been received"
    code, _ = encrypted.daemon.terminate()
    assert code == 0
    for control in asking:
        answers = set()
        while len(answers) < each and control.socket.poll(round(1000 * PATIENCE_S)):
            answers.add(unpack(control.socket.recv())["id"])
        assert answers == set(range(each))


# ---- keys in files ----


def test_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "keys"
    made = run("keys", "make", "arm", "--dir", directory)
    assert made.returncode == 0, made.stderr
    secret_file, public_file = directory / "arm.key_secret", directory / "arm.key"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
    public, secret = zmq.auth.load_certificate(secret_file)
    assert zmq.auth.load_certificate(public_file) == (public, None)
    assert secret is not None and zmq.curve_public(secret) == public, "they belong together"
    assert public.decode() in made.stdout and "[[clients]]" in made.stdout and "curve_secret_key" in made.stdout
    before = secret_file.read_bytes()
    again = run("keys", "make", "arm", "--dir", directory)
    assert again.returncode == 1 and "exists already" in again.stderr
    assert secret_file.read_bytes() == before
    other = json.loads(run("keys", "make", "leg", "--dir", directory, "--json").stdout)
    assert other["public_key"] != public.decode() and other["secret_file"].endswith("leg.key_secret")
    listed = run("keys", "list", "--dir", directory)
    assert public.decode() in listed.stdout and other["public_key"] in listed.stdout
    (directory / "leg.key_secret").chmod(0o644)
    document = json.loads(run("keys", "list", "--dir", directory, "--json").stdout)
    faults = {Path(entry["file"]).name: entry["fault"] for entry in document["keys"]}
    assert faults == {
        "arm.key": None,
        "arm.key_secret": None,
        "leg.key": None,
        "leg.key_secret": faults["leg.key_secret"],
    }
    assert "0644" in faults["leg.key_secret"]
    everything = made.stdout + made.stderr + again.stderr + listed.stdout + json.dumps(document)
    assert secret.decode() not in everything
    for bad in ("../arm", "", "a b"):
        assert run("keys", "make", bad, "--dir", directory).returncode == 2


def test_a_secret_key_that_others_may_read_is_refused(ring: Ring, tmp_path: Path) -> None:
    open_file = tmp_path / "open.key_secret"
    open_file.write_bytes(ring.secret_file("daemon").read_bytes())
    open_file.chmod(0o640)
    config = tmp_path / "criticd.toml"
    config.write_text(ring.config({"arm": ["append"]}).replace(str(ring.secret_file("daemon")), str(open_file)))
    secret = ring.pair("daemon")[1].decode()
    for command in (("serve", "--data-dir", tmp_path / "data", "--config", config), ("check-config", config)):
        refused = run(*command)
        assert refused.returncode != 0 and "chmod 600" in refused.stderr, refused.stderr
        assert secret not in refused.stdout + refused.stderr
    open_file.chmod(0o600)
    assert run("check-config", config).returncode == 0
    open_file.write_text(secret)
    refused = run("check-config", config)
    assert refused.returncode != 0 and "is it a key file?" in refused.stderr and secret not in refused.stderr


def test_a_start_that_fails_halfway_ends(ring: Ring, tmp_path: Path) -> None:
    """Sockets of the daemon's own lie in a private directory: where its path is too long for one, the start ends and says so."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    config = tmp_path / "criticd.toml"
    config.write_text(ring.config({"arm": ["append"]}))
    ports = itertools.chain(*((f"--{name}", "tcp://127.0.0.1:0") for name in ("ingest", "control", "publish")))
    arguments = ("serve", "--data-dir", tmp_path / "data", "--config", config, "--http", "off", *ports)
    refused = run(*arguments, env=os.environ | {"TMPDIR": str(long)})
    assert refused.returncode == 1, refused.stderr
    assert "private directory" in refused.stderr and "TMPDIR" in refused.stderr, refused.stderr


def test_secrets_are_nowhere_to_be_seen(start: Start, tmp_path: Path) -> None:
    encrypted = start("log=trace")
    ring, daemon = encrypted.ring, encrypted.daemon
    _, monitor = encrypted.socket(zmq.DEALER, "control", who="stranger")
    assert handshake(monitor) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    encrypted.works()
    shown = [Path(f"/proc/{daemon.process.pid}/{name}").read_text(errors="replace") for name in ("cmdline", "environ")]
    shown += [daemon.log(), (daemon.directory / "data" / "endpoints.json").read_text()]
    for arguments in (
        ("check-config", daemon.config),
        ("check-config", daemon.config, "--json"),
        ("serve", "--config", daemon.config, "--print-config"),
        ("keys", "list", "--dir", ring.directory),
    ):
        result = run(*arguments)
        assert result.returncode == 0, result.stderr
        shown += [result.stdout, result.stderr]
    secret = ring.pair("daemon")[1].decode()
    # Where the key stands instead of its file, or of a client's key.
    for text in (
        f'curve_secret_key = "{secret}"',
        f'clients = "{secret}"',
        f'clients = [{{ name = "arm", key = ["{secret}"] }}]',
        f'clients = [{{ name = "{secret}", key = "x" }}]',
    ):
        config = tmp_path / "wrong.toml"
        config.write_text(text)
        result = run("check-config", config)
        assert result.returncode != 0, result.stderr
        shown += [result.stdout, result.stderr]

    def is_read(path: str) -> bool:
        """Whether it is there: a daemon that has said nothing of its status yet refuses."""
        try:
            with urllib.request.urlopen(f"http://{daemon.endpoints['http']}{path}", timeout=PATIENCE_S) as page:
                shown.append(page.read().decode())
        except urllib.error.HTTPError as error:
            assert error.code == 503, error
            return False
        return True

    for path in ("/metrics", "/api/status"):
        when(lambda: is_read(path), path)  # noqa: B023
    shown.append(json.dumps(encrypted.control().ask("status", arrays="list"), default=str))
    assert "client_admitted" in daemon.log() and "client=all" in daemon.log()
    for name in ("daemon", *RIGHTS):
        hidden = ring.pair(name)[1].decode()
        assert all(hidden not in text and hidden[5:25] not in text for text in shown), name
