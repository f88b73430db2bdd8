"""Heads of a model: many predictions that share its kernel and dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from criticd._protocol import Array, Message


@dataclass(frozen=True, eq=False)
class HeadModels:
    """Heads as the protocol has them, in units of the snapshot's kernel k.

    ```python
    print([head["name"] for head in model.head_models.declared])
    ```

    ```text
    V_h(x) = level_h + k_m(z)' weights_h
    Var V_h(x) = signals_h (k(z, z) - sum_j t_j^2 values_j / (values_j + ratios_h)),   t = vectors' k_m(z)
    ```
    `declared` says of each of H heads what it predicts. `weights` is (m, H), `level`, `signals`, `ratios` and
    `weightings` are (H,), and so are `factors`, which multiply deviations of returns, `pairs`, the verified pairs
    behind them, and `coverage`, the share of their returns in the 90 % interval before, NaN without pairs. `bases`
    holds `vectors` (m, m) and `values` (m,) of each weighting of rows; it is empty in a snapshot that came without
    variances.
    """

    declared: tuple[Message, ...]
    weights: Array
    signals: Array
    ratios: Array
    weightings: tuple[int, ...]
    level: Array
    bases: tuple[tuple[Array, Array], ...]
    factors: Array
    pairs: Array
    coverage: Array

    @classmethod
    def of(cls, message: Mapping[str, Any], m: int) -> HeadModels:
        """From the map `heads` of a snapshot with m rows in its dictionary. Raises `ValueError` or `KeyError`."""
        declared = tuple(dict(head) for head in message["heads"])
        count = len(declared)
        bases = tuple(
            (np.array(basis["vectors"], np.float64).reshape(m, m), np.array(basis["values"], np.float64).reshape(m))
            for basis in message.get("bases", ())
        )
        found = cls(
            declared=declared,
            weights=np.array(message["weights"], np.float64).reshape(m, count),
            signals=np.array(message["signals"], np.float64).reshape(count),
            ratios=np.array(message["ratios"], np.float64).reshape(count),
            weightings=tuple(int(w) for w in message["weightings"]),
            level=np.array(message.get("level", np.zeros(count)), np.float64).reshape(count),
            bases=bases,
            factors=np.array(message.get("factors", np.ones(count)), np.float64).reshape(count),
            pairs=np.array(message.get("pairs", np.zeros(count)), np.float64).reshape(count),
            coverage=np.array(message.get("coverage", np.full(count, np.nan)), np.float64).reshape(count),
        )
        if len(found.weightings) != count or (bases and not all(0 <= w < len(bases) for w in found.weightings)):
            raise ValueError("heads name a weighting that is not there")
        if not all((of > 0).all() for of in (found.signals, found.ratios, found.factors)):
            raise ValueError("a head with a scale that is not positive")
        if not (found.pairs >= 0).all() or (found.coverage < 0).any() or (found.coverage > 1).any():
            raise ValueError("a head with a count or a coverage that is none")
        return found

    def message(self) -> Message:
        """The map `heads` of a snapshot."""
        message: Message = {
            "heads": [dict(head) for head in self.declared],
            "weights": self.weights,
            "signals": self.signals,
            "ratios": self.ratios,
            "weightings": list(self.weightings),
        }
        if self.level.any():
            message["level"] = self.level
        if self.bases:
            message["bases"] = [{"vectors": vectors, "values": values} for vectors, values in self.bases]
        if (self.factors != 1).any():
            message["factors"] = self.factors
        if self.pairs.any():
            message["pairs"] = [int(pairs) for pairs in self.pairs]
            message["coverage"] = self.coverage
        return message
