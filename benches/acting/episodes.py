"""The episodes that an agent needs, through the daemon, with a kernel that the rows select.

    python benches/acting/episodes.py Pendulum-v1 --seeds 10 --episodes 25 [--exploration thompson]

One line for each seed: the first episode at which the mean return of ten reaches the goal, the worst of the last 30, and all returns.
`cargo run --release -p criticd-learner --example acting` measures the same learner in one process.

Needs the Python package with Gymnasium, and the binary in CRITICD_BIN.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np

from criticd.agent import Agent

# Discount, and the mean return of ten episodes that is the goal.
TASKS = {
    "Pendulum-v1": (0.97, -200.0),
    "CartPole-v1": (0.98, 475.0),
    "Acrobot-v1": (0.99, -100.0),
    "LunarLander-v3": (0.99, 200.0),
}
MEAN_OF = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--exploration", default="epsilon_greedy")
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon, KEY=VALUE")
    options = parser.parse_args()
    discount, goal = TASKS[options.task]
    reached = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        started, returns = time.monotonic(), []
        env = gymnasium.make(options.task)
        chosen = {"discount": discount, "exploration": options.exploration, "seed": seed}
        with Agent(env, f"critic.seed={seed}", *options.set, **chosen) as agent:
            returns = [episode.total for episode in agent.run(options.episodes)]
        means = np.convolve(returns, np.ones(MEAN_OF) / MEAN_OF, "valid")
        first = next((k + MEAN_OF for k, mean in enumerate(means) if mean >= goal), None)
        reached += [] if first is None else [first]
        shown = " ".join(f"{value:.0f}" for value in returns)
        worst = min(returns[-30:])
        print(f"seed {seed}: {first}, worst {worst:.0f}, {time.monotonic() - started:.0f} s: {shown}", flush=True)
    print(f"{options.task}: {goal:g} reached on {len(reached)} of {options.seeds}, at {sorted(reached)}")


if __name__ == "__main__":
    main()
