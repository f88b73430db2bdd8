"""Fitted Q evaluation on a noisy pendulum, beside rollouts of the policy that is judged.

    python benches/policies/pendulum.py [--binary PATH] [--rows 4000] [--seeds 10]

The log: torques drawn uniformly in [-2, 2], in chains of 50 steps from anywhere. The policy that is judged: a linear controller
with Gaussian noise. J, the value of its start distribution, is known from rollouts. The kernel is chosen by the rows.

Needs numpy and the binary.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DISCOUNT = 0.95
CHAIN = 50
NOISE = 0.3
ROLLOUTS = 9600
STEPS = 200


def step(state: np.ndarray, torque: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Reward (n,) and next state (n, 2): angle from upright in rad and speed in rad/s, disturbed by a Gaussian torque."""
    angle, speed = state[:, 0], state[:, 1]
    reward = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
    pushed = torque + NOISE * rng.standard_normal(len(torque))
    speed = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * pushed) * 0.05, -8.0, 8.0)
    angle = (angle + 0.05 * speed + np.pi) % (2 * np.pi) - np.pi
    return reward, np.stack([angle, speed], axis=1)


def controller(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mean = -1.5 * state[:, 0] - 0.5 * state[:, 1]
    return np.clip(mean + 0.5 * rng.standard_normal(len(state)), -2.0, 2.0)


def starts(count: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack([rng.uniform(-np.pi, np.pi, count), rng.uniform(-4.0, 4.0, count)], axis=1)


def truth(rng: np.random.Generator) -> tuple[float, float]:
    state, total = starts(ROLLOUTS, rng), np.zeros(ROLLOUTS)
    for k in range(STEPS):
        reward, state = step(state, controller(state, rng), rng)
        total += DISCOUNT**k * reward
    return float(total.mean()), float(total.std() / np.sqrt(ROLLOUTS))


def observed(state: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(state[:, 0]), np.sin(state[:, 0]), state[:, 1]], axis=1)


def judged(options: argparse.Namespace, seed: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    chains = options.rows // CHAIN
    state, parts = starts(chains, rng), []
    for _ in range(CHAIN):
        torque = rng.uniform(-2.0, 2.0, chains)
        reward, after = step(state, torque, rng)
        parts.append((observed(state), torque, reward, observed(after), controller(state, rng), controller(after, rng)))
        state = after
    # Chain after chain.
    def joined(k: int) -> np.ndarray:
        return np.stack([part[k] for part in parts], axis=1).reshape(chains * CHAIN, *parts[0][k].shape[1:])
    cut = (np.arange(chains * CHAIN) + 1) % CHAIN == 0
    with tempfile.TemporaryDirectory() as name:
        table, policy = Path(name, "log.npz"), Path(name, "policy.csv")
        np.savez(
            table,
            states=joined(0),
            actions=joined(1),
            rewards=joined(2),
            next_states=joined(3),
            next_actions=joined(5),
            truncated=cut,
            terminated=np.zeros_like(cut),
        )
        policy.write_text("action\n" + "".join(f"{value!r}\n" for value in joined(4).tolist()))
        command = [options.binary, "evaluate", table, "--policy", policy, "--actions", "box", "--json"]
        command += ["--discount", DISCOUNT, "--budget", options.budget, "--seed", seed]
        command += ["--dictionary-max", options.dictionary_max]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=Path("target/release/criticd"))
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--dictionary-max", type=int, default=300)
    options = parser.parse_args()
    value, error = truth(np.random.default_rng(10**6))
    print(f"J by {ROLLOUTS} rollouts: {value:.3f} +- {error:.3f}\n")
    print("| seed | J by fqe | off by | deviation | z | trace gap | interval |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    near = honest = 0
    for seed in range(options.seeds):
        found = judged(options, seed)
        fqe = found["estimates"]["fqe"]  # type: ignore[index]
        off, z = abs(fqe["value"] - value) / abs(value), abs(fqe["value"] - value) / fqe["error"]
        given = fqe["interval"] is not None
        near, honest = near + (off <= 0.05), honest + (not given or z <= 2.5)
        print(
            f"| {seed} | {fqe['value']:.2f} | {100 * off:.1f} % | {fqe['error']:.2f} | {z:.1f} | "
            f"{found['trace_gap']:.1f} | {'given' if given else 'refused'} |",
            flush=True,
        )
    print(f"\nwithin 5 %: {near} of {options.seeds}; |z| at most 2.5 or refused: {honest} of {options.seeds}")


if __name__ == "__main__":
    main()
