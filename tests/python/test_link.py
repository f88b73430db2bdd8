"""Producers and subscribers at the other end of a line that is cut, or that delays, loses and reorders packets.

Each test has two network namespaces of its own, and the line between them: it needs root, `ip` and /dev/net/tun.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import client
import pytest
from client import PATIENCE_S, Daemon, when
from test_curve import BINARY as CURVE_BINARY
from test_curve import RIGHTS, Ring
from test_curve import ring as ring  # a fixture

pytestmark = [pytest.mark.nightly, pytest.mark.long]

NUMBERS = itertools.count()
# Of the block that RFC 2544 keeps for tests of networks; they are only known in the namespaces.
DAEMON, PEER = "198.18.77.1", "198.18.77.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CALM = ("critic.refit_first_rows=0", "critic.dictionary_max=20")
TOLD_S = 120.0
"""Keepalive asks after 15 s of silence, and gives up after five questions in 15 s; 30 s for what is not confirmed."""

PRODUCER = """
import sys, time, zmq
from client import pack

endpoint, name, first, rows, pause, *keys = sys.argv[1:]
push = zmq.Context.instance().socket(zmq.PUSH)
push.setsockopt(zmq.SNDHWM, 0)
push.setsockopt(zmq.ROUTING_ID, name.encode())
if keys:
    push.curve_publickey, push.curve_secretkey, push.curve_serverkey = (key.encode() for key in keys)
push.connect(endpoint)
for seq in range(int(first), int(first) + int(rows)):
    row = {"state": [seq % 10 / 10], "reward": 1.0, "next_state": [(seq + 1) % 10 / 10]}
    push.send(pack({"stream": name, "session": "run", "seq": seq, **row}))
    time.sleep(float(pause))
print("sent", flush=True)
sys.stdin.read()
push.close(linger=100_000)
# Without it the program may end, and with it the thread that sends.
zmq.Context.instance().term()
"""

SUBSCRIBER = """
import sys, zmq

endpoint, *keys = sys.argv[1:]
subscriber = zmq.Context.instance().socket(zmq.SUB)
if keys:
    subscriber.curve_publickey, subscriber.curve_secretkey, subscriber.curve_serverkey = (key.encode() for key in keys)
subscriber.subscribe("")
subscriber.connect(endpoint)
while True:
    subscriber.recv_multipart()
    print("heard", flush=True)
