"""What is sent is what was given, in order, once; what cannot be sent is said."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, Catcher, Puppet, Start, when

from criticd import Client, CriticdError, Full, Invalid, Refused, Sender
from criticd._rows import Rows
from criticd._spool import Spool

NOWHERE = "tcp://127.0.0.1:1"
Make = Callable[[Callable[[dict[str, Any]], dict[str, Any] | None]], Puppet]


def refusal(code: str, **details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "said the puppet", **details}}


class Book:
    """A daemon's side of one stream, that may be told to refuse: what it has accepted, by seq."""

    def __init__(self, *refusals: dict[str, Any] | None) -> None:
        self.refusals = list(refusals)
        self.rows: list[float] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.refusals and (refused := self.refusals.pop(0)) is not None:
            return refused
        seq, states = request["seq"], request["states"]
        if seq > len(self.rows):
            return refusal("sequence_gap", expected_seq=len(self.rows))
        new = states[len(self.rows) - seq :, 0].tolist()
        self.rows += new
        duplicates = len(states) - len(new)
        return {"accepted": len(new), "duplicates": duplicates, "next_seq": len(self.rows), "offset": len(self.rows)}


def count(sender: Sender, first: int, last: int) -> None:
    for row in range(first, last):
        sender.send([float(row)], 0.0, [row + 1.0])


def count_at_once(sender: Sender, last: int) -> None:
    """Rows of one message, however long this process is held up."""
    states = np.arange(float(last))[:, np.newaxis]
    sender.send_batch(states, np.zeros(last), states + 1)


def test_rows_arrive_as_they_were_given(catcher: Catcher) -> None:
    generator = np.random.default_rng(0)
    with Sender(catcher.endpoint, stream="robot", session="s", batch_rows=7) as sender:
        buffer = np.zeros(2, np.float32)
        for row in range(20):
            buffer[:] = row, -row
            # The same buffer is used again at once: it must have been copied.
            sender.send(
                buffer,
                row,
                buffer + 1,
                terminated=row == 9,
                truncated=row == 19,
                action=row % 3,
                discount=0.5,
                time=1.7e9,
            )
            buffer[:] = np.nan
        piece = generator.standard_normal((5, 2))
        assert sender.send_trajectory(piece, np.arange(4.0), truncated=True, actions=np.arange(4)) == 4
        table = generator.standard_normal((30, 2))
        ends = np.arange(30) % 10 == 9
        assert sender.send_batch(table, np.arange(30.0), table + 1, terminated=ends, stream="other") == 30
        assert sender.flush(PATIENCE_S)
        assert sender.position() == 24 and sender.position("other") == 30 and sender.position("third") == 0
        batches = catcher.batches(54)
    assert {batch["session"] for batch in batches} == {"s"}
    assert max(len(batch["rewards"]) for batch in batches) == 7
    robot = [batch for batch in batches if batch["stream"] == "robot"]
    first = [batch for batch in robot if batch["seq"] < 20]
    rows = {key: np.concatenate([b[key] for b in first]) for key in first[0] if isinstance(first[0][key], np.ndarray)}
    assert rows["states"].tolist() == [[row, -row] for row in range(20)]
    assert rows["next_states"].tolist() == [[row + 1, 1 - row] for row in range(20)]
    assert rows["rewards"].tolist() == list(range(20)) and rows["actions"].tolist() == [row % 3 for row in range(20)]
    assert np.flatnonzero(rows["terminated"]).tolist() == [9] and np.flatnonzero(rows["truncated"]).tolist() == [19]
    assert set(rows["discounts"]) == {0.5} and set(rows["times"]) == {1.7e9}
    second = [batch for batch in robot if batch["seq"] >= 20]
    # Rows that are laid out otherwise go into another message.
    assert [batch["seq"] for batch in second] == [20] and "discounts" not in second[0]
    assert np.array_equal(second[0]["next_states"], piece[1:]) and second[0]["truncated"].tolist() == [False] * 3 + [
        True
    ]
    other = [batch for batch in batches if batch["stream"] == "other"]
    assert [batch["seq"] for batch in other] == [0, 7, 14, 21, 28]
    assert np.array_equal(np.concatenate([batch["states"] for batch in other]), table)
    assert np.array_equal(np.concatenate([batch["terminated"] for batch in other]), ends)


