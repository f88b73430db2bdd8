"""`criticd evaluate` on the rows of the Open Bandit Dataset inside the package obp.

    pip download --no-deps obp==0.4.1 && python -m zipfile -e obp-0.4.1-py3-none-any.whl obp
    python benches/policies/open_bandit.py obp [--binary PATH] [--budget SECONDS]

Two policies showed items of a shop: one at random, one by Thompson sampling ("bts"), 10 000 times each in three campaigns. Each
is judged by the rows of the other one. The truth is the share of clicks in its own rows, which has an error of 12 to 16 %. `is`
and `wis` are obp's IPW and SNIPW, `fqe` is its DM: with a discount of 0 it is a regression of clicks on position and item.

Needs numpy, pyyaml and the binary.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

DRAWS = 100_000
SHOWN = 3


def rows_of(package: Path, policy: str, campaign: str) -> dict[str, np.ndarray]:
    with (package / "obp/dataset/obd" / policy / campaign / f"{campaign}.csv").open() as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in ("item_id", "position", "click")}
    column["propensity_score"] = np.array([float(row["propensity_score"]) for row in rows])
    return column


def probabilities(package: Path, policy: str, campaign: str, items: int) -> np.ndarray:
    """Probability (3, items) of each item at each position."""
    if policy == "random":
        return np.full((SHOWN, items), 1.0 / items)
    with (package / "obp/policy/conf/prior_bts.yaml").open() as file:
        prior = yaml.safe_load(file)[campaign]
    rng = np.random.default_rng(12345)
    count = np.zeros((SHOWN, items))
    for _ in range(DRAWS // 1000):
        drawn = rng.beta(prior["alpha"], prior["beta"], size=(1000, items))
        best = np.argsort(-drawn, axis=1)[:, :SHOWN]
        for position in range(SHOWN):
            count[position] += np.bincount(best[:, position], minlength=items)
    return count / DRAWS


def judged(package: Path, options: argparse.Namespace, target: str, campaign: str) -> dict[str, Any]:
    log = rows_of(package, "random" if target == "bts" else "bts", campaign)
    items = int(log["item_id"].max()) + 1
    probs = probabilities(package, target, campaign, items)
    with tempfile.TemporaryDirectory() as name:
        table, policy = Path(name, "log.csv"), Path(name, "policy.csv")
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["state_0", "action", "reward", "terminated", "propensity_score", "next_state_0"])
            for item, position, click, score in zip(*log.values(), strict=True):
                writer.writerow([position, int(item), click, 1, score, position])
        with policy.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([f"prob_{k}" for k in range(items)])
            writer.writerows(probs[int(position) - 1].tolist() for position in log["position"])
        command = [options.binary, "evaluate", table, "--policy", policy, "--actions", f"discrete:{items}", "--json"]
        command += ["--discount", "0", "--budget", str(options.budget)]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    own = rows_of(package, target, campaign)["click"]
    found: dict[str, Any] = json.loads(done.stdout)
    found["truth"], found["truth_error"] = own.mean(), own.std(ddof=1) / math.sqrt(len(own))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the unpacked wheel of obp 0.4.1")
    parser.add_argument("--binary", type=Path, default=Path("target/release/criticd"))
    parser.add_argument("--budget", type=float, default=30.0)
    options = parser.parse_args()
    print("relative error of the estimate (and its z where an interval is given)\n")
    print("| target, campaign | ESS | ESS of clicks | largest weight | mean weight | IPW | SNIPW | DR | DM |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    worst = 0.0
    for campaign in ("all", "men", "women"):
        for target in ("bts", "random"):
            found = judged(options.package, options, target, campaign)
            truth, weights, cells = found["truth"], found["weights"], []
            for name in ("is", "wis", "dr", "fqe"):
                estimate = found["estimates"][name]
                off = estimate["value"] - truth
                cell = f"{abs(off) / truth:.3f}"
                if estimate["interval"] is not None:
                    z = abs(off) / math.hypot(estimate["error"], found["truth_error"])
                    worst = max(worst, z)
                    cell += f" ({z:.1f})"
                cells.append(cell)
            sizes = [f"{weights['ess']:.1f}", f"{weights['ess_earned']:.1f}", f"{weights['largest']:.1f}"]
            sizes.append(f"{weights['mean']:.2f}")
            print(f"| {target}, {campaign} | " + " | ".join(sizes + cells) + " |", flush=True)
            for sentence in found["refused"]:
                print(f"  {target}, {campaign}: {sentence}", file=sys.stderr)
    print(f"\nlargest z: {worst:.1f}")


if __name__ == "__main__":
    main()
