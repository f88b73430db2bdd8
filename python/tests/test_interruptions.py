"""Whatever is interrupted, every row is learned once: client, daemon and the network between them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from conftest import CALM, PATIENCE_S, Route, Start, when

from criticd import Client, CriticdError, Full, Refused, Sender
from criticd._delivery import Link
from criticd.client import control_socket
from criticd.testing import Daemon

ROWS = 4000
# The noise is tuned at refreshes, whose moments depend on how rows are grouped.
STILL = (*CALM, "critic.estimate_scale=false")
STATES = np.random.default_rng(0).standard_normal((ROWS + 1, 3))


def send(sender: Sender, first: int, last: int, stream: str | None = None) -> None:
    """Rows `first` to `last` of a walk, one by one, every tenth of which ends."""
    for row in range(first, last):
        sender.send(STATES[row], STATES[row, 0], STATES[row + 1], truncated=row % 10 == 9, stream=stream)


def fate(client: Client) -> tuple[int, int, int, int]:
    """What must not depend on interruptions: rows in all, those in the model, chains cut, rows refused."""
    offset = client.status()["offset"]
    if offset:
        client.value(STATES[:1], min_offset=offset, timeout_s=PATIENCE_S)
    status = client.status()
    critic = status["critics"][0]
    return status["offset"], critic["learned"], critic["counts"]["cuts"], sum(status["rejected"].values())


def values(client: Client) -> np.ndarray:
    """What the statistics of all rows come to: means and variances at many states."""
    answer = client.value(STATES[:500], std=True)
    assert answer.variance is not None
    return np.concatenate([answer.mean, answer.variance])


class Undisturbed:
    """The fate of rows where nothing happens."""

    def __init__(self, start: Start, rows: int) -> None:
        daemon = start(*STILL)
        with daemon.sender(reliable=True, batch_rows=50) as sender:
            send(sender, 0, rows)
            assert sender.flush(PATIENCE_S)
        with daemon.client() as client:
            self.fate, self.values = fate(client), values(client)
        assert self.fate == (rows, rows, rows // 10, 0)

    def is_that_of(self, client: Client) -> None:
        """Assert that nobody can tell the difference."""
        assert fate(client) == self.fate
        np.testing.assert_allclose(values(client), self.values, rtol=1e-9, atol=1e-9)


def test_the_path_is_cut_and_healed(start: Start, route: Callable[[str], Route]) -> None:
    undisturbed, daemon = Undisturbed(start, ROWS), start(*STILL)
    path = route(daemon.endpoints.control)
    with Sender(path.endpoint, reliable=True, batch_rows=50, window=8) as sender:
        for cut in range(5):
            begin, end = cut * ROWS // 5, (cut + 1) * ROWS // 5
            # In the middle of the rows: some have gone, some are under way, some not sent.
            passed = path.passed
            send(sender, begin, end - 300)
            path.wait_for_bytes(passed + 10_000)
            path.cut()
            send(sender, end - 300, end)
            path.heal()
        assert sender.flush(PATIENCE_S)
        counters = sender.counters
    assert (counters.acknowledged, counters.lost, counters.refused) == (ROWS, 0, 0)
    # A busy machine may hear of two cuts at once: the transport had made a connection of its own in between.
    assert counters.reconnects >= 1
    with daemon.client() as client:
        undisturbed.is_that_of(client)
        assert client.streams()["default"].rows == ROWS


def test_the_daemon_is_killed_and_restarted(start: Start) -> None:
    # One that keeps nothing on disk forgets all: the sender still has its last 64 batches.
    rows = ROWS // 2
    undisturbed, daemon = Undisturbed(start, rows), start(*STILL)
    with daemon.sender(reliable=True, batch_rows=50, window=4) as sender:
        send(sender, 0, rows // 2)
        assert sender.flush(PATIENCE_S)
        send(sender, rows // 2, rows // 2 + 200)
        daemon.restart()
        send(sender, rows // 2 + 200, rows)
        assert sender.flush(PATIENCE_S)
        counters = sender.counters
    assert (counters.acknowledged, counters.lost, counters.refused) == (rows, 0, 0)
    # A busy machine may give a connection up before the daemon has answered on it.
    assert counters.reconnects >= 1
    with daemon.client() as client:
        undisturbed.is_that_of(client)
        durable = client.status()["durable"]
        assert durable or counters.resent >= rows // 2
        stream = client.streams()["default"]
    assert (stream.rows, stream.next_seq, stream.session) == (rows, rows, sender.session)


def test_the_daemon_is_killed_while_nothing_is_sent(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True, batch_rows=50) as sender:
        send(sender, 0, 1000)
        assert sender.flush(PATIENCE_S)
        daemon.restart()
        with daemon.client() as client:
            # Nobody sends anything any more, and yet what was forgotten comes back.
            assert client.value(STATES[:1], min_offset=1000, timeout_s=PATIENCE_S).offset == 1000
            assert client.streams()["default"].next_seq == 1000


def test_what_is_forgotten_and_no_longer_kept_is_counted(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True, batch_rows=10) as sender:
        # As a table, of which each batch is full.
        sender.send_batch(STATES[:1000], STATES[:1000, 0], STATES[1:1001])
        assert sender.flush(PATIENCE_S)
        # With all that it may have kept on disk.
        daemon.kill()
        shutil.rmtree(daemon.data_dir)
        daemon.start()
        send(sender, 1000, 1100)
        assert sender.flush(PATIENCE_S)
        counters = sender.counters
        with daemon.client() as client:
            stream = client.streams()["default"]
    # The last 64 batches came back, as another session.
    assert counters.lost == 1000 - stream.rows + 100
    assert stream.rows == 640 + 100
    assert stream.session == f"{sender.session}.1"


PRODUCER = """
import sys
import time
import numpy as np
from conftest import PATIENCE_S
from criticd import Sender
from test_interruptions import ROWS, send
options = {"session": "run", "resume": True, "batch_rows": 50, "window": 4, "timeout_s": PATIENCE_S}
with Sender(sys.argv[1], reliable=True, **options) as sender:
    print("goes on with row", sender.position(), flush=True)
    send(sender, sender.position(), int(sys.argv[2]))
    sender.flush()
    if sender.position() < ROWS:
        time.sleep(3600)
