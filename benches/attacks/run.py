"""What one client's worst requests cost another client, the learner, and memory.

    python benches/attacks/run.py [--binary PATH] [--seconds N] [--only NAME] [--json FILE]
    python benches/attacks/run.py --floods [--dictionary M] [the same]

Each attack meets a fresh daemon on loopback. Attackers run in processes of their own and never stop sending. Another
process asks `ping`, `value` of one state and `append` of one row in turns every 10 ms, and measures how late it woke from its
own sleep ("scheduler"), which a busy machine delays too. At the end the daemon gets a SIGTERM while the attack goes
on. Exit status 1: beyond the scheduler's longest delay, a `ping` or `value` takes longer than 100 ms, or an `append` longer
than 1 s; or the daemon takes more memory than it states, or SIGTERM takes longer than 10 s.

With `--floods` a producer pushes rows as fast as they are taken, and the table has, for each of the worst floods of
valid requests, rows learned per second of processor time of the thread that learns, beside those of a daemon next to a
process that computes and asks for nothing: caches and clock are shared in both cases (for two of them: that has as many
streams, that multiplies matrices as a refit does). With a dictionary of `--dictionary`
the thread learns about 50 000 rows a second. Exit status 1: a flood leaves less than 0.9 of them, takes more memory than
the daemon states, or SIGTERM takes longer than 10 s.

Needs pyzmq, msgpack and numpy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

ROOT = Path(__file__).resolve().parents[2]
Ends = dict[str, str]
Attack = Callable[[Ends], None]

DIM = 4
STREAMS = 65_000
# Of one `act` request: about as many as its bound on work allows with a dictionary of 260 elements.
CANDIDATES = 500
PATIENCE_S = 120.0


def pack(message: dict[str, Any]) -> bytes:
    return bytes(msgpack.packb({"v": 1, **message}))


def dealer(ends: Ends, name: str = "control", kind: int = zmq.DEALER, source: str = "") -> zmq.Socket[bytes]:
    """A socket that is connected, from the address `source` if that is given."""
    made = zmq.Context.instance().socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    made.connect(ends[name].replace("tcp://", f"tcp://{source}:0;") if source else ends[name])
    return made


def rows(seq: int, count: int) -> list[list[float]]:
    return [[((seq + k) * (7919 * j + 3) % 10_007) / 10_007 for j in range(DIM)] for k in range(count + 1)]


# ---- attacks: each runs until it is killed


def ask_without_end(ends: Ends, requests: Iterator[bytes], reads: bool = False) -> None:
    """Requests as fast as they are taken; replies are read, or left."""
    asking = dealer(ends)
    asking.setsockopt(zmq.RCVHWM, 1 if not reads else 0)
    while True:
        asking.send(next(requests))
        while reads and asking.poll(0):
            asking.recv()


def again(payload: bytes) -> Iterator[bytes]:
    while True:
        yield payload


def states_of_bytes(count: int, width: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + (bytes([0x90 | width]) + b"\x01" * width) * count


def value(states: bytes, **fields: Any) -> bytes:
    keys = {"v": 1, "id": 1, "op": "value", **fields}
    head = b"".join(msgpack.packb(key) + msgpack.packb(item) for key, item in keys.items())
    return bytes([0x80 | len(keys) + 1]) + head + msgpack.packb("states") + states


def wrong_dimension(ends: Ends) -> None:
    ask_without_end(ends, again(value(states_of_bytes(65_000, 15))), reads=True)


def right_dimension(ends: Ends) -> None:
    ask_without_end(ends, again(value(states_of_bytes(65_000, DIM))), reads=True)


def unknown_key(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "ping", "what": [1] * 1_000_000})), reads=True)


def many_states(ends: Ends) -> None:
    states = [[(k % 100) / 100] * DIM for k in range(20_000)]
    ask_without_end(ends, again(pack({"id": 1, "op": "value", "states": states, "variance": True})), reads=True)


def many_candidates(ends: Ends) -> None:
    candidates = [k / CANDIDATES for k in range(CANDIDATES)]
    fields = {"exploration": "ucb", "beta": 1.0, "states": [[0.5] * DIM], "candidates": candidates}
    ask_without_end(ends, again(pack({"id": 1, "op": "act", **fields})), reads=True)


def too_many_candidates(ends: Ends) -> None:
    head = b"".join(listed(key, item) for key, item in (("v", 1), ("id", 1), ("op", "act"), ("beta", 1.0)))
    head += listed("exploration", "ucb") + listed("states", [[0.5] * DIM]) + msgpack.packb("candidates")
    count = 1_000_000
    ask_without_end(ends, again(b"\x87" + head + b"\xdd" + struct.pack(">I", count) + b"\x01" * count), reads=True)


def snapshots(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "snapshot", "variance": True, "arrays": "list"})), reads=True)


def status(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "status"})))


def long_waiters(ends: Ends) -> None:
    ask_without_end(ends, again(value(states_of_bytes(65_000, 15), min_offset=2**62)))


def short_waiters(ends: Ends) -> None:
    waiter = pack({"id": 1, "op": "value", "states": [[0.0] * DIM], "min_offset": 2**62})
    ask_without_end(ends, again(waiter), reads=True)


def long_appends(ends: Ends) -> None:
    state = b"\xdc" + struct.pack(">H", 254) + b"\x07" * 254
    states = b"\xdc" + struct.pack(">H", 4001) + state * 4001
    rewards = b"\xdc" + struct.pack(">H", 4000) + b"\x01" * 4000

    def requests() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            keys = {"v": 1, "id": 1, "op": "append", "stream": f"a{number}", "seq": 0}
            head = b"".join(msgpack.packb(key) + msgpack.packb(item) for key, item in keys.items())
            start = bytes([0x80 | len(keys) + 2]) + head
            yield start + msgpack.packb("states") + states + msgpack.packb("rewards") + rewards

    ask_without_end(ends, requests(), reads=True)


def make_streams(ends: Ends) -> zmq.Socket[bytes]:
    """Each is made by a message of one row. Keep the socket: waiting messages would go with it."""
    push = dealer(ends, "ingest", zmq.PUSH)
    for k in range(STREAMS):
        row = {"stream": f"{k:08d}" + "n" * 240, "session": "s" * 256, "seq": 0, "reward": 0.0}
        push.send(pack({**row, "state": [0.0] * DIM, "next_state": [1.0] * DIM}))
    return push


def streams(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "streams"})))


def refit(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "refit", "wait": True})), reads=True)


def long_names(ends: Ends) -> None:
    names = [f"{k:06d}".ljust(256, "n") for k in range(1000)]
    ask_without_end(ends, again(pack({"id": 1, "op": "heads", "names": names})), reads=True)


def many_names(ends: Ends) -> None:
    names = [f"{k:06d}nnnnnnnn" for k in range(60_000)]
    ask_without_end(ends, again(pack({"id": 1, "op": "change_heads", "remove": names})), reads=True)


def labels(ends: Ends) -> None:
    """A set of labels that begins anew with each request."""
    count = 60_000
    part = {"name": "l", "from": 0, "offsets": list(range(count)), "values": [0.5] * count}
    ask_without_end(ends, again(pack({"id": 1, "op": "change_heads", "labels": part})), reads=True)


def policies(ends: Ends) -> None:
    """Another policy acts with each request."""

    def requests() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield pack({"id": 1, "op": "new_policy", "policy": f"p{number % 7}"})

    ask_without_end(ends, requests(), reads=True)


def policies_of_rows(ends: Ends) -> None:
    """Another policy acts with each row."""
    push, seq = dealer(ends, "ingest", zmq.PUSH), 0
    while True:
        row = {"stream": "policies", "seq": seq, "state": rows(seq, 0)[0], "next_state": rows(seq + 1, 0)[0]}
        push.send(pack({**row, "reward": 0.5, "policy": f"p{seq % 7}"}))
        seq += 1


def pages_of_rows(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "rows", "last": 100_000, "arrays": "list"})), reads=True)


def evaluations(ends: Ends) -> None:
    """Messages of 1 MiB of one-byte probabilities."""
    head = b"".join(listed(key, item) for key, item in (("v", 1), ("id", 1), ("op", "evaluate"), ("from", 0)))
    ask_without_end(ends, again(b"\x85" + head + msgpack.packb("probs") + states_of_bytes(65_000, 15)), reads=True)


def advice(ends: Ends) -> None:
    """Costs and decisions in turns: each decision has a system of up to 300 contexts to solve."""
    asking, pending, number = dealer(ends), 0, 0
    asking.setsockopt(zmq.RCVHWM, 0)
    decided: list[int] = []
    while True:
        while pending < 500:
            number += 1
            asking.send(pack({"id": 1, "op": "suggest", "context": [number * 0.618 % 1.0]}))
            pending += 1
            if decided:
                asking.send(pack({"id": 1, "op": "report", "decision_id": decided.pop(), "cost": 1.0}))
                pending += 1
        reply = msgpack.unpackb(asking.recv(), strict_map_key=False)
        pending -= 1
        if "decision_id" in reply:
            decided.append(reply["decision_id"])


def many_connections(ends: Ends) -> None:
    """A request that takes long, on 200 connections of another address."""
    peers = [dealer(ends, source="127.0.0.2") for _ in range(200)]
    payload = pack({"id": 1, "op": "ping", "what": [1] * 100_000})
    poller = zmq.Poller()
    for peer in peers:
        poller.register(peer, zmq.POLLIN)
        peer.send(payload)
    while True:
        for peer, _ in poller.poll():
            while peer.poll(0):
                peer.recv()
                peer.send(payload)


def compute(_: Ends) -> None:
    while True:
        pack({"id": 1, "op": "ping", "what": [1] * 10_000})


def multiply(_: Ends) -> None:
    matrix = np.ones((300, 300))
    while True:
        matrix = np.tanh(matrix @ matrix)


def greeting(mechanism: bytes = b"NULL") -> bytes:
    return bytes([0xFF, *[0] * 8, 0x7F, 3, 0]) + mechanism.ljust(20, b"\0") + bytes(32)


def ready(kind: bytes) -> bytes:
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    return bytes([4, len(body)]) + body


def reach(ends: Ends, name: str) -> socket.socket:
    host, port = ends[name].removeprefix("tcp://").rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), 5)
    peer.setblocking(False)
    return peer


def commands(name: str, kind: bytes) -> Attack:
    """Empty commands of three bytes, on ten connections."""

    def run(ends: Ends) -> None:
        peers = [reach(ends, name) for _ in range(10)]
        for peer in peers:
            peer.sendall(greeting() + ready(kind))
        noise = b"\x04\x01\x00" * 100_000
        at = [0] * len(peers)
        while True:
            for number, peer in enumerate(peers):
                try:
                    at[number] = (at[number] + peer.send(noise[at[number] :])) % len(noise)
                except BlockingIOError:
                    pass
                except OSError:
                    # The daemon stops.
                    return
            time.sleep(0.001)

    return run


def raw(name: str, sent: list[bytes], held: int = 0) -> Attack:
    """Connections without end that each send one of these in turn, and of which the last `held` stay."""

    def run(ends: Ends) -> None:
        open_ones: list[socket.socket] = []
        number = 0
        while True:
            try:
                open_ones.append(reach(ends, name))
                data = sent[number % len(sent)]
                while data:
                    data = data[open_ones[-1].send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                time.sleep(0.001)
            number += 1
            while len(open_ones) > held:
                open_ones.pop(0).close()

    return run


def pings(ends: Ends) -> None:
    """PING commands on ten connections; the answers are never read."""
    peers = [reach(ends, "control") for _ in range(10)]
    for peer in peers:
        peer.sendall(greeting() + ready(b"DEALER"))
    noise = (bytes([4, 7]) + b"\x04PING\x00\x00") * 100_000
    at = [0] * len(peers)
    while True:
        for number, peer in enumerate(peers):
            try:
                at[number] = (at[number] + peer.send(noise[at[number] :])) % len(noise)
            except BlockingIOError:
                pass
            except OSError:
                at[number] = 0
                try:
                    peers[number] = reach(ends, "control")
                    peers[number].sendall(greeting() + ready(b"DEALER"))
                except OSError:
                    # The daemon stops.
                    return
        time.sleep(0.001)


DEALS = greeting() + ready(b"DEALER")
# Frames that claim more than a message may have: long ones, and a command.
HEADERS = [DEALS + bytes([kind]) + struct.pack(">Q", size) for kind in (2, 3, 6) for size in (2**20 + 1, 2**40, 2**64 - 1)]
HANDSHAKES = [b"", greeting()[:30], greeting(b"PLAIN"), b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), DEALS[:-3], DEALS]
HALF_MESSAGE = DEALS + b"\x02" + struct.pack(">Q", 2**20 - 100) + bytes(2**20 - 200)
VISIT = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def nothing(_: Ends) -> None:
    time.sleep(1e6)


LABELS, ADVICE = "labels, 60 000 in a request", "suggest and report in turns"
UCB, UCB_REFUSED = "act, ucb among 500 candidates", "act, ucb among 1 000 000 candidates"
ATTACKS: dict[str, Attack] = {
    "nothing": nothing,
    "value, 1 MiB, wrong dimension": wrong_dimension,
    "value, 65 000 states of bytes": right_dimension,
    "ping with an unknown key of 1 MB": unknown_key,
    "value, 20 000 states with variance": many_states,
    "snapshot as lists": snapshots,
    "status, never read": status,
    "min_offset, 1 MiB each, never read": long_waiters,
    "min_offset, small": short_waiters,
    "append, 4000 x 254 one-byte numbers": long_appends,
    "streams, 65 000 of them, never read": streams,
    "refit with wait": refit,
    "heads, 1000 names of 256 bytes": long_names,
    "change_heads, 60 000 names": many_names,
    UCB: many_candidates,
    UCB_REFUSED: too_many_candidates,
    "ping with an unknown key of 100 kB, 200 connections of another address": many_connections,
    LABELS: labels,
    "new_policy, one of seven in turn": policies,
    "rows of another policy each": policies_of_rows,
    "rows, pages as lists": pages_of_rows,
    "evaluate, 1 MiB of probabilities": evaluations,
    ADVICE: advice,
    "frame headers of 1 MiB to 2^64": raw("control", HEADERS),
    "handshakes, wrong and cut": raw("control", HANDSHAKES, held=400),
    "connects": raw("control", [b""]),
    "half messages of 1 MiB": raw("control", [HALF_MESSAGE], held=200),
    "SSE visitors": raw("http", [VISIT], held=60),
    "half HTTP requests": raw("http", [VISIT[:20]], held=60),
    "PING, 10 connections": pings,
    "commands of 3 bytes, control, 10 connections": commands("control", b"DEALER"),
    "commands of 3 bytes, ingest, 10 connections": commands("ingest", b"PUSH"),
}

COMPUTES, MULTIPLIES = "a process that computes", "a process that multiplies matrices"
KNOWS_STREAMS = "65 000 streams, a process that computes"
STREAMS_FLOOD, REFITS = "streams, 65 000 of them, never read", "refit with wait"
# The quiet load beside which a flood is judged, if it is not COMPUTES: rows take longer with many streams, and where searches
# use the same units of the processor.
BASELINES = {STREAMS_FLOOD: KNOWS_STREAMS, REFITS: MULTIPLIES}
QUIET: dict[str, Attack] = {COMPUTES: compute, KNOWS_STREAMS: compute, MULTIPLIES: multiply}
# The loads of `--floods`.
FLOODS: dict[str, Attack] = QUIET | {
    name: ATTACKS[name]
    for name in (
        "value, 1 MiB, wrong dimension",
        "value, 65 000 states of bytes",
        "value, 20 000 states with variance",
        "ping with an unknown key of 1 MB",
        "snapshot as lists",
        "status, never read",
        "min_offset, 1 MiB each, never read",
        "append, 4000 x 254 one-byte numbers",
        LABELS,
        "new_policy, one of seven in turn",
        "rows, pages as lists",
        "evaluate, 1 MiB of probabilities",
        ADVICE,
        STREAMS_FLOOD,
        REFITS,
    )
}
SHARE_MIN, STOP_MAX_S = 0.9, 10.0
# Longest answers beyond the scheduler's longest delay.
LATE_MAX_MS = {"ping": 100.0, "value": 100.0, "append": 1000.0}
# Settings of the daemons that these attacks meet; every row has an action then.
CONTINUOUS = [
    "critic.inputs=state_action",
    "critic.actions={ low = [0.0], high = [1.0] }",
    "critic.successor=sarsa",
]
ACTS = {UCB, UCB_REFUSED}
ADVISOR = """
[[advisor]]
name = "advisor"
lengthscales = [0.001]
outputs = [{ mean = 0.0, deviation = 1.0 }, { mean = 0.0, deviation = 1.0 }]
"""


# ---- the client that is measured


def bystand(ends: Ends, seconds: float, acts: bool, results: Any) -> None:
    """Ask in turns, with actions if rows have them; lists of milliseconds, by what was asked."""
    asking, found = dealer(ends), {"ping": [], "value": [], "append": [], "scheduler": []}
    seq, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        for op in ("ping", "value", "append"):
            before = time.monotonic()
            time.sleep(0.01)
            found["scheduler"].append(1e3 * (time.monotonic() - before - 0.01))
            fields: dict[str, Any] = {}
            if op == "value":
                fields = {"states": [[0.5] * DIM], "variance": True} | ({"actions": [0.5]} if acts else {})
            elif op == "append":
                state, successor = rows(seq, 1)
                fields = {"stream": "bystander", "seq": seq, "state": state, "next_state": successor, "reward": 0.5}
                fields |= {"action": 0.5} if acts else {}
            before = time.monotonic()
            asking.send(pack({"id": 1, "op": op, **fields}))
            if not asking.poll(1000 * PATIENCE_S):
                found[op].append(1e3 * PATIENCE_S)
                results.put(found)
                return
            reply = msgpack.unpackb(asking.recv(), strict_map_key=False)
            found[op].append(1e3 * (time.monotonic() - before))
            seq += op == "append" and bool(reply["ok"])
    results.put(found)


def listed(key: str, item: Any) -> bytes:
    """A key and what is under it, as they stand in a map."""
    return bytes(msgpack.packb(key) + msgpack.packb(item))


def produce(ends: Ends) -> None:
    """Push rows, 256 a message, as fast as they are taken."""
    push, seq = dealer(ends, "ingest", zmq.PUSH), 0
    bodies = [listed("states", rows(256 * k, 256)) + listed("rewards", [0.5] * 256) for k in range(40)]
    head = b"\x85" + listed("v", 1) + listed("stream", "producer") + msgpack.packb("seq") + b"\xcf"
    while True:
        push.send(head + struct.pack(">Q", seq) + bodies[seq // 256 % len(bodies)])
        seq += 256


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Daemon:
    def __init__(self, binary: str, directory: Path, dictionary: int, more: list[str]) -> None:
        settings = [f"critic.dictionary_max={dictionary}", "critic.tolerance=1e-6", "critic.refit_first_rows=0"]
        settings += ["critic.refit_score_drop=0.0", "sync=os", "streams_max=65536", *more]
        file = directory / "settings.toml"
        file.write_text(ADVISOR)
        command = [binary, "serve", "--config", str(file), "--data-dir", str(directory), "--http", "127.0.0.1:0"]
        for name in ("ingest", "control", "publish"):
            command += [f"--{name}", "tcp://127.0.0.1:0"]
        for setting in settings:
            command += ["--set", setting]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        file = directory / "endpoints.json"
        while not file.exists():
            time.sleep(0.01)
        self.ends: Ends = json.loads(file.read_text())

    def memory_mib(self, what: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return float(line.split()[1]) / 1024
        raise RuntimeError(what)

    def core_seconds(self) -> float:
        total = 0.0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "core":
                total += int((task / "schedstat").read_text().split()[0]) * 1e-9
        return total

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        asking = dealer(self.ends)
        asking.send(pack({"id": 1, "op": op, **fields}))
        if not asking.poll(1000 * PATIENCE_S):
            asking.close()
            return {}
        reply: dict[str, Any] = msgpack.unpackb(asking.recv(), strict_map_key=False)
        asking.close()
        return reply


def run(binary: str, name: str, seconds: float, dictionary: int, with_rows: bool) -> dict[str, Any]:
    """Figures of an attack of so many seconds on a daemon with so large a dictionary, beside a producer if `with_rows`."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        acts = name in ACTS
        daemon = Daemon(binary, Path(folder), dictionary, CONTINUOUS if acts else [])
        made = []
        try:
            itself = daemon.memory_mib("VmRSS")
            for k in range(8):
                fields = {"states": rows(256 * k, 256), "rewards": [0.5] * 256}
                fields |= {"actions": [(k * j % 7) / 7 for j in range(256)]} if acts else {}
                daemon.ask("append", stream="first", seq=256 * k, **fields)
            daemon.ask("value", states=[[0.5] * DIM], min_offset=2048, **({"actions": [0.5]} if acts else {}))
            if name in (STREAMS_FLOOD, KNOWS_STREAMS):
                _push = make_streams(daemon.ends)
                while daemon.ask("status").get("streams", STREAMS) < STREAMS:
                    time.sleep(0.5)
            memory = daemon.ask("status").get("memory", {})
            said = (memory.get("queues_bytes_max", 0) + memory.get("kept_bytes_max", 0)) / 2**20 + itself
            if with_rows:
                made.append(context.Process(target=produce, args=(daemon.ends,), daemon=True))
                made[-1].start()
                time.sleep(3.0)
            attacker = context.Process(target=attack, args=(name, daemon.ends), daemon=True)
            attacker.start()
            made.append(attacker)
            time.sleep(2.0)
            before = daemon.ask("status").get("offset", 0), daemon.core_seconds(), time.monotonic()
            results = context.Queue()
            bystander = context.Process(target=bystand, args=(daemon.ends, seconds, acts, results), daemon=True)
            bystander.start()
            found = results.get()
            offset, core = daemon.ask("status").get("offset", 0), daemon.core_seconds()
            wall = time.monotonic() - before[2]
            peak = daemon.memory_mib("VmHWM")
            asked = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            try:
                daemon.process.wait(100)
                stop = time.monotonic() - asked
            except subprocess.TimeoutExpired:
                stop = float("inf")
        finally:
            for process in made:
                process.kill()
            daemon.process.kill()
            daemon.process.wait()
    figures: dict[str, Any] = {"attack": name, "peak_mib": peak, "said_mib": said, "stop_s": stop}
    for op, values in found.items():
        figures[op] = [percentile(values, 0.5), percentile(values, 0.99), max(values)]
    figures["rows_per_core_second"] = (offset - before[0]) / max(core - before[1], 1e-9)
    figures["rows_per_second"], figures["core_share"] = (offset - before[0]) / wall, (core - before[1]) / wall
    return figures


