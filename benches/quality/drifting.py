"""Streams that drift: series that were measured, and worlds whose laws change at a known row.

Each is asked for the value of a state before that row is learned, and judged by the returns that came. Of most worlds
the true values of every moment are known, too. `names` lists them, `load` makes one.
"""

import csv
import dataclasses
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from streams import Missing

VERSION = 1
"""Of the definitions below: raise it with every change that changes what a stream holds."""


@dataclass(frozen=True, eq=False)
class Drifting:
    """n rows in their order, as in `streams.Stream`, and `returns` (n,): what came after each, nan where not known.

    `change` is the row before which the laws changed first, or None. `truth(row)` gives held-out states (k, D) as they
    look at that row, their true values (k,) if the laws of that row lasted, and the values' standard error (k,); None
    where values are not known.
    """

    states: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    discount: float
    returns: np.ndarray
    change: int | None = None
    truth: Callable | None = None

    @property
    def horizon(self):
        """Rows that a return looks ahead: 1 / (1 - discount), 100 where the discount is 1."""
        return 100.0 if self.discount == 1.0 else 1.0 / (1.0 - self.discount)

    def windows(self):
        """The slices of rows that errors are given of: before and after the change, or the two halves.

        The first leaves out the first 2000 rows, or the first 64 of a series with fewer than 4000.
        """
        n = len(self.rewards)
        middle = n // 2 if self.change is None else self.change
        return slice(2000 if n >= 4000 else min(64, middle // 2), middle), slice(middle, n)


# ---------------------------------------------------------------------------------------------------------------------
# Series that were measured

MEANS = 0.999
"""What is kept of a running mean of sensors at each row."""
LIMIT = 10.0


def summed(values, keep):
    """s_t = keep s_(t-1) + v_t along the first axis of values (n, ...)."""
    sums = np.array(values, float)
    for t in range(1, len(sums)):
        sums[t] += keep * sums[t - 1]
    return sums


def standardised(values):
    """Each row (n, D) in deviations from the mean of the rows up to it."""
    counts = np.arange(1, len(values) + 1)[:, None]
    first = values[0]
    sums, squares = np.cumsum(values - first, axis=0), np.cumsum((values - first) ** 2, axis=0)
    variances = (squares - sums**2 / counts) / np.maximum(counts - 1, 1)
    variances = np.where(counts > 1, np.maximum(variances, 0.0), 1.0)
    return (values - first - sums / counts) / np.sqrt(variances + 1e-8)


def returns_of(rewards, discount, tail):
    """Discounted sums of rewards (n,) to the end, where they go on with `tail`."""
    closed = rewards.copy()
    closed[-1] += discount * tail
    return summed(closed[::-1], discount)[::-1]


def forecast(sensors, target, raw, discount=0.99):
    """The discounted future of one sensor from the running means of all: the task of Stream TD [Elsayed et al. 2024].

    `sensors` (n + 1, D); `target` the column that is the reward, scaled to [0, 1]. States are the running means in
    deviations from what they were so far, behind the sensors themselves with `raw`. One chain without an end. Returns
    of the last 10 horizons are not known.
    """
    corrected = 1.0 - MEANS ** np.arange(1, len(sensors) + 1)
    means = (1.0 - MEANS) * summed(sensors, MEANS) / corrected[:, None]
    states = standardised(means)
    if raw:
        states = np.hstack([np.clip(standardised(sensors), -LIMIT, LIMIT), states])
    column = sensors[:, target]
    rewards = (column[1:] - column.min()) / np.ptp(column)
    returns = returns_of(rewards, discount, rewards[-500:].mean() / (1.0 - discount))
    returns[-round(10.0 / (1.0 - discount)) :] = np.nan
    nowhere = np.zeros(len(rewards), bool)
    cut = nowhere.copy()
    cut[-1] = True
    return Drifting(states[:-1], rewards, states[1:], nowhere, cut, discount, returns)


def electricity(data, name):
    """`FILE/COLUMN/INPUTS` of the Electricity Transformer Dataset [Zhou et al. 2021], 7 or 14 inputs.

    Its files are not shipped: CC BY-ND 4.0, 2.4 MB each. `data` is the folder that holds them.
    """
    file, column, inputs = name.split("/")
    path = Path(data or ".") / f"{file}.csv"
    if not path.exists():
        raise Missing(f"there is no {path}: name the folder of the Electricity Transformer Dataset with --data")
    with path.open() as opened:
        header, *rows = csv.reader(opened)
    return forecast(np.array([row[1:] for row in rows], float), header.index(column) - 1, inputs == "14")


def furnace(rng, rows=17_500):
    """Seven sensors of a plant, made: one of the same kind that no file is needed for.

    Load follows the day, the week and a slow wander. Two furnaces share it, and the share wanders, too. The seventh
    sensor is a temperature that follows the load of both with a delay of 150 rows, and a season.
    """
    n = rows + 1
    hours = np.arange(n)

    def wander(memory):
        noise = rng.standard_normal(n) * math.sqrt(2.0 / memory)
        noise[0] = rng.standard_normal()
        return summed(noise, 1.0 - 1.0 / memory)

    cycle = np.sin(2 * np.pi * hours / 24) + 0.4 * np.sin(2 * np.pi * hours / 168)
    load = 2.0 + 0.6 * cycle + 0.8 * wander(3000) + 0.3 * wander(20)
    share = 0.5 + 0.2 * np.tanh(wander(4000))
    season = 1.5 * np.sin(2 * np.pi * (hours / 8760 + rng.random()))
    heat = summed(load * (0.5 + share) / 150, 1 - 1 / 150)
    temperature = 3.0 * heat + season + 0.5 * wander(500) + 1.5 * wander(10) + rng.standard_normal(n)
    sensors = [load * share, load * (1 - share), load, share + 0.1 * wander(50), cycle + 0.3 * wander(30), season]
    noisy = np.stack(sensors, axis=1) + 0.1 * rng.standard_normal((n, 6))
    return forecast(np.hstack([noisy, temperature[:, None]]), 6, raw=False)


def regression(states, targets):
    """Rows of a regression that goes on: each is an episode of its own, and the return is the reward."""
    ends = np.ones(len(targets), bool)
    return Drifting(states, targets, states.copy(), ends, ~ends, 0.0, targets.copy())


def river(name):
    """A series that the package `river` carries."""
    try:
        from river import datasets
    except ImportError as error:
        raise Missing("the package river is not installed") from error
    found = {"trump": "TrumpApproval", "airline": "AirlinePassengers", "water": "WaterFlow", "chick": "ChickWeights"}
    rows = list(getattr(datasets, found[name])())
    targets = np.array([y for _, y in rows], float)
    index = np.arange(len(rows), dtype=float)
    period = {"airline": 12.0, "water": 24.0}.get(name)
    if period is not None:
        turn = 2 * np.pi * index / period
        return regression(np.stack([index, np.sin(turn), np.cos(turn)], axis=1), targets)
    keys = sorted(rows[0][0])
    return regression(np.array([[x[key] for key in keys] for x, _ in rows], float), targets)


# ---------------------------------------------------------------------------------------------------------------------
# Worlds whose laws change

BEFORE, AFTER = 30_000, 30_000
"""Rows before the change and after it."""
RAMP = 20_000
"""Rows that a slow change takes."""
NEGLIGIBLE = 1e-3
HELD_OUT = 150


@dataclass(frozen=True)
class Laws:
    """What may change about a world; arrays (c,), one entry for each copy that moves, or single numbers."""

    size: object = 1.0
    offset: object = 0.0
    right: object = 0.5
    gravity: object = 9.81
    gains: object = 0.0
    swapped: object = 0.0
    angle: object = 0.35
    phase: object = 0.0

    def at(self, rows):
        """The laws of some rows, where a law is a function of the row."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Laws(**{name: law(rows) if callable(law) else law for name, law in fields.items()})


def step_to(before, after):
    return lambda rows: np.where(np.asarray(rows) < BEFORE, before, after)


def ramp_to(before, after):
    return lambda rows: before + (after - before) * np.clip((np.asarray(rows) - BEFORE) / RAMP, 0.0, 1.0)


class Walk:
    """19 places in a row, a step right with probability `right`; reward: the place, and noise. Cut every 100 rows.

    `offset` is added to what is seen of the place, of which the deviation is 0.6.
    """

    discount, limit = 0.95, 100
    changes: ClassVar = {
        "policy": Laws(right=step_to(0.5, 0.7)),
        "sign": Laws(size=step_to(1.0, -1.0)),
        "dynamics": Laws(right=step_to(0.5, 0.57)),
        "offset": Laws(offset=step_to(0.0, 0.15)),
        "slow": Laws(right=ramp_to(0.5, 0.7)),
        "none": Laws(),
    }

    def start(self, count, rng):
        return rng.integers(0, 19, (count, 1)).astype(float)

    def observe(self, places, laws):
        return places / 9.0 - 1.0 + np.reshape(laws.offset, (-1, 1))

    def step(self, places, laws, rng):
        rewards = laws.size * (places[:, 0] / 9.0 - 1.0) + 0.3 * rng.standard_normal(len(places))
        moves = np.where(rng.random(len(places)) < laws.right, 1.0, -1.0)
        return np.clip(places + moves[:, None], 0.0, 18.0), rewards

    def values(self, places, laws, rng):
        """Solved for: (k,), and their error."""
        moves, all_places = np.zeros((19, 19)), np.arange(19)
        moves[all_places, np.minimum(all_places + 1, 18)] += float(laws.right)
        moves[all_places, np.maximum(all_places - 1, 0)] += 1.0 - float(laws.right)
        rewards = float(laws.size) * (all_places / 9.0 - 1.0)
        values = np.linalg.solve(np.eye(19) - self.discount * moves, rewards)
        return values[places[:, 0].astype(int)], np.zeros(len(places))


class Pendulum:
    """A pendulum that swings itself up by energy, its torque and its speed noisy. Cut every 200 rows.

    `gains` 0 are those before the change and 1 weaker ones; `offset` is added to the cosine that is seen.
    """

    discount, limit = 0.95, 200
    changes: ClassVar = {
        "policy": Laws(gains=step_to(0.0, 1.0)),
        "sign": Laws(size=step_to(1.0, -1.0)),
        "dynamics": Laws(gravity=step_to(9.81, 11.0)),
        "offset": Laws(offset=step_to(0.0, 0.15)),
        "slow": Laws(gravity=ramp_to(9.81, 12.19)),
        "none": Laws(),
    }

    def start(self, count, rng):
        return np.stack([rng.uniform(-np.pi, np.pi, count), rng.uniform(-1.0, 1.0, count)], axis=1)

    def observe(self, moving, laws):
        angle, speed = moving.T
        return np.stack([np.cos(angle) + laws.offset, np.sin(angle), speed], axis=1)

    def step(self, moving, laws, rng):
        angle, speed = moving.T
        weak = np.asarray(laws.gains) > 0.5
        energy = 0.5 * speed**2 + 9.81 * (np.cos(angle) - 1.0)
        upright = -np.where(weak, 14.0, 18.0) * angle - np.where(weak, 2.0, 4.0) * speed
        swing = -np.where(weak, 0.5, 1.0) * energy * np.sign(speed)
        torque = np.clip(np.where(np.abs(angle) < 0.7, upright, swing), -5.0, 5.0)
        torque = torque + rng.standard_normal(len(angle))
        rewards = -laws.size * (angle**2 + 0.1 * speed**2 + 0.01 * torque**2)
        for _ in range(2):
            speed = speed + 0.025 * (laws.gravity * np.sin(angle) + torque - 0.1 * speed)
            angle = angle + 0.025 * speed
        speed = np.clip(speed, -8.0, 8.0) + 0.05 * rng.standard_normal(len(angle))
        return np.stack([(angle + np.pi) % (2.0 * np.pi) - np.pi, speed], axis=1), rewards

    def values(self, moving, laws, rng, repeats=60):
        """Means of rollouts: (k,), and their error."""
        copies, totals, weight = np.repeat(moving, repeats, axis=0), 0.0, 1.0
        while weight > NEGLIGIBLE:
            copies, rewards = self.step(copies, laws, rng)
            totals, weight = totals + weight * rewards, weight * self.discount
        totals = totals.reshape(len(moving), repeats)
        return totals.mean(axis=1), totals.std(axis=1) / math.sqrt(repeats)


class Linear:
    """Two variables that turn and shrink towards 0, driven by noise; the reward is three waves of them, and noise.

    x' = 0.95 R(angle) x + sqrt(1 - 0.95^2) e, so each variable has deviation 1 whatever the angle. Cut every 100 rows.
    `phase` shifts the waves, `swapped` exchanges what is seen of the variables, `offset` is added to the first.
    """

    discount, limit = 0.95, 100
    keep, noise = 0.95, 0.3
    waves = np.array([[1.1, 0.4], [-0.5, 1.3], [0.9, -1.0]])
    heights, phases = np.array([1.0, 0.8, 0.6]), np.array([0.3, 1.7, 4.0])
    changes: ClassVar = {
        "double": Laws(size=step_to(1.0, 2.0)),
        "swap": Laws(swapped=step_to(0.0, 1.0)),
        "turn": Laws(angle=step_to(0.35, -0.35)),
        "bias": Laws(offset=step_to(0.0, 0.6)),
        "ramp": Laws(phase=ramp_to(0.0, 1.5)),
        "none": Laws(),
    }

    def start(self, count, rng):
        return rng.standard_normal((count, 2))

    def observe(self, x, laws):
        seen = np.where(np.reshape(laws.swapped, (-1, 1)) > 0.5, x[:, ::-1], x)
        return seen + np.outer(np.broadcast_to(laws.offset, len(x)), [1.0, 0.0])

    def turned(self, x, angle):
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], axis=1)

    def step(self, x, laws, rng):
        waves = np.sin(x @ self.waves.T + self.phases + np.reshape(laws.phase, (-1, 1))) @ self.heights
        rewards = laws.size * (waves + self.noise * rng.standard_normal(len(x)))
        driven = math.sqrt(1.0 - self.keep**2) * rng.standard_normal(x.shape)
        return self.keep * self.turned(x, laws.angle) + driven, rewards

    def values(self, x, laws, rng):
        """In closed form: x after t rows is normal, and E sin(w'x + p) = exp(-w'Sw / 2) sin(w'm + p)."""
        values = np.zeros(len(x))
        for t in range(math.ceil(math.log(1e-6) / math.log(self.discount))):
            means = self.keep**t * self.turned(x, t * float(laws.angle))
            faded = np.exp(-0.5 * (self.waves**2).sum(axis=1) * (1.0 - self.keep ** (2 * t)))
            waves = np.sin(means @ self.waves.T + self.phases + float(laws.phase)) @ (faded * self.heights)
            values += self.discount**t * waves
        return float(laws.size) * values, np.zeros(len(x))


class Hidden:
    """Four slow variables, a hidden one, and noise whose size wanders slowly; one chain without an end.

    Its values are not known.
    """

    discount = 0.9
    memories = np.array([20.0, 60.0, 200.0, 600.0, 2000.0, 2000.0])
    changes: ClassVar = {
        "dynamics": Laws(size=step_to(1.0, 1.4)),
        "sign": Laws(size=step_to(1.0, -1.0)),
        "offset": Laws(offset=step_to(0.0, 0.5)),
        "slow": Laws(size=ramp_to(1.0, 1.6)),
        "none": Laws(),
    }

    def stream(self, laws, rng):
        tail = math.ceil(math.log(NEGLIGIBLE) / math.log(self.discount))
        n = BEFORE + AFTER
        rows = np.arange(n + tail)
        laws = laws.at(rows)
        noise = rng.standard_normal((n + tail, 6)) * np.sqrt(2.0 / self.memories)
        x = summed(noise, 1.0 - 1.0 / self.memories)
        clean = np.tanh(x[:, 0] + x[:, 1]) + 0.5 * x[:, 2] * x[:, 3] + 0.5 * x[:, 4]
        rewards = laws.size * clean + 0.3 * np.exp(0.5 * x[:, 5]) * rng.standard_normal(n + tail)
        states = x[:, :4] + np.outer(np.broadcast_to(laws.offset, n + tail), [1.0, 0.0, 0.0, 0.0])
        returns = returns_of(rewards, self.discount, 0.0)[:n]
        nowhere = np.zeros(n, bool)
        cut = nowhere.copy()
        cut[-1] = True
        return Drifting(states[:n], rewards[:n], states[1 : n + 1], nowhere, cut, self.discount, returns, BEFORE)


WORLDS = {"walk": Walk(), "pendulum": Pendulum(), "linear": Linear(), "hidden": Hidden()}


def chains(world, laws, rng):
    """All chains of a world side by side: each is followed beyond its cut until what comes is negligible."""
    rows, limit = BEFORE + AFTER, world.limit
    tail = math.ceil(math.log(NEGLIGIBLE) / math.log(world.discount))
    starts = np.arange(0, rows, limit)
    moving = world.start(len(starts), rng)
    states, after, rewards = [], [], []
    for k in range(limit + tail):
        now = laws.at(starts + k)
        states.append(world.observe(moving, now))
        moving, reward = world.step(moving, now, rng)
        rewards.append(reward)
        # As the next row of the chain sees it, so that the two are one state.
        after.append(world.observe(moving, laws.at(starts + k + 1) if k + 1 < limit else now))
    states, after = (np.stack(part[:limit], axis=1).reshape(rows, -1) for part in (states, after))
    sums = summed(np.stack(rewards)[::-1], world.discount)[::-1].T
    cut = np.zeros(rows, bool)
    cut[limit - 1 :: limit] = True
    rewards = np.stack(rewards[:limit], axis=1).reshape(rows)
    return states, rewards, after, cut, sums[:, :limit].reshape(rows)


def changing(world, change, seed, rng):
    """A world with one of its changes, and its true values at any row."""
    laws = world.changes[change]
    if isinstance(world, Hidden):
        stream = world.stream(laws, rng)
        return stream if change != "none" else dataclasses.replace(stream, change=None)
    states, rewards, after, cut, returns = chains(world, laws, rng)

    def truth(row):
        """The held-out states are visited under the laws of that row: from starts, after half a chain."""
        now, fresh = laws.at(row), np.random.default_rng([seed, 5])
        moving = world.start(HELD_OUT, fresh)
        for _ in range(world.limit // 2):
            moving, _ = world.step(moving, now, fresh)
        values, error = world.values(moving, now, fresh)
        return world.observe(moving, now), values, error

    at = None if change == "none" else BEFORE
    return Drifting(states, rewards, after, np.zeros(len(cut), bool), cut, world.discount, returns, at, truth)


# ---------------------------------------------------------------------------------------------------------------------
# All of them

ELECTRICITY = ("ETTh2/OT/7", "ETTh2/OT/14")
RIVER = ("trump", "airline", "water", "chick")


def names():
    """Those that are measured unless others are named. Any `FILE/COLUMN/INPUTS` of the folder of data is one, too."""
    changes = [f"{kind}/{change}" for kind, world in WORLDS.items() for change in world.changes]
    return [*ELECTRICITY, "furnace", *RIVER, *changes]


def known(name):
    return name in names() or (name.count("/") == 2 and name.rsplit("/", 1)[1] in ("7", "14"))


def load(data, name, seed):
    """The stream `name` from `seed`, which series that were measured do not need. Raises `Missing`."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    if name in RIVER:
        return river(name)
    if name == "furnace":
        return furnace(rng)
    kind, _, change = name.partition("/")
    if kind in WORLDS:
        return changing(WORLDS[kind], change, seed, rng)
    return electricity(data, name)
