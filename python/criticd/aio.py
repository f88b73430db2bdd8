"""The same for asyncio: `Client`, `Subscriber` and `Sender` whose waiting is awaited.

```python
async def ask():
    async with aio.Client() as client:
        return await client.value([[0.5]])
```

They belong to the event loop in which they are first used.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import zmq
import zmq.asyncio

from criticd import client as _client
from criticd import sender as _sender
from criticd import subscriber as _subscriber
from criticd._delivery import Counters
from criticd._fork import stays
from criticd._protocol import Address, CriticdError, Message, NoReply, Refused, Steps, Unreachable, answer, pack
from criticd._refusals import Refusal
from criticd.keys import Keys
from criticd.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Client", "Sender", "Subscriber"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaited(
    method: Callable[Concatenate[_client.Client, _P], _T],
) -> Callable[Concatenate[Client, _P], Coroutine[Any, Any, _T]]:
    """A method of `criticd.Client` with this client's `_ask`, which is awaited."""

    async def asked(self: Client, /, *args: _P.args, **fields: _P.kwargs) -> _T:
        found: _T = await cast(Any, method)(self, *args, **fields)
        return found

    functools.update_wrapper(asked, method)
    return asked


class Client:
    """As `criticd.Client`, with its methods, but requests do not wait for each other: many may be open at a time.

    `evaluate` calls a policy in this thread: one that takes long stops the event loop.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        timeout_s: float = 5.0,
        keys: Keys | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._address = Address.of("control", endpoint, data_dir, keys)
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[Message]] = {}
        self._socket: zmq.asyncio.Socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    ping = _awaited(_client.Client.ping)
    hello = _awaited(_client.Client.hello)
    status = _awaited(_client.Client.status)
    streams = _awaited(_client.Client.streams)
    value = _awaited(_client.Client.value)
    act = _awaited(_client.Client.act)
    evaluate = _awaited(_client.Client.evaluate)
    plan = _awaited(_client.Client.plan)
    rollout = _awaited(_client.Client.rollout)
    heads = _awaited(_client.Client.heads)
    list_heads = _awaited(_client.Client.list_heads)
    add_heads = _awaited(_client.Client.add_heads)
    send_labels = _awaited(_client.Client.send_labels)
    remove_heads = _awaited(_client.Client.remove_heads)
    suggest = _awaited(_client.Client.suggest)
    report = _awaited(_client.Client.report)
    snapshot = _awaited(_client.Client.snapshot)
    refit = _awaited(_client.Client.refit)
    rebuild = _awaited(_client.Client.rebuild)
    remove = _awaited(_client.Client.remove)
    new_policy = _awaited(_client.Client.new_policy)
    checkpoint = _awaited(_client.Client.checkpoint)
    append = _awaited(_client.Client.append)

    async def _ask(self, steps: Steps[_T], timeout_s: float | None = None) -> _T:
        """As in `criticd.Client`, with which the methods above end."""
        try:
            ask = next(steps)
            while True:
                if ask.after_s:
                    await asyncio.sleep(ask.after_s)
                try:
                    reply = await self.request(ask.op, timeout_s, **ask.fields)
                except Refused as refused:
                    ask = steps.throw(refused)
                else:
                    ask = steps.send(reply)
        except StopIteration as done:
            found: _T = done.value
            return found
        finally:
            steps.close()

    async def request(self, op: str, timeout_s: float | None = None, **fields: Any) -> Message:
        """Any operation of the protocol: the reply as it came, arrays as numpy arrays."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        number = next(self._numbers)
        payload = pack({"id": number, "op": op, **fields})
        sent = False

        async def asked() -> Message:
            nonlocal sent
            socket = await self._connected()
            reply = self._open[number] = asyncio.get_running_loop().create_future()
            await socket.send(payload)
            sent = True
            found: Message = await reply
            return found

        try:
            return await asyncio.wait_for(asked(), timeout_s)
        except asyncio.TimeoutError as late:
            if sent:
                raise NoReply(str(self._address), op, timeout_s) from late
            raise Unreachable(str(self._address), timeout_s) from late
        finally:
            self._open.pop(number, None)

    async def close(self) -> None:
        """Let the connection go; open requests fail. The next request would make a new one."""
        self._disconnect(CriticdError("the client was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise stays(self)

    async def _connected(self) -> zmq.asyncio.Socket:
        async with self._connecting:
            while True:
                if self._socket is None:
                    endpoint = self._address.resolve()
                    if endpoint is None:
                        await asyncio.sleep(0.05)
                        continue
                    socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
                    _client.prepare(socket, self._address.keys)
                    socket.connect(endpoint)
                    self._socket = socket
                    self._reader = asyncio.create_task(self._read(socket))
                # A daemon that came back may have other ports: look again every half second.
                if await self._socket.poll(500, zmq.POLLOUT):  # type: ignore[call-arg]
                    return self._socket
                if self._address.data_dir is not None:
                    self._disconnect(CriticdError("the connection was lost"))

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        try:
            while True:
                number, reply = answer(await socket.recv())
                waiting = self._open.get(number)
                if waiting is None or waiting.done():
                    continue
                if isinstance(reply, Refused):
                    waiting.set_exception(reply)
                else:
                    waiting.set_result(reply)
        except CriticdError as error:
            self._reader = None
            self._disconnect(error)

    def _disconnect(self, why: CriticdError) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(why)


class Subscriber:
    """As `criticd.Subscriber`, whose thread it uses: `latest` is at hand at once, `wait` and `updates` are awaited."""

    def __init__(
        self,
        publish: str | None = None,
        control: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        critic: str | None = None,
        head: str | None = None,
        variance: bool = True,
        keys: Keys | None = None,
    ) -> None:
        self._inner = _subscriber.Subscriber(
            publish, control, data_dir=data_dir, critic=critic, head=head, variance=variance, keys=keys
        )

    @property
    def latest(self) -> Snapshot | None:
        """The newest model, or None."""
        return self._inner.latest

    @property
    def received(self) -> _subscriber.Received:
        """What has come so far, a copy."""
        return self._inner.received

    async def wait(self, timeout_s: float | None = 10.0, *, generation: int = 0, offset: int = 0) -> Snapshot:
        """As `criticd.Subscriber.wait`."""
        with _Bell(self._inner) as bell:

            async def there() -> Snapshot:
                while True:
                    latest = self._inner.latest
                    if latest is not None and latest.generation >= generation and latest.offset >= offset:
                        return latest
                    await bell.rung()

            try:
                return await asyncio.wait_for(there(), timeout_s)
            except asyncio.TimeoutError:
                # The other one has the words for it.
                return self._inner.wait(0.0, generation=generation, offset=offset)

    async def updates(self) -> AsyncIterator[Snapshot]:
        """Every model that is newer than the one before, skipping those that come while the last is still in use."""
        last: Snapshot | None = None
        with _Bell(self._inner) as bell:
            while not self._inner.closed:
                latest = self._inner.latest
                if latest is not None and latest is not last:
                    last = latest
                    yield latest
                else:
                    await bell.rung()

    async def close(self) -> None:
        """Stop listening. `latest` stays."""
        await asyncio.to_thread(self._inner.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise stays(self)


class _Bell:
    """Rung by the subscriber's thread, heard in the event loop."""

    def __init__(self, subscriber: _subscriber.Subscriber) -> None:
        self._subscriber = subscriber
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _ring(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def rung(self) -> None:
        """Wait for a change since the last call, or since the bell was hung up."""
        await self._event.wait()
        self._event.clear()

    def __enter__(self) -> Self:
        self._subscriber.listen(self._ring)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscriber.unlisten(self._ring)


class Sender:
    """As `criticd.Sender`, whose arguments it takes and whose thread it uses: waiting for room is awaited."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._inner = _sender.Sender(*args, **options)

    async def send(self, *args: Any, **fields: Any) -> bool:
        """As `criticd.Sender.send`."""
        await self._room()
        return self._inner.send(*args, **fields)

    async def send_batch(self, *args: Any, **fields: Any) -> int:
        """As `criticd.Sender.send_batch`."""
        return await asyncio.to_thread(self._inner.send_batch, *args, **fields)

    async def send_trajectory(self, *args: Any, **fields: Any) -> int:
        """As `criticd.Sender.send_trajectory`."""
        return await asyncio.to_thread(self._inner.send_trajectory, *args, **fields)

    @property
    def counters(self) -> Counters:
        """A copy of the counters of the rows so far."""
        return self._inner.counters

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """As `criticd.Sender.refusals`."""
        return self._inner.refusals

    async def flush(self, timeout_s: float | None = None) -> bool:
        """As `criticd.Sender.flush`."""
        return await asyncio.to_thread(self._inner.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """As `criticd.Sender.close`."""
        await asyncio.to_thread(self._inner.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._inner.__exit__, kind, error, trace)

    async def _room(self) -> None:
        """Only if it must wait is a thread asked to: that costs more than sending."""
        if not self._inner.has_room():
            await asyncio.to_thread(self._inner.wait_for_room)
