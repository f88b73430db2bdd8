"""What the package writes: whole or as it was, where the path leads, with the mode that was there."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from criticd import Learner, tables
from criticd.policies import write_policy


def _learner() -> Learner:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(200, 2))
    learner = Learner(discount=0.9)
    learner.learn(states[:-1], states[:-1, 0], states[1:])
    learner.refit(wait=True)
    return learner


@pytest.fixture(scope="module")
def writers() -> dict[str, Callable[[Path], None]]:
    learner = _learner()
    columns = {"a": np.arange(600.0), "b": np.random.default_rng(1).normal(size=600)}
    return {
        "model": learner.snapshot().save,
        "learner": learner.save,
        "onnx": learner.snapshot().to_onnx,
        "csv": lambda path: tables.write(path, columns),
        "npz": lambda path: tables.write(path, columns),
        "policy": lambda path: write_policy(path, columns["b"][:, None], None),
    }


NAMES = ["model", "learner", "onnx", "csv", "npz", "policy"]


@pytest.mark.parametrize("name", NAMES)
def test_links_are_followed_and_modes_kept(
    name: str, writers: dict[str, Callable[[Path], None]], tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    kept = folder / f"kept.{name}"
    kept.write_bytes(b"before")
    kept.chmod(0o640)
    link = tmp_path / f"link.{name}"
    link.symlink_to(kept)
    writers[name](link)
    assert link.is_symlink() and link.readlink() == kept
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert kept.stat().st_size > 1000
    fresh = tmp_path / f"fresh.{name}"
    writers[name](fresh)
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(fresh.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode), "as any new file"
    # Some say when they were written.
    assert len(fresh.read_bytes()) == len(kept.read_bytes())
    assert sorted(path.name for path in folder.iterdir()) == [kept.name]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_stays_a_pipe(name: str, writers: dict[str, Callable[[Path], None]], tmp_path: Path) -> None:
    pipe = tmp_path / f"pipe.{name}"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    writers[name](pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    fresh = tmp_path / f"fresh.{name}"
    writers[name](fresh)
    # An archive in a pipe has the sizes of its files behind them.
    assert len(found[0]) > 1000
    assert len(found[0]) == len(fresh.read_bytes()) or name == "npz"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_stays_where_writing_fails(
    name: str, writers: dict[str, Callable[[Path], None]], tmp_path: Path
) -> None:
    path = tmp_path / f"kept.{name}"
    path.write_bytes(b"before")
    # The limit is for this thread's process as a whole: nothing else writes meanwhile.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.raises(OSError) as failed:
            writers[name](path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.value.errno == errno.EFBIG
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_directory_is_refused(writers: dict[str, Callable[[Path], None]], tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        writers["model"](tmp_path)
