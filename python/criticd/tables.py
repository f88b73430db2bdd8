"""Recordings of robots as tables for `criticd fit`, `label`, `replay` and `serve --warm-start`.

```python
write("log.csv", {"x": np.arange(3.0), "cost": np.ones(3)})
```

`read_mcap`, `read_rosbag`, `read_topics` and `read_lerobot` return columns by name; `write` writes them to a file that
`criticd` reads. They need the packages mcap (and mcap-ros2-support for messages of ROS 2), rosbags and pyarrow; none
needs ROS. `read_topics` needs none: it puts tables that tick at different rates on one clock.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from criticd._output import text_of, whole
from criticd._protocol import Invalid

Columns = dict[str, npt.NDArray[Any]]
"""Arrays by name, all with one entry for each row."""

log = logging.getLogger("criticd")

_Message = tuple[str, int, Any]
"""Topic, time in nanoseconds, and what is said."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_mcap(
    paths: Paths,
    columns: Mapping[str, str],
    *,
    every: str,
    max_age_s: float = math.inf,
    gap_s: float = math.inf,
    decoders: Sequence[Any] = (),
) -> Columns:
    """Read numbers from the messages of MCAP files: one row for each message of the topic `every`.

    - `paths`: a file, or several, each of which begins a new episode.
    - `columns`: what each column holds, as "TOPIC:FIELD": {"x": "/odom:pose.pose.position.x", "u": "/arm:effort[2]",
      "elbow": "/joint_states:position[elbow]"}. A word in brackets is looked up in the field `name`, `joint_names` or
      `names` beside. A row holds the newest value of each at its time. Rows before the first message of some column are
      left out.
    - `every`: the topic whose messages make rows.
    - `max_age_s`: leave out rows in which the value of some column is older than this, in seconds.
    - `gap_s`: a new episode begins where two rows are further apart than this, in seconds.
    - `decoders`: decoder factories of the package mcap for encodings besides ROS 2 (CDR) and JSON, such as
      `mcap_protobuf.decoder.DecoderFactory()`.

    Returns the columns (n,) as float64, `time` (n,), the log time in seconds since 1970, and `episode` (n,), a whole
    number from 0. A recording that was not finished is read up to where it breaks off, and a warning is logged.
    Raises `Invalid` if a topic or field does not exist or holds no number, if no row has a value of some column, or if
    a file cannot be read, ImportError without the package mcap.
    """
    try:
        from mcap.decoder import DecoderFactory
        from mcap.exceptions import DecoderNotFoundError, EndOfFile, McapError
        from mcap.reader import NonSeekingReader, make_reader
        from mcap.well_known import MessageEncoding
    except ImportError as error:
        raise ImportError("read_mcap needs the package mcap: pip install mcap mcap-ros2-support") from error

    class Json(DecoderFactory):
        def decoder_for(self, message_encoding: str, schema: Any) -> Any:
            return json.loads if message_encoding == MessageEncoding.JSON else None

    factories = [*decoders, Json()]
    # Recordings without ROS messages need no package for them.
    with suppress(ImportError):
        from mcap_ros2.decoder import DecoderFactory as Ros2

        factories.append(Ros2())

    def messages(path: Path, topics: list[str]) -> Iterator[_Message]:
        with path.open("rb") as stream:
            finished = _is_finished(stream)
            if finished:
                reader = make_reader(stream, decoder_factories=factories)
            else:
                reader = NonSeekingReader(cast(BinaryIO, _Whole(stream)), decoder_factories=factories)
            found = reader.iter_decoded_messages(topics=topics, log_time_order=finished)
            told = ((channel.topic, message.log_time, decoded) for _, channel, message, decoded in found)
            try:
                yield from told if finished else _up_to_its_break(path, told, EndOfFile, DecoderNotFoundError)
            except DecoderNotFoundError:
                raise
            except McapError as error:
                said = str(error) or type(error).__name__
                raise Invalid(
                    "paths", f"{path} cannot be read ({said}): is it MCAP? `mcap recover` saves what is whole"
                ) from error

    rows = _Rows(columns, every, max_age_s, gap_s)
    for path in _listed(paths):
        rows.read(path, messages(path, rows.topics))
    return rows.columns()


