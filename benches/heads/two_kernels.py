"""What a second kernel gains for heads that one does not suit, and what it costs for each row.

    python benches/heads/two_kernels.py --rows 6000 --heads 16

Rows of a walk in two dimensions go into two daemons: one may give heads a kernel of their own, one may not. Half of the
heads and the reward change slowly with the state, the other half fast. Discounts are 0, so that what is predicted is
known. Both refit at the same rows.
"""

from __future__ import annotations

import argparse
import time

import criticd
import numpy as np
import numpy.typing as npt
from criticd.daemon import Daemon

Array = npt.NDArray[np.float64]


def clean(states: Array, k: int) -> Array:
    """Column k of the rewards without noise: even ones change slowly with the state, odd ones fast."""
    x, y = states.T
    if k % 2 == 0:
        return np.sin(0.8 * x + 0.6 * y + k)
    return np.sin(6.0 * x + k) * np.cos(5.0 * y - k)


def walk(rows: int, rng: np.random.Generator) -> Array:
    """States (rows + 1, 2) in the square from -2 to 2."""
    states = np.zeros((rows + 1, 2))
    for i, step in enumerate(1.2 * (rng.random((rows, 2)) - 0.5)):
        there = states[i] + step
        states[i + 1] = np.where(np.abs(there) > 2, states[i], there)
    return states


def measure(split: str, rows: int, heads: int, dictionary_max: int, budget: float) -> None:
    listed = ", ".join(
        f'{{ name = "h{k}", cumulant = {{ kind = "reward", index = {k} }}, discount = 0.0 }}'
        for k in range(1, heads + 1)
    )
    config = (
        f'refit_threads = 1\n[[critic]]\nname = "main"\ndiscount = 0.0\nrewards = [0]\ndictionary_max = {dictionary_max}\n'
        f'heads_split = "{split}"\nrefit_budget_s = {budget}\nrefit_first_rows = 0\ndrift_sensitivity = "off"\nheads = [{listed}]\n'
    )
    rng = np.random.default_rng(1)
    states = walk(2 * rows, rng)
    rewards = np.stack([clean(states[:-1], k) for k in range(heads + 1)], axis=1)
    rewards += 0.1 * rng.normal(size=rewards.shape)
    with Daemon(config=config, timeout_s=600) as daemon:
        client = criticd.Client(daemon.endpoints.control, timeout_s=600)

        def send(part: slice) -> None:
            with criticd.Sender(
                daemon.endpoints.control, stream=f"walk{part.start}", reliable=True, timeout_s=600
            ) as sender:
                sender.send_trajectory(states[part.start : part.stop + 1], rewards[part], truncated=True)
            while client.request("status")["offset"] < part.stop:
                time.sleep(0.05)

        send(slice(0, rows))
        began = time.monotonic()
        client.refit(wait=True)
        refit = time.monotonic() - began
        send(slice(rows, 2 * rows))
        critic = client.request("status")["critics"][0]
        test = np.random.default_rng(2).uniform(-2, 2, (2000, 2))
        names = [f"h{k}" for k in range(1, heads + 1)]
        mean = np.asarray(client.heads(test, names, min_offset=2 * rows).mean)
        truth = np.stack([clean(test, k) for k in range(1, heads + 1)], axis=1)
        left = ((mean - truth) ** 2).mean(axis=0) / truth.var(axis=0)
        apart = critic["heads"]["apart"] or {"count": 0, "dictionary_size": 0}
        found = critic["refit"]["last"]
        print(
            f"{found['split']}, out of time: {found['out_of_time']}\n"
            f"heads_split {split}: refit {refit:.1f} s; elements {critic['dictionary_size']} and {apart['dictionary_size']}, "
            f"{apart['count']} heads apart; unexplained, median of slow heads {np.median(left[1::2]):.5f}, "
            f"of fast heads {np.median(left[0::2]):.5f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6000, help="before the refit, and the same number behind it")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--dictionary-max", type=int, default=300)
    parser.add_argument("--budget", type=float, default=20.0, help="the setting refit_budget_s")
    arguments = parser.parse_args()
    for split in ("never", "auto"):
        measure(split, arguments.rows, arguments.heads, arguments.dictionary_max, arguments.budget)


if __name__ == "__main__":
    main()
