"""Attacks that are made so often: requests of clients of libzmq, and connections byte by byte."""

from __future__ import annotations

import itertools
import random
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attacks
import zmq
from attacks import DEALS, VISIT, Ends, dealer, greeting, pack, reach, ready, rows
from daemon import answer

MIB = 1 << 20
SOCKETS = {"ingest": b"PUSH", "control": b"DEALER", "publish": b"SUB"}
OPEN = {name: greeting() + ready(kind) for name, kind in SOCKETS.items()}


class Tally:
    """Counted by the attacker, read by who measures it."""

    def __init__(self, context: Any) -> None:
        self.made_, self.answered_ = (context.Value("Q", 0, lock=False) for _ in range(2))

    def make(self, count: int = 1) -> None:
        """Note how many more were made."""
        self.made_.value += count

    def answer(self, count: int = 1) -> None:
        """Note how many more were answered, or closed by the daemon."""
        self.answered_.value += count

    @property
    def made(self) -> int:
        """How many were made."""
        return int(self.made_.value)

    @property
    def answered(self) -> int:
        """How many were answered."""
        return int(self.answered_.value)


Make = Callable[[Ends, Tally], None]


# ---- requests


def ask(requests: Callable[[], Iterable[bytes]]) -> Make:
    """One client's requests, without waiting for any of them; all replies are read."""

    def run(ends: Ends, tally: Tally) -> None:
        asking = dealer(ends, SNDHWM=0, RCVHWM=0)
        for request in requests():
            asking.send(request, copy=False)
            tally.make()
            while asking.poll(0):
                asking.recv()
                tally.answer()
        while tally.answered < tally.made:
            asking.recv()
            tally.answer()

    return run


def never_read(requests: Callable[[], Iterable[bytes]], clients: int = 1, ahead: int = 0) -> Make:
    """The requests of clients that never read a reply, each at most `ahead` of the daemon (0: all)."""

    def run(ends: Ends, tally: Tally) -> None:
        asking = [dealer(ends, SNDHWM=ahead, RCVHWM=1) for _ in range(clients)]
        turns = itertools.cycle(asking)
        for request in requests():
            next(turns).send(request, copy=False)
            tally.make()
        time.sleep(1e6)

    return run


def many(request: bytes, count: int) -> Callable[[], Iterable[bytes]]:
    """The same request again and again."""
    return lambda: itertools.repeat(request, count)


def turns(count: int, *requests: dict[str, Any]) -> Callable[[], Iterable[bytes]]:
    """These requests in turns."""
    return lambda: itertools.islice(itertools.cycle([pack({"id": 1, **request}) for request in requests]), count)


def endless(request: bytes) -> Callable[[], Iterable[bytes]]:
    """The same request without end."""
    return lambda: itertools.repeat(request)


def pairs(ends: Ends, tally: Tally) -> None:
    """An `append` and a `checkpoint`, one after the other."""
    asking = dealer(ends)
    for seq in range(136):
        state, successor = rows(seq, 1)
        row = {"stream": "pairs", "seq": seq, "state": state, "next_state": successor, "reward": 0.5}
        tally.make()
        answer(asking, "append", **row)
        tally.answer(bool(answer(asking, "checkpoint")))


def crowd(ends: Ends, tally: Tally) -> None:
    """400 clients, each with a `ping`."""
    zmq.Context.instance().set(zmq.MAX_SOCKETS, 1000)
    clients = [dealer(ends) for _ in range(400)]
    for client in clients:
        client.send(pack({"id": 1, "op": "ping"}))
        tally.make()
    for client in clients:
        client.recv()
        tally.answer()


def vanish(ends: Ends, tally: Tally) -> None:
    """300 clients, one after the other, that send 50 requests, read one reply, and are gone."""
    for _ in range(300):
        client = dealer(ends)
        for _ in range(50):
            client.send(pack({"id": 1, "op": "status"}))
            tally.make()
        client.recv()
        tally.answer()
        client.close()


def junk(ends: Ends, tally: Tally) -> None:
    """926 MB of messages that are none, from four producers."""
    producers = [dealer(ends, "ingest", zmq.PUSH, SNDHWM=2, LINGER=-1) for _ in range(4)]
    message = b"\xc1" * (MIB - 100)
    for number in range(926):
        producers[number % 4].send(message, copy=False)
        tally.make()
    for producer in producers:
        producer.close()
    # Ends once all of it has been sent.
    zmq.Context.instance().term()