def test_several_rewards_and_actions(catcher: Catcher) -> None:
    with Sender(catcher.endpoint) as sender:
        sender.send([1.0], [1.0, 2.0], [2.0], action=[3.0, 4.0, 5.0])
        sender.send_step(["a", "b"], [[1.0], [2.0]], [[1.0, 2.0], [3.0, 4.0]], [[2.0], [3.0]], actions=[0, 1])
        assert sender.flush(PATIENCE_S)
        found = {batch["stream"]: batch for batch in catcher.batches(3)}
    assert found["default"]["rewards"].tolist() == [[1.0, 2.0]] and found["default"]["actions"].tolist() == [
        [3.0, 4.0, 5.0]
    ]
    assert found["a"]["rewards"].tolist() == [[1.0, 2.0]] and found["b"]["actions"].tolist() == [1.0]


def test_what_rows_say_of_policies_arrives(catcher: Catcher) -> None:
    # Rows that are laid out alike linger until the flush, so that they go together.
    with Sender(catcher.endpoint, session="s", linger_s=60.0) as sender:
        for row in range(6):
            said: dict[str, Any] = {"behavior_prob": 0.5, "target_prob": row / 4} if row < 3 else {"behavior_prob": 2.0}
            sender.send([float(row)], 0.0, [row + 1.0], action=row, discount=0.9, time=1.7e9, **said)
        sender.send([6.0], 0.0, [7.0], action=[1.0, 2.0], next_action=[3, 4], next_action_probs=[0.25, 0.75])
        piece: dict[str, Any] = {"behavior_probs": [0.5, 0.25], "next_actions": [1, 0], "next_action_probs": np.eye(2)}
        assert sender.send_trajectory([[7.0], [8.0], [9.0]], [0.0, 0.0], actions=[0, 1], **piece) == 2
        sender.send_step(["a", "b"], [[1.0], [2.0]], [0.0, 1.0], [[2.0], [3.0]], target_probs=[0.0, 1.5])
        assert sender.flush(PATIENCE_S)
        batches = {(batch["stream"], batch["seq"]): batch for batch in catcher.batches(11)}
    first, second, third, fourth = (batches["default", seq] for seq in (0, 3, 6, 7))
    assert first["behavior_probs"].tolist() == [0.5] * 3 and first["target_probs"].tolist() == [0.0, 0.25, 0.5]
    assert (
        first["actions"].tolist() == [0, 1, 2] and set(first["discounts"]) == {0.9} and set(first["times"]) == {1.7e9}
    )
    assert second["behavior_probs"].tolist() == [2.0] * 3 and "target_probs" not in second
    assert third["next_actions"].tolist() == [[3, 4]] and third["next_action_probs"].tolist() == [[0.25, 0.75]]
    assert fourth["next_actions"].tolist() == [1, 0] and fourth["next_action_probs"].tolist() == [[1, 0], [0, 1]]
    assert fourth["behavior_probs"].tolist() == [0.5, 0.25] and "behavior_probs" not in third
    assert batches["a", 0]["target_probs"].tolist() == [0.0] and batches["b", 0]["target_probs"].tolist() == [1.5]


def test_rows_name_the_policy_that_acts(catcher: Catcher) -> None:
    # Rows of one policy linger until the flush, so that they go together.
    with Sender(catcher.endpoint, session="s", policy="first", linger_s=60.0) as sender:
        for row in range(5):
            sender.send([float(row)], 0.0, [row + 1.0], policy="second" if row == 4 else None)
            if row == 1:
                sender.policy = None
        sender.send_trajectory([[5.0], [6.0], [7.0]], [0.0, 0.0], policy="third")
        sender.send_step(["a", "b"], [[1.0], [2.0]], [0.0, 1.0], [[2.0], [3.0]], policy="third")
        with pytest.raises(Invalid, match="policy"):
            sender.send([1.0], 0.0, [2.0], policy="")
        assert sender.flush(PATIENCE_S)
        batches = {(batch["stream"], batch["seq"]): batch for batch in catcher.batches(9)}
    named = {place: (batch.get("policy"), len(batch["rewards"])) for place, batch in batches.items()}
    assert named == {
        ("default", 0): ("first", 2),
        ("default", 2): (None, 2),
        ("default", 4): ("second", 1),
        ("default", 5): ("third", 2),
        ("a", 0): ("third", 1),
        ("b", 0): ("third", 1),
    }


