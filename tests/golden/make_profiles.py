"""Write the cases of this folder for kernel profiles and kinds of state variables, with NumPy alone.

    pip install numpy && python make_profiles.py

Dense and literal: kernel matrices entry by entry from their definition, the rewards' covariance H K H' + Sigma of [JS09]
(Sigma = s2 H H' for "mc", s2 I for "td"), its determinant by `slogdet`, and every gradient by a complex step, which has no
error of differences. Nothing here knows how the crate does it: there returns are regressed on states, and gradients gathered
from weights.
"""

import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
GAMMA = 0.9


def squared_distance(x, y, kinds, relevance, factors):
    """r^2 from its definition. `factors` (D, k) act on real variables only."""
    total = 0.0
    for d, kind in enumerate(kinds):
        if kind == "real":
            total = total + relevance[d] * (x[d] - y[d]) ** 2
        elif kind == "category":
            total = total + relevance[d] * (0.0 if x[d] == y[d] else 2.0)
        else:
            period = float(kind.split(":")[1])
            total = total + relevance[d] * (2 * np.sin(np.pi * (x[d] - y[d]) / period)) ** 2
    for j in range(factors.shape[1]):
        along = sum(factors[d, j] * (x[d] - y[d]) for d, kind in enumerate(kinds) if kind == "real")
        total = total + along**2
    return total


def profile(name, squared):
    if name == "gaussian":
        return np.exp(-squared / 2)
    a = np.sqrt(5 * squared)
    return (1 + a + a**2 / 3) * np.exp(-a)