def subscribers(count: int, silent: int, second_address: bool = False) -> Make:
    """Subscribers to everything, of which some never read, half of them from a second address if that is wanted."""

    def run(ends: Ends, tally: Tally) -> None:
        zmq.Context.instance().set(zmq.MAX_SOCKETS, 2000)
        zmq.Context.instance().set(zmq.IO_THREADS, 2)
        poller = zmq.Poller()
        for number in range(count):
            source = "127.0.0.2" if second_address and number % 2 else ""
            subscriber = dealer(ends, "publish", zmq.SUB, source, RCVHWM=1 if number < silent else 1000)
            subscriber.subscribe(b"")
            tally.make()
            if number >= silent:
                poller.register(subscriber, zmq.POLLIN)
        waiting = count - silent
        while waiting:
            for subscriber, _ in poller.poll():
                subscriber.recv_multipart()
                poller.unregister(subscriber)
                tally.answer()
                waiting -= 1

    return run


def models_unread(ends: Ends, tally: Tally) -> None:
    """Five subscribers that never read, while rows make a model every 10 ms for 25 s."""
    for _ in range(5):
        subscriber = dealer(ends, "publish", zmq.SUB, RCVHWM=1, RCVBUF=4096)
        subscriber.subscribe(b"")
        tally.make()
    asking, seq, deadline = dealer(ends), 0, time.monotonic() + 25.0
    while time.monotonic() < deadline:
        answer(asking, "append", stream="models", seq=seq, states=rows(seq, 4), rewards=[0.5] * 4)
        seq += 4
        time.sleep(0.01)


# ---- connections


