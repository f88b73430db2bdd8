"""The streams that values are measured on: rows of experience, held-out states, their true values, and fresh returns.

Every stream is a policy in an environment with a discount. Truth is solved for where the environment is finite, and
otherwise the mean of many rollouts from each state, of which the first 20 are kept as fresh returns. `FAMILIES` lists
all streams; `load` makes one from a seed, or takes it from the cache.
"""

import dataclasses
import importlib.util
import math
import os
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

VERSION = 1
"""Of the definitions below: raise it with every change that changes what a stream holds."""

RETURNS_KEPT = 20
NEGLIGIBLE = 1e-4
"""Rollouts end where the discount has fallen below this."""


@dataclass(frozen=True, eq=False)
class Stream:
    """n rows in the order in which they were made, chain after chain, and k held-out states of the same policy.

    `states`, `next_states` (n, D); `rewards`, `terminated`, `truncated` (n,); `test_states` (k, D); `truth` and its
    standard error `truth_error` (k,), both in the unit of returns; `returns` (k, 20). `discount` is in [0, 1].
    """

    states: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    discount: float
    test_states: np.ndarray
    truth: np.ndarray
    truth_error: np.ndarray
    returns: np.ndarray


class Missing(Exception):
    """A stream cannot be made here; the message says what is missing."""


# ---------------------------------------------------------------------------------------------------------------------
# Environments that move many copies at once


def as_it_is(states):
    return states


@dataclass(frozen=True)
class Dynamics:
    """`step(states, rng)` gives next states, rewards and whether they terminated, of (n, S) states, policy included.

    `reset(count, rng)` gives (count, S) states to start from, `observe` what a learner sees of states: (n, D).
    """

    step: Callable
    reset: Callable
    observe: Callable = as_it_is


def side_by_side(dynamics, copies, limit, rng):
    """Chains of `copies` copies that start together: a list of raw (states, rewards, next states, terminated)."""
    states = dynamics.reset(copies, rng)
    running = np.ones(copies, bool)
    lengths = np.zeros(copies, int)
    steps = []
    for _ in range(limit):
        after, rewards, ended = dynamics.step(states, rng)
        steps.append((states, rewards, after, ended))
        lengths += running
        running &= ~ended
        if not running.any():
            break
        states = after
    arrays = [np.stack(column) for column in zip(*steps, strict=True)]
    return [tuple(array[:length, copy] for array in arrays) for copy, length in enumerate(lengths)]


def experience(dynamics, rows, limit, rng, copies=8):
    """Exactly `rows` rows of whole chains, each cut after `limit` steps, and the last one where the rows end."""
    chains, count = [], 0
    while count < rows:
        fresh = side_by_side(dynamics, copies, limit, rng)
        count += sum(len(rewards) for _, rewards, _, _ in fresh)
        chains += fresh
    truncated = np.concatenate([np.arange(len(ended)) == limit - 1 for *_, ended in chains])[:rows]
    states, rewards, after, ended = (np.concatenate(column)[:rows] for column in zip(*chains, strict=True))
    truncated[-1] = True
    return states, rewards.astype(float), after, ended, truncated & ~ended


def visited(dynamics, count, limit, rng):
    """States that the policy visits, drawn from all steps of 40 whole chains at a time."""
    found = np.zeros((0, 1))
    pool = []
    while len(found) < 6 * count:
        pool += [states for states, *_ in side_by_side(dynamics, 40, limit, rng)]
        found = np.concatenate(pool)
    return found[rng.permutation(len(found))[:count]]


def rollouts(dynamics, starts, discount, repeats, horizon, rng):
    """Discounted returns (k, repeats) from raw states (k, S)."""
    returns = np.zeros(len(starts) * repeats)
    states, running, weight = np.repeat(starts, repeats, axis=0), np.arange(len(returns)), 1.0
    for _ in range(horizon):
        if len(running) == 0 or weight < NEGLIGIBLE:
            break
        states, rewards, ended = dynamics.step(states, rng)
        returns[running] += weight * rewards
        states, running, weight = states[~ended], running[~ended], weight * discount
    return returns.reshape(len(starts), repeats)


