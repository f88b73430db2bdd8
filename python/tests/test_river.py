"""The regressor for river: its own checks, and what it learns of a stream."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from river import checks, datasets, evaluate, metrics

from criticd import Invalid
from criticd.river import Regressor

EXCEPTIONS = {
    "check_no_state_aliasing_with_input": "compares two pickles, and a pickle of a learner says when it was made: "
    "test_rows_are_copied has the same by what is learned",
}
CHECKS = {check.__name__: check for check in checks.yield_checks(Regressor())}


@pytest.mark.parametrize("name", sorted(CHECKS.keys() - EXCEPTIONS.keys()))
def test_the_checks_of_river_pass(name: str) -> None:
    CHECKS[name](Regressor())


def test_the_exceptions_are_checks() -> None:
    assert EXCEPTIONS.keys() < CHECKS.keys()


def test_rows_are_copied() -> None:
    rows = [({"a": float(k % 7), "b": "x" if k % 2 else "y"}, float(k % 7)) for k in range(80)]
    one, other = Regressor(), Regressor()
    for x, y in rows:
        one.learn_one(dict(x), y)
        given: dict[Any, Any] = dict(x)
        other.learn_one(given, y)
        given["a"] = 1e9
        given.pop("b")
    for x, _ in rows:
        assert one.predict_one(x) == other.predict_one(x)


@pytest.mark.long
def test_it_runs_in_the_evaluation_of_river() -> None:
    found = evaluate.progressive_val_score(datasets.TrumpApproval(), Regressor(), metrics.MAE())
    # river's linear regression of standardised features has 0.56, its nearest neighbours 0.64.
    assert found.get() < 0.25
    again = evaluate.progressive_val_score(datasets.TrumpApproval(), Regressor(), metrics.MAE())
    assert again.get() == found.get()
    beside = evaluate.progressive_val_score(datasets.TrumpApproval(), Regressor(background=True), metrics.MAE())
    assert beside.get() < 0.5


def test_features_of_any_kind_are_learned() -> None:
    rng = np.random.default_rng(2)
    model = Regressor(dictionary_max=50)
    assert model.predict_one({"x": 1.0}) == 0.0
    with pytest.raises(ValueError, match="before the first row"):
        model.predict_std({"x": 1.0})
    offsets = {"red": 0.0, "green": 3.0, "blue": -3.0}
    for _ in range(300):
        colour = str(rng.choice(list(offsets)))
        x: dict[Any, Any] = {
            "x": rng.uniform(),
            "colour": colour,
            "on": bool(rng.integers(2)),
            "count": int(rng.integers(5)),
        }
        model.learn_one(x, offsets[colour] + x["x"] + x["on"])
    asked: dict[Any, Any] = {"x": 0.5, "colour": "green", "on": True, "count": 2}
    assert model.predict_one(asked) == pytest.approx(4.5, abs=0.3)
    # What comes later is ignored, what is missing has its last value.
    assert model.predict_one({**asked, "more": 7.0}) == model.predict_one(asked)
    assert model.predict_one({"x": 0.5, "colour": "green", "on": True}) == pytest.approx(4.5, abs=0.5)
    unseen = {**asked, "colour": "violet"}
    assert model.predict_std(unseen) > 3 * model.predict_std(asked)
    assert pickle.loads(pickle.dumps(model)).predict_one(asked) == model.predict_one(asked)
    assert model.learner is not None and model.learner.snapshot().names == ("colour", "count", "on", "x")
    for wrong in ({**asked, "x": "far"}, {**asked, "x": None}):
        with pytest.raises(Invalid, match="x: must be a number"):
            model.learn_one(wrong, 1.0)
    with pytest.raises(Invalid, match="has no feature"):
        Regressor().learn_one({}, 1.0)
    with pytest.raises(Invalid, match="kernel"):
        Regressor(kernel="best").learn_one({"x": 1.0}, 1.0)
