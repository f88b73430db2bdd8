"""Rewards far from zero: a constant in all rewards moves all values alike, from the command line and from a daemon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, Array
from conftest import Start

GAMMA = 0.9
FAR = 0.8
LENGTH = 25
CHAINS = 40
SHIFTS = [1.0, 1e3, 1e5, 1e7]
ASKED = np.array([[0.0, 0.0], [0.5, -0.5], [-0.5, 0.5], [0.3, 0.3], [0.8, 0.0], [-0.8, 0.0]])


def walks() -> dict[str, Array]:
    """Chains of two variables that are cut, not ended."""
    random = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {"states": [], "rewards": [], "next_states": [], "truncated": []}
    for _ in range(CHAINS):
        x = random.uniform(-1, 1, 2)
        for t in range(LENGTH):
            after = 0.9 * x + 0.1 * random.normal(size=2)
            rows["states"].append(x)
            rows["rewards"].append(np.sin(2 * x[0]) + 0.5 * x[1] + 0.1 * random.normal())
            rows["next_states"].append(after)
            rows["truncated"].append(t == LENGTH - 1)
            x = after
    return {name: np.array(values) for name, values in rows.items()}


def assert_moved_alike(answers: Callable[[float], tuple[Array, Array]]) -> None:
    """Means and deviations of values at c more in all rewards, against those at 0."""
    mean, deviation = answers(0.0)
    spread = np.ptp(mean)
    assert spread > 1.0
    for c in SHIFTS:
        moved, wide = answers(c)
        apart = np.abs(moved - c / (1 - GAMMA) - mean).max() / spread
        print(f"{c:g}: values are {apart:.1e} of their spread apart")
        assert apart < 1e-6, c
        np.testing.assert_allclose(wide, deviation, rtol=1e-5)


def test_a_constant_in_the_rewards_of_a_table_moves_all_values_alike(tmp_path: Path) -> None:
    rows = walks()
    np.savez(tmp_path / "asked.npz", states=ASKED)

    def run(*words: str) -> str:
        found = subprocess.run([BINARY, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def answers(c: float) -> tuple[Array, Array]:
        np.savez(tmp_path / "rows.npz", **{**rows, "rewards": rows["rewards"] + c, "terminated": np.zeros(1000, bool)})
        run("fit", "rows.npz", "--discount", str(GAMMA), "--hold-out", "0", "--threads", "1", "--out", "rows.model")
        answer = json.loads(run("value", "rows.model", "asked.npz", "--json"))
        return np.array(answer["mean"]), np.sqrt(answer["variance"])

    assert_moved_alike(answers)


def test_a_constant_in_the_rewards_of_a_stream_moves_all_values_alike(start: Start) -> None:
    rows = walks()
    far = f'critic.heads=[{{ name = "far", cumulant = {{ kind = "reward", index = 0 }}, discount = {FAR} }}]'
    # No search is to end by its budget: rounding may decide where it does.
    settings = (
        f"critic.discount={GAMMA}",
        "critic.refit_first_rows=0",
        "critic.refit_budget_s=600",
        "critic.evidence_rows=200",
        far,
    )
    of_head: dict[float, Array] = {}

    def answers(c: float) -> tuple[Array, Array]:
        daemon = start(*settings, name=f"d{c:g}")
        control = daemon.control()
        for first in range(0, len(rows["rewards"]), 250):
            part = {name: values[first : first + 250] for name, values in rows.items()}
            part |= {"rewards": part["rewards"] + c, "truncated": part["truncated"].tolist()}
            control.ask("append", stream="s", seq=first, **part)
            if first == 500:
                control.wait_for_learned(750)
                assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
        found = control.ask("value", states=ASKED, variance=True, heads="all", min_offset=1000)
        of_head[c] = np.asarray(found["heads"]["mean"])[:, 0]
        # What a checkpoint and a journal hold is the same model.
        daemon.close()
        again = start(*settings, name=f"d{c:g}").control()
        after = again.ask("value", states=ASKED, variance=True, heads="all", min_offset=1000)
        np.testing.assert_array_equal(after["mean"], found["mean"])
        np.testing.assert_array_equal(after["heads"]["mean"], found["heads"]["mean"])
        return np.asarray(found["mean"]), np.sqrt(found["variance"])

    assert_moved_alike(answers)
    for c in SHIFTS:
        apart = np.abs(of_head[c] - c / (1 - FAR) - of_head[0.0]).max() / np.ptp(of_head[0.0])
        print(f"{c:g}: values of the head are {apart:.1e} of their spread apart")
        assert apart < 1e-6, c


@pytest.mark.parametrize("kill", [False, True])
def test_without_a_reward_there_is_no_deviation_and_the_first_one_brings_one(start: Start, kill: bool) -> None:
    random = np.random.default_rng(1)
    daemon = start("critic.discount=0.9")
    control = daemon.control()
    states = np.cumsum(random.normal(size=(1500, 1)), axis=0)
    control.ask("append", stream="s", seq=0, states=states[:-1], rewards=np.zeros(1499), next_states=states[1:])
    control.wait_for_learned(1499)
    if kill:
        daemon.kill()
        daemon = start("critic.discount=0.9")
        control = daemon.control()
        control.wait_for_learned(1499)
    asked = states[[0, -1]]
    answer = control.ask("value", states=asked, variance=True, known=True, min_offset=1499)
    assert not {"variance", "known", "return_variance"} & answer.keys()
    assert answer["mean"].tolist() == [0.0, 0.0]
    assert control.ask("status")["critics"][0]["kernel"]["unscaled"] is True
    control.ask(
        "append", stream="s", seq=1499, states=states[-1:], rewards=[1.0], next_states=states[-1:], terminated=[True]
    )
    answer = control.ask("value", states=asked, variance=True, known=True, min_offset=1500)
    assert (np.abs(1.0 - answer["mean"]) < 1000 * np.sqrt(answer["variance"])).all(), answer
    assert "unscaled" not in control.ask("status")["critics"][0]["kernel"]
