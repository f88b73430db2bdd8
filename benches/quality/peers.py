"""What others make of the same rows: each peer gives the values that it learned at the held-out states.

LSTD(lambda) solves for the fixed point in random Fourier features. The others regress on returns; where a chain was
cut, its return goes on with what the peer itself expects there, in a few rounds.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.optimize
from features import fourier
from scipy.linalg import cho_factor, cho_solve
from scipy.signal import lfilter
from streams import file_name, keep

VERSION = 1
"""Of the peers below: raise it with every change that changes what they give."""

LAMBDAS = (0.0, 0.5, 0.8, 0.9, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Rows and what is made of them


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a stream, inputs standardised, with the chains that they form: `ends` are the last row of each."""

    x: np.ndarray
    rewards: np.ndarray
    x_next: np.ndarray
    terminated: np.ndarray
    ends: np.ndarray
    discount: float

    def chains(self):
        """Slices of the chains, in order."""
        starts = np.concatenate([[0], self.ends[:-1] + 1])
        return [slice(a, b + 1) for a, b in zip(starts, self.ends, strict=True)]


def rows_of(stream):
    """All rows, and how to standardise further states."""
    centre, spread = stream.states.mean(axis=0), stream.states.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)

    def standard(states):
        return (states - centre) / spread

    ends = np.flatnonzero(stream.terminated | stream.truncated)
    rows = Rows(
        standard(stream.states),
        stream.rewards,
        standard(stream.next_states),
        stream.terminated,
        ends,
        stream.discount,
    )
    return rows, standard