"""


class Line:
    """Two network namespaces, and the packets between them."""

    def __init__(self, delay_s: float = 0.0, lost: float = 0.0) -> None:
        self.delay_s, self.lost, self.is_cut = delay_s, lost, False
        number = f"{os.getpid()}-{next(NUMBERS)}"
        self.spaces = [f"criticd-{number}-{end}" for end in "ab"]
        self._ends: list[int] = []
        self._over = threading.Event()
        self._relay = threading.Thread(target=self._pass_on)
        try:
            self._lay()
        except BaseException:
            self.close()
            raise
        self._relay.start()

    def _lay(self) -> None:
        for space, own, other in zip(self.spaces, (DAEMON, PEER), (PEER, DAEMON), strict=True):
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            device = f"cr{os.getpid() % 100_000}x{next(NUMBERS)}"
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self._ends.append(end)
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
            ip("link", "set", device, "netns", space)
            ip("-n", space, "address", "add", own, "peer", other, "dev", device)
            ip("-n", space, "link", "set", device, "up")

    def _pass_on(self) -> None:
        rng, order = random.Random(1), itertools.count()
        under_way: list[tuple[float, int, int, bytes]] = []
        while not self._over.is_set():
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 0.05
            for end in select.select(self._ends, [], [], min(wait, 0.05))[0]:
                packet, other = os.read(end, 65_536), self._ends[end == self._ends[0]]
                if not self.is_cut and rng.random() >= self.lost:
                    # Each takes its own time: a later one may overtake it.
                    due = time.monotonic() + self.delay_s * rng.uniform(0.5, 1.5)
                    heapq.heappush(under_way, (due, next(order), other, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, other, packet = heapq.heappop(under_way)
                if not self.is_cut:
                    os.write(other, packet)

    def close(self) -> None:
        self._over.set()
        if self._relay.is_alive():
            self._relay.join()
        for end in self._ends:
            os.close(end)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


Connect = Callable[..., "World"]


class World:
    """A daemon at one end of a line, and programs at the other."""

    def __init__(self, line: Line, daemon: Daemon, keys: list[str]) -> None:
        self.line, self.daemon, self.keys = line, daemon, keys
        self.programs: list[subprocess.Popen[str]] = []
        self.control = daemon.control()

    def endpoint(self, name: str) -> str:
        return self.daemon.endpoints[f"curve_{name}" if self.keys else name]

    def run(self, script: str, *arguments: object) -> subprocess.Popen[str]:
        """A program at the other end of the line."""
        command = ["ip", "netns", "exec", self.line.spaces[1], sys.executable, "-c", script]
        command += [*map(str, arguments), *self.keys]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.programs.append(program)
        return program

    def produce(self, name: str, first: int, rows: int, pause: float = 0.0) -> subprocess.Popen[str]:
        return self.run(PRODUCER, self.endpoint("ingest"), name, first, rows, pause)

    def connections(self) -> int:
        """Connections of the daemon that its kernel takes for open, over the line."""
        lines = Path(f"/proc/{self.daemon.process.pid}/net/tcp").read_text().splitlines()[1:]
        own = struct.unpack("<I", bytes(map(int, DAEMON.split("."))))[0]
        return sum(line.split()[1].startswith(f"{own:08X}") and line.split()[3] == "01" for line in lines)


@pytest.fixture(params=["plain", "curve"])
def connect(
    request: pytest.FixtureRequest, tmp_path: Path, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Connect]:
    """Connect a daemon and programs by a line: `connect(*settings, delay_s=..., lost=...)`."""
    encrypted = request.param == "curve"
    binary = CURVE_BINARY if encrypted else client.BINARY
    if encrypted and not Path(binary).exists():
        pytest.skip("there is no criticd built with --features curve")
    worlds: list[World] = []
    lines: list[Line] = []

    def launch(*settings: str, delay_s: float = 0.0, lost: float = 0.0) -> World:
        try:
            lines.append(Line(delay_s, lost))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces: {error}")
        wrapper = tmp_path / "criticd-in-its-namespace"
        wrapper.write_text(f'#!/bin/sh\nexec ip netns exec {lines[-1].spaces[0]} {binary} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setattr(client, "BINARY", str(wrapper))
        ends = {"control": f"ipc://{tmp_path / 'control'}"}
        if encrypted:
            config = ring.config(RIGHTS).replace("127.0.0.1", DAEMON)
            ends |= {name: f"ipc://{tmp_path / name}" for name in ("ingest", "publish")}
            keys = [key.decode() for key in (*ring.pair("all"), ring.pair("daemon")[0])]
        else:
            config = f'insecure = true\nallow = [{{ addresses = "{PEER}", rights = ["append", "query"] }}]\n'
            ends |= dict.fromkeys(("ingest", "publish"), f"tcp://{DAEMON}:0")
            keys = []
        daemon = Daemon(tmp_path / "d", *CALM, *settings, config=config, endpoints=ends)
        worlds.append(World(lines[-1], daemon, keys))
        return worlds[-1]

    yield launch
    for world in worlds:
        for program in world.programs:
            program.kill()
            program.wait()
        world.daemon.close()
    for line in lines:
        line.close()


def said(program: subprocess.Popen[str]) -> str:
    """The next line that a program writes."""
    assert program.stdout is not None
    return program.stdout.readline().strip()


def test_peers_that_vanish_without_a_word_are_given_up(connect: Connect) -> None:
    world = connect()
    producer = world.produce("robot", 0, 500)
    subscriber = world.run(SUBSCRIBER, world.endpoint("publish"))
    assert (said(producer), said(subscriber)) == ("sent", "heard")
    world.control.wait_for_offset(500)
    assert world.connections() == 2
    world.line.is_cut = True
    for program in (producer, subscriber):
        program.kill()
        program.wait()
    when(lambda: world.connections() == 0, "the connections are given up", TOLD_S)
    when(lambda: world.control.ask("status")["connections_broken"] == {"reset": 1}, "the producer's end is counted")
    assert "event=connection_broken socket=ingest reason=reset" in world.daemon.log()
    # The same name may come again, and its rows go on.
    world.line.is_cut = False
    assert said(world.produce("robot", 500, 500)) == "sent"
    status = world.control.wait_for_offset(1000)
    assert (status["offset"], status["missing_rows"]) == (1000, 0)


def test_a_line_that_is_cut_for_a_while_costs_no_row(connect: Connect) -> None:
    world, rows = connect(), 4000
    producer = world.produce("robot", 0, rows, 0.001)
    world.control.wait_for_offset(500)
    world.line.is_cut = True
    time.sleep(6.0)
    world.line.is_cut = False
    assert said(producer) == "sent"
    status = world.control.wait_for_offset(rows)
    assert (status["offset"], status["missing_rows"], status["connections_broken"]) == (rows, 0, {})


def test_packets_that_are_late_lost_or_overtaken_cost_no_row(connect: Connect) -> None:
    world, rows = connect(delay_s=0.02, lost=0.02), 5000
    subscriber = world.run(SUBSCRIBER, world.endpoint("publish"))
    producers = [world.produce(f"robot-{k}", 0, rows) for k in range(3)]
    assert [said(producer) for producer in producers] == ["sent"] * 3
    # They end in good order: libzmq sends the rest.
    for producer in producers:
        assert producer.stdin is not None
        producer.stdin.close()
    status = world.control.wait_for_offset(3 * rows)
    assert (status["offset"], status["missing_rows"], status["connections_broken"]) == (3 * rows, 0, {})
    assert all(producer.wait(PATIENCE_S) == 0 for producer in producers)
    assert [said(subscriber) for _ in range(3)] == ["heard"] * 3
