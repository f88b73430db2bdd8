"""Tables of other libraries: their columns by name, files of them for the program, and answers of the same kind."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from criticd import _buffers
from criticd._protocol import Array, Invalid
from criticd._values import numbers
from criticd.tables import read_lerobot

Table: TypeAlias = Any
"""Columns by name: a frame of pandas or polars, a dict of arrays, a structured array, a dataset of Hugging Face, or
anything that speaks the Arrow PyCapsule interface (`__arrow_c_stream__`), such as tables of pyarrow and duckdb."""


class Stream(Protocol):
    """A table that speaks the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None, /) -> object: ...


States: TypeAlias = npt.ArrayLike | Mapping[str, Any] | Stream
"""States (n, D), one state (D,), or a table with a column for each variable."""

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
Categories: TypeAlias = Sequence[Sequence[str]]
"""Of each state variable the texts that it may be, in the order of their codes; nothing of one that holds numbers."""

_PART = re.compile(r"(.+)\[(\d+)\]")
"""A number of a column of lists, as the program names it."""
_UNIT = re.compile(r" \[[^\]]*\]$")
_SHOWN = 20
"""Names that a message lists."""


def _is_pandas(table: Table) -> bool:
    return hasattr(table, "iloc")


def _is_polars(table: Table) -> bool:
    return hasattr(table, "write_parquet") and hasattr(table, "with_columns")


def _is_dataset(table: Table) -> bool:
    """Whether it is a dataset of Hugging Face."""
    return hasattr(table, "with_format") and hasattr(table, "column_names")


def _opened(table: Table) -> Table:
    """The same, as a table of pyarrow where its own columns are not to be had by name."""
    if _is_dataset(table):
        if not hasattr(table, "__len__"):
            raise Invalid("table", "is a dataset that streams: take what is needed of it, Dataset.from_list(list(it))")
        return table.with_format("arrow")[:]
    if hasattr(table, "__arrow_c_stream__") and not (_is_pandas(table) or _is_polars(table)):
        return _arrow().table(table)
    return table


def _arrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError("this table is read with the package pyarrow: pip install pyarrow") from error


def _has_arrow() -> bool:
    with contextlib.suppress(ImportError):
        import_module("pyarrow")
        return True
    return False


def names_of(table: Table) -> list[str] | None:
    """Names of the columns; None for what has none, as an array (n, D) and a frame whose columns are numbered."""
    names: Iterable[Any] | None = None
    if isinstance(table, Mapping):
        names = table
    elif isinstance(table, np.ndarray | np.void):
        names = table.dtype.names
    elif _is_pandas(table):
        # A row of a frame is a series, which has them in its index.
        names = getattr(table, "columns", table.index)
    elif hasattr(table, "__arrow_c_stream__") or _is_dataset(table):
        names = table.columns if _is_polars(table) else _opened(table).column_names
    found = None if names is None else list(names)
    return found if found and all(isinstance(name, str) for name in found) else None


def _array(values: Any) -> npt.NDArray[Any]:
    """A column as an array, (n,) or, of lists that are equally long, (n, k)."""
    found = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if found.dtype == object and found.ndim == 1 and len(found) and not isinstance(found[0], str | bytes):
        parts = [np.asarray(part) for part in found]
        if parts[0].ndim and len({part.shape for part in parts}) == 1:
            return np.stack(parts)
    return found


def columns_of(table: Table) -> Columns:
    """All columns as arrays. The table has names."""
    opened = _opened(table)
    return {name: _array(opened[name]) for name in names_of(table) or ()}


def states_of(table: Table, names: Sequence[str] | None, field: str = "states", categories: Categories = ()) -> Array:
    """States (n, D), or one state (D,): the columns `names` of a table, in this order, or an array as it is.

    A name may go without its unit, "x" for "x [m]". A column of a variable that has `categories` holds texts, and gives
    their codes. Raises `Invalid` with the name of a column that is missing, or of a text that is not known.
    """
    there = names_of(table)
    if there is None:
        return numbers(table, field)
    if names is None:
        if isinstance(table, Mapping) or getattr(table, "dtype", None) is not None:
            raise Invalid(field, "have columns by name, and the model has no names: give an array (n, D)")
        return numbers(table, field)
    opened = _opened(table)
    texts = [*categories, *[()] * len(names)]
    parts = [_coordinate(opened, there, name, names, known) for name, known in zip(names, texts, strict=False)]
    try:
        return np.stack(np.broadcast_arrays(*parts), axis=-1)
    except ValueError as error:
        raise Invalid(field, f"have columns of different lengths ({error})") from error