"""


def producer(endpoint: str, last: int = ROWS) -> subprocess.Popen[str]:
    """Send rows up to `last`; where these are not all, wait to be killed."""
    command = [sys.executable, "-c", PRODUCER, endpoint, str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)


def test_the_client_is_killed_and_restarted(start: Start, route: Callable[[str], Route]) -> None:
    undisturbed, daemon = Undisturbed(start, ROWS), start(*STILL)
    path = route(daemon.endpoints.control)
    # It does not come to its end, however late it is killed.
    first = producer(path.endpoint, ROWS - 500)
    # A row takes some 60 bytes: this is amid the stream.
    path.wait_for_bytes(60 * ROWS // 3)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    with daemon.client() as client:
        # What has passed may still be on its way into the journal.
        when(lambda: client.status()["offset"] > 0, "rows of the first one")
        assert client.status()["offset"] < ROWS
        second = producer(path.endpoint)
        said, _ = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 0
        assert int(said.split()[-1]) > 0
        undisturbed.is_that_of(client)
        assert client.streams()["default"].next_seq == ROWS


def test_rows_wait_on_disk_while_the_daemon_is_away(start: Start, tmp_path: Path) -> None:
    daemon = start(*CALM)
    daemon.kill()
    spool = tmp_path / "rows.spool"
    options: dict[str, Any] = {"reliable": True, "spool": spool, "queue_rows": 200, "batch_rows": 50}
    # More than fits into memory, in two runs of the program, neither of which sees a daemon.
    for run in range(2):
        with daemon.sender(session=f"run-{run}", linger_s=0.001, timeout_s=PATIENCE_S, **options) as sender:
            send(sender, 0, 1000)
            sender.close()
            counters = sender.counters
        assert (counters.taken, counters.lost, counters.spooled) == (1000, 0, 1000 * (run + 1))
    with pytest.raises(ValueError, match="resume=True"):
        daemon.sender(session="run-1", **options)
    daemon.start()
    # The third goes on with the session of the second, and sends what both left behind.
    with daemon.sender(session="run-1", resume=True, **options) as sender:
        assert sender.position() == 1000
        send(sender, 1000, 1500)
        assert sender.flush(PATIENCE_S)
        assert sender.counters.spooled == 0
    with daemon.client() as client:
        assert fate(client)[:2] == (2500, 2500)
        stream = client.streams()["default"]
    assert (stream.session, stream.next_seq, stream.rows) == ("run-1", 1500, 2500)


def test_a_spool_outlives_breaks_of_the_path(start: Start, route: Callable[[str], Route], tmp_path: Path) -> None:
    daemon = start(*CALM)
    path = route(daemon.endpoints.control)
    options: dict[str, Any] = {
        "reliable": True,
        "spool": tmp_path / "spool",
        "queue_rows": 300,
        "batch_rows": 20,
        "window": 4,
    }
    with Sender(path.endpoint, linger_s=0.001, **options) as sender:
        for part in range(4):
            for stream in ("a", "b"):
                send(sender, 500 * part, 500 * part + 250, stream)
            path.cut()
            for stream in ("a", "b"):
                send(sender, 500 * part + 250, 500 * part + 500, stream)
            path.heal()
        assert sender.flush(PATIENCE_S)
        counters = sender.counters
    assert (counters.acknowledged, counters.lost, counters.spooled) == (4000, 0, 0)
    with daemon.client() as client:
        assert fate(client) == (4000, 4000, 400, 0)
        assert {name: s.next_seq for name, s in client.streams().items()} == {"a": 2000, "b": 2000}


def test_a_full_spool_makes_send_wait(start: Start, tmp_path: Path) -> None:
    daemon = start(*CALM)
    daemon.kill()
    options: dict[str, Any] = {"spool": tmp_path / "spool", "spool_bytes": 30_000, "queue_rows": 100}
    with daemon.sender(reliable=True, timeout_s=1.0, linger_s=0.001, **options) as sender:

        def is_full() -> bool:
            with pytest.raises(Full):
                send(sender, 0, 1000)
            # While the disk is busy the rows wait for it, too.
            return sender.counters.spooled > 200

        when(is_full, "a full spool")
    counters = sender.counters
    # Nothing of what was taken is lost but what fits neither on disk nor, after the end, in memory.
    assert counters.taken == counters.spooled + counters.lost
    assert 200 < counters.spooled < 600
    assert (tmp_path / "spool").stat().st_size < 100_000


def test_two_senders_cannot_share_a_spool(tmp_path: Path) -> None:
    with (
        Sender("tcp://127.0.0.1:1", reliable=True, spool=tmp_path / "spool", timeout_s=0),
        pytest.raises(CriticdError, match="another sender"),
    ):
        Sender("tcp://127.0.0.1:1", reliable=True, spool=tmp_path / "spool")


def test_a_newer_session_ends_the_older(start: Start) -> None:
    daemon = start(*CALM)
    first = daemon.sender(reliable=True)
    send(first, 0, 10)
    assert first.flush(PATIENCE_S)
    with daemon.sender(reliable=True) as second:
        send(second, 0, 10)
        assert second.flush(PATIENCE_S)
        # At once: after the first refusal it takes no more.
        first.send_batch(STATES[10:20], STATES[10:20, 0], STATES[11:21])
        with pytest.raises(Refused) as refused:
            first.flush(PATIENCE_S)
        assert (refused.value.code, refused.value.field) == ("fenced", "session")
        with pytest.raises(Refused, match="fenced"):
            send(first, 20, 21)
        assert first.counters.refused == 10
        first.close()
    with daemon.client() as client:
        assert client.streams()["default"].rows == 20


def test_a_connection_stands_beside_what_an_earlier_one_has_not_yet_left() -> None:
    """As after a kill: the next socket gets the descriptor of the last, whose monitor libzmq still ends."""
    with zmq.Context() as context:
        left = context.socket(zmq.PAIR)
        socket = control_socket(context, None)
        left.bind(f"inproc://monitor.s-{socket.FD}")
        link = Link(socket, "tcp://127.0.0.1:1")
        link.close()
        left.close(linger=0)


def test_a_data_directory_leads_to_a_daemon_on_other_ports(start: Start, tmp_path: Path) -> None:
    daemon = start(*CALM, directory=tmp_path)
    with Sender(data_dir=daemon.data_dir, reliable=True, batch_rows=50) as sender:
        send(sender, 0, 500)
        assert sender.flush(PATIENCE_S)
        before = daemon.endpoints
        daemon.kill()
        (daemon.data_dir / "endpoints.json").unlink()
        moved = Daemon(*CALM, directory=tmp_path)
        try:
            assert moved.endpoints.control != before.control
            send(sender, 500, 1000)
            assert sender.flush(PATIENCE_S)
            with Client(data_dir=tmp_path / "data") as client:
                assert client.streams()["default"].next_seq == 1000
        finally:
            moved.close()
