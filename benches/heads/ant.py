#!/usr/bin/env python3
"""Half an hour of MuJoCo's Ant at 50 Hz under a noisy gait, as a table that `criticd fit --heads` reads.

    benches/heads/ant.py ant.npz ant-heads.json later.npz [--rows 90000] [--later-rows 30000] [--seed 0]

Needs gymnasium[mujoco]. The policy is a trot: each hip and ankle follows a sine of a phase under proportional control, plus
Gaussian noise of deviation 0.3 in every torque. The phase belongs to the policy, so sine and cosine of it belong to the state.
An episode ends where the ant falls (terminated) and is cut after 1 000 steps (truncated). Heads: every observation that varies,
at eight timescales from 0.1 s to 12.8 s.
"""

import argparse
import json

import gymnasium
import numpy as np

STEP_S = 0.02
TIMESCALES = [0.1 * 2**k for k in range(8)]
# Where each joint (hip, ankle of four legs) is in the trot: legs on a diagonal move together.
PHASES = np.array([0.0, 0.25, 0.5, 0.75, 0.0, 0.25, 0.5, 0.75]) * 2 * np.pi
MIDDLE = np.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])
SWING = np.array([0.4, 0.3] * 4)


def run(rows, seed):
    """States (n, D) with sine and cosine of the phase last, actions, rewards, and how rows end."""
    env = gymnasium.make("Ant-v5", frame_skip=2, max_episode_steps=1000)
    rng = np.random.default_rng(seed)
    kept = {name: [] for name in ("state", "next_state", "action", "reward", "terminated", "truncated", "episode", "time")}
    observation, _ = env.reset(seed=seed)
    phase, episode = rng.uniform(0, 2 * np.pi), 0
    # Which torque moves which joint: the actuators stand in another order than the joints.
    joints = env.unwrapped.model.actuator_trnid[:, 0] - 1
    for row in range(rows):
        angles, speeds = observation[5:13][joints], observation[19:27][joints]
        wanted = (MIDDLE + SWING * np.sin(phase + PHASES))[joints]
        torque = np.clip(1.5 * (wanted - angles) - 0.05 * speeds + rng.normal(0, 0.3, 8), -1, 1)
        state = np.concatenate([observation, [np.sin(phase), np.cos(phase)]])
        observation, reward, terminated, truncated, _ = env.step(torque)
        phase += 2 * np.pi * 1.5 * STEP_S
        next_state = np.concatenate([observation, [np.sin(phase), np.cos(phase)]])
        for name, value in zip(kept, (state, next_state, torque, reward, terminated, truncated, episode, row * STEP_S)):
            kept[name].append(value)
        if terminated or truncated:
            observation, _ = env.reset()
            phase, episode = rng.uniform(0, 2 * np.pi), episode + 1
    return {name: np.array(values) for name, values in kept.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("heads")
    parser.add_argument("later", help="rows of another run, to judge by")
    parser.add_argument("--rows", type=int, default=90_000)
    parser.add_argument("--later-rows", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    table, later = run(arguments.rows, arguments.seed), run(arguments.later_rows, arguments.seed + 1)
    varies = table["state"].std(axis=0) > 1e-9
    for rows, path in ((table, arguments.table), (later, arguments.later)):
        for name in ("state", "next_state"):
            rows[name] = rows[name][:, varies]
        np.savez(path, **rows)
    heads = [
        {"name": f"{index}/{seconds:g}", "cumulant": {"kind": "state", "index": index}, "timescale": seconds}
        for index in range(int(varies.sum()))
        for seconds in TIMESCALES
    ]
    with open(arguments.heads, "w") as file:
        json.dump(heads, file)
    ends = table["terminated"].sum(), table["truncated"].sum()
    print(f"{len(table['reward'])} rows, {varies.sum()} of {len(varies)} numbers vary, {len(heads)} heads, "
          f"{ends[0]} falls, {ends[1]} time limits")


if __name__ == "__main__":
    main()
