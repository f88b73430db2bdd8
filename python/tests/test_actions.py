"""Values of actions in a snapshot: what the reference says, and what is no action."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from criticd import Invalid, Snapshot
from criticd._protocol import Malformed

GOLDEN = Path(__file__).parents[2] / "tests" / "golden-q"
CASES = ["q_box_sarsa_lambda_1", "q_discrete_sarsa_lambda_04", "q_discrete_expected_retrace_lambda_08"]


def message(case: dict[str, Any]) -> dict[str, Any]:
    """The snapshot that a fit of the case publishes, made from the reference's S and u."""
    kernel, expected = case["kernel"], case["expected"]
    z = np.array(case["dictionary"])
    distance = (((z[:, None] - z) ** 2) * kernel["relevance"]).sum(axis=2)
    gram = kernel["v0"] * np.exp(-0.5 * distance) + kernel["b"]
    inverse = np.linalg.inv(np.linalg.cholesky(gram))
    noise = case["noise_variance"]
    covariance = noise * np.linalg.inv(np.array(expected["S"]) + noise * np.eye(len(z)))
    action = case["action"]
    box = {"kind": "box", "low": [-2.0] * action["n"], "high": [2.0] * action["n"]}
    return {
        "type": "snapshot",
        "critic": "q",
        "generation": 1,
        "revision": 0,
        "offset": 48,
        "transitions": 48,
        "time": 0.0,
        "discount": case["discount"],
        "noise": {"model": "correlated", "variance": noise},
        "kernel": {
            "kind": "ard",
            "signal_variance": kernel["v0"],
            "bias_variance": kernel["b"],
            "relevance": kernel["relevance"],
        },
        "inputs": {"dim": z.shape[1], "shift": np.zeros(z.shape[1]), "scale": np.ones(z.shape[1])},
        "dictionary": z,
        "weights": inverse.T @ np.array(expected["u"]),
        "variance": inverse.T @ (np.eye(len(z)) - covariance) @ inverse,
        "lambda": case["lambda"],
        "actions": box if action["kind"] == "box" else {"kind": "discrete", "count": action["n"]},
    }


def read(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return case


@pytest.mark.parametrize("name", CASES)
def test_a_snapshot_says_of_actions_what_the_reference_does(name: str, tmp_path: Path) -> None:
    case = read(name)
    snapshot = Snapshot.of(message(case))
    states, actions = ([pair[i] for pair in case["query"]] for i in (0, 1))
    expected = case["expected"]
    snapshot.save(tmp_path / "q.msgpack")
    for model in (snapshot, Snapshot.load(tmp_path / "q.msgpack")):
        mean, variance = model.evaluate(model.inputs(states, actions))
        np.testing.assert_allclose(mean, expected["mean"], rtol=0, atol=1e-9 * np.abs(expected["mean"]).max())
        assert variance is not None
        np.testing.assert_allclose(variance, expected["variance"]["model"], rtol=1e-9)


def test_one_state_goes_with_several_actions() -> None:
    snapshot = Snapshot.of(message(read("q_discrete_sarsa_lambda_04")))
    several = snapshot(snapshot.inputs([0.1, -0.2], [0, 1, 2]))
    assert several.shape == (3,)
    assert snapshot(snapshot.inputs([0.1, -0.2], 1)) == pytest.approx(several[1])
    box = Snapshot.of(message(read("q_box_sarsa_lambda_1")))
    assert box(box.inputs([0.1, -0.2], [0.5, 0.7])).shape == (2,)


def test_what_is_no_action_is_refused() -> None:
    snapshot = Snapshot.of(message(read("q_discrete_sarsa_lambda_04")))
    for actions in ([3], [-1], [0.5], [np.nan]):
        with pytest.raises(Invalid, match="whole numbers from 0 to 2"):
            snapshot.inputs([[0.0, 0.0]], actions)
    with pytest.raises(Invalid, match="2 for 3 states"):
        snapshot.inputs(np.zeros((3, 2)), [0, 1])
    values = message(read("q_discrete_sarsa_lambda_04"))
    del values["actions"]
    with pytest.raises(ValueError, match="value of states"):
        Snapshot.of(values).inputs([[0.0, 0.0]], [0])


@pytest.mark.parametrize(
    "actions",
    [
        {"kind": "tree"},
        {"kind": "discrete", "count": 5},
        {"kind": "box", "low": [1.0], "high": [0.0]},
        {"kind": "box", "low": [0.0], "high": [0.0, 1.0]},
        {"kind": "discrete", "count": 3, "copies": np.zeros((2, 2))},
    ],
)
def test_actions_that_do_not_fit_the_model_are_malformed(actions: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        Snapshot.of({**message(read("q_discrete_sarsa_lambda_04")), "actions": actions})


def test_a_prior_mean_is_added_to_every_value() -> None:
    values = message(read("q_discrete_sarsa_lambda_04"))
    plain = Snapshot.of(values)
    raised = Snapshot.of({**values, "actions": {**values["actions"], "prior_mean": 2.5}})
    inputs = plain.inputs([[0.1, -0.2], [50.0, 50.0]], [0, 1])
    np.testing.assert_allclose(raised(inputs), plain(inputs) + 2.5, rtol=0, atol=1e-12)
    assert raised.actions is not None and raised.actions.message()["prior_mean"] == 2.5
    assert raised.act([0.1, -0.2]).mean == pytest.approx(plain.act([0.1, -0.2]).mean + 2.5)
