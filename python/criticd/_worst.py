"""The states about which a model errs most: of one episode, those that `criticd plot --errors` names.

A single return scatters. So an error is a mean over a state and those nearest to it, standardised, and the worst states
are those whose means exceed two of their standard errors by most. A neighbourhood counts once, and so do the returns of
rows that follow each other closely, which have most of their rewards in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from criticd._protocol import Array

_SAMPLES = 1500
"""States that are looked at."""

_NEIGHBOURS = 12
"""States that an error is a mean over."""

_SCATTER = 48
"""States that a scatter is taken over at least: of twelve errors it may be small by chance."""

_REACH, _NO_CHANCE = 2.0, 4.0
"""Standard errors that are taken from a mean where states are ranked, and those above which it is no chance."""

_WORST = 10
"""Worst states that are named."""

_REST = 0.1
"""The most that two returns which count as separate have in common."""


@dataclass(frozen=True, eq=False, slots=True)
class Worst:
    """A state about which the model errs much.

    `row` among those given, the `state` (D,), the mean `error` over a neighbourhood of `count` states, its standard
    deviation `spread` there, and how many standard errors the mean is: `sure`.
    """

    row: int
    state: Array
    error: float
    spread: float
    count: int
    sure: float

    @property
    def no_chance(self) -> bool:
        """Whether it is more than chance. Of 200 right models with 1500 returns each, 7 had such a state."""
        return self.sure > _NO_CHANCE


def spacing(discount: float) -> float:
    """Rows of a trajectory whose returns count as one, about: what two returns so far apart share weighs a tenth."""
    if not 0 < discount < 1:
        return 0.0 if discount <= 0 else math.inf
    return abs(math.log(_REST) / math.log(discount))


def worst(states: Array, errors: Array, apart: float) -> list[Worst]:
    """At most ten, the worst first, of errors (n,) at states (n, D) in the order in which they came.

    Errors less than `apart` rows from each other count as one.
    """
    rows = _scattered(len(states), min(len(states), _SAMPLES))
    some, wrong = states[rows], errors[rows]
    deviation = some.std(axis=0)
    scale = np.where(deviation > 0, deviation, np.inf)
    near = _nearest((some - some.mean(axis=0)) / scale)
    close = near[:, :_NEIGHBOURS]
    means = wrong[close].mean(axis=1)
    spread = _deviation(wrong[close])
    scatter = np.maximum(spread, _deviation(wrong[near]))
    # A single one has no known error.
    separate = np.array([_separate(rows[each], apart) for each in close])
    standard = np.where(separate > 1, np.maximum(scatter / np.sqrt(separate), np.finfo(float).tiny), np.inf)
    score = np.maximum(np.abs(means) - _REACH * standard, 0)
    taken = np.zeros(len(rows), bool)
    out: list[Worst] = []
    for k in np.lexsort((np.arange(len(rows)), -np.abs(means), -score)):
        if taken[close[k]].any():
            continue
        taken[close[k]] = True
        numbers: dict[str, Any] = {"error": float(means[k]), "spread": float(spread[k]), "count": close.shape[1]}
        out.append(Worst(int(rows[k]), some[k], sure=float(abs(means[k]) / standard[k]), **numbers))
        if len(out) == _WORST:
            break
    return out


def _scattered(length: int, count: int) -> Any:
    """Numbers (count,) below `length`, one from each of `count` equal parts; its place there follows no period."""
    ends = np.arange(count + 1, dtype=np.uint64) * np.uint64(length) // np.uint64(count)
    spread = ends[:-1] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    return (ends[:-1] + spread % np.diff(ends)).astype(np.int64)


def _nearest(places: Array) -> Any:
    """(n, k): the states nearest to each of the places (n, D), the nearest first, itself among them."""
    squares = np.sum(places**2, axis=1)
    away = squares[:, None] + squares - 2 * places @ places.T
    np.fill_diagonal(away, -1.0)
    count = min(_SCATTER, len(places))
    near = np.argpartition(away, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(away, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def _deviation(errors: Array) -> Array:
    """Standard deviation (n,) of errors (n, k)."""
    deviation: Array = errors.std(axis=1, ddof=1) if errors.shape[1] > 1 else np.zeros(len(errors))
    return deviation


def _separate(rows: Any, apart: float) -> int:
    """How many of these rows count, if none counts less than `apart` rows from one that does."""
    kept: list[int] = []
    for row in rows:
        if all(abs(row - other) >= apart for other in kept):
            kept.append(row)
    return len(kept)
