"""The estimators for scikit-learn: its own checks, and what they learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from criticd import Invalid, Learner
from criticd.sklearn import GaussianProcess, ValueFunction

MODELS = [GaussianProcess(), ValueFunction(), ValueFunction(discount=0.5, kernel="isotropic")]
# It is for arrays of other libraries, and passes over all estimators unless SCIPY_ARRAY_API is set.
ELSEWHERE = "check_array_api_input"
CHECKS = [case for model in MODELS for case in estimator_checks_generator(model) if case[1].func.__name__ != ELSEWHERE]


@pytest.mark.parametrize(("model", "check"), CHECKS, ids=lambda part: getattr(part, "func", type(part)).__name__)
def test_the_checks_of_scikit_learn_pass(model: Any, check: Any) -> None:
    check(model)


def points(count: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    places = rng.uniform([-1, 0], [1, 1000], (count, 2))
    return places, np.sin(3 * places[:, 0]) + (places[:, 1] / 1000) ** 2 + rng.normal(0, 0.1, count)


def test_a_surface_is_learned_with_its_deviation() -> None:
    places, heights = points(400)
    surface = GaussianProcess().fit(places, heights)
    fresh, measured = points(1000, 1)
    true = np.sin(3 * fresh[:, 0]) + (fresh[:, 1] / 1000) ** 2
    height, deviation = surface.predict(fresh, return_std=True)
    assert np.sqrt(np.mean((height - true) ** 2)) < 0.04
    assert 0.8 < np.mean(abs(height - true) < 1.645 * deviation) <= 1.0
    assert surface.score(fresh, measured) > 0.97
    assert surface.predict([[0.0, 1e6]], return_std=True)[1] > 10 * deviation.mean()
    both = GaussianProcess().fit(places, np.column_stack([heights, -2 * heights]))
    assert both.predict(fresh).shape == (1000, 2)
    np.testing.assert_allclose(both.predict(fresh)[:, 1], -2 * both.predict(fresh)[:, 0], rtol=1e-6)


def test_it_is_an_estimator_like_others() -> None:
    places, heights = points(120)
    frame = pd.DataFrame(places, columns=["x", "depth"])
    surface = GaussianProcess(kernel="isotropic").fit(frame, heights)
    assert surface.model_.names == ("x", "depth") and surface.model_.kernel.kind == "isotropic"
    again = pickle.loads(pickle.dumps(surface))
    assert np.array_equal(again.predict(frame), surface.predict(frame))
    assert np.array_equal(clone(surface).fit(frame, heights).predict(frame), surface.predict(frame))
    search = GridSearchCV(GaussianProcess(), {"kernel_profile": ["gaussian", "matern52"]}, cv=2).fit(frame, heights)
    assert search.best_score_ > 0.8
    scaled = make_pipeline(StandardScaler(), GaussianProcess()).fit(frame, heights)
    assert scaled.score(frame, heights) > 0.9
    with pytest.raises(ValueError, match="feature names should match"):
        surface.predict(frame[["depth", "x"]])
    with pytest.raises(NotFittedError):
        _ = GaussianProcess().model_
    with pytest.raises(Invalid, match="kernel"):
        GaussianProcess(kernel="best").fit(places, heights)
    with pytest.raises(Invalid, match="dictionary_maxx"):
        GaussianProcess(settings={"dictionary_maxx": 3}).fit(places, heights)


def episodes(count: int = 30) -> dict[str, Any]:
    """A walk to the right, which ends at 1 for a reward, or is cut after 20 steps."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(count):
        x = rng.uniform(-1, 0.8)
        for step in range(20):
            after = x + rng.uniform(0, 0.2)
            rows.append((x, float(after >= 1), after, after >= 1, step == 19 and after < 1))
            if after >= 1:
                break
            x = after
    names = ("states", "rewards", "next_states", "terminated", "truncated")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    return columns | {"states": columns["states"][:, None], "next_states": columns["next_states"][:, None]}


def test_values_are_those_of_the_learner() -> None:
    rows = episodes()
    critic = ValueFunction(discount=0.9).fit(
        rows["states"], rows["rewards"], rows["next_states"], rows["terminated"], rows["truncated"]
    )
    once = {"refit_first_rows": 0, "refit_score_drop": 0, "warmup_rows": 16, "drift_sensitivity": "off"}
    learner = Learner(discount=0.9, **once)
    learner.learn(**rows)
    assert learner.refit().outcome == "adopted"
    for mine, theirs in zip(
        critic.predict(rows["states"], return_std=True), learner(rows["states"], std=True), strict=True
    ):
        assert np.array_equal(mine, theirs)
    # Ten steps of 0.1 are between -0 and 1.
    assert critic.predict([[0.0]])[0] == pytest.approx(0.9**10, abs=0.12) and critic.predict([[0.9]])[0] > 0.8
    assert critic.score(rows["states"], critic.predict(rows["states"])) == 1.0
    assert critic.learner_.learned == len(rows["rewards"])


def test_without_next_states_the_next_row_gives_them() -> None:
    rows = episodes()
    states, rewards, over, cut = (rows[name] for name in ("states", "rewards", "terminated", "truncated"))
    short = ValueFunction(discount=0.9).fit(states, rewards, terminated=over, truncated=cut)
    # A row that was cut has no successor here: the one before it becomes the cut one.
    kept = ~cut
    before = np.append(cut[1:], False) & ~over
    learned = short.learner_.learned
    assert learned == kept.sum() - (not over[-1] and not cut[-1])
    first = ValueFunction(discount=0.9).fit(
        states[kept], rewards[kept], rows["next_states"][kept], over[kept], before[kept]
    )
    if over[-1]:
        np.testing.assert_allclose(short.predict(states), first.predict(states), atol=1e-9)
    with pytest.raises(ValueError, match="no transition in n_samples = 1"):
        ValueFunction().fit([[1.0]], [1.0])
    assert ValueFunction().fit([[1.0]], [1.0], terminated=[True]).learner_.learned == 1
    with pytest.raises(Invalid, match="terminated"):
        ValueFunction().fit(states, rewards, terminated=np.zeros(3, np.bool_))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ValueFunction().fit(states, rewards, states[1:])
