"""Estimators with the interface of scikit-learn: regression, and value functions. They learn in this process.

Needs scikit-learn 1.6 (`pip install scikit-learn`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from criticd._protocol import Array
from criticd._values import flags
from criticd.learner import Learner
from criticd.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["GaussianProcess", "ValueFunction"]

ROWS_MIN = 16
"""Rows from which a model is selected; below, it is the one that a learner begins with."""


class _Learned(BaseEstimator):
    """What both estimators have: settings, and answers of a `Learner`."""

    learner_: Learner

    def __init__(
        self,
        *,
        kernel: str = "ard",
        kernel_profile: str = "matern52",
        state_kinds: Sequence[str] | None = None,
        dictionary_max: int = 300,
        noise_floor: float = 1e-3,
        seed: int = 0,
        refit_budget_s: float = 20.0,
        refit_threads: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.kernel_profile = kernel_profile
        self.state_kinds = state_kinds
        self.dictionary_max = dictionary_max
        self.noise_floor = noise_floor
        self.seed = seed
        self.refit_budget_s = refit_budget_s
        self.refit_threads = refit_threads
        self.settings = settings

    def _learn(self, settings: Mapping[str, Any], states: Array, rewards: Array, **columns: Any) -> None:
        """Learn rows, and select a model by them. What a user set counts more than `settings`."""
        names = getattr(self, "feature_names_in_", None)
        width = rewards.shape[1] if rewards.ndim == 2 else 1
        own = {name: getattr(self, name) for name in _Learned().get_params() if name != "settings"}
        # One model selection, at the end: what comes of it does not depend on how long it takes.
        once = {"refit_first_rows": 0, "refit_score_drop": 0, "warmup_rows": ROWS_MIN, "drift_sensitivity": "off"}
        about = {"state_dim": states.shape[1], "rewards": list(range(width))}
        about["state_names"] = None if names is None else list(names)
        learner = Learner(**{**once, **about, **settings, **own, **(self.settings or {})})
        learner.learn(states, rewards, **columns)
        if learner.learned >= ROWS_MIN:
            learner.refit()
        self.learner_ = learner

    @property
    def model_(self) -> Snapshot:
        """The model as a `Snapshot`: to be saved, drawn, written to ONNX."""
        check_is_fitted(self)
        return self.learner_.snapshot()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...  # noqa: N803
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...  # noqa: N803
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:  # noqa: N803
        """Means (n,) at `X` (n, D), with `return_std` also their standard deviations (n,).

        `return_std` is scikit-learn's name for the standard deviation of V; `Values.return_std` of a model is a
        single return's. With several targets means are (n, H). Raises NotFittedError before `fit`.
        """
        check_is_fitted(self)
        states = validate_data(self, X, reset=False, dtype=np.float64)
        return self.learner_(states, std=True) if return_std else self.learner_(states)


class GaussianProcess(RegressorMixin, _Learned):
    """Gaussian-process regression with a dictionary: the cost of a row does not grow with their number.

    ```python
    from criticd.sklearn import GaussianProcess

    surface = GaussianProcess().fit(points, heights)
    height, deviation = surface.predict(points, return_std=True)
    ```

    It is `criticd fit --target` in this process: the marginal likelihood selects lengthscales, signal and noise, and
    the deviation is of the mean, without the noise of a single measurement. Inputs need no scaling.

    - `kernel`: "ard", a lengthscale for each variable, "isotropic", "factor" or "auto". `kernel_profile`: "matern52" or
      "gaussian". `state_kinds`: of each variable "real", "periodic:P", "periodic", whose P is learned,
      "asinh:C:S:W" or "category"; by default all real.
    - `dictionary_max`: states that the posterior is spanned by, at most.
    - `noise_floor`: smallest noise variance, relative to the targets' variance; lower it for targets without noise.
    - `seed`, `refit_budget_s` (work, as seconds of one core) and `refit_threads` (default: all cores but one) are
      the search's. `settings`: further settings of a critic, as `criticd.Learner` takes them.

    After `fit` there are `learner_`, a `criticd.Learner`, and `model_`, a `criticd.Snapshot`.
    """

    def fit(self, X: Any, y: npt.ArrayLike) -> Self:  # noqa: N803
        """Learn targets `y` (n,), or (n, H), at `X` (n, D). Below 16 rows no kernel is selected.

        Raises ValueError for what holds no finite numbers.
        """
        states, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        targets = np.asarray(targets, np.float64)
        regression = {"discount": 0.0, "selection": "evidence", "variance": "model"}
        self._learn(regression, states, targets, next_states=states, terminated=np.ones(len(states), np.bool_))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ValueFunction(_Learned):
    """The expected discounted return from each state, and its uncertainty, by Gaussian-process temporal differences.

    ```python
    from criticd.sklearn import ValueFunction

    critic = ValueFunction(discount=0.95).fit(states, rewards, next_states, terminated=terminated)
    value, deviation = critic.predict(states, return_std=True)
    ```

    `discount` is in [0, 1]. `lambda_` in [0, 1] is the lambda of the lambda-returns, by default selected with the
    kernel. The other parameters are as of `GaussianProcess`. Held-out returns select the model, as in `criticd fit`.
    """

    def __init__(
        self,
        *,
        discount: float = 0.99,
        lambda_: float | str = "auto",
        kernel: str = "ard",
        kernel_profile: str = "matern52",
        state_kinds: Sequence[str] | None = None,
        dictionary_max: int = 300,
        noise_floor: float = 1e-3,
        seed: int = 0,
        refit_budget_s: float = 20.0,
        refit_threads: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            kernel=kernel,
            kernel_profile=kernel_profile,
            state_kinds=state_kinds,
            dictionary_max=dictionary_max,
            noise_floor=noise_floor,
            seed=seed,
            refit_budget_s=refit_budget_s,
            refit_threads=refit_threads,
            settings=settings,
        )
        self.discount = discount
        self.lambda_ = lambda_

    def fit(
        self,
        X: Any,  # noqa: N803
        y: npt.ArrayLike,
        next_states: Any = None,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn transitions: states `X` (n, D), rewards `y` (n,), `next_states` (n, D), flags (n,).

        A row goes on where the one before it ended, unless that `terminated` (nothing can follow) or was `truncated`
        (cut off from outside). Without `next_states` the next row gives the next state of each; a last row, or a
        truncated one, then only gives the next state of the row before it.

        Raises ValueError for what holds no finite numbers, and for flags that are none.
        """
        states, rewards = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        rewards = np.asarray(rewards, np.float64)
        over, cut = (
            flags(given, name, len(states)) for given, name in ((terminated, "terminated"), (truncated, "truncated"))
        )
        if next_states is None:
            following = np.vstack([states[1:], states[-1:]])
            # A row whose successor is not there is no transition.
            known = over | ~cut
            known[-1] = over[-1]
            cut = ~over & ~np.append(known[1:], True)
            if not known.any():
                raise ValueError(f"no transition in n_samples = {len(states)}: a row needs a next state, or terminates")
            states, rewards, following, over, cut = (each[known] for each in (states, rewards, following, over, cut))
        else:
            following = validate_data(self, next_states, reset=False, dtype=np.float64)
            check_consistent_length(states, following)
        settings = {"discount": self.discount, "lambda": self.lambda_}
        self._learn(settings, states, rewards, next_states=following, terminated=over, truncated=cut)
        return self

    def score(self, X: Any, y: npt.ArrayLike) -> float:  # noqa: N803
        """Coefficient of determination of the values at `X` (n, D) of the returns `y` (n,) that followed: at most 1."""
        return float(r2_score(y, self.predict(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
