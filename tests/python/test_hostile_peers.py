"""Every fault that was found with the transport library as it comes, done to the daemon over its sockets.

| fault | test |
| --- | --- |
| a frame header announces 64 GiB to 2^63 bytes, before or after READY | `test_an_absurd_announcement` |
| 40 MB of empty frames of one message | `test_a_message_without_end` |
| a message that really is 3 GiB long | `test_a_message_without_end` |
| random bytes after a greeting that is right, after a handshake, and instead of one | `test_noise` |
| 500 silent and 500 half-greeting connections | `test_a_thousand_that_never_finish_their_handshake` |
| a DEALER that never reads its replies | `test_clients_that_never_read_their_replies` |
| a SUB that never reads | `test_subscribers_that_never_read` |
| a peer that vanishes without FIN | `test_peers_that_vanish` |
| a heartbeat of libzmq's | `test_connections.py`: `test_req_and_dealer_clients_with_heartbeats` |
| out of descriptors | `test_few_descriptors` |
| the file of an ipc socket whose daemon was killed | `test_connections.py`: `test_kill_and_restart_on_the_same_endpoints` |
| `tcp://*`, `ipc://*`, abstract names, inproc | `test_endpoints_that_name_no_place` |

Each time the daemon lives, somebody else is answered meanwhile, memory stays within a bound, and afterwards as many
descriptors are open as before. How long the others' answers take is measured by `load.py`.
"""

from __future__ import annotations

import random
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from client import BINARY, PATIENCE_S, Daemon, pack, when
from conftest import Start
from peers import GREETING, TYPES, Peer, allow_descriptors, announcing, descriptors, frame, subscriber

# The longest that the settings allow, longer than anybody waits for an answer: no limit on time rids the daemon of the others before.
PATIENT = tuple(f"limits.{name}_timeout_ms=600000" for name in ("handshake", "stall", "saturated"))
SOON = ("limits.handshake_timeout_ms=2000", "limits.stall_timeout_ms=1500", "limits.saturated_timeout_ms=4000")


@contextmanager
def unharmed(daemon: Daemon, mib: float) -> Iterator[Callable[[], None]]:
    """Gives a function that asks as another client. At the end nothing may be left of what was done within, and the
    daemon may never have held more than `mib` MiB beyond what it held before."""
    control = daemon.control()
    control.ask("status")
    open_before, held_before = descriptors(daemon), daemon.memory_mib()

    def ask() -> None:
        assert control.ask("ping")["ok"]

    yield ask
    ask()
    when(lambda: descriptors(daemon) <= open_before, "as many descriptors as before")
    most = daemon.memory_mib("VmHWM") - held_before
    print(f"\nat most {most:.1f} MiB more than before")
    assert most < mib, f"{most} MiB"
    assert daemon.alive() and "panicked" not in daemon.log()


def cut_because(daemon: Daemon, *reasons: str) -> bool:
    return bool(re.search(f"event=peer_disconnected .*reason=({'|'.join(reasons)}) ", daemon.log()))


def much_waits(daemon: Daemon, name: str) -> bool:
    """Whether peers of a socket do not read what is there for them."""
    return daemon.metric(f'criticd_backlog_bytes{{socket="{name}"}}') > 8 << 20


@pytest.mark.parametrize("name", TYPES)
def test_an_absurd_announcement(start: Start, name: str) -> None:
    daemon = start(*PATIENT)
    with unharmed(daemon, 16) as ask:
        for bits in (36, 40, 50, 62, 63):
            for flags in (0, 1, 4):
                before = Peer(daemon, name)
                before.send(GREETING + announcing(1 << bits, flags))
                behind = Peer(daemon, name, TYPES[name])
                behind.send(announcing(1 << bits, flags))
                assert before.is_cut() and behind.is_cut()
                ask()


@pytest.mark.parametrize(
    ("piece", "most", "reason"),
    [
        (frame(b"", 1) * (1 << 15), 40 << 20, "too_many_parts"),
        # Each frame is within its limit.
        (frame(bytes(1 << 19), 1), 3 << 30, "message_too_large"),
    ],
)
def test_a_message_without_end(start: Start, piece: bytes, most: int, reason: str) -> None:
    daemon = start(*PATIENT)
    with unharmed(daemon, 24) as ask:
        for name in ("ingest", "control"):
            peer = Peer(daemon, name, TYPES[name])
            assert peer.send_until_cut(piece, most) < most and peer.is_cut()
            ask()
    assert cut_because(daemon, reason)


def test_a_frame_that_really_is_three_gigabytes_long(start: Start) -> None:
    daemon = start(*PATIENT)
    with unharmed(daemon, 24) as ask:
        peer = Peer(daemon, "control", "DEALER")
        peer.send(announcing(3 << 30))
        assert peer.send_until_cut(bytes(1 << 20), 3 << 30) < 3 << 30 and peer.is_cut()
        ask()
    assert cut_because(daemon, "frame_too_large")


