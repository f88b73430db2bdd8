"""Producers that close while the daemon reads nothing: it learns what they sent, or counts a broken connection."""

from __future__ import annotations

import re
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import client
import pytest
import zmq
from client import PATIENCE_S, Control, Daemon, Map, pack, when
from conftest import Start
from peers import Peer, frame
from test_curve import BINARY as CURVE_BINARY
from test_curve import Ring
from test_curve import ring as ring  # a fixture

SETTINGS = ("inbox_messages=64", "critic.refit_first_rows=0", "critic.dictionary_max=20")
ROWS = 20_000
"""One row a message: far more than all buffers hold but those of the producer's own kernel."""
# Several turns of the daemon's timers, which look at connections that wait every 100 ms.
TURNS_S = 0.5
CLOSING = "closing\n"
"""What the program below says before it closes; then come its counters."""

SENDER = """
import sys
from criticd import Sender

endpoint, control, publish, rows = *sys.argv[1:4], int(sys.argv[4])
options = {"batch_rows": 4, "timeout_s": 300}
with Sender(endpoint, control=control, publish=publish, stream="closes", queue_rows=rows, **options) as sender:
    for i in range(rows):
        sender.send([i % 10 / 10, 0.5], 1.0, [i % 10 / 10, 0.25])
    print("closing", flush=True)
print(sender.counters.sent, sender.counters.lost, sender.counters.dropped)
"""


def row(stream: str, seq: int) -> bytes:
    body = {"state": [seq % 10 / 10, 0.5], "reward": 1.0, "next_state": [seq % 10 / 10, 0.25]}
    return pack({"stream": stream, "session": "run", "seq": seq, **body})


@contextmanager
def held(daemon: Daemon) -> Iterator[None]:
    """As long as nothing can be stored, nothing is read from producers."""
    control, push = daemon.shared_control(), daemon.push()
    push.send(row("before", 0))
    control.wait_for_offset(1)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    push.send(row("before", 1))
    when(lambda: control.ask("status")["read_only"], "it stores nothing")
    push.close()
    yield
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def look_again(daemon: Daemon, seconds: float = TURNS_S) -> None:
    """Wait until the daemon has looked several times at the connections that wait."""
    control = daemon.shared_control()
    end = control.ask("status")["uptime_s"] + seconds
    when(lambda: control.ask("status")["uptime_s"] > end, "it has looked again")


def at_rest(daemon: Daemon) -> Map:
    """The status when no producer is connected, and all that came is learned."""
    control = daemon.shared_control()
    when(lambda: daemon.metric('criticd_connections{socket="ingest"}') == 0, "no producer is connected")
    when(lambda: control.ask("status")["queues"]["ingest"]["waiting"] == 0, "nothing waits")
    # What was taken from the queue is stored with the group of the moment, and a later request comes behind that.
    before = -1
    while before != (status := control.ask("status"))["offset"]:
        before = status["offset"]
        time.sleep(0.1)
    return status


def pushed(endpoint: str, rows: int, prepare: Callable[[Any], None] = lambda socket: None) -> threading.Thread:
    """A producer that pushes and closes at once, in good order. The thread ends when libzmq has sent the rest."""
    context = zmq.Context()
    push: Any = context.socket(zmq.PUSH)
    push.setsockopt(zmq.SNDHWM, 0)
    prepare(push)
    push.connect(endpoint)
    for seq in range(rows):
        push.send(row("closes", seq))
    push.close(linger=-1)
    thread = threading.Thread(target=context.term)
    thread.start()
    return thread


def all_learned(daemon: Daemon, rows: int) -> None:
    daemon.shared_control().wait_for_offset(rows + 2)
    status = at_rest(daemon)
    assert (status["offset"], status["missing_rows"], status["connections_broken"]) == (rows + 2, 0, {}), daemon.log()


