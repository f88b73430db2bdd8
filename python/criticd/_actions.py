"""Actions as inputs of a value function: a model of Q(s, a) is one of states with the coordinates of actions behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd._protocol import Array, Invalid, Message
from criticd._values import numbers


@dataclass(frozen=True, eq=False)
class Actions:
    """The actions of a model of action values: `count` discrete ones, numbered from 0, or a box from `low` to `high`.

    `low` and `high` are (A,), in the unit of the action, and empty where actions are discrete; `count` is 0 for a box.
    `copies` (m, K) are weights of K randomised copies of Q, by which Thompson sampling acts; K is 0 without them.
    `prior_mean` is Q of actions that no row resembles.
    """

    count: int
    low: Array
    high: Array
    copies: Array
    prior_mean: float = 0.0

    @property
    def width(self) -> int:
        """Coordinates that an action adds to its state's."""
        return self.count or len(self.low)

    def with_rows(self, rows: int) -> Actions:
        """With copies of `rows` rows: new ones have no weight."""
        copies = np.zeros((rows, self.copies.shape[1]))
        known = min(rows, len(self.copies))
        copies[:known] = self.copies[:known]
        return replace(self, copies=copies)

    def inputs(self, states: npt.ArrayLike, actions: npt.ArrayLike) -> Array:
        """States (n, D) with the coordinates of their actions, (n,) or (n, A): (n, D + width).

        One state (D,) goes with one action; several actions of one state are an input each. Raises `Invalid` for what
        is no action of the model.
        """
        points, chosen = numbers(states, "states"), numbers(actions, "actions")
        width = 1 if self.count else len(self.low)
        single = points.ndim == 1 and chosen.size == width and chosen.ndim < 2
        points = np.atleast_2d(points)
        if chosen.ndim == 0 or (chosen.ndim == 1 and width > 1):
            chosen = chosen.reshape(1, -1)
        elif chosen.ndim == 1:
            chosen = chosen[:, None]
        if chosen.ndim != 2 or chosen.shape[1] != width:
            raise Invalid("actions", f"must have {width} numbers for each state, not the shape {np.shape(actions)}")
        if len(points) == 1:
            points = np.repeat(points, len(chosen), axis=0)
        if len(points) != len(chosen):
            raise Invalid("actions", f"there are {len(chosen)} for {len(points)} states")
        if self.count:
            fine = (chosen[:, 0] >= 0) & (chosen[:, 0] < self.count) & (chosen[:, 0] == np.floor(chosen[:, 0]))
            if not fine.all():
                raise Invalid("actions", f"must be whole numbers from 0 to {self.count - 1}", int(fine.argmin()))
            chosen = np.eye(self.count)[chosen[:, 0].astype(np.intp)]
        joined: Array = np.hstack([points, chosen])
        return joined[0] if single else joined

    def within(self, name: str, actions: Array) -> Array:
        """These actions (n, A); `Invalid`, which names the argument `name`, where one lies outside the box."""
        if not self.count and actions.shape[-1] == len(self.low):
            fine = ((actions >= self.low) & (actions <= self.high)).all(axis=-1)
            if not fine.all():
                low, high = self.low.tolist(), self.high.tolist()
                raise Invalid(name, f"must lie between {low} and {high}", int(np.atleast_1d(fine).argmin()))
        return actions

    def space(self) -> Message:
        """What there is to choose among, with the keys of the protocol."""
        if self.count:
            return {"kind": "discrete", "count": self.count}
        return {"kind": "box", "low": self.low.tolist(), "high": self.high.tolist()}

    def message(self) -> Message:
        """As the protocol has it."""
        message = self.space()
        if not self.count:
            message.update(low=self.low, high=self.high)
        if self.copies.shape[1]:
            message["copies"] = self.copies
        if self.prior_mean:
            message["prior_mean"] = self.prior_mean
        return message

    @classmethod
    def of(cls, message: Mapping[str, Any], size: int, dim: int) -> Actions:
        """From what a snapshot with `size` rows in its dictionary and `dim` coordinates says. Raises `ValueError`."""
        kind = message["kind"]
        if kind not in ("discrete", "box"):
            raise ValueError(f"actions of kind {kind!r}, which this version of the package does not know")
        copies = np.array(message.get("copies", np.zeros((size, 0))), np.float64)
        actions = cls(
            count=int(message["count"]) if kind == "discrete" else 0,
            low=np.array(message.get("low", ()), np.float64),
            high=np.array(message.get("high", ()), np.float64),
            copies=copies[:, None] if copies.ndim == 1 else copies,
            prior_mean=float(message.get("prior_mean", 0.0)),
        )
        bounds = np.concatenate([actions.low, actions.high])
        if (
            actions.low.shape != actions.high.shape
            or not np.isfinite([*bounds, actions.prior_mean]).all()
            or (actions.low > actions.high).any()
        ):
            raise ValueError("the bounds of an action do not fit each other")
        if not 0 < actions.width < dim or actions.copies.shape[0] != size:
            raise ValueError("actions of another size than the model")
        return actions