def _coordinate(
    table: Table, there: Sequence[str], name: str, names: Sequence[str], categories: Sequence[str]
) -> Array:
    bare = _UNIT.sub("", name)
    for known in (name, bare):
        if known in there:
            values = _array(table[known])
            return codes(values, known, categories) if categories else numbers(values, known)
    part = _PART.fullmatch(bare)
    if part is not None and part[1] in there:
        whole = numbers(_array(table[part[1]]), part[1])
        if whole.ndim and int(part[2]) < whole.shape[-1]:
            return whole[..., int(part[2])]
    raise Invalid(
        bare, f"there is no such column: the model's variables are {listed(names)}, and the table has {listed(there)}"
    )


def codes(values: npt.NDArray[Any], name: str, categories: Sequence[str]) -> Array:
    """The codes of texts: their places among the `categories`."""
    known = {text: float(code) for code, text in enumerate(categories)}
    texts = [_as_text(value) for value in values.ravel().tolist()]
    found = [known.get(text) for text in texts]
    if None in found:
        place = found.index(None)
        text = texts[place]
        message = (
            f"{text!r} is none of the categories that are known: {listed(categories)}. Correct it, leave these rows"
            " out, or fit again with rows that have it"
        )
        raise Invalid(name, message, place if values.ndim else None)
    return np.array(found, np.float64).reshape(values.shape)


