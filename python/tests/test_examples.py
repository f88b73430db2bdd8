"""The examples and scripts run, for a few steps, against a real daemon, and say what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Start

from criticd.testing import Daemon, binary

EXAMPLES = ROOT / "examples" / "python"


def run(daemon: Daemon | None, script: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    if daemon is not None:
        environment["CRITICD_DATA_DIR"] = str(daemon.data_dir)
    done = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    tested = Path(__file__).read_text()
    assert all(f'"{path.name}"' in tested for path in EXAMPLES.glob("*.py"))


def test_ten_lines(start: Start) -> None:
    daemon = start()
    script = EXAMPLES / "gymnasium_ten_lines.py"
    said = run(daemon, script)
    assert re.search(r"value of .*: -[0-9.]+ \+- [0-9.]+", said)
    with daemon.client() as client:
        # What it has shown is what was learned: of a model that was selected, and surer than before any row.
        told = client.value([0.0, 0.0, 0.0], min_offset=2000, variance=True, known=True)
        status = client.status()
        assert status["offset"] == 2000 and status["critics"][0]["generation"] >= 2
        assert not told.provisional and told.known > 0.0
        prior = sum(status["critics"][0]["kernel"][key] for key in ("signal_variance", "bias_variance"))
        assert float(re.findall(r"\+- ([0-9.]+)", said)[-1]) < prior**0.5
    # As many as its name says: from the first line of the program proper.
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith(("import", "from", '"'))]
    assert len(lines) <= 10


def test_vector_environment(start: Start) -> None:
    daemon = start("critic.discount=0.95")
    said = run(daemon, EXAMPLES / "vector_environment.py", "--copies", "16", "--steps", "2000")
    rows, learned = (int(number) for number in re.findall(r"^(\d+) steps .* (\d+) rows", said)[0])
    assert rows == learned >= 2000
    values = [float(number) for number in re.findall(r"rad: +(-?[0-9.]+)", said)]
    # An upright pole is worth more than one that leans as far as it may.
    assert len(values) == 9 and values[4] > values[0] and values[4] > values[8]


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5"])
def test_mujoco(start: Start, name: str) -> None:
    said = run(start(), EXAMPLES / "mujoco_locomotion.py", "--env", name, "--steps", "1000")
    assert f"1000 steps of {name}" in said and "is worth" in said


@pytest.mark.filterwarnings("ignore:.*is set to None:UserWarning")  # what a dataset should say of its authors
def test_minari(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium
    import numpy as np

    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gymnasium.make("CartPole-v1", max_episode_steps=20)
    env.action_space.seed(0)
    episodes: list[EpisodeBuffer] = []
    ends: list[bool] = []
    for number in range(40):
        states, columns = [env.reset(seed=number)[0]], list[tuple[Any, ...]]()
        while not columns or not (columns[-1][2] or columns[-1][3]):
            action = env.action_space.sample()
            state, *rest, _ = env.step(action)
            states.append(state)
            columns.append((action, *rest))
        actions, rewards, terminations, truncations = (np.array(column) for column in zip(*columns, strict=True))
        ends.append(bool(terminations[-1]))
        parts = {"observations": np.array(states), "actions": actions, "rewards": rewards}
        flags = {"terminations": terminations, "truncations": truncations}
        episodes.append(EpisodeBuffer(id=number, **parts, **flags))
    made = {"dataset_id": "test/poles-v0", "buffer": episodes, "env": env, "data_format": "hdf5"}
    rows = minari.create_dataset_from_buffers(**made).total_steps
    assert 0 < sum(ends) < 40

    daemon = start()
    script = EXAMPLES / "minari_replay.py"
    said = run(daemon, script, "test/poles-v0", MINARI_DATASETS_PATH=str(tmp_path))
    assert f"40 episodes of test/poles-v0: {rows} rows, 0 known before, {rows} learned" in said
    said = run(daemon, script, "test/poles-v0", MINARI_DATASETS_PATH=str(tmp_path))
    assert f"{rows} known before, {rows} learned" in said
    # The same dataset, read by the daemon itself, by both ways.
    replay = [str(binary()), "replay", str(tmp_path / "test" / "poles-v0"), "--ack", "--session", "again"]
    subprocess.run([*replay, "--control", daemon.endpoints.control], check=True, timeout=60)
    with daemon.client() as client:
        assert client.streams()["default"].rows == rows
        counts = client.status()["critics"][0]["counts"]
        # An episode ends in a termination or a cut, and none leads over into the next.
        assert counts["terminations"] == 2 * sum(ends)
        assert counts["cuts"] == 2 * (40 - sum(ends))


def test_planner(start: Start) -> None:
    said = run(start(), EXAMPLES / "planner.py", "--steps", "200", "--plans", "16", "--horizon", "5")
    assert int(re.findall(r"(\d+) models used", said)[0]) >= 1
    assert int(re.findall(r"learned (\d+) rows", said)[0]) <= 200


def test_the_planners_simulator_is_gymnasiums(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium
    import numpy as np

    monkeypatch.syspath_prepend(EXAMPLES)
    import planner

    env = gymnasium.make("Pendulum-v1")
    state, _ = env.reset(seed=0)
    for _ in range(100):
        torque = env.action_space.sample()
        after, earned = planner.simulate(state[None].astype(float), torque.astype(float))
        state, reward, *_ = env.step(torque)
        np.testing.assert_allclose(after[0], state, atol=1e-5)
        assert earned[0] == pytest.approx(float(reward), abs=1e-4)


def test_a_plan_that_nobody_knows_the_end_of_costs_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.syspath_prepend(EXAMPLES)
    import planner
    from test_snapshot import model

    snapshot = model(d=3)
    plans = planner.propose(np.random.default_rng(0), 10, 5)
    state = np.array([1.0, 0.0, 0.0])
    bare, bold, careful = (
        planner.score(s, state, plans, k) for s, k in ((None, 0.0), (snapshot, 0.0), (snapshot, 2.0))
    )
    assert not np.allclose(bare, bold) and (careful < bold).all()


def test_the_benchmark_of_send_measures() -> None:
    script = ROOT / "python" / "benchmarks" / "send.py"
    done = subprocess.run(
        [sys.executable, str(script), "--calls", "2000", "--rate", "2000"], capture_output=True, text=True, timeout=120
    )
    # Its verdict is one on this machine at this moment.
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.count("99.9 %") == 8 and "daemon absent" in done.stdout


def test_the_benchmark_of_environments_measures() -> None:
    said = run(None, ROOT / "python" / "benchmarks" / "overhead.py", "--steps", "640")
    assert said.count(" us a step") == 4


def test_predictions_are_reported() -> None:
    said = run(None, ROOT / "python" / "benchmarks" / "predictions.py", "Pendulum-v1", "--steps", "3000")
    assert float(re.findall(r"correlation ([0-9.-]+)", said)[0]) > 0.5
    assert re.findall(r"(\d+) steps sent, (\d+) learned", said)[0] == ("3000", "3000")
