"""What is wrong is refused with the right name, changes nothing, and bothers nobody else."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq
from client import PATIENCE_S, Control, Daemon, Map, Refused, listening, pack, receive, settles, unpack, when

NAN, INFINITE = float("nan"), float("inf")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for the whole file, with a model of two-dimensional states that no longer changes by itself."""
    path: Path = tmp_path_factory.mktemp("ill")
    # A daemon that waits for one peer to say something, or to read, would answer the others too late for these tests.
    late = [f"limits.{name}_timeout_ms=600000" for name in ("handshake", "stall", "saturated")]
    daemon = Daemon(path, "critic.refit_first_rows=0", "critic.refit_score_drop=0", "streams_max=8", *late)
    control = daemon.control()
    generator = np.random.default_rng(0)
    states = generator.standard_normal((201, 2))
    control.ask("append", stream="good", session="new", seq=0, states=states, rewards=generator.standard_normal(200))
    control.ask("value", states=states[:1], min_offset=200)
    control.ask("append", stream="two-sessions", session="old", **row(0))
    control.ask("append", stream="two-sessions", session="new", **row(0))
    control.ask("value", states=states[:1], min_offset=202)
    yield daemon
    assert daemon.alive() and daemon.terminate()[0] == 0, daemon.log()
    assert "panicked" not in daemon.log()
    daemon.close()


def row(seq: int | None, **changes: Any) -> Map:
    """A sound transition, and what to make of it; None takes a key away."""
    whole = {"seq": seq, "state": [0.0, 1.0], "next_state": [1.0, 0.0], "reward": 0.5, **changes}
    return {key: value for key, value in whole.items() if value is not None}


def rows(**changes: Any) -> Map:
    """A sound batch of three for the stream `good`."""
    whole = {
        "stream": "good",
        "session": "new",
        "seq": 200,
        "states": [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]],
        "next_states": [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]],
        "rewards": [0.1, 0.2, 0.3],
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def append(**body: Any) -> Map:
    return {"op": "append", **body}


SPOILT = [[0.0, 1.0], [1.0, NAN], [2.0, 0.0]]
MANY = [[0.0, 1.0]] * 4097
CASES: list[tuple[str, Map, str, str | None, int | None]] = [
    ("version two", {"v": 2, "op": "ping"}, "unsupported_version", "v", None),
    ("a version in words", {"v": "1", "op": "ping"}, "wrong_type", "v", None),
    ("no operation", {}, "missing_field", "op", None),
    ("an operation as a number", {"op": 3}, "wrong_type", "op", None),
    ("an operation nobody knows", {"op": "learn"}, "unknown_op", "op", None),
    ("a critic nobody knows", {"op": "value", "states": [[0, 0]], "critic": "x"}, "unknown_critic", "critic", None),
    ("a critic nobody knows", {"op": "snapshot", "critic": "x"}, "unknown_critic", "critic", None),
    ("a critic nobody knows", {"op": "refit", "critic": "x"}, "unknown_critic", "critic", None),
    ("a query without states", {"op": "value"}, "missing_field", "states", None),
    ("a query of words", {"op": "value", "states": "here"}, "wrong_type", "states", None),
    ("a query of one axis", {"op": "value", "states": [0.0, 1.0]}, "wrong_shape", "states", None),
    ("a ragged query", {"op": "value", "states": [[0.0, 1.0], [0.0]]}, "wrong_shape", "states", None),
    ("a query too wide", {"op": "value", "states": [[0.0, 1.0, 2.0]]}, "wrong_dimension", "states", None),
    ("a query of NaN", {"op": "value", "states": SPOILT}, "not_finite", "states", 1),
    ("a flag as a number", {"op": "value", "states": [[0, 0]], "variance": 1}, "wrong_type", "variance", None),
    ("a negative offset", {"op": "value", "states": [[0, 0]], "min_offset": -1}, "out_of_range", "min_offset", None),
    ("arrays of another kind", {"op": "ping", "arrays": "csv"}, "out_of_range", "arrays", None),
    ("no state", append(**row(0, state=None)), "missing_field", "state", None),
    ("no reward", append(**row(0, reward=None)), "missing_field", "reward", None),
    ("no successor", append(**row(0, next_state=None)), "missing_field", "next_state", None),
    ("no number", append(**row(None)), "missing_field", "seq", None),
    ("no rewards", append(**rows(rewards=None)), "missing_field", "rewards", None),
    ("a state in words", append(**row(0, state="up")), "wrong_type", "state", None),
    ("a number with a point", append(**{**row(0), "seq": 0.5}), "wrong_type", "seq", None),
    ("a stream as a number", append(**row(0, stream=7)), "wrong_type", "stream", None),
    ("a flag as a number", append(**row(0, terminated=1)), "wrong_type", "terminated", None),
    ("state and states", append(**rows(state=[0.0, 1.0])), "wrong_shape", None, None),
    ("a state of two axes", append(**row(0, state=[[0.0, 1.0]])), "wrong_shape", "state", None),
    ("too few rewards", append(**rows(rewards=[0.1, 0.2])), "wrong_shape", "rewards", None),
    ("too many successors", append(**rows(next_states=[[1.0, 0.0]] * 4)), "wrong_shape", "next_states", None),
    ("flags of another length", append(**rows(terminated=[True])), "wrong_shape", "terminated", None),
    ("a wide state", append(**row(0, state=[0.0] * 3, next_state=[0.0] * 3)), "wrong_dimension", "state", None),
    ("two rewards", append(**row(0, reward=[0.1, 0.2])), "wrong_dimension", "reward", None),
    ("an infinite reward", append(**row(0, reward=INFINITE)), "not_finite", "reward", None),
    ("one NaN in a batch", append(**rows(states=SPOILT)), "not_finite", "states", 1),
    ("one infinite reward", append(**rows(rewards=[0.1, 0.2, INFINITE])), "not_finite", "rewards", 2),
    ("one NaN in a tensor", append(**rows(next_states=np.array(SPOILT))), "not_finite", "next_states", 1),
    ("a large state", append(**row(0, state=[1e10, 0.0])), "out_of_range", "state", None),
    ("a discount above one", append(**row(0, discount=1.5)), "out_of_range", "discount", None),
    ("one bad discount", append(**rows(discounts=[0.9, 0.9, -0.1])), "out_of_range", "discounts", 2),
    ("a long name", append(**row(0, stream="x" * 257)), "out_of_range", "stream", None),
    ("an empty name", append(**row(0, stream="")), "out_of_range", "stream", None),
    (
        "an end within a piece",
        append(**rows(next_states=None, rewards=[0.1, 0.2], terminated=[True, False])),
        "out_of_range",
        "terminated",
        0,
    ),
    ("rows left out", append(**rows(seq=205)), "sequence_gap", "seq", None),
    ("rows left out at the start", append(**row(3, stream="other")), "sequence_gap", "seq", None),
    ("other content", append(**rows(seq=198)), "conflict", "seq", 0),
    ("a session of before", append(**row(1, stream="two-sessions", session="old")), "fenced", "session", None),
    (
        "rows beyond the limit",
        append(**rows(states=MANY, next_states=MANY, rewards=[0.0] * 4097)),
        "too_large",
        None,
        None,
    ),
    ("states beyond the limit", {"op": "value", "states": np.zeros((65537, 1))}, "too_large", "states", None),
]


