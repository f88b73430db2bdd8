"""The table of tests/README.md puts every file of tests into a tier, and into the one in which its tests run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from client import PATIENCE_S, ROOT

TIERS = {"quick", "gate", "nightly"}
FILES = [
    "tests/it/**/*.rs",
    "crates/*/tests/**/*.rs",
    "fuzz/tests/*.rs",
    "tests/memory.rs",
    "tests/python/test_*.py",
    "python/tests/test_*.py",
]
# Prints of each test the file, and whether it is one of the night.
COLLECT = """
import json, sys, pytest

class Found:
    def pytest_collection_finish(self, session):
        of = [(str(item.path), item.get_closest_marker("nightly") is not None) for item in session.items]
        open(sys.argv[2], "w").write(json.dumps(of))

sys.exit(pytest.main(["--collect-only", "-q", "-m", "nightly or not nightly", sys.argv[1]], plugins=[Found()]))
"""


def table() -> list[tuple[str, set[str]]]:
    """The rows of the table: a file or a folder, and its tiers. Several may share a row."""
    rows = []
    for line in (ROOT / "tests" / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        names = re.findall(r"`((?:tests|crates|fuzz|python)/[^`]*)`", cells[0])
        if line.lstrip().startswith("|") and names:
            tiers = set(re.findall(r"\w+", cells[1]))
            assert tiers and tiers <= TIERS, line
            rows += [(name, tiers) for name in names]
    return rows


def files() -> list[str]:
    """Every file of tests. What others are made of, and the beginning of a program of them, is none."""
    found = {path.relative_to(ROOT) for pattern in FILES for path in ROOT.glob(pattern)}
    return sorted(str(path) for path in found if path.name != "main.rs" and "support" not in path.with_suffix("").parts)


def tiers_of(file: str) -> set[str]:
    """The tiers of its own row, or of the folder's that is nearest."""
    folders = [row for row in table() if row[0].endswith("/") and file.startswith(row[0])]
    own = [tiers for name, tiers in table() if name == file]
    return own[0] if own else max(folders, key=lambda row: len(row[0]))[1] if folders else set()


def test_what_the_table_names_is_there_and_named_once() -> None:
    names = Counter(name for name, _ in table())
    assert [name for name, count in names.items() if count > 1] == []
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert [name for name in names if (ROOT / name).is_dir() != name.endswith("/")] == []


def test_no_file_is_in_no_tier() -> None:
    assert [file for file in files() if not tiers_of(file)] == []


@pytest.mark.parametrize("suite", ["tests/python", "python/tests"])
def test_tiers_of_python_files_are_those_of_their_tests(suite: str, tmp_path: Path) -> None:
    out = tmp_path / "collected"
    command = [sys.executable, "-P", "-c", COLLECT, suite, str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    nightly: dict[str, set[bool]] = {}
    for path, at_night in json.loads(out.read_text()):
        nightly.setdefault(str(Path(path).relative_to(ROOT)), set()).add(at_night)
    assert nightly.keys() == {file for file in files() if file.startswith(f"{suite}/")}
    for file, found in nightly.items():
        tiers = tiers_of(file)
        assert ("nightly" in tiers) == (True in found), (file, tiers, "nightly tests" if True in found else "none nightly")
        assert bool(tiers - {"nightly"}) == (False in found), (file, tiers)
