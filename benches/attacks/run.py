"""What one client's worst requests cost another client, the learner, and memory.

    python benches/attacks/run.py [--binary PATH] [--seconds N] [--only NAME] [--json FILE]
    python benches/attacks/run.py --floods [--dictionary M] [the same]
    python benches/attacks/run.py --counts [the same]
    python benches/attacks/run.py [--floods] --curve [the same]

Each attack meets a fresh daemon on loopback. Attackers run in processes of their own and never stop sending. Another
process asks `ping`, `value` of one state and `append` of one row in turns every 10 ms, and measures how late it woke
from its own sleep ("scheduler"), which a busy machine delays too. The script plays the service manager, and measures
the longest time between two signs of life ("watchdog"), which the daemon gives every 10 s if nothing holds it up. At
the end the daemon gets a SIGTERM while the attack goes on. Exit status 1: beyond the scheduler's longest delay, a
`ping` or `value` takes longer than 100 ms, or an `append` longer than 1 s; or the daemon takes more memory than it
states, or than one queue may where an attack fills only that; or it gives no sign of life for 30 s; or SIGTERM takes
longer than 10 s.

With `--floods` a producer pushes rows as fast as they are taken, and the table has, for each of the worst floods of
valid requests, rows learned per second of processor time of the thread that learns, beside the rows of a daemon next to
a process that computes and asks for nothing: caches and clock are shared in both cases (for two of them: that has as
many streams, that multiplies matrices as a refit does). With a dictionary of `--dictionary` the thread learns about
50 000 rows a second. Exit status 1: a flood leaves less than 0.9 of them, takes more memory than the daemon states, the
daemon gives no sign of life for 30 s, or SIGTERM takes longer than 10 s.

With `--curve` attackers, producers and the client that asks have keys, and connect to the encrypted sockets; the binary
has the feature `curve`. What is no ZMTP of CURVE is refused in the handshake.

With `--counts` the attacks of an outside review are made as often as the review made them; `counts.py` says more.

Needs pyzmq, msgpack and numpy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from attacks import (
    ATTACKS,
    BASELINES,
    COMPUTES,
    FLOODS,
    KNOWS_STREAMS,
    QUIET,
    STREAMS,
    STREAMS_FLOOD,
    UCB,
    UCB_REFUSED,
    Ends,
    make_streams,
    produce,
)
from counts import counts
from daemon import (
    ADVISOR,
    BINARY,
    CONTINUOUS,
    LATE_MAX_MS,
    Daemon,
    bystand,
    percentile,
    within_bounds,
    without_refits,
)

SHARE_MIN = 0.9
# Rows have an action each in these.
ACTS = {UCB, UCB_REFUSED}


def run(given: argparse.Namespace, name: str, dictionary: int, with_rows: bool) -> dict[str, Any]:
    """Figures of an attack on a daemon, beside a producer if `with_rows`. `dictionary` is the most elements it may have."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        acts = name in ACTS
        settings = without_refits(dictionary) + (CONTINUOUS if acts else [])
        daemon = Daemon(given.binary, Path(folder), settings, ADVISOR, given.curve)
        made = []
        try:
            daemon.teach(acts)
            if name in (STREAMS_FLOOD, KNOWS_STREAMS):
                _push = make_streams(daemon.ends)
                daemon.know(STREAMS)
            figures: dict[str, Any] = {"attack": name, "stated_mib": daemon.stated_mib()}
            if with_rows:
                made.append(context.Process(target=produce, args=(daemon.ends,), daemon=True))
                made[-1].start()
                time.sleep(3.0)
            made.append(context.Process(target=attack, args=(name, daemon.ends), daemon=True))
            made[-1].start()
            time.sleep(2.0)
            before = daemon.ask("status").get("offset", 0), daemon.core_seconds(), time.monotonic()
            results = context.Queue()
            made.append(context.Process(target=bystand, args=(daemon.ends, given.seconds, acts, results), daemon=True))
            made[-1].start()
            found = results.get()
            offset, core = daemon.ask("status").get("offset", 0), daemon.core_seconds()
            wall = time.monotonic() - before[2]
            figures |= daemon.measure_end()
        finally:
            for process in made:
                process.kill()
            daemon.close()
    for op, values in found.items():
        figures[op] = [percentile(values, 0.5), percentile(values, 0.99), max(values)]
    figures["rows_per_core_second"] = (offset - before[0]) / max(core - before[1], 1e-9)
    figures["rows_per_second"], figures["core_share"] = (offset - before[0]) / wall, (core - before[1]) / wall
    return figures


