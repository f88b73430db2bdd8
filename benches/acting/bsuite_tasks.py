"""Tasks of bsuite, through the daemon, scored by bsuite's formulas.

    python benches/acting/bsuite_tasks.py deep_sea/0 --seeds 5 --episodes 60 --exploration greedy
    python benches/acting/bsuite_tasks.py catch/0 --seeds 3 --episodes 300 --demonstrations 5

A task is named by its bsuite_id: deep_sea/0 has N = 10, deep_sea/5 has N = 20. bsuite runs 1 000 or 10 000 episodes
of each; its scores are means over the episodes run, so that fewer can be scored, and then count the beginning more.
bsuite averages scores over up to 20 settings of a task; here each is one setting, over seeds of the agent.
`--demonstrations` puts that many episodes of a controller written by hand before the first own one; they do not
count.

bsuite shows the grids of deep sea and catch as pixels. The agent gets the number of the cell, which is a category,
and the coordinates of ball and paddle. Other observations are passed on as they are.

Needs the Python package, the binary in CRITICD_BIN, and bsuite: `pip install --no-deps bsuite` and `pip install
dm-env pandas six immutabledict termcolor scikit-image` leave out its plots.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import bsuite
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from criticd.agent import Agent

Array = npt.NDArray[np.float64]
Controller = Callable[[Any, Array], int]
"""An action, of the inner environment and an observation (D,)."""


def cell(pixels: Any) -> Array:
    """The number of the cell with the diver, the last one behind the end."""
    return np.array([float(np.argmax(pixels)) if pixels.any() else float(pixels.size)])


def catch(pixels: Any) -> Array:
    """Row and column of the ball, and column of the paddle."""
    last = len(pixels) - 1
    balls = np.argwhere(pixels[:last])
    paddle = np.flatnonzero(pixels[last])
    # In the last row the ball may be the paddle's pixel, or one beside it: the episode is over there.
    row, column = balls[0] if len(balls) else (last, paddle[0])
    return np.array([row, column, paddle[-1]], np.float64)


def as_is(pixels: Any) -> Array:
    """All numbers."""
    return np.asarray(pixels, np.float64).ravel()


def dive(env: Any, seen: Array) -> int:
    """Right, in every cell."""
    row, column = divmod(int(seen[0]), env._size)
    return int(env._action_mapping[row, column])


def follow(_: Any, seen: Array) -> int:
    """Towards the ball."""
    return 1 + int(np.sign(seen[1] - seen[2]))


def pull(env: Any, _: Array) -> int:
    """The best arm."""
    return int(np.argmax(env._rewards))


def push(_: Any, seen: Array) -> int:
    """In the direction of motion."""
    return 2 if seen[1] >= 0 else 0


def swing(env: Any, _: Array) -> int:
    """Add energy until the pole comes near the top, then balance it there; keep the cart near the middle."""
    x, speed, angle, turning = env._state[:4]
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    if abs(angle) < 0.5 and abs(turning) < 5.0:
        force = float(BALANCE @ np.array([x, speed, angle, turning]))
    else:
        # Of the pole, J above that at rest at the top: a rod with its mass at half a metre.
        energy = 0.5 * (4 / 3) * 0.5**2 * turning**2 + 9.8 * 0.5 * (np.cos(angle) - 1.0)
        along = np.sign(turning * np.cos(angle) + 1e-9)
        force = float(PUMP @ np.array([np.clip(energy, -1.0, 1.0) * along, x, speed]))
    return 1 + int(np.sign(force)) * int(abs(force) > DEAD_BAND)


# Forces in N, found by a random search: 848 points of bsuite's reward.
BALANCE = np.array([1.0, 2.0, 40.0, 15.0])
PUMP = np.array([7.6, -3.7, -2.9])
DEAD_BAND = 1.6


@dataclass(frozen=True)
class Task:
    """What the agent sees of a task, the settings of its daemon, and the controller that demonstrates."""

    observe: Callable[[Any], Array]
    controller: Controller
    discount: float
    settings: tuple[str, ...] = ()


# No return is above 1, and an improvement is worth its time after each episode.
DEEP_SEA = (
    'critic.state_kinds=["category"]',
    "critic.dictionary_max=600",
    "critic.prior_mean=1",
    "critic.improve_rows=10",
)
TASKS = {
    "deep_sea": Task(cell, dive, 0.99, DEEP_SEA),
    "catch": Task(catch, follow, 0.99),
    "bandit": Task(as_is, pull, 0.0),
    "cartpole_swingup": Task(as_is, swing, 0.99),
    "mountain_car": Task(as_is, push, 0.99),
}


class Bsuite(gymnasium.Env[Any, Any]):
    """A task of bsuite as a Gymnasium environment."""

    def __init__(self, bsuite_id: str, task: Task) -> None:
        self.inner, self.task = bsuite.load_from_id(bsuite_id), task
        self.action_space = spaces.Discrete(self.inner.action_spec().num_values)
        size = len(task.observe(self.inner.reset().observation))
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.log: list[dict[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode. The seed is the task's, not the episode's."""
        super().reset(seed=seed)
        return self.task.observe(self.inner.reset().observation), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        found = self.inner.step(int(action))
        over = bool(found.last())
        if over:
            self.log.append(dict(self.inner.bsuite_info()))
        terminated = over and found.discount == 0.0
        return self.task.observe(found.observation), float(found.reward), terminated, over and not terminated, {}


