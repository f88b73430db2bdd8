"""What one client asks for, however much of it, costs the others neither memory without bound nor their turn."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import zmq
from client import PATIENCE_S, Daemon, Map, Refused, pack, unpack, when
from conftest import Start
from peers import Peer, frame

MIB = 1 << 20
# What the process has beside its queues: code, threads, a small model, and what the allocator keeps of it.
BESIDE = 256 * MIB


def long_states(rows: int = 65_000, width: int = 15) -> bytes:
    """States of one-byte numbers, as a value of MessagePack: a mebibyte that becomes eight in memory."""
    row = bytes([0x90 | width]) + b"\x01" * width
    return b"\xdd" + struct.pack(">I", rows) + row * rows


def query(number: int | str, states: bytes, **fields: Any) -> bytes:
    keys = {"v": 1, "id": number, "op": "value", **fields}
    head = b"".join(msgpack.packb(key) + msgpack.packb(value) for key, value in keys.items())
    return bytes([0x80 | len(keys) + 1]) + head + msgpack.packb("states") + states


def append_of_bytes(stream: str, rows: int = 4000, width: int = 254) -> bytes:
    """An `append` of a mebibyte of one-byte numbers."""
    state = b"\xdc" + struct.pack(">H", width) + b"\x07" * width
    states = b"\xdc" + struct.pack(">H", rows + 1) + state * (rows + 1)
    rewards = b"\xdc" + struct.pack(">H", rows) + b"\x01" * rows
    keys = {"v": 1, "id": stream, "op": "append", "stream": stream, "seq": 0}
    head = b"".join(msgpack.packb(key) + msgpack.packb(value) for key, value in keys.items())
    return bytes([0x80 | len(keys) + 2]) + head + msgpack.packb("states") + states + msgpack.packb("rewards") + rewards


def evaluation_of_bytes(rows: int = 65_000, width: int = 15) -> bytes:
    """An `evaluate` of a mebibyte of one-byte probabilities."""
    keys = {"v": 1, "id": "evaluation", "op": "evaluate", "from": 0}
    head = b"".join(msgpack.packb(key) + msgpack.packb(value) for key, value in keys.items())
    return bytes([0x80 | len(keys) + 1]) + head + msgpack.packb("probs") + long_states(rows, width)


ADVISOR = """
[[advisor]]
name = "throw"
lengthscales = [0.001]
outputs = [{ mean = 0.0, deviation = 1.0 }]
"""


@pytest.fixture
def daemon(start: Start) -> Daemon:
    return start("critic.refit_first_rows=0", "critic.dictionary_max=50")


def learn(daemon: Daemon, rows: int = 200, dim: int = 2) -> None:
    states = [[((7 * k + j) % 13) / 13 for j in range(dim)] for k in range(rows + 1)]
    control = daemon.control()
    control.ask("append", stream="good", seq=0, states=states, rewards=[state[0] for state in states[:-1]])
    control.ask("value", states=states[:1], min_offset=rows)


def attacker(daemon: Daemon) -> zmq.Socket[bytes]:
    """A client that sends as much as it likes."""
    asking = zmq.Context.instance().socket(zmq.DEALER)
    asking.setsockopt(zmq.LINGER, 0)
    asking.setsockopt(zmq.SNDHWM, 0)
    asking.setsockopt(zmq.RCVHWM, 0)
    asking.setsockopt(zmq.RCVTIMEO, round(1000 * PATIENCE_S))
    asking.connect(daemon.endpoints["control"])
    daemon.sockets.append(asking)
    return asking


def received(asking: zmq.Socket[bytes]) -> int:
    """How many replies are there by now."""
    count = 0
    while asking.poll(0):
        asking.recv()
        count += 1
    return count


def most_resident(daemon: Daemon) -> int:
    """Bytes of memory that the daemon has had at the most."""
    return int(MIB * daemon.memory_mib("VmHWM"))


def bound(daemon: Daemon) -> int:
    """The bytes that the daemon says its queues take at most, and what else it has."""
    status = daemon.control().ask("status")
    return int(status["memory"]["queues_bytes_max"]) + BESIDE


# ---- turns (D1, D4)


@pytest.mark.parametrize("what", ["long queries", "an unknown key", "status"])
def test_a_backlog_stands_before_no_other_client(daemon: Daemon, what: str) -> None:
    learn(daemon)
    count, request = {
        "long queries": (300, query(1, long_states())),
        "an unknown key": (1500, pack({"id": 1, "op": "hello", "what": [1] * 1_000_000})),
        "status": (20_000, pack({"id": 1, "op": "status"})),
    }[what]
    other, attempts = daemon.control(), itertools.count()
    other.ask("ping")

    def comes_before_the_end() -> bool:
        asking = attacker(daemon)
        for _ in range(count):
            asking.send(request)
        assert asking.poll(round(1000 * PATIENCE_S)), "the first of them is answered"
        for op in ("hello", "status", "streams", "ping"):
            assert other.ask(op)["ok"]
        states = [[0.5, 0.5]] * 40
        assert other.ask("value", states=states, variance=True)["ok"]
        row = {"stream": "other", "seq": next(attempts), "state": [0.0, 0.5], "next_state": [0.5, 0.0], "reward": 1.0}
        assert other.ask("append", **row)["accepted"] == 1
        answered = received(asking)
        print(f"{answered} of {count} were answered before")
        asking.close()
        # At the end of the backlog some answers are still on their way.
        return answered < 0.9 * count

    # Where this process is held up the backlog may be over before it asks; what waits for its end never comes before.
    when(comes_before_the_end, "all of this comes before the end of the other's backlog")


def test_rights_are_checked_before_arrays_are_read(start: Start) -> None:
    daemon = start(config='allow = [{ addresses = "127.0.0.1", rights = ["append"] }]')
    asking = attacker(daemon)
    # Nothing of the states makes sense: a daemon that reads them complains of that.
    asking.send(query(1, b"\xdd" + struct.pack(">I", 3) + b"\x91\x01\x92\x01\x02\xa1x"))
    reply = unpack(asking.recv())
    assert reply["error"]["code"] == "unauthorised", reply


# ---- memory (D2, D3)


def test_queries_wait_for_rows_undecoded(daemon: Daemon) -> None:
    other = daemon.control()
    other.ask("ping")
    asking = attacker(daemon)
    for number in range(300):
        asking.send(query(number, long_states(), min_offset=2**62))
    replies = [unpack(asking.recv()) for _ in range(290)]
    assert {reply["error"]["code"] for reply in replies} == {"overloaded"}, "a few wait, within the share of a client"
    assert most_resident(daemon) < BESIDE
    # The daemon drops the queries of a client that has left.
    asking.close(0)
    learn(daemon)
    assert other.ask("value", states=[[0.5, 0.5]], min_offset=100)["ok"]


def test_no_client_takes_all_places_of_waiting_queries(daemon: Daemon) -> None:
    learn(daemon)
    asking, other = attacker(daemon), daemon.control()
    for number in range(10_000):
        asking.send(pack({"id": number, "op": "value", "states": [[0.0, 0.0]], "min_offset": 2**62}))
    assert unpack(asking.recv())["error"]["code"] == "overloaded"
    # A query of another client finds a place, and waits there for a row.
    waiting, offset = attacker(daemon), other.ask("status")["offset"] + 1
    waiting.send(pack({"id": 1, "op": "value", "states": [[0.0, 0.0]], "min_offset": offset}))
    assert not waiting.poll(500)
    rows = {"states": [[0.1, 0.2], [0.2, 0.1]], "rewards": [1.0]}
    assert other.ask("append", stream="other", seq=0, **rows)["offset"] == offset
    assert waiting.poll(round(1000 * PATIENCE_S))
    reply = unpack(waiting.recv())
    assert reply["ok"] and reply["offset"] >= offset, reply


def test_appends_wait_undecoded(daemon: Daemon) -> None:
    learn(daemon, dim=254)
    most, asking, other = bound(daemon), attacker(daemon), daemon.control()
    for number in range(200):
        asking.send(append_of_bytes(f"s{number}"))
    for _ in range(20):
        assert other.ask("status")["ok"]
    codes = {reply.get("error", {}).get("code", "ok") for reply in (unpack(asking.recv()) for _ in range(200))}
    assert codes <= {"ok", "overloaded"}
    assert most_resident(daemon) < most


def names(count: int, width: int) -> list[str]:
    return [f"{k:06d}".ljust(width, "n") for k in range(count)]


@pytest.mark.parametrize("what", ["heads", "change_heads"])
def test_requests_wait_for_the_core_within_their_share(start: Start, what: str) -> None:
    daemon = start("critic.refit_first_rows=0", "critic.dictionary_max=260", "critic.tolerance=1e-6")
    learn(daemon, rows=1000, dim=4)
    request = {
        "heads": pack({"op": "heads", "names": names(1000, 256)}),
        "change_heads": pack({"op": "change_heads", "remove": names(60_000, 14)}),
    }[what]
    most, push = bound(daemon), daemon.push(SNDHWM=0)
    states = [[((11 * k + 5 * j) % 1009) / 1009 for j in range(4)] for k in range(257)]
    for k in range(400):
        # The core learns meanwhile.
        push.send(pack({"stream": "busy", "seq": 256 * k, "states": states, "rewards": [0.5] * 256}))
    clients = [attacker(daemon) for _ in range(6)]
    for _ in range(250):
        for asking in clients:
            asking.send(request, copy=False)
    answers = [unpack(asking.recv()) for asking in clients for _ in range(250)]
    codes = {answer.get("error", {}).get("code", "ok") for answer in answers}
    assert codes <= {"ok", "overloaded", "out_of_range"}
    peak = most_resident(daemon)
    assert peak < most, f"{peak >> 20} MiB, {most >> 20} MiB were said"


@pytest.mark.parametrize("op", ["refit", "rebuild", "snapshot", "heads", "change_heads", "new_policy", "value", "act"])
def test_no_request_holds_a_name_of_a_megabyte(daemon: Daemon, op: str) -> None:
    control = daemon.control()
    with pytest.raises(Refused) as refused:
        control.ask(op, critic="x" * 1_000_000, states=[[0.0]])
    assert (refused.value.code, refused.value.error["field"]) == ("too_large", "critic")


class Full:
    """A daemon whose queues are filled one after the other and stay so: nobody reads, and the learner has more to do than it can.

    Its world has 15 numbers to a state, so that queries of a mebibyte of one-byte numbers have work to do.
    """

    DIM = 15

    def __init__(self, start: Start) -> None:
        self.daemon = start(
            "critic.refit_first_rows=0",
            "critic.dictionary_max=200",
            "critic.tolerance=1e-6",
            "window_rows=10000",
            "snapshot_interval_ms=50",
            # Peers stay although nothing goes on, however long a busy machine takes.
            "limits.stall_timeout_ms=3600000",
            "limits.saturated_timeout_ms=3600000",
            config=ADVISOR,
        )
        self.rows = 0
        self.push = self.daemon.push(SNDHWM=0)
        self.now: dict[str, float] = {}
        self.most: dict[str, float] = {}
        self.peers: list[Peer] = []
        self.clients: list[zmq.Socket[bytes]] = []
        self.codes: dict[str, set[str]] = {}

    def batch(self, stream: str, rows: int = 4096) -> bytes:
        """The next rows, as many as a message may have."""
        states = [[((7919 * k + 104_729 * j) % 10_007) / 10_007 for j in range(self.DIM)] for k in range(rows + 1)]
        self.rows += rows
        fields = {"stream": stream, "seq": self.rows - rows, "states": states, "rewards": [0.5] * rows}
        return pack(fields)

    def look(self) -> None:
        """What every queue has now; the most of each is kept to be shown."""
        self.now = metrics(self.daemon)
        for name, value in self.now.items():
            if name.startswith(("criticd_queued_bytes", "criticd_backlog_bytes", "criticd_queue_length")):
                self.most[name] = max(value, self.most.get(name, 0.0))

    def queued(self, name: str) -> float:
        return self.now.get(f'criticd_queued_bytes{{queue="{name}"}}', 0.0)

    def backlog(self, name: str) -> float:
        return self.now.get(f'criticd_backlog_bytes{{socket="{name}"}}', 0.0)

    def fill(self, what: str, more: Callable[[], None], is_full: Callable[[], bool]) -> None:
        """Ask for more until a queue is full."""
        deadline = time.monotonic() + 5 * PATIENCE_S
        while not is_full():
            seen = f"{self.shown(self.now)}, at most {self.shown(self.most)} {self.codes}"
            assert time.monotonic() < deadline, f"{what}: {seen}"
            more()
            time.sleep(0.05)
            self.look()
            self.read()

    @staticmethod
    def shown(sample: dict[str, float]) -> dict[str, str]:
        """What is counted in bytes, in mebibytes, and how many peers were closed for what."""
        said = {name: f"{value / MIB:.1f} MiB" for name, value in sorted(sample.items()) if "_bytes{" in name}
        closed = {name: f"{value:.0f}" for name, value in sample.items() if "disconnected_peers" in name and value}
        return said | closed

    def read(self) -> None:
        """Which answers have come, by the name that a request has as its number."""
        for asking in self.clients:
            while asking.poll(0):
                reply = unpack(asking.recv())
                self.codes.setdefault(str(reply["id"]), set()).add(reply.get("error", {}).get("code", "ok"))

    def further(self, count: int) -> list[zmq.Socket[bytes]]:
        """So many clients more."""
        self.clients += [attacker(self.daemon) for _ in range(count)]
        return self.clients[-count:]

    def half_messages(self, name: str, kind: str) -> None:
        """A message of a mebibyte that does not end."""
        peer = Peer(self.daemon, name, kind)
        self.peers.append(peer)
        peer.socket.setblocking(False)
        data = frame(bytes(MIB - 100))[:-10]
        while data:
            try:
                data = data[peer.socket.send(data) :]
            except BlockingIOError:
                break


@pytest.mark.long
def test_full_queues_take_no_more_memory_than_stated(start: Start) -> None:
    """Every queue is filled, is seen to be full, and stays full with the others: replies and publications that nobody reads, long
    messages that do not end, queries that wait for rows or for their turn, calls of the learner, rows, pages and evaluations."""
    full = Full(start)
    daemon = full.daemon
    for _ in range(6):
        full.push.send(full.batch("first"))
    daemon.control().wait_for_offset(full.rows)
    memory = daemon.control().ask("status")["memory"]
    before, most = most_resident(daemon), int(memory["queues_bytes_max"])

    snapshot = frame(pack({"id": "snapshot", "op": "snapshot", "variance": True, "arrays": "list"}))

    def ask_and_never_read() -> None:
        full.peers.append(Peer(daemon, "control", "DEALER", 4096))
        full.peers[-1].send(60 * snapshot)

    def produce() -> None:
        for _ in range(4):
            full.push.send(full.batch("first"))

    # Before replies take all the room that there is for both.
    for _ in range(20):
        full.peers.append(Peer(daemon, "publish", "SUB", 4096))
        full.peers[-1].send(frame(b"\x01"))
    full.fill("publications", produce, lambda: full.backlog("publish") > 8 * MIB)
    ask = ask_and_never_read
    full.fill("replies", ask, lambda: full.backlog("control") > 160 * MIB)
    full.fill("both", ask, lambda: full.backlog("control") + full.backlog("publish") > 240 * MIB)
    # More rows than the learner takes while all of the following goes on.
    full.fill("rows", produce, lambda: full.queued("ingest") > 1.4 * MIB)
    for _ in range(40):
        produce()

    waiter = query("waiter", long_states(), min_offset=2**62)
    waiters, callers, readers = full.further(40), full.further(12), full.further(24)

    def wait() -> None:
        for asking in waiters:
            asking.send(waiter, copy=False)

    full.fill("waiting queries", wait, lambda: "overloaded" in full.codes.get("waiter", ()))
    heads = pack({"id": "call", "op": "heads", "names": names(1000, 256)})

    def call() -> None:
        if full.queued("ingest") < 0.7 * MIB:
            produce()  # However long the rest took: calls wait while the learner is at work.
        for asking in callers:
            for _ in range(10):
                asking.send(heads, copy=False)

    full.fill("calls", call, lambda: "overloaded" in full.codes.get("call", ()))
    requests = {"page": pack({"id": "page", "op": "rows", "last": 100_000}), "evaluation": evaluation_of_bytes()}

    def read_rows() -> None:
        for asking in readers:
            for request in requests.values():
                asking.send(request, copy=False)

    full.fill("pages", read_rows, lambda: all("overloaded" in full.codes.get(what, ()) for what in requests))

    # Those on ingest leave room for a message of the producer that goes on.
    for name, kind, count in (("ingest", "PUSH", 31), ("control", "DEALER", 40)):
        for _ in range(count):
            full.half_messages(name, kind)
    full.fill("long messages", lambda: None, lambda: full.queued("unfinished") > 60 * MIB)

    # Short messages have a place whatever long ones wait for. Of each client one query is under way, and the others wait.
    some_states = query("query", long_states(rows=3900))

    askers = full.further(24)

    def ask_much() -> None:
        for asking in askers:
            for _ in range(80):
                asking.send(some_states, copy=False)

    full.fill("requests", ask_much, lambda: full.queued("requests") > 60 * MIB)
    queues: list[tuple[Callable[[], None], Callable[[], bool]]] = [
        (ask, lambda: full.backlog("control") + full.backlog("publish") > 240 * MIB),
        (produce, lambda: full.queued("ingest") > 1.4 * MIB),
        (lambda: None, lambda: full.queued("unfinished") > 60 * MIB),
        (ask_much, lambda: full.queued("requests") > 60 * MIB),
    ]

    def more_of_what_is_not_full() -> None:
        for more, is_full in queues:
            if not is_full():
                more()

    # With all of them full at one moment others are served still.
    other = daemon.control()
    for _ in range(20):
        full.look()
        full.fill("all at once", more_of_what_is_not_full, lambda: all(is_full() for _, is_full in queues))
        assert other.ask("ping")["ok"]
    grown = most_resident(daemon) - before
    print(f"{grown >> 20} MiB more than {before >> 20} MiB, {most >> 20} MiB were said; {full.shown(full.most)}")
    assert grown < most, f"{grown >> 20} MiB, {most >> 20} MiB were said"
    # Most of what was seen to wait was resident at the same time.
    assert grown > 300 * MIB
    for peer in full.peers:
        peer.close()


def test_an_evaluation_takes_no_more_than_some_bytes_of_rows(daemon: Daemon) -> None:
    control = daemon.control()
    for number in range(5):
        # 4000 rows of two states of 254 numbers each: 16 MB.
        control.socket.send(append_of_bytes(f"s{number}"))
        assert unpack(control.socket.recv())["ok"]
    with pytest.raises(Refused) as refused:
        control.ask("evaluate", last=20_000)
    assert (refused.value.code, refused.value.error["field"]) == ("too_large", "last")
    count = int(refused.value.error["message"].split()[-3])
    assert 4_000 < count < 20_000, refused.value.error
    with pytest.raises(Refused) as refused:
        control.ask("evaluate", last=4_000)
    assert refused.value.code == "missing_field", "these are read, and have no probabilities"
    assert most_resident(daemon) < bound(daemon)


def test_advisors_hold_up_neither_rows_nor_other_clients(start: Start) -> None:
    """A flood of costs and decisions, each decision with a system to solve: O(m^3)."""
    daemon = start("critic.refit_first_rows=0", "critic.dictionary_max=50", config=ADVISOR)
    learn(daemon)
    other, asking, seqs = daemon.control(), attacker(daemon), itertools.count()
    for k in range(300):
        decision = other.ask("suggest", context=[k / 300])["decision_id"]
        assert other.ask("report", decision_id=decision, cost=1.0)["ok"]

    def come_before_the_end() -> bool:
        for k in range(600):
            asking.send(pack({"op": "suggest", "context": [k / 600]}))
        decisions = [unpack(asking.recv())["decision_id"] for _ in range(600)]
        for k, decision in enumerate(decisions[-500:]):
            asking.send(pack({"op": "report", "decision_id": decision, "cost": 1.0}))
            asking.send(pack({"op": "suggest", "context": [k / 500]}))
        began = time.monotonic()
        for seq in itertools.islice(seqs, 20):
            row = {"state": [0.0, 0.5], "next_state": [0.5, 0.0], "reward": 1.0}
            assert other.ask("append", stream="other", seq=seq, **row)["accepted"] == 1
        took = time.monotonic() - began
        answered = received(asking)
        print(f"20 appends took {took:.2f} s beside {answered} of 1000 answers")
        # What is left is none of the next attempt's answers.
        for _ in range(1000 - answered):
            asking.recv()
        return answered < 0.9 * 1000

    # As with a backlog above.
    when(come_before_the_end, "all of this comes before the end of the other's backlog")
    assert daemon.terminate()[0] == 0


# ---- streams in pages (D1)


def make_streams(daemon: Daemon, count: int) -> None:
    push = daemon.push(SNDHWM=0)
    for k in range(count):
        row = {"stream": f"{k:08d}" + "n" * 240, "session": "s" * 256, "seq": 0}
        push.send(pack({**row, "state": [0.0, 0.0], "next_state": [1.0, 0.0], "reward": 0.0}))
    daemon.control().wait_for_offset(count)


def test_streams_come_in_pages_and_by_name(daemon: Daemon) -> None:
    make_streams(daemon, 2500)
    control = daemon.control()
    found: Map = {}
    fields: Map = {}
    sizes = []
    while True:
        control.socket.send(pack({"id": 1, "op": "streams", **fields}))
        payload = control.socket.recv()
        reply = unpack(payload)
        sizes.append(len(payload))
        found |= reply["streams"]
        if "next" not in reply:
            break
        fields = {"from": reply["next"]}
    assert len(found) == 2500 and len(sizes) == 3 and max(sizes) < MIB
    name = f"{17:08d}" + "n" * 240
    assert control.ask("streams", names=[name, "unknown"])["streams"] == {name: found[name]}
    assert control.ask("streams", names=[])["streams"] == {}
    for wrong, code in (("x", "wrong_type"), ([1], "wrong_type"), (["x"] * 1025, "too_large")):
        with pytest.raises(Refused) as refused:
            control.ask("streams", names=wrong)
        assert refused.value.code == code and refused.value.error["field"] == "names"


def test_long_answers_by_name_keep_no_other_client_waiting(daemon: Daemon) -> None:
    make_streams(daemon, 1024)
    request = pack({"id": 1, "op": "streams", "names": [f"{k:08d}" + "n" * 240 for k in range(1024)]})
    askers, other = [attacker(daemon) for _ in range(6)], daemon.control()
    poller, under_way, long, attempts = zmq.Poller(), 20, 0, itertools.count()
    for asking in askers:
        poller.register(asking, zmq.POLLIN)
        for _ in range(under_way):
            asking.send(request)

    def others_come_first() -> bool:
        before, row = long, {"seq": next(attempts), "state": [0.0, 0.5], "next_state": [0.5, 0.0], "reward": 1.0}
        other.socket.send(pack({"id": 1, "op": "append", "stream": "other", **row}))
        read(lambda: bool(other.socket.poll(0)))
        reply = unpack(other.socket.recv())
        assert reply["ok"], reply
        print(f"{long - before} of {under_way * len(askers)} long answers came before")
        return long - before < under_way * len(askers) / 2

    def read(until: Callable[[], bool]) -> None:
        nonlocal long
        while not until():
            for asking, _ in poller.poll(10):
                assert len(asking.recv()) > MIB / 4
                asking.send(request)
                long += 1

    read(lambda: long >= under_way * len(askers))
    when(others_come_first, "an answer before most of the long ones that were asked for earlier")


def test_a_stop_waits_for_no_backlog(daemon: Daemon) -> None:
    make_streams(daemon, 8000)
    asking = attacker(daemon)
    for _ in range(20_000):
        asking.send(pack({"id": 1, "op": "streams"}))
        asking.send(pack({"id": 1, "op": "status"}))
    assert daemon.control().ask("status")["ok"]
    assert most_resident(daemon) < bound(daemon)
    code, seconds = daemon.terminate()
    answered = received(asking)
    print(f"stopped after {seconds:.1f} s, with {answered} of 40000 answered")
    assert code == 0 and answered < 40_000


def test_requests_of_a_client_that_has_left_are_dropped(daemon: Daemon) -> None:
    make_streams(daemon, 5000)
    before = daemon.control().ask("status")
    for _ in range(20):
        peer = Peer(daemon, "control", "DEALER")
        peer.send(frame(pack({"op": "streams"})) * 5000)
        peer.vanish()
    after = daemon.control().ask("status")
    assert after["offset"] == before["offset"]
    control = daemon.shared_control()
    when(lambda: control.ask("status")["queues"]["calls"]["waiting"] == 0, "what they asked for is gone")
    assert most_resident(daemon) < bound(daemon)


# ---- the gate (D5)


@pytest.mark.parametrize("name, kind", [("control", "DEALER"), ("ingest", "PUSH"), ("publish", "SUB")])
def test_endless_commands_hold_up_no_other_client(daemon: Daemon, name: str, kind: str) -> None:
    # Commands without a name, the shortest there are, faster than the daemon can read them.
    command = frame(b"\x00", 4)
    peers = [Peer(daemon, name, kind) for _ in range(10)]
    for peer in peers:
        peer.socket.setblocking(False)
    taken, held_back, over = [0], set[int](), threading.Event()

    def send_without_end() -> None:
        noise = command * 1_000_000
        at = [0] * len(peers)
        while not over.is_set():
            for number, peer in enumerate(peers):
                try:
                    count = peer.socket.send(noise[at[number] :])
                    at[number] = (at[number] + count) % len(noise)
                    taken[0] += count
                except BlockingIOError:
                    held_back.add(number)

    other, sending = daemon.control(), threading.Thread(target=send_without_end)
    sending.start()
    try:
        # From here on it goes as fast as the daemon reads, and others have their turn meanwhile.
        when(lambda: len(held_back) == len(peers), "the system's buffers are full")
        started, before = time.monotonic(), taken[0]
        for _ in range(200):
            assert other.ask("ping")["ok"]
        when(lambda: taken[0] > before, "the daemon goes on reading commands")
        seconds, commands = time.monotonic() - started, (taken[0] - before) / len(command)
    finally:
        over.set()
        sending.join()
    for peer in peers:
        peer.close()
    # It reads 50 000 commands a second of each and no more, as a test of crates/transport/src/link.rs asserts.
    print(f"{commands / seconds / len(peers):.0f} commands a second of each")
    assert daemon.terminate()[0] == 0


# ---- health (D8)


def http(daemon: Daemon, request: str, timeout_s: float = PATIENCE_S, source: str = "") -> bytes:
    host, port = daemon.endpoints["http"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout_s, (source, 0)) as connection:
        connection.sendall(request.encode())
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
        return answer


def ask_http(daemon: Daemon, path: str, host: str = "localhost") -> bytes:
    return http(daemon, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")


def metrics(daemon: Daemon) -> dict[str, float]:
    """Every number of /metrics, by its name with its labels."""
    lines = ask_http(daemon, "/metrics").split(b"\r\n\r\n", 1)[1].decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def test_health_answers_whatever_visitors_do(daemon: Daemon) -> None:
    when(lambda: b" 200 " in ask_http(daemon, "/readyz"), "it is ready")
    host, port = daemon.endpoints["http"].rsplit(":", 1)
    visitors = []
    for number in range(200):
        visitor = socket.create_connection((host, int(port)))
        if number % 4 == 0:
            visitor.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        elif number % 4 == 1:
            visitor.sendall(b"GET / HTTP/1.1\r\nHost")
        elif number % 4 == 2:
            visitor.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        visitors.append(visitor)
        if number >= 100:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert ask_http(daemon, path).startswith(b"HTTP/1.1 200 "), (number, path)
    answers: list[bytes] = []

    def is_refused() -> bool:
        # Those that do not ask are cut after a while, which on a busy machine is over for the first ones.
        visitors.append(socket.create_connection((host, int(port))))
        answers.append(ask_http(daemon, "/"))
        return answers[-1].startswith(b"HTTP/1.1 503 ")

    when(is_refused, "there are too many")
    assert b"too many connections" in answers[-1]
    for visitor in visitors:
        visitor.close()
    when(lambda: ask_http(daemon, "/").startswith(b"HTTP/1.1 200 "), "the page is there again")


def connect_without_end(host: str, port: int, source: str, over: threading.Event) -> None:
    """Open connections from an address, ask nothing, and keep some hundreds of them."""
    held: list[socket.socket] = []
    while not over.is_set():
        try:
            held.append(socket.create_connection((host, port), 5, (source, 0)))
        except OSError:
            time.sleep(0.01)
        if len(held) > 300:
            held.pop(0).close()
    for connection in held:
        connection.close()


def test_health_answers_while_others_connect_without_end(daemon: Daemon) -> None:
    when(lambda: b" 200 " in ask_http(daemon, "/readyz"), "it is ready")
    host, port = daemon.endpoints["http"].rsplit(":", 1)
    over = threading.Event()
    loops = [
        threading.Thread(target=connect_without_end, args=(host, int(port), source, over))
        for source in ("127.0.0.2", "127.0.0.3")
    ]
    for loop in loops:
        loop.start()
    try:
        when(lambda: ask_http(daemon, "/").startswith(b"HTTP/1.1 503 "), "every place is taken")
        request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for number in range(200):
            assert http(daemon, request).startswith(b"HTTP/1.1 200 "), number
        # A supervisor at the address of a flood looks like it until it asks: one that tries again is answered.
        tries = 0

        def is_answered() -> bool:
            nonlocal tries
            tries += 1
            try:
                return http(daemon, request, source="127.0.0.2").startswith(b"HTTP/1.1 200 ")
            except ConnectionError:
                return False

        for _ in range(100):
            when(is_answered, "a supervisor that tries again is answered")
        print(f"{tries} tries for 100 answers")
        assert tries < 300
    finally:
        over.set()
        for loop in loops:
            loop.join()


def test_healthz_answers_under_any_host_name(daemon: Daemon) -> None:
    assert ask_http(daemon, "/healthz", "probe.example").startswith(b"HTTP/1.1 200 ")
    assert http(daemon, "GET /healthz HTTP/1.0\r\n\r\n").split(b"\r\n")[0].endswith(b" 200 OK")
    for path in ("/readyz", "/metrics", "/", "/api/status"):
        assert ask_http(daemon, path, "probe.example").startswith(b"HTTP/1.1 421 "), path


# ---- reports to producers (D9)


def test_rows_that_are_missing_on_ingest_are_counted(daemon: Daemon) -> None:
    control, push = daemon.control(), daemon.push()
    row = {"state": [0.0], "next_state": [1.0], "reward": 0.5}
    for seq in (0, 1, 5, 6, 16):
        push.send(pack({"stream": "a", "session": "s", "seq": seq, **row}))
    # A session may begin anywhere: what came before it is unknown.
    push.send(pack({"stream": "b", "session": "s", "seq": 7, **row}))
    status = control.wait_for_offset(6)
    assert status["missing_rows"] == 3 + 9 and status["rejected"] == {}
    with pytest.raises(Refused) as refused:
        control.ask("append", stream="a", session="s", seq=20, **row)
    assert refused.value.code == "sequence_gap" and refused.value.error["expected_seq"] == 17
    assert control.ask("status")["missing_rows"] == 12


def test_refusals_on_ingest_name_stream_session_and_rows(daemon: Daemon) -> None:
    control, push, subscriber = daemon.control(), daemon.push(), daemon.subscribe("event.rejected")
    push.send(pack({"stream": "a", "session": "s", "seq": 0, "state": [0.0], "next_state": [1.0], "reward": 0.5}))
    control.wait_for_offset(1)
    bad = {"stream": "b", "session": "t", "seq": 4, "states": [[0.0, 1.0]] * 3, "rewards": [1.0, 1.0]}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        push.send(pack(bad))
        if subscriber.poll(200):
            break
        assert time.monotonic() < deadline
    event = unpack(subscriber.recv_multipart()[1])
    entry = event["streams"][0]
    assert (entry["stream"], entry["session"], entry["seq"], entry["code"]) == ("b", "t", 4, "wrong_dimension")
    assert entry["rows"] == 2 * entry["messages"] > 0


def test_the_seventeenth_former_session_counts_as_new(daemon: Daemon) -> None:
    """As proto/README.md says: the daemon remembers 16 sessions that ended in a stream."""
    control = daemon.control()
    row = {"stream": "a", "state": [0.0], "next_state": [1.0], "reward": 0.5}
    for session in range(18):
        assert control.ask("append", session=f"s{session}", seq=0, **row)["offset"] == session + 1
    for session in range(1, 17):
        with pytest.raises(Refused) as refused:
            control.ask("append", session=f"s{session}", seq=1, **row)
        assert refused.value.code == "fenced", session
    # The oldest of seventeen is forgotten, and takes the stream over from the present one.
    assert control.ask("append", session="s0", seq=0, **row)["accepted"] == 1
    with pytest.raises(Refused) as refused:
        control.ask("append", session="s17", seq=1, **row)
    assert refused.value.code == "fenced"


# ---- low ones (D14, D15)


def test_ranges_of_a_map_are_pairs(daemon: Daemon) -> None:
    learn(daemon)
    good, bad = "/api/map?critic=default&x=0&range=0,1", "/api/map?critic=default&x=0&range=0,1,2"
    assert ask_http(daemon, good).startswith(b"HTTP/1.1 200 ")
    assert ask_http(daemon, bad).startswith(b"HTTP/1.1 400 ")


def test_an_address_of_version_4_may_be_written_as_version_6(start: Start) -> None:
    daemon = start(config='allow = [{ addresses = "::ffff:127.0.0.1", rights = ["append"] }]')
    with pytest.raises(Refused) as refused:
        daemon.control().ask("status")
    assert refused.value.code == "unauthorised"
