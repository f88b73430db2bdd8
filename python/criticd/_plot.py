"""Pictures of a value function, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from criticd import _trajectory
from criticd._frames import states_of
from criticd._model import Model
from criticd._protocol import Array, Invalid
from criticd._sobol import UNNOTICED, total_indices
from criticd._units import split_name
from criticd._worst import Worst, spacing, worst

_POINTS = 200
"""Points along a curve, or along each side of a map."""


_AVERAGED = 40
"""Points along each side of a map of averages, and states that an average goes over, in each cell."""

_UNKNOWN = 0.25
"""Share of the signal's prior variance that is left from which on a value counts as not known."""

_RUG = 300
"""Visited states below a curve."""

_CELLS = 20
"""Cells along each side of a map of errors."""


@dataclass
class _View:
    """Functions of states on one or two axes."""

    snapshot: Model
    chosen: list[int]
    ranges: list[Array]
    others: Array
    """(s, D): where the other variables stand; an average goes over all of them."""
    points: int
    reward: int
    """The reward of maps and errors."""
    rug: Array
    """(n, D): states below a curve."""
    of: str
    """What `others` and `rug` are: "visited states" or "states of the dictionary"."""

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


@dataclass
class _Errors:
    """Errors (n,) of the value at states (n, D), positive where it is too low."""

    states: Array
    errors: Array
    called: str
    row: str
    """What each error is of."""
    apart: float
    """Rows of a trajectory within which errors have something in common."""

    def worst(self) -> list[Worst]:
        """Where they are largest, the worst first."""
        return worst(self.states, self.errors, self.apart)


