"""Where a model errs most, by the rule of the dashboard."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE_S
from test_snapshot import model

from criticd import Invalid, Snapshot
from criticd._protocol import Array


def uneven(snapshot: Snapshot, seed: int, bias: float) -> tuple[Array, Array]:
    """States (n, D), and returns that scatter by 2 where x is low and by 0.2 elsewhere, with `bias` in a corner."""
    generator = np.random.default_rng(seed)
    states = generator.uniform(-1, 1, (1500, snapshot.dim))
    noise = generator.normal(size=1500) * np.where(states[:, 0] < 0, 2.0, 0.2)
    return states, snapshot(states) + noise + bias * in_corner(states)


def in_corner(states: Array) -> Any:
    return (states[..., 0] > 0.5) & (states[..., 1] > 0.5)


@pytest.fixture
def snapshot() -> Snapshot:
    # Returns of so small a discount have nothing in common.
    made = replace(model("ard", m=40), discount=0.1, dictionary=np.random.default_rng(1).uniform(-1, 1, (40, 3)))
    return replace(made, shift=np.zeros(3), scale=np.ones(3))


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_error_is_among_the_worst_before_noise(snapshot: Snapshot, seed: int) -> None:
    states, returns = uneven(snapshot, seed, 1.5)
    worst = snapshot.worst(error=(states, returns))
    assert len(worst) == 10
    assert sum(bool(in_corner(bad.state)) for bad in worst[:3]) >= 2
    first = worst[0]
    assert first.no_chance and first.error == pytest.approx(1.5, abs=0.5) and first.count == 12
    np.testing.assert_array_equal(first.state, states[first.row])
    # By TD errors it is the same: behind a terminal state there is nothing.
    rows = (states, returns, states, np.zeros(len(states)))
    assert [bad.row for bad in snapshot.worst(td_error=rows)] == [bad.row for bad in worst]


@pytest.mark.parametrize(("discount", "count"), [(0.0, 1500), (0.9, 400), (0.9, 4000)])
def test_they_are_those_of_the_program(snapshot: Snapshot, tmp_path: Path, discount: float, count: int) -> None:
    snapshot = replace(snapshot, discount=discount)
    states = np.cumsum(np.random.default_rng(2).normal(0, 0.3, (count, 3)), axis=0) % 2 - 1
    rewards = snapshot(states) * (1 - discount) + np.random.default_rng(3).normal(size=count) + in_corner(states)
    ends = np.arange(count) == count - 1
    np.savez(tmp_path / "rows.npz", states=states, rewards=rewards, terminated=ends)
    snapshot.save(tmp_path / "of.model")
    words = ["plot", "of.model", "--errors", "rows.npz", "--out", "errors.svg"]
    command = [os.environ["CRITICD_BIN"], *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    said = re.findall(r"^ *\d+ +(\S+) +(\S+) +\S+ +(\d+) +(\d+) ", done.stdout, re.MULTILINE)
    returns = np.zeros(count + 1)
    for row in reversed(range(count)):
        returns[row] = rewards[row] + discount * returns[row + 1]
    found = snapshot.worst(error=(states, returns[:-1]))
    assert [(bad.count, bad.row) for bad in found] == [(int(near), int(row)) for _, _, near, row in said]
    for bad, (error, spread, *_) in zip(found, said, strict=True):
        assert (bad.error, bad.spread) == pytest.approx((float(error), float(spread)), rel=5e-3)
    assert any(bad.no_chance for bad in found) == ("no more than chance" not in done.stdout)


def test_noise_is_no_more_than_chance(snapshot: Snapshot) -> None:
    by_chance = sum(
        not any(bad.no_chance for bad in snapshot.worst(error=uneven(snapshot, seed, 0.0))) for seed in range(20)
    )
    assert by_chance >= 18, by_chance


def test_returns_of_one_trajectory_count_once(snapshot: Snapshot) -> None:
    # Rows of one neighbourhood follow each other, as in a slow stream: what they say of it is one return.
    states, returns = uneven(snapshot, 1, 1.5)
    order = np.argsort(states[:, 0] + 10 * np.floor(2 * states[:, 1]))
    slow = replace(snapshot, discount=0.9999)
    assert not any(bad.no_chance for bad in slow.worst(error=(states[order], returns[order])))
    assert any(bad.no_chance for bad in snapshot.worst(error=(states[order], returns[order])))


def test_ranks_stand_on_the_picture(snapshot: Snapshot) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = uneven(snapshot, 0, 1.5)
    first = snapshot.worst(error=rows)[0]
    axes = snapshot.plot(["x", "y"], error=rows)
    assert [text.get_text() for text in axes.texts] == [str(k) for k in range(1, 11)]
    assert axes.texts[0].xy == pytest.approx(first.state[:2])
    assert "worst states" in [text.get_text() for text in axes.get_legend().get_texts()]
    axes = snapshot.plot(["x"], error=rows)
    assert axes.texts[0].xy == pytest.approx((first.state[0], first.error))
    # A right model has none.
    axes = snapshot.plot(["x", "y"], error=(rows[0], snapshot(rows[0])))
    assert "worst states, no more than chance" in [text.get_text() for text in axes.get_legend().get_texts()]
    pyplot.close("all")


def test_few_states_and_wrong_ones(snapshot: Snapshot) -> None:
    state = np.zeros((1, 3))
    (only,) = snapshot.worst(error=(state, [5.0]))
    assert not only.no_chance and only.count == 1
    for wrong in ({}, {"error": (state, [1.0]), "td_error": (state, [1.0], state)}, {"error": (state[:, :2], [1.0])}):
        with pytest.raises(Invalid, match="error"):
            snapshot.worst(**wrong)
