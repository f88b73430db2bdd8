"""Other learners at the number of episodes of `episodes.py`, with the same lines.

    python benches/acting/peers.py sac Pendulum-v1 --seeds 10 --episodes 25
    python benches/acting/peers.py dqn CartPole-v1 --seeds 10 --episodes 100 [--every-step]
    python benches/acting/peers.py gp-sarsa CartPole-v1 --seeds 10 --episodes 100

`sac` and `dqn` are Stable-Baselines3's, with the settings that its RL Zoo has tuned for the task. The Zoo's
DQN for CartPole-v1 trains 128 times after 256 steps; with `--every-step` it trains once after each step from step 100
on, and explores about as much as the agent does. `gp-sarsa` is in `gp_sarsa.py`, with a kernel by hand.

Needs Gymnasium, for the first two stable-baselines3.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gp_sarsa import GpSarsa, Kernel
from tasks import TASKS, line, summary

# Lengthscales of state and action, variance of Q, variance of a reward's noise.
KERNELS = {
    "Pendulum-v1": ((0.8, 0.8, 4.0, 6.0), 200.0**2, 400.0),
    # Inputs of different actions share nearly nothing.
    "CartPole-v1": ((3.0, 3.0, 0.3, 3.0, 0.3, 0.3), 30.0**2, 100.0),
}
TORQUES = 9
ZOO_DQN = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ZOO_STEPS = 50_000


def deep(name: str) -> Callable[[argparse.Namespace, int], list[float]]:
    """A learner of Stable-Baselines3."""

    def run(options: argparse.Namespace, seed: int) -> list[float]:
        import torch
        from stable_baselines3 import DQN, SAC
        from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes
        from stable_baselines3.common.monitor import Monitor

        torch.set_num_threads(1)
        env = Monitor(gymnasium.make(options.task))
        if name == "sac":
            model: Any = SAC("MlpPolicy", env, learning_rate=1e-3, seed=seed)
        else:
            settings: dict[str, Any] = dict(ZOO_DQN)
            if options.every_step:
                often = {"learning_starts": 100, "train_freq": 1, "gradient_steps": 1}
                settings |= often | {"exploration_fraction": 0.03, "exploration_final_eps": 0.01}
            model = DQN("MlpPolicy", env, seed=seed, **settings)
        model.learn(ZOO_STEPS, callback=StopTrainingOnMaxEpisodes(options.episodes))
        return [float(total) for total in env.get_episode_rewards()[: options.episodes]]

    return run


def gp_sarsa(options: argparse.Namespace, seed: int) -> list[float]:
    """The learner of `gp_sarsa.py`, epsilon-greedy from 0.1 to 0.01 within 25 episodes."""
    task, rng = TASKS[options.task], np.random.default_rng(seed)
    env = gymnasium.make(options.task)
    lengthscales, variance, noise = KERNELS[options.task]
    learner = GpSarsa(Kernel(np.array(lengthscales), variance), task.discount, noise)
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        actions, given = np.eye(int(space.n)), list(range(int(space.n)))
    else:
        assert isinstance(space, gymnasium.spaces.Box)
        actions = np.linspace(space.low, space.high, TORQUES)
        given = list(actions.astype(np.float32))

    def chosen(state: Any, epsilon: float) -> tuple[int, Any]:
        inputs = np.hstack([np.repeat(np.asarray(state, np.float64)[None], len(actions), axis=0), actions])
        explores = rng.random() < epsilon
        # Equal values, as in the beginning, are drawn from.
        values = learner.values(inputs) + 1e-9 * rng.random(len(actions))
        at = int(rng.integers(len(actions))) if explores else int(np.argmax(values))
        return at, inputs[at]

    returns = []
    for episode in range(options.episodes):
        epsilon = 0.1 - 0.09 * min(1.0, episode / 25)
        state, _ = env.reset(seed=int(np.random.SeedSequence([seed, episode]).generate_state(1)[0]))
        at, point = chosen(state, epsilon)
        learner.begin(point)
        total, over = 0.0, False
        while not over:
            state, reward, terminated, truncated, _ = env.step(given[at])
            total, over = total + float(reward), terminated or truncated
            at, point = chosen(state, epsilon)
            learner.learn(float(reward), None if terminated else point)
        returns.append(total)
    return returns


LEARNERS = {"sac": deep("sac"), "dqn": deep("dqn"), "gp-sarsa": gp_sarsa}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learner", choices=LEARNERS)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--every-step", action="store_true", help="let DQN train after each step")
    options = parser.parse_args()
    goal, all_returns = TASKS[options.task].goal, []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        started = time.monotonic()
        all_returns.append(LEARNERS[options.learner](options, seed))
        print(line(seed, all_returns[-1], goal, time.monotonic() - started), flush=True)
    print(summary(f"{options.learner} {options.task}", all_returns, goal))


if __name__ == "__main__":
    main()
