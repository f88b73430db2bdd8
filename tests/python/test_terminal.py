"""A daemon and the terminal that it was started from."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest
from client import BINARY, PATIENCE_S


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start_in_a_terminal(directory: Path, *before: str) -> tuple[int, int]:
    """The process that runs `criticd serve` in a terminal of its own, and the other end of that terminal."""
    command = [*before, BINARY, "serve", "--data-dir", str(directory), "--set", "http=off"]
    for socket in ("ingest", "control", "publish"):
        command += [f"--{socket}", "tcp://127.0.0.1:0"]
    process, terminal = pty.fork()
    if process == 0:
        # What runs the tests may ignore the signal, and the daemon would inherit that.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(directory.parent)
        os.execvp(command[0], command)
    wait_for(directory / "endpoints.json")
    return process, terminal


def test_a_closed_terminal_ends_its_daemon(tmp_path: Path) -> None:
    process, terminal = start_in_a_terminal(tmp_path / "data")
    # SIGHUP alone reads the settings again.
    os.kill(process, signal.SIGHUP)
    said = b""
    while b"event=reloaded" not in said:
        said += os.read(terminal, 4096)
    assert os.waitpid(process, os.WNOHANG) == (0, 0)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not (tmp_path / "data" / "endpoints.json").exists()


@pytest.mark.parametrize("before", [("nohup",), ("setsid", "--wait")])
def test_others_outlive_it(tmp_path: Path, before: tuple[str, ...]) -> None:
    directory = tmp_path / "data"
    process, terminal = start_in_a_terminal(directory, *before)
    os.close(terminal)
    number = int((directory / "lock").read_text())
    # Once the signal has been dealt with: a second one reads the settings again.
    os.kill(number, signal.SIGHUP)
    time.sleep(1)
    assert (directory / "endpoints.json").exists()
    subprocess.run([BINARY, "stop", str(directory)], check=True, timeout=PATIENCE_S, capture_output=True)
    os.waitpid(process, 0)
    assert not (directory / "endpoints.json").exists()