def test_a_spool_keeps_what_rows_say_of_policies(tmp_path: Path) -> None:
    def rows(**said: Any) -> Rows:
        return Rows.table([[0.0], [1.0]], [0.0, 1.0], [[1.0], [2.0]], None, None, None, None, [1e9, 2e9], **said)

    path = tmp_path / "spool"
    given = [rows(), rows(behavior_probs=[0.5, 0.25], next_actions=[1, 2]), rows(next_action_probs=np.eye(2))]
    # A spool of the version before, with a row in it, has no column for them.
    spool = Spool(path, 10_000)
    assert spool.add("s", "o", "o", 0, 0, given[0])
    spool.close()
    with sqlite3.connect(path) as base:
        base.execute("ALTER TABLE batches DROP COLUMN policies")
    base.close()
    for index in (1, 2):
        spool = Spool(path, 10_000)
        assert spool.add("s", "o", "o", 0, 2 * index, given[index])
        spool.close()
    spool = Spool(path, 10_000)
    assert [record.rows for record in spool.read(0, 10)] == given
    spool.close()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"state": [[1.0]]}, "state"),
    ({"state": []}, "state"),
    ({"state": "up"}, "state"),
    ({"state": [np.nan]}, "state"),
    ({"state": [2e9]}, "state"),
    ({"next_state": [1.0, 2.0]}, "next_state"),
    ({"next_state": [np.inf]}, "next_state"),
    ({"reward": np.inf}, "reward"),
    ({"reward": []}, "reward"),
    ({"reward": [[1.0]]}, "reward"),
    ({"reward": [1.0, 2.0]}, "reward"),
    ({"action": [[1]]}, "action"),
    ({"action": float("nan")}, "action"),
    ({"action": "left"}, "action"),
    ({"discount": 1.5}, "discount"),
    ({"discount": float("nan")}, "discount"),
    ({"discount": "0.5"}, "discount"),
    ({"discount": [0.5]}, "discount"),
    ({"time": float("inf")}, "time"),
    ({"time": "7"}, "time"),
    ({"time": [1.0, 2.0]}, "time"),
    ({"time": np.datetime64("2026-11-28")}, "time"),
    ({"behavior_prob": 0.0}, "behavior_prob"),
    ({"behavior_prob": float("nan")}, "behavior_prob"),
    ({"behavior_prob": [0.5]}, "behavior_prob"),
    ({"target_prob": -0.5}, "target_prob"),
    ({"target_prob": float("inf")}, "target_prob"),
    ({"target_prob": "often"}, "target_prob"),
    ({"behavior_prob": 1e-12, "target_prob": 1.0}, "target_prob"),
    ({"behavior_prob": 1e-300, "target_prob": 1e300}, "target_prob"),
    ({"next_action": [[1]]}, "next_action"),
    ({"next_action": float("nan")}, "next_action"),
    ({"action": [1, 2], "next_action": 1}, "next_action"),
    ({"next_action_probs": 1.0}, "next_action_probs"),
    ({"next_action_probs": []}, "next_action_probs"),
    ({"next_action_probs": [0.5, 0.4]}, "next_action_probs"),
    ({"next_action_probs": [1.5, -0.5]}, "next_action_probs"),
    ({"stream": ""}, "stream"),
    ({"stream": "x" * 257}, "stream"),
]


FLAGS: list[Any] = [True, np.bool_(True), 1, np.int64(1), np.uint8(1), np.array(True)]
NO_FLAGS: list[Any] = [
    *("False", "0", "no", "", b"1", float("nan"), 1.0, 0.0, np.float32(1), 2, -1, None, 1j, object()),
    *([], {}, [True], np.array([True]), np.array(["False"])),
]


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flags_are_bools_or_0_or_1_however_they_are_sent(catcher: Catcher, name: str) -> None:
    with Sender(catcher.endpoint) as sender:
        for yes in FLAGS:
            no = type(yes)(0) if not isinstance(yes, np.ndarray) else np.array(False)
            for value in (yes, no):
                one: dict[str, Any] = {name: value}
                each: dict[str, Any] = {name: [value]}
                sender.send([0.5], 1.0, [0.6], **one)
                sender.send_batch([[0.5]], [1.0], [[0.6]], **each)
                sender.send_trajectory([[0.5], [0.6]], [1.0], **one)
                sender.send_step(["default"], [[0.5]], [1.0], [[0.6]], **each)
        taken = 8 * len(FLAGS)
        assert sender.flush(PATIENCE_S)
        assert catcher.rows(taken)["default"][name].tolist() == ([True] * 4 + [False] * 4) * len(FLAGS)
        for value in NO_FLAGS:
            wrong: dict[str, Any] = {name: value}
            # None is no flags at all for a batch.
            beside: dict[str, Any] = {name: [value, True]}
            with pytest.raises(Invalid) as sent:
                sender.send([0.5], 1.0, [0.6], **wrong)
            with pytest.raises(Invalid) as walked:
                sender.send_trajectory([[0.5], [0.6]], [1.0], **wrong)
            with pytest.raises(Invalid) as together:
                sender.send_batch([[0.5]] * 2, [1.0] * 2, [[0.6]] * 2, **beside)
            assert [error.value.field for error in (sent, walked, together)] == [name] * 3, value
        assert sender.counters.taken == taken


