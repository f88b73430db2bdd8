"""Many peers for a while: every row is acknowledged meanwhile, memory stays flat, and nothing is left when they have gone.

How fast it goes with and without them is measured by `load.py`.
"""

from __future__ import annotations

import pytest
from client import PATIENCE_S, Daemon, pack, when
from conftest import Start
from peers import Crowd, Peer, allow_descriptors, append, descriptors, subscriber

pytestmark = pytest.mark.nightly

FLAT_MIB = 24.0


def held(daemon: Daemon) -> float:
    """Resident memory in MiB, once the daemon has nothing left to do."""
    daemon.shared_control().ask("status")
    return daemon.memory_mib()


def test_a_thousand_subscribers_of_which_a_hundred_never_read(start: Start) -> None:
    allow_descriptors(4096)
    # Small models, so that what is written to all of them is less than the test itself can read.
    small = ("critic.dictionary_max=20", "critic.refit_first_rows=0", "snapshot_interval_ms=200")
    daemon = start("limits.connections_per_address_max=2000", *small)
    control = daemon.control()
    control.ask("status")
    seq, open_before = append(daemon, 0, 2000), descriptors(daemon)
    after: list[float] = []
    for _ in range(3):
        dead = [subscriber(daemon) for _ in range(100)]
        with Crowd(daemon, 900) as crowd:

            def go_on() -> bool:
                nonlocal seq
                seq = append(daemon, seq, 500)
                return crowd.heard_least() > 50_000

            when(go_on, "everybody hears 50 kB", 2 * PATIENCE_S)
            assert control.ask("status")["offset"] == seq and crowd.cut() == 0
        for peer in dead:
            peer.close()
        when(lambda: descriptors(daemon) <= open_before, "as many descriptors as before")
        after.append(held(daemon))
    most = daemon.memory_mib("VmHWM")
    print(f"\n{seq} rows acknowledged, {after} MiB after each round, {most:.0f} MiB at most")
    # What waits for all peers together is limited to 256 MiB.
    assert most < 320 and after[-1] - after[0] < FLAT_MIB


def test_ten_thousand_streams(start: Start) -> None:
    # What a stream costs is a chain of the model: by the dictionary.
    daemon = start("streams_max=10001", "critic.dictionary_max=50", "critic.refit_first_rows=0")
    control, push = daemon.control(), daemon.push()
    append(daemon, 0, 1000)
    before = held(daemon)
    # All of them, then some again in another order.
    for seq, step in ((0, 1), (1, 7)):
        for stream in range(0, 10_000, step):
            row = {"state": [0.1 * seq, 0.5], "reward": 1.0, "next_state": [0.1 * seq + 0.1, 0.5]}
            push.send(pack({"stream": f"robot-{stream}", "session": "", "seq": seq, **row}))
    control.wait_for_offset(1000 + 10_000 + 1429)
    append(daemon, 2, 1, stream="robot-7")
    page = control.ask("streams")
    streams = page["streams"]
    while "next" in page:
        page = control.ask("streams", **{"from": page["next"]})
        streams |= page["streams"]
    assert len(streams) == 10_001
    assert [streams[f"robot-{stream}"]["next_seq"] for stream in (7, 9996, 9997)] == [3, 2, 1]
    more = held(daemon) - before
    print(f"\n{more:.1f} MiB more for 10 000 streams")
    assert more < 64


def test_five_thousand_that_come_and_go(start: Start) -> None:
    daemon = start()
    daemon.control().ask("status")
    seq, open_before, after = append(daemon, 0, 100), descriptors(daemon), []
    for part in range(5):
        for k in range(1000):
            peer = Peer(daemon, *(("control", "DEALER"), ("ingest", "PUSH"), ("publish", "SUB"))[k % 3])
            if k % 50:
                peer.close()
            else:
                peer.vanish()
        seq = append(daemon, seq, 100)
        after.append(held(daemon))
    when(lambda: descriptors(daemon) <= open_before, "as many descriptors as before")
    print(f"\n{after} MiB after each thousand")
    assert after[-1] - after[0] < FLAT_MIB and seq == 600
