"""Rows on disk while the daemon is away: a bounded queue of batches that outlives the program."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from criticd._protocol import CriticdError
from criticd._rows import NO_POLICIES, Policies, Rows, layout_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, origin TEXT NOT NULL, session TEXT NOT NULL,
    base INTEGER NOT NULL, position INTEGER NOT NULL, count INTEGER NOT NULL, dim INTEGER NOT NULL,
    rewards INTEGER NOT NULL, actions INTEGER NOT NULL, discount INTEGER NOT NULL, time INTEGER NOT NULL,
    data BLOB NOT NULL, policies TEXT NOT NULL DEFAULT ''
)
"""
_OVERHEAD = 200
"""Bytes that a batch takes beside its rows, roughly."""


@dataclass(slots=True)
class Record:
    """A batch: rows from `index` on of a stream's session, which began as `origin` and numbers them from `base`."""

    id: int
    stream: str
    origin: str
    session: str
    base: int
    index: int
    rows: Rows


class Spool:
    """First in, first out. One program at a time; used by one thread."""

    def __init__(self, path: str | os.PathLike[str], bytes_max: int) -> None:
        self.bytes_max = bytes_max
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened where the sender is made, used by its thread.
        self._base = sqlite3.connect(path, timeout=1.0, check_same_thread=False)
        try:
            # The lock is kept: two senders that empty one spool would send everything twice.
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            self._base.execute(_SCHEMA)
            # A spool of the version before has none.
            if "policies" not in [column[1] for column in self._base.execute("PRAGMA table_info(batches)")]:
                self._base.execute("ALTER TABLE batches ADD COLUMN policies TEXT NOT NULL DEFAULT ''")
            self._base.commit()
            found = self._base.execute("SELECT count(*), total(count), total(length(data)) FROM batches").fetchone()
        except sqlite3.Error as error:
            self._base.close()
            raise CriticdError(f"the spool {path} cannot be used: {error}; does another sender have it?") from error
        self.batches, self.rows = int(found[0]), int(found[1])
        self.bytes = int(found[2]) + _OVERHEAD * self.batches

    def add(self, stream: str, origin: str, session: str, base: int, index: int, rows: Rows) -> bool:
        """Put a batch at the end; False if it does not fit any more."""
        size = len(rows.data) + _OVERHEAD
        if self.bytes + size > self.bytes_max:
            return False
        names, shape = (stream, origin, session, base, index, rows.count), rows.layout
        policies = "" if shape.policies == NO_POLICIES else json.dumps(shape.policies)
        with self._base:
            self._base.execute(
                "INSERT INTO batches (stream, origin, session, base, position, count, dim, rewards, actions, discount,"
                " time, data, policies) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*names, shape.dim, shape.rewards, shape.actions, shape.discount, shape.time, rows.data, policies),
            )
        self.batches, self.rows, self.bytes = self.batches + 1, self.rows + rows.count, self.bytes + size
        return True

    def read(self, after: int, most: int) -> list[Record]:
        """The first batches after the one with id `after`, at most the given number."""
        found = self._base.execute(
            "SELECT id, stream, origin, session, base, position, count, dim, rewards, actions, discount, time, data,"
            " policies FROM batches WHERE id > ? ORDER BY id LIMIT ?",
            (after, most),
        )
        records = []
        for number, stream, origin, session, base, index, count, *shape, data, said in found:
            dim, rewards, actions, discount, time = shape
            policies = Policies(*json.loads(said)) if said else NO_POLICIES
            rows = Rows(layout_of(dim, rewards, actions, bool(discount), bool(time), policies), count, data)
            records.append(Record(number, stream, origin, session, base, index, rows))
        return records

    def ends(self, origin: str) -> dict[str, int]:
        """By stream, the index behind the last row of the sessions that began as `origin`."""
        query = "SELECT stream, max(position + count) FROM batches WHERE origin = ? GROUP BY stream"
        return {str(stream): int(end) for stream, end in self._base.execute(query, (origin,))}

    def remove(self, id: int, rows: Rows) -> None:  # noqa: A002
        """Take a batch out: the daemon has it."""
        with self._base:
            self._base.execute("DELETE FROM batches WHERE id = ?", (id,))
        self.batches, self.rows = self.batches - 1, self.rows - rows.count
        self.bytes -= len(rows.data) + _OVERHEAD

    def close(self) -> None:
        """Release the file."""
        self._base.close()
