"""Covariance of values at two states, as snapshots have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from criticd._protocol import Array

BOUND = 4.0
"""Where a bounded column stops, in the normalised coordinate."""


@dataclass(frozen=True)
class Kernel:
    """k(a, b) = signal_variance profile((a - b)' Omega (a - b)) + bias_variance + columns, of normalised states.

    ```python
    print(model.kernel.relevance, model.kernel.signal_variance)
    ```

    Omega = diag(relevance) + factors' factors. `relevance` is (D,), `factors` (k, D), k = 0 unless `kind` is "factor".
    `profile` is "gaussian", exp(-r^2 / 2), or "matern52", (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) r. `kinds` says of
    each state variable whether it is "real", "asinh:C:S:W", which enters as W asinh((z - C) / S), "periodic:P", which
    enters as its point of the unit circle, or "category", whose values are 0 or sqrt(2) apart; it is empty if all are
    real. `factors` go along real and bent variables only.
    `columns` are functions of the state whose coefficients V has beside what the dictionary spans: "constant",
    "linear:D", "bounded:D", "cosine:D" or "sine:D" of variable D. They add the sum of `column_variances` (q,) times
    f(a) f(b).
    """

    kind: str
    signal_variance: float
    bias_variance: float
    relevance: Array
    factors: Array
    profile: str = "gaussian"
    kinds: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    column_variances: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def diagonal(self) -> float:
        """k(a, a) without columns: the variance of V before anything was learned, but for what they add."""
        return self.signal_variance + self.bias_variance

    def prior(self, states: Array) -> Array:
        """k(a, a) (n,) at normalised states (n, D), columns and all: the variance of V before anything was learned."""
        return self.diagonal + self.functions(states) ** 2 @ self.column_variances

    def known(self, variances: Array) -> Array:
        """The share of the signal's prior variance (n,) that is gone where V has these `variances`: 0 far from data."""
        share: Array = np.maximum(1.0 - variances / self.signal_variance, 0.0)
        return share

    def functions(self, states: Array) -> Array:
        """f(a) of the columns (n, q) at normalised states (n, D)."""
        return np.column_stack(
            [np.zeros((len(states), 0)), *(self._function(states, column) for column in self.columns)]
        )

    def _function(self, states: Array, column: str) -> Array:
        name, variable = function_of(column)
        if variable is None:
            return np.ones(len(states))
        x: Array = states[:, variable]
        if name == "linear":
            return x
        if name == "bounded":
            return np.clip(x, -BOUND, BOUND)
        turns = x / (period_of(self.kinds[variable]) or 1.0)
        angle = 2 * np.pi * (turns - np.round(turns))
        found: Array = np.cos(angle) if name == "cosine" else np.sin(angle)
        return found

    def column_slopes(self, states: Array, d: int) -> Array:
        """Derivatives (n, q) of f(a) by variable `d` at normalised states (n, D)."""
        found = np.zeros((len(states), len(self.columns)))
        for j, column in enumerate(self.columns):
            name, variable = function_of(column)
            if variable != d:
                continue
            if name in ("linear", "bounded"):
                found[:, j] = (np.abs(states[:, d]) < BOUND) | (name == "linear")
                continue
            turn = 2 * np.pi / (period_of(self.kinds[d]) or 1.0)
            other = self._function(states, f"{'sine' if name == 'cosine' else 'cosine'}:{d}")
            found[:, j] = (-turn if name == "cosine" else turn) * other
        return found

    @property
    def on_line(self) -> Array:
        """Which variables are numbers on a line, bent or not (D,): those that `factors` go along."""
        kinds = self.kinds or ("real",) * len(self.relevance)
        return np.array([kind == "real" or bend_of(kind) is not None for kind in kinds])

    def project(self, states: Array) -> Array:
        """Points whose Euclidean distances are those of Omega: (n, D + k) from normalised states (n, D).

        A periodic variable takes two columns. Categories take none: `apart` has their part.
        """
        roots = np.sqrt(self.relevance)
        if not self.kinds:
            scaled: Array = states * roots
        else:
            columns = [np.zeros((len(states), 0))]
            for x, root, kind in zip(bent(self, states).T, roots, self.kinds, strict=True):
                period = period_of(kind)
                if period is not None:
                    turns = x / period
                    angle = 2 * np.pi * (turns - np.round(turns))
                    columns.append(root * np.column_stack([np.cos(angle), np.sin(angle)]))
                elif kind != "category":
                    columns.append(root * x[:, None])
            scaled = np.hstack(columns)
        if not len(self.factors):
            return scaled
        return np.hstack([scaled, bent(self, states) @ (self.factors * self.on_line).T])

    def apart(self, a: Array, b: Array) -> Array | float:
        """What categories add to the squared distances (n, m) of normalised states (n, D) and (m, D)."""
        out: Array | float = 0.0
        for d, kind in enumerate(self.kinds):
            if kind == "category":
                out = out + 2 * self.relevance[d] * (a[:, d, None] != b[:, d])
        return out

    def of_squares(self, squared: Array) -> Array:
        """Covariances from squared distances r^2."""
        if self.profile == "matern52":
            a = np.sqrt(5 * squared)
            # Far away the exponential is zero, and the square might overflow.
            a = np.minimum(a, 1e3)
            shape: Array = (1 + a + a * a / 3) * np.exp(-a)
        else:
            shape = np.exp(-0.5 * squared)
        values: Array = self.signal_variance * shape + self.bias_variance
        return values

    def slopes(self, squared: Array) -> Array:
        """Derivatives of covariances by the squared distances r^2."""
        if self.profile == "matern52":
            # dk/da = -a (1 + a) / 3 exp(-a), and a^2 = 5 r^2: finite at 0.
            a = np.minimum(np.sqrt(5 * squared), 1e3)
            shape: Array = -5 / 6 * (1 + a) * np.exp(-a)
        else:
            shape = -0.5 * np.exp(-0.5 * squared)
        return self.signal_variance * shape

    def rise(self, d: int, apart: Array) -> Array:
        """The derivative of r^2, factors aside, by coordinate `d` of `bent` states, from its differences `apart`."""
        kind = self.kinds[d] if self.kinds else "real"
        period = period_of(kind)
        if period is not None:
            turn: Array = self.relevance[d] * 4 * np.pi / period * np.sin(2 * np.pi * apart / period)
            return turn
        return np.zeros_like(apart) if kind == "category" else 2 * self.relevance[d] * apart

    def bends(self, squared: Array) -> Array:
        """Second derivatives of covariances by the squared distances r^2."""
        if self.profile == "matern52":
            shape: Array = 25 / 12 * np.exp(-np.minimum(np.sqrt(5 * squared), 1e3))
        else:
            shape = 0.25 * np.exp(-0.5 * squared)
        return self.signal_variance * shape


def kernel_of(message: Mapping[str, Any], dim: int) -> Kernel:
    """From the map `kernel` of a snapshot. Raises `ValueError` or `KeyError`."""
    kernel = Kernel(
        kind=str(message["kind"]),
        signal_variance=float(message["signal_variance"]),
        bias_variance=float(message["bias_variance"]),
        relevance=array_of(message["relevance"], 1),
        factors=matrix_of(message.get("factors", ()), dim),
        profile=str(message.get("profile", "gaussian")),
        kinds=_kinds(message.get("kinds", ())),
        columns=tuple(str(column) for column in message.get("columns", ())),
        column_variances=array_of(message.get("column_variances", ()), 1),
    )
    if kernel.kind not in ("isotropic", "ard", "factor"):
        raise ValueError(f"a kernel of kind {kernel.kind!r}, which this version of the package does not know")
    if kernel.profile not in ("gaussian", "matern52"):
        raise ValueError(f"a kernel of profile {kernel.profile!r}, which this version of the package does not know")
    if kernel.relevance.shape != (dim,) or kernel.factors.shape[1] != dim or len(kernel.kinds) not in (0, dim):
        raise ValueError("a kernel of another dimension than its inputs")
    if not (kernel.signal_variance > 0 and kernel.bias_variance >= 0 and (kernel.relevance >= 0).all()):
        raise ValueError("a kernel with a negative variance or relevance")
    if kernel.column_variances.shape != (len(kernel.columns),) or not (kernel.column_variances > 0).all():
        raise ValueError("columns without a positive variance of each")
    for column in kernel.columns:
        name, variable = function_of(column)
        if (variable or 0) >= dim:
            raise ValueError(f"a column {column!r} of states of {dim} variables")
        kind = "real" if variable is None or not kernel.kinds else kernel.kinds[variable]
        fits = period_of(kind) is None if name in ("linear", "bounded") else period_of(kind) is not None
        if variable is not None and (kind == "category" or not fits):
            raise ValueError(f"a column {column!r} of a variable that is {kind}")
    return kernel


def bent(kernel: Kernel, states: Array) -> Array:
    """Normalised states (n, D) with the coordinates of what is bent."""
    found = states
    for d, kind in enumerate(kernel.kinds):
        if (bend := bend_of(kind)) is not None:
            centre, scale, width = bend
            found = found.copy() if found is states else found
            found[:, d] = width * np.arcsinh((states[:, d] - centre) / scale)
    return found


def bent_slopes(kernel: Kernel, states: Array, d: int) -> Array:
    """The derivative (n,) of that coordinate by variable `d`: 1 if it is not bent."""
    bend = bend_of(kernel.kinds[d]) if kernel.kinds else None
    if bend is None:
        return np.ones(len(states))
    centre, scale, width = bend
    slopes: Array = width / np.hypot(states[:, d] - centre, scale)
    return slopes


def function_of(column: str) -> tuple[str, int | None]:
    """What a column is, "constant", "linear", "bounded", "cosine" or "sine", and the number of its state variable."""
    name, _, variable = column.partition(":")
    if name == "constant" and column == name:
        return name, None
    if name not in ("linear", "bounded", "cosine", "sine") or not variable.isdecimal():
        raise ValueError(f"a column {column!r}, which this version of the package does not know")
    return name, int(variable)


def period_of(kind: str) -> float | None:
    """P of "periodic:P"; None for the other kinds of state variables."""
    return float(kind.removeprefix("periodic:")) if kind.startswith("periodic:") else None


def bend_of(kind: str) -> tuple[float, float, float] | None:
    """C, S and W of "asinh:C:S:W"; None for the other kinds of state variables."""
    if not kind.startswith("asinh:"):
        return None
    centre, scale, width = (float(number) for number in kind.split(":")[1:])
    return centre, scale, width


def _kinds(value: Any) -> tuple[str, ...]:
    kinds = tuple(str(kind) for kind in value)
    for kind in kinds:
        period = period_of(kind)
        bend = bend_of(kind)
        if bend is not None and not (np.isfinite(bend).all() and min(bend[1:]) > 0):
            raise ValueError(f"a bend whose scale or width is not positive: {kind!r}")
        if period is None and bend is None and kind not in ("real", "category"):
            raise ValueError(f"a state variable of kind {kind!r}, which this version of the package does not know")
        if period is not None and not 0 < period < np.inf:
            raise ValueError(f"a period that is not positive: {kind!r}")
    return () if set(kinds) == {"real"} else kinds


def array_of(value: Any, ndim: int) -> Array:
    """A read-only array of finite numbers."""
    array = np.array(value, np.float64)
    if array.ndim != ndim:
        raise ValueError(f"an array of {array.ndim} axes where {ndim} belong")
    if not np.isfinite(array).all():
        raise ValueError("a number that is not finite")
    array.setflags(write=False)
    return array


def matrix_of(value: Any, width: int) -> Array:
    """(n, width); an empty list stands for no rows."""
    return array_of(np.zeros((0, width)) if len(value) == 0 else value, 2)