def simulated(dynamics, rng, *, rows, discount, limit, test, repeats, horizon, before=None, noiseless=None, copies=8):
    """A stream of `dynamics`, whose chains begin `copies` at a time; with `before`, its first half is of those dynamics instead.

    `noiseless`: the same without noise of rewards, from which the truth, which is the same, is known more exactly.
    """
    if before is None:
        pieces = [experience(dynamics, rows, limit, rng, copies)]
    else:
        pieces = [experience(before, rows // 2, limit, rng), experience(dynamics, rows - rows // 2, limit, rng)]
    states, rewards, after, terminated, truncated = (np.concatenate(c) for c in zip(*pieces, strict=True))
    starts = visited(dynamics, test, limit, rng)
    returns = rollouts(noiseless or dynamics, starts, discount, repeats, horizon, rng)
    observe = dynamics.observe
    stream = with_returns(
        returns, observe(states), rewards, observe(after), terminated, truncated, discount, observe(starts)
    )
    if noiseless is None:
        return stream
    return dataclasses.replace(stream, returns=rollouts(dynamics, starts, discount, RETURNS_KEPT, horizon, rng))


def with_returns(returns, states, rewards, next_states, terminated, truncated, discount, test_states):
    """A stream whose truth is the mean of returns (k, repeats)."""
    error = returns.std(axis=1, ddof=1) / math.sqrt(returns.shape[1])
    return Stream(
        np.asarray(states, float),
        np.asarray(rewards, float),
        np.asarray(next_states, float),
        np.asarray(terminated, bool),
        np.asarray(truncated, bool),
        float(discount),
        np.asarray(test_states, float),
        returns.mean(axis=1),
        error,
        returns[:, :RETURNS_KEPT],
    )


# ---------------------------------------------------------------------------------------------------------------------
# A walk in the unit square


GOAL, OTHER_GOAL, GOAL_RADIUS = np.array([0.85, 0.85]), np.array([0.15, 0.15]), 0.08
HILLS = np.array([[0.3, 0.4], [0.6, 0.2], [0.7, 0.6]])


def hills(positions):
    """Cost of the places between start and goal."""
    squared = ((positions[:, None] - HILLS) ** 2).sum(axis=2)
    return 4.0 * np.exp(-squared / 0.02).sum(axis=1)


def reward_noise(kind, positions, rng):
    count = len(positions)
    if kind == "heavy":
        return 2.0 * rng.standard_t(2.2, count)
    if kind == "noisy":
        return 10.0 * rng.standard_normal(count)
    if kind == "hetero":
        return np.where(positions[:, 0] > 0.5, 20.05, 0.05) * rng.standard_normal(count)
    return 0.0


def walk(kind, towards):
    """Steps of 0.02 towards a place with noise 0.04, through hills, until the goal is reached."""

    def step(positions, rng):
        way = towards - positions
        way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-9)
        after = np.clip(positions + 0.02 * way + 0.04 * rng.standard_normal(positions.shape), 0.0, 1.0)
        arrived = np.linalg.norm(after - GOAL, axis=1) < GOAL_RADIUS
        if kind == "sparse":
            return after, arrived.astype(float), arrived
        return after, -1.0 - hills(positions) + reward_noise(kind, positions, rng), arrived

    return Dynamics(step, lambda count, rng: rng.uniform(0.0, 0.6, (count, 2)))


def nav(rng, kind="plain", rows=20_000, discount=0.99, limit=200, horizon=1500):
    sizes = {"rows": rows, "discount": discount, "limit": limit, "test": 200, "repeats": 2400, "horizon": horizon}
    others = {}
    if kind == "switch":
        others["before"] = walk(kind, OTHER_GOAL)
    if kind in ("heavy", "noisy", "hetero"):
        others["noiseless"] = walk("plain", GOAL)
    stream = simulated(walk(kind, GOAL), rng, **sizes, **others)
    if kind == "irrel":
        # Ten more coordinates that mean nothing: autoregressive noise of variance 1, through all chains.
        noise = rng.standard_normal((rows + 1, 10))
        for i in range(1, len(noise)):
            noise[i] = 0.9 * noise[i - 1] + 0.436 * noise[i]
        return dataclasses.replace(
            stream,
            states=np.hstack([stream.states, noise[:-1]]),
            next_states=np.hstack([stream.next_states, noise[1:]]),
            test_states=np.hstack([stream.test_states, rng.standard_normal((len(stream.test_states), 10))]),
        )
    if kind == "scales":
        units = np.array([1e-3, 1e4])
        fields = ("states", "next_states", "test_states")
        return dataclasses.replace(stream, **{name: getattr(stream, name) * units for name in fields})
    return stream


# ---------------------------------------------------------------------------------------------------------------------
# Finite chains, whose values are solved for


@dataclass(frozen=True)
class Chain:
    """P (S, S), mean reward of leaving a state (S,), noise of it, what is seen of states (S, D), absorbing states (S,).

    `start(rng)` is the state that chains start from.
    """

    transition: np.ndarray
    reward: np.ndarray
    noise: float
    seen: np.ndarray
    absorbing: np.ndarray
    start: Callable


def chain_rows(chain, rows, limit, rng):
    """Indices of states and successors, rewards, terminated, truncated: (rows,) each."""
    cumulative = np.cumsum(chain.transition, axis=1)
    uniform, scatter = rng.random(rows), chain.noise * rng.standard_normal(rows)
    states, after = np.empty(rows, int), np.empty(rows, int)
    truncated = np.zeros(rows, bool)
    state, length = chain.start(rng), 0
    for i in range(rows):
        states[i] = state
        state = after[i] = min(int(np.searchsorted(cumulative[state], uniform[i])), len(cumulative) - 1)
        length += 1
        if chain.absorbing[state] or length == limit:
            truncated[i] = not chain.absorbing[state]
            state, length = chain.start(rng), 0
    terminated = chain.absorbing[after]
    truncated[-1] = not terminated[-1]
    return states, after, chain.reward[states] + scatter, terminated, truncated


def chain_values(chain, discount):
    """V (S,): 0 where absorbed."""
    values = np.zeros(len(chain.reward))
    inner = ~chain.absorbing
    system = np.eye(inner.sum()) - discount * chain.transition[np.ix_(inner, inner)]
    values[inner] = np.linalg.solve(system, chain.reward[inner])
    return values


def finite(chain, rng, *, rows, discount, limit, test=200):
    cumulative = np.cumsum(chain.transition, axis=1)

    def step(states, rng):
        at = states[:, 0]
        uniform = rng.random((len(at), 1))
        after = np.minimum((cumulative[at] < uniform).sum(axis=1), len(cumulative) - 1)
        rewards = chain.reward[at] + chain.noise * rng.standard_normal(len(at))
        return after[:, None], rewards, chain.absorbing[after]

    states, after, rewards, terminated, truncated = chain_rows(chain, rows, limit, rng)
    tested = rng.permutation(chain_rows(chain, 4000, limit, rng)[0])[:test]
    returns = rollouts(Dynamics(step, None), tested[:, None], discount, RETURNS_KEPT, 1500, rng)
    stream = with_returns(
        returns, chain.seen[states], rewards, chain.seen[after], terminated, truncated, discount, chain.seen[tested]
    )
    return dataclasses.replace(stream, truth=chain_values(chain, discount)[tested], truth_error=np.zeros(len(tested)))


def walk19(rng, rows=8_000, limit=10):
    """A symmetric walk over 19 states with reflecting ends; its reward rises from -1 to 1."""
    size = 19
    transition = np.zeros((size, size))
    for i in range(size):
        transition[i, max(i - 1, 0)] += 0.5
        transition[i, min(i + 1, size - 1)] += 0.5
    chain = Chain(
        transition,
        np.linspace(-1.0, 1.0, size),
        0.0,
        np.arange(size)[:, None] / (size - 1.0),
        np.zeros(size, bool),
        lambda rng: rng.integers(size),
    )
    return finite(chain, rng, rows=rows, discount=0.95, limit=limit)


def boyan(rng, rows=3_000, features=False):
    """Boyan's chain of 13 states (Least-squares temporal difference learning, 1999), down from 12 to the absorbing 0.

    A state is seen as its number, or through Boyan's four triangular features.
    """
    size = 13
    transition, reward = np.zeros((size, size)), np.full(size, -3.0)
    for state in range(2, size):
        transition[state, [state - 1, state - 2]] = 0.5
    transition[1, 0] = transition[0, 0] = 1.0
    reward[:2] = 0.0, -2.0
    numbers = np.arange(size)[:, None].astype(float)
    seen = np.maximum(0.0, 1.0 - np.abs(numbers - np.array([12.0, 8.0, 4.0, 0.0])) / 4.0) if features else numbers
    chain = Chain(transition, reward, 0.0, seen, np.arange(size) == 0, lambda rng: size - 1)
    return finite(chain, rng, rows=rows, discount=1.0, limit=1000)


def neighbours(rng, seed, rows=20_000, size=200, dim=2, discount=0.95, onehot=False):
    """A random chain of points in the unit cube: six of the ten nearest points follow, and now and then any point."""
    make = np.random.default_rng(3000 + seed)
    points = make.uniform(0.0, 1.0, (size, dim))
    transition = np.zeros((size, size))
    for i in range(size):
        near = np.argsort(((points - points[i]) ** 2).sum(axis=1))[:10]
        chosen = make.choice(near, 6, replace=False)
        transition[i, chosen] = make.dirichlet(np.ones(6))
    transition = 0.98 * transition + 0.02 / size
    reward = 2.0 * np.sin(3.0 * points[:, 0]) + np.cos(5.0 * points[:, 1]) + 0.3 * make.standard_normal(size)
    seen = np.eye(size) if onehot else points
    chain = Chain(transition, reward, 0.5, seen, np.zeros(size, bool), lambda rng: rng.integers(size))
    return finite(chain, rng, rows=rows, discount=discount, limit=100)


def grid11(rng, rows=8_000):
    """Eleven by eleven cells; a policy that goes to the middle, with three steps in ten at random. A step costs 1."""
    width, middle = 11, 5
    size, goal = width * width, middle * width + middle
    transition = np.zeros((size, size))
    for state in range(size):
        column, row = state % width, state // width
        moves = ((column + 1, row), (column - 1, row), (column, row + 1), (column, row - 1))
        cells = [(min(max(x, 0), width - 1), min(max(y, 0), width - 1)) for x, y in moves]
        distance = np.array([abs(x - middle) + abs(y - middle) for x, y in cells])
        best = distance == distance.min()
        for (x, y), chance in zip(cells, 0.3 / 4 + 0.7 * best / best.sum(), strict=True):
            transition[state, y * width + x] += chance
    seen = np.array([[state % width, state // width] for state in range(size)], float)
    others = np.delete(np.arange(size), goal)
    chain = Chain(transition, np.full(size, -1.0), 0.0, seen, np.arange(size) == goal, lambda rng: rng.choice(others))
    return finite(chain, rng, rows=rows, discount=0.95, limit=200)


# ---------------------------------------------------------------------------------------------------------------------
# Gymnasium's classic tasks, many copies at once, under fixed noisy policies


def wrapped(angle):
    return (angle + np.pi) % (2.0 * np.pi) - np.pi


def pendulum(rng, rows=20_000, raw=False):
    """Swung up by energy, then balanced; torque noise 0.5. Seen as cosine, sine, speed, or `raw` as angle and speed."""

    def step(states, rng):
        angle, speed = wrapped(states[:, 0]), states[:, 1]
        balance = (np.cos(angle) > 0.85) & (np.abs(speed) < 3.0)
        energy = speed**2 / 6.0 + 5.0 * (np.cos(angle) - 1.0)
        swing = -2.0 * np.tanh(2.0 * energy) * np.where(speed < 0.0, -1.0, 1.0)
        torque = np.clip(np.where(balance, -12.0 * angle - 3.0 * speed, swing), -2.0, 2.0)
        torque = np.clip(torque + 0.5 * rng.standard_normal(len(torque)), -2.0, 2.0)
        cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        after = np.clip(speed + 0.05 * (15.0 * np.sin(angle) + 3.0 * torque), -8.0, 8.0)
        return np.stack([angle + 0.05 * after, after], axis=1), -cost, np.zeros(len(cost), bool)

    def reset(count, rng):
        return np.stack([rng.uniform(-np.pi, np.pi, count), rng.uniform(-1.0, 1.0, count)], axis=1)

    def observe(states):
        angle, speed = states.T
        return np.stack([wrapped(angle), speed] if raw else [np.cos(angle), np.sin(angle), speed], axis=1)

    sizes = {"discount": 0.95, "limit": 200, "test": 150, "repeats": 150, "horizon": 400}
    return simulated(Dynamics(step, reset, observe), rng, rows=rows, **sizes)


def normals(rng, kind, rows=10_000):
    """Normal variables, each of which keeps nine tenths of itself from step to step; rewards have noise.

    `oblique`: rewards depend on two directions across eight of them. `bent`: they depend on three of five, one by one,
    and these are seen as exponential, cube and exponential.
    """
    across = np.random.default_rng(5).standard_normal((2, 8))
    across *= 1.3 / np.linalg.norm(across, axis=1, keepdims=True)
    along = {"oblique": across, "bent": np.diag([1.2, 1.2, 0.8, 0.0, 0.0])[:3]}[kind]
    noise = {"oblique": 0.3, "bent": 1.0}[kind]

    def reset(count, rng):
        return rng.standard_normal((count, along.shape[1]))

    def observe(states):
        if kind == "oblique":
            return states
        return np.column_stack([np.exp(1.3 * states[:, 0]), states[:, 1] ** 3, np.exp(states[:, 2]), states[:, 3:]])

    def dynamics(noise):
        def step(states, rng):
            rewards = np.sin(states @ along.T) @ [1.0, 0.7, 0.6][: len(along)]
            rewards = rewards + noise * rng.standard_normal(len(states))
            after = 0.9 * states + math.sqrt(1.0 - 0.81) * rng.standard_normal(states.shape)
            return after, rewards, np.zeros(len(states), bool)

        return Dynamics(step, reset, observe)

    sizes = {"discount": 0.95, "limit": 200, "test": 150, "repeats": 600, "horizon": 300}
    return simulated(dynamics(noise), rng, rows=rows, noiseless=dynamics(0.0), **sizes)


def wheel(rng, period, turns, rows=4_000):
    """A wheel that is pushed on from anywhere in so many turns, whose angle is not wrapped, and a variable of its own.

    What it earns depends on where it stands, with this period.
    """

    def reset(count, rng):
        return np.column_stack([rng.uniform(0.0, turns * period, count), rng.standard_normal(count)])

    def dynamics(noise):
        def step(states, rng):
            phase = 2.0 * np.pi * states[:, 0] / period
            rewards = np.cos(phase) + 0.5 * np.sin(2.0 * phase) + 0.3 * states[:, 1]
            pushed = 0.02 * period * (1.0 + 2.0 * rng.standard_normal(len(states)))
            other = 0.9 * states[:, 1] + math.sqrt(1.0 - 0.81) * rng.standard_normal(len(states))
            after = np.column_stack([states[:, 0] + pushed, other])
            return after, rewards + noise * rng.standard_normal(len(states)), np.zeros(len(states), bool)

        return Dynamics(step, reset)

    sizes = {"discount": 0.9, "limit": 50, "test": 100, "repeats": 400, "horizon": 100}
    return simulated(dynamics(0.3), rng, rows=rows, noiseless=dynamics(0.0), **sizes)


def mountain_car(rng, rows=20_000):
    """Pushed the way it moves; three pushes in ten at random."""

    def step(states, rng):
        position, speed = states.T
        push = np.where(speed >= 0.0, 1, -1)
        push = np.where(rng.random(len(push)) < 0.3, rng.integers(-1, 2, len(push)), push)
        speed = np.clip(speed + 0.001 * push - 0.0025 * np.cos(3.0 * position), -0.07, 0.07)
        position = np.clip(position + speed, -1.2, 0.6)
        speed = np.where((position <= -1.2) & (speed < 0.0), 0.0, speed)
        return np.stack([position, speed], axis=1), np.full(len(push), -1.0), position >= 0.5

    def reset(count, rng):
        return np.stack([rng.uniform(-0.6, -0.4, count), np.zeros(count)], axis=1)

    sizes = {"discount": 0.99, "limit": 200, "test": 150, "repeats": 600, "horizon": 1000}
    return simulated(Dynamics(step, reset), rng, rows=rows, **sizes)


def cart_pole(rng, rows=20_000):
    """Balanced by a linear rule; four pushes in ten at random. Reward 1 a step, until it falls or leaves the track."""

    def step(states, rng):
        place, speed, angle, turn = states.T
        right = angle + 0.25 * turn + 0.02 * place + 0.05 * speed > 0.0
        right = np.where(rng.random(len(right)) < 0.4, rng.random(len(right)) < 0.5, right)
        force, cosine, sine = np.where(right, 10.0, -10.0), np.cos(angle), np.sin(angle)
        drive = (force + 0.05 * turn**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * drive) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        moving = drive - 0.05 * turning * cosine / 1.1
        after = [place + 0.02 * speed, speed + 0.02 * moving, angle + 0.02 * turn, turn + 0.02 * turning]
        fallen = (np.abs(after[0]) > 2.4) | (np.abs(after[2]) > 12.0 * 2.0 * np.pi / 360.0)
        return np.stack(after, axis=1), np.ones(len(force)), fallen

    dynamics = Dynamics(step, lambda count, rng: rng.uniform(-0.05, 0.05, (count, 4)))
    sizes = {"discount": 0.99, "limit": 500, "test": 150, "repeats": 1200, "horizon": 1500}
    return simulated(dynamics, rng, rows=rows, **sizes)


def acrobot_derivative(state, torque):
    """Of angles and speeds (4, n), all masses and lengths 1 (Gymnasium's, as in Sutton and Barto's book)."""
    first, second, first_speed, second_speed = state
    gravity = 9.8
    inertia = 3.5 + np.cos(second)
    coupling = 1.25 + 0.5 * np.cos(second)
    pull = 0.5 * gravity * np.cos(first + second - np.pi / 2.0)
    whirl = 0.5 * np.sin(second)
    total = pull + 1.5 * gravity * np.cos(first - np.pi / 2.0)
    total -= whirl * second_speed**2 + 2.0 * whirl * second_speed * first_speed
    numerator = torque + coupling / inertia * total - whirl * first_speed**2 - pull
    second_turning = numerator / (1.25 - coupling**2 / inertia)
    first_turning = -(coupling * second_turning + total) / inertia
    return np.array([first_speed, second_speed, first_turning, second_turning])


def acrobot(rng, rows=20_000):
    """Torque along the speed of the elbow, three in ten at random; -1 a step until the tip is high."""

    def step(states, rng):
        state = states.T
        torque = np.where(state[3] >= 0.0, 1.0, -1.0)
        torque = np.where(rng.random(len(torque)) < 0.3, rng.integers(-1, 2, len(torque)), torque)
        h = 0.2
        k1 = acrobot_derivative(state, torque)
        k2 = acrobot_derivative(state + h / 2.0 * k1, torque)
        k3 = acrobot_derivative(state + h / 2.0 * k2, torque)
        k4 = acrobot_derivative(state + h * k3, torque)
        after = state + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        after[:2] = wrapped(after[:2])
        after[2] = np.clip(after[2], -4.0 * np.pi, 4.0 * np.pi)
        after[3] = np.clip(after[3], -9.0 * np.pi, 9.0 * np.pi)
        high = -np.cos(after[0]) - np.cos(after[0] + after[1]) > 1.0
        return after.T, np.where(high, 0.0, -1.0), high

    def observe(states):
        first, second, *speeds = states.T
        return np.stack([np.cos(first), np.sin(first), np.cos(second), np.sin(second), *speeds], axis=1)

    dynamics = Dynamics(step, lambda count, rng: rng.uniform(-0.1, 0.1, (count, 4)), observe)
    sizes = {"discount": 0.99, "limit": 500, "test": 120, "repeats": 600, "horizon": 1200}
    return simulated(dynamics, rng, rows=rows, **sizes)


# ---------------------------------------------------------------------------------------------------------------------
# The rover of the README


def rover(rng, rows=7_500, test=200, repeats=200):
    """Missions of `examples/python/rover.py`, the last one whole; discount 1. The tested states are of other missions."""
    place = Path(__file__).resolve().parents[2] / "examples" / "python" / "rover.py"
    spec = importlib.util.spec_from_file_location("rover", place)
    simulator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulator)
    source = random.Random(new_seed(rng))

    def chains(count):
        """Rows (state, reward, next state, terminated) of whole missions; the state behind an end is of no account."""
        found = []
        while len(found) < count:
            mission = list(simulator.mission(source, *simulator.start(source)))
            after = [row[:3] for row in mission[1:]] + [mission[-1][:3]]
            found += [(row[:3], -row[3], follows, row[4]) for row, follows in zip(mission, after, strict=True)]
        return found

    states, rewards, after, terminated = zip(*chains(rows), strict=True)
    tested = [state for state, *_ in source.sample(chains(4000), test)]
    returns = [[-sum(row[3] for row in simulator.mission(source, *state)) for _ in range(repeats)] for state in tested]
    truncated = np.zeros(len(states), bool)
    return with_returns(np.array(returns), states, rewards, after, terminated, truncated, 1.0, tested)


# ---------------------------------------------------------------------------------------------------------------------
# Environments of Gymnasium that move one copy at a time


def made(name):
    """The environment, or `Missing` with the reason."""
    try:
        import gymnasium

        return gymnasium.make(name)
    except Exception as error:  # whatever an absent or broken package raises
        raise Missing(f"{name} cannot be made: {error}") from error


def new_seed(rng):
    return int(rng.integers(1 << 30))


def episodes(env, act, rows, rng, look=lambda: None):
    """(observation, reward, next observation, terminated, truncated, `look()` before the step) for each of the rows."""
    seen, _ = env.reset(seed=new_seed(rng))
    for i in range(rows):
        before = look()
        after, reward, terminated, truncated, _ = env.step(act(seen))
        yield seen, reward, after, terminated, (truncated or i == rows - 1) and not terminated, before
        if terminated or truncated:
            after, _ = env.reset(seed=new_seed(rng))
        seen = after


def follow(unwrapped, act, seen, discount, horizon):
    """The return of the policy from where the environment is."""
    total, weight = 0.0, 1.0
    for _ in range(horizon):
        seen, reward, terminated, *_ = unwrapped.step(act(seen))
        total += weight * reward
        weight *= discount
        if terminated:
            break
    return total


def mujoco(rng, name, rows=20_000, test=40, repeats=96, horizon=600):
    """A fixed random policy, the tangent of a linear map, with noise 0.3.

    The truth is coarse: what it costs is processor time of the simulator alone, and its error is known.
    """
    env = made(name)
    simulator = env.unwrapped
    discount = 0.99
    policy = np.random.default_rng(5)
    actions, seen = env.action_space.shape[0], env.observation_space.shape[0]
    weights = policy.standard_normal((actions, seen)) * (0.3 / math.sqrt(seen))
    offset = policy.uniform(-0.2, 0.2, actions)

    def act(state):
        return np.clip(np.tanh(weights @ state + offset) + 0.3 * rng.standard_normal(actions), -1.0, 1.0)

    states, rewards, after, terminated, truncated, _ = zip(*episodes(env, act, rows, rng), strict=True)

    def look():
        return simulator.data.qpos.copy(), simulator.data.qvel.copy()

    # Independent chains, for states that no row has seen.
    found = list(episodes(env, act, 4000, rng, look))
    starts = [found[i] for i in rng.permutation(len(found))[:test]]
    returns = np.empty((test, repeats))
    for i, (state, *_, where) in enumerate(starts):
        for k in range(repeats):
            simulator.set_state(*where)
            returns[i, k] = follow(simulator, act, state, discount, horizon)
    tested = [state for state, *_ in starts]
    return with_returns(returns, states, rewards, after, terminated, truncated, discount, tested)


def lander(rng, rows=20_000, test=40, repeats=40):
    """LunarLander under Gymnasium's own heuristic, three actions in ten at random.

    Its simulator cannot be set to a state: each rollout repeats the actions that led there, from the same seed. Then
    the simulator's own noise is drawn anew.
    """
    env = made("LunarLander-v3")
    from gymnasium.envs.box2d.lunar_lander import heuristic

    simulator = env.unwrapped
    discount = 0.99

    def act(state):
        return int(rng.integers(4)) if rng.random() < 0.3 else int(heuristic(simulator, state))

    states, rewards, after, terminated, truncated, _ = zip(*episodes(env, act, rows, rng), strict=True)
    tested, returns = [], np.empty((test, repeats))
    for i in range(test):
        seed = new_seed(rng)
        path, actions = [env.reset(seed=seed)[0]], []
        for _ in range(600):
            actions.append(act(path[-1]))
            state, _, ended, *_ = simulator.step(actions[-1])
            if ended:
                break
            path.append(state)
        length = int(rng.integers(len(path)))
        tested.append(path[length])
        for k in range(repeats):
            env.reset(seed=seed)
            for action in actions[:length]:
                simulator.step(action)
            simulator.np_random = np.random.default_rng(new_seed(rng))
            returns[i, k] = follow(simulator, act, path[length], discount, 700)
    return with_returns(returns, states, rewards, after, terminated, truncated, discount, tested)


# ---------------------------------------------------------------------------------------------------------------------
# Where intervals are hard: few rows, few horizons, what no state shows


def uncertain(rng, kind, rows=10_000):
    """A variable that keeps nineteen twentieths of itself from step to step, and one of its own; rewards have noise.

    `few`: chains of 20, to be made with 200 rows. `long`: two chains at discount 0.999, ten horizons in all. `hidden`: rewards
    depend as much on a third variable, slower than both, which no row shows; what it adds is 0 in the mean.
    """
    limit, discount = {"few": (20, 0.95), "long": (rows // 2, 0.999), "hidden": (200, 0.95)}[kind]
    keep, bend, hidden = np.array([0.95, 0.8, 0.98]), 1.5, 0.5 if kind == "hidden" else 0.0

    def step(states, rng):
        rewards = np.sin(bend * states[:, 0]) + 0.3 * states[:, 1] + hidden * states[:, 2]
        after = keep * states + np.sqrt(1.0 - keep**2) * rng.standard_normal(states.shape)
        return after, rewards + 0.5 * rng.standard_normal(len(states)), np.zeros(len(states), bool)

    def reset(count, rng):
        return rng.standard_normal((count, 3))

    dynamics = Dynamics(step, reset, lambda states: states[:, :2])
    copies, horizon = (2, 6000) if kind == "long" else (8, 300)
    sizes = {"limit": limit, "test": 100, "repeats": RETURNS_KEPT, "horizon": horizon, "copies": copies}
    stream = simulated(dynamics, rng, rows=rows, discount=discount, **sizes)
    # The mean of sin(b x) over x ~ N(m, v) is sin(b m) exp(-b^2 v / 2): the mean of rewards t steps on.
    t = np.arange(1000)
    first, second = stream.test_states.T
    part = np.sin(bend * keep[0] ** t * first[:, None]) * np.exp(-0.5 * bend**2 * (1.0 - keep[0] ** (2 * t)))
    truth = part @ discount**t + 0.3 * second / (1.0 - discount * keep[1])
    return dataclasses.replace(stream, truth=truth, truth_error=np.zeros(len(truth)))


# ---------------------------------------------------------------------------------------------------------------------
# All of them

WHEELS = {0.8: 11, 2.5: 29, 6.2: 2, 360.0: 5}
"""Period and turns of the wheels, which only a run that names them has: `fit` is not told their periods."""


UNCERTAIN = ("few", "long", "hidden")
"""Streams on which intervals are hard, of which one seed says little: only a run that names them has them."""


def wheel_of(period, turns, rng, seed, **o):
    return wheel(rng, period, turns, **o)


def period_of(name):
    """The period of a wheel; None of another stream."""
    family, _, period = name.partition("/")
    return float(period) if family == "wheel" else None


FAMILIES = {
    "walk19/lim10": lambda rng, seed, **o: walk19(rng, **o),
    "walk19/lim40": lambda rng, seed, **o: walk19(rng, limit=40, **o),
    "boyan13": lambda rng, seed, **o: boyan(rng, **o),
    "boyan13feat": lambda rng, seed, **o: boyan(rng, features=True, **o),
    "grid11": lambda rng, seed, **o: grid11(rng, **o),
    "rmdp50-2d": lambda rng, seed, **o: neighbours(rng, seed, **{"rows": 5_000, "size": 50, **o}),
    "rmdp200-2d": lambda rng, seed, **o: neighbours(rng, seed, **o),
    "rmdp400-4d": lambda rng, seed, **o: neighbours(rng, seed, size=400, dim=4, discount=0.99, **o),
    "onehot50": lambda rng, seed, **o: neighbours(rng, seed, size=50, onehot=True, **o),
    "nav/g.5": lambda rng, seed, **o: nav(rng, discount=0.5, **o),
    "nav/g.9": lambda rng, seed, **o: nav(rng, discount=0.9, **o),
    "nav": lambda rng, seed, **o: nav(rng, **o),
    "nav/g.999": lambda rng, seed, **o: nav(rng, discount=0.999, **o),
    "nav/g1": lambda rng, seed, **o: nav(rng, discount=1.0, limit=2000, horizon=4000, **o),
    "nav/5k": lambda rng, seed, **o: nav(rng, **{"rows": 5_000, **o}),
    "nav/scales": lambda rng, seed, **o: nav(rng, "scales", **o),
    "nav/sparse": lambda rng, seed, **o: nav(rng, "sparse", **o),
    "nav/heavy": lambda rng, seed, **o: nav(rng, "heavy", **o),
    "nav/noisy": lambda rng, seed, **o: nav(rng, "noisy", **o),
    "nav/hetero": lambda rng, seed, **o: nav(rng, "hetero", **o),
    "nav/irrel": lambda rng, seed, **o: nav(rng, "irrel", **o),
    "nav/switch": lambda rng, seed, **o: nav(rng, "switch", **o),
    "normal/oblique": lambda rng, seed, **o: normals(rng, "oblique", **o),
    "normal/bent": lambda rng, seed, **o: normals(rng, "bent", **o),
    "rover": lambda rng, seed, **o: rover(rng, **o),
    "Pendulum": lambda rng, seed, **o: pendulum(rng, **o),
    "Pendulum/raw": lambda rng, seed, **o: pendulum(rng, raw=True, **o),
    "MountainCar": lambda rng, seed, **o: mountain_car(rng, **o),
    "CartPole": lambda rng, seed, **o: cart_pole(rng, **o),
    "Acrobot": lambda rng, seed, **o: acrobot(rng, **o),
    "Lander": lambda rng, seed, **o: lander(rng, **o),
    "Hopper": lambda rng, seed, **o: mujoco(rng, "Hopper-v5", **o),
    "HalfCheetah": lambda rng, seed, **o: mujoco(rng, "HalfCheetah-v5", **o),
    "Walker2d": lambda rng, seed, **o: mujoco(rng, "Walker2d-v5", **o),
    "few": lambda rng, seed, **o: uncertain(rng, "few", **{"rows": 200, **o}),
    "long": lambda rng, seed, **o: uncertain(rng, "long", **o),
    "hidden": lambda rng, seed, **o: uncertain(rng, "hidden", **o),
    **{f"wheel/{period:g}": partial(wheel_of, period, turns) for period, turns in WHEELS.items()},
}
"""Every stream by name: `FAMILIES[name](rng, seed, rows=...)`, the rows as in the table where they are not given."""


def file_name(name, seed):
    """A stream's name and seed, as the beginning of a file's name."""
    return f"{name.replace('/', '_')}-s{seed}"


def make(name, seed, **options):
    """The stream `name` from `seed`; `rows=N` for another length. Raises `Missing`."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    return FAMILIES[name](rng, seed, **options)


def keep(path, write):
    """A file whole or not at all, also where two runs make the same: `write` is given a path of its own to write to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{os.getpid()}-{path.name}")
    write(partial)
    partial.replace(path)


def load(cache, name, seed, rows=None):
    """As `make`, kept in the folder `cache` in between."""
    ending = "" if rows is None else f"-{rows}"
    path = Path(cache) / f"streams-v{VERSION}" / f"{file_name(name, seed)}{ending}.npz"
    if path.exists():
        with np.load(path) as kept:
            return Stream(**{key: float(kept[key]) if key == "discount" else kept[key] for key in kept.files})
    stream = make(name, seed, **({} if rows is None else {"rows": rows}))
    arrays = {field.name: getattr(stream, field.name) for field in dataclasses.fields(stream)}
    keep(path, lambda partial: np.savez_compressed(partial, **arrays))
    return stream
