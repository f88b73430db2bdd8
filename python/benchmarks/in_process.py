"""What the learner in the process takes: for a row in blocks of 256, for a row alone, for a value.

    python benchmarks/in_process.py [--elements 100] [--rows 30000]

A walk in a cube of four variables fills the dictionary before anything is measured. Rows do not refit. Prints the
median and the 90th percentile of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from criticd import Learner

BLOCK = 256


def walk(rows: int) -> dict[str, Any]:
    """Steps that fill the cube, in episodes of 200 steps on the average, as in benches/learner.rs."""
    random = np.random.default_rng(1)
    ends = random.random(rows) < 1 / 200
    states, following = np.empty((rows, 4)), np.empty((rows, 4))
    state: Any = np.zeros(4)
    for i in range(rows):
        states[i] = state
        state = following[i] = np.clip(state + random.uniform(-0.4, 0.4, 4), -1.7, 1.7)
        if ends[i]:
            state = random.uniform(-1.7, 1.7, 4)
    rewards = np.sin(states[:, 0]) * states[:, 1] + random.uniform(-0.5, 0.5, rows)
    return {"states": states, "rewards": rewards, "next_states": following, "terminated": ends}


def timed(calls: Sequence[Callable[[], object]], each: int = 1) -> str:
    """Microseconds of one of `each` things that a call does: median and 90th percentile."""
    taken = np.empty(len(calls))
    for i, call in enumerate(calls):
        begun = time.perf_counter_ns()
        call()
        taken[i] = (time.perf_counter_ns() - begun) / (1000 * each)
    return f"{np.median(taken):8.2f} us, nine of ten within {np.percentile(taken, 90):8.2f} us"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=100, help="of the dictionary [default: %(default)s]")
    parser.add_argument("--rows", type=int, default=30_000, help="before anything is measured [default: %(default)s]")
    given = parser.parse_args()
    rows, alone = 25_600, 5120
    table = walk(given.rows + rows + alone)

    def part(first: int, last: int) -> dict[str, Any]:
        return {key: column[first:last] for key, column in table.items()}

    learner = Learner(discount=0.99, dictionary_max=given.elements, tolerance=1e-6, refit_first_rows=0)
    for first in range(0, given.rows, BLOCK):
        learner.learn(**part(first, min(first + BLOCK, given.rows)))
    blocks = [part(first, first + BLOCK) for first in range(given.rows, given.rows + rows, BLOCK)]
    print("a row of 256  ", timed([lambda block=block: learner.learn(**block) for block in blocks], BLOCK))  # type: ignore[misc]
    first = given.rows + rows
    singles = [{key: column[i] for key, column in table.items()} for i in range(first, first + alone)]
    print("a row alone   ", timed([lambda row=row: learner.learn(**row) for row in singles]))  # type: ignore[misc]
    numbers = count()
    states = table["states"]
    learner(states[0], std=True)
    print("a value       ", timed([lambda: learner(states[next(numbers)])] * alone))
    print("with deviation", timed([lambda: learner(states[next(numbers)], std=True)] * alone))
    print("of 256        ", timed([lambda: learner(states[:BLOCK], std=True)] * 200, BLOCK))


if __name__ == "__main__":
    main()
