"""Version 1 of the protocol: messages and bytes, what can go wrong, and where the sockets are.

No sockets here. What the daemon promises is written in `proto/README.md` of its source.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgpack
import numpy as np
import numpy.typing as npt

from criticd.keys import Keys

Array: TypeAlias = npt.NDArray[np.float64]
Message: TypeAlias = dict[str, Any]

VERSION = 1
_T = TypeVar("_T")
MAGNITUDE_MAX = 1e9
"""Largest magnitude of a number in a state or reward."""

_DTYPES = {name: np.dtype(name) for name in ("<f8", "<f4", "<i8", "<i4", "|b1")}


class CriticdError(Exception):
    """Base of everything that this package raises on its own.

    ```python
    try:
        client.value([[0.5]])
    except CriticdError as error:
        print(error)
    ```
    """


class Refused(CriticdError):
    """The daemon answered with an error.

    ```python
    try:
        client.value([[0.0, 1.0]])
    except Refused as refused:
        print(refused.code, refused.field, refused.message)
    ```

    Attributes: `code`, one of the words in the table of errors (`"wrong_dimension"`, `"fenced"`, ...; daemons may know
    new ones); `message`, a sentence; `field`, the key at fault, or None; `index`, the row at fault, or None;
    `retry_after_ms`, how long to wait if the daemon was overloaded; `expected_seq`, with `"sequence_gap"`.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        self._error = dict(error)
        self.code = str(error.get("code", "unknown"))
        self.message = str(error.get("message", ""))
        self.field: str | None = error.get("field")
        self.index: int | None = error.get("index")
        self.retry_after_ms: int | None = error.get("retry_after_ms")
        self.expected_seq: int | None = error.get("expected_seq")
        place = f" {self.field}" if self.field else ""
        row = f" (row {self.index})" if self.index is not None else ""
        super().__init__(f"{self.code}{place}{row}: {self.message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Refused, (self._error,)


def refuse_keywords(given: Mapping[str, object], meant: Mapping[str, str]) -> None:
    """Raise `TypeError` for a keyword that there is not, with what was `meant` by it."""
    for name in given:
        raise TypeError(f"unexpected keyword argument {name!r}" + (f": {meant[name]}" if name in meant else ""))


class Unreachable(CriticdError, TimeoutError):
    """There is no connection: no daemon listens at the endpoint, or the network is down.

    ```python
    try:
        Client("tcp://127.0.0.1:1", timeout_s=0.1).ping()
    except Unreachable as error:
        print(error)
    ```
    """

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s
        super().__init__(
            f"no connection to {endpoint} within {timeout_s:g} s: is `criticd serve` running, and is this its endpoint?"
            " It writes the ones in use to endpoints.json in its data directory (pass data_dir=... to read them)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Unreachable, (self.endpoint, self.timeout_s)


class NoReply(CriticdError, TimeoutError):
    """The daemon is connected, but has not answered in time. Whether it has carried the request out is not known.

    ```python
    try:
        client.checkpoint()
    except NoReply:
        print(client.status()["offset"])
    ```
    """

    def __init__(self, endpoint: str, op: str, timeout_s: float) -> None:
        self.endpoint, self.op, self.timeout_s = endpoint, op, timeout_s
        super().__init__(
            f"{endpoint} did not answer `{op}` within {timeout_s:g} s: allow more time with timeout_s=..., or look at "
            "the daemon's log for what it is busy with"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return NoReply, (self.endpoint, self.op, self.timeout_s)


class Invalid(CriticdError, ValueError):
    """Rows that the daemon would refuse, noticed before they were sent. `field` is at fault, in row `index`.

    ```python
    try:
        sender.send([float("nan")], 0.0, [0.5])
    except Invalid as invalid:
        print(invalid.field, invalid)
    ```
    """

    def __init__(self, field: str, message: str, index: int | None = None) -> None:
        self.field, self.message, self.index = field, message, index
        row = f" (row {index})" if index is not None else ""
        super().__init__(f"{field}{row}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Invalid, (self.field, self.message, self.index)


class Malformed(CriticdError):
    """Something that came from the daemon, or from a file, is not what the protocol promises.

    ```python
    try:
        Snapshot.load("notes.txt")
    except Malformed as error:
        print(error)
    ```
    """


@dataclass(frozen=True)
class Endpoints:
    """Where a daemon's sockets are bound.

    ```python
    print(daemon.endpoints.control)
    ```
    """

    ingest: str = "tcp://127.0.0.1:5750"
    control: str = "tcp://127.0.0.1:5751"
    publish: str = "tcp://127.0.0.1:5752"
    http: str | None = "127.0.0.1:5753"
    """Host and port of the dashboard; None if it is off."""
    curve_ingest: str | None = None
    """The encrypted socket for transitions; None if there is none, as with the next two."""
    curve_control: str | None = None
    curve_publish: str | None = None

    @classmethod
    def read(cls, data_dir: str | os.PathLike[str]) -> Endpoints:
        """The endpoints of the daemon that works in `data_dir`. FileNotFoundError while none does."""
        return cls.parse(Path(data_dir, "endpoints.json").read_text())

    @classmethod
    def parse(cls, text: str) -> Endpoints:
        """From the text of an `endpoints.json`."""
        try:
            found = json.loads(text)
            optional = (found.get(key) for key in ("http", "curve_ingest", "curve_control", "curve_publish"))
            return cls(str(found["ingest"]), str(found["control"]), str(found["publish"]), *optional)
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"this is no endpoints.json of criticd: {error}") from error


@dataclass(frozen=True)
class Address:
    """One socket of a daemon: a known endpoint, or a data directory to look it up in, again after a restart."""

    socket: str
    endpoint: str | None = None
    data_dir: Path | None = None
    keys: Keys | None = None
    """With keys, the encrypted one of the daemon's sockets."""

    @classmethod
    def of(
        cls,
        socket: str,
        endpoint: str | None,
        data_dir: str | os.PathLike[str] | None,
        keys: Keys | None = None,
    ) -> Address:
        """`endpoint`, or what `data_dir` or CRITICD_DATA_DIR says, or the default of the socket called `socket`."""
        if endpoint is not None and "://" not in endpoint:
            raise ValueError(f"an endpoint looks like {getattr(Endpoints(), socket)}, not {endpoint!r}")
        if endpoint is None and data_dir is None:
            data_dir = os.environ.get("CRITICD_DATA_DIR") or None
        if endpoint is None and data_dir is None:
            if keys is not None:
                raise ValueError("with keys, say where: encrypted sockets have no default endpoint")
            endpoint = getattr(Endpoints(), socket)
        return cls(socket, endpoint, None if endpoint is not None or data_dir is None else Path(data_dir), keys)

    def resolve(self) -> str | None:
        """The endpoint; None while the data directory names none."""
        if self.endpoint is not None:
            return self.endpoint
        assert self.data_dir is not None
        try:
            found: str | None = getattr(Endpoints.read(self.data_dir), ("curve_" if self.keys else "") + self.socket)
            return found
        except (FileNotFoundError, Malformed):
            return None

    def __str__(self) -> str:
        return self.endpoint or f"the {self.socket} socket named in {self.data_dir}/endpoints.json"


@dataclass(frozen=True)
class Limits:
    """How much one message may hold.

    ```python
    print(client.hello().limits.rows_per_batch)
    ```
    """

    message_bytes: int = 1 << 20
    rows_per_batch: int = 4096
    rows_per_query: int = 1 << 16
    page_bytes: int = 512 << 10


@dataclass(frozen=True)
class Hello:
    """What a daemon says about itself: versions of the protocol it speaks, its own version, and so on.

    ```python
    print(client.hello().version, "policies" in client.hello().features)
    ```

    `state_dim` is the length of a state and `rewards` the number of rewards of a row: None before they are settled.
    `state_names`, `reward_names` and `action_names` are what these are called, units in brackets: empty before that is
    said.
    """

    protocol: tuple[int, int]
    version: str
    features: frozenset[str]
    limits: Limits
    critics: tuple[str, ...]
    state_dim: int | None
    rewards: int | None = None
    state_names: tuple[str, ...] = ()
    reward_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Hello:
        """From the reply to `hello`."""
        try:
            limits = {key: int(reply["limits"][key]) for key in Limits.__dataclass_fields__ if key in reply["limits"]}
            return cls(
                protocol=(int(reply["protocol"]["min"]), int(reply["protocol"]["max"])),
                version=str(reply["version"]),
                features=frozenset(reply["features"]),
                limits=Limits(**limits),
                critics=tuple(reply["critics"]),
                state_dim=reply.get("state_dim"),
                rewards=reply.get("rewards"),
                state_names=tuple(reply.get("state_names", ())),
                reward_names=tuple(reply.get("reward_names", ())),
                action_names=tuple(reply.get("action_names", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"the reply to `hello` lacks something: {error!r}") from error


def _encode(value: Any) -> Any:
    """What MessagePack has no type for: numpy arrays, in the form of `msgpack-numpy`, and numpy's single values."""
    if isinstance(value, np.ndarray):
        name = value.dtype.newbyteorder("<").str
        if name not in _DTYPES:
            name = "<f8"
        data = np.ascontiguousarray(value, dtype=_DTYPES[name]).tobytes()
        return {b"nd": True, b"type": name, b"kind": b"", b"shape": list(value.shape), b"data": data}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a message cannot hold {type(value).__name__}")


def _decode(value: dict[Any, Any]) -> Any:
    """The reverse, for every map of a message."""
    if b"nd" not in value and "nd" not in value:
        return value
    found = {key.decode() if isinstance(key, bytes) else key: item for key, item in value.items()}
    name = found.get("type")
    dtype = _DTYPES.get(name.decode() if isinstance(name, bytes) else str(name))
    if dtype is None:
        raise Malformed(f"an array of type {name!r}")
    try:
        flat = np.frombuffer(found["data"], dtype)
        return flat.reshape(found["shape"]) if found["nd"] else flat[0]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Malformed(f"an array that does not fit together: {error!r}") from error


def pack(message: Mapping[str, Any]) -> bytes:
    """A message with its version, as bytes. Arrays are written as `msgpack-numpy` writes them."""
    payload: bytes = msgpack.packb({"v": VERSION, **message}, default=_encode)
    return payload


def unpack(payload: bytes | memoryview) -> Message:
    """A message of the daemon. Arrays are read-only."""
    try:
        message = msgpack.unpackb(payload, object_hook=_decode)
    except (ValueError, msgpack.UnpackException) as error:
        raise Malformed(f"this is no MessagePack: {error}") from error
    if not isinstance(message, dict):
        raise Malformed("this is no map")
    if message.get("v") != VERSION:
        raise Malformed(f"this is version {message.get('v')!r} of the protocol, not {VERSION}")
    return message


def answer(payload: bytes | memoryview) -> tuple[Any, Message | Refused]:
    """A reply of the control socket: the `id` of its request, and the reply itself or why the request was refused."""
    reply = unpack(payload)
    if reply.get("ok") is True:
        return reply.get("id"), reply
    error = reply.get("error")
    if not isinstance(error, dict):
        raise Malformed("a reply that is neither an answer nor an error")
    return reply.get("id"), Refused(error)


class Ask(NamedTuple):
    """An operation and its fields, to be sent after some seconds."""

    op: str
    fields: Message
    after_s: float = 0.0


Steps: TypeAlias = Generator[Ask, Message, _T]
"""Requests one after the other: is sent the reply to each, or thrown its `Refused`, and returns what was found."""


def once(op: str, fields: Message, read: Callable[[Message], _T]) -> Steps[_T]:
    """A single request, and what its reply says."""
    return read((yield Ask(op, fields)))
