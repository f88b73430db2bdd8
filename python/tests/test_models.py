"""What a model shows of itself: its gradient, pictures, short descriptions, and the ONNX file made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_snapshot import model

from criticd import Invalid, Kernel, Malformed, Snapshot
from criticd._actions import Actions
from criticd._sobol import total_indices

KINDS: dict[str, tuple[str, ...]] = {
    "real": (),
    "mixed": ("real", "periodic:3.5", "category"),
    "categories": ("category", "category", "category"),
    "circles": ("periodic:2", "periodic:0.5", "real"),
    "bent": ("asinh:-0.5:0.25:0.75", "real", "asinh:0.5:2:1.5"),
    "columns": (),
    "mixed columns": ("real", "periodic:3.5", "category"),
    "bent columns": ("asinh:-0.5:0.25:0.75", "periodic:3.5", "category"),
    "about a mean": (),
}
COLUMNS = {
    "columns": ("constant", "linear:0", "bounded:1", "linear:2"),
    "mixed columns": ("constant", "bounded:0", "cosine:1", "sine:1"),
    "bent columns": ("constant", "bounded:0", "cosine:1", "sine:1"),
}


def of(profile: str, kind: str, kinds: str, rewards: int = 1) -> Snapshot:
    """A model of three variables, whose dictionary has some categories in common with states."""
    columns = COLUMNS.get(kinds, ())
    made = model(kind, m=12 + len(columns), rewards=rewards)
    dictionary = made.dictionary[:12].copy()
    for d, name in enumerate(KINDS[kinds]):
        if name == "category":
            dictionary[:, d] = np.round(dictionary[:, d])
    kernel = replace(made.kernel, profile=profile, kinds=KINDS[kinds])
    if columns:
        kernel = replace(kernel, bias_variance=0.0, columns=columns, column_variances=np.array([5.0, 2.0, 2.0, 2.0]))
        made = replace(made, level=np.linspace(-50.0, 50.0, rewards))
    shift, scale = made.shift.copy(), made.scale.copy()
    for d, name in enumerate(KINDS[kinds]):
        if name != "real":
            shift[d], scale[d] = 0.0, 1.0
    if kinds == "about a mean":
        # A mean that has learned about another one, which is linear.
        far = of("gaussian", "isotropic", "columns", rewards)
        far = replace(far, dictionary=far.dictionary[:0], weights=far.weights[:4], covariance=None, returns=None)
        mean = replace(of("matern52", "ard", "real", rewards), covariance=None, returns=None, mean_function=far)
        made = replace(made, mean_function=mean)
    return replace(made, kernel=kernel, dictionary=dictionary, shift=shift, scale=scale)


def states_for(snapshot: Snapshot, count: int) -> np.ndarray:
    states = 2 * np.random.default_rng(3).standard_normal((count, 3))
    for d, name in enumerate(snapshot.kernel.kinds):
        if name == "category":
            states[:, d] = np.round(states[:, d])
    return states


@pytest.mark.parametrize("profile", ["gaussian", "matern52"])
@pytest.mark.parametrize("kind", ["isotropic", "ard", "factor"])
@pytest.mark.parametrize("kinds", list(KINDS))
@pytest.mark.parametrize("rewards", [1, 3])
def test_the_gradient_is_that_of_small_differences(profile: str, kind: str, kinds: str, rewards: int) -> None:
    snapshot = of(profile, kind, kinds, rewards)
    states, step = states_for(snapshot, 40), 1e-5
    gradient = snapshot.gradient(states)
    assert gradient.shape == ((40, 3) if rewards == 1 else (40, 3, 3))
    for d in range(3):
        if snapshot.kernel.kinds and snapshot.kernel.kinds[d] == "category":
            assert not gradient[:, d].any()
            continue
        ahead, behind = states.copy(), states.copy()
        ahead[:, d] += step
        behind[:, d] -= step
        difference = (snapshot(ahead) - snapshot(behind)) / (2 * step)
        np.testing.assert_allclose(gradient[:, d], difference, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(snapshot.gradient(states[0]), gradient[0], rtol=1e-13)


@pytest.mark.parametrize("kinds", list(COLUMNS))
def test_columns_are_what_the_protocol_writes_down(kinds: str, tmp_path: Path) -> None:
    made = of("matern52", "ard", kinds, rewards=2)
    snapshot = Snapshot.of(made.message())
    snapshot.save(tmp_path / "model.msgpack")
    kernel, states = snapshot.kernel, states_for(snapshot, 30)
    said = snapshot(states, std=True, known=True)
    plain = replace(kernel, columns=(), column_variances=np.zeros(0))
    assert snapshot.covariance is not None and said.variance is not None and said.known is not None
    for k, z in enumerate(snapshot.normalised(states)):
        angle = 2 * np.pi * z[1] / 3.5
        bounded = np.clip(z, -4, 4)
        mixed = [1.0, bounded[0], np.cos(angle), np.sin(angle)]
        f = np.array([1.0, z[0], bounded[1], z[2]] if kinds == "columns" else mixed)
        spanned = replace(snapshot, kernel=plain)._kernel_rows(states[k : k + 1], plain.project(snapshot.dictionary))[0]
        row = np.concatenate([kernel.column_variances * f, spanned])
        prior = kernel.diagonal + kernel.column_variances @ f**2
        variance = max(prior - row @ snapshot.covariance @ row, 0.0)
        np.testing.assert_allclose(said.mean[k], snapshot.level + row @ snapshot.weights, rtol=1e-12)
        np.testing.assert_allclose(said.variance[k], variance, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(said.known[k], max(1 - variance / kernel.signal_variance, 0.0), rtol=1e-9, atol=1e-9)
    again = Snapshot.load(tmp_path / "model.msgpack")
    np.testing.assert_array_equal(again(states), said.mean)
    for wrong in ("linear:3", "square:0", "cosine:0", "linear:1" if kinds != "columns" else "sine:1"):
        message = made.message()
        message["kernel"] = {**message["kernel"], "columns": ["constant", "linear:0", wrong, wrong]}
        with pytest.raises(Malformed):
            Snapshot.of(message)
    message = made.message()
    with pytest.raises(Malformed, match="weights"):
        Snapshot.of({**message, "weights": message["weights"][4:]})
    with pytest.raises(Malformed, match="level"):
        Snapshot.of({**message, "level": [1.0, 2.0, 3.0]})


def test_the_gradient_at_a_dictionary_state_and_of_nothing() -> None:
    # Where a distance is 0 its root has no derivative, the Matern kernel has.
    snapshot = of("matern52", "ard", "real")
    state = snapshot.dictionary[0] * snapshot.scale + snapshot.shift
    ahead, behind = (snapshot(state + step * np.eye(3)) for step in (1e-5, -1e-5))
    np.testing.assert_allclose(snapshot.gradient(state), (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-7)
    assert snapshot.gradient(np.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(Invalid, match="states"):
        snapshot.gradient([0.0])


def test_many_gradients_are_as_good_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = of("gaussian", "factor", "mixed")
    states = states_for(snapshot, 101)
    at_once = snapshot.gradient(states)
    monkeypatch.setattr("criticd._model._CELLS", 40)
    np.testing.assert_allclose(snapshot.gradient(states), at_once, rtol=1e-13)


@pytest.mark.parametrize("profile", ["gaussian", "matern52"])
@pytest.mark.parametrize("kind", ["isotropic", "ard", "factor"])
@pytest.mark.parametrize("kinds", list(KINDS))
@pytest.mark.parametrize("rewards", [1, 3])
def test_onnx_says_the_same(tmp_path: Path, profile: str, kind: str, kinds: str, rewards: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    snapshot = of(profile, kind, kinds, rewards)
    snapshot.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    states = states_for(snapshot, 500)
    # Far from everything that was seen, too.
    states[:20] *= 1e3
    expected = snapshot(states, std=True, returns=True, known=True)
    outputs = [output.name for output in session.get_outputs()]
    assert outputs == ["mean", "std", "known", "return_std"]
    found = dict(zip(outputs, session.run(None, {"states": states}), strict=True))
    for name in outputs:
        wanted = getattr(expected, name)
        assert wanted is not None and found[name].dtype == np.float64 and found[name].shape == wanted.shape
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6, atol=1e-6)
    one = session.run(["mean"], {"states": states[:1]})[0]
    np.testing.assert_allclose(one, expected.mean[:1], rtol=1e-6, atol=1e-6)


def test_onnx_knows_what_it_is(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    bare = replace(model(variance=False), returns=None, provisional=True)
    bare.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["mean"]
    facts = session.get_modelmeta().custom_metadata_map
    assert (facts["critic"], facts["generation"], facts["offset"], facts["discount"]) == ("default", "3", "1000", "0.9")
    assert (facts["provisional"], facts["state_names"], facts["lambda"]) == ("true", "x,y,z", "0.8")
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"), full_check=True)
    # A model of no rows is its prior.
    nothing = replace(model(), dictionary=np.zeros((0, 3)), weights=np.zeros((0, 1)), covariance=np.zeros((0, 0)))
    replace(nothing, returns=None).to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    mean, deviation, known = session.run(None, {"states": np.ones((2, 3))})
    assert mean.tolist() == [0.0, 0.0] and np.allclose(deviation**2, 2.5) and known.tolist() == [0.0, 0.0]
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("discrete", [True, False])
def test_onnx_has_values_of_actions(tmp_path: Path, discrete: bool) -> None:
    runtime = pytest.importorskip("onnxruntime")
    low, high = (np.zeros(0), np.zeros(0)) if discrete else (np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
    space = Actions(2 if discrete else 0, low, high, np.zeros((4, 0)), prior_mean=1.5)
    snapshot = replace(model(), actions=space)
    snapshot.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    # The coordinates of an action stand behind its state's.
    inputs = snapshot.inputs([0.3], [0, 1] if discrete else [[-0.5, 0.2], [0.7, 1.9]])
    assert inputs.shape == (2, 3)
    np.testing.assert_allclose(session.run(["mean"], {"states": inputs})[0], snapshot(inputs), rtol=1e-9)
    assert json.loads(session.get_modelmeta().custom_metadata_map["actions"]) == space.space()


def test_a_model_is_described_in_a_line() -> None:
    large = replace(model(m=300), provisional=True)
    assert len(repr(large)) < 250 and "\n" not in repr(large)
    for part in ("'default'", "generation 3", "1000 rows", "300 dictionary states", "factor gaussian", "provisional"):
        assert part in repr(large)
    assert "without variance" in repr(model(variance=False))


def test_a_notebook_shows_a_table() -> None:
    named = replace(model("ard"), names=("<b>x</b>", "y", "z"))
    shown = named._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;x" in shown and len(shown) < 3000
    assert f"{named.lengthscale[1]:.4g}" in shown and "generation" in shown
    assert "category" in of("gaussian", "ard", "mixed")._repr_html_()


def test_pictures(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    snapshot = model("ard", m=40)
    flat = replace(snapshot, kernel=replace(snapshot.kernel, relevance=np.array([1.0, 1e-9, 1.0])))
    axes = flat.plot()
    # The two along which it varies; where the third stays is written above.
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "z") and "y = " in axes.get_title()
    mesh = axes.collections[0].get_array()
    x, z = (np.linspace(*limits, 200) for limits in (_inner(axes.get_xlim()), _inner(axes.get_ylim())))
    y = float(axes.get_title().split("y = ")[1])
    states = np.column_stack([np.tile(x, 200), np.full(40_000, y), np.repeat(z, 200)])
    np.testing.assert_allclose(np.ravel(mesh), flat(states), atol=1e-3)
    _, given = pyplot.subplots()
    at = [0.1, 0.2, 0.3]
    assert snapshot.plot(["z"], at=at, ax=given) is given
    line = given.lines[0]
    states = np.tile(at, (200, 1))
    states[:, 2] = line.get_xdata()
    np.testing.assert_allclose(line.get_ydata(), snapshot(states), rtol=1e-12)
    assert given.get_xlabel() == "z" and "x = 0.1, y = 0.2" in given.get_title() and given.collections
    assert len(model(rewards=3).plot([0]).lines) == 4
    given.figure.savefig(tmp_path / "plot.png")
    pyplot.close("all")
    other = replace(snapshot, generation=9, weights=snapshot.weights[::-1])
    wrongs: list[dict[str, Any]] = [
        {"variables": ["w"]},
        {"variables": [3]},
        {"variables": [0, 1, 2]},
        {"variables": [0, 0]},
        {"at": [0.0]},
        {"at": [0.0, 0.0, 0.0], "marginal": True},
        {"against": replace(other, shift=np.zeros(2), scale=np.ones(2), dictionary=np.zeros((40, 2)), names=None)},
        {"error": (np.zeros((4, 2)), np.zeros(4))},
        {"error": (np.zeros((4, 3)), np.zeros(5))},
        {"error": (np.zeros((4, 3)), np.zeros(4)), "against": other},
        {"std": True, "against": other},
        {"visited": np.zeros((4, 2))},
        {"visited": np.zeros((0, 3))},
        {"reward": 1},
        {"reward": "energy"},
    ]
    for wrong in wrongs:
        with pytest.raises(Invalid):
            snapshot.plot(**wrong)


def test_pictures_of_averages_differences_and_errors() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    snapshot = model("ard", m=40)
    kept = snapshot.dictionary * snapshot.scale + snapshot.shift
    axes = snapshot.plot(["y"], marginal=True)
    assert axes.get_title().endswith("averaged over 40 states of the dictionary")
    line = axes.lines[0]
    states = kept.copy()
    states[:, 1] = line.get_xdata()[7]
    assert line.get_ydata()[7] == pytest.approx(snapshot(states).mean())

    # Visited states take their place: in averages, below the curve, and where a slice is.
    visited = kept[:20] + np.array([0.3, 0.0, 0.3])
    axes = snapshot.plot(["y"], marginal=True, visited=visited)
    assert axes.get_title().endswith("averaged over 20 visited states")
    states = visited.copy()
    states[:, 1] = line.get_xdata()[7]
    assert axes.lines[0].get_ydata()[7] == pytest.approx(snapshot(states).mean())
    rug = axes.lines[1]
    assert rug.get_label() == "visited states"
    np.testing.assert_allclose(np.sort(rug.get_xdata()), np.sort(visited[:, 1]))
    assert f"x = {np.median(visited[:, 0]):.3g}" in snapshot.plot(["y"], visited=visited).get_title()

    other = replace(snapshot, critic="other", generation=9, weights=0.5 * snapshot.weights)
    axes = snapshot.plot(["x", "y"], against=other)
    assert "minus other, generation 9" in axes.get_title()
    mesh = axes.collections[0]
    low, high = mesh.get_clim()
    assert low == -high and high > 0, "colours are around zero"
    alone = snapshot.plot(["x", "y"]).collections[0].get_array()
    np.testing.assert_allclose(mesh.get_array(), 0.5 * alone)
    assert len(snapshot.plot(["x"], against=other).lines) == 3

    # Values are too low by one where x is above the middle, and right elsewhere.
    middle = np.median(kept[:, 0])
    above = kept[:, 0] > middle
    axes = snapshot.plot(["x", "y"], error=(kept, snapshot(kept) + above))
    means = np.ma.masked_invalid(axes.collections[0].get_array())
    assert means.min() == pytest.approx(0) and means.max() == pytest.approx(1)
    assert np.ravel(means)[-1] is np.ma.masked or "no return known" in axes.get_legend().get_texts()[0].get_text()
    errors = snapshot.plot(["x"], error=(kept, snapshot(kept) + above)).lines[1]
    np.testing.assert_allclose(errors.get_ydata(), above)

    # The reward is what the value asks for, and one more in that half; behind a terminal state there is no value.
    following = kept[::-1]
    rewards = snapshot(kept) - snapshot.discount * snapshot(following) + above
    axes = snapshot.plot(["x", "y"], td_error=(kept, rewards, following))
    means = np.ma.masked_invalid(axes.collections[0].get_array())
    assert means.min() == pytest.approx(0) and means.max() == pytest.approx(1) and "TD error" in axes.get_title()
    ends = np.arange(len(kept)) % 2 == 0
    rewards = np.where(ends, snapshot(kept), rewards)
    discounts = np.where(ends, 0.0, snapshot.discount)
    (_, errors, *_) = snapshot.plot(["x"], td_error=(kept, rewards, following, discounts)).lines
    np.testing.assert_allclose(errors.get_ydata(), above * ~ends, atol=1e-12)
    refused: list[tuple[tuple[object, ...], str]] = [
        ((kept, rewards), "must be states, rewards, next states"),
        ((kept, rewards[1:], following), "rewards must be"),
        ((kept, rewards, following[1:]), "next states must be"),
        ((kept, rewards, following[:, :1]), "next states must be"),
        ((kept, rewards, following, discounts[1:]), "discounts must be"),
    ]
    for given, why in refused:
        with pytest.raises(Invalid, match=why):
            snapshot.plot(["x", "y"], td_error=given)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="only one of against"):
        snapshot.plot(["x", "y"], error=(kept, rewards), td_error=(kept, rewards, following))
    pyplot.close("all")


def test_pictures_choose_axes_by_relevance_and_name_reward_unit_and_what_is_not_known() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    # The value hangs on y alone, although z stretches over a range that is a thousand times as wide.
    generator = np.random.default_rng(4)
    dictionary = generator.standard_normal((30, 3))
    made = model("ard", m=30, rewards=2)
    kernel = replace(made.kernel, relevance=np.array([1e-9, 1.0, 1e-7]))
    scale = np.array([1.0, 1.0, 1000.0])
    snapshot = replace(made, kernel=kernel, dictionary=dictionary, scale=scale)
    snapshot = replace(snapshot, reward_names=("energy [J]", "comfort"), names=("x [m]", "y", "z"))
    shares = total_indices(dictionary * scale + made.shift, lambda states: snapshot(states)[:, 0])
    assert shares[1] > 0.9 and max(shares[0], shares[2]) < 0.05
    axes = snapshot.plot()
    assert "y" in (axes.get_xlabel(), axes.get_ylabel()) and "energy" in axes.get_title()
    assert axes.figure.axes[1].get_ylabel() == "value [J]"
    second = snapshot.plot(["x", "y"], reward="comfort")
    assert second.figure.axes[1].get_ylabel() == "value" and "comfort" in second.get_title()

    deviation = snapshot.plot(["x", "y"], std=True)
    bar = deviation.figure.axes[1]
    assert bar.get_ylabel() == "standard deviation of the value [J]"
    mesh = deviation.collections[0]
    assert mesh.get_clim()[0] == 0 and np.all(mesh.get_array() >= 0)
    line = snapshot.plot(["y"], std=True, at=made.shift).lines[0]
    states = np.tile(made.shift, (len(line.get_xdata()), 1))
    states[:, 1] = line.get_xdata()
    np.testing.assert_allclose(line.get_ydata(), snapshot(states, std=True)[1], rtol=1e-9)
    labels = {line.get_label() for line in snapshot.plot(["y"]).lines}
    assert {"V of energy [J]", "V of comfort"} <= labels

    # A model that has hardly learned: all of it is hatched.
    blank = replace(snapshot, covariance=np.zeros((30, 30)))
    assert "not known" in blank.plot(["x", "y"]).get_legend().get_texts()[0].get_text()
    assert "not known" in blank.plot(["x", "y"], std=True).get_legend().get_texts()[0].get_text()
    for curve in (blank.plot(["y"]), blank.plot(["y"], std=True)):
        assert "hatched: not known" in [text.get_text() for text in curve.get_legend().get_texts()]

    # A curve is hatched where the deviation exceeds half of the signal's, and nowhere else.
    places = np.linspace(-1, 1, 30) + 0.4 * np.sign(np.linspace(-1, 1, 30))
    kernel = replace(made.kernel, relevance=np.array([1e-9, 100.0, 1e-9]), bias_variance=0.0)
    prior = kernel.signal_variance * np.exp(-50 * (places[:, None] - places) ** 2)
    dictionary[:, 1] = places
    known = np.asarray(np.linalg.inv(prior + 1e-3 * np.eye(30)), np.float64)
    near = replace(made, kernel=kernel, dictionary=dictionary, covariance=known)
    axes = near.plot(["y"])
    (ground,) = [each for each in axes.collections if each.get_label() == "hatched: not known"]
    hatched = [path.get_extents() for path in ground.get_paths()]
    places = axes.lines[0].get_xdata()
    states = np.tile(np.median(near.dictionary * near.scale + near.shift, axis=0), (len(places), 1))
    states[:, 1] = places
    share = near(states, std=True)[1] / near.kernel.diagonal**0.5
    shown = np.array([any(part.x0 <= x <= part.x1 for part in hatched) for x in places])
    # At neither end, but in the gap in the middle.
    assert 0.1 < shown.mean() < 0.5 and shown[len(shown) // 2] and not shown[len(shown) // 4]
    assert np.mean(shown == (share > 0.5)) > 0.97

    nothing = replace(snapshot, covariance=None)
    with pytest.raises(Invalid, match="variance=True"):
        nothing.plot(std=True)
    pyplot.close("all")

    # Names stay with the file.
    assert Snapshot.of(snapshot.message()).reward_names == ("energy [J]", "comfort")


def test_a_trajectory_is_a_line_with_its_direction_and_the_value_along_it() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    made = model("ard", m=40)
    snapshot = replace(made, names=("x [m]", "y", "z"), reward_names=("energy [J]",))
    turn = np.linspace(0, 3, 30)
    path = np.column_stack([np.cos(turn), np.sin(turn), 0.1 * turn]) + made.shift
    rewards = np.arange(30.0)
    panels = snapshot.plot(["x", "y"], trajectory=path, rewards=rewards)
    assert len(panels) == 3
    line = next(each for each in panels[0].lines if each.get_label() == "trajectory")
    np.testing.assert_allclose(line.get_xydata(), path[:, :2])
    # Arrows point along it; both ends are marked.
    arrows = [text for text in panels[0].texts if text.arrow_patch is not None]
    assert 4 <= len(arrows) <= 8
    for arrow in arrows:
        k = int(np.argmin(np.hypot(*(path[:, :2] - arrow.xyann).T)))
        np.testing.assert_allclose(arrow.xy, path[k + 1, :2])
    marked = {each.get_label(): each.get_xydata()[0] for each in panels[0].lines if "its" in each.get_label()}
    np.testing.assert_allclose([marked["its start"], marked["its end"]], path[[0, -1], :2])
    # The picture reaches as far as it goes.
    assert panels[0].get_xlim()[0] < path[:, 0].min() and panels[0].get_xlim()[1] > path[:, 0].max()
    mean, deviation = snapshot(path, std=True)
    np.testing.assert_allclose(panels[1].lines[0].get_ydata(), mean)
    (band,) = panels[1].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx((mean + 2 * deviation).max())
    assert (panels[1].get_ylabel(), panels[2].get_ylabel()) == ("value [J]", "energy [J]")
    np.testing.assert_allclose(panels[2].lines[0].get_ydata(), rewards)

    # Over one variable rows stand at their values; a model without deviations has no band.
    plain = replace(snapshot, covariance=None)
    _, given = pyplot.subplots(1, 2)
    panels = plain.plot(["y"], trajectory=path, ax=given)
    assert panels[0] is given[0] and not panels[1].collections
    line = next(each for each in panels[0].lines if each.get_label() == "trajectory")
    np.testing.assert_allclose(line.get_xydata(), np.column_stack([path[:, 1], mean]))
    # A leap, as of an angle that wraps, is not joined.
    far = np.array([0.0, 0.1, 9.9, 9.8])[:, None] * [1.0, 0.0, 0.0] + made.shift
    line = next(each for each in plain.plot(["x", "y"], trajectory=far)[0].lines if each.get_label() == "trajectory")
    assert np.flatnonzero(np.isnan(line.get_xdata())).tolist() == [2]

    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"trajectory": path[:, :2]}, "trajectory"),
        ({"trajectory": path[:1]}, "trajectory"),
        ({"trajectory": path * np.nan}, "trajectory"),
        ({"trajectory": path, "rewards": rewards[1:]}, "rewards"),
        ({"rewards": rewards}, "rewards"),
        ({"trajectory": path, "std": True}, "trajectory"),
        ({"trajectory": path, "against": made}, "trajectory"),
        ({"trajectory": path, "ax": given[0]}, "ax"),
    ]
    for wrong, field in wrongs:
        with pytest.raises(Invalid, match=field):
            snapshot.plot(**wrong)
    pyplot.close("all")


def _product(variances: list[float]) -> list[float]:
    """Total indices of a product of functions of one variable each, of these variances, relative to squared means."""
    every = float(np.prod([1 + v for v in variances]))
    return [v * every / (1 + v) / (every - 1) for v in variances]


SUMS = 4 / 45 + 8 / 9
TRUE_SHARES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], list[float]]] = {
    "linear": (lambda x: x @ [1.0, 0.5, 0.25], [16 / 21, 4 / 21, 1 / 21]),
    "product": (lambda x: x[:, 0] * x[:, 1], [1.0, 1.0, 0.0]),
    "squares": (lambda x: x[:, 0] ** 2 + 0.5 * x[:, 1] ** 2, [0.8, 0.2, 0.0]),
    "gain": (lambda x: x[:, 0] + x[:, 0] * x[:, 1], [1.0, 0.25, 0.0]),
    "waves": (lambda x: np.sin(np.pi * x[:, 0]) + 0.5 * np.cos(np.pi * x[:, 1]), [0.8, 0.2, 0.0]),
    "exponential": (
        lambda x: np.exp(x[:, 0] + 0.5 * x[:, 1]),
        [*_product([np.sinh(2 * a) / (2 * a) / (np.sinh(a) / a) ** 2 - 1 for a in (1.0, 0.5)]), 0.0],
    ),
    "square of a sum": (lambda x: x.sum(axis=1) ** 2, [SUMS / (12 / 45 + 12 / 9)] * 3),
}


@pytest.mark.parametrize("name", list(TRUE_SHARES))
def test_shares_are_total_sobol_indices(name: str) -> None:
    """Of functions on [-1, 1]^3 for which they are known in closed form, to 0.05."""
    function, truth = TRUE_SHARES[name]
    generator = np.random.default_rng(5)
    kept = generator.uniform(-1, 1, (300, 3))
    kernel = Kernel("ard", 4.0, 1.0, np.ones(3), np.zeros((0, 3)))
    made = replace(model("ard", m=300), kernel=kernel, dictionary=kept, shift=np.zeros(3), scale=np.ones(3))
    rows = made._kernel_rows(kept, kept)
    snapshot = replace(made, weights=np.linalg.solve(rows + 1e-6 * np.eye(300), function(kept))[:, None])
    visited = generator.uniform(-1, 1, (2000, 3))
    assert np.sqrt(np.mean((snapshot(visited) - function(visited)) ** 2)) < 0.02
    shares = snapshot.shares(visited)
    np.testing.assert_allclose(shares, truth, atol=0.05)
    assert np.array_equal(shares, snapshot.shares(visited, seed=0))
    other = snapshot.shares(visited, seed=1)
    assert not np.array_equal(shares, other) and np.abs(shares - other).max() < 0.05


def test_shares_are_of_states_as_they_are_visited() -> None:
    snapshot = model("ard", m=40)
    visited = states_for(snapshot, 500)
    visited[:, 1] = 0.25
    shares = snapshot.shares(visited)
    assert shares[1] == 0.0 and shares[[0, 2]].min() > 0.05, "what does not vary explains nothing"
    assert not np.array_equal(shares, snapshot.relevance)
    two = replace(model("ard", m=40, rewards=2), reward_names=("energy [J]", "comfort"))
    np.testing.assert_array_equal(two.shares(visited, reward="comfort"), two.shares(visited, reward=1))
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"states": visited[:, :2]}, "states"),
        ({"states": visited[:0]}, "states"),
        ({"states": visited * np.inf}, "states"),
        ({"states": visited, "samples": 1}, "samples"),
        ({"states": visited, "reward": 1}, "reward"),
    ]
    for wrong, field in wrongs:
        with pytest.raises(Invalid, match=field):
            snapshot.shares(**wrong)


def _inner(limits: Any) -> tuple[float, float]:
    """The first and last of 200 points whose cells fill these limits."""
    half = (limits[1] - limits[0]) / 400
    return limits[0] + half, limits[1] - half


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        model().plot()


def test_a_kernels_slope_is_its_derivative() -> None:
    for profile in ("gaussian", "matern52"):
        kernel = Kernel("ard", 2.0, 0.5, np.ones(1), np.zeros((0, 1)), profile)
        squares = np.linspace(0.1, 30, 50)
        difference = (kernel.of_squares(squares + 1e-6) - kernel.of_squares(squares - 1e-6)) / 2e-6
        np.testing.assert_allclose(kernel.slopes(squares), difference, rtol=1e-6, atol=1e-9)
