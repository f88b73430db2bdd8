"""Pictures of a value function, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from criticd._protocol import Array, Invalid

if TYPE_CHECKING:
    from criticd.snapshot import Snapshot

_POINTS = 200
"""Points along a curve, or along each side of a map."""


_AVERAGED = 40
"""Points along each side of a map of averages, and states that an average goes over: each cell takes as many."""

_CELLS = 20
"""Cells along each side of a map of errors."""


@dataclass
class _View:
    """Functions of states on one or two axes."""

    snapshot: Snapshot
    chosen: list[int]
    ranges: list[Array]
    others: Array
    """(s, D): where the other variables stand; an average goes over all of them."""
    points: int

    def states(self, places: Array) -> Array:
        """(p s, D): each of the places (p, A) with the other variables of each row of `others`."""
        states = np.tile(self.others, (len(places), 1))
        states[:, self.chosen] = np.repeat(places, len(self.others), axis=0)
        return states

    def means(self, values: Array) -> Array:
        """(p, ...): the means over `others` of values at `states`."""
        means: Array = values.reshape(-1, len(self.others), *values.shape[1:]).mean(axis=1)
        return means

    def grid(self) -> tuple[list[Array], Array]:
        """Ticks of each axis, and places (p, A), the first axis fastest."""
        ticks = [np.linspace(low, high, self.points) for low, high in self.ranges]
        grid = np.meshgrid(*ticks)
        return ticks, np.stack([axis.ravel() for axis in grid], axis=1)


def draw(
    snapshot: Snapshot,
    variables: Sequence[int | str] | None,
    at: Any,
    ax: Any,
    *,
    marginal: bool = False,
    against: Snapshot | None = None,
    error: tuple[Any, Any] | None = None,
) -> Any:
    """Draw as `Snapshot.plot` says."""
    try:
        from matplotlib import pyplot
    except ImportError as missing:
        raise ImportError("Snapshot.plot needs matplotlib: pip install criticd[plot]") from missing
    chosen = _chosen(snapshot, variables)
    if against is not None and error is not None:
        raise Invalid("error", "cannot be drawn together with against")
    if against is not None and against.dim != snapshot.dim:
        raise Invalid("against", f"is a model of {against.dim} state variables, not of {snapshot.dim}")
    if marginal and at is not None:
        raise Invalid("at", "says where variables stand that marginal averages over")
    came = None if error is None else _came(snapshot, error)
    states = snapshot.dictionary * snapshot.scale + snapshot.shift
    centre = _centre(snapshot, states, at)
    averages = marginal and len(states) > 0 and len(chosen) < snapshot.dim
    others = states[:: -(-len(states) // _AVERAGED)] if averages else centre[None, :]
    shown = states if came is None else came[0]
    ranges = [_range(shown[:, d]) for d in chosen]
    view = _View(snapshot, chosen, ranges, others, _AVERAGED if averages else _POINTS)
    if ax is None:
        _, ax = pyplot.subplots(layout="constrained")
    if came is not None:
        _errors(view, *came, ax)
    elif len(chosen) == 1:
        _curve(view, against, ax)
    else:
        _map(view, against, ax)
    ax.set_title(_title(view, against, averages=averages, errors=came is not None), fontsize="medium", wrap=True)
    return ax


def _title(view: _View, against: Snapshot | None, *, averages: bool, errors: bool) -> str:
    snapshot, chosen = view.snapshot, view.chosen
    title = f"{snapshot.critic}, generation {snapshot.generation}, {snapshot.offset} rows"
    if against is not None:
        word = "minus" if len(chosen) == 2 else "and"
        title += f"\n{word} {against.critic}, generation {against.generation}, {against.offset} rows"
    if errors:
        return title + "\nreturn minus value"
    if averages:
        return title + f"\naveraged over {len(view.others)} states"
    fixed = [f"{_name(snapshot, d)} = {view.others[0, d]:.3g}" for d in range(snapshot.dim) if d not in chosen]
    return title + ("\nat " + ", ".join(fixed) if fixed else "")


def _curve(view: _View, against: Snapshot | None, ax: Any) -> None:
    snapshot, d = view.snapshot, view.chosen[0]
    (ticks,), places = view.grid()
    states = view.states(places)
    for number, model in enumerate([snapshot] if against is None else [snapshot, against]):
        means = view.means(np.reshape(model(states), (len(states), -1)))
        deviation = view.means(model(states, std=True)[1] ** 2) ** 0.5 if model.covariance is not None else None
        for column in range(means.shape[1]):
            label = "V" if means.shape[1] == 1 else f"V of reward {column}"
            label += "" if against is None else f", {model.critic}, generation {model.generation}"
            style = "-" if number == 0 else "--"
            (line,) = ax.plot(ticks, means[:, column], style, label=label)
            if deviation is not None:
                low, high = means[:, column] - 2 * deviation, means[:, column] + 2 * deviation
                band = "2 standard deviations" if column == number == 0 else None
                ax.fill_between(ticks, low, high, color=line.get_color(), alpha=0.2, linewidth=0, label=band)
    # Where the model has states to compare with: elsewhere it extrapolates.
    shown = snapshot.dictionary[:, d] * snapshot.scale[d] + snapshot.shift[d]
    ax.plot(shown, np.zeros_like(shown), "|", color="grey", transform=ax.get_xaxis_transform(), clip_on=False)
    ax.set(xlabel=_name(snapshot, d), ylabel="value")
    ax.legend()


def _map(view: _View, against: Snapshot | None, ax: Any) -> None:
    ticks, places = view.grid()
    states = view.states(places)

    def ask(model: Snapshot) -> tuple[Array, Array]:
        said = model(states, known=True)
        assert said.extrapolates is not None
        values = said.mean if said.mean.ndim == 1 else said.mean[:, 0]
        return view.means(values), view.means(said.extrapolates.astype(np.float64))

    values, away = ask(view.snapshot)
    label, style = "value", dict[str, Any]()
    if against is not None:
        other, beyond = ask(against)
        values, away = values - other, np.maximum(away, beyond)
        label, style = "difference of the values", _diverging(values)
    shape = (view.points, view.points)
    mesh = ax.pcolormesh(*ticks, values.reshape(shape), shading="nearest", rasterized=True, **style)
    ax.figure.colorbar(mesh, ax=ax, label=label)
    if np.any(away > 0.5):
        ax.contourf(*ticks, away.reshape(shape), levels=[0.5, 1.5], colors="none", hatches=["///"])
        # Hatched, in the words of a legend: where the model keeps no state nearby.
        _hatched(ax, "extrapolated")
    ax.set(xlabel=_name(view.snapshot, view.chosen[0]), ylabel=_name(view.snapshot, view.chosen[1]))


def _errors(view: _View, states: Array, returns: Array, ax: Any) -> None:
    """Means of return minus value in cells; over one variable each error, and their means."""
    snapshot, chosen = view.snapshot, view.chosen
    values = np.reshape(snapshot(states), (len(states), -1))[:, 0]
    errors = returns - values
    edges = [np.linspace(low, high, _CELLS + 1) for low, high in view.ranges]
    places = [np.digitize(states[:, d], edge) - 1 for d, edge in zip(chosen, edges, strict=True)]
    inside = [np.clip(place, 0, _CELLS - 1) for place in places]
    cells = inside[0] if len(chosen) == 1 else inside[1] * _CELLS + inside[0]
    counts = np.bincount(cells, minlength=_CELLS ** len(chosen))
    with np.errstate(invalid="ignore"):
        means = np.bincount(cells, errors, minlength=len(counts)) / counts
    if len(chosen) == 1:
        middles = (edges[0][1:] + edges[0][:-1]) / 2
        ax.axhline(0, color="grey", linewidth=1)
        ax.plot(states[:, chosen[0]], errors, ".", alpha=0.3, markersize=3, label="a return")
        ax.plot(middles[counts > 0], means[counts > 0], "o-", label="mean of a cell")
        ax.set(xlabel=_name(snapshot, chosen[0]), ylabel="return minus value")
        ax.legend()
        return
    shape = (_CELLS, _CELLS)
    mesh = ax.pcolormesh(*edges, means.reshape(shape), rasterized=True, **_diverging(means))
    ax.figure.colorbar(mesh, ax=ax, label="return minus value")
    ax.contourf(
        *((edge[1:] + edge[:-1]) / 2 for edge in edges),
        (counts == 0).reshape(shape),
        levels=[0.5, 1.5],
        colors="none",
        hatches=["///"],
    )
    _hatched(ax, "no return known")
    ax.set(xlabel=_name(snapshot, chosen[0]), ylabel=_name(snapshot, chosen[1]))


def _diverging(values: Array) -> dict[str, Any]:
    """Colours around zero."""
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    return {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}


def _hatched(ax: Any, meaning: str) -> None:
    ax.plot([], [], " ", label=f"hatched: {meaning}")
    ax.legend(loc="upper right", handlelength=0, handletextpad=0)


def _came(snapshot: Snapshot, error: tuple[Any, Any]) -> tuple[Array, Array]:
    """States (n, D) and the returns (n,) that followed them."""
    states, returns = (np.asarray(part, np.float64) for part in error)
    if states.ndim != 2 or states.shape[1] != snapshot.dim or len(states) == 0:
        raise Invalid("error", f"states must be (n, {snapshot.dim}), not {states.shape}")
    if returns.shape != (len(states),):
        raise Invalid("error", f"returns must be ({len(states)},), not {returns.shape}")
    return states, returns


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
