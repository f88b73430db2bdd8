"""The learner in the process: the daemon's model, bit for bit, without a daemon."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE_S, Start, when

from criticd import Client, Invalid, Learner, Malformed, Refused, Snapshot
from criticd.testing import binary

# From Python 3.12 on a fork beside threads warns; that it works all the same is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ROWS = 900
STATES = np.linspace(-1.0, 1.0, 7)[:, None] * [1.0, -0.5]
HEADS: list[dict[str, Any]] = [
    {"name": "near", "cumulant": {"kind": "next_state", "index": 0}, "discount": 0.5},
    {"name": "above", "cumulant": {"kind": "event", "index": 1, "above": 0.2}, "discount": 0.9},
]
ACTIONS: dict[str, Any] = {"inputs": "state_action", "actions": ["left", "stay", "right"], "successor": "sarsa"}
CRITIC: dict[str, Any] = {"discount": 0.9, "dictionary_max": 25, "refit_first_rows": 0, "refit_score_drop": 0}
LONG = pytest.mark.long


def walk(rows: int = ROWS, seed: int = 1) -> dict[str, Any]:
    """Rows of two variables that are pulled to zero, in episodes of two kinds of ends."""
    random = np.random.default_rng(seed)
    states, following = np.empty((rows, 2)), np.empty((rows, 2))
    state = np.zeros(2)
    for i in range(rows):
        states[i] = state
        state = 0.9 * state + random.normal(0, 0.2, 2)
        following[i] = state
        state = random.normal(0, 0.5, 2) if i % 60 == 59 else state
    ends = np.arange(rows) % 60 == 59
    terminated = ends & (np.arange(rows) % 120 == 59)
    rewards = -(following**2).sum(axis=1) + random.normal(0, 0.05, rows)
    return {
        "states": states,
        "rewards": rewards,
        "next_states": following,
        "terminated": terminated,
        "truncated": ends & ~terminated,
    }


def part(rows: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    return {key: column[first:last] for key, column in rows.items()}


def bits(model: Snapshot) -> bytes:
    """All of a model but when and how often it was published."""
    message = {key: value for key, value in model.message().items() if key not in ("revision", "time")}

    def plain(value: Any) -> Any:
        return value.tobytes().hex() if isinstance(value, np.ndarray) else value

    return json.dumps(message, default=plain, sort_keys=True).encode()


def published(client: Client, rows: int, generation: int) -> Snapshot:
    """The daemon's model of `rows` rows."""
    found: list[Snapshot] = []

    def is_there() -> bool:
        found[:] = [client.snapshot()]
        return (found[0].offset, found[0].generation) == (rows, generation)

    when(is_there, "the model of all rows")
    return found[0]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=LONG),
        pytest.param({"heads": HEADS}, marks=LONG),
        pytest.param({**ACTIONS}, marks=LONG),
        {"lambda": 0.7, "selection": "evidence", "search_starts": 1},
    ],
    ids=["values", "heads", "actions", "evidence"],
)
def test_the_same_rows_give_the_daemons_model_bit_for_bit(start: Start, settings: dict[str, Any]) -> None:
    rows = walk()
    if "inputs" in settings:
        rows["actions"] = np.random.default_rng(2).integers(0, 3, ROWS).astype(float)
    given = {**CRITIC, **settings}
    text = "\n".join(f"critic.{key}={toml(value)}" for key, value in given.items()).split("\n")
    daemon = start(*text)
    learner = Learner(**given)
    with daemon.client() as client:
        for first in range(0, ROWS, 150):
            block = part(rows, first, first + 150)
            client.append(stream="walk", session="s", seq=first, **block)
            learner.learn(**block, stream="walk")
            if first in (300, 600):
                there, here = client.refit(wait=True, timeout_s=5 * PATIENCE_S), learner.refit()
                assert (here.outcome, here.generation, here.reason) == (there.outcome, learner.generation, there.reason)
        learned, generation = learner.learned, learner.generation
        assert generation > 1
        model = published(client, learned, generation)
        # The daemon gives the model of each head by itself.
        heads = {name: client.snapshot(head=name) for name in learner.heads}
    assert bits(replace(learner.snapshot(), head_models=None, branch=None)) == bits(model)
    for name, head in heads.items():
        assert np.allclose(learner.heads[name](STATES, std=True), head(STATES, std=True), 1e-9, 1e-9)
    if not model.actions:
        value, deviation = learner(STATES, std=True)
        expected, spread = model(STATES, std=True)
        assert np.allclose(value, expected, 1e-9, 1e-9)
        # Values of a smooth kernel nearly depend on each other: the two sum terms far larger than the variance, in
        # another order.
        assert np.allclose(deviation, spread, 1e-4, 1e-6)


