"""Shared by the tests of the dashboard: daemons with streams whose truth is known, and a page that looks at them.

With CRITICD_SCREENSHOTS=DIRECTORY the pages are kept as pictures, to be looked at.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
from browser import Browser
from client import PATIENCE_S, Array, Daemon, Map, pack, when
from conftest import Start

SHOTS = os.environ.get("CRITICD_SCREENSHOTS")
# A number that stands for what a canvas shows. (Reading its pixels instead makes the browser complain on the console.)
PRINT = """(id => { const url = document.getElementById(id).toDataURL();
    let sum = 0; for (let k = 0; k < url.length; k += 1) sum = (sum * 31 + url.charCodeAt(k)) % 4294967291;
    return sum; })"""

# Saved files are kept in the page, by their names.
KEEP = """window.saved = {}; const blobs = URL.createObjectURL; let last;
    URL.createObjectURL = blob => { last = blob; return blobs.call(URL, blob); };
    HTMLAnchorElement.prototype.click = function () { const name = this.download;
        last.arrayBuffer().then(b => { saved[name] = name.endsWith('png') ? '' : new TextDecoder().decode(b); }); }; 0"""

# The number and the length of each of the daemon's messages, as they come.
HEARD = """window.heard = []; window.EventSource = class extends EventSource {
    set onmessage(hear) { super.onmessage = (event) => {
        heard.push([JSON.parse(event.data).number, event.data.length]); hear(event); }; } };"""


class Walk(threading.Thread):
    """A particle that is pulled to the middle, some hundred rows a second. Only its first coordinate costs."""

    def __init__(self, daemon: Daemon, dim: int = 3, seed: int = 0) -> None:
        super().__init__(daemon=True)
        self.push, self.dim, self.over = daemon.push(), dim, threading.Event()
        self.generator = np.random.default_rng(seed)
        self.state = self.generator.normal(size=dim)
        self.sent = 0

    def rows(self, count: int) -> Map:
        states = [self.state]
        for _ in range(count):
            pulled = 0.9 * states[-1] + 0.3 * self.generator.normal(size=self.dim)
            states.append(pulled)
        self.state = self.generator.normal(size=self.dim)
        rewards = [-float(s[0] ** 2) for s in states[:-1]]
        ends = [False] * (count - 1) + [True]
        return {"states": np.array(states), "rewards": np.array(rewards), "truncated": np.array(ends)}

    def send(self, rows: int) -> None:
        self.push.send(pack({"stream": "walk", "session": "run", "seq": self.sent, **self.rows(rows)}))
        self.sent += rows

    def run(self) -> None:
        # Discounts are such that episodes outlast the horizon: a return that is cut off before does not count on the page.
        while not self.over.wait(0.1):
            self.send(20)

    def stop(self) -> None:
        self.over.set()
        self.join()


def address(daemon: Daemon) -> str:
    return f"http://{daemon.endpoints['http']}/"


def history(daemon: Daemon) -> Any:
    """What the page begins with. A daemon that has no time for an answer says so, and is asked again, as a page does."""
    found: list[Any] = []

    def is_answered() -> bool:
        try:
            with urlopen(f"{address(daemon)}api/history", timeout=PATIENCE_S) as answer:
                found.append(json.load(answer))
        except HTTPError as error:
            assert error.code == 503, error
        return found != []

    when(is_answered, "the history")
    return found[0]


def learned(daemon: Daemon, rows: int) -> None:
    """Wait until values are those of so many rows, and a page that is opened now knows of all of them.

    A busy daemon does both a while after the rows are stored, which is what its `offset` tells.
    """
    control = daemon.shared_control()
    status = control.wait_for_learned(rows)
    states = np.zeros((1, status["state_dim"]))
    control.ask("value", states=states, critics=[each["name"] for each in status["critics"]], min_offset=rows)
    when(lambda: (history(daemon)["status"] or {}).get("offset", 0) >= rows, "the rows on the page")


def start_walk(
    start: Start, dim: int = 3, endpoints: dict[str, str] | None = None, settings: Sequence[str] = ()
) -> Daemon:
    names = [["angle"], ["angle", "speed"], ["angle", "speed", "temperature"]][dim - 1]
    config = f"state_dim = {dim}\nstate_names = {names}\n"
    quick = ["discount=0.7", "dictionary_max=60", "evidence_rows=200", "starts=2", "refit_budget_s=60"]
    manual = ["refit_first_rows=0", "refit_score_drop=0"]
    return start(*(f"critic.{setting}" for setting in [*quick, *manual, *settings]), config=config, endpoints=endpoints)


def shoot(page: Browser, name: str) -> None:
    if SHOTS:
        time.sleep(1)
        page.screenshot(Path(SHOTS) / f"{name}.png")


def assert_clean(page: Browser, daemon: Daemon) -> None:
    """Nothing on the console, no request to another host."""
    assert page.faults() == []
    foreign = [url for url in page.requests() if not url.startswith((address(daemon), "about:", "data:"))]
    assert foreign == [] and len(page.requests()) >= 5


def shown(page: Browser, *elements: str) -> None:
    """Wait until all of these are there to be seen."""
    for element in elements:
        page.wait(f"document.getElementById('{element}').offsetHeight > 0", f"{element} to be shown")


def hidden(page: Browser, *elements: str) -> None:
    """Wait until none of these is to be seen."""
    for element in elements:
        page.wait(f"document.getElementById('{element}').offsetHeight === 0", f"{element} to be hidden")


def choose(page: Browser, control: str, value: str) -> None:
    script = f"(c => {{ c.value = '{value}'; c.dispatchEvent(new Event('change')); }})"
    page.run(f"{script}(document.getElementById('{control}'))")


def point(page: Browser, canvas: str, across: float, up: float) -> None:
    """Put the pointer on a canvas, and that into view."""
    page.run(f"document.getElementById('{canvas}').scrollIntoView({{block: 'center'}})")
    x, y, width, height = page.run(
        f"(({{x, y, width, height}}) => [x, y, width, height])(document.getElementById('{canvas}').getBoundingClientRect())"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + across * width, y=y + (1 - up) * height)


def point_until(page: Browser, canvas: str, across: float, up: float, condition: str, what: str) -> None:
    """Point at a canvas until something is so: parts that arrive meanwhile may move it away from the pointer."""

    def is_so() -> bool:
        point(page, canvas, across, up)
        return page.holds(condition)

    when(is_so, what)


def says(page: Browser, element: str, *words: str) -> None:
    """Wait until the text of an element has all of these words."""
    for each in words:
        page.wait(f"document.getElementById('{element}').textContent.includes({json.dumps(each)})", each)


def text(page: Browser, element: str) -> str:
    return page.run(f"document.getElementById('{element}').textContent")


def number(words: str) -> float:
    return float(words.replace("−", "-").replace("\u202f", ""))


class Field:
    """Episodes of one step from anywhere in a square: the reward is the return, so that the truth is known."""

    def __init__(self, daemon: Daemon, dim: int = 2) -> None:
        self.push, self.dim, self.sent = daemon.push(), dim, 0
        self.generator = np.random.default_rng(8)

    def send(self, rows: int, reward: Callable[[Array], Array], stream: str = "field") -> None:
        states = self.generator.uniform(0, 1, (rows, self.dim))
        noise = 0.05 * self.generator.normal(size=rows)
        ends = np.ones(rows, bool)
        batch = {"states": states, "next_states": states, "rewards": reward(states) + noise, "terminated": ends}
        self.push.send(pack({"stream": stream, "seq": self.sent, **batch}))
        self.sent += rows


def start_field(start: Start, *settings: str) -> Daemon:
    config = 'state_dim = 3\nstate_names = ["position", "slope", "load"]\n'
    quiet = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "critic.discount=0.5")
    return start(*quiet, *settings, config=config)
