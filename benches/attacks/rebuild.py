"""What clients and a service manager notice while a critic is learned again from a long journal.

    python benches/attacks/rebuild.py [--rows N] [--window N] [--dictionary M] [--binary PATH]

A daemon stores rows of four numbers, and stops. It starts with another discount: the model is set aside, and
the critic is learned again from the journal. Measured from this start on: the seconds until the daemon is ready; the
longest `ping`, and the longest `append` of one row, of a client that sends them in turns every 10 ms; the longest time
between two signs of life to the service manager; the seconds until the critic has been learned again; the most memory.
An outside review measured commit b48e42f with 5 000 000 rows, a window of 200 000 and a dictionary of 1000: an `append`
took 99.9 s, and the daemon gave no sign of life for 99.8 s. Exit status 1: no sign of life for 30 s.

The rows are stored with a dictionary of `--first-dictionary`, which is quicker. To learn 5 000 000 rows again with 1000
elements takes long. Progress goes to stderr. Needs pyzmq, msgpack and numpy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from attacks import DIM, dealer, pack
from daemon import BINARY, WATCHDOG_S, Bystander, Daemon, answer, percentile

PIECE = 4000
LOOK_S = 2.0


def tell(text: str) -> None:
    """Progress, for who waits."""
    print(text, file=sys.stderr, flush=True)


def settings(window: int, dictionary: int, discount: float) -> list[str]:
    """Of a daemon that selects no model: a refit would put a model of the window in the place of the rebuilt one."""
    critic = {"dictionary_max": dictionary, "discount": discount, "tolerance": 1e-6, "refit_first_rows": 0}
    critic |= {"refit_score_drop": 0.0}
    return [f"window_rows={window}", "sync=os", *(f"critic.{key}={setting}" for key, setting in critic.items())]


def store(daemon: Daemon, rows: int) -> None:
    """Append rows of a random walk, two pieces ahead of the replies."""
    chance, asking = np.random.default_rng(1), dealer(daemon.ends)
    state, sent, replied, told = np.zeros(DIM), 0, 0, time.monotonic()
    while replied < rows:
        while sent < rows and sent - replied <= 2 * PIECE:
            count = min(PIECE, rows - sent)
            steps = np.vstack([state, np.empty((count, DIM))])
            for k in range(count):
                steps[k + 1] = 0.95 * steps[k] + 0.2 * chance.normal(size=DIM)
            state = steps[-1]
            rewards = (-np.abs(steps[1:]).sum(axis=1)).tolist()
            fields = {"stream": "walk", "seq": sent, "states": steps.tolist(), "rewards": rewards}
            asking.send(pack({"id": 1, "op": "append", **fields}))
            sent += count
        reply: dict[str, Any] = msgpack.unpackb(asking.recv(), strict_map_key=False)
        if not reply["ok"]:
            raise RuntimeError(reply)
        replied += reply["accepted"]
        if time.monotonic() > told + LOOK_S:
            told = time.monotonic()
            tell(f"stored {replied} of {rows} rows")
    asking.close()


class Client:
    """Sends a `ping` and an `append` in turns, and keeps how long each took."""

    def __init__(self, daemon: Daemon) -> None:
        self.bystander, self.over = Bystander(daemon.ends), threading.Event()
        self.thread = threading.Thread(target=self.ask, daemon=True)
        self.thread.start()

    def ask(self) -> None:
        """Until it is over, or an answer does not come."""
        while not self.over.is_set() and not self.bystander.lost:
            self.bystander.ask("ping")
            if not self.bystander.lost:
                self.bystander.ask("append")

    def end(self) -> dict[str, list[float]]:
        """What it found, in milliseconds."""
        self.over.set()
        self.thread.join()
        return self.bystander.found


def rebuilt(daemon: Daemon) -> float:
    """Seconds until no critic is learned again any more."""
    asking, began, told = dealer(daemon.ends), time.monotonic(), 0.0
    while True:
        critic = answer(asking, "status")["critics"][0]
        rebuild = critic["rebuild"]
        if rebuild is None:
            return time.monotonic() - began
        if rebuild["failed"] or critic["failed"]:
            raise RuntimeError(rebuild["failed"] or critic["failed"])
        if time.monotonic() > told + LOOK_S:
            told = time.monotonic()
            tell(f"learned {rebuild['rows']} of {rebuild['of']} rows again, {told - began:.0f} s")
        time.sleep(0.05)


def main() -> None:
    """Store, start again, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=BINARY)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--dictionary", type=int, default=1000)
    parser.add_argument("--first-dictionary", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(given.binary, Path(folder), settings(given.window, given.first_dictionary, 0.99))
        try:
            store(daemon, given.rows)
            tell(f"stopped in {daemon.stop():.1f} s")
        finally:
            daemon.close()
        daemon = Daemon(given.binary, Path(folder), settings(given.window, given.dictionary, 0.9))
        try:
            client, ready_s = Client(daemon), daemon.ready_s
            rebuild_s = ready_s + rebuilt(daemon)
            found, critic = client.end(), daemon.ask("status")["critics"][0]
            figures = daemon.measure_end()
        finally:
            daemon.close()
    print(f"ready after {ready_s:.2f} s")
    for op in ("ping", "append", "scheduler"):
        middle, most = percentile(found[op], 0.5), max(found[op])
        print(f"{op}: longest {most:.0f} ms, median {middle:.1f} ms of {len(found[op])}")
    print(f"longest time without WATCHDOG=1: {figures['watchdog_s']:.1f} s")
    learned = f"{critic['transitions']} rows, {critic['dictionary_size']} elements"
    print(f"learned again after {rebuild_s:.1f} s: {learned}")
    print(f"peak resident memory: {figures['peak_mib']:.0f} MiB")
    print(f"SIGTERM: {figures['stop_s']:.1f} s")
    if figures["watchdog_s"] > WATCHDOG_S:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
