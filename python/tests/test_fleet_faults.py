"""Parts of a fleet that fail in ways of their own, and fleets that are closed while others ask."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, when
from test_fleet import CRITIC, STATES, Local, local, part, rows, taught

from criticd import CriticdError
from criticd._fleet_journal import Journal, own
from criticd._fleet_links import COORDINATOR, worker_name
from criticd._fleet_pool import stable_hash
from criticd.fleet import Coordinator, Patience, RemoteError, Worker

QUICK = Patience(interval_s=0.01, epoch_s=PATIENCE_S, rows_s=PATIENCE_S)


def coordinator_of(parts: Local) -> Coordinator:
    coordinator = parts.parts[COORDINATOR]
    assert isinstance(coordinator, Coordinator)
    return coordinator


def worker_of(parts: Local, number: int) -> Worker:
    worker = parts.parts[worker_name(number)]
    assert isinstance(worker, Worker)
    return worker


class OddLink:
    """A way to a part that fails as no way should."""

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        raise TypeError("an odd answer")


def fails() -> None:
    raise KeyError("odd")


def test_a_round_goes_on_when_a_part_of_it_fails(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path, select_rows=10**6)
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        taught(fleet, count=120, since=60)
        coordinator = coordinator_of(parts)
        link, coordinator._links[0] = coordinator._links[0], OddLink()
        fleet._asked("round")
        status = fleet.status()
        assert status.workers[0].fault == "TypeError: an odd answer"
        assert (status.workers[1].lag, status.workers[1].fault) == (0, None)
        coordinator._links[0] = link
        # A model that cannot be made keeps neither a selection from coming nor a stream on its way.
        name = next(f"robot {k}" for k in range(12) if stable_hash(f"robot {k}") % 2 == 0)
        coordinator._moves[name] = {"from": 0, "to": 1, "lost": False, "since": 0.0}
        coordinator._serve, coordinator._next_selection = fails, 12 * 120  # type: ignore[method-assign]
        with pytest.raises(RemoteError, match="coordinator, round: KeyError"):
            fleet._asked("round")
        assert coordinator._selecting is not None or coordinator._coming
        assert not coordinator._moves
        assert fleet.status().moved == {name: 1}


def test_rounds_go_on_behind_one_that_fails(tmp_path: Path) -> None:
    fleet, parts = local(1, tmp_path, patience=QUICK)
    with fleet:
        coordinator = coordinator_of(parts)
        serve = coordinator._serve
        coordinator._serve = fails  # type: ignore[method-assign]
        coordinator.start()
        when(lambda: coordinator._rounds_begun > 3, "further rounds")
        assert "KeyError" in str(fleet.status().fault)
        coordinator._serve = serve  # type: ignore[method-assign]
        when(lambda: fleet.status().fault is None, "a round without a fault")


def test_whoever_waits_for_a_fleet_that_is_closed_hears_of_it(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    taught(fleet, 12, 40)
    fleet.select()
    number = next(k for k in range(12) if stable_hash(f"robot {k}") % 2 == 1)
    name, columns, producer = f"robot {number}", part(rows(number), 40, 60), fleet.producer()
    parts.end("worker-1")
    asks: dict[str, Callable[[], Any]] = {
        "learn": lambda: fleet.learn(**columns, stream=name),
        "learn of another": lambda: producer.learn(**columns, stream=name),
        "merge": fleet.merge,
        "move": lambda: fleet.move(name, 0),
    }
    said: dict[str, str] = {}

    def ask(what: str) -> None:
        with pytest.raises(CriticdError) as error:
            asks[what]()
        said[what] = str(error.value)

    threads = [threading.Thread(target=ask, args=(what,), daemon=True) for what in asks]
    for thread in threads:
        thread.start()
    when(lambda: coordinator_of(parts)._rounds_begun > 5, "all to wait")
    fleet.close()
    fleet.close()
    for thread in threads:
        thread.join(PATIENCE_S / 2)
    assert said == dict.fromkeys(asks, "the fleet is closed")
    for later in (fleet.status, fleet.snapshot, fleet.select, lambda: fleet(STATES), asks["learn"]):
        with pytest.raises(CriticdError, match="the fleet is closed"):
            later()


def test_a_part_that_is_closed_writes_nothing_more(tmp_path: Path) -> None:
    fleet, parts = local(1, tmp_path)
    with fleet:
        taught(fleet, 4, 40)
        fleet.select()
        worker, coordinator = worker_of(parts, 0), coordinator_of(parts)
        goes_on, epoch = threading.Event(), coordinator._epochs[1][0]

        def selected() -> tuple[bytes, int]:
            goes_on.wait(PATIENCE_S)
            return epoch, 0

        coordinator._selected = selected  # type: ignore[method-assign]
        fleet.select(wait=False)
        selecting = coordinator._selecting
        assert selecting is not None
        parts.end(COORDINATOR)
        state = (tmp_path / COORDINATOR / "coordinator.state").read_bytes()
        goes_on.set()
        selecting.join()
        assert (tmp_path / COORDINATOR / "coordinator.state").read_bytes() == state
        for asked in (coordinator.round, lambda: coordinator.call("status", {})):
            with pytest.raises(CriticdError, match="the coordinator is closed"):
                asked()
        parts.end("worker-0")
        # Others may have files with the number of the one that was closed.
        (tmp_path / "other").write_bytes(b"")
        other = os.open(tmp_path / "other", os.O_RDWR)
        with pytest.raises(CriticdError, match="the worker is closed"):
            worker.call("append", {"stream": "robot 0", "seq": 40, "columns": part(rows(0), 40, 60)})
        os.close(other)
        assert (tmp_path / "other").read_bytes() == b""
        parts.start("worker-0")
        parts.start(COORDINATOR)
        assert fleet.merge().offset == 4 * 40


def test_a_worker_that_was_away_at_a_switch_ends_the_epoch_before(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path, patience=Patience(interval_s=3600, epoch_s=0.3, rows_s=PATIENCE_S))
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        fleet.merge()
        coordinator, away = coordinator_of(parts), worker_of(parts, 1)
        generation = coordinator._present
        fleet.select(wait=False)
        when(lambda: coordinator._coming > generation, "an epoch")
        coordinator.round()
        assert set(away._learned) == {generation, generation + 1}
        # As behind a line that is cut: it runs, and nobody hears of it.
        del parts.parts["worker-1"]

        def begun() -> bool:
            coordinator.round()
            return fleet.status().generation > generation

        when(begun, "the epoch to begin")
        parts.parts["worker-1"] = away
        assert fleet.merge().offset == 12 * 60
        assert set(away._learned) == set(away._epochs) == {generation + 1}


def test_a_journal_that_another_takes_the_place_of_is_not_owned(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append({"stream": "a"})
    # Whoever starts there meanwhile has opened the file of before.
    before = os.open(journal.path, os.O_RDWR)
    journal.rewrite(iter([{"stream": "b"}]))
    with pytest.raises(CriticdError, match="in use by another fleet"):
        own(before, journal.path)
    journal.append({"stream": "c"})
    journal.path.unlink()
    with pytest.raises(FileNotFoundError, match="deleted or replaced"):
        journal.append({"stream": "d"})
    journal.close()


def test_rows_of_a_journal_that_was_deleted_are_not_acknowledged(tmp_path: Path) -> None:
    worker = Worker(0, 1, tmp_path, CRITIC)
    append = {"stream": "a", "seq": 0, "columns": part(rows(1), 0, 20)}
    assert worker.call("append", append)["next_seq"] == 20
    (tmp_path / "rows.journal").unlink()
    with pytest.raises(OSError, match="deleted or replaced"):
        worker.call("append", {**append, "seq": 20})
    # Its process ends then; a new one begins with what is there.
    assert worker.broken
    worker.close()
    again = Worker(0, 1, tmp_path, CRITIC)
    assert again.call("position", {"stream": "a"})["next_seq"] == 0
    again.close()


def test_the_page_of_a_fleet_shows_workers_lag_and_epoch(tmp_path: Path) -> None:
    def get(address: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    fleet, parts = local(2, tmp_path)
    with fleet:
        address = fleet.page()
        assert "no epoch yet" in get(address)[1]
        taught(fleet, count=60)
        fleet.select()
        taught(fleet, count=80, since=60)
        fleet.move("robot 3", 1 - stable_hash("robot 3") % 2)
        coordinator_of(parts)._links[1] = OddLink()
        fleet._asked("round")
        code, text = get(address)
        status = json.loads(get(f"{address}status")[1])
        assert code == 200
        assert status["workers"][0]["rows"] == fleet.status().workers[0].rows
        lag = fleet.status().workers[1].lag
        for words in ("Fleet of 2: epoch 1", f"<td>{lag}</td>", "worker-1", "TypeError: an odd answer", "robot 3 is"):
            assert words in text, text
        assert get(f"{address}else")[0] == 404
    with pytest.raises(urllib.error.URLError):
        get(address)
    with pytest.raises(CriticdError, match="the fleet is closed"):
        fleet.page()
