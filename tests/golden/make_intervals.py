"""Writes intervals.json: what pieces of chains, rows held out and errors of returns say of intervals, by the formulas of
docs/mathematics.md (I1) to (I5), (Q6) and (Q7), row by row and matrix by matrix.

    python3 make_intervals.py > intervals.json
"""

import json

import numpy as np

DICTIONARY = np.array([-1.5, -0.5, 0.2, 0.9, 1.8])
RELEVANCE, BIAS, RIDGE = 1.5, 10.0, 0.05
NORMAL, NINETY = 1.6449, 1.645


def uniform(count, seed):
    """Numbers of a linear congruential generator in [0, 1): the same bits in any language."""
    out, state = [], seed
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(state / 2**31)
    return np.array(out)


def normal(count, seed):
    return uniform(12 * count, seed).reshape(count, 12).sum(1) - 6.0


def kernel(x, y):
    return np.exp(-0.5 * RELEVANCE * (x[:, None] - y[None, :]) ** 2) + BIAS


FACTOR = np.linalg.cholesky(kernel(DICTIONARY, DICTIONARY))


def features(x):
    return np.linalg.solve(FACTOR, kernel(np.atleast_1d(x), DICTIONARY).T).T


def rows_of(count, seed, hidden, limit, ends):
    """A walk whose rewards have a part that outlasts rows; chains are cut every `limit` rows and end with a chance of `ends`."""
    noise, drive, chance = normal(count, seed), normal(count, seed + 1), uniform(count, seed + 2)
    x, mode, x0 = [], 0.0, 0.3
    reward, following, terminated, truncated = [], [], [], []
    for t in range(count):
        mode = 0.9 * mode + hidden * drive[t]
        x.append(x0)
        reward.append(round(float(np.sin(2 * x0) + mode + 0.3 * noise[t]), 5))
        x0 = round(float(0.8 * x0 + 0.6 * normal(1, seed + 10 + t)[0]), 5)
        following.append(x0)
        terminated.append(int(chance[t] < ends))
        truncated.append(int((t + 1) % limit == 0))
        if terminated[-1] or truncated[-1]:
            x0 = round(float(normal(1, seed + 100000 + t)[0]), 5)
    truncated[-1] = 1
    return dict(states=x, rewards=reward, next_states=following, terminated=terminated, truncated=truncated)


def chains_of(rows):
    ends = [t for t in range(len(rows["states"])) if rows["terminated"][t] or rows["truncated"][t]]
    return list(zip([0] + [e + 1 for e in ends[:-1]], [e + 1 for e in ends]))