def test_what_is_said_of_wrong_values_has_a_remedy() -> None:
    with Sender(NOWHERE) as sender:
        sender.send([1.0], 0.0, [1.0])
        for change, words in (
            ({"terminated": "False"}, r"terminated: must be True, False, 1 or 0, not 'False': make it of the text"),
            ({"truncated": 1.0}, r"truncated: .* not 1.0: make it of the number, number == 1"),
            ({"truncated": None}, r"not None: leave it out where it is False"),
            ({"reward": None}, r"reward: must hold numbers, and has None"),
            ({"state": [None]}, r"state: must hold numbers, and has None"),
            ({"state": ["1"]}, r"state: must hold numbers, and has text: .* float\(text\)"),
            ({"reward": 1j}, r"reward: must hold numbers, and has complex numbers"),
            ({"state": [np.datetime64("2020-01-01")]}, r"state: must hold numbers, and has dates"),
            ({"reward": 10**400}, r"reward: must hold numbers"),
            ({"reward": [0.0]}, r"reward: is an array of 1 number, rows before had a plain number"),
            ({"state": [1.0, 2.0], "next_state": [1.0, 2.0]}, r"state: has 2 numbers, rows before had 1"),
        ):
            row: dict[str, Any] = {"state": [1.0], "reward": 0.0, "next_state": [1.0], **change}
            with pytest.raises(Invalid, match=words):
                sender.send(**row)
        sender.close(0.0)


@pytest.mark.parametrize(("change", "field"), WRONG, ids=lambda value: str(value)[:30])
def test_rows_that_would_be_refused_are_refused_here(change: dict[str, Any], field: str) -> None:
    with Sender(NOWHERE) as sender:
        sender.send([1.0], 0.0, [1.0])
        row: dict[str, Any] = {"state": [1.0], "reward": 0.0, "next_state": [1.0], **change}
        with pytest.raises(Invalid) as invalid:
            sender.send(**row)
        assert invalid.value.field == field
        assert sender.counters.taken == 1
        sender.close(0.0)


TABLES: list[tuple[dict[str, Any], str, int | None]] = [
    ({"states": np.zeros(3)}, "states", None),
    ({"states": np.zeros((2, 1))}, "next_states", None),
    ({"rewards": np.zeros((3, 1, 1))}, "rewards", None),
    ({"rewards": np.zeros(2)}, "rewards", None),
    ({"next_states": np.zeros((3, 2))}, "next_states", None),
    ({"next_states": np.array([[0.0], [np.nan], [0.0]])}, "next_states", 1),
    ({"rewards": np.array([0.0, 0.0, 1e10])}, "rewards", 2),
    ({"terminated": [0, 2, 0]}, "terminated", 1),
    ({"terminated": [0.0, 1.0, 0.0]}, "terminated", 0),
    ({"truncated": ["False"] * 3}, "truncated", 0),
    ({"truncated": [True, None, False]}, "truncated", 1),
    ({"truncated": [True, float("nan"), False]}, "truncated", 0),
    ({"truncated": [True]}, "truncated", None),
    ({"truncated": np.ma.array([True, False, True], mask=[False, True, False])}, "truncated", None),
    ({"truncated": [[True], [True], [False]]}, "truncated", None),
    ({"rewards": [0.0, None, 1.0]}, "rewards", None),
    ({"states": [["0.5"], ["0.5"], ["0.5"]]}, "states", None),
    ({"rewards": np.ma.array([0.0, 1.0, 2.0], mask=[False, True, False])}, "rewards", None),
    ({"actions": np.zeros(2)}, "actions", None),
    ({"actions": np.array([0.0, np.inf, 0.0])}, "actions", 1),
    ({"discounts": [0.5, 0.5, -0.5]}, "discounts", 2),
    ({"discounts": [0.5]}, "discounts", None),
    ({"times": ["now"] * 3}, "times", None),
    ({"behavior_probs": [0.5, 0.5, 0.0]}, "behavior_probs", 2),
    ({"behavior_probs": 0.5}, "behavior_probs", None),
    ({"target_probs": [0.5, -0.5, 0.0]}, "target_probs", 1),
    ({"behavior_probs": [1.0, 1e-12, 1.0], "target_probs": np.ones(3)}, "target_probs", 1),
    ({"next_actions": np.zeros(2)}, "next_actions", None),
    ({"next_actions": np.array([0.0, np.inf, 0.0])}, "next_actions", 1),
    ({"actions": np.zeros((3, 2)), "next_actions": np.zeros((3, 1))}, "next_actions", None),
    ({"next_action_probs": np.ones(3)}, "next_action_probs", None),
    ({"next_action_probs": np.array([[0.5, 0.5], [0.5, 0.25], [1, 0]])}, "next_action_probs", 1),
    ({"next_action_probs": np.array([[0.5, 0.5], [0.5, 0.5], [2, -1]])}, "next_action_probs", 2),
]


