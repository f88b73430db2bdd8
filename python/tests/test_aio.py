"""The same for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, Puppet, Start

from criticd import Client, CriticdError, Full, NoReply, Refused, Unreachable, aio

WALK = np.random.default_rng(0).standard_normal((2001, 2))
Make = Callable[[Callable[[dict[str, Any]], dict[str, Any] | None]], Puppet]


def test_send_follow_and_ask(start: Start) -> None:
    daemon = start(*CALM)
    ends = daemon.endpoints

    async def main() -> None:
        async with (
            aio.Client(ends.control) as client,
            aio.Subscriber(ends.publish, ends.control) as subscriber,
            aio.Sender(ends.control, reliable=True, queue_rows=50) as sender,
        ):
            assert (await client.hello()).critics == ("default",) and await client.ping() > 0
            seen: list[int] = []

            async def follow() -> None:
                async for snapshot in subscriber.updates():
                    seen.append(snapshot.offset)

            following = asyncio.create_task(follow())
            for row in range(500):
                # There is room for 50 only: it has to wait, and others go on meanwhile.
                assert await sender.send(WALK[row], WALK[row, 0], WALK[row + 1])
            assert await sender.send_trajectory(WALK[500:1001], WALK[500:1000, 0]) == 500
            assert await sender.send_batch(WALK[1000:1999], WALK[1000:1999, 0], WALK[1001:2000]) == 999
            assert await sender.flush(PATIENCE_S)
            assert sender.counters.acknowledged == 1999
            assert (await client.streams())["default"].rows == 1999
            snapshot = await subscriber.wait(PATIENCE_S, offset=1999)
            assert subscriber.latest is snapshot
            asked = [client.value(WALK[row], std=True, min_offset=1999) for row in range(100)]
            answers = await asyncio.gather(*asked)
            means = [answer.mean[0] for answer in answers]
            np.testing.assert_allclose(snapshot(WALK[:100]), means, rtol=1e-9, atol=1e-9)
            assert (await client.snapshot()).offset == 1999
            assert (await client.refit(wait=True, timeout_s=5 * PATIENCE_S)).outcome in ("adopted", "rejected")
            status = await client.status()
            assert status["offset"] == 1999
            if status["durable"]:
                assert (await client.rebuild(wait=True, timeout_s=5 * PATIENCE_S)).outcome == "adopted"
                assert (await client.remove([{"stream": "nobody"}])).rows == 0
            done = await client.append(stream="x", seq=0, states=WALK[:11], rewards=WALK[:10, 0])
            assert done.accepted == 10
            following.cancel()
            assert seen and seen == sorted(seen)

    asyncio.run(main())


def test_every_method_of_the_client_is_there_to_be_awaited() -> None:
    methods = {name for name, of in vars(Client).items() if inspect.isfunction(of) and not name.startswith("_")}
    awaited = {name for name, of in vars(aio.Client).items() if inspect.iscoroutinefunction(of)}
    assert methods - {"optimise"} <= awaited


def test_requests_overtake_each_other(puppet: Make) -> None:
    held: list[dict[str, Any]] = []

    def reply(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["op"] == "refit":
            held.append(request)
            return None
        if request["op"] == "checkpoint":
            return {"id": held[0]["id"], "outcome": "adopted", "generation": 7}
        return {"uptime_s": 1.0}

    made = puppet(reply)

    async def main() -> None:
        async with aio.Client(made.endpoint) as client:
            waiting = asyncio.create_task(client.refit(wait=True))
            while not held:
                assert await client.ping() == 1.0
            with pytest.raises(NoReply):
                await client.request("checkpoint", timeout_s=0.3)
            assert (await waiting).generation == 7

    asyncio.run(main())


def test_errors(puppet: Make) -> None:
    made = puppet(lambda request: {"error": {"code": "not_ready", "message": "soon"}})
    silent = puppet(lambda request: None)

    async def main() -> None:
        async with aio.Client("tcp://127.0.0.1:1", timeout_s=0.1) as nobody:
            with pytest.raises(Unreachable, match="criticd serve"):
                await nobody.ping()
        async with aio.Client(made.endpoint) as client:
            with pytest.raises(Refused, match="soon"):
                await client.snapshot()
        client = aio.Client(silent.endpoint)
        asked = asyncio.create_task(client.ping())
        while not silent.requests:
            await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(CriticdError, match="closed"):
            await asked
        async with aio.Subscriber("tcp://127.0.0.1:1", "tcp://127.0.0.1:1", critic="x") as subscriber:
            with pytest.raises(Unreachable, match="criticd serve"):
                await subscriber.wait(0.1)
        full = aio.Sender("tcp://127.0.0.1:1", reliable=True, queue_rows=1, timeout_s=0.2)
        await full.send([0.0], 0.0, [0.0])
        with pytest.raises(Full):
            await full.send([0.0], 0.0, [0.0])
        await full.close(0.0)

    asyncio.run(main())


def test_a_client_outlives_the_daemon(start: Start) -> None:
    daemon = start()

    async def main() -> None:
        async with aio.Client(data_dir=daemon.data_dir, timeout_s=PATIENCE_S) as client:
            assert await client.ping() >= 0
            await asyncio.to_thread(daemon.restart)
            assert await client.ping() >= 0

    asyncio.run(main())


def test_a_closed_subscriber_ends_its_updates(start: Start) -> None:
    daemon = start(*CALM)

    async def main() -> list[int]:
        subscriber = aio.Subscriber(daemon.endpoints.publish, daemon.endpoints.control)
        seen = []

        async def follow() -> None:
            async for snapshot in subscriber.updates():
                seen.append(snapshot.offset)

        following = asyncio.create_task(follow())
        async with aio.Client(daemon.endpoints.control) as client:
            await client.append(seq=0, states=WALK[:301], rewards=WALK[:300, 0])
        await subscriber.wait(PATIENCE_S, offset=300)
        # What has come when it is closed is not told any more.
        while not seen:
            await asyncio.sleep(0.01)
        await subscriber.close()
        await asyncio.wait_for(following, PATIENCE_S)
        return seen

    assert asyncio.run(main())[-1] == 300
