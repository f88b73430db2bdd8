"""Gymnasium environments under policies made by hand, and the rows and returns that they yield."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def pendulum_action(state: Array) -> float:
    """Swing up by pumping energy, hold near the top with a linear controller. `state`: cosine, sine, speed."""
    angle, speed = np.arctan2(state[1], state[0]), state[2]
    if state[0] > 0.85 and abs(speed) < 3.0:
        torque = -12.0 * angle - 3.0 * speed
    else:
        # Of a rod with m = l = 1, I = 1/3, g = 10: zero when it stands upright at rest.
        energy = speed**2 / 6.0 + 5.0 * (state[0] - 1.0)
        torque = -2.0 * np.tanh(2.0 * energy) * np.sign(speed or 1.0)
    return float(np.clip(torque, -2.0, 2.0))


def car_action(state: Array) -> float:
    """Push the way the car rolls: every swing gains height. `state`: position, speed."""
    return float(np.clip(40.0 * state[1] + 0.1 * np.sign(state[1] or 1.0), -1.0, 1.0))


POLICIES = {"Pendulum-v1": pendulum_action, "MountainCarContinuous-v0": car_action}


class Stream:
    """One copy of an environment under its policy, with `noise` the standard deviation added to each action."""

    def __init__(self, name: str, seed: int, noise: float = 0.0) -> None:
        self.environment = gymnasium.make(name)
        self.policy, self.noise = POLICIES[name], noise
        self.generator = np.random.default_rng(seed)
        self.limit = float(self.environment.action_space.high[0])  # type: ignore[attr-defined]
        self.state = self._reset(seed)
        self.seq = 0

    def _reset(self, seed: int | None = None) -> Array:
        return self.environment.reset(seed=seed)[0].astype(float)

    def act(self, state: Array) -> Array:
        action = self.policy(state) + self.noise * self.generator.standard_normal()
        return np.array([np.clip(action, -self.limit, self.limit)], np.float32)

    def step(self) -> dict[str, Any]:
        """The next transition; where it ends the episode `next_state` is still the true one, and a reset follows."""
        action = self.act(self.state)
        observed, reward, terminated, truncated, _ = self.environment.step(action)
        row = {
            "seq": self.seq,
            "state": self.state,
            "action": action.astype(float),
            "reward": float(reward),
            "next_state": observed.astype(float),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        self.seq += 1
        self.state = self._reset() if terminated or truncated else row["next_state"]
        return row

    def batch(self, rows: int) -> dict[str, Any]:
        return as_batch([self.step() for _ in range(rows)])

    def rollout(self, discount: float, horizon: int, skip: int = 0) -> tuple[Array, float] | None:
        """A state `skip` steps into a fresh episode and the discounted return from there; time limits do not end it.

        None if the episode is over before it comes to that state.
        """
        bare, state = self.environment.unwrapped, self._reset()
        start, total, weight = state, 0.0, 1.0
        for at in range(skip + horizon):
            if at == skip:
                start = state
            observed, reward, terminated, _, _ = bare.step(self.act(state))
            state = observed.astype(float)
            if at >= skip:
                total += weight * float(reward)
                weight *= discount
            if terminated:
                return (start, total) if at >= skip else None
        return start, total


def as_batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Consecutive rows as one batch."""

    def column(key: str) -> npt.NDArray[Any]:
        return np.array([row[key] for row in rows])

    return {
        "seq": rows[0]["seq"],
        "states": column("state"),
        "actions": column("action"),
        "rewards": column("reward"),
        "next_states": column("next_state"),
        "terminated": column("terminated"),
        "truncated": column("truncated"),
    }


def rollouts(
    name: str, noise: float, discount: float, horizon: int, count: int, skip_max: int, seed: int
) -> Iterator[tuple[Array, float]]:
    """Start states and returns: every other start is the environment's own, the others lie along trajectories."""
    stream = Stream(name, seed, noise)
    made = 0
    while made < count:
        skip = int(stream.generator.integers(skip_max)) if made % 2 else 0
        found = stream.rollout(discount, horizon, skip)
        if found is not None:
            made += 1
            yield found
