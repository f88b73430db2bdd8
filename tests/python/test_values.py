"""Gymnasium environments streamed in; the value function read back, evaluated here, compared with fresh rollouts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from client import PATIENCE_S, Control, Map, Refused, evaluate, pack, receive, rounding, settles, when
from conftest import Start
from environments import Stream, rollouts

ENVIRONMENTS = ["Pendulum-v1", "MountainCarContinuous-v0"]


def answers_of_one_model(control: Control, states: Any, critic: str = "default") -> tuple[Map, Map]:
    """A snapshot and an answer of the same generation and offset."""
    found: list[Map] = []

    def are_of_one_model() -> bool:
        snapshot = control.ask("snapshot", variance=True, critic=critic)
        answer = control.ask("value", states=states, variance=True, critic=critic)
        found[:] = [snapshot, answer]
        return (snapshot["generation"], snapshot["offset"]) == (answer["generation"], answer["offset"])

    when(are_of_one_model, "snapshot and value from the same model")
    return found[0], found[1]


def assert_equal_values(snapshot: Map, answer: Map, states: Any) -> tuple[float, float]:
    """Equal to 1e-9, or as far as rounding allows. The largest relative differences found, of mean and variance."""
    mean, variance = evaluate(snapshot, states)
    assert variance is not None
    slack = rounding(snapshot, states)
    differences = np.abs(mean - answer["mean"]), np.abs(variance - answer["variance"])
    np.testing.assert_array_less(differences[0], 1e-9 * np.abs(answer["mean"]) + slack[0])
    np.testing.assert_array_less(differences[1], 1e-9 * answer["variance"] + slack[1])
    relative = differences[0] / np.abs(answer["mean"]), differences[1] / (answer["variance"] + 1e-300)
    return float(relative[0].max()), float(relative[1].max())


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        pytest.param("Pendulum-v1", 0.5, id="Pendulum-noisy"),
        pytest.param("MountainCarContinuous-v0", 0.0, id="MountainCar-deterministic"),
        pytest.param("Pendulum-v1", 0.0, id="Pendulum-deterministic", marks=NIGHTLY),
        pytest.param("MountainCarContinuous-v0", 0.5, id="MountainCar-noisy", marks=NIGHTLY),
    ],
)
def test_a_snapshot_evaluates_here_as_it_does_there(start: Start, name: str, noise: float) -> None:
    # The one refit is asked for: another that came between two answers would make them answers of two models.
    daemon = start("critic.discount=0.95", "critic.refit_first_rows=0", "critic.evidence_rows=200")
    subscriber, push, control = daemon.subscribe("snapshot.default"), daemon.push(), daemon.control()
    streams = [Stream(name, seed, noise) for seed in range(3)]
    generator = np.random.default_rng(1)
    sent = 0
    while sent < 3000:
        # Interleaved; the first stream sends single steps, the others batches of a few lengths.
        for number, stream in enumerate(streams):
            rows = 1 if number == 0 else int(generator.integers(1, 40))
            body = stream.step() if number == 0 else stream.batch(rows)
            push.send(pack({"stream": f"copy-{number}", "session": "run", **body}))
            sent += rows
    status = control.wait_for_offset(sent)
    assert (status["offset"], status["streams"], status["rejected"]) == (sent, 3, {})
    positions = control.ask("streams")["streams"]
    assert {key: position["next_seq"] for key, position in positions.items()} == {
        f"copy-{number}": stream.seq for number, stream in enumerate(streams)
    }
    states = [stream.step()["state"] for stream in streams for _ in range(70)]
    answer = control.ask("value", states=np.array(states), min_offset=sent)
    assert answer["offset"] == sent and answer["mean"].shape == (210,)
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    snapshot, answer = answers_of_one_model(control, np.array(states))
    errors = assert_equal_values(snapshot, answer, states)
    print(f"\n{name}, noise {noise}: relative difference of means {errors[0]:.1e}, of variances {errors[1]:.1e}")
    listed = control.ask("value", states=[list(map(float, state)) for state in states], arrays="list", variance=True)
    assert listed["mean"] == answer["mean"].tolist() and listed["variance"] == answer["variance"].tolist()

    # What was published says the same as what is answered, wherever both came from the same rows.
    # The last rows are published as well, though the stream pauses then.
    for _ in range(3):
        body = streams[0].batch(50)
        push.send(pack({"stream": "copy-0", "session": "run", **body}))
        sent += 50
        while (published := receive(subscriber)[1])["offset"] < sent:
            pass
        answer = control.ask("value", states=np.array(states), variance=True)
        assert answer["offset"] == published["offset"]
        if published["generation"] == answer["generation"]:
            assert_equal_values(published, answer, states)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_fresh_rollouts_agree_with_what_was_learned(start: Start, name: str) -> None:
    discount, horizon, noise, rows = 0.95, 100, 0.5, 24_000
    assert discount**horizon < 0.01
    # Models are selected at the same rows and without haste, so that little depends on how fast the machine is. Returns of
    # one episode share their noise: the clustered variance knows that, the model's own covers less (0.79 of Pendulum's
    # returns).
    calm = ("critic.refit_first_rows=0", "critic.refit_score_drop=0.0", "critic.refit_budget_s=600")
    daemon = start(f"critic.discount={discount}", "critic.variance=clustered", *calm)
    push, control = daemon.push(), daemon.control()
    streams = [Stream(name, 100 + number, noise) for number in range(4)]
    sent = 0
    while sent < rows:
        for number, stream in enumerate(streams):
            push.send(pack({"stream": f"copy-{number}", "session": "run", **stream.batch(100)}))
            sent += 100
        control.wait_for_learned(sent)
        if sent in (rows // 4, rows):
            control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)
    status = control.wait_for_learned(rows)
    assert status["rejected"] == {}
    critic = status["critics"][0]
    control.ask("value", states=streams[0].state[None], min_offset=rows)
    # The status knows of an adoption a moment before answers come from the new model.
    when(lambda: control.ask("snapshot")["generation"] >= critic["generation"], "the new model")
    snapshot = control.ask("snapshot", variance=True)
    found = list(rollouts(name, noise, discount, horizon, 600, 150, seed=7))
    states, returns = np.array([state for state, _ in found]), np.array([value for _, value in found])
    mean, variance = evaluate(snapshot, states)
    assert variance is not None
    deviation = np.sqrt(variance + snapshot["noise"]["variance"])
    inside = np.abs(returns - mean) < 1.6449 * deviation
    correlation = float(np.corrcoef(mean, returns)[0, 1])
    print(
        f"\n{name}: {rows} rows, generation {snapshot['generation']}, dictionary {critic['dictionary_size']}, "
        f"correlation {correlation:.4f}, coverage of the 90 % interval {inside.mean():.3f} (from resets "
        f"{inside[::2].mean():.3f}, along trajectories {inside[1::2].mean():.3f}), root mean square error "
        f"{np.sqrt(np.mean((returns - mean) ** 2)):.2f} of returns that spread by {returns.std():.1f}"
    )
    assert snapshot["generation"] >= 3
    assert correlation >= 0.9
    assert inside.mean() >= 0.8


def test_two_critics_learn_two_discounts(start: Start) -> None:
    config = '[[critic]]\nname = "far"\ndiscount = 0.9\n[[critic]]\nname = "near"\ndiscount = 0.0\n'
    daemon = start(config=config)
    push, control = daemon.push(), daemon.control()
    # A loop of ten states with reward 1 throughout: V is 10 far ahead, 1 at once.
    states = np.array([[np.cos(k * 0.2 * np.pi), np.sin(k * 0.2 * np.pi)] for k in range(10)])
    states = np.vstack([np.tile(states, (100, 1)), states[:1]])
    push.send(pack({"seq": 0, "states": states, "rewards": np.ones(1000)}))
    control.wait_for_offset(1000)
    for critic, value in (("far", 10.0), ("near", 1.0)):
        control.ask("value", states=states[:1], critic=critic, min_offset=1000)
        snapshot, answer = answers_of_one_model(control, states[:10], critic)
        assert (snapshot["critic"], snapshot["discount"]) == (critic, 1 - 1 / value)
        np.testing.assert_allclose(answer["mean"], value, rtol=0.02)
        assert_equal_values(snapshot, answer, states[:10])
    assert control.ask("value", states=states[:1])["mean"] == pytest.approx(10.0, rel=0.02)
    with pytest.raises(Refused, match="unknown_critic"):
        control.ask("value", states=states[:1], critic="middle")
    asked: Map = {"states": states[:10], "variance": True, "min_offset": 1000}

    def are_answered_together_as_alone() -> None:
        both = control.ask("value", critics=["near", "far"], **asked)["critics"]
        assert set(both) == {"near", "far"}
        for critic, answer in both.items():
            alone = control.ask("value", critic=critic, **asked)
            # A refit that ends in between makes them answers of two models.
            assert alone["generation"] == answer["generation"]
            np.testing.assert_array_equal(alone["mean"], answer["mean"])
            np.testing.assert_array_equal(alone["variance"], answer["variance"])

    settles(are_answered_together_as_alone)
    with pytest.raises(Refused, match='unknown_critic.*"middle"'):
        control.ask("value", states=states[:1], critics=["near", "middle"])
    topics, places = set(), itertools.cycle(range(1000))
    subscriber = daemon.subscribe("snapshot.")

    def both_come() -> bool:
        k = next(places)
        push.send(pack({"state": states[k], "next_state": states[k + 1], "reward": 1.0}))
        while subscriber.poll(0):
            topics.add(receive(subscriber)[0])
        return topics == {"snapshot.far", "snapshot.near"}

    when(both_come, "snapshots of both")