@pytest.mark.parametrize(("change", "field", "index"), TABLES, ids=lambda value: str(value)[:30])
def test_batches_that_would_be_refused_are_refused_here(change: dict[str, Any], field: str, index: int | None) -> None:
    with Sender(NOWHERE) as sender:
        table = {"states": np.zeros((3, 1)), "rewards": np.zeros(3), "next_states": np.zeros((3, 1)), **change}
        with pytest.raises(Invalid) as invalid:
            sender.send_batch(**table)
        assert (invalid.value.field, invalid.value.index) == (field, index)
        with pytest.raises(Invalid, match="4 states"):
            sender.send_trajectory(np.zeros((3, 1)), np.zeros(3))
        assert sender.counters.taken == 0


def test_a_full_queue_drops_rows_and_counts_them(catcher: Catcher) -> None:
    with Sender(NOWHERE, queue_rows=100, batch_rows=10, linger_s=0.001) as sender:
        # Nothing goes to a socket that is not connected: the queue fills.
        taken = sum(sender.send([float(row)], 0.0, [row + 1.0]) for row in range(5000))
        counters = sender.counters
        assert (counters.taken, counters.dropped) == (taken, 5000 - taken)
        assert taken == 100 and counters.sent == 0
        assert sender.position() == 5000
        assert not sender.flush(0.0)
        sender.close(0.0)
    counters = sender.counters
    assert counters.taken == counters.sent + counters.lost


def test_rows_behind_a_gap_say_that_rows_are_missing(catcher: Catcher) -> None:
    with Sender(catcher.endpoint, queue_rows=10, linger_s=60.0) as sender:
        # They linger in the queue: after the tenth there is no room, until a flush makes some.
        count(sender, 0, 15)
        assert sender.send_step(["default", "other"], np.zeros((2, 1)), np.zeros(2), np.zeros((2, 1))) == 0
        assert sender.flush(PATIENCE_S)
        assert sender.send([20.0], 0.0, [21.0])
        assert sender.flush(PATIENCE_S)
        assert (sender.counters.taken, sender.counters.dropped) == (11, 7)
        assert [(batch["seq"], len(batch["rewards"])) for batch in catcher.batches(11)] == [(0, 10), (16, 1)]


def test_a_reliable_sender_waits_for_room_and_then_says_so() -> None:
    with Sender(NOWHERE, reliable=True, queue_rows=50, timeout_s=0.2) as sender:
        count(sender, 0, 50)
        assert not sender.has_room()
        with pytest.raises(Full, match="50 rows"):
            count(sender, 50, 51)
        with pytest.raises(Full):
            sender.send_step(["a"], [[0.0]], [0.0], [[0.0]])
        assert not sender.flush(0.05)
        sender.close(0.0)
    assert sender.counters.lost == 50