def visit(
    ends: Ends,
    sent: Iterable[tuple[str, bytes]],
    tally: Tally,
    at_once: int = 16,
    leave_s: float = float("inf"),
    reset: bool = False,
    per_second: float = float("inf"),
) -> None:
    """Connections that each send their bytes to a socket, and read.

    So many are open at once, and so many are opened a second. A connection stays until the daemon closes it, which is
    an answer, or for `leave_s` after its last byte; then it leaves, with `reset` in the midst of things.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 10_000)), hard))
    coming, selector, begun = iter(sent), selectors.DefaultSelector(), time.monotonic()
    # What each has left to send, and since when it is whole.
    present: dict[socket.socket, list[Any]] = {}
    over = False

    def close(peer: socket.socket) -> None:
        selector.unregister(peer)
        if reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        del present[peer]

    def send(peer: socket.socket) -> None:
        left, _ = present[peer]
        try:
            while left:
                left = left[peer.send(left) :]
        except BlockingIOError:
            pass
        present[peer] = [left, time.monotonic()]
        if not left:
            selector.modify(peer, selectors.EVENT_READ)

    def use(peer: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not peer.recv(1 << 16):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                send(peer)
        except BlockingIOError:
            pass
        except OSError:
            tally.answer()
            close(peer)

    while present or not over:
        while not over and len(present) < at_once and tally.made <= per_second * (time.monotonic() - begun):
            name, data = next(coming, ("", b""))
            over = not name
            if not over:
                peer = reach(ends, name)
                present[peer] = [memoryview(data), time.monotonic()]
                selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
                tally.make()
                use(peer, selectors.EVENT_WRITE)
                if leave_s == 0.0 and peer in present:
                    close(peer)
        for key, events in selector.select(0.002):
            use(key.fileobj, events)  # type: ignore[arg-type]
        if leave_s < float("inf"):
            now = time.monotonic()
            for peer in [peer for peer, (left, since) in present.items() if not left and now - since >= leave_s]:
                close(peer)


def visits(sent: Callable[[], Iterable[tuple[str, bytes]]], **options: Any) -> Make:
    """An attack by `visit`."""
    return lambda ends, tally: visit(ends, sent(), tally, **options)


def cycle(count: int, *contents: bytes, names: tuple[str, ...] = tuple(SOCKETS)) -> Iterator[tuple[str, bytes]]:
    """`count` connections that send these, in turns to the sockets."""
    for number in range(count):
        yield names[number % len(names)], contents[number // len(names) % len(contents)]


def on_each(*contents: bytes) -> Iterator[tuple[str, bytes]]:
    """These, behind a handshake, on each of the three sockets."""
    for name in SOCKETS:
        for content in contents:
            yield name, OPEN[name] + content


def headers() -> Iterator[tuple[str, bytes]]:
    """Headers of frames that are too long: 6 sizes, 4 places, 3 sockets, 3 times."""
    sizes = (MIB + 1, 2**24, 2**31, 2**40, 2**63, 2**64 - 1)
    for name, size, _ in itertools.product(SOCKETS, sizes, range(3)):
        frame = struct.pack(">Q", size)
        yield name, greeting() + b"\x02" + frame
        yield name, OPEN[name] + b"\x02" + frame
        yield name, OPEN[name] + b"\x01\x03abc\x02" + frame
        yield name, OPEN[name] + b"\x06" + frame


GARBAGE = [
    b"\r\n" * 100,
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    random.Random(1).randbytes(1000),
    *(greeting()[:10] + bytes([version]) + greeting()[11:] for version in (0, 1, 2, 4, 9, 255)),
    *(greeting(mechanism) for mechanism in (b"PLAIN", b"CURVE", b"GSSAPI", b"nonsense")),
]


def mutated(count: int) -> Iterator[tuple[str, bytes]]:
    """A handshake and a message in which some bytes are others."""
    chance = random.Random(1)
    for name in itertools.islice(itertools.cycle(SOCKETS), count):
        data = bytearray(OPEN[name] + b"\x01\x03abc\x00\x05hello")
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        yield name, bytes(data[: chance.randint(1, len(data))])


def mutants(ends: Ends, tally: Tally) -> None:
    """Half of them leave by FIN, half by RST."""
    for reset in (False, True):
        visit(ends, mutated(3000), tally, leave_s=0.0, reset=reset)


def identities() -> Iterator[tuple[str, bytes]]:
    """Names that clients give themselves."""
    for identity in (b"same", b"same", b"", b"\0", *(b"n" * size for size in (64, 65, 255, 256, 1000, 3000))):
        for name, kind in SOCKETS.items():
            yield name, greeting() + ready(kind, Identity=identity)


def metadata() -> Iterator[tuple[str, bytes]]:
    """Long and many properties of a connection."""
    many_ones = {f"X-{number:03d}": b"x" for number in range(400)}
    long_ones: list[dict[str, bytes]] = [{"X": bytes(size)} for size in (3000, 5000, 65_000, 300_000, MIB - 100)]
    for name, kind in SOCKETS.items():
        for properties in (*long_ones, many_ones, {"Socket-Type": kind}):
            yield name, greeting() + ready(kind, **properties)


def topics(ends: Ends, tally: Tally) -> None:
    """10^5 topics of one connection, then of libzmq, which connects again and subscribes again when it is cut."""
    frames = (b"\x01" + f"t{number}".encode() for number in range(100_000))
    visit(ends, [("publish", OPEN["publish"] + b"".join(bytes([0, len(f)]) + f for f in frames))], tally, leave_s=5.0)
    subscriber = dealer(ends, "publish", zmq.SUB, SNDHWM=0)
    for number in range(100_000):
        subscriber.subscribe(f"t{number}")
    tally.make()
    time.sleep(5.0)


def long_topics() -> Iterator[tuple[str, bytes]]:
    """Topics of 4 kB to 1 MB, and one that is subscribed to and left 20 000 times."""
    for size in (4000, 4096, 65_000, 300_000, MIB - 100):
        yield "publish", OPEN["publish"] + b"\x02" + struct.pack(">Q", size) + b"\x01" + b"t" * (size - 1)
    yield "publish", OPEN["publish"] + b"\x00\x02\x01t\x00\x02\x00t" * 20_000


def parts() -> Iterator[tuple[str, bytes]]:
    """Messages of 2 to 10^5 parts."""
    return on_each(*(b"\x01\x00" * (count - 1) + b"\x00\x00" for count in (2, 9, 100, 10_000, 100_000)))


def empty_messages(ends: Ends, tally: Tally) -> None:
    """A long message, then 10^8 empty ones each to ingest and control; and to publish, which takes none."""
    most, chunk, selector = 200_000_000, bytes(1 << 17), selectors.DefaultSelector()
    # What each has left to send of its first bytes, and how much of empty messages it has sent.
    first: dict[Any, bytes] = {}
    sent: dict[Any, int] = {}
    for name in SOCKETS:
        peer = reach(ends, name)
        first[peer], sent[peer] = OPEN[name] + b"\x02" + struct.pack(">Q", MIB - 100) + bytes(MIB - 100), 0
        selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
    while selector.get_map():
        for key, events in selector.select(1.0):
            one: Any = key.fileobj
            try:
                if events & selectors.EVENT_READ and not one.recv(1 << 16):
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE and first[one]:
                    first[one] = first[one][one.send(first[one]) :]
                elif events & selectors.EVENT_WRITE:
                    before = sent[one]
                    sent[one] += one.send(chunk[: most - before])
                    tally.make(sent[one] // 2 - before // 2)
            except BlockingIOError:
                continue
            except OSError:
                sent[one] = most
            if sent[one] >= most:
                selector.unregister(one)


def silence(ends: Ends, tally: Tally) -> None:
    """2100 connections that say nothing, then 2100 that say half a greeting."""
    for data in (b"", greeting()[:30]):
        visit(ends, cycle(2100, data), tally, at_once=2100)


def slowly(ends: Ends, tally: Tally) -> None:
    """500 connections that send a byte of their handshake a second."""
    peers = [reach(ends, name) for name, _ in cycle(500, b"")]
    tally.make(len(peers))
    for byte in DEALS:
        for peer in list(peers):
            try:
                peer.send(bytes([byte]))
            except OSError:
                peers.remove(peer)
                tally.answer()
        if not peers:
            return
        time.sleep(1.0)


def half_messages(ends: Ends, tally: Tally) -> None:
    """Five times 400 messages that lack 10 bytes, each held for 8 s."""
    message = DEALS + b"\x02" + struct.pack(">Q", MIB - 100) + bytes(MIB - 110)
    for _ in range(5):
        peers = [reach(ends, "control") for _ in range(400)]
        tally.make(len(peers))
        left, deadline = dict.fromkeys(peers, memoryview(message)), time.monotonic() + 8.0
        while time.monotonic() < deadline:
            for peer, data in list(left.items()):
                try:
                    left[peer] = data[peer.send(data) :] if data else data
                except BlockingIOError:
                    pass
                except OSError:
                    tally.answer()
                    del left[peer]
            time.sleep(0.01)
        for peer in peers:
            peer.close()


def half_requests(ends: Ends, tally: Tally) -> None:
    """64 visitors that do not end their request."""
    visit(ends, cycle(64, VISIT[:20], names=("http",)), tally, at_once=64, leave_s=20.0)


def keep_alive(ends: Ends, tally: Tally) -> None:
    """64 visitors that ask for the page every 10 s, for 34 s."""
    peers = [reach(ends, "http") for _ in range(64)]
    tally.make(len(peers))
    for pause in (10.0, 10.0, 10.0, 4.0):
        for peer in list(peers):
            try:
                peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except OSError:
                peers.remove(peer)
                tally.answer()
        time.sleep(pause)


def noise(name: str, command: bytes, count: int, reads: bool = False) -> Make:
    """Commands on a number of connections, without end; those that the daemon closes are replaced."""

    def run(ends: Ends, tally: Tally) -> None:
        tally.make(count)
        attacks.commands(name, SOCKETS[name], command, count, again=True, reads=reads)(ends)

    return run


def encrypted(ends: Ends, tally: Tally) -> None:
    """60 values of 1 MiB, encrypted, of a client that may only append."""
    asking: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    asking.curve_publickey, asking.curve_secretkey, asking.curve_serverkey = (
        ends[name].encode() for name in ("public", "secret", "server")
    )
    asking.setsockopt(zmq.SNDHWM, 0)
    asking.connect(ends["curve_control"])
    for _ in range(60):
        asking.send(attacks.value_of_bytes())
        tally.make()
    while tally.answered < tally.made:
        asking.recv()
        tally.answer()
