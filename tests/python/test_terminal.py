"""A daemon and the terminal that it was started from."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, pack, when
from conftest import Start


def printed(terminal: int) -> bytes:
    """What comes next on a terminal."""
    ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
    assert ready, f"nothing was printed within {PATIENCE_S:.0f} s"
    return os.read(terminal, 65_536)


def ended(process: int) -> int:
    """The exit code of a child, once it has ended."""
    statuses: list[int] = []

    def has_ended() -> bool:
        found, status = os.waitpid(process, os.WNOHANG)
        statuses.append(status)
        return found == process

    when(has_ended, "the end of the process")
    return os.waitstatus_to_exitcode(statuses[-1])


def as_by_hand() -> None:
    """What runs the tests may ignore the signals of a terminal, and a child would inherit that."""
    for signal_ in (signal.SIGHUP, signal.SIGINT):
        signal.signal(signal_, signal.SIG_DFL)


def start_in_a_terminal(directory: Path, *before: str) -> tuple[int, int]:
    """The process that runs `criticd serve` in a terminal of its own, and the other end of that terminal."""
    command = [*before, BINARY, "serve", "--data-dir", str(directory), "--set", "http=off"]
    for socket in ("ingest", "control", "publish"):
        command += [f"--{socket}", "tcp://127.0.0.1:0"]
    process, terminal = pty.fork()
    if process == 0:
        as_by_hand()
        os.chdir(directory.parent)
        os.execvp(command[0], command)
    when((directory / "endpoints.json").exists, "a daemon")
    return process, terminal


def test_a_closed_terminal_ends_its_daemon(tmp_path: Path) -> None:
    process, terminal = start_in_a_terminal(tmp_path / "data")
    # SIGHUP alone reads the settings again.
    os.kill(process, signal.SIGHUP)
    said = b""
    while b"event=reloaded" not in said:
        said += printed(terminal)
    assert os.waitpid(process, os.WNOHANG) == (0, 0)
    os.close(terminal)
    assert ended(process) == 0
    assert not (tmp_path / "data" / "endpoints.json").exists()


def test_questions_that_nobody_reads_end_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,cost\n0,1\n1,2\n")
    ours, theirs = pty.openpty()
    unread, closed = os.pipe()
    os.close(unread)
    command = [BINARY, "init", str(tmp_path / "t.csv")]
    asked = subprocess.run(
        command, stdin=theirs, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
    )
    for descriptor in (ours, theirs, closed):
        os.close(descriptor)
    told = "criticd: standard output is closed, and criticd init cannot show its questions: add --yes"
    assert asked.returncode == 1 and asked.stderr.strip() == told
    assert not (tmp_path / "t.toml").exists()


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
    ended(process)
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
    control = daemon.control()
    control.wait_for_learned(300)
    # A model that nobody has judged yet takes more lines.
    when(lambda: all(each["trust"] for each in control.ask("status")["critics"]), "a judgement of each critic")
    process, terminal = pty.fork()
    if process == 0:
        as_by_hand()
        # Before its first view, so that all of them are of this size.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 100, 0, 0))
        command = [BINARY, "status", "--watch", "--interval", "0.2", "--data-dir", str(daemon.directory / "data")]
        os.execvp(BINARY, [*command, "--timeout", f"{PATIENCE_S:.0f}"])
    screen, text, deadline = Screen(lines, 100), "", time.monotonic() + PATIENCE_S
    # Two whole views, and what surrounds them.
    while text.count("Ctrl-C ends this") < 4:
        assert time.monotonic() < deadline, text
        text += printed(terminal).decode(errors="replace")
    views = text.split("\x1b[H")
    for view in views[-3:-1]:
        screen.feed("\x1b[H" + view)
    shown = "\n".join(screen.rows)
    for words in ("rows per second", "Ctrl-C ends this", "walk", "300 taken in"):
        assert words in shown, shown
    if critics > 1:
        assert " more critics" in shown and "generation" in shown, shown
    os.kill(process, signal.SIGINT)
    ended(process)
    os.close(terminal)


def test_a_fit_says_what_it_is_at_on_a_terminal_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    states = random.uniform(-1.0, 1.0, (1200, 2))
    rewards = np.sin(3.0 * states[:, 0]) + 0.1 * random.normal(size=1200)
    ends = np.arange(1200) % 20 == 19
    rows = {"states": states, "next_states": np.roll(states, -1, 0), "rewards": rewards, "truncated": ends}
    np.savez(tmp_path / "t.npz", terminated=np.zeros(1200, bool), **rows)
    command = [str(BINARY), "fit", "t.npz", "--discount", "0.5", "--budget", "2", "--out", "m"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while process.poll() is None or select.select([ours], [], [], 0.0)[0]:
            try:
                shown += printed(ours)
            except OSError:
                # Nobody holds the other end any more.
                break
        assert process.wait(PATIENCE_S) == 0, shown
    os.close(ours)
    text = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown.decode())
    assert re.search(r"1 of 4, selecting a model: \d+ % of --budget, at most about \d+ s left", text), text
    assert re.search(r"3 of 4, predicting held-out episodes: (\d+ %, about \d+ s left|nearly done)", text), text
    piped = subprocess.run([*command, "--hold-out", "0"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert " of 4, " not in piped.stderr + piped.stdout, piped.stderr
