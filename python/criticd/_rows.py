"""Rows on their way to the daemon: checked once, then carried as bytes, which costs a control loop least."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from criticd._protocol import MAGNITUDE_MAX, Array, Invalid, Message


class Layout(NamedTuple):
    """What a row holds, all as 64-bit floats, in this order: state, successor, rewards, ends, action, discount, time.

    `rewards` and `actions` are lengths, 0 standing for a plain number; `actions` is -1 where rows have none.
    """

    dim: int
    rewards: int
    actions: int = -1
    discount: bool = False
    time: bool = False

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self._action_at + (max(1, self.actions) if self.actions >= 0 else 0) + self.discount + self.time

    @property
    def _action_at(self) -> int:
        return 2 * self.dim + max(1, self.rewards) + 2

    def columns(self, data: bytes | memoryview) -> Message:
        """The keys of a batch of the rows in `data`."""
        d, width = self.dim, self.width
        rows = np.frombuffer(data, np.float64).reshape(-1, width)
        ends = self._action_at - 2
        columns: Message = {
            "states": rows[:, :d],
            "next_states": rows[:, d : 2 * d],
            "rewards": rows[:, 2 * d : ends] if self.rewards else rows[:, 2 * d],
            "terminated": rows[:, ends] != 0,
            "truncated": rows[:, ends + 1] != 0,
        }
        if self.actions > 0:
            columns["actions"] = rows[:, ends + 2 : ends + 2 + self.actions]
        elif self.actions == 0:
            columns["actions"] = rows[:, ends + 2]
        if self.discount:
            columns["discounts"] = rows[:, width - 1 - self.time]
        if self.time:
            columns["times"] = rows[:, width - 1]
        return columns


@dataclass(slots=True)
class Rows:
    """Checked rows of one layout."""

    layout: Layout
    count: int
    data: bytes

    @classmethod
    def single(
        cls,
        state: npt.ArrayLike,
        reward: npt.ArrayLike,
        next_state: npt.ArrayLike,
        terminated: bool,
        truncated: bool,
        action: npt.ArrayLike | None,
        discount: float | None,
        time: float | None,
    ) -> Self:
        """One transition."""
        first, after = _numbers(state, "state"), _numbers(next_state, "next_state")
        if first.ndim != 1 or not first.size:
            raise Invalid("state", f"must be (D,), not {first.shape}")
        if after.shape != first.shape:
            raise Invalid("next_state", f"is {after.shape} where the state is {first.shape}")
        rewards = _numbers(reward, "reward")
        acts = None if action is None else _numbers(action, "action")
        if rewards.ndim > 1 or (rewards.ndim == 1 and not rewards.size):
            raise Invalid("reward", f"must be a number or (H,), not {rewards.shape}")
        if acts is not None and (acts.ndim > 1 or (acts.ndim == 1 and not acts.size)):
            raise Invalid("action", f"must be a number or (A,), not {acts.shape}")
        layout = Layout(
            first.size,
            rewards.size if rewards.ndim else 0,
            -1 if acts is None else acts.size if acts.ndim else 0,
            discount is not None,
            time is not None,
        )
        d, at = first.size, layout._action_at
        row = np.empty(layout.width)
        row[:d], row[d : 2 * d], row[2 * d : at - 2] = first, after, rewards
        row[at - 2], row[at - 1] = bool(terminated), bool(truncated)
        if acts is not None:
            row[at : at + acts.size] = acts
        if discount is not None:
            row[-1 - layout.time] = discount
        if time is not None:
            row[-1] = time
        _check(layout, row[None], plural=False)
        return cls(layout, 1, row.tobytes())

    @classmethod
    def table(
        cls,
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_states: npt.ArrayLike | None,
        terminated: npt.ArrayLike | None,
        truncated: npt.ArrayLike | None,
        actions: npt.ArrayLike | None,
        discounts: npt.ArrayLike | None,
        times: npt.ArrayLike | None,
    ) -> Self:
        """A batch of n transitions, or without `next_states` a piece of a trajectory of n + 1 states."""
        first, gains = _numbers(states, "states"), _numbers(rewards, "rewards")
        if first.ndim != 2 or not first.shape[1]:
            raise Invalid("states", f"must be (n, D), not {first.shape}")
        if gains.ndim not in (1, 2) or (gains.ndim == 2 and not gains.shape[1]):
            raise Invalid("rewards", f"must be (n,) or (n, H), not {gains.shape}")
        n = len(gains)
        if next_states is None:
            if len(first) != n + 1:
                raise Invalid("states", f"a trajectory of {n} rewards has {n + 1} states, not {len(first)}")
            first, after = first[:-1], first[1:]
        else:
            after = _numbers(next_states, "next_states")
            if after.shape != first.shape:
                raise Invalid("next_states", f"is {after.shape} where states are {first.shape}")
            if len(first) != n:
                raise Invalid("rewards", f"there are {n} where there are {len(first)} states")
        acts = None if actions is None else _numbers(actions, "actions")
        if acts is not None and (acts.ndim not in (1, 2) or len(acts) != n or (acts.ndim == 2 and not acts.shape[1])):
            raise Invalid("actions", f"must be ({n},) or ({n}, A), not {acts.shape}")
        layout = Layout(
            first.shape[1],
            gains.shape[1] if gains.ndim == 2 else 0,
            -1 if acts is None else acts.shape[1] if acts.ndim == 2 else 0,
            discounts is not None,
            times is not None,
        )
        d, at = layout.dim, layout._action_at
        table = np.empty((n, layout.width))
        table[:, :d], table[:, d : 2 * d] = first, after
        table[:, 2 * d : at - 2] = gains if gains.ndim == 2 else gains[:, None]
        table[:, at - 2] = _flags(terminated, "terminated", n)
        table[:, at - 1] = _flags(truncated, "truncated", n)
        if acts is not None:
            table[:, at : at + max(1, layout.actions)] = acts if acts.ndim == 2 else acts[:, None]
        for values, field, column in ((discounts, "discounts", -1 - layout.time), (times, "times", -1)):
            if values is not None:
                numbers = _numbers(values, field)
                if numbers.shape != (n,):
                    raise Invalid(field, f"must be ({n},), not {numbers.shape}")
                table[:, column] = numbers
        if next_states is None and (table[:-1, at - 2 : at] != 0).any():
            row = int((table[:-1, at - 2 : at] != 0).any(axis=1).argmax())
            raise Invalid("terminated" if table[row, at - 2] else "truncated", "only the last row may end a piece", row)
        _check(layout, table, plural=True)
        return cls(layout, n, table.tobytes())

    def ending(self, terminated: bool, truncated: bool) -> Rows:
        """The same rows, the last of which ends so."""
        table = np.frombuffer(self.data, np.float64).reshape(-1, self.layout.width).copy()
        at = self.layout._action_at
        if len(table):
            table[-1, at - 2], table[-1, at - 1] = bool(terminated), bool(truncated)
        return replace(self, data=table.tobytes())

    def part(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop` of these."""
        width = 8 * self.layout.width
        return Rows(self.layout, stop - start, self.data[start * width : stop * width])


