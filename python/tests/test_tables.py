"""Recordings made by the tools' own writers become tables that the daemon's commands read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from conftest import PATIENCE_S, ROOT
from mcap.writer import Writer
from mcap_ros2.writer import Writer as Ros2Writer
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as BagWriter
from rosbags.typesys import Stores, get_typestore

from criticd import Invalid, tables
from criticd.testing import binary

SECOND = 1_000_000_000
COLUMNS = {"x": "/odom:position.x", "battery": "/battery:cells[1]", "cost": "/cost:data"}


def fit(table: Path, *words: str) -> str:
    done = subprocess.run(
        [binary(), "fit", table, *words, "--dry-run"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(table: Path, *words: str) -> str:
    done = subprocess.run(
        [binary(), "fit", table, *words, "--dry-run"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1, done.stdout
    return done.stderr


def write_json(path: Path, start: int = 0, rows: int = 20, pause: int = 0) -> None:
    """A recording of ten rows a second whose battery and cost come half as often; after row 9 comes a pause."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("any", "jsonschema", b"{}")
        topics = {
            name: writer.register_channel(name, "json", schema) for name in ("/odom", "/battery", "/cost", "/unread")
        }

        def say(topic: str, time: int, message: dict[str, Any]) -> None:
            writer.add_message(topics[topic], time, json.dumps(message).encode(), time)

        for row in range(rows):
            time = start + row * SECOND // 10 + (pause if row > 9 else 0)
            # In this order: what is recorded behind the row, at the same time, belongs to it.
            say("/odom", time, {"position": {"x": 0.5 * row}})
            if row % 2 == 0:
                say("/battery", time, {"cells": [0, 12.0 - row]})
                say("/cost", time, {"data": row})
            say("/unread", time, {"text": "nothing"})
        writer.finish()  # type: ignore[no-untyped-call]


def test_json_in_mcap_becomes_rows(tmp_path: Path) -> None:
    write_json(tmp_path / "run.mcap", start=SECOND * 1_700_000_000)
    table = tables.read_mcap(tmp_path / "run.mcap", COLUMNS, every="/odom")
    assert list(table) == ["x", "battery", "cost", "time", "episode"]
    np.testing.assert_array_equal(table["x"], 0.5 * np.arange(20))
    held = np.arange(20) // 2 * 2
    np.testing.assert_array_equal(table["battery"], 12.0 - held)
    np.testing.assert_array_equal(table["cost"], held)
    np.testing.assert_allclose(table["time"], 1.7e9 + 0.1 * np.arange(20), rtol=0, atol=1e-6)
    assert not table["episode"].any()
    for name in ("run.csv", "run.npz"):
        tables.write(tmp_path / name, table)
        words = ["--state", "x,battery", "--reward=-cost", "--episode", "episode", "--time", "time"]
        said = fit(tmp_path / name, *words, "--assume-terminated", "never")
        assert "19 transitions of 20 rows" in said and "state       x, battery" in said


