"""A model says here what it says there, survives a file, and follows what is published."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, Start

from criticd import Invalid, Kernel, Malformed, ReturnSpread, Snapshot, Tracked
from criticd.gym import wrap
from criticd.testing import binary

EPSILON = float(np.finfo(float).eps)


def model(kind: str = "factor", m: int = 4, d: int = 3, rewards: int = 1, variance: bool = True) -> Snapshot:
    """A model out of the air, whose variances are positive."""
    generator = np.random.default_rng(0)
    relevance = np.full(d, 0.4) if kind == "isotropic" else generator.uniform(0, 1, d)
    factors = generator.standard_normal((2, d)) if kind == "factor" else np.zeros((0, d))
    root = 0.1 * generator.standard_normal((m, m))
    return Snapshot(
        critic="default",
        generation=3,
        revision=17,
        offset=1000,
        transitions=990,
        time=1.7e9,
        discount=0.9,
        noise_model="correlated",
        noise_variance=0.25,
        kernel=Kernel(kind, 2.0, 0.5, relevance, factors),
        shift=generator.standard_normal(d),
        scale=generator.uniform(0.5, 2, d),
        names=("x", "y", "z")[:d] if d <= 3 else None,
        dictionary=generator.standard_normal((m, d)),
        weights=generator.standard_normal((m, rewards)),
        covariance=root @ root.T if variance else None,
        log_evidence=-12.5,
        score=-0.75,
        lambda_=0.8,
        returns=ReturnSpread(
            level=np.linspace(0.5, 1.0, rewards),
            weights=generator.standard_normal((m, rewards)),
            floor=np.full(rewards, 0.1),
            factor=1.25,
            pairs=431,
            coverage=0.875,
        ),
    )


def plainly(snapshot: Snapshot, state: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean and variance at one state, as the protocol writes it down."""
    kernel = snapshot.kernel
    omega = np.diag(kernel.relevance) + sum((np.outer(f, f) for f in kernel.factors), np.zeros((snapshot.dim,) * 2))
    z = (state - snapshot.shift) / snapshot.scale
    apart = snapshot.dictionary - z
    k = kernel.signal_variance * np.exp([-0.5 * a @ omega @ a for a in apart]) + kernel.bias_variance
    assert snapshot.covariance is not None
    return k @ snapshot.weights, float(kernel.signal_variance + kernel.bias_variance - k @ snapshot.covariance @ k)


def rounding(snapshot: Snapshot, states: np.ndarray) -> np.ndarray:
    """What rounding may do to each variance, whoever adds it up: a share of the sum of magnitudes."""
    kernel = snapshot.kernel
    z = (states - snapshot.shift) / snapshot.scale
    apart = kernel.project(z)[:, None] - kernel.project(snapshot.dictionary)[None]
    k = kernel.signal_variance * np.exp(-0.5 * (apart**2).sum(axis=2)) + kernel.bias_variance
    assert snapshot.covariance is not None
    bound: np.ndarray = 100 * EPSILON * np.einsum("ij,jk,ik->i", k, np.abs(snapshot.covariance), k)
    return bound


@pytest.mark.parametrize("kind", ["isotropic", "ard", "factor"])
@pytest.mark.parametrize("rewards", [1, 3])
def test_values_are_those_of_the_formula(kind: str, rewards: int) -> None:
    snapshot = model(kind, rewards=rewards)
    states = np.random.default_rng(1).standard_normal((200, 3))
    mean, deviation = snapshot(states, std=True)
    assert mean.shape == ((200,) if rewards == 1 else (200, rewards))
    assert deviation.shape == (200,)
    for k in range(200):
        one = plainly(snapshot, states[k])
        np.testing.assert_allclose(np.ravel(mean[k]), one[0], rtol=1e-12)
        np.testing.assert_allclose(deviation[k] ** 2, one[1], rtol=1e-12)
    assert np.array_equal(snapshot(states), mean)
    single, at = snapshot(states[0], std=True)
    assert np.shape(single) == (() if rewards == 1 else (rewards,)) and np.shape(at) == ()
    np.testing.assert_allclose(single, mean[0], rtol=1e-14)


