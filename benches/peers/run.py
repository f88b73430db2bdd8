#!/usr/bin/env python3
"""Ours beside others, measured in one run: every row of the table is measured in turns, ours and theirs, several times,
and the medians are compared. All times are processor seconds of one thread, so that other work on the machine matters
little.

    benches/peers/run.py                    NumPy, dlib, river, scikit-learn
    benches/peers/run.py --all              and GPyTorch and GPflow: some gigabytes
    benches/peers/run.py --only learner     rows of the table whose name has this in it

Where a log evidence is computed, whoever is more than 3 in a thousand away from ours is left out: its time would be of
something else. (GPyTorch adds nothing to the diagonal of the dictionary's Gram matrix, where GPflow and ours add 1e-6.)

Needs `venv`; packages go to two environments of their own under `target/`, since what `--all` adds wants an older NumPy.
dlib's `krls` is a template: it is compiled with `c++` against the headers of `libdlib-dev` where they are, else against
`--dlib DIRECTORY` (dlib's sources). What cannot be had is left out, and said so with the reason.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target" / "peers"
PYTHON = TARGET / "venv" / "bin" / "python"
PYTHON_HEAVY = TARGET / "venv-heavy" / "bin" / "python"
LIGHT = {"numpy": ["numpy", "scipy"], "river": ["river"], "sklearn": ["scikit-learn"]}
HEAVY = {"gpytorch": ["gpytorch"], "gpflow": ["gpflow", "tf-keras"]}
ONE_THREAD = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"]

# Rows before measuring: every dictionary is full by then.
WARM = 20_000


def cases():
    """Title, our arguments, theirs by name: whose arguments come after the directory."""
    for kind, name in (("learner", "lambda = 1"), ("follow", "lambda = 0.8")):
        yield from learners(kind, name)
    for dim in (2, 10):
        peers = {name: [1000, dim] for name in ("sklearn", "gpflow", "gpytorch")}
        yield f"exact evidence and gradient, n = 1000, D = {dim}: ms", ["exact", 1000, dim], None, peers
    peers = {name: [50_000, 200] for name in ("gpflow-sparse", "gpytorch-sparse")}
    yield "sparse evidence and gradient, n = 50 000, m = 200: ms", ["sparse", 50_000, 200], None, peers


def learners(kind, name):
    """The rows of one lambda: with 1 what the peers compute, below it a system of its own on top."""
    for size in (100, 300):
        # The rows that take a second or so.
        ours, slow = 400_000 if size == 100 else 100_000, 60_000 if size == 100 else 6_000
        for refresh in (256, 64):
            yield (
                f"learner, {name}, m = {size}, weights every {refresh} rows: µs/row",
                [kind, size, 256, refresh, WARM],
                ours,
                {"dlib": [size, WARM // 4, slow, 0.25], "numpy": [size, refresh, WARM, slow // refresh * refresh]},
            )
        yield (
            f"learner, {name}, m = {size}, weights after every row: µs/row",
            [kind, size, 1, 1, WARM],
            ours // 4,
            {
                "dlib": [size, WARM // 4, slow, 0.25],
                "numpy": [size, 1, WARM, slow // 4],
                "river": [size, WARM, 200 if size == 100 else 40],
                "gpytorch-update": [size, 50],
            },
        )


def make_data(directory, rows):
    """The walk of the learners for `rows` rows, and states with smooth targets for the evidence."""
    code = """
import sys
import numpy as np
directory, rows = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(1)
state, walk = np.zeros(4), np.empty((rows + 1, 4))
steps = rng.uniform(-0.4, 0.4, (rows + 1, 4))
for k in range(rows + 1):
    walk[k] = state
    state = np.clip(state + steps[k], -1.7, 1.7)
walk.astype("<f8").tofile(f"{directory}/walk-4.f64")
reward = np.sin(walk[:-1, 0]) * walk[:-1, 1] + rng.uniform(-0.5, 0.5, rows)
reward.astype("<f8").tofile(f"{directory}/reward-4.f64")
for dim, count in ((2, 1000), (10, 1000), (4, 50_000)):
    states = rng.uniform(-1.7, 1.7, (count, dim))
    targets = np.sin(states[:, 0]) + 0.5 * states[:, 1] + rng.uniform(-0.2, 0.2, count)
    states.astype("<f8").tofile(f"{directory}/states-{dim}.f64")
    targets.astype("<f8").tofile(f"{directory}/targets-{dim}.f64")
