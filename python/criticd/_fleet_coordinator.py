"""The coordinator of a fleet: adds up what the workers say, and selects the model that they all learn in."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criticd._fleet_journal import own
from criticd._fleet_links import Link, Patience, RemoteError, words, worker_name
from criticd._fleet_pool import drawn, stable_hash
from criticd._fleet_worker import settings_of_workers
from criticd._output import write_whole
from criticd._protocol import CriticdError, Message, Refused, pack, unpack
from criticd.learner import _learner

_STATE = "coordinator.state"
_GROWTH = 4
"""Rows of a selection as a multiple of the rows of the one before."""


@dataclass
class _Known:
    """What a worker has said last."""

    rows: int = 0
    streams: int = 0
    lost: int = 0
    removals: int = 0
    bytes: int = 0
    incarnation: int = 0
    caught: bool = False
    heard: float | None = None
    there: bool = True
    """Whether it has answered when it was asked last."""
    why: str | None = None


class Coordinator:
    """Holds the newest message of each worker, serves the model of all of them, and selects for all.

    ```python
    coordinator = Coordinator(links, "coordinator", {"discount": 0.95})
    coordinator.call("round", {})
    model = coordinator.call("snapshot", {"have": 0})["model"]
    ```

    `links` lead to the workers, by number, with the patience of `Patience.inner`. A `Fleet` makes its coordinator
    itself. What it must not forget is in its directory; what the rows add up to it asks the workers again.
    """

    def __init__(
        self,
        links: Sequence[Link],
        directory: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        pool_rows: int = 20_000,
        select_rows: int | None = 2048,
        patience: Patience | None = None,
    ) -> None:
        self._links, self._settings = list(links), dict(settings)
        settings_of_workers(settings)
        self._pool_rows, self._select_rows = pool_rows, select_rows
        self._patience = patience or Patience()
        self._path = Path(directory) / _STATE
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._rounds, self._rounds_begun = threading.Lock(), 0
        self._askers = ThreadPoolExecutor(max_workers=len(links), thread_name_prefix="criticd-asker")
        self._known = [_Known() for _ in links]
        self._epochs: dict[int, tuple[bytes, _learner.Gathered]] = {}
        """By generation: the epoch in force, and one that comes."""
        self._present = self._coming = 0
        self._coming_since = 0.0
        self._births: dict[int, str] = {}
        self._table: dict[str, int] = {}
        self._table_version = self._lost = 0
        self._moves: dict[str, Message] = {}
        """Streams that are on their way, which a start goes on with."""
        self._removals = 0
        """Removals that the newest selection knew of, of all workers."""
        self._selecting: threading.Thread | None = None
        self._selection_error: str | None = None
        self._fault: str | None = None
        self._next_selection = select_rows
        self._revision, self._model, self._model_time = 0, b"", 0.0
        self._served: tuple[int, ...] = ()
        self._stopped, self._released = threading.Event(), False
        self._background: threading.Thread | None = None
        lock = self._path.with_name("lock")
        self._lock_file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        own(self._lock_file, lock)
        try:
            if self._path.exists():
                self._restore()
        except BaseException:
            os.close(self._lock_file)
            raise

    def start(self) -> None:
        """Make a round at each interval, in the background."""
        self._background = threading.Thread(target=self._run, name="criticd-rounds", daemon=True)
        self._background.start()

    def close(self) -> None:
        """End the background. Calls from then on, and calls that wait for a round, raise `CriticdError`."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._background is not None:
            self._background.join()
        # Whoever makes a round, or writes, ends first; a selection that runs is given up when it ends.
        with self._rounds, self._lock:
            self._askers.shutdown(wait=False)
            self._released = True
            os.close(self._lock_file)

    def _check_open(self) -> None:
        if self._stopped.is_set():
            raise CriticdError("the coordinator is closed")

    def _run(self) -> None:
        while True:
            try:
                self.round()
                self._fault = None
            # Whatever it is, further rounds follow.
            except Exception as error:
                self._fault = words(error)
            if self._stopped.wait(self._patience.interval_s):
                return

    def call(self, op: str, arguments: Message) -> Message:
        """Carry out one of the requests `round`, `snapshot`, `status`, `select`, `where` and `move`."""
        done: Callable[..., Message] | None = getattr(self, f"_op_{op}", None)
        if done is None:
            raise Refused({"code": "unknown_op", "message": f"a coordinator does not know `{op}`"})
        self._check_open()
        return done(**arguments)

    def _keep(self) -> None:
        """Write down what must not be forgotten."""
        if self._released:
            # Another coordinator may have the directory by now.
            raise CriticdError("the coordinator is closed")
        epochs = {
            str(key): {"epoch": epoch, "gathered": gathered.written()}
            for key, (epoch, gathered) in self._epochs.items()
        }
        state = {
            "workers": len(self._links),
            "epochs": epochs,
            "present": self._present,
            "coming": self._coming,
            "births": {str(key): birth for key, birth in self._births.items()},
            "table": self._table,
            "table_version": self._table_version,
            "moves": self._moves,
            "lost": self._lost,
            "removals": self._removals,
            "revision": self._revision,
            "next_selection": self._next_selection,
        }
        write_whole(self._path, pack(state))

    def _restore(self) -> None:
        state = unpack(self._path.read_bytes())
        if state["workers"] != len(self._links):
            raise CriticdError(
                f"{self._path.parent} is of a fleet of {state['workers']} workers, not {len(self._links)}: start as "
                "many, or give the rows to a new fleet"
            )
        for key, kept in state["epochs"].items():
            self._epochs[int(key)] = (kept["epoch"], _learner.Gathered.read(kept["gathered"]))
        self._present, self._coming = state["present"], state["coming"]
        self._coming_since = time.monotonic()
        self._births = {int(key): birth for key, birth in state["births"].items()}
        self._table, self._table_version = state["table"], state["table_version"]
        self._moves, self._lost = state["moves"], state["lost"]
        self._removals = state.get("removals", 0)
        # Those who have asked before must not see a smaller one.
        self._revision = state["revision"] + 1_000_000
        self._next_selection = state["next_selection"]

    def round(self) -> None:
        """Ask every worker what its rows add up to, and make one model of it.

        What a worker that is away has said last stays. Who asks while others wait for a round shares theirs. Where a
        part of it fails the others are done all the same; then it raises what the first of them raised.
        """
        begun = self._rounds_begun
        with self._rounds:
            self._check_open()
            if self._rounds_begun > begun:
                return
            self._rounds_begun += 1
            # A worker that gives no answer delays the round by the time-out of its call, not by one for each worker.
            list(self._askers.map(self._ask, range(len(self._links))))
            errors = []
            for part in (self._switch_if_due, self._serve, self._select_if_due, self._move_on):
                try:
                    part()
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]

    def _move_on(self) -> None:
        """Go on with the streams that are on their way between workers that are there."""
        for stream, move in list(self._moves.items()):
            needed = [move["to"]] if move["lost"] else [move["from"], move["to"]]
            if all(self._known[number].there for number in needed):
                self._go_on(stream)

    def _ask(self, number: int) -> None:
        with self._lock:
            epochs = dict(self._epochs)
            wanted = [key for key in (self._present, self._coming) if key]
            held = {key: {worker: version for worker, version, _, _ in self._epochs[key][1].held()} for key in wanted}
        have = {str(key): list(held[key][number][1:]) for key in wanted if number in held[key]}
        known = self._known[number]
        try:
            said = self._links[number].call("message", generations=wanted, have=have)
            if self._is_reborn(number, said):
                said = self._links[number].call("message", generations=wanted, have={})
            for key in wanted:
                if said["messages"][str(key)].get("lacks"):
                    self._links[number].call("begin", generation=key, epoch=epochs[key][0])
            self._take(number, said)
        # Whatever it is, the others are asked, and the status has it.
        except Exception as error:
            known.there, known.why = False, words(error)

    def _is_reborn(self, number: int, said: Message) -> bool:
        """Whether the journal of a worker is another one than before: what it said then is gone with the old one."""
        with self._lock:
            before = self._births.get(number)
            if before == said["birth"]:
                return False
            if before is not None:
                incarnation = 1 + max([self._known[number].incarnation, *self._incarnations(number)])
                self._links[number].call("reincarnate", incarnation=incarnation)
                self._lost += max([0, self._known[number].rows, *self._rows_held(number)])
            self._births[number] = said["birth"]
            self._keep()
            return before is not None

    def _incarnations(self, number: int) -> list[int]:
        return [at[0] for _, each in self._epochs.values() for worker, at, _, _ in each.held() if worker == number]

    def _rows_held(self, number: int) -> list[int]:
        return [rows for _, each in self._epochs.values() for worker, _, rows, _ in each.held() if worker == number]

    def _take(self, number: int, said: Message) -> None:
        with self._lock:
            known = self._known[number]
            known.rows, known.streams, known.lost = said["rows"], said["streams"], said["lost"]
            known.bytes, known.incarnation = said["bytes"], said["incarnation"]
            known.removals = said["removals"]
            known.heard, known.there, known.why = time.monotonic(), True, None
            for key, each in said["messages"].items():
                if int(key) not in self._epochs:
                    continue
                message = each.get("message")
                if message is not None and self._epochs[int(key)][1].take(message)[0] == "wrong epoch":
                    known.why = "its sums are of another model: `select()` begins anew"
                if int(key) == (self._coming or self._present):
                    known.caught = bool(each.get("caught"))
                if each.get("failed"):
                    known.why = f"{each['failed']} batches could not be learned; please report this"

    def _switch_if_due(self) -> None:
        """Let the coming epoch begin, when all workers have learned their rows in it, or have taken too long.

        They hear that the one before is over when they are asked next.
        """
        with self._lock:
            if not self._coming:
                return
            gathered = self._epochs[self._coming][1]
            have = {worker for worker, _, _, _ in gathered.held()}
            all_there = all(known.caught and k in have for k, known in enumerate(self._known))
            if all_there or time.monotonic() - self._coming_since >= self._patience.epoch_s:
                self._present, self._coming = self._coming, 0
                self._epochs = {self._present: self._epochs[self._present]}
                self._keep()

    def _serve(self) -> None:
        """Make the model anew, if something has changed."""
        with self._lock:
            if not self._present:
                return
            gathered = self._epochs[self._present][1]
            held = gathered.held()
            state = (self._present, *(number for each in held for number in (each[0], *each[1])))
            if state != self._served and held:
                # Made first: a revision that fails is none.
                self._model = gathered.snapshot(self._present + 1, self._revision + 1, time.time(), False)
                self._revision += 1
                self._model_time, self._served = time.monotonic(), state
                if self._revision % 10 == 0:
                    self._keep()

    def _select_if_due(self) -> None:
        with self._lock:
            rows = sum(known.rows for known in self._known)
            due = self._next_selection is not None and rows >= self._next_selection
            if (due or self._owes()) and self._selecting is None and not self._coming:
                if due:
                    self._next_selection = _GROWTH * rows
                self._begin_selection()

    def _owes(self) -> bool:
        """Whether rows that were taken back had a part in the epoch in force."""
        heard = all(known.heard is not None for known in self._known)
        return bool(self._present) and heard and sum(known.removals for known in self._known) != self._removals

    def _begin_selection(self) -> None:
        self._selection_error = None
        self._selecting = threading.Thread(target=self._select, name="criticd-selection", daemon=True)
        self._selecting.start()

    def _select(self) -> None:
        removals = 0
        try:
            (epoch, removals), error = self._selected(), None
        # Whatever it is, the next selection is not to wait for this one.
        except Exception as failed:
            epoch, error = None, words(failed)
        with self._lock:
            if self._released:
                return
            self._selecting, self._selection_error = None, error
            if epoch is not None:
                self._removals = removals
            if error is not None and self._select_rows is not None:
                self._next_selection = sum(known.rows for known in self._known) * 5 // 4
            if epoch is not None:
                # A number that a worker may know already is not used again.
                following = max([0, *self._epochs]) + 1
                self._epochs.pop(self._coming, None)
                self._coming = following
                self._coming_since = time.monotonic()
                self._epochs[self._coming] = (epoch, _learner.Gathered(epoch))
                for known in self._known:
                    known.caught = False
                self._keep()

    def _pool(self, link: Link) -> Message:
        """The chains of a worker, once it has drawn them without the rows that were taken back."""
        end = time.monotonic() + self._patience.epoch_s
        while True:
            said = link.call("pool")
            if "pieces" in said or self._stopped.is_set():
                return said
            if time.monotonic() > end:
                raise CriticdError("a worker reads its journal again, without rows that were taken back, for too long")
            time.sleep(self._patience.retry_s)

    def _selected(self) -> tuple[bytes, int]:
        """The epoch that the chains of every worker select, and how many removals they knew of."""
        from criticd.learner import Learner

        pools = [self._pool(link) for link in self._links]
        removals = sum(pool.get("removals", 0) for pool in pools)
        pieces = drawn([pool.get("pieces", []) for pool in pools], self._pool_rows)
        if not pieces:
            raise CriticdError("there are no rows to select a model by")
        rows = sum(len(piece["columns"]["states"]) for piece in pieces)
        settings = {
            **self._settings,
            "refit_first_rows": 0,
            "refit_score_drop": 0,
            "drift_sensitivity": "off",
            "window_rows": max(2048, rows),
        }
        with Learner(**settings) as learner:
            for piece in pieces:
                learner.learn(**piece["columns"])
            outcome = learner.refit()
            if outcome.outcome != "adopted":
                raise CriticdError(f"no model was selected: {outcome.reason}")
            return learner._critic.epoch(), removals

    def _op_round(self) -> Message:
        self.round()
        return {}

    def _op_snapshot(self, have: int) -> Message:
        """The newest model, unless the caller has it."""
        with self._lock:
            if not self._model:
                raise Refused({"code": "not_ready", "message": "no model has been selected yet"})
            age = time.monotonic() - self._model_time
            return {"revision": self._revision, "age_s": age, "model": None if have == self._revision else self._model}

    def _op_select(self) -> Message:
        with self._lock:
            if self._selecting is None:
                self._begin_selection()
            return {"generation": max([0, *self._epochs])}

    def _op_where(self, stream: str) -> Message:
        with self._lock:
            home = stable_hash(stream) % len(self._links)
            return {
                "worker": self._table.get(stream, home),
                "version": self._table_version,
                "moves": stream in self._moves,
            }

    def _op_move(self, stream: str, to: int, lost: bool) -> Message:
        with self._lock:
            if not 0 <= to < len(self._links):
                raise Refused(
                    {"code": "out_of_range", "message": f"there is no worker {to}, there are {len(self._links)}"}
                )
            source = self._op_where(stream)["worker"]
            if source != to and stream not in self._moves:
                self._moves[stream] = {"from": source, "to": to, "lost": lost, "since": time.time()}
                self._keep()
        self._go_on(stream)
        with self._lock:
            return {"moved": stream not in self._moves}

    def _go_on(self, stream: str) -> None:
        """Move a stream as far as that can be done now. Each step can be done twice."""
        with self._lock:
            move = self._moves.get(stream)
        if move is None:
            return
        asked = move["to"]
        try:
            if move["lost"]:
                next_seq = self._last_known(stream, move["from"])
            else:
                at_end = time.time() - move["since"] < self._patience.chain_s
                asked = move["from"]
                said = self._links[asked].call("release", stream=stream, at_end=at_end)
                if said.get("runs"):
                    return
                next_seq = said["next_seq"]
            asked = move["to"]
            self._links[asked].call("receive", stream=stream, next_seq=next_seq)
        # Whatever it is, it is tried again, and the status has it.
        except Exception as error:
            worker = error.worker if isinstance(error, RemoteError) else None
            self._known[asked if worker is None else worker].why = words(error)
            return
        with self._lock:
            if self._moves.pop(stream, None) is not None:
                self._table[stream] = move["to"]
                self._table_version += 1
                self._keep()

    def _last_known(self, stream: str, worker: int) -> int:
        """The row that follows on what a lost worker has said of a stream."""
        for _, gathered in self._epochs.values():
            for number, _, _, streams in gathered.held():
                if number == worker:
                    return streams.get(stream, 0)
        return 0

    def _op_status(self) -> Message:
        with self._lock:
            now = time.monotonic()
            gathered = self._epochs[self._present][1] if self._present else None
            merged = {worker: rows for worker, _, rows, _ in gathered.held()} if gathered is not None else {}
            workers = [
                {
                    "name": worker_name(k),
                    "rows": known.rows,
                    "merged": merged.get(k, 0),
                    "streams": known.streams,
                    "journal_bytes": known.bytes,
                    "incarnation": known.incarnation,
                    "caught_up": known.caught,
                    "heard_s": None if known.heard is None else now - known.heard,
                    "fault": known.why,
                }
                for k, known in enumerate(self._known)
            ]
            return {
                "epoch": gathered.epoch if gathered is not None else 0,
                "generation": self._present,
                "coming": self._coming,
                "selecting": self._selecting is not None,
                "owes": self._owes(),
                "fault": self._selection_error or self._fault,
                "revision": self._revision,
                "age_s": now - self._model_time if self._model else None,
                "rows": sum(known.rows for known in self._known),
                "merged": sum(merged.values()),
                "lost": self._lost,
                "moved": dict(self._table),
                "moving": sorted(self._moves),
                "workers": workers,
            }
