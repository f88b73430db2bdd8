"""A fleet on Ray, on this machine: actors are killed, and every row counts once. Runs where Ray is installed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from criticd import CriticdError
from criticd.fleet import Fleet, Patience, Producer, RemoteError

pytestmark = [pytest.mark.nightly, pytest.mark.long]

CRITIC: dict[str, Any] = {"discount": 0.9, "dictionary_max": 25, "kernel": "isotropic", "lambda": 0.7}
QUICK = Patience(interval_s=0.2, start_s=300, rows_s=300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        # Ray keeps a file of its own there.
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        ray.init(num_cpus=4, log_to_driver=False, include_dashboard=False)
        yield ray
        ray.shutdown()


def rows(seed: int, count: int = 120) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    states = 0.3 * np.cumsum(draw.normal(0, 0.2, (count + 1, 2)), axis=0)
    rewards = -(states[1:] ** 2).sum(axis=1)
    truncated = np.arange(count) % 40 == 39
    return {"states": states[:-1], "rewards": rewards, "next_states": states[1:], "truncated": truncated}


def started(directory: Path, **more: Any) -> Fleet:
    import criticd.ray

    return criticd.ray.start(2, directory=directory, select_rows=None, patience=QUICK, **{**CRITIC, **more})


def test_actors_may_be_killed(tmp_path: Path, cluster: None) -> None:
    from criticd.ray import Actors

    streams = range(8)
    with started(tmp_path / "rows") as fleet:
        assert isinstance(fleet.parts, Actors)
        for stream in streams:
            fleet.learn(**rows(stream), stream=f"robot {stream}")
        fleet.select()
        for k, who in enumerate(("worker-0", "coordinator", "worker-1", "worker-0")):
            os.kill(fleet.parts.process(who), signal.SIGKILL)
            for stream in streams:
                fleet.learn(**rows(100 * k + 100 + stream), stream=f"robot {stream}")

        # Of this test, so that other processes need not know this file.
        def send(producer: Producer, columns: dict[str, Any]) -> int:
            return producer.learn(**columns, stream="of a task")

        ray = pytest.importorskip("ray")
        assert ray.get(ray.remote(send).remote(fleet.producer(), rows(99))) == 120
        fleet.move("robot 0", 0)
        fleet.move("robot 0", 1)
        model = fleet.merge()
        status = fleet.status()
        assert (status.rows, status.merged, status.lost) == (5 * 8 * 120 + 120, 5 * 8 * 120 + 120, 0)
        values = model([[0.0, 0.0], [0.3, -0.2]])
    # The same rows in processes of this machine, with the journals of the actors: the same model, bit for bit.
    with Fleet(2, tmp_path / "rows", select_rows=None, patience=QUICK, **CRITIC) as fleet:
        assert np.array_equal(fleet.merge()([[0.0, 0.0], [0.3, -0.2]]), values)


def test_a_fleet_that_is_closed_says_so_and_two_need_two_names(tmp_path: Path, cluster: None) -> None:
    fleet = started(tmp_path / "one")
    with pytest.raises(RemoteError, match=r"worker-0, start: .*name"):
        started(tmp_path / "two")
    fleet.learn(**rows(1), stream="robot 1")
    fleet.select()
    said: list[str] = []

    def ask() -> None:
        with pytest.raises(CriticdError) as error:
            while True:
                fleet.merge()
        said.append(str(error.value))

    asking = threading.Thread(target=ask)
    asking.start()
    fleet.close()
    asking.join()
    assert said == ["the fleet is closed"]


def test_a_cluster_without_room_says_so(tmp_path: Path, cluster: None) -> None:
    import criticd.ray

    with pytest.raises(RemoteError, match="worker-0, start"):
        criticd.ray.start(1, directory=tmp_path, actor={"num_cpus": 99}, patience=Patience(start_s=2), **CRITIC)