def held_out(rows):
    """Rows of three chains in four, and of every fourth. Fewer than eight chains are cut first."""
    ends = rows.ends
    if len(ends) < 8:
        step = max(50, len(rows.rewards) // 20)
        ends = np.union1d(ends, np.arange(step - 1, len(rows.rewards), step))
    number = np.searchsorted(ends, np.arange(len(rows.rewards)))

    def part(chosen):
        kept = np.flatnonzero(chosen)
        last = np.flatnonzero(np.isin(kept, ends))
        return Rows(rows.x[kept], rows.rewards[kept], rows.x_next[kept], rows.terminated[kept], last, rows.discount)

    return part(number % 4 != 3), part(number % 4 == 3)


def discounted(rows, rewards, discount, tails):
    """Sums of discounted rewards to the end of the chain, where they go on with discount times `tails` (chains,)."""
    sums = np.empty(len(rewards))
    for chain, tail in zip(rows.chains(), tails, strict=True):
        piece = rewards[chain].copy()
        piece[-1] += discount * tail
        sums[chain] = lfilter([1.0], [1.0, -discount], piece[::-1])[::-1]
    return sums


def tails_of(rows, value):
    """What follows each chain: 0 where it terminated."""
    return np.where(rows.terminated[rows.ends], 0.0, value(rows.x_next[rows.ends]))


def guess(rows):
    """What follows a cut before anything is known: the mean reward for ever, or nothing where chains terminate."""
    endless = rows.discount < 1.0 and not rows.terminated.any()
    level = rows.rewards.mean() / (1.0 - rows.discount) if endless else 0.0
    return lambda x: np.full(len(x), level)


def on_returns(rows, regress, rounds):
    """`regress(x, returns)` gives a value function; it closes the returns of the next round."""
    value = guess(rows)
    for _ in range(rounds if not rows.terminated[rows.ends].all() else 1):
        value = regress(rows.x, discounted(rows, rows.rewards, rows.discount, tails_of(rows, value)))
    return value


# ---------------------------------------------------------------------------------------------------------------------
# LSTD(lambda)

SCALES = (0.25, 0.5, 1.0, 2.0)
RIDGES = (1e-3, 1e-1, 1.0, 10.0)


def td_systems(rows, features, lambdas):
    """A = sum e (phi - gamma phi')' and b = sum e r for each lambda, e the traces."""
    now, after = features(rows.x), features(rows.x_next)
    change = now - rows.discount * np.where(rows.terminated[:, None], 0.0, after)
    systems = {}
    for lam in lambdas:
        traces = now if lam == 0.0 else np.empty_like(now)
        if lam > 0.0:
            for chain in rows.chains():
                traces[chain] = lfilter([1.0], [1.0, -rows.discount * lam], now[chain], axis=0)
        systems[lam] = traces.T @ change, traces.T @ rows.rewards
    return systems


def lstd(stream, seed):
    """For every lambda the values with the scale and the ridge that predict every fourth chain best.

    Returns of the held-out chains are closed by the median of all candidates: the same target for all.
    """
    rows, standard = rows_of(stream)
    train, test = held_out(rows)
    features = {scale: fourier(rows.x.shape[1], scale, np.random.default_rng([seed, 1])) for scale in SCALES}
    inner, closing = {}, {}
    for scale in SCALES:
        held, following = features[scale](test.x), features[scale](test.x_next[test.ends])
        for lam, (matrix, response) in td_systems(train, features[scale], LAMBDAS).items():
            for ridge in RIDGES:
                weights = np.linalg.solve(matrix + ridge * np.eye(len(matrix)), response)
                inner[scale, lam, ridge] = held @ weights
                closing[scale, lam, ridge] = following @ weights
    tails = np.where(test.terminated[test.ends], 0.0, np.median(list(closing.values()), axis=0))
    returns = discounted(test, test.rewards, test.discount, tails)
    error = {key: float(np.mean((value - returns) ** 2)) for key, value in inner.items()}
    states, results = standard(stream.test_states), {}
    for lam in LAMBDAS:
        scale, _, ridge = min((key for key in error if key[1] == lam), key=error.get)
        matrix, response = td_systems(rows, features[scale], [lam])[lam]
        # As strong for all rows as it was for three quarters of them.
        weights = np.linalg.solve(matrix + 4.0 / 3.0 * ridge * np.eye(len(matrix)), response)
        chosen = {"scale": scale, "ridge": ridge, "held_out": error[scale, lam, ridge]}
        results[f"LSTD {lam:g}"] = features[scale](states) @ weights, chosen
    return results


# ---------------------------------------------------------------------------------------------------------------------
# Gaussian process on returns

GP_ROWS = 600


class GaussianProcess:
    """Exact regression with a squared exponential kernel, a relevance per input, a constant and noise.

    The evidence is climbed from two guesses, under wide priors around what the targets suggest.
    """

    def __init__(self, x, y):
        self.x, self.y = x, y
        self.typical = np.concatenate(
            [np.log([y.var(), np.mean(y**2), 0.1 * y.var()]), np.full(x.shape[1], -np.log(x.shape[1]))]
        )
        bounds = [(self.typical[0] - 9.0, None), (self.typical[1] - 14.0, None)]
        bounds += [(np.log(1e-3 * y.var()), np.log(10.0 * y.var()))] + [(np.log(1e-6), np.log(1e4))] * x.shape[1]
        found = []
        for shift in (1.4, -0.9):
            start = self.typical + np.r_[0.0, 0.0, 0.0, np.full(x.shape[1], shift)]
            found.append(
                scipy.optimize.minimize(
                    self.loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60}
                )
            )
        self.parameters = min(found, key=lambda result: result.fun).x
        signal, bias, noise, relevance = self.unpacked(self.parameters)
        covariance = signal * self.correlation(x, x, relevance) + bias + noise * np.eye(len(y))
        self.weights = cho_solve(cho_factor(covariance), y)

    @staticmethod
    def unpacked(parameters):
        return (*np.exp(parameters[:3]), np.exp(parameters[3:]))

    @staticmethod
    def correlation(a, b, relevance):
        a, b = a * np.sqrt(relevance), b * np.sqrt(relevance)
        squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
        return np.exp(-0.5 * np.maximum(squared, 0.0))

    def loss(self, parameters):
        """Minus the log evidence and the priors, with its gradient."""
        signal, bias, noise, relevance = self.unpacked(parameters)
        correlation = self.correlation(self.x, self.x, relevance)
        size = len(self.y)
        away = parameters - self.typical
        try:
            factor = cho_factor(signal * correlation + bias + noise * np.eye(size), lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        weights = cho_solve(factor, self.y)
        loss = 0.5 * self.y @ weights + np.log(np.diag(factor[0])).sum() + away @ away / 32.0
        inner = np.outer(weights, weights) - cho_solve(factor, np.eye(size))
        weighted = signal * inner * correlation
        # sum_ij w_ij (x_i - x_j)^2 for each input.
        squares = 2.0 * (weighted.sum(axis=1) @ self.x**2 - ((weighted @ self.x) * self.x).sum(axis=0))
        slopes = [-0.5 * weighted.sum(), -0.5 * bias * inner.sum(), -0.5 * noise * np.trace(inner)]
        return loss, np.concatenate([slopes, 0.25 * relevance * squares]) + away / 16.0

    def __call__(self, x):
        signal, bias, _, relevance = self.unpacked(self.parameters)
        return (signal * self.correlation(x, self.x, relevance) + bias) @ self.weights


def gp(stream, seed):
    """Of returns from some rows."""
    rows, standard = rows_of(stream)
    chosen = np.random.default_rng([seed, 2]).permutation(len(rows.rewards))[:GP_ROWS]
    value = on_returns(rows, lambda x, y: GaussianProcess(x[chosen], y[chosen]), 2)
    return {"GP": (value(standard(stream.test_states)), {})}


# ---------------------------------------------------------------------------------------------------------------------
# Neighbours and trees


def knn(stream, seed):
    """Mean return of the nearest rows; of how many is chosen by every fourth chain."""
    from sklearn.neighbors import KNeighborsRegressor

    def nearest(count):
        return lambda x, y: KNeighborsRegressor(count).fit(x, y).predict

    rows, standard = rows_of(stream)
    train, test = held_out(rows)
    candidates = {count: on_returns(train, nearest(count), 2) for count in (10, 30, 100, 300)}
    following = np.median([tails_of(test, value) for value in candidates.values()], axis=0)
    returns = discounted(test, test.rewards, test.discount, following)
    count = min(candidates, key=lambda count: np.mean((candidates[count](test.x) - returns) ** 2))
    value = on_returns(rows, nearest(count), 3)
    return {"k-NN": (value(standard(stream.test_states)), {"neighbours": count})}


def trees(stream, seed):
    from sklearn.ensemble import HistGradientBoostingRegressor

    def boost(x, y):
        model = HistGradientBoostingRegressor(early_stopping=True, max_leaf_nodes=15, random_state=seed)
        return model.fit(x, y).predict

    rows, standard = rows_of(stream)
    return {"trees": (on_returns(rows, boost, 3)(standard(stream.test_states)), {})}


# ---------------------------------------------------------------------------------------------------------------------
# Networks


def mlp(stream, seed):
    """Two layers of 64, on returns, stopped by held-out rows."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    # Twenty passes are all it gets, and it says so each time.
    warnings.simplefilter("ignore", ConvergenceWarning)

    def train(x, y):
        centre, spread = y.mean(), y.std() + 1e-9
        model = MLPRegressor(
            hidden_layer_sizes=(64, 64), early_stopping=True, max_iter=20, batch_size=256, random_state=seed
        )
        model.fit(x, (y - centre) / spread)
        return lambda x: model.predict(x) * spread + centre

    rows, standard = rows_of(stream)
    return {"MLP MC": (on_returns(rows, train, 2)(standard(stream.test_states)), {})}


class Network:
    """Two layers of 64 tangents and a linear one, trained by Adam on squared errors in batches of 256."""

    def __init__(self, dim, rng, width=64):
        def normal(rows, columns, scale):
            return scale / np.sqrt(rows) * rng.standard_normal((rows, columns))

        self.rng = rng
        self.parameters = [
            normal(dim, width, 1.2),
            0.3 * rng.standard_normal(width),
            normal(width, width, 1.0),
            np.zeros(width),
            normal(width, 1, 0.8),
            np.zeros(1),
        ]
        self.first = [np.zeros_like(p) for p in self.parameters]
        self.second = [np.zeros_like(p) for p in self.parameters]
        self.steps = 0

    def layers(self, x):
        w1, b1, w2, b2, w3, b3 = self.parameters
        low = np.tanh(x @ w1 + b1)
        high = np.tanh(low @ w2 + b2)
        return low, high, (high @ w3 + b3)[:, 0]

    def train(self, x, y, rates):
        """One step of Adam for each of the rates."""
        for rate in rates:
            batch = self.rng.integers(0, len(y), 256)
            low, high, out = self.layers(x[batch])
            error = (out - y[batch])[:, None] / len(batch)
            into_high = error @ self.parameters[4].T * (1.0 - high**2)
            into_low = into_high @ self.parameters[2].T * (1.0 - low**2)
            gradients = []
            for below, above in ((x[batch], into_low), (low, into_high), (high, error)):
                gradients += [below.T @ above, above.sum(axis=0)]
            self.steps += 1
            for p, m, v, g in zip(self.parameters, self.first, self.second, gradients, strict=True):
                m += 0.1 * (g - m)
                v += 0.001 * (g**2 - v)
                p -= rate * m / (1.0 - 0.9**self.steps) / (np.sqrt(v / (1.0 - 0.999**self.steps)) + 1e-8)


def mlp_lambda(stream, seed, lam=0.9, rounds=6, steps=500):
    """A network on lambda-returns, made anew from its own values six times; first on returns."""
    rows, standard = rows_of(stream)
    returns = discounted(rows, rows.rewards, rows.discount, tails_of(rows, guess(rows)))
    centre, spread = returns.mean(), returns.std() + 1e-9
    network = Network(rows.x.shape[1], np.random.default_rng([seed, 3]))

    def value(x):
        return network.layers(x)[2] * spread + centre

    rates = 2e-3 * np.linspace(1.0, 0.05, (rounds + 2) * steps)
    network.train(rows.x, (returns - centre) / spread, rates[: 2 * steps])
    for k in range(2, rounds + 2):
        following = np.where(rows.terminated, 0.0, value(rows.x_next))
        rewards = rows.rewards + rows.discount * (1.0 - lam) * following
        targets = discounted(rows, rewards, rows.discount * lam, following[rows.ends])
        network.train(rows.x, (targets - centre) / spread, rates[k * steps : (k + 1) * steps])
    return {"MLP lambda": (value(standard(stream.test_states)), {})}


# ---------------------------------------------------------------------------------------------------------------------
# All of them

PEERS = {"lstd": lstd, "gp": gp, "knn": knn, "trees": trees, "mlp": mlp, "mlp-lambda": mlp_lambda}


def path_of(cache, peer, name, seed):
    return Path(cache) / f"peers-v{VERSION}" / f"{file_name(name, seed)}-{peer}.json"


def load(cache, peer, name, seed):
    """What a peer gave at an earlier time: {title: {"mean": [...], "chosen": {...}}}, or None."""
    path = path_of(cache, peer, name, seed)
    return json.loads(path.read_text())["results"] if path.exists() else None


def learn(cache, peer, name, seed, stream):
    """As `load`, computed where it is not kept yet."""
    kept = load(cache, peer, name, seed)
    if kept is not None:
        return kept
    began = time.process_time()
    given = PEERS[peer](stream, seed).items()
    results = {title: {"mean": mean.tolist(), "chosen": chosen} for title, (mean, chosen) in given}
    path = path_of(cache, peer, name, seed)
    text = json.dumps({"seconds": time.process_time() - began, "results": results})
    keep(path, lambda partial: partial.write_text(text))
    return results
