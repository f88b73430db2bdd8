"""Writes drift.json: CUSUMs of a sequence whose mean or size changes, by the formulas of crates/learner/src/math/drift.rs over whole arrays.

    python3 make_drift.py > drift.json
"""

import json

import numpy as np

SCALE_ROWS, SHORTEST, LENGTHS, BLOCKS_MIN, CLIP = 512, 64, 6, 50, 4.0


def numbers(count):
    """Sums of three numbers of a linear congruential generator, each in [-1/2, 1/2): the same bits in any language."""
    state, out = 1, []
    for _ in range(count):
        total = 0.0
        for _ in range(3):
            state = (state * 1103515245 + 12345) % 2**31
            total += state / 2**31 - 0.5
        out.append(total)
    return np.array(out)


def rises(x1, x2, length):
    """The CUSUMs (3,) after all whole blocks of one length, whether each may speak, and where its rise began."""
    count = len(x1) // length
    means = [np.mean(x[: count * length].reshape(count, length), axis=1) for x in (x1, x2)]
    c, since, rho = np.zeros(3), np.zeros(3, int), np.zeros(3)
    for which, of in enumerate((0, 0, 1)):
        learned = []
        products = 0.0
        mu = 0.0
        for n, b in enumerate(means[of]):
            pulled = b
            if n >= BLOCKS_MIN:
                spread = np.std(learned, ddof=1) + 1e-12
                squares = np.var(learned) * n
                rho[which] = min(0.95, max(0.0, products / (squares + 1e-12) + 1 / np.sqrt(n)))
                z = (b - mu) / (spread * np.sqrt((1 + rho[which]) / (1 - rho[which])) * np.sqrt(1 + 1 / n))
                z = min(CLIP, max(-CLIP, z)) * (-1 if which == 1 else 1)
                if c[which] == 0:
                    since[which] = SCALE_ROWS + n * length
                c[which] = max(0.0, c[which] + z - 0.5)
                pulled = min(mu + 3 * spread, max(mu - 3 * spread, b))
            learned.append(pulled)
            mu = np.mean(learned)
            if n > 0:
                products += (pulled - mu) * (learned[-2] - mu)
    return c, since


def case(name, count, at, change):
    x = numbers(count)
    x[at:] = change(x[at:])
    spread = np.std(x[:SCALE_ROWS])
    told = np.clip(x[SCALE_ROWS:] / spread, -CLIP, CLIP)
    best = None
    for k in range(LENGTHS):
        c, since = rises(told, np.abs(told), SHORTEST << k)
        which = int(np.argmax(c))
        if c[which] > 0 and (best is None or c[which] > best["level"]):
            kind = ("higher", "lower", "wider")[which]
            best = {"level": c[which], "statistic": kind, "length": SHORTEST << k, "since": int(since[which])}
    return {"name": name, "rows": count, "at": at, "unit": spread, **best}


cases = [
    case("the mean rises", 12_000, 10_000, lambda x: x + 0.05),
    case("the mean falls", 20_000, 18_000, lambda x: x - 0.1),
    case("the size rises", 40_000, 36_000, lambda x: 1.2 * x),
    case("nothing changes", 30_000, 30_000, lambda x: x),
]
print(json.dumps(cases, indent=1))
