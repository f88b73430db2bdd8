"""Peers that learn from each row once, in the order of the rows, and are asked for its value before they learn it.

SwiftTD [Javed, Sharifnassab, Sutton 2024], Stream TD(lambda) [Elsayed, Vasan, Mahmood 2024], Intentional TD
[Sharifnassab et al. 2026, arXiv:2604.19033], LSTD(lambda) [Boyan 1999] whose sums forget, and at discount 0 the forests
of `river`. All but the forests are written here from their equations; tests/python/test_quality_peers.py checks that
they learn values that are known.

A peer has `value(x)`, and `learn(x, reward, x_next, terminated, ends)` for a row whose chain ends with it or goes on.
x (D,) are inputs in their own deviations. We chose the numbers in `SETTINGS` on the second half of ETTh2's
oil temperature, which flatters the peers there.
"""

import functools
import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from features import fourier
from streams import file_name, keep

VERSION = 1
"""Of the peers below: raise it with every change that changes what they say."""

SETTINGS = {
    "swift": {"lam": 0.95, "step": 1e-3, "step_max": 0.1, "decay": 0.999, "meta": 1e-3},
    "stream": {"lam": 0.8, "step": 1.0, "kappa": 2.0},
    "intentional": {"lam": 0.8, "share": 0.5},
    "lstd": {"lam": 0.8, "half_life": 4000.0, "ridge": 1.0},
}


# ---------------------------------------------------------------------------------------------------------------------
# Linear in Fourier features


class SwiftTD:
    """True online TD(lambda) with a step size of its own for each feature, learned from the rows.

    The step sizes exp(beta) follow the gradient of the squared error, `meta` times as fast. No row may change its own
    prediction by more than `step_max` of its error; where it would, the step sizes also shrink by `decay`.
    """

    def __init__(self, dim, discount, rng, lam, step, step_max, decay, meta):
        self.features = fourier(dim, 1.0, rng)
        size = len(self.features(np.zeros((1, dim)))[0])
        self.discount, self.decay, self.step_max, self.shrink, self.meta = discount, lam, step_max, decay, meta
        self.beta = np.full(size, np.log(step))
        names = ("weights", "change", "trace", "entered", "slopes_trace", "bar", "slopes", "slopes_old", "slopes_next")
        for name in names:
            setattr(self, name, np.zeros(size))
        self.running, self.before, self.drifted = False, 0.0, 0.0

    def phi(self, x):
        return self.features(x[None])[0]

    def value(self, x):
        return float(self.weights @ self.phi(x))

    def learn(self, x, reward, x_next, terminated, ends):
        if not self.running:
            phi = self.phi(x)
            self.enter(phi, float(self.weights @ phi))
        after = None if terminated else self.phi(x_next)
        value = 0.0 if terminated else float(self.weights @ after)
        error = reward + self.discount * value - self.before
        late = self.entered * self.drifted
        self.change = error * self.trace - late
        self.weights += self.change
        self.beta += self.meta / (np.exp(self.beta) + 1e-8) * (error - self.drifted) * self.slopes_trace
        np.clip(self.beta, np.log(1e-10), np.log(self.step_max), out=self.beta)
        self.slopes_old = self.slopes
        self.slopes = self.slopes_next + error * self.bar - late
        self.slopes_next = self.slopes
        fade = self.discount * self.decay
        self.trace, self.slopes_trace, self.bar = fade * self.trace, fade * self.slopes_trace, fade * self.bar
        if ends:
            for name in ("change", "trace", "entered", "slopes_trace", "bar"):
                setattr(self, name, np.zeros_like(self.weights))
            self.running, self.drifted = False, 0.0
        else:
            self.enter(after, value)

    def enter(self, phi, value):
        """A state whose value was `value` before the weights changed for the last time."""
        steps = np.exp(self.beta)
        rate = float(steps @ phi**2)
        held = float(self.trace @ phi)
        self.drifted = float(self.change @ phi)
        self.entered = min(1.0, self.step_max / rate) * steps * phi
        self.trace = self.trace + self.entered * (1.0 - held)
        self.slopes_trace = self.slopes_trace + self.slopes_old * phi
        self.bar = self.bar + self.entered * (1.0 - held - self.bar * phi)
        kept = self.slopes_old * phi * (self.trace - self.entered) + self.slopes * self.entered * phi
        self.slopes_next = self.slopes - kept
        if rate > self.step_max:
            self.slopes, self.slopes_old, self.slopes_next, self.bar = (np.zeros_like(phi) for _ in range(4))
            self.beta = self.beta + np.log(self.shrink) * phi**2
        self.before, self.running = value, True


