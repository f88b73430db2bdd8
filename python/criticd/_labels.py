"""Values that rows are given after they have come, for heads to learn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from criticd._protocol import Ask, Message, Refused, Steps
from criticd._values import numbers

PIECE = 8192
"""Labels in one message."""
ATTEMPTS = 500
"""Times that a piece is sent again while changes of others wait to be stored."""
ALL = 2**53
"""More rows than a journal has."""


def requests(
    name: str,
    values: npt.ArrayLike,
    offsets: npt.ArrayLike | None,
    stream: str | Sequence[str] | None,
    seq: npt.ArrayLike | None,
) -> Steps[int]:
    """Send labels; the number of labelled rows."""
    labels = numbers(values, "values")
    if labels.ndim != 1:
        raise ValueError(f"values: one number for each row, not an array of shape {labels.shape}")
    if (offsets is None) == (seq is None):
        raise ValueError("name the rows by offsets, or by stream and seq")
    if offsets is not None:
        places = np.asarray(offsets, dtype=np.int64)
    else:
        numbered = np.asarray(seq, dtype=np.int64)
        streams: list[str | None]
        streams = [stream] * len(numbered) if stream is None or isinstance(stream, str) else list(stream)
        if not len(streams) == len(numbered) == len(labels):
            raise ValueError(f"there are {len(streams)} streams, {len(numbered)} seq and {len(labels)} values")
        places = yield from _offsets(streams, numbered)
    if len(places) != len(labels):
        raise ValueError(f"there are {len(places)} rows and {len(labels)} values")
    kept = np.flatnonzero((places >= 0) & ~np.isnan(labels))
    order = kept[np.argsort(places[kept], kind="stable")]
    if not len(order):
        raise ValueError("no row with a value is retained by the daemon")
    places, labels = places[order], labels[order]
    for start in range(0, len(order), PIECE):
        piece = slice(start, start + PIECE)
        part = {"name": name, "from": start, "offsets": places[piece].tolist(), "values": labels[piece].tolist()}
        yield from _until_taken("change_heads", {"labels": part})
    return len(order)


def _until_taken(op: str, fields: Message) -> Steps[Message]:
    """The reply to a request that the daemon puts off while changes of others wait to be stored."""
    after_s = 0.0
    for _ in range(ATTEMPTS):
        try:
            return (yield Ask(op, fields, after_s))
        except Refused as error:
            if error.code != "overloaded":
                raise
            after_s = (error.retry_after_ms or 20) / 1000
    return (yield Ask(op, fields, after_s))


def _offsets(streams: list[str | None], numbered: npt.NDArray[np.int64]) -> Steps[npt.NDArray[np.int64]]:
    """Offset of each row, -1 where it is not retained. A stream that is None is the only one that the daemon has."""
    wanted: dict[tuple[str | None, int], int] = {}
    for row, key in enumerate(zip(streams, numbered.tolist(), strict=True)):
        if wanted.setdefault(key, row) != row:
            raise ValueError(f"seq {key[1]} of stream {key[0]} occurs twice")
    found = np.full(len(numbered), -1, dtype=np.int64)
    names: set[str] = set()
    span: Message = {"last": ALL}
    end = None
    while True:
        page = yield from _until_taken("rows", span)
        end = page["end"] if end is None else end
        names.update(page["stream_names"])
        for k, (place, number) in enumerate(zip(page["streams"], page["seqs"], strict=True)):
            name = page["stream_names"][place]
            known = wanted.get((name, number), wanted.get((None, number)))
            if known is None:
                continue
            if found[known] >= 0:
                raise ValueError(f"seq {number} of stream {name} names more than one retained row: say offsets instead")
            found[known] = page["from"] + k
        if page["next"] >= end or page["next"] <= page["from"]:
            break
        span = {"from": page["next"]}
    if None in streams and len(names) > 1:
        raise ValueError(f"the daemon has {len(names)} streams: name the one of each row")
    return found
