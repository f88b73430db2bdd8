"""Another policy judged by the rows that a running daemon retains."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import Start

from criticd import Client, Invalid, Refused, aio, policies
from criticd.daemon import binary
from criticd.policies import Evaluation, PolicyServer

Array = npt.NDArray[np.float64]
SETTINGS = """
[[critic]]
name = "q"
inputs = "state_action"
actions = 2
discount = 0.9
refit_first_rows = 0
dictionary_max = 60
"""
WEIGHED = ("is", "wis", "pdis")


def policy(states: Array) -> Array:
    """Goes right the more, the further left it is."""
    right = 1.0 / (1.0 + np.exp(1.5 * states[:, 0] - 1.0))
    return np.stack([1.0 - right, right], axis=1)


def append(client: Client, episodes: int = 80, stream: str = "s") -> dict[str, Any]:
    """Append episodes of three steps by a coin, in which right pays 1 - x, and return them as a table."""
    rng = np.random.default_rng(4)
    columns: dict[str, list[Any]] = {"states": [], "next_states": [], "actions": [], "rewards": [], "terminated": []}
    for _ in range(episodes):
        at = rng.uniform(-1, 1)
        for step in range(3):
            action = int(rng.integers(2))
            columns["states"].append([at])
            columns["actions"].append(action)
            columns["rewards"].append(action * (1 - at))
            columns["terminated"].append(step == 2)
            at += 0.3 * (2 * action - 1)
            columns["next_states"].append([at])
    table: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
    table["behavior_probs"] = np.full(len(table["rewards"]), 0.5)
    client.append(stream=stream, session="x", seq=0, action_names=["left", "right"], **table)
    client.value([[0.0]], actions=[0], min_offset=len(table["rewards"]))
    return table


def same(found: Evaluation, expected: Evaluation) -> None:
    assert found.estimates.keys() == expected.estimates.keys()
    for name, estimate in expected.estimates.items():
        assert found.estimates[name].value == pytest.approx(estimate.value, rel=1e-9)


def test_a_policy_is_judged_alike_however_it_is_given_and_as_by_a_table(start: Start) -> None:
    control = start(config=SETTINGS).endpoints.control
    with Client(control) as client:
        table = append(client)
        found = client.evaluate(policy)
        assert set(found.estimates) == {"is", "wis", "pdis", "dr", "fqe"} and found.episodes == 80
        assert found.weights is not None and 10 < found.weights.ess < 80
        with PolicyServer(policy) as server:
            same(client.evaluate(server.endpoint), found)
        same(client.evaluate(policy(table["states"])), found)
        same(client.evaluate(policy(table["states"]), first=0), found)
        by_table = policies.evaluate(table, policy, actions="discrete:2", discount=0.9, options={"budget": 2})
        for name in WEIGHED:
            assert found.estimates[name].value == pytest.approx(by_table.estimates[name].value, rel=1e-12)
        assert found.weights == by_table.weights

        async def awaited() -> Evaluation:
            async with aio.Client(control) as other:
                return await other.evaluate(policy)

        same(asyncio.run(awaited()), found)
        # The last whole episodes alone.
        part = client.evaluate(policy, rows=100)
        assert (part.episodes, part.transitions) == (33, 99)
        refused = client.evaluate(policy, ess_min=1e6)
        assert refused.estimates["dr"].interval is None and refused.refused[0].startswith("no interval")


def test_policies_that_cannot_be_judged_are_refused(start: Start) -> None:
    with Client(start(config=SETTINGS).endpoints.control) as client:
        append(client, 12)
        with pytest.raises(Refused, match="target_prob"):
            client.evaluate()
        with pytest.raises(Invalid, match="must answer 36 states"):
            client.evaluate(lambda states: np.zeros(3))
        with pytest.raises(Refused, match="probs"):
            client.evaluate(lambda states: np.full((len(states), 2), 0.9))
        with pytest.raises(Refused, match="there are 36 rows from 0 on"):
            client.evaluate(np.full((40, 2), 0.5), first=0)


def test_the_command_line_judges_and_acts_by_a_daemon(start: Start, tmp_path: Path) -> None:
    control = start(config=SETTINGS).endpoints.control

    def criticd(*words: str) -> Any:
        done = subprocess.run([str(binary()), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stderr

    with Client(control) as client:
        append(client)
        said = criticd("evaluate", control, "--states", "states.csv", "--rows", "120")
        assert "the states of 120 rows, for --policy FILE --from 120" in said
        states = np.loadtxt(tmp_path / "states.csv", delimiter=",", skiprows=1)
        assert list(states[:, 0]) == list(range(120, 240))
        policies.write_policy(tmp_path / "probs.csv", policy(states[:, 1:]), "discrete:2")
        found = criticd("evaluate", control, "--policy", "probs.csv", "--from", "120", "--json")
        expected = client.evaluate(policy, first=120)
        for name, estimate in expected.estimates.items():
            assert found["estimates"][name]["value"] == pytest.approx(estimate.value, rel=1e-9)
        # A server is asked in the same states, and its answers are judged alike, to the last bit.
        with PolicyServer(policy) as server:
            for rows in (("--rows", "120"), ("--from", "120")):
                assert criticd("evaluate", control, "--policy", server.endpoint, *rows, "--json") == found
        (tmp_path / "at.csv").write_text("state_0\n-0.5\n0.25\n")
        decided = criticd("act", control, "at.csv", "--exploration", "epsilon_greedy", "--seed", "5", "--json")
        way: dict[str, Any] = {"exploration": "epsilon_greedy", "epsilon": 0.1, "seed": 5, "step": [0, 1]}
        taken = client.act([[-0.5], [0.25]], **way)
        assert decided["action_names"] == [("left", "right")[int(action)] for action in taken.actions]
        assert decided["actions"] == list(taken.actions) and decided["mean"] == pytest.approx(list(taken.mean))
        client.snapshot().save(tmp_path / "q.model")
        alone = criticd("act", "q.model", "at.csv", "--exploration", "epsilon_greedy", "--seed", "5", "--json")
        assert all(alone[key] == decided[key] for key in ("actions", "action_names", "decision_id"))


def test_the_command_line_asks_for_as_many_answers_as_a_message_holds(start: Start) -> None:
    control = start("limits.message_bytes_max=3072", config=SETTINGS).endpoints.control
    with Client(control) as client:
        for k in range(4):
            append(client, 12, f"s{k}")
    with PolicyServer(policy) as server:
        words = [str(binary()), "evaluate", control, "--policy", server.endpoint, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "the answers in 89 states fill a message of the daemon" in done.stderr
        found = json.loads(done.stdout)
        assert (found["from"], found["to"], found["transitions"]) == (55, 144, 87)
        first = subprocess.run([*words, "--from", "0"], capture_output=True, text=True, check=False)
        assert first.returncode == 0, first.stderr
        assert json.loads(first.stdout)["to"] == 89
