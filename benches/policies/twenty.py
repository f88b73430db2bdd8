"""Twenty policies of each of three tasks, ranked by fitted Q evaluation, by a model of the transition, and by rollouts.

    python benches/policies/twenty.py [--binary PATH] [--rows 3000] [--policies 20]
    python benches/policies/twenty.py --tasks pendulum,mountain-car,cart-pole
    python benches/policies/twenty.py --by d3rlpy [--steps 4000]     the fitted Q evaluation of d3rlpy instead

The log of a task: random actions, in chains of 50 steps from anywhere. Policies are linear controllers with random gains,
of which some are worthless, and act at random for a share of the steps. J, the value of the states where chains begin, is
known from rollouts of each policy from these very states. The table has Spearman's rank correlation of the estimates with
J, and their median relative error.

Needs numpy, scipy and the binary; `--by d3rlpy` needs that package in place of the binary.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pendulum
from numpy.typing import NDArray
from scipy.stats import spearmanr

Array = NDArray[np.float64]
STEPS = 400
TIMES = 20


class Task:
    """States (n, D), and numbers (n,) of the actions taken in them; `levels` has what each stands for."""

    name: str
    discount: float
    levels: Array

    def starts(self, count: int, random: np.random.Generator) -> Array:
        raise NotImplementedError

    def step(self, states: Array, pushes: Array, random: np.random.Generator) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Rewards (n,), next states (n, D), and whether nothing follows (n,)."""
        raise NotImplementedError

    def gains(self, random: np.random.Generator) -> Array:
        raise NotImplementedError

    def observed(self, states: Array) -> Array:
        return states

    def unseen(self, observed: Array) -> Array:
        """The states that `observed` is of."""
        return observed


class Pendulum(Task):
    """As `pendulum.py` has it."""

    name, discount, levels = "pendulum", pendulum.DISCOUNT, np.array([-2.0, 0.0, 2.0])

    def starts(self, count: int, random: np.random.Generator) -> Array:
        return pendulum.starts(count, random)

    def step(self, states: Array, pushes: Array, random: np.random.Generator) -> tuple[Array, Array, NDArray[np.bool_]]:
        return *pendulum.step(states, pushes, random), np.zeros(len(states), bool)

    def gains(self, random: np.random.Generator) -> Array:
        return random.uniform([-3, -1.5], [1, 1])

    def observed(self, states: Array) -> Array:
        return pendulum.observed(states)

    def unseen(self, observed: Array) -> Array:
        return np.stack([np.arctan2(observed[:, 1], observed[:, 0]), observed[:, 2]], axis=1)


class MountainCar(Task):
    name, discount, levels = "mountain car", 0.98, np.array([-1.0, 0.0, 1.0])

    def starts(self, count: int, random: np.random.Generator) -> Array:
        return np.stack([random.uniform(-1.2, 0.5, count), random.uniform(-0.07, 0.07, count)], axis=1)

    def step(self, states: Array, pushes: Array, random: np.random.Generator) -> tuple[Array, Array, NDArray[np.bool_]]:
        place, speed = states.T
        speed = np.clip(speed + 0.001 * pushes - 0.0025 * np.cos(3 * place), -0.07, 0.07)
        place = np.clip(place + speed, -1.2, 0.6)
        speed = np.where((place <= -1.2) & (speed < 0), 0, speed)
        return -np.ones(len(place)), np.stack([place, speed], axis=1), place >= 0.5

    def gains(self, random: np.random.Generator) -> Array:
        return random.uniform([-1, -30], [1, 100])


class CartPole(Task):
    name, discount, levels = "cart-pole", 0.95, np.array([-10.0, 10.0])

    def starts(self, count: int, random: np.random.Generator) -> Array:
        return random.uniform([-1, -1, -0.15, -1], [1, 1, 0.15, 1], (count, 4))

    def step(self, states: Array, pushes: Array, random: np.random.Generator) -> tuple[Array, Array, NDArray[np.bool_]]:
        place, speed, angle, turn = states.T
        inner = (pushes + 0.05 * turn**2 * np.sin(angle)) / 1.1
        bent = (9.8 * np.sin(angle) - np.cos(angle) * inner) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        moved = inner - 0.05 * bent * np.cos(angle) / 1.1
        after = states + 0.02 * np.stack([speed, moved, turn, bent], axis=1)
        return np.ones(len(place)), after, (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.2095)

    def gains(self, random: np.random.Generator) -> Array:
        return random.uniform([-0.5, -0.5, -3, -1], [0.5, 1, 10, 3])


TASKS: dict[str, Task] = {"pendulum": Pendulum(), "mountain-car": MountainCar(), "cart-pole": CartPole()}
Policy = Callable[[Array], Array]


def policy(task: Task, random: np.random.Generator) -> Policy:
    """Probabilities (n, A) of the actions: what the gains ask for, or any."""
    gains, share = task.gains(random), random.uniform(0, 0.5)

    def probabilities(states: Array) -> Array:
        asked = np.clip(states @ gains, task.levels[0], task.levels[-1])
        if len(task.levels) == 2:
            asked = np.sign(asked) * task.levels[-1]
        chosen = np.abs(asked[:, None] - task.levels).argmin(axis=1)
        return (1 - share) * np.eye(len(task.levels))[chosen] + share / len(task.levels)

    return probabilities


