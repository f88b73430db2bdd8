"""The reference cases of action values through `criticd fit` and the model's snapshot in Python."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from criticd import Snapshot
from criticd.daemon import binary

GOLDEN = Path(__file__).parents[2] / "tests" / "golden-q"
CASES = sorted(path.stem for path in GOLDEN.glob("[qv]_*.json"))
VARIANCES = ["model", "rows", "clustered"]
# The learner's own tests (crates/learner) have them all. Here is one of each format: a box of actions, numbered actions
# with their probabilities, and none with ratios; and one of each variance.
FORMATS = [
    ("q_box_sarsa_lambda_1", "model"),
    ("q_discrete_expected_retrace_lambda_08", "rows"),
    ("v_ratio_lambda_07", "clustered"),
]
FURTHER = [(name, variance) for name in CASES for variance in VARIANCES if (name, variance) not in FORMATS]
FLAGS = {"gap": "starts_chain", "terminated": "terminated", "truncated": "truncated"}
NUMBERS = {
    "stream": "stream",
    "r": "reward",
    "discount": "discount",
    "x": "state",
    "x_next": "next_state",
    "action": "action",
    "behavior_prob": "behavior_prob",
    "target_prob": "target_prob",
    "next_action": "next_action",
    "next_action_probs": "next_action_probs",
}


def written(path: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    """A table: an array (n,) is one column, an array (n, k) the columns name_0 to name_{k-1}."""
    parts: dict[str, npt.NDArray[Any]] = {}
    for name, values in columns.items():
        wide = values.ndim > 1 and (values.shape[1] > 1 or not name.endswith("action"))
        parts |= {f"{name}_{k}": values[:, k] for k in range(values.shape[1])} if wide else {name: values.reshape(-1)}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(parts)
        writer.writerows(
            [repr(value) for value in row] for row in zip(*(v.tolist() for v in parts.values()), strict=True)
        )


def fitted(case: dict[str, Any], variance: str, directory: Path) -> Snapshot:
    """The model that `criticd fit` makes of a case's rows with its kernel and dictionary."""
    rows = case["transitions"]
    columns = {to: np.array([int(row[key]) for row in rows]) for key, to in FLAGS.items()}
    columns |= {to: np.array([row[key] for row in rows]) for key, to in NUMBERS.items() if key in rows[0]}
    if case["head"] != "q":
        del columns["action"]
    written(directory / "table.csv", columns)
    written(directory / "dictionary.csv", {"state": np.array(case["dictionary"])})
    kernel = case["kernel"]
    hyperparameters = {
        "kernel": {
            "kind": "ard",
            "signal_variance": kernel["v0"],
            "bias_variance": kernel["b"],
            "relevance": kernel["relevance"],
        },
        "noise": {"model": "correlated", "variance": case["noise_variance"]},
    }
    (directory / "h.json").write_text(json.dumps(hyperparameters))
    words = ["--no-optimise", "--hyperparameters", "h.json", "--dictionary", "dictionary.csv", "--variance", variance]
    words += ["--lambda", repr(case["lambda"]), "--discount", repr(case["discount"]), "--out", "model.msgpack"]
    if case["rho_max"] is not None:
        words += ["--rho-max", repr(case["rho_max"])]
    if case["head"] == "q":
        action = case["action"]
        kind = f"discrete:{action['n']}" if action["kind"] == "discrete" else "box"
        words += ["--inputs", "state_action", "--actions", kind]
        words += ["--successor", case["successor"], "--trace", case["trace"]]
    command = [str(binary()), "fit", "table.csv", *words]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Snapshot.load(directory / "model.msgpack")


@pytest.mark.parametrize(
    ("name", "variance"), [*FORMATS, *(pytest.param(*each, marks=pytest.mark.nightly) for each in FURTHER)]
)
def test_a_fitted_model_says_in_python_what_the_reference_does(name: str, variance: str, tmp_path: Path) -> None:
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    model, expected = fitted(case, variance, tmp_path), case["expected"]
    query = case["query"]
    if case["head"] == "q":
        states, actions = ([pair[i] for pair in query] for i in (0, 1))
        query = model.inputs(states, actions)
    mean, found = model.evaluate(np.array(query))
    np.testing.assert_allclose(mean, expected["mean"], rtol=0, atol=1e-9 * np.abs(expected["mean"]).max())
    assert found is not None
    wanted = np.array(expected["variance"][variance])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * wanted.max())