def attack(name: str, ends: Ends) -> None:
    (ATTACKS | FLOODS)[name](ends)


def latencies(figures: dict[str, Any]) -> list[str]:
    """Median, 99th percentile and maximum of each."""
    names = ("ping", "value", "append", "scheduler")
    return [" / ".join(f"{value:.0f}" for value in figures[op]) for op in names]


def within_bounds(figures: dict[str, Any]) -> bool:
    """Whether memory and SIGTERM kept what the daemon states."""
    return bool(figures["peak_mib"] <= figures["said_mib"] and figures["stop_s"] <= STOP_MAX_S)


def attacks(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    print("| attack | ping | value | append | scheduler | peak MiB (stated) | stop, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    all_figures: list[dict[str, Any]] = []
    holds = True
    for name in (name for name in ATTACKS if given.only in name):
        figures = run(given.binary, name, given.seconds, 100, with_rows=False)
        all_figures.append(figures)
        late = {op: figures[op][2] - figures["scheduler"][2] for op in LATE_MAX_MS}
        holds &= all(late[op] <= most for op, most in LATE_MAX_MS.items()) and within_bounds(figures)
        cells = [*latencies(figures), f"{figures['peak_mib']:.0f} ({figures['said_mib']:.0f})", f"{figures['stop_s']:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return all_figures, holds


def floods(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    print("| flood | rows/s | core busy | rows per core second | of those without | ping | peak MiB (stated) | stop, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    all_figures: list[dict[str, Any]] = []
    quiet: dict[str, float] = {}
    holds = True
    chosen = [name for name in FLOODS if given.only in name and name not in QUIET]
    wanted = {BASELINES.get(name, COMPUTES) for name in chosen}
    for name in [*(name for name in QUIET if name in wanted), *chosen]:
        figures = run(given.binary, name, given.seconds, given.dictionary, with_rows=True)
        all_figures.append(figures)
        per_second = figures["rows_per_core_second"]
        share = per_second / quiet.setdefault(BASELINES.get(name, name if name in QUIET else COMPUTES), per_second)
        holds &= share >= SHARE_MIN and within_bounds(figures)
        cells = [f"{figures['rows_per_second']:.0f}", f"{100 * figures['core_share']:.0f} %", f"{per_second:.0f}"]
        cells += [f"{share:.2f}", latencies(figures)[0], f"{figures['peak_mib']:.0f} ({figures['said_mib']:.0f})"]
        print(f"| {name} | {' | '.join(cells)} | {figures['stop_s']:.1f} |", flush=True)
    return all_figures, holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=os.environ.get("CRITICD_BIN", str(ROOT / "target/release/criticd")))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--floods", action="store_true")
    parser.add_argument("--dictionary", type=int, default=260, help="dictionary_max, with --floods")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {given.seconds:g} s each\n")
    figures, holds = floods(given) if given.floods else attacks(given)
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))
    if not holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
