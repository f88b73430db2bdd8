"""The page's relevances against truth: total Sobol indices of functions for which they are known in closed form.

A row's reward is a function of its state, and each row ends its episode, so that V is that function. States are uniform
over [-1, 1]^6 and independent. One critic learns each function; `/api/relevance` is what the page shows.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import zmq
from client import PATIENCE_S, Array, Daemon, Map, pack, when
from conftest import Start

pytestmark = pytest.mark.nightly

DIM = 6
# The page looks at the 2048 states that came last, and takes 64 of each second's.
VISITED = 2048
EACH_S = 64
ROWS = 3000
ENOUGH = 500
# Which of the rows are looked at depends on the clock: another choice of 2048 moves a share by a few hundredths. The mean of some
# answers, each of other states, is closer.
ANSWERS = 3
WITHIN = 0.05


@dataclass
class Function:
    """A function of states (n, 6), and the total Sobol indices of the variables that it depends on."""

    of: Callable[[Array], Array]
    truth: list[float]


def product(variances: list[float]) -> list[float]:
    """Of a product of functions of one variable each, of these variances, relative to their squared means."""
    all_ = float(np.prod([1 + v for v in variances]))
    return [v * all_ / (1 + v) / (all_ - 1) for v in variances]


def g(x: Array) -> Array:
    """Sobol's g on [0, 1]."""
    return np.prod([(abs(4 * (x[:, d] + 1) / 2 - 2) + a) / (1 + a) for d, a in enumerate(G)], axis=0)


def ishigami(x: Array) -> Array:
    y = np.pi * x
    return np.sin(y[:, 0]) + 7 * np.sin(y[:, 1]) ** 2 + 0.1 * y[:, 2] ** 4 * np.sin(y[:, 0])


def of_ishigami() -> list[float]:
    one = 0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2
    two, both = 7**2 / 8, 0.1**2 * np.pi**8 * (1 / 18 - 1 / 50)
    return [(one + both) / (one + two + both), two / (one + two + both), both / (one + two + both)]


def exponential(a: float) -> float:
    """Variance of exp(a x) relative to its squared mean."""
    return float(np.sinh(2 * a) / (2 * a) / (np.sinh(a) / a) ** 2 - 1)


G = [0.0, 1.0, 4.5, 9.0]
WEIGHTS = np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.0])

FUNCTIONS = {
    "linear": Function(lambda x: x @ WEIGHTS, list(WEIGHTS**2 / np.sum(WEIGHTS**2))),
    "product": Function(lambda x: x[:, 0] * x[:, 1], [1.0, 1.0]),
    "ishigami": Function(ishigami, of_ishigami()),
    "g": Function(g, product([1 / (3 * (1 + a) ** 2) for a in G])),
    "squares": Function(lambda x: x[:, 0] ** 2 + 0.5 * x[:, 1] ** 2, [0.8, 0.2]),
    "gain": Function(lambda x: x[:, 0] + x[:, 0] * x[:, 1], [1.0, 0.25]),
    "waves": Function(lambda x: np.sin(np.pi * x[:, 0]) + 0.5 * np.cos(np.pi * x[:, 1]), [0.8, 0.2]),
    "exponential": Function(lambda x: np.exp(x[:, 0] + 0.5 * x[:, 1]), product([exponential(1.0), exponential(0.5)])),
    "cubic": Function(lambda x: x[:, 0] ** 3, [1.0]),
    "square of a sum": Function(lambda x: x[:, :3].sum(axis=1) ** 2, [(4 / 45 + 8 / 9) / (12 / 45 + 12 / 9)] * 3),
}


def test_the_indices_are_those_of_the_functions() -> None:
    """By Monte Carlo with a million states, each closed form to 0.005."""
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(-1, 1, size=(1_000_000, DIM)) for _ in range(2))
    for name, function in FUNCTIONS.items():
        values = function.of(x)
        for d in range(DIM):
            moved = x.copy()
            moved[:, d] = y[:, d]
            found = np.mean((values - function.of(moved)) ** 2) / (2 * np.var(values))
            truth = function.truth[d] if d < len(function.truth) else 0.0
            assert found == pytest.approx(truth, abs=0.005), (name, d)


