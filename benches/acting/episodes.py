"""The episodes that an agent needs, through the daemon, with a kernel that the rows select.

    python benches/acting/episodes.py Pendulum-v1 --seeds 10 --episodes 25 [--exploration thompson]

One line for each seed: the first episode at which the mean return of ten reaches the goal, the worst of the last 30,
and all returns. With `--verbose` one line for each episode, with what the last refit or improvement was. `cargo run
--release -p criticd-learner --example acting` measures the same learner in one process.

Needs the Python package with Gymnasium, and the binary in CRITICD_BIN.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from tasks import BY_EVIDENCE, TASKS, line, reached, summary

from criticd.agent import Agent


def said(status: dict[str, Any]) -> str:
    """The last refit or improvement of the first critic, and its kernel."""
    critic = status["critics"][0]
    last = critic["refit"]["last"] or {}
    if "trigger" not in last:
        return str(last.get("reason"))
    swept, kernel, noise = last.get("improvement") or {}, critic.get("kernel") or {}, critic.get("noise") or {}
    relevance = np.round(np.atleast_1d(kernel.get("relevance", np.nan)), 3)
    variances = kernel.get("signal_variance", np.nan), noise.get("variance", np.nan)
    return (
        f"{last['trigger']} {last['outcome']}, {last['rows']} rows, {last['dictionary_size']} elements, "
        f"gap {last['trace_gap']:.1f}, {last['seconds']:.1f} s, sweeps {swept.get('sweeps')}, "
        f"change {swept.get('change', np.nan):.1e}, clipped {swept.get('clipped', np.nan):.2f}; {kernel.get('kind')} "
        f"{relevance} by {last.get('evidence')}, signal {variances[0]:.3g}, noise {variances[1]:.3g}"
    )


def run(options: argparse.Namespace, seed: int) -> list[float]:
    """Returns of all episodes."""
    task, returns = TASKS[options.task], []
    env = gymnasium.make(options.task)
    settings = (*BY_EVIDENCE, *options.set) if options.by_evidence else options.set
    chosen = {"discount": task.discount, "exploration": options.exploration, "seed": seed}
    with Agent(env, f"critic.seed={seed}", *settings, **chosen) as agent:
        for episode in agent.run(options.episodes):
            returns.append(episode.total)
            if options.stop and reached(returns, task.goal):
                break
            if options.verbose:
                print(f"  {episode.number}: {episode.total:.0f} {said(agent.client.status())}", file=sys.stderr)
    return returns


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--exploration", default="epsilon_greedy")
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon, KEY=VALUE")
    parser.add_argument("--stop", action="store_true", help="end a seed when it has reached the goal")
    parser.add_argument("--by-evidence", action="store_true", help="select kernels by a bound of the evidence")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    goal, all_returns = TASKS[options.task].goal, []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        started = time.monotonic()
        all_returns.append(run(options, seed))
        print(line(seed, all_returns[-1], goal, time.monotonic() - started), flush=True)
    print(summary(options.task, all_returns, goal))


if __name__ == "__main__":
    main()
