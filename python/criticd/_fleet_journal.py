"""The journal of a worker of a fleet: the rows that it has acknowledged, and which streams have come and gone."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from criticd._output import write_whole
from criticd._protocol import CriticdError, Malformed, Message, pack, unpack

_MAGIC = b"criticd fleet 1\n"
_HEADER = 12
"""Bytes before a record: its length, its CRC-32, and the CRC-32 of these two, little endian."""
_PIECE = 1 << 22
FILE = "rows.journal"


def _header(payload: bytes) -> bytes:
    about = len(payload).to_bytes(4, "little") + zlib.crc32(payload).to_bytes(4, "little")
    return about + zlib.crc32(about).to_bytes(4, "little")


def _length(header: bytes) -> int | None:
    """Bytes of a record with its header; None for what is no header."""
    if int.from_bytes(header[8:], "little") != zlib.crc32(header[:8]):
        return None
    return _HEADER + int.from_bytes(header[:4], "little")


def _write(file: int, record: Mapping[str, Any], place: int) -> int:
    """Write a record at a place of a file; return the place behind it."""
    payload = pack(record)
    data = memoryview(_header(payload) + payload)
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], place + done)
    return place + done


def own(file: int, path: Path) -> None:
    """Lock a file for as long as it is open. Raises `CriticdError` if somebody else has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had it may have put another file in its place since it was opened.
        if not os.path.samestat(os.fstat(file), os.stat(path)):
            raise FileNotFoundError(path)
    except OSError as error:
        os.close(file)
        raise CriticdError(
            f"{path} is in use by another fleet that runs: end that one, or name another directory"
        ) from error


class Journal:
    """Records in a file, each durable when `append` returns. A record that a crash left unfinished is cut off."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path, self._about = directory / FILE, directory / "worker.json"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        own(self._file, self.path)
        # Of a rewrite that a crash has ended.
        self.path.with_suffix(".new").unlink(missing_ok=True)
        if os.fstat(self._file).st_size < len(_MAGIC):
            # What was here is gone, so that whoever counted it must know.
            write_whole(self._about, json.dumps({"birth": secrets.token_hex(8), "incarnation": 0}).encode())
            os.pwrite(self._file, _MAGIC, 0)
            self._sync_all(directory)
        if os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            raise Malformed(f"{self.path} is no journal of a fleet: give the worker a directory of its own")
        about = json.loads(self._about.read_text())
        self.birth, self.incarnation = str(about["birth"]), int(about["incarnation"])
        self.start = self.end = len(_MAGIC)

    def _sync_all(self, directory: Path) -> None:
        os.fsync(self._file)
        place = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)

    def set_incarnation(self, incarnation: int) -> None:
        """Remember how often the rows of this worker have been lost."""
        self.incarnation = incarnation
        write_whole(self._about, json.dumps({"birth": self.birth, "incarnation": incarnation}).encode())

    def recover(self) -> Iterator[Message]:
        """All records, to be read once at a start; what is unfinished behind the last of them is cut off.

        Raises `Malformed` where a record is damaged that others follow.
        """
        for place, record in self._records(self.start, cuts=True):
            self.end = place
            yield record
        os.ftruncate(self._file, self.end)
        os.fsync(self._file)

    def read(self, place: int) -> Iterator[tuple[int, Message]]:
        """The records from a place of the file on, each with the place behind it."""
        yield from self._records(place, cuts=False)

    def _records(self, place: int, *, cuts: bool) -> Iterator[tuple[int, Message]]:
        size = os.fstat(self._file).st_size if cuts else self.end
        held, begin = b"", place
        while place < size:
            if place + _HEADER > begin + len(held):
                held, begin = os.pread(self._file, _PIECE, place), place
            header = held[place - begin : place - begin + _HEADER]
            need = _length(header) if len(header) == _HEADER else size + 1
            if need is not None and begin + len(held) < place + need <= size:
                held, begin = os.pread(self._file, max(_PIECE, need), place), place
            at = place - begin
            payload = b"" if need is None else held[at + _HEADER : at + need]
            if need is None or place + need > size or _header(payload) != header:
                # A crash leaves a part of the last record, or room for it that was never written.
                if cuts and (not any(header) if need is None else place + need >= size):
                    return
                raise Malformed(
                    f"{self.path} is damaged at byte {place}, with acknowledged rows behind it: restore it from a "
                    "copy, or remove it, and the fleet goes on without this worker's rows and says how many"
                )
            place += need
            yield place, unpack(payload)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record. It is durable when this returns, and there is nothing of it if this raises OSError."""
        if os.fstat(self._file).st_nlink == 0:
            raise FileNotFoundError(f"{self.path} was deleted or replaced while it was in use")
        try:
            end = _write(self._file, record, self.end)
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self.end)
            raise
        self.end = end

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Let these records take the place of all, in another file: nothing of the old one is left.

        A crash leaves the one or the other. Raises OSError: with all as it was, or with another `end`, where the new
        file is in force and its name may not last.
        """
        part = self.path.with_suffix(".new")
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        own(file, part)
        try:
            os.pwrite(file, _MAGIC, 0)
            end = self.start
            for record in records:
                end = _write(file, record, end)
            os.fsync(file)
            part.replace(self.path)
        except BaseException:
            os.close(file)
            part.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self.end = file, end
        self._sync_all(self.path.parent)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
