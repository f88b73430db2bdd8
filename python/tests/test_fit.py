"""`criticd.fit`: every kind of table gives the model of the command, and what is wrong is said by name."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PATIENCE_S

import criticd
from criticd import CriticdError, Fitted, Invalid, Snapshot
from criticd.policies import PolicyServer, evaluate

READ: dict[str, Any] = {"state": ["x", "battery"], "reward": "-cost", "episode": "mission", "terminated": "arrived"}
SEARCH: dict[str, Any] = {"discount": 0.9, "budget": 2, "kernel": "isotropic"}
POINTS = np.array([[1.0, 10.0], [4.0, 12.0], [9.0, 9.5]])


def missions(count: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    rows: list[tuple[Any, ...]] = []
    for mission in range(count):
        x, battery = rng.uniform(0, 5), rng.uniform(9.5, 13)
        while x < 8:
            go = rng.integers(2)
            rows.append((f"m{mission}", len(rows), x, battery, go, 1.0 + 0.2 * go, x + 0.4 + go >= 8))
            x, battery = x + 0.4 + go, battery - 0.05
    return pd.DataFrame(rows, columns=["mission", "tick", "x", "battery", "go", "cost", "arrived"])


@pytest.fixture(scope="module")
def model() -> Fitted:
    return criticd.fit(missions(), **READ, **SEARCH)


@pytest.fixture(scope="module")
def quick(model: Fitted) -> dict[str, Any]:
    """Options that give the same kernel at once."""
    return {**READ, "discount": 0.9, "hyperparameters": model.report.document, "no_optimise": True}


def arrays(frame: pd.DataFrame) -> dict[str, Any]:
    return {name: np.array(frame[name]) for name in frame}


def test_it_is_the_model_and_the_report_of_the_command(model: Fitted, tmp_path: Path) -> None:
    missions().to_csv(tmp_path / "missions.csv", index=False)
    words = ["--state", "x,battery", "--reward=-cost", "--episode", "mission", "--terminated", "arrived"]
    words += ["--discount", "0.9", "--budget", "2", "--kernel", "isotropic", "--out", str(tmp_path / "of.model")]
    command = [os.environ["CRITICD_BIN"], "fit", str(tmp_path / "missions.csv"), *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    for mine, theirs in zip(
        model(POINTS, std=True), Snapshot.load(tmp_path / "of.model")(POINTS, std=True), strict=True
    ):
        assert np.array_equal(mine, theirs)
    assert model.names == ("x", "battery") and model.discount == 0.9 and isinstance(model, Snapshot)
    *first, third, note = str(model.report).splitlines()
    assert len(first) == 3 and all(line in said for line in first)
    assert third.startswith(f"{len(missions())} transitions, {len(model.dictionary)} dictionary states, ")
    assert note.startswith("the table: episode: mission; state: x, battery; ") and "left alone: tick, go" in note
    assert model.report.held_out is not None and model.report.held_out["episodes"] == 2
    assert list(model.report.shares) == ["x", "battery"] and model.report.shares["x"] > 0.9
    model.save(tmp_path / "saved.model")
    assert np.array_equal(Snapshot.load(tmp_path / "saved.model")(POINTS), model(POINTS))


class Capsule:
    """A table of a library that is not known here."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def test_every_kind_of_table_gives_the_same_bits(quick: dict[str, Any], tmp_path: Path) -> None:
    frame = missions()
    expected = criticd.fit(frame, **quick)(POINTS)
    frame.to_parquet(tmp_path / "missions.parquet")
    table = pa.Table.from_pandas(frame)
    for kind in (
        frame.set_index(np.arange(len(frame)) * 3),
        frame.convert_dtypes(),
        frame.astype({"mission": "category", "go": "uint8", "arrived": float}),
        pl.from_pandas(frame),
        pl.from_pandas(frame).with_columns(pl.col("mission").cast(pl.Categorical)),
        table,
        table.to_batches()[0],
        Capsule(table),
        arrays(frame),
        {name: list(values) for name, values in arrays(frame).items()},
        frame.to_records(index=False),
        tmp_path / "missions.parquet",
        str(tmp_path / "missions.parquet"),
        [tmp_path / "missions.parquet"],
    ):
        assert np.array_equal(criticd.fit(kind, **quick)(POINTS), expected), type(kind)


