"""A planner that follows the value function and prefers plans it is sure of.

    python planner.py [--plans 64] [--horizon 15] [--kappa 1.0] [--steps 400]

Start `criticd serve` first. A pendulum is swung by planning: at each step it tries many sequences of torques in its own
simulator and scores each by what it earns on the way and by the value of where it ends, less `kappa` standard
deviations: mean - kappa * std. What it does is sent to the daemon, whose newest model it uses, evaluated here.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

from criticd import Sender, Snapshot, Subscriber
from criticd.gym import wrap

DISCOUNT = 0.99
"""The discount of the daemon's critic, unless its settings say otherwise."""


def simulate(states: np.ndarray, torques: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step for many states (n, 3): cosine, sine, speed. Where they lead, and what they earn (n,)."""
    angle, speed = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
    earned = -(angle**2 + 0.1 * speed**2 + 0.001 * torques**2)
    speed = np.clip(speed + 0.05 * (15.0 * np.sin(angle) + 3.0 * torques), -8.0, 8.0)
    angle = angle + 0.05 * speed
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1), earned


def score(snapshot: Snapshot | None, state: np.ndarray, plans: np.ndarray, kappa: float) -> np.ndarray:
    """What each plan (n, horizon) of torques is worth from `state`: (n,)."""
    states = np.tile(state, (len(plans), 1))
    total, weight = np.zeros(len(plans)), 1.0
    for torques in plans.T:
        states, earned = simulate(states, torques)
        total += weight * earned
        weight *= DISCOUNT
    if snapshot is not None:
        mean, deviation = snapshot(states, std=True)
        total += weight * (mean - kappa * deviation)
    return total


def propose(generator: np.random.Generator, count: int, horizon: int) -> np.ndarray:
    """Torques that change slowly: (n, horizon), -2 to 2."""
    steps = generator.standard_normal((count, horizon))
    return np.clip(np.cumsum(steps, axis=1) + 2.0 * generator.standard_normal((count, 1)), -2.0, 2.0)


def main() -> None:
    """Plan, act, send; over and over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=64)
    parser.add_argument("--horizon", type=int, default=15)
    parser.add_argument("--kappa", type=float, default=1.0, help="how much doubt costs, in standard deviations")
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    with Sender(stream="planner") as sender, Subscriber() as critic:
        env = wrap(gymnasium.make("Pendulum-v1"), sender)
        state, _ = env.reset(seed=0)
        earned, used = 0.0, set[int]()
        for step in range(1, arguments.steps + 1):
            # The first model is worth waiting for; after that it takes whichever is the newest.
            snapshot = critic.wait(30) if step == 100 else critic.latest
            if snapshot is not None:
                used.add(snapshot.offset)
            plans = propose(generator, arguments.plans, arguments.horizon)
            best = plans[np.argmax(score(snapshot, state.astype(float), plans, arguments.kappa))]
            state, reward, terminated, truncated, _ = env.step(best[:1].astype(np.float32))
            earned += float(reward)
            if terminated or truncated:
                state, _ = env.reset()
            if step % 200 == 0:
                print(f"{step} steps: {earned / 200:.2f} per step, {len(used)} models used")
                earned = 0.0
        sender.flush(10)
        print(f"the last model had learned {critic.wait(30).offset} rows")


if __name__ == "__main__":
    main()
