"""The dashboard in a real browser. Without Chromium (Debian's package `chromium`) these tests are skipped, loudly.

With CRITICD_SCREENSHOTS=DIRECTORY the pages are kept as pictures, to be looked at.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import browser
import numpy as np
import pytest
from browser import Browser, when
from client import Daemon, Map, pack
from conftest import Start

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)

SHOTS = os.environ.get("CRITICD_SCREENSHOTS")
# A number that stands for what a canvas shows. (Reading its pixels instead makes the browser complain on the console.)
PRINT = """(id => { const url = document.getElementById(id).toDataURL();
    let sum = 0; for (let k = 0; k < url.length; k += 1) sum = (sum * 31 + url.charCodeAt(k)) % 4294967291;
    return sum; })"""


@pytest.fixture
def page() -> Iterator[Browser]:
    page = Browser()
    page.size(1400, 900)
    yield page
    page.close()


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


def start_walk(start: Start, dim: int = 3) -> Daemon:
    names = [["angle"], ["angle", "speed"], ["angle", "speed", "temperature"]][dim - 1]
    config = f"state_dim = {dim}\nstate_names = {names}\n"
    quick = ["discount=0.7", "dictionary_max=60", "evidence_rows=200", "starts=2", "refit_budget_s=60"]
    manual = ["refit_first_rows=0", "refit_score_drop=0"]
    return start(*(f"critic.{setting}" for setting in quick + manual), config=config)


def shoot(page: Browser, name: str) -> None:
    if SHOTS:
        time.sleep(1)
        page.screenshot(Path(SHOTS) / f"{name}.png")


def core_seconds(daemon: Daemon) -> float:
    """Processor time of the learner's thread so far."""
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if name == "core":
            return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    raise KeyError("core")


def assert_clean(page: Browser, daemon: Daemon) -> None:
    """Nothing on the console, no request to anybody else."""
    assert page.faults() == []
    foreign = [url for url in page.requests() if not url.startswith((address(daemon), "about:", "data:"))]
    assert foreign == [] and len(page.requests()) >= 5


def shown(page: Browser, element: str) -> bool:
    return page.run(
        f"!document.getElementById('{element}').hidden && document.getElementById('{element}').offsetHeight > 0"
    )


