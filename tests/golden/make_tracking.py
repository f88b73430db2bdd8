"""Writes tracking.json: trackers, their verified returns, weights and gate on short streams (docs/mathematics.md, L1 to L10).

    python3 make_tracking.py > tracking.json

Every sum is formed anew over all rows that it has, with a weight for each, where the learner goes row by row.
"""

import json

import numpy as np

HALF_LIVES = (1, 2, 8, 32, 128, 512, 2048, 8192)


def scrambled(x):
    """splitmix64."""
    mask = 2**64 - 1
    x = x * 0x9E3779B97F4A7C15 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31


def simplex(products, rows, horizon, before):
    """argmin w'Qw / (2 s) + KL(w | prior), from the weights before, by multiplicative steps."""
    count = len(products)
    scale = horizon * np.diag(products).min() / rows
    q = products / scale
    taking = np.flatnonzero(np.diag(q) <= np.diag(q).min() + 400)
    taking = np.union1d([0], taking)
    prior = np.full(count, 0.5 / (count - 1))
    prior[0] = 0.5
    prior = prior[taking] / prior[taking].sum()
    q = q[np.ix_(taking, taking)]

    def normed(logs):
        w = np.maximum(np.exp(logs - logs.max()), 1e-12)
        return w / w.sum()

    def objective(w):
        return w @ q @ w / 2 + w @ np.log(w / prior)

    w = normed(np.log(np.maximum(before[taking], 1e-12)))
    step = 1 / (1 + np.abs(q).max())
    for _ in range(200):
        slope = q @ w + np.log(w / prior)
        slope = slope - slope @ w
        while objective(normed(np.log(w) - step * slope)) > objective(w) and step >= 1e-9:
            step /= 2
        next_ = normed(np.log(w) - step * slope)
        fell = objective(w) - objective(next_)
        enough = fell < 1e-7 * (1 + abs(objective(w)))
        if fell > 0:
            w = next_
        if enough:
            break
        step *= 2
    out = np.full(count, 1e-12)
    out[taking] = w
    return out / out.sum()


class Steps:
    """SwiftTD [Javed, Sharifnassab, Sutton 2024] on columns x (q,): w, beta and h as the paper names them."""

    def __init__(self, lam, q):
        self.lam, self.w, self.beta = lam, np.zeros(q), np.full(q, np.log(1e-3))
        self.h, self.h_old, self.h_next = np.zeros(q), np.zeros(q), np.zeros(q)
        self.end()

    def end(self):
        q = len(self.w)
        self.dw, self.z, self.zd, self.p, self.zbar = (np.zeros(q) for _ in range(5))
        self.v_old, self.v_delta, self.running = 0.0, 0.0, False

    def enter(self, x, v):
        alpha = np.exp(self.beta)
        tau, held = alpha @ x**2, self.z @ x
        self.v_delta = self.dw @ x
        self.zd = min(1.0, 0.1 / max(tau, 1e-300)) * alpha * x
        self.z = self.z + self.zd * (1 - held)
        self.p = self.p + self.h_old * x
        self.zbar = self.zbar + self.zd * (1 - held - self.zbar * x)
        self.h_next = self.h - self.h_old * x * (self.z - self.zd) - self.h * self.zd * x
        if tau > 0.1:
            self.h, self.h_old, self.h_next, self.zbar = (np.zeros_like(x) for _ in range(4))
            self.beta = self.beta + np.log(0.999) * x**2
        self.v_old, self.running = v, True

    def learn(self, r, g, x_next):
        v = 0.0 if x_next is None else self.w @ x_next
        delta = r + g * v - self.v_old
        self.dw = delta * self.z - self.zd * self.v_delta
        self.w = self.w + self.dw
        self.beta = self.beta + 1e-3 / (np.exp(self.beta) + 1e-8) * (delta - self.v_delta) * self.p
        self.beta = np.clip(self.beta, np.log(1e-10), np.log(0.1))
        self.h_old = self.h
        self.h = self.h_next + delta * self.zbar - self.zd * self.v_delta
        self.h_next = self.h
        self.z, self.p, self.zbar = (g * self.lam * part for part in (self.z, self.p, self.zbar))
        if x_next is None:
            self.end()
        else:
            self.enter(x_next, v)