class ForgettingLSTD:
    """LSTD(lambda) with a ridge, whose sums halve every `half_life` rows.

    ```text
    z <- f gamma lambda z + phi;   A <- f A + z (phi - gamma phi')';   b <- f b + z r;   u = (A + ridge I)^-1 b
    ```
    It is solved every half horizon, at most every 50 rows.
    """

    def __init__(self, dim, discount, rng, lam, half_life, ridge):
        self.features = fourier(dim, 1.0, rng)
        size = len(self.features(np.zeros((1, dim)))[0])
        self.discount, self.lam, self.keep = discount, lam, 0.5 ** (1.0 / half_life)
        self.ridge = ridge * np.eye(size)
        self.matrix, self.response = np.zeros((size, size)), np.zeros(size)
        self.weights, self.trace, self.rows = np.zeros(size), np.zeros(size), 0
        self.every = 50 if discount == 1.0 else min(50, max(1, int(0.5 / (1.0 - discount))))

    def value(self, x):
        return float(self.weights @ self.features(x[None])[0])

    def learn(self, x, reward, x_next, terminated, ends):
        now, after = self.features(np.stack([x, x_next]))
        self.trace = self.keep * self.discount * self.lam * self.trace + now
        change = now if terminated else now - self.discount * after
        self.matrix = self.keep * self.matrix + np.outer(self.trace, change)
        self.response = self.keep * self.response + self.trace * reward
        if ends:
            self.trace = np.zeros_like(self.trace)
        self.rows += 1
        if self.rows % self.every == 0:
            self.weights = np.linalg.solve(self.matrix + self.ridge, self.response)


# ---------------------------------------------------------------------------------------------------------------------
# Networks

WIDTH = 128
SLOPE = 0.01
"""Of a leaky rectifier below 0."""


class Network:
    """Two layers of 128 and a linear one: each layer's sums are centred and scaled, then rectified.

    At first nine of ten weights of each unit are 0, and the others uniform. `gradient` is with respect to all
    parameters in a row, of which `parts` are views.
    """

    def __init__(self, dim, rng):
        shapes = [(WIDTH, dim), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (1, WIDTH), (1,)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.parameters, self.gradient = np.zeros(sum(sizes)), np.zeros(sum(sizes))
        cuts = np.cumsum(sizes)[:-1]
        self.parts = self.views(self.parameters, cuts, shapes)
        self.slopes = self.views(self.gradient, cuts, shapes)
        for weights in self.parts[::2]:
            inputs = weights.shape[1]
            weights[:] = rng.uniform(-1.0, 1.0, weights.shape) / np.sqrt(inputs)
            for unit in weights:
                unit[rng.permutation(inputs)[: int(0.9 * inputs)]] = 0.0

    @staticmethod
    def views(flat, cuts, shapes):
        return [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)]

    @staticmethod
    def layer(weights, biases, below):
        """Rectified, and what its gradient needs: the scaled sums and their deviation."""
        sums = weights @ below + biases
        spread = np.sqrt(sums.var() + 1e-5)
        scaled = (sums - sums.mean()) / spread
        return np.where(scaled > 0.0, scaled, SLOPE * scaled), scaled, spread

    @staticmethod
    def through(above, scaled, spread):
        """The gradient at a layer's sums, from that at what it puts out."""
        g = above * np.where(scaled > 0.0, 1.0, SLOPE)
        return (g - g.mean() - scaled * np.mean(g * scaled)) / spread

    def value(self, x, gradient=False):
        w1, b1, w2, b2, w3, b3 = self.parts
        low, *of_low = self.layer(w1, b1, x)
        high, *of_high = self.layer(w2, b2, low)
        if gradient:
            d1, e1, d2, e2, d3, e3 = self.slopes
            d3[0], e3[0] = high, 1.0
            e2[:] = self.through(w3[0], *of_high)
            np.outer(e2, low, out=d2)
            e1[:] = self.through(w2.T @ e2, *of_low)
            np.outer(e1, x, out=d1)
        return float(w3[0] @ high + b3[0])