def _numbers(value: npt.ArrayLike, field: str) -> Array:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise Invalid(field, f"must hold numbers ({error})") from error


def _flags(value: npt.ArrayLike | None, field: str, rows: int) -> Any:
    if value is None:
        return False
    flags = np.asarray(value)
    if flags.dtype != np.bool_ or flags.shape != (rows,):
        raise Invalid(field, f"must be ({rows},) of bool, not {flags.shape} of {flags.dtype}")
    return flags


def _check(layout: Layout, rows: Array, plural: bool) -> None:
    """The daemon refuses a message for one bad number in it: find that here, where it came from."""
    d, at = layout.dim, layout._action_at
    peak = np.abs(rows[:, : at - 2]).max(initial=0.0)
    if not peak <= MAGNITUDE_MAX:
        for field, part in (("state", slice(0, d)), ("next_state", slice(d, 2 * d)), ("reward", slice(2 * d, at - 2))):
            fine = (np.abs(rows[:, part]) <= MAGNITUDE_MAX).all(axis=1)
            if not fine.all():
                message = f"must be finite, and at most {MAGNITUDE_MAX:g} in magnitude"
                raise Invalid(field + "s" * plural, message, int(fine.argmin()) if plural else None)
    if at < rows.shape[1] and not np.isfinite(rows[:, at:]).all():
        row = int(np.isfinite(rows[:, at:]).all(axis=1).argmin())
        field = "actions" if plural else "action"
        raise Invalid(field, "action, discount and time must be finite", row if plural else None)
    if layout.discount:
        discounts = rows[:, -1 - layout.time]
        fine = (discounts >= 0) & (discounts <= 1)
        if not fine.all():
            row = int(fine.argmin())
            raise Invalid("discounts" if plural else "discount", f"lies in [0, 1], not {discounts[row]}", row)
