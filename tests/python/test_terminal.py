"""A daemon and the terminal that it was started from."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, pack
from conftest import Start


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


class Screen:
    """The screen of a terminal of a few lines: text, moves to the first line, and clearing."""

    def __init__(self, lines: int, width: int) -> None:
        self.rows = [""] * lines
        self.width, self.row, self.most = width, 0, 0

    def feed(self, text: str) -> None:
        for part in re.split(r"(\x1b\[[?0-9;]*[A-Za-z]|\r+\n)", text):
            if part == "\x1b[H":
                self.row = 0
            elif part.endswith("\n"):
                self.row += 1
                self.most = max(self.most, self.row)
                # A terminal would scroll, and its first line be gone.
                assert self.row < len(self.rows), "the view is longer than the screen"
            elif part == "\x1b[J":
                self.rows[self.row :] = [""] * (len(self.rows) - self.row)
            elif part and not part.startswith("\x1b"):
                assert len(part) <= self.width, part
                self.rows[self.row] = part


@pytest.mark.parametrize(("dim", "critics"), [(1, 1), (348, 1), (2, 100)])
@pytest.mark.parametrize("lines", [24, 50])
def test_the_view_of_the_status_fits_the_screen(start: Start, dim: int, critics: int, lines: int) -> None:
    names = "".join(
        f'[[critic]]\nname = "c{k}"\nrefit_first_rows = 0\nrefit_score_drop = 0\ndictionary_max = 20\n'
        for k in range(critics)
    )
    daemon = start(config=f"state_dim = {dim}\n{names}")
    push, states = daemon.push(), np.random.default_rng(0).normal(size=(301, dim))
    push.send(pack({"stream": "walk", "states": states, "rewards": states[:-1, 0]}))
    daemon.control().wait_for_offset(300)
    process, terminal = pty.fork()
    if process == 0:
        # Before its first view, so that all of them are of this size.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 100, 0, 0))
        os.execvp(
            BINARY, [BINARY, "status", "--watch", "--interval", "0.2", "--data-dir", str(daemon.directory / "data")]
        )
    screen, text, deadline = Screen(lines, 100), "", time.monotonic() + PATIENCE_S
    # Two whole views, and what surrounds them.
    while text.count("Ctrl-C ends this") < 4:
        assert time.monotonic() < deadline, text
        text += os.read(terminal, 65536).decode(errors="replace")
    views = text.split("\x1b[H")
    for view in views[-3:-1]:
        screen.feed("\x1b[H" + view)
    shown = "\n".join(screen.rows)
    for words in ("rows per second", "Ctrl-C ends this", "walk", "300 taken in"):
        assert words in shown, shown
    if critics > 1:
        assert " more critics" in shown and "generation" in shown, shown
    os.kill(process, signal.SIGINT)
    os.waitpid(process, 0)
    os.close(terminal)
