"""Workers and a coordinator: together they are one learner of all rows, whatever happens to them."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE_S, when

from criticd import CriticdError, Invalid, Malformed, Refused, Snapshot, _learner, merge
from criticd._fleet_journal import Journal
from criticd._fleet_links import COORDINATOR, Direct, Link, Remote, carried_out, request, worker_name
from criticd._fleet_pool import PIECE_ROWS, Pool, drawn, stable_hash
from criticd._fleet_worker import COLUMNS, settings_of_workers
from criticd._protocol import unpack
from criticd.fleet import Coordinator, Fleet, Patience, Processes, RemoteError, Worker
from criticd.testing import binary

CRITIC: dict[str, Any] = {
    "discount": 0.9,
    "dictionary_max": 25,
    "lambda": 0.7,
    "kernel": "isotropic",
    "linear_columns": "never",
    "seed": 3,
}
STATES = np.linspace(-1.0, 1.0, 9)[:, None] * [1.0, -0.5]
NO_HURRY = Patience(interval_s=3600, epoch_s=PATIENCE_S, rows_s=PATIENCE_S)
QUICK = Patience(interval_s=0.1, epoch_s=PATIENCE_S, rows_s=PATIENCE_S, call_s=PATIENCE_S, start_s=PATIENCE_S)
LENGTH = 1200
KILLS = int(os.environ.get("CRITICD_KILLS", "50"))


@functools.cache
def life(stream: int) -> dict[str, Any]:
    """All rows of one robot, which depend on nothing but its number: episodes of 40, every other one cut."""
    generator = np.random.default_rng(stream)
    states, following = np.empty((LENGTH, 2)), np.empty((LENGTH, 2))
    for i in range(LENGTH):
        if i % 40 == 0:
            state = generator.normal(0, 0.5, 2)
        states[i] = state
        state = 0.9 * state + generator.normal(0, 0.2, 2)
        following[i] = state
    ends = np.arange(LENGTH) % 40 == 39
    terminated = ends & (np.arange(LENGTH) % 80 == 39)
    rewards = -(following**2).sum(axis=1) + generator.normal(0, 0.05, LENGTH)
    found = {"states": states, "rewards": rewards, "next_states": following}
    return {**found, "terminated": terminated, "truncated": ends & ~terminated}


def rows(stream: int, count: int = 120) -> dict[str, Any]:
    """The first rows of a robot."""
    return part(life(stream), 0, count)


def part(columns: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
    return {key: column[first:last] for key, column in columns.items()}


class Local:
    """Parts in this process, which a test ends and starts as it likes."""

    def __init__(self, options: Mapping[str, Any], patience: Patience) -> None:
        self.options, self.patience = options, patience
        self.parts: dict[str, Worker | Coordinator] = {}

    def link(self, who: str) -> Link:
        return LocalLink(self, who)

    def start(self, who: str) -> None:
        directory = Path(self.options["directory"]) / who
        pool_rows, settings = self.options["pool_rows"], self.options["settings"]
        if who == COORDINATOR:
            links = [self.link(worker_name(k)) for k in range(self.options["workers"])]
            select_rows = self.options["select_rows"]
            self.parts[who] = Coordinator(
                links, directory, settings, pool_rows=pool_rows, select_rows=select_rows, patience=self.patience
            )
        else:
            number = int(who.rpartition("-")[2])
            worker = Worker(number, self.options["workers"], directory, settings, pool_rows=pool_rows)
            worker.start()
            self.parts[who] = worker

    def lives(self, who: str) -> bool:
        return True

    def end(self, who: str) -> None:
        self.parts.pop(who).close()

    def stop(self) -> None:
        for who in list(self.parts):
            self.end(who)


class LocalLink:
    def __init__(self, parts: Local, who: str) -> None:
        self.parts, self.who = parts, who

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        if self.who not in self.parts.parts:
            raise RemoteError(self.who, op, "gives no answer", away=True)
        return Direct(self.who, self.parts.parts[self.who]).call(op, **arguments)


def local(workers: int, directory: Path, **more: Any) -> tuple[Fleet, Local]:
    """A fleet in this process, that does nothing by itself."""
    options = {"select_rows": None, "patience": NO_HURRY, **CRITIC, **more}
    fleet = Fleet(workers, directory, parts=Local, **options)
    assert isinstance(fleet.parts, Local)
    return fleet, fleet.parts


def taught(fleet: Fleet, streams: int = 12, count: int = 120, since: int = 0) -> None:
    """Send rows `since` to `count` of each stream."""
    for first in range(since, count, 50):
        for stream in range(streams):
            fleet.learn(**part(rows(stream, count), first, first + 50), stream=f"robot {stream}")


def reference(fleet: Fleet, parts: Local, streams: int = 12, count: int = 120) -> Snapshot:
    """One learner of all rows in the epoch of a fleet."""
    coordinator = parts.parts[COORDINATOR]
    assert isinstance(coordinator, Coordinator)
    return one_learner(coordinator._epochs[coordinator._present][0], streams, count)


def one_learner(epoch: bytes, streams: int, count: int) -> Snapshot:
    critic = _learner.Critic(settings_of_workers(CRITIC))
    critic.begin(epoch, 2)
    for stream in range(streams):
        columns = {**dict.fromkeys(COLUMNS), **rows(stream, count)}
        critic.learn(f"robot {stream}", False, columns)
    return Snapshot.of(unpack(critic.snapshot(True)))


@pytest.mark.long
def test_workers_are_together_one_learner_of_all_rows(tmp_path: Path) -> None:
    found = {}
    for workers in (1, 2, 4, 8):
        fleet, parts = local(workers, tmp_path / str(workers))
        with fleet:
            taught(fleet)
            status = fleet.select()
            assert (status.generation, status.rows, status.lost) == (1, 12 * 120, 0)
            model = fleet.merge()
            assert model.offset == 12 * 120
            expected = reference(fleet, parts)(STATES)
            assert np.abs(model(STATES) - expected).max() < 1e-9
            found[workers] = (fleet.status().epoch, model)
    # What is selected does not depend on how streams are spread.
    assert len({epoch for epoch, _ in found.values()}) == 1
    for _, model in found.values():
        assert np.abs(model.weights - found[1][1].weights).max() < 1e-9 * np.abs(model.weights).max()
    # A worker alone does not know it all.
    some = found[8][1](STATES)
    fleet, _ = local(1, tmp_path / "one")
    with fleet:
        taught(fleet, 3)
        fleet.select()
        assert np.abs(fleet(STATES) - some).max() > 1e-3


def test_the_same_messages_give_the_same_bits_in_any_order(tmp_path: Path) -> None:
    fleet, parts = local(3, tmp_path)
    with fleet:
        taught(fleet, count=50)
        fleet.select()
        coordinator = parts.parts[COORDINATOR]
        assert isinstance(coordinator, Coordinator)
        epoch = coordinator._epochs[1][0]
        messages = []
        for more in range(2):
            if more:
                taught(fleet, count=120, since=50)
            for number in range(3):
                said = parts.link(worker_name(number)).call("message", generations=[1], have={})
                messages.append(said["messages"]["1"]["message"])
    expected = None
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 31):
        gathered = _learner.Gathered(epoch)
        # Each comes twice, and earlier ones also late.
        for k in [*order, *order]:
            gathered.take(messages[k])
        bits = gathered.snapshot(2, 1, 0.0, True)
        assert expected is None or bits == expected
        expected = bits
        assert _learner.Gathered.read(gathered.written()).snapshot(2, 1, 0.0, True) == bits
    other = _learner.Gathered(epoch)
    verdicts = [other.take(message)[0] for message in (messages[3], messages[0], messages[3])]
    assert verdicts == ["accepted", "not newer", "not newer"]
    with pytest.raises(Invalid, match="message"):
        other.take(messages[1][:-1])


def test_messages_of_another_epoch_are_dropped(tmp_path: Path) -> None:
    fleet, parts = local(1, tmp_path)
    with fleet:
        taught(fleet, 4)
        fleet.select()
        taught(fleet, 8)
        worker, coordinator = parts.parts["worker-0"], parts.parts[COORDINATOR]
        assert isinstance(coordinator, Coordinator)
        old = worker.call("message", {"generations": [1], "have": {}})["messages"]["1"]["message"]
        fleet.select()
        assert coordinator._epochs[2][1].take(old)[0] == "wrong epoch"


def test_rows_are_counted_once(tmp_path: Path) -> None:
    worker = Worker(0, 1, tmp_path, CRITIC)
    columns = rows(1)

    def append(first: int, last: int) -> dict[str, Any]:
        return worker.call("append", {"stream": "a", "seq": first, "columns": part(columns, first, last)})

    assert append(0, 50) == {"next_seq": 50, "duplicates": 0}
    assert append(0, 50) == {"next_seq": 50, "duplicates": 50}
    assert append(30, 80) == {"next_seq": 80, "duplicates": 20}
    with pytest.raises(Refused) as refused:
        append(90, 100)
    assert (refused.value.code, refused.value.expected_seq) == ("sequence_gap", 80)
    # What is wrong is refused before it is in the journal.
    bad = part(columns, 80, 90)
    bad["rewards"] = np.full(10, np.nan)
    with pytest.raises(Invalid, match="rewards"):
        worker.call("append", {"stream": "a", "seq": 80, "columns": bad})
    wide = {**part(columns, 80, 90), "states": np.zeros((10, 3)), "next_states": np.zeros((10, 3))}
    with pytest.raises(Invalid, match="states"):
        worker.call("append", {"stream": "a", "seq": 80, "columns": wide})
    assert worker.call("message", {"generations": [], "have": {}})["rows"] == 80
    worker.close()
    again = Worker(0, 1, tmp_path, CRITIC)
    assert again.call("position", {"stream": "a"}) == {"next_seq": 80, "moved": False}
    again.close()


def test_a_record_that_was_not_finished_is_cut_off_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert list(journal.recover()) == []
    for k in range(5):
        journal.append({"stream": "a", "seq": k, "columns": {"x": np.full(3, k)}})
    journal.close()
    path = tmp_path / "rows.journal"
    whole = path.read_bytes()
    size = (len(whole) - 16) // 5
    for length in range(len(whole) - size, len(whole)):
        path.write_bytes(whole[:length])
        journal = Journal(tmp_path)
        assert [record["seq"] for record in journal.recover()] == [0, 1, 2, 3]
        assert path.stat().st_size == len(whole) - size
        journal.append({"stream": "a", "seq": 9, "columns": {}})
        assert [record["seq"] for _, record in journal.read(journal.start)] == [0, 1, 2, 3, 9]
        journal.close()
    for place in range(16, len(whole) - size, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        journal = Journal(tmp_path)
        with pytest.raises(Malformed, match="restore it"):
            list(journal.recover())
        journal.close()
    path.write_bytes(whole)
    journal = Journal(tmp_path)
    with pytest.raises(CriticdError, match="in use by another fleet"):
        Journal(tmp_path)
    journal.close()
    path.write_bytes(b"some other file, longer than a header")
    with pytest.raises(Malformed, match="directory of its own"):
        Journal(tmp_path)


def test_a_worker_goes_on_from_its_journal(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        before = fleet.merge()(STATES)
        parts.end("worker-1")
        # Its last message stays while it is away.
        assert np.array_equal(fleet.merge(wait=False)(STATES), before)
        assert "gives no answer" in str(fleet.status().workers[1].fault)
        parts.start("worker-1")
        taught(fleet, count=120, since=60)
        model = fleet.merge()
        assert np.abs(model(STATES) - reference(fleet, parts)(STATES)).max() < 1e-9
        assert [each.incarnation for each in fleet.status().workers] == [0, 0]


def test_rows_of_a_journal_that_is_lost_are_counted(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        fleet.merge()
        lost = fleet.status().workers[1].rows
        parts.end("worker-1")
        shutil.rmtree(tmp_path / "worker-1")
        parts.start("worker-1")
        fleet.merge()
        status = fleet.status()
        assert (status.lost, status.workers[1].incarnation, status.rows) == (lost, 1, 12 * 60 - lost)
        assert status.merged == status.rows
        assert f"{lost} rows lost" in str(status)
        # Its streams go on, although the rows before are gone.
        taught_on = 0
        for stream in range(12):
            taught_on += 60
            fleet.learn(**part(rows(stream), 60, 120), stream=f"robot {stream}")
        fleet.merge()
        assert fleet.status().merged == 12 * 60 - lost + taught_on


def test_a_coordinator_goes_on_where_it_was(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        first = fleet.merge()
        parts.end(COORDINATOR)
        assert fleet.snapshot() is first
        taught(fleet, count=120, since=60)
        parts.start(COORDINATOR)
        model = fleet.merge()
        assert model.offset == 12 * 120
        assert model.generation == first.generation
        assert model.revision > first.revision
        assert np.abs(model(STATES) - reference(fleet, parts)(STATES)).max() < 1e-9
    with pytest.raises(CriticdError, match="fleet of 2 workers, not 3"):
        local(3, tmp_path)


def without(streams: int, gone: Mapping[int, tuple[int, int]], epoch: bytes, count: int = 120) -> Snapshot:
    """One learner of all rows of the robots but the ones with these numbers."""
    critic = _learner.Critic(settings_of_workers(CRITIC))
    critic.begin(epoch, 2)
    for stream in range(streams):
        first, end = gone.get(stream, (count, count))
        for columns in (part(rows(stream, count), 0, first), part(rows(stream, count), end, count)):
            if len(columns["rewards"]):
                columns["truncated"] = columns["truncated"].copy()
                columns["truncated"][-1] |= not columns["terminated"][-1]
                critic.learn(f"robot {stream}", False, {**dict.fromkeys(COLUMNS), **columns})
    return Snapshot.of(unpack(critic.snapshot(True)))


@pytest.mark.long
def test_rows_that_were_taken_back_were_never_learned(tmp_path: Path) -> None:
    fleet, parts = local(3, tmp_path / "all")
    other, _ = local(3, tmp_path / "never")
    with fleet, other:
        # Some of a robot's rows are with another worker than the rest, and a removal begins within a chain.
        taught(fleet, count=50)
        fleet.move("robot 3", (stable_hash("robot 3") + 1) % 3)
        taught(fleet, since=50)
        fleet.select()
        before = fleet.merge()(STATES)
        coordinator = parts.parts[COORDINATOR]
        assert isinstance(coordinator, Coordinator)
        epoch = coordinator._epochs[coordinator._present][0]
        assert fleet.remove("robot 3", wait=False) == 120
        assert fleet.remove("robot 5", (10, 64), wait=False) == 54
        gone = {3: (0, 120), 5: (10, 64)}
        model = fleet.merge()
        assert model.offset == fleet.status().rows == 12 * 120 - 174
        assert np.abs(model(STATES) - without(12, gone, epoch)(STATES)).max() < 1e-9
        assert np.abs(model(STATES) - before).max() > 1e-6
        # Twice takes nothing more, and what comes again is known.
        assert fleet.remove("robot 5", (20, 64), wait=False) == 0
        home = worker_name(stable_hash("robot 5") % 3)
        columns = part(rows(5), 10, 30)
        assert parts.link(home).call("append", stream="robot 5", seq=10, columns=columns)["duplicates"] == 20
        # A worker that starts again knows it, and rows that follow are learned.
        for name in map(worker_name, range(3)):
            parts.end(name)
            parts.start(name)
        fleet.learn(**part(rows(5, 160), 120, 160), stream="robot 5")
        assert fleet.merge().offset == 12 * 120 - 174 + 40
        assert fleet.remove("robot 5", (120, 160), wait=False) == 40
        gone_too = without(12, gone, epoch)(STATES)
        assert np.abs(fleet.merge()(STATES) - gone_too).max() < 1e-9
        with pytest.raises(Invalid, match="ascending"):
            fleet.remove("robot 5", (3, 3))

        # What is selected then is what a fleet selects that never had them, also where a selection had begun before.
        fleet.select(wait=False)
        fleet.remove("robot 5")
        assert not fleet.status().owes
        for first in (0, 50, 100):
            for stream in set(range(12)) - {3, 5}:
                other.learn(**part(rows(stream), first, first + 50), stream=f"robot {stream}")
        other.select()
        assert fleet.status().epoch == other.status().epoch != 0
        assert np.abs(fleet.merge()(STATES) - other.merge()(STATES)).max() < 1e-9


def test_a_stream_moves_at_the_end_of_its_chain(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    with fleet:
        taught(fleet, count=40)
        name = "robot 3"
        home = stable_hash(name) % 2
        fleet.move(name, 1 - home)
        fleet.learn(**part(rows(3), 40, 120), stream=name)
        # Another producer finds it, too; the worker of before sends it on.
        position = parts.link(worker_name(1 - home)).call("position", stream=name)
        assert position == {"next_seq": 120, "moved": False}
        assert fleet.producer()._position(name) == (1 - home, 120)
        assert fleet.status().moved == {name: 1 - home}
        for stream in set(range(12)) - {3}:
            fleet.learn(**part(rows(stream), 40, 120), stream=f"robot {stream}")
        fleet.select()
        # At the end of a chain nothing is cut, so that this is one learner of all rows.
        assert np.abs(fleet.merge()(STATES) - reference(fleet, parts)(STATES)).max() < 1e-9
        with pytest.raises(Refused, match="no worker 7"):
            fleet.move(name, 7)


def test_a_move_goes_on_after_any_of_its_steps(tmp_path: Path) -> None:
    for step in range(4):
        fleet, parts = local(2, tmp_path / str(step))
        with fleet:
            taught(fleet, 4, 40)
            name = "robot 1"
            home = stable_hash(name) % 2
            coordinator = parts.parts[COORDINATOR]
            assert isinstance(coordinator, Coordinator)
            # As far as a coordinator gets that then dies.
            coordinator._moves[name] = {"from": home, "to": 1 - home, "lost": False, "since": 0.0}
            coordinator._keep()
            if step > 0:
                parts.link(worker_name(home)).call("release", stream=name, at_end=False)
            if step > 1:
                parts.link(worker_name(1 - home)).call("receive", stream=name, next_seq=40)
            parts.end(COORDINATOR)
            if step > 2:
                for worker in ("worker-0", "worker-1"):
                    parts.end(worker)
                    parts.start(worker)
            parts.start(COORDINATOR)
            fleet.merge(wait=False) if fleet.status().generation else fleet._asked("round")
            fleet.learn(**part(rows(1), 40, 120), stream=name)
            where = [parts.link(worker_name(k)).call("position", stream=name) for k in range(2)]
            assert where[home]["moved"]
            assert where[1 - home] == {"next_seq": 120, "moved": False}
            fleet._asked("round")
            assert fleet.status().rows == 4 * 40 + 80


def test_streams_of_a_worker_that_will_not_come_back_go_on_elsewhere(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        fleet.merge()
        name = next(f"robot {k}" for k in range(12) if stable_hash(f"robot {k}") % 2 == 1)
        number = int(name.split()[1])
        # These the coordinator has not heard of.
        fleet.learn(**part(rows(number), 60, 70), stream=name)
        parts.end("worker-1")
        fleet.move(name, 0, lost=True)
        assert fleet.learn(**part(rows(number), 70, 120), stream=name) == 120
        fleet._asked("round")
        assert fleet.status().merged == 12 * 60 + 50
        # It comes back after all: nothing counts twice, and it sends the stream on.
        parts.start("worker-1")
        fleet.merge()
        assert fleet.status().merged == 12 * 60 + 60


@pytest.mark.long
def test_a_new_epoch_begins_while_rows_come(tmp_path: Path) -> None:
    fleet, parts = local(3, tmp_path)
    with fleet:
        taught(fleet, count=40)
        fleet.select()
        first = fleet.status().epoch
        stop = threading.Event()

        def send() -> None:
            taught(fleet, count=120, since=40)
            stop.set()

        sender = threading.Thread(target=send)
        sender.start()
        while not stop.is_set():
            fleet.select()
        sender.join()
        fleet.select()
        model = fleet.merge()
        status = fleet.status()
        assert status.generation >= 2
        assert status.epoch != first
        assert np.abs(model(STATES) - reference(fleet, parts)(STATES)).max() < 1e-9


def test_an_epoch_begins_without_a_worker_that_takes_too_long(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path, patience=Patience(interval_s=3600, epoch_s=0.3, rows_s=60))
    with fleet:
        taught(fleet)
        fleet._asked("select")
        coordinator = parts.parts[COORDINATOR]
        assert isinstance(coordinator, Coordinator)
        when(lambda: coordinator._coming == 1, "an epoch")
        parts.end("worker-1")

        def begun() -> bool:
            coordinator.round()
            # On a busy machine the other worker may have its rows later, too.
            return fleet.status().generation == 1 and fleet.status().merged > 0

        when(begun, "the epoch to begin")
        status = fleet.status()
        assert 0 < status.merged < 12 * 120
        assert status.workers[1].lag == 0 or status.workers[1].fault
        parts.start("worker-1")
        assert fleet.merge().offset == 12 * 120


def test_the_first_selection_comes_by_itself(tmp_path: Path) -> None:
    fleet, _ = local(2, tmp_path, select_rows=600)
    with fleet:
        taught(fleet, 4)
        fleet._asked("round")
        assert not fleet.status().selecting
        with pytest.raises(Refused, match="not_ready"):
            fleet(STATES)
        taught(fleet, 8)
        fleet._asked("round")
        when(lambda: fleet._asked("round") == {} and fleet.status().generation == 1, "an epoch")
        assert fleet(STATES).shape == (9,)


def test_what_is_drawn_does_not_depend_on_how_rows_came() -> None:
    generator = random.Random(4)
    streams = {f"robot {k}": rows(k, 90 + 37 * (k % 5)) for k in range(30)}
    # One chain that does not end.
    endless = {key: column.copy() for key, column in rows(99, 700).items()}
    endless["terminated"][:] = endless["truncated"][:] = False
    endless["states"][1:] = endless["next_states"][:-1]
    streams["endless"] = endless
    expected = None
    for shards in (1, 2, 5):
        pools = [Pool(800) for _ in range(shards)]
        places = dict.fromkeys(streams, 0)
        while any(place < len(streams[name]["rewards"]) for name, place in places.items()):
            name = generator.choice(list(streams))
            first = places[name]
            last = first + generator.randint(1, 70)
            columns = part(streams[name], first, last)
            if len(columns["rewards"]):
                pools[stable_hash(name) % shards].offer(name, first, columns)
            places[name] = min(last, len(streams[name]["rewards"]))
        found = drawn([pool.pieces() for pool in pools], 800)
        told = [(piece["stream"], piece["seq"], piece["columns"]["states"].tolist()) for piece in found]
        assert expected is None or told == expected
        expected = told
        total = sum(len(piece["columns"]["states"]) for piece in found)
        assert 800 - PIECE_ROWS <= total <= 800
        for piece in found:
            columns = piece["columns"]
            assert np.array_equal(columns["states"][1:], columns["next_states"][:-1])
            ends = columns["terminated"] | columns["truncated"]
            assert ends[-1] and not ends[:-1].any()


def test_what_sums_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="forgetting"):
        Worker(0, 1, tmp_path, {"discount": 0.9, "forgetting": 1000})
    with pytest.raises(Invalid, match="discount"):
        Fleet(1, tmp_path, discount=2)
    with pytest.raises(Invalid, match="workers"):
        Fleet(0, tmp_path)
    fleet, _ = local(1, tmp_path)
    with fleet:
        with pytest.raises(Invalid, match="states"):
            fleet.learn([0.0], [1.0], [0.0])
        with pytest.raises(Invalid, match="colour"):
            fleet.learn([[0.0]], [1.0], [[0.0]], colour=[1.0])
        with pytest.raises(Invalid, match="rewards"):
            fleet.learn([[0.0]], [1.0, 2.0], [[0.0]])


def test_models_of_files_are_merged(tmp_path: Path) -> None:
    def table(name: str, streams: range) -> None:
        lines = ["stream,state_0,state_1,reward,terminated,truncated,next_state_0,next_state_1"]
        for stream in streams:
            columns = rows(stream)
            for i in range(120):
                numbers = [*columns["states"][i], columns["rewards"][i]]
                ends = [str(bool(columns[key][i])).lower() for key in ("terminated", "truncated")]
                numbers = [repr(float(number)) for number in numbers] + ends
                numbers += [repr(float(number)) for number in columns["next_states"][i]]
                lines.append(f"robot {stream}," + ",".join(numbers))
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")

    def fit(name: str, *options: str) -> None:
        words = [str(binary()), "fit", f"{name}.csv", "--out", f"{name}.model", *options]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)

    for name, streams in {"north": range(5), "south": range(5, 8), "all": range(8)}.items():
        table(name, streams)
    fit("north", "--sums", "--discount", "0.9", "--hold-out", "0", "--dictionary-max", "25", "--budget", "2")
    fit("south", "--like", "north.model")
    fit("all", "--like", "north.model")
    paths = [tmp_path / f"{name}.model" for name in ("north", "south")]
    both = merge(paths, out=tmp_path / "both.model")
    assert np.abs(both(STATES) - Snapshot.load(tmp_path / "all.model")(STATES)).max() < 1e-8
    assert both.offset == 8 * 120
    merge(paths[::-1], out=tmp_path / "other.model")
    assert (tmp_path / "other.model").read_bytes() == (tmp_path / "both.model").read_bytes()
    with pytest.raises(CriticdError, match="robot 0"):
        merge([paths[0], tmp_path / "all.model"])
    with pytest.raises(Invalid, match="two files"):
        merge(paths[:1])


def test_errors_name_the_worker(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path, patience=Patience(interval_s=3600, rows_s=0.2, start_s=0.2))
    with fleet:
        taught(fleet, 4, 40)
        for number in range(2):
            parts.end(worker_name(number))
        name = next(f"robot {k}" for k in range(4) if stable_hash(f"robot {k}") % 2 == 1)
        with pytest.raises(RemoteError, match="worker-1, learn: gives no answer") as error:
            fleet.learn(**part(rows(1), 40, 60), stream=name)
        assert (error.value.worker, error.value.away) == (1, True)
        again = pickle.loads(pickle.dumps(error.value))
        assert (str(again), again.worker) == (str(error.value), 1)
        parts.end(COORDINATOR)
        with pytest.raises(RemoteError, match="coordinator") as error:
            fleet.status()
        assert error.value.worker is None
    worker = Worker(0, 1, tmp_path / "other", CRITIC)
    answer = unpack(carried_out(worker, request("fly", {})))
    assert answer["refused"]["code"] == "unknown_op"
    assert "failed" in unpack(carried_out(worker, request("position", {"name": 3})))
    worker.close()


def test_a_call_to_a_silent_part_fails_after_call_s(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        (tmp_path / "worker-0.json").write_text(json.dumps({"host": host, "port": port, "pid": os.getpid()}))
        link = Remote(tmp_path, "worker-0", Patience(call_s=0.1))
        with pytest.raises(RemoteError, match="worker-0, position: gives no answer") as error:
            link.call("position", name="robot")
    assert error.value.away


def kills(directory: Path, count: int, seed: int) -> None:
    """Kill parts while rows are sent, streams move and epochs begin: every acknowledged row counts once, and V is
    right."""
    generator = random.Random(seed)
    streams, length = 12, LENGTH
    with Fleet(2, directory, select_rows=None, patience=QUICK, **CRITIC) as fleet:
        assert isinstance(fleet.parts, Processes)
        processes = fleet.parts.processes
        killed = 0
        taught(fleet, streams, 40)
        fleet.select()
        sent = dict.fromkeys(range(streams), 40)
        while killed < count or min(sent.values()) < length:
            stream = generator.randrange(streams)
            last = min(sent[stream] + generator.randint(5, 60), length)
            if last > sent[stream]:
                columns = part(rows(stream, length), sent[stream], last)
                assert fleet.learn(**columns, stream=f"robot {stream}") == last
                sent[stream] = last
            if killed < count and generator.random() < 0.15:
                who = generator.choice(list(processes))
                if processes[who].lives():
                    os.kill(processes[who].pid, signal.SIGKILL)
                    killed += 1
            chance = generator.random()
            if chance < 0.02:
                fleet.select(wait=False)
            elif chance < 0.04 and sent[stream] % 40 == 0:
                fleet.move(f"robot {stream}", generator.randrange(2))
        fleet.select()
        model = fleet.merge()
        status = fleet.status()
        assert (status.rows, status.merged, status.lost) == (streams * length, streams * length, 0), status
        state = unpack((directory / COORDINATOR / "coordinator.state").read_bytes())
        epoch = state["epochs"][str(state["present"])]["epoch"]
    expected = one_learner(epoch, streams, length)
    assert np.abs(model(STATES) - expected(STATES)).max() < 1e-8


def test_a_fleet_goes_on_while_a_worker_hangs(tmp_path: Path) -> None:
    patience = Patience(interval_s=0.1, epoch_s=PATIENCE_S, rows_s=PATIENCE_S, call_s=4, start_s=PATIENCE_S)
    with Fleet(2, tmp_path, select_rows=None, patience=patience, **CRITIC) as fleet:
        assert isinstance(fleet.parts, Processes)
        taught(fleet, count=40)
        fleet.select()
        before = fleet.merge()(STATES)
        pid = fleet.parts.processes["worker-1"].pid
        os.kill(pid, signal.SIGSTOP)
        # One of the other worker.
        name = next(k for k in range(12) if stable_hash(f"robot {k}") % 2 == 0)
        fleet.learn(**part(rows(name), 40, 80), stream=f"robot {name}")
        when(lambda: fleet.merge(wait=False).offset == 12 * 40 + 40, "the row of the other worker")
        status = fleet.status()
        assert (status.workers[0].fault, status.workers[1].lag) == (None, 0)
        assert "worker-1, message: gives no answer" in str(status.workers[1].fault)
        assert not np.array_equal(fleet(STATES), before)
        os.kill(pid, signal.SIGCONT)
        assert fleet.merge().offset == 12 * 40 + 40


@pytest.mark.long
def test_parts_may_be_killed(tmp_path: Path) -> None:
    kills(tmp_path, 4, 1)


@pytest.mark.nightly
def test_parts_may_be_killed_often(tmp_path: Path) -> None:
    kills(tmp_path, KILLS, int(os.environ.get("CRITICD_SEED", "7")))


def test_a_producer_goes_to_another_process(tmp_path: Path) -> None:
    with Fleet(1, tmp_path, select_rows=None, patience=QUICK, **CRITIC) as fleet:
        producer = pickle.loads(pickle.dumps(fleet.producer()))
        assert producer.learn(**rows(1), stream="robot 1") == 120
        # Nobody without the key gets an answer.
        from criticd._fleet_links import Remote

        (tmp_path / "elsewhere").mkdir()
        shutil.copy(tmp_path / "worker-0.json", tmp_path / "elsewhere")
        with pytest.raises(RemoteError, match="worker-0"):
            Remote(tmp_path / "elsewhere", "worker-0", QUICK).call("position", stream="robot 1")
        assert fleet.learn(**part(rows(2), 0, 40), stream="robot 2") == 40
        assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    # All is there when a fleet starts there again.
    with Fleet(1, tmp_path, select_rows=None, patience=QUICK, **CRITIC) as fleet:
        assert fleet.learn(**part(rows(1), 0, 1), stream="robot 1") == 121
        fleet._asked("round")
        assert fleet.status().rows == 161
