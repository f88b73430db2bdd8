"""What a fleet loses by selecting with a part of its rows. `python benchmarks/fleet_selection.py`.

Eight workers have 2 500 rows each, of robots in one region of their own: each is pulled to the middle of its region, at
another cost. The true values are known. All rows are learned in the epoch that the drawn chains select; the error is
the root mean square of V less the truth, over the spread of the truth. The chains of the smallest hashes are drawn, as
a fleet does.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd import Learner, Snapshot, _learner
from criticd._fleet_pool import Pool, drawn
from criticd._fleet_worker import COLUMNS, settings_of_workers
from criticd._protocol import unpack

WORKERS, ROWS, CHAIN = 8, 2500, 50
DISCOUNT, PULL, NOISE = 0.9, 0.8, 0.3


def truth(states: npt.NDArray[np.float64], worker: int) -> npt.NDArray[np.float64]:
    """V of states around the middle of a region: of the costs of a linear system with noise."""
    cost, gift = 1.0 + 0.5 * (worker % 3), float((worker * 5) % 7)
    # V = -cost (p x'x + q) + gift / (1 - discount)
    p = PULL**2 / (1 - DISCOUNT * PULL**2)
    q = 2 * NOISE**2 * (1 + DISCOUNT * p) / (1 - DISCOUNT)
    found: npt.NDArray[np.float64] = -cost * (p * (states**2).sum(axis=1) + q) + gift / (1 - DISCOUNT)
    return found


def life(worker: int, seed: int) -> tuple[dict[str, Any], npt.NDArray[np.float64]]:
    """Rows of the robots of a worker, and the true values of their states."""
    draw = np.random.default_rng(100 * seed + worker)
    middle = 4.0 * np.array([worker % 4, worker // 4])
    cost, gift = 1.0 + 0.5 * (worker % 3), float((worker * 5) % 7)
    states, following = np.empty((ROWS, 2)), np.empty((ROWS, 2))
    for i in range(ROWS):
        if i % CHAIN == 0:
            state = draw.uniform(-1.5, 1.5, 2)
        states[i] = state
        state = PULL * state + draw.normal(0, NOISE, 2)
        following[i] = state
    rewards = gift - cost * (following**2).sum(axis=1)
    truncated = np.arange(ROWS) % CHAIN == CHAIN - 1
    columns = {"states": states + middle, "rewards": rewards, "next_states": following + middle, "truncated": truncated}
    return columns, truth(states, worker)


def error(seed: int, pool_rows: int, workers: range) -> tuple[float, int]:
    """The error where chains of `workers` select, and the rows of those chains."""
    settings: dict[str, Any] = {"discount": DISCOUNT, "dictionary_max": 100, "seed": seed}
    lives = [life(worker, seed) for worker in range(WORKERS)]
    pools = []
    for worker in workers:
        pool = Pool(pool_rows)
        pool.offer(f"robot {worker}", 0, lives[worker][0])
        pools.append(pool.pieces())
    pieces = drawn(pools, pool_rows)
    quiet: dict[str, Any] = {"refit_first_rows": 0, "refit_score_drop": 0, "drift_sensitivity": "off"}
    with Learner(**settings, **quiet) as learner:
        for piece in pieces:
            learner.learn(**piece["columns"])
        outcome = learner.refit()
        assert outcome.outcome == "adopted", outcome.reason
        epoch = learner._critic.epoch()
    critic = _learner.Critic(settings_of_workers(settings))
    critic.begin(epoch, 2)
    for worker, (columns, _) in enumerate(lives):
        critic.learn(f"robot {worker}", False, {**dict.fromkeys(COLUMNS), **columns})
    model = Snapshot.of(unpack(critic.snapshot(False)))
    states = np.concatenate([columns["states"] for columns, _ in lives])
    true = np.concatenate([values for _, values in lives])
    found = float(np.sqrt(np.mean((model(states) - true) ** 2)) / true.std())
    return found, sum(len(piece["columns"]["states"]) for piece in pieces)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    cases = [
        ("all chains", WORKERS * ROWS, range(WORKERS)),
        ("4 800 rows", 4800, range(WORKERS)),
        ("2 000 rows", 2000, range(WORKERS)),
        ("800 rows", 800, range(WORKERS)),
        ("600 rows of one worker", 600, range(1)),
    ]
    for name, pool_rows, workers in cases:
        errors = [error(seed, pool_rows, workers)[0] for seed in range(asked.seeds)]
        print(f"{name:<24} {np.mean(errors):.4f} ({max(errors):.4f})", flush=True)


if __name__ == "__main__":
    main()
