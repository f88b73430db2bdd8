"""How long it takes to take rows back.

    python benchmarks/removal.py [--rows 1000000] [--streams 10] [--dictionary 100]

A daemon learns episodes of 200 rows of this number of streams, without a model selection. Then one stream is taken
back. Prints the time until the answer, in which the journal is read and the critic has subtracted the rows, and the
longest answer to another client meanwhile, which waits for the core.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

import numpy as np

from criticd import Client
from criticd.testing import Daemon

EPISODE, BLOCK, DIM = 200, 4000, 4


def drive(seed: int, rows: int) -> dict[str, Any]:
    """Rows of a robot that is pulled to a place of its own."""
    draw = np.random.default_rng(seed)
    place, noise = draw.normal(0, 0.5, DIM), draw.normal(0, 0.3, (rows, DIM))
    states, following = np.empty((rows, DIM)), np.empty((rows, DIM))
    for i in range(rows):
        if i % EPISODE == 0:
            state = draw.normal(0, 1, DIM)
        states[i] = state
        state = place + 0.9 * (state - place) + noise[i]
        following[i] = state
    rewards = -(following**2).sum(axis=1)
    return {"states": states, "next_states": following, "rewards": rewards, "terminated": np.arange(rows) % 200 == 199}


def learn(client: Client, streams: list[str], rows: int) -> None:
    """Send rows of each stream in turn."""
    columns = {stream: drive(k, BLOCK) for k, stream in enumerate(streams)}
    for first in range(0, rows // len(streams), BLOCK):
        for stream, of in columns.items():
            client.append(stream=stream, seq=first, **of)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--dictionary", type=int, default=100)
    asked = parser.parse_args()
    settings = [f"critic.dictionary_max={asked.dictionary}", "critic.refit_first_rows=0", "critic.refit_score_drop=0.0"]
    settings += ["critic.drift_sensitivity=off"]
    streams = [f"robot {k}" for k in range(asked.streams)]
    gone = streams[-1]
    with Daemon(*settings) as daemon, daemon.client(timeout_s=600) as client, daemon.client(timeout_s=600) as other:
        learn(client, streams, asked.rows)
        client.value(np.zeros((1, DIM)), min_offset=client.status()["offset"])
        slowest, over = [0.0], threading.Event()

        def ask() -> None:
            while not over.is_set():
                began = time.perf_counter()
                other.streams(gone)
                slowest[0] = max(slowest[0], time.perf_counter() - began)

        asking = threading.Thread(target=ask)
        asking.start()
        began = time.perf_counter()
        found = client.remove([{"stream": gone}], dry_run=False, by=os.environ.get("USER"))
        took = time.perf_counter() - began
        over.set()
        asking.join()
    print(
        f"{found.rows} of {asked.rows} rows in {found.chains} chains, m = {asked.dictionary}: "
        f"taken back after {took:.2f} s, longest answer to another client {slowest[0]:.2f} s, "
        f"subtracted: {found.subtracted}"
    )


if __name__ == "__main__":
    main()
