"""The newest model is always at hand, whatever was missed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, Route, Start, when
from test_snapshot import model

from criticd import Alarm, Change, Client, CriticdError, Snapshot, Subscriber
from criticd.subscriber import Follower

WALK = np.random.default_rng(0).standard_normal((100_001, 2))


def append(client: Client, first: int, rows: int) -> int:
    """Rows of a walk that jumps, from `first` on; the offset after them."""
    piece = slice(first, first + rows + 1)
    return client.append(seq=first, states=WALK[piece], rewards=WALK[piece][:-1, 0]).offset


def assert_as_answered(snapshot: Snapshot, client: Client, offset: int, whole: bool = False) -> None:
    answer = client.value(WALK[:50], variance=True, min_offset=offset)
    assert (answer.generation, answer.offset) == (snapshot.generation, snapshot.offset)
    mean, deviation = snapshot(WALK[:50], std=True)
    np.testing.assert_allclose(mean, answer.mean, rtol=1e-9, atol=1e-9)
    assert answer.std is not None
    assert np.isfinite(deviation).all()
    # Where only weights have come since, the variance lacks what their rows have taught.
    if whole:
        np.testing.assert_allclose(deviation, answer.std, rtol=1e-6)


def test_models_are_followed(start: Start) -> None:
    daemon = start(*CALM, "snapshot_interval_ms=1500")
    with daemon.client() as client, daemon.subscriber() as subscriber:
        when(lambda: subscriber.received.connections, "a connection")
        with pytest.raises(TimeoutError, match="no model yet"):
            subscriber.wait(0.1)
        assert subscriber.latest is None
        offset = 0
        for part in range(20):
            offset = append(client, 300 * part, 300)
            snapshot = subscriber.wait(PATIENCE_S, offset=offset)
            # The same rows are published again, whole, once the interval is over.
            when(lambda: subscriber.wait() is subscriber.latest, "the newest at hand")
            assert_as_answered(snapshot, client, offset)

        def weights_came() -> bool:
            nonlocal offset
            if not subscriber.received.weights:
                offset = append(client, offset, 10)
            return subscriber.received.weights > 0

        # On a busy machine more than the time between two whole snapshots may have passed with each part.
        when(weights_came, "weights without a dictionary")
        assert_as_answered(subscriber.wait(PATIENCE_S, offset=offset), client, offset)
        before = subscriber.wait()
        adopted = client.refit(wait=True, timeout_s=5 * PATIENCE_S)
        if adopted.outcome == "adopted":
            assert subscriber.wait(PATIENCE_S, generation=before.generation + 1).generation == adopted.generation
        received = subscriber.received
    assert received.snapshots > 0 and received.refused == 0
    assert received.connections == 1


def test_changes_of_the_world_are_told(start: Start) -> None:
    daemon = start(*CALM, "critic.discount=0.8", "critic.dictionary_max=12")
    random, position, sent = np.random.default_rng(3), 0, 0
    told: list[Change] = []
    swapped = threading.Event()

    def listen(change: Change) -> None:
        told.append(change)
        if change.kind == "swapped":
            swapped.set()
        raise ValueError("a listener that fails is heard of in the log alone")

    def walk(client: Client, rows: int, sign: float) -> None:
        """A walk over eleven places whose reward is the place, times `sign`, and noise."""
        nonlocal position, sent
        places = [position]
        for step in random.choice([-1, 1], rows):
            places.append(int(np.clip(places[-1] + step, -5, 5)))
        states = np.array(places, float)[:, None] / 5.0
        rewards = sign * states[:-1, 0] + 0.3 * random.standard_normal(rows)
        client.append(seq=sent, states=states, rewards=rewards)
        position, sent = places[-1], sent + rows

    with daemon.client() as client, daemon.subscriber() as subscriber:
        subscriber.on_change(listen)
        for _ in range(24):
            walk(client, 500, 1.0)
        subscriber.wait(PATIENCE_S, offset=12_000)
        assert not told
        for _ in range(12):
            walk(client, 500, -1.0)
        assert swapped.wait(PATIENCE_S)
        when(lambda: subscriber.received.changes == len(told), "as many changes as were told")
    drift, forked, swap = told[:3]
    assert [drift.kind, forked.kind, swap.kind] == ["drift", "forked", "swapped"]
    assert abs(drift.details["since"] - 12_000) < 1000 and drift.offset > 12_000
    assert drift.critic == "default" and drift.details["streams"] == [] and drift.details["size"] != 0.0
    assert swap.details["from"] == forked.details["from"] and swap.details["kept"] == "generation-1"


def test_alarms_come_before_failures(start: Start) -> None:
    """A heat rises over twenty rows now and then, and the row behind it costs ten."""
    alarm = '[{below = -3.0, false_alarms = 0.02}, {head = "paid", below = -3.0, false_alarms = 0.02}]'
    heads = '[{name = "paid", cumulant = {kind = "reward", index = 0}}]'
    sizes = ("critic.discount=0.9", "critic.dictionary_max=20")
    daemon = start(*CALM, *sizes, f"critic.heads={heads}", f"critic.alarm={alarm}")
    random, heat = np.random.default_rng(5), 0.0
    states, rewards = [[0.0]], []
    for _ in range(9000):
        fails = heat >= 1.0
        heat = 0.0 if fails or (heat == 0.0 and random.random() > 0.01) else heat + 0.05
        states.append([heat + 0.03 * random.standard_normal()])
        rewards.append(0.3 * random.standard_normal() - 10.0 * fails)
    told: list[Alarm] = []
    with daemon.client() as client, daemon.subscriber() as subscriber:
        subscriber.on_alarm(told.append)
        for at in range(0, 9000, 500):
            client.append(seq=at, states=states[at : at + 501], rewards=rewards[at : at + 500])
            if at == 0:
                # Alarms that are raised before it listens are lost.
                subscriber.wait(PATIENCE_S, offset=500)
            if at == 2000:
                assert client.refit(wait=True, timeout_s=5 * PATIENCE_S).outcome == "adopted"
        client.value([[0.0]], min_offset=9000)
        alarms = client.status()["critics"][0]["alarms"]
        raised = sum(alarm["raised"] for alarm in alarms)
        when(lambda: sum(alarm.raised for alarm in told) == raised, "as many alarms as were raised")
        assert subscriber.received.alarms == len(told) and subscriber.received.refused == 0
    for found, head in zip(alarms, (None, "paid"), strict=True):
        assert (found["head"], found["below"], found["missing"]) == (head, -3.0, 0)
        assert found["hits"] >= 10 and (found["lead_rows"] or 0.0) > 2.0
        share = found["false_share"]
        assert share is not None and share < 0.04
        first = next(alarm for alarm in told if alarm.head == head)
        assert first.raised and first.offset == first.since and first.below == -3.0 and first.value is not None


def test_an_event_is_taken_apart() -> None:
    message = {"v": 1, "type": "event", "event": "forked", "time": 1.0, "critic": "other", "offset": 7, "from": 3}
    assert Change.of(message) == Change("forked", "other", 7, {"from": 3})
    with pytest.raises(KeyError):
        Change.of({"type": "event", "event": "forked", "critic": "other"})
    message = {"event": "alarm_ended", "critic": "main", "head": None, "stream": "arm", "offset": 9, "since": 4}
    ended = Alarm(False, "main", None, "arm", offset=9, since=4, below=-3.0, value=None)
    assert Alarm.of({**message, "below": -3.0, "value": None}) == ended


def test_whoever_is_late_asks(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client:
        offset = append(client, 0, 300)
        client.value(WALK[0], min_offset=offset)
        # Nothing is published any more: no row comes.
        with daemon.subscriber() as subscriber:
            assert_as_answered(subscriber.wait(PATIENCE_S, offset=offset), client, offset, whole=True)
            assert subscriber.received.fetched >= 1


@pytest.mark.parametrize("limit", [1024, 8192])
def test_models_that_are_too_large_to_publish_are_fetched(start: Start, limit: int) -> None:
    # At the lower limit they are announced, at the other published without their variance. The dictionary of a squared
    # exponential grows with each part.
    grows = (
        "critic.dictionary_max=100",
        "critic.kernel_profile=gaussian",
        "critic.lambda=1.0",
        "critic.tolerance=1e-5",
    )
    daemon = start(*CALM, f"publish_bytes_max={limit}", *grows)
    with daemon.client() as client, daemon.subscriber() as subscriber:
        offset = 0
        for part in range(3):
            offset = append(client, 300 * part, 300)
            snapshot = subscriber.wait(PATIENCE_S, offset=offset)
            while subscriber.wait(PATIENCE_S).covariance is None:
                next(subscriber.updates(timeout_s=PATIENCE_S))
            snapshot = subscriber.wait(PATIENCE_S)
            assert len(snapshot.dictionary) > 30
            assert_as_answered(snapshot, client, offset)
        assert subscriber.received.fetched >= 3


def test_a_subscriber_outlives_the_daemon(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.subscriber() as subscriber:
        with daemon.client() as client:
            append(client, 0, 1200)
            old = subscriber.wait(PATIENCE_S, offset=1200)
            daemon.restart()
            # The model of before stays until there is another one.
            assert subscriber.latest is not None
            offset = client.append(session="new", seq=0, states=WALK[:301], rewards=-WALK[:300, 0]).offset
            for snapshot in subscriber.updates(timeout_s=PATIENCE_S):
                if snapshot.offset == offset:
                    break
            else:
                raise AssertionError("the new daemon's model never came")
            assert_as_answered(snapshot, client, offset)
        assert snapshot is not old
        assert subscriber.received.connections == 2


def test_a_cut_path_costs_what_was_published_meanwhile_and_no_more(start: Start, route: Callable[[str], Route]) -> None:
    daemon = start(*CALM)
    path = route(daemon.endpoints.publish)
    with Subscriber(path.endpoint, daemon.endpoints.control) as subscriber, daemon.client() as client:
        append(client, 0, 300)
        subscriber.wait(PATIENCE_S, offset=300)
        path.cut()
        offset = append(client, 300, 300)
        client.value(WALK[0], min_offset=offset)
        path.heal()
        assert_as_answered(subscriber.wait(PATIENCE_S, offset=offset), client, offset)


def test_a_data_directory_leads_to_a_daemon_on_other_ports(start: Start, tmp_path: Path) -> None:
    with Subscriber(data_dir=tmp_path / "data") as subscriber:
        daemon = start(*CALM, directory=tmp_path)
        with daemon.client() as client:
            append(client, 0, 300)
        assert subscriber.wait(PATIENCE_S, offset=300).offset == 300
        daemon.kill()
        moved = start(*CALM, directory=tmp_path)
        assert moved.endpoints != daemon.endpoints
        with moved.client() as client:
            offset = client.append(session="new", seq=0, states=WALK[:201], rewards=WALK[:200, 1]).offset
            for snapshot in subscriber.updates(timeout_s=PATIENCE_S):
                if snapshot.offset == offset:
                    break
            else:
                raise AssertionError("the moved daemon's model never came")


def test_each_critic_has_its_own(start: Start) -> None:
    config = '[[critic]]\nname = "a"\ndiscount = 0.9\n[[critic]]\nname = "ab"\ndiscount = 0.0\n'
    daemon = start(config=config)
    with daemon.client() as client, daemon.subscriber() as first, daemon.subscriber(critic="ab") as other:
        append(client, 0, 300)
        assert (first.wait(PATIENCE_S).critic, first.wait().discount) == ("a", 0.9)
        assert (other.wait(PATIENCE_S).critic, other.wait().discount) == ("ab", 0.0)


def test_many_threads_read(start: Start) -> None:
    daemon = start(*CALM, "snapshot_interval_ms=100")
    over, faults = threading.Event(), list[str]()
    with daemon.client() as client, daemon.subscriber() as subscriber:
        append(client, 0, 200)
        subscriber.wait(PATIENCE_S)

        def read() -> None:
            last = 0
            while not over.is_set():
                snapshot = subscriber.wait()
                if snapshot.offset < last or len(snapshot.weights) != len(snapshot.dictionary):
                    faults.append(f"offset {snapshot.offset} after {last}")
                last = snapshot.offset
                snapshot(WALK[:10])

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for part in range(40):
            append(client, 200 + 50 * part, 50)
        subscriber.wait(PATIENCE_S, offset=2200)
        over.set()
        for thread in threads:
            thread.join()
    assert faults == []


def test_a_thread_that_fails_is_not_silent(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client:
        append(client, 0, 300)

    def broken(self: Follower, snapshot: Snapshot, published: bool) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Follower, "whole", broken)
    with daemon.subscriber() as subscriber, pytest.raises(CriticdError, match="a bug"):
        subscriber.wait(PATIENCE_S)


def test_what_follows_is_decided_by_revision() -> None:
    def message(snapshot: Snapshot, **changes: object) -> dict[str, object]:
        return {**snapshot.message(), **changes}

    follower = Follower("default", variance=True)
    follower.connected()
    first = model()
    assert follower.publication(message(first)) and not follower.wanting
    weights = {**message(first), "type": "weights", "dictionary": [], "dictionary_start": 4}
    assert follower.publication({**weights, "revision": 18, "offset": 1010})
    assert follower.latest is not None and (follower.latest.revision, follower.latest.offset) == (18, 1010)
    # One that was missed: ask. What is old: never mind. A fetched model mends it.
    assert not follower.publication({**weights, "revision": 20})
    assert follower.wanting and follower.received.gaps == 1
    assert not follower.publication({**weights, "revision": 16}) and follower.received.gaps == 1
    assert not follower.whole(replace(first, revision=18), published=False)
    assert follower.whole(replace(first, revision=20), published=False) and not follower.wanting
    # Of another critic whose name begins alike, and of another kind.
    assert not follower.publication(message(first, critic="default2", revision=30))
    assert not follower.publication({"type": "status"})
    # Announced: ask. Without variance: use it, and ask.
    announcement = {
        "type": "announcement",
        "critic": "default",
        "generation": 4,
        "revision": 21,
        "offset": 0,
        "bytes": 1,
    }
    assert not follower.publication({**announcement, "generation": 3, "revision": 20}) and not follower.wanting
    assert not follower.publication(announcement) and follower.wanting
    bare = replace(first, generation=4, revision=21, covariance=None)
    assert follower.publication(bare.message()) and follower.wanting
    assert follower.whole(replace(bare, covariance=first.covariance), published=False) and not follower.wanting
    assert not follower.publication(bare.message()) and follower.latest.covariance is not None
    # Another daemon, or one that has forgotten: only after the connection broke may it be less.
    less = replace(first, generation=1, revision=1, offset=5)
    assert not follower.publication(less.message())
    follower.connected()
    assert follower.wanting and follower.publication(less.message()) and follower.latest.revision == 1