def demonstrate(agent: Agent, bsuite_id: str, task: Task, count: int) -> float:
    """Teach the agent `episodes` episodes of the controller, in a copy of the task: their mean return."""
    env, totals = Bsuite(bsuite_id, task), []
    for _ in range(count):
        state, _ = env.reset()
        states, actions, rewards, over = [state], [], [], False
        while not over:
            action = task.controller(env.inner, states[-1])
            state, reward, terminated, truncated, _ = env.step(action)
            states.append(state)
            actions.append(action)
            rewards.append(reward)
            over = terminated or truncated
        agent.demonstrate(states, actions, rewards, terminated=terminated, truncated=truncated)
        totals.append(sum(rewards))
    return float(np.mean(totals)) if totals else np.nan


def regret_score(regret: float, episodes: int, base: float) -> float:
    """Mean regret of an episode in parts of a base, 0 to 1."""
    return float(np.clip((base - regret / episodes) / base, 0.0, 1.0))


def score(name: str, env: Bsuite) -> tuple[float, str]:
    """By bsuite's formula for the experiment, and what else is worth knowing."""
    log, count = env.log, len(env.log)
    if name == "deep_sea":
        size = env.inner._size
        bad = np.array([entry["total_bad_episodes"] for entry in log]) / np.arange(1, count + 1)
        first = next((k + 1 for k in range(count) if bad[k] < 0.9), None)
        return float(first is not None and first < 2**size + 100), f"fewer than 90 % bad at episode {first}"
    if name == "cartpole_swingup":
        best = log[-1]["best_episode"]
        good = regret_score(700.0 * count - log[-1]["raw_return"], count, 700.0)
        return 0.5 * (good + float(best > 100.0)), f"best episode {best:.0f}"
    if name == "mountain_car":
        return regret_score(-100.0 * count - log[-1]["raw_return"], count, 1000.0), ""
    return regret_score(log[-1]["total_regret"], count, {"catch": 1.6, "bandit": 0.5}[name]), ""


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="a bsuite_id, such as deep_sea/0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--demonstrations", type=int, default=0)
    parser.add_argument("--exploration", default="epsilon_greedy")
    parser.add_argument("--beta", type=float)
    parser.add_argument("--pixels", action="store_true", help="let the agent see what bsuite shows")
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon, KEY=VALUE")
    options = parser.parse_args()
    name = options.task.split("/")[0]
    task, scores = TASKS[name], []
    if options.pixels:
        if options.demonstrations:
            parser.error("the controllers do not read pixels")
        task = replace(task, observe=as_is, settings=())
    numbers = {} if options.beta is None else {"beta": options.beta}
    for seed in range(options.seeds):
        started = time.monotonic()
        env = Bsuite(options.task, task)
        chosen = {"discount": task.discount, "exploration": options.exploration, "options": numbers, "seed": seed}
        with Agent(env, f"critic.seed={seed}", *task.settings, *options.set, **chosen) as agent:
            shown = demonstrate(agent, options.task, task, options.demonstrations)
            totals = [episode.total for episode in agent.run(options.episodes)]
        found, more = score(name, env)
        scores.append(found)
        half, seconds = len(totals) // 2, time.monotonic() - started
        print(f"seed {seed}: score {found:.3f} {more}; mean return {np.mean(totals[:half]):.3f}, then", end=" ")
        print(f"{np.mean(totals[half:]):.3f}; demonstrated {shown:.2f}; {seconds:.0f} s", flush=True)
    print(f"{options.task}: {options.episodes} episodes, mean score {np.mean(scores):.3f} of {np.round(scores, 3)}")


if __name__ == "__main__":
    main()