def _as_text(value: Any) -> str:
    """A text, or a number or flag as the program writes it where a list of categories has such."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    known = list(names)
    more = f" and {len(known) - _SHOWN} others" if len(known) > _SHOWN else ""
    return ", ".join(known[:_SHOWN]) + more


def like(table: Table, columns: Mapping[str, npt.NDArray[Any]]) -> Any:
    """These columns as a table of the kind of `table`; a dict of arrays where that is an array or a file.

    A frame of pandas keeps its index where it has a row for each.
    """
    if _is_pandas(table):
        frame = import_module("pandas").DataFrame(dict(columns))
        if getattr(table, "ndim", 1) == 2 and len(frame) == len(table):
            frame.index = table.index
        return frame
    if _is_polars(table):
        return import_module("polars").DataFrame(dict(columns))
    if _is_dataset(table):
        return type(table)(_arrow().table(dict(columns)))
    if hasattr(table, "__arrow_c_stream__"):
        return _arrow().table(dict(columns))
    if isinstance(table, np.ndarray) and table.dtype.names:
        found = np.empty(len(next(iter(columns.values()))), [(name, values.dtype) for name, values in columns.items()])
        for name, values in columns.items():
            found[name] = values
        return found
    return dict(columns)


def written(table: Table, folder: Path) -> Path:
    """A file or folder that the program reads: the one that `table` names, or a file in `folder` with all its columns.

    Several files or tables, in a list, become one: each is a stream of its own, so that no episode goes on from one to
    the next. Raises `Invalid` for what is no table.
    """
    if isinstance(table, str | os.PathLike):
        return Path(table)
    if isinstance(table, list | tuple):
        return _joined(table, folder / "table.parquet")
    table = _kept(table)
    if names_of(table) is None:
        raise Invalid(
            "table",
            f"must be a file, or have columns by name (a frame, a dict of arrays), and is {type(table).__name__}",
        )
    if isinstance(table, Mapping | np.ndarray) or (_is_pandas(table) and not _has_arrow()):
        # numpy types the arrays' names as its own flags.
        np.savez(folder / "table.npz", **_plain(columns_of(table)))  # type: ignore[arg-type]
        return folder / "table.npz"
    path = folder / "table.parquet"
    if _is_polars(table):
        table.write_parquet(path, compression="uncompressed")
    else:
        _parquet().write_table(_readable(_as_arrow(table)), path, compression="none")
    return path


def _is_lerobot(path: Path) -> bool:
    return (path / "meta" / "info.json").is_file()


def _kept(table: Table) -> Table:
    """The columns of a buffer; any other table as it is."""
    found = None if names_of(table) is not None else _buffers.columns_of(table)
    return getattr(table, "hf_dataset", table) if found is None else found


def _parquet() -> Any:
    _arrow()
    return import_module("pyarrow.parquet")


def _as_arrow(table: Table) -> Any:
    """A table of pyarrow."""
    arrow = _arrow()
    if isinstance(table, Mapping | np.ndarray):
        return arrow.table({name: _as_lists(values) for name, values in _plain(columns_of(table)).items()})
    try:
        return (
            arrow.table(_opened(table))
            if not _is_pandas(table)
            else arrow.Table.from_pandas(table, preserve_index=False)
        )
    except arrow.ArrowException as error:
        column = re.search(r"column (\S+)", str(error))
        what = "holds what no table in a file can hold" if column else "cannot be written to a file"
        raise Invalid(column[1] if column else "table", f"{what} ({error}): leave it out") from error


def _as_lists(values: npt.NDArray[Any]) -> Any:
    """A column of pyarrow; (n, k) becomes one of lists."""
    arrow = _arrow()
    if values.ndim == 1:
        return arrow.array(values)
    return arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])


def _readable(table: Any) -> Any:
    """The same without types that the program does not read."""
    arrow = _arrow()
    types = arrow.types
    # Pictures and the like.
    unread = [column.name for column in table.schema if types.is_binary(column.type) or types.is_struct(column.type)]
    table = table.drop_columns(unread)
    for place, column in enumerate(table.schema):
        kind = column.type
        if types.is_decimal(kind):
            changed = table.column(place).cast(arrow.float64())
        elif types.is_float16(kind):
            changed = table.column(place).cast(arrow.float32())
        elif types.is_duration(kind):
            ticks = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
            changed = arrow.compute.divide(table.column(place).cast(arrow.int64()).cast(arrow.float64()), ticks)
        else:
            continue
        table = table.set_column(place, column.name, changed)
    return table


def _plain(columns: Columns) -> Columns:
    """The same of types that the program reads, (n,) or (n, k). Raises `Invalid` with the name of one without any."""
    found = {name: _plain_one(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in found.items()}
    if len(set(lengths.values())) > 1:
        shown = listed(f"{name} {length}" for name, length in lengths.items())
        raise Invalid("table", f"columns must have as many rows, and these have: {shown}")
    return found


def _plain_one(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.ndim == 0:
        raise Invalid(name, "must have an entry for each row, and is one for all")
    if np.ma.getmaskarray(values).any():
        raise Invalid(name, "has masked values: leave their rows out")
    kind = values.dtype.kind
    if values.ndim > 2:
        values = values.reshape(len(values), -1)
    if kind == "f" and values.dtype.itemsize not in (4, 8):
        return values.astype(np.float64)
    if kind == "M":
        return np.datetime_as_string(values)
    if kind == "m":
        return values / np.timedelta64(1, "s")
    if kind == "O":
        items = values.ravel().tolist()
        # Pandas has NaN where a text is missing.
        if all(isinstance(item, str) or item is None or item != item for item in items):
            return np.array([item if isinstance(item, str) else "" for item in items]).reshape(values.shape)
        return numbers(values, name)
    if kind not in "fiubUS":
        raise Invalid(name, f"must hold numbers, flags or texts, and has {values.dtype}")
    return values


def _joined(tables: Sequence[Table], path: Path) -> Path:
    """Write several tables into one, one after the other, so that one at a time is in memory."""
    if not tables:
        raise Invalid("table", "is an empty list")
    arrow, writer = _arrow(), None
    try:
        for place, table in enumerate(tables):
            found = _as_arrow(_read(Path(table)) if isinstance(table, str | os.PathLike) else _kept(table))
            streams = [f"{place}"] * len(found)
            for own in {"stream", "streams"} & set(found.column_names):
                streams = [f"{place}/{name}" for name in found[own].to_pylist()]
                found = found.drop_columns([own])
            found = _readable(found).append_column("stream", arrow.array(streams, arrow.string()))
            if writer is None:
                writer = _parquet().ParquetWriter(path, found.schema, compression="none")
            for column in writer.schema.names:
                if column not in found.column_names:
                    raise Invalid(column, f"table {place} of the list has no such column, and table 0 has it")
            try:
                writer.write_table(found.select(writer.schema.names).cast(writer.schema))
            except arrow.ArrowException as error:
                raise Invalid("table", f"table {place} of the list has other types than table 0 ({error})") from error
    finally:
        if writer is not None:
            writer.close()
    return path


def _read(path: Path) -> Table:
    """The table of a file, or of the directory of a LeRobot dataset."""
    if _is_lerobot(path):
        return read_lerobot(path)
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _parquet().read_table(path)
    if kind == ".csv":
        return import_module("pyarrow.csv").read_csv(path)
    if kind in (".jsonl", ".ndjson"):
        return import_module("pyarrow.json").read_json(path)
    if kind == ".npz":
        with np.load(path) as arrays:
            return dict(arrays)
    raise Invalid(
        "table", f"{path}: files in a list end in .parquet, .csv, .jsonl or .npz; name one of another kind alone"
    )