def test_the_page_follows_what_is_learned(start: Start, page: Browser) -> None:
    daemon = start_walk(start)
    page.open(address(daemon))
    # Nothing there yet: it says what to do, with the daemon's own endpoint.
    page.wait("document.getElementById('empty-title')?.textContent === 'No rows yet'", "the empty state")
    assert daemon.endpoints["ingest"] in page.run("document.getElementById('empty-code').textContent")
    shoot(page, "empty")

    walk = Walk(daemon)
    walk.send(20)
    page.wait(
        "document.getElementById('empty-title').textContent === '20 of 32 rows'", "the rows until the first model"
    )
    walk.send(20)
    page.wait(f"{PRINT}('map-value') !== {PRINT}('map-deviation')", "a first heat map")
    assert not shown(page, "empty") and shown(page, "deviation-card")

    # The heat maps change as rows arrive.
    maps = ["map-value", "map-deviation"]
    before = [page.run(f"{PRINT}('{name}')") for name in maps]
    walk.start()
    when(
        lambda: all(page.run(f"{PRINT}('{name}')") != old for name, old in zip(maps, before, strict=True)),
        "heat maps that follow the rows",
    )
    page.wait("document.querySelectorAll('#relevance .relevance-row').length === 3", "relevances")
    page.wait("document.querySelector('#streams td')?.textContent === 'walk'", "the stream")
    assert page.run("document.getElementById('axis-x').selectedOptions[0].textContent") in (
        "angle",
        "speed",
        "temperature",
    )

    # An adoption appears as a mark, with what it changed, and the relevances show what matters.
    control = daemon.control()
    control.wait_for_offset(600)
    assert control.ask("refit", wait=True)["outcome"] == "adopted"
    page.wait("document.querySelector('#marks [data-kind=adopted]')", "the mark of the adoption")
    page.wait("document.querySelector('#marks [data-kind=adopted] .details').textContent.includes('→')", "its changes")
    text = page.run("document.querySelector('#marks [data-kind=adopted]').textContent")
    assert "Generation 2 adopted" in text and "lengthscale" in text and "held-out returns" in text
    assert "held-out errors: " in text and "λ 0 " in text
    # Held-out returns have selected the model: their error is shown, and no place is left for an evidence that is none.
    lines = "[...document.querySelectorAll('.line:not([hidden]) h3')].map(h => h.textContent)"
    page.wait(f"{lines}.some(line => /^Held-out error0[.]/.test(line))", "the error of the selection")
    assert not page.run(f"{lines}.some(line => line.startsWith('Log evidence'))")
    assert "held-out error" in page.run("document.getElementById('model').textContent")
    widths = "[...document.querySelectorAll('#relevance .track i')].map(bar => parseFloat(bar.style.width))"
    page.wait(f"{widths}[0] === 100 && {widths}[1] < 100 && {widths}[2] < 100", "what matters most")
    page.wait("document.getElementById('calibration-text').textContent.includes('90 % interval')", "a calibration")
    shoot(page, "adopted")

    # Whoever does not see the pictures hears what they show, and everything that can be set has a name.
    unnamed = """[...document.querySelectorAll('canvas, button, select, input')].filter(e => e.offsetHeight > 0 &&
        !(e.getAttribute('aria-label') || e.closest('label')?.textContent.trim() || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    assert page.run(unnamed) == []

    # Somebody points at the map: numbers, at that place.
    box = page.run(
        "(({x, y, width, height}) => [x + width / 2, y + height / 3])(document.getElementById('map-value')"
        ".getBoundingClientRect())"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    page.wait(
        "/angle .*: value .* ± .* % known/.test(document.getElementById('map-value-out').textContent)",
        "the numbers there",
    )
    # And by keyboard.
    page.run("document.getElementById('map-deviation').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    page.wait(
        "document.getElementById('map-deviation-out').textContent.includes('standard deviation')", "the same by key"
    )
    walk.stop()
    assert_clean(page, daemon)


def test_other_axes_and_other_views(start: Start, page: Browser) -> None:
    daemon = start_walk(start)
    walk = Walk(daemon, seed=1)
    for _ in range(20):
        walk.send(20)
    page.open(address(daemon))
    page.wait("document.getElementById('axis-x')?.options.length === 3", "the axes")
    asked = (
        "performance.getEntriesByType('resource').map(entry => entry.name).filter(name => name.includes('/api/map'))"
    )

    def choose(control: str, value: str) -> None:
        page.run(
            f"(c => {{ c.value = '{value}'; c.dispatchEvent(new Event('change')); }})"
            f"(document.getElementById('{control}'))"
        )

    for x, y in [("2", "1"), ("1", "0"), ("0", "2")]:
        before = page.run(f"{PRINT}('map-value')")
        choose("axis-x", x)
        choose("axis-y", y)
        assert page.run("[document.getElementById('axis-x').value, document.getElementById('axis-y').value]") == [x, y]
        page.wait(f"{asked}.some(name => name.includes('x={x}&y={y}&'))", f"a picture of {x} and {y}")
        page.wait(f"{PRINT}('map-value') !== {before}", "another picture")
    assert page.run("document.getElementById('sliders').textContent").startswith("speed")
    # A slider moves the variable that is not shown.
    before = page.run(f"{asked}.length")
    page.run(
        "(s => { s.value = s.max; s.dispatchEvent(new Event('input')); })(document.querySelector('#sliders input'))"
    )
    page.wait(f"{asked}.length > {before}", "a picture elsewhere")
    # The axes are remembered.
    page.open(address(daemon))
    page.wait(
        "document.getElementById('axis-x')?.value === '0' && document.getElementById('axis-y').value === '2'",
        "the choice",
    )
    # A curve over one variable.
    choose("axis-y", "")
    page.wait("document.getElementById('maps').classList.contains('single')", "a curve")
    assert not shown(page, "deviation-card")
    shoot(page, "curve")
    # The history is there although the page was opened late.
    page.wait("document.querySelectorAll('.line canvas').length === 9", "the time lines")
    lines = "[...document.querySelectorAll('.line:not([hidden]) h3')].map(h => h.textContent)"
    page.wait(f"{lines}.some(line => line.startsWith('Log score') && line.includes('nats'))", "numbers beside them")
    # Light and dark.
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.run("document.getElementById('theme').click()")
    assert page.run(ground) != light
    page.open(address(daemon))
    page.wait(
        f"document.querySelectorAll('.line canvas').length === 9 && {ground} !== '{light}'", "the theme that was chosen"
    )
    assert_clean(page, daemon)


def test_angles_and_categories_have_scales_of_their_own(start: Start, page: Browser) -> None:
    config = """[[critic]]
        discount = 0.5
        refit_first_rows = 0
        state_kinds = ["real", "periodic:6.283185307179586", "category"]"""
    daemon = start(config=config)
    generator = np.random.default_rng(5)
    count = 200
    states = np.stack(
        [
            generator.normal(size=count + 1),
            generator.uniform(0, 6.28, count + 1),
            generator.integers(3, size=count + 1),
        ],
        axis=1,
    )
    rewards = np.cos(states[:-1, 1]) + states[:-1, 2]
    daemon.push().send(pack({"states": states.astype(float), "rewards": rewards}))
    page.open(address(daemon))
    page.wait("document.querySelectorAll('.relevance-row').length === 3", "the variables")
    # The first model's relevances are 1 / 3; along the circle of circumference 2 pi that is a length of sqrt(3).
    rows = "[...document.querySelectorAll('.relevance-row .numbers')].map(row => row.textContent)"
    page.wait(f"{rows}[1].startsWith('lengthscale 1.73')", "the length along the circle")
    assert page.run(rows)[2] == "category" and page.run(rows)[0].startswith("lengthscale 1.")
    assert "ard, matern52" in page.run("document.getElementById('model').textContent")
    # Nothing has been selected: neither an evidence nor an error has a place.
    assert "evidence" not in page.run("document.getElementById('model').textContent")
    assert page.run("document.querySelectorAll('.line:not([hidden])').length") == 7
    assert_clean(page, daemon)


def test_a_change_of_the_world_turns_the_line_amber(start: Start, page: Browser) -> None:
    config = 'state_dim = 1\nstate_names = ["load"]\n'
    daemon = start("critic.discount=0.9", "critic.dictionary_max=30", "critic.refit_first_rows=0", config=config)
    push, generator = daemon.push(), np.random.default_rng(6)
    sent, state = 0, 0.0

    def feed(rows: int, sign: float) -> None:
        nonlocal sent, state
        states = [state]
        for _ in range(rows):
            states.append(0.9 * states[-1] + 0.2 * generator.normal())
        rewards = sign * (1 + np.array(states[:-1])) + 0.1 * generator.normal(size=rows)
        push.send(pack({"stream": "robot", "seq": sent, "states": np.array(states)[:, None], "rewards": rewards}))
        sent, state = sent + rows, states[-1]

    control = daemon.control()
    for _ in range(60):
        feed(100, 1.0)
    control.wait_for_offset(sent)
    # The first selection: from here on it is known how large errors are.
    control.ask("refit", wait=True)
    for _ in range(60):
        feed(100, 1.0)
    control.wait_for_offset(sent)
    page.open(address(daemon))
    page.wait("document.getElementById('live')?.dataset.state === 'live'", "a green line")
    assert not page.run("document.querySelector('#marks [data-kind=drift]')")

    # Just enough rows for the alarm: the second model has too few to take over.
    while control.ask("status")["critics"][0]["drift"]["alarms"] == 0:
        assert sent < 16_000, "no alarm"
        feed(50, -1.0)
        control.wait_for_offset(sent)
    page.wait("document.getElementById('live').dataset.state === 'drift'", "an amber line")
    words = page.run("document.getElementById('live-text').textContent")
    assert "lower than predicted" in words and "since row 1" in words and "second model" in words
    shoot(page, "drift")
    mark = "document.querySelector('#marks [data-kind=drift]')?.textContent"
    page.wait(f"{mark}?.includes('The world has changed')", "the mark of the change")

    # Rows go on, and a model of what is now answers: green again, with a mark of the swap.
    for _ in range(60):
        feed(100, -1.0)
    control.wait_for_offset(sent)
    page.wait("document.getElementById('live').dataset.state === 'live'", "a green line again")
    swaps = "[...document.querySelectorAll('#marks [data-kind=adopted]')].map(mark => mark.textContent)"
    page.wait(f"{swaps}.some(text => text.includes('the second model has taken over'))", "the mark of the swap")
    assert_clean(page, daemon)


def test_several_critics_and_rewards(start: Start, page: Browser) -> None:
    config = """[[critic]]
        name = "near"
        discount = 0.5
        [[critic]]
        name = "far"
        discount = 0.9
        rewards = [1, 0]"""
    daemon = start(config=config)
    generator = np.random.default_rng(4)
    states = generator.normal(size=(200, 2)).cumsum(axis=0) * 0.2
    daemon.push().send(pack({"states": states, "rewards": np.sin(states[:-1])}))
    page.open(address(daemon))
    page.wait(
        "document.getElementById('critic')?.options.length === 2 && !document.getElementById('view').hidden",
        "the critics",
    )
    assert not shown(page, "head-choice")
    asked = (
        "performance.getEntriesByType('resource').map(entry => entry.name).filter(name => name.includes('/api/map'))"
    )
    page.wait(f"{asked}.some(name => name.includes('critic=near'))", "a picture of the first")
    for choice, value, query in [("critic", "1", "critic=far&head=0"), ("head", "1", "critic=far&head=1")]:
        page.run(
            f"(c => {{ c.value = {value}; c.dispatchEvent(new Event('change')); }})"
            f"(document.getElementById('{choice}'))"
        )
        page.wait(f"{asked}.some(name => name.includes('{query}'))", query)
        page.wait("document.getElementById('head').options.length === 2", "its value functions")
    assert shown(page, "head-choice")
    assert page.run("document.getElementById('model').textContent").count("0.9") >= 1
    assert_clean(page, daemon)


def test_a_state_of_one_number_is_a_curve(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=1)
    walk = Walk(daemon, dim=1, seed=2)
    for _ in range(15):
        walk.send(20)
    page.open(address(daemon))
    page.wait("document.getElementById('maps')?.classList.contains('single')", "a curve")
    assert page.run("document.getElementById('axis-y-label').hidden")
    painted = f"{PRINT}('map-value')"
    before = page.run(painted)
    walk.send(100)
    page.wait(f"{painted} !== {before}", "a curve that follows the rows")
    shoot(page, "one-dimension")
    assert_clean(page, daemon)


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(start: Start, page: Browser, dark: bool) -> None:
    daemon = start_walk(start)
    page.size(390, 844, mobile=True, scale=2, dark=dark)
    page.open(address(daemon))
    width = "document.documentElement.scrollWidth <= innerWidth && innerWidth === 390"
    page.wait("document.getElementById('empty-title')?.textContent === 'No rows yet'", "the empty state")
    assert page.run(width)
    walk = Walk(daemon, seed=3)
    for _ in range(20):
        walk.send(20)
    control = daemon.control()
    control.wait_for_offset(walk.sent)
    control.ask("refit", wait=True)
    # Names of others' making are as long as they like.
    daemon.push().send(pack({"stream": "x" * 200, "seq": 0, **walk.rows(20)}))
    page.wait("document.querySelector('#marks [data-kind=adopted]')", "the page")
    page.wait("document.getElementById('streams')?.textContent.includes('xxx')", "the long name")
    assert page.run(width), page.run("document.documentElement.scrollWidth")
    wide = """[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 391)
        .map(e => e.id || e.tagName)"""
    assert (
        page.run(
            f"{wide}.filter(e => !['TABLE', 'TR', 'TD', 'TH', 'THEAD', 'streams', 'CODE', 'empty-code'].includes(e))"
        )
        == []
    )
    shoot(page, f"phone-{'dark' if dark else 'light'}")
    assert_clean(page, daemon)


def test_names_from_outside_are_only_text(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    page.open(address(daemon))
    walk = Walk(daemon, dim=2)
    walk.send(40)
    bad = "<img src=x onerror=document.title='owned'>"
    daemon.push().send(pack({"stream": bad, "seq": 0, **walk.rows(20)}))
    page.wait(f"document.getElementById('streams')?.textContent.includes({bad!r})", "the stream")
    assert page.run("document.title") == "criticd" and page.run("document.querySelectorAll('#streams img').length") == 0
    assert_clean(page, daemon)


def test_a_daemon_that_goes_and_comes_back(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2).send(200)
    page.open(address(daemon))
    page.wait(
        "document.getElementById('live')?.dataset.state === 'live' && !document.getElementById('view').hidden",
        "the page",
    )
    daemon.terminate()
    page.wait("document.getElementById('live').dataset.state === 'lost'", "that it is gone")
    endpoints = {**daemon.endpoints}
    again = start("critic.discount=0.7", endpoints=endpoints, name="again")
    assert again.endpoints["http"] == daemon.endpoints["http"]
    page.wait("document.getElementById('live').dataset.state === 'live'", "that it is back")
    page.wait(
        "document.getElementById('empty-title').textContent === 'No rows yet' && "
        "!document.getElementById('empty').hidden",
        "what the new one knows",
    )


class Flood(threading.Thread):
    """As many rows as the daemon takes: batches of 256, states of four numbers."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self.push, self.over, self.sent = daemon.push(SNDHWM=20), threading.Event(), 0
        generator = np.random.default_rng(0)
        self.batches = []
        for _ in range(50):
            angles = generator.normal(size=(257, 4)).cumsum(axis=0) * 0.1
            self.batches.append(pack({"states": np.sin(angles), "rewards": -(np.sin(angles[:-1, 0]) ** 2)}))

    def run(self) -> None:
        while not self.over.is_set():
            self.push.send(self.batches[self.sent % len(self.batches)])
            self.sent += 1

    def stop(self) -> None:
        self.over.set()
        self.join()