def toml(value: Any) -> str:
    """As the command line writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def learned(rows: int = 300, **settings: Any) -> Learner:
    learner = Learner(**{**CRITIC, **settings})
    learner.learn(**walk(rows))
    return learner


def test_values_have_the_shapes_of_a_snapshots() -> None:
    learner = learned(rewards=[0])
    model = learner.snapshot()
    for states in (STATES, STATES[3], np.asfortranarray(STATES), STATES.tolist()):
        value, deviation = learner(states, std=True)
        expected, spread = model(states, std=True)
        assert np.shape(value) == np.shape(expected) and np.allclose(value, expected)
        assert np.shape(deviation) == np.shape(spread) and np.allclose(deviation, spread, 1e-6)
        assert np.array_equal(learner(states), value)
    assert learner(np.stack([STATES, STATES])).shape == (2, 7)
    known = learner(STATES, known=True, returns=True)
    assert known.known is not None and known.extrapolates is not None
    several = Learner(rewards=[0, 1], **CRITIC)
    rows = walk(200)
    several.learn(**{**rows, "rewards": np.stack([rows["rewards"], 2 * rows["rewards"]], axis=1)})
    assert several(STATES).shape == (7, 2) and several(STATES[0]).shape == (2,)
    assert np.allclose(several(STATES)[:, 1], 2 * several(STATES)[:, 0])


def test_blocks_single_rows_and_streams_side_by_side_are_the_same_rows() -> None:
    rows = walk(240)
    whole, single, beside = (Learner(**CRITIC) for _ in range(3))
    whole.learn(**rows)
    for i in range(240):
        single.learn(**{key: column[i] for key, column in rows.items()})
    assert single.learned == 240
    assert np.allclose(single(STATES), whole(STATES), 1e-6, 1e-6)
    # Two environments, of 120 steps each.
    both: dict[str, Any] = {key: np.stack([column[:120], column[120:]], axis=1) for key, column in rows.items()}
    beside.learn(**both)
    assert beside.learned == 240 and np.allclose(beside(STATES), whole(STATES), 1e-6, 1e-6)
    # A trajectory has one state more than rewards.
    piece, pairs = Learner(**CRITIC), Learner(**CRITIC)
    states = np.cumsum(np.random.default_rng(1).normal(0, 0.1, (101, 2)), axis=0)
    piece.learn(states, states[1:, 0])
    pairs.learn(states[:-1], states[1:, 0], states[1:])
    assert bits(piece.snapshot()) == bits(pairs.snapshot())


def test_a_refit_runs_beside_and_is_adopted_between_calls() -> None:
    rows, learner = walk(3000), Learner(discount=0.9, refit_first_rows=400, dictionary_max=40)
    learner.learn(**part(rows, 0, 400))
    assert learner.refitting and learner.generation == 1
    first = 400
    while learner.generation == 1 and first < 3000:
        learner.learn(**part(rows, first, first + 1))
        first += 1
    learner.wait()
    assert learner.generation >= 2 and not learner.snapshot().provisional
    assert first > 401, "rows were learned while the refit ran"
    # Other threads run meanwhile.
    counted = 0
    done = threading.Thread(target=learner.refit)
    done.start()
    while done.is_alive():
        counted += 1
    assert counted > 100


def test_heads_and_actions() -> None:
    learner = learned(heads=HEADS)
    assert set(learner.heads) == {"near", "above"}
    assert np.allclose(learner.heads["near"](STATES), learner.snapshot().heads["near"](STATES))
    rows = walk(400)
    actions = np.random.default_rng(2).integers(0, 3, 400).astype(float)
    rows["rewards"] = rows["rewards"] + actions
    agent = Learner(**{**CRITIC, **ACTIONS})
    agent.learn(**rows, actions=actions)
    decisions = agent.act(STATES, "epsilon_greedy", epsilon=0.1, seed=3)
    expected = agent.snapshot().act(STATES, "epsilon_greedy", epsilon=0.1, seed=3)
    assert np.array_equal(decisions.actions, expected.actions)
    values = agent(agent.inputs(STATES[0], [0, 1, 2]))
    assert np.argmax(values) == agent.act(STATES[0]).actions == 2
    with pytest.raises(Invalid, match="rows need their action"):
        agent.learn(**walk(1))


@pytest.mark.parametrize(
    ("way", "settings"),
    [pytest.param("pickle", {"heads": HEADS}, marks=LONG), ("copy", {}), ("file", {}), ("file", {**ACTIONS})],
    ids=["pickled heads", "copied values", "a file of values", "a file of actions"],
)
def test_it_goes_on_from_wherever_it_is_kept(way: str, settings: dict[str, Any], tmp_path: Path) -> None:
    rows = walk(800)
    if "inputs" in settings:
        rows["actions"] = np.random.default_rng(2).integers(0, 3, 800).astype(float)
    learner = Learner(**{**CRITIC, **settings, "state_dim": 2, "state_names": ["x", "y [m]"]})
    learner.learn(**part(rows, 0, 310))
    assert learner.refit().outcome == "adopted"
    learner.learn(**part(rows, 310, 430))
    if way == "file":
        learner.save(tmp_path / "x.model")
        again = Learner.load(tmp_path / "x.model")
        assert bits(Snapshot.load(tmp_path / "x.model")) == bits(learner.snapshot())
    else:
        again = pickle.loads(pickle.dumps(learner)) if way == "pickle" else copy.deepcopy(learner)
    for one in (learner, again):
        one.learn(**part(rows, 430, 600))
        one.refit()
        one.learn(**part(rows, 600, 800))
    assert again.generation == learner.generation
    assert bits(again.snapshot()) == bits(learner.snapshot())


def test_its_files_are_models_for_every_reader(tmp_path: Path) -> None:
    learner = learned()
    learner.save(tmp_path / "x.model")
    (tmp_path / "states.csv").write_text("state_0,state_1\n0.5,0.1\n")
    told = subprocess.run(
        [binary(), "value", tmp_path / "x.model", tmp_path / "states.csv", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert np.isclose(json.loads(told.stdout)["mean"], learner([0.5, 0.1]))
    learner.snapshot().save(tmp_path / "alone.model")
    with pytest.raises(Malformed, match=r"Snapshot\.load reads it"):
        Learner.load(tmp_path / "alone.model")
    data = bytearray(pickle.dumps(learner))
    data[len(data) // 2] ^= 1
    with pytest.raises(Invalid, match="learner: "):
        pickle.loads(bytes(data))


def in_child(work: Callable[[], object]) -> None:
    """Do something in a fork of this process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_a_whole_learner_whose_refit_starts_again() -> None:
    learner = Learner(discount=0.9, refit_first_rows=400, dictionary_max=40)
    rows = walk(1000)
    learner.learn(**part(rows, 0, 400))
    assert learner.refitting

    def goes_on() -> None:
        before = learner.learned
        learner.wait()
        assert learner.generation == 2
        learner.learn(**part(rows, before, 900))
        assert learner.refit().outcome in ("adopted", "rejected")
        learner.close()

    in_child(goes_on)
    goes_on()
    in_child(lambda: learner(STATES))


