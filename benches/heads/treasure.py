#!/usr/bin/env python3
"""Heads for both objectives of deep-sea-treasure against its Pareto front, which is known, and a new task from them without learning.

    benches/heads/treasure.py [--out DIRECTORY]

Needs mo-gymnasium, `criticd` from CRITICD_BIN or the path, and the Python package. Ten policies, one for each treasure: go right to
its column, then down. The state is row, column and which treasure. Each policy is optimal for its treasure, so the values of both
objectives at the start are a point of the front.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import mo_gymnasium
import numpy as np

from criticd import Snapshot

DISCOUNTS = [0.9, 0.99]
REPEATS = 5
DOWN, RIGHT = 1, 3
TASKS = [(1.0, 0.5), (0.3, 1.0), (1.0, 0.0)]


def rows():
    env = mo_gymnasium.make("deep-sea-treasure-v0")
    kept = {name: [] for name in ("state", "next_state", "rewards", "terminated", "truncated", "episode")}
    for episode in range(10 * REPEATS):
        goal = episode % 10
        place, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            action = RIGHT if place[1] < goal else DOWN
            after, reward, ended, _, _ = env.step(action)
            for name, value in zip(kept, ([*place, goal], [*after, goal], reward, ended, False, episode)):
                kept[name].append(value)
            place = after
    return {name: np.array(values, dtype=np.float64 if name in ("state", "next_state", "rewards") else None)
            for name, values in kept.items()}


def fit(directory, table, out, *options):
    np.savez(directory / "table.npz", **table)
    command = [os.environ.get("CRITICD_BIN", "criticd"), "fit", str(directory / "table.npz"), *options]
    command += ["--state-kinds", "real,real,category", "--noise-floor", "1e-9", "--hold-out", "0", "--tolerance", "1e-9"]
    subprocess.run([*command, "--threads", "1", "--out", str(directory / out)], check=True, capture_output=True)
    return Snapshot.load(directory / out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    directory = arguments.out or Path(tempfile.mkdtemp())
    table = rows()
    two = dict(table, reward=table.pop("rewards"))
    heads = [
        {"name": f"{objective}/{discount}", "cumulant": {"kind": "reward", "index": objective}, "discount": discount}
        for objective in range(2) for discount in DISCOUNTS
    ]
    (directory / "heads.json").write_text(json.dumps(heads))
    model = fit(directory, two, "heads.model", "--heads", str(directory / "heads.json"))
    starts = np.array([[0.0, 0.0, goal] for goal in range(10)])
    env = mo_gymnasium.make("deep-sea-treasure-v0").unwrapped
    print(f"{len(two['reward'])} rows, {len(model.dictionary)} dictionary states")
    for discount in DISCOUNTS:
        front = np.array(sorted(map(tuple, env.pareto_front(discount))))
        found = np.column_stack([model.heads[f"{objective}/{discount}"](starts) for objective in range(2)])
        order = np.argsort(found[:, 0])
        print(f"discount {discount}: {len(front)} points of the front, largest error {np.abs(found[order] - front).max():.2g} "
              f"of values from {front.min():.3g} to {front.max():.3g}")
        for weights in TASKS:
            task = np.array(weights)
            error = np.abs(found[order] @ task - front @ task).max()
            learned = fit(directory, dict(two, reward=two["reward"] @ task), "task.model", "--discount", str(discount))
            own = np.abs(learned(starts)[order] - front @ task).max()
            print(f"  task {weights}: largest error {error:.2g} from the heads, {own:.2g} from a critic that learned it")


if __name__ == "__main__":
    main()
