"""Requests and connections of clients that mean ill, without end, and the quiet loads that floods are compared with."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import numpy as np
import zmq

Ends = dict[str, str]
Attack = Callable[[Ends], None]

DIM = 4
STREAMS = 65_000
# Of one `act` request: about what its bound on work allows with a dictionary of 260 elements.
CANDIDATES = 500


def pack(message: dict[str, Any]) -> bytes:
    """A message of the protocol."""
    return bytes(msgpack.packb({"v": 1, **message}))


def listed(key: str, item: Any) -> bytes:
    """A key and what is under it, as they stand in a map."""
    return bytes(msgpack.packb(key) + msgpack.packb(item))


def dealer(
    ends: Ends, name: str = "control", kind: int = zmq.DEALER, source: str = "", **options: int
) -> zmq.Socket[bytes]:
    """A socket that is connected, from the address `source` if that is given, with options of libzmq by name."""
    made: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    for option, setting in {"LINGER": 0, **options}.items():
        made.setsockopt(getattr(zmq, option), setting)
    if "server_key" in ends:
        made.curve_publickey, made.curve_secretkey = ends["public_key"].encode(), ends["secret_key"].encode()
        made.curve_serverkey = ends["server_key"].encode()
    end = endpoint(ends, name)
    made.connect(end.replace("tcp://", f"tcp://{source}:0;") if source else end)
    return made


def endpoint(ends: Ends, name: str) -> str:
    """Where attackers connect: to the encrypted socket, where they have keys."""
    return ends[f"curve_{name}" if "server_key" in ends and name != "http" else name]


def rows(seq: int, count: int) -> list[list[float]]:
    """The states of `count` rows, and the one behind them."""
    return [[((seq + k) * (7919 * j + 3) % 10_007) / 10_007 for j in range(DIM)] for k in range(count + 1)]


# ---- attacks: each runs until it is killed


def ask_without_end(ends: Ends, requests: Iterator[bytes], reads: bool = False) -> None:
    """Requests as fast as they are taken; replies are read, or left."""
    asking = dealer(ends, RCVHWM=0 if reads else 1)
    while True:
        asking.send(next(requests))
        while reads and asking.poll(0):
            asking.recv()


def again(payload: bytes) -> Iterator[bytes]:
    while True:
        yield payload


def states_of_bytes(count: int, width: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + (bytes([0x90 | width]) + b"\x01" * width) * count


def value(states: bytes, **fields: Any) -> bytes:
    keys = {"v": 1, "id": 1, "op": "value", **fields}
    head = b"".join(listed(key, item) for key, item in keys.items())
    return bytes([0x80 | len(keys) + 1]) + head + bytes(msgpack.packb("states")) + states


def value_of_bytes(**fields: Any) -> bytes:
    """A `value` of 1 MiB whose states have another dimension than rows have."""
    return value(states_of_bytes(65_000, 15), **fields)


def ping_with(numbers: int) -> bytes:
    """A `ping` with an unknown key, whose value is an array of `numbers` numbers."""
    return pack({"id": 1, "op": "ping", "what": [1] * numbers})


def value_of_many() -> bytes:
    """A `value` of 20 000 states, with variances."""
    states = [[(k % 100) / 100] * DIM for k in range(20_000)]
    return pack({"id": 1, "op": "value", "states": states, "variance": True})


def wrong_dimension(ends: Ends) -> None:
    ask_without_end(ends, again(value_of_bytes()), reads=True)


def right_dimension(ends: Ends) -> None:
    ask_without_end(ends, again(value(states_of_bytes(65_000, DIM))), reads=True)


def unknown_key(ends: Ends) -> None:
    ask_without_end(ends, again(ping_with(1_000_000)), reads=True)


def many_states(ends: Ends) -> None:
    ask_without_end(ends, again(value_of_many()), reads=True)


def many_candidates(ends: Ends) -> None:
    candidates = [k / CANDIDATES for k in range(CANDIDATES)]
    fields = {"exploration": "ucb", "beta": 1.0, "states": [[0.5] * DIM], "candidates": candidates}
    ask_without_end(ends, again(pack({"id": 1, "op": "act", **fields})), reads=True)


def too_many_candidates(ends: Ends) -> None:
    head = b"".join(listed(key, item) for key, item in (("v", 1), ("id", 1), ("op", "act"), ("beta", 1.0)))
    head += listed("exploration", "ucb") + listed("states", [[0.5] * DIM]) + msgpack.packb("candidates")
    count = 1_000_000
    ask_without_end(ends, again(b"\x87" + head + b"\xdd" + struct.pack(">I", count) + b"\x01" * count), reads=True)


SNAPSHOT = {"id": 1, "op": "snapshot", "variance": True, "arrays": "list"}


def snapshots(ends: Ends) -> None:
    ask_without_end(ends, again(pack(SNAPSHOT)), reads=True)


def status(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "status"})))


def long_waiters(ends: Ends) -> None:
    ask_without_end(ends, again(value_of_bytes(min_offset=2**62)))


SHORT_WAITER = pack({"id": 1, "op": "value", "states": [[0.0] * DIM], "min_offset": 2**62})


def short_waiters(ends: Ends) -> None:
    ask_without_end(ends, again(SHORT_WAITER), reads=True)


def appends_of_bytes() -> Iterator[bytes]:
    """Appends of 4000 rows of 254 one-byte numbers, each of another stream."""
    state = b"\xdc" + struct.pack(">H", 254) + b"\x07" * 254
    states = b"\xdc" + struct.pack(">H", 4001) + state * 4001
    rewards = b"\xdc" + struct.pack(">H", 4000) + b"\x01" * 4000
    arrays = bytes(msgpack.packb("states")) + states + bytes(msgpack.packb("rewards")) + rewards
    number = 0
    while True:
        number += 1
        keys = {"v": 1, "id": 1, "op": "append", "stream": f"a{number}", "seq": 0}
        head = b"".join(listed(key, item) for key, item in keys.items())
        yield bytes([0x80 | len(keys) + 2]) + head + arrays


def long_appends(ends: Ends) -> None:
    ask_without_end(ends, appends_of_bytes(), reads=True)


def row_of_stream(number: int, **fields: Any) -> bytes:
    """The first row of a stream with a long name."""
    row = {"stream": f"{number:08d}" + "n" * 240, "session": "s" * 256, "seq": 0, "reward": 0.0}
    return pack({**row, "state": [0.0] * DIM, "next_state": [1.0] * DIM, **fields})


def make_streams(ends: Ends, count: int = STREAMS) -> zmq.Socket[bytes]:
    """Each is made by a message of one row. Keep the socket: waiting messages would go with it."""
    push = dealer(ends, "ingest", zmq.PUSH)
    for k in range(count):
        push.send(row_of_stream(k))
    return push


def streams(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "streams"})))


def streams_by_name(ends: Ends) -> None:
    """Streams by 1024 names of 248 bytes, on six connections with 40 requests under way each: long answers without end."""
    known = make_streams(ends, 1024)
    names = [f"{k:08d}" + "n" * 240 for k in range(1024)]
    payload = pack({"id": 1, "op": "streams", "names": names})
    peers = [dealer(ends, RCVHWM=0) for _ in range(6)]
    poller = zmq.Poller()
    for peer in peers:
        poller.register(peer, zmq.POLLIN)
        for _ in range(40):
            peer.send(payload)
    while not known.closed:
        for peer, _ in poller.poll():
            while peer.poll(0):
                peer.recv()
                peer.send(payload)


def refit(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "refit", "wait": True})), reads=True)


def long_names(ends: Ends) -> None:
    names = [f"{k:06d}".ljust(256, "n") for k in range(1000)]
    ask_without_end(ends, again(pack({"id": 1, "op": "heads", "names": names})), reads=True)


def many_names(ends: Ends) -> None:
    names = [f"{k:06d}nnnnnnnn" for k in range(60_000)]
    ask_without_end(ends, again(pack({"id": 1, "op": "change_heads", "remove": names})), reads=True)


def labels(ends: Ends) -> None:
    """A set of labels that begins anew with each request."""
    count = 60_000
    part = {"name": "l", "from": 0, "offsets": list(range(count)), "values": [0.5] * count}
    ask_without_end(ends, again(pack({"id": 1, "op": "change_heads", "labels": part})), reads=True)


def policies(ends: Ends) -> None:
    """Another policy acts with each request."""

    def requests() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield pack({"id": 1, "op": "new_policy", "policy": f"p{number % 7}"})

    ask_without_end(ends, requests(), reads=True)


def policies_of_rows(ends: Ends) -> None:
    """Another policy acts with each row."""
    push, seq = dealer(ends, "ingest", zmq.PUSH), 0
    while True:
        row = {"stream": "policies", "seq": seq, "state": rows(seq, 0)[0], "next_state": rows(seq + 1, 0)[0]}
        push.send(pack({**row, "reward": 0.5, "policy": f"p{seq % 7}"}))
        seq += 1


def pages_of_rows(ends: Ends) -> None:
    ask_without_end(ends, again(pack({"id": 1, "op": "rows", "last": 100_000, "arrays": "list"})), reads=True)


def evaluations(ends: Ends) -> None:
    """Messages of 1 MiB of one-byte probabilities."""
    head = b"".join(listed(key, item) for key, item in (("v", 1), ("id", 1), ("op", "evaluate"), ("from", 0)))
    ask_without_end(ends, again(b"\x85" + head + msgpack.packb("probs") + states_of_bytes(65_000, 15)), reads=True)


def advice(ends: Ends) -> None:
    """Costs and decisions in turns: each decision has a system of up to 300 contexts to solve."""
    asking, pending, number = dealer(ends, RCVHWM=0), 0, 0
    decided: list[int] = []
    while True:
        while pending < 500:
            number += 1
            asking.send(pack({"id": 1, "op": "suggest", "context": [number * 0.618 % 1.0]}))
            pending += 1
            if decided:
                asking.send(pack({"id": 1, "op": "report", "decision_id": decided.pop(), "cost": 1.0}))
                pending += 1
        reply = msgpack.unpackb(asking.recv(), strict_map_key=False)
        pending -= 1
        if "decision_id" in reply:
            decided.append(reply["decision_id"])


def many_connections(ends: Ends) -> None:
    """A request that takes long, on 200 connections of another address."""
    peers = [dealer(ends, source="127.0.0.2") for _ in range(200)]
    payload = ping_with(100_000)
    poller = zmq.Poller()
    for peer in peers:
        poller.register(peer, zmq.POLLIN)
        peer.send(payload)
    while True:
        for peer, _ in poller.poll():
            while peer.poll(0):
                peer.recv()
                peer.send(payload)


def compute(_: Ends) -> None:
    while True:
        ping_with(10_000)


def multiply(_: Ends) -> None:
    matrix = np.ones((300, 300))
    while True:
        matrix = np.tanh(matrix @ matrix)


def greeting(mechanism: bytes = b"NULL") -> bytes:
    """The first bytes of a connection of ZMTP."""
    return bytes([0xFF, *[0] * 8, 0x7F, 3, 0]) + mechanism.ljust(20, b"\0") + bytes(32)


def ready(kind: bytes, **properties: bytes) -> bytes:
    """The command that ends a handshake, with more properties than the type of the socket."""
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    for name, content in properties.items():
        body += bytes([len(name)]) + name.encode() + struct.pack(">I", len(content)) + content
    return (bytes([4, len(body)]) if len(body) < 256 else b"\x06" + struct.pack(">Q", len(body))) + body


def reach(ends: Ends, name: str) -> socket.socket:
    """A connection that nothing waits for."""
    host, port = endpoint(ends, name).removeprefix("tcp://").rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), 5)
    peer.setblocking(False)
    return peer


def commands(
    name: str, kind: bytes, command: bytes = b"\x04\x01\x00", count: int = 10, again: bool = False, reads: bool = False
) -> Attack:
    """Commands on a number of connections, empty ones of three bytes unless given; answers are read with `reads`.

    With `again` a connection that the daemon closes is replaced.
    """

    def join(ends: Ends) -> socket.socket:
        peer = reach(ends, name)
        peer.sendall(greeting() + ready(kind))
        return peer

    def run(ends: Ends) -> None:
        peers = [join(ends) for _ in range(count)]
        noise = command * 100_000
        at = [0] * len(peers)
        while True:
            for number, peer in enumerate(peers):
                try:
                    while reads and select.select([peer], [], [], 0)[0] and peer.recv(1 << 16):
                        pass
                    at[number] = (at[number] + peer.send(noise[at[number] :])) % len(noise)
                except BlockingIOError:
                    pass
                except OSError:
                    try:
                        if not again:
                            return
                        at[number], peers[number] = 0, join(ends)
                    except OSError:
                        # The daemon stops.
                        return
            time.sleep(0.001)

    return run


def raw(name: str, sent: list[bytes], held: int = 0) -> Attack:
    """Connections without end that each send one of these in turn, and of which the last `held` stay."""

    def run(ends: Ends) -> None:
        open_ones: list[socket.socket] = []
        number = 0
        while True:
            try:
                open_ones.append(reach(ends, name))
                data = sent[number % len(sent)]
                while data:
                    data = data[open_ones[-1].send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                time.sleep(0.001)
            number += 1
            while len(open_ones) > held:
                open_ones.pop(0).close()

    return run


DEALS = greeting() + ready(b"DEALER")
# Frames that claim more than a message may have: long ones, and a command.
HEADERS = [
    DEALS + bytes([kind]) + struct.pack(">Q", size) for kind in (2, 3, 6) for size in (2**20 + 1, 2**40, 2**64 - 1)
]
HANDSHAKES = [b"", greeting()[:30], greeting(b"PLAIN"), b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), DEALS[:-3], DEALS]
HALF_MESSAGE = DEALS + b"\x02" + struct.pack(">Q", 2**20 - 100) + bytes(2**20 - 200)
VISIT = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def nothing(_: Ends) -> None:
    time.sleep(1e6)


LABELS, ADVICE = "labels, 60 000 in a request", "suggest and report in turns"
HALF_MESSAGES = "half messages of 1 MiB"
UCB, UCB_REFUSED = "act, ucb among 500 candidates", "act, ucb among 1 000 000 candidates"
ATTACKS: dict[str, Attack] = {
    "nothing": nothing,
    "value, 1 MiB, wrong dimension": wrong_dimension,
    "value, 65 000 states of bytes": right_dimension,
    "ping with an unknown key of 1 MB": unknown_key,
    "value, 20 000 states with variance": many_states,
    "snapshot as lists": snapshots,
    "status, never read": status,
    "min_offset, 1 MiB each, never read": long_waiters,
    "min_offset, small": short_waiters,
    "append, 4000 x 254 one-byte numbers": long_appends,
    "streams, 65 000 of them, never read": streams,
    "streams by 1024 names, 6 connections": streams_by_name,
    "refit with wait": refit,
    "heads, 1000 names of 256 bytes": long_names,
    "change_heads, 60 000 names": many_names,
    UCB: many_candidates,
    UCB_REFUSED: too_many_candidates,
    "ping with an unknown key of 100 kB, 200 connections of another address": many_connections,
    LABELS: labels,
    "new_policy, one of seven in turn": policies,
    "rows of another policy each": policies_of_rows,
    "rows, pages as lists": pages_of_rows,
    "evaluate, 1 MiB of probabilities": evaluations,
    ADVICE: advice,
    "frame headers of 1 MiB to 2^64": raw("control", HEADERS),
    "handshakes, wrong and cut": raw("control", HANDSHAKES, held=400),
    "connects": raw("control", [b""]),
    HALF_MESSAGES: raw("control", [HALF_MESSAGE], held=200),
    "SSE visitors": raw("http", [VISIT], held=60),
    "half HTTP requests": raw("http", [VISIT[:20]], held=60),
    "PING, 10 connections": commands("control", b"DEALER", bytes([4, 7]) + b"\x04PING\x00\x00", again=True),
    "commands of 3 bytes, control, 10 connections": commands("control", b"DEALER"),
    "commands of 3 bytes, ingest, 10 connections": commands("ingest", b"PUSH"),
}

COMPUTES, MULTIPLIES = "a process that computes", "a process that multiplies matrices"
KNOWS_STREAMS = "65 000 streams, a process that computes"
STREAMS_FLOOD, REFITS = "streams, 65 000 of them, never read", "refit with wait"
# The quiet load beside which a flood is judged, if it is not COMPUTES: rows take longer with many streams, and where
# searches use the same units of the processor.
BASELINES = {STREAMS_FLOOD: KNOWS_STREAMS, REFITS: MULTIPLIES}
QUIET: dict[str, Attack] = {COMPUTES: compute, KNOWS_STREAMS: compute, MULTIPLIES: multiply}
# The loads of `--floods`.
FLOODS: dict[str, Attack] = QUIET | {
    name: ATTACKS[name]
    for name in (
        "value, 1 MiB, wrong dimension",
        "value, 65 000 states of bytes",
        "value, 20 000 states with variance",
        "ping with an unknown key of 1 MB",
        "snapshot as lists",
        "status, never read",
        "min_offset, 1 MiB each, never read",
        "append, 4000 x 254 one-byte numbers",
        LABELS,
        "new_policy, one of seven in turn",
        "rows, pages as lists",
        "evaluate, 1 MiB of probabilities",
        ADVICE,
        STREAMS_FLOOD,
        REFITS,
    )
}


def produce(ends: Ends) -> None:
    """Push rows, 256 a message, as fast as they are taken."""
    push, seq = dealer(ends, "ingest", zmq.PUSH), 0
    bodies = [listed("states", rows(256 * k, 256)) + listed("rewards", [0.5] * 256) for k in range(40)]
    head = b"\x85" + listed("v", 1) + listed("stream", "producer") + msgpack.packb("seq") + b"\xcf"
    while True:
        push.send(head + struct.pack(">Q", seq) + bodies[seq // 256 % len(bodies)])
        seq += 256
