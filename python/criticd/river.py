"""A regressor with the interface of river: rows are dicts, and come one by one. It learns in this process.

Needs river 0.22 (`pip install river`).
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from river import base
from river.base.typing import FeatureName

from criticd._protocol import Invalid
from criticd.learner import Learner

__all__ = ["Regressor"]

ROWS_FIRST = 64
"""Rows of the first model selection; the next ones come each time that rows have doubled."""


class Regressor(base.Regressor):
    """Gaussian-process regression of a stream: the cost of a row does not grow with their number.

    ```python
    from criticd.river import Regressor
    from river import datasets, evaluate, metrics

    evaluate.progressive_val_score(datasets.TrumpApproval(), Regressor(), metrics.MAE())
    ```

    Features are the keys of the first row, in the order of the alphabet. Numbers and flags are real variables, texts
    are categories. A feature that a row lacks has the last value that it had; features that come later are ignored.
    Nothing needs to be scaled.

    - `kernel`, `kernel_profile`, `dictionary_max`, `noise_floor`, `seed`: as of a critic.
    - `forgetting`: "off", or the half-life in rows after which a row counts half, for a world that changes.
    - `background`: whether model selection runs beside the stream. Without it the row that it falls due at waits for
      it, and the same rows give the same model, bit for bit.
    - `settings`: further settings of a critic, as `criticd.Learner` takes them.
    """

    def __init__(
        self,
        kernel: str = "ard",
        kernel_profile: str = "matern52",
        dictionary_max: int = 300,
        noise_floor: float = 1e-3,
        forgetting: str | float = "off",
        seed: int = 0,
        background: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.kernel_profile = kernel_profile
        self.dictionary_max = dictionary_max
        self.noise_floor = noise_floor
        self.forgetting = forgetting
        self.seed = seed
        self.background = background
        self.settings = settings
        self.learner: Learner | None = None
        self._last: dict[FeatureName, float] = {}
        self._places: dict[FeatureName, dict[str, int]] = {}

    def learn_one(self, x: dict[FeatureName, Any], y: float) -> None:
        """Learn the target `y` of the features `x`. Raises `Invalid` with the name of a feature that is no number."""
        if self.learner is None:
            self._begin(x)
        assert self.learner is not None
        state = self._state(x, True)
        self.learner.learn(state, float(y), state, terminated=True)
        if not self.background and self.learner.refitting:
            self.learner.wait()

    def predict_one(self, x: dict[FeatureName, Any]) -> float:
        """The mean at `x`; 0 before the first row."""
        return 0.0 if self.learner is None else float(self.learner(self._state(x, False)))

    def predict_std(self, x: dict[FeatureName, Any]) -> float:
        """The standard deviation of the mean at `x`, in the unit of the target.

        Raises ValueError while targets do not tell how large they may be.
        """
        if self.learner is None:
            raise ValueError("there is no deviation before the first row")
        return float(self.learner(self._state(x, False), std=True)[1])

    def _begin(self, x: Mapping[Any, Any]) -> None:
        names = sorted(x, key=str)
        if not names:
            raise Invalid("x", "has no feature")
        kinds = ["category" if isinstance(x[name], str) else "real" for name in names]
        self._last = dict.fromkeys(names, 0.0)
        self._places = {name: {} for name, kind in zip(names, kinds, strict=True) if kind == "category"}
        own = {
            "kernel": self.kernel,
            "kernel_profile": self.kernel_profile,
            "dictionary_max": self.dictionary_max,
            "noise_floor": self.noise_floor,
            "forgetting": self.forgetting,
            "seed": self.seed,
        }
        # Selection by held-out targets, since streams drift: the marginal likelihood takes all rows for one world.
        # Columns, since what drifts leaves the features seen so far.
        regression = {
            "discount": 0.0,
            "selection": "returns",
            "refit_first_rows": ROWS_FIRST,
            "linear_columns": "always",
        }
        about: dict[str, Any] = {"state_dim": len(names), "state_names": [str(name) for name in names]}
        if self._places:
            about["state_kinds"] = kinds
        self.learner = Learner(**{**about, **regression, **own, **(self.settings or {})})

    def _state(self, x: Mapping[Any, Any], keep: bool) -> list[float]:
        """The features in their order."""
        found = {name: self._number(name, x[name], keep) if name in x else last for name, last in self._last.items()}
        if keep:
            self._last = found
        return list(found.values())

    def _number(self, name: Any, value: Any, keep: bool) -> float:
        if name in self._places:
            known = self._places[name]
            # A text that was never learned is like no other.
            place = known.get(value, len(known))
            if keep:
                known[value] = place
            return float(place)
        if not isinstance(value, numbers.Real):
            raise Invalid(str(name), f"must be a number, as in the first row, and is {value!r}")
        return float(value)