_MAGIC = b"\x89MCAP0\r\n"
"""What MCAP files begin and end with."""


def _is_finished(stream: BinaryIO) -> bool:
    """Whether an MCAP file has an end; it is at its beginning then."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - len(_MAGIC)))
    end = stream.read()
    stream.seek(0)
    return end == _MAGIC and size > len(_MAGIC)


class _Whole:
    """A file that gives all bytes that it is asked for, or none: a record that is cut off is none."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def read(self, length: int) -> bytes:
        found = self.stream.read(length)
        return found if len(found) == length else b""


def _up_to_its_break(
    path: Path, messages: Iterator[_Message], over: type[Exception], unknown: type[Exception]
) -> list[_Message]:
    """The messages of a recording that breaks off somewhere, in the order of their times.

    The reader raises `over` at the end, and `unknown` for what it has no decoder for.
    """
    found: list[_Message] = []
    try:
        found.extend(messages)
    except unknown:
        raise
    # At a break the reader takes for records what is there, and fails at them in any way.
    except Exception as error:
        if not found and not isinstance(error, over):
            raise Invalid(
                "paths", f"{path} was not finished, and breaks off before the first message ({error!r})"
            ) from error
        log.debug("%s breaks off: %r", path, error)
    log.warning(
        "%s was not finished: %d messages of these topics stand before its break, and what followed is lost; `mcap "
        "recover` makes a whole file of it",
        path,
        len(found),
    )
    return sorted(found, key=lambda message: message[1])


def read_rosbag(
    paths: Paths,
    columns: Mapping[str, str],
    *,
    every: str,
    max_age_s: float = math.inf,
    gap_s: float = math.inf,
    distribution: str = "ros2_humble",
) -> Columns:
    """Read numbers from the messages of bags of ROS 2 (directories) or ROS 1 (files), as `read_mcap` does.

    `distribution` names the release of ROS whose message types are used where a bag does not hold its own, in the words
    of the package rosbags: "ros2_humble", "ros2_jazzy", "ros1_noetic".

    Raises `Invalid` if a topic or field does not exist or holds no number, if there is no such release, or if a bag
    cannot be read; ImportError without the package rosbags.
    """
    try:
        from rosbags.highlevel import AnyReader, AnyReaderError
        from rosbags.rosbag1 import ReaderError as OldReaderError
        from rosbags.rosbag2 import ReaderError
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ImportError("read_rosbag needs the package rosbags: pip install rosbags") from error
    try:
        types = get_typestore(Stores(distribution))
    except ValueError:
        known = ", ".join(store.value for store in Stores)
        raise Invalid("distribution", f"there is no {distribution!r}, only {known}") from None

    def messages(path: Path, topics: list[str]) -> Iterator[_Message]:
        try:
            with AnyReader([path], default_typestore=types) as reader:
                wanted = [connection for connection in reader.connections if connection.topic in topics]
                # Without any, the reader would give the messages of all topics.
                for connection, time, data in reader.messages(wanted) if wanted else ():
                    yield connection.topic, time, reader.deserialize(data, connection.msgtype)
        except (AnyReaderError, OldReaderError, ReaderError, sqlite3.DatabaseError, OSError, ValueError) as error:
            if isinstance(error, Invalid) or not path.exists():
                raise
            how = "rosbag reindex" if path.suffix == ".bag" else "ros2 bag reindex"
            message = f"{path} cannot be read ({error}): if its recorder was stopped before the end, `{how}` repairs it"
            raise Invalid("paths", message) from error

    rows = _Rows(columns, every, max_age_s, gap_s)
    for path in _listed(paths):
        rows.read(path, messages(path, rows.topics))
    return rows.columns()


