"""Requests get their answers, and a caller without one hears what to do."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, Puppet, Start, when

from criticd import Client, CriticdError, Endpoints, Invalid, Malformed, NoReply, Refused, Unreachable, aio
from criticd._protocol import pack

NOWHERE = "tcp://127.0.0.1:1"
WALK = np.random.default_rng(0).standard_normal((301, 2))
Make = Callable[[Callable[[dict[str, Any]], dict[str, Any] | None]], Puppet]


@pytest.mark.parametrize("client", [Client, aio.Client], ids=["plain", "aio"])
def test_what_is_appended_is_checked_as_what_is_sent(client: Any) -> None:
    asking = client(NOWHERE, timeout_s=0.01)

    def append(**change: Any) -> None:
        found = asking.append(**{"seq": 0, "state": [0.5], "reward": 1.0, "next_state": [0.6], **change})
        if client is aio.Client:
            asyncio.run(found)

    for change, field in (
        ({"terminated": "False"}, "terminated"),
        ({"truncated": 1.0}, "truncated"),
        ({"truncated": [True, 2]}, "truncated"),
        ({"reward": "1"}, "reward"),
        ({"states": [[0.5], [None]]}, "states"),
    ):
        with pytest.raises(Invalid) as invalid:
            append(**change)
        assert invalid.value.field == field
    with pytest.raises(Unreachable):
        append(terminated=1, truncated=np.array([0, 1]))


def test_what_is_asked_with_is_numbers() -> None:
    with Client(NOWHERE, timeout_s=0.01) as client:
        nothing: Any = [[None]]
        asked: list[tuple[Callable[[], object], str]] = [
            (lambda: client.value([["0.5"]]), "states"),
            (lambda: client.value(nothing), "states"),
            (lambda: client.value([[0.5]], actions=["1"]), "actions"),
            (lambda: client.act([["0.5"]]), "states"),
            (lambda: client.suggest(["1"]), "context"),
        ]
        for ask, field in asked:
            with pytest.raises(Invalid) as invalid:
                ask()
            assert invalid.value.field == field


def test_flags_of_an_append_may_be_0_and_1(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client:
        row: dict[str, Any] = {"state": WALK[0], "reward": 1.0, "next_state": WALK[1]}
        assert client.append(seq=0, **row, terminated=np.int64(1), truncated=0).accepted == 1
        many: dict[str, Any] = {"states": WALK, "rewards": WALK[:-1, 0], "terminated": [0] * 299 + [1]}
        done = client.append(seq=1, **many)
        client.value(WALK, min_offset=done.offset)
        assert client.status()["critics"][0]["counts"]["terminations"] == 2


def test_every_operation(start: Start) -> None:
    daemon = start(*CALM, "critic.discount=0.5")
    with daemon.client() as client:
        hello = client.hello()
        assert hello.protocol == (1, 1) and hello.critics == ("default",) and hello.state_dim is None
        assert {"hello", "pages"} <= hello.features
        assert (hello.limits.rows_per_batch, hello.limits.message_bytes) == (4096, 1 << 20)
        assert client.status()["version"] == hello.version
        assert client.ping() > 0
        done = client.append(stream="walk", session="a", seq=0, states=WALK, rewards=WALK[:-1, 0])
        assert (done.accepted, done.duplicates, done.next_seq, done.offset) == (300, 0, 300, 300)
        value = client.value(WALK, variance=True, min_offset=done.offset)
        assert value.mean.shape == (301,) and value.std is not None and value.std.shape == (301,)
        assert (value.offset, value.generation) == (300, 1)
        assert client.value(WALK[0]).mean.shape == (1,)
        assert client.value(WALK[0]).std is None
        position = client.streams()["walk"]
        assert (position.session, position.next_seq, position.rows) == ("a", 300, 300)
        assert abs(position.last_seen - time.time()) < 600
        outcome = client.refit(wait=True, timeout_s=5 * PATIENCE_S)
        assert outcome.outcome in ("adopted", "rejected") and outcome.generation in (1, 2)
        assert client.refit().outcome == "started"

        def has_ended() -> bool:
            refit = client.status()["critics"][0]["refit"]
            return not refit["running"] and not refit["due"]

        when(has_ended, "the end of the refit, before the rebuild below, whose generation it would change")
        assert client.snapshot(variance=False).covariance is None
        assert client.snapshot("default").covariance is not None
        assert client.hello().state_dim == 2
        assert client.hello().rewards == 1
        if client.status()["durable"]:
            assert client.checkpoint() == 300
            rebuilt = client.rebuild(wait=True, timeout_s=5 * PATIENCE_S)
            assert rebuilt.outcome == "adopted"
            when(lambda: client.value(WALK[0]).generation == rebuilt.generation, "answers of the rebuilt model")
            with pytest.raises(Refused, match="unknown_critic"):
                client.rebuild("other")
            found = client.remove([{"offsets": (10, 60)}])
            assert found.dry_run and found.rows == 50 and found.ranges == [(10, 60)] and not client.status()["removals"]
            back = client.remove([{"offsets": (10, 60)}], dry_run=False, by="a test")
            assert not back.dry_run and back.subtracted == found.subtracted and sum(back.streams.values()) == 50

            def is_free() -> bool:
                [removal] = client.status()["removals"]
                return removal["by"] == "a test" and removal["critics"][0]["free_generation"] is not None

            when(is_free, "a model without any influence of these rows")
            with pytest.raises(Refused, match="select"):
                client.remove([{"stream": "a", "offsets": (0, 1)}])
        else:
            with pytest.raises(Refused, match="not_ready"):
                client.checkpoint()


def test_a_large_model_comes_in_pages(start: Start) -> None:
    daemon = start(*CALM, "critic.dictionary_max=400", "critic.tolerance=1e-9")
    with daemon.client() as client:
        states = np.random.default_rng(1).standard_normal((1001, 6))
        done = client.append(seq=0, states=states, rewards=states[:-1, 0])
        client.value(states[0], min_offset=done.offset)
        first = client.request("snapshot", variance=True, page=0)
        assert first["pages"] >= 3
        snapshot = client.snapshot()
        assert len(snapshot.dictionary) == 400 and snapshot.offset == 1000
        np.testing.assert_allclose(snapshot(states), client.value(states).mean, rtol=1e-9, atol=1e-9)
        answer = client.value(states, std=True)
        more = client.append(seq=1000, states=states[::-1], rewards=states[1:, 1])
        assert client.value(states[0], min_offset=more.offset).offset == 2000
        then = client.snapshot(as_of=1000, timeout_s=5 * PATIENCE_S)
        assert pack(then.message() | {"time": 0.0, "revision": 0}) == pack(
            snapshot.message() | {"time": 0.0, "revision": 0}
        )
        again = client.value(states, std=True, as_of=1000, timeout_s=5 * PATIENCE_S)
        assert (again.offset, again.generation) == (1000, answer.generation)
        assert np.array_equal(again.mean, answer.mean) and again.variance is not None
        assert answer.variance is not None and np.array_equal(again.variance, answer.variance)
        now = client.value(states, critics=["default"], as_of=datetime.now(timezone.utc), timeout_s=5 * PATIENCE_S)
        assert now["default"].offset == 2000
        with pytest.raises(Refused, match="lies ahead: 2000 rows"):
            client.snapshot(as_of=2001)


@pytest.mark.parametrize("client", [Client, aio.Client], ids=["plain", "aio"])
def test_a_daemon_that_would_answer_of_the_present_is_not_asked_about_the_past(puppet: Make, client: Any) -> None:
    made = puppet(lambda request: {"mean": [0.0]})
    with pytest.raises(CriticdError, match="nothing of the past"):
        found = client(made.endpoint).value([[0.5]], as_of=7)
        asyncio.run(found)
    assert not any(request["op"] == "value" for request in made.requests)


def test_errors_carry_what_is_known(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client:
        client.append(seq=0, states=WALK, rewards=WALK[:-1, 0])
        cases: list[tuple[Callable[[], Any], str, str | None, int | None]] = [
            (lambda: client.value(np.zeros((1, 3)), min_offset=300), "wrong_dimension", "states", None),
            (lambda: client.value([[0.0, 0.0], [np.nan, 0.0]], min_offset=300), "not_finite", "states", 1),
            (lambda: client.value([0.0, 0.0], critic="other"), "unknown_critic", "critic", None),
            (lambda: client.append(seq=310, states=WALK, rewards=WALK[:-1, 0]), "sequence_gap", "seq", None),
            (lambda: client.request("sing"), "unknown_op", "op", None),
        ]
        for ask, code, field, index in cases:
            with pytest.raises(Refused) as refused:
                ask()
            assert (refused.value.code, refused.value.field, refused.value.index) == (code, field, index)
            assert code in str(refused.value) and refused.value.message in str(refused.value)
        with pytest.raises(Refused) as refused:
            client.append(seq=310, states=WALK, rewards=WALK[:-1, 0])
        assert refused.value.expected_seq == 300


def is_left_open(client: Client, op: str) -> bool:
    """Whether a request has gone and nothing has come, rather than no connection been made in time."""
    with pytest.raises((NoReply, Unreachable)) as silence:
        client.request(op, timeout_s=0.3)
    return isinstance(silence.value, NoReply) and "timeout_s" in str(silence.value)


def test_nobody_there_and_nobody_answering(puppet: Make, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="criticd serve") as unreachable:
        Client(NOWHERE, timeout_s=0.1).ping()
    assert unreachable.value.endpoint == NOWHERE and isinstance(unreachable.value, TimeoutError)
    with pytest.raises(Unreachable, match=r"endpoints\.json"):
        Client(data_dir=tmp_path, timeout_s=0.1).ping()
    silent = puppet(lambda request: None)
    with Client(silent.endpoint) as client:
        when(lambda: is_left_open(client, "ping"), "a request without a reply")


def test_a_late_reply_answers_nothing_else(puppet: Make) -> None:
    owed: list[int] = []

    def reply(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["op"] == "owed":
            owed.append(request["id"])
            return None
        # First the reply that is owed, under its old number.
        return {"id": owed[0], "uptime_s": -1.0} if request["op"] == "late" else {"uptime_s": 2.0}

    made = puppet(reply)
    with Client(made.endpoint) as client:
        when(lambda: is_left_open(client, "owed") and owed, "a request that is owed its reply")
        when(lambda: is_left_open(client, "late"), "no reply under its own number")
        assert client.ping() == 2.0


def test_refusals_say_how_long_to_wait(puppet: Make) -> None:
    error = {"code": "overloaded", "message": "no room", "retry_after_ms": 70}
    made = puppet(lambda request: {"error": error})
    with Client(made.endpoint) as client, pytest.raises(Refused) as refused:
        client.refit()
    assert refused.value.retry_after_ms == 70


@pytest.mark.parametrize("client", [Client, aio.Client], ids=["plain", "aio"])
def test_labels_are_sent_again_until_there_is_room(puppet: Make, client: Any) -> None:
    error = {"code": "overloaded", "message": "no room", "retry_after_ms": 1}
    made = puppet(lambda request: {"error": error} if len(made.requests) < 3 else {"offset": 9})
    found = client(made.endpoint).send_labels("gentle", [0.5, 1.5], offsets=[3, 4])
    assert (asyncio.run(found) if client is aio.Client else found) == 2
    assert [request["labels"]["offsets"] for request in made.requests] == 3 * [[3, 4]]


def test_a_page_that_is_gone_makes_it_start_again(puppet: Make, start: Start) -> None:
    from test_snapshot import model

    whole = pack(model().message())
    half = len(whole) // 2
    asked: list[tuple[int, int | None]] = []

    def reply(request: dict[str, Any]) -> dict[str, Any]:
        asked.append((request["page"], request.get("revision")))
        if asked == [(0, None), (1, 5)]:
            return {"error": {"code": "not_ready", "message": "gone", "field": "revision"}}
        data = (whole[:half], whole[half:])[request["page"]]
        revision = 5 if len(asked) == 1 else 6
        return {"page": request["page"], "pages": 2, "revision": revision, "bytes": len(whole), "data": data}

    with Client(puppet(reply).endpoint) as client:
        assert client.snapshot().revision == 17
    assert asked == [(0, None), (1, 5), (0, None), (1, 6)]


def test_threads_share_a_client(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client:
        client.append(seq=0, states=WALK, rewards=WALK[:-1, 0])
        client.value(WALK[0], min_offset=300)
        expected = client.value(WALK).mean
        failures: list[str] = []

        def ask(number: int) -> None:
            for row in range(number, 300, 10):
                if client.value(WALK[row]).mean[0] != expected[row]:
                    failures.append(f"row {row}")

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_a_client_outlives_the_daemon(start: Start) -> None:
    daemon = start()
    with daemon.client() as client:
        assert client.ping() >= 0
        daemon.restart()
        assert client.ping() >= 0
        daemon.kill()
        with pytest.raises((Unreachable, NoReply)):
            client.request("ping", timeout_s=0.3)
        daemon.start()
        assert client.ping() >= 0


def test_replies_that_make_no_sense_are_malformed(puppet: Make) -> None:
    made = puppet(lambda request: {"v": 2})
    with Client(made.endpoint) as client, pytest.raises(Malformed, match="version 2"):
        client.ping()
    with Client(puppet(lambda request: {"ok": None}).endpoint) as client, pytest.raises(Malformed):
        client.ping()


def test_endpoints_are_read_from_the_data_directory(start: Start, tmp_path: Path) -> None:
    daemon = start()
    assert Endpoints.read(daemon.data_dir) == daemon.endpoints
    with Client(data_dir=daemon.data_dir) as client:
        assert client.ping() >= 0
    with pytest.raises(FileNotFoundError):
        Endpoints.read(tmp_path)
    for text in ("", "[]", '{"ingest": "tcp://127.0.0.1:1"}'):
        with pytest.raises(Malformed):
            Endpoints.parse(text)


def test_exceptions_travel_between_processes() -> None:
    refused = Refused({"code": "out_of_range", "message": "no", "field": "discount", "index": 3})
    for error in (refused, Unreachable("tcp://x:1", 1.0), NoReply("tcp://x:1", "ping", 1.0), Invalid("state", "no", 2)):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
