#!/usr/bin/env python3
"""How good our values and intervals are beside what others learn from the same rows: README.md tells what is measured.

    benches/quality/run.py                                     everything on three seeds: some hours
    benches/quality/run.py --streams nav,grid11 --seeds 0      some of it
    benches/quality/run.py --no-peers --bin other/criticd      ours again; of the peers what is kept
    benches/quality/run.py --streams few,long,hidden --seeds 0,1,2,3,4,5,6,7,8,9,10,11 --no-peers    where intervals are hard
    benches/quality/run.py --no-fit --live                     the daemon while rows arrive
    benches/quality/run.py --drift --data FOLDER               streams that drift, too: the whole page of figures
    benches/quality/run.py --drift --no-stationary --drift-streams trump,linear/ramp --pace fast,400

Needs `venv`; packages and everything that is kept go to `target/quality`.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target" / "quality"
ENVIRONMENT = TARGET / "venv"
PYTHON = ENVIRONMENT / "bin" / "python"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PEERS = ("lstd", "gp", "knn", "trees", "mlp", "mlp-lambda")


def pip(*arguments):
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def fingerprint(paths):
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def install():
    """The environment with the packages of `requirements.txt` and the repository's own client.

    A package that cannot be had is left out with the reason: then the streams that need it are.
    """
    requirements, noted = HERE / "requirements.txt", ENVIRONMENT / "installed.json"
    client = [p for p in (ROOT / "python").rglob("*") if p.suffix in (".py", ".toml")]
    wanted = {"packages": fingerprint([requirements]), "client": fingerprint(client)}
    there = json.loads(noted.read_text()) if noted.exists() else {}
    if there == wanted:
        return
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    if there.get("packages") != wanted["packages"]:
        print("installing packages", file=sys.stderr)
        if pip("-r", requirements).returncode:
            for package in requirements.read_text().split():
                done = pip(package)
                if done.returncode:
                    print(f"left out: {package}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    done = pip("--no-deps", "--force-reinstall", ROOT / "python")
    if done.returncode:
        sys.exit(f"the Python client cannot be installed: {done.stderr.strip()}")
    noted.write_text(json.dumps(wanted))


def enter():
    """Run this very program again in the environment, with one thread for each process."""
    if Path(sys.prefix).resolve() == ENVIRONMENT.resolve():
        return
    TARGET.mkdir(parents=True, exist_ok=True)
    install()
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    os.execv(PYTHON, [str(PYTHON), str(Path(__file__).resolve()), *sys.argv[1:]])


def names(given):
    return [name for name in given.split(",") if name]


def paces(given):
    return [name if name in ("fast", "waiting") else float(name) for name in names(given)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=names, help="names, with commas in between [all]")
    parser.add_argument("--seeds", type=names, default=["0", "1", "2"], help="[0,1,2]")
    parser.add_argument(
        "--peers", type=names, default=list(PEERS), help=f"computed where they are not kept [{','.join(PEERS)}]"
    )
    parser.add_argument("--no-peers", dest="peers", action="store_const", const=[], help="show what is kept")
    parser.add_argument("--no-fit", dest="fit", action="store_false", help="nothing of ours from tables")
    parser.add_argument("--live", action="store_true", help="the daemon, too")
    parser.add_argument("--live-streams", type=names, help="names [nav,rmdp200-2d,CartPole,Pendulum]")
    parser.add_argument("--drift", action="store_true", help="streams that drift, through the daemon, too")
    parser.add_argument("--drift-streams", type=names, help="names [all]; FILE/COLUMN/7 or /14 of the folder of data")
    parser.add_argument("--drift-seeds", type=names, default=["0"], help="of made streams [0]")
    parser.add_argument("--data", help="folder with ETTh2.csv of the Electricity Transformer Dataset")
    parser.add_argument("--pace", type=paces, default=["fast"], help="fast, waiting (for refits), or rows/s [fast]")
    parser.add_argument(
        "--no-stationary", dest="stationary", action="store_false", help="nothing of the streams that do not drift"
    )
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE for the daemon")
    parser.add_argument("--bin", default=os.environ.get("CRITICD_BIN", ROOT / "target" / "release" / "criticd"))
    parser.add_argument("--fit-args", type=shlex.split, default=[], help="more arguments of `criticd fit`, in quotes")
    parser.add_argument("--jobs", type=int, default=1, help="streams at the same time [1]")
    parser.add_argument("--baseline", help="an earlier --out, to compare log densities with")
    parser.add_argument(
        "--out", default=TARGET / "results.json", help="[results.json there]; beside it .txt, .md, .png"
    )
    return parser.parse_args()


def measure(name, seed, options, identity):
    """One stream and seed: peers, then ours. And a reason, if the stream cannot be made or the program failed on it."""
    import ours
    import peers
    import scores
    import streams

    try:
        stream = streams.load(TARGET, name, seed)
    except streams.Missing as missing:
        return None, str(missing)
    import numpy as np

    for peer in options.peers:
        peers.learn(TARGET, peer, name, seed, stream)
    kept = (peers.load(TARGET, peer, name, seed) or {} for peer in PEERS)
    error = {title: scores.nrmse(np.array(r["mean"]), stream) for results in kept for title, r in results.items()}
    figures = reason = None
    if options.fit:
        try:
            period = streams.period_of(name)
            to_be_found = period and "--state-kinds" not in options.fit_args
            arguments = [*options.fit_args, *(["--state-kinds", "periodic,real"] if to_be_found else [])]
            result = ours.learn(TARGET, identity, options.bin, arguments, name, seed, stream)
            figures = {**ours.judged(result, stream), **{key: result[key] for key in ("chosen", "seconds", "elapsed")}}
            figures["period_off"] = period and ours.period_off(result["chosen"], period)
        except ours.Failed as failed:
            reason = str(failed)
    about = {
        "stream": name,
        "seed": seed,
        "rows": len(stream.rewards),
        "dim": stream.states.shape[1],
        "noise": scores.noise(stream),
        "truth_error": scores.truth_error(stream),
        "peers": error,
        "ours": figures,
    }
    return about, reason


def shortly(result):
    """One result, as it comes."""
    said = [f"{title} {error:.3f}" for title, error in result["peers"].items()]
    if result["ours"]:
        f = result["ours"]
        said.append(f"ours {f['nrmse']:.3f} cov {f['coverage']:.2f} {f['returns_covered']:.2f} {f['seconds']:.1f} s")
    return f"{result['stream']} {result['seed']}: {', '.join(said)}"


def measured(tasks, options, identity):
    """The results of (stream, seed) in their order; what fails or is missing is printed."""
    found, reasons = {}, {}
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {pool.submit(measure, *task, options, identity): task for task in tasks}
        for done in as_completed(running):
            task = running[done]
            try:
                result, reason = done.result()
            except Exception as error:
                result, reason = None, f"{type(error).__name__}: {error}"
            if reason is not None:
                reasons.setdefault((task[0], reason), []).append(task[1])
            if result is not None:
                found[task] = result
                print(shortly(result), file=sys.stderr, flush=True)
    for (name, reason), seeds in reasons.items():
        print(f"left out: {name}, seeds {seeds}: {reason}")
    return [found[task] for task in tasks if task in found]


def live(seeds, options):
    import ours
    import streams

    results = []
    for name in options.live_streams or ours.LIVE_STREAMS:
        for seed in seeds:
            stream = streams.load(TARGET, name, seed, rows=ours.LIVE_ROWS[-1])
            result = {"stream": name, "seed": seed, "live": ours.live(options.bin, stream, options.settings)}
            print(f"live {name} {seed}: {json.dumps(result['live'])}", file=sys.stderr, flush=True)
            results.append(result)
    return results


def drifted(name, seed, options):
    """One drifting stream: what peers and ours said of it. A reason instead, if it cannot be had."""
    import asked
    import drifting
    import online
    import ours
    import streams

    try:
        stream = drifting.load(options.data, name, seed)
    except streams.Missing as missing:
        return None, str(missing)
    said = {peer: online.learn(TARGET, peer, name, seed, stream) for peer in online.peers_of(stream)}
    errors = {
        online.TITLES[peer]: [asked.error(values, stream, window) for window in stream.windows()]
        for peer, values in said.items()
        if values is not None
    }
    result = {"stream": name, "seed": seed, "discount": stream.discount, "change": stream.change, "peers": errors}
    result["ours"], reason = {}, None
    for pace in options.pace if options.fit else ():
        try:
            found = asked.learn(TARGET, options.bin, name, seed, stream, options.settings, pace)
            result["ours"][f"{pace:g}/s" if isinstance(pace, float) else pace] = asked.judged(*found, stream)
        except ours.Failed as failed:
            reason = str(failed)
    return result, reason


def drift(options):
    """The results of all drifting streams, one after the other: they are timed by the rows that arrive."""
    import drifting
    import figures

    results = []
    for name in options.drift_streams or drifting.names():
        made = name == "furnace" or name.partition("/")[0] in drifting.WORLDS
        for seed in options.drift_seeds if made else (0,):
            result, reason = drifted(name, int(seed), options)
            if reason is not None:
                print(f"left out: {name}, seed {seed}: {reason}")
            if result is not None:
                results.append(result)
                lines = list(figures.drifting_table([result]))
                print("\n".join(lines[2:] if len(results) > 1 else lines), file=sys.stderr, flush=True)
    return results


def main():
    options = arguments()
    enter()
    import drifting
    import figures
    import ours
    import streams
    import table

    options.bin, out = Path(options.bin).resolve(), Path(options.out).resolve()
    baseline = json.loads(Path(options.baseline).read_text())["results"] if options.baseline else []
    if (options.fit or options.live) and not options.bin.exists():
        sys.exit(f"there is no {options.bin}: build it with `cargo build --release`, or name another one with --bin")
    named_only = {*streams.UNCERTAIN, *(name for name in streams.FAMILIES if streams.period_of(name))}
    everything = [name for name in streams.FAMILIES if name not in named_only]
    chosen = (options.streams or everything) if options.stationary else []
    unknown = [n for n in [*chosen, *(options.live_streams or [])] if n not in streams.FAMILIES]
    if unknown:
        sys.exit(f"no such stream: {', '.join(unknown)}; there are {', '.join(streams.FAMILIES)}")
    unknown = [name for name in options.drift_streams or [] if not drifting.known(name)]
    if unknown:
        sys.exit(f"no such stream: {', '.join(unknown)}; there are {', '.join(drifting.names())}")
    options.data = options.data and Path(options.data).resolve()
    seeds = [int(seed) for seed in options.seeds]
    identity = ours.identity(options.bin, options.fit_args) if options.fit else None
    # MuJoCo leaves a file of warnings where it runs.
    os.chdir(TARGET)
    tasks = [(name, seed) for seed in seeds for name in chosen]
    more = [(table.WALK, seed) for seed in range(table.WALK_SEEDS) if table.WALK in chosen and seed not in seeds]
    results = measured(tasks, options, identity)
    extra = measured(more, options, identity) if options.fit else []
    lived = live(seeds, options) if options.live else []
    moved = drift(options) if options.drift else []
    order = {name: i for i, name in enumerate(chosen)}
    results.sort(key=lambda result: (order[result["stream"]], result["seed"]))
    said = table.text(results, extra, lived, baseline)
    out.parent.mkdir(parents=True, exist_ok=True)
    about = {"binary": identity, "fit_args": options.fit_args, "seeds": seeds, "settings": options.settings}
    kept = {"about": about, "results": results, "extra": extra, "live": lived, "drift": moved}
    out.write_text(json.dumps(kept, indent=1))
    out.with_suffix(".txt").write_text(said + "\n")
    command = shlex.join(["benches/quality/run.py", *sys.argv[1:]])
    out.with_suffix(".md").write_text(figures.text(results, extra, moved, command))
    figures.picture(results, moved, out.with_suffix(".png"))
    print(said)
    print(f"The page of figures is {out.with_suffix('.md')}, its picture {out.with_suffix('.png')}.")


if __name__ == "__main__":
    main()
