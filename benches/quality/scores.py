"""How good values are, and how honest what is said about them."""

import numpy as np

NINETY = 1.6448536269514722
"""Half the width of the central 90 % of a normal distribution, in standard deviations."""


def nrmse(mean, stream):
    """Root mean square error of V at the held-out states over the standard deviation of the truth there.

    The truth's own error is subtracted from the squares; what is left may not fall below a thousandth.
    """
    squares = np.mean((mean - stream.truth) ** 2 - stream.truth_error**2)
    return float(max(np.sqrt(max(squares, 0.0)) / stream.truth.std(), 1e-3))


def covered(mean, variance, stream):
    """Share of held-out states whose true value lies in the 90 % interval, widened by the truth's own error."""
    return float(np.mean(np.abs(mean - stream.truth) <= NINETY * np.sqrt(variance + stream.truth_error**2)))


def differences_covered(mean, covariance, stream):
    """The same of V(a) - V(b), of all pairs of held-out states, in the interval by their covariance."""
    a, b = np.triu_indices(len(mean), 1)
    variance = covariance[a, a] + covariance[b, b] - 2.0 * covariance[a, b]
    off = (mean[a] - mean[b]) - (stream.truth[a] - stream.truth[b])
    error = stream.truth_error[a] ** 2 + stream.truth_error[b] ** 2
    return float(np.mean(np.abs(off) <= NINETY * np.sqrt(np.maximum(variance, 0.0) + error)))


def returns_covered(mean, return_variance, stream):
    """Share of fresh returns in the 90 % interval of the return."""
    return float(np.mean(np.abs(mean[:, None] - stream.returns) <= NINETY * np.sqrt(return_variance)[:, None]))


def log_density(mean, return_variance, stream):
    """Mean log density of fresh returns under normal ones, in nats, of returns measured in their own deviation."""
    spread = np.maximum(return_variance, 1e-300)[:, None]
    density = -0.5 * (np.log(2.0 * np.pi * spread) + (stream.returns - mean[:, None]) ** 2 / spread)
    return float(density.mean() + np.log(stream.returns.std()))


def truth_error(stream):
    """How well the truth is known, in standard deviations of the truth over states."""
    return float(np.sqrt(np.mean(stream.truth_error**2)) / stream.truth.std())


def noise(stream):
    """Deviation of returns at one state over the deviation of the truth over states."""
    return float(stream.returns.std(axis=1).mean() / stream.truth.std())


def area(score, marked):
    """Chance that a marked state scores higher than one that is not, ties counting half; None where all or none are marked."""
    high, low = score[marked], score[~marked]
    if len(high) == 0 or len(low) == 0:
        return None
    apart = high[:, None] - low[None, :]
    return float(np.mean((apart > 0.0) + 0.5 * (apart == 0.0)))


def warned(known, mean, stream):
    """How well little `known` tells the held-out states whose error is above twice the median: the area under its curve."""
    errors = np.abs(mean - stream.truth)
    return area(-known, errors > 2.0 * np.median(errors))


def warned_at_best(known, variance, draws=200):
    """The same if errors were normal with the variance that is stated: what knowing them exactly so would give."""
    errors = np.abs(np.random.default_rng(0).standard_normal((draws, len(variance)))) * np.sqrt(variance)
    areas = [area(-known, each > 2.0 * np.median(each)) for each in errors]
    return float(np.mean([each for each in areas if each is not None]))
