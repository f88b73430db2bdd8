"""A rover with a battery that drives home over a field: a simulator that writes the log of its missions.

    python rover.py missions.csv [--missions 400] [--seed 1]
    python rover.py --picture rover.png          # learns its value and draws it; needs criticd
    python rover.py --judge rover.model          # beside fresh missions; needs criticd

The field is 2 km by 1.4 km, with a hill, a bog and a wood. A mission begins anywhere, with some charge, and ends at the
dock in the lower left corner, or where the battery is empty and somebody has to fetch the rover. The log has a row for
each minute: mission, step, x and y in km, battery in per cent, minutes (1, and 45 more where the battery is empty), and
ended (1 in the last row of a mission). The sum of the minutes to come is the time until the rover is home.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

DOCK = (0.2, 0.2)
WOOD = (1.3, 0.8)
"""Where the wood begins, in the upper right corner; the rover is never there."""
CAPACITY_WH, CRUISE_KM, RESCUE_MIN = 150.0, 0.06, 45.0
"""Of a full battery; of a minute on firm, level ground; until somebody has fetched the rover."""


def height_m(x: float, y: float) -> float:
    """The hill, 90 m high."""
    return 90.0 * math.exp(-((x - 0.75) ** 2 + (y - 0.95) ** 2) / 0.09)


def softness(x: float, y: float) -> float:
    """How soft the ground is: 0 is firm, 1 the middle of the bog."""
    return math.exp(-(((x - 1.0) / 0.4) ** 2 + ((y - 0.2) / 0.2) ** 2))


def minute(source: random.Random, x: float, y: float, battery: float) -> tuple[float, float, float]:
    """Where a minute of driving leads, and the charge that is left, in per cent."""
    heading = math.atan2(DOCK[1] - y, DOCK[0] - x) + source.gauss(0.0, 0.35)
    speed = CRUISE_KM * (1.0 - 0.7 * softness(x, y)) * source.uniform(0.85, 1.15)
    speed = min(speed, math.dist((x, y), DOCK))
    x_after = min(max(x + speed * math.cos(heading), 0.0), 2.0)
    y_after = min(max(y + speed * math.sin(heading), 0.0), 1.4)
    climb = max(height_m(x_after, y_after) - height_m(x, y), 0.0)
    energy_wh = (1.5 + 15.0 * speed) * (1.0 + 0.8 * softness(x, y)) + 0.2 * climb  # 75 kg, uphill
    return x_after, y_after, battery - 100.0 * energy_wh / CAPACITY_WH * source.lognormvariate(-0.12, 0.5)


def mission(
    source: random.Random, x: float, y: float, battery: float
) -> Iterator[tuple[float, float, float, float, bool]]:
    """Minutes of one mission: (x, y, battery, cost, ended), the state before the minute and what the minute cost."""
    ended = False
    while not ended:
        x_after, y_after, battery_after = minute(source, x, y, battery)
        empty = battery_after <= 0.0
        ended = empty or math.dist((x_after, y_after), DOCK) < 0.03
        yield x, y, battery, 1.0 + RESCUE_MIN * empty, ended
        x, y, battery = x_after, y_after, battery_after


def start(source: random.Random) -> tuple[float, float, float]:
    """Any place but the wood, and a charge of 20 to 100 per cent."""
    while True:
        x, y = source.uniform(0.0, 2.0), source.uniform(0.0, 1.4)
        if x < WOOD[0] or y < WOOD[1]:
            return x, y, source.uniform(20.0, 100.0)


def write(path: str, missions: int, seed: int) -> None:
    """Write the log of missions as CSV."""
    source = random.Random(seed)
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["mission", "step", "x", "y", "battery", "minutes", "ended"])
        for number in range(missions):
            for count, (x, y, battery, cost, ended) in enumerate(mission(source, *start(source))):
                table.writerow([number, count, f"{x:.4f}", f"{y:.4f}", f"{battery:.2f}", f"{cost:g}", int(ended)])


def draw(out: str) -> None:
    """Learn the value from the log of 400 missions, and draw it beside its errors on 400 others."""
    write("missions.csv", 400, 1)
    write("fresh.csv", 400, 2)
    columns = shlex.quote(str(Path(__file__).with_name("rover.toml")))
    for command in (
        f"criticd fit missions.csv --columns {columns} --discount 1 --out rover.model",
        f"criticd plot rover.model --x x --y y --at battery=45 --errors fresh.csv --out {shlex.quote(out)}",
    ):
        print(f"$ {command}", flush=True)
        subprocess.run(shlex.split(command), check=True)


def judge(path: str, states: int = 200, missions: int = 100) -> None:
    """Print how far the values of a model are from the means of fresh missions."""
    import numpy as np

    from criticd import Snapshot

    source = random.Random(9)
    visited = [row[:3] for _ in range(states) for row in mission(source, *start(source))]
    chosen = source.sample(visited, states)
    returns = np.array([[-sum(row[3] for row in mission(source, *place)) for _ in range(missions)] for place in chosen])
    answer, truth = Snapshot.load(path)(np.array(chosen), std=True, returns=True), returns.mean(axis=1)
    error = answer.mean - truth
    assert answer.std is not None
    low, high = (bound[:, None] for bound in answer.return_interval(0.9))
    print(f"values of {states} states beside the means of {missions} fresh missions from each:")
    print(f"error {np.sqrt(np.mean(error**2)):.1f} min (rms) of a spread of {truth.std():.1f}")
    print(f"{np.mean(np.abs(error) < 1.645 * answer.std):.0%} of the means in the 90 % interval of the value")
    print(f"{np.mean((low <= returns) & (returns <= high)):.0%} of the missions in the 90 % interval of a return")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", help="the CSV file to write")
    parser.add_argument("--missions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", metavar="FILE", help="write two logs, fit one, and draw the value with its errors")
    parser.add_argument("--judge", metavar="MODEL", help="a model learned from such a log: how good are its values?")
    given = parser.parse_args()
    if given.out:
        write(given.out, given.missions, given.seed)
    if given.picture:
        draw(given.picture)
    if given.judge:
        judge(given.judge)


if __name__ == "__main__":
    main()