@pytest.mark.parametrize(
    ("request_", "code", "field", "index"), [c[1:] for c in CASES], ids=[f"{c[2]}: {c[0]}" for c in CASES]
)
def test_each_fault_has_its_name(
    daemon: Daemon, request_: Map, code: str, field: str | None, index: int | None
) -> None:
    control, other = daemon.control(), daemon.control()
    states = np.array([[0.0, 1.0], [0.3, -0.2]])
    before, streams = other.ask("value", states=states, variance=True), other.ask("streams")["streams"]
    refused = other.ask("status")["rejected"]
    reply = control.raw(pack({"id": "mine", **request_}))
    assert not reply["ok"] and reply["id"] == "mine", reply
    error = reply["error"]
    assert error["code"] == code and error["message"], error
    if field is not None:
        assert error.get("field") == field, error
    if index is not None:
        assert error.get("index") == index, error
    if code == "sequence_gap":
        assert error["expected_seq"] == (200 if request_.get("stream") == "good" else 0)
    after = other.ask("value", states=states, variance=True)
    assert {k: after[k] for k in ("offset", "generation")} == {k: before[k] for k in ("offset", "generation")}
    assert np.array_equal(after["mean"], before["mean"]) and np.array_equal(after["variance"], before["variance"])
    assert other.ask("status")["offset"] == 202 and other.ask("streams")["streams"] == streams
    # Appends count, unless they have but to come again.
    if request_.get("op") == "append" and code != "sequence_gap":
        refused = {**refused, code: refused.get(code, 0) + 1}

    def are_counted() -> None:
        assert other.ask("status")["rejected"] == refused

    settles(are_counted)


def test_duplicates_are_acknowledged_and_not_learned(daemon: Daemon) -> None:
    control = daemon.control()
    reply = control.ask("append", stream="two-sessions", session="new", **row(0))
    assert (reply["accepted"], reply["duplicates"], reply["next_seq"], reply["offset"]) == (0, 1, 1, 202)