def test_types_that_files_lack_become_numbers(quick: dict[str, Any]) -> None:
    frame = missions()
    exact = frame.assign(x=frame.x.round(2), cost=frame.cost.round(1))
    expected = criticd.fit(exact, **quick)(POINTS)
    table = pa.Table.from_pandas(exact)
    decimals = pa.array([Decimal(f"{x:.2f}") for x in exact.x], pa.decimal128(10, 2))
    changed = table.set_column(table.column_names.index("x"), "x", decimals)
    # The last bit of a decimal depends on who makes a double of it.
    assert np.allclose(criticd.fit(changed, **quick)(POINTS), expected, rtol=1e-9)
    shuffled = exact.sample(frac=1.0, random_state=1)
    expected = criticd.fit(shuffled, **quick, time="tick")(POINTS)
    ticks = {
        "dates": np.datetime64("2026-01-01", "ns") + shuffled.tick.to_numpy().astype("timedelta64[ms]"),
        "durations": shuffled.tick.to_numpy().astype("timedelta64[s]"),
        "halves": shuffled.tick.to_numpy().astype(np.float16),
        "long": shuffled.tick.to_numpy().astype(np.longdouble),
    }
    for name, times in ticks.items():
        for kind in (arrays(shuffled) | {"when": times}, shuffled.assign(when=times)):
            if name != "long" or isinstance(kind, dict):
                assert np.array_equal(criticd.fit(kind, **quick, time="when")(POINTS), expected), name


def test_a_column_may_hold_several_numbers(quick: dict[str, Any]) -> None:
    frame = missions()
    states = frame[["x", "battery"]].to_numpy()
    columns = arrays(frame) | {"obs": states}
    del columns["x"], columns["battery"]
    asked = {**quick, "state": "obs"}
    lists = pd.DataFrame({name: list(values) for name, values in columns.items()})
    expected = criticd.fit(frame, **quick)(POINTS)
    for kind in (columns, lists, pl.DataFrame(columns)):
        fitted = criticd.fit(kind, **asked)
        assert fitted.names == ("obs[0]", "obs[1]") and np.array_equal(fitted(POINTS), expected)
        assert np.array_equal(fitted(kind), fitted(states))
    mapped = criticd.fit(
        {"states": states, "rewards": -frame.cost, "terminated": frame.arrived}, discount=0.9, budget=1
    )
    assert mapped.dim == 2


def test_options_may_be_dicts_and_lists() -> None:
    frame = missions()
    heads = [{"name": "ahead", "cumulant": {"kind": "state", "index": 0}, "discount": 0.5}]
    fitted = criticd.fit(frame, **{**READ, "reward": ["-cost", "go"]}, **SEARCH, heads=heads, names=["place", "volts"])
    turned = frame.rename(columns={"x": "place", "battery": "volts"})[["volts", "place"]]
    assert fitted(turned).shape == (len(frame), 2) and fitted.reward_names == ("-cost", "go")
    assert np.array_equal(fitted.heads["ahead"](turned), fitted.heads["ahead"](frame[["x", "battery"]].to_numpy()))
    assert fitted.report.held_out is None or len(fitted.report.held_out["error"]) == 2
    assert "go: predicts" in str(fitted.report) or "prediction error unknown" in str(fitted.report)
    assert list(fitted.value(turned))[:2] == ["value_0", "value_1"]


