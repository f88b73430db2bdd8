"""One way to write a file, as the commands write theirs: whole, or as it was."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which is put where `path` leads at the end of the `with` block, if nothing fails in it.

    Links are followed. A file is replaced by one with the same mode. A device, a pipe or a socket stays what it is:
    what is written goes through.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with Path(path).open("wb") as through:
            yield through
        return
    if mode is not None:
        # A file that may not be written is not replaced either.
        os.close(os.open(target, os.O_WRONLY))
    part = target.with_name(f".criticd-{secrets.token_hex(8)}")
    with part.open("xb") as file:
        try:
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """All of a file, by `whole`."""
    with whole(path) as file:
        file.write(data)


@contextmanager
def text_of(file: BinaryIO) -> Iterator[TextIOWrapper]:
    """The file to write lines to, as the module csv ends them."""
    text = TextIOWrapper(file, "utf-8", newline="")
    yield text
    text.detach()