@pytest.fixture(params=["tcp", "ipc"])
def daemon(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Daemon:
    """A daemon over each transport that takes few messages ahead."""
    sockets = ("ingest", "control", "publish")
    ends = {name: f"ipc://{tmp_path / name}" for name in sockets} if request.param == "ipc" else None
    return start(*SETTINGS, endpoints=ends)


def test_pyzmq(daemon: Daemon) -> None:
    with held(daemon):
        producer = pushed(daemon.endpoints["ingest"], ROWS)
        look_again(daemon)
    producer.join()
    all_learned(daemon, ROWS)


@pytest.mark.skipif(not Path(CURVE_BINARY).exists(), reason="there is no criticd built with --features curve")
def test_pyzmq_encrypted(start: Start, ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BINARY", CURVE_BINARY)
    # It is held for longer than a connection may be idle: that is not the producer's fault. Where this process stands still its own
    # connection is idle, and what it asks as that is closed has no reply: so the limit is not as short as it could be.
    daemon = start(*SETTINGS, "limits.idle_timeout_ms=8000", config=ring.config({"arm": ["append"]}))

    def prepare(push: Any) -> None:
        push.curve_publickey, push.curve_secretkey = ring.pair("arm")
        push.curve_serverkey = ring.pair("daemon")[0]

    with held(daemon):
        producer = pushed(daemon.endpoints["curve_ingest"], ROWS, prepare)
        look_again(daemon, 10.0)
    producer.join()
    all_learned(daemon, ROWS)


def test_sender(daemon: Daemon) -> None:
    sender_closes(daemon, [daemon.endpoints[name] for name in ("ingest", "control", "publish")], SENDER)


@pytest.mark.skipif(not Path(CURVE_BINARY).exists(), reason="there is no criticd built with --features curve")
def test_sender_encrypted(start: Start, ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BINARY", CURVE_BINARY)
    daemon = start(*SETTINGS, config=ring.config({"arm": ["append", "query"]}))
    keys = f'"keys": Keys.load({str(ring.secret_file("arm"))!r}, {ring.pair("daemon")[0].decode()!r}), '
    code = SENDER.replace("import Sender", "import Keys, Sender").replace("options = {", "options = {" + keys)
    sender_closes(daemon, [daemon.endpoints[f"curve_{name}"] for name in ("ingest", "control", "publish")], code)


def sender_closes(daemon: Daemon, ends: list[str], code: str) -> None:
    command = [sys.executable, "-c", code, *ends, str(ROWS)]
    with held(daemon):
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None and select.select([program.stdout], [], [], PATIENCE_S)[0]
        assert program.stdout.readline() == CLOSING
        look_again(daemon)
    # The program ends with its `with` block: what libzmq holds has left by then.
    assert program.wait(PATIENCE_S) == 0 and program.stdout.read() == f"{ROWS} 0 0\n"
    all_learned(daemon, ROWS)


def test_a_sender_that_ends_too_early_says_what_it_lost(start: Start) -> None:
    daemon = start(*SETTINGS)
    ends = [daemon.endpoints[name] for name in ("ingest", "control", "publish")]
    rows = 400_000
    with held(daemon):
        code = SENDER.replace('"batch_rows": 4, "timeout_s": 300', '"batch_rows": 64, "timeout_s": 0.5')
        program = subprocess.run([sys.executable, "-c", code, *ends, str(rows)], stdout=subprocess.PIPE, text=True)
    sent, lost, dropped = map(int, program.stdout.removeprefix(CLOSING).split())
    daemon.shared_control().wait_for_offset(sent + 2)
    status = at_rest(daemon)
    assert sent + lost + dropped == rows and lost > 0
    # Of those that the socket held last it cannot know: they count as lost.
    assert sent <= status["offset"] - 2 <= sent + (16 + 2) * 64


def test_broken_connections_are_counted_and_logged(start: Start) -> None:
    daemon = start("critic.refit_first_rows=0")
    control = daemon.shared_control()

    def breaks(reason: str, begun: int, close: Callable[[Peer], None]) -> None:
        peer = Peer(daemon, "ingest", "PUSH")
        stream = f"{reason}-{begun}"
        peer.send(frame(row(stream, 0)) + frame(row(stream, 1)) + frame(bytes(1000))[: 9 + begun])
        when(lambda: stream in control.ask("streams")["streams"], "its first row is learned")
        before = control.ask("status")["connections_broken"].get(reason, 0)
        close(peer)
        when(lambda: control.ask("status")["connections_broken"].get(reason, 0) == before + 1, f"{reason} is counted")
        line = rf"event=connection_broken .* reason={reason} .* peer=127.0.0.1 messages=2 bytes_of_next={begun} "
        when(lambda: re.search(line, daemon.log()), "it is logged")
        # Of several within a second one is logged.
        time.sleep(1.1)

    def reset(peer: Peer) -> None:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    breaks("mid_message", 700, Peer.close)
    breaks("reset", 300, reset)
    for reason in ("mid_message", "reset"):
        sample = f'criticd_disconnected_peers_total{{reason="{reason}"}}'
        when(lambda: daemon.metric(sample) == 1, sample)  # noqa: B023
    assert control.wait_for_offset(4)["offset"] == 4


@pytest.mark.skipif(not Path(CURVE_BINARY).exists(), reason="there is no criticd built with --features curve")
def test_a_broken_encrypted_connection_is_counted(start: Start, ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BINARY", CURVE_BINARY)
    daemon = start(config=ring.config({"arm": ["append"]}))
    host, port = daemon.endpoints["curve_ingest"].removeprefix("tcp://").rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))

    def relay() -> None:
        """Carry the handshake and some of a long message, and break off."""
        near, far = listener.accept()[0], socket.create_connection((host, int(port)))
        threading.Thread(target=carry, args=(far, near, 1 << 30), daemon=True).start()
        carry(near, far, 20_000)
        far.shutdown(socket.SHUT_WR)

    threading.Thread(target=relay, daemon=True).start()
    push: Any = zmq.Context.instance().socket(zmq.PUSH)
    daemon.sockets.append(push)
    push.curve_publickey, push.curve_secretkey = ring.pair("arm")
    push.curve_serverkey = ring.pair("daemon")[0]
    push.setsockopt(zmq.LINGER, 0)
    push.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
    push.send(bytes(100_000))
    control = daemon.shared_control()
    when(lambda: control.ask("status")["connections_broken"] == {"mid_message": 1}, "it is counted")
    listener.close()


def carry(source: socket.socket, sink: socket.socket, most: int) -> None:
    try:
        while most > 0 and (data := source.recv(min(most, 1 << 16))):
            sink.sendall(data)
            most -= len(data)
    except OSError:
        pass


@pytest.mark.nightly
@pytest.mark.long
def test_a_hundred_closings(start: Start) -> None:
    """10^7 rows of senders that come one after another, each closing while the learner is behind."""
    daemon = start("inbox_messages=64", "window_rows=20000", "critic.refit_first_rows=0", "critic.dictionary_max=200")
    ends = [daemon.endpoints[name] for name in ("ingest", "control", "publish")]
    runs, rows = 100, 100_000
    for number in range(runs):
        code = SENDER.replace('"closes"', f'"closes-{number}"').replace(": 4", f": {2 ** (number % 10)}")
        program = subprocess.run([sys.executable, "-c", code, *ends, str(rows)], stdout=subprocess.PIPE, text=True)
        assert program.stdout == f"{CLOSING}{rows} 0 0\n"
    control: Control = daemon.shared_control()
    status = control.wait_for_offset(runs * rows)
    assert (status["offset"], status["missing_rows"], status["connections_broken"]) == (runs * rows, 0, {})
