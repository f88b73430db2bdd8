"""Pictures of a value function, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from criticd._protocol import Array, Invalid

if TYPE_CHECKING:
    from criticd.snapshot import Snapshot

_POINTS = 200
"""Points along a curve, or along each side of a map."""


def draw(snapshot: Snapshot, variables: Sequence[int | str] | None, at: Any, ax: Any) -> Any:
    """Draw as `Snapshot.plot` says."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Snapshot.plot needs matplotlib: pip install criticd[plot]") from error
    chosen = _chosen(snapshot, variables)
    states = snapshot.dictionary * snapshot.scale + snapshot.shift
    centre = _centre(snapshot, states, at)
    if ax is None:
        _, ax = pyplot.subplots(layout="constrained")
    ranges = [_range(states[:, d]) for d in chosen]
    if len(chosen) == 1:
        _curve(snapshot, chosen[0], ranges[0], centre, ax)
    else:
        _map(snapshot, chosen, ranges, centre, ax)
    fixed = [f"{_name(snapshot, d)} = {centre[d]:.3g}" for d in range(snapshot.dim) if d not in chosen]
    title = f"{snapshot.critic}, generation {snapshot.generation}, {snapshot.offset} rows"
    ax.set_title(title + ("\nat " + ", ".join(fixed) if fixed else ""), fontsize="medium", wrap=True)
    return ax


def _curve(snapshot: Snapshot, d: int, span: Array, centre: Array, ax: Any) -> None:
    points = np.tile(centre, (_POINTS, 1))
    points[:, d] = np.linspace(span[0], span[1], _POINTS)
    means = np.reshape(snapshot(points), (_POINTS, -1))
    for column in range(means.shape[1]):
        (line,) = ax.plot(points[:, d], means[:, column], label="V" if means.shape[1] == 1 else f"V of reward {column}")
        if snapshot.covariance is not None:
            deviation = snapshot(points, std=True)[1]
            low, high = means[:, column] - 2 * deviation, means[:, column] + 2 * deviation
            label = "2 standard deviations" if column == 0 else None
            ax.fill_between(points[:, d], low, high, color=line.get_color(), alpha=0.2, linewidth=0, label=label)
    # Where the model has states to compare with: elsewhere it extrapolates.
    shown = snapshot.dictionary[:, d] * snapshot.scale[d] + snapshot.shift[d]
    ax.plot(shown, np.zeros_like(shown), "|", color="grey", transform=ax.get_xaxis_transform(), clip_on=False)
    ax.set(xlabel=_name(snapshot, d), ylabel="value")
    ax.legend()


def _map(snapshot: Snapshot, chosen: Sequence[int], ranges: list[Array], centre: Array, ax: Any) -> None:
    first, second = (np.linspace(span[0], span[1], _POINTS) for span in ranges)
    points = np.tile(centre, (_POINTS * _POINTS, 1))
    grid = np.meshgrid(first, second)
    for d, values in zip(chosen, grid, strict=True):
        points[:, d] = values.ravel()
    said = snapshot(points, known=True)
    values = said.mean if said.mean.ndim == 1 else said.mean[:, 0]
    mesh = ax.pcolormesh(first, second, values.reshape(_POINTS, _POINTS), shading="nearest", rasterized=True)
    ax.figure.colorbar(mesh, ax=ax, label="value")
    assert said.extrapolates is not None
    away = said.extrapolates.reshape(_POINTS, _POINTS)
    if away.any():
        ax.contourf(first, second, away, levels=[0.5, 1.5], colors="none", hatches=["///"])
        # Hatched, in the words of a legend: where the model keeps no state nearby.
        ax.plot([], [], " ", label="hatched: extrapolated")
        ax.legend(loc="upper right", handlelength=0, handletextpad=0)
    ax.set(xlabel=_name(snapshot, chosen[0]), ylabel=_name(snapshot, chosen[1]))


def _name(snapshot: Snapshot, d: int) -> str:
    return snapshot.names[d] if snapshot.names is not None else f"state {d}"


def _chosen(snapshot: Snapshot, variables: Sequence[int | str] | None) -> list[int]:
    if variables is None:
        # Along which V varies most over the states that the model keeps.
        gradients = snapshot.gradient(snapshot.dictionary * snapshot.scale + snapshot.shift)
        size = np.abs(gradients.reshape(*gradients.shape[:2], -1)).max(axis=2) * snapshot.scale
        order = np.argsort(-size.mean(axis=0) if len(size) else np.zeros(snapshot.dim), kind="stable")
        return sorted(int(d) for d in order[: min(2, snapshot.dim)])
    found = []
    for variable in variables:
        names = snapshot.names or ()
        if isinstance(variable, str) and variable not in names:
            raise Invalid("variables", f"there is no state variable {variable!r}, only {', '.join(names) or 'numbers'}")
        d = names.index(variable) if isinstance(variable, str) else variable
        if not 0 <= d < snapshot.dim:
            raise Invalid("variables", f"there is no state variable {d}, they are 0 to {snapshot.dim - 1}")
        found.append(d)
    if not 1 <= len(found) <= 2 or len(set(found)) < len(found):
        raise Invalid("variables", f"one or two different ones can be drawn, not {list(variables)!r}")
    return found


def _centre(snapshot: Snapshot, states: Array, at: Any) -> Array:
    """The state that holds the variables which are not drawn."""
    if at is None:
        return np.median(states, axis=0) if len(states) else snapshot.shift.copy()
    centre = np.array(at, np.float64)
    if centre.shape != (snapshot.dim,):
        raise Invalid("at", f"must be ({snapshot.dim},), not {centre.shape}")
    return centre


def _range(values: Array) -> Array:
    low, high = (values.min(), values.max()) if len(values) else (-1.0, 1.0)
    margin = 0.05 * (high - low) or 1.0
    return np.array([low - margin, high + margin])
