"""How fast rows are acknowledged and learned with and without a crowd of peers, and how long others wait during faults.

    python tests/python/load.py [TURNS [SECONDS]]

Turns with and without are interleaved, so that whatever else the machine does meets both. A row of the table gives the
medians over the turns: appended rows per second by the clock, the same with the crowd relative to without, the daemon's
processor time per row, and the slowest answer to another client. Peers run in a process of their own, but on the same
processors: the clock sees them, the daemon's processor time does not.
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


def measure(daemon: Daemon, seconds: float, streams: int, begun: dict[str, int]) -> tuple[float, float, float]:
    """Rows per second, the daemon's microseconds of processor time per row, slowest answer to another client in ms."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(daemon.endpoints["control"])
    other, states = daemon.shared_control(), np.cumsum(np.full((ROWS + 1, 4), 0.01), axis=0) % 1.0
    rewards = np.zeros(ROWS)
    open_requests, rows, slowest, number = 0, 0, 0.0, 0
    other.ask("ping")
    used, start = processor_seconds(daemon), time.monotonic()
    asked = start
    while (now := time.monotonic()) < start + seconds or open_requests:
        while open_requests < WINDOW and now < start + seconds:
            stream = f"s{number % streams}"
            seq = begun.get(stream, 0)
            body = {"id": number, "op": "append", "stream": stream, "seq": seq, "states": states, "rewards": rewards}
            socket.send(pack(body))
            begun[stream] = seq + ROWS
            number, open_requests = number + 1, open_requests + 1
        reply = unpack(socket.recv())
        assert reply["ok"], reply
        open_requests -= 1
        rows += ROWS
        if now > asked + 0.05:
            began = time.monotonic()
            other.ask("ping")
            asked = time.monotonic()
            slowest = max(slowest, asked - began)
    took = time.monotonic() - start
    socket.close()
    return rows / took, 1e6 * (processor_seconds(daemon) - used) / rows, 1e3 * slowest


def turn(daemon: Daemon, crowd: Callable[..., None] | None, seconds: float, streams: int, begun: dict[str, int]):
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


CASES: dict[str, tuple[Callable[..., None] | None, int]] = {
    "1 000 subscribers, 100 never read": (subscribers, 1),
    "10 000 streams": (None, 10_000),
    "connections that come and go": (churn, 1),
    "faults": (faults, 1),
}


def main() -> None:
    turns, seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5, float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    multiprocessing.set_start_method("fork")
    allow_descriptors(8192)
    limits = ("limits.connections_per_address_max=2000", "limits.stall_timeout_ms=3000")
    with tempfile.TemporaryDirectory() as folder:
        print("| with | rows/s | of those without | us of the daemon per row | without | slowest answer, ms | without |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for number, (name, (crowd, streams)) in enumerate(CASES.items()):
            settings = (*limits, "critic.refit_first_rows=0", "critic.dictionary_max=50")
            daemon, begun = Daemon(Path(folder) / str(number), *settings), {}
            measure(daemon, 1.0, 1, begun)
            if streams > 1:
                measure(daemon, seconds, streams, begun)  # all of them are known before anything is measured
            found = [
                (turn(daemon, None, seconds, 1, begun), turn(daemon, crowd, seconds, streams, begun))
                for _ in range(turns)
            ]
            without, together = (
                [statistics.median(pair[k][i] for pair in found) for i in range(3)] for k in range(2)
            )
            ratio = statistics.median(pair[1][0] / pair[0][0] for pair in found)
            print(
                f"| {name} | {together[0]:.0f} | {ratio:.2f} | {together[1]:.1f} | {without[1]:.1f} "
                f"| {together[2]:.1f} | {without[2]:.1f} |",
                flush=True,
            )
            daemon.close()


if __name__ == "__main__":
    main()
