"""`criticd.plan` and `criticd.rollout`: what a robot would do for another reward, and where it will be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import criticd
from criticd import Course, Invalid, Planned

READ: dict[str, Any] = {"state": "x", "action": "push", "episode": "walk", "terminated": "ended", "truncated": "cut"}
SMALL: dict[str, Any] = {"model_elements": 80, "model_successors": 30}


def walks(count: int = 50) -> pd.DataFrame:
    """Walks at random on a line from -3 to 3, for which there is no reward."""
    rng = np.random.default_rng(3)
    rows = []
    for walk in range(count):
        x = rng.uniform(-3, 3)
        for step in range(15):
            push = rng.uniform(-1, 1)
            rows.append((walk, x, push, 0.0, False, step == 14))
            x = float(np.clip(x + 0.5 * push + 0.1 * rng.normal(), -3, 3))
    return pd.DataFrame(rows, columns=["walk", "x", "push", "cost", "ended", "cut"])


@pytest.fixture(scope="module")
def planned() -> Planned:
    return criticd.plan(walks(), actions="box", reward="-abs(x - 1.5)", discount=0.9, **READ, **SMALL)


def test_a_plan_is_a_snapshot_that_acts(planned: Planned, tmp_path: Path) -> None:
    pushes = np.ravel(planned.act(np.array([[-2.0], [0.0], [2.8]])).actions)
    assert (np.sign(pushes) == [1, 1, -1]).all(), pushes
    assert planned.document["known"] and planned.document["unsupported"] < 0.05
    planned.save(tmp_path / "q.model")
    again = criticd.Snapshot.load(tmp_path / "q.model")
    assert again([[0.0, 1.0]]) == planned([[0.0, 1.0]])


def test_a_course_goes_where_the_plan_goes(planned: Planned) -> None:
    course = criticd.rollout(
        walks(), steps=8, start=[0.0], policy=planned, actions="box", show=["x", "min(x, 1)"], **READ, **SMALL
    )
    assert isinstance(course, Course) and list(course.mean) == ["x", "min(x, 1)"]
    assert abs(course.mean["x"][0] - 0.5) < 0.2 and abs(course.mean["x"][-1] - 1.5) < 0.3
    assert course.reach["x"] >= 1 and course.within["x"][0] > 0 and (course.alive == 1).all()
    # Those that walk at random go nowhere.
    same = criticd.rollout(walks(), steps=8, start=[0.0], **READ, **SMALL)
    assert abs(same.mean["x"][-1]) < 0.4


def test_elements_and_projection_are_options(planned: Planned) -> None:
    few: dict[str, Any] = {"reward": "-abs(x - 1.5)", "discount": 0.9, **READ, "model_elements": 20}
    found = criticd.plan(walks(), actions="box", **few, model_elements_by="ols", project=True)
    assert found.document["model"]["elements_by"] == "ols" and found.document["projected"] is True
    assert found.act([[-2.0]]).actions[0] > 0
    assert planned.document["model"]["elements_by"] == "pivots" and planned.document["projected"] is False
    with pytest.raises(Invalid) as caught:
        criticd.plan(walks(), actions="box", **few, model_candidates=9)
    assert caught.value.field == "model_candidates"


def test_what_cannot_be_planned_is_named() -> None:
    with pytest.raises(Invalid) as caught:
        criticd.plan(walks(), actions="box", reward="y", **READ, **SMALL)
    assert "y" in str(caught.value)
    with pytest.raises(Invalid) as caught:
        criticd.plan(walks(), actions="box", discount=1.0, **READ)
    assert caught.value.field == "discount"
    with pytest.raises(Invalid) as caught:
        criticd.rollout(walks(), start=[np.nan], **READ)
    assert caught.value.field == "start"
    with pytest.raises(Invalid) as caught:
        criticd.rollout(walks(), show="speed", **READ, **SMALL)
    assert "names no state variable" in str(caught.value)