def test_what_is_refused_for_now_is_sent_again(puppet: Make) -> None:
    patience = [refusal("overloaded", retry_after_ms=10), None, refusal("overloaded", retry_after_ms=5)]
    book = Book(
        *patience, None, None, refusal("overloaded", retry_after_ms=1), refusal("read_only"), refusal("not_ready")
    )
    made = puppet(book)
    with Sender(made.endpoint, reliable=True, batch_rows=10, window=4) as sender:
        count(sender, 0, 500)
        assert sender.flush(PATIENCE_S)
        counters = sender.counters
    assert book.rows == [float(row) for row in range(500)]
    assert (counters.acknowledged, counters.refused, counters.lost) == (500, 0, 0)
    assert counters.resent > 0 and counters.sent == 500 + counters.resent


def test_a_daemon_that_asks_for_earlier_rows_gets_them(puppet: Make) -> None:
    book = Book()
    made = puppet(book)
    with Sender(made.endpoint, reliable=True, batch_rows=10) as sender:
        count(sender, 0, 300)
        assert sender.flush(PATIENCE_S)
        del book.rows[95:]
        count(sender, 300, 310)
        assert sender.flush(PATIENCE_S)
        counters = sender.counters
    assert book.rows == [float(row) for row in range(310)]
    assert (counters.acknowledged, counters.lost) == (310, 0)


@pytest.mark.parametrize("code", ["fenced", "wrong_dimension", "conflict", "too_many_streams", "a_new_code"])
def test_what_is_refused_for_good_ends_the_stream_and_no_other(puppet: Make, code: str) -> None:
    books = {"good": Book(), "bad": Book(None, refusal(code, field="state", index=2))}
    sent = threading.Event()

    def reply(request: dict[str, Any]) -> dict[str, Any]:
        assert sent.wait(PATIENCE_S)
        return books[request["stream"]](request)

    made = puppet(reply)
    with (
        pytest.raises(Refused, match=code),
        Sender(made.endpoint, reliable=True, batch_rows=10, stream="bad") as sender,
    ):
        for _ in range(3):
            count_at_once(sender, 10)
            for row in range(20):
                sender.send([float(row)], 0.0, [0.0], stream="good")
        sent.set()
        with pytest.raises(Refused) as refused:
            sender.flush(PATIENCE_S)
        assert (refused.value.code, refused.value.field, refused.value.index) == (code, "state", 2)
        with pytest.raises(Refused, match=code):
            count(sender, 0, 1)
        assert sender.send([1.0], 0.0, [1.0], stream="good")
        with pytest.raises(Refused):
            sender.flush(PATIENCE_S)
        counters = sender.counters
    assert (counters.acknowledged, counters.refused) == (10 + 61, 20)
    assert len(books["good"].rows) == 61


def test_errors_that_nobody_asked_for_come_out_at_the_end(puppet: Make) -> None:
    made = puppet(Book(refusal("wrong_dimension", field="state")))
    with pytest.raises(Refused, match="wrong_dimension"), Sender(made.endpoint, reliable=True) as sender:
        count(sender, 0, 5)


def test_an_absurd_acknowledgement_makes_a_new_connection(puppet: Make, caplog: pytest.LogCaptureFixture) -> None:
    book, lies = Book(), [{"accepted": 1, "duplicates": 0, "next_seq": 1, "offset": 1}]
    made = puppet(lambda request: lies.pop() if lies else book(request))
    with caplog.at_level(logging.CRITICAL), Sender(made.endpoint, reliable=True) as sender:
        # Of one row it would not be absurd.
        count_at_once(sender, 10)
        assert sender.flush(PATIENCE_S)
        assert sender.counters.reconnects == 1
    assert len(book.rows) == 10


def test_a_daemon_that_talks_nonsense_is_tried_again(puppet: Make) -> None:
    book = Book()
    made = puppet(book)
    made.streams = {"default": "nowhere"}
    with Sender(made.endpoint, reliable=True) as sender:
        count(sender, 0, 10)
        assert not sender.flush(0.3)
        when(lambda: sender.counters.reconnects >= 1, "another try")
        made.streams = {}
        assert sender.flush(PATIENCE_S)
    assert len(book.rows) == 10


def test_threads_share_a_sender(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True, queue_rows=500, batch_rows=40) as sender:

        def produce(number: int) -> None:
            for row in range(1000):
                sender.send([float(row), number], 0.0, [row + 1.0, number], stream=f"thread-{number}")

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sender.flush(PATIENCE_S)
    with daemon.client() as client:
        assert {name: s.rows for name, s in client.streams().items()} == {f"thread-{k}": 1000 for k in range(4)}
        client.value([0.0, 0.0], min_offset=4000)
        # Each stream is one chain.
        assert client.status()["critics"][0]["counts"]["cuts"] == 0


