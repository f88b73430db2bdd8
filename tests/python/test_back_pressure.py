"""More than the daemon can learn: the producer is slowed down, every row arrives, memory stays bounded."""

from __future__ import annotations

import time

import numpy as np
import pytest
import zmq
from client import pack
from conftest import Start


@pytest.mark.slow
def test_a_fast_producer_waits_and_loses_nothing(start: Start) -> None:
    daemon = start("inbox_messages=64", "window_rows=20000", "critic.refit_first_rows=0", "critic.dictionary_max=400")
    push, control = daemon.push(SNDHWM=10), daemon.control()
    generator = np.random.default_rng(0)
    rows, messages, width = 200, 1500, 6
    payloads = []
    for number in range(messages):
        states = generator.standard_normal((rows + 1, width))
        body = {"seq": number * rows, "states": states, "rewards": generator.standard_normal(rows)}
        payloads.append(pack({"stream": "fast", "session": "run", **body}))
    blocked, largest = 0, 0.0
    began = time.monotonic()
    for number, payload in enumerate(payloads):
        try:
            push.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            blocked += 1
            push.send(payload)
        if number % 50 == 0:
            largest = max(largest, daemon.memory_mib())
            control.ask("ping")
    status = control.wait_for_offset(rows * messages, 600)
    seconds = time.monotonic() - began
    largest = max(largest, daemon.memory_mib("VmHWM"))
    held = status["window"]["bytes"] / 2**20
    print(
        f"\n{rows * messages} rows of {width} numbers, {sum(map(len, payloads)) / 2**20:.0f} MiB, in {seconds:.1f} s "
        f"({rows * messages / seconds:.0f} rows/s), send had to wait {blocked} times; resident at most {largest:.0f} MiB, "
        f"of which the window {held:.1f}, dictionary {status['critics'][0]['dictionary_size']}"
    )
    assert blocked > 0
    assert status["offset"] == rows * messages and status["rejected"] == {}
    assert control.ask("streams")["streams"]["fast"]["rows"] == rows * messages
    assert largest < 200
