"""Streams and learners of benches/quality that `criticd` is compared with, on cases whose values are known."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches" / "quality"))
online: Any = importlib.import_module("online")
drifting: Any = importlib.import_module("drifting")

DISCOUNT, TURN, KEEP = 0.9, 0.3, 0.98


def circle(rows: int, sign: float, seed: int) -> tuple[Any, Any, Any]:
    """An angle that turns by 0.3 and a little noise; the reward is its sine. States (rows + 1, 2), rewards, values."""
    rng = np.random.default_rng(seed)
    spread = math.sqrt(-2.0 * math.log(KEEP))
    angles = np.cumsum(np.r_[rng.uniform(0, 2 * np.pi), TURN + spread * rng.standard_normal(rows)])
    # E exp(i angle_(t + k)) = (KEEP exp(i TURN))^k exp(i angle_t).
    factor = 1.0 / (1.0 - DISCOUNT * KEEP * np.exp(1j * TURN))
    values = sign * np.imag(factor * np.exp(1j * angles))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1), sign * np.sin(angles[:-1]), values[:-1]


def error(said: Any, values: Any) -> float:
    """Root mean square error over the deviation of the values: 1 is a constant."""
    return float(np.sqrt(np.mean((said - values) ** 2)) / np.std(values))


def made(kind: str, dim: int, half_life: float = 4000.0) -> Any:
    """A peer as the benchmark has it, but that LSTD is solved every 100 rows, and may forget faster."""
    settings = {**online.SETTINGS[kind], **({"half_life": half_life} if kind == "lstd" else {})}
    peer = online.KINDS[kind](dim, DISCOUNT, np.random.default_rng(0), **settings)
    if kind == "lstd":
        peer.every = 100
    return peer


@pytest.mark.parametrize("kind", ["swift", "stream", "intentional", "lstd"])
def test_each_learns_a_value_and_follows_its_change(kind: str) -> None:
    peer = made(kind, 2, half_life=400.0)
    for sign, most in ((1.0, 0.25), (-1.0, 0.35)):
        states, rewards, values = circle(3000, sign, seed=1)
        said = np.zeros(len(rewards))
        for t, reward in enumerate(rewards):
            said[t] = peer.value(states[t])
            peer.learn(states[t], reward, states[t + 1], False, t == len(rewards) - 1)
        assert error(said[:50], values[:50]) > 0.6
        assert error(said[-500:], values[-500:]) < most


@pytest.mark.parametrize("kind", ["swift", "stream", "intentional", "lstd"])
def test_each_knows_what_a_termination_and_a_cut_mean(kind: str) -> None:
    """Places 0 to 4, always a step up for a reward of 1. Above 4 an episode terminates, or is cut and would go on."""
    for terminated in (True, False):
        peer = made(kind, 5)
        places = np.eye(5) - 0.2
        for _ in range(800):
            for place in range(5):
                after = places[place + 1] if place < 4 else places[0]
                peer.learn(places[place], 1.0, after, terminated and place == 4, place == 4)
        said = np.array([peer.value(place) for place in places])
        endless = 1.0 / (1.0 - DISCOUNT)
        known = endless * (1.0 - DISCOUNT ** (5.0 - np.arange(5))) if terminated else np.full(5, endless)
        assert np.abs(said - known).mean() < 0.12 * known.mean()


def true_online(states: Any, rewards: Any, discount: float, lam: float, step: float, phi: Any) -> Any:
    """Weights of true online TD(lambda) [van Seijen and Sutton 2014] after each row."""
    weights = np.zeros(len(phi(states[0])))
    trace, before, found = np.zeros_like(weights), 0.0, []
    for t, reward in enumerate(rewards):
        now, after = phi(states[t]), phi(states[t + 1])
        value, following = weights @ now, weights @ after
        trace = discount * lam * trace + (1.0 - step * discount * lam * (trace @ now)) * now
        error = reward + discount * following - value
        weights = weights + step * (error + value - before) * trace - step * (value - before) * now
        before = following
        found.append(weights)
    return np.array(found)


def test_swift_td_without_its_own_steps_is_true_online_td() -> None:
    states, rewards, _ = circle(200, 1.0, seed=2)
    settings = {"lam": 0.8, "step": 1e-2, "step_max": 1e9, "decay": 1.0, "meta": 0.0}
    peer = online.SwiftTD(2, DISCOUNT, np.random.default_rng(0), **settings)
    expected = true_online(states, rewards, DISCOUNT, 0.8, 1e-2, peer.phi)
    for t, reward in enumerate(rewards):
        peer.learn(states[t], reward, states[t + 1], False, False)
        np.testing.assert_allclose(peer.weights, expected[t], rtol=1e-9, atol=1e-12)


def test_swift_td_moves_no_prediction_by_more_than_its_bound() -> None:
    """With one-hot rates at the bound, a row takes away that share of its own error."""
    peer = online.SwiftTD(2, 0.0, np.random.default_rng(0), lam=0.0, step=10.0, step_max=0.1, decay=1.0, meta=0.0)
    states, _, _ = circle(20, 1.0, seed=3)
    for x in states:
        before = peer.value(x)
        peer.learn(x, 1.0, x, True, True)
        assert peer.value(x) - before == pytest.approx(0.1 * (1.0 - before))


def test_lstd_that_forgets_nothing_is_the_batch_solution() -> None:
    states, rewards, _ = circle(300, 1.0, seed=4)
    peer = online.ForgettingLSTD(2, DISCOUNT, np.random.default_rng(0), lam=0.8, half_life=np.inf, ridge=1.0)
    phi = peer.features(states)
    matrix, response, trace = np.eye(phi.shape[1]), np.zeros(phi.shape[1]), np.zeros(phi.shape[1])
    for t, reward in enumerate(rewards):
        peer.learn(states[t], reward, states[t + 1], False, False)
        trace = DISCOUNT * 0.8 * trace + phi[t]
        matrix += np.outer(trace, phi[t] - DISCOUNT * phi[t + 1])
        response += trace * reward
    assert len(rewards) % peer.every == 0
    np.testing.assert_allclose(peer.weights, np.linalg.solve(matrix, response), rtol=1e-8, atol=1e-10)


def test_lstd_halves_what_it_has_summed() -> None:
    peer = online.ForgettingLSTD(2, 0.0, np.random.default_rng(0), lam=0.0, half_life=10.0, ridge=1.0)
    x = np.array([0.5, -0.5])
    peer.learn(x, 1.0, x, True, True)
    first = peer.response.copy()
    for _ in range(10):
        peer.learn(x, 0.0, x, True, True)
    np.testing.assert_allclose(peer.response, first / 2)


def test_gradients_of_the_network_are_central_differences() -> None:
    network = online.Network(3, np.random.default_rng(5))
    # Away from the corners of the rectifiers, at which nine of ten units stand at first.
    network.parameters += 0.3 * np.random.default_rng(6).standard_normal(len(network.parameters))
    x = np.array([0.3, -1.0, 2.0])
    network.value(x, gradient=True)
    found = network.gradient.copy()
    for k in np.random.default_rng(7).permutation(len(found))[:200]:
        kept = network.parameters[k]
        network.parameters[k] = kept + 1e-6
        above = network.value(x)
        network.parameters[k] = kept - 1e-6
        below = network.value(x)
        network.parameters[k] = kept
        assert found[k] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-7)


def test_stream_td_overshoots_no_error() -> None:
    """A step is at most 1 / (kappa max(|error|, 1) |z|_1), and so moves a linear prediction by half its error."""
    peer = online.make("stream", 2, 0.0, seed=0)
    x = np.array([1.0, -1.0])
    for target in (1.0, 100.0, -100.0):
        before = peer.network.parameters.copy()
        error = target - peer.value(x)
        peer.learn(x, target, x, True, True)
        moved = np.abs(peer.network.parameters - before)
        assert moved.max() * max(abs(error), 1.0) <= 0.5 * abs(error) * (1 + 1e-9)


def stream(states: Any, rewards: Any, discount: float, ends: Any) -> SimpleNamespace:
    """Rows of chains, as `online` takes them."""
    return SimpleNamespace(
        states=states[:-1],
        rewards=rewards,
        next_states=states[1:],
        terminated=np.zeros(len(rewards), bool),
        truncated=ends,
        discount=discount,
    )


def test_nothing_is_said_of_a_row_that_knows_it() -> None:
    """What is said of the first rows does not depend on what comes after them."""
    states, rewards, _ = circle(400, 1.0, seed=8)
    ends = np.arange(400) % 50 == 49
    whole = stream(states, rewards, DISCOUNT, ends)
    part = stream(states[:201], rewards[:200], DISCOUNT, ends[:200])
    for kind in online.KINDS:
        said, early = (online.follow(online.make(kind, 2, DISCOUNT, seed=0), rows) for rows in (whole, part))
        np.testing.assert_array_equal(said[:200], early)


def test_inputs_are_what_is_known_by_then() -> None:
    values = np.random.default_rng(9).standard_normal((30, 2)) * [1.0, 100.0] + [5.0, -3.0]
    means, spreads = online.running(values)
    for t in (2, 7, 29):
        np.testing.assert_allclose(means[t], values[: t + 1].mean(axis=0))
        np.testing.assert_allclose(spreads[t], values[: t + 1].std(axis=0, ddof=1), rtol=1e-6)


@pytest.mark.parametrize("name", ["walk", "pendulum", "linear"])
def test_worlds_hold_the_returns_of_their_values(name: str) -> None:
    """Rollouts under the laws of a row have the values that `truth` gives; the linear world's are in closed form."""
    world = drifting.WORLDS[name]
    for change, laws in world.changes.items():
        for row in (0, drifting.BEFORE + 5000):
            now, rng = laws.at(row), np.random.default_rng([row, 1])
            starts = world.start(6, rng)
            known, known_error = world.values(starts, now, rng)
            moving, totals, weight = np.repeat(starts, 200, axis=0), np.zeros(1200), 1.0
            while weight > 1e-3:
                moving, rewards = world.step(moving, now, rng)
                totals, weight = totals + weight * rewards, weight * world.discount
            totals = totals.reshape(6, 200)
            off = (totals.mean(axis=1) - known) / np.hypot(totals.std(axis=1) / math.sqrt(200.0), known_error)
            assert np.abs(off).max() < 4.5, (change, row)


