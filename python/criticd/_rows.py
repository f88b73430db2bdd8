"""Rows on their way to the daemon: checked once, then carried as bytes, which costs a control loop least."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from criticd._protocol import MAGNITUDE_MAX, Array, Invalid, Message
from criticd._values import flag, flags, numbers

if TYPE_CHECKING:
    from typing_extensions import Self

_LARGEST = float(np.finfo(np.float64).max)
_SMALLEST = float(np.nextafter(0.0, 1.0))


_SUM_TOLERANCE = 1e-6
"""By how much the probabilities of one row may miss the sum 1."""


class Policies(NamedTuple):
    """What a row holds of policies, in this order.

    Whether it has `behavior_prob` and `target_prob`; the lengths of its next action (as `Layout.actions`) and of its
    probabilities of next actions, 0 where it has none. The name of the policy that acted, of all rows of a message,
    empty where it has none.
    """

    behavior: bool = False
    target: bool = False
    next_action: int = -1
    next_probs: int = 0
    name: str = ""

    @property
    def width(self) -> int:
        """How many numbers that is."""
        acts = max(1, self.next_action) if self.next_action >= 0 else 0
        return self.behavior + self.target + acts + self.next_probs

    def parts(self, at: int) -> tuple[slice, slice, slice, slice]:
        """Where each of them lies in a row in which they begin at `at`; empty where a row does not have it."""
        ends = [at, at + self.behavior, at + self.behavior + self.target, at + self.width - self.next_probs]
        behavior, target, acts = (slice(*pair) for pair in pairwise(ends))
        return behavior, target, acts, slice(ends[-1], at + self.width)


NO_POLICIES = Policies()


@dataclass(frozen=True)
class Layout:
    """What a row holds, all as 64-bit floats.

    In this order: state, successor, rewards, ends, action, what it says of policies, discount, time.

    `rewards` and `actions` are lengths, 0 standing for a plain number; `actions` is -1 where rows have none. `ends` is
    where the two flags lie, `said` where what is said of policies begins, `width` the length of a row.
    """

    dim: int
    rewards: int
    actions: int = -1
    discount: bool = False
    time: bool = False
    policies: Policies = NO_POLICIES
    ends: int = field(init=False, compare=False)
    said: int = field(init=False, compare=False)
    width: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        ends = 2 * self.dim + max(1, self.rewards)
        acts = max(1, self.actions) if self.actions >= 0 else 0
        object.__setattr__(self, "ends", ends)
        said = ends + 2 + acts
        object.__setattr__(self, "said", said)
        object.__setattr__(self, "width", said + self.policies.width + self.discount + self.time)

    def columns(self, data: bytes | memoryview) -> Message:
        """The keys of a batch of the rows in `data`."""
        d, at, width = self.dim, self.ends, self.width
        rows = np.frombuffer(data, np.float64).reshape(-1, width)
        columns: Message = {
            "states": rows[:, :d],
            "next_states": rows[:, d : 2 * d],
            "rewards": rows[:, 2 * d : at] if self.rewards else rows[:, 2 * d],
            "terminated": rows[:, at] != 0,
            "truncated": rows[:, at + 1] != 0,
        }
        if self.discount:
            columns["discounts"] = rows[:, width - 1 - self.time]
        if self.actions > 0:
            columns["actions"] = rows[:, at + 2 : at + 2 + self.actions]
        elif self.actions == 0:
            columns["actions"] = rows[:, at + 2]
        if self.time:
            columns["times"] = rows[:, width - 1]
        if self.policies is not NO_POLICIES:
            behavior, target, acts, probs = self.policies.parts(self.said)
            if self.policies.behavior:
                columns["behavior_probs"] = rows[:, behavior.start]
            if self.policies.target:
                columns["target_probs"] = rows[:, target.start]
            if self.policies.next_action >= 0:
                columns["next_actions"] = rows[:, acts] if self.policies.next_action else rows[:, acts.start]
            if self.policies.next_probs:
                columns["next_action_probs"] = rows[:, probs]
            if self.policies.name:
                columns["policy"] = self.policies.name
        return columns


# Made once and then looked up: a program has one or two of them.
layout_of = lru_cache(256)(Layout)


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
        behavior_prob: float | None = None,
        target_prob: float | None = None,
        next_action: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
    ) -> Self:
        """One transition."""
        first, after = numbers(state, "state"), numbers(next_state, "next_state")
        if first.ndim != 1 or not first.size:
            raise Invalid("state", f"must be (D,), not {first.shape}")
        if after.shape != first.shape:
            raise Invalid("next_state", f"is {after.shape} where the state is {first.shape}")
        # This is what a control loop pays for: plain numbers are not made arrays first.
        rewards = reward if type(reward) is float else numbers(reward, "reward")
        acts = action if action is None or type(action) is float else numbers(action, "action")
        counts = _length(rewards, "reward"), -1 if acts is None else _length(acts, "action")
        policies = NO_POLICIES
        if not (behavior_prob is target_prob is next_action is next_action_probs is None):
            policies, values = _said_once(behavior_prob, target_prob, next_action, next_action_probs)
        layout = layout_of(first.size, *counts, discount is not None, time is not None, policies)
        d, at = layout.dim, layout.ends
        row = np.empty(layout.width)
        row[:d] = first
        row[d : 2 * d] = after
        row[2 * d : at] = rewards
        row[at] = flag(terminated, "terminated")
        row[at + 1] = flag(truncated, "truncated")
        if acts is not None:
            row[at + 2 : at + 2 + max(1, layout.actions)] = acts
        if policies is not NO_POLICIES:
            row[layout.said : layout.said + policies.width] = values
        if discount is not None:
            row[-1 - layout.time] = discount if type(discount) is float else float(_scalar(discount, "discount"))
        if time is not None:
            row[-1] = time if type(time) is float else float(_scalar(time, "time"))
        # No number is too large if the sum of all squares is not: one cheap test for nearly all rows.
        if discount is not None or policies is not NO_POLICIES or not row.dot(row) <= MAGNITUDE_MAX**2:
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
        behavior_probs: npt.ArrayLike | None = None,
        target_probs: npt.ArrayLike | None = None,
        next_actions: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
    ) -> Self:
        """A batch of n transitions, or without `next_states` a piece of a trajectory of n + 1 states."""
        first, gains = numbers(states, "states"), numbers(rewards, "rewards")
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
            after = numbers(next_states, "next_states")
            if after.shape != first.shape:
                raise Invalid("next_states", f"is {after.shape} where states are {first.shape}")
            if len(first) != n:
                raise Invalid("rewards", f"there are {n} where there are {len(first)} states")
        acts = None if actions is None else numbers(actions, "actions")
        if acts is not None and (acts.ndim not in (1, 2) or len(acts) != n or (acts.ndim == 2 and not acts.shape[1])):
            raise Invalid("actions", f"must be ({n},) or ({n}, A), not {acts.shape}")
        policies, said = _said_of_rows(n, behavior_probs, target_probs, next_actions, next_action_probs)
        layout = layout_of(
            first.shape[1],
            gains.shape[1] if gains.ndim == 2 else 0,
            -1 if acts is None else acts.shape[1] if acts.ndim == 2 else 0,
            discounts is not None,
            times is not None,
            policies,
        )
        d, at = layout.dim, layout.ends
        table = np.empty((n, layout.width))
        table[:, :d], table[:, d : 2 * d] = first, after
        table[:, 2 * d : at] = gains if gains.ndim == 2 else gains[:, None]
        table[:, at] = flags(terminated, "terminated", n)
        table[:, at + 1] = flags(truncated, "truncated", n)
        if acts is not None:
            table[:, at + 2 : at + 2 + max(1, layout.actions)] = acts if acts.ndim == 2 else acts[:, None]
        table[:, layout.said : layout.said + policies.width] = said
        for values, name, column in ((discounts, "discounts", -1 - layout.time), (times, "times", -1)):
            if values is not None:
                column_of = numbers(values, name)
                if column_of.shape != (n,):
                    raise Invalid(name, f"must be ({n},), not {column_of.shape}")
                table[:, column] = column_of
        ended = (table[:-1, at : at + 2] != 0).any(axis=1)
        if next_states is None and ended.any():
            row = int(ended.argmax())
            raise Invalid("terminated" if table[row, at] else "truncated", "only the last row may end a piece", row)
        _check(layout, table, plural=True)
        return cls(layout, n, table.tobytes())

    def of_policy(self, name: str | None) -> Rows:
        """The same rows, under the policy of this name; None leaves it unsaid."""
        if name is None:
            return self
        if not 1 <= len(name.encode()) <= 256:
            raise Invalid("policy", f"a policy's name has 1 to 256 bytes, not {len(name.encode())}")
        shape = self.layout
        policies = shape.policies._replace(name=name)
        named = layout_of(shape.dim, shape.rewards, shape.actions, shape.discount, shape.time, policies)
        return replace(self, layout=named)

    def ending(self, terminated: bool, truncated: bool) -> Rows:
        """The same rows, the last of which ends so."""
        ends = flag(terminated, "terminated"), flag(truncated, "truncated")
        table = np.frombuffer(self.data, np.float64).reshape(-1, self.layout.width).copy()
        at = self.layout.ends
        if len(table):
            table[-1, at : at + 2] = ends
        return replace(self, data=table.tobytes())

    def part(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop` of these."""
        width = 8 * self.layout.width
        return Rows(self.layout, stop - start, self.data[start * width : stop * width])


