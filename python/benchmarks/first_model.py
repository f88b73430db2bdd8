"""How soon a daemon on its defaults has a model that was selected, and how it keeps up at full rate.

    CRITICD_BIN=target/release/criticd python benchmarks/first_model.py [--rows 1000000] [--paces 400,full]

A walk of three variables, discount 0.99, in chains of 200 rows. At a pace of rows a second: the seconds from the 500th
row to the first model that was selected. At `full`: the same, how long the first refit took from its start to its
adoption, and the adoptions by the end.
"""

from __future__ import annotations

import argparse
import time
from threading import Thread
from typing import Any

import numpy as np

from criticd.testing import Daemon


def walk(rows: int) -> dict[str, Any]:
    """Steps in a cube, drawn back to its middle, in chains of 200."""
    random = np.random.default_rng(0)
    states = np.zeros((rows + 1, 3))
    pushes = 0.3 * random.normal(size=states.shape)
    for i in range(1, rows + 1):
        states[i] = 0.95 * states[i - 1] + pushes[i]
    rewards = np.sin(2.0 * states[:rows, 0]) + 0.3 * states[:rows, 1] + 0.1 * random.normal(size=rows)
    return {
        "states": states[:-1],
        "rewards": rewards,
        "next_states": states[1:],
        "truncated": np.arange(rows) % 200 == 199,
    }


class Watch(Thread):
    """Asks for the status all the time, and keeps when each number of refits was first seen."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self.client, self.ended = daemon.client(), False
        self.started: list[float] = []
        self.adopted: list[float] = []
        self.start()

    def run(self) -> None:
        """Until `ended`."""
        while not self.ended:
            critics = self.client.status()["critics"]
            refit = critics[0]["refit"] if critics else {"started": 0, "adopted": 0}
            for seen in ("started", "adopted"):
                times = getattr(self, seen)
                times += [time.monotonic()] * (refit[seen] - len(times))
            time.sleep(0.01)


def measured(rows: dict[str, Any], pace: float | None) -> str:
    """Feed a daemon, and say what came of it."""
    size = 10 if pace else 2000
    with Daemon("critic.discount=0.99") as daemon, daemon.client() as client:
        watch, begun, at_500 = Watch(daemon), time.monotonic(), None
        for first in range(0, len(rows["rewards"]), size):
            part = {key: column[first : first + size] for key, column in rows.items()}
            client.append(stream="walk", session="only", seq=first, **part)
            if at_500 is None and first + size >= 500:
                at_500 = time.monotonic()
            if pace:
                time.sleep(max(0.0, begun + (first + size) / pace - time.monotonic()))
                if watch.adopted:
                    break
        taken = time.monotonic() - begun
        while not watch.adopted:
            time.sleep(0.01)
        watch.ended = True
        watch.join()
        learned = client.status()["offset"]
    after = watch.adopted[0] - (at_500 or begun)
    text = f"{learned} rows in {taken:.1f} s; a selected model {after:.1f} s after row 500"
    text += f", {watch.adopted[0] - watch.started[0]:.1f} s after the first refit began"
    return f"{text}; {len(watch.adopted)} of {len(watch.started)} refits adopted"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="at full rate [default: %(default)s]")
    parser.add_argument("--paces", default="400,full", help="[default: %(default)s]")
    given = parser.parse_args()
    for pace in given.paces.split(","):
        rate = None if pace == "full" else float(pace)
        print(f"{pace:5}", measured(walk(given.rows if rate is None else round(60 * rate)), rate))


if __name__ == "__main__":
    main()