def threads() -> dict[str, str]:
    """Names of the threads of this process, by number."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            found[task.name] = task.joinpath("comm").read_text().strip()
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed by Linux")
@pytest.mark.parametrize("refit_threads", [1, 2])
def test_no_thread_outlives_it(refit_threads: int) -> None:
    before = threads().keys()

    def are_over() -> bool:
        # Refits of tests before may end, too.
        return threads().keys() <= before

    with Learner(discount=0.9, refit_first_rows=400, refit_threads=refit_threads) as learner:
        learner.learn(**walk(500))
        when(lambda: "criticd-refit" in threads().values(), "the thread of the refit")
    # Their work is over; the system may still be taking them away.
    when(are_over, "the threads before")
    assert not learner.refitting
    learner.learn(**walk(500, 3))
    assert learner.refit().generation == learner.generation
    other = Learner(discount=0.9, refit_first_rows=400, refit_threads=refit_threads)
    other.learn(**walk(500))
    del other
    when(are_over, "the threads before")


def test_a_program_ends_although_a_refit_runs() -> None:
    # It would take more than five minutes.
    settings = 'refit_first_rows=256, refit_budget_s=3600, selection="evidence", search_starts=1000, evidence_rows=2000'
    program = (
        "import numpy as np\nfrom criticd import Learner\n"
        f"learner = Learner(discount=0.9, {settings})\n"
        "states = np.random.default_rng(1).normal(size=(2001, 12))\n"
        "learner.learn(states, states[1:, 0])\nassert learner.refitting\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ({"discount": 1.5}, "discount", "must be from 0 to 1, is 1.5"),
        ({"discont": 0.9}, "discont", "is no setting, did you mean `discount`"),
        ({"tolerance": "small"}, "tolerance", "cannot be read: invalid type"),
        ({"kernel": "rbf"}, "kernel", "must be one of ard, isotropic"),
        ({"state_dim": 0}, "state_dim", "must be from 1 to 4096, is 0"),
        ({"state_kinds": ["real"], "state_dim": 2}, "state_kinds", "must be as many as state_dim"),
        ({"heads": [{"name": "a"}]}, "heads", "cumulant"),
        ({"inputs": "state_action"}, "actions", "must be set"),
        ({"ingest": "tcp://127.0.0.1:1"}, "ingest", "is no setting"),
        ({"noise_floor": object()}, "settings", "must be numbers, texts"),
        ({"noise_floor": float("nan")}, "settings", ""),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(Invalid) as error:
        Learner(**settings)
    assert error.value.field == field and words in error.value.message, str(error.value)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"states": np.zeros((5, 2))}, "states", "must be (4, K), is [5, 2]"),
        ({"states": np.zeros(4), "rewards": np.zeros((4, 2))}, "rewards", "must be one number or (K,), is [4, 2]"),
        ({"next_states": np.zeros((4, 3))}, "next_states", ""),
        ({"rewards": [1.0, 2.0, np.nan, 4.0]}, "rewards", "finite"),
        ({"rewards": ["a", "b", "c", "d"]}, "rewards", "text"),
        ({"terminated": [True]}, "terminated", "must be (4,), is [1]"),
        ({"truncated": [0, 1, 2, 0]}, "truncated", "must be True, False, 1 or 0"),
        ({"discounts": [0.5, 0.5, 0.5, 2.0]}, "discounts", ""),
        ({"times": np.zeros((4, 1))}, "times", "must be (4,), is [4, 1]"),
        ({"states": np.zeros((4, 3)), "next_states": np.zeros((4, 3))}, "state", "states have 2 numbers here"),
        ({"rewards": np.zeros((4, 2))}, "reward", "rows have 1 rewards here, these have 2"),
        ({"stream": ""}, "stream", ""),
    ],
)
def test_wrong_rows_are_refused_by_field_and_none_is_learned(change: dict[str, Any], field: str, words: str) -> None:
    learner = learned(100)
    with pytest.raises(Invalid) as error:
        learner.learn(**{**walk(4), **change})
    assert error.value.field == field and words in error.value.message, str(error.value)
    assert learner.learned == 100
    learner.learn(**walk(4))
    assert learner.learned == 104


def test_questions_that_come_too_early_or_do_not_fit() -> None:
    learner = Learner(discount=0.9)
    for ask in (lambda: learner(STATES), learner.snapshot, learner.refit):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == "not_ready"
    learner.learn([0.0, 0.0], 1.0, [0.1, 0.0])
    assert np.isfinite(learner([0.0, 0.0]))
    with pytest.raises(ValueError, match="how large values may be"):
        learner([[0.0, 0.0], [1.0, 0.0]], std=True)
    with pytest.raises(Invalid, match="states have 2 numbers here, these have 3"):
        learner([0.0, 0.0, 0.0])
    with pytest.raises(Invalid, match="states"):
        learner([np.inf, 0.0])


def test_states_are_found_by_name() -> None:
    learner = Learner(**CRITIC, state_dim=2, state_names=["x", "speed [m/s]"])
    learner.learn(**walk(100))
    frame = {"speed": STATES[:, 1], "x": STATES[:, 0]}
    for std in (False, True):
        for mine, theirs in zip(learner(frame, std), learner(STATES, std), strict=True):
            assert np.array_equal(mine, theirs)
    assert learner({"x": 0.5, "speed": 0.0}) == learner([0.5, 0.0])
    with pytest.raises(Invalid, match="speed: there is no such column"):
        learner({"x": 0.5})


def test_who_has_no_module_is_told_why() -> None:
    blocked = "import sys, criticd; sys.modules['criticd._learner'] = None\n"
    for use in ("criticd.Learner", "import criticd.fleet"):
        done = subprocess.run([sys.executable, "-c", blocked + use], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.stderr.splitlines()[-1].startswith("ImportError: ") and "wheel of your" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["constant", "linear", "model"])
def test_values_are_learned_about_a_mean(tmp_path: Path, kind: str) -> None:
    of_simulator = tmp_path / "sim.model"
    simulator = Learner(**CRITIC)
    simulator.learn(**walk(seed=2))
    simulator.snapshot().save(of_simulator)
    means = {
        "constant": -3.5,
        "linear": {"constant": 1.5, "weights": np.array([2.0, -1.0])},
        "model": of_simulator,
    }
    learner = Learner(mean=means[kind], **CRITIC)
    of_simulator.unlink()
    rows = walk()
    learner.learn(**part(rows, 0, 400))
    again = pickle.loads(pickle.dumps(learner))
    for each in (learner, again):
        each.learn(**part(rows, 400, ROWS))
        assert each.refit().outcome == "adopted"
    assert bits(again.snapshot()) == bits(learner.snapshot()), "without the file"
    far = np.array([[60.0, -40.0], [-80.0, 10.0]])
    said: dict[str, Any] = {"constant": [-3.5, -3.5], "linear": [161.5, -168.5], "model": simulator(far)}
    np.testing.assert_allclose(learner(far), said[kind], atol=1e-3)
    model = learner.snapshot()
    assert (model.mean_function is None) == (kind == "constant")
    places = np.vstack([STATES, far])
    # Rust and Python, and a model that was read again.
    model.save(tmp_path / "about.model")
    for of in (model, Snapshot.load(tmp_path / "about.model")):
        np.testing.assert_allclose(of(places), learner(places), rtol=1e-12, atol=1e-12)
    if kind == "model":
        with pytest.raises(Invalid, match="cannot be read") as refused:
            Learner(mean=of_simulator, **CRITIC)
        assert refused.value.field == "mean"