def test_messages_keep_to_the_daemons_limits(start: Start) -> None:
    daemon = start(*CALM, "limits.rows_per_batch_max=16", "limits.message_bytes_max=8192")
    with daemon.sender(reliable=True) as sender:
        states = np.random.default_rng(0).standard_normal((401, 20))
        assert sender.send_trajectory(states, states[:-1, 0]) == 400
        assert sender.flush(PATIENCE_S)
    with daemon.client() as client:
        assert client.streams()["default"].rows == 400


def test_arguments_that_make_no_sense() -> None:
    for options in ({"queue_rows": 0}, {"resume": True}, {"spool": "x"}, {"reliable": True, "resume": True}):
        with pytest.raises(ValueError):
            Sender(NOWHERE, **options)
    with pytest.raises(ValueError, match="tcp://"):
        Sender("localhost")
    with pytest.raises(TypeError, match="timeout_s"):
        Client(NOWHERE, timeout=1)  # type: ignore[arg-type]
    sender = Sender(NOWHERE)
    with pytest.raises(TypeError, match="'done': say terminated"):
        sender.send([1.0], 0.0, [1.0], done=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"argument 'rewards'$"):
        sender.send([1.0], 0.0, [1.0], rewards=1.0)  # type: ignore[arg-type]
    sender.close()
    sender.close()
    with pytest.raises(CriticdError, match="closed"):
        sender.send([1.0], 0.0, [1.0])


def test_resuming_needs_a_daemon() -> None:
    with pytest.raises(TimeoutError, match="criticd serve"):
        Sender(NOWHERE, reliable=True, session="s", resume=True, timeout_s=0.1)


def test_appends_of_a_client_and_of_a_sender_are_numbered_alike(start: Start) -> None:
    daemon = start(*CALM)
    with Client(daemon.endpoints.control) as client:
        client.append(stream="default", session="s", seq=0, state=[0.0], next_state=[1.0], reward=0.0)
        with daemon.sender(reliable=True, session="s", resume=True) as sender:
            assert sender.position() == 1
            count(sender, 1, 5)
            assert sender.flush(PATIENCE_S)
        again = client.append(session="s", seq=3, states=[[3.0], [4.0], [5.0]], rewards=[0.0, 0.0])
        assert (again.accepted, again.duplicates, again.next_seq) == (0, 2, 5)


def test_names_go_with_the_first_message(catcher: Catcher) -> None:
    names, rewards, actions = ["x [m]", "battery [V]"], ["energy [J]"], ["left", "right"]
    called: dict[str, Any] = {"names": names, "reward_names": rewards, "action_names": actions}
    with Sender(catcher.endpoint, stream="robot", batch_rows=2, **called) as sender:
        for row in range(6):
            sender.send([float(row), 0.0], 0.0, [row + 1.0, 0.0], action=row % 2)
        assert sender.flush(PATIENCE_S)
        keys = ("state_names", "reward_names", "action_names")
        told = [[batch.get(key) for key in keys] for batch in catcher.batches(6)]
        assert told[0] == [names, rewards, actions] and all(of == [None] * 3 for of in told[1:])
        sender.call_numbers(**called)
        for option in called:
            with pytest.raises(CriticdError, match="before the first"):
                sender.call_numbers(**{option: ["a", "b"]})


@pytest.mark.parametrize(
    ("names", "said"),
    [(["a", "a"], "two of them"), (["a", ""], "1 to 256 bytes"), ("ab", "a list of names")],
    ids=["twice", "empty", "text"],
)
def test_names_that_are_none_are_refused(names: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        Sender(NOWHERE, control=NOWHERE, names=names)


def test_names_for_other_states_are_refused(catcher: Catcher) -> None:
    with Sender(catcher.endpoint, names=["x"]) as sender, pytest.raises(Invalid, match="give one for each"):
        sender.send([0.0, 1.0], 0.0, [0.0, 1.0])
    with Sender(catcher.endpoint, action_names=["torque"]) as sender, pytest.raises(Invalid, match="give one for each"):
        sender.send([0.0, 1.0], 0.0, [0.0, 1.0], action=[0.5, 1.0])
