#!/usr/bin/env python3
"""How well heads predict the returns of another run, beside the best that a linear fit to the same features can do.

    criticd fit ant.npz --time time --heads ant-heads.json --out ant.model
    benches/heads/judge.py ant.model ant.npz ant-heads.json later.npz [--own 10]

For each head: the unexplained variance of later returns, the same of least squares on the first run's returns and the model's own
features (the kernel values at its dictionary; no recursion, all rows at once), and the share of later returns inside the 90 %
interval. A return counts where at most 1 % of its weight is missing at an end of its chain. --own N: also a critic of its own for N
heads, with kernel, noise and dictionary that it selects for itself (`criticd` from CRITICD_BIN or the path).
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from criticd import Snapshot

Z90 = 1.6448536269514722


def returns(table, seconds):
    """Returns (n, D) of every number of the state at one timescale, and the weight that each return misses (n,)."""
    paid, times = table["state"], table["time"]
    n = len(paid)
    ends = table["terminated"] | table["truncated"]
    ends[-1] = True
    found, missing = np.zeros_like(paid), np.zeros(n)
    beyond, lacks = np.zeros(paid.shape[1]), 0.0
    for i in range(n - 1, -1, -1):
        step = times[i + 1] - times[i] if not ends[i] else times[i] - times[i - 1]
        decay = np.exp(-step / seconds)
        if ends[i]:
            beyond, lacks = np.zeros(paid.shape[1]), 0.0 if table["terminated"][i] else 1.0
        beyond = paid[i] + decay * beyond
        lacks = decay * lacks
        found[i], missing[i] = beyond, lacks
    return found, missing


def unexplained(y, mean):
    return float(np.mean((y - mean) ** 2) / np.var(y))


def features(snapshot, states):
    """Kernel values at the dictionary, made uncorrelated under the prior, and 1 (n, m + 1).

    As they are they nearly depend on each other: a ridge that keeps the system solvable would cost them what they explain.
    """
    basis = snapshot.kernel.project(snapshot.dictionary)
    values, vectors = np.linalg.eigh(snapshot._kernel_rows(snapshot.dictionary, basis))
    kept = values > 1e-10 * values[-1]
    found = snapshot._kernel_rows(states, basis) @ (vectors[:, kept] / np.sqrt(values[kept]))
    return np.column_stack([found, np.ones(len(states))])


def own_critic(table, head, directory):
    """A critic that learns one head alone, as a column of rewards with its discount."""
    path, model = Path(directory) / "own.npz", Path(directory) / "own.model"
    rows = dict(table, reward=table["state"][:, head["cumulant"]["index"]])
    np.savez(path, **rows)
    discount = np.exp(-0.02 / head["timescale"])
    command = [os.environ.get("CRITICD_BIN", "criticd"), "fit", str(path), "--time", "time", "--discount", str(discount)]
    command += ["--dictionary-max", "400", "--hold-out", "0", "--threads", "1", "--budget", "20", "--drift-sensitivity", "off"]
    subprocess.run([*command, "--out", str(model)], check=True, capture_output=True)
    return Snapshot.load(model)


def quantiles(values):
    low, q1, middle, q3, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    return f"{middle:.3f} (quartiles {q1:.3f} to {q3:.3f}, 5 % and 95 % {low:.3f} and {high:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("table")
    parser.add_argument("heads")
    parser.add_argument("later")
    parser.add_argument("--own", type=int, default=0)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    snapshot = Snapshot.load(arguments.model)
    table, later = dict(np.load(arguments.table)), dict(np.load(arguments.later))
    heads = json.loads(Path(arguments.heads).read_text())
    phi, phi_later = features(snapshot, table["state"]), features(snapshot, later["state"])
    found = []
    for seconds in sorted({head["timescale"] for head in heads}):
        y, missing = returns(table, seconds)
        y_later, missing_later = returns(later, seconds)
        taught, judged = missing < 0.01, missing_later < 0.01
        if judged.sum() < 1000:
            continue
        system = phi[taught].T @ phi[taught]
        ridge = 1e-9 * np.trace(system) / len(system) * np.eye(len(system))
        offline = phi_later[judged] @ np.linalg.solve(system + ridge, phi[taught].T @ y[taught])
        for head in (head for head in heads if head["timescale"] == seconds):
            column = head["cumulant"]["index"]
            target = y_later[judged, column]
            if np.var(target) < 1e-12:
                continue
            model = snapshot.heads[head["name"]]
            mean, deviation = model(later["state"][judged], std=True)
            reach = Z90 * np.sqrt(deviation**2 + model.noise_variance)
            found.append({
                "head": head["name"],
                "timescale": seconds,
                "unexplained": unexplained(target, mean),
                "offline": unexplained(target, offline[:, column]),
                "coverage": float(np.mean(np.abs(target - mean) <= reach)),
            })
    print(f"{len(found)} of {len(heads)} heads have later returns that vary and are complete")
    for seconds in sorted({one["timescale"] for one in found}):
        some = [one for one in found if one["timescale"] == seconds]
        print(f"timescale {seconds:g} s, {len(some)} heads")
        for key in ("coverage", "unexplained", "offline"):
            print(f"  {key}: {quantiles([one[key] for one in some])}")
    print("all")
    for key in ("coverage", "unexplained", "offline"):
        print(f"  {key}: {quantiles([one[key] for one in found])}")
    ratio = [one["unexplained"] / one["offline"] for one in found]
    print(f"  unexplained over offline: {quantiles(ratio)}")
    known = {one["head"]: one for one in found}
    chosen = [head for head in heads if head["name"] in known]
    with tempfile.TemporaryDirectory() as directory:
        for head in chosen[:: max(1, len(chosen) // arguments.own)][: arguments.own] if arguments.own else []:
            critic = own_critic(table, head, directory)
            y, missing = returns(later, head["timescale"])
            judged = missing < 0.01
            one = known[head["name"]]
            one["own"] = unexplained(y[judged, head["cumulant"]["index"]], critic(later["state"][judged]))
            print(f"  {head['name']}: head {one['unexplained']:.3f}, a critic of its own {one['own']:.3f}", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
