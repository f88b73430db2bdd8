#!/usr/bin/env python3
"""Resident memory of a running daemon while rows without end go through it.

    benches/flat.py [--rows 10000000] [--set critic.dictionary_max=100] [--program target/dist/criticd]

Starts a daemon (journal and refits on, the settings given, else its own) in a directory of its own, replays a table of a
million rows of four numbers again and again, each time as a new session, and prints what is resident after each, beside
what the daemon says that it may keep. Linux only.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE_ROWS = 1_000_000
DIM = 4


def write_table(path):
    rng = random.Random(1)
    state = [0.0] * DIM
    heads = [f"state_{d}" for d in range(DIM)] + ["reward", "terminated", "truncated"]
    with open(path, "w") as table:
        table.write(",".join(heads) + "\n")
        # The last row of a stream only says where the row before it has led.
        for row in range(TABLE_ROWS + 1):
            reward = state[0] * state[1] + rng.uniform(-0.1, 0.1)
            cells = [f"{x:.6f}" for x in state] + [f"{reward:.6f}", "false", "false"]
            table.write(",".join(cells) + "\n")
            state = [0.9 * x + rng.uniform(-0.5, 0.5) for x in state]


def resident_mib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the daemon has ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the daemon")
    parser.add_argument("--program", default=ROOT / "target" / "dist" / "criticd")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="criticd-flat-") as directory:
        table, data = Path(directory) / "walk.csv", Path(directory) / "data"
        write_table(table)
        endpoints = [f"--{socket}=tcp://127.0.0.1:0" for socket in ("ingest", "control", "publish")]
        serve = [options.program, "serve", "--data-dir", data, *endpoints, "--set", "http=off"]
        serve += [part for setting in options.set for part in ("--set", setting)]
        daemon = subprocess.Popen([str(part) for part in serve], stderr=subprocess.DEVNULL)
        try:
            while not (data / "endpoints.json").exists():
                if daemon.poll() is not None:
                    raise SystemExit(f"the daemon has ended: {daemon.returncode}")
                time.sleep(0.1)

            def ask(*command):
                whole = [options.program, *command, "--data-dir", data]
                return subprocess.run([str(part) for part in whole], check=True, capture_output=True, text=True).stdout

            started, sent = time.monotonic(), 0
            while sent < options.rows:
                ask("replay", table)
                sent += TABLE_ROWS
                # A session that begins while rows of the one before are under way would fence them.
                while (status := json.loads(ask("status", "--json")))["critics"][0]["learned"] < sent:
                    time.sleep(0.1)
                seconds, kept = time.monotonic() - started, status["memory"]["kept_bytes_max"] / 2**20
                print(
                    f"{sent} rows learned, {resident_mib(daemon.pid):.1f} MiB resident, at most {kept:.0f} MiB kept,"
                    f" {seconds:.0f} s",
                    flush=True,
                )
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