def test_what_is_no_message_is_malformed(daemon: Daemon) -> None:
    control = daemon.control()
    sound = pack({"id": 5, "op": "ping", "more": [1, 2.0, "three", None, {"four": b"4"}]})
    # A DEALER's empty frame would be a delimiter with nothing behind it; a REQ socket puts its own before it.
    assert daemon.control(zmq.REQ).raw(b"")["error"]["code"] == "malformed"
    cases = [sound[:cut] for cut in range(1, len(sound))] + [
        sound + b"\x00",
        msgpack.packb([1, 2, 3]),
        msgpack.packb("ping"),
        msgpack.packb({1: 2}),
        b"\xc1",
        b"\xdf\xff\xff\xff\xff",  # a map of four thousand million pairs
        b"\x83\xa1v\x01\xa2op\xa5value\xa6states\xdd\xff\xff\xff\xff",  # an array as long
        b"\x83\xa1v\x01\xa2op\xa4ping\xa1x\xc6\xff\xff\xff\xff",  # bytes as many
        b"\x83\xa1v\x01\xa2op\xa4ping\xa1v\x01",  # a key twice
        b"\x83\xa1v\x01\xa2op\xa4ping\xa1x" + b"\x91" * 40 + b"\x00",  # nested too deep
        b"\x91" * 100_000,
    ]
    for payload in cases:
        reply = control.raw(payload)
        assert not reply["ok"] and reply["error"]["code"] == "malformed", (payload[:60], reply)
        assert reply["id"] in (None, 5)
    lying = {b"nd": True, b"type": "<f8", b"kind": "", b"shape": [2**40, 2**40], b"data": b"\0" * 16}
    reply = control.raw(pack({"op": "value", "states": lying}))
    assert reply["error"]["code"] in ("wrong_shape", "too_large"), reply
    assert control.ask("ping")


