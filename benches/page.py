#!/usr/bin/env python3
"""The cost of an open page of the dashboard: to the stream, the daemon, the browser.

    PYTHONPATH=tests/python target/python/bin/python benches/page.py [--turns 5] [--seconds 600]

Starts the daemon of CRITICD_BIN (target/release/criticd by default) and sends it as many rows of four numbers as it
takes. In turns of ten seconds with and without a page: rows per second, and rows per second of processor time of the
core's thread, which other programs on the machine do not change. Then the time until the first paint of ten fresh
pages, and memory of browser and daemon while a page stays open. Needs Chromium and the environment that tests/run.sh
makes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from browser import Browser
from client import Daemon, pack

TURN_S = 10
PAINTS = 10
SEEN = "document.querySelectorAll('#relevance .relevance-row').length === 4"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


class Flood(threading.Thread):
    """As many rows as the daemon takes, in batches of 256."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self.push, self.over = daemon.push(SNDHWM=20), threading.Event()
        generator = np.random.default_rng(0)
        self.batches = []
        for _ in range(50):
            angles = generator.normal(size=(257, 4)).cumsum(axis=0) * 0.1
            self.batches.append(pack({"states": np.sin(angles), "rewards": -(np.sin(angles[:-1, 0]) ** 2)}))

    def run(self) -> None:
        sent = 0
        while not self.over.is_set():
            self.push.send(self.batches[sent % len(self.batches)])
            sent += 1


def core_seconds(daemon: Daemon) -> float:
    """Processor time of the core's thread so far."""
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if name == "core":
            return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    raise KeyError("core")


def turns(daemon: Daemon, page: Browser, address: str, count: int) -> None:
    """Print the ratios with the page over without it."""
    control = daemon.control()

    def rates() -> tuple[float, float]:
        rows, began, spent = control.ask("status")["offset"], time.monotonic(), core_seconds(daemon)
        time.sleep(TURN_S)
        rows = control.ask("status")["offset"] - rows
        return rows / (time.monotonic() - began), rows / (core_seconds(daemon) - spent)

    ratios = []
    for turn in range(count):
        page.open("about:blank")
        time.sleep(1)
        without = rates()
        page.open(address)
        page.wait(SEEN, "the page")
        opened = rates()
        ratios.append([a / b for a, b in zip(opened, without, strict=True)])
        print(
            f"turn {turn + 1}: {without[0]:.0f} rows/s without, {opened[0]:.0f} with; "
            f"per second of the core {without[1]:.0f} and {opened[1]:.0f}",
            flush=True,
        )
    for name, k in (("rows per second", 0), ("rows per second of the core's processor time", 1)):
        values = [ratio[k] for ratio in ratios]
        print(f"{name}: {statistics.median(values):.3f} of that without ({min(values):.3f} to {max(values):.3f})")


def paints(page: Browser, address: str) -> None:
    """Print the time until the first paint of fresh pages."""
    found = []
    for _ in range(PAINTS):
        page.open("about:blank")
        page.open(address)
        page.wait(SEEN, "the page")
        found.append(page.run(PAINT))
    print(f"first paint: median {statistics.median(found):.0f} ms, at most {max(found):.0f} ms of {PAINTS}")


def soak(daemon: Daemon, page: Browser, seconds: float) -> None:
    """Print memory over time."""
    print("seconds   JavaScript MiB   browser MiB   daemon MiB")
    for tenth in range(1, 11):
        time.sleep(seconds / 10)
        numbers = page.memory_mib(), page.resident_mib(), daemon.memory_mib()
        print(f"{tenth * seconds / 10:7.0f}" + "".join(f"{number:14.1f}" for number in numbers), flush=True)


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    quiet = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "window_rows=50000")
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "d", "critic.discount=0.9", "critic.dictionary_max=200", *quiet)
        page = Browser()
        flood = Flood(daemon)
        try:
            page.size(1440, 900)
            flood.start()
            # Until the window is full, its memory grows.
            daemon.control().wait_for_offset(100_000, 600)
            address = f"http://{daemon.endpoints['http']}/"
            turns(daemon, page, address, arguments.turns)
            paints(page, address)
            soak(daemon, page, arguments.seconds)
        finally:
            flood.over.set()
            page.close()
            daemon.close()


if __name__ == "__main__":
    main()