@pytest.mark.parametrize("rewards", [1, 2])
def test_states_are_known_together(rewards: int) -> None:
    snapshot = model(rewards=rewards)
    states = np.random.default_rng(2).standard_normal((5, 3))
    mean, joint = snapshot.joint(states)
    alone, variance = snapshot.evaluate(states)
    assert variance is not None
    assert (mean == alone).all() and np.allclose(np.diag(joint), variance) and (joint == joint.T).all()
    # The variance of a sum is the variance of a value whose kernel row is the sum.
    assert np.linalg.eigvalsh(joint).min() > -1e-9
    samples = snapshot.sample(states, 20_000, seed=1)
    assert samples.shape == (20_000, 5) if rewards == 1 else samples.shape == (20_000, 5, rewards)
    assert (samples == snapshot.sample(states, 20_000, seed=1)).all()
    first = samples.reshape(20_000, 5, -1)[:, :, 0]
    assert np.allclose(np.cov(first.T), joint, atol=0.05 * variance.max())
    assert np.allclose(samples.mean(axis=0), mean, atol=0.05 * np.sqrt(variance.max()))
    with pytest.raises(ValueError, match="variance"):
        model(variance=False).joint(states)


@pytest.mark.parametrize("rewards", [1, 3])
def test_returns_and_what_is_known_are_those_of_the_formula(rewards: int) -> None:
    snapshot = model(rewards=rewards)
    assert snapshot.returns is not None
    states = 3 * np.random.default_rng(1).standard_normal((200, 3))
    values = snapshot(states, std=True, returns=True, known=True)
    mean, deviation = snapshot(states, std=True)
    assert values.std is not None and values.return_variance is not None and values.return_std is not None
    assert values.known is not None and values.extrapolates is not None
    assert np.array_equal(values.mean, mean) and np.array_equal(values.std, deviation)
    kernel, spread = snapshot.kernel, snapshot.returns
    rows = snapshot._kernel_rows(states, kernel.project(snapshot.dictionary))
    scatter = np.maximum(spread.floor, spread.level + rows @ spread.weights)
    expected = 1.25**2 * ((deviation**2)[:, None] + scatter)
    np.testing.assert_allclose(values.return_variance, expected.reshape(mean.shape), rtol=1e-12)
    np.testing.assert_allclose(values.known, np.maximum(1 - deviation**2 / 2.0, 0.0), atol=1e-12)
    # Far from all data nothing is known, however well the constant is.
    far = snapshot(np.full((1, 3), 1e3), known=True)
    assert far.known is not None and far.known.item() < 0.05
    assert np.array_equal(values.extrapolates, ((rows - 0.5) / 2.0).max(axis=1) < 0.3)
    assert 0 < values.extrapolates.sum() < 200
    low, high = values.return_interval(0.9)
    np.testing.assert_allclose((high - low) / values.return_std, 2 * 1.6448536269514722)
    one = snapshot(states[0], returns=True, known=True)
    assert one.std is None and one.known is not None and one.extrapolates is not None and one.return_std is not None
    assert one.known.shape == one.extrapolates.shape == ()
    assert one.return_std.shape == one.mean.shape == (() if rewards == 1 else (rewards,))


def test_what_a_model_cannot_say_is_none() -> None:
    values = replace(model(), returns=None)(np.zeros((2, 3)), std=True, returns=True, known=True)
    assert values.return_variance is None and values.variance is not None and values.known is not None
    values = model(variance=False).evaluate(np.zeros((2, 3)), returns=True, known=True)
    assert values.extrapolates is not None and values.return_std is None and values.known is None and values.std is None
    with pytest.raises(ValueError, match="not known"):
        values.return_interval()
    assert model()(np.zeros((2, 3)), known=True).return_variance is None
    assert model()(np.zeros((2, 3)), returns=True).extrapolates is None


def test_many_states_are_as_good_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = model()
    states = np.random.default_rng(1).standard_normal((1001, 3))
    at_once = snapshot(states, std=True)
    monkeypatch.setattr("criticd._model._CELLS", 40)
    for whole, parts in zip(at_once, snapshot(states, std=True), strict=True):
        np.testing.assert_allclose(whole, parts, rtol=1e-14)
    assert snapshot(np.zeros((0, 3))).shape == (0,)


def test_relevance_and_lengthscales() -> None:
    ard, factor = model("ard"), model("factor")
    assert np.array_equal(ard.relevance, ard.kernel.relevance)
    np.testing.assert_allclose(factor.relevance, factor.kernel.relevance + (factor.kernel.factors**2).sum(axis=0))
    np.testing.assert_allclose(ard.lengthscale, ard.scale / np.sqrt(ard.relevance))
    silent = replace(ard, kernel=replace(ard.kernel, relevance=np.array([0.0, 1.0, 4.0])))
    assert silent.lengthscale[0] == np.inf


