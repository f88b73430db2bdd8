"""Peers that speak ZMTP byte by byte, so that they can speak it wrongly; and what a daemon's process holds."""

from __future__ import annotations

import itertools
import math
import os
import resource
import selectors
import socket
import struct
import threading
from pathlib import Path

from client import PATIENCE_S, Daemon

TYPES = {"ingest": "PUSH", "control": "DEALER", "publish": "SUB"}
# From another place in each run: two runs of the suite may share a machine.
PORTS = itertools.count(os.getpid())
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + bytes(32)


def frame(body: bytes, flags: int = 0) -> bytes:
    """A frame of ZMTP 3; flags: 1 more frames follow, 4 a command."""
    if len(body) > 255:
        return struct.pack(">BQ", flags | 2, len(body)) + body
    return struct.pack(">BB", flags, len(body)) + body


def ready(socket_type: str) -> bytes:
    """The command that ends a handshake."""
    value = socket_type.encode()
    return frame(b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(value)) + value, 4)


def announcing(length: int, flags: int = 0) -> bytes:
    """The header of a frame that claims so many bytes."""
    return struct.pack(">BQ", flags | 2, length)


class Peer:
    """A connection to one of the daemon's sockets: `type` is what it says it is, "" for one that says nothing."""

    def __init__(self, daemon: Daemon, name: str, type: str = "", receive_bytes: int = 0) -> None:
        host, port = daemon.endpoints[name].removeprefix("tcp://").rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_S)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect((host, int(port)))
        if type:
            self.send(GREETING + ready(type))
            self.take(len(GREETING))
            header = self.take(2)
            self.take(header[1])

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_cut(self, data: bytes, most: int) -> int:
        """Send `data` again and again, `most` bytes or until nobody takes it; how many bytes went."""
        sent = 0
        try:
            while sent < most:
                sent += self.socket.send(data)
        except (ConnectionError, TimeoutError):
            pass
        return sent

    def send_what_fits(self, data: bytes) -> None:
        """Send as much of `data` as the kernel takes without waiting; nothing if the connection is cut."""
        try:
            self.socket.send(data, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            pass

    def take(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionResetError("the daemon closed the connection")
            data += more
        return data

    def is_cut(self) -> bool:
        """Wait until the daemon closes the connection; False if it does not."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def vanish(self) -> None:
        """Be gone without a word, as a machine without power; where that is not permitted, with a reset."""
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, 19, 1)  # TCP_REPAIR: closing says nothing
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def subscriber(daemon: Daemon, receive_bytes: int = 4096) -> Peer:
    """One that wants everything; with few `receive_bytes` what it does not read waits in the daemon rather than here."""
    peer = Peer(daemon, "publish", "SUB", receive_bytes)
    peer.send(frame(b"\x01"))
    return peer


class Crowd:
    """Subscribers that read whatever comes, in a thread of their own."""

    def __init__(self, daemon: Daemon, count: int) -> None:
        self.selector, self.heard = selectors.DefaultSelector(), dict.fromkeys(range(count), 0)
        self.gone, self.over = 0, threading.Event()
        self.peers = [subscriber(daemon, 1 << 16) for _ in range(count)]
        for number, peer in enumerate(self.peers):
            peer.socket.setblocking(False)
            self.selector.register(peer.socket, selectors.EVENT_READ, number)
        self.thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        while not self.over.is_set():
            for key, _ in self.selector.select(0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    length = len(connection.recv(1 << 18))
                except ConnectionError:
                    length = 0
                if length == 0:
                    self.selector.unregister(connection)
                    self.gone += 1
                self.heard[key.data] += length

    def heard_least(self) -> int:
        """Bytes that have reached every one of them."""
        return min(self.heard.values())

    def cut(self) -> int:
        """How many were cut off."""
        return self.gone

    def __enter__(self) -> Crowd:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        for peer in self.peers:
            peer.close()


def append(daemon: Daemon, seq: int, rows: int, stream: str = "s", batch: int = 100) -> int:
    """Append so many rows of a walk, each batch acknowledged before the next; the number of the row that comes next."""
    control = daemon.shared_control()
    while rows > 0:
        count = min(rows, batch)
        states = [[math.sin(0.1 * (seq + k)), math.cos(0.07 * (seq + k))] for k in range(count + 1)]
        reply = control.ask("append", stream=stream, seq=seq, states=states, rewards=[x[0] for x in states[:-1]])
        seq, rows = seq + count, rows - count
        assert reply["next_seq"] == seq
    return seq


def descriptors(daemon: Daemon) -> int:
    """Open descriptors of the daemon, but for those of regular files: the journal opens them when it wants."""
    return sum(not path.is_file() for path in Path(f"/proc/{daemon.process.pid}/fd").iterdir())


def processor_seconds(daemon: Daemon, thread: str = "") -> float:
    """What the daemon has used of the processors, or one of its threads."""
    total = 0
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        name, fields = (task / "stat").read_text().partition("(")[2].rsplit(")", 1)
        if thread in ("", name):
            used = fields.split()
            total += int(used[11]) + int(used[12])
    return total / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port for a daemon whose `endpoints.json` cannot be read, or that comes back where it was.

    The port lies below the range from which the system picks ports, and each worker of pytest has a part of its own there:
    nobody else gets it before the daemon binds it, or between two daemons. The package's tests have those from 20 000 on.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    while True:
        port = 10_000 + 1000 * worker + next(PORTS) % 1000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def allow_descriptors(count: int) -> None:
    """Let this process open so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
