"""Commands of the program `criticd`: its options by their names in Python, its errors as `Invalid`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from criticd._binary import binary
from criticd._protocol import CriticdError, Invalid

_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What moves the cursor of a terminal, and colours."""
_SAID = re.compile(rb"criticd: [^\n]*\n")
"""What the program says: it is in the report, or in an exception."""
_UNKNOWN = re.compile(r"unexpected argument '(?P<option>[^']*)' found")
_SIMILAR = re.compile(r"a similar argument exists: '(?P<option>[^']*)'")
_WRONG = re.compile(r"invalid value '(?P<value>[^']*)' for '(?P<option>--[a-z-]+)[^']*'(?P<why>[^\n]*)(?P<more>[^$]*)")
_AT = re.compile(
    r"(?:, (?:row|line) (?P<row>\d+))?(?:, (?:column|array|key) (?P<column>.+?))?: (?P<message>.*)", re.DOTALL
)
_WRITTEN = re.compile(r"\S*/criticd-\w+/(?P<option>\w+)\.json: (?P<message>.*)", re.DOTALL)
"""What is wrong with an option that was written to a file."""
NOT_OURS = {
    "out": "the model is returned: save it with model.save(path)",
    "json": "the report is returned",
    "verbose": "report.document has all of it",
    "dry_run": "the command line has it, and report.notes says how a table was read",
}
"""Options of the commands that have no meaning here, and what to do instead."""


def python_names(text: str) -> str:
    """The same words with options by their names in Python: hold_out for --hold-out."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def words_of(options: Mapping[str, Any], folder: Path) -> list[str]:
    """Options as a command line has them.

    None and False leave an option out. A list is its entries with commas between. A dict, or a list of dicts, is
    written to a file in `folder`, which the option then names. Raises `Invalid` for what is none of these.
    """
    words = []
    for name, value in options.items():
        if name in NOT_OURS:
            raise Invalid(name, NOT_OURS[name])
        if value is None or value is False:
            continue
        option = "--" + name.rstrip("_").replace("_", "-")
        words.append(option if value is True else f"{option}={_text(name, value, folder)}")
    return words


def _text(name: str, value: Any, folder: Path) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and value and isinstance(value[0], Mapping)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(value))
        return str(path)
    if isinstance(value, list | tuple | np.ndarray):
        parts = [_text(name, part, folder) for part in value]
        if any("," in part for part in parts):
            raise Invalid(name, "has a comma in a name, which separates names: rename the column")
        return ",".join(parts)
    raise Invalid(name, f"must be a text, a number, a list of these or a dict, not {type(value).__name__}")


def run(
    command: str, table: Path, words: Sequence[str], *, given: bool, timeout_s: float | None = None
) -> tuple[str, list[str]]:
    """Run a command on a table; what it prints, and its notes.

    Progress goes to this program's standard error where that is a terminal. `given` says whether the caller named the
    file. Raises `Invalid` with the option or the column at fault, `CriticdError` for other failures,
    FileNotFoundError without the program.
    """
    line = [str(binary()), command, str(table), *words]
    heard: list[str] = []
    with (
        _stderr(heard) as theirs,
        subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as process,
    ):
        try:
            printed, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CriticdError(
                    f"`criticd {command}` has not ended within {timeout_s:g} s: allow more with timeout_s"
                ) from error
            raise
    (said,) = heard
    if process.returncode != 0:
        raise _failure(command, said, table, given, process.returncode)
    about = str(table) if given else "the table"
    notes = [note.removeprefix("criticd: ") for note in said.splitlines() if note.startswith("criticd: ")]
    return printed.decode(), [python_names(note.replace(str(table), about)) for note in notes]


def _failure(command: str, said: str, table: Path, given: bool, status: int) -> CriticdError:
    """What a command that failed has said, as an exception."""
    unknown, wrong = _UNKNOWN.search(said), _WRONG.search(said)
    if unknown is not None:
        similar = _SIMILAR.search(said)
        hint = f"; did you mean {python_names(similar['option'])}?" if similar else ""
        return Invalid(python_names(unknown["option"]), f"`criticd {command}` has no such option{hint}")
    if wrong is not None:
        why = python_names(wrong["why"].removeprefix(": ") or wrong["more"].partition("For more")[0].strip())
        return Invalid(python_names(wrong["option"]), f"is {wrong['value']!r}: {why}")
    message = said.rpartition("criticd: " if "criticd: " in said else "error: ")[2].partition("\n\nUsage:")[0].strip()
    if not message:
        return CriticdError(f"`criticd {command}` ended with status {status}, and said nothing")
    at = _AT.fullmatch(message.removeprefix(str(table))) if message.startswith(str(table)) else None
    written = _WRITTEN.match(message)
    if at is None and written is not None:
        return Invalid(written["option"], python_names(written["message"]))
    if at is not None:
        row = None if at["row"] is None else int(at["row"])
        words = at["message"] if at["column"] or not given else f"{table}: {at['message']}"
        return Invalid(at["column"] or "table", python_names(words), row)
    option = _OPTION.search(message)
    if option is not None:
        rest = message.removeprefix(option[0]).lstrip(": ")
        return Invalid(option[1].replace("-", "_"), python_names(rest))
    return CriticdError(message)


@contextlib.contextmanager
def _stderr(heard: list[str]) -> Iterator[Any]:
    """A standard error for a program. What it has written there is appended to `heard`.

    Where this program's own is a terminal it is one too, so that progress is drawn, which is passed on.
    """
    # A program without a console has none.
    if sys.stderr is None or not sys.stderr.isatty():
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            heard.append(file.read().decode(errors="replace"))
        return
    # Systems without terminals of this kind have no such module.
    import pty

    ours, theirs = pty.openpty()
    found = bytearray()

    def pass_on() -> None:
        # The end of a terminal is an error.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                found.extend(piece)
                os.write(sys.stderr.fileno(), _SAID.sub(b"", piece))

    thread = threading.Thread(target=pass_on, name="criticd-progress", daemon=True)
    thread.start()
    try:
        yield theirs
    finally:
        os.close(theirs)
        thread.join()
        os.close(ours)
        heard.append(_CONTROL.sub("", found.decode(errors="replace")).replace("\r\n", "\n"))
