"""What `wrap` and `wrap_vector` add to a step of an environment, with nobody listening and with a daemon.

    python benchmarks/overhead.py [--steps 20000]

Prints medians in microseconds: of steps alone, and by how much wrapped steps take more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from criticd import Sender
from criticd.gym import wrap, wrap_vector
from criticd.testing import Daemon


def median(env: Any, steps: int) -> float:
    """Microseconds of a step, of one environment or of all copies; resets are not counted."""
    action = env.action_space.sample()
    env.reset(seed=0)
    spent = np.empty(steps)
    for step in range(steps):
        begun = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        spent[step] = time.perf_counter() - begun
        if not isinstance(env, gymnasium.vector.VectorEnv) and (terminated or truncated):
            env.reset()
    return 1e6 * float(np.median(spent))


def report(what: str, make: Callable[[], Any], wrapper: Callable[[Any, Sender], Any], steps: int) -> None:
    """A line: alone, with nobody there, with a daemon."""
    alone = median(make(), steps)
    silent = Sender("tcp://127.0.0.1:1", queue_rows=1 << 21)
    absent = median(wrapper(make(), silent), steps)
    silent.close(0.0)
    with Daemon() as daemon, daemon.sender(queue_rows=1 << 21) as sender:
        present = median(wrapper(make(), sender), steps)
    print(
        f"{what:25} {alone:6.1f} us a step, {absent - alone:6.1f} more if nobody listens, "
        f"{present - alone:6.1f} more with a daemon"
    )


def main() -> None:
    """Measure single environments and vectors of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    steps, copies = parser.parse_args().steps, 64
    for name in ("CartPole-v1", "Pendulum-v1"):
        report(name, partial(gymnasium.make, name), wrap, steps)
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        options = {"autoreset_mode": mode}
        report(
            f"{copies} CartPole, {mode.name}",
            partial(gymnasium.make_vec, "CartPole-v1", copies, "sync", vector_kwargs=options),
            wrap_vector,
            max(1, steps // copies),
        )


if __name__ == "__main__":
    main()