def _said_once(
    behavior_prob: float | None,
    target_prob: float | None,
    next_action: npt.ArrayLike | None,
    next_action_probs: npt.ArrayLike | None,
) -> tuple[Policies, Array]:
    """What one row says of policies, and the numbers of it."""
    parts = []
    for value, name in ((behavior_prob, "behavior_prob"), (target_prob, "target_prob")):
        if value is not None:
            parts.append(_scalar(value, name))
    act = None if next_action is None else numbers(next_action, "next_action")
    probs = None if next_action_probs is None else numbers(next_action_probs, "next_action_probs")
    if probs is not None and (probs.ndim != 1 or not probs.size):
        raise Invalid("next_action_probs", f"must be (C,), not {probs.shape}")
    policies = Policies(
        behavior_prob is not None,
        target_prob is not None,
        -1 if act is None else _length(act, "next_action"),
        0 if probs is None else probs.size,
    )
    parts += [values for values in (act, probs) if values is not None]
    return policies, np.concatenate([values.reshape(-1) for values in parts])


def _said_of_rows(
    n: int,
    behavior_probs: npt.ArrayLike | None,
    target_probs: npt.ArrayLike | None,
    next_actions: npt.ArrayLike | None,
    next_action_probs: npt.ArrayLike | None,
) -> tuple[Policies, Array]:
    """What n rows say of policies, and the numbers of it, (n, width)."""
    parts = []
    for values, name in ((behavior_probs, "behavior_probs"), (target_probs, "target_probs")):
        if values is not None:
            found = numbers(values, name)
            if found.shape != (n,):
                raise Invalid(name, f"must be ({n},), not {found.shape}")
            parts.append(found[:, None])
    acts = None if next_actions is None else numbers(next_actions, "next_actions")
    if acts is not None:
        if acts.ndim not in (1, 2) or len(acts) != n or (acts.ndim == 2 and not acts.shape[1]):
            raise Invalid("next_actions", f"must be ({n},) or ({n}, A), not {acts.shape}")
        parts.append(acts if acts.ndim == 2 else acts[:, None])
    probs = None if next_action_probs is None else numbers(next_action_probs, "next_action_probs")
    if probs is not None:
        if probs.ndim != 2 or len(probs) != n or not probs.shape[1]:
            raise Invalid("next_action_probs", f"must be ({n}, C), not {probs.shape}")
        parts.append(probs)
    if not parts:
        return NO_POLICIES, np.empty((n, 0))
    policies = Policies(
        behavior_probs is not None,
        target_probs is not None,
        -1 if acts is None else acts.shape[1] if acts.ndim == 2 else 0,
        0 if probs is None else probs.shape[1],
    )
    return policies, np.concatenate(parts, axis=1)


