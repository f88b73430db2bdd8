"""A value function, evaluated where you are: no daemon, no connection."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from criticd import _frames, _plot, _program
from criticd._act import Actor, Decisions, single_of, steps_of
from criticd._actions import Actions
from criticd._evaluation import Evaluation, Policy
from criticd._frames import States, Table
from criticd._output import write_whole
from criticd._protocol import MAGNITUDE_MAX, Array, Invalid, Malformed, Message, pack, unpack
from criticd._spread import ReturnSpread
from criticd._tracked import Tracked, checked
from criticd._values import numbers
from criticd._worst import Worst
from criticd.heads import HeadModels, Heads

_CELLS = 1 << 20
"""Kernel values held at a time, so that many states need no more memory than a few."""
EXTRAPOLATES_BELOW = 0.3
"""Correlation with the nearest row of the dictionary below which a state counts as extrapolated."""


@dataclass(frozen=True)
class Kernel:
    """k(a, b) = signal_variance profile((a - b)' Omega (a - b)) + bias_variance + columns, of normalised states.

    Omega = diag(relevance) + factors' factors. `relevance` is (D,), `factors` (k, D), k = 0 unless `kind` is "factor".
    `profile` is "gaussian", exp(-r^2 / 2), or "matern52", (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) r. `kinds` says of
    each state variable whether it is "real", "periodic:P", which enters as its point of the unit circle, or "category",
    whose values are 0 or sqrt(2) apart; it is empty if all are real. `factors` go along real variables only.
    `columns` are functions of the state whose coefficients V has beside what the dictionary spans: "constant",
    "linear:D", "cosine:D" or "sine:D" of variable D. They add the sum of `column_variances` (q,) times f(a) f(b).
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
            if name == "linear":
                found[:, j] = 1.0
                continue
            turn = 2 * np.pi / (period_of(self.kinds[d]) or 1.0)
            other = self._function(states, f"{'sine' if name == 'cosine' else 'cosine'}:{d}")
            found[:, j] = (-turn if name == "cosine" else turn) * other
        return found

    def project(self, states: Array) -> Array:
        """Points whose Euclidean distances are those of Omega: (n, D + k) from normalised states (n, D).

        A periodic variable takes two columns. Categories take none: `apart` has their part.
        """
        roots = np.sqrt(self.relevance)
        if not self.kinds:
            scaled: Array = states * roots
        else:
            columns = [np.zeros((len(states), 0))]
            for x, root, kind in zip(states.T, roots, self.kinds, strict=True):
                period = period_of(kind)
                if period is not None:
                    turns = x / period
                    angle = 2 * np.pi * (turns - np.round(turns))
                    columns.append(root * np.column_stack([np.cos(angle), np.sin(angle)]))
                elif kind == "real":
                    columns.append(root * x[:, None])
            scaled = np.hstack(columns)
        if not len(self.factors):
            return scaled
        real = np.array([kind == "real" for kind in self.kinds]) if self.kinds else np.ones(states.shape[1])
        return np.hstack([scaled, states @ (self.factors * real).T])

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

    def bends(self, squared: Array) -> Array:
        """Second derivatives of covariances by the squared distances r^2."""
        if self.profile == "matern52":
            shape: Array = 25 / 12 * np.exp(-np.minimum(np.sqrt(5 * squared), 1e3))
        else:
            shape = 0.25 * np.exp(-0.5 * squared)
        return self.signal_variance * shape


@dataclass(frozen=True, eq=False)
class Values:
    """What a model says about some states; None is what was not asked for, or what it cannot say.

    `mean` of V is (n,), or (n, H) with several rewards; `variance` (n,) is that of V, `return_variance`, shaped like
    `mean`, that of the return to come: what is not known of V and how returns scatter about it, together. `known` (n,)
    is the share of the signal's prior variance that data removed, 0 far from all of them; `extrapolates` (n,) is true
    where no dictionary state is near. For a single state all of them have one axis less.
    """

    mean: Array
    variance: Array | None
    return_variance: Array | None
    known: Array | None
    extrapolates: npt.NDArray[np.bool_] | None

    @property
    def std(self) -> Array | None:
        """Standard deviation of V (n,)."""
        return None if self.variance is None else np.sqrt(self.variance)

    @property
    def return_std(self) -> Array | None:
        """Standard deviation of the return to come, shaped like `mean`."""
        return None if self.return_variance is None else np.sqrt(self.return_variance)

    def return_interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper end, shaped like `mean`, of where this share of the returns to come should lie.

        Raises `ValueError` without `return_variance`, or if `level` is not between 0 and 1.
        """
        if self.return_std is None:
            raise ValueError("how returns scatter was not asked for, or is not known to the model")
        reach = NormalDist().inv_cdf(0.5 + level / 2) * self.return_std
        return self.mean - reach, self.mean + reach


BRANCH = ("noise", "kernel", "inputs", "dictionary", "heads")
"""Keys of a snapshot that heads with a kernel of their own have for themselves."""


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """The value function of one moment: call it with states.

    `generation` rises with every model that the daemon adopts, `offset` is the number of rows learned,
    `transitions` that of the rows which the model's statistics hold, `time` Unix seconds. `noise_variance` is that
    of the rewards' noise, `log_evidence` and `score` say how well the model explains what it has seen. `weights` is
    (m, H) for H rewards, the first q of them of the kernel's `columns`, `dictionary` (m - q, D), `covariance` the
    (m, m) matrix C of the protocol or None, in which case there is no standard deviation to be had. `lambda_` in
    [0, 1] is what the weights were learned with, `returns` how returns scatter, where that is known. While it is
    `provisional`, model selection has not chosen it yet. With `actions` it is the value of actions: D counts their
    coordinates too, and `inputs` puts states and actions together. `heads` has the critic's other predictions by
    name. Those that have a kernel and a dictionary of their own are the heads of `branch`, a snapshot without
    values, or None. `reward_names` are those of the H rewards, a unit in brackets behind the name, as in `"energy
    [J]"`. `table` says how the table was read that it was fitted to. With `tracked` the weights are those of a
    mixture that follows the newest rows. `level` (H,) is added to what the weights say; it is empty for 0.
    """

    critic: str
    generation: int
    revision: int
    offset: int
    transitions: int
    time: float
    discount: float
    noise_model: str
    noise_variance: float
    kernel: Kernel
    shift: Array
    scale: Array
    names: tuple[str, ...] | None
    dictionary: Array
    weights: Array
    covariance: Array | None
    log_evidence: float | None
    score: float | None
    lambda_: float = 1.0
    returns: ReturnSpread | None = None
    provisional: bool = False
    actions: Actions | None = None
    head_models: HeadModels | None = None
    branch: Snapshot | None = None
    reward_names: tuple[str, ...] | None = None
    table: str | None = None
    tracked: Tracked | None = None
    level: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def base(self) -> Snapshot:
        """The same without what tracks the stream: for states far from those that the stream visits now.

        Itself where nothing does, `tracked` is None.
        """
        return self if self.tracked is None else replace(self, weights=self.tracked.base, tracked=None)

    @property
    def heads(self) -> Heads:
        """The critic's heads by name, each a `Snapshot`: `snapshot.heads["contact"](states)`. It may be empty."""
        return Heads(self)

    @overload
    def __call__(self, states: States, std: Literal[False] = False) -> Array: ...
    @overload
    def __call__(self, states: States, std: Literal[True]) -> tuple[Array, Array]: ...
    @overload
    def __call__(self, states: States, std: bool = False, *, returns: Literal[True], known: bool = False) -> Values: ...
    @overload
    def __call__(self, states: States, std: bool = False, *, returns: bool = False, known: Literal[True]) -> Values: ...
    def __call__(
        self, states: States, std: bool = False, *, returns: bool = False, known: bool = False
    ) -> Array | tuple[Array, Array] | Values:
        """The value of `states`, and with `std` its standard deviation; with `returns` or `known`, `Values`.

        `states` is (n, D), raw as the environment gives them, or one state (D,). In a table (a frame, a dict) they are
        the columns of the model's `names`, in any order: `snapshot({"x": 1.0, "battery": 12.0})`. The result is (n,),
        or a single number for one state; with several rewards it has one more axis of length H, the standard deviation
        never: all rewards share one kernel. The deviation is that of V, not of the returns, which scatter by noise as
        well: `returns` asks for theirs, `known` for how much of V is known and where it is extrapolated.

        Raises `Invalid` if the states have another dimension or are not finite, with the name of a column that is
        missing, `ValueError` if a deviation is asked of a snapshot without one. `Values` have None there instead.
        """
        if returns or known:
            return self._values(states, std, returns, known)
        mean, variance = self.evaluate(states, variance=std)
        if variance is None:
            return mean
        return mean, np.sqrt(variance)

    @overload
    def evaluate(self, states: States, variance: bool = True) -> tuple[Array, Array | None]: ...
    @overload
    def evaluate(
        self, states: States, variance: bool = True, *, returns: Literal[True], known: bool = False
    ) -> Values: ...
    @overload
    def evaluate(
        self, states: States, variance: bool = True, *, returns: bool = False, known: Literal[True]
    ) -> Values: ...
    @overload
    def evaluate(self, states: Table, *, policy: Policy, **options: Any) -> Evaluation: ...
    def evaluate(
        self,
        states: Any,
        variance: bool = True,
        *,
        returns: bool = False,
        known: bool = False,
        policy: Policy | None = None,
        **options: Any,
    ) -> tuple[Array, Array | None] | Values | Evaluation:
        """Mean and variance, in the shapes of a call, as `Values` with `returns` or `known`.

        The variance is None if it was not wanted.

        With `policy`, `states` is a table of transitions, and the result is what that other policy would earn in this
        world, by `criticd.policies.evaluate`, with the discount and the actions of this model. `options` are those of
        `criticd evaluate`, with underscores. A model of `fit` reads the table as it read its own.
        """
        if not isinstance(variance, bool | np.bool_):
            raise Invalid("variance", "must be True or False; name a policy: evaluate(table, policy=...)")
        if policy is not None:
            return self._judged(states, policy, options)
        if options:
            raise TypeError(f"evaluate() has no argument {next(iter(options))!r} without a policy")
        if returns or known:
            return self._values(states, bool(variance), returns, known)
        if variance and self.covariance is None:
            raise ValueError(
                "this snapshot came without its variance: ask with `client.snapshot(variance=True)`; while all rewards"
                " have been 0 there is none, since nothing tells how large values may be"
            )
        values = self._values(states, bool(variance), False, False)
        return values.mean, values.variance

    def joint(self, states: States) -> tuple[Array, Array]:
        """Mean (n,), or (n, H) with several rewards, and posterior covariance (n, n) of V at states (n, D) together.

        The variance of V(a) - V(b) is c[a, a] + c[b, b] - 2 c[a, b]. Nearby states are known or unknown together, so
        that it is often far below the sum of their variances. Raises `Invalid` for what is no state, `ValueError`
        without a variance.
        """
        points = np.atleast_2d(self._points(states))
        found = self.evaluate(points)[0]
        covariance = self.covariance
        assert covariance is not None, "evaluate has refused"
        basis, at = self.kernel.project(self.dictionary), self.normalised(points)
        rows = self._kernel_rows(points, basis)
        places = self.kernel.project(at)
        squared = ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2) + self.kernel.apart(at, at)
        functions = self.kernel.functions(at)
        prior = self.kernel.of_squares(squared) + functions * self.kernel.column_variances @ functions.T
        joint = prior - rows @ covariance @ rows.T
        return found, (joint + joint.T) / 2

    def sample(self, states: States, count: int = 1, *, seed: int = 0) -> Array:
        """Joint samples of V at states (n, D): (count, n), or (count, n, H) with several rewards.

        How often is plan A better than plan B? `(samples[:, 0] > samples[:, 1]).mean()`. The same states and seed give
        the same samples. Raises what `joint` raises.
        """
        mean, joint = self.joint(states)
        values, vectors = np.linalg.eigh(joint)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normals = np.random.default_rng(seed).standard_normal((count, len(root), *mean.shape[1:]))
        samples: Array = mean + np.einsum("ij,kj...->ki...", root, normals)
        return samples

    def _judged(self, table: Table, policy: Policy, options: Mapping[str, Any]) -> Evaluation:
        # It needs this module.
        from criticd import policies

        asked = {**self._reading(), **options}
        actions = asked.pop("actions", None)
        if actions is None and self.actions is not None:
            actions = f"discrete:{self.actions.count}" if self.actions.count else "box"
        discount = asked.pop("discount", self.discount)
        return policies.evaluate(table, policy, actions=actions, discount=discount, options=asked)

    def _reading(self) -> Mapping[str, Any]:
        """Options by which tables like that of this model are read, where they are known."""
        return {}

    def value(self, table: Table) -> Any:
        """What the model says of each row, as a table of the kind of `table`.

        Its columns are `value`, `std` and `return_std` (standard deviations of the value and of the return to come, in
        the unit of rewards), `known` (share of the prior variance that data removed, from 0 to 1) and `extrapolates`
        (true where no data are near). What the model cannot say is left out. With several rewards there are `value_0`,
        `value_1`, ... The columns of the state are found by name. A frame of pandas has the index of `table`; an array
        (n, D) or a list gives a dict of arrays.

        Raises `Invalid` as a call does.
        """
        found = self._values(table, True, True, True)
        columns: dict[str, npt.NDArray[Any]] = {}
        for name, values in (
            ("value", found.mean),
            ("std", found.std),
            ("return_std", found.return_std),
            ("known", found.known),
            ("extrapolates", found.extrapolates),
        ):
            if values is None:
                continue
            if np.shape(values) == np.shape(found.mean) and self.weights.shape[1] > 1:
                columns |= {f"{name}_{k}": column for k, column in enumerate(np.atleast_2d(values).T)}
            else:
                columns[name] = np.atleast_1d(values)
        return _frames.like(table, columns)

    def label(self, table: Table, **options: Any) -> Any:
        """Labels of each transition of a table, as a table of its kind: `criticd label` with this model's kernel.

        The columns are `episode`, `frame`, `value`, `std`, `advantage`, `return`, `td_error` and `known`. Each episode
        is labelled by a model that has not learned from it, with kernel, noise, lambda and discount of this one. There
        is a row for each transition: rows that only give the next state of the one before have no labels.

        `options` are those of `criticd label`, with underscores, such as `state`, `reward`, `episode` and `terminated`.
        A model of `fit` reads the table as it read its own, unless they say otherwise. A file or a list of them gives a
        dict of arrays.

        Raises `Invalid` with the column or the option at fault, FileNotFoundError without the program.
        """
        with tempfile.TemporaryDirectory(prefix="criticd-") as place:
            folder = Path(place)
            model, out = folder / "model.model", folder / "labels.npz"
            words = _program.words_of({**self._reading(), **options}, folder)
            path = _frames.written(table, folder)
            self.save(model)
            given = not path.is_relative_to(folder)
            _program.run("label", path, [*words, f"--model={model}", f"--out={out}"], given=given)
            with np.load(out) as labels:
                return _frames.like(table, dict(labels))

    def to_torch(self) -> Any:
        """The model as a `torch.nn.Module` of 64-bit floats, to be asked and differentiated beside a network.

        It takes raw states (n, D), a tensor of any float, and gives the mean (n,), or (n, H) with several rewards, and
        the standard deviation (n,), None for a snapshot without its variance. Its numbers are buffers: they move with
        `.to(device)`, are saved in `state_dict`, and do not train. Gradients go to the states.

        Raises ImportError without the package torch.
        """
        from criticd import _torch

        return _torch.module(self)

    def inputs(self, states: States, actions: npt.ArrayLike) -> Array:
        """What a model of action values is asked about: `snapshot(snapshot.inputs(states, actions))` is Q(s, a).

        `states` are (n, D) without the action, or one state; `actions` (n,), or (n, A) of a box. One state goes with
        several actions. Raises `Invalid` for what is no action of the model, `ValueError` if values are of states.
        """
        if self.actions is None:
            raise ValueError("this is the value of states: it has no actions")
        return self.actions.inputs(self._points(states, self.dim - self.actions.width), actions)

    def act(
        self,
        states: States,
        exploration: str = "greedy",
        *,
        epsilon: float | None = None,
        temperature: float | None = None,
        beta: float | None = None,
        seed: int = 0,
        episode: npt.ArrayLike = 0,
        step: npt.ArrayLike | None = None,
        candidates: npt.ArrayLike | None = None,
        unknown_above: float | None = None,
        fallback: npt.ArrayLike | None = None,
    ) -> Decisions:
        """Decisions in raw `states` (n, D), without actions, or one state: those of the daemon, without a daemon.

        `exploration` is "greedy"; "epsilon_greedy" with `epsilon`; "softmax" with `temperature`, in units of a return;
        "ucb", the largest Q + `beta` deviations; or "thompson": one randomised copy of Q decides for a whole episode.
        Random numbers are hashes of `seed`, `episode` and `step`, one number or one for each state; without `step`
        the states count as steps 0, 1, ... `candidates`
        (k,) or (k, A) are the actions to choose among. Where the deviation of Q is above `unknown_above` the state
        counts as unknown, and `fallback`, if given, is the action.

        Raises `Invalid` for what cannot be asked.
        """
        actor = Actor.new(self, exploration, epsilon=epsilon, temperature=temperature, beta=beta)
        points = self._points(states, self.dim - (0 if self.actions is None else self.actions.width))
        single, points = points.ndim == 1, np.atleast_2d(points)
        given = None
        if candidates is not None:
            here = points[0]
            given = self.inputs(here, np.atleast_1d(numbers(candidates, "candidates")))
            given = actor.of.within("candidates", np.atleast_2d(given)[:, len(here) :])
        places = [
            np.broadcast_to(np.asarray(which, np.int64), len(points))
            for which in (episode, steps_of(step, len(points)))
        ]
        other = None if fallback is None else actor.of.within("fallback", np.atleast_1d(numbers(fallback, "fallback")))
        found = actor.decide(points, int(seed), places[0], places[1], given, unknown_above, other)
        return single_of(found) if single else found

    def _values(self, states: States, variance: bool, returns: bool, known: bool) -> Values:
        points = self._points(states)
        single = points.ndim == 1
        points = np.atleast_2d(points)
        self._check(points)
        covariance = self.covariance if variance or returns or known else None
        spread = self.returns if returns and covariance is not None else None
        basis = self.kernel.project(self.dictionary)
        means = np.empty((len(points), self.weights.shape[1]))
        variances, scatter = np.empty(len(points)), np.empty_like(means)
        extrapolates = np.empty(len(points), np.bool_)
        rows = max(1, _CELLS // max(1, len(basis)))
        for start in range(0, len(points), rows):
            part = slice(start, start + rows)
            k = self._kernel_rows(points[part], basis)
            means[part] = k @ self.weights + (0.0 if self.actions is None else self.actions.prior_mean)
            means[part] += self.level if len(self.level) else 0.0
            if covariance is not None:
                explained = np.einsum("ij,ij->i", k @ covariance, k)
                # Rounding may leave a variance a hair below zero next to a row of the dictionary.
                variances[part] = np.maximum(self.kernel.prior(self.normalised(points[part])) - explained, 0.0)
            if spread is not None:
                scatter[part] = np.maximum(spread.floor, spread.level + k @ spread.weights)
            if known:
                least = self.kernel.bias_variance + EXTRAPOLATES_BELOW * self.kernel.signal_variance
                extrapolates[part] = (k[:, len(self.kernel.columns) :] < least).all(axis=1)

        def shaped(found: npt.NDArray[Any]) -> Any:
            found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
            return found[0] if single else found

        return Values(
            mean=shaped(means),
            variance=shaped(variances) if variance and covariance is not None else None,
            return_variance=None if spread is None else shaped(spread.factor**2 * (variances[:, None] + scatter)),
            known=shaped(self.kernel.known(variances)) if known and covariance is not None else None,
            extrapolates=shaped(extrapolates) if known else None,
        )

    def __repr__(self) -> str:
        kernel, extras = self.kernel, ""
        if self.provisional:
            extras += ", provisional"
        if self.covariance is None:
            extras += ", without variance"
        return (
            f"<criticd.Snapshot of {self.critic!r}: generation {self.generation}, revision {self.revision}, "
            f"{self.offset} rows, discount {self.discount:g}, {self.dim} state variables, "
            f"{len(self.dictionary)} dictionary states, {kernel.kind} {kernel.profile} kernel{extras}>"
        )

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        facts = {
            "critic": self.critic,
            "generation, revision": f"{self.generation}, {self.revision}" + (" (provisional)" * self.provisional),
            "rows learned": str(self.offset),
            "discount": f"{self.discount:g}",
            "kernel": f"{self.kernel.kind}, {self.kernel.profile}, {len(self.dictionary)} dictionary states",
            "standard deviation before any row": f"{np.sqrt(self.kernel.diagonal):.4g}",
        }
        rows = "".join(f"<tr><th>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in facts.items())
        names = self.names or [f"state {d}" for d in range(self.dim)]
        kinds = self.kernel.kinds or ("real",) * self.dim
        lengths = ["" if np.isnan(length) else f"{length:.4g}" for length in self.lengthscale]
        variables = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{kind}</td><td>{length}</td></tr>"
            for name, kind, length in zip(names, kinds, lengths, strict=True)
        )
        head = "<tr><th>state variable</th><th>kind</th><th>lengthscale</th></tr>"
        return f"<table>{rows}</table><table>{head}{variables}</table>"

    def gradient(self, states: States) -> Array:
        """The derivative of the value by each number of the state.

        ```text
        dV / dz_d = sum over columns of weights_j s_j df_j / dz_d + sum over m of weights_m k'(r_m^2) dr_m^2 / dz_d
        ```
        `states` is (n, D), raw, or one state (D,); the result has the same shape, in units of reward per unit of the
        state variable, and one more axis of length H with several rewards. A category has no derivative: there it is 0.
        Raises `Invalid` as a call does.
        """
        points = self._points(states)
        single = points.ndim == 1
        points = np.atleast_2d(points)
        self._check(points)
        kernel, basis = self.kernel, self.kernel.project(self.dictionary)
        real = np.array([kind == "real" for kind in kernel.kinds]) if kernel.kinds else np.ones(self.dim)
        factors = kernel.factors * real
        found = np.empty((len(points), self.dim, self.weights.shape[1]))
        rows = max(1, _CELLS // max(1, len(basis)))
        for start in range(0, len(points), rows):
            part = slice(start, start + rows)
            z, q = self.normalised(points[part]), len(kernel.columns)
            slopes = kernel.slopes(self._squares(points[part], basis))
            along = [(z @ f)[:, None] - self.dictionary @ f for f in factors]
            for d in range(self.dim):
                apart = z[:, d, None] - self.dictionary[:, d]
                rise = _rise(kernel.kinds[d] if kernel.kinds else "real", kernel.relevance[d], apart)
                for f, distance in zip(factors, along, strict=True):
                    rise = rise + 2 * f[d] * distance
                given = kernel.column_slopes(z, d) * kernel.column_variances
                found[part, d] = (given @ self.weights[:q] + (slopes * rise) @ self.weights[q:]) / self.scale[d]
        shaped = found[:, :, 0] if found.shape[2] == 1 else found
        return shaped[0] if single else shaped

    def plot(
        self,
        variables: Sequence[int | str] | None = None,
        *,
        at: npt.ArrayLike | None = None,
        marginal: bool = False,
        visited: npt.ArrayLike | None = None,
        against: Snapshot | None = None,
        error: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        td_error: tuple[npt.ArrayLike, ...] | None = None,
        std: bool = False,
        reward: int | str = 0,
        trajectory: npt.ArrayLike | None = None,
        rewards: npt.ArrayLike | None = None,
        ends: npt.ArrayLike | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the value over one or two state variables with matplotlib; returns the axes.

        `variables` are numbers or names; by default the two with the largest relevance, the total Sobol index over the
        states that the model keeps. The others stay at the state `at` (D,), by default the median of those states, and
        the title says where. One variable gives curves with a band of two standard deviations, two a map of the value
        of one `reward` (number or name). Both are hatched where less than three quarters of the value are `known`, or,
        in a snapshot without variance, where it is extrapolated; a provisional one is not. `std` draws the
        standard deviation in place of the value. `marginal` averages the value over the others, as those states have
        them. `visited` are states (n, D) that take the place of those that the model keeps in relevances, medians and
        averages, and below curves: a snapshot does not have the states that its rows visited. `against` is
        another model of the same states: curves show both, a map the value minus the other's, in colours around zero.
        `error` are states (n, D) and the returns (n,) that followed them: a map shows the means of return minus value
        in cells (above zero the values are too low), hatched where no return is known. The ten `worst` states have
        their ranks on it.
        `td_error` are states (n, D), rewards (n,) and next states (n, D): the same picture of reward plus discounted
        next value minus value. A fourth array has the discount (n,) of each row, 0 after a terminal state; without it
        all are those of the model. `ax` are axes to draw in.
        `trajectory` are states (n, D) in their order: a line with arrows joins them from start to end, a second panel
        has the value along them with two standard deviations, and a third one `rewards` (n,), if they are given. `ends`
        (n,) says after which rows an episode terminated: lines stop there, and where rewards are given the second panel
        has the discounted return that came, from each row to the end of its episode. `ax` are then as many axes as
        there are panels, and all of them are returned, that of the map first.
        `snapshot.heads[NAME].plot()` draws a head.
        Raises `Invalid` for what cannot be drawn, ImportError without matplotlib.
        """
        return _plot.draw(
            self,
            variables,
            at,
            ax,
            marginal=marginal,
            visited=visited,
            against=against,
            error=error,
            td_error=td_error,
            std=std,
            reward=reward,
            trajectory=trajectory,
            rewards=rewards,
            ends=ends,
        )

    def worst(
        self,
        *,
        error: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        td_error: tuple[npt.ArrayLike, ...] | None = None,
        reward: int | str = 0,
    ) -> list[Worst]:
        """Where this model errs most: at most ten states, the worst first, as the dashboard finds them.

        `error` or `td_error` are those of `plot`, with rows in the order in which they came.
        Each error is a mean over a state and the eleven nearest to it. A state is `no_chance` where that mean is more
        than four of its standard errors. Raises `Invalid` for what does not fit the model.
        """
        return _plot.errors_of(self, error, td_error, reward)

    def shares(self, states: States, seed: int = 0, *, samples: int = 4000, reward: int | str = 0) -> Array:
        """Share (D,) of the variance of V over `states` (n, D) that hangs on each state variable: total Sobol indices.

        The relevance that the dashboard and `criticd status` show, from half as many samples. What two variables do
        only together is in the share of both, so that shares may add up to more than 1. A variable without a say has 0.
        It is estimated at `samples` states, drawn from those given, and as many for each variable; the same `seed`
        gives the same shares. `reward` is a number or a name. `relevance` is something else: how fast V changes. Raises
        `Invalid` for states of another dimension, and for values of actions, whose coordinates do not vary by
        themselves.
        """
        return _plot.shares(self, states, seed, samples, reward)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX model, for runtimes without Python. Replaces the file whole.

        Its input `states` is (n, D), raw; its outputs are `mean`, (n,) or (n, H) with several rewards, `std` (n,)
        unless the snapshot came without its variance, and `return_std`, shaped like `mean`, where it is known how
        returns scatter. All are 64-bit floats. The file's metadata say what the model is: `critic`, `generation`,
        `revision`, `offset`, `transitions`, `time`, `discount`, `lambda`, `provisional`, and `state_names`, joined by
        commas.
        It is the file of `criticd export --onnx`. Raises FileNotFoundError without the program.
        """
        with tempfile.TemporaryDirectory(prefix="criticd-") as place:
            model, out = Path(place, "value.model"), Path(place, "value.onnx")
            self.save(model)
            _program.run("export", model, ["--onnx", f"--out={out}"], given=False)
            write_whole(path, out.read_bytes())

    @property
    def dim(self) -> int:
        """Numbers in a state, D."""
        return len(self.shift)

    @property
    def features(self) -> int:
        """Number of features, m: the columns of the kernel and the states of the dictionary."""
        return len(self.kernel.columns) + len(self.dictionary)

    def normalised(self, states: Array) -> Array:
        """Raw states (n, D) in the coordinates of the kernel and the dictionary."""
        moved: Array = (states - self.shift) / self.scale
        return moved

    @property
    def metric(self) -> Array:
        """Omega (D, D): how distances are measured, in normalised coordinates."""
        omega: Array = np.diag(self.kernel.relevance) + self.kernel.factors.T @ self.kernel.factors
        return omega

    @property
    def relevance(self) -> Array:
        """(D,): how fast V changes along each state variable, as the inverse square of a length in units of `scale`.

        The diagonal of `metric`. 0 says that V does not depend on the variable at all. How much of V hangs on a
        variable also depends on how far that varies: `shares` says that, as the dashboard does.
        """
        return np.diag(self.metric).copy()

    @property
    def lengthscale(self) -> Array:
        """(D,): how far each state variable goes, in its own unit, before V is another; infinite if it has no say.

        Along the circle if it is periodic. A category has none: not a number.
        """
        unit = self.scale.copy()
        for d, kind in enumerate(self.kernel.kinds):
            period = period_of(kind)
            if kind != "real":
                unit[d] *= np.nan if period is None else period / (2 * np.pi)
        with np.errstate(divide="ignore"):
            lengths: Array = unit / np.sqrt(self.relevance)
        return lengths

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a MODEL file, which `criticd value`, `criticd inspect` and `load` read. Replaces the file whole."""
        write_whole(path, pack(self.message()))

    @classmethod
    def load(cls, path: str | os.PathLike[str], head: str | None = None) -> Snapshot:
        """Read a MODEL file: from `save`, `criticd fit --out` or `criticd snapshot`.

        With `head` the value function of that head alone, as `snapshot.heads[head]` is. Raises KeyError if the model
        has no such head.
        """
        try:
            snapshot = cls.of(unpack(Path(path).read_bytes()))
        except Malformed as error:
            raise Malformed(f"{path} is no model as `criticd fit --out` writes one: {error}") from error
        return snapshot if head is None else snapshot.heads[head]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Snapshot:
        """From a snapshot as the protocol has it: a publication, a reply, or a MODEL file. Raises `Malformed`."""
        if message.get("type") != "snapshot":
            raise Malformed(f"this is no snapshot but {message.get('type')!r}")
        try:
            inputs = message["inputs"]
            names = inputs.get("names")
            shift, scale = _array(inputs["shift"], 1), _array(inputs["scale"], 1)
            kernel = _kernel(message["kernel"], len(shift))
            dictionary = _matrix(message["dictionary"], len(shift))
            features = len(kernel.columns) + len(dictionary)
            snapshot = cls(
                critic=_called(message),
                generation=int(message["generation"]),
                revision=int(message["revision"]),
                discount=float(message["discount"]),
                kernel=kernel,
                shift=shift,
                scale=scale,
                names=None if names is None else tuple(names),
                dictionary=dictionary,
                covariance=_covariance(message),
                actions=Actions.of(message["actions"], features, len(shift)) if "actions" in message else None,
                head_models=HeadModels.of(message["heads"], features) if "heads" in message else None,
                branch=cls._branch(message) if "branch" in message else None,
                reward_names=tuple(message["reward_names"]) if "reward_names" in message else None,
                table=str(message["table"]) if "table" in message else None,
                **_learned(message),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"this snapshot cannot be used: {error!r}") from error
        snapshot._check_shapes()
        return snapshot

    @classmethod
    def _branch(cls, message: Mapping[str, Any]) -> Snapshot:
        whose = ("type", "critic", "generation", "revision", "offset", "transitions", "time", "discount")
        found = {key: message[key] for key in whose} | {key: message["branch"][key] for key in BRANCH}
        columns = len(found["kernel"].get("columns", ()))
        weights = np.zeros((columns + len(_matrix(found["dictionary"], len(found["inputs"]["shift"]))), 1))
        return cls.of(found | {"weights": weights})

    def followed_by(self, message: Mapping[str, Any]) -> Snapshot | None:
        """What this becomes by a `weights` publication; None if that does not follow on it, so that one was missed."""
        try:
            if (message["type"], _called(message)) != ("weights", self.critic):
                return None
            if (message["generation"], message["revision"]) != (self.generation, self.revision + 1):
                return None
            start = int(message["dictionary_start"])
            if not 0 <= start <= len(self.dictionary):
                raise ValueError(f"dictionary_start is {start}, there are {len(self.dictionary)} rows")
            kernel = _kernel(message["kernel"], self.dim)
            dictionary = np.vstack([self.dictionary[:start], _matrix(message["dictionary"], self.dim)])
            covariance, features = _covariance(message), len(kernel.columns) + len(dictionary)
            if covariance is None and self.covariance is not None and len(self.covariance) == features:
                # k' C k is in the unit of k, so that C goes with the inverse of the kernel's scale.
                covariance = self.covariance * (self.kernel.signal_variance / kernel.signal_variance)
            after = replace(
                self,
                revision=self.revision + 1,
                kernel=kernel,
                dictionary=dictionary,
                covariance=covariance,
                # Copies change with the generation; rows that the dictionary has gained have no weight in them.
                actions=self.actions and self.actions.with_rows(features),
                head_models=None,
                branch=None,
                **_learned(message),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"these weights cannot be used: {error!r}") from error
        after._check_shapes()
        return after

    def message(self) -> Message:
        """The snapshot as the protocol has it."""
        inputs: Message = {"dim": self.dim, "shift": self.shift, "scale": self.scale}
        if self.names is not None:
            inputs["names"] = list(self.names)
        kernel: Message = {
            "kind": self.kernel.kind,
            "signal_variance": self.kernel.signal_variance,
            "bias_variance": self.kernel.bias_variance,
            "relevance": self.kernel.relevance,
        }
        if self.kernel.profile != "gaussian":
            kernel["profile"] = self.kernel.profile
        if self.kernel.kinds:
            kernel["kinds"] = list(self.kernel.kinds)
        if self.kernel.kind == "factor":
            kernel["factors"] = self.kernel.factors
        if self.kernel.columns:
            kernel["columns"] = list(self.kernel.columns)
            kernel["column_variances"] = self.kernel.column_variances
        message: Message = {
            "type": "snapshot",
            "critic": self.critic,
            "generation": self.generation,
            "revision": self.revision,
            "offset": self.offset,
            "transitions": self.transitions,
            "time": self.time,
            "discount": self.discount,
            "noise": {"model": self.noise_model, "variance": self.noise_variance},
            "kernel": kernel,
            "inputs": inputs,
            "dictionary": self.dictionary,
            "weights": self.weights[:, 0] if self.weights.shape[1] == 1 else self.weights,
        }
        if self.covariance is not None:
            message["variance"] = self.covariance
        if self.log_evidence is not None:
            message["log_evidence"] = self.log_evidence
        if self.score is not None:
            message["score"] = self.score
        if self.lambda_ != 1.0:
            message["lambda"] = self.lambda_
        if self.returns is not None:
            weights = self.returns.weights
            message["returns"] = {
                "level": self.returns.level,
                "weights": weights[:, 0] if weights.shape[1] == 1 else weights,
                "floor": self.returns.floor,
                "factor": self.returns.factor,
                "pairs": self.returns.pairs,
            }
            if self.returns.coverage is not None:
                message["returns"]["coverage"] = self.returns.coverage
        if self.tracked is not None:
            message["tracked"] = self.tracked.message()
        if self.provisional:
            message["provisional"] = True
        if len(self.level):
            message["level"] = self.level
        if self.actions is not None:
            message["actions"] = self.actions.message()
        if self.head_models is not None:
            message["heads"] = self.head_models.message()
        if self.branch is not None:
            message["branch"] = {key: value for key, value in self.branch.message().items() if key in BRANCH}
        if self.reward_names is not None:
            message["reward_names"] = list(self.reward_names)
        if self.table is not None:
            message["table"] = self.table
        return message

    def _points(self, states: Table, count: int | None = None) -> Array:
        """States as numbers: an array as it is, of a table the first `count` of the columns `names`."""
        if type(states) is np.ndarray and states.dtype.names is None:
            return numbers(states, "states")
        return _frames.states_of(states, None if self.names is None else self.names[:count])

    def _check(self, states: Array) -> None:
        if states.ndim != 2 or states.shape[1] != self.dim:
            raise Invalid("states", f"must be (n, {self.dim}) or ({self.dim},), not {states.shape}")
        fine = (np.abs(states) <= MAGNITUDE_MAX).all(axis=1)
        if not fine.all():
            raise Invalid("states", f"must be finite, and at most {MAGNITUDE_MAX:g} in magnitude", int(fine.argmin()))

    def _check_shapes(self) -> None:
        m, d = self.features, self.dim
        shapes = {
            "scale": (self.scale.shape, (d,)),
            "dictionary": (self.dictionary.shape, (len(self.dictionary), d)),
            "weights": (self.weights.shape[:1], (m,)),
            "variance": ((m, m) if self.covariance is None else self.covariance.shape, (m, m)),
        }
        if len(self.level) and m > 0:
            shapes["level"] = (self.level.shape, (self.weights.shape[1],))
        if self.returns is not None:
            rewards = self.weights.shape[1]
            shapes["returns.weights"] = (self.returns.weights.shape, (m, rewards))
            shapes["returns.level"] = (self.returns.level.shape, (rewards,))
            shapes["returns.floor"] = (self.returns.floor.shape, (rewards,))
        if self.tracked is not None:
            shapes |= self.tracked.shapes(m, self.weights.shape[1])
        if self.reward_names is not None and m > 0:
            shapes["reward_names"] = ((len(self.reward_names),), (self.weights.shape[1],))
        for name, (found, wanted) in shapes.items():
            if found != wanted:
                raise Malformed(f"`{name}` of this model is {found}, which should be {wanted}")

    def _kernel_rows(self, states: Array, basis: Array) -> Array:
        """k_m(z) (n, m): s_j f_j(z) of the columns, then k(d_i, z) of the dictionary."""
        spanned = self.kernel.of_squares(self._squares(states, basis))
        if not self.kernel.columns:
            return spanned
        given = self.kernel.functions(self.normalised(states)) * self.kernel.column_variances
        return np.hstack([given, spanned])

    def _squares(self, states: Array, basis: Array) -> Array:
        """r^2 (n, m). Differences are squared one coordinate at a time: no cancellation, and no (n, m, D) array."""
        normalised = self.normalised(states)
        points = self.kernel.project(normalised)
        squared = np.zeros((len(points), len(basis)))
        for a, b in zip(points.T, basis.T, strict=True):
            difference = a[:, None] - b
            squared += difference * difference
        total: Array = squared + self.kernel.apart(normalised, self.dictionary)
        return total


def _rise(kind: str, relevance: float, apart: Array) -> Array:
    """The derivative of r^2 by one number of a normalised state, from its differences `apart`."""
    period = period_of(kind)
    if period is not None:
        turn: Array = relevance * 4 * np.pi / period * np.sin(2 * np.pi * apart / period)
        return turn
    return 2 * relevance * apart if kind == "real" else np.zeros_like(apart)


def _array(value: Any, ndim: int) -> Array:
    array = np.array(value, np.float64)
    if array.ndim != ndim:
        raise ValueError(f"an array of {array.ndim} axes where {ndim} belong")
    if not np.isfinite(array).all():
        raise ValueError("a number that is not finite")
    array.setflags(write=False)
    return array


def _matrix(value: Any, width: int) -> Array:
    """(n, width); an empty list stands for no rows."""
    return _array(np.zeros((0, width)) if len(value) == 0 else value, 2)


def _called(message: Mapping[str, Any]) -> str:
    """The name of what a message is the value of: a critic, or the head of one."""
    critic = str(message["critic"])
    return f"{critic}.{message['head']}" if "head" in message else critic


def _kernel(message: Mapping[str, Any], dim: int) -> Kernel:
    kernel = Kernel(
        kind=str(message["kind"]),
        signal_variance=float(message["signal_variance"]),
        bias_variance=float(message["bias_variance"]),
        relevance=_array(message["relevance"], 1),
        factors=_matrix(message.get("factors", ()), dim),
        profile=str(message.get("profile", "gaussian")),
        kinds=_kinds(message.get("kinds", ())),
        columns=tuple(str(column) for column in message.get("columns", ())),
        column_variances=_array(message.get("column_variances", ()), 1),
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
        if variable is not None and (kind == "category" or (kind == "real") != (name == "linear")):
            raise ValueError(f"a column {column!r} of a variable that is {kind}")
    return kernel


def function_of(column: str) -> tuple[str, int | None]:
    """What a column is, "constant", "linear", "cosine" or "sine", and the number of its state variable."""
    name, _, variable = column.partition(":")
    if name == "constant" and column == name:
        return name, None
    if name not in ("linear", "cosine", "sine") or not variable.isdecimal():
        raise ValueError(f"a column {column!r}, which this version of the package does not know")
    return name, int(variable)


def period_of(kind: str) -> float | None:
    """P of "periodic:P"; None for the other kinds of state variables."""
    return float(kind.removeprefix("periodic:")) if kind.startswith("periodic:") else None


def _kinds(value: Any) -> tuple[str, ...]:
    kinds = tuple(str(kind) for kind in value)
    for kind in kinds:
        period = period_of(kind)
        if period is None and kind not in ("real", "category"):
            raise ValueError(f"a state variable of kind {kind!r}, which this version of the package does not know")
        if period is not None and not 0 < period < np.inf:
            raise ValueError(f"a period that is not positive: {kind!r}")
    return () if set(kinds) == {"real"} else kinds


def _covariance(message: Mapping[str, Any]) -> Array | None:
    return _matrix(message["variance"], len(message["variance"])) if "variance" in message else None


def _learned(message: Mapping[str, Any]) -> dict[str, Any]:
    """What changes from row to row, as fields of a snapshot."""
    score, returns, lambda_ = message.get("score"), message.get("returns"), float(message.get("lambda", 1.0))
    if not 0.0 <= lambda_ <= 1.0:
        raise ValueError(f"lambda is {lambda_}, which should lie between 0 and 1")
    return {
        "offset": int(message["offset"]),
        "transitions": int(message["transitions"]),
        "time": float(message["time"]),
        "noise_model": str(message["noise"]["model"]),
        "noise_variance": float(message["noise"]["variance"]),
        "weights": _columns(message["weights"]),
        "log_evidence": None if message.get("log_evidence") is None else float(message["log_evidence"]),
        "score": None if score is None else float(score),
        "lambda_": lambda_,
        "returns": None if returns is None else _spread(returns),
        "tracked": _tracked(message.get("tracked")),
        "provisional": bool(message.get("provisional", False)),
        "level": _array(message.get("level", ()), 1),
    }


def _columns(value: Any) -> Array:
    """(m, H) from (m,) or (m, H)."""
    values = np.array(value, np.float64)
    return _array(values[:, None] if values.ndim == 1 else values, 2)


def _tracked(message: Mapping[str, Any] | None) -> Tracked | None:
    if message is None:
        return None
    return checked(_columns(message["base"]), _array(message["gate"], 1), _array(message["half_life"], 1))


def _spread(message: Mapping[str, Any]) -> ReturnSpread:
    spread = ReturnSpread(
        level=_array(message["level"], 1),
        weights=_columns(message["weights"]),
        floor=_array(message["floor"], 1),
        factor=float(message["factor"]),
        pairs=int(message["pairs"]),
        coverage=None if message.get("coverage") is None else float(message["coverage"]),
    )
    if not (spread.factor > 0 and (spread.floor > 0).all()):
        raise ValueError("a spread of returns that is not positive")
    if not 0 <= (0 if spread.coverage is None else spread.coverage) <= 1:
        raise ValueError("a share of returns that is not from 0 to 1")
    return spread
