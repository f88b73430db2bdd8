"""Many copies of an environment at once, each a stream of its own, acknowledged by the daemon.

    python vector_environment.py [--copies 64] [--steps 20000]

Start `criticd serve` first. The policy balances the pole well but not perfectly; at the end the value of some states is
shown: the further the pole leans, the less of the reward still to come is left.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

from criticd import Client, Sender
from criticd.gym import wrap_vector


def policy(states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Push towards where the pole falls; one time in five, anywhere. `states` (n, 4), pushes (n,) 0 or 1."""
    lean = states @ np.array([0.1, 0.3, 1.0, 0.4])
    return np.where(generator.random(len(states)) < 0.2, generator.integers(2, size=len(states)), lean > 0)


def main() -> None:
    """Stream, then ask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20_000, help="of all copies together, at least")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    with Sender(stream="cartpole", reliable=True) as sender, Client() as client:
        envs = wrap_vector(gymnasium.make_vec("CartPole-v1", arguments.copies), sender)
        states, _ = envs.reset(seed=0)
        while envs.rows < arguments.steps:
            # The step after an end only resets its copy: that one is not sent.
            states, *_ = envs.step(policy(states, generator))
        if not sender.flush(60):
            raise SystemExit(f"the daemon does not keep up: {sender.counters}")
        offset = client.status()["offset"]
        leaning = np.array([[0.0, 0.0, angle, 0.0] for angle in np.linspace(-0.2, 0.2, 9)])
        value = client.value(leaning, std=True, min_offset=offset, timeout_s=60)
    print(f"{envs.rows} steps sent and acknowledged, {offset} rows learned")
    assert value.std is not None
    for state, mean, deviation in zip(leaning, value.mean, value.std, strict=True):
        print(f"pole at {state[2]:+.2f} rad: {mean:6.2f} +- {deviation:.2f}")


if __name__ == "__main__":
    main()
