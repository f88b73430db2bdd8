"""Random Fourier features: what LSTD and SwiftTD are linear in."""

import numpy as np

FEATURES = 200


def fourier(dim, scale, rng):
    """Random Fourier features of a Gaussian kernel of this lengthscale, a constant, and the states themselves."""
    directions = rng.standard_normal((dim, FEATURES)) / (scale * np.sqrt(dim))
    phases = rng.uniform(0.0, 2.0 * np.pi, FEATURES)

    def features(x):
        waves = np.sqrt(2.0 / FEATURES) * np.cos(x @ directions + phases)
        return np.hstack([waves, np.ones((len(x), 1)), 0.3 * x])

    return features
