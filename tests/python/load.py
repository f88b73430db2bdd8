"""How fast rows are acknowledged and learned with and without a crowd of peers, and how long others wait during faults.

    python tests/python/load.py [TURNS [SECONDS]]

Turns with and without are interleaved, so that whatever else the machine does meets both. A row of the table gives the
medians over the turns, with the crowd and without: acknowledged rows per second by the clock; processor time for each
row, of the thread that stores and learns and of the whole daemon; and the slowest answer to another client. Peers run in
a process of their own, but on the same processors: the clock sees what they cost themselves, processor time does not.
The first is a measure of the daemon only where there are processors for everybody; the second, wherever one runs it, of
how much the thread that limits the rate is held up.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zmq
from client import Daemon, pack, unpack
from peers import GREETING, Crowd, Peer, allow_descriptors, announcing, frame, processor_seconds, subscriber

ROWS = 64
WINDOW = 16




def subscribers(daemon: Daemon, ready: Callable[[], None], over: Callable[[], bool]) -> None:
    """A thousand, of which a hundred never read."""
    dead = [subscriber(daemon) for _ in range(100)]
    with Crowd(daemon, 900):
        ready()
        while not over():
            time.sleep(0.05)
    for peer in dead:
        peer.close()


def churn(daemon: Daemon, ready: Callable[[], None], over: Callable[[], bool]) -> None:
    """One connection after the other, a thousand a second at most."""
    ready()
    while not over():
        for name, kind in (("control", "DEALER"), ("ingest", "PUSH"), ("publish", "SUB")):
            Peer(daemon, name, kind).close()
        time.sleep(0.003)


def faults(daemon: Daemon, ready: Callable[[], None], over: Callable[[], bool]) -> None:
    """What is in the table of `test_hostile_peers.py`, again and again."""
    flooder, request = Peer(daemon, "control", "DEALER"), frame(pack({"op": "status"})) * 64
    dead = [subscriber(daemon) for _ in range(20)]
    ready()
    while not over():
        silent = [Peer(daemon, "control") for _ in range(20)]
        absurd = Peer(daemon, "control", "DEALER")
        absurd.send(announcing(1 << 62))
        endless = Peer(daemon, "ingest", "PUSH")
        endless.send_until_cut(frame(b"", 1) * (1 << 12), 1 << 20)
        noise = Peer(daemon, "publish")
        noise.send(GREETING + bytes(range(256)))
        flooder.send_what_fits(request)
        for peer in (*silent, absurd, endless, noise):
            peer.close()
    for peer in (flooder, *dead):
        peer.close()


def measure(daemon: Daemon, seconds: float, streams: int, begun: dict[str, int]) -> list[float]:
    """Rows per second; microseconds of processor time per row of the core and of the daemon; slowest answer in ms."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(daemon.endpoints["control"])
    other, states = daemon.shared_control(), np.cumsum(np.full((ROWS + 1, 4), 0.01), axis=0) % 1.0
    rewards, rows, slowest, number = np.zeros(ROWS), 0, 0.0, 0
    waiting: dict[int, bytes] = {}
    other.ask("ping")
    used = [processor_seconds(daemon, "core"), processor_seconds(daemon)]
    start = asked = time.monotonic()
    while (now := time.monotonic()) < start + seconds or waiting:
        # With many streams none has two batches under way, so that one that must be sent again leaves no gap behind.
        while len(waiting) < (WINDOW if streams > WINDOW else 1) and now < start + seconds:
            stream = f"s{number % streams}"
            seq = begun.get(stream, 0)
            body = {"op": "append", "stream": stream, "seq": seq, "states": states, "rewards": rewards}
            waiting[number] = pack({"id": number, **body})
            socket.send(waiting[number])
            begun[stream] = seq + ROWS
            number += 1
        reply = unpack(socket.recv())
        if reply["ok"]:
            del waiting[reply["id"]]
            rows += ROWS
        else:
            assert reply["error"]["code"] == "overloaded", reply
            time.sleep(reply["error"]["retry_after_ms"] / 1000)
            socket.send(waiting[reply["id"]])
        if now > asked + 0.05:
            began = time.monotonic()
            other.ask("ping")
            asked = time.monotonic()
            slowest = max(slowest, asked - began)
    took = time.monotonic() - start
    socket.close()
    core = processor_seconds(daemon, "core") - used[0]
    whole = processor_seconds(daemon) - used[1]
    return [rows / took, 1e6 * core / rows, 1e6 * whole / rows, 1e3 * slowest]


def turn(daemon: Daemon, crowd: Callable[..., None] | None, seconds: float, streams: int, begun: dict[str, int]) -> list[float]:
    if crowd is None:
        return measure(daemon, seconds, streams, begun)
    ready, over = multiprocessing.Event(), multiprocessing.Event()
    process = multiprocessing.Process(target=crowd, args=(daemon, ready.set, over.is_set))
    process.start()
    ready.wait()
    try:
        return measure(daemon, seconds, streams, begun)
    finally:
        over.set()
        process.join()


CASES: dict[str, tuple[Callable[..., None] | None, int, int]] = {
    "1 000 subscribers, 100 never read": (subscribers, 32, 32),
    "10 000 streams instead of 32": (None, 10_000, 32),
    "connections that come and go": (churn, 32, 32),
    "faults": (faults, 32, 32),
}


def main() -> None:
    turns, seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5, float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    multiprocessing.set_start_method("fork")
    allow_descriptors(8192)
    limits = ("limits.connections_per_address_max=2000", "limits.stall_timeout_ms=3000")
    print("| with (without in brackets) | rows/s | of those without | core, us/row | daemon, us/row | slowest answer, ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (crowd, streams, before) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            few = ("streams_max=10000", "critic.refit_first_rows=0", "critic.dictionary_max=50")
            daemon = Daemon(Path(folder), *limits, *few)
            try:
                begun: dict[str, int] = {}
                # All streams are known before anything is measured.
                measure(daemon, 1.0 if streams == before else 3 * seconds, streams, begun)
                found = []
                for _ in range(turns):
                    without = turn(daemon, None, seconds, before, begun)
                    found.append((without, turn(daemon, crowd, seconds, streams, begun)))
            finally:
                daemon.close()
        without, together = ([statistics.median(column) for column in zip(*side)] for side in zip(*found))
        ratio = statistics.median(b[0] / a[0] for a, b in found)
        cells = [f"{b:.1f} ({a:.1f})" for a, b in zip(without, together)]
        print(f"| {name} | {cells[0]} | {ratio:.2f} | {' | '.join(cells[1:])} |", flush=True)


if __name__ == "__main__":
    main()