def _scalar(value: npt.ArrayLike, name: str) -> Array:
    """A number, as an array ()."""
    number = numbers(value, name)
    if number.ndim:
        raise Invalid(name, f"must be a number, not {number.shape}")
    return number


def _length(value: Any, name: str) -> int:
    """Of a reward or an action: 0 for a plain number."""
    if type(value) is float or value.ndim == 0:
        return 0
    if value.ndim > 1 or not value.size:
        raise Invalid(name, f"must be a number or an array of one axis, not {value.shape}")
    return int(value.size)


def _check(layout: Layout, rows: Array, plural: bool) -> None:
    """The daemon refuses a message for one bad number in it: find that here, where it came from."""
    d, at = layout.dim, layout.ends
    acts = layout.said
    behavior, target, next_acts, probs = layout.policies.parts(acts)
    late = acts + layout.policies.width
    limits = {
        "state": (slice(0, d), -MAGNITUDE_MAX, MAGNITUDE_MAX),
        "next_state": (slice(d, 2 * d), -MAGNITUDE_MAX, MAGNITUDE_MAX),
        "reward": (slice(2 * d, at), -MAGNITUDE_MAX, MAGNITUDE_MAX),
        "action": (slice(at + 2, acts), -_LARGEST, _LARGEST),
        "next_action": (next_acts, -_LARGEST, _LARGEST),
        "behavior_prob": (behavior, _SMALLEST, _LARGEST),
        "target_prob": (target, 0.0, _LARGEST),
        "next_action_probs": (probs, 0.0, 1.0),
        "discount": (slice(late, late + layout.discount), 0.0, 1.0),
        "time": (slice(late + layout.discount, layout.width), -_LARGEST, _LARGEST),
    }
    for name, (part, least, most) in limits.items():
        values = rows[:, part]
        fine = ((values >= least) & (values <= most)).all(axis=1)
        if not fine.all():
            row = int(fine.argmin())
            found = values[row][~((values[row] >= least) & (values[row] <= most))][0]
            limit = f"lies between {least:g} and {most:g}"
            if most == _LARGEST:
                limit = {_SMALLEST: "must be above 0", 0.0: "must be at least 0"}.get(least, "must be") + " and finite"
                limit = "must be finite" if least == -_LARGEST else limit
            raise Invalid(_named(name, plural), f"{limit}, not {found}", row if plural else None)
    if layout.policies is not NO_POLICIES:
        _check_policies(layout, rows, plural)


