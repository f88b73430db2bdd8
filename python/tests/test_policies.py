"""Another policy is judged alike, whether it is an array, a function, an ONNX file or at the end of a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from criticd import CriticdError, Invalid, policies
from criticd.policies import PolicyServer, evaluate

Array = npt.NDArray[np.float64]
SHARPNESS = 1.5
OPTIONS = {"budget": 2, "seed": 3}


def policy(states: Array) -> Array:
    """Goes right the more, the further left it is."""
    right = 1.0 / (1.0 + np.exp(SHARPNESS * states[:, 0] - 1.0))
    return np.stack([1.0 - right, right], axis=1)


def log(episodes: int = 80) -> dict[str, Any]:
    """Three steps each, by a coin; right pays 1 - x."""
    rng = np.random.default_rng(4)
    states, actions, rewards, terminated = [], [], [], []
    for _ in range(episodes):
        at = rng.uniform(-1, 1)
        for step in range(3):
            action = int(rng.integers(2))
            states.append([at])
            actions.append(action)
            rewards.append(action * (1 - at))
            terminated.append(step == 2)
            at += 0.3 * (2 * action - 1)
    count = len(states)
    return {
        "states": np.array(states),
        "actions": np.array(actions),
        "rewards": np.array(rewards),
        "terminated": np.array(terminated),
        "next_states": np.array([*states[1:], states[-1]]),
        "pscore": np.full(count, 0.5),
    }


def onnx_file(path: Path) -> Path:
    from onnx import TensorProto, helper, save

    kind = TensorProto.DOUBLE
    nodes = [
        helper.make_node("Mul", ["states", "slope"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probs"], axis=1),
    ]
    constants = [
        helper.make_tensor("slope", kind, [1, 2], [0.0, -SHARPNESS]),
        helper.make_tensor("shift", kind, [1, 2], [0.0, 1.0]),
    ]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("states", kind, ["n", 1])],
        [helper.make_tensor_value_info("probs", kind, ["n", 2])],
        constants,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_one_policy_has_one_value_however_it_is_given(tmp_path: Path) -> None:
    rows = log()
    asked: dict[str, Any] = {"actions": "discrete:2", "discount": 0.9, "options": OPTIONS}
    first = evaluate(rows, policy, **asked)
    assert set(first.estimates) == {"is", "wis", "pdis", "dr", "fqe"} and first.episodes == 80
    assert first.weights is not None and 10 < first.weights.ess < 80 and first.trace_gap is not None
    with PolicyServer(policy) as server:
        over_socket = evaluate(rows, server.endpoint, **asked)
    assert over_socket == first == evaluate(rows, policy(rows["states"]), **asked)
    by_onnx = evaluate(rows, onnx_file(tmp_path / "policy.onnx"), **asked)
    for name, estimate in first.estimates.items():
        assert by_onnx.estimates[name].value == pytest.approx(estimate.value, rel=1e-6)


def test_without_a_policy_probabilities_are_enough() -> None:
    rows = log()
    rows["target_probs"] = policy(rows["states"])[np.arange(len(rows["states"])), rows["actions"]]
    found = evaluate(rows, discount=0.9)
    assert set(found.estimates) == {"is", "wis", "pdis"} and found.trace_gap is None
    refused = evaluate(rows, discount=0.9, options={"ess-min": 1e6})
    assert refused.estimates["wis"].interval is None and refused.refused[0].startswith("no interval")
    assert refused.estimates["wis"].value == found.estimates["wis"].value


def test_what_a_policy_cannot_answer_is_said() -> None:
    rows = log(4)
    with pytest.raises(Invalid, match="must answer 12 states"):
        evaluate(rows, lambda states: np.zeros(3), actions="discrete:2")
    with pytest.raises(Invalid, match=r"policy \(row 0\)"):
        evaluate(rows, lambda states: np.full((len(states), 2), np.nan), actions="discrete:2")
    with pytest.raises(CriticdError, match="row 1: "):
        evaluate(rows, lambda states: np.full((len(states), 2), 0.9), actions="discrete:2")
    with pytest.raises(CriticdError, match="--policy needs --actions"):
        evaluate(rows, policy)
    with PolicyServer(lambda states: 1 / np.zeros(0)[0]) as server, pytest.raises(CriticdError, match="IndexError"):
        policies.ask(server.endpoint, rows["states"])
