"""Heads of a snapshot: many predictions that share its kernel and dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from criticd._protocol import Array, Message
from criticd._spread import ReturnSpread
from criticd._units import split_name

if TYPE_CHECKING:
    from criticd.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class HeadModels:
    """Heads as the protocol has them, in units of the snapshot's kernel k.

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


class Heads(Mapping[str, "Snapshot"]):
    """The heads of a snapshot by name, each a `Snapshot` of its own, made when it is asked for.

    Its kernel is that of the critic times the scale of the head, so that calling, gradients, pictures and ONNX files
    are those of any snapshot. `discount` is the head's, 1 where it has a timescale. Its reward is called like the head,
    with the unit of what it sums, where that is a state variable or a reward.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        kernels = [of for of in (snapshot, snapshot.branch) if of is not None and of.head_models is not None]
        self._snapshot = snapshot
        self._places: dict[str, tuple[Snapshot, HeadModels, int]] = {}
        for of in kernels:
            assert of.head_models is not None
            for place, head in enumerate(of.head_models.declared):
                self._places[str(head["name"])] = (of, of.head_models, place)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def declared(self, name: str) -> Message:
        """What the head predicts, as a file of heads says it. Raises KeyError."""
        _, models, place = self._places[name]
        return dict(models.declared[place])

    def __getitem__(self, name: str) -> Snapshot:
        of, models, place = self._places[name]
        signal, ratio = float(models.signals[place]), float(models.ratios[place])
        kernel = replace(
            of.kernel,
            signal_variance=signal * of.kernel.signal_variance,
            bias_variance=signal * of.kernel.bias_variance,
            column_variances=signal * of.kernel.column_variances,
        )
        covariance = returns = None
        if models.bases:
            noise, flat = np.array([signal * ratio]), np.zeros((of.features, 1))
            pairs, coverage = int(models.pairs[place]), float(models.coverage[place])
            returns = ReturnSpread(
                noise, flat, noise, float(models.factors[place]), pairs, None if np.isnan(coverage) else coverage
            )
            vectors, values = models.bases[models.weightings[place]]
            covariance = (vectors * (values / (values + ratio))) @ vectors.T / signal
        return replace(
            of,
            critic=f"{self._snapshot.critic}.{name}",
            discount=float(models.declared[place].get("discount", 1.0)),
            kernel=kernel,
            level=models.level[place : place + 1],
            noise_variance=signal * ratio,
            weights=models.weights[:, place : place + 1] / signal,
            covariance=covariance,
            log_evidence=None,
            score=None,
            lambda_=1.0,
            returns=returns,
            head_models=None,
            branch=None,
            reward_names=(name + self._unit(models.declared[place]),),
        )

    def _unit(self, head: Mapping[str, Any]) -> str:
        """The unit of the variable or reward that a head sums, as it stands behind its name; else nothing."""
        kind, index = (head.get("cumulant", {}).get(key) for key in ("kind", "index"))
        of = {"state": self._snapshot.names, "next_state": self._snapshot.names, "reward": self._snapshot.reward_names}
        names = of.get(kind) or ()
        known = isinstance(index, int) and index < len(names)
        return names[index][len(split_name(names[index])[0]) :] if known else ""
