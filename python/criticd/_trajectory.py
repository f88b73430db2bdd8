"""A trajectory in a picture: a line with its direction, and the value along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd._frames import states_of
from criticd._protocol import Array, Invalid
from criticd._values import flags, numbers

_ARROWS = 8
"""Arrows along a line."""

_INK = "black"


@dataclass
class Path:
    """States in their order, and what followed each of them."""

    states: Array
    """(n, D)."""
    paid: Array | None
    """(n,): the rewards, if they are given."""
    ends: npt.NDArray[np.bool_]
    """(n,): whether an episode ends after the row; nowhere if that is not given."""

    def returns(self, discount: float) -> Array:
        """(n,): the discounted return from each row to the end of its episode; nan where no end follows."""
        assert self.paid is not None
        found, ahead = np.empty(len(self.paid)), np.nan
        for row in reversed(range(len(self.paid))):
            ahead = self.paid[row] + discount * (0.0 if self.ends[row] else ahead)
            found[row] = ahead
        return found

    def broken(self, *columns: Array) -> list[Array]:
        """The numbers of the rows, and columns (n,) of them, with a gap behind each end, so that no line crosses it."""
        behind = np.flatnonzero(self.ends) + 1
        rows = np.insert(np.arange(len(self.states), dtype=np.float64), behind, behind - 0.5)
        return [rows, *(np.insert(column, behind, np.nan) for column in columns)]


def checked(names: Sequence[str] | None, dim: int, trajectory: Any, rewards: Any, ends: Any) -> Path:
    """A trajectory with what is given of it."""
    states = states_of(trajectory, names, "trajectory")
    if states.ndim != 2 or states.shape[1] != dim or len(states) < 2 or not np.isfinite(states).all():
        raise Invalid("trajectory", f"must be two finite states or more, (n, {dim}), not {states.shape}")
    paid = None if rewards is None else numbers(rewards, "rewards")
    if paid is not None and (paid.shape != (len(states),) or not np.isfinite(paid).all()):
        raise Invalid("rewards", f"must be ({len(states)},) finite numbers, one for each state, not {paid.shape}")
    return Path(states, paid, flags(ends, "ends", len(states)))


def panels(ax: Any, count: int) -> Any:
    """`count` axes (count,): the given ones, or a new figure's."""
    from matplotlib import pyplot

    if ax is None:
        _, made = pyplot.subplots(1, count, layout="constrained", figsize=(5.5 * count, 4.8))
        return made
    given = np.ravel(np.asarray(ax, object))
    if len(given) != count:
        raise Invalid("ax", f"must be {count} axes: the map, the value along the trajectory, and the rewards, if any")
    return given


def line(ax: Any, places: Array, ranges: Sequence[Array], path: Path) -> None:
    """Join places (n, 2), except over ends, and over leaps of more than half of an axis's range, as of an angle."""
    steps = np.abs(np.diff(places, axis=0))
    leaps = np.any(steps > [0.5 * (high - low) for low, high in ranges], axis=1) | path.ends[:-1]
    joined = np.insert(places, np.flatnonzero(leaps) + 1, np.nan, axis=0)
    ax.plot(joined[:, 0], joined[:, 1], color=_INK, linewidth=1.2, label="trajectory")
    moving = np.flatnonzero(np.any(steps > 0, axis=1) & ~leaps)
    style = {"arrowstyle": "->", "color": _INK, "shrinkA": 0, "shrinkB": 0}
    for k in moving[:: -(-len(moving) // _ARROWS) or 1]:
        ax.annotate("", xy=places[k + 1], xytext=places[k], arrowprops=style)
    ax.plot(*places[0], "o", color=_INK, markerfacecolor="white", label="its start")
    ax.plot(*places[-1], "s", color=_INK, label="its end")
    ax.legend(loc="upper right")


def value(ax: Any, path: Path, means: Array, deviation: Array | None, discount: float, label: str) -> None:
    """The value along the trajectory (n,) with two standard deviations, if known, and the returns that came."""
    rows, shown = path.broken(means)
    (drawn,) = ax.plot(rows, shown, label="V")
    if deviation is not None:
        band = {"color": drawn.get_color(), "alpha": 0.2, "linewidth": 0, "label": "2 standard deviations"}
        _, low, high = path.broken(means - 2 * deviation, means + 2 * deviation)
        ax.fill_between(rows, low, high, **band)
    if path.paid is not None and path.ends.any():
        _, came = path.broken(path.returns(discount))
        ax.plot(rows, came, "--", label="return that came")
    _ends(ax, path, "end of an episode")
    ax.set(xlabel="row of the trajectory", ylabel=label)
    ax.legend()


def paid(ax: Any, path: Path, label: str) -> None:
    """The rewards along the trajectory (n,)."""
    assert path.paid is not None
    ax.plot(np.arange(len(path.paid)), path.paid, drawstyle="steps-mid")
    _ends(ax, path, None)
    ax.set(xlabel="row of the trajectory", ylabel=label)


def _ends(ax: Any, path: Path, label: str | None) -> None:
    """A line behind the last row of each episode; the first of them is in the legend."""
    for k, row in enumerate(np.flatnonzero(path.ends)):
        ax.axvline(row + 0.5, color="grey", linewidth=0.8, linestyle=":", label=label if k == 0 else None)
