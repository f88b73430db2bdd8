"""Four people on their first day: each path from an empty environment to an answer, by what the documents say.

Each step prints its time, and for a stranger how many lines were typed. What they install is the wheel of the program
under test, and nothing else of this checkout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from client import BINARY, PACKAGED, PATIENCE_S, ROOT, Control, pack, when
from test_packaging import PACKAGING, build
from test_site import record, snippets

pytestmark = [pytest.mark.nightly, pytest.mark.long]


@contextmanager
def step(what: str, *typed: str) -> Iterator[None]:
    """Print how long it takes, and of how many lines what was typed is."""
    began = time.monotonic()
    yield
    lines = [line for text in typed for line in text.replace("\\\n", "").splitlines() if line.strip(" \n")]
    print(f"{time.monotonic() - began:6.1f} s  {what}" + (f", {len(lines)} lines typed" if typed else ""))


class Desk:
    """A person's directory and environment, into which the wheel has been installed."""

    def __init__(self, folder: Path, *packages: str) -> None:
        self.folder, self.home = folder, folder / "venv"
        self.environment = {"PATH": f"{self.home / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "MPLBACKEND": "Agg"}
        build(folder / "dist", "wheel")
        (wheel,) = (folder / "dist").glob("*.whl")
        with step("install"):
            subprocess.run([sys.executable, "-m", "venv", self.home], check=True, timeout=5 * PATIENCE_S)
            install = [self.home / "bin" / "python", "-m", "pip", "--quiet", "install", wheel, *packages]
            subprocess.run(install, check=True, timeout=5 * PATIENCE_S)

    def run(self, command: str) -> str:
        """What a line of a shell prints."""
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, name: str, code: str) -> str:
        """What a program of theirs prints."""
        (self.folder / name).write_text(code)
        return self.run(f"python {name}")


def test_a_stranger_gets_pictures_and_values_from_the_readme(tmp_path: Path) -> None:
    shown = snippets(ROOT / "README.md")
    install, rover, own = [found.code for found in shown if found.language == "sh"]
    load, live = [found.code for found in shown if found.language == "python"]
    began = time.monotonic()
    desk = Desk(tmp_path, "gymnasium[classic-control]")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    demo = "criticd demo pendulum --seconds 5 --out first.png"
    assert "pip install" in install and "criticd demo pendulum" in install
    with step("first picture, of a demo", demo):
        desk.run(demo)
    print(f"{time.monotonic() - began:6.1f} s  from wheel to first picture, {len(install.splitlines())} lines typed")
    with step("a robot's log to a picture with errors", rover):
        said = desk.run(rover)
    assert "held-out episodes" in said and (tmp_path / "rover.png").read_bytes().startswith(b"\x89PNG")
    with step("what is understood, values, labels of the log", own):
        desk.run(own)
    with step("a value in Python", load):
        desk.python("value.py", load)
    environment = (ROOT / "examples" / "python" / "gymnasium_ten_lines.py").read_text()
    for name, program in {"a live value": live, "an environment's value": environment}.items():
        (tmp_path / "live.py").write_text(program)
        with step(name, "criticd serve", program):
            desk.run(f"""
                export CRITICD_DATA_DIR="$PWD/{name}" CRITICD_HTTP=127.0.0.1:0
                export CRITICD_INGEST=tcp://127.0.0.1:0 CRITICD_CONTROL=tcp://127.0.0.1:0 CRITICD_PUBLISH=tcp://127.0.0.1:0
                criticd serve > serve.log 2>&1 &
                until criticd status > /dev/null 2>&1; do sleep 0.1; done
                python live.py
                criticd stop "$CRITICD_DATA_DIR"
            """)
    print(f"{time.monotonic() - began:6.1f} s  in all")