def attack(name: str, ends: Ends) -> None:
    """Go on with it until the process is killed."""
    (ATTACKS | FLOODS)[name](ends)


def latencies(figures: dict[str, Any]) -> list[str]:
    """Median, 99th percentile and maximum of each."""
    names = ("ping", "value", "append", "scheduler")
    return [" / ".join(f"{value:.0f}" for value in figures[op]) for op in names]


def taken(figures: dict[str, Any]) -> str:
    """The last cells of a line: memory, signs of life, SIGTERM."""
    memory = f"{figures['peak_mib']:.0f} ({figures['stated_mib']:.0f})"
    return f"{memory} | {figures['watchdog_s']:.1f} | {figures['stop_s']:.1f}"


def attacks(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """A line for each attack; whether the daemon kept its bounds in all of them."""
    print("| attack | ping | value | append | scheduler | peak MiB (stated) | watchdog, s | stop, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    all_figures: list[dict[str, Any]] = []
    holds = True
    for name in (name for name in ATTACKS if given.only in name):
        figures = run(given, name, 100, with_rows=False)
        all_figures.append(figures)
        late = {op: figures[op][2] - figures["scheduler"][2] for op in ("ping", "value", "append")}
        holds &= all(late[op] <= LATE_MAX_MS[op] for op in late) and within_bounds(figures)
        print(f"| {name} | {' | '.join(latencies(figures))} | {taken(figures)} |", flush=True)
    return all_figures, holds


def floods(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """A line for each flood beside learning; whether enough rows were learned in all of them."""
    names = ("flood", "rows/s", "core busy", "rows per core second", "of those without", "ping", "peak MiB (stated)")
    print(f"| {' | '.join(names)} | watchdog, s | stop, s |")
    print(f"|{' --- |' * (len(names) + 2)}")
    all_figures: list[dict[str, Any]] = []
    quiet: dict[str, float] = {}
    holds = True
    chosen = [name for name in FLOODS if given.only in name and name not in QUIET]
    wanted = {BASELINES.get(name, COMPUTES) for name in chosen}
    for name in [*(name for name in QUIET if name in wanted), *chosen]:
        figures = run(given, name, given.dictionary, with_rows=True)
        all_figures.append(figures)
        per_second = figures["rows_per_core_second"]
        share = per_second / quiet.setdefault(BASELINES.get(name, name if name in QUIET else COMPUTES), per_second)
        holds &= share >= SHARE_MIN and within_bounds(figures)
        cells = [f"{figures['rows_per_second']:.0f}", f"{100 * figures['core_share']:.0f} %", f"{per_second:.0f}"]
        cells += [f"{share:.2f}", latencies(figures)[0], taken(figures)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return all_figures, holds


def main() -> None:
    """Read the arguments, print a table, and say by the exit status whether all bounds were kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=BINARY)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--floods", action="store_true")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--dictionary", type=int, default=260, help="dictionary_max, with --floods")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    given = parser.parse_args()
    most = " at most" if given.counts else ""
    load = f"load {os.getloadavg()[0]:.0f}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {load}, {given.seconds:g} s each{most}\n", flush=True)
    table = counts if given.counts else floods if given.floods else attacks
    figures, holds = table(given)
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))
    if not holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
