"""Which variables a function hangs on: total Sobol indices over visited states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from criticd._protocol import Array

_SAMPLES = 1000
_GOLDEN = (5**0.5 - 1) / 2


UNNOTICED = 1e-9
"""Values of a smaller variance than this share of the noise's are the same in every state."""


def total_indices(states: Array, f: Callable[[Array], Array], samples: int = _SAMPLES, *, least: float = 0.0) -> Array:
    """Shares (D,) in [0, 1] of the variance of `f` that hang on each variable, over states (n, D).

    `f` gives (s,) numbers for states (s, D). It is Jansen's estimate over pairs on a lattice of ranks, as the dashboard
    and `criticd plot` have it, so that all of them rank variables alike. 0 where `f` varies by no more than `least`.
    """
    n, dim = states.shape
    shares = np.zeros(dim)
    if n == 0:
        return shares
    steps = np.arange(samples)
    base = states[steps * n // samples if n >= samples else steps % n]
    values = f(base)
    partner = (steps + (np.modf((steps + 1) * _GOLDEN)[0] * samples).astype(np.int64)) % samples
    for d in range(dim):
        order = np.argsort(base[:, d], kind="stable")
        moved = base.copy()
        moved[order, d] = base[order[partner], d]
        after = f(moved)
        variance = np.concatenate([values, after]).var()
        if variance > least:
            shares[d] = min(1.0, float(((values - after) ** 2).mean() / (2 * variance)))
    return shares
