"""Single bits that flip in the files of a data directory while a daemon has them open.

Whatever file it is: no row that was acknowledged is lost in silence, and no model is another one. Either the next start
has them all, or it says what is damaged and changes nothing.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from client import Array, Control, Daemon, Refused, receive

pytestmark = [pytest.mark.nightly, pytest.mark.long]

# Flips of each file: some of them change nothing that is ever read.
FLIPS = int(os.environ.get("CRITICD_FLIPS", "6"))
SETTINGS = ("critic.dictionary_max=30", "critic.refit_first_rows=0", "checkpoint_rows=500", "journal_rows_max=100000")
STATES = np.random.default_rng(7).normal(size=(3001, 2))
# Rows that the directory has from the beginning, those before the flip, and those behind it; all in appends of so many.
KNOWN, BEFORE, BEHIND, EACH = 1600, 300, 300, 100
# What a file is called, without its numbers.
FILES = (
    "journal.sqlite",
    "journal.sqlite-wal",
    "journal.sqlite-shm",
    "journal.mark",
    "checkpoint",
    "history",
    "history.models",
)
FILES += ("quarantine.sqlite", "quarantine.sqlite-wal", "endpoints.json", "lock")


def append(control: Control, first: int, rows: int) -> None:
    for at in range(first, first + rows, EACH):
        states = STATES[at : at + EACH + 1]
        reply = control.ask("append", stream="s", session="run", seq=at, states=states, rewards=states[:-1, 0])
        assert reply["next_seq"] == at + EACH


def model(control: Control, rows: int) -> Array:
    """Everything that the model says, once it has learned so many rows."""
    control.ask("value", states=STATES[:1], min_offset=rows)
    snapshot = control.ask("snapshot", variance=True)
    assert snapshot["offset"] == rows, snapshot["offset"]
    return np.concatenate([np.ravel(snapshot[name]) for name in ("dictionary", "weights", "variance")])


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a journal, checkpoints, a past, and a message that was refused."""
    daemon = Daemon(tmp_path_factory.mktemp("used") / "d", *SETTINGS)
    control = daemon.control()
    append(control, 0, KNOWN)
    with pytest.raises(Refused):
        control.ask("append", stream="s", session="run", seq=KNOWN, states=[[0.0], [1.0]], rewards=[0.0])
    control.ask("checkpoint")
    assert daemon.terminate()[0] == 0
    daemon.close()
    return daemon.directory


@pytest.fixture(scope="module")
def right(used: Path, tmp_path_factory: pytest.TempPathFactory) -> Array:
    """What the model says that has learned all of the rows where no bit flips."""
    directory = tmp_path_factory.mktemp("right") / "d"
    shutil.copytree(used, directory)
    daemon = Daemon(directory, *SETTINGS)
    append(daemon.shared_control(), KNOWN, BEFORE + BEHIND)
    found = model(daemon.shared_control(), KNOWN + BEFORE + BEHIND)
    daemon.shared_control().close()
    daemon.close()
    return found


def flip(file: Path, rng: random.Random) -> str:
    """Flip a bit in place, as a disk or memory that fails would; what was done."""
    with file.open("r+b") as opened:
        size = opened.seek(0, os.SEEK_END)
        if size == 0:
            return f"{file.name} is empty"
        at, bit = rng.randrange(size), rng.randrange(8)
        opened.seek(at)
        byte = opened.read(1)[0] ^ (1 << bit)
        opened.seek(at)
        opened.write(bytes([byte]))
        return f"bit {bit} of byte {at} of {size} of {file.name}"


def find(data: Path, name: str) -> Path | None:
    """The newest file of this name, or whose name begins so and goes on with a number."""
    found = [file for file in data.iterdir() if file.name == name or file.name.removeprefix(name + "-").isdigit()]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


@pytest.mark.parametrize("name", FILES)
def test_a_bit_that_flips_under_a_running_daemon_costs_no_row_in_silence(
    used: Path, right: Array, tmp_path: Path, name: str
) -> None:
    rng, refused = random.Random(name), 0
    for number in range(FLIPS):
        directory = tmp_path / str(number)
        shutil.copytree(used, directory)
        daemon = Daemon(directory, *SETTINGS)
        control, data = daemon.control(), directory / "data"
        append(control, KNOWN, BEFORE)
        file = find(data, name)
        done = flip(file, rng) if file is not None else f"there is no {name}"
        append(control, KNOWN + BEFORE, BEHIND)
        rows = KNOWN + BEFORE + BEHIND
        np.testing.assert_allclose(model(control, rows), right, rtol=1e-9, err_msg=f"before the end: {done}")
        control.close()
        if number % 2:
            daemon.kill()
        else:
            assert daemon.terminate()[0] == 0, done
        before = daemon.log()
        assert "panicked" not in before, f"{done}\n{before}"
        daemon.close()
        try:
            again = Daemon(directory, *SETTINGS)
        except RuntimeError as error:
            # It does not start, says what it has found, and leaves all as it was.
            said = str(error).removeprefix("criticd did not start:\n").removeprefix(before)
            assert "criticd: " in said and "panicked" not in said, f"{done}\n{said}"
            refused += 1
            continue
        control = again.control()
        assert control.wait_for_offset(rows)["offset"] == rows, done
        np.testing.assert_allclose(model(control, rows), right, rtol=1e-9, err_msg=f"after the start: {done}")
        append(control, rows, EACH)
        receive(again.subscribe("status"))
        assert "panicked" not in again.log(), f"{done}\n{again.log()}"
        control.close()
        again.close()
    print(f"\n{name}: {refused} of {FLIPS} starts refused")
