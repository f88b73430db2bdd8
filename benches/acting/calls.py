"""Decisions beside learning: how much they slow it, and whether any comes from an older model than it should.

    python benches/acting/calls.py --calls 200000 [--turns 4]
    python benches/acting/calls.py --what-if 200 --rate 2000      plans and courses instead, after 100 000 rows

A producer sends rows of four state variables and three actions as fast as the daemon takes them. In each of the turns
the daemon learns beside `act` calls that follow each other without a pause, then as long alone. The script counts the
rows learned per second, and per second of the learning thread's processor time. A decision is stale if its generation
is below one that an earlier reply named, or below the one that `status` named before the call, or if its revision
goes back.

With `--what-if` the critic learns where actions lead, too. Once 100 000 rows are learned, plans and courses are asked
for in turns, one after the other: first while rows arrive, then once they have ended and no refit runs.

Needs the Python package, and the binary in CRITICD_BIN. Linux only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from criticd import Client, Sender
from criticd.daemon import Daemon

STATES, ACTIONS, PIECE = 4, 3, 256
STATUS_EVERY = 500
BEHIND = 100_000
CONFIG = """
[[critic]]
name = "q"
inputs = "state_action"
actions = 3
successor = "improve"
discount = 0.95
refit_first_rows = 2000
refit_budget_s = 2.0
"""


def produce(control: str, over: Any, rate: float) -> None:
    """Send pieces of a random walk that likes to be in the middle, until `over`; from row `BEHIND` on at this rate."""
    random = np.random.default_rng(1)
    state, sent = np.zeros(STATES), 0
    with Sender(control, reliable=True, stream="walk") as sender:
        while not over.is_set():
            actions = random.integers(0, ACTIONS, PIECE)
            states = np.empty((PIECE + 1, STATES))
            states[0] = state
            for t in range(PIECE):
                states[t + 1] = 0.9 * states[t] + 0.2 * (actions[t] - 1) + random.uniform(-0.3, 0.3, STATES)
            state = states[-1]
            sender.send_trajectory(states, -np.abs(states[1:]).sum(axis=1), actions=actions.astype(float))
            sent += PIECE
            if sent > BEHIND:
                time.sleep(PIECE / rate)


def processor_s(pid: int) -> dict[str, float]:
    """Seconds of processor time of each thread, by name."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        found[name] = found.get(name, 0.0) + seconds
    return found


class Turn:
    """Rows learned, seconds and processor seconds from here to `end`."""

    def __init__(self, client: Client, pid: int) -> None:
        self._client, self._pid = client, pid
        self._rows, self._started, self._processor = self._learned(), time.monotonic(), processor_s(pid)

    def _learned(self) -> int:
        return int(self._client.status()["critics"][0]["learned"])

    def end(self, what: str) -> tuple[float, float]:
        """Rows per second, and per processor second of the thread that learns."""
        seconds, rows = time.monotonic() - self._started, self._learned() - self._rows
        after = processor_s(self._pid)
        spent = {name: round(after[name] - self._processor.get(name, 0.0), 2) for name in after}
        busy = {name: value for name, value in spent.items() if value > 0.05 * seconds}
        core = spent.get("core", max(spent.values()))
        print(f"{what}: {rows / seconds:.0f} rows/s over {seconds:.1f} s, processor seconds {busy}", flush=True)
        return rows / seconds, rows / max(core, 1e-9)


