"""Clients as they come: heartbeats, REQ and DEALER, late subscribers; and the daemon's own comings and goings."""

from __future__ import annotations

import math
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from client import PATIENCE_S, Daemon, Map, listening, pack, receive, when
from conftest import Start
from peers import free_port

# After which a connection whose heartbeats are not answered is given up: short enough for a test to outlast it.
HEARTBEAT_TIMEOUT_MS = 5000


def walk(seq: int, rows: int, start: float = 0.0) -> Map:
    """A piece of a walk that goes back and forth, as a batch."""
    states = [[((seq + k) % 20) / 10 + start] for k in range(rows + 1)]
    return {"seq": seq, "states": states, "rewards": [state[0] for state in states[:-1]]}


class Flood(threading.Thread):
    """Send as fast as the daemon takes it, or `pause_s` apart, until stopped."""

    def __init__(self, daemon: Daemon, rows: int = 50, pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.push = daemon.push(SNDTIMEO=100)
        self.rows, self.pause_s, self.seq, self.over = rows, pause_s, 0, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self.push.send(pack({"stream": "flood", "session": "run", **walk(self.seq, self.rows)}))
            except zmq.Again:
                continue
            self.seq += self.rows
            time.sleep(self.pause_s)

    def stop(self) -> None:
        self.over.set()
        self.join()


def test_req_and_dealer_clients_with_heartbeats(start: Start) -> None:
    daemon = start()
    beats = {"HEARTBEAT_IVL": 100, "HEARTBEAT_TIMEOUT": HEARTBEAT_TIMEOUT_MS}
    push, subscriber = daemon.push(**beats), daemon.subscribe("status", **beats)
    request, dealer = daemon.control(zmq.REQ, heartbeat_ms=100), daemon.control(zmq.DEALER, heartbeat_ms=100)
    monitor = push.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    for k in range(20):
        push.send(pack({"stream": "push", **walk(20 * k, 20)}))
        assert request.ask("append", stream="req", **walk(20 * k, 20))["next_seq"] == 20 * (k + 1)
        assert dealer.ask("append", stream="dealer", **walk(20 * k, 20))["accepted"] == 20
        assert request.ask("ping")["version"]
        time.sleep(0.1)

    def is_kept() -> bool:
        """Whether nothing is dropped while the clients are idle for longer than the heartbeat timeout."""
        time.sleep(HEARTBEAT_TIMEOUT_MS / 1000 + 1.0)
        dropped = 0
        while monitor.poll(0):
            monitor.recv_multipart()
            dropped += 1
        return dropped == 0

    # A daemon that stood still for as long has answered no heartbeat; one that answers none never comes through.
    when(is_kept, "a connection that is kept")
    push.send(pack({"stream": "push", **walk(400, 20)}))
    assert request.wait_for_offset(1220)["offset"] == 1220
    assert receive(subscriber)[0] == "status"
    push.disable_monitor()
    # A delimiter from a DEALER comes back; without one there is none.
    for frames in ([b""], []):
        dealer.socket.send_multipart([*frames, pack({"op": "ping"})])
        reply = dealer.socket.recv_multipart()
        assert reply[:-1] == frames


def test_a_late_subscriber_gets_a_whole_snapshot(start: Start) -> None:
    daemon = start("snapshot_interval_ms=1000")
    flood, control = Flood(daemon, pause_s=0.01), daemon.control()
    flood.start()
    control.wait_for_offset(500)
    for _ in range(3):
        subscriber = daemon.subscribe("snapshot.default")
        topic, snapshot = receive(subscriber)
        assert (topic, snapshot["type"]) == ("snapshot.default", "snapshot")
        assert snapshot["weights"].shape == (len(snapshot["dictionary"]),)
    flood.stop()


def test_weights_continue_a_snapshot(start: Start) -> None:
    daemon = start("snapshot_interval_ms=600")
    subscriber = daemon.subscribe("snapshot.default", "weights.default")
    # The first that it hears is a whole one.
    listening(subscriber)
    flood = Flood(daemon, pause_s=0.005)
    flood.start()
    kinds: list[str] = []
    revisions: list[int] = []
    basis: list[Any] | None = None
    deadline = time.monotonic() + PATIENCE_S
    # On a busy machine the one kind or the other comes late.
    while len(kinds) < 25 or len(set(kinds)) < 2:
        assert time.monotonic() < deadline, kinds
        _, message = receive(subscriber)
        kinds.append(message["type"])
        revisions.append(message["revision"])
        if message["type"] == "snapshot":
            basis = list(message["dictionary"])
        else:
            assert basis is not None
            basis = [*basis[: message["dictionary_start"]], *message["dictionary"]]
        assert len(message["weights"]) == len(basis)
    flood.stop()
    assert revisions == list(range(revisions[0], revisions[0] + len(revisions)))
    assert {"snapshot", "weights"} == set(kinds)


@pytest.mark.parametrize(("limit", "kind"), [(1 << 20, "whole"), (16_384, "means"), (1024, "announcement")])
def test_a_large_model_goes_without_variance_or_is_announced(start: Start, limit: int, kind: str) -> None:
    daemon = start(f"publish_bytes_max={limit}", "critic.refit_first_rows=0", "critic.dictionary_max=100")
    subscriber, control = daemon.subscribe("snapshot.default"), daemon.control()
    states = np.random.default_rng(0).standard_normal((401, 6))
    # What comes is published but once.
    listening(subscriber)
    control.ask("append", seq=0, states=states, rewards=states[:-1, 0])
    topic, message = receive(subscriber)
    while message["offset"] < 400:
        topic, message = receive(subscriber)
    fetched = control.ask("snapshot", variance=True)
    assert fetched["weights"].shape == (100,) and fetched["variance"].shape == (100, 100)
    assert topic == "snapshot.default" and message["generation"] == fetched["generation"]
    if kind == "announcement":
        assert message["type"] == kind and message["bytes"] > limit
    else:
        assert np.array_equal(message["weights"], fetched["weights"])
        assert ("variance" in message) == (kind == "whole")


def test_a_reload_changes_the_snapshot_interval(start: Start) -> None:
    daemon = start("critic.refit_first_rows=0", "critic.refit_score_drop=0", config="snapshot_interval_ms = 60000\n")
    flood, control = Flood(daemon, pause_s=0.005), daemon.control()
    subscriber = daemon.subscribe("snapshot.default")
    flood.start()
    control.wait_for_offset(500)

    def snapshots(seconds: float) -> int:
        count, deadline = 0, time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if subscriber.poll(round(1000 * left)):
                receive(subscriber)
                count += 1
        return count

    def come_quickly() -> bool:
        """Whether two snapshots that are made from now on are as close as only the short interval allows.

        A busy machine makes fewer of them than the interval asks for, so that their number in some time says little.
        """
        began, last = time.time(), -math.inf
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if subscriber.poll(100) and (made := receive(subscriber)[1]["time"]) > began:
                if made - last < 0.9:
                    return True
                last = made
        return False

    snapshots(1.0)
    before = snapshots(1.5)
    daemon.config.write_text("snapshot_interval_ms = 100\n")
    daemon.process.send_signal(signal.SIGHUP)
    # Neither at the interval of before, nor at the default of a second.
    assert come_quickly() and before <= 3, before
    # What cannot change, or cannot be read, changes nothing.
    refused = 0
    for text in ("window_rows = 77\nsnapshot_interval_ms = 60000\n", "snapshot_interval = 60000\n"):
        daemon.config.write_text(text)
        daemon.process.send_signal(signal.SIGHUP)
        refused += 1
        when(lambda: daemon.log().count("reload_refused") == refused, "it is refused")  # noqa: B023
        assert come_quickly() and daemon.alive()
    flood.stop()


def test_sigterm_under_full_stream(start: Start) -> None:
    daemon = start("inbox_messages=64")
    subscriber = daemon.subscribe("snapshot.default")
    flood, control = Flood(daemon), daemon.control()
    flood.start()
    control.wait_for_offset(5000)
    offset = control.ask("status")["offset"]
    code, seconds = daemon.terminate()
    flood.stop()
    print(f"\nstopped after {seconds:.2f} s")
    assert code == 0
    (stopped,) = [line for line in daemon.log().splitlines() if "event=stopped" in line]
    end = int(stopped.rsplit("offset=", 1)[1])
    assert end >= offset
    # The last snapshot holds everything learned: it comes within the time that `receive` waits.
    while (last := receive(subscriber)[1])["offset"] < end:
        pass
    assert last["offset"] == end
    assert not (daemon.directory / "data" / "endpoints.json").exists()


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_kill_and_restart_on_the_same_endpoints(start: Start, tmp_path: Path, kind: str) -> None:
    names = ("ingest", "control", "publish")
    # Ports that nobody else is given while there is no daemon.
    ends = {name: f"ipc://{tmp_path}/{name}" if kind == "ipc" else f"tcp://127.0.0.1:{free_port()}" for name in names}
    daemon = start(endpoints=ends)
    flood, control, subscriber = Flood(daemon, pause_s=0.01), daemon.control(), daemon.subscribe("snapshot.")
    flood.start()
    control.wait_for_offset(500)
    daemon.kill()
    again = start(endpoints=ends)
    assert {name: again.endpoints[name] for name in names} == ends
    # The clients of before have reconnected on their own.
    while subscriber.poll(0):
        receive(subscriber)
    began = time.monotonic()
    status: Any = again.control().wait_for_offset(500)
    assert receive(subscriber)[1]["offset"] <= control.wait_for_offset(500)["offset"]
    print(f"\n{kind}: learning again {time.monotonic() - began:.2f} s after the restart, offset {status['offset']}")
    flood.stop()
    assert again.terminate()[0] == 0