"""
    subprocess.run([PYTHON, "-c", code, directory, str(rows)], check=True)


def install(everything):
    """Interpreters of the peers whose packages are there, and why the others are not."""
    left_out = {} if everything else {name: "only with --all" for name in HEAVY}
    there = {}
    for python, peers in ((PYTHON, LIGHT), (PYTHON_HEAVY, HEAVY if everything else {})):
        if peers and not python.exists():
            subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
        for name, packages in peers.items():
            print(f"installing {', '.join(packages)}", file=sys.stderr)
            done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True)
            if done.returncode == 0:
                there[name] = python
            else:
                left_out[name] = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return there, left_out


def compile_krls(headers):
    """The driver of dlib's `krls`, or why there is none."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None, "there is no C++ compiler"
    program = TARGET / "krls"
    include = ["-I", headers] if headers else []
    command = [compiler, "-O3", "-std=c++17", "-DNDEBUG", *include, "-o", program, HERE / "krls.cpp"]
    # Optional: without it dlib's own loops multiply.
    for libraries in (["-lopenblas"], ["-lblas"], []):
        define = ["-DDLIB_USE_BLAS"] if libraries else []
        done = subprocess.run([*command[:1], *define, *command[1:], *libraries], capture_output=True, text=True)
        if done.returncode == 0:
            return program, " ".join(libraries) or "without BLAS"
    reason = next((line for line in done.stderr.splitlines() if "error" in line), "it cannot be compiled")
    return None, reason.split("error: ")[-1]


def build_ours(profile):
    command = ["cargo", "bench", "--profile", profile, "--bench", "peers", "--no-run", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    built = [json.loads(line) for line in done.stdout.splitlines()]
    return next(m["executable"] for m in built if m.get("target", {}).get("name") == "peers" and m.get("executable"))


def version(python, package):
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="GPyTorch and GPflow, too")
    parser.add_argument("--only", default="", help="rows of the table whose name has this in it")
    parser.add_argument("--rounds", type=int, default=3, help="turns, of which the median counts [3]")
    parser.add_argument("--profile", default="bench", help="our build; dev is the one for development [bench]")
    parser.add_argument("--dlib", help="directory of dlib's sources")
    options = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    there, left_out = install(options.all)
    krls, how = compile_krls(options.dlib)
    if krls is None:
        left_out["dlib"] = how
    ours = build_ours(options.profile)
    environment = {**os.environ, **{name: "1" for name in ONE_THREAD}}

    def measure(command):
        done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["it failed"]
            raise RuntimeError(lines[-1])
        # What a library prints comes before.
        return [float(number) for number in done.stdout.splitlines()[-1].split()]

    rows = []
    for title, arguments, count, peers in cases():
        if options.only not in title:
            continue
        directory = TARGET / f"data-{count or 1000}"
        if not (directory / "reward-4.f64").exists():
            directory.mkdir(exist_ok=True)
            make_data(directory, WARM + (count or 1000))
        theirs = {name: a for name, a in peers.items() if name.split("-")[0] in there or (name == "dlib" and krls)}
        found = {name: [] for name in ("ours", *theirs)}
        print(title, file=sys.stderr)
        for _ in range(options.rounds):
            spent, *value = measure([ours, arguments[0], directory, *arguments[1:]])
            found["ours"].append(spent)
            for name, a in list(theirs.items()):
                command = [krls, directory, *a] if name == "dlib" else [
                    there[name.split("-")[0]], HERE / "peer.py", name, directory, *a
                ]
                try:
                    spent, *theirs_value = measure(command)
                    if any(abs(b - a) > 3e-3 * abs(a) for a, b in zip(value, theirs_value, strict=True)):
                        raise ValueError(f"its log evidence is {theirs_value[0]:.3f}, ours {value[0]:.3f}")
                    found[name].append(spent)
                except (RuntimeError, ValueError, IndexError) as error:
                    left_out[f"{name} in \"{title}\""] = str(error)
                    del theirs[name], found[name]
        unit = 1e6 if title.endswith("µs/row") else 1e3
        mine = statistics.median(found["ours"])
        cells = [f"{name} {statistics.median(t) * unit:.3g} ({statistics.median(t) / mine:.3g} times ours)"
                 for name, t in found.items() if name != "ours"]
        rows.append((title, f"{mine * unit:.3g}", ", ".join(cells)))
    print("\n| work | ours | others |\n| --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    names = [(python, package) for name, python in there.items() for package in (LIGHT | HEAVY)[name]]
    print("\nVersions: " + ", ".join(f"{package} {version(python, package)}" for python, package in names)
          + (f"; dlib's krls compiled {how if how.startswith('without') else 'with ' + how}" if krls else "") + ".")
    for name, why in left_out.items():
        print(f"Left out: {name}: {why}")


if __name__ == "__main__":
    main()
