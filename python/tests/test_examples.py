"""The examples and scripts run, for a few steps, against a real daemon, and say what they promise."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_sb3
import gymnasium
import numpy as np
import pytest
from conftest import PATIENCE_S, ROOT, Start

from criticd import Snapshot
from criticd.testing import Daemon, binary

TORCH = importlib.util.find_spec("torch") is not None

EXAMPLES = ROOT / "examples" / "python"


def run(daemon: Daemon | None, script: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    if daemon is not None:
        environment["CRITICD_DATA_DIR"] = str(daemon.data_dir)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    tested = Path(__file__).read_text()
    assert all(f'"{path.name}"' in tested for path in EXAMPLES.glob("*.py"))


# The gate does without Rerun, a viewer: pip install rerun-sdk.
if importlib.util.find_spec("rerun"):

    def test_rerun(tmp_path: Path) -> None:
        said = run(None, EXAMPLES / "rerun_values.py", "--steps", "600", "--out", str(tmp_path / "run.rrd"))
        assert int(re.findall(r"the value of (\d+) of them", said)[0]) >= 300
        assert (tmp_path / "run.rrd").stat().st_size > 10_000


def test_ten_lines(start: Start) -> None:
    # It waits for a minute for the first model that was selected, whatever the machine has to do.
    daemon = start("critic.refit_budget_s=2")
    script = EXAMPLES / "gymnasium_ten_lines.py"
    said = run(daemon, script)
    assert re.search(r"value of .*: -[0-9.]+ \+- [0-9.]+", said)
    with daemon.client() as client:
        # It has shown what was learned: of a model that was selected, and surer than before where the pole hangs.
        told = client.value([-1.0, 0.0, 0.0], min_offset=2000, variance=True, known=True)
        status = client.status()
        assert status["offset"] == 2000 and status["critics"][0]["generation"] >= 2
        assert not told.provisional and told.known is not None and told.known > 0.0
        prior = sum(status["critics"][0]["kernel"][key] for key in ("signal_variance", "bias_variance"))
        assert float(re.findall(r"\+- ([0-9.]+)", said)[-1]) < prior**0.5
    # As many as its name says: from the first line of the program proper.
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith(("import", "from", '"'))]
    assert len(lines) <= 10


def test_an_agent_in_ten_lines(tmp_path: Path) -> None:
    script = EXAMPLES / "agent_ten_lines.py"
    said = run(None, script, "3")
    assert len(re.findall(r"episode \d: \d+", said)) == 3
    assert Snapshot.load("cartpole.model").actions is not None
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith(("import", "from", '"'))]
    assert len(lines) <= 10


@pytest.mark.long
def test_a_rovers_log_gives_a_value_that_fresh_missions_confirm(tmp_path: Path) -> None:
    script, model, columns = EXAMPLES / "rover.py", str(tmp_path / "rover.model"), str(EXAMPLES / "rover.toml")
    log = tmp_path / "missions.csv"
    run(None, script, str(log), "--missions", "150")
    header, *rows = log.read_text().splitlines()
    assert header == "mission,step,x,y,battery,minutes,ended" and sum(row.endswith(",1") for row in rows) == 150
    # The wood is where no rover was.
    assert not any(float(row.split(",")[2]) > 1.35 and float(row.split(",")[3]) > 0.85 for row in rows)
    command = [str(binary()), "fit", str(log), "--columns", columns, "--discount", "1", "--out", model]
    subprocess.run(command, check=True, timeout=5 * PATIENCE_S)
    said = run(None, script, "--judge", model)
    ((error, spread),) = re.findall(r"^error ([0-9.]+) min .* spread of ([0-9.]+)$", said, re.M)
    assert float(error) < 0.3 * float(spread)
    (means, missions) = re.findall(r"^(\d+)% of the", said, re.M)
    assert int(means) > 70 and 80 <= int(missions) <= 98


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
    subprocess.run([*replay, "--control", daemon.endpoints.control], check=True, timeout=PATIENCE_S)
    with daemon.client() as client:
        assert client.streams()["poles-v0"].rows == rows
        counts = client.status()["critics"][0]["counts"]
        # An episode ends in a termination or a cut, and none leads over into the next.
        assert counts["terminations"] == 2 * sum(ends)
        assert counts["cuts"] == 2 * (40 - sum(ends))


def test_planner(start: Start) -> None:
    said = run(start(), EXAMPLES / "planner.py", "--steps", "200", "--plans", "16", "--horizon", "5")
    assert int(re.findall(r"(\d+) models used", said)[0]) >= 1
    assert int(re.findall(r"learned (\d+) rows", said)[0]) <= 200


def test_the_planners_simulator_is_gymnasiums(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.long
def test_ppo_is_judged_by_the_returns_that_came(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_sb3.install()
    if not TORCH:
        torch = ModuleType("torch")
        torch.__dict__["set_num_threads"] = lambda count: None
        monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.syspath_prepend(EXAMPLES)
    import ppo_critics

    # The clock stands still for as long as a thread of the daemon has waited since then.
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("5 3000000000 1")
    pace = ppo_critics.Pace(1e9, os.getpid())
    pace.threads, pace.waited = tmp_path, {"7": 2.99}
    pace.wait(1)
    assert abs(pace.stood - 0.01) < 1e-9
    # Two copies of four steps: one that terminates, and one that is cut, from which nothing is known.
    model: Any = None
    watch = ppo_critics.Watch(model, ppo_critics.Pace(2.0, os.getpid()))
    for step in range(4):
        watch.note(
            criticd=np.array([step, 0.0]),
            ppo=np.array([-step, 5.0]),
            generation=np.ones(2),
            rewards=np.array([1.0 if step == 3 else 0.0, 7.0]),
            terminated=np.array([step == 3, False]),
            cut=np.array([False, step == 3]),
            at=np.full(2, float(step)),
        )
    (found,) = watch.moments(0.5, 10.0)
    assert (found["rows"], found["zeros"]) == (4, 1)
    assert found["mean_return"] == pytest.approx((1 + 0.5 + 0.25 + 0.125) / 4)
    assert found["criticd"] > 0.9 and found["ppo"] < -0.9
    assert [moment["rows"] for moment in watch.moments(0.5, 2.0)] == [2, 2]
    # The whole script, with an agent that learns nothing.
    if not fake_sb3.REAL:
        out, plot = tmp_path / "found.json", tmp_path / "plot.png"
        arguments = ["--minutes", "0.03", "--rate", "2000", "--announce", "0.2", "--moment", "0.6"]
        monkeypatch.setattr(sys, "argv", ["ppo_critics.py", *arguments, "--json", str(out)])
        ppo_critics.main()
        judged = json.loads(out.read_text())
        assert judged["announcements"] == 8 and len(judged["moments"]) == 3
        # The stand-in's values are arbitrary; a busy machine may spoil a moment of a second.
        assert any(moment["criticd"] > max(0.3, moment["ppo"]) for moment in judged["moments"])
        monkeypatch.setattr(sys, "argv", ["ppo_critics.py", "--of", str(out), str(out), "--plot", str(plot)])
        ppo_critics.main()
        assert plot.read_bytes().startswith(b"\x89PNG")


if fake_sb3.REAL:

    def test_ppo_critics(tmp_path: Path) -> None:
        arguments = ["--minutes", "0.03", "--rate", "2000", "--announce", "0.2", "--moment", "0.6"]
        said = run(None, EXAMPLES / "ppo_critics.py", *arguments, "--plot", str(tmp_path / "ppo.png"))
        assert re.search(r"\| Pendulum-v1 \| 0.2 s \| 0 \| 8 \|", said)
        assert (tmp_path / "ppo.png").exists()


if TORCH:

    def test_cleanrl(start: Start) -> None:
        daemon = start("critic.discount=0.99")
        said = run(daemon, EXAMPLES / "cleanrl_ppo.py", "--total-timesteps", "4096", "--folder", "runs")
        assert "explained_variance_agent" in said and "explained_variance_criticd" in said
        with daemon.client() as client:
            client.value([0.0] * 4, min_offset=4096, timeout_s=PATIENCE_S)
            assert client.status()["offset"] == 4096 and client.status()["streams"] == 4
        here = run(None, EXAMPLES / "cleanrl_ppo.py", "--total-timesteps", "2048", "--in-process", "--folder", "runs")
        assert here.count("explained_variance_agent") == 4 and here.count("explained_variance_criticd") == 3


def test_the_benchmark_of_send_measures() -> None:
    script = ROOT / "python" / "benchmarks" / "send.py"
    done = subprocess.run(
        [sys.executable, str(script), "--calls", "2000", "--rate", "2000"],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    # Its verdict is one on this machine at this moment.
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.count("99.9 %") == 8 and "daemon absent" in done.stdout


def test_the_benchmark_of_environments_measures() -> None:
    said = run(None, ROOT / "python" / "benchmarks" / "overhead.py", "--steps", "640")
    assert said.count(" us a step") == 4


def test_the_benchmark_of_the_learner_measures() -> None:
    script = ROOT / "python" / "benchmarks" / "in_process.py"
    assert run(None, script, "--rows", "2000", "--elements", "20").count(" us, nine of ten") == 5


def test_the_benchmark_of_removal_measures() -> None:
    script = ROOT / "python" / "benchmarks" / "removal.py"
    said = run(None, script, "--rows", "8000", "--streams", "2", "--dictionary", "20")
    assert "4000 of 8000 rows in 20 chains, m = 20: taken back after" in said and "True" in said


@pytest.mark.long
def test_predictions_are_reported() -> None:
    said = run(
        None, ROOT / "python" / "benchmarks" / "predictions.py", "Pendulum-v1", "--steps", "3000", "--budget", "3"
    )
    assert float(re.findall(r"correlation ([0-9.-]+)", said)[0]) > 0.5
    assert re.findall(r"(\d+) steps sent, (\d+) learned", said)[0] == ("3000", "3000")