class Trackers:
    def __init__(self, discount, rows, ends, q, m, rewards, ridge, units):
        self.g, self.q, self.ridge = discount, q, ridge
        self.horizon = 1 / (1 - discount)
        least = 0 if discount == 0 else max(self.horizon, 2 * rows / ends if ends >= 4 else 0)
        self.half_lives = [h for h in HALF_LIVES if least <= h <= rows]
        assert len(self.half_lives) * q <= max(m, 8), "all of them are cheap"
        self.memory = max(rows / 4, 20 * self.horizon)
        self.first = int(rows / 4)
        self.stride = max(1, int(self.horizon / 16))
        self.block = np.ceil(2 * self.horizon)
        kinds = [(h, k, kind) for h in self.half_lives for k in (1, q) for kind in ("1", "30", "alone")]
        # One chain without ends is followed step by step as well.
        self.units = units
        if units:
            kinds += [(None, q, lam) for lam in (0.8, 0.95, 0.99)]
            self.steps = [[Steps(lam, q) for lam in (0.8, 0.95, 0.99)] for _ in range(rewards)]
        self.length = min(int(np.ceil((0.5 if units else 3) * self.horizon)), 2000)
        self.kinds = kinds
        self.c = np.zeros((rewards, len(kinds), m))
        self.rewards = rewards
        self.u = np.zeros((m, rewards))
        self.learned = []
        self.trials, self.waiting = [], {}
        self.rows = 0
        prior = np.full(len(kinds) + 1, 0.5 / len(kinds))
        prior[0] = 0.5
        self.w = [prior.copy() for _ in range(rewards)]
        self.errors = [[] for _ in range(rewards)]
        self.renewed = [None] * rewards
        self.gains = [[] for _ in range(rewards)]
        self.open = [0.0] * rewards

    def settle(self, slot, psi):
        if slot in self.waiting:
            z, phi, r, g = self.waiting.pop(slot)
            self.learned.append((z[: self.q], phi - g * psi, r))
            for h in range(self.rewards if self.units else 0):
                for i, of in enumerate(self.steps[h]):
                    of.learn(r[h] / self.units["rewards"][h], g, psi[: self.q] * self.units["columns"])
                    c = of.w * self.units["columns"] * self.units["rewards"][h]
                    self.c[h, i - 3, : self.q] = c

    def solve(self, half_lives):
        if not self.learned:
            return
        z, d, r = (np.array([row[i] for row in self.learned]) for i in range(3))
        for k, (h, cols, kind) in enumerate(self.kinds):
            if h not in half_lives:
                continue
            f = 0.5 ** ((len(z) - 1 - np.arange(len(z))) / h)
            big = (z * f[:, None]).T @ d
            p = (z * f[:, None]).T @ r
            kappa = {"1": 1.0, "30": 30.0, "alone": self.ridge if cols == 1 else max(1.0, self.ridge)}[kind]
            v = p if kind == "alone" else p - big @ self.u
            b = big[:cols, :cols] + kappa * np.eye(cols)
            c = np.linalg.solve(b.T @ b + kappa**2 * np.eye(cols), b.T @ v[:cols])
            self.c[:, k, :] = 0
            self.c[:, k, :cols] = c.T

    def predict(self, h, phi):
        base = phi @ self.u[:, h]
        alone = np.array([kind not in ("1", "30") for _, _, kind in self.kinds])
        return np.concatenate([[base], np.where(alone, 0, base) + self.c[h] @ phi])

    def answer(self, h, phi):
        of = self.predict(h, phi)
        return of[0] + self.open[h] * (self.w[h] @ of - of[0])

    def conclude(self, trial, phi):
        self.trials.remove(trial)
        for h in range(self.rewards):
            y = trial["sum"][h] + (0 if phi is None else trial["weight"] * self.answer(h, phi))
            self.gains[h].append((trial["of"][h][0] - y) ** 2 - (trial["mixture"][h] - y) ** 2)
            self.gate(h)
            self.errors[h].append((self.rows, trial["of"][h] - y))
            last = self.renewed[h]
            if last is None or self.rows - last >= self.memory / 32:
                self.renewed[h] = self.rows
                at = np.array([row for row, _ in self.errors[h]])
                e = np.array([errors for _, errors in self.errors[h]])
                weight = self.stride * 0.5 ** ((self.rows - at) / self.memory)
                alike = min(self.horizon, self.length) if self.units else self.horizon
                self.w[h] = simplex((e * weight[:, None]).T @ e, weight.sum(), alike, self.w[h])

    def gate(self, h):
        each = int(np.ceil(self.block / self.stride))
        blocks = len(self.gains[h]) // each
        # What goes on is followed from the first block on.
        least, doubt = (1, 0.0625) if self.units else (8, 0.25)
        if blocks < least:
            return
        d = np.array(self.gains[h][: blocks * each]).reshape(blocks, each).sum(1) * self.stride / self.block
        w = 0.5 ** (self.block / self.memory * np.arange(blocks)[::-1])
        mu = w @ d / w.sum()
        c = w * (d - mu)
        var = (c @ c + 2 * max(0, c[1:] @ c[:-1])) / w.sum() ** 2
        self.open[h] = max(0.0, 1 - doubt * var / mu**2) if mu > 0 else 0.0

    def see(self, slot, z, phi, psi, r, g):
        self.settle(slot, psi)
        self.rows += 1
        row = self.rows - 1
        for trial in [t for t in self.trials if t["slot"] == slot and t["rows"] >= self.length]:
            self.conclude(trial, phi)
        if row >= self.first and row % self.stride == scrambled(row // self.stride) % self.stride:
            of = [self.predict(h, phi) for h in range(self.rewards)]
            mixture = [self.w[h] @ of[h] for h in range(self.rewards)]
            new = {"slot": slot, "rows": 0, "weight": 1.0, "sum": np.zeros(self.rewards), "of": of, "mixture": mixture}
            self.trials.append(new)
        for trial in [t for t in self.trials if t["slot"] == slot]:
            trial["sum"] = trial["sum"] + trial["weight"] * r
            trial["rows"] += 1
            trial["weight"] *= g
            if g == 0:
                self.conclude(trial, None)
        self.waiting[slot] = (z, phi, r, g)
        for of in (of for each in self.steps for of in each) if self.units else ():
            if not of.running:
                x = phi[: self.q] * self.units["columns"]
                of.enter(x, of.w @ x)
        if g == 0:
            self.settle(slot, np.zeros(len(phi)))
        if self.g == 0:
            self.solve([h for h in self.half_lives if self.rows % max(1, int(h / 16)) == 0])

    def cut(self, slot, phi):
        self.settle(slot, phi)
        for trial in [t for t in self.trials if t["slot"] == slot]:
            if trial["weight"] < 0.05:
                self.conclude(trial, phi)
            else:
                self.trials.remove(trial)


def features(at, m, q):
    """phi: the constant, the state, and some waves of it."""
    waves = [np.sin((i + 1) * at[0]) * np.cos(i * at[1]) for i in range(m - q)]
    return np.array([np.sqrt(10), *at, *waves])


def case(name, discount, rows, slots, refresh, rewards, lam, seed, episode=60, units=None):
    """A stream whose level and slope drift; base weights are LSTD's over all rows, so that they are late."""
    rng = np.random.default_rng(seed)
    m, q, ridge = 16, 3, 0.3
    state = np.round(rng.normal(size=(slots, 2)), 3)
    z, before = np.zeros((slots, m)), np.zeros(slots)
    a, b = ridge * np.eye(m), np.zeros((m, rewards))
    stream = {"states": [], "next_states": [], "rewards": [], "ends": []}
    answers, openings, weights = [], [], []
    ends = sum(1 for t in range(rows) if (t // slots) % episode == episode - 1)
    trackers = Trackers(discount, rows, ends, q, m, rewards, ridge, units)
    for t in range(rows):
        s, ended = t % slots, (t // slots) % episode == episode - 1
        terminated = ended and (t // slots) % (2 * episode) == episode - 1
        level, slope = 3 * np.sin(t / 90), 0.5 * t / rows
        r = level + state[s, 0] * np.arange(1, rewards + 1) + slope * state[s, 1] + 0.3 * rng.normal(size=rewards)
        r, phi = np.round(r, 3), features(state[s], m, q)
        z[s] = before[s] * z[s] + phi
        g = 0.0 if terminated else discount
        answers.append([trackers.answer(h, phi) for h in range(rewards)])
        openings.append(list(trackers.open))
        trackers.see(s, z[s].copy(), phi, phi, r, g)
        following = np.round(0.95 * state[s] + 0.3 * rng.normal(size=2), 3)
        psi = features(following, m, q)
        a += np.outer(z[s], phi - g * psi)
        b += np.outer(z[s], r)
        stream["states"] += state[s].tolist()
        stream["next_states"] += following.tolist()
        stream["rewards"] += r.tolist()
        stream["ends"].append(2 if terminated else int(ended))
        if ended and not terminated:
            trackers.cut(s, psi)
        before[s] = 0.0 if ended else g * lam
        state[s] = np.round(rng.normal(size=2), 3) if ended else following
        if (t + 1) % refresh == 0:
            trackers.u = np.round(np.linalg.solve(a, b), 5)
            weights.append(trackers.u.T.ravel().tolist())
            trackers.solve(trackers.half_lives)
    given = {"discount": discount, "lambda": lam, "columns": q, "features": m, "rewards_per_row": rewards, "ridge": ridge}
    expected = {"answers": answers, "openings": openings, "half_lives": trackers.half_lives}
    expected |= {"weights": [w.tolist() for w in trackers.w]}
    if units:
        given |= {"units": units}
    given |= {"rows": rows, "chain_ends": ends, "refresh": refresh, "slots": slots}
    return {"name": name, **given, "stream": stream, "base": weights, "expected": expected}


def main():
    cases = [case("returns", 0.9, 900, 2, 16, 1, 0.8, 5), case("rewards", 0.0, 300, 1, 8, 2, 0.0, 6)]
    units = {"columns": [0.3, 0.3, 0.3], "rewards": [2.0, 3.0]}
    cases.append(case("goes on", 0.9, 900, 1, 16, 2, 0.8, 7, episode=10_000, units=units))
    for of in cases:
        opened = np.mean(np.array(of["expected"]["openings"]) > 0)
        assert 0.1 < opened < 0.9, f"the gate is both shut and open: {opened}"
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
