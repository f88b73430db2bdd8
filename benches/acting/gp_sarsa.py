"""GP-SARSA as the literature has it, for comparison: on-line, on policy, every return kept, a sparse dictionary.

The algorithm is the sparse recursion of Engel, Mannor and Meir (2005), in the episodic form of Gasic and Young
(2014): noise of Monte Carlo returns (correlated along an episode), elements added where approximate linear dependence
fails, a kernel over states times a kernel over actions, both fixed by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kernel:
    """p exp(-1/2 |x - x'|^2) over inputs (n, D) in units of their lengthscales."""

    lengthscales: Array
    variance: float

    def rows(self, points: Array, dictionary: Array) -> Array:
        """Covariances (n, m)."""
        far = (points[:, None, :] - dictionary[None, :, :]) / self.lengthscales
        return self.variance * np.exp(-0.5 * np.einsum("nmd,nmd->nm", far, far))


class GpSarsa:
    """Q by the temporal differences of the policy that acts.

    - `kernel`: of inputs (D + A,), a state and the coordinates of an action.
    - `noise_variance`: of a single reward.
    - `threshold`: residual variance above which an input joins the dictionary, in parts of the kernel's variance.
    - `elements_max`: size at which the dictionary stops growing.
    """

    def __init__(
        self, kernel: Kernel, discount: float, noise_variance: float, threshold: float = 1e-3, elements_max: int = 300
    ) -> None:
        self.kernel, self.discount, self.noise = kernel, discount, noise_variance
        self.threshold, self.elements_max = threshold * kernel.variance, elements_max
        size = len(kernel.lengthscales)
        self.dictionary: Array = np.zeros((0, size))
        self.inverse, self.weights, self.precision = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0))
        self._here: Array | None = None

    def values(self, inputs: Array) -> Array:
        """Mean of Q at inputs (n, D + A)."""
        if not len(self.dictionary):
            return np.zeros(len(inputs))
        return np.asarray(self.kernel.rows(inputs, self.dictionary) @ self.weights)

    def variances(self, inputs: Array) -> Array:
        """Variance of Q at inputs (n, D + A)."""
        k = self.kernel.rows(inputs, self.dictionary)
        return np.asarray(self.kernel.variance - np.einsum("nm,mk,nk->n", k, self.precision, k))

    def begin(self, point: Array) -> None:
        """An episode begins with this input (D + A,)."""
        self._g, gap, _ = self._look(point)
        if gap > self.threshold and len(self.dictionary) < self.elements_max:
            self._g = self._grow(point, self._g, gap)
        self._c, self._d, self._inverse_v = np.zeros(len(self.dictionary)), 0.0, 0.0
        self._here = point

    def learn(self, reward: float, following: Array | None) -> None:
        """A reward, and the input (D + A,) that follows; None where the episode has terminated."""
        assert self._here is not None, "an episode begins with `begin`"
        gamma, noise = self.discount, self.noise
        here = self.kernel.rows(self._here[None], self.dictionary)[0]
        if following is None:
            g, difference, own = np.zeros(len(here)), here, noise
            grows, gap = False, 0.0
        else:
            g, gap, there = self._look(following)
            difference, own = here - gamma * there, (1.0 + gamma**2) * noise
            grows = gap > self.threshold and len(self.dictionary) < self.elements_max
        carried = gamma * noise * self._inverse_v
        d = carried * self._d + reward - float(difference @ self.weights)
        if grows:
            assert following is not None
            known = self._g
            spread = float(known @ (here - 2.0 * gamma * there)) + gamma**2 * self.kernel.variance
            pulled = self.precision @ difference
            along = float(self._c @ difference)
            g = self._grow(following, g, gap)
            h = np.append(known, -gamma)
            c = carried * np.append(self._c, 0.0) + h - np.append(pulled, 0.0)
            v = own + spread - float(difference @ pulled) + 2.0 * carried * along
        else:
            h = self._g - gamma * g
            c = carried * self._c + h - self.precision @ difference
            v = own + float(difference @ (c + carried * self._c))
        v -= gamma**2 * noise**2 * self._inverse_v
        self.weights += c * (d / v)
        self.precision += np.outer(c, c) / v
        self._c, self._d, self._inverse_v, self._g = c, d, 1.0 / v, g
        self._here = following

    def _look(self, point: Array) -> tuple[Array, float, Array]:
        """Coefficients (m,) of the dictionary for an input, the variance that they leave, and its covariances (m,)."""
        k = self.kernel.rows(point[None], self.dictionary)[0]
        g = self.inverse @ k
        return g, self.kernel.variance - float(k @ g), k

    def _grow(self, point: Array, g: Array, gap: float) -> Array:
        m = len(self.dictionary)
        inverse = np.zeros((m + 1, m + 1))
        inverse[:m, :m] = self.inverse + np.outer(g, g) / gap
        inverse[:m, m] = inverse[m, :m] = -g / gap
        inverse[m, m] = 1.0 / gap
        self.inverse = inverse
        self.dictionary = np.vstack([self.dictionary, point])
        self.weights = np.append(self.weights, 0.0)
        self.precision = np.pad(self.precision, (0, 1))
        coefficients = np.zeros(m + 1)
        coefficients[m] = 1.0
        return coefficients
