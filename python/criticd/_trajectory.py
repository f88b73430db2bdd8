"""A trajectory in a picture: a line with its direction, and the value along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from criticd._protocol import Array, Invalid

if TYPE_CHECKING:
    from criticd.snapshot import Snapshot

_ARROWS = 8
"""Arrows along a line."""

_INK = "black"


def checked(snapshot: Snapshot, trajectory: Any, rewards: Any) -> tuple[Array, Array | None]:
    """States (n, D) in their order, and the rewards (n,) that followed each of them, if they are given."""
    states = np.asarray(trajectory, np.float64)
    if states.ndim != 2 or states.shape[1] != snapshot.dim or len(states) < 2 or not np.isfinite(states).all():
        raise Invalid("trajectory", f"must be two finite states or more, (n, {snapshot.dim}), not {states.shape}")
    if rewards is None:
        return states, None
    paid = np.asarray(rewards, np.float64)
    if paid.shape != (len(states),) or not np.isfinite(paid).all():
        raise Invalid("rewards", f"must be ({len(states)},) finite numbers, one for each state, not {paid.shape}")
    return states, paid


def panels(ax: Any, count: int) -> Any:
    """`count` axes (count,): those given, or those of a new figure."""
    from matplotlib import pyplot

    if ax is None:
        _, made = pyplot.subplots(1, count, layout="constrained", figsize=(5.5 * count, 4.8))
        return made
    given = np.ravel(np.asarray(ax, object))
    if len(given) != count:
        raise Invalid("ax", f"must be {count} axes: the map, the value along the trajectory, and the rewards, if any")
    return given


def line(ax: Any, places: Array, ranges: Sequence[Array]) -> None:
    """Join places (n, 2) on axes of these ranges, except over a leap of more than half of an axis, as of an angle."""
    steps = np.abs(np.diff(places, axis=0))
    leaps = np.any(steps > [0.5 * (high - low) for low, high in ranges], axis=1)
    joined = np.insert(places, np.flatnonzero(leaps) + 1, np.nan, axis=0)
    ax.plot(joined[:, 0], joined[:, 1], color=_INK, linewidth=1.2, label="trajectory")
    moving = np.flatnonzero(np.any(steps > 0, axis=1) & ~leaps)
    style = {"arrowstyle": "->", "color": _INK, "shrinkA": 0, "shrinkB": 0}
    for k in moving[:: -(-len(moving) // _ARROWS) or 1]:
        ax.annotate("", xy=places[k + 1], xytext=places[k], arrowprops=style)
    ax.plot(*places[0], "o", color=_INK, markerfacecolor="white", label="its start")
    ax.plot(*places[-1], "s", color=_INK, label="its end")
    ax.legend(loc="upper right")


def value(ax: Any, means: Array, deviation: Array | None, label: str) -> None:
    """The value along the trajectory (n,) with two standard deviations, if they are known."""
    rows = np.arange(len(means))
    (drawn,) = ax.plot(rows, means, label="V")
    if deviation is not None:
        band = {"color": drawn.get_color(), "alpha": 0.2, "linewidth": 0, "label": "2 standard deviations"}
        ax.fill_between(rows, means - 2 * deviation, means + 2 * deviation, **band)
    ax.set(xlabel="row of the trajectory", ylabel=label)
    ax.legend()


def paid(ax: Any, rewards: Array, label: str) -> None:
    """The rewards along the trajectory (n,)."""
    ax.plot(np.arange(len(rewards)), rewards, drawstyle="steps-mid")
    ax.set(xlabel="row of the trajectory", ylabel=label)
