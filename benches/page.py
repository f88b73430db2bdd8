#!/usr/bin/env python3
"""The cost of an open page of the dashboard: to the stream, the daemon, the browser.

    PYTHONPATH=tests/python target/python/bin/python benches/page.py [--turns 5] [--seconds 600]
    PYTHONPATH=tests/python target/python/bin/python benches/page.py --shapes [NAME...] [--seconds 60]

Starts the daemon of CRITICD_BIN (to be measured: target/dist/criticd) and sends it all rows of four numbers that it
takes. In turns of ten seconds with and without a page: rows per second, and rows per second of processor time of the
core's thread, which other programs on the machine do not change. Then the time until the first paint of ten fresh
pages, and memory of browser and daemon while a page stays open. With --shapes: many variables, critics, streams or heads at
200 rows a second in all, and of each the bytes of the event stream and the processor time of browser and watcher. Needs Chromium and the environment that tests/run.sh
makes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
from browser import Browser
from client import Daemon, pack

TURN_S = 10
PAINTS = 10
SEEN = "document.querySelectorAll('#relevance .relevance-row').length === 4"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


class Flood(threading.Thread):
    """All rows that the daemon takes, in batches of 256."""

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


def turns(daemon: Daemon, page: Browser, address: str, count: int) -> None:
    """Print the ratios with the page over without it."""
    control = daemon.control()

    def rates() -> tuple[float, float]:
        rows, began, spent = control.ask("status")["offset"], time.monotonic(), thread_seconds(daemon, "core")
        time.sleep(TURN_S)
        rows = control.ask("status")["offset"] - rows
        return rows / (time.monotonic() - began), rows / (thread_seconds(daemon, "core") - spent)

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


class Trickle(threading.Thread):
    """Some hundred rows a second of a few streams in turns."""

    def __init__(self, daemon: Daemon, dim: int, streams: int) -> None:
        super().__init__(daemon=True)
        self.push, self.over, self.streams = daemon.push(), threading.Event(), streams
        self.states = np.sin(np.random.default_rng(0).normal(size=(4001, dim)).cumsum(axis=0) * 0.1)
        self.sent = [0] * streams

    def send(self, stream: int, rows: int) -> None:
        at = self.sent[stream] % (len(self.states) - rows)
        states = self.states[at : at + rows + 1]
        batch = {"states": states, "rewards": -(states[:-1, 0] ** 2)}
        self.push.send(pack({"stream": f"robot-{stream:02}", "seq": self.sent[stream], **batch}))
        self.sent[stream] += rows

    def run(self) -> None:
        turn = 0
        while not self.over.wait(0.1):
            for _ in range(max(1, self.streams // 10)):
                self.send(turn % self.streams, max(1, 20 * 10 // max(self.streams, 10)))
                turn += 1


CRITIC = """[[critic]]
name = "{name}"
discount = 0.9
dictionary_max = 60
refit_first_rows = 0
refit_score_drop = 0
"""
QUIET = "window_rows = 20000\n"
LISTEN = """window.heard = []; window.EventSource = class extends EventSource {
    set onmessage(hear) { super.onmessage = (event) => { heard.push(event.data.length); hear(event); }; } };"""


def shapes() -> dict[str, tuple[str, int, int]]:
    """Of each shape its configuration, the state dimension, and the number of streams."""
    one = CRITIC.format(name="main")
    heads = "".join(
        f'[[critic.heads]]\nname = "h{k}"\ncumulant = {{ kind = "next_state", index = {k % 4} }}\ndiscount = {0.5 + 0.4 * (k // 4) / 500:.3f}\n' for k in range(2000)
    )
    return {
        "one critic of 4 variables": (one, 4, 1),
        "348 variables": (one, 348, 1),
        "100 critics": ("".join(CRITIC.format(name=f"joint-{k}") for k in range(100)), 4, 1),
        "30 streams": (one, 4, 30),
        "2000 heads": (one + heads, 4, 1),
    }


def thread_seconds(daemon: Daemon, wanted: str) -> float:
    """Processor time of the daemon's thread of this name so far."""
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if name == wanted:
            return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    raise KeyError(wanted)


def measure_shapes(folder: Path, seconds: float, names: list[str]) -> None:
    """Print what a page costs for each shape, or for the shapes of these names."""
    print("shape                       bytes/s   largest message   browser CPU   watcher CPU   history")
    for shape, (config, dim, streams) in shapes().items():
        if names and shape not in names:
            continue
        daemon, page = Daemon(folder / shape.replace(" ", "-"), config=QUIET + config), Browser()
        trickle = Trickle(daemon, dim, streams)
        try:
            page.size(1440, 900)
            for stream in range(streams):
                trickle.send(stream, 1000 // streams)
            trickle.start()
            page.call("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
            page.open(f"http://{daemon.endpoints['http']}/")
            page.wait("document.getElementById('map-value')?.getAttribute('aria-label').startsWith('Value of')", "a map", 300)
            page.wait("heard.length > 5", "news")
            page.run("heard = []; 0")
            began, spent = time.monotonic(), (page.processor_seconds(), thread_seconds(daemon, "watcher"))
            time.sleep(seconds)
            took = time.monotonic() - began
            sizes = page.run("heard")
            browser = (page.processor_seconds() - spent[0]) / took
            watcher = (thread_seconds(daemon, "watcher") - spent[1]) / took
            history = len(urllib.request.urlopen(f"http://{daemon.endpoints['http']}/api/history").read())
            print(
                f"{shape:26}{sum(sizes) / took:9.0f}{max(sizes):18}{100 * browser:12.1f} %{100 * watcher:12.1f} %"
                f"{history / 1024:8.0f} KiB",
                flush=True,
            )
        finally:
            trickle.over.set()
            page.close()
            daemon.close()


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--shapes", nargs="*")
    arguments = parser.parse_args()
    if arguments.shapes is not None:
        with tempfile.TemporaryDirectory() as folder:
            measure_shapes(Path(folder), arguments.seconds, arguments.shapes)
        return
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