def test_a_made_stream_changes_at_its_row_and_its_chains_hold_together() -> None:
    for name in ("walk/offset", "linear/swap", "pendulum/sign", "hidden/sign"):
        rows = drifting.load(None, name, 0)
        goes_on = ~rows.truncated[:-1]
        np.testing.assert_array_equal(rows.next_states[:-1][goes_on], rows.states[1:][goes_on])
        assert rows.change == drifting.BEFORE
        first = rows.returns[: rows.change - 200]
        again = drifting.load(None, name, 0).returns[: rows.change - 200]
        np.testing.assert_array_equal(first, again)
        # A return is its reward and the discounted return after it.
        inner = goes_on.nonzero()[0]
        expected = rows.rewards[inner] + rows.discount * rows.returns[inner + 1]
        np.testing.assert_allclose(rows.returns[inner], expected, rtol=1e-9, atol=1e-9)


def test_rows_of_a_forecast_are_known_when_they_come() -> None:
    """The states of a longer series begin with those of a shorter one."""
    sensors = np.cumsum(np.random.default_rng(11).standard_normal((3001, 7)), axis=0)
    whole, part = (drifting.forecast(sensors[:n], 6, raw=True) for n in (3001, 2001))
    np.testing.assert_allclose(whole.states[:2000], part.states)
    assert whole.states.shape == (3000, 14)
    assert np.isnan(whole.returns[-1000:]).all()
    assert not np.isnan(whole.returns[:-1000]).any()
