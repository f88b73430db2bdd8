"""Decisions: the same from a daemon, and from its model without it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from conftest import Start, when

from criticd import Client, Decisions, Invalid, Refused, Snapshot, aio

WAYS: list[dict[str, Any]] = [
    {"exploration": "greedy"},
    {"exploration": "epsilon_greedy", "epsilon": 0.4},
    {"exploration": "softmax", "temperature": 0.3},
    {"exploration": "ucb", "beta": 1.5},
    {"exploration": "thompson"},
]
DISCRETE = """
[[critic]]
name = "q"
inputs = "state_action"
actions = ["left", "stay", "right"]
successor = "improve"
improve_rows = 200
discount = 0.9
refit_first_rows = 0
dictionary_max = 60
"""
BOX = DISCRETE.replace('["left", "stay", "right"]', "{ low = [-1.0, -1.0], high = [1.0, 1.0] }")


def learned(client: Client, box: bool) -> Snapshot:
    """A model of rows in which the best action points home."""
    random = np.random.default_rng(1)
    states = random.uniform(-1, 1, (801, 2))
    if box:
        actions = random.uniform(-1, 1, (800, 2))
        rewards = -((states[:-1] + actions) ** 2).sum(axis=1)
    else:
        actions = random.integers(0, 3, 800).astype(float)
        rewards = -np.abs(states[:-1, 0] + actions - 1)
    for first in range(0, 800, 100):
        part = slice(first, first + 100)
        client.append(
            stream="s", session="x", seq=first, states=states[first : first + 101], rewards=rewards[part],
            actions=actions[part],
        )  # fmt: skip

    def is_swept_over() -> bool:
        critic = client.status()["critics"][0]
        refit = critic["refit"]
        return bool(critic["learned"] == 800 and refit["adopted"] and not refit["running"] and not refit["due"])

    when(is_swept_over, "a policy that is improved for the last time")
    # From here on the model that answers does not change. The status knows of an adoption a moment before it answers.
    generation, found = client.status()["critics"][0]["generation"], [client.snapshot()]

    def answers() -> bool:
        found[:] = [client.snapshot()]
        (model,) = found
        has_copies = model.actions is not None and model.actions.copies.shape[1] > 0
        return model.offset >= 800 and model.generation >= generation and has_copies

    when(answers, "the model that answers")
    return found[0]


def same(found: Decisions, expected: Decisions, box: bool) -> None:
    # Newton steps end within rounding of each other, and Q there differs by as much.
    np.testing.assert_allclose(found.actions, expected.actions, rtol=0, atol=1e-6 if box else 0)
    off = 1e-6 if box else 1e-9
    np.testing.assert_allclose(found.mean, expected.mean, rtol=off, atol=off)
    np.testing.assert_allclose(found.probability, expected.probability, rtol=1e-9)
    assert found.std is not None and expected.std is not None
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-5)
    assert (found.unknown == expected.unknown).all()
    assert (found.generation, found.copies) == (expected.generation, expected.copies)
    np.testing.assert_array_equal(found.decision_id, expected.decision_id)
    if found.copy is not None:
        assert expected.copy is not None and (found.copy == expected.copy).all()


@pytest.mark.parametrize("box", [False, True])
def test_a_model_decides_as_its_daemon_does(start: Start, box: bool) -> None:
    daemon = start(config=BOX if box else DISCRETE)
    with Client(daemon.endpoints.control) as client:
        model = learned(client, box)
        states = np.random.default_rng(2).uniform(-1, 1, (40, 2))
        steps = np.arange(40)
        for way in WAYS:
            common = {**way, "seed": 7, "episode": steps // 10, "step": steps, "unknown_above": 0.4}
            same(model.act(states, **common), client.act(states, **common), box)
        few = [[0.5, 0.5], [-0.5, 0.0]] if box else [0, 2]
        common = {"exploration": "epsilon_greedy", "epsilon": 0.5, "step": steps, "candidates": few}
        same(model.act(states, **common), client.act(states, **common), box)
        # Without steps the states of a request are decided independently.
        found = client.act(states, "epsilon_greedy", epsilon=0.5)
        assert len(set(found.decision_id.tolist())) == len(states)
        # With the same steps their decisions still have numbers of their own.
        assert len(set(client.act(states, episode=3, step=0).decision_id.tolist())) == len(states)
        same(model.act(states, "epsilon_greedy", epsilon=0.5), found, box)
        beyond: dict[str, Any] = {"candidates": [[0.0, 1.5]], "fallback": [0.0, 1.5]} if box else {}
        for name in beyond:
            only: dict[str, Any] = {name: beyond[name]}
            with pytest.raises(Invalid, match="between") as invalid:
                model.act(states[0], **only)
            assert invalid.value.field == name
            with pytest.raises(Refused, match="between") as refused:
                client.act(states[0], **only)
            assert refused.value.field == name
        fallback = [0.25, -0.25] if box else 1
        lost = client.act(states[0], unknown_above=0.0, fallback=fallback)
        assert lost.unknown and np.isnan(lost.probability)
        np.testing.assert_array_equal(lost.actions, fallback)
        here = model.act(states[0], unknown_above=0.0, fallback=fallback)
        np.testing.assert_array_equal(here.actions, lost.actions)

        async def ask() -> Decisions:
            async with aio.Client(daemon.endpoints.control) as other:
                return await other.act(states, "softmax", temperature=0.3, step=steps)

        same(asyncio.run(ask()), client.act(states, "softmax", temperature=0.3, step=steps), box)


def test_values_of_actions_and_what_is_no_action(start: Start) -> None:
    daemon = start(config=DISCRETE)
    with Client(daemon.endpoints.control) as client:
        model = learned(client, False)
        states, actions = np.random.default_rng(3).uniform(-1, 1, (6, 2)), [0, 1, 2, 2, 1, 0]
        answer = client.value(states, variance=True, actions=actions)
        mean, std = model(model.inputs(states, actions), std=True)
        np.testing.assert_allclose(answer.mean, mean, rtol=1e-9)
        assert answer.variance is not None
        np.testing.assert_allclose(np.sqrt(answer.variance), std, rtol=1e-6)
        all_of_one = client.value(states[0], actions=[0, 1, 2])
        np.testing.assert_allclose(all_of_one.mean, model(model.inputs(states[0], [0, 1, 2])), rtol=1e-9)
        incomplete: list[tuple[dict[str, Any], str]] = [
            ({"states": states}, "actions"),
            ({"states": states, "actions": [3, 0, 0, 0, 0, 0]}, "actions"),
            ({"states": states, "actions": [0, 1]}, "actions"),
        ]
        for fields, field in incomplete:
            with pytest.raises(Refused) as refused:
                client.request("value", **fields)
            assert refused.value.field == field, fields
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"exploration": "best"}, "exploration"),
            ({"exploration": "epsilon_greedy"}, "epsilon"),
            ({"exploration": "epsilon_greedy", "epsilon": 1.5}, "epsilon"),
            ({"steps": [0.5] * 6}, "steps"),
            ({"candidates": [[0.0, 1.0]]}, "candidates"),
            ({"fallback": [7.0]}, "fallback"),
        ]
        for fields, field in wrong:
            with pytest.raises(Refused) as refused:
                client.request("act", states=states, **fields)
            assert refused.value.field == field, fields
        with pytest.raises(Invalid, match="epsilon"):
            model.act(states, "epsilon_greedy")
        with pytest.raises(Refused) as refused:
            client.append(stream="t", session="x", seq=0, states=states, rewards=np.zeros(5))
        assert (refused.value.code, refused.value.field) == ("missing_field", "action")
