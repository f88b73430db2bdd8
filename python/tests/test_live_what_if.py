"""A running daemon plans for rewards that were never observed and predicts courses, before and after a kill alike."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE_S, when

from criticd import Client, Daemon, Invalid, Refused, Snapshot, aio

Start = Callable[..., Daemon]
ROWS = 1200
SETTINGS = (
    'critic.inputs="state_action"',
    'critic.actions=["left", "right"]',
    "critic.world=true",
    "critic.discount=0.9",
    "critic.refit_first_rows=0",
    "critic.refit_score_drop=0",
    "critic.dictionary_max=40",
    "critic.refit_budget_s=2",
)


HEADS = """
[[critic]]
name = "q"
inputs = "state_action"
actions = ["left", "right"]
world = true
discount = 0.9
refit_first_rows = 0
refit_score_drop = 0
dictionary_max = 40
refit_budget_s = 2
[[critic]]
name = "v"
refit_first_rows = 0
dictionary_max = 20
[[critic.heads]]
name = "near 0.6"
cumulant = { kind = "expression", text = "-1*abs(state[0]-0.6)" }
[[critic.heads]]
name = "right"
cumulant = { kind = "event", index = 0, above = 0.5 }
[[critic.heads]]
name = "own"
cumulant = { kind = "reward", index = 0 }
"""


def send(daemon: Daemon, first: int, rows: int) -> None:
    """Rows of a walk by random steps of 0.2 on a line from -1 to 1, in chains of 20; it is rewarded for being at 0."""
    rng = np.random.default_rng(5)
    action = rng.integers(0, 2, first + rows)
    noise = rng.uniform(-0.01, 0.01, first + rows)
    x = 0.0
    with daemon.sender(reliable=True, batch_rows=100, names=["x"]) as sender:
        for i in range(first + rows):
            if i % 20 == 0:
                x = float(rng.uniform(-1, 1))
            to = float(np.clip(x + (0.2 if action[i] else -0.2) + noise[i], -1, 1))
            if i >= first:
                sender.send([x], -abs(x), [to], action=float(action[i]), truncated=i % 20 == 19)
            x = to
        assert sender.flush(PATIENCE_S)


def learned(client: Client, rows: int) -> None:
    when(lambda: client.status()["critics"][0]["learned"] == rows, "rows that are learned")


@pytest.mark.parametrize("is_killed", [False, True])
def test_plans_and_courses(start: Start, tmp_path: Path, is_killed: bool) -> None:
    daemon = start(*SETTINGS)
    send(daemon, 0, ROWS)
    with daemon.client() as client:
        assert "plan" in client.hello().features
        learned(client, ROWS)
        with pytest.raises(Refused, match="once a refit has ended"):
            client.plan()
        assert client.refit(wait=True, timeout_s=PATIENCE_S).outcome == "adopted"
    send(daemon, ROWS, ROWS)
    with daemon.client() as client:
        learned(client, 2 * ROWS)
        actions = client.status()["critics"][0]["actions"]
        assert actions is not None and actions["world"] is not None
        assert actions["world"]["transitions"] == 2 * ROWS - 2 * ROWS / 20
        assert (actions["world"]["lost"] or 1.0) < 0.1
        before = client.plan("-abs(x - 0.6)", start=[[-0.8]])
        assert list(np.ravel(before.act([[-0.8], [0.1], [0.95]]).actions)) == [1, 1, 0]
        assert (before.document["known"], before.reward_names) == (True, ("-abs(x - 0.6)",))
        assert before.document["error"] > 0 and before.document["model"]["elements"] <= 40
        assert list(before.names or ()) == ["x", "action=left", "action=right"]
        before.save(tmp_path / "q.model")
        np.testing.assert_array_equal(Snapshot.load(tmp_path / "q.model").weights, before.weights)
        # The reward that rows have: to stay at 0.
        own = client.plan()
        assert list(np.ravel(own.act([[-0.8], [0.8]]).actions)) == [1, 0]
        course = client.rollout(steps=6, start=[[0.1]], show=["x", "x^2"])
        assert abs(course.mean["x"][0] - 0.1) < 0.1 and course.mean["x"].shape == (6,)
        assert course.reach["x"] >= 3 and (course.within["x"][0] < 0.1) and (course.alive == 1).all()
        # Four steps to the right, by a function, a plan and a model, and the value of being there.
        for options in (
            {"policy": lambda states: np.where(states[:, 0] < 0.7, 1.0, 0.0)},
            {"policy": lambda states: np.stack([states[:, 0] >= 0.7, states[:, 0] < 0.7], axis=1).astype(float)},
            {"reward": "-abs(x - 0.7)"},
            {"policy": client.plan("-abs(x - 0.7)")},
        ):
            course = client.rollout(steps=4, start=[[-0.5]], **options)
            np.testing.assert_allclose(course.mean["x"], [-0.3, -0.1, 0.1, 0.3], atol=0.15)
        best = client.rollout(policy="best", start=[[0.5]], steps=3)
        assert set(best.document["value"]) >= {"mean", "error", "reward", "discount"}
    if is_killed:
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            after = client.plan("-abs(x - 0.6)", start=[[-0.8]])
        np.testing.assert_array_equal(after.weights, before.weights)
        assert after.document == before.document


def test_the_asyncio_client_and_the_command_line_ask_too(start: Start, tmp_path: Path) -> None:
    daemon = start(*SETTINGS)
    send(daemon, 0, ROWS)
    with daemon.client() as client:
        learned(client, ROWS)
        assert client.refit(wait=True, timeout_s=PATIENCE_S).outcome == "adopted"
        expected = client.plan("-abs(x - 0.6)")

        async def ask() -> list[object]:
            async with aio.Client(data_dir=daemon.data_dir) as asking:
                plan = await asking.plan("-abs(x - 0.6)")
                course = await asking.rollout(steps=3, policy=lambda states: np.ones(len(states)))
                return [plan.weights, course.mean["x"]]

        weights, mean = asyncio.run(ask())
        np.testing.assert_array_equal(np.asarray(weights), expected.weights)
        assert np.asarray(mean).shape == (3,)
        out, chart = tmp_path / "q.model", tmp_path / "course.png"
        place = str(daemon.data_dir)

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([os.environ["CRITICD_BIN"], *words], capture_output=True, text=True, check=False)

        done = run("plan", place, "--reward=-abs(x - 0.6)", "--out", str(out), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["value"] == expected.document["value"]
        np.testing.assert_array_equal(Snapshot.load(out).weights, expected.weights)
        assert "planned for" in run("plan", place, "--out", str(out)).stdout
        done = run("rollout", place, "--steps", "5", "--policy", "best", "--out", str(chart))
        assert done.returncode == 0 and "value at the starts" in done.stdout, done.stderr
        assert chart.read_bytes().startswith(b"\x89PNG")
        for words in (("--reward=y",), ("--critic", "other")):
            done = run("plan", place, "--out", str(out), *words)
            assert done.returncode != 0 and done.stderr
        assert "knows acted" in run("rollout", place, "--policy", "x.model").stderr


def test_a_head_of_any_critic_is_a_reward_by_its_name(start: Start) -> None:
    daemon = start(config=HEADS)
    send(daemon, 0, ROWS)
    with daemon.client() as client:
        learned(client, ROWS)
        assert client.refit(critic="q", wait=True, timeout_s=PATIENCE_S).outcome == "adopted"
        near, known = client.plan("near 0.6", start=[[-0.8]]), client.plan("-abs(x - 0.6)", start=[[-0.8]])
        assert (near.document["known"], near.document["reward"]) == (True, "near 0.6")
        assert near.document["value"] == known.document["value"]
        own, rows = client.plan("own", start=[[-0.8]]), client.plan(start=[[-0.8]])
        assert (own.document["known"], own.document["value"]) == (False, rows.document["value"])
        # To cross 0.5 to the right again and again: no reward of a row says so, and the last rows do.
        right = client.plan("right", start=[[0.4]])
        assert right.document["reward_rows"] == ROWS - ROWS / 20 and not right.document["known"]
        assert list(np.ravel(right.act([[-0.8], [0.4], [0.95]]).actions)) == [1, 1, 0]
        assert right.document["value"] > 0.5
        course = client.rollout(steps=2, start=[[-0.3]], reward="right")
        np.testing.assert_allclose(course.mean["x"], [-0.1, 0.1], atol=0.1)
        found = client.status()["critics"][0]
        assert found["actions"] is not None and found["actions"]["world"] is not None
        assert found["actions"]["world"]["refused"] is None
        report = (found["refit"]["last"] or {})["world"]
        assert report["refused"] is None and report["kernels"] > 0 and report["radius"] > 0.5


def test_it_is_said_why_there_is_no_model(start: Start) -> None:
    daemon = start(*SETTINGS)
    # Each row ends its episode: of values that says enough, and nothing of where actions lead.
    with daemon.sender(reliable=True, batch_rows=10) as sender:
        for i in range(60):
            sender.send([float(i % 4)], float(i % 3), [0.0], action=float(i % 2), terminated=True)
        assert sender.flush(PATIENCE_S)
    with daemon.client() as client:
        learned(client, 60)
        assert client.refit(wait=True, timeout_s=PATIENCE_S).outcome == "adopted"
        actions = client.status()["critics"][0]["actions"]
        assert actions is not None and actions["world"] is not None
        why = actions["world"]["refused"]
        assert why and "send rows that do not terminate" in why and actions["world"]["elements"] == 0
        with pytest.raises(Refused, match="could not learn where actions lead: no row"):
            client.plan()


def test_what_is_wrong_is_refused_by_name(start: Start) -> None:
    daemon = start(*SETTINGS)
    send(daemon, 0, ROWS)
    with daemon.client() as client:
        learned(client, ROWS)
        assert client.refit(wait=True, timeout_s=PATIENCE_S).outcome == "adopted"
        for call, words in (
            (lambda: client.plan("y"), "state variables are x"),
            (lambda: client.plan("x *"), "reward"),
            (lambda: client.plan(discount=1.0), "discount"),
            (lambda: client.plan(start=[[0.0, 1.0]]), "states have 1 numbers"),
            (lambda: client.plan(start=[[5000.0]], discount=0.5), "no row was"),
            (lambda: client.rollout(reward="-x", start=[[5000.0]], discount=0.5), "no row was"),
            (lambda: client.rollout(steps=0), "steps"),
            (lambda: client.rollout(show=["y"]), "show"),
            (lambda: client.rollout(show=[]), "at least one"),
            (lambda: client.rollout(policy="best", reward="x"), "reward"),
            (lambda: client.plan(start=[[1e300]]), "at most"),
            (lambda: client.rollout(policy=lambda states: np.full(len(states), 7.0)), "action"),
            (lambda: client.plan(critic="other"), "no critic"),
        ):
            with pytest.raises((Refused, Invalid), match=words):
                call()
    plain = start("critic.refit_first_rows=0")
    with plain.client() as client, pytest.raises(Refused, match="state_action"):
        client.plan()
