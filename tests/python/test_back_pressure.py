"""More than the daemon can learn: the producer is slowed down, every row arrives, memory stays bounded."""

from __future__ import annotations

import time

import numpy as np
import pytest
import zmq
from client import PATIENCE_S, pack
from conftest import Start


@pytest.mark.parametrize("messages", [300, pytest.param(1500, marks=[pytest.mark.nightly, pytest.mark.long])])
def test_a_fast_producer_waits_and_loses_nothing(start: Start, messages: int) -> None:
    # A producer that stands still within a message is cut off after 10 s by default, and loses what it has sent of it.
    settings = ("inbox_messages=64", "window_rows=20000", "critic.refit_first_rows=0", "critic.dictionary_max=400")
    daemon = start("limits.stall_timeout_ms=600000", *settings)
    push, control = daemon.push(SNDHWM=10), daemon.control()
    generator = np.random.default_rng(0)
    rows, width = 200, 6
    number = sent = blocked = 0
    began = time.monotonic()
    # Until it has had to wait, however much the system's buffers take.
    while number < messages or not blocked:
        assert number < messages or time.monotonic() < began + PATIENCE_S, "it never had to wait"
        states = generator.standard_normal((rows + 1, width))
        body = {"seq": number * rows, "states": states, "rewards": generator.standard_normal(rows)}
        payload = pack({"stream": "fast", "session": "run", **body})
        try:
            push.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            blocked += 1
            push.send(payload)
        number, sent = number + 1, sent + len(payload)
        if number % 50 == 0:
            control.ask("ping")
    status = control.wait_for_offset(rows * number)
    seconds = time.monotonic() - began
    largest = daemon.memory_mib("VmHWM")
    held = status["window"]["bytes"] / 2**20
    print(
        f"\n{rows * number} rows of {width} numbers, {sent / 2**20:.0f} MiB, in {seconds:.1f} s "
        f"({rows * number / seconds:.0f} rows/s), send had to wait {blocked} times; resident at most {largest:.0f} MiB, "
        f"of which the window {held:.1f}, dictionary {status['critics'][0]['dictionary_size']}"
    )
    assert status["offset"] == rows * number and status["rejected"] == {}
    assert control.ask("streams")["streams"]["fast"]["rows"] == rows * number
    assert largest < 200