def test_each_of_a_list_begins_new_episodes(quick: dict[str, Any], tmp_path: Path) -> None:
    frame = missions()
    # Cut in the middle of an episode, which then is two: the row before the cut has no successor.
    cut = next(k for k in range(len(frame) // 2, len(frame)) if frame.mission[k] == frame.mission[k - 1])
    parts = [frame[:cut], frame[cut:].reset_index(drop=True)]
    two = criticd.fit(parts, **quick)
    assert two.transitions == len(frame) - 1 and "stream: stream" in str(two.report)
    for k, part in enumerate(parts):
        part.to_parquet(tmp_path / f"{k}.parquet")
        part.to_csv(tmp_path / f"{k}.csv", index=False)
    mixed = [
        pl.from_pandas(parts[0]).with_columns(stream=pl.lit("robot")),
        arrays(parts[1]) | {"stream": ["robot"] * len(parts[1])},
    ]
    for kind in ([tmp_path / "0.parquet", tmp_path / "1.parquet"], [str(tmp_path / "0.csv"), parts[1]], mixed):
        assert np.array_equal(criticd.fit(kind, **quick)(POINTS), two(POINTS))
    with pytest.raises(Invalid, match="cost: table 1 of the list has no such column"):
        criticd.fit([parts[0], parts[1].drop(columns="cost")], **quick)
    with pytest.raises(Invalid, match="table 1 of the list has other types than table 0"):
        criticd.fit([parts[0], parts[1].assign(x="far")], **quick)
    for wrong, words in (([], "is an empty list"), ([tmp_path / "a.mcap"], "a.mcap: files in a list end in")):
        with pytest.raises(Invalid, match=words):
            criticd.fit(wrong, **quick)


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"state": ["x", "batery"]}, "batery", "did you mean battery"),
        ({"terminated": None}, "terminated", "assume_terminated never"),
        ({"terminated": "go_on"}, "go_on", "there is no go_on"),
        ({"terminated": "tick"}, "tick", "2 is not a flag"),
        ({"reward": "mission"}, "mission", '"m0" is text'),
        ({"state": ["x", "a,b"]}, "state", "comma in a name"),
        ({"state": object()}, "state", "must be a text"),
        ({"discunt": 0.9}, "discunt", "no such option; did you mean discount"),
        ({"discount": 1.5}, "discount", r"is '1.5': a discount lies in \[0, 1\]"),
        ({"variance": "row"}, "variance", "is 'row': .*rows, clustered, model"),
        ({"hold_out": 2}, "hold_out", "a share lies in"),
        ({"heads": [{"name": 3}]}, "heads", "invalid type: integer"),
        ({"lambda_": 0.5, "noise": "white"}, "lambda", "white noise"),
        ({"out": "a.model"}, "out", "save it with"),
        ({"dry_run": True}, "dry_run", "command line"),
        ({"columns": "absent.toml"}, None, "absent.toml: "),
    ],
)
def test_what_is_wrong_is_said_by_name(changed: dict[str, Any], field: str | None, words: str) -> None:
    with pytest.raises(CriticdError, match=words) as error:
        criticd.fit(missions(2), **{**READ, **changed})
    assert getattr(error.value, "field", None) == field
    # Nobody knows the temporary files.
    assert "criticd-" not in str(error.value) and "--" not in str(error.value)


def test_tables_that_are_none_are_said(tmp_path: Path) -> None:
    frame = missions(2)
    for table, field, words in (
        (frame[["x"]].to_numpy(), "table", "must be a file, or have columns by name"),
        (arrays(frame) | {"x": [1.0]}, "table", "mission 15, tick 15, x 1, "),
        (arrays(frame) | {"x": 1.0}, "x", "an entry for each row"),
        (arrays(frame) | {"x": frame.x.to_numpy() * 1j}, "x", "complex128"),
        (arrays(frame) | {"x": np.ma.masked_less(frame.x.to_numpy(), 3.0)}, "x", "masked"),
        (frame.assign(x=[object()] * len(frame)), "x", "leave it out"),
        (tmp_path / "absent.csv", "table", "absent.csv: No such file"),
    ):
        with pytest.raises(Invalid, match=words) as error:
            criticd.fit(table, **READ)
        assert error.value.field == field
    with pytest.raises(Invalid, match="must hold numbers, and has None"):
        criticd.fit(arrays(frame) | {"x": [None, *frame.x[1:]]}, **READ)
    with pytest.raises(Invalid, match=r"battery \(row 3\): "):
        criticd.fit(frame.assign(battery=frame.battery.where(frame.index != 3, np.inf)), **READ)


def test_without_the_program_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRITICD_BIN")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sysconfig.get_path", lambda *_: "/nowhere")
    with pytest.raises(FileNotFoundError, match="install the wheel of your platform, which holds it"):
        criticd.fit(missions(2), **READ)