class NetworkTD:
    """TD(lambda) of a network: traces of gradients, and a step that `move` makes of an error."""

    def __init__(self, dim, discount, rng, lam):
        self.network = Network(dim, rng)
        self.discount, self.lam = discount, lam
        self.trace = np.zeros_like(self.network.parameters)

    def value(self, x):
        return self.network.value(x)

    def learn(self, x, reward, x_next, terminated, ends):
        after = 0.0 if terminated else self.network.value(x_next)
        error = reward + self.discount * after - self.network.value(x, gradient=True)
        self.trace *= self.discount * self.lam
        self.trace += self.network.gradient
        self.move(error)
        if ends:
            self.trace[:] = 0.0


class StreamTD(NetworkTD):
    """Steps that are bounded by how far they may overshoot: `step`, but at most 1 / (kappa max(|error|, 1) |z|_1)."""

    def __init__(self, dim, discount, rng, lam, step, kappa):
        super().__init__(dim, discount, rng, lam)
        self.step, self.kappa = step, kappa

    def move(self, error):
        reach = self.step * self.kappa * max(abs(error), 1.0) * np.abs(self.trace).sum()
        self.network.parameters += self.step / max(reach, 1.0) * error * self.trace


class IntentionalTD(NetworkTD):
    """Each step is to take away `share` of the error: gradients g in their own size v, the step from theirs and z's.

    ```text
    v^2 = mean of g^2 (0.999);   s = mean of sum g^2 / v (gamma lambda);   step = share / sqrt(s sum z^2 / v)
    w <- w + step min(|error|, 20 rms of errors) sign(error) z / v
    ```
    Means are exponential, each corrected for its beginning.
    """

    SQUARES, ERRORS, CLIP = 0.999, 0.9998, 20.0

    def __init__(self, dim, discount, rng, lam, share):
        super().__init__(dim, discount, rng, lam)
        self.share, self.rows = share, 0
        self.squares = np.zeros_like(self.trace)
        self.norm, self.errors = 0.0, 1.0

    def move(self, error):
        self.rows += 1
        gradient, fade = self.network.gradient, self.discount * self.lam
        self.squares += (1.0 - self.SQUARES) * (gradient**2 - self.squares)
        size = np.sqrt(self.squares / (1.0 - self.SQUARES**self.rows)) + 1e-8
        self.norm += (1.0 - fade) * (float(np.sum(gradient**2 / size)) - self.norm)
        norm = self.norm / (1.0 - fade**self.rows)
        step = self.share / max(np.sqrt(norm * float(np.sum(self.trace**2 / size))), 1e-8)
        self.errors += (1.0 - self.ERRORS) * (error**2 - self.errors)
        most = self.CLIP * np.sqrt(self.errors / (1.0 - self.ERRORS**self.rows))
        self.network.parameters += step * np.clip(error, -most, most) * self.trace / size


KINDS = {"swift": SwiftTD, "stream": StreamTD, "intentional": IntentionalTD, "lstd": ForgettingLSTD}
TITLES = {
    "swift": "SwiftTD",
    "stream": "Stream TD",
    "intentional": "Intentional TD",
    "lstd": "LSTD, half-life",
    "arf": "ARF",
    "amf": "AMF",
    "last": "last value",
}
FORESTS = ("arf", "amf")


def make(peer, dim, discount, seed):
    return KINDS[peer](dim, discount, np.random.default_rng([seed, 4]), **SETTINGS[peer])


# ---------------------------------------------------------------------------------------------------------------------
# Asked before learned


def running(values):
    """Means and deviations of the values (n, D) up to each of them; the deviation of a single one is 1."""
    counts = np.arange(1, len(values) + 1)[:, None]
    first = values[0]
    sums, squares = np.cumsum(values - first, axis=0), np.cumsum((values - first) ** 2, axis=0)
    variances = (squares - sums**2 / counts) / np.maximum(counts - 1, 1)
    return first + sums / counts, np.sqrt(np.where(counts > 1, np.maximum(variances, 0.0) + 1e-8, 1.0))