def read_topics(
    topics: Mapping[str, Any],
    columns: Mapping[str, str],
    *,
    every: str,
    max_age_s: float,
    time: str = "time",
    gap_s: float = math.inf,
) -> Columns:
    """Put tables that tick at different rates on one clock: one row for each row of the table `every`.

    ```python
    log = criticd.tables.read_topics(
        {"odom": odom, "battery": battery},
        {"x": "odom:x", "soc": "battery:percentage"},
        every="odom",
        max_age_s=2.0,
        time="stamp",
    )
    ```

    - `topics`: the tables by name: frames of pandas or polars, tables of pyarrow, dicts of columns.
    - `columns`: what each column holds, as "TOPIC:COLUMN". A row holds the last value of each at its time, never a
      later one. An empty cell or NaN is no value: the one before it is held on.
    - `every`: the table whose rows make rows.
    - `max_age_s`: rows in which some value is older than this, in seconds, are left out.
    - `time`: the column of the time in each table: numbers in seconds, dates, or times as ISO 8601 writes them.
    - `gap_s`: a new episode begins where two rows are further apart than this, in seconds.

    Returns the columns (n,), `time` (n,) in seconds, and `episode` (n,), as `read_mcap` does. Columns may hold texts.
    How many values were held, how old the oldest was, and how many rows were left out goes to the log `criticd`: as a
    warning where rows were left out, or a value is twice as old as its table usually lets it become.
    Raises `Invalid` if a table or column does not exist, or if no row has a value of some column.
    """
    rows = _Rows(columns, every, max_age_s, gap_s, of_tables=True)
    if unknown := [topic for topic in rows.topics if topic not in topics]:
        raise Invalid("columns", f"there is no table {', '.join(unknown)}, only {', '.join(topics)}")
    events: list[_Message] = []
    for topic in rows.topics:
        times = _nanoseconds(_column(topics[topic], time, topic), f"{topic}:{time}")
        wanted = {str(source.steps[0]) for _, source in rows.sources.get(topic, ())}
        held = {name: _column(topics[topic], name, topic).tolist() for name in wanted}
        for place, at in enumerate(times):
            found = {name: values[place] for name, values in held.items()}
            # NaN is not equal to itself.
            message = {name: value for name, value in found.items() if value is not None and value == value}
            events.append((topic, at, {name: value for name, value in message.items() if value != ""}))
    rows.read("the tables", iter(sorted(events, key=lambda event: event[1])))
    return rows.columns()


