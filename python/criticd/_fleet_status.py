"""What is known of a fleet, for its page, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from criticd._protocol import Message


@dataclass(frozen=True)
class WorkerStatus:
    """What is known of a worker.

    ```python
    for worker in fleet.status().workers:
        print(worker.name, worker.lag)
    ```

    - `rows` it has acknowledged, of `streams`; `merged` of them are in the model. `lag` is the difference.
    - `caught_up`: whether it has learned all its rows in the newest epoch.
    - `heard_s`: seconds since the coordinator has heard of it; None if it never has. `fault`: why it did not.
    - `incarnation`: how often its rows have been lost. `journal_bytes` they take on its disk.
    """

    name: str
    rows: int
    merged: int
    streams: int
    journal_bytes: int
    incarnation: int
    caught_up: bool
    heard_s: float | None
    fault: str | None

    @property
    def lag(self) -> int:
        """Rows that are not in the model yet."""
        return max(0, self.rows - self.merged)


@dataclass(frozen=True)
class FleetStatus:
    """What is known of a fleet. `str(status)` has it as a table.

    ```python
    print(fleet.status())
    ```

    - `generation` counts epochs: selections that all workers learn in; `epoch` is the fingerprint of the one in force,
      0 before the first. `coming` is the number of an epoch which workers still learn their rows in, else 0;
      `selecting` says whether one is being selected; `owes`, whether rows that were taken back had a part in the one
      in force: another is then selected by itself.
    - `revision` and `age_s` are the model's; None while there is none.
    - `rows` acknowledged, `merged` in the model. `lost`: rows that were in the model, and in no journal any more.
    - `moved`: streams that are not at the worker of their hash, with that worker; `moving` are on their way.
    - `fault`: why there is no newer model.
    """

    epoch: int
    generation: int
    coming: int
    selecting: bool
    owes: bool
    fault: str | None
    revision: int
    age_s: float | None
    rows: int
    merged: int
    lost: int
    moved: Mapping[str, int]
    moving: tuple[str, ...]
    workers: tuple[WorkerStatus, ...]

    @classmethod
    def of(cls, message: Message) -> FleetStatus:
        """From the answer of a coordinator."""
        workers = tuple(WorkerStatus(**each) for each in message["workers"])
        return cls(**{**message, "workers": workers, "moving": tuple(message["moving"])})

    def __str__(self) -> str:
        epoch = f"epoch {self.generation}" if self.generation else "no epoch yet"
        more = [f"epoch {self.coming} is coming"] if self.coming else []
        more += ["selecting"] if self.selecting else []
        more += [f"{self.lost} rows lost"] if self.lost else []
        more += [self.fault] if self.fault else []
        age = "" if self.age_s is None else f", model of {self.age_s:.1f} s ago"
        lines = [f"{epoch}: {self.merged} of {self.rows} rows in the model{age}", *more]
        lines.append(f"{'worker':<10} {'rows':>10} {'lag':>8} {'streams':>8} {'heard':>8}")
        for each in self.workers:
            heard = "never" if each.heard_s is None else f"{each.heard_s:.1f} s"
            fault = f"  {each.fault}" if each.fault else ""
            lines.append(f"{each.name:<10} {each.rows:>10} {each.lag:>8} {each.streams:>8} {heard:>8}{fault}")
        return "\n".join(lines)
