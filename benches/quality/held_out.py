#!/usr/bin/env python3
"""The held-out figures of `criticd fit` beside the figures of the written model on episodes that came later.

    benches/quality/held_out.py target/release/criticd [--seeds 3]      with numpy, gymnasium and the Python client

Two kinds of tables: the missions of docs/tutorial.md (80, and 200 fresh ones), and Gymnasium's pendulum under a noisy
swing-up controller (40 episodes of 200 steps, and 60 fresh ones). Of episodes that are cut, only returns whose missing end
weighs at most 5 % are compared. Prints a line for each table, and the means.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np

from criticd import Snapshot

ROOT = Path(__file__).resolve().parents[2]
DISCOUNT = 0.95
MISSIONS = "--state x,battery --reward=-cost --episode mission --time second --terminated arrived"
PENDULUM = "--state cos,sin,speed --reward reward --episode episode --time step --terminated over --truncated cut"


def missions(seed: int, folder: Path) -> None:
    """train.csv and fresh.csv, by the program of the tutorial."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    program = re.search(r"<!-- missions.py -->\n```python\n(.*?)```", text, re.DOTALL)
    names: dict = {"__name__": "missions"}
    exec(program[1], names)
    names["write"](folder / "train.csv", 80, seed=10 * seed + 1)
    names["write"](folder / "fresh.csv", 200, seed=10 * seed + 2)


def pendulum(seed: int, folder: Path) -> None:
    """The same of the pendulum."""
    env = gymnasium.make("Pendulum-v1")
    for part, (name, episodes) in enumerate((("train.csv", 40), ("fresh.csv", 60))):
        rng = np.random.default_rng(100 * seed + part)
        with open(folder / name, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow("episode step cos sin speed reward cut over".split())
            for episode in range(episodes):
                state, _ = env.reset(seed=int(rng.integers(1 << 30)))
                for step in range(200):
                    angle = np.arctan2(state[1], state[0])
                    energy = state[2] ** 2 / 6 + 5 * state[0]
                    torque = -8 * angle - 2 * state[2] if abs(angle) < 0.5 else np.sign(state[2]) * (5 - energy)
                    torque = np.clip(torque + 0.5 * rng.standard_normal(), -2, 2)
                    after, reward, *_ = env.step(np.array([torque]))
                    table.writerow([episode, step, *map(float, state), float(reward), int(step == 199), 0])
                    state = after


def fresh(model: Snapshot, kind: str, folder: Path) -> tuple[float, float, float]:
    """Correlation, error over spread, and share of returns in the 90 % interval, on fresh.csv."""
    key, names = ("mission", ("x", "battery")) if kind == "missions" else ("episode", ("cos", "sin", "speed"))
    states, returns = [], []
    with open(folder / "fresh.csv") as file:
        for _, rows in itertools.groupby(csv.DictReader(file), key=lambda row: row[key]):
            episode, total = list(rows), 0.0
            ended = kind == "missions" and episode[-1]["arrived"] == "1"
            for left, row in enumerate(reversed(episode), 1):
                total = (-float(row["cost"]) if kind == "missions" else float(row["reward"])) + DISCOUNT * total
                if ended or DISCOUNT**left <= 0.05:
                    states.append([float(row[name]) for name in names])
                    returns.append(total)
    answer, observed = model(np.array(states), std=True, returns=True), np.array(returns)
    low, high = answer.return_interval(0.9)
    error = np.sqrt(np.mean((answer.mean - observed) ** 2)) / observed.std()
    return np.corrcoef(answer.mean, observed)[0, 1], error, np.mean((low <= observed) & (observed <= high))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for kind, make, columns in (("missions", missions, MISSIONS), ("pendulum", pendulum, PENDULUM)):
        figures = []
        for seed in range(1, given.seeds + 1):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                make(seed, folder)
                command = [given.binary.resolve(), "fit", "train.csv", *columns.split(), "--json", "--out", "m.model"]
                began = time.monotonic()
                done = subprocess.run(
                    [*command, "--discount", str(DISCOUNT)], cwd=folder, check=True, capture_output=True, text=True
                )
                seconds = time.monotonic() - began
                held = json.loads(done.stdout)["held_out"]
                found = fresh(Snapshot.load(folder / "m.model"), kind, folder)
            held_out = held["correlation"], held["error"] / held["spread"], held["coverage_90"]
            figures.append([*itertools.chain(*zip(held_out, found)), seconds])
            print(f"{kind} {seed}: {line(figures[-1])}", flush=True)
        print(f"{kind}: {line(np.mean(figures, axis=0))}, means of {given.seeds}", flush=True)


def line(figures: list[float]) -> str:
    """Figures of held-out and of fresh episodes, in pairs."""
    pairs = "correlation {:.3f}, {:.3f}; error / spread {:.3f}, {:.3f}; interval {:.3f}, {:.3f}; {:.1f} s"
    return pairs.format(*figures)


if __name__ == "__main__":
    main()
