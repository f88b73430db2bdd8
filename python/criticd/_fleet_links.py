"""Calls between the parts of a fleet: over sockets of this machine, or whatever else carries bytes there and back."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, Protocol

from criticd._output import write_whole
from criticd._protocol import CriticdError, Invalid, Malformed, Message, Refused, pack, unpack

COORDINATOR = "coordinator"


def worker_name(number: int) -> str:
    """What a worker is called in files, as an actor and in errors."""
    return f"worker-{number}"


@dataclass(frozen=True)
class Patience:
    """How long the parts of a fleet wait for one another, in seconds: all that depends on the clock.

    ```python
    fleet = Fleet(4, discount=0.95, patience=Patience(interval_s=0.2))
    ```

    - `call_s`: for the answer to a call. `start_s`: until a part that was started answers.
    - `rows_s`: how long rows are sent again to a worker that is away, before `RemoteError`.
    - `interval_s`: between two rounds of the coordinator, and between two looks at whether all parts live.
    - `chain_s`: for the end of a chain that is to move, before it is cut.
    - `epoch_s`: until all workers have learned their rows in a new epoch; then it begins without those rows.
    - `retry_s`: between two attempts.
    """

    call_s: float = 30.0
    start_s: float = 60.0
    rows_s: float = 120.0
    interval_s: float = 1.0
    chain_s: float = 5.0
    epoch_s: float = 3600.0
    retry_s: float = 0.05

    def inner(self) -> Patience:
        """Of a part that is called, with others: its own caller waits for two of its calls, and some more."""
        return replace(self, call_s=self.call_s / 4)


class RemoteError(CriticdError):
    """A part of a fleet did not do what was asked. `who` is "coordinator" or "worker-3", `op` what was asked.

    ```python
    try:
        fleet.select()
    except RemoteError as error:
        print(error.who, error.away)
    ```

    `away` says that it gave no answer: it is down, or did not answer in time. Whether it has done what was asked is
    then not known.
    """

    def __init__(self, who: str, op: str, message: str, *, away: bool = False) -> None:
        self.who, self.op, self.message, self.away = who, op, message, away
        super().__init__(f"{who}, {op}: {message}")

    @property
    def worker(self) -> int | None:
        """The number of the worker, None where it was the coordinator."""
        return None if self.who == COORDINATOR else int(self.who.rpartition("-")[2])

    def __reduce__(self) -> tuple[Any, ...]:
        return _remote_error, (self.who, self.op, self.message, self.away)


def _remote_error(who: str, op: str, message: str, away: bool) -> RemoteError:
    return RemoteError(who, op, message, away=away)


def words(error: Exception) -> str:
    """What an error says, with its name where it is not of this package."""
    return str(error) if isinstance(error, CriticdError) else f"{type(error).__name__}: {error}"


class Part(Protocol):
    """A worker or a coordinator: what answers calls."""

    def call(self, op: str, arguments: Message) -> Message:
        """Carry out `op`."""
        ...


class Link(Protocol):
    """A way to a part."""

    def call(self, op: str, **arguments: Any) -> Message:
        """Let it carry out `op`. Raises `RemoteError`; `Invalid` and `Refused` as the part raised them."""
        ...


def carried_out(part: Part, payload: bytes) -> bytes:
    """The answer of a part to a request, both as bytes. What it raises is in the answer."""
    try:
        request = unpack(payload)
        return pack({"done": part.call(str(request["op"]), request["arguments"])})
    except Invalid as error:
        return pack({"invalid": {"field": error.field, "message": error.message, "index": error.index}})
    except Refused as error:
        said = {"code": error.code, "message": error.message, "expected_seq": error.expected_seq}
        return pack({"refused": {key: value for key, value in said.items() if value is not None}})
    except Exception as error:
        # Whatever it is, the caller must hear who it was.
        return pack({"failed": words(error)})


def request(op: str, arguments: Mapping[str, Any]) -> bytes:
    """A request as bytes."""
    return pack({"op": op, "arguments": dict(arguments)})


def answered(who: str, op: str, payload: bytes) -> Message:
    """What an answer says. Raises what the part raised."""
    try:
        answer = unpack(payload)
    except Malformed as error:
        raise RemoteError(who, op, f"an answer that cannot be read ({error})") from error
    if "invalid" in answer:
        raise Invalid(**answer["invalid"])
    if "refused" in answer:
        raise Refused(answer["refused"])
    if "failed" in answer:
        raise RemoteError(who, op, answer["failed"])
    done: Message = answer["done"]
    return done


class Direct:
    """A link to a part in this process."""

    def __init__(self, who: str, part: Part) -> None:
        self._who, self._part = who, part

    def call(self, op: str, **arguments: Any) -> Message:
        """See `Link`."""
        return answered(self._who, op, carried_out(self._part, request(op, arguments)))


def _key(directory: Path) -> bytes:
    """What those who may call the parts of this directory know: a file that its owner alone can read."""
    path = directory / "key"
    if not path.exists():
        made = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(made, "wb") as file:
            file.write(secrets.token_bytes(32))
        path.with_suffix(".new").replace(path)
    return path.read_bytes()


class Remote:
    """A link to a part in another process of this machine, found by its file in the directory of the fleet.

    It connects when it is called, and again after the part has been started anew. Threads take turns.
    """

    def __init__(self, directory: Path, who: str, patience: Patience) -> None:
        self._directory, self._who, self._patience = directory, who, patience
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def call(self, op: str, **arguments: Any) -> Message:
        """See `Link`."""
        payload = request(op, arguments)
        with self._lock:
            try:
                connection = self._connected()
                connection.send_bytes(payload)
                if not connection.poll(self._patience.call_s):
                    raise TimeoutError(f"no answer within {self._patience.call_s:g} s")
                answer = connection.recv_bytes()
            except (OSError, EOFError, AuthenticationError, ValueError) as error:
                self.close()
                why = str(error) or "the connection has ended"
                raise RemoteError(self._who, op, f"gives no answer ({why})", away=True) from error
        return answered(self._who, op, answer)

    def _connected(self) -> Connection:
        if self._connection is None:
            address = json.loads((self._directory / f"{self._who}.json").read_text())
            connection = Client((address["host"], address["port"]))
            try:
                self._greet(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _greet(self, connection: Connection) -> None:
        """Prove to each other that both hold the key.

        A read fails after `call_s`: a process that now has the address of the part may never answer.
        """
        seconds, part = divmod(self._patience.call_s, 1)
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            limit = struct.pack("ll", int(seconds), int(part * 1e6))
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        key = _key(self._directory)
        answer_challenge(connection, key)
        deliver_challenge(connection, key)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
        self._connection = None


def serve(directory: Path, who: str, part: Part, broken: Callable[[], bool]) -> None:
    """Answer calls for ever, each connection in a thread of its own; end the process once `broken` says so."""
    key = _key(directory)
    with Listener(("127.0.0.1", 0), backlog=128) as listener:
        host, port = listener.address
        address = {"host": host, "port": port, "pid": os.getpid()}
        write_whole(directory / f"{who}.json", json.dumps(address).encode())
        while True:
            # Somebody who has hung up.
            with contextlib.suppress(OSError, EOFError):
                connection = listener.accept()
                threading.Thread(target=_answer, args=(connection, key, part, broken), daemon=True).start()


def _answer(connection: Connection, key: bytes, part: Part, broken: Callable[[], bool]) -> None:
    # Or somebody without the key, or who says nothing: others are answered meanwhile.
    with contextlib.suppress(AuthenticationError, OSError, EOFError), connection:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        while True:
            connection.send_bytes(carried_out(part, connection.recv_bytes()))
            if broken():
                # What is in memory may be ahead of the disk: a new start reads what is there.
                os._exit(1)


class Process:
    """A part in a process of its own. It ends with this program, however that ends."""

    def __init__(self, directory: Path, who: str, options: Mapping[str, Any], patience: Patience) -> None:
        self.directory, self.who, self.starts = directory, who, 0
        self._patience = patience
        self._line = json.dumps({"who": who, "directory": str(directory), "patience": asdict(patience), **options})
        self._process: subprocess.Popen[bytes] | None = None
        # Made here, so that no two parts make one.
        _key(directory)

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def lives(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and do not wait until it answers."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        line = [sys.executable, "-m", "criticd._fleet_process", self._line]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, env=environment)
        self.starts += 1

    def wait(self) -> None:
        """Wait until it answers. Raises `RemoteError`."""
        end = time.monotonic() + self._patience.start_s
        while time.monotonic() < end and self.lives():
            with contextlib.suppress(OSError, ValueError, KeyError):
                if json.loads((self.directory / f"{self.who}.json").read_text())["pid"] == self.pid:
                    return
            time.sleep(self._patience.retry_s)
        why = "did not start in time" if self.lives() else "ended while it started: its reason is on standard error"
        raise RemoteError(self.who, "start", why, away=True)

    def stop(self) -> None:
        """End it. Its rows are in its journal."""
        # The supervisor may put another one in its place meanwhile, which the next call ends.
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