def flooded(start: Start) -> tuple[Daemon, Flood]:
    quiet = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "window_rows=50000")
    daemon = start("critic.discount=0.9", "critic.dictionary_max=200", *quiet)
    flood = Flood(daemon)
    flood.start()
    # Until the window is full, its memory grows.
    daemon.control().wait_for_offset(100_000)
    return daemon, flood


SEEN = "document.querySelectorAll('#relevance .relevance-row').length === 4"


@pytest.mark.slow
def test_an_open_page_costs_little(start: Start, page: Browser) -> None:
    """Ingest with the page open against without, in turns. CRITICD_TURNS sets how many of 12 s."""
    turns = int(os.environ.get("CRITICD_TURNS", "4"))
    daemon, flood = flooded(start)
    control = daemon.control()

    def rate(duration: float) -> tuple[float, float]:
        """Rows per second, and per second of the learner's own processor time: that is left alone by other programs."""
        rows, began, spent = control.ask("status")["offset"], time.monotonic(), core_seconds(daemon)
        time.sleep(duration)
        rows = control.ask("status")["offset"] - rows
        return rows / (time.monotonic() - began), rows / (core_seconds(daemon) - spent)

    ratios, own = [], []
    for _ in range(turns):
        page.open("about:blank")
        time.sleep(1)
        without = rate(5)
        page.open(address(daemon))
        page.wait(SEEN, "the page")
        opened = rate(5)
        ratios.append(opened[0] / without[0])
        own.append(opened[1] / without[1])
    flood.stop()
    print(
        f"\n{turns} turns, {without[0]:.0f} rows/s: rate with the page open over that without "
        f"{np.median(ratios):.3f} (median; {min(ratios):.3f} to {max(ratios):.3f}); rows per second of the learner's "
        f"processor time {np.median(own):.3f} ({min(own):.3f} to {max(own):.3f})"
    )
    assert math.isfinite(min(ratios)) and min(own) > 0
    assert_clean(page, daemon)