def test_not_ready_before_there_is_a_model(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    try:
        control = daemon.control()
        requests: list[Map] = [{"op": "value", "states": [[0.0]]}, {"op": "snapshot"}, {"op": "refit", "wait": True}]
        for request in requests:
            assert control.raw(pack(request))["error"]["code"] == "not_ready"
        control.ask("append", seq=0, state=[0.0], next_state=[1.0], reward=2.0)
        first = control.ask("value", states=[[0.0]], variance=True, min_offset=1)
        assert first["provisional"] and first["generation"] == 0 and first["mean"][0] > 0.0
        assert "variance" not in first, "one reward says nothing of the scale"
        control.ask("append", seq=1, state=[1.0], next_state=[0.0], reward=3.0)
        assert control.ask("value", states=[[0.0]], variance=True, min_offset=2)["variance"][0] > 0.0
        assert control.raw(pack(requests[2]))["error"]["code"] == "not_ready", "there is no model to select after"
    finally:
        daemon.close()


def test_too_many_streams_and_queries(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "streams_max=3", "critic.refit_first_rows=0")
    try:
        control = daemon.control()
        for name in "abc":
            control.ask("append", stream=name, **row(0))
        with pytest.raises(Refused) as refused:
            control.ask("append", stream="d", **row(0))
        assert refused.value.code == "too_many_streams" and refused.value.error["field"] == "stream"
        assert control.ask("status")["offset"] == 3
        # Queries for rows that never come wait, up to a limit; what is beyond it is told when to come back.
        for number in range(600):
            control.socket.send(pack({"id": number, "op": "value", "states": [[0.0, 0.0]], "min_offset": 10**6}))
        replies = [unpack(control.socket.recv()) for _ in range(88)]
        assert {reply["error"]["code"] for reply in replies} == {"overloaded"}
        assert all(reply["error"]["retry_after_ms"] > 0 for reply in replies)
        assert daemon.control().ask("ping")
    finally:
        daemon.close()


def test_refusals_on_ingest_are_counted_and_published(daemon: Daemon) -> None:
    control, push, subscriber = daemon.control(), daemon.push(), daemon.subscribe("event.rejected")
    # The first refusal is told at once, and but once.
    listening(subscriber)
    before = dict(control.ask("status")["rejected"])
    push.send(pack({**rows(states=SPOILT), "stream": "good"}))
    push.send(b"no message")
    push.send(pack({"v": 9, **row(0)}))
    push.send(pack(row(0, state=[1.0], next_state=[2.0])))
    push.send(pack(row(1, stream="two-sessions", session="old")))
    codes = ["not_finite", "malformed", "unsupported_version", "wrong_dimension", "fenced"]

    def are_counted() -> None:
        after = control.ask("status")["rejected"]
        assert all(after.get(code, 0) == before.get(code, 0) + 1 for code in codes), (before, after)

    settles(are_counted)
    topic, event = receive(subscriber)
    assert (topic, event["type"], event["event"]) == ("event.rejected", "event", "rejected")
    assert event["code"] and event["by_code"]
    # The log says whose they were.
    line = r'event=rejected messages=\d+ streams="[^"]*two-sessions'
    when(lambda: re.search(line, daemon.log()), "the line in the log")
    assert control.ask("status")["offset"] == 202


def garbage(generator: random.Random) -> Iterator[bytes]:
    """Bytes for a socket that speaks ZMTP, ever closer to it."""
    greeting = b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\0" + b"NULL" + b"\0" * 48
    yield b""
    yield generator.randbytes(1)
    yield generator.randbytes(64)
    yield generator.randbytes(100_000)
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00" + generator.randbytes(512)  # a TLS hello
    yield greeting[:30]
    yield greeting
    yield greeting.replace(b"NULL", b"CURVE\0"[:4] + b"\0")[:64]
    yield greeting + generator.randbytes(1000)
    yield greeting + b"\x04\xff"
    yield greeting + b"\x06" + struct.pack(">Q", 2**63 - 1)  # a command of 8 EiB
    yield greeting + b"\x02" + struct.pack(">Q", 2**40) + b"\0" * 1000  # a message before the handshake
    for kind in (b"PUSH", b"DEALER", b"SUB"):
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        hello = greeting + b"\x04" + bytes([len(ready)]) + ready
        yield hello + b"\x02" + struct.pack(">Q", 2**62)  # a frame of 4 EiB
        yield hello + b"\x01\x00" * 10_000  # a message of endless parts
        yield hello + generator.randbytes(10_000)
        yield hello + b"\x00\x05" + b"\x93\x01\x02\x03\x04"
        yield hello + b"\x00\xff" + generator.randbytes(100)  # torn


@pytest.mark.parametrize("name", ["ingest", "control", "publish"])
def test_garbage_on_a_socket(daemon: Daemon, name: str) -> None:
    host, port = daemon.endpoints[name].removeprefix("tcp://").rsplit(":", 1)
    generator = random.Random(name)
    other = daemon.control()
    held = []
    slowest = 0.0
    memory = daemon.memory_mib()
    for payload in garbage(generator):
        connection = socket.create_connection((host, int(port)))
        connection.settimeout(0.5)
        try:
            connection.sendall(payload)
            if generator.random() < 0.5:
                connection.close()
            else:
                held.append(connection)  # and never a word again
        except OSError:
            connection.close()  # cut off while it spoke
        began = time.monotonic()
        assert other.ask("value", states=[[0.0, 1.0]])["offset"] == 202
        slowest = max(slowest, time.monotonic() - began)
        assert daemon.alive()
    fresh = daemon.control()
    began = time.monotonic()
    assert fresh.ask("ping")
    slowest = max(slowest, time.monotonic() - began)
    for connection in held:
        connection.close()
    print(
        f"\n{name}: others served within {1000 * slowest:.0f} ms, memory {memory:.0f} to {daemon.memory_mib():.0f} MiB"
    )
    assert daemon.memory_mib() < memory + 50
    assert fresh.ask("status")["offset"] == 202


def test_random_and_mutated_messages(daemon: Daemon) -> None:
    generator = random.Random(1)
    control, other, push = daemon.control(), daemon.control(), daemon.push()
    sound = [
        pack({"id": 1, "op": "value", "states": np.zeros((3, 2))}),
        pack({"id": 2, "op": "snapshot"}),
        pack({"op": "status"}),
    ]
    for number in range(1000):
        if number % 3 == 0:
            payload = os.urandom(generator.randrange(200))
        else:
            spoilt = bytearray(generator.choice(sound))
            for _ in range(generator.randrange(1, 4)):
                spoilt[generator.randrange(len(spoilt))] = generator.randrange(256)
            payload = bytes(spoilt)
        if not payload:
            continue
        # An id comes back byte for byte, also one that is no UTF-8.
        control.socket.send(payload)
        assert control.socket.poll(round(1000 * PATIENCE_S)), payload
        reply = msgpack.unpackb(control.socket.recv(), unicode_errors="surrogateescape")
        assert reply["v"] == 1 and isinstance(reply["ok"], bool)
        if number % 3 == 0:
            push.send(payload)
    assert other.ask("value", states=[[0.0, 1.0]])["offset"] == 202


def test_more_frames_than_there_should_be(daemon: Daemon) -> None:
    odd: Control = daemon.control()
    for frames in ([b"a", b"b"], [b"", b"", b""], [pack({"op": "ping"})] * 2, [b"x"] * 200):
        odd.socket.send_multipart(frames)
    daemon.push().send_multipart([b"a", b"b", b"c"])
    subscriber = daemon.subscribe("status")
    assert daemon.control(zmq.REQ).ask("ping")
    assert receive(subscriber)[0] == "status"