def calls(client: Client, count: int) -> tuple[np.ndarray, int, int]:
    """Seconds of each call, how many were stale, and how many generations acted."""
    random = np.random.default_rng(2)
    states = random.uniform(-1, 1, (count, STATES))
    taken, stale, generations = np.empty(count), 0, set()
    newest, published = (0, 0), 0
    for k in range(count):
        if k % STATUS_EVERY == 0:
            published = client.status()["critics"][0]["generation"]
        started = time.perf_counter()
        found = client.act(states[k], "epsilon_greedy", epsilon=0.1, seed=7, episode=k // 100, step=k % 100)
        taken[k] = time.perf_counter() - started
        this = (found.generation, found.revision)
        stale += this < newest or found.generation < published
        newest = max(newest, this)
        generations.add(found.generation)
    return taken, stale, len(generations)


def what_if(client: Client, pid: int, count: int, end: Callable[[], None]) -> None:
    """Ask for plans and courses while rows arrive, and again when they have ended."""

    def knows() -> bool:
        critic = client.status()["critics"][0]
        return critic["learned"] >= BEHIND and critic["actions"]["world"]["elements"] > 0

    def rests() -> bool:
        before = client.status()["critics"][0]
        time.sleep(1.0)
        after = client.status()["critics"][0]
        return not after["refit"]["running"] and after["learned"] == before["learned"]

    while not knows():
        time.sleep(0.5)
    ask_what_if(client, pid, count, "beside learning")
    end()
    while not rests():
        pass
    ask_what_if(client, pid, count, "at rest")


def ask_what_if(client: Client, pid: int, count: int, when: str) -> None:
    """Ask for plans and courses in turns, `count` of each, and print how long they take."""
    # A place that rows have reached: where they have not, a plan is refused.
    reward = "-abs(state_0 - 0.3)"
    asked = {
        "plan": client.plan,
        "plan for an expression": lambda: client.plan(reward),
        "rollout, the policy that acted": client.rollout,
        "rollout, the best action": lambda: client.rollout(policy="best"),
        "rollout, a plan": lambda: client.rollout(reward=reward),
    }
    taken = {name: np.empty(count) for name in asked}
    before = processor_s(pid)
    for k in range(count):
        for name, ask in asked.items():
            started = time.perf_counter()
            ask()
            taken[name][k] = time.perf_counter() - started
    for name, each in taken.items():
        print(f"{when}, {name}: {1e3 * np.median(each):.1f} ms, p99 {1e3 * np.quantile(each, 0.99):.1f} ms, of {count}")
    spent = {name: value - before.get(name, 0.0) for name, value in processor_s(pid).items()}
    each = {name: round(1e3 * value / count / len(asked), 1) for name, value in spent.items() if value > 0.0}
    critic = client.status()["critics"][0]
    print(f"processor time of each thread for each question, ms: {each}")
    print(f"{critic['learned']} rows learned, refits {critic['refit']['started']}, {critic['actions']['world']}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--warm-s", type=float, default=20.0, help="seconds of learning before the first turn")
    parser.add_argument("--what-if", type=int, default=0, metavar="N", help="ask for N plans and courses of each kind")
    parser.add_argument("--rate", type=float, default=np.inf, help="rows a second once 100 000 are sent")
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon, KEY=VALUE")
    options = parser.parse_args()
    each = options.calls // options.turns
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    # A choice of kernels for where actions lead needs the whole budget of a refit.
    config = CONFIG.replace("refit_budget_s = 2.0", "world = true") if options.what_if else CONFIG
    with Daemon(*options.set, config=config) as daemon, daemon.client() as client:
        producer = context.Process(target=produce, args=(daemon.endpoints.control, over, options.rate))
        producer.start()
        try:
            if options.what_if:
                what_if(client, daemon.pid, options.what_if, over.set)
                return
            time.sleep(options.warm_s)
            ratios, thrifts, taken, stale = [], [], [], 0
            for turn in range(options.turns):
                beside = Turn(client, daemon.pid)
                times, wrong, generations = calls(client, each)
                with_calls = beside.end(f"turn {turn} beside calls, {generations} generations")
                alone = Turn(client, daemon.pid)
                time.sleep(float(times.sum()))
                without = alone.end(f"turn {turn} alone")
                taken.append(times)
                stale += wrong
                ratios.append(with_calls[0] / without[0])
                thrifts.append(with_calls[1] / without[1])
        finally:
            over.set()
            producer.join()
        critic = client.status()["critics"][0]
    every = np.concatenate(taken) * 1e6
    print(f"{len(every)} calls, {stale} stale; a call {np.median(every):.0f} us, p99 {np.quantile(every, 0.99):.0f} us")
    print(f"rows per second beside calls over those alone: median {np.median(ratios):.3f} of {np.round(ratios, 3)}")
    print(f"rows per processor second: median {np.median(thrifts):.3f} of {np.round(thrifts, 3)}")
    print(f"{critic['learned']} rows learned, refits and improvements {critic['refit']['started']}")


if __name__ == "__main__":
    main()
