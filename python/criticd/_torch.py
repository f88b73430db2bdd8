"""Snapshots as modules of PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from criticd._kernel import BOUND, bend_of, function_of, period_of
from criticd._model import Model


def module(snapshot: Model) -> Any:
    """The module of a snapshot."""
    return _Value(snapshot)


class _Value(torch.nn.Module):
    """Mean and standard deviation of V at raw states (n, D), as `Snapshot` has them."""

    def __init__(self, snapshot: Model) -> None:
        super().__init__()
        self.kernel = snapshot.kernel
        self.prior_mean = 0.0 if snapshot.actions is None else snapshot.actions.prior_mean
        self.about = None if snapshot.mean_function is None else _Value(snapshot.mean_function)
        level = snapshot.level if len(snapshot.level) else np.zeros(snapshot.weights.shape[1])
        numbers = {
            "shift": snapshot.shift,
            "scale": snapshot.scale,
            "weights": snapshot.weights,
            "level": level,
            "roots": np.sqrt(snapshot.kernel.relevance),
            "factors": snapshot.kernel.factors * snapshot.kernel.on_line,
            "dictionary": snapshot.dictionary,
            "basis": snapshot.kernel.project(snapshot.dictionary),
            "column_variances": snapshot.kernel.column_variances,
        }
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(np.asarray(values), dtype=torch.float64))
        covariance = None if snapshot.covariance is None else torch.tensor(snapshot.covariance, dtype=torch.float64)
        self.register_buffer("covariance", covariance)

    @property
    def _kinds(self) -> tuple[str, ...]:
        return self.kernel.kinds or ("real",) * len(self.kernel.relevance)

    def forward(self, states: Any) -> Any:
        """Mean (n,) or (n, H), and standard deviation (n,) or None."""
        z = (states.to(torch.float64) - self.shift) / self.scale
        functions = self._functions(z)
        k = torch.cat([functions * self.column_variances, self._of_squares(self._squares(z))], dim=1)
        mean = k @ self.weights + self.prior_mean + self.level
        if self.about is not None:
            mean = mean + self.about(states)[0].reshape(mean.shape)
        mean = mean[:, 0] if mean.shape[1] == 1 else mean
        if self.covariance is None:
            return mean, None
        prior = self.kernel.diagonal + functions**2 @ self.column_variances
        variance = prior - ((k @ self.covariance) * k).sum(dim=1)
        # Where it is 0 the root would have no slope.
        return mean, torch.sqrt(torch.clamp(variance, min=1e-300))

    def _angle(self, z: Any, d: int) -> Any:
        turns = z[:, d] / (period_of(self._kinds[d]) or 1.0)
        return 2 * math.pi * (turns - torch.round(turns))

    def _functions(self, z: Any) -> Any:
        """f(z) of the kernel's columns (n, q)."""
        found = [z[:, :0]]
        for column in self.kernel.columns:
            name, d = function_of(column)
            if d is None:
                found.append(torch.ones_like(z[:, :1]))
            elif name == "linear":
                found.append(z[:, d : d + 1])
            elif name == "bounded":
                found.append(torch.clamp(z[:, d : d + 1], -BOUND, BOUND))
            else:
                angle = self._angle(z, d)
                found.append((torch.cos(angle) if name == "cosine" else torch.sin(angle))[:, None])
        return torch.cat(found, dim=1)

    def _squares(self, z: Any) -> Any:
        """r^2 (n, m), as `Kernel.project` and `Kernel.apart` have it, one coordinate at a time."""
        found, lines = [z[:, :0]], [z[:, :0]]
        apart = torch.zeros(len(z), len(self.dictionary), dtype=torch.float64, device=z.device)
        for d, kind in enumerate(self._kinds):
            x = z[:, d : d + 1]
            if (bend := bend_of(kind)) is not None:
                x = bend[2] * torch.asinh((x - bend[0]) / bend[1])
            lines.append(x)
            if kind == "real" or bend is not None:
                found.append(self.roots[d] * x)
            elif kind == "category":
                apart = apart + 2 * self.roots[d] ** 2 * (z[:, d : d + 1] != self.dictionary[:, d])
            else:
                angle = self._angle(z, d)
                found.append(self.roots[d] * torch.stack([torch.cos(angle), torch.sin(angle)], dim=1))
        points = torch.cat([*found, torch.cat(lines, dim=1) @ self.factors.T], dim=1)
        for a, b in zip(points.T, self.basis.T, strict=True):
            apart = apart + (a[:, None] - b) ** 2
        return apart

    def _of_squares(self, squared: Any) -> Any:
        """Covariances from squared distances."""
        if self.kernel.profile == "matern52":
            # The root has no slope at 0, where the profile is flat.
            a = torch.clamp(torch.sqrt(5 * torch.clamp(squared, min=1e-300)), max=1e3)
            shape = (1 + a + a * a / 3) * torch.exp(-a)
        else:
            shape = torch.exp(-0.5 * squared)
        return self.kernel.signal_variance * shape + self.kernel.bias_variance
