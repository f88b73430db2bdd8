"""`criticd demo` as somebody at a terminal meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from client import BINARY, PATIENCE_S, when
from conftest import Start


def demo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [BINARY, "demo", "gridworld", "--copies", "1", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_dashboard_opens_and_stays_until_ctrl_c(tmp_path: Path) -> None:
    browser = tmp_path / "xdg-open"
    browser.write_text(f'#!/bin/sh\necho "$1" >{tmp_path}/opened\n')
    browser.chmod(0o755)
    command = [BINARY, "demo", "gridworld", "--seconds", "2", "--stay", "--open", "--out", "grid.png"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout is not None
        said = ""
        while "until Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        (page,) = re.findall(r"stays at (http://\S+) until Ctrl-C", said)
        # The demo starts the browser and does not wait for it.
        opened = tmp_path / "opened"
        when(lambda: opened.exists() and opened.read_text() == f"{page}\n", "the browser is told")
        with urllib.request.urlopen(page, timeout=PATIENCE_S) as answer:
            assert b"criticd" in answer.read()
        # The page says what the demo has shown.
        with urllib.request.urlopen(f"{page}api/history", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["ended"].startswith("The demo has ended. From ")
        assert (tmp_path / "grid.png").exists() and process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_browser_that_is_not_there_is_said(tmp_path: Path) -> None:
    command = [BINARY, "demo", "gridworld", "--seconds", "2", "--open", "--out", "grid.png"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 and "cannot open a browser" in done.stderr


def test_a_demo_streams_into_a_daemon_that_runs(start: Start, tmp_path: Path) -> None:
    daemon = start("critic.discount=0.9")
    control = daemon.control()
    into = f"--into={daemon.directory / 'data'}"
    rows = 0
    for _ in range(2):
        done = demo("--seconds", "2", "--rate", "1000", "--json", into, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        # The second one is another session: none of its rows is known already.
        rows += said["rows"]["streamed"]
        status = control.wait_for_offset(rows)
        assert status["offset"] == rows and status["duplicates"] == 0 and not status["rejected"]
        assert said["discount"] == 0.9
    done = demo("--seconds", "1", "--rate", "1000", into, folder=tmp_path)
    assert f"its dashboard is at http://{daemon.endpoints['http']}/" in done.stdout
    assert control.ask("ping")["uptime_s"] > 0


def test_a_daemon_of_other_states_is_refused(start: Start, tmp_path: Path) -> None:
    daemon = start("state_dim=3")
    done = demo(f"--into={daemon.directory / 'data'}", folder=tmp_path)
    assert done.returncode == 1
    assert "the states of this daemon have 3 numbers, the simulator's 2" in done.stderr


def test_no_daemon_is_said(tmp_path: Path) -> None:
    done = demo(f"--into={tmp_path}", folder=tmp_path)
    assert done.returncode == 1
    assert f"no daemon has written its endpoints into {tmp_path}" in done.stderr


def test_an_agent_learns_until_time_is_up(tmp_path: Path) -> None:
    def played(*arguments: str, found: Callable[[subprocess.CompletedProcess[str]], int]) -> subprocess.CompletedProcess[str]:
        """A demo with a few episodes: on a busy machine they take longer."""
        for seconds in (4, 16, 64):
            command = [BINARY, "demo", "cartpole", "--seconds", str(seconds), *arguments]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * PATIENCE_S)
            if "did not reply within 5.0 s" in done.stderr:
                continue  # The demo, of which its daemon is a part, stood still for as long.
            assert done.returncode == 0, done.stderr
            if found(done) > 2:
                return done
        raise AssertionError(done)

    line = r"episode +1 .* return +\d+\.0 +mean of +1"
    done = played("--out", "pole.png", found=lambda done: len(re.findall(r"episode +\d", done.stderr)))
    assert re.search(line, done.stderr), done.stderr
    assert "cartpole: " in done.stdout and "dictionary" in done.stdout
    assert (tmp_path / "pole.png").stat().st_size > 10_000
    document = json.loads(played("--json", found=lambda done: json.loads(done.stdout)["episodes"]).stdout)
    assert document["episodes"] == len(document["returns"]) and document["rows"] == sum(document["returns"])
