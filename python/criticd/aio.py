"""The same for asyncio: `Client`, `Subscriber` and `Sender` whose waiting is awaited.

They belong to the event loop in which they are first used.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import zmq
import zmq.asyncio

from criticd import _labels
from criticd import client as _client
from criticd import sender as _sender
from criticd import subscriber as _subscriber
from criticd._act import Decisions, decisions_of
from criticd._act import request as act_request
from criticd._delivery import Counters
from criticd._evaluation import Evaluation, Policy
from criticd._evaluation import requests as evaluation_requests
from criticd._fork import stays
from criticd._protocol import Address, CriticdError, Hello, Message, NoReply, Refused, Unreachable, answer, pack
from criticd._refusals import Refusal
from criticd._status import Status, status_of
from criticd._values import checked
from criticd.client import Appended, HeadValues, ListedHead, Position, RefitOutcome, Suggestion, Value
from criticd.keys import Keys
from criticd.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Client", "Sender", "Subscriber"]


class Client:
    """As `criticd.Client`, but requests do not wait for each other: many may be open at a time."""

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

    async def ping(self) -> float:
        """Seconds since the daemon started."""
        return float((await self.request("ping"))["uptime_s"])

    async def hello(self) -> Hello:
        """Versions, features and limits of the daemon, and its critics."""
        return Hello.of(await self.request("hello"))

    async def status(self) -> Status:
        """Everything that the daemon knows about itself."""
        return status_of(await self.request("status"))

    async def streams(self, *names: str) -> dict[str, Position]:
        """As `criticd.Client.streams`."""
        pages = _client.position_pages(names)
        fields = next(pages)
        while True:
            reply = await self.request("streams", **fields)
            try:
                fields = pages.send(reply)
            except StopIteration as done:
                positions: dict[str, Position] = done.value
                return positions

    @overload
    async def value(
        self,
        states: npt.ArrayLike,
        *,
        variance: bool = False,
        returns: bool = False,
        known: bool = False,
        base: bool = False,
        critic: str | None = None,
        critics: None = None,
        min_offset: int | None = None,
        actions: npt.ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> Value: ...

    @overload
    async def value(
        self,
        states: npt.ArrayLike,
        *,
        variance: bool = False,
        returns: bool = False,
        known: bool = False,
        base: bool = False,
        critic: None = None,
        critics: Sequence[str],
        min_offset: int | None = None,
        actions: npt.ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Value]: ...

    async def value(
        self,
        states: npt.ArrayLike,
        *,
        variance: bool = False,
        returns: bool = False,
        known: bool = False,
        base: bool = False,
        critic: str | None = None,
        critics: Sequence[str] | None = None,
        min_offset: int | None = None,
        actions: npt.ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> Value | dict[str, Value]:
        """As `criticd.Client.value`."""
        fields = _client.query(
            states,
            variance,
            critic,
            min_offset,
            returns=returns,
            known=known,
            base=base,
            critics=critics,
            actions=actions,
        )
        reply = await self.request("value", timeout_s, **fields)
        return _client.value_of(reply) if critics is None else _client.values_of(reply, critics)

    async def act(
        self,
        states: npt.ArrayLike,
        exploration: str = "greedy",
        *,
        epsilon: float | None = None,
        temperature: float | None = None,
        beta: float | None = None,
        seed: int = 0,
        episode: npt.ArrayLike = 0,
        step: npt.ArrayLike | None = None,
        candidates: npt.ArrayLike | None = None,
        unknown_above: float | None = None,
        fallback: npt.ArrayLike | None = None,
        critic: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """As `criticd.Client.act`."""
        fields = act_request(
            states,
            exploration,
            epsilon=epsilon,
            temperature=temperature,
            beta=beta,
            seed=seed,
            episode=episode,
            step=step,
            candidates=candidates,
            unknown_above=unknown_above,
            fallback=fallback,
            critic=critic,
        )
        reply = await self.request("act", timeout_s, **fields)
        return decisions_of(reply, np.ndim(states) == 1)

    async def evaluate(
        self,
        policy: Policy | None = None,
        *,
        critic: str | None = None,
        rows: int | None = None,
        first: int | None = None,
        rho_max: float | None = None,
        ess_min: float | None = None,
        folds: int | None = None,
        seed: int = 0,
        timeout_s: float = 600.0,
    ) -> Evaluation:
        """As `criticd.Client.evaluate`. A policy that is a function is called in this thread."""
        options = _client.optional(rho_max=rho_max, ess_min=ess_min, folds=folds)
        steps = evaluation_requests(policy, rows, first, critic, {"seed": seed, **options})
        try:
            op, fields = next(steps)
            while True:
                op, fields = steps.send(await self.request(op, timeout_s, **fields))
        except StopIteration as done:
            found: Evaluation = done.value
            return found

    async def heads(
        self,
        states: npt.ArrayLike,
        names: Sequence[str] | None = None,
        *,
        variance: bool = True,
        returns: bool = False,
        critic: str | None = None,
        min_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> HeadValues:
        """As `criticd.Client.heads`."""
        fields = _client.head_query(states, names, variance, returns, critic, min_offset)
        return _client.head_values_of(await self.request("value", timeout_s, **fields))

    async def list_heads(self, critic: str | None = None) -> dict[str, ListedHead]:
        """As `criticd.Client.list_heads`."""
        pages = _client.head_pages(critic)
        fields = next(pages)
        while True:
            reply = await self.request("heads", **fields)
            try:
                fields = pages.send(reply)
            except StopIteration as done:
                heads: dict[str, ListedHead] = done.value
                return heads

    async def add_heads(self, heads: Sequence[Message], *, critic: str | None = None) -> int:
        """As `criticd.Client.add_heads`."""
        fields = _client.optional(critic=critic)
        return int((await self.request("change_heads", add=list(heads), **fields))["offset"])

    async def send_labels(
        self,
        name: str,
        values: npt.ArrayLike,
        *,
        offsets: npt.ArrayLike | None = None,
        stream: str | Sequence[str] | None = None,
        seq: npt.ArrayLike | None = None,
    ) -> int:
        """As `criticd.Client.send_labels`."""
        steps = _labels.requests(name, values, offsets, stream, seq)
        try:
            op, fields = next(steps)
            while True:
                op, fields = steps.send(await self._ask_again(op, fields))
        except StopIteration as done:
            return int(done.value)

    async def _ask_again(self, op: str, fields: Message) -> Message:
        """The reply to a request that the daemon puts off while changes of others wait to be stored."""
        for _ in range(_labels.ATTEMPTS):
            try:
                return await self.request(op, **fields)
            except Refused as error:
                if error.code != "overloaded":
                    raise
                await asyncio.sleep((error.retry_after_ms or 20) / 1000)
        return await self.request(op, **fields)

    async def remove_heads(self, *names: str, critic: str | None = None) -> int:
        """As `criticd.Client.remove_heads`."""
        fields = _client.optional(critic=critic)
        return int((await self.request("change_heads", remove=list(names), **fields))["offset"])

    async def suggest(
        self, context: npt.ArrayLike, *, advisor: str | None = None, timeout_s: float | None = None
    ) -> Suggestion:
        """As `criticd.Client.suggest`."""
        fields = _client.suggest_request(context, advisor)
        return _client.suggestion_of(await self.request("suggest", timeout_s, **fields))

    async def report(
        self, decision: int | Suggestion, cost: float, *, advisor: str | None = None, timeout_s: float | None = None
    ) -> int:
        """As `criticd.Client.report`."""
        fields = _client.report_request(decision, cost, advisor)
        return int((await self.request("report", timeout_s, **fields))["learned"])

    async def snapshot(self, critic: str | None = None, *, variance: bool = True, head: str | None = None) -> Snapshot:
        """As `criticd.Client.snapshot`."""
        if head is not None:
            of = _client.optional(critic=critic)
            return _client.head_model_of(await self.request("snapshot", variance=variance, head=head, **of), head)
        pages = _client.model_pages(critic, variance)
        fields = next(pages)
        while True:
            try:
                reply: Message | Refused = await self.request("snapshot", **fields)
            except Refused as refused:
                reply = refused
            try:
                fields = pages.send(reply)
            except StopIteration as done:
                model: Snapshot = done.value
                return model

    async def refit(
        self, critic: str | None = None, *, wait: bool = False, timeout_s: float | None = None
    ) -> RefitOutcome:
        """As `criticd.Client.refit`."""
        return _client.refit_outcome_of(
            await self.request("refit", timeout_s, wait=wait, **_client.optional(critic=critic))
        )

    async def rebuild(
        self, critic: str | None = None, *, wait: bool = False, timeout_s: float | None = None
    ) -> RefitOutcome:
        """As `criticd.Client.rebuild`."""
        return _client.refit_outcome_of(
            await self.request("rebuild", timeout_s, wait=wait, **_client.optional(critic=critic))
        )

    async def remove(
        self,
        select: Sequence[_client.Selector],
        *,
        dry_run: bool = True,
        by: str | None = None,
        reason: str | None = None,
        timeout_s: float | None = None,
    ) -> _client.Removal:
        """As `criticd.Client.remove`."""
        fields = _client.optional(by=by, reason=reason)
        selected = [dict(one) for one in select]
        return _client.removal_of(await self.request("remove", timeout_s, select=selected, dry_run=dry_run, **fields))

    async def new_policy(self, policy: str | None = None, *, critic: str | None = None) -> int:
        """As `criticd.Client.new_policy`."""
        return int((await self.request("new_policy", **_client.optional(policy=policy, critic=critic)))["offset"])

    async def checkpoint(self) -> int:
        """Make the daemon write a checkpoint: how many rows it covers."""
        return int((await self.request("checkpoint"))["offset"])

    async def append(self, *, timeout_s: float | None = None, **rows: Any) -> Appended:
        """As `criticd.Client.append`."""
        return _client.appended_of(await self.request("append", timeout_s, **checked(rows)))

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
