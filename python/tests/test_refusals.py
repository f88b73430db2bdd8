"""Whoever sends rows that the daemon turns down hears of it: which, why, and what to do."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from conftest import CALM, PATIENCE_S, Start, when

from criticd import Refused, Sender
from criticd._refusals import Auditor, Sent, Watch
from criticd.client import Position

NOWHERE = "tcp://127.0.0.1:1"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "are refused" in record.getMessage()]


@pytest.mark.parametrize("leaves_at_once", [False, True])
def test_rows_of_another_dimension(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, leaves_at_once: bool
) -> None:
    # One that leaves looks a last time for two seconds; a busy daemon may take longer to refuse.
    end = Watch.end
    monkeypatch.setattr(Watch, "end", lambda watch, timeout_s: end(watch, PATIENCE_S))
    daemon = start(*CALM)
    with daemon.sender(reliable=True) as sender, daemon.client() as client:
        for row in range(100):
            sender.send([float(row)], 0.0, [row + 1.0])
        assert sender.flush(PATIENCE_S)
        when(lambda: client.hello().state_dim == 1, "the dimension")
    with daemon.sender(stream="wide") as wide:
        for row in range(30):
            wide.send([0.0, 0.0], 0.0, [float(row), 0.0])
        if not leaves_at_once:
            when(lambda: wide.refusals, "a refusal")
            assert wide.counters.refused > 0
            for row in range(30, 60):
                wide.send([0.0, 0.0], 0.0, [float(row), 0.0])
    sent = 30 if leaves_at_once else 60
    assert (wide.counters.sent, wide.counters.refused) == (sent, sent)
    (refusal,) = wide.refusals
    assert (refusal.stream, refusal.code) == ("wide", "wrong_dimension")
    assert "criticd reset" in refusal.remedy
    assert "1 numbers there, these have 2" in refusal.message and "--data-dir" in refusal.remedy
    # Said once, however many rows there were.
    (said,) = warnings_of(caplog)
    assert refusal.message in said and refusal.remedy in said


def test_two_senders_of_one_stream(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    daemon = start(*CALM)
    with daemon.sender(stream="robot") as first, daemon.sender(stream="robot") as second, daemon.client() as client:
        first.send([0.0], 0.0, [1.0])
        when(lambda: client.streams().get("robot"), "the stream")
        second.send([0.0], 0.0, [1.0])
        when(lambda: client.streams()["robot"].session == second.session, "the other session")

        def fenced() -> bool:
            first.send([0.0], 0.0, [1.0])
            # The first that is found out may be of rows before the other session.
            return bool(first.refusals) and first.counters.refused > 0

        when(fenced, "a refusal")
    (refusal,) = first.refusals
    assert (refusal.code, refusal.stream) == ("fenced", "robot") and "stream=" in refusal.remedy
    # Those before the other session began may have been taken.
    assert 0 < first.counters.refused < first.counters.sent
    assert second.refusals == () and second.counters.refused == 0
    assert len(warnings_of(caplog)) == 1


def test_another_reason_is_the_one_that_the_daemon_announces(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True) as sender:
        sender.send([0.0], 0.0, [1.0])
        assert sender.flush(PATIENCE_S)
    with daemon.sender(stream="two") as two:
        two.send([0.0], [0.0, 0.0], [1.0])
        when(lambda: two.refusals, "a refusal")
        assert two.refusals[0].code == "wrong_dimension" and "2" in two.refusals[0].message
    assert two.counters.refused == 1


def test_a_refusal_that_was_announced_before_the_subscription(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("criticd._refusals.Watch._listening", lambda self, endpoint: None)
    daemon = start(*CALM)
    with daemon.sender(reliable=True) as sender:
        sender.send([0.0], 0.0, [1.0])
        assert sender.flush(PATIENCE_S)
    with daemon.sender(stream="two") as two:
        two.send([0.0], [0.0, 0.0], [1.0])
        when(lambda: two.refusals, "a refusal")
        assert two.refusals[0].code == "wrong_dimension" and "2" in two.refusals[0].message


def test_rows_that_are_taken_are_refused_by_nobody(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    daemon = start(*CALM)
    with daemon.sender(stream="good") as good, daemon.sender(stream="bad") as bad:
        for row in range(500):
            good.send([float(row)], 0.0, [row + 1.0])
        with daemon.client() as client:
            client.value([0.0], min_offset=500, timeout_s=PATIENCE_S)
        bad.send([0.0, 0.0], 0.0, [1.0, 0.0])
        when(lambda: bad.refusals, "a refusal")
    assert good.refusals == () and good.counters.refused == 0 and good.counters.sent == 500
    assert len(warnings_of(caplog)) == 1


def test_a_reliable_sender_names_its_refusal_too(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True) as first:
        first.send([0.0], 0.0, [1.0])
        assert first.flush(PATIENCE_S) and first.refusals == ()
    second = daemon.sender(reliable=True)
    second.send([0.0, 0.0], 0.0, [1.0, 0.0])
    with pytest.raises(Refused, match="wrong_dimension"):
        second.flush(PATIENCE_S)
    assert second.refusals[0].code == "wrong_dimension" and second.counters.refused == 1
    second.close()


def test_counters_of_a_daemon_that_is_not_there(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    with Sender(NOWHERE) as sender:
        for row in range(10):
            sender.send([float(row)], 0.0, [row + 1.0])
        # From here on it has been away for long.
        monkeypatch.setattr("criticd._push._ABSENCE_S", 0.05)
        assert not sender.flush(0.5)
        counters = sender.counters
        assert (counters.taken, counters.sent, counters.lost) == (10, 0, 0)
        assert "0 sent" in repr(sender)

        def said() -> list[str]:
            warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            return [message for message in warnings if "no connection" in message]

        when(said, "a warning")
        sender.close(0.1)
    assert (sender.counters.sent, sender.counters.lost) == (0, 10)
    (words,) = said()
    assert "criticd serve" in words and "10" in words


def test_a_sender_that_cannot_ask_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "control=" in record.getMessage()]

    with Sender(NOWHERE, control="tcp://127.0.0.1:2"), Sender(NOWHERE, reliable=True, timeout_s=0.1):
        assert told() == []
    with Sender(NOWHERE) as sender:
        sender.send([0.0], 0.0, [1.0])
        (said,) = told()
        assert "publish=" in said and NOWHERE in said
        sender.close(0.1)


def test_what_the_daemon_remembers_counts_once_and_for_its_session_alone() -> None:
    auditor, ours = Auditor(), Sent("robot", "s", 10, 10, (1, 1))
    entry = {"session": "other", "code": "conflict", "message": "other content", "messages": 1}
    auditor.remembered(ours, None)
    auditor.remembered(ours, entry)
    assert auditor.compare([ours], {}, 1, 0.0) == [] and auditor.compare([ours], {}, 1, 5.0) == []
    auditor.remembered(ours, {**entry, "session": "s"})
    (refusal,) = auditor.compare([ours], {}, 1, 6.0)
    assert (refusal.code, auditor.refused) == ("conflict", 10)
    # The stream goes on: what waits now has not been refused.
    taken = {"robot": Position("s", 20, 20, 0.0)}
    assert auditor.compare([Sent("robot", "s", 20, 20, (1, 1))], taken, 1, 7.0) == [] and not auditor.unsettled
    more = Sent("robot", "s", 30, 30, (1, 1))
    auditor.remembered(more, {**entry, "session": "s"})
    assert auditor.compare([more], taken, 1, 8.0) == [] and auditor.compare([more], taken, 1, 99.0) == []
    assert auditor.refused == 10


def test_what_is_on_its_way_is_not_refused() -> None:
    auditor, ours = Auditor(), Sent("robot", "s", 100, 100, (1, 1))

    def at(session: str, seq: int) -> dict[str, Position]:
        return {"robot": Position(session, seq, seq, 0.0)}

    auditor.rejected({"code": "conflict", "message": "somebody else's"})
    assert auditor.compare([ours], at("s", 10), 1, 0.0) == []
    # It moves: a busy daemon takes one after the other.
    assert auditor.compare([ours], at("s", 50), 1, 5.0) == [] and auditor.unsettled
    assert auditor.compare([ours], at("s", 100), 1, 9.0) == [] and not auditor.unsettled
    # Nothing was announced since: the daemon reads no rows just now, but refuses none.
    more = Sent("robot", "s", 120, 120, (1, 1))
    assert auditor.compare([more], at("s", 100), 1, 10.0) == []
    assert auditor.compare([more], at("s", 100), 1, 20.0) == [] and auditor.refused == 0
    auditor.rejected({"code": "conflict", "message": "other content"})
    (refusal,) = auditor.compare([more], at("s", 100), 1, 21.0)
    assert (refusal.code, refusal.message, auditor.refused) == ("conflict", "other content", 20)
    # What is refused stays counted when the stream goes on.
    assert auditor.compare([Sent("robot", "s", 130, 130, (1, 1))], at("s", 130), 1, 30.0) == []
    assert auditor.refused == 20