def pieces_of(chains, length):
    """Number of the piece of each row, from 0 on over all chains."""
    out, before = [], 0
    for a, b in chains:
        count = min(max(int(np.floor((b - a) / length + 0.5)), 1), b - a)
        out += [before + k * count // (b - a) for k in range(b - a)]
        before += count
    return np.array(out)


def t_ratio(freedom):
    """Quantile at 95 % of Student's t over that of a normal variable, by the integral of its density."""
    freedom = max(1.0, freedom)
    angle = (np.arange(2_000_000) + 0.5) / 2_000_000 * np.pi / 2
    density = np.cos(angle) ** (freedom - 1)
    share = np.cumsum(density) / density.sum()
    return float(np.sqrt(freedom) * np.tan(np.interp(0.9, share, angle)) / NORMAL)


class Fit:
    """LSTD(lambda) with a ridge."""

    def __init__(self, rows, gamma, lam):
        self.rows, self.gamma, self.lam = rows, gamma, lam
        self.chains = chains_of(rows)
        self.phi, self.behind = features(rows["states"]), features(rows["next_states"])
        ended = np.array(rows["terminated"], bool)
        self.discount = gamma * ~ended
        self.difference = self.phi - self.discount[:, None] * self.behind
        self.trace = np.zeros_like(self.phi)
        for a, b in self.chains:
            e = np.zeros(self.phi.shape[1])
            for t in range(a, b):
                e = gamma * lam * e + self.phi[t]
                self.trace[t] = e
        self.reward = np.array(rows["rewards"])
        self.system = self.trace.T @ self.difference + RIDGE * np.eye(len(DICTIONARY))
        self.response = self.trace.T @ self.reward
        self.u = np.linalg.solve(self.system, self.response)
        self.delta = self.reward - self.difference @ self.u
        inverse = np.linalg.inv(self.system)
        self.scatter = (self.trace * self.delta[:, None] ** 2).T @ self.trace
        self.covariance = inverse @ (self.scatter + RIDGE**2 * np.eye(len(DICTIONARY))) @ inverse.T
        self.horizon = 1 / (1 - np.mean(self.discount))
        self.spread = self.spread_of_returns()

    def spread_of_returns(self):
        """Level c and weights v of (T1) to (T3), floored as the model does."""
        g2 = self.discount**2
        z, e, sums = np.zeros_like(self.phi), np.zeros(len(self.phi)), np.zeros(self.phi.shape[1])
        for a, b in self.chains:
            sums, total = np.zeros(self.phi.shape[1]), 0.0
            for t in range(a, b):
                decay = self.gamma**2 * self.lam
                sums, total = decay * sums + self.phi[t], decay * total + 1.0
                z[t], e[t] = sums, total
        level = (e * self.delta**2).sum() / (e * (1 - g2)).sum()
        system = z.T @ (self.phi - g2[:, None] * self.behind) + 3.0 * np.eye(len(DICTIONARY))
        weights = np.linalg.solve(system, z.T @ (self.delta**2 - level * (1 - g2)))
        return lambda phi: np.maximum(level + phi @ weights, 0.05 * level)

    def inflation(self):
        n, h = len(self.reward), self.horizon
        inverse, mean = np.linalg.inv(self.system), self.phi.mean(0)
        moment = self.phi.T @ self.phi / n
        out = dict(horizon=h, ratio=1.0, level=0.0, student=t_ratio(n / (4 * h)))
        form = inverse.T @ moment @ inverse
        pieces = pieces_of(self.chains, 4 * h)
        scores = self.trace * self.delta[:, None]
        of = [scores[pieces == j] for j in range(pieces[-1] + 1)]
        q = np.array([s.sum(0) @ form @ s.sum(0) for s in of])
        r = np.array([np.einsum("ti,ij,tj->", s, form, s) for s in of])
        ratio = q.sum() / r.sum()
        error = np.sqrt(np.sum((q - ratio * r) ** 2)) / r.sum()
        if len(q) >= 20 and ratio - 1 > 2 * error:
            out["ratio"] = ratio
        if n / h <= 120:
            pieces = pieces_of(self.chains, h)
            changes = []
            for j in range(pieces[-1] + 1):
                k = pieces == j
                rest = self.system - self.trace[k].T @ self.difference[k]
                changes.append(-mean @ np.linalg.solve(rest, scores[k].sum(0)))
            changes = np.array(changes)
            scatter = (len(changes) - 1) / len(changes) * np.sum((changes - changes.mean()) ** 2)
            out["level"] = max(0.0, scatter - np.sum((scores @ inverse.T @ mean) ** 2))
        return out

    def variance(self, x, inflation):
        """(I5): the larger on average over the rows of R v and v + E, with the residual of the dictionary as it is."""
        phi, square = features(x), inflation["student"] ** 2
        form = lambda p: np.einsum("ti,ij,tj->t", p, self.covariance, p)
        mean, level = form(self.phi).mean(), inflation["level"]
        by_ratio = inflation["ratio"] * mean > mean + level
        ones = np.linalg.solve(FACTOR, np.ones(len(DICTIONARY)))
        learned = square * (inflation["ratio"] * form(phi) if by_ratio else form(phi) + level * (phi @ ones) ** 2)
        return 1.0 + BIAS - (phi**2).sum(1) + learned

    def held_out(self, inflation):
        h = self.horizon
        if len(self.chains) >= 8:
            fold = np.concatenate([np.full(b - a, c % 4) for c, (a, b) in enumerate(self.chains)])
        else:
            fold = pieces_of(self.chains, 4 * h) % 4
        u = []
        for k in range(4):
            of = fold == k
            rest = self.system - self.trace[of].T @ self.difference[of]
            u.append(np.linalg.solve(rest, self.response - self.trace[of].T @ self.reward[of]))
        spread = self.spread(self.phi)
        deviation = np.sqrt(spread + self.variance(np.array(self.rows["states"]), inflation))
        scaled, squares, spreads = [], 0.0, 0.0
        for a, b in self.chains:
            weight, total = 1.0, 0.0
            for t in reversed(range(a, b)):
                weight *= self.discount[t]
                total = self.reward[t] + self.discount[t] * total
                if weight < 0.05:
                    own = u[fold[t]]
                    error = total + weight * (self.behind[b - 1] @ own) - self.phi[t] @ own
                    scaled.append(abs(error) / deviation[t])
                    squares, spreads = squares + error**2, spreads + spread[t]
        pairs = len(scaled) / (2 * min(h, len(fold) / len(self.chains)))
        open_ = np.sqrt(0.09 / pairs)
        low, high = [np.quantile(scaled, min(1, max(0, 0.9 + s * open_))) / NINETY for s in (-1, 1)]
        return dict(
            factor=float(np.clip(min(max(1.0, low), high), 0.25, 4.0)),
            normal=float(np.clip(squares / spreads, 0.5, 2.0)),
            coverage=float(np.mean(np.array(scaled) <= NINETY)),
            pairs=pairs,
        )


def case(name, count, seed, hidden, limit, ends, gamma, lam):
    rows = rows_of(count, seed, hidden, limit, ends)
    fit = Fit(rows, gamma, lam)
    inflation = fit.inflation()
    states = np.linspace(-2.5, 2.5, 7)
    variance = fit.variance(states, inflation)
    return dict(
        name=name, discount=gamma, lam=lam, **rows, **inflation, states_asked=list(states), variance=list(variance),
        held_out=fit.held_out(inflation),
    )


def lately(pairs, normal_ratio, horizon):
    """(Q6) over pairs of (start, error, spread, state), oldest first."""
    best = 0.0
    newest = pairs[-1][0]
    for horizons in (50, 100, 200, 400):
        of = [p for p in pairs if newest - p[0] <= horizons * horizon]
        start, eps, spread = (np.array([p[k] for p in of]) for k in range(3))
        block = np.unique((start / (2 * horizon)).astype(int), return_inverse=True)[1]
        count = block.max() + 1
        if count < 12:
            continue
        excess = eps**2 - normal_ratio * spread
        if excess.mean() > 2 * excess.std() / np.sqrt(count):
            best = max(best, excess.mean())
        w = np.column_stack([np.ones(len(of)), np.clip([p[3] for p in of], -3, 3)])
        system = w.T @ w + np.eye(w.shape[1])
        lean = np.linalg.solve(system, w.T @ eps)
        scores = np.zeros((count, w.shape[1]))
        np.add.at(scores, block, w * (eps - w @ lean)[:, None])
        solved = np.linalg.solve(system, scores.T)
        chance = solved @ solved.T * count / max(1, count - w.shape[1])
        moment = w.T @ w / len(of)
        size = lean @ moment @ lean
        if size > 8 * np.trace(chance @ moment):
            best = max(best, size)
    return float(best)


def case_lately(name, count, seed, bias, slope, scatter):
    noise, state = normal(count, seed), normal(count, seed + 1)
    pairs = []
    for k in range(count):
        share = k / count
        error = scatter * noise[k] * (1 if share < 0.5 else 1 + scatter) + share * (bias + slope * state[k])
        pairs.append((7 * k, round(float(error), 5), 1.0, round(float(state[k]), 5)))
    # A look at every sixteenth pair.
    looks = [lately(pairs[: k + 1], 1.0, 10.0) for k in range(15, count, 16)]
    return dict(name=name, pairs=[list(p) for p in pairs], excess=looks)


if __name__ == "__main__":
    cases = [
        case("few", 600, 1, 0.0, 10**9, 0.0, 0.9, 0.0),
        case("few_hidden", 900, 2, 0.5, 330, 0.0, 0.9, 0.5),
        case("hidden", 3000, 3, 0.5, 10**9, 0.0, 0.8, 0.0),
        case("episodes", 1500, 4, 0.2, 60, 0.03, 0.95, 0.8),
    ]
    drifts = [
        case_lately("none", 320, 11, 0.0, 0.0, 1.0),
        case_lately("level", 320, 12, 2.0, 0.0, 0.7),
        case_lately("slope", 320, 13, 0.0, 2.0, 0.7),
        case_lately("scatter", 320, 14, 0.0, 0.0, 1.5),
    ]
    whole = dict(dictionary=list(DICTIONARY), relevance=RELEVANCE, bias=BIAS, ridge=RIDGE, cases=cases, drifts=drifts)
    print(json.dumps(whole, separators=(",", ":")))