def drawn(probabilities: Array, random: np.random.Generator) -> NDArray[np.intp]:
    return (random.random((len(probabilities), 1)) > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)


def earned(task: Task, acts: Policy, starts: Array, random: np.random.Generator) -> float:
    """The mean discounted sum of rewards from these states."""
    states = np.repeat(starts, TIMES, axis=0)
    total, goes_on = np.zeros(len(states)), np.ones(len(states))
    for k in range(STEPS):
        rewards, states, ended = task.step(states, task.levels[drawn(acts(states), random)], random)
        total += task.discount**k * goes_on * rewards
        goes_on = goes_on * ~ended
    return float(total.mean())


def log(task: Task, rows: int, random: np.random.Generator) -> dict[str, Array]:
    """Chains of random actions, row after row; `inner` has the states as the task knows them."""
    found: dict[str, list[Array]] = {name: [] for name in ("inner", "actions", "rewards", "after", "ended", "cut")}
    while sum(map(len, found["rewards"])) < rows:
        state = task.starts(1, random)
        for k in range(pendulum.CHAIN):
            action = random.integers(len(task.levels), size=1)
            reward, after, ended = task.step(state, task.levels[action], random)
            cut = np.array([k == pendulum.CHAIN - 1]) & ~ended
            for name, value in zip(found, (state, action.astype(float), reward, after, ended, cut), strict=True):
                found[name].append(value)
            state = after
            if ended[0]:
                break
    return {name: np.concatenate(values) for name, values in found.items()}


def judged(task: Task, of: dict[str, Array], acts: Policy, options: argparse.Namespace) -> dict[str, float]:
    """Estimates of the program, or one by d3rlpy, by name."""
    if options.by == ["d3rlpy"]:
        import neural

        def seen(observed: Array) -> Array:
            return acts(task.unseen(observed))

        rows = {**of, "inner": task.observed(of["inner"]), "after": task.observed(of["after"])}
        return {"d3rlpy": neural.value(rows, seen, (task.discount, options.steps))}
    with tempfile.TemporaryDirectory() as name:
        table, answers = Path(name, "log.npz"), Path(name, "answers.csv")
        np.savez(
            table,
            states=task.observed(of["inner"]),
            actions=of["actions"],
            rewards=of["rewards"],
            next_states=task.observed(of["after"]),
            next_action_probs=acts(of["after"]),
            terminated=of["ended"].astype(bool),
            truncated=of["cut"].astype(bool),
        )
        header = ",".join(f"prob_{a}" for a in range(len(task.levels)))
        np.savetxt(answers, acts(of["inner"]), delimiter=",", header=header, comments="")
        command = [options.binary, "evaluate", table, "--policy", answers, "--actions", f"discrete:{len(task.levels)}"]
        command += ["--by", "both", "--json", "--discount", task.discount, "--budget", options.budget, "--folds", 2]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    estimates = json.loads(done.stdout)["estimates"]
    return {by: estimates[by]["value"] if estimates.get(by) else np.nan for by in options.by}


def begins(of: dict[str, Array]) -> NDArray[np.bool_]:
    """Which rows begin a chain."""
    return np.concatenate([[True], (of["ended"] + of["cut"])[:-1] > 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=Path("target/release/criticd"))
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--policies", type=int, default=20)
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--by", choices=["both", "d3rlpy"], default="both")
    parser.add_argument("--steps", type=int, default=4_000, help="of d3rlpy, for each policy")
    options = parser.parse_args()
    options.by = ["fqe", "model"] if options.by == "both" else [options.by]
    titles = ["task", "J from, to", *(f"{what}, {by}" for what in ("rank", "off") for by in options.by), "s a policy"]
    print(f"| {' | '.join(titles)} |")
    print(f"| {' | '.join('---' for _ in titles)} |")
    for task in (TASKS[name] for name in options.tasks.split(",")):
        random = np.random.default_rng(5)
        of = log(task, options.rows, random)
        truths, found, began = [], [], time.monotonic()
        for _ in range(options.policies):
            acts = policy(task, random)
            truths.append(earned(task, acts, of["inner"][begins(of)], random))
            found.append(judged(task, of, acts, options))
            print(f"{task.name}: J {truths[-1]:.3f}, {found[-1]}", file=sys.stderr, flush=True)
        cells = [f"{min(truths):.2f}, {max(truths):.2f}"]
        by = {name: np.array([each[name] for each in found]) for name in options.by}
        for values in by.values():
            rank = spearmanr(truths, values, nan_policy="omit").statistic
            cells.append(f"{rank:.2f} of {np.isfinite(values).sum()}")
        cells += [f"{100 * np.nanmedian(np.abs(values / truths - 1)):.1f} %" for values in by.values()]
        seconds = (time.monotonic() - began) / options.policies
        print(f"| {task.name} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