class Case:
    def __init__(self, name, shape, kind, kinds, noise, rank, seed):
        self.name, self.shape, self.kind, self.kinds, self.noise, self.rank = name, shape, kind, kinds, noise, rank
        self.dim = len(kinds)
        self.rng = np.random.default_rng(seed)
        relevance = self.rng.uniform(0.3, 1.5, 1 if kind == "iso" else self.dim)
        factors = self.rng.uniform(-0.8, 0.8, self.dim * rank)
        self.theta = np.concatenate([np.log([1.7, 0.4, 0.08]), np.log(relevance), factors])
        self.transitions = self.walk()

    def state(self):
        bounds = {"real": lambda: self.rng.normal(), "category": lambda: float(self.rng.integers(0, 3))}
        return [bounds.get(kind, lambda: self.rng.uniform(-8, 8))() for kind in self.kinds]

    def moved(self, x):
        return [v if k == "category" and self.rng.random() < 0.6 else self.step(v, k) for v, k in zip(x, self.kinds)]

    def step(self, v, kind):
        return float(self.rng.integers(0, 3)) if kind == "category" else v + 0.7 * self.rng.normal()

    def walk(self):
        """Three pieces. Under correlated noise all are terminated; else one is truncated and one still runs."""
        rows = []
        for piece in range(3):
            x, length = self.state(), 4 + 2 * piece
            for i in range(length):
                y, last = self.moved(x), i == length - 1
                open_ended = self.noise == "td" and piece > 0
                rows.append(
                    {
                        "stream": piece % 2,
                        "x": x,
                        "r": float(self.rng.normal() + 1),
                        "x_next": y,
                        "terminated": last and not open_ended,
                        "truncated": last and open_ended and piece == 1,
                    }
                )
                x = y
        return rows

    def parameters(self, theta):
        v0, b, s2 = np.exp(theta[:3])
        shared = 1 if self.kind == "iso" else self.dim
        relevance = np.exp(theta[3 : 3 + shared])
        if self.kind == "iso":
            relevance = np.array([relevance[0]] * self.dim)
        return v0, b, s2, relevance, theta[3 + shared :].reshape(self.dim, self.rank)

    def kernel(self, a, b, theta):
        v0, bias, _, relevance, factors = self.parameters(theta)
        out = np.zeros((len(a), len(b)), theta.dtype)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                out[i, j] = v0 * profile(self.shape, squared_distance(x, y, self.kinds, relevance, factors)) + bias
        return out

    def system(self):
        """Nodes (all states and successors, as they come), H (n, N) and rewards (n,)."""
        n = len(self.transitions)
        nodes = [t["x"] for t in self.transitions] + [t["x_next"] for t in self.transitions]
        h = np.zeros((n, 2 * n))
        for i, t in enumerate(self.transitions):
            h[i, i] = 1
            if not t["terminated"]:
                h[i, n + i] = -GAMMA
        return nodes, h, np.array([t["r"] for t in self.transitions])

    def noise_covariance(self, s2):
        """Of chains that all terminate, H in terms of the states alone is square."""
        n = len(self.transitions)
        if self.noise == "td":
            return s2 * np.eye(n)
        square = np.eye(n)
        for i, t in enumerate(self.transitions):
            if not t["terminated"]:
                square[i, i + 1] = -GAMMA
        return s2 * square @ square.T

    def evidence(self, theta, dictionary=None, bound=False):
        nodes, h, r = self.system()
        s2 = self.parameters(theta)[2]
        k = self.kernel(nodes, nodes, theta)
        low = k
        if dictionary is not None:
            cross = self.kernel(nodes, dictionary, theta)
            low = cross @ np.linalg.solve(self.kernel(dictionary, dictionary, theta), cross.T)
        q = h @ low @ h.T + self.noise_covariance(s2)
        sign, logdet = np.linalg.slogdet(q)
        logdet = logdet + np.log(sign) if np.iscomplexobj(q) else logdet
        complexity, fit = 0.5 * logdet, 0.5 * r @ np.linalg.solve(q, r)
        value = -complexity - fit - 0.5 * len(r) * np.log(2 * np.pi)
        if bound:
            # The variance left out of what the noise is independent in: rewards, or returns, which are V at the states.
            n = len(r)
            j = h if self.noise == "td" else np.eye(n, 2 * n)
            value = value - 0.5 * np.trace(j @ (k - low) @ j.T) / s2
        return value, complexity, fit

    def gradient(self, **which):
        out = []
        for p in range(len(self.theta)):
            theta = self.theta.astype(complex)
            theta[p] += 1e-30j
            out.append(float(self.evidence(theta, **which)[0].imag / 1e-30))
        return out

    def posterior(self, query):
        nodes, h, r = self.system()
        k = self.kernel(nodes, nodes, self.theta)
        q = h @ k @ h.T + self.noise_covariance(self.parameters(self.theta)[2])
        cross = h @ self.kernel(nodes, query, self.theta)
        variance = np.diag(self.kernel(query, query, self.theta)) - np.sum(cross * np.linalg.solve(q, cross), axis=0)
        return cross.T @ np.linalg.solve(q, r), variance

    def document(self):
        v0, b, s2, relevance, _ = self.parameters(self.theta)
        kernel = {"kind": self.kind, "D": self.dim, "profile": self.shape, "kinds": self.kinds}
        kernel |= {"v0": v0, "b": b, "s2": s2}
        kernel |= {"h": relevance[0]} if self.kind == "iso" else {"a": relevance.tolist()}
        if self.rank:
            kernel |= {"rank": self.rank, "M": self.theta[3 + self.dim :].tolist()}
        query = [self.state() for _ in range(4)] + [self.transitions[0]["x"]]
        mean, variance = self.posterior(query)
        value, complexity, fit = self.evidence(self.theta)
        dictionary = [self.transitions[i]["x"] for i in (0, 3, 6, 9, 12)]
        states = [self.state() for _ in range(5)]
        dtc = {"dictionary": dictionary}
        vfe = {"dictionary": dictionary, "bound": True}
        expected = {
            "kernel": {"X": states, "Z": query, "K": self.kernel(states, query, self.theta).tolist()},
            "exact": {
                "mean": mean.tolist(),
                "var": variance.tolist(),
                "log_evidence": value,
                "complexity": complexity,
                "fit": fit,
                "grad": self.gradient(),
            },
            "sr": {
                "dictionary": dictionary,
                "dtc": {"log_evidence": self.evidence(self.theta, **dtc)[0], "grad": self.gradient(**dtc)},
                "vfe": {"bound": self.evidence(self.theta, **vfe)[0], "grad": self.gradient(**vfe)},
            },
        }
        return {
            "format": "gptd-golden-1",
            "name": self.name,
            "gamma": GAMMA,
            "noise": self.noise,
            "kernel": kernel,
            "theta": self.theta.tolist(),
            "transitions": self.transitions,
            "query": query,
            "expected": expected,
        }


REAL, ANGLE, CATEGORY = "real", f"periodic:{2 * np.pi!r}", "category"
CASES = [
    Case("matern52_iso_mc", "matern52", "iso", [REAL, REAL], "mc", 0, 1),
    Case("matern52_ard_td", "matern52", "ard", [REAL, REAL, REAL], "td", 0, 2),
    Case("matern52_fa_mc", "matern52", "fa", [REAL, REAL], "mc", 1, 3),
    Case("matern52_fa_td", "matern52", "fa", [REAL, REAL, REAL], "td", 2, 4),
    Case("periodic_ard_mc", "gaussian", "ard", [REAL, ANGLE], "mc", 0, 5),
    Case("periodic_iso_td", "matern52", "iso", ["periodic:3.0", REAL], "td", 0, 6),
    Case("category_ard_mc", "gaussian", "ard", [CATEGORY, REAL], "mc", 0, 7),
    Case("category_iso_mc", "matern52", "iso", [REAL, CATEGORY], "mc", 0, 8),
    # What directions say of variables that are not real is not read.
    Case("category_fa_td", "matern52", "fa", [REAL, "periodic:4.0", CATEGORY, REAL], "td", 1, 9),
]

if __name__ == "__main__":
    for case in CASES:
        (HERE / f"{case.name}.json").write_text(json.dumps(case.document()) + "\n")
