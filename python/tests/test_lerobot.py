"""Folders of LeRobot datasets as tables, and their labels as scores in the format of LeRobot."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from conftest import PATIENCE_S, when

import criticd
from criticd import Invalid
from criticd.tables import read_lerobot
from criticd.testing import binary

FPS = 10
JOINTS = ["shoulder.pos", "elbow.pos"]
NUMBER = {"shape": [1], "names": None}
SIGNALS = ["value", "advantage", "return", "td_error", "std", "known"]


def episode(number: int, first: int, random: np.random.Generator, *, fails: bool = False) -> dict[str, Any]:
    """An arm that moves to its goal, an equal way in each row; it may stop before."""
    states = [random.uniform(0.2, 1.0, 2)]
    while states[-1].max() > 0:
        states.append(np.maximum(states[-1] - 0.04, 0))
    rows = len(states) - (3 if fails else 0)
    last = np.arange(rows) == rows - 1
    return {
        "observation.state": arrow.array(np.array(states[:rows], np.float32).tolist(), arrow.list_(arrow.float32(), 2)),
        "action": arrow.array([[-0.04, -0.04]] * rows, arrow.list_(arrow.float32(), 2)),
        "next.reward": (last & (not fails)).astype(np.float32),
        "next.done": last,
        "next.success": last & (not fails),
        "timestamp": (np.arange(rows) / FPS).astype(np.float32),
        "frame_index": np.arange(rows),
        "episode_index": np.full(rows, number),
        "index": first + np.arange(rows),
        "task_index": np.full(rows, number % 2),
    }


def write(folder: Path, episodes: int = 30, *, without: Sequence[str] = ("next.reward", "next.done", "next.success"),
          failing: Sequence[int] = ()) -> Path:  # fmt: skip
    """A dataset of version 3 in two files, as LeRobot 0.4 lays it out."""
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": JOINTS},
        "observation.images.top": {"dtype": "video", "shape": [4, 4, 3], "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": [2], "names": {"motors": JOINTS}},
        "next.reward": {"dtype": "float32", **NUMBER},
        "next.done": {"dtype": "bool", **NUMBER},
        "next.success": {"dtype": "bool", **NUMBER},
        "timestamp": {"dtype": "float32", **NUMBER},
        **{name: {"dtype": "int64", **NUMBER} for name in ("frame_index", "episode_index", "index", "task_index")},
    }
    random, tables, first = np.random.default_rng(0), [], 0
    for number in range(episodes):
        found = episode(number, first, random, fails=number in failing)
        first += len(found["index"])
        tables.append(arrow.table({name: values for name, values in found.items() if name not in without}))
    (folder / "meta").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_episodes": episodes,
        "total_frames": first,
        "features": {name: feature for name, feature in features.items() if name not in without},
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    for k, part in enumerate((tables[: episodes // 3], tables[episodes // 3 :])):
        parquet.write_table(arrow.concat_tables(part), folder / "data" / "chunk-000" / f"file-{k:03d}.parquet")
    return folder


def run(command: str, folder: Path, *words: str | Path, fails: bool = False) -> str:
    """What a command prints, or, where it is to fail, what it says."""
    line = [binary(), command, folder, *words]
    found = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (found.returncode != 0) == fails, found.stdout + found.stderr
    return " ".join((found.stderr if fails else found.stdout).split())


def test_a_folder_is_a_table(tmp_path: Path) -> None:
    folder = write(tmp_path / "arm", without=(), failing=[4, 5])
    said = json.loads(run("fit", folder, "--dry-run", "--json"))
    rows = len(read_lerobot(folder)["index"])
    # The last row of an episode that failed only gives its state.
    assert (said["rows"], said["transitions"], said["episodes"]) == (rows, rows - 2, 30)
    assert said["ends"] == {"terminated": 28, "truncated": 0, "cut": 2}
    assert said["names"] == JOINTS
    assert said["columns"]["reward"] == "next.reward" and said["columns"]["terminated"] == "next.success"
    assert said["columns"]["time"] == "timestamp" and said["columns"]["action"].startswith("action")
    one = json.loads(run("fit", folder, "--dry-run", "--json", "--state", "elbow.pos", "--action", "shoulder.pos"))
    assert one["names"] == ["elbow.pos"] and one["columns"]["state"] == "observation.state[1]"
    assert one["columns"]["action"] == "action[0]"


def test_a_folder_gives_the_rows_of_its_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "arm", without=("next.success",))
    kernel = {"kind": "isotropic", "signal_variance": 4.0, "bias_variance": 1.0, "relevance": [1.0] * 2}
    given: dict[str, Any] = {
        "hyperparameters": {"kernel": kernel, "noise": {"model": "correlated", "variance": 0.5}},
        "no_optimise": True,
        "discount": 0.9,
        "done": "terminated",
    }
    model, states = criticd.fit(folder, **given), np.array([[0.3, 0.9], [0.5, 0.1]])
    assert list(model.names or ()) == JOINTS
    same = criticd.fit(read_lerobot(folder), **given)
    assert np.array_equal(model(states), same(states)) and model.transitions == same.transitions
    labels = model.label(folder, folds=2, keep=["task_index", "elbow.pos"])
    assert np.array_equal(labels["task_index"], labels["episode"] % 2)
    assert np.array_equal(labels["elbow.pos"], read_lerobot(folder)["observation.state"][:, 1])


def test_demonstrations_without_a_reward_teach_the_time_that_remains(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "arm"), tmp_path / "arm.model"
    said = run("fit", folder, "--out", out, fails=True)
    assert "next.reward: missing" in said and "--remaining-time" in said
    said = run("fit", folder, "--remaining-time", "--out", out)
    assert "value-order correlation (VOC), of value and time within an episode: 1.00" in said
    model = criticd.Snapshot.load(out)
    left = model([[0.2, 0.8], [0.4, 0.1]])
    np.testing.assert_allclose(left, [-2.1, -1.1], atol=0.15)
    # The model says how its table was read.
    labels = model.label(folder)
    np.testing.assert_array_equal(labels["remaining_time_s"], -labels["value"])
    frames = {number: np.sum(labels["episode"] == number) for number in range(30)}
    truth = np.array([frames[e] - f for e, f in zip(labels["episode"], labels["frame"], strict=True)]) / FPS
    assert np.abs(labels["remaining_time_s"] - truth).max() < 0.3
    # A file is refused what the options are, but for the one of the same reward.
    columns = tmp_path / "columns.toml"
    for key in ("reward", "terminated", "truncated", "done", "discount"):
        columns.write_text(f'{key} = "timestamp"')
        said = run("fit", folder, "--remaining-time", "--columns", columns, "--out", out, fails=True)
        assert f"--remaining-time cannot be used with {key} in {columns}" in said
    assert run("fit", folder, "--remaining-time", "--columns", out, "--dry-run")
    table = tmp_path / "t.csv"
    table.write_text("x,y\n1,2\n2,3\n")
    assert "--reward=-0.05" in run("fit", table, "--state", "x", "--remaining-time", "--out", out, fails=True)


def check(scores: Path, folder: Path, more: Sequence[str] = ()) -> arrow.Table:
    """What LeRobot asks of scores: columns, keys, and that each signal is described."""
    table = parquet.read_table(scores)
    keys = table.schema.metadata
    assert keys[b"lerobot.scores.format"] == b"lerobot.frame_signals"
    assert keys[b"lerobot.scores.schema_version"] == b"1"
    described = json.loads(keys[b"lerobot.scores.descriptors"])
    assert list(table.column_names) == ["index", "episode_index", "frame_index", *more, *SIGNALS, "remaining_time_s"]
    assert set(described) == {*more, *SIGNALS, "remaining_time_s"}
    for name, descriptor in described.items():
        assert set(descriptor) == {"description", "direction", "bounds", "unit", "allow_nan"}
        assert descriptor["direction"] in {"higher", "lower", "none"} and descriptor["allow_nan"] is False
        low, high = descriptor["bounds"] or (-np.inf, np.inf)
        values = table[name].to_numpy()
        assert table[name].null_count == 0 and np.all((low <= values) & (values <= high)), name
    assert described["remaining_time_s"]["unit"] == "s"
    there = read_lerobot(folder)
    for name in ("index", "episode_index", "frame_index"):
        assert table[name].type == arrow.int64() and np.array_equal(table[name].to_numpy(), there[name]), name
    provenance = json.loads(keys[b"lerobot.scores.provenance"])
    assert provenance["dataset"] == {"total_episodes": 30, "total_frames": len(there["index"])}
    own = json.loads(keys[b"criticd.labels.provenance"])
    assert own == provenance["scoring"] and keys[b"criticd.labels.schema_version"] == b"1"
    assert len({*own["models"]}) == len(own["models"]) and all(len(model) == 32 for model in own["models"])
    return table


@pytest.mark.long
def test_labels_are_scores_of_the_dataset(tmp_path: Path) -> None:
    folder = write(tmp_path / "arm")
    (folder / "scores").mkdir()
    scores = folder / "scores" / "criticd.parquet"
    words = ["--remaining-time", "--folds", "3", "--budget", "1", "--keep", "task_index"]
    said = run("label", folder, *words, "--out", scores)
    assert "value-order correlation (VOC)" in said
    table = check(scores, folder, ["task_index"])
    assert np.array_equal(table["task_index"].to_numpy(), table["episode_index"].to_numpy() % 2)
    # They may be written anew, and are no part of the data.
    assert json.loads(run("label", folder, *words, "--out", scores, "--json"))["rows"] == len(table)
    assert "--keep value" in run("label", scores, "--keep", "value", "--out", tmp_path / "l.csv", "--state", "std",
                                 "--reward=return", "--assume-terminated", "last", "--episode", "episode_index",
                                 fails=True)  # fmt: skip


@pytest.mark.long
def test_a_killed_command_goes_on_from_the_groups_that_are_labelled(tmp_path: Path) -> None:
    folder, model = write(tmp_path / "arm"), tmp_path / "arm.model"
    run("fit", folder, "--remaining-time", "--hold-out", "0", "--budget", "1", "--out", model)
    words = ["--model", str(model), "--folds", "30", "--keep", "task_index"]
    whole, cut = tmp_path / "whole.parquet", tmp_path / "cut.parquet"
    assert json.loads(run("label", folder, *words, "--out", whole, "--json"))["resumed"] == 0
    parts = tmp_path / ".cut.parquet.parts"

    def killed() -> bool:
        """Kill it while some groups are labelled, and others are not."""
        cut.unlink(missing_ok=True)
        with subprocess.Popen([binary(), "label", folder, *words, "--out", cut], stdout=subprocess.DEVNULL) as process:
            when(lambda: process.poll() is not None or len(list(parts.glob("group-????"))) > 2, "groups")
            process.kill()
        return not cut.exists() and len(list(parts.glob("group-????"))) < 30

    when(killed, "a kill before the end")
    done = len(list(parts.glob("group-????")))
    # Something that was half written is labelled again.
    (parts / "group-0000").write_bytes((parts / "group-0000").read_bytes()[:-1])
    # Another build of the program labels all of them.
    other, again = tmp_path / "criticd", tmp_path / "again.parquet"
    other.write_bytes(Path(binary()).read_bytes() + b"\0")
    other.chmod(0o755)
    shutil.copytree(parts, tmp_path / ".again.parquet.parts")
    line: list[str | Path] = [other, "label", folder, *words, "--out", again, "--json"]
    said = json.loads(subprocess.run(line, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    assert said["resumed"] == 0 and again.read_bytes() == whole.read_bytes()
    said = json.loads(run("label", folder, *words, "--out", cut, "--json"))
    assert 2 < done < 30 and said["resumed"] == done - 1
    assert cut.read_bytes() == whole.read_bytes() and not parts.exists()
    check(cut, folder, ["task_index"])


def test_groups_of_other_work_are_not_taken(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "arm"), tmp_path / "l.csv"
    words = ["--remaining-time", "--budget", "1", "--folds", "2", "--out", str(out), "--json"]
    parts = tmp_path / ".l.csv.parts"
    parts.mkdir()
    (parts / "work.json").write_text("{}")
    (parts / "group-0000").write_bytes(b"of another table")
    assert json.loads(run("label", folder, *words))["resumed"] == 0 and not parts.exists()


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "arm", without=())
    second = folder / "data" / "chunk-000" / "file-001.parquet"
    parquet.write_table(parquet.read_table(second).drop_columns(["action"]), second)
    said = run("fit", folder, "--dry-run", fails=True)
    assert "data/chunk-000/file-001.parquet: has other columns" in said
    second.write_bytes(b"PAR1")
    assert "file-001.parquet: not a Parquet file" in run("fit", folder, "--dry-run", fails=True)
    for file in (folder / "data").rglob("*.parquet"):
        file.unlink()
    assert "without Parquet files under data/" in run("fit", folder, "--dry-run", fails=True)
    (folder / "meta" / "info.json").write_text("[]")
    assert "meta/info.json: not what LeRobot writes" in run("fit", folder, "--dry-run", fails=True)
    with pytest.raises(Invalid, match="no LeRobot dataset"):
        criticd.fit(tmp_path)