def test_a_model_of_no_rows_is_the_prior() -> None:
    nothing = np.zeros((0, 1))
    snapshot = replace(model(), dictionary=np.zeros((0, 3)), weights=nothing, covariance=np.zeros((0, 0)), returns=None)
    mean, deviation = Snapshot.of(snapshot.message())(np.ones((2, 3)), std=True)
    assert mean.tolist() == [0.0, 0.0] and np.allclose(deviation**2, 2.5)


def test_states_that_make_no_sense_are_refused() -> None:
    snapshot = model()
    for states in ([[1.0, 2.0]], [1.0], 1.0, np.zeros((2, 2, 3))):
        with pytest.raises(Invalid) as invalid:
            snapshot(states)
        assert invalid.value.field == "states"
    for bad in (np.nan, np.inf, 2e9):
        with pytest.raises(Invalid) as invalid:
            snapshot([[0.0, 0.0, 0.0], [0.0, bad, 0.0]])
        assert invalid.value.index == 1
    with pytest.raises(ValueError, match="variance"):
        model(variance=False)(np.zeros(3), std=True)


def test_a_file_holds_a_model(tmp_path: Path) -> None:
    snapshot = model()
    snapshot.save(tmp_path / "model")
    assert Snapshot.load(tmp_path / "model").message().keys() == snapshot.message().keys()
    states = np.random.default_rng(2).standard_normal((20, 3))
    loaded = Snapshot.load(tmp_path / "model")
    for before, after in zip(snapshot(states, std=True), loaded(states, std=True), strict=True):
        assert np.array_equal(before, after)
    # The program reads it, and says the same.
    table = tmp_path / "states.csv"
    np.savetxt(table, states, delimiter=",", header="state_0,state_1,state_2", comments="", fmt="%.17g")
    said = subprocess.run(
        [binary(), "value", tmp_path / "model", table, "--json"], check=True, capture_output=True, text=True
    )
    found = json.loads(said.stdout)
    mean, variance = snapshot.evaluate(states)
    assert variance is not None
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(found["variance"], variance, rtol=1e-12)
    values = snapshot(states, returns=True, known=True)
    assert values.return_variance is not None and values.known is not None
    np.testing.assert_allclose(found["return_variance"], values.return_variance, rtol=1e-12)
    np.testing.assert_allclose(found["known"], values.known, atol=1e-12)
    assert values.extrapolates is not None and found["extrapolates"] == values.extrapolates.tolist()
    assert {file.name for file in tmp_path.iterdir()} == {"model", "states.csv"}


@pytest.mark.parametrize("rewards", [1, 2])
def test_a_mixture_has_its_base_beside_it(tmp_path: Path, rewards: int) -> None:
    base = model(rewards=rewards)
    assert base.base is base
    tracked = Tracked(base.weights, gate=np.full(rewards, 0.75), half_life=np.full(rewards, 128.0))
    mixture = replace(base, weights=2 * base.weights, tracked=tracked)
    mixture.save(tmp_path / "mixture")
    found, states = Snapshot.load(tmp_path / "mixture"), np.linspace(-1, 1, 12).reshape(4, 3)
    np.testing.assert_array_equal(found(states), mixture(states))
    np.testing.assert_array_equal(found.base(states), base(states))
    assert found.tracked is not None
    np.testing.assert_array_equal(found.tracked.half_life, tracked.half_life)
    for wrong in (
        {"gate": np.full(rewards, 1.5)},
        {"half_life": np.ones(rewards + 1)},
        {"base": np.ones((2, rewards))},
    ):
        message = mixture.message()
        message["tracked"] = {**message["tracked"], **wrong}
        with pytest.raises((Malformed, ValueError)):
            Snapshot.of(message)


def test_models_that_do_not_fit_together_are_refused() -> None:
    good = model().message()
    kernel, inputs = good["kernel"], good["inputs"]
    spoilt: list[dict[str, Any]] = [
        {"type": "weights"},
        {"weights": np.zeros(3)},
        {"dictionary": np.zeros((4, 2))},
        {"variance": np.zeros((3, 3))},
        {"kernel": {**kernel, "relevance": [1.0, 1.0]}},
        {"kernel": {**kernel, "kind": "cubic"}},
        {"kernel": {**kernel, "signal_variance": 0.0}},
        {"inputs": {**inputs, "scale": [1.0, 1.0]}},
        {"log_evidence": "good"},
        {"weights": [1.0, np.nan, 0.0, 0.0]},
        {"lambda": 1.5},
        {"returns": {**good["returns"], "level": [1.0, 2.0]}},
        {"returns": {**good["returns"], "weights": [1.0]}},
        {"returns": {**good["returns"], "floor": [0.0]}},
        {"returns": {**good["returns"], "factor": -1.0}},
        {"returns": {**good["returns"], "coverage": 1.5}},
        {"returns": {}},
    ]
    assert Snapshot.of(good).revision == 17
    for changes in spoilt:
        with pytest.raises(Malformed):
            Snapshot.of({**good, **changes})
    for key in ("critic", "kernel", "weights", "offset"):
        with pytest.raises(Malformed, match=key):
            Snapshot.of({name: value for name, value in good.items() if name != key})