def _check_policies(layout: Layout, rows: Array, plural: bool) -> None:
    """What the numbers of a row must be together; each of them is fine."""
    policies = layout.policies
    behavior, target, _, probs = policies.parts(layout.said)
    if layout.actions >= 0 and policies.next_action >= 0:
        act, following = max(1, layout.actions), max(1, policies.next_action)
        if act != following:
            raise Invalid(_named("next_action", plural), f"has {following} numbers where the action has {act}")
    if policies.behavior and policies.target:
        with np.errstate(over="ignore"):
            ratios = rows[:, target.start] / rows[:, behavior.start]
        if not (ratios <= MAGNITUDE_MAX).all():
            row = int((ratios <= MAGNITUDE_MAX).argmin())
            said = f"is {ratios[row]:g} times the probability of what was done, more than {MAGNITUDE_MAX:g}"
            raise Invalid(_named("target_prob", plural), said, row if plural else None)
    if policies.next_probs:
        sums = rows[:, probs].sum(axis=1)
        fine = np.abs(sums - 1) <= _SUM_TOLERANCE
        if not fine.all():
            row = int(fine.argmin())
            raise Invalid("next_action_probs", f"must sum to 1, not to {sums[row]:g}", row if plural else None)


def _named(name: str, plural: bool) -> str:
    """What a field is called in a batch."""
    return name + "s" if plural and name != "next_action_probs" else name