NORMAL_ROWS = 1000
"""Rows from which on the inputs are no longer normalised anew: a scale that moves is drift of its own making."""


def inputs(stream):
    """States and next states in deviations from the mean of the states so far, at most 10 of them: (n, D) each."""
    centres, spreads = running(stream.states)
    for part in (centres, spreads):
        part[NORMAL_ROWS:] = part[min(NORMAL_ROWS, len(part)) - 1]

    def standard(states):
        return np.clip((states - centres) / spreads, -10.0, 10.0)

    x, after = standard(stream.states), standard(stream.next_states)
    ends = stream.terminated | stream.truncated
    goes_on = ~ends[:-1] & np.all(stream.next_states[:-1] == stream.states[1:], axis=1)
    after[:-1][goes_on] = x[1:][goes_on]
    return x, after


def units(stream):
    """What is subtracted from rewards, and what they are divided by, after each row (n,).

    At discount 0 the mean and the deviation so far, as one does before a regression. Otherwise nothing: rewards here
    are near 1 in size, which is what the peers expect.
    """
    if stream.discount > 0.0:
        return np.zeros(len(stream.rewards)), np.ones(len(stream.rewards))
    means, spreads = running(stream.rewards[:, None])
    return means[:, 0], spreads[:, 0]


def follow(peer, stream):
    """What a peer says of each row of a stream before it learns it: (n,), in the unit of returns."""
    x, after = inputs(stream)
    shifts, spreads = units(stream)
    rewards, ends = (stream.rewards - shifts) / spreads, stream.terminated | stream.truncated
    said = np.zeros(len(rewards))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(len(rewards)):
            if t > 0:
                said[t] = shifts[t - 1] + spreads[t - 1] * peer.value(x[t])
            peer.learn(x[t], rewards[t], after[t], bool(stream.terminated[t]), bool(ends[t]))
    return said


def follow_forest(peer, stream, seed):
    """The same of a forest of `river`, as it comes. Raises ImportError without `river`."""
    from river import forest

    model = {"arf": forest.ARFRegressor, "amf": forest.AMFRegressor}[peer](seed=seed)
    said = np.zeros(len(stream.rewards))
    for t, (state, reward) in enumerate(zip(stream.states.tolist(), stream.rewards.tolist(), strict=True)):
        row = dict(enumerate(state))
        said[t] = model.predict_one(row)
        model.learn_one(row, reward)
    return said


@functools.cache
def check_forest(peer):
    """Raise if a forest as it is installed here does not learn a sine: its figures would say nothing."""
    x = np.random.default_rng(6).uniform(-3.0, 3.0, (1000, 1))
    targets = np.sin(x[:, 0])
    said = follow_forest(peer, SimpleNamespace(states=x, rewards=targets), seed=0)
    error = np.sqrt(np.mean((said - targets)[-300:] ** 2)) / targets.std()
    if not error < 0.4:
        raise RuntimeError(f"{TITLES[peer]} errs by {error:.2f} deviations on a sine")


def last_value(stream):
    """The reward before, for ever: who does worse has learned nothing."""
    horizon = 1.0 / (1.0 - stream.discount) if stream.discount < 1.0 else 0.0
    return np.concatenate([[0.0], stream.rewards[:-1] * horizon])


def peers_of(stream):
    """The peers that can learn a stream: forests regress, and learn no values of what is yet to come."""
    return ["last", *KINDS, *(FORESTS if stream.discount == 0.0 else ())]


def learn(cache, peer, name, seed, stream):
    """What a peer says of each row before it learns it, kept in `cache`: (n,), or None without its package."""
    path = Path(cache) / f"online-v{VERSION}" / f"{file_name(name, seed)}-{peer}.json"
    if path.exists():
        return np.array(json.loads(path.read_text())["said"])
    began = time.process_time()
    try:
        if peer == "last":
            said = last_value(stream)
        elif peer in FORESTS:
            check_forest(peer)
            said = follow_forest(peer, stream, seed)
        else:
            said = follow(make(peer, stream.states.shape[1], stream.discount, seed), stream)
    except ImportError:
        return None
    text = json.dumps({"seconds": time.process_time() - began, "said": said.tolist()})
    keep(path, lambda partial: partial.write_text(text))
    return said
