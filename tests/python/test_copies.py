"""Backups and repairs of journals of 8 to 200 MiB while rows come: none fails, no copy lacks an acknowledged row."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, Control, Daemon, when
from conftest import Start

pytestmark = [pytest.mark.nightly, pytest.mark.long]

BACKUPS = 200
# One repair for each so many backups.
EACH = 4
SMALLEST, LARGEST = 8 << 20, 200 << 20
# 2 kB a row.
DIM = 250


class Load:
    """Rows without end: by the hundred as long as the journal is smaller than it should be, one by one then."""

    def __init__(self, daemon: Daemon) -> None:
        self.control = Control(daemon.endpoints["control"])
        self.journal = daemon.directory / "data" / "journal.sqlite"
        self.acknowledged, self.size, self.over = 0, 0, False

    def journal_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.journal.parent.glob("journal.sqlite*"))

    def run(self) -> None:
        generator = np.random.default_rng(0)
        while not self.over:
            count = 100 if self.journal_bytes() < self.size else 1
            # Each request is a group, so one row takes two pages: without a pause the journal outgrows its size.
            time.sleep(0.02 if count == 1 else 0)
            states = generator.normal(size=(count + 1, DIM))
            reply = self.control.ask("append", stream="s", seq=self.acknowledged, states=states, rewards=states[:-1, 0])
            self.acknowledged = reply["next_seq"]
        self.control.close()


@contextmanager
def load(daemon: Daemon) -> Iterator[Load]:
    rows = Load(daemon)
    thread = threading.Thread(target=rows.run)
    thread.start()
    yield rows
    rows.over = True
    thread.join()


def done(*arguments: object) -> str:
    result = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=10 * PATIENCE_S)
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return result.stdout + result.stderr


def rows_of(directory: Path) -> int:
    return int(json.loads(done("inspect", directory, "--json"))["offset"])


def damage(journal: Path, generator: random.Random) -> None:
    """Lose two pages of the second half."""
    size = journal.stat().st_size
    with journal.open("r+b") as file:
        file.seek(generator.randrange(size // 2, size - 8192))
        file.write(bytes(8192))


def test_copies_beside_load(start: Start, tmp_path: Path) -> None:
    daemon = start("critic.dictionary_max=20", "critic.refit_first_rows=0", "window_rows=5000", "checkpoint_rows=5000")
    generator, repaired, lost = random.Random(0), 0, 0
    with load(daemon) as rows:
        for number in range(BACKUPS):
            rows.size = SMALLEST + (LARGEST - SMALLEST) * number // (BACKUPS - 1)
            when(lambda: rows.journal_bytes() >= rows.size, f"{rows.size} bytes")
            acknowledged = rows.acknowledged
            out, back = tmp_path / "backup", tmp_path / "back"
            done("backup", daemon.endpoints["control"] if number % 2 else daemon.directory / "data", "--out", out)
            if number % EACH == 0:
                done("restore", out, back)
                assert rows_of(back) >= acknowledged
                damage(back / "journal.sqlite", generator)
                before = rows_of(back) if "nothing to repair" in done("repair", back) else 0
                done("repair", "--truncate", back, "--yes")
                assert "nothing to repair" in done("repair", back) and rows_of(back) >= before
                repaired, lost = repaired + 1, lost + (before == 0)
                for path in tmp_path.glob("back*"):
                    shutil.rmtree(path)
            else:
                # The command has checked each row; that nothing is missing, its end says.
                assert rows_of(out) >= acknowledged
                shutil.rmtree(out)
    print(f"\n{BACKUPS} backups, {repaired} repairs, {lost} where the damage mattered, of {rows.acknowledged} rows")
    assert rows.acknowledged * DIM * 8 > LARGEST // 2 and lost > 0
