"""What would the robot do, and where will it be? By tables of any kind, and by a daemon."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd import _frames, _program
from criticd._evaluation import Policy, ask
from criticd._evaluation import is_discrete as discrete
from criticd._frames import Table
from criticd._protocol import Array, Ask, Invalid, Message, Steps, unpack
from criticd.snapshot import Snapshot


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Planned(Snapshot):
    """Values of actions for a reward that was planned for: a `Snapshot`, whose `act` chooses actions.

    - `document`: what `criticd plan --json` prints: `value` and `error` of the best actions from where episodes begin,
      which `project=True` may leave None, `unsupported`, the share of what follows that no row supports, `warnings`,
      and `model`.
    - `notes`: sentences about the table, and what is to be doubted.

    ```python
    q = criticd.plan(log, actions="box", reward="-abs(angle)", state=["angle", "speed"], action="torque")
    actions = q.act([[0.1, 0.0]]).actions
    ```
    """

    document: Message
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Course:
    """Where a policy leads, as `rollout` predicts it.

    - `mean`: by variable (T,), after 1, 2, ... T steps, over what has not ended.
    - `within`: by variable (T,), what 90 % of the errors of such predictions for held-out rows did not exceed; NaN
      where too few chains are so long.
    - `reach`: by variable, the steps up to which errors are at most half of the spread of what came.
    - `alive`: (T,), the share that has not ended.
    - `document`: all that `criticd rollout --json` prints; by a daemon also `value`, the policy's from the starts, with
      its `error`. `notes`: sentences about the table, and doubts.

    ```python
    course = criticd.rollout(log, state=["x", "battery"], steps=50)
    low, high = course.mean["battery"] - course.within["battery"], course.mean["battery"] + course.within["battery"]
    ```
    """

    mean: dict[str, Array]
    within: dict[str, Array]
    reach: dict[str, int]
    alive: Array
    document: Message
    notes: tuple[str, ...]


def plan(
    table: Table,
    *,
    actions: str,
    reward: str | None = None,
    discount: float | None = None,
    **options: Any,
) -> Planned:
    """Plan for a reward that need never have been observed: what the robot would do for it.

    ```python
    q = criticd.plan(log, actions="discrete:3", reward="(x > 0.7) - 0.1*v^2", state=["x", "v"], action="go")
    print(q.document["value"], q.act([0.2, 0.0]).actions)
    ```

    `table` is a table as for `fit`.

    - `actions`: "discrete:N" or "box".
    - `reward`: an expression of state variables and actions, known exactly; or a column, or a sum of columns, learned
      from the rows. By default the reward of the rows.
    - `discount`: at least 0, below 1; by default 0.99.
    - `options`: all others of `criticd plan`, with underscores: `state`, `action`, `episode`, `terminated`,
      `model_elements=300`, `model_elements_by="ols"`, `project=True`, `seed=0`.

    Raises `Invalid` with the column or the option at fault, also where more than a fifth of the plan lies where no row
    was; `CriticdError` if the program fails, FileNotFoundError with the remedy where there is none.
    """
    named = {"actions": actions, "reward": reward, "discount": discount, **options}
    with tempfile.TemporaryDirectory(prefix="criticd-") as place:
        folder = Path(place)
        out = folder / "out.model"
        words = [*_program.words_of(named, folder), f"--out={out}", "--json"]
        path = _frames.written(table, folder)
        printed, notes = _program.run("plan", path, words, given=not path.is_relative_to(folder))
        snapshot = Snapshot.load(out)
    return _planned(snapshot, json.loads(printed), notes)


def plan_live(options: Message) -> Steps[Planned]:
    """Have a daemon plan. `options` are fields of `plan`."""
    reply = yield Ask("plan", options)
    model = reply["plan"]
    return _planned(Snapshot.of(unpack(model)), _document(reply, "plan"), reply["warnings"])


def rollout_live(policy: Snapshot | Policy | None, options: Message) -> Steps[Course]:
    """Have a daemon predict a course under a policy, which may be asked. `options` are fields of `rollout`."""
    if policy is not None and "reward" in options:
        raise Invalid("reward", "is of a plan: give a policy or a reward")
    if policy is None or (isinstance(policy, str) and policy in ("acted", "best")):
        return _course((yield Ask("rollout", options if policy is None else {**options, "policy": policy})))
    kinds = discrete((yield Ask("status", {})), options.get("critic"))
    # Where the policy has to answer.
    places = yield Ask("rollout", {**options, "elements": True})
    states = np.concatenate([np.asarray(places[key], dtype=np.float64) for key in ("elements", "begins")])
    if isinstance(policy, Snapshot):
        answers = np.asarray(policy.act(states).actions, dtype=np.float64)
        answers = answers[:, np.newaxis] if answers.ndim == 1 else answers
        kind = "actions"
    else:
        answers = ask(policy, states)
        kind = "probs" if kinds and answers.shape[1] > 1 else "actions"
    return _course((yield Ask("rollout", {**options, "answered": states, kind: answers})))


def _document(reply: Message, *without: str) -> Message:
    return {key: value for key, value in reply.items() if key not in ("v", "id", "ok", *without)}


def _planned(snapshot: Snapshot, document: Message, notes: Sequence[str]) -> Planned:
    found = {each.name: getattr(snapshot, each.name) for each in fields(Snapshot)}
    return Planned(**found, document=document, notes=tuple(notes))


def rollout(
    table: Table,
    *,
    steps: int = 20,
    show: str | Sequence[str] | None = None,
    start: npt.ArrayLike | None = None,
    policy: Snapshot | str | os.PathLike[str] | None = None,
    actions: str | None = None,
    **options: Any,
) -> Course:
    """Predict the course of chosen variables, and how far ahead that is to be believed.

    ```python
    course = criticd.rollout(log, state=["x", "battery"], steps=50, show=["x", "abs(x - 3)"])
    print(course.mean["x"][-1], course.reach["x"])
    ```

    `table` is a table as for `fit`.

    - `show`: state variables, or expressions of them, at most six; by default the first six variables.
    - `start`: states (n, D) to begin in, of which the course is the mean; by default where episodes begin.
    - `policy`: who acts. By default the policy that acted goes on. A model of action values, such as `plan` returns,
      takes its best action; a file has an answer for each row as for `criticd evaluate`; an endpoint is asked. It needs
      `actions`, "discrete:N" or "box".
    - `options`: all others of `criticd rollout`, with underscores.

    Raises what `plan` raises.
    """
    if "from" in options or "from_" in options:
        raise Invalid("start", "is the name of this option here")
    shown = show if show is None or isinstance(show, str) else list(show)
    with tempfile.TemporaryDirectory(prefix="criticd-") as place:
        folder = Path(place)
        acting = policy
        if isinstance(policy, Snapshot):
            acting = folder / "policy.model"
            policy.save(acting)
        named = {"steps": steps, "show": _joined(shown), "policy": acting, "actions": actions, **options}
        words = [*_program.words_of(named, folder), "--json"]
        if start is not None:
            words.append(f"--from={_states(start, folder)}")
        path = _frames.written(table, folder)
        printed, notes = _program.run("rollout", path, words, given=not path.is_relative_to(folder))
    return _course(json.loads(printed), notes)


def _course(reply: Message, notes: Sequence[str] | None = None) -> Course:
    document = _document(reply)
    of: Mapping[str, Message] = {each["name"]: each for each in document["variables"]}
    return Course(
        mean={name: np.array(each["mean"]) for name, each in of.items()},
        within={name: np.array(each["within"], dtype=float) for name, each in of.items()},
        reach={name: each["reach"] for name, each in of.items()},
        alive=np.array(document["alive"]),
        document=document,
        notes=tuple(document["warnings"] if notes is None else notes),
    )


def _joined(shown: str | list[str] | None) -> str | None:
    """Expressions as the command line has them: commas within brackets part nothing there."""
    return ",".join(shown) if isinstance(shown, list) else shown


def _states(start: npt.ArrayLike, folder: Path) -> Path:
    """A file of states."""
    states = np.atleast_2d(np.asarray(start, dtype=np.float64))
    if states.ndim != 2 or states.size == 0 or not np.isfinite(states).all():
        raise Invalid("start", "must be states (n, D) of finite numbers")
    path = folder / "start.npz"
    np.savez(path, states=states)
    return path
