"""Single bits that flip in the files of a data directory while a daemon has them open.

Whatever file it is: no row that was acknowledged is lost in silence, and no model is another one. Either the next start
has them all, or it says what is damaged and changes nothing.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from client import Array, Control, Daemon, Refused, receive, when

pytestmark = [pytest.mark.nightly, pytest.mark.long]

# Flips of each file: some of them change nothing that is ever read.
FLIPS = int(os.environ.get("CRITICD_FLIPS", "6"))
SETTINGS = ("critic.dictionary_max=30", "critic.refit_first_rows=0", "checkpoint_rows=500", "journal_rows_max=100000")
STATES = np.random.default_rng(7).normal(size=(3001, 2))
# Rows of the table that is learned first, rows that the directory has besides, those before the flip, and those behind it; all in
# appends of so many.
TABLE, KNOWN, BEFORE, BEHIND, EACH = 100, 1600, 300, 300, 100
ALL = TABLE + KNOWN + BEFORE + BEHIND
# What files are called, `*` for their numbers.
FILES = (
    "journal.sqlite",
    "journal.sqlite-wal",
    "journal.sqlite-shm",
    "journal.mark",
    "checkpoint-*",
    "history",
    "history.models",
)
FILES += ("quarantine.sqlite", "quarantine.sqlite-wal", "endpoints.json", "lock")
FILES += ("warm-start.json", "set-aside/default-*.model", "starting.json")


def append(control: Control, first: int, rows: int) -> None:
    for at in range(first, first + rows, EACH):
        states = STATES[at : at + EACH + 1]
        reply = control.ask("append", stream="s", session="run", seq=at, states=states, rewards=states[:-1, 0])
        assert reply["next_seq"] == at + EACH


def model(control: Control, rows: int) -> Array:
    """Everything that the model says, once it has learned `rows` rows."""
    control.ask("value", states=STATES[:1], min_offset=rows)
    snapshot = control.ask("snapshot", variance=True)
    assert snapshot["offset"] == rows, snapshot["offset"]
    return np.concatenate([np.ravel(snapshot[name]) for name in ("dictionary", "weights", "variance")])


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a journal of a table and of rows, checkpoints, a past, a model that was set aside, and a message that was refused."""
    directory = tmp_path_factory.mktemp("used")
    rows = [f"{x},{y},{x},{int(k == TABLE - 1)}\n" for k, (x, y) in enumerate(STATES[:TABLE].tolist())]
    (directory / "t.csv").write_text("state_0,state_1,reward,terminated\n" + "".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        # Given at every start, as in a unit file.
        patch.setenv("CRITICD_WARM_START", str(directory / "t.csv"))
        use(directory / "d")
        yield directory / "d"


def use(directory: Path) -> None:
    daemon = Daemon(directory, *SETTINGS, "critic.discount=0.8")
    model(daemon.shared_control(), TABLE)
    assert daemon.terminate()[0] == 0
    daemon.close()
    daemon = Daemon(directory, *SETTINGS)
    control = daemon.control()
    append(control, 0, KNOWN)

    def is_learned_again() -> bool:
        critic = control.ask("status")["critics"][0]
        return critic["rebuild"] is None and bool(critic["transitions"] == TABLE + KNOWN)

    when(is_learned_again, "the critic with another discount")
    with pytest.raises(Refused):
        control.ask("append", stream="s", session="run", seq=KNOWN, states=[[0.0], [1.0]], rewards=[0.0])
    control.ask("checkpoint")
    assert daemon.terminate()[0] == 0
    daemon.close()
    # As a start leaves it that is killed while it reads the journal.
    (directory / "data" / "starting.json").write_text('{"of":1700,"rows":900}')


@pytest.fixture(scope="module")
def right(used: Path, tmp_path_factory: pytest.TempPathFactory) -> Array:
    """What the model says that has learned all of the rows where no bit flips."""
    directory = tmp_path_factory.mktemp("right") / "d"
    shutil.copytree(used, directory)
    daemon = Daemon(directory, *SETTINGS)
    append(daemon.shared_control(), KNOWN, BEFORE + BEHIND)
    found = model(daemon.shared_control(), ALL)
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
    """The newest file of this name."""
    return max(data.glob(name), key=lambda file: file.stat().st_mtime, default=None)


@pytest.mark.parametrize("name", FILES)
def test_a_bit_that_flips_under_a_running_daemon_costs_no_row_in_silence(
    used: Path, right: Array, tmp_path: Path, name: str
) -> None:
    rng, refused, flipped = random.Random(name), 0, 0
    for number in range(FLIPS):
        directory = tmp_path / str(number)
        shutil.copytree(used, directory)
        data = directory / "data"
        # The daemon deletes this one once it has read the journal.
        stale = flip(data / name, rng) if name == "starting.json" else ""
        daemon = Daemon(directory, *SETTINGS)
        control = daemon.control()
        append(control, KNOWN, BEFORE)
        file = find(data, name)
        done = stale or (flip(file, rng) if file is not None else f"there is no {name}")
        flipped += " of " in done
        append(control, KNOWN + BEFORE, BEHIND)
        np.testing.assert_allclose(model(control, ALL), right, rtol=1e-9, err_msg=f"before the end: {done}")
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
        assert control.wait_for_offset(ALL)["offset"] == ALL, done
        np.testing.assert_allclose(model(control, ALL), right, rtol=1e-9, err_msg=f"after the start: {done}")
        append(control, ALL - TABLE, EACH)
        receive(again.subscribe("status"))
        assert "panicked" not in again.log(), f"{done}\n{again.log()}"
        control.close()
        again.close()
    # Some are there only now and then, or are empty.
    assert flipped == FLIPS or name in ("journal.sqlite-wal", "quarantine.sqlite-wal"), flipped
    print(f"\n{name}: {refused} of {FLIPS} starts refused")
