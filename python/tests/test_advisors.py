"""Advisors of a running daemon: a throw over the socket, a kill between suggestion and report, and refusals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import numpy as np
import pytest

from criticd import Daemon, Refused, Suggestion, aio

Start = Callable[..., Daemon]
CONFIG = """
[[advisor]]
name = "throw"
lengthscales = [1.4]
context_names = ["distance [m]"]
ridge = 1.0
cost_floor = 0.01
outputs = [
    { name = "angle [rad]", mean = 0.8, deviation = 0.2, low = 0.0, high = 1.4 },
    { name = "speed [m/s]", mean = 6.0, deviation = 1.5, low = 0.5, high = 15.0 },
]

[[advisor]]
name = "reach"
lengthscales = [1.0, 2.0]
outputs = [{ mean = 0.0, deviation = 1.0 }]
"""


def miss(distance: float, angle: float, speed: float) -> float:
    """How far from the target a throw lands, m."""
    along, up = speed * math.cos(angle), speed * math.sin(angle)
    return abs(along / 9.81 * (up + math.sqrt(up * up + 2 * 9.81)) - distance)


def test_throws_become_better_and_a_kill_changes_nothing(start: Start) -> None:
    daemons = [start(config=CONFIG), start(config=CONFIG)]
    distances = np.random.default_rng(4).uniform(2, 7, 80)
    runs: list[list[float]] = []
    for number, daemon in enumerate(daemons):
        misses: list[float] = []
        with daemon.client() as client:
            assert "suggest" in client.hello().features
            for i, distance in enumerate(distances):
                suggestion = client.suggest(distance)
                assert (suggestion.decision_id, suggestion.learned) == (i, i)
                if number == 1 and i % 20 == 3:
                    daemon.restart()
                misses.append(miss(distance, *suggestion.decision))
                cost = misses[-1] ** 2 + 0.0003 * float(suggestion.decision[1]) ** 2
                assert client.report(suggestion, cost) == i + 1
            status = client.status()["advisors"][0]
            assert (status["name"], status["decisions"], status["waiting"], status["learned"]) == ("throw", 80, 0, 80)
        runs.append(misses)
    assert runs[0] == runs[1], "kills between suggestion and report change no bit"
    assert np.mean(runs[0][50:]) < 0.6 * np.mean(runs[0][:20]), runs[0]


def test_refusals_name_the_field_and_several_advisors_learn_apart(start: Start) -> None:
    daemon = start(config=CONFIG)
    with daemon.client() as client:
        first = client.suggest([3.0])
        assert first.mean.shape == first.deviation.shape == first.decision.shape == (2,)
        np.testing.assert_array_equal(first.mean, [0.8, 6.0])
        np.testing.assert_array_equal(first.deviation, [0.2, 1.5])
        assert client.report(first.decision_id, 0.5) == 1
        refusals: list[tuple[Callable[[], object], str]] = [
            (lambda: client.report(first, 0.5), "decision_id"),
            (lambda: client.report(7, 0.5), "decision_id"),
            (lambda: client.suggest([1.0, 2.0]), "context"),
            (lambda: client.suggest(math.nan), "context"),
            (lambda: client.suggest(1.0, advisor="kick"), "advisor"),
        ]
        for ask, field in refusals:
            with pytest.raises(Refused) as refused:
                ask()
            assert refused.value.field == field

        async def reach() -> tuple[Suggestion, int]:
            async with aio.Client(daemon.endpoints.control) as other:
                found = await other.suggest([1.0, 2.0], advisor="reach")
                return found, await other.report(found, 1.0, advisor="reach")

        found, learned = asyncio.run(reach())
        assert (found.decision_id, found.learned, learned) == (0, 0, 1)
        with pytest.raises(Refused) as refused:
            client.report(client.suggest([1.0, 2.0], advisor="reach"), -1.0, advisor="reach")
        assert refused.value.field == "cost"
