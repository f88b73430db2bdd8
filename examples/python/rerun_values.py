"""Show the value of where a robot is, and how sure it is, in Rerun beside its state.

    pip install rerun-sdk
    python rerun_values.py [--steps 2000] [--out run.rrd]
    rerun run.rrd

A cart is driven towards 0. Its rows go to a daemon, started here on free ports. At each step the newest model is
evaluated here, and logged with the state, the reward and the temporal-difference error. With --spawn the viewer opens.
"""

from __future__ import annotations

import argparse

import numpy as np
import rerun

from criticd import Daemon, Subscriber

DISCOUNT = 0.95


def step(state: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """One step of 0.1 s of position and speed: where it leads, and what it earns."""
    force = -1.5 * state[0] - 1.0 * state[1] + 0.3 * generator.standard_normal()
    speed = state[1] + 0.1 * force
    return np.array([state[0] + 0.1 * speed, speed]), float(-(state[0] ** 2) - 0.01 * force**2)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", default="run.rrd", help="recording")
    parser.add_argument("--spawn", action="store_true", help="open the viewer instead of writing a file")
    given = parser.parse_args()
    rerun.init("criticd", spawn=given.spawn)
    if not given.spawn:
        rerun.save(given.out)
    generator, evaluated = np.random.default_rng(0), 0
    with (
        Daemon(f"critic.discount={DISCOUNT}") as daemon,
        daemon.sender(stream="cart", reliable=True) as sender,
        Subscriber(data_dir=daemon.data_dir) as models,
    ):
        state = generator.uniform(-1, 1, 2)
        for number in range(given.steps):
            following, reward = step(state, generator)
            over = number % 50 == 49
            sender.send(state, reward, following, truncated=over)
            rerun.set_time("step", sequence=number)
            rerun.log("cart/position", rerun.Scalars(float(state[0])))
            rerun.log("cart/speed", rerun.Scalars(float(state[1])))
            rerun.log("cart/reward", rerun.Scalars(reward))
            if number == 200:
                # The first model needs some rows, and this loop is faster than any robot.
                sender.flush()
                models.wait(30)
            if (model := models.latest) is not None:
                # Of this state and the next, so that the error of the step is at hand as well.
                (value, after), (deviation, _) = (
                    part.tolist() for part in model(np.stack([state, following]), std=True)
                )
                rerun.log("value/mean", rerun.Scalars(value))
                rerun.log("value/band", rerun.Scalars([value - deviation, value + deviation]))
                rerun.log("value/td_error", rerun.Scalars(reward + DISCOUNT * after - value))
                evaluated += 1
            state = generator.uniform(-1, 1, 2) if over else following
    print(f"{given.steps} steps, the value of {evaluated} of them" + ("" if given.spawn else f", in {given.out}"))


if __name__ == "__main__":
    main()
