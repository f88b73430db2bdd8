"""The chains that a selection sees: of all that every worker has learned, the ones of the smallest hashes.

A hash is a function of stream and sequence number, so that the chains drawn do not depend on how streams are spread
over workers, and each worker gives its share of all rows.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd._protocol import Array, Message

PIECE_ROWS = 200
"""Rows of a chain that are drawn together; a longer chain is cut at multiples of it."""
_MASK = (1 << 64) - 1


def stable_hash(text: str) -> int:
    """A number of 64 bits that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Splitmix64 of each."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(order=True)
class Piece:
    """A part of a chain that goes on without a break."""

    priority: int
    stream: str
    seq: int
    rows: int = field(default=0, compare=False)
    parts: list[dict[str, Any]] = field(default_factory=list, compare=False)

    def columns(self) -> dict[str, Any]:
        """Its rows. The last one is cut off, unless it terminated."""
        found = {
            key: np.concatenate([part[key] for part in self.parts])
            for key, column in self.parts[0].items()
            if isinstance(column, np.ndarray) and all(key in part for part in self.parts)
        }
        terminated = found.get("terminated", np.zeros(self.rows, bool))
        truncated = np.array(found.get("truncated", np.zeros(self.rows, bool)))
        truncated[-1] = not terminated[-1]
        return {**found, "truncated": truncated}


class Pool:
    """Pieces of the smallest hashes, within `rows_max` rows: the same ones in whatever order they came."""

    def __init__(self, rows_max: int) -> None:
        self.rows_max, self.rows = rows_max, 0
        self._limit: Piece | None = None
        self._heap: list[tuple[int, int, Piece]] = []
        self._open: dict[str, tuple[Piece, Array]] = {}
        """Of each stream whose chain runs, the piece that its next row belongs to, and the state that it goes on
        from."""
        self._count = 0

    def offer(self, stream: str, seq: int, columns: Mapping[str, Any]) -> None:
        """Rows of a stream, the first of them number `seq`: arrays of the same length."""
        states, following = columns["states"], columns["next_states"]
        count = len(states)
        # Batches of one chain may have flags or not.
        ends = ("terminated", "truncated")
        flags = {key: np.zeros(count, bool) if columns.get(key) is None else columns[key] for key in ends}
        columns = {**columns, **flags}
        ended = flags["terminated"] | flags["truncated"]
        numbers = np.arange(seq, seq + count, dtype=np.uint64)
        starts = numbers % np.uint64(PIECE_ROWS) == 0
        starts[1:] |= ended[:-1] | (states[1:] != following[:-1]).any(axis=1)
        before = self._open.pop(stream, None)
        starts[0] |= before is None or not np.array_equal(before[1], states[0])
        places = np.flatnonzero(starts)
        if starts[0]:
            before = None
        with np.errstate(over="ignore"):
            priorities = _mixed(np.uint64(stable_hash(stream)) ^ _mixed(numbers[places]))
        bounds = [*places.tolist(), count]
        piece = before[0] if before is not None else None
        if piece is not None:
            self._extend(piece, columns, 0, bounds[0])
        limit = _MASK if self._limit is None else self._limit.priority
        for k in np.flatnonzero(priorities <= limit).tolist():
            piece = Piece(int(priorities[k]), stream, seq + bounds[k])
            self._extend(piece, columns, bounds[k], bounds[k + 1])
        if len(places) and not priorities[-1] <= limit:
            piece = Piece(int(priorities[-1]), stream, seq + bounds[-2])
        if not ended[-1] and piece is not None:
            self._open[stream] = (piece, following[-1])

    def _extend(self, piece: Piece, columns: Mapping[str, Any], first: int, last: int) -> None:
        if first == last or (self._limit is not None and piece >= self._limit):
            return
        if piece.rows == 0:
            self._count += 1
            heapq.heappush(self._heap, (-piece.priority, self._count, piece))
        piece.parts.append(
            {key: np.array(col[first:last]) for key, col in columns.items() if isinstance(col, np.ndarray)}
        )
        piece.rows += last - first
        self.rows += last - first
        while self.rows > self.rows_max and len(self._heap) > 1:
            _, _, last_one = heapq.heappop(self._heap)
            self.rows -= last_one.rows
            self._limit = last_one if self._limit is None else min(self._limit, last_one)
            last_one.parts = []

    def pieces(self) -> list[Message]:
        """What it holds, in the order of the hashes."""
        held = sorted(piece for _, _, piece in self._heap)
        return [
            {"priority": piece.priority, "stream": piece.stream, "seq": piece.seq, "columns": piece.columns()}
            for piece in held
        ]


def drawn(pools: Iterable[list[Message]], rows_max: int) -> list[Message]:
    """Of the pieces of several pools, the ones of the smallest hashes that `rows_max` rows hold; one at least."""
    pieces = sorted(
        (piece for pool in pools for piece in pool), key=lambda each: (each["priority"], each["stream"], each["seq"])
    )
    total = 0
    found: list[Message] = []
    for piece in pieces:
        total += len(piece["columns"]["states"])
        if total > rows_max and found:
            break
        found.append(piece)
    return found
