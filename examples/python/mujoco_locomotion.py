"""HalfCheetah and Hopper of MuJoCo, streamed and learned.

    python mujoco_locomotion.py [--env HalfCheetah-v5] [--steps 20000]

Start `criticd serve` first, one for each environment: their states have different lengths. Needs Gymnasium's extra
`mujoco`; without it this says so and ends with status 77.
"""

from __future__ import annotations

import argparse
import sys

import gymnasium
import numpy as np

from criticd import Sender, Subscriber
from criticd.gym import wrap

SKIPPED = 77


def main() -> int:
    """Stream a noisy gait, and show what the state it has come to is worth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="HalfCheetah-v5", choices=["HalfCheetah-v5", "Hopper-v5"])
    parser.add_argument("--steps", type=int, default=20_000)
    arguments = parser.parse_args()
    try:
        bare = gymnasium.make(arguments.env)
    except gymnasium.error.DependencyNotInstalled as missing:
        print(f"SKIPPED: {missing}", file=sys.stderr)
        return SKIPPED
    generator = np.random.default_rng(0)
    assert isinstance(bare.action_space, gymnasium.spaces.Box)
    limit = bare.action_space.high
    with Sender(stream=arguments.env, reliable=True) as sender, Subscriber() as critic:
        env = wrap(bare, sender)
        observed, _ = env.reset(seed=0)
        for step in range(arguments.steps):
            # A rhythm with noise: no good gait, but one whose states come back, so that there is something to learn.
            rhythm = np.sin(0.3 * step + np.arange(len(limit)))
            action = np.clip(0.5 * rhythm + 0.3 * generator.standard_normal(len(limit)), -1, 1) * limit
            observed, _, terminated, truncated, _ = env.step(action.astype(np.float32))
            if terminated or truncated:
                observed, _ = env.reset()
        if not sender.flush(120):
            raise SystemExit(f"the daemon does not keep up: {sender.counters}")
        snapshot = critic.wait(60, offset=env.rows)
    print(f"{env.rows} steps of {arguments.env}; the model has {len(snapshot.dictionary)} states in its dictionary")
    value, deviation = snapshot(observed, std=True)
    print(f"where it is now is worth {value:.2f} +- {deviation:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