def test_frames_and_arrays_need_no_pyarrow(quick: dict[str, Any]) -> None:
    frame = missions()
    expected = criticd.fit(frame, **quick)(POINTS)
    missing: Any = None
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pyarrow", missing)
        for kind in (pl.from_dict(arrays(frame)), arrays(frame), frame, frame.astype({"mission": "category"})):
            assert np.array_equal(criticd.fit(kind, **quick)(POINTS), expected)
        with pytest.raises(ImportError, match="pip install pyarrow"):
            criticd.fit([frame], **quick)


def test_progress_is_passed_on_to_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "criticd"
    program.write_text(
        "#!/bin/sh\n[ -t 2 ] && printf '\\033[2Kselecting a model 12 %%\\r' >&2\n"
        "echo 'criticd: a note' >&2\necho 'criticd: --discount: wrong with --state' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("CRITICD_BIN", str(program))
    ours, theirs = pty.openpty()
    shown = bytearray()

    def watch() -> None:
        while b"12 %" not in shown:
            shown.extend(os.read(ours, 1024))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(CriticdError, match=r"^discount: wrong with state$"):
            criticd.fit(missions(2), **READ)
        watcher.join(PATIENCE_S)
    os.close(ours)
    assert b"selecting a model 12 %" in shown and b"a note" not in shown


def test_states_are_found_by_name(model: Fitted) -> None:
    frame = missions(3)
    expected = model(frame[["x", "battery"]].to_numpy())
    for table in (
        frame[["battery", "x", "mission"]],
        pl.from_pandas(frame[["battery", "x"]]),
        pa.Table.from_pandas(frame),
        arrays(frame),
    ):
        assert np.array_equal(model(table), expected), type(table)
    assert model({"battery": 12, "x": 1.0}) == model([1.0, 12.0]) == model(pd.Series({"battery": 12, "x": 1.0}))
    assert model(frame.iloc[0][["battery", "x"]]) == pytest.approx(expected[0])
    assert model(np.array((12.0, 1.0), dtype=[("battery", float), ("x", float)])) == model([1.0, 12.0])
    # One number stands for all rows.
    assert np.array_equal(model({"x": [1.0, 2.0], "battery": 12.0}), model([[1.0, 12.0], [2.0, 12.0]]))
    assert np.array_equal(model(pd.DataFrame(POINTS)), model(POINTS))
    with pytest.raises(Invalid, match=r"battery: there is no such column: .* x, battery, and the table has x, tick"):
        model(frame[["x", "tick"]])
    with pytest.raises(Invalid, match="x: must hold numbers, and has text"):
        model({"x": "far", "battery": 12.0})
    with pytest.raises(Invalid, match="different lengths"):
        model({"x": [1.0, 2.0], "battery": [1.0, 2.0, 3.0]})
    with pytest.raises(Invalid, match=r"states \(row 1\): must be finite"):
        model(pd.DataFrame({"x": [1.0, np.nan], "battery": 12.0}))
    unnamed = Snapshot.of({**model.message(), "inputs": {"dim": 2, "shift": model.shift, "scale": model.scale}})
    assert np.array_equal(unnamed(frame[["x", "battery"]]), expected)
    with pytest.raises(Invalid, match="the model has no names"):
        unnamed({"x": 1.0, "battery": 12.0})
    inputs = {"dim": 2, "shift": model.shift, "scale": model.scale, "names": ["x [m]", "battery [V]"]}
    assert np.array_equal(Snapshot.of({**model.message(), "inputs": inputs})(frame), expected)


def test_all_that_takes_states_takes_them_by_name(model: Fitted) -> None:
    turned = missions(3)[["battery", "x"]]
    states = turned[["x", "battery"]].to_numpy()
    for method in (model.gradient, model.shares):
        assert np.array_equal(method(turned), method(states))
    returns = -np.arange(len(states), dtype=float)
    assert repr(model.worst(error=(turned, returns))) == repr(model.worst(error=(states, returns)))
    with pytest.raises(Invalid, match="battery: there is no such column"):
        model.plot(trajectory=turned[["x"]])
    for options in ({"visited": turned[["x"]]}, {"at": {"x": 1.0}}, {"td_error": (states, returns, turned[["x"]])}):
        with pytest.raises(Invalid, match="battery: there is no such column"):
            model.plot(**options)


def test_the_value_of_each_row_is_a_table_of_its_kind(model: Fitted) -> None:
    frame = missions(3).set_index("tick")
    mean, deviation = model(frame, std=True)
    found = model.value(frame)
    assert list(found) == ["value", "std", "return_std", "known", "extrapolates"]
    assert (
        found.index.equals(frame.index)
        and np.array_equal(found["value"], mean)
        and np.array_equal(found["std"], deviation)
    )
    for kind in (pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        other = model.value(kind)
        assert isinstance(other, type(kind)) and np.array_equal(np.asarray(other["known"]), found["known"])
    records = model.value(frame.to_records(index=False))
    assert records.dtype.names == tuple(found) and np.array_equal(records["value"], mean)
    assert model.value(frame[["x", "battery"]].to_numpy())["value"].tolist() == mean.tolist()
    assert model.value({"x": 1.0, "battery": 12.0})["std"].shape == (1,)
    message = {key: part for key, part in model.message().items() if key not in ("returns", "reward_names", "level")}
    two = Snapshot.of({**message, "weights": np.hstack([model.weights, -model.weights])})
    assert list(two.value(frame))[:3] == ["value_0", "value_1", "std"]


def test_transitions_are_labelled(model: Fitted, tmp_path: Path) -> None:
    frame = missions()
    labels = model.label(frame)
    assert list(labels)[:3] == ["episode", "frame", "value"] and len(labels) == len(frame)
    assert labels["episode"].tolist() == frame.mission.tolist()
    expected = labels["return"] - labels["value"]
    assert np.allclose(labels["advantage"], expected)
    assert np.allclose(model(frame), labels["value"], atol=1.0)
    # A model of a file knows how its table was read.
    model.save(tmp_path / "of.model")
    loaded = Snapshot.load(tmp_path / "of.model")
    assert np.array_equal(loaded.label(frame)["value"], labels["value"])
    assert np.array_equal(loaded.label(pl.from_pandas(frame), **READ)["value"].to_numpy(), labels["value"])
    assert isinstance(model.label(arrays(frame)), dict)
    with pytest.raises(Invalid, match="folds: is '0'"):
        model.label(frame, folds=0)


def test_another_policy_is_judged(model: Fitted) -> None:
    frame = missions()
    asked: dict[str, Any] = {"action": "go", "actions": "discrete:2", "budget": 1, "dictionary_max": 20, "folds": 2}

    def always(states: Any) -> Any:
        return np.column_stack([np.zeros(len(states)), np.ones(len(states))])

    judged = model.evaluate(frame, policy=always, **asked)
    assert judged.transitions == len(frame) and judged.episodes == 24 and "fqe" in judged.estimates
    answers = always(frame)
    options = {**READ, **asked}
    actions = options.pop("actions")
    assert evaluate(frame, answers, actions=actions, discount=0.9, options=options) == judged
    with PolicyServer(always) as server:
        assert model.evaluate(pl.from_pandas(frame), policy=server.endpoint, **asked) == judged
    with pytest.raises(Invalid, match="name a policy"):
        model.evaluate(frame, always)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="no argument 'action' without a policy"):
        model.evaluate(frame, action="go")  # type: ignore[call-overload]


@pytest.mark.nightly
def test_datasets_of_hugging_face_are_tables(model: Fitted, quick: dict[str, Any]) -> None:
    datasets = pytest.importorskip("datasets")
    frame = missions()
    dataset = datasets.Dataset.from_pandas(frame)
    expected = criticd.fit(frame, **quick)
    assert np.array_equal(criticd.fit(dataset, **quick)(POINTS), expected(POINTS))
    turned = dataset.select(range(9, -1, -1))
    assert np.array_equal(expected(turned), expected(frame[9::-1]))
    assert model.value(turned).column_names[:2] == ["value", "std"]
    with pytest.raises(Invalid, match="streams"):
        criticd.fit(dataset.to_iterable_dataset(), **quick)


def test_parquet_files_of_columns_that_are_left_alone_are_read(quick: dict[str, Any], tmp_path: Path) -> None:
    table = pa.Table.from_pandas(missions()).append_column("more", pa.array([{"a": [1]}] * len(missions())))
    pq.write_table(table, tmp_path / "more.parquet")
    for kind in (table, tmp_path / "more.parquet"):
        assert criticd.fit(kind, **quick).transitions == len(missions())


def test_texts_are_categories_and_answers_take_them(tmp_path: Path) -> None:
    rows = missions()
    rows["mode"] = np.where(rows["go"] == 1, "drive", "slow")
    rows["cost"] = 1.0 + 3.0 * rows["go"]
    state = ["x", "mode"]
    fitted = criticd.fit(rows, **{**READ, "state": state}, **SEARCH)
    assert fitted.kernel.kinds == ("real", "category")
    assert set(fitted.categories[1]) == {"drive", "slow"} and fitted.categories[0] == ()
    assert any("categories: mode: " in note for note in fitted.report.notes)
    drive, slow = (fitted({"x": 4.0, "mode": mode}) for mode in ("drive", "slow"))
    assert drive < slow - 1.0, "a drive costs more"
    code = float(fitted.categories[1].index("drive"))
    assert fitted([4.0, code]) == pytest.approx(drive)
    answers = fitted.value(pl.DataFrame({"mode": ["slow", "drive"], "x": [4.0, 4.0]}))
    assert answers["value"].to_list() == pytest.approx([slow, drive])
    with pytest.raises(Invalid, match="'dirve' is none of the categories that are known: ") as refused:
        fitted({"x": [4.0, 4.0], "mode": ["drive", "dirve"]})
    assert (refused.value.field, refused.value.index) == ("mode", 1)
    # A saved model keeps them; the command takes and prints them, also for a table whose texts come in another order.
    fitted.save(tmp_path / "of.model")
    assert Snapshot.load(tmp_path / "of.model").categories == fitted.categories
    (tmp_path / "states.csv").write_text("mode,x\nslow,4\ndrive,4\n")
    command = [os.environ["CRITICD_BIN"], "value", str(tmp_path / "of.model"), str(tmp_path / "states.csv")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    assert [line.split()[1] for line in said.splitlines()[1:]] == ["slow", "drive"]
    assert [float(line.split()[2]) for line in said.splitlines()[1:]] == pytest.approx([slow, drive], rel=1e-3)
    labels = fitted.label(rows.sort_values("mission", ascending=False, kind="stable"))
    assert np.corrcoef(labels["value"], labels["return"])[0, 1] > 0.5
    other = rows.assign(mode=np.where(rows.index == 7, "fly", rows["mode"]))
    with pytest.raises(Invalid, match='"fly" is none of the categories'):
        fitted.label(other)


def test_actions_that_are_texts_keep_their_names() -> None:
    rows = missions().assign(how=lambda rows: np.where(rows["go"] == 1, "drive", "slow"))
    asked: dict[str, Any] = {"action": "how", "inputs": "state_action", "actions": "discrete:2"}
    fitted = criticd.fit(rows, **READ, discount=0.9, kernel="isotropic", budget=1, **asked)
    assert set(fitted.action_names) == {"drive", "slow"} and fitted.actions is not None
    assert fitted.names is not None and set(fitted.names[2:]) == {"action=drive", "action=slow"}
    state = rows[["x", "battery"]].iloc[:1]
    code = fitted.action_names.index("slow")
    assert np.array_equal(fitted.inputs(state, ["slow", "drive"]), fitted.inputs(state, [code, 1 - code]))
    assert fitted(fitted.inputs(POINTS[0], ["drive"])) == fitted(fitted.inputs(POINTS[0], 1 - code))
    numbers = np.array([code, 1 - code], object)
    assert np.array_equal(fitted.inputs(state, numbers), fitted.inputs(state, [code, 1 - code]))
    assert fitted.categories == ()
    assert "drive" in fitted.plot(["x", "battery"]).get_title()
    with pytest.raises(Invalid, match="'fly' is none of") as refused:
        fitted.inputs(state, ["slow", "fly"])
    assert (refused.value.field, refused.value.index) == ("actions", 1)
    with pytest.raises(Invalid, match="say discrete:2"):
        criticd.fit(rows, **{**READ, **asked, "actions": "box"}, discount=0.9)
