"""Heads of a model that `criticd fit` wrote, against an independent implementation (tests/golden-heads)."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from criticd import Malformed, Snapshot
from criticd.heads import HeadModels

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden-heads"
# The learner's own tests (crates/learner) have them all. Here are every kind of cumulant, and the option that forgets.
FORMATS = ["gvf_12", "forgetting_16"]
FURTHER = ["discounts_11", "weights_13"]


def fitted(case: dict[str, Any], directory: Path) -> Snapshot:
    """The heads of a case, learned from its rows with its kernel and dictionary."""
    keys = {"x": "state", "x_next": "next_state"}
    rows = [{keys.get(key, key): value for key, value in row.items()} for row in case["rows"]]
    for row in rows:
        row["stream"] = str(row["stream"])
    lines = {
        "table.jsonl": rows,
        "dictionary.jsonl": [{"state": state} for state in case["dictionary"]],
    }
    for name, objects in lines.items():
        (directory / name).write_text("\n".join(json.dumps(one) for one in objects))
    kernel = {
        "kind": "ard",
        "profile": "gaussian",
        "signal_variance": case["kernel"]["v0"],
        "bias_variance": case["kernel"]["b"],
        "relevance": case["kernel"]["a"],
    }
    hyperparameters = {"kernel": kernel, "noise": {"model": "correlated", "variance": 0.2}}
    (directory / "h.json").write_text(json.dumps(hyperparameters))
    (directory / "heads.json").write_text(json.dumps(case["heads"]))
    command = [os.environ["CRITICD_BIN"], "fit", "table.jsonl", "--heads", "heads.json", "--hyperparameters", "h.json"]
    command += ["--no-optimise", "--dictionary", "dictionary.jsonl", "--out", "model.msgpack"]
    if "forgetting" in case:
        command += ["--forgetting", str(case["forgetting"])]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return Snapshot.load(directory / "model.msgpack")


@pytest.mark.parametrize("name", [*FORMATS, *(pytest.param(name, marks=pytest.mark.nightly) for name in FURTHER)])
def test_heads_are_snapshots_of_their_own(name: str, tmp_path: Path) -> None:
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    snapshot = fitted(case, tmp_path)
    snapshot.save(tmp_path / "again.msgpack")
    query = np.array(case["query"])
    for model in (snapshot, Snapshot.load(tmp_path / "again.msgpack")):
        assert list(model.heads) == [head["name"] for head in case["heads"]]
        for head in case["heads"]:
            expected, found = case["expected"][head["name"]], model.heads[head["name"]]
            mean, std = found(query, std=True)
            scale = max(1.0, np.abs(expected["mean"]).max())
            np.testing.assert_allclose(mean, expected["mean"], rtol=0, atol=1e-9 * scale)
            np.testing.assert_allclose(std**2, expected["var"], rtol=0, atol=1e-9)
            np.testing.assert_allclose(found.noise_variance, head["noise_variance"], rtol=1e-12)
            assert model.heads.declared(head["name"])["cumulant"] == head["cumulant"]
            gradient = found.gradient(query)
            step = np.zeros(found.dim)
            step[0] = 1e-5
            slope = (found(query + step) - found(query - step)) / 2e-5
            np.testing.assert_allclose(gradient[:, 0], slope, atol=1e-4 * scale)


def test_a_head_is_loaded_alone(tmp_path: Path) -> None:
    model = with_branch(fitted(json.loads((GOLDEN / "gvf_12.json").read_text()), tmp_path))
    path = tmp_path / "two.model"
    model.save(path)
    states = np.random.default_rng(1).normal(size=(20, model.dim))
    for name in ("soft", "soft apart"):
        alone, expected = Snapshot.load(path, head=name), Snapshot.load(path).heads[name]
        assert (alone.critic, alone.discount, len(alone.heads)) == (expected.critic, expected.discount, 0)
        for found, wanted in zip(alone(states, std=True), expected(states, std=True), strict=True):
            np.testing.assert_array_equal(found, wanted)
    with pytest.raises(KeyError, match="none"):
        Snapshot.load(path, head="none")


def with_branch(model: Snapshot) -> Snapshot:
    """The same model with its heads once more, under other names, a wider kernel and two elements less."""
    heads = model.head_models
    assert heads is not None
    narrow, bases = model.dictionary[:-2], tuple((vectors[:-2, :-2], values[:-2]) for vectors, values in heads.bases)
    declared = tuple({**head, "name": f"{head['name']} apart"} for head in heads.declared)
    branch = replace(
        model,
        kernel=replace(model.kernel, signal_variance=1.7 * model.kernel.signal_variance),
        dictionary=narrow,
        weights=np.zeros((len(narrow), 1)),
        covariance=None,
        returns=None,
        head_models=replace(heads, declared=declared, weights=heads.weights[:-2], bases=bases),
    )
    return replace(model, branch=branch)


def test_heads_with_a_kernel_of_their_own_are_kept(tmp_path: Path) -> None:
    model = with_branch(fitted(json.loads((GOLDEN / "gvf_12.json").read_text()), tmp_path))
    model.save(tmp_path / "two.model")
    read, states = Snapshot.load(tmp_path / "two.model"), np.random.default_rng(1).normal(size=(20, model.dim))
    assert list(read.heads) == list(model.heads) and len(read.heads) % 2 == 0
    said = json.loads(run(tmp_path, f"value {tmp_path / 'two.model'} {states_file(tmp_path, states)} --json"))["heads"]
    for name, head in read.heads.items():
        mean, std = head(states, std=True)
        np.testing.assert_allclose(mean, model.heads[name](states), rtol=1e-12)
        np.testing.assert_allclose(said[name]["mean"], mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(np.sqrt(said[name]["variance"]), std, rtol=1e-6, atol=1e-6)
    assert not np.allclose(read.heads["soft"](states), read.heads["soft apart"](states))
    assert read.heads["soft apart"].critic == read.heads["soft"].critic + " apart"


def test_heads_are_called_by_their_names_with_the_unit_of_what_they_sum(tmp_path: Path) -> None:
    made = fitted(json.loads((GOLDEN / "gvf_12.json").read_text()), tmp_path)
    states = tuple(f"joint {d} [rad]" for d in range(made.dim))
    rewards = tuple(f"reward {k} [J]" for k in range(made.weights.shape[1]))
    named = replace(made, names=states, reward_names=rewards)
    units = {"state": " [rad]", "next_state": " [rad]", "reward": " [J]"}
    kinds = set()
    for name, head in named.heads.items():
        cumulant = named.heads.declared(name)["cumulant"]
        kinds.add(cumulant["kind"])
        known = cumulant["kind"] != "reward" or cumulant["index"] < len(rewards)
        assert head.reward_names == (name + (units.get(cumulant["kind"], "") if known else ""),)
        assert made.heads[name].reward_names == (name,)
    assert len(kinds) > 1
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert "soft" in named.heads["soft"].plot([0]).get_title()


def states_file(directory: Path, states: np.ndarray) -> Path:
    """The states as a file without a header."""
    path = directory / "states.csv"
    header = ",".join(f"state_{d}" for d in range(states.shape[1]))
    np.savetxt(path, states, delimiter=",", fmt="%.17g", header=header, comments="")
    return path


def test_models_without_heads_have_none(tmp_path: Path) -> None:
    case = json.loads((GOLDEN / "gvf_12.json").read_text())
    snapshot = fitted(case, tmp_path)
    alone = snapshot.heads["soft"]
    assert len(alone.heads) == 0 and "soft" not in alone.heads
    with pytest.raises(KeyError):
        alone.heads["soft"]
    assert alone.critic.endswith(".soft")
    message = snapshot.message()
    message["heads"]["ratios"] = -message["heads"]["ratios"]
    with pytest.raises(Malformed, match="not positive"):
        Snapshot.of(message)


def wave() -> tuple[np.ndarray, np.ndarray]:
    """A cosine at 101 places, with noise."""
    x = np.linspace(0, 1, 101)
    return x, np.cos(2 * np.pi * x) + 0.3 * np.random.RandomState(0).randn(101)


def run(directory: Path, arguments: str) -> str:
    """Standard output of the program."""
    command = [os.environ["CRITICD_BIN"], *arguments.split()]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


KERNEL = {"kind": "isotropic", "profile": "gaussian", "signal_variance": 1.0, "bias_variance": 0.0, "relevance": 20.0}
RIDGE = {"kernel": KERNEL, "noise": {"model": "correlated", "variance": 1.0}}
GIVEN = "--hyperparameters h.json --no-optimise --tolerance 1e-12 --out model.msgpack"


def test_a_target_is_kernel_ridge_regression(tmp_path: Path) -> None:
    x, y = wave()
    (tmp_path / "h.json").write_text(json.dumps(RIDGE))
    lines = [f"{place!r},{height!r}" for place, height in zip(x.tolist(), y.tolist(), strict=True)]
    (tmp_path / "points.csv").write_text("\n".join(["x,y", *lines]))
    run(tmp_path, f"fit points.csv --state x --target y {GIVEN}")
    found = Snapshot.load(tmp_path / "model.msgpack")(x[:, None])
    kernel = np.exp(-10 * (x[:, None] - x) ** 2)
    dense = kernel @ np.linalg.solve(kernel + np.eye(101), y)
    np.testing.assert_allclose(found, dense, rtol=0, atol=1e-9)
    assert abs(np.sqrt(np.mean((found - np.cos(2 * np.pi * x)) ** 2)) - 0.071564) < 1e-6


def test_a_weighted_head_is_cost_regularised_kernel_regression(tmp_path: Path) -> None:
    x, y = wave()
    states, targets = np.tile(x, 2), np.hstack([y, -2 * y])
    weights = np.hstack([np.ones(25), np.full(51, 0.1), np.ones(25), np.full(25, 0.1), np.ones(51), np.full(25, 0.1)])
    rows = [
        {"state": [state], "next_state": [state], "reward": [target, weight], "terminated": True}
        for state, target, weight in zip(states.tolist(), targets.tolist(), weights.tolist(), strict=True)
    ]
    head = {
        "name": "action",
        "cumulant": {"kind": "reward", "index": 0},
        "discount": 0.0,
        "weight": {"index": 1},
        "noise_variance": 1.0,
    }
    (tmp_path / "h.json").write_text(json.dumps(RIDGE))
    (tmp_path / "table.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "heads.json").write_text(json.dumps([head]))
    run(tmp_path, f"fit table.jsonl --heads heads.json {GIVEN}")
    mean, std = Snapshot.load(tmp_path / "model.msgpack").heads["action"](np.linspace(0, 1, 5)[:, None], std=True)
    np.testing.assert_allclose(mean, [0.855131, 0.490929, 1.729276, 0.533156, 0.820289], atol=1e-5)
    # The regression states the deviation of a sample, and not of its mean.
    np.testing.assert_allclose(
        np.sqrt(std**2 + 1), [1.050510, 1.018591, 1.017991, 1.018591, 1.050510], rtol=0, atol=1e-5
    )


def test_heads_keep_how_far_they_are_verified(tmp_path: Path) -> None:
    case = json.loads((GOLDEN / "weights_13.json").read_text())
    model = fitted(case, tmp_path)
    assert model.head_models is not None
    count = len(model.heads)
    coverage = np.where(np.arange(count) == 0, np.nan, 0.75)
    level = np.linspace(-1e6, 1e6, count)
    known = replace(model.head_models, pairs=np.where(np.isnan(coverage), 0.0, 64.0), coverage=coverage, level=level)
    replace(model, head_models=known).save(tmp_path / "verified.model")
    # The program reads it, too.
    run(tmp_path, f"inspect {tmp_path / 'verified.model'}")
    states = np.random.default_rng(2).normal(size=(5, model.dim))
    np.savez(tmp_path / "states.npz", states=states)
    for place, (name, head) in enumerate(Snapshot.load(tmp_path / "verified.model").heads.items()):
        said = json.loads(run(tmp_path, f"value verified.model states.npz --head {name} --json"))
        np.testing.assert_allclose(said["mean"], head(states), rtol=1e-12)
        np.testing.assert_allclose(head(states) - level[place], model.heads[name](states), rtol=0, atol=1e-8)
    for place, head in enumerate(Snapshot.load(tmp_path / "verified.model").heads.values()):
        assert head.returns is not None
        assert (head.returns.pairs, head.returns.coverage) == ((64, 0.75) if place else (0, None))
    with pytest.raises(ValueError, match="coverage"):
        HeadModels.of(known.message() | {"coverage": np.full(count, 1.5)}, len(model.dictionary))


@pytest.mark.parametrize("kernels", [1, 2])
def test_onnx_has_the_answers_of_all_heads(tmp_path: Path, kernels: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    case = json.loads((GOLDEN / "weights_13.json").read_text())
    model = fitted(case, tmp_path)
    assert model.head_models is not None
    count = len(model.heads)
    changed = replace(model.head_models, factors=np.linspace(0.5, 2, count), level=np.linspace(-30, 40, count))
    model = replace(model, head_models=changed)
    if kernels == 2:
        model = with_branch(model)
    path = tmp_path / "heads.onnx"
    model.to_onnx(path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    assert outputs[0] == "mean" and outputs[-3:] == ["heads", "heads_std", "heads_return_std"]
    assert json.loads(session.get_modelmeta().custom_metadata_map["heads"]) == list(model.heads)
    states = np.random.default_rng(1).normal(size=(50, model.dim))
    found = dict(zip(outputs, session.run(None, {"states": states}), strict=True))
    for column, head in enumerate(model.heads.values()):
        expected = head(states, std=True, returns=True)
        answers = {"heads": expected.mean, "heads_std": expected.std, "heads_return_std": expected.return_std}
        for name, wanted in answers.items():
            assert wanted is not None
            np.testing.assert_allclose(found[name][:, column], wanted, rtol=1e-6, atol=1e-6)