def test_weights_follow_a_snapshot() -> None:
    before, whole = model(), model(m=6)
    change = {key: value for key, value in whole.message().items() if key not in ("inputs", "discount")}
    change |= {"type": "weights", "revision": 18, "dictionary": whole.dictionary[3:], "dictionary_start": 3}
    after = before.followed_by(change)
    assert after is not None
    assert np.array_equal(after.dictionary, np.vstack([before.dictionary[:3], whole.dictionary[3:]]))
    assert np.array_equal(after.weights, whole.weights) and after.covariance is not None
    assert (after.revision, after.names, after.discount) == (18, before.names, before.discount)
    # One that was missed, another generation, another critic.
    wrongs: list[dict[str, Any]] = [{"revision": 19}, {"revision": 17}, {"generation": 4}, {"critic": "other"}]
    for wrong in wrongs:
        assert before.followed_by({**change, **wrong}) is None
    with pytest.raises(Malformed, match="dictionary_start"):
        before.followed_by({**change, "dictionary_start": 5})


def test_a_variance_that_is_left_out_follows_the_kernels_scale() -> None:
    before = model()
    change = {**before.message(), "type": "weights", "revision": 18, "dictionary": [], "dictionary_start": 4}
    del change["variance"], change["returns"]
    change["kernel"] = {**change["kernel"], "signal_variance": 8.0, "bias_variance": 2.0}
    after = before.followed_by(change)
    assert after is not None
    states = np.random.default_rng(3).standard_normal((5, 3))
    # All of the kernel is four times what it was, and so are all variances.
    np.testing.assert_allclose(after(states, std=True)[1], 2 * before(states, std=True)[1], rtol=1e-12)
    grown = before.followed_by({**change, "dictionary": np.zeros((1, 3)), "weights": np.zeros(5)})
    assert grown is not None and grown.covariance is None


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["isotropic", "ard", "factor"])
@pytest.mark.parametrize("name", ["Pendulum-v1", pytest.param("MountainCarContinuous-v0", marks=pytest.mark.nightly)])
def test_ten_thousand_states_have_the_daemons_values(start: Start, name: str, kernel: str) -> None:
    daemon = start(
        *CALM,
        f"critic.kernel={kernel}",
        "critic.discount=0.95",
        "critic.evidence_rows=200",
        "critic.refit_budget_s=600",
    )
    with daemon.sender(reliable=True) as sender:
        env = wrap(gymnasium.make(name), sender)
        env.action_space.seed(0)
        env.reset(seed=0)
        seen = []
        for _ in range(2000):
            observed, _, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append(observed)
            if terminated or truncated:
                env.reset()
        assert sender.flush(PATIENCE_S)
    visited = np.array(seen, float)
    low, high = visited.min(axis=0), visited.max(axis=0)
    margin = 0.2 * (high - low)
    drawn = np.random.default_rng(0).uniform(low - margin, high + margin, (8000, len(low)))
    states = np.vstack([visited, drawn])
    with daemon.client() as client:
        outcome = client.refit(wait=True, timeout_s=5 * PATIENCE_S)
        assert outcome.outcome == "adopted", outcome
        answer = client.value(states, variance=True, min_offset=2000)
        snapshot = client.snapshot()
    assert (snapshot.generation, snapshot.offset) == (answer.generation, answer.offset)
    assert snapshot.kernel.kind == kernel
    mean, variance = snapshot.evaluate(states)
    assert variance is not None and answer.variance is not None
    prior = snapshot.kernel.diagonal
    apart = np.abs(mean - answer.mean), np.abs(variance - answer.variance)
    print(
        f"\n{name}, {kernel}, dictionary {len(snapshot.dictionary)}: means differ by {apart[0].max() / prior**0.5:.1e} "
        f"of the prior's deviation, variances by {apart[1].max() / prior:.1e} of its variance"
    )
    assert (apart[0] <= 1e-9 * np.abs(answer.mean) + 1e-11 * prior**0.5).all()
    assert (apart[1] <= 1e-9 * prior).all()
    # Where the variance is a small rest of large terms no two programs can agree better than this.
    assert (apart[1] <= 1e-9 * answer.variance + rounding(snapshot, states)).all()