def test_the_readmes_recording_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "run.mcap")
    (snippet,) = re.findall(r"```python recording\n(.*?)```", (ROOT / "python" / "README.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    assert (tmp_path / "run.csv").read_text().startswith("x,battery,cost,time,episode\n0.0,12.0,0.0,")


def test_old_values_pauses_and_files(tmp_path: Path) -> None:
    for number in range(2):
        write_json(tmp_path / f"{number}.mcap", pause=5 * SECOND)
    files = [tmp_path / "0.mcap", tmp_path / "1.mcap"]
    table = tables.read_mcap(files, COLUMNS, every="/odom", gap_s=1.0)
    np.testing.assert_array_equal(table["episode"], np.repeat([0, 1, 2, 3], 10))
    # Every second row has values that are a tenth of a second old.
    table = tables.read_mcap(files[0], COLUMNS, every="/odom", max_age_s=0.05)
    np.testing.assert_array_equal(table["x"], np.arange(0.0, 10.0))
    # A row for each message of another topic.
    table = tables.read_mcap(files[0], COLUMNS, every="/cost")
    np.testing.assert_array_equal(table["cost"], np.arange(0.0, 20.0, 2.0))


def test_ros_2_in_mcap(tmp_path: Path) -> None:
    with (tmp_path / "run.mcap").open("wb") as file:
        writer = Ros2Writer(file)
        point = writer.register_msgdef("geometry_msgs/msg/Point", "float64 x\nfloat64 y\nfloat64 z")
        number = writer.register_msgdef("std_msgs/msg/Float64", "float64 data")
        for row in range(5):
            message = {"x": float(row), "y": 0.0, "z": -1.0}
            writer.write_message("/at", point, message, log_time=row * SECOND, publish_time=0)
            writer.write_message("/cost", number, {"data": 2.0 * row}, log_time=row * SECOND, publish_time=0)
        writer.finish()  # type: ignore[no-untyped-call]
    table = tables.read_mcap(tmp_path / "run.mcap", {"x": "/at:x", "cost": "/cost:data"}, every="/at")
    np.testing.assert_array_equal(table["x"], np.arange(5.0))
    np.testing.assert_array_equal(table["cost"], 2 * np.arange(5.0))
    np.testing.assert_array_equal(table["time"], np.arange(5.0))


@pytest.mark.parametrize("storage", list(StoragePlugin))
def test_bags_of_ros_2(tmp_path: Path, storage: StoragePlugin) -> None:
    types = get_typestore(Stores.ROS2_HUMBLE)
    joints, number = types.types["sensor_msgs/msg/JointState"], types.types["std_msgs/msg/Float64"]
    header = types.types["std_msgs/msg/Header"](types.types["builtin_interfaces/msg/Time"](0, 0), "arm")
    with BagWriter(tmp_path / "bag", version=9, storage_plugin=storage) as writer:
        at = writer.add_connection("/joints", joints.__msgtype__, typestore=types)
        cost = writer.add_connection("/cost", number.__msgtype__, typestore=types)
        for row in range(6):
            values = np.array([row, -row], np.float64)
            message = joints(header, ["a", "arm.b"], values, 10 * values, np.zeros(0))
            writer.write(at, row * SECOND, types.serialize_cdr(message, joints.__msgtype__))
            writer.write(cost, row * SECOND, types.serialize_cdr(number(0.1 * row), number.__msgtype__))
    columns = {"b": "/joints:position[arm.b]", "speed": "/joints:velocity[0]", "cost": "/cost:data"}
    table = tables.read_rosbag(tmp_path / "bag", columns, every="/joints")
    np.testing.assert_array_equal(table["b"], -np.arange(6.0))
    np.testing.assert_array_equal(table["speed"], 10 * np.arange(6.0))
    np.testing.assert_allclose(table["cost"], 0.1 * np.arange(6.0))
    with pytest.raises(Invalid, match=r"messages of /joints name a, arm\.b, and not b"):
        tables.read_rosbag(tmp_path / "bag", {"b": "/joints:position[b]"}, every="/joints")
    with pytest.raises(Invalid, match=r"messages of /cost have no names beside \[b\]: give its number"):
        tables.read_rosbag(tmp_path / "bag", {"b": "/cost:data[b]"}, every="/joints")
    with pytest.raises(Invalid, match="there is no 'ros3', only"):
        tables.read_rosbag(tmp_path / "bag", columns, every="/joints", distribution="ros3")
    with pytest.raises(Invalid, match="has no message of /absent"):
        tables.read_rosbag(tmp_path / "bag", {"x": "/absent:x"}, every="/joints")
    (tmp_path / "cut.bag").write_bytes(b"#ROSBAG V2.0\n" + bytes(40))
    with pytest.raises(Invalid, match=r"cut.bag cannot be read .*`rosbag reindex` repairs it"):
        tables.read_rosbag(tmp_path / "cut.bag", columns, every="/joints")
    (tmp_path / "bag" / "metadata.yaml").unlink()
    with pytest.raises(Invalid, match=r"bag cannot be read .*`ros2 bag reindex` repairs it"):
        tables.read_rosbag(tmp_path / "bag", columns, every="/joints")


def minari(path: Path, episodes: int, empty: int = 0) -> None:
    """Episodes of five steps as Minari writes them, then some without a step, as a killed recorder leaves them."""
    with h5py.File(path, "w") as file:
        for number in range(episodes + empty):
            steps = 5 if number < episodes else 0
            group = file.create_group(f"episode_{number}")
            if number == episodes + empty - 1 and empty:
                continue
            group["observations"] = number + 0.1 * np.arange(steps + 1.0)[:, np.newaxis]
            group["actions"], group["rewards"] = np.zeros((steps, 1)), np.arange(float(steps))
            group["terminations"], group["truncations"] = np.zeros(steps, bool), np.arange(steps) == 4


def test_an_episode_without_a_step_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "main_data.hdf5"
    minari(path, 3)
    whole = fit(path)
    assert "15 transitions" in whole
    several = "2 episodes have no step and are left out; the first: episode_3"
    for empty, words in ((1, "episode_3 has no step and is left out"), (2, several)):
        minari(path, 3, empty)
        assert fit(path).replace(f"note        {words}\n", "") == whole
    minari(path, 0, 2)
    assert "holds no transition" in refusal(path)


def test_what_is_in_another_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    minari(Path("whole.hdf5"), 3)
    whole = fit(Path("whole.hdf5"))
    with h5py.File("OLD", "w") as file:
        for name in ("episode_0", "episode_1", "episode_2"):
            file[name] = h5py.ExternalLink("whole.hdf5", name)
    Path("linked.hdf5").write_bytes(Path("OLD").read_bytes())
    said = refusal(Path("linked.hdf5"))
    assert "a part of the file is a link into whole.hdf5, which is not read" in said
    exec(said.split("in Python: ")[1], {"h5py": h5py})
    Path("whole.hdf5").unlink()
    assert fit(Path("NEW").rename("copied.hdf5")).replace("copied", "whole") == whole
    # What nothing needs may be elsewhere.
    with h5py.File("copied.hdf5", "a") as file:
        file["episode_0/images"] = h5py.ExternalLink("images.hdf5", "/")
    assert fit(Path("copied.hdf5")).replace("copied", "whole") == whole


def test_steps_of_imitation_are_read_as_the_message_says(tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "dataset_info.json").write_text("{}")
    said = refusal(folder)
    (arrays,) = re.findall(r"numpy.savez\(.NEW.npz., (.*)\)", said)
    names = [name for name, _ in re.findall(r"(\w+)=steps\.(\w+)", arrays)]
    assert names == ["obs", "acts", "rews", "next_obs", "terminated"]
    obs = np.arange(20.0)[:, np.newaxis]
    values = [obs, np.zeros((20, 1)), np.ones(20), obs + 1, np.arange(20) % 10 == 9]
    np.savez(tmp_path / "NEW.npz", allow_pickle=False, **dict(zip(names, values, strict=True)))
    assert "20 transitions of 20 rows" in fit(tmp_path / "NEW.npz")


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("/odom", "x must be TOPIC:FIELD"),
        ("/odom:", "x must be TOPIC:FIELD"),
        ("/odom:position[x", "x must be TOPIC:FIELD"),
        ("/odom:position[x]", r"the messages of /odom have no names beside \[x\]"),
        ("/odom:position.y", "the messages of /odom have no field position.y"),
        ("/battery:cells[2]", r"the messages of /battery have no field cells\[2\]"),
        ("/odom:position", "/odom:position is no number, but dict"),
        ("/absent:x", "run.mcap has no message of /absent"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, column: str, says: str) -> None:
    write_json(tmp_path / "run.mcap")
    with pytest.raises(Invalid, match=says):
        tables.read_mcap(tmp_path / "run.mcap", {"x": column}, every="/odom")


@pytest.mark.parametrize("at", [0.4, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunks", "plain"])
def test_a_recording_that_was_not_finished_is_read_up_to_its_break(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: float, chunked: bool
) -> None:
    with (tmp_path / "whole.mcap").open("wb") as file:
        writer = Writer(file, chunk_size=300, use_chunking=chunked)
        writer.start()
        channel = writer.register_channel("/a", "json", writer.register_schema("any", "jsonschema", b"{}"))
        for row in range(40):
            writer.add_message(channel, row * SECOND, json.dumps({"x": row}).encode(), row * SECOND)
        end = file.tell() + (0 if chunked else -1)
        writer.finish()  # type: ignore[no-untyped-call]
    written = (tmp_path / "whole.mcap").read_bytes()
    for name, tail in (("cut", b""), ("zeros", bytes(100)), ("noise", b"\xff" * 30)):
        (tmp_path / f"{name}.mcap").write_bytes(written[: int(at * end)] + tail)
        caplog.clear()
        table = tables.read_mcap(tmp_path / f"{name}.mcap", {"x": "/a:x"}, every="/a")
        rows = len(table["x"])
        np.testing.assert_array_equal(table["x"], np.arange(rows))
        assert 40 * at - 20 < rows <= 40 * at and f"was not finished: {rows} messages" in caplog.text
    whole = tables.read_mcap(tmp_path / "whole.mcap", {"x": "/a:x"}, every="/a")
    assert len(whole["x"]) == 40
    for bytes_of, words in (
        (written[:60], "no message of /a"),
        (b"", "no message of /a"),
        (written[:60] + b"\xff" * 100, "no message of /a"),
        (b"something else", "was not finished, and breaks off before the first message"),
        (written[:8] + bytes(60) + written[-8:], "cannot be read .*`mcap recover`"),
    ):
        (tmp_path / "none.mcap").write_bytes(bytes_of)
        with pytest.raises(Invalid, match=words):
            tables.read_mcap(tmp_path / "none.mcap", {"x": "/a:x"}, every="/a")


def late_topic(path: Path, name: str, message: bytes) -> None:
    """20 messages of /a, one a second, and then one of another topic."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("any", "jsonschema", b"{}")
        topics = {topic: writer.register_channel(topic, "json", schema) for topic in ("/a", name)}
        for row in range(20):
            writer.add_message(topics["/a"], row * SECOND, b'{"x": 1}', 0)
        writer.add_message(topics[name], 20 * SECOND, message, 0)
        writer.finish()  # type: ignore[no-untyped-call]


def test_a_topic_that_comes_too_late_is_named(tmp_path: Path) -> None:
    late_topic(tmp_path / "late.mcap", "/b", b'{"x": null}')
    columns = {"x": "/a:x", "y": "/b:x"}
    with pytest.raises(Invalid, match=r"is no number, but NoneType, in the message at 20\.0"):
        tables.read_mcap(tmp_path / "late.mcap", columns, every="/a")
    columns["y"] = "/a:x"
    assert len(tables.read_mcap(tmp_path / "late.mcap", columns, every="/a")["x"]) == 20
    late = {"x": "/a:x", "y": "/c:x"}
    late_topic(tmp_path / "late.mcap", "/c", b'{"x": 1}')
    with pytest.raises(Invalid, match="20 messages of /a come before the first of /c"):
        tables.read_mcap(tmp_path / "late.mcap", late, every="/a")


def test_columns_that_are_made_here_cannot_be_given(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="time is made here"):
        tables.read_mcap(tmp_path / "run.mcap", {"time": "/odom:stamp"}, every="/odom")


# Files named as in version 2 (one for each episode) and in version 3 (many episodes in a file) of the format.
@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_lerobot_directories(tmp_path: Path, version: str) -> None:
    names = ["shoulder", "elbow"]
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": names},
        "observation.image": {"dtype": "video", "shape": [3, 4, 4], "names": None},
        "action": {"dtype": "float32", "shape": [2], "names": {"motors": names}},
        "next.reward": {"dtype": "float32", "shape": [1], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        **{name: {"dtype": "int64", "shape": [1], "names": None} for name in ("episode_index", "frame_index")},
    }
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"codebase_version": version, "features": features}))
    folder = tmp_path / "data" / "chunk-000"
    folder.mkdir(parents=True)
    episodes = []
    for episode in range(3):
        states = [[float(episode), 0.5 * frame] for frame in range(4)]
        columns = {
            "observation.state": arrow.array(states, arrow.list_(arrow.float32(), 2)),
            "action": arrow.array([[0.0, 1.0]] * 4, arrow.list_(arrow.float32(), 2)),
            "next.reward": arrow.array([-1.0] * 4, arrow.float32()),
            "next.done": [False, False, False, True],
            "episode_index": [episode] * 4,
            "frame_index": list(range(4)),
        }
        episodes.append(arrow.table(columns))
    if version == "v3.0":
        # Not in order: the reader sorts.
        parquet.write_table(arrow.concat_tables(episodes[::-1]), folder / "file-000.parquet")
    else:
        for number, episode_table in enumerate(episodes):
            parquet.write_table(episode_table, folder / f"episode_{number:06d}.parquet")

    table = tables.read_lerobot(tmp_path)
    assert "observation.image" not in table and table["observation.state"].shape == (12, 2)
    np.testing.assert_array_equal(table["episode_index"], np.repeat([0, 1, 2], 4))
    np.testing.assert_array_equal(table["observation.state"][:, 1], np.tile([0.0, 0.5, 1.0, 1.5], 3))
    assert table["next.reward"].shape == (12,)
    assert tables.state_names(tmp_path) == names and tables.state_names(tmp_path, "action") == names
    assert tables.state_names(tmp_path, "next.reward") is None
    np.testing.assert_array_equal(
        tables.read_lerobot(tmp_path, episodes=[2])["observation.state"][:, 0], np.full(4, 2.0)
    )
    for name in ("arm.npz", "arm.csv"):
        tables.write(tmp_path / name, table)
        said = fit(tmp_path / name, "--done", "truncated", "--names", "shoulder,elbow")
        assert "3 truncated" in said and "shoulder" in said


def test_no_dataset_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"meta/info\.json"):
        tables.read_lerobot(tmp_path)


def test_tables_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="these have: a 2, b 3"):
        tables.write(tmp_path / "a.csv", {"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(Invalid, match=r"a\.txt must end in"):
        tables.write(tmp_path / "a.txt", {"a": [1, 2]})


def test_tables_that_tick_at_different_rates_get_one_clock(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "criticd")
    odom = pd.DataFrame(
        {"stamp": pd.date_range("2026-03-28T22:00:00Z", periods=40, freq="100ms"), "x [m]": np.arange(40.0)}
    )
    slow = pl.DataFrame(
        {
            "stamp": [f"2026-03-28T22:00:0{k}+00:00" for k in range(4)],
            "battery.soc": [90.0, None, 88.0, 87.0],
            "mode": ["idle", "idle", "", "drive"],
        }
    )
    columns = {"x": "odom:x [m]", "soc": "slow:battery.soc", "mode": "slow:mode"}
    asked: dict[str, Any] = {"every": "odom", "time": "stamp"}
    found = tables.read_topics({"odom": odom, "slow": slow}, columns, max_age_s=10.0, **asked)
    # Never a value of later; an empty cell is none.
    assert found["x"].tolist() == list(range(40))
    assert found["soc"].tolist() == [90.0] * 20 + [88.0] * 10 + [87.0] * 10
    assert found["mode"].tolist() == ["idle"] * 30 + ["drive"] * 10
    assert found["time"][1] - found["time"][0] == pytest.approx(0.1) and not found["episode"].any()
    # Both are new in rows 0 and 30 alone.
    assert "40 rows at the times of odom; slow: 38 values are held from before, the oldest 1.9 s" in caplog.text
    assert caplog.records[-1].levelname == "INFO"
    found = tables.read_topics({"odom": odom, "slow": slow}, columns, max_age_s=1.55, **asked)
    assert len(found["x"]) == 32 and caplog.records[-1].levelname == "WARNING"
    assert "8 rows left out for want of a value that is new enough" in caplog.text
    later = slow.with_columns(pl.Series("stamp", [60.0 * k + 1e12 for k in range(4)]))
    with pytest.raises(Invalid, match="no row of the tables has a value of all columns"):
        tables.read_topics({"odom": odom, "slow": later}, columns, max_age_s=1e6, **asked)
    for wrong, says in (
        ({"x": "odom:y"}, "the table odom has no column y"),
        ({"x": "imu:y"}, "there is no table imu, only odom, slow"),
        ({"x": "x"}, "must be TABLE:COLUMN"),
    ):
        with pytest.raises(Invalid, match=says):
            tables.read_topics({"odom": odom, "slow": slow}, wrong, max_age_s=1.0, **asked)