def test_an_engineer_with_a_robots_log_gets_a_value_that_holds(tmp_path: Path) -> None:
    began = time.monotonic()
    desk = Desk(tmp_path, "mcap")
    with step("rows out of a recording"):
        record(tmp_path / "run.mcap")
        (recipe, *_) = [
            found for found in snippets(ROOT / "docs" / "recipes" / "ros2.md") if found.language == "python"
        ]
        desk.python("rows.py", recipe.code)
        desk.run("criticd fit run.csv --state x,battery --reward=-cost --episode episode --time time "
                 "--assume-terminated never --discount 0.95 --out run.model")  # fmt: skip
    tutorial = snippets(ROOT / "docs" / "tutorial.md")
    programs = {snippet.note: snippet.code for snippet in tutorial if snippet.note.endswith(".py")}
    with step("a log with a cost and missions"):
        desk.python("missions.py", programs["missions.py"])
    columns = (
        "--state x,battery --units m,V --action u --reward=-cost --episode mission --time second --terminated arrived"
    )
    understand, fit = (f"criticd fit missions.csv {columns} {rest}" for rest in ("--dry-run", "--discount 0.95 --out missions.model"))
    with step("what is understood", understand):
        said = desk.run(understand)
        assert "x" in said and "battery" in said and "80" in said
    with step("fit", fit):
        said = desk.run(fit)
    found = re.match(r"predicts the returns of 8 held-out episodes: correlation ([0-9.]+).* holds (\d+) %", said)
    assert found is not None and float(found[1]) > 0.9, said
    with step("check against missions that were never seen", programs["check.py"]):
        said += "\n" + desk.python("check.py", programs["check.py"])
    (correlation,), (share,) = re.findall(r"^correlation (\S+)", said, re.M), re.findall(r"interval holds (\d+)%", said)
    print(f"         held-out {found[1]}, {found[2]} %; fresh missions {correlation}, {share} %")
    assert float(correlation) > 0.95 and int(share) > 75
    with step("value, picture, labels, ONNX"):
        (tmp_path / "states.csv").write_text("x,battery\n1,12\n4,12\n")
        value = json.loads(desk.run("criticd value missions.model states.csv --json"))
        # Nearer to the goal less is left to pay.
        assert value["mean"][1] > value["mean"][0]
        desk.run("criticd plot missions.model --out value.png")
        desk.run(f"criticd label missions.csv {columns} --discount 0.95 --model missions.model --out labels.csv")
        desk.run("criticd export missions.model --onnx --out missions.onnx")
    assert (tmp_path / "value.png").read_bytes().startswith(b"\x89PNG")
    header = (tmp_path / "labels.csv").read_text().split("\n", 1)[0].split(",")
    assert {"mission", "episode"} & set(header) and {"value", "std", "advantage", "return", "td_error", "known"} <= set(
        header
    )
    print(f"{time.monotonic() - began:6.1f} s  in all")


# Stable-Baselines3 brings gigabytes that the gate does without: pip install stable-baselines3 tensorboard.
if importlib.util.find_spec("stable_baselines3"):

    def test_a_researcher_sees_a_second_critic_beside_ppo(tmp_path: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        began = time.monotonic()
        (recipe,) = [found for found in snippets(ROOT / "docs" / "recipes" / "sb3.md") if found.language == "python"]
        assert "agent.learn(20_000," in recipe.code
        (tmp_path / "train.py").write_text(recipe.code.replace("20_000", "4_096"))
        with step("4096 steps of PPO on four copies of CartPole"):
            environment = {**os.environ, "CRITICD_BIN": BINARY}
            command = [sys.executable, "train.py"]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=10 * PATIENCE_S
            )
            assert done.returncode == 0, done.stderr
        (folder,) = {path.parent for path in (tmp_path / "runs").rglob("events*")}
        events = EventAccumulator(str(folder)).Reload()
        tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("criticd/")]
        print(f"         {', '.join(tags)}")
        for tag in tags:
            print(f"         {tag}: {events.Scalars(tag)[-1].value:.3f}")
        assert sum("explained_variance" in tag for tag in tags) >= 2
        assert any("std" in tag for tag in tags)
        print(f"{time.monotonic() - began:6.1f} s  in all")


