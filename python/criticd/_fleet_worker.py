"""A worker of a fleet: the learner of some streams, and their journal."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from criticd._fleet_journal import Journal
from criticd._fleet_pool import Pool, stable_hash
from criticd._protocol import CriticdError, Invalid, Message, Refused
from criticd.learner import _learner

MORE = (
    "actions",
    "discounts",
    "times",
    "behavior_probs",
    "target_probs",
    "next_actions",
    "next_action_probs",
    "policy",
)
"""Columns that rows may have beside those that `learn` names."""
COLUMNS = (
    "states",
    "rewards",
    "next_states",
    "terminated",
    "truncated",
    *MORE,
)
_POOL = "pool"
_SLICE_S = 0.02
"""How long rows of the journal are learned again before calls have their turn."""
_OWN: dict[str, Any] = {
    "refit_first_rows": 0,
    "refit_score_drop": 0,
    "drift_sensitivity": "off",
    "window_rows": 2048,
    "warmup_rows": 32,
}
"""What a worker does not do by itself: the coordinator selects for all."""


def settings_of_workers(settings: Mapping[str, Any]) -> str:
    """The settings of the learners of workers, as JSON. Raises `Invalid` for what sums cannot do."""
    forgetting = settings.get("forgetting")
    if forgetting not in (None, "off", 1, 1.0):
        raise Invalid(
            "forgetting", "rows are forgotten by their age in one journal, and a fleet has several: leave it out"
        )
    for name in ("alarms", "advisors"):
        if settings.get(name):
            raise Invalid(name, "a fleet has none: they would need all rows in one place")
    return json.dumps({**settings, **_OWN})


class _Learned:
    """The learner of one epoch, and how far it has read the journal."""

    def __init__(self, critic: _learner.Critic, place: int, removals: int) -> None:
        self.critic, self.place, self.caught = critic, place, False
        self.removals = removals
        """Removals that it knows of."""
        self.failed = 0
        """Records that it could not learn, which is a fault of the program."""

    def learn(self, stream: str, seq: int, columns: Message) -> None:
        try:
            self.critic.learn(stream, False, columns)
        except CriticdError:
            self.failed += 1


class _Drawn:
    """A pool that takes the place of one with rows that were taken back, and how far it has read the journal."""

    def __init__(self, pool: Pool, place: int) -> None:
        self.pool, self.place, self.caught = pool, place, False

    def learn(self, stream: str, seq: int, columns: Message) -> None:
        self.pool.offer(stream, seq, columns)


class _Ranges:
    """Numbers of rows, as ascending ranges that neither overlap nor touch."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.all = list(ranges)

    def add(self, first: int, end: int) -> None:
        if first >= end:
            return
        apart = [each for each in self.all if each[1] < first or each[0] > end]
        joined = [each for each in self.all if each not in apart]
        first, end = min([first, *(a for a, _ in joined)]), max([end, *(b for _, b in joined)])
        self.all = sorted([*apart, (first, end)])

    def without(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that are not among them."""
        for a, b in self.all:
            if first < min(a, end):
                yield first, min(a, end)
            first = max(first, b)
        if first < end:
            yield first, end


def _part(columns: Message, first: int, last: int) -> Message:
    """Some rows of a record."""
    return {key: col[first:last] if hasattr(col, "shape") else col for key, col in columns.items()}


def _full(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: columns.get(name) for name in COLUMNS}


class Worker:
    """Learns the rows of its streams, keeps them in a journal, and says what they add up to.

    ```python
    worker = Worker(0, 1, "rows-of-worker-0", {"discount": 0.95})
    worker.start()
    done = worker.call("append", {"stream": "arm", "seq": 0, "columns": rows})
    ```

    It is number `number` of `workers`. `settings` are as of a `Learner`. A `Fleet` makes its workers itself; a
    program of one's own may make some to carry the calls another way.

    Rows are durable in its directory when `append` returns. A worker that starts there again has all of them.
    """

    def __init__(
        self,
        number: int,
        workers: int,
        directory: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        pool_rows: int = 20_000,
    ) -> None:
        self.number, self.workers, self.broken = number, workers, False
        self._settings = settings_of_workers(settings)
        self._lock = threading.Condition()
        self._journal = Journal(Path(directory))
        self._pool = Pool(pool_rows)
        self._next: dict[str, int] = {}
        self._senders: dict[str, str] = {}
        self._away: dict[str, int] = {}
        """Streams that others have now, each with the sequence number that they go on from."""
        self._here: set[str] = set()
        """Streams that came from elsewhere."""
        self._ended: set[str] = set()
        """Streams whose last row ended a chain."""
        self._shape: tuple[int, int] | None = None
        self._rows = self._lost = self._removals = 0
        self._held: dict[str, _Ranges] = {}
        """Of each stream, the rows that came here."""
        self._gone: dict[str, _Ranges] = {}
        """Of each stream that lost some, the rows that were taken back."""
        self._checker = _learner.Critic(self._settings)
        self._epochs: dict[int, bytes] = {}
        self._learned: dict[int, _Learned] = {}
        """By generation: the epoch in force, and one that comes."""
        self._again: dict[Hashable, _Learned | _Drawn] = {}
        """What takes the place of a learner, by its generation, or of the pool, when it has read the whole journal
        without the rows that were taken back."""
        self._stopped = False
        for record in self._journal.recover():
            self._note(record)
        self._draw_again()
        self._thread = threading.Thread(target=self._catch_up, name="criticd-epoch", daemon=True)

    def start(self) -> None:
        """Learn rows of the journal in the background, whenever there is an epoch that lacks some."""
        self._thread.start()

    def close(self) -> None:
        """End the background, and close the journal. Calls from then on raise `CriticdError`."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._lock.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._journal.close()

    def call(self, op: str, arguments: Message) -> Message:
        """Carry out a request.

        They are `append`, `position`, `message`, `begin`, `pool`, `remove`, `erase`, `release`, `receive` and
        `reincarnate`.
        """
        done: Callable[..., Message] | None = getattr(self, f"_op_{op}", None)
        if done is None:
            raise Refused({"code": "unknown_op", "message": f"a worker does not know `{op}`"})
        with self._lock:
            if self._stopped:
                raise CriticdError("the worker is closed")
            if self.broken:
                raise CriticdError(
                    "the journal could not be written, and what is in memory may be ahead of it: it starts anew"
                )
            return done(**arguments)

    def _note(self, record: Message) -> None:
        """What a record of the journal changes, besides what is learned."""
        stream = record["stream"]
        if "columns" in record:
            columns = record["columns"]
            if record.get("sender") is not None:
                self._senders[stream] = record["sender"]
            count = len(columns["rewards"])
            self._lost += record["seq"] - self._next.get(stream, 0)
            self._next[stream] = record["seq"] + count
            self._held.setdefault(stream, _Ranges()).add(record["seq"], record["seq"] + count)
            self._rows += count
            self._shape = (columns["states"].shape[1], columns["rewards"].size // count)
            self._pool.offer(stream, record["seq"], columns)
            ends = any(columns.get(key) is not None and bool(columns[key][-1]) for key in ("terminated", "truncated"))
            (self._ended.add if ends else self._ended.discard)(stream)
        elif "hole" in record:
            first, end = record["hole"]
            if record.get("sender") is not None:
                self._senders[stream] = record["sender"]
            self._lost += first - self._next.get(stream, 0)
            self._next[stream] = end
            self._ended.add(stream)
        elif "removed" in record:
            self._rows -= self._count(stream, *record["removed"])
            self._gone.setdefault(stream, _Ranges()).add(*record["removed"])
            self._removals += 1
        elif "away" in record:
            self._away[stream] = record["away"]
            self._here.discard(stream)
        else:
            self._away.pop(stream, None)
            self._here.add(stream)
            self._next[stream] = max(record["here"], self._next.get(stream, 0))

    def _count(self, stream: str, first: int, end: int) -> int:
        """How many rows of a stream between two numbers are here, and were not taken back."""
        held, gone = (of.get(stream, _Ranges()) for of in (self._held, self._gone))
        there = gone.without(first, end)
        return sum(b - a - sum(d - c for c, d in held.without(a, b)) for a, b in there)

    def _kept(self, record: Message) -> Iterator[tuple[str, int, Message]]:
        """The rows of a record that were not taken back: stream, number of the first, and columns.

        The chain is cut before a gap.
        """
        if "columns" not in record:
            return
        stream, seq, columns = record["stream"], record["seq"], record["columns"]
        gone = self._gone.get(stream)
        if gone is None:
            yield stream, seq, columns
            return
        end = seq + len(columns["rewards"])
        for a, b in gone.without(seq, end):
            part = _part(columns, a - seq, b - seq)
            if any(start == b for start, _ in gone.all):
                count = b - a
                terminated = part["terminated"]
                truncated = np.zeros(count, bool) if part["truncated"] is None else np.array(part["truncated"], bool)
                truncated[-1] = terminated is None or not terminated[-1]
                part["truncated"] = truncated
            yield stream, a, part

    def _without(self, record: Message) -> Iterator[Message]:
        """A record without the rows that were taken back: their numbers alone are in their places."""
        gone = self._gone.get(record["stream"])
        if "columns" not in record or gone is None:
            yield record
            return
        at, end = record["seq"], record["seq"] + len(record["columns"]["rewards"])
        about = {key: record.get(key) for key in ("stream", "sender")}
        for a, b in gone.without(at, end):
            if a > at:
                yield {**about, "hole": [at, a]}
            yield {**about, "seq": a, "columns": _part(record["columns"], a - record["seq"], b - record["seq"])}
            at = b
        if at < end:
            yield {**about, "hole": [at, end]}

    def _store(self, record: Message) -> None:
        try:
            self._journal.append(record)
        except OSError:
            self.broken = True
            raise
        self._note(record)

    def _op_append(self, stream: str, seq: int, columns: Message, sender: str | None = None) -> Message:
        if stream in self._away or not (stream in self._here or stable_hash(stream) % self.workers == self.number):
            return {"moved": True}
        columns = _full(columns)
        expected = self._next.get(stream, 0)
        count = len(columns["rewards"])
        # Rows that were acknowledged and then lost with a journal are not sent again.
        if seq > expected and self._journal.incarnation == 0 and stream not in self._here:
            message = f"row {expected} of stream {stream!r} is the next"
            raise Refused({"code": "sequence_gap", "message": message, "expected_seq": expected})
        known = min(max(expected - seq, 0), count)
        if known and sender is not None and self._senders.get(stream, sender) != sender:
            message = f"another producer has sent rows of stream {stream!r}: give each producer a stream of its own"
            raise Refused({"code": "sequence_taken", "message": message, "expected_seq": expected})
        if known < count:
            columns = _part(columns, known, count)
            self._check(stream, columns)
            seq += known
            self._store({"stream": stream, "seq": seq, "columns": columns, "sender": sender})
            for learned in self._learned.values():
                if learned.caught:
                    learned.learn(stream, seq, columns)
                    learned.place = self._journal.end
        return {"next_seq": self._next.get(stream, expected), "duplicates": known}

    def _check(self, stream: str, columns: dict[str, Any]) -> None:
        self._checker.check(stream, columns)
        shape = (columns["states"].shape[1], columns["rewards"].size // len(columns["rewards"]))
        if self._shape is not None and shape != self._shape:
            dim, rewards = self._shape
            raise Invalid(
                "states",
                f"rows have {dim} state variables and {rewards} rewards here, these have {shape[0]} and {shape[1]}",
            )

    def _op_position(self, stream: str) -> Message:
        moved = stream in self._away
        return {"next_seq": self._next.get(stream, 0), "moved": moved}

    def _op_begin(self, generation: int, epoch: bytes) -> Message:
        if generation not in self._learned:
            self._learned[generation] = self._begun(generation, epoch)
            self._epochs[generation] = epoch
            self._lock.notify_all()
        return {}

    def _begun(self, generation: int, epoch: bytes) -> _Learned:
        critic = _learner.Critic(self._settings)
        critic.begin(epoch, generation + 1)
        return _Learned(critic, self._journal.start, self._removals)

    def _settle(self, generations: list[int]) -> None:
        """Other epochs are over."""
        self._learned = {key: value for key, value in self._learned.items() if key in generations}
        self._again = {key: value for key, value in self._again.items() if key in (*generations, _POOL)}
        self._epochs = {key: value for key, value in self._epochs.items() if key in generations}

    def _op_remove(self, stream: str, first: int, end: int | None) -> Message:
        """Take rows of a stream back, from number `first` on and before `end`.

        Answers are without them when the journal has been learned again.
        """
        end = self._next.get(stream, 0) if end is None else min(end, self._next.get(stream, 0))
        count = self._count(stream, first, end)
        if count:
            self._store({"stream": stream, "removed": [first, end]})
            self._again = {key: self._begun(key, self._epochs[key]) for key in self._learned}
            self._draw_again()
            self._lock.notify_all()
        return {"rows": count}

    def _op_erase(self) -> Message:
        """Write the journal anew without the bytes of rows that were taken back, once all has been learned again."""
        if self._again or self._behind():
            return {"waits": True}
        left = {
            stream: _Ranges(part for held in self._held[stream].all for part in gone.without(*held))
            for stream, gone in self._gone.items()
            if stream in self._held
        }
        sizes = [sum(b - a for a, b in of[stream].all) for stream in left for of in (self._held, left)]
        erased = sum(sizes[::2]) - sum(sizes[1::2])
        if erased:
            records = (record for _, record in self._journal.read(self._journal.start))
            end = self._journal.end
            try:
                self._journal.rewrite(part for record in records for part in self._without(record))
            except OSError:
                # The new file is in force, but its name may not last: what it acknowledged could be lost.
                self.broken = self._journal.end != end
                raise
            self._held |= left
            for learned in self._learned.values():
                learned.place = self._journal.end
        return {"rows": erased}

    def _draw_again(self) -> None:
        """Let a pool without rows that were taken back take the place of this one, where it may have some."""
        if self._gone:
            self._again[_POOL] = _Drawn(Pool(self._pool.rows_max), self._journal.start)

    def _op_message(self, generations: list[int], have: dict[str, list[int]]) -> Message:
        """What the rows add up to in each of these epochs, unless the caller has the sum of these removals and rows.

        Any other epoch is over.
        """
        self._settle(generations)
        messages: dict[str, Any] = {}
        for generation in generations:
            learned = self._learned.get(generation)
            if learned is None:
                messages[str(generation)] = {"lacks": True}
                continue
            rows = learned.critic.learned
            new = have.get(str(generation)) != [learned.removals, rows]
            # Chains that moved away are closed where they stand, as every message closes those that run.
            incarnation = self._journal.incarnation
            message = learned.critic.message(self.number, incarnation, learned.removals) if new else None
            messages[str(generation)] = {
                "message": message,
                "rows": rows,
                "caught": learned.caught and generation not in self._again,
                "failed": learned.failed,
            }
        return {
            "birth": self._journal.birth,
            "incarnation": self._journal.incarnation,
            "rows": self._rows,
            "streams": len(self._next),
            "lost": self._lost,
            "removals": self._removals,
            "bytes": self._journal.end,
            "messages": messages,
        }

    def _op_pool(self) -> Message:
        # A selection must not see rows that were taken back.
        if _POOL in self._again:
            return {"drawing": True}
        return {"pieces": self._pool.pieces(), "removals": self._removals}

    def _op_release(self, stream: str, at_end: bool) -> Message:
        """Give a stream away; with `at_end` only if no chain of it runs."""
        if stream not in self._away:
            if at_end and stream in self._next and stream not in self._ended:
                return {"runs": True}
            self._store({"stream": stream, "away": self._next.get(stream, 0)})
        return {"next_seq": self._away[stream]}

    def _op_receive(self, stream: str, next_seq: int) -> Message:
        """Take a stream, which starts a chain here."""
        if stream not in self._here:
            self._store({"stream": stream, "here": next_seq})
        return {}

    def _op_reincarnate(self, incarnation: int) -> Message:
        if incarnation > self._journal.incarnation:
            self._journal.set_incarnation(incarnation)
        return {}

    def _catch_up(self) -> None:
        reading: dict[_Learned | _Drawn, Iterator[tuple[int, Message]]] = {}
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopped or self._behind())
                if self._stopped:
                    return
                behind = self._behind()
                reading = {each: reader for each, reader in reading.items() if each in behind}
                for each in behind:
                    if self._slice(each, reading.setdefault(each, self._journal.read(each.place))):
                        del reading[each]
                self._replace()
            # Whoever waits for the lock has it next.
            time.sleep(0.0005)

    def _behind(self) -> list[_Learned | _Drawn]:
        """Those that have not read the whole journal."""
        return [each for each in (*self._learned.values(), *self._again.values()) if not each.caught]

    def _slice(self, learned: _Learned | _Drawn, reader: Iterator[tuple[int, Message]]) -> bool:
        """Learn on for a while; whether the end of the journal is reached, or of what the reader knew of it."""
        end = time.monotonic() + _SLICE_S
        for learned.place, record in reader:
            for kept in self._kept(record):
                learned.learn(*kept)
            if time.monotonic() > end:
                return False
        learned.caught = learned.place == self._journal.end
        return True

    def _replace(self) -> None:
        """What has learned the whole journal again takes its place."""
        for key, each in list(self._again.items()):
            if each.caught:
                del self._again[key]
                if isinstance(each, _Drawn):
                    self._pool = each.pool
                elif isinstance(key, int) and key in self._learned:
                    self._learned[key] = each
                self._lock.notify_all()
