"""A model: its numbers, and what they say about states."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from criticd import _frames
from criticd._actions import Actions
from criticd._evaluation import Evaluation, Policy
from criticd._frames import States, Table
from criticd._head_models import HeadModels
from criticd._kernel import Kernel, array_of, bend_of, bent, bent_slopes, kernel_of, matrix_of, period_of
from criticd._protocol import MAGNITUDE_MAX, Array, Invalid, Malformed, Message
from criticd._spread import ReturnSpread
from criticd._tracked import Tracked, checked
from criticd._values import numbers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from typing_extensions import Self

_CELLS = 1 << 20
"""Kernel values held at a time, so that many states need no more memory than a few."""
EXTRAPOLATES_BELOW = 0.3
"""Correlation with the nearest row of the dictionary below which a state counts as extrapolated."""


@dataclass(frozen=True, eq=False)
class Values:
    """What a model says about some states; None is what was not asked for, or what it cannot say.

    ```python
    answer = model([[0.5]], std=True, returns=True, known=True)
    print(answer.mean, answer.std, answer.return_interval(0.9), answer.known)
    ```

    `mean` of V is (n,), or (n, H) with several rewards; `variance` (n,) is the variance of V, `return_variance`, shaped
    like
    `mean`, the variance of the return to come: what is not known of V and how returns scatter about it, together.
    `known` (n,) is the share of the signal's prior variance that data removed, 0 far from all of them; `extrapolates`
    (n,) is true where no dictionary state is near. For a single state all of them have one axis less.
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
MEAN = ("discount", "kernel", "inputs", "dictionary", "weights", "level", "mean")
"""Keys of a snapshot that a mean function has for itself."""


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """The numbers of a `Snapshot`, which says what they are, and what follows from them alone."""

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
    branch: Model | None = None
    reward_names: tuple[str, ...] | None = None
    table: str | None = None
    tracked: Tracked | None = None
    level: Array = field(default_factory=lambda: np.zeros(0))
    mean_function: Model | None = None

    @cached_property
    def categories(self) -> tuple[tuple[str, ...], ...]:
        """Of each state variable the texts of the fitted table, in the order of their codes 0, 1, ...

        Empty for a variable of numbers, and as a whole where no variable held texts. Arrays of states have the codes;
        columns of a table and of a dict have the texts.
        """
        found = {} if self.table is None else tomllib.loads(self.table)
        # Behind them may stand the texts of actions.
        dim = self.dim - (self.actions.width if self.actions is not None else 0)
        of_state = tuple(tuple(texts) for texts in found.get("columns", {}).get("categories", ())[:dim])
        return of_state if any(of_state) else ()

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """Names of the discrete actions by their numbers, of a model that has such actions and names for its variables.

        The texts of the fitted table, the names that the daemon's settings or rows gave, or the numbers themselves.
        """
        if self.names is None or self.actions is None or self.actions.count == 0:
            return ()
        return tuple(name.removeprefix("action=") for name in self.names[-self.actions.count :])

    @property
    def base(self) -> Self:
        """The same without what tracks the stream: for states far from those that the stream visits now.

        Itself where nothing does, `tracked` is None.
        """
        return self if self.tracked is None else replace(self, weights=self.tracked.base, tracked=None)

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
        never: all rewards share one kernel. The deviation is of V, not of the returns, which scatter by noise as
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
        world, by `criticd.policies.evaluate`, with the discount and the actions of this model. `options` are the
        options of
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
        # `python -m criticd.policies` runs a module that the package has not imported.
        from criticd import policies

        asked = {**self._reading(), **options}
        actions = asked.pop("actions", None)
        if actions is None and self.actions is not None:
            actions = f"discrete:{self.actions.count}" if self.actions.count else "box"
        discount = asked.pop("discount", self.discount)
        return policies.evaluate(table, policy, actions=actions, discount=discount, options=asked)

    def _reading(self) -> Mapping[str, Any]:
        """Options by which tables like this model's are read, where they are known."""
        return {}

    def inputs(self, states: States, actions: npt.ArrayLike) -> Array:
        """What a model of action values is asked about: `snapshot(snapshot.inputs(states, actions))` is Q(s, a).

        `states` are (n, D) without the action, or one state; `actions` (n,), of which discrete ones may have their
        `action_names`, or (n, A) of a box. One state goes with several actions. Raises `Invalid` for what is no action
        of the model, `ValueError` if values are of states.
        """
        if self.actions is None:
            raise ValueError("this is the value of states: it has no actions")
        given = np.asarray(actions)
        texts = given.dtype.kind in "OUT" and any(isinstance(action, str) for action in given.ravel().tolist())
        if texts and self.action_names:
            actions = _frames.codes(given, "actions", self.action_names)
        return self.actions.inputs(self._points(states, self.dim - self.actions.width), actions)

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
        if self.mean_function is not None:
            means += self.mean_function._values(points, False, False, False).mean.reshape(means.shape)

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
        found = self._slopes(points)
        shaped = found[:, :, 0] if found.shape[2] == 1 else found
        return shaped[0] if single else shaped

    def _slopes(self, points: Array) -> Array:
        """The derivatives (n, D, H) at raw states (n, D)."""
        kernel, basis = self.kernel, self.kernel.project(self.dictionary)
        factors, known = kernel.factors * kernel.on_line, bent(kernel, self.dictionary)
        found = np.empty((len(points), self.dim, self.weights.shape[1]))
        rows = max(1, _CELLS // max(1, len(basis)))
        for start in range(0, len(points), rows):
            part = slice(start, start + rows)
            z, q = self.normalised(points[part]), len(kernel.columns)
            slopes = kernel.slopes(self._squares(points[part], basis))
            here = bent(kernel, z)
            along = [(here @ f)[:, None] - known @ f for f in factors]
            for d in range(self.dim):
                rise = kernel.rise(d, here[:, d, None] - known[:, d])
                for f, distance in zip(factors, along, strict=True):
                    rise = rise + 2 * f[d] * distance
                rise = rise * bent_slopes(kernel, z, d)[:, None]
                given = kernel.column_slopes(z, d) * kernel.column_variances
                found[part, d] = (given @ self.weights[:q] + (slopes * rise) @ self.weights[q:]) / self.scale[d]
        return found if self.mean_function is None else found + self.mean_function._slopes(points)

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

        Along the circle if it is periodic, about `shift` if it is bent. A category has none: not a number.
        """
        unit = self.scale.copy()
        for d, kind in enumerate(self.kernel.kinds):
            period, bend = period_of(kind), bend_of(kind)
            if bend is not None:
                unit[d] *= np.hypot(bend[0], bend[1]) / bend[2]
            elif kind != "real":
                unit[d] *= np.nan if period is None else period / (2 * np.pi)
        with np.errstate(divide="ignore"):
            lengths: Array = unit / np.sqrt(self.relevance)
        return lengths

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        """From a snapshot as the protocol has it: a publication, a reply, or a MODEL file. Raises `Malformed`."""
        if message.get("type") != "snapshot":
            raise Malformed(f"this is no snapshot but {message.get('type')!r}")
        try:
            inputs = message["inputs"]
            names = inputs.get("names")
            shift, scale = array_of(inputs["shift"], 1), array_of(inputs["scale"], 1)
            kernel = kernel_of(message["kernel"], len(shift))
            dictionary = matrix_of(message["dictionary"], len(shift))
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
                mean_function=cls._mean(message) if "mean" in message else None,
                reward_names=tuple(message["reward_names"]) if "reward_names" in message else None,
                table=str(message["table"]) if "table" in message else None,
                **_learned(message),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"this snapshot cannot be used: {error!r}") from error
        snapshot._check_shapes()
        return snapshot

    @classmethod
    def _branch(cls, message: Mapping[str, Any]) -> Self:
        whose = ("type", "critic", "generation", "revision", "offset", "transitions", "time", "discount")
        found = {key: message[key] for key in whose} | {key: message["branch"][key] for key in BRANCH}
        columns = len(found["kernel"].get("columns", ()))
        weights = np.zeros((columns + len(matrix_of(found["dictionary"], len(found["inputs"]["shift"]))), 1))
        return cls.of(found | {"weights": weights})

    @classmethod
    def _mean(cls, message: Mapping[str, Any]) -> Self:
        whose = ("type", "critic", "generation", "revision", "offset", "transitions", "time")
        noise = {"model": "correlated", "variance": 1.0}
        return cls.of({key: message[key] for key in whose} | {"noise": noise} | dict(message["mean"]))

    def followed_by(self, message: Mapping[str, Any]) -> Self | None:
        """What this becomes by a `weights` publication; None if that does not follow on it, so that one was missed."""
        try:
            if (message["type"], _called(message)) != ("weights", self.critic):
                return None
            if (message["generation"], message["revision"]) != (self.generation, self.revision + 1):
                return None
            start = int(message["dictionary_start"])
            if not 0 <= start <= len(self.dictionary):
                raise ValueError(f"dictionary_start is {start}, there are {len(self.dictionary)} rows")
            kernel = kernel_of(message["kernel"], self.dim)
            dictionary = np.vstack([self.dictionary[:start], matrix_of(message["dictionary"], self.dim)])
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
        if self.mean_function is not None:
            message["mean"] = {key: value for key, value in self.mean_function.message().items() if key in MEAN}
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
        names = None if self.names is None else self.names[:count]
        return _frames.states_of(states, names, categories=self.categories)

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
        if self.mean_function is not None:
            of_mean = (self.mean_function.dim, *self.mean_function.weights.shape[1:])
            shapes["mean"] = (of_mean, (d, self.weights.shape[1]))
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


def _called(message: Mapping[str, Any]) -> str:
    """The name of what a message is the value of: a critic, or the head of one."""
    critic = str(message["critic"])
    return f"{critic}.{message['head']}" if "head" in message else critic


def _covariance(message: Mapping[str, Any]) -> Array | None:
    return matrix_of(message["variance"], len(message["variance"])) if "variance" in message else None


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
        "level": array_of(message.get("level", ()), 1),
    }


def _columns(value: Any) -> Array:
    """(m, H) from (m,) or (m, H)."""
    values = np.array(value, np.float64)
    return array_of(values[:, None] if values.ndim == 1 else values, 2)


def _tracked(message: Mapping[str, Any] | None) -> Tracked | None:
    if message is None:
        return None
    return checked(_columns(message["base"]), array_of(message["gate"], 1), array_of(message["half_life"], 1))


def _spread(message: Mapping[str, Any]) -> ReturnSpread:
    spread = ReturnSpread(
        level=array_of(message["level"], 1),
        weights=_columns(message["weights"]),
        floor=array_of(message["floor"], 1),
        factor=float(message["factor"]),
        pairs=int(message["pairs"]),
        coverage=None if message.get("coverage") is None else float(message["coverage"]),
    )
    if not (spread.factor > 0 and (spread.floor > 0).all()):
        raise ValueError("a spread of returns that is not positive")
    if not 0 <= (0 if spread.coverage is None else spread.coverage) <= 1:
        raise ValueError("a share of returns that is not from 0 to 1")
    return spread
