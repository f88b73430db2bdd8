"""How well the value function that a daemon learned from a stream agrees with fresh rollouts of the same policy.

    python benchmarks/predictions.py [ENVIRONMENT ...] [--steps 20000] [--budget 20]

Each environment gets a daemon of its own, and is streamed by `wrap_vector`; then new copies are rolled out under the
same noisy policy, and their discounted returns compared with mean and 90 % interval: correlation, and the share of
returns within. Half of the rollouts begin at the environment's own resets, half along trajectories.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from criticd.gym import wrap_vector
from criticd.testing import Daemon

DISCOUNT, HORIZON, ROLLOUTS = 0.95, 100, 300
Policy = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def cartpole(states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Push towards where the pole falls; two times in five, anywhere."""
    lean = states @ np.array([0.1, 0.3, 1.0, 0.4])
    return np.where(generator.random(len(states)) < 0.4, generator.integers(2, size=len(states)), lean > 0)


def pendulum(states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Swing up by pumping energy, hold near the top with a linear controller."""
    angle, speed = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
    energy = speed**2 / 6.0 + 5.0 * (states[:, 0] - 1.0)
    swing = -2.0 * np.tanh(2.0 * energy) * np.where(speed < 0, -1.0, 1.0)
    hold = (states[:, 0] > 0.85) & (np.abs(speed) < 3.0)
    torque = np.where(hold, -12.0 * angle - 3.0 * speed, swing) + 0.5 * generator.standard_normal(len(states))
    action: np.ndarray = np.clip(torque, -2.0, 2.0)[:, None].astype(np.float32)
    return action


def car(states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Push the way the car rolls: every swing gains height."""
    push = 40.0 * states[:, 1] + np.where(states[:, 1] < 0, -0.1, 0.1) + 0.5 * generator.standard_normal(len(states))
    action: np.ndarray = np.clip(push, -1.0, 1.0)[:, None].astype(np.float32)
    return action


def gait(inputs: int, outputs: int) -> Policy:
    """A fixed function of the state, drawn at random, with noise."""
    weights = np.random.default_rng(1).standard_normal((inputs, outputs)) / np.sqrt(inputs)

    def act(states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        noise = 0.2 * generator.standard_normal((len(states), outputs))
        action: np.ndarray = np.clip(np.tanh(states @ weights) + noise, -1.0, 1.0).astype(np.float32)
        return action

    return act


ENVIRONMENTS: dict[str, tuple[Policy, int]] = {
    "CartPole-v1": (cartpole, 64),
    "Pendulum-v1": (pendulum, 8),
    "MountainCarContinuous-v0": (car, 8),
    "HalfCheetah-v5": (gait(17, 6), 8),
    "Hopper-v5": (gait(11, 3), 8),
}


def rollout(env: Any, policy: Policy, generator: np.random.Generator, skip: int) -> tuple[np.ndarray, float] | None:
    """A state `skip` steps into a fresh episode, and the discounted return from there; time limits do not end it."""
    state, _ = env.reset(seed=int(generator.integers(1 << 31)))
    bare, start, total, weight = env.unwrapped, state, 0.0, 1.0
    for at in range(skip + HORIZON):
        if at == skip:
            start = state
        action = policy(np.asarray(state, float)[None], generator)[0]
        state, reward, terminated, _, _ = bare.step(action)
        if at >= skip:
            total += weight * float(reward)
            weight *= DISCOUNT
        if terminated:
            return (np.asarray(start, float), total) if at >= skip else None
    return np.asarray(start, float), total


def report(name: str, steps: int, budget_s: float) -> None:
    """Stream, select a model twice, compare."""
    policy, copies = ENVIRONMENTS[name]
    generator = np.random.default_rng(0)
    with (
        Daemon(f"critic.discount={DISCOUNT}", f"critic.refit_budget_s={budget_s}") as daemon,
        daemon.client() as client,
    ):
        with daemon.sender(reliable=True, stream=name) as sender:
            envs = wrap_vector(gymnasium.make_vec(name, copies), sender)
            states, _ = envs.reset(seed=0)
            while envs.rows < steps:
                states, *_ = envs.step(policy(states.astype(float), generator))
            if not sender.flush(300):
                raise SystemExit(f"the daemon does not keep up: {sender.counters}")
        for _ in range(2):
            client.refit(wait=True, timeout_s=300)
        client.value(np.zeros(states.shape[1]), min_offset=envs.rows, timeout_s=60)
        offset, snapshot = client.status()["offset"], client.snapshot()
    found: list[tuple[np.ndarray, float]] = []
    env = gymnasium.make(name)
    while len(found) < ROLLOUTS:
        one = rollout(env, policy, generator, int(generator.integers(100)) if len(found) % 2 else 0)
        found += [] if one is None else [one]
    returns = np.array([value for _, value in found])
    mean, variance = snapshot.evaluate(np.array([state for state, _ in found]))
    assert variance is not None
    inside = np.abs(returns - mean) < 1.6449 * np.sqrt(variance + snapshot.noise_variance)
    error = float(np.sqrt(np.mean((returns - mean) ** 2)))
    print(
        f"{name:25} {envs.rows} steps sent, {offset} learned, generation {snapshot.generation}, dictionary "
        f"{len(snapshot.dictionary)}: correlation {np.corrcoef(mean, returns)[0, 1]:.3f}, {100 * inside.mean():.0f} % "
        f"within the 90 % interval, root mean square error {error:.2f} of returns that spread by {returns.std():.2f}",
        flush=True,
    )
    if offset != envs.rows:
        raise SystemExit("rows were lost or doubled")


def main() -> None:
    """Report on some environments, or on all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", choices=[*ENVIRONMENTS, []], default=[])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of a refit's search [default: %(default)s]")
    arguments = parser.parse_args()
    for name in arguments.environments or ENVIRONMENTS:
        report(name, arguments.steps, arguments.budget)


if __name__ == "__main__":
    main()