@pytest.mark.slow
def test_a_page_left_open_does_not_grow(start: Start, page: Browser) -> None:
    """Memory of page and daemon at full speed. CRITICD_SOAK_S sets for how long."""
    seconds = float(os.environ.get("CRITICD_SOAK_S", "60"))
    daemon, flood = flooded(start)
    page.open(address(daemon))
    page.wait(SEEN, "the page")
    heaps, resident, browsers = [], [], []
    before = daemon.control().ask("status")["offset"]
    for _ in range(10):
        time.sleep(seconds / 10)
        heaps.append(page.memory_mib())
        browsers.append(page.resident_mib())
        resident.append(daemon.memory_mib())
    rows = daemon.control().ask("status")["offset"] - before
    flood.stop()

    def series(values: list[float]) -> str:
        return " ".join(f"{value:.1f}" for value in values)

    print(
        f"\n{seconds:.0f} s, {rows} rows; MiB after each tenth: JavaScript {series(heaps)}; all of "
        f"the browser's processes {series(browsers)}; daemon {series(resident)}"
    )
    assert rows > 0
    # What is kept for time lines and pairs is bounded; twice as long does not need much more.
    assert max(heaps[5:]) < max(heaps[:5]) + 5
    assert max(resident[5:]) < 1.2 * max(resident[:5]) + 10
    assert_clean(page, daemon)