def _column(table: Any, name: str, topic: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(table[name])
    except (KeyError, IndexError, ValueError) as error:
        raise Invalid("columns", f"the table {topic} has no column {name} ({error})") from None
    except Exception as error:
        # Each library of frames has an error of its own for it.
        raise Invalid("columns", f"the table {topic} has no column {name} ({error!r})") from error


def _nanoseconds(times: npt.NDArray[Any], name: str) -> list[int]:
    """Times as whole nanoseconds."""
    if times.dtype.kind == "M":
        return [int(time) for time in times.astype("datetime64[ns]").astype(np.int64)]
    if times.dtype.kind in "iuf":
        return [round(time * 10**9) for time in times.tolist()]
    try:
        found = [
            datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value for value in times
        ]
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        aware = [value if value.tzinfo else value.replace(tzinfo=timezone.utc) for value in found]
        return [round((value - epoch) / timedelta(microseconds=1)) * 1000 for value in aware]
    except (AttributeError, TypeError, ValueError) as error:
        raise Invalid(
            "time", f"{name} holds {times.dtype}: write seconds, dates or 2026-01-31T12:00:00 ({error})"
        ) from error


def read_lerobot(directory: str | os.PathLike[str], *, episodes: Iterable[int] | None = None) -> Columns:
    """Read the numbers of a LeRobot dataset, of version 2 or 3, from its directory. Pictures and videos are left out.

    `episodes`: the episodes to read, by `episode_index`; by default all.

    Returns what the dataset has under its own names, sorted by episode and frame: `observation.state` (n, D), `action`
    (n, A), `next.reward` (n,), `next.done` (n,), `episode_index` (n,), `frame_index` (n,), `timestamp` (n,) in
    seconds, and the other features of numbers. Many datasets have no reward: add `next.reward` before you write them.
    `criticd fit` knows these names; `state_names` names the state's numbers.

    Raises FileNotFoundError if the directory holds no LeRobot dataset, ImportError without the package pyarrow.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError("read_lerobot needs the package pyarrow: pip install pyarrow") from error
    features = _lerobot_features(directory)
    files = sorted(Path(directory, "data").rglob("*.parquet"))
    if not files:
        raise FileNotFoundError(f"{directory}: a LeRobot dataset has Parquet files under data/, and there are none")
    wanted = [name for name, feature in features.items() if feature["dtype"] not in ("image", "video", "string")]
    chosen = None if episodes is None else arrow.array(list(episodes), arrow.int64())
    tables = []
    for file in files:
        present = [name for name in wanted if name in parquet.read_schema(file).names]
        table = parquet.read_table(file, columns=present)
        if chosen is not None:
            table = table.filter(arrow.compute.is_in(table["episode_index"], value_set=chosen))
        tables.append(table)
    whole = arrow.concat_tables(tables).sort_by([("episode_index", "ascending"), ("frame_index", "ascending")])
    columns: Columns = {}
    for name in whole.column_names:
        values = whole[name].to_pylist()
        array = np.array(values)
        # A feature of one number is a list of it in some versions.
        columns[name] = array[:, 0] if array.ndim == 2 and features[name]["shape"] == [1] else array
    return columns


def state_names(directory: str | os.PathLike[str], feature: str = "observation.state") -> list[str] | None:
    """The names of the numbers of a LeRobot feature, None where the dataset has none.

    Raises FileNotFoundError if the directory holds no LeRobot dataset, KeyError if the dataset has no such feature.
    """
    names = _lerobot_features(directory)[feature].get("names")
    # Some datasets group names: {"motors": [...]}.
    if isinstance(names, dict):
        names = [name for group in names.values() for name in group]
    return None if names is None else [str(name) for name in names]


def write(path: str | os.PathLike[str], columns: Mapping[str, npt.ArrayLike]) -> None:
    """Write columns to a table that `criticd` reads: CSV or NPZ, as the ending of the name says.

    Columns are (n,) or (n, k); CSV calls the numbers of the latter `NAME_0`, `NAME_1`, ... Raises `Invalid` if columns
    differ in length, or for another ending.
    """
    path = Path(path)
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise Invalid("columns", f"all must have as many rows, and these have: {lengths}")
    if path.suffix == ".npz":
        with whole(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        return
    if path.suffix != ".csv":
        raise Invalid("path", f"{path.name} must end in .csv or .npz")
    flat: dict[str, npt.NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            flat[name] = array
        else:
            flat |= {f"{name}_{k}": array[:, k] for k in range(array.shape[1])}
    with whole(path) as file, text_of(file) as text:
        table = csv.writer(text)
        table.writerow(flat)
        # `tolist` gives Python's numbers, which are written with all their digits.
        table.writerows(zip(*(array.tolist() for array in flat.values()), strict=True))


def _listed(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, (str, os.PathLike)) else [Path(path) for path in paths]


def _lerobot_features(directory: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    info = Path(directory, "meta", "info.json")
    if not info.is_file():
        raise FileNotFoundError(f"{directory}: a LeRobot dataset has a file meta/info.json, and there is none")
    features: dict[str, dict[str, Any]] = json.loads(info.read_text())["features"]
    return features


_FIELD = re.compile(r"[^.\[\]]+(\[[^\[\]]+\])*(\.[^.\[\]]+(\[[^\[\]]+\])*)*")
_STEP = re.compile(r"\[([^\[\]]+)\]|([^.\[\]]+)")
_NAMES = ("name", "joint_names", "names")
"""Fields that name the entries of the arrays beside them, as in messages about joints."""


def _field(message: Any, name: str) -> Any:
    return message[name] if isinstance(message, Mapping) else getattr(message, name)


@dataclass(frozen=True)
class _Named:
    """An entry of an array, by its name."""

    name: str

    def place(self, around: Any, topic: str) -> int:
        """Its number, as the message around the array has it."""
        for field in _NAMES:
            with suppress(AttributeError, KeyError, TypeError):
                names = [str(name) for name in _field(around, field)]
                if self.name in names:
                    return names.index(self.name)
                raise Invalid("columns", f"the messages of {topic} name {', '.join(names)}, and not {self.name}")
        raise Invalid("columns", f"the messages of {topic} have no names beside [{self.name}]: give its number")


@dataclass(frozen=True)
class _Source:
    """Where a column comes from: a topic, and the way to a number in its messages."""

    topic: str
    steps: tuple[str | int | _Named, ...]
    text: str

    @classmethod
    def parse(cls, column: str, text: str) -> _Source:
        topic, colon, field = text.rpartition(":")
        if not colon or not _FIELD.fullmatch(field):
            raise Invalid("columns", f"{column} must be TOPIC:FIELD, such as /odom:pose.pose.position.x, not {text!r}")
        steps: list[str | int | _Named] = []
        for place, name in _STEP.findall(field):
            steps.append(name or (int(place) if place.isdecimal() else _Named(place)))
        return cls(topic, tuple(steps), text)

    @classmethod
    def of_table(cls, column: str, text: str) -> _Source:
        topic, colon, field = text.partition(":")
        if not colon or not field:
            raise Invalid("columns", f"{column} must be TABLE:COLUMN, such as odom:x, not {text!r}")
        return cls(topic, (field,), text)

    def number(self, message: Any, time: float) -> float | str:
        """The number in a message of that time, or the text."""
        value = around = message
        try:
            for step in self.steps:
                if isinstance(step, _Named):
                    value = value[step.place(around, self.topic)]
                elif isinstance(step, int):
                    value = value[step]
                else:
                    around, value = value, _field(value, step)
            return value if isinstance(value, str) else float(value)
        except (AttributeError, KeyError, IndexError):
            raise Invalid(
                "columns", f"the messages of {self.topic} have no field {self.text.rpartition(':')[2]}"
            ) from None
        except (TypeError, ValueError) as error:
            if isinstance(error, Invalid):
                raise
            what = f"is no number, but {type(value).__name__}, in the message at {time:.9f}"
            raise Invalid("columns", f"{self.text} {what}") from None


class _Rows:
    """Rows that are gathered from messages in the order of time."""

    def __init__(
        self, columns: Mapping[str, str], every: str, max_age_s: float, gap_s: float, *, of_tables: bool = False
    ) -> None:
        if taken := {"time", "episode"} & columns.keys():
            raise Invalid("columns", f"{', '.join(sorted(taken))} is made here, and needs another name")
        self.names = list(columns)
        self.every, self.max_age_s, self.gap_s, self.of_tables = every, max_age_s, gap_s, of_tables
        self.sources: dict[str, list[tuple[int, _Source]]] = {}
        for number, (name, text) in enumerate(columns.items()):
            source = _Source.of_table(name, text) if of_tables else _Source.parse(name, text)
            self.sources.setdefault(source.topic, []).append((number, source))
        self.topics = sorted({every, *self.sources})
        self.rows: list[list[float | str]] = []
        self.times: list[float] = []
        self.episodes: list[int] = []
        self.episode = -1
        self.lacking: dict[str, int] = {}
        """Of each topic how many rows of a recording are left out for want of a value."""
        self.kept: dict[str, _Kept] = {topic: _Kept() for topic in self.sources}

    def read(self, path: Path | str, messages: Iterator[_Message]) -> None:
        """Take in the messages of a recording: topic, time in nanoseconds, message."""
        for kept in self.kept.values():
            kept.last = math.nan
        latest: list[float | str] = [math.nan] * len(self.names)
        ages = [-math.inf] * len(self.names)
        seen: set[str] = set()
        self.episode += 1
        begun, due = len(self.rows), None
        self.lacking = {}
        with ExitStack() as stack:
            if hasattr(messages, "close"):
                stack.callback(messages.close)
            for topic, nanoseconds, message in messages:
                time = nanoseconds / 1e9
                # What other topics say at the very time of a row belongs to it, in whatever order it was recorded.
                if due is not None and time > due:
                    self._row(due, latest, ages, begun)
                    due = None
                seen.add(topic)
                if topic in self.kept:
                    self.kept[topic].tick(time)
                for number, source in self.sources.get(topic, ()):
                    if not self.of_tables or source.steps[0] in message:
                        latest[number], ages[number] = source.number(message, time), time
                if topic == self.every:
                    due = time
        if due is not None:
            self._row(due, latest, ages, begun)
        if len(self.rows) == begun and self.lacking and not set(self.topics) - seen:
            topic = max(self.lacking, key=lambda topic: self.lacking[topic])
            raise Invalid(
                "columns",
                f"no row of {path} has a value of all columns: {self.lacking[topic]} messages of {self.every} come "
                f"before the first of {topic}, or later than max_age_s behind one",
            )
        if missing := [topic for topic in self.topics if topic not in seen]:
            raise Invalid("columns", f"{path} has no message of {', '.join(missing)}")

    def _row(self, time: float, latest: list[float | str], ages: list[float], begun: int) -> None:
        oldest = min(ages, default=time)
        if oldest == -math.inf or time - oldest > self.max_age_s:
            for topic, sources in self.sources.items():
                if any(ages[number] == oldest for number, _ in sources):
                    self.lacking[topic] = self.lacking.get(topic, 0) + 1
                    self.kept[topic].lacking += 1
            return
        for topic, sources in self.sources.items():
            self.kept[topic].hold(time - min(ages[number] for number, _ in sources))
        if len(self.rows) > begun and time - self.times[-1] > self.gap_s:
            self.episode += 1
        self.rows.append(list(latest))
        self.times.append(time)
        self.episodes.append(self.episode)

    def columns(self) -> Columns:
        """All rows so far."""
        self._tell()
        columns: Columns = {}
        for k, name in enumerate(self.names):
            values = [row[k] for row in self.rows]
            texts = any(isinstance(value, str) for value in values)
            columns[name] = np.array([str(value) for value in values]) if texts else np.array(values, np.float64)
        columns["time"] = np.array(self.times, np.float64)
        columns["episode"] = np.array(self.episodes, np.int64)
        return columns

    def _tell(self) -> None:
        """Say how old values are that rows hold."""
        said = [kept.said(topic) for topic, kept in self.kept.items() if topic != self.every]
        loud = any(kept.is_stale or kept.lacking for topic, kept in self.kept.items() if topic != self.every)
        if said:
            level = logging.WARNING if loud else logging.INFO
            log.log(level, "%d rows at the times of %s; %s", len(self.rows), self.every, "; ".join(said))


class _Kept:
    """How long rows hold the values of a topic."""

    def __init__(self) -> None:
        self.held = self.lacking = self.count = 0
        self.oldest = self.between = 0.0
        self.last = math.nan

    def tick(self, time: float) -> None:
        """A message has come."""
        if time > self.last:
            self.between += time - self.last
            self.count += 1
        self.last = time

    def hold(self, age: float) -> None:
        """A row holds a value of that age."""
        self.held += age > 0
        self.oldest = max(self.oldest, age)

    @property
    def is_stale(self) -> bool:
        """Whether some value is twice as old as the mean time between messages."""
        return self.oldest > 2 * self.between / max(1, self.count)

    def said(self, topic: str) -> str:
        """In words."""
        left = f", {self.lacking} rows left out for want of a value that is new enough" if self.lacking else ""
        return f"{topic}: {self.held} values are held from before, the oldest {self.oldest:.3g} s{left}"