@pytest.mark.parametrize("seed", range(3))
def test_noise(start: Start, seed: int) -> None:
    daemon, generator = start(*PATIENT), random.Random(seed)
    with unharmed(daemon, 24) as ask:
        peers = []
        for k in range(60):
            name = generator.choice(list(TYPES))
            peers.append(Peer(daemon, name, TYPES[name] if k % 3 == 0 else ""))
            try:
                peers[-1].send((GREETING if k % 3 == 1 else b"") + generator.randbytes(generator.randrange(1, 3000)))
            except ConnectionError:
                pass  # cut while it was still speaking
            if k % 10 == 0:
                ask()
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("limits", [PATIENT, SOON], ids=["patient", "soon"])
def test_a_thousand_that_never_finish_their_handshake(start: Start, limits: tuple[str, ...]) -> None:
    allow_descriptors(4096)
    daemon = start(*limits, "limits.connections_per_address_max=2000")
    with unharmed(daemon, 32) as ask:
        peers = [Peer(daemon, list(TYPES)[k % 3]) for k in range(1000)]
        for peer in peers[::2]:
            # The first may have been cut by now.
            peer.send_what_fits(GREETING[:30])
        ask()
        assert limits == PATIENT or all(peer.is_cut() for peer in peers)
        for peer in peers:
            peer.close()
    assert cut_because(daemon, "handshake_timeout") == (limits == SOON)


@pytest.mark.parametrize("limits", [PATIENT, SOON], ids=["patient", "soon"])
def test_clients_that_never_read_their_replies(start: Start, limits: tuple[str, ...]) -> None:
    daemon = start(*limits)
    with unharmed(daemon, 96) as ask:
        flooders = [Peer(daemon, "control", "DEALER") for _ in range(3)]
        request = frame(pack({"op": "status"})) * 64

        def one_more() -> bool:
            for flooder in flooders:
                # Held back after a while, or cut: it takes what it takes.
                flooder.send_what_fits(request)
            ask()
            return much_waits(daemon, "control") if limits == PATIENT else cut_because(daemon, "stalled", "saturated")

        when(one_more, "much waits for them, or they are cut")
        if limits == PATIENT:
            for flooder in flooders:
                flooder.close()
        # Else none of them closes its connection: `unharmed` waits until all are cut.
        assert len(flooders) == 3
    assert cut_because(daemon, "stalled", "saturated") == (limits == SOON)


@pytest.mark.parametrize("limits", [PATIENT, SOON], ids=["patient", "soon"])
def test_subscribers_that_never_read(start: Start, limits: tuple[str, ...]) -> None:
    daemon = start(*limits, "snapshot_interval_ms=20")
    generator = random.Random(0)
    # For each of them wait at most 16 MiB.
    with unharmed(daemon, 10 * 16 + 64) as ask:
        dead = [subscriber(daemon) for _ in range(10)]
        push, reader = daemon.push(), daemon.subscribe("snapshot.")
        seq, read = 0, 0

        def one_more() -> bool:
            nonlocal seq, read
            states = [[generator.gauss(0, 1) for _ in range(4)] for _ in range(101)]
            push.send(pack({"stream": "s", "session": "1", "seq": seq, "states": states, "rewards": [1.0] * 100}))
            seq += 100
            while reader.poll(0):
                reader.recv_multipart()
                read += 1
            ask()
            return much_waits(daemon, "publish") if limits == PATIENT else cut_because(daemon, "stalled", "saturated")

        when(one_more, "much waits for them, or they are cut")
        before = read

        def reads_more() -> bool:
            one_more()
            return read > before + 10

        when(reads_more, "one that reads goes on")
        push.close()
        reader.close()
        if limits == PATIENT:
            for peer in dead:
                peer.close()
        assert len(dead) == 10


@pytest.mark.long
def test_peers_that_vanish(start: Start) -> None:
    daemon = start("snapshot_interval_ms=100")
    with unharmed(daemon, 24) as ask:
        peers = [subscriber(daemon) for _ in range(10)]
        peers += [Peer(daemon, name, TYPES[name]) for name in ("ingest", "control") for _ in range(10)]
        ask()
        for peer in peers:
            peer.vanish()
        # To producers and clients nothing is sent: the kernel asks after them.
        ask()


def test_few_descriptors(start: Start) -> None:
    daemon = start(*PATIENT)
    with unharmed(daemon, 24) as ask:
        limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (descriptors(daemon) + 30, limits[1]))
        # They connect, as the kernel's queue has room, and wait for a greeting in vain.
        peers = [Peer(daemon, "control") for _ in range(60)]
        when(lambda: "event=accept_failed" in daemon.log(), "there are no more")
        ask()
        for peer in peers:
            peer.close()
        when(lambda: descriptors(daemon) < 60, "room again")
        Peer(daemon, "control", "DEALER").close()


@pytest.mark.parametrize("endpoint", ["tcp://*:0", "ipc://*", "ipc://@abstract", "inproc://here", "tcp://127.0.0.1"])
def test_endpoints_that_name_no_place(tmp_path: Path, endpoint: str) -> None:
    command = [BINARY, "serve", "--data-dir", str(tmp_path / "data"), "--control", endpoint]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert found.returncode in (1, 2) and "panicked" not in found.stderr, found.stderr
    assert "control" in found.stderr, "it names the setting"
