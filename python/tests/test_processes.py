"""A sender in other processes than the one that made it: each has a connection, a session and a stream of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from conftest import CALM, PATIENCE_S, Start
from gymnasium.vector import AsyncVectorEnv

from criticd import Client, CriticdError, Sender, Subscriber, aio
from criticd.gym import wrap

# From Python 3.12 on a fork beside threads warns; that it works all the same is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def send(sender: Sender, first: int, last: int) -> None:
    for row in range(first, last):
        sender.send([float(row)], 0.0, [row + 1.0])


def learned(client: Client, rows: int) -> dict[str, int]:
    """Rows of each stream, once the daemon has taken `rows` rows."""
    client.value([0.0], min_offset=rows, timeout_s=PATIENCE_S)
    return {name: position.rows for name, position in client.streams().items()}


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("reliable", [False, True], ids=["unreliable", "reliable"])
def test_a_sender_goes_with_a_process(start: Start, method: str, reliable: bool) -> None:
    daemon = start(*CALM)
    context: Any = multiprocessing.get_context(method)
    with daemon.sender(reliable=reliable, stream="robot") as sender, daemon.client() as client:
        # Some rows wait in the parent when it forks: they are sent once.
        send(sender, 0, 50)
        children = [context.Process(target=send, args=(sender, 0, 100 * (n + 1))) for n in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(PATIENCE_S)
            assert child.exitcode == 0
        send(sender, 50, 80)
        assert sender.flush(PATIENCE_S)
        assert learned(client, 380) == {"robot": 80, "robot/1": 100, "robot/2": 200}
        assert len({position.session for position in client.streams().values()}) == 3
        assert client.status()["rejected"] == {} and sender.counters.taken == 80


def test_a_client_is_used_on_both_sides_of_a_fork(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client:
        assert client.ping() > 0
        child = os.fork()
        if child == 0:
            os._exit(0 if client.hello().critics == ("default",) else 1)
        # Both ask at once; neither gets what the other is owed.
        assert all(client.ping() > 0 for _ in range(50))
        assert os.waitpid(child, 0)[1] == 0


ASKED: dict[str, Callable[[Subscriber], object]] = {
    "wait": lambda critic: critic.wait(5),
    "latest": lambda critic: critic.latest,
    "received": lambda critic: critic.received,
    "updates": lambda critic: next(critic.updates(5)),
    "listen": lambda critic: critic.listen(lambda: None),
    "on_change": lambda critic: critic.on_change(print),
    "on_alarm": lambda critic: critic.on_alarm(print),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_subscriber_says_in_a_forked_process_that_it_hears_nothing(start: Start, asked: str) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True) as sender, daemon.subscriber() as critic:
        send(sender, 0, 100)
        critic.wait(PATIENCE_S)
        child = os.fork()
        if child == 0:
            try:
                ASKED[asked](critic)
            except CriticdError as error:
                os._exit(0 if "another process" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert critic.latest is not None


def test_what_stays_in_its_process_says_what_to_do(start: Start) -> None:
    daemon = start(*CALM)
    with daemon.client() as client, daemon.subscriber() as critic:
        for thing in (client, critic, aio.Client(daemon.endpoints.control)):
            kind = type(thing).__name__
            with pytest.raises(CriticdError, match=f"a {kind} stays .* make a {kind} there"):
                multiprocessing.get_context("spawn").Process(target=print, args=(thing,)).start()
        with pytest.raises(CriticdError, match="give the other one endpoints or data_dir"):
            multiprocessing.get_context("spawn").Process(target=print, args=(daemon,)).start()
        assert client.ping() > 0


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_asynchronous_vector_environments(start: Start, context: str) -> None:
    daemon = start(*CALM)
    # Its copies send what is left when they are closed, for so long.
    with daemon.sender(reliable=True, timeout_s=PATIENCE_S) as sender, daemon.client() as client:

        def make() -> gymnasium.Env[Any, Any]:
            return wrap(gymnasium.make("Pendulum-v1", max_episode_steps=50), sender)

        with warnings.catch_warnings():
            # Numbers of another precision than the space's: not what this is about.
            warnings.simplefilter("ignore", UserWarning)
            envs = AsyncVectorEnv([make, make], context=context)
        envs.reset(seed=0)
        # Each copy is reset in 5 of these steps, in which nothing happens that could be learned.
        for _ in range(300):
            envs.step(envs.action_space.sample())
        envs.close()
        found = client.streams()
    assert len(found) == 2 and all(name.startswith("default/") for name in found)
    assert [position.rows for position in found.values()] == [295, 295]


def test_what_cannot_be_in_two_processes_says_so(start: Start, tmp_path: Path) -> None:
    daemon = start(*CALM)
    with daemon.sender(reliable=True, spool=tmp_path / "rows.spool") as sender:
        with pytest.raises(CriticdError, match="two processes"):
            pickle.dumps(sender)
        child = os.fork()
        if child == 0:
            try:
                send(sender, 0, 1)
            except CriticdError as error:
                os._exit(0 if "make a sender there" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        # The parent's goes on.
        send(sender, 0, 10)
        assert sender.flush(PATIENCE_S)
    with daemon.sender(reliable=True, session="run", resume=True) as sender, pytest.raises(CriticdError, match="two"):
        pickle.dumps(sender)
