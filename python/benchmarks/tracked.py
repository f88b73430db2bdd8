"""What following a stream costs the learner in the process: rows a second while its gate is shut, and while it is open.

    python benchmarks/tracked.py [--elements 100] [--rows 150000]

Four variables, discount 0.99. `cut`: chains of 200 rows, which sums of several half-lives follow. `goes on`: one chain
without end, which is stepped along as well. `drifts`: the same where the level of rewards swings, so that the gate
opens. The model is selected from the first 10 000 rows; no refit and no fork runs meanwhile.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from criticd import Learner

FIRST, BLOCK = 10_000, 1000


def stream(kind: str, rows: int) -> dict[str, Any]:
    """Rows of a walk that is drawn back to its middle."""
    random = np.random.default_rng(0)
    states = np.zeros((rows + 1, 4))
    pushes = 0.3 * random.normal(size=states.shape)
    for i in range(1, rows + 1):
        states[i] = 0.95 * states[i - 1] + pushes[i]
    rewards = np.sin(states[:rows, 0]) + 0.3 * states[:rows, 1] + 0.1 * random.normal(size=rows)
    if kind == "drifts":
        rewards += 2.0 * np.sin(np.arange(rows) / 3000.0)
    truncated = np.arange(rows) % 200 == 199 if kind == "cut" else np.zeros(rows, bool)
    return {"states": states[:-1], "rewards": rewards, "next_states": states[1:], "truncated": truncated}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=100, help="of the dictionary [default: %(default)s]")
    parser.add_argument("--rows", type=int, default=150_000, help="that are timed [default: %(default)s]")
    given = parser.parse_args()
    for kind in ("cut", "goes on", "drifts"):
        table = stream(kind, FIRST + given.rows)
        learner = Learner(discount=0.99, dictionary_max=given.elements, refit_first_rows=0, drift_sensitivity="off")
        seconds = 0.0
        for first in range(0, FIRST + given.rows, BLOCK):
            part = {key: column[first : first + BLOCK] for key, column in table.items()}
            if first == FIRST:
                learner.refit()
            begun = time.perf_counter()
            learner.learn(**part)
            seconds += time.perf_counter() - begun if first >= FIRST else 0.0
        tracked = learner.snapshot().tracked
        gate = 0.0 if tracked is None else float(tracked.gate.max())
        print(f"{kind:8} {given.rows / seconds:10.0f} rows/s, gate {gate:.2f} at the end")


if __name__ == "__main__":
    main()
