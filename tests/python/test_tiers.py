"""The table of tests/README.md puts every file of tests into a tier, and into the one in which its tests run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
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
# Programs of many files, by the name that the runner has for them, and the folders of these files.
PROGRAMS = {
    "criticd::it": "tests/it",
    "criticd-learner::it": "crates/learner/tests/it",
    "criticd-protocol::it": "crates/protocol/tests/it",
}
# What tests/quick runs of tests/python.
QUICK = {"tests/python/test_page.py"}
# Writes of each test the file, and how it is marked.
COLLECT = """
import json, sys, pytest

class Found:
    def pytest_collection_finish(self, session):
        of = [(str(item.path), [mark.name for mark in item.iter_markers()]) for item in session.items]
        open(sys.argv[2], "w").write(json.dumps(of))

sys.exit(pytest.main(["--collect-only", "-q", "-m", "nightly or long or not nightly", sys.argv[1]], plugins=[Found()]))
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


def quick_filter() -> str:
    config = tomllib.loads((ROOT / ".config" / "nextest.toml").read_text())
    return str(config["profile"]["quick"]["default-filter"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_file_of_a_program_is_in_it_and_in_quick_where_the_table_says_so(program: str) -> None:
    folder = ROOT / PROGRAMS[program]
    modules = set(re.findall(r"^mod (\w+);$", (folder / "main.rs").read_text(), re.MULTILINE))
    there = {path.stem for path in folder.glob("*.rs")} | {path.parent.name for path in folder.glob("*/mod.rs")}
    assert modules == there - {"main"}
    left_out = re.search(rf"binary_id\({program}\) & test\(/\^\(([\w|]+)\)::/\)", quick_filter())
    found = set(left_out[1].split("|")) if left_out else set()
    stated = {module for module in modules - {"support"} if "quick" not in tiers_of(f"{PROGRAMS[program]}/{module}.rs")}
    assert found == stated


def test_what_quick_leaves_out_by_name_is_there() -> None:
    functions = {
        name
        for pattern in ("src/**/*.rs", "tests/**/*.rs", "crates/**/*.rs")
        for path in ROOT.glob(pattern)
        for name in re.findall(r"\bfn (\w+)", path.read_text())
    }
    names = re.findall(r"test\((?:\w+::)*(\w+)\)", quick_filter())
    assert len(names) > 5
    assert [name for name in names if not any(function.startswith(name) for function in functions)] == []


@pytest.mark.parametrize("suite", ["tests/python", "python/tests"])
def test_tiers_of_python_files_are_those_of_their_tests(suite: str, tmp_path: Path) -> None:
    out = tmp_path / "collected"
    command = [sys.executable, "-P", "-c", COLLECT, suite, str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    marks: dict[str, list[set[str]]] = {}
    for path, of_test in json.loads(out.read_text()):
        marks.setdefault(str(Path(path).relative_to(ROOT)), []).append(set(of_test))
    assert marks.keys() == {file for file in files() if file.startswith(f"{suite}/")}
    for file, tests in marks.items():
        found = {"nightly" if "nightly" in each else "gate" for each in tests}
        if file in QUICK or (suite == "python/tests" and any(not each & {"nightly", "long"} for each in tests)):
            found.add("quick")
        assert tiers_of(file) == found, file
