"""How long a call of `Sender.send` takes, without `reliable`: nobody listens, a daemon learns, the queue is full.

    python benchmarks/send.py [--calls 50000] [--rate 1000]

Prints percentiles in microseconds, and fails if with the daemon absent the 99.9th is above 100. Runs of all calls at
once show the cost of a call, those at a fixed rate what a control loop sees, whose thread sleeps in between. The first
lines are of calls that only make the row, without a thread: what is slow there is the machine. So is what another
program's turn on the processor costs: `calm` is the 99.9th percentile of the calls that were not preempted, which is
what to look at where the machine is not quiet. Waiting for a lock or for Python's own is no preemption, and counts.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from criticd import Counters, Sender
from criticd._rows import Rows
from criticd.testing import Daemon


def preemptions() -> int:
    """How often another program has taken this thread's processor."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def measure(sender: Sender | Alone, calls: int, rate: float | None) -> np.ndarray:
    """Nanoseconds of each call, negative if preempted: states of four numbers, a number as reward and one as action."""
    states = np.random.default_rng(0).standard_normal((1001, 4))
    taken = np.empty(calls, np.int64)
    due = time.perf_counter()
    for call in range(calls):
        k = call % 1000
        others = preemptions()
        before = time.perf_counter_ns()
        sender.send(states[k], -1.0, states[k + 1], truncated=k == 999, action=0.5)
        taken[call] = time.perf_counter_ns() - before
        if preemptions() != others:
            taken[call] *= -1
        if rate is not None:
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
    return taken


class Alone:
    """What this machine does to a call that has no thread beside it: only makes the row."""

    counters = Counters()

    def send(self, state: np.ndarray, reward: float, next_state: np.ndarray, *, truncated: bool, action: float) -> None:
        """Make a row, and forget it."""
        Rows.single(state, reward, next_state, False, truncated, action, None, None)


def report(what: str, taken: np.ndarray, sender: Sender | Alone) -> float:
    calm = float(np.percentile(taken[taken > 0], 99.9)) / 1000
    found = {q: float(np.percentile(np.abs(taken), q)) / 1000 for q in (50, 99, 99.9, 100)}
    counters = sender.counters
    print(
        f"{what:44} median {found[50]:6.1f}  99 % {found[99]:6.1f}  99.9 % {found[99.9]:6.1f}  "
        f"longest {found[100]:8.1f} us   calm {calm:6.1f}   taken {counters.taken}, dropped {counters.dropped}"
    )
    return found[99.9]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=1000.0)
    arguments = parser.parse_args()
    paced = min(arguments.calls, round(10 * arguments.rate))
    absent, slowest = "tcp://127.0.0.1:1", 0.0
    alone = Alone()
    report("no sender, as fast as it goes", measure(alone, arguments.calls, None), alone)
    report(f"no sender, {arguments.rate:g} calls per second", measure(alone, paced, arguments.rate), alone)
    for what, rate, rows in (
        ("daemon absent, as fast as it goes", None, 1 << 20),
        ("daemon absent, queue of 1000 rows full", None, 1000),
        (f"daemon absent, {arguments.rate:g} calls per second", arguments.rate, 1 << 20),
    ):
        sender = Sender(absent, queue_rows=rows)
        taken = measure(sender, arguments.calls if rate is None else paced, rate)
        slowest = max(slowest, report(what, taken, sender))
        sender.close(0.0)
    with Daemon() as daemon:
        for what, rate in (("daemon learning, as fast as it goes", None), ("daemon learning, paced", arguments.rate)):
            with daemon.sender(queue_rows=1 << 20) as sender:
                report(what, measure(sender, arguments.calls if rate is None else paced, rate), sender)
    print(f"99.9 % of calls with the daemon absent took at most {slowest:.1f} us")
    return int(slowest > 100.0)


if __name__ == "__main__":
    sys.exit(main())
