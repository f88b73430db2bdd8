"""The READMEs' snippets, run as they stand there but for the ports."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, ROOT, when
from conftest import Daemon, Start

PORTS = {"5750": "ingest", "5751": "control", "5752": "publish"}


def snippets(document: str, language: str, daemon: Daemon | None = None) -> list[str]:
    """What a document shows; with the addresses of a daemon in place of the usual ones."""
    found = re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    if daemon is None:
        return found
    there = daemon.endpoints
    return [re.sub(r"tcp://127\.0\.0\.1:(\d+)", lambda port: there[PORTS[port[1]]], text) for text in found]


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", text)]


def test_the_rover_gets_home_as_the_readme_says(tmp_path: Path) -> None:
    install, rover, own = snippets("README.md", "sh")
    assert "packaging/build wheel" in install
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "criticd").symlink_to(BINARY)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = run("bash", "-eu", "-c", rover)
    ((correlation, share),) = re.findall(r"held-out episodes: correlation (\S+), .* holds (\d+) %", said)
    assert float(correlation) > 0.8 and int(share) > 75
    # The picture in the repository is of this size, so that its text can be read.
    size = (tmp_path / "rover.png").read_bytes()[16:24]
    assert size == (ROOT / "docs" / "rover.png").read_bytes()[16:24]
    load, _ = snippets("README.md", "python")
    value, deviation, low, high = numbers(run(sys.executable, "-c", load))
    assert -60 < low < value < high < -5 and value > -45 and 0 < deviation < 10
    assert "ended" in run("bash", "-eu", "-c", own)
    assert len((tmp_path / "values.txt").read_text().splitlines()) > 7000
    assert (tmp_path / "labels.csv").read_text().startswith("episode")


def test_the_readmes_live_lines_show_a_selected_value(start: Start) -> None:
    daemon = start("critic.discount=0.9")
    _, live = snippets("README.md", "python")
    assert "critic.wait(60, " in live
    patient = live.replace("critic.wait(60, ", f"critic.wait({PATIENCE_S}, ")
    environment = {**os.environ, "CRITICD_DATA_DIR": str(daemon.directory / "data")}
    command = [sys.executable, "-c", patient]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, env=environment)
    assert done.returncode == 0, done.stderr
    assert len([line for line in live.splitlines() if line]) <= 10
    answer = daemon.control().ask("value", states=[[0.0], [0.5]], min_offset=1000)
    assert numbers(done.stdout)[:2] == pytest.approx(np.ravel(answer["mean"]).tolist(), abs=0.5)


def test_the_snippets_of_the_protocol_run(start: Start) -> None:
    # The one refit is asked for, so that the model does not change between the snippet's look at it and ours.
    daemon = start("critic.discount=0.9", "critic.refit_first_rows=0")
    send, read = snippets("proto/README.md", "python", daemon)
    # The second may wait for news: rows keep coming meanwhile.
    subprocess.run([sys.executable, "-c", send], check=True, timeout=PATIENCE_S)
    control = daemon.control()
    control.wait_for_learned(1000)
    control.ask("value", states=[[0.5]], min_offset=1000)
    control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)
    reader = subprocess.Popen([sys.executable, "-c", read], stdout=subprocess.PIPE, text=True)
    seqs = itertools.count()

    def has_ended() -> bool:
        control.ask("append", stream="more", seq=next(seqs), state=[0.5], next_state=[0.55], reward=-0.5)
        time.sleep(0.1)
        return reader.poll() is not None

    when(has_ended, "what the snippet prints")
    output, _ = reader.communicate(timeout=PATIENCE_S)
    assert reader.returncode == 0
    expected = control.ask("value", states=[[0.5]])["mean"][0]
    assert any(abs(number - expected) < 0.5 for number in numbers(output)), (output, expected)
