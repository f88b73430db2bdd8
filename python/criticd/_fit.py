"""A value function from a table in one call: `criticd fit`, with the program that the package brings."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from criticd import _frames, _program
from criticd._frames import Table
from criticd._protocol import Message
from criticd.snapshot import Snapshot

READING = (
    "columns",
    "state",
    "next_state",
    "next_prefix",
    "action",
    "reward",
    "episode",
    "time",
    "terminated",
    "truncated",
    "done_column",
    "discount_column",
    "ignore",
    "names",
    "units",
    "assume_terminated",
    "done",
    "order",
    "missing",
    "format",
)
"""Options that say how a table is read: other commands read tables like it with the same."""


@dataclass(frozen=True)
class FitReport:
    """How a model was fitted: what `criticd fit` reports. `str(report)` has it in sentences.

    ```python
    print(model.report)
    print(model.report.shares, model.report.held_out)
    ```

    - `document`: all of it, as `criticd fit --json` prints it. `fit(..., hyperparameters=document, no_optimise=True)`
      takes kernel and noise from it.
    - `notes`: sentences about the table: which column was taken for what, what was left out.
    - `names`: of the state variables, and of the coordinates of actions behind them.
    - `reading`: the options that said how the table is read.
    """

    document: Message
    notes: tuple[str, ...]
    names: tuple[str, ...]
    reading: Mapping[str, Any] = field(repr=False)

    @property
    def held_out(self) -> Message | None:
        """How well returns of held-out episodes are predicted, None where none were held out.

        `correlation`, `error` (root mean square) beside the `spread` of returns, both in the unit of returns, and
        `coverage_90`, the share of returns inside their 90 % interval; lists with several rewards. `episodes` were held
        out, of `of_episodes`. `factor` is what intervals have been widened by. `value_order` is the rank correlation of
        value and time within an episode, `mean` with its `standard_error`; None where episodes are too short.
        """
        return self.document.get("held_out")

    @property
    def shares(self) -> dict[str, float]:
        """Share of the variance of V that hangs on each variable, from 0 to 1: total Sobol indices, largest first."""
        found = dict(zip(self.names, self.document["explained"], strict=True))
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    def __str__(self) -> str:
        document = self.document
        size, seconds = document["dictionary_size"], document["seconds"]
        learned = f"{document['transitions']} transitions, {size} dictionary states, {seconds:.1f} s"
        return "\n".join([document["text"].strip(), learned, *self.notes])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Fitted(Snapshot):
    """The value function that `fit` has learned: a `Snapshot` with the `report` of how it came about.

    ```python
    model = criticd.fit(missions, state=["x"], reward="-cost", episode="mission", terminated="arrived")
    model.save("missions.model")
    ```
    """

    report: FitReport

    def _reading(self) -> Mapping[str, Any]:
        return self.report.reading


def fit(
    table: Table,
    *,
    state: str | Sequence[str] | None = None,
    reward: str | Sequence[str] | None = None,
    episode: str | None = None,
    time: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    discount: float | None = None,
    **options: Any,
) -> Fitted:
    """Learn a value function from a table: model selection, then the posterior.

    ```python
    model = criticd.fit(
        missions, state=["x", "battery"], reward="-cost", episode="mission", terminated="arrived", discount=0.95
    )
    print(model.report)
    value, deviation = model(missions, std=True)
    ```

    `table` has one row for each step. It is a frame of pandas or polars, a table of pyarrow or anything else with
    `__arrow_c_stream__`, a dict of arrays (n,) or (n, k), a structured array, a dataset of Hugging Face, a replay
    buffer of Stable-Baselines3, a dataset of d3rlpy, Minari or LeRobot, or a file or folder that `criticd fit` reads.
    In a list of several of them each begins new episodes.

    - `state`: the columns of the state, in order. Columns (n, k) hold k numbers of it.
    - `reward`: a column, or a sum such as "-cost" or "reward - 0.1*energy"; several in a list.
    - `episode`: number or name of the episode. `time` orders the rows of one.
    - `terminated`: the column that is true where nothing can follow; `truncated` where an episode was cut from outside.
    - `discount`: in [0, 1], by default 0.99.
    - `options`: all others of `criticd fit`, with underscores: `next_state`, `action`, `assume_terminated="never"`,
      `kernel="auto"`, `lambda_=0.9`, `target="y"` for regression, `heads=[{...}]`. `criticd fit --help` lists them.

    The program of the package does the work, on all cores, and writes nothing but temporary files. Its mathematics and
    its report are the command's. Progress is shown where standard error is a terminal.

    Raises `Invalid` with the column or the option at fault, `CriticdError` if the program fails, FileNotFoundError with
    the remedy where there is none.
    """
    named = {
        "state": state,
        "reward": reward,
        "episode": episode,
        "time": time,
        "terminated": terminated,
        "truncated": truncated,
        "discount": discount,
        **options,
    }
    with tempfile.TemporaryDirectory(prefix="criticd-") as place:
        folder = Path(place)
        words = _program.words_of(named, folder)
        path, out = _frames.written(table, folder), folder / "out.model"
        words += [f"--out={out}", "--json"]
        printed, notes = _program.run("fit", path, words, given=not path.is_relative_to(folder))
        snapshot = Snapshot.load(out)
    names = snapshot.names or tuple(f"state_{d}" for d in range(snapshot.dim))
    reading = {name: value for name, value in named.items() if name in READING and value is not None}
    report = FitReport(json.loads(printed), tuple(notes), names, reading)
    return Fitted(**{each.name: getattr(snapshot, each.name) for each in fields(Snapshot)}, report=report)