class Pod:
    """The container of the StatefulSet as a process: its image's root, its user, its volume and its settings."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "rootfs"
        documents = yaml.safe_load_all((PACKAGING / "kubernetes" / "criticd.yaml").read_text())
        (found,) = [document["spec"]["template"]["spec"] for document in documents if document["kind"] == "StatefulSet"]
        (self.container,) = found["containers"]
        self.user = found["securityContext"]["runAsUser"]
        self.grace_s = found.get("terminationGracePeriodSeconds", 30)
        subprocess.run([PACKAGING / "rootfs", PACKAGED, self.root], check=True, timeout=PATIENCE_S)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # On ports of its own: other tests may run beside this one.
        words = ["/usr/bin/criticd", "serve", "--config", "/etc/criticd/criticd.toml", "--http", "127.0.0.1:0"]
        for socket in ("ingest", "control", "publish"):
            words += [f"--{socket}", "tcp://127.0.0.1:0"]
        command = ["chroot", f"--userspec={self.user}:{self.user}", str(self.root), *words]
        (self.data / "endpoints.json").unlink(missing_ok=True)
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

        def is_ready() -> bool:
            assert self.process is not None and self.process.poll() is None
            return (self.data / "endpoints.json").exists() and self.probe("readinessProbe") == 200

        when(is_ready, "a pod that is ready")

    @property
    def data(self) -> Path:
        return self.root / "var" / "lib" / "criticd"

    @property
    def endpoints(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.data / "endpoints.json").read_text())
        return found

    def get(self, path: str) -> tuple[int, str]:
        with urllib.request.urlopen(f"http://{self.endpoints['http']}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()

    def probe(self, name: str) -> int:
        try:
            return self.get(self.container[name]["httpGet"]["path"])[0]
        except OSError:
            return 0

    def stop(self, how: signal.Signals) -> int:
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(how)
        code = self.process.wait(timeout=PATIENCE_S)
        print(f"         ended after {time.monotonic() - began:.1f} s; a cluster gives it {self.grace_s} s")
        return code


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root file system of a process")
def test_an_operator_runs_stops_kills_and_watches_it(tmp_path: Path) -> None:
    import zmq

    began = time.monotonic()
    with step("the image's root"):
        pod = Pod(tmp_path)
    with step("start until ready"):
        pod.start()
    try:
        assert pod.probe("livenessProbe") == 200
        states = np.random.default_rng(0).normal(size=(501, 2))
        rows = {"stream": "robot", "session": "run", "states": states, "rewards": states[:-1].sum(axis=1)}
        with step("500 rows, acknowledged"):
            control = Control(pod.endpoints["control"])
            assert control.ask("append", seq=0, **rows)["accepted"] == 500
            assert control.ask("value", states=states[:3], min_offset=500)["offset"] == 500
        with step("metrics, and what the alerts ask for"):
            wanted = set(re.findall(r"\bcriticd_\w+", (ROOT / "examples" / "alerts.yml").read_text()))
            # Scores and alarms are there after a refit, the rows that a start recovers during the start alone.
            later = {"criticd_score_nats", "criticd_score_recent_nats", "criticd_recovery_rows"}
            later |= {"criticd_drift_alarms_total", "criticd_coverage_ratio"}
            # What returns say is there when so many have come.
            later |= {"criticd_return_bias", "criticd_return_error"}
            # Alarms before failures are there where the settings ask for them.
            later |= {"criticd_alarm_on", "criticd_alarm_hits_total", "criticd_alarm_mistakes_total"}
            assert len(wanted) > 5
            # Those of the model are there with the next status, a second later.

            def lacking() -> set[str]:
                return wanted - later - set(re.findall(r"^(criticd_\w+)", pod.get("/metrics")[1], re.MULTILINE))

            when(lambda: not lacking(), f"all of {wanted - later}")
        with step("kill -9, start, all rows are there"):
            pod.stop(signal.SIGKILL)
            pod.start()
            control = Control(pod.endpoints["control"])
            assert control.ask("status")["offset"] == 500
            # A producer that sends again what it is not sure of does no harm.
            assert control.ask("append", seq=0, **rows)["duplicates"] == 500
        with step("stop as a cluster does"):
            assert pod.stop(signal.SIGTERM) == 0
        with step("start again, learn on"):
            pod.start()
            control, push = Control(pod.endpoints["control"]), zmq.Context.instance().socket(zmq.PUSH)
            push.connect(pod.endpoints["ingest"])
            push.send(pack({"stream": "other", "states": states, "rewards": np.ones(500)}))
            assert control.wait_for_learned(1000)["critics"][0]["learned"] == 1000
            push.close(linger=0)
    finally:
        if pod.process is not None and pod.process.poll() is None:
            pod.stop(signal.SIGTERM)
    print(f"{time.monotonic() - began:6.1f} s  in all")