def draw(
    snapshot: Model,
    variables: Sequence[int | str] | None,
    at: Any,
    ax: Any,
    *,
    marginal: bool = False,
    visited: Any = None,
    against: Model | None = None,
    error: tuple[Any, Any] | None = None,
    td_error: tuple[Any, ...] | None = None,
    std: bool = False,
    reward: int | str = 0,
    trajectory: Any = None,
    rewards: Any = None,
    ends: Any = None,
) -> Any:
    """Draw as `Snapshot.plot` says."""
    try:
        from matplotlib import pyplot
    except ImportError as missing:
        raise ImportError("Snapshot.plot needs matplotlib: pip install matplotlib") from missing
    drawn = _reward(snapshot, reward)
    states = _states(snapshot, visited)
    chosen = _chosen(snapshot, variables, drawn, states)
    if std and (against is not None or error is not None or td_error is not None):
        raise Invalid("std", "cannot be drawn together with against, error or td_error")
    if std and snapshot.covariance is None:
        raise Invalid("std", "is not in this snapshot: ask with `client.snapshot(variance=True)`")
    if sum(each is not None for each in (against, error, td_error)) > 1:
        field = "td_error" if error is None else "error"
        raise Invalid(field, "only one of against, error and td_error can be drawn")
    if against is not None and against.dim != snapshot.dim:
        raise Invalid("against", f"is a model of {against.dim} state variables, not of {snapshot.dim}")
    if marginal and at is not None:
        raise Invalid("at", "says where variables stand that marginal averages over")
    if trajectory is None and rewards is not None:
        raise Invalid("rewards", "are those along a trajectory, which is not given")
    if trajectory is None and ends is not None:
        raise Invalid("ends", "are those along a trajectory, which is not given")
    if trajectory is not None and (std or any(each is not None for each in (against, error, td_error))):
        raise Invalid("trajectory", "cannot be drawn together with against, error, td_error or std")
    path = None if trajectory is None else _trajectory.checked(snapshot.names, snapshot.dim, trajectory, rewards, ends)
    came = _came(snapshot, error, td_error, drawn)
    centre = _centre(snapshot, states, at)
    averages = marginal and len(states) > 0 and len(chosen) < snapshot.dim
    others = states[:: -(-len(states) // _AVERAGED)] if averages else centre[None, :]
    shown = _kept(snapshot) if came is None else came.states
    if path is not None:
        shown = np.concatenate([shown, path.states])
    ranges = [_range(shown[:, d]) for d in chosen]
    rug, of = (states, "states of the dictionary") if visited is None else (states[:_RUG], "visited states")
    points = _AVERAGED if averages and len(chosen) == 2 else _POINTS
    view = _View(snapshot, chosen, ranges, others, points, drawn, rug, of)
    panels = None
    if path is not None:
        panels = _trajectory.panels(ax, 2 if path.paid is None else 3)
        ax = panels[0]
    elif ax is None:
        _, ax = pyplot.subplots(layout="constrained")
    if came is not None:
        _draw_errors(view, came, ax)
    elif std:
        _deviation(view, ax)
    elif len(chosen) == 1:
        _curve(view, against, ax)
    else:
        _map(view, against, ax)
    ax.set_title(_title(view, against, averages=averages, errors=came), fontsize="medium", wrap=True)
    if path is None or panels is None:
        return ax
    _along(view, path, panels)
    return panels


def _along(view: _View, path: _trajectory.Path, panels: Any) -> None:
    """The trajectory on the first of the panels, and what the model says along it on the others."""
    snapshot = view.snapshot
    means = _values(snapshot, path.states, view.reward)
    deviation = snapshot(path.states, std=True)[1] if snapshot.covariance is not None else None
    places = path.states[:, view.chosen]
    ranges = view.ranges
    if len(view.chosen) == 1:
        # Over one variable a row stands at its value, wherever its other variables are.
        places, ranges = np.column_stack([places, means]), [*ranges, np.array([-np.inf, np.inf])]
    _trajectory.line(panels[0], places, ranges, path)
    _trajectory.value(panels[1], path, means, deviation, snapshot.discount, _of(view, "value"))
    if path.paid is not None:
        name = "reward" if snapshot.reward_names is None else snapshot.reward_names[view.reward]
        _trajectory.paid(panels[2], path, name)


def _title(view: _View, against: Model | None, *, averages: bool, errors: _Errors | None) -> str:
    snapshot, chosen = view.snapshot, view.chosen
    title = f"{snapshot.critic}, generation {snapshot.generation}, {snapshot.offset} rows"
    names = snapshot.reward_names
    if names is not None and (len(chosen) == 2 or errors is not None or len(names) == 1):
        title += f", {split_name(names[view.reward])[0]}"
    if against is not None:
        word = "minus" if len(chosen) == 2 else "and"
        title += f"\n{word} {against.critic}, generation {against.generation}, {against.offset} rows"
    if errors is not None:
        return title + f"\n{errors.called}"
    if averages:
        return title + f"\naveraged over {len(view.others)} {view.of}"
    fixed = [
        f"{_name(snapshot, d)} = {_said(snapshot, d, view.others[0, d])}"
        for d in range(snapshot.dim)
        if d not in chosen
    ]
    return title + ("\nat " + ", ".join(fixed) if fixed else "")


def _said(snapshot: Model, d: int, value: float) -> str:
    """Where a variable stands: the text of a category, or the number."""
    texts = snapshot.categories[d] if d < len(snapshot.categories) else ()
    return texts[int(value)] if value in range(len(texts)) else f"{value:.3g}"


def _curve(view: _View, against: Model | None, ax: Any) -> None:
    snapshot, d = view.snapshot, view.chosen[0]
    (ticks,), places = view.grid()
    states = view.states(places)
    models = [snapshot] if against is None else [snapshot, against]
    certain = all(model.covariance is not None for model in models)
    away = np.max([_away(view, model, states, certain) for model in models], axis=0)
    _unknown_along(ax, ticks, away, "not known" if certain else "extrapolated")
    for number, model in enumerate(models):
        means = view.means(np.reshape(model(states), (len(states), -1)))
        deviation = view.means(model(states, std=True)[1] ** 2) ** 0.5 if model.covariance is not None else None
        for column in range(means.shape[1]):
            label = "V" if means.shape[1] == 1 else f"V of {_called(snapshot, column)}"
            label += "" if against is None else f", {model.critic}, generation {model.generation}"
            style = "-" if number == 0 else "--"
            (line,) = ax.plot(ticks, means[:, column], style, label=label)
            if deviation is not None:
                low, high = means[:, column] - 2 * deviation, means[:, column] + 2 * deviation
                band = "2 standard deviations" if column == number == 0 else None
                ax.fill_between(ticks, low, high, color=line.get_color(), alpha=0.2, linewidth=0, label=band)
    shown = view.rug[:, d]
    below = {"transform": ax.get_xaxis_transform(), "clip_on": False, "label": view.of}
    shown = shown[(shown >= view.ranges[0][0]) & (shown <= view.ranges[0][1])]
    ax.plot(shown, np.zeros_like(shown), "|", color="grey", **below)
    units = {split_name(name)[1] for name in snapshot.reward_names or ("",)}
    ax.set(xlabel=_name(snapshot, d), ylabel=_in(units.pop(), "value") if len(units) == 1 else "value")
    ax.legend()


def _deviation(view: _View, ax: Any) -> None:
    """The standard deviation of V; of an average that at a typical state there."""
    snapshot, chosen = view.snapshot, view.chosen
    ticks, places = view.grid()
    variance = snapshot.evaluate(view.states(places), variance=True)[1]
    assert variance is not None
    deviation = np.sqrt(view.means(variance))
    away = _away(view, snapshot, view.states(places), True)
    label = _of(view, "standard deviation of the value")
    if len(chosen) == 1:
        _unknown_along(ax, ticks[0], away, "not known")
        ax.plot(ticks[0], deviation)
        ax.set(xlabel=_name(snapshot, chosen[0]), ylabel=label, ylim=(0, None))
        if np.any(away > _UNKNOWN):
            ax.legend()
        return
    values = view.means(_values(snapshot, view.states(places), view.reward))
    # In proportion to the values: a small deviation should look small.
    most = max(float(deviation.max()), 0.25 * float(np.ptp(values))) or 1.0
    shape = (view.points, view.points)
    mesh = ax.pcolormesh(*ticks, deviation.reshape(shape), shading="nearest", rasterized=True, vmin=0, vmax=most)
    ax.figure.colorbar(mesh, ax=ax, label=label)
    _unknown(ax, ticks, away, _UNKNOWN, "not known")
    ax.set(xlabel=_name(snapshot, chosen[0]), ylabel=_name(snapshot, chosen[1]))


def _map(view: _View, against: Model | None, ax: Any) -> None:
    ticks, places = view.grid()
    states = view.states(places)

    certain = all(model.covariance is not None for model in (view.snapshot, against) if model is not None)

    def ask(model: Model) -> tuple[Array, Array]:
        values = _values(model, states, view.reward)
        return view.means(values), _away(view, model, states, certain)

    values, away = ask(view.snapshot)
    label, style = "value", dict[str, Any]()
    if against is not None:
        other, beyond = ask(against)
        values, away = values - other, np.maximum(away, beyond)
        label, style = "difference of the values", _diverging(values)
    shape = (view.points, view.points)
    mesh = ax.pcolormesh(*ticks, values.reshape(shape), shading="nearest", rasterized=True, **style)
    ax.figure.colorbar(mesh, ax=ax, label=_of(view, label))
    # Without a covariance all that is known is where the model keeps no state nearby.
    _unknown(ax, ticks, away, _UNKNOWN, "not known" if certain else "extrapolated")
    ax.set(xlabel=_name(view.snapshot, view.chosen[0]), ylabel=_name(view.snapshot, view.chosen[1]))


def _draw_errors(view: _View, came: _Errors, ax: Any) -> None:
    """Means of errors in cells; over one variable each error, and their means. The worst states have their ranks."""
    snapshot, chosen = view.snapshot, view.chosen
    states, errors = came.states, came.errors
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
        ax.plot(states[:, chosen[0]], errors, ".", alpha=0.3, markersize=3, label=f"of a {came.row}")
        ax.plot(middles[counts > 0], means[counts > 0], "o-", label="mean of a cell")
        _rank(came.worst(), ax, lambda bad: (bad.state[chosen[0]], bad.error))
        ax.set(xlabel=_name(snapshot, chosen[0]), ylabel=_of(view, came.called))
        ax.legend()
        return
    shape = (_CELLS, _CELLS)
    mesh = ax.pcolormesh(*edges, means.reshape(shape), rasterized=True, **_diverging(means))
    ax.figure.colorbar(mesh, ax=ax, label=_of(view, came.called))
    centres = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    _unknown(ax, centres, (counts == 0).astype(np.float64), 0.5, f"no {came.row} known")
    _rank(came.worst(), ax, lambda bad: tuple(bad.state[chosen]))
    ax.legend(loc="upper right")
    ax.set(xlabel=_name(snapshot, chosen[0]), ylabel=_name(snapshot, chosen[1]))


def _rank(found: list[Worst], ax: Any, place: Callable[[Worst], tuple[float, ...]]) -> None:
    """Number the worst states; the legend says where they are no more than chance."""
    label = "worst states" + ("" if any(bad.no_chance for bad in found) else ", no more than chance")
    places = [place(bad) for bad in found]
    ax.plot(*zip(*places, strict=True), "o", color="black", markerfacecolor="white", markersize=13, label=label)
    for rank, at in enumerate(places, 1):
        ax.annotate(str(rank), at, ha="center", va="center", fontsize="small")


def errors_of(
    snapshot: Model, error: tuple[Any, Any] | None, td_error: tuple[Any, ...] | None, reward: int | str
) -> list[Worst]:
    """As `Snapshot.worst` says."""
    if (error is None) == (td_error is None):
        raise Invalid("error", "either error or td_error must be given")
    came = _came(snapshot, error, td_error, _reward(snapshot, reward))
    assert came is not None
    return came.worst()


def _diverging(values: Array) -> dict[str, Any]:
    """Colours around zero."""
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    return {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}


def _unknown(ax: Any, ticks: Sequence[Array], amount: Array, limit: float, meaning: str) -> None:
    """Hatch the cells whose `amount` exceeds `limit`, and say in a legend what that means."""
    if not np.any(amount > limit):
        return
    shape = tuple(len(along) for along in reversed(ticks))
    most = max(1.5, float(amount.max()) + 1)
    ax.contourf(*ticks, amount.reshape(shape), levels=[limit, most], colors="none", hatches=["///"])
    ax.plot([], [], " ", label=f"hatched: {meaning}")
    ax.legend(loc="upper right", handlelength=0, handletextpad=0)


def _unknown_along(ax: Any, ticks: Array, amount: Array, meaning: str) -> None:
    """Hatch the ground of a curve where `amount` exceeds the limit; the legend says what that means."""
    if np.any(amount > _UNKNOWN):
        ground = {"facecolor": "none", "edgecolor": "0.8", "hatch": "///", "linewidth": 0.0, "step": "mid", "zorder": 0}
        where = {"where": amount > _UNKNOWN, "transform": ax.get_xaxis_transform()}
        ax.fill_between(ticks, 0, 1, label=f"hatched: {meaning}", **where, **ground)


def _away(view: _View, model: Model, states: Array, certain: bool) -> Array:
    """The share that is not known, (p,): none of a provisional model; if not `certain`, whether it is extrapolated."""
    said = model(states, certain, known=True)
    assert said.extrapolates is not None
    if certain and said.variance is not None:
        shares = 1.0 - model.kernel.known(view.means(said.variance))
        return np.zeros_like(shares) if model.provisional else shares
    return view.means(said.extrapolates.astype(np.float64))


def _values(snapshot: Model, states: Array, reward: int) -> Array:
    """V (n,) of one reward."""
    values: Array = np.reshape(snapshot(states), (len(states), -1))[:, reward]
    return values


def _in(unit: str, words: str) -> str:
    return f"{words} [{unit}]" if unit else words


def _of(view: _View, words: str) -> str:
    """What an axis or a colour bar shows, with the unit of the reward."""
    names = view.snapshot.reward_names
    return words if names is None else _in(split_name(names[view.reward])[1], words)


def _called(snapshot: Model, reward: int) -> str:
    return f"reward {reward}" if snapshot.reward_names is None else snapshot.reward_names[reward]


def _place(names: Sequence[str], wanted: str) -> int | None:
    """The number of a name, with or without its unit; None if there is none like it."""
    return next((k for k, name in enumerate(names) if wanted in (name, split_name(name)[0])), None)


def _reward(snapshot: Model, reward: int | str) -> int:
    names, count = snapshot.reward_names or (), snapshot.weights.shape[1]
    k = reward if isinstance(reward, int) else _place(names, reward)
    if k is None:
        raise Invalid("reward", f"there is no reward {reward!r}, only {', '.join(names) or 'numbers'}")
    if not 0 <= k < count:
        raise Invalid("reward", f"there is no reward {k}, they are 0 to {count - 1}")
    return k


def _came(
    snapshot: Model, error: tuple[Any, Any] | None, td_error: tuple[Any, ...] | None, reward: int
) -> _Errors | None:
    """The errors that are drawn, if any: by returns, or by the reward and value one row ahead."""
    if error is not None:
        states, (returns,) = _rows("error", snapshot, error, ("returns",))
        wrong = returns - _values(snapshot, states, reward)
        return _Errors(states, wrong, "return minus value", "return", spacing(snapshot.discount))
    if td_error is None:
        return None
    if len(td_error) not in (3, 4):
        raise Invalid("td_error", "must be states, rewards, next states and perhaps discounts")
    states, columns = _rows("td_error", snapshot, (*td_error[:2], *td_error[3:]), ("rewards", "discounts"))
    following, _ = _rows("td_error", snapshot, (td_error[2],), (), "next states")
    if following.shape != states.shape:
        raise Invalid("td_error", f"next states must be {states.shape}, not {following.shape}")
    discounts = columns[1] if len(columns) == 2 else snapshot.discount
    ahead = columns[0] + discounts * _values(snapshot, following, reward)
    # Two TD errors have nothing in common.
    return _Errors(states, ahead - _values(snapshot, states, reward), "TD error", "row", 0.0)


def _rows(
    field: str, snapshot: Model, parts: tuple[Any, ...], names: tuple[str, ...], called: str = "states"
) -> tuple[Array, list[Array]]:
    """States (n, D), and the numbers (n,) of these names that go with them."""
    states = states_of(parts[0], snapshot.names, field, snapshot.categories)
    columns = [np.asarray(part, np.float64) for part in parts[1:]]
    if states.ndim != 2 or states.shape[1] != snapshot.dim or len(states) == 0:
        raise Invalid(field, f"{called} must be (n, {snapshot.dim}), not {states.shape}")
    for name, column in zip(names, columns, strict=False):
        if column.shape != (len(states),):
            raise Invalid(field, f"{name} must be ({len(states)},), not {column.shape}")
    return states, columns


def _kept(snapshot: Model) -> Array:
    """(m, D): the states of the dictionary."""
    kept: Array = snapshot.dictionary * snapshot.scale + snapshot.shift
    return kept


def _states(snapshot: Model, visited: Any) -> Array:
    """(n, D): what averages, medians and shares are taken over, in no order."""
    if visited is None:
        return _kept(snapshot)
    states = states_of(visited, snapshot.names, "visited", snapshot.categories)
    if states.ndim != 2 or states.shape[1] != snapshot.dim or len(states) == 0:
        raise Invalid("visited", f"must be (n, {snapshot.dim}), not {states.shape}")
    # Evenly spaced ones would always be the same step of episodes of one length.
    return np.random.default_rng(0).permutation(states)


def _name(snapshot: Model, d: int) -> str:
    return snapshot.names[d] if snapshot.names is not None else f"state {d}"


def _chosen(snapshot: Model, variables: Sequence[int | str] | None, reward: int, states: Array) -> list[int]:
    if variables is None:
        # Those on which most of the value hangs.
        shares = total_indices(states, lambda states: _values(snapshot, states, reward), least=_least(snapshot))
        return sorted(int(d) for d in np.argsort(-shares, kind="stable")[: min(2, snapshot.dim)])
    found = []
    for variable in variables:
        names = snapshot.names or ()
        d = variable if isinstance(variable, int) else _place(names, variable)
        if d is None:
            raise Invalid("variables", f"there is no state variable {variable!r}, only {', '.join(names) or 'numbers'}")
        if not 0 <= d < snapshot.dim:
            raise Invalid("variables", f"there is no state variable {d}, they are 0 to {snapshot.dim - 1}")
        found.append(d)
    if not 1 <= len(found) <= 2 or len(set(found)) < len(found):
        raise Invalid("variables", f"one or two different ones can be drawn, not {list(variables)!r}")
    return found


def _centre(snapshot: Model, states: Array, at: Any) -> Array:
    """The state that holds the variables which are not drawn."""
    if at is None:
        if not len(states):
            return snapshot.shift.copy()
        kinds = np.array(snapshot.kernel.kinds or ("real",) * snapshot.dim)
        # Between two categories there is none.
        middle: Array = np.sort(states, axis=0)[len(states) // 2]
        return np.where(kinds == "category", middle, np.median(states, axis=0))
    centre = states_of(at, snapshot.names, "at", snapshot.categories).copy()
    if centre.shape != (snapshot.dim,):
        raise Invalid("at", f"must be ({snapshot.dim},), not {centre.shape}")
    return centre


def _range(values: Array) -> Array:
    low, high = (values.min(), values.max()) if len(values) else (-1.0, 1.0)
    margin = 0.05 * (high - low) or 1.0
    return np.array([low - margin, high + margin])


def _least(snapshot: Model) -> float:
    """The variance of values of which nothing hangs on any variable."""
    return UNNOTICED * float(snapshot.noise_variance)


def shares(snapshot: Model, states: Any, seed: int, samples: int, reward: int | str) -> Array:
    """As `Snapshot.shares` says."""
    drawn = _reward(snapshot, reward)
    if snapshot.actions is not None:
        raise Invalid("states", "are for values of states, and this is a model of values of actions")
    visited = states_of(states, snapshot.names, categories=snapshot.categories)
    if visited.ndim != 2 or visited.shape[1] != snapshot.dim or len(visited) == 0 or not np.isfinite(visited).all():
        raise Invalid("states", f"must be finite states (n, {snapshot.dim}), not {visited.shape}")
    if samples < 2:
        raise Invalid("samples", f"must be at least 2, not {samples}")
    # Evenly spaced ones would always be the same step of episodes of one length.
    mixed = np.random.default_rng(seed).permutation(visited)
    return total_indices(mixed, lambda some: _values(snapshot, some, drawn), samples, least=_least(snapshot))
