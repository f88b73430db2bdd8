"""What a plotting program subscribes to: numbers of the newest row, as flat JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zmq
from client import PATIENCE_S, pack, when
from conftest import Start

CONFIG = """state_dim = 2
state_names = ["x", "battery"]
[[critic]]
name = "far"
discount = 0.9
[[critic]]
name = "near"
discount = 0.5
"""


def test_numbers_of_the_newest_row_come_as_json(start: Start) -> None:
    calm = ("critic.refit_first_rows=0", "critic.refit_score_drop=0")
    daemon = start("plot_interval_ms=200", "snapshot_interval_ms=50", *calm, config=CONFIG)
    # As PlotJuggler's subscriber: raw frames, of which it reads every one that is JSON.
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(daemon.endpoints["publish"])
    socket.subscribe(b"plot.")
    push, control = daemon.push(), daemon.control()
    generator = np.random.default_rng(0)
    seen: dict[str, list[dict[str, float]]] = {"far": [], "near": []}
    sent = 0

    def come() -> bool:
        nonlocal sent
        states = generator.normal(size=(21, 2))
        push.send(pack({"states": states, "rewards": states[:-1].sum(axis=1)}))
        sent += 20
        while socket.poll(20):
            topic, payload = socket.recv_multipart()
            with pytest.raises(ValueError):
                json.loads(topic)
            seen[topic.decode().removeprefix("plot.")].append(json.loads(payload))
        return min(map(len, seen.values())) >= 4

    when(come, "numbers of both critics")
    # The last row has a point of its own, however soon it comes.
    control.wait_for_offset(sent)
    push.send(pack({"state": [0.5, 0.25], "next_state": [0.25, -0.5], "reward": 3.0}))
    while seen["far"][-1]["far/offset"] <= sent and socket.poll(round(1000 * PATIENCE_S)):
        topic, payload = socket.recv_multipart()
        seen[topic.decode().removeprefix("plot.")].append(json.loads(payload))
    socket.close()
    for critic, messages in seen.items():
        keys = ["state/x", "state/battery", "reward", "value", "value_sd", "known", "td_error", "offset", "generation"]
        for message in messages:
            assert {"timestamp", *(f"{critic}/{key}" for key in keys)} <= message.keys()
            assert all(isinstance(number, float | int) and np.isfinite(number) for number in message.values())
            assert all(key == "timestamp" or key.startswith(f"{critic}/") for key in message)

    message = seen["far"][-1]
    assert [message[f"far/{key}"] for key in ("offset", "state/x", "state/battery", "reward")] == [
        sent + 1,
        0.25,
        -0.5,
        3,
    ]
    answer = control.ask("value", states=[[0.25, -0.5], [0.5, 0.25]], critic="far", variance=True)
    assert answer["mean"][0] == pytest.approx(message["far/value"], rel=1e-9)
    assert answer["variance"][0] == pytest.approx(message["far/value_sd"] ** 2, rel=1e-9)
    error = 3 + 0.9 * answer["mean"][0] - answer["mean"][1]
    assert message["far/td_error"] == pytest.approx(error, rel=1e-9)


def test_there_are_no_plots_unless_the_settings_ask_for_them(start: Start) -> None:
    daemon = start()
    subscriber, push = daemon.subscribe(""), daemon.push()
    states = np.random.default_rng(0).normal(size=(401, 1))
    push.send(pack({"states": states, "rewards": np.ones(400)}))
    topics = set()

    def comes() -> bool:
        if subscriber.poll(100):
            topics.add(subscriber.recv_multipart()[0].decode())
        return "snapshot.default" in topics

    when(comes, "a model")
    assert not any(topic.startswith("plot") for topic in topics)