def shares(daemon: Daemon, critic: str, generation: int, before: list[list[float]]) -> list[float]:
    """The relevances that the page shows of a critic once it has looked at enough states, others than it did `before`."""
    url = f"http://{daemon.endpoints['http']}/api/relevance?critic={critic}"
    found: list[Map] = []

    def has_come() -> bool:
        # Answers have a share of the time: until there is some, an answer is refused, or is an earlier one again.
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
                found[:] = [json.load(reply)]
        except urllib.error.HTTPError as error:
            assert error.code == 503, error.read()
            return False
        (answer,) = found
        return answer["states"] > ENOUGH and answer["generation"] == generation and answer["shares"] not in before

    # Other answers, of other critics, may take their share first.
    when(has_come, "the relevances", 4 * PATIENCE_S)
    print(f"{critic}: {np.round(found[0]['shares'], 3)} of {found[0]['states']} states")
    shares_: list[float] = found[0]["shares"]
    return shares_


def feed(push: zmq.Socket[bytes], generator: np.random.Generator, names: list[str], first: int) -> int:
    """Send rows, from number `first` on, evenly over the time in which the page takes all its states anew. The number of the next."""
    sent, began, seconds = first, time.monotonic(), VISITED / EACH_S + 3
    while sent < first + ROWS:
        while sent < first + min(ROWS, ROWS * (time.monotonic() - began) / seconds):
            states = generator.uniform(-1, 1, size=(25, DIM))
            rewards = np.stack([FUNCTIONS[name].of(states) for name in names], axis=1)
            ends = np.ones(len(states), dtype=bool)
            rows = {"states": states, "next_states": states, "rewards": rewards, "terminated": ends}
            push.send(pack({"stream": "uniform", "session": "run", "seq": sent, **rows}))
            sent += len(states)
        time.sleep(0.05)
    return sent


@pytest.mark.long
@pytest.mark.parametrize(
    "names", [pytest.param(["linear", "product", "exponential"], id="three"), pytest.param(list(FUNCTIONS), id="ten")]
)
def test_relevances_are_total_sobol_indices(start: Start, names: list[str]) -> None:
    critics = [
        f'[[critic]]\nname = "c{k}"\ndiscount = 0.5\nrewards = [{k}]\nrefit_first_rows = 0\nrefit_score_drop = 0\n'
        for k in range(len(names))
    ]
    daemon = start(config=f"state_dim = {DIM}\n" + "".join(critics))
    generator = np.random.default_rng(0)
    push, control = daemon.push(), daemon.control()
    sent = feed(push, generator, names, 0)
    control.wait_for_learned(sent)
    generations = []
    for k in range(len(names)):
        outcome = control.ask("refit", critic=f"c{k}", wait=True, timeout_s=5 * PATIENCE_S)
        assert outcome["outcome"] == "adopted", outcome
        generations.append(outcome["generation"])
    answers: dict[str, list[list[float]]] = {name: [] for name in names}
    for turn in range(ANSWERS):
        if turn > 0:
            sent = feed(push, generator, names, sent)
            control.wait_for_learned(sent)
        for k, name in enumerate(names):
            answers[name].append(shares(daemon, f"c{k}", generations[k], answers[name]))
    wrong = {}
    for name in names:
        truth = np.zeros(DIM)
        truth[: len(FUNCTIONS[name].truth)] = FUNCTIONS[name].truth
        found = np.mean(answers[name], axis=0)
        print(f"{name}: {np.round(found, 3)} truth {np.round(truth, 3)}")
        if np.abs(found - truth).max() > WITHIN:
            wrong[name] = (found, truth)
    assert not wrong, wrong
