"""The page and its streams: where each is now, the last minutes, the last failure, and thirty of them."""

from __future__ import annotations

import re
import threading
import time

import browser
import numpy as np
import pytest
from browser import Browser
from client import PATIENCE_S, Daemon, pack, settles, when
from conftest import Start
from dashboard import KEEP, Field, address, assert_clean, choose, hidden, learned, number, shoot, start_field

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)
QUIET = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "critic.discount=0.5")
PLACES = 'state_dim = 2\nstate_names = ["place [m]", "load"]\n'


class Streams(threading.Thread):
    """Some streams in turns, ten rows of each at a time, of a place that goes round."""

    def __init__(self, daemon: Daemon, names: list[str]) -> None:
        super().__init__(daemon=True)
        self.push, self.names, self.over, self.rounds = daemon.push(), names, threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(0.1):
            for k, name in enumerate(list(self.names)):
                steps = np.arange(10 * self.rounds, 10 * self.rounds + 11)
                states = np.stack([np.sin(steps / 30 + k), np.full(11, 0.1 * k)], axis=1)
                self.push.send(
                    pack({"stream": name, "seq": 10 * self.rounds, "states": states, "rewards": states[:-1, 0]})
                )
            self.rounds += 1

    def stop(self) -> None:
        self.over.set()
        self.join()


@pytest.mark.long
def test_the_strip_stays_on_a_stream_until_it_falls_silent(start: Start, page: Browser) -> None:
    daemon = start(*QUIET, config=PLACES)
    streams = Streams(daemon, ["arm", "leg"])
    streams.start()
    page.open(address(daemon))
    note = "(document.getElementById('path-note')?.textContent ?? '')"
    page.wait(f"/ rows of (arm|leg) in \\d+ s/.test({note})", "a trajectory by time")
    first = re.findall("rows of (arm|leg)", page.run(note))[0]
    answers = set[str]()

    def followed() -> bool:
        # For some seconds, and until it has followed the rows and their returns are known.
        answers.add(now := page.run(note))
        known = re.search(r"of (\d+) %$", now)
        return time.monotonic() > until and len(answers) >= 3 and known is not None and int(known[1]) > 80

    until = time.monotonic() + 4
    when(followed, "the rows that come")
    assert {re.findall("rows of (arm|leg)", answer)[0] for answer in answers} == {first}
    columns = "import('/path.js').then(({pathColumns}) => pathColumns().seconds)"
    when(lambda: page.run(columns)[0] < -5, "some seconds of them")
    seconds = page.run(columns)
    assert seconds[-1] == 0 and seconds == sorted(seconds), seconds
    other = {"arm": "leg", "leg": "arm"}[first]
    streams.names.remove(first)
    page.wait(f"{note}.includes('rows of {other} ')", "the other one")
    # Both are marked, one of them as silent: it is shown with its last place.
    page.wait("document.getElementById('robots').textContent.endsWith('; 1 more stream marked')", "two marks")
    silent = "import('/value.js').then(({shownMarkers}) => shownMarkers().filter(each => each.silent).map(each => each.stream))"
    when(lambda: page.run(silent) == [first], "which is silent")
    # A stream that is chosen stays, silent or not, in the address as well.
    choose(page, "path-stream", f"={first}")
    page.wait(f"{note}.includes('rows of {first} ')", "the chosen one")
    page.wait(f"location.hash.includes('stream={first}')", "its address")
    shoot(page, "streams")
    streams.stop()
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait(f"document.getElementById('path-note')?.textContent.includes('rows of {first} ')", "the same stream")
    assert_clean(page, daemon)


def test_the_page_marks_where_the_robot_is(start: Start, page: Browser) -> None:
    daemon = start(*QUIET, config=PLACES)
    generator, push = np.random.default_rng(3), daemon.push()
    states = generator.uniform(0, 1, (300, 2))
    push.send(pack({"stream": "arm", "seq": 0, "states": states, "rewards": states[:-1, 0]}))
    page.open(f"{address(daemon)}#critic=default&x=0&y=1&span=600")
    words = "(document.getElementById('robots')?.textContent ?? '')"
    state = states[-1]
    page.wait(f"{words}.startsWith('◆ arm is at place ')", "where it is")

    def is_where_it_was_sent() -> None:
        place, load = map(number, re.findall(r"place ([−0-9.]+) m, load ([−0-9.]+)", page.run(words))[0])
        assert abs(place - state[0]) < 1e-3 and abs(load - state[1]) < 1e-3, (place, load, state)

    settles(is_where_it_was_sent)
    # It moves, and another one comes: the name of the one that is followed is on the picture.
    push.send(pack({"stream": "arm", "seq": 299, "states": np.array([state, [0.25, 0.5]]), "rewards": np.zeros(1)}))
    page.wait(f"{words}.includes('place 0.25 m, load 0.5')", "where it is now")
    push.send(pack({"stream": "leg", "seq": 0, "states": np.array([[0.5, 0.5], [0.75, 0.75]]), "rewards": np.zeros(1)}))
    page.wait(f"{words}.includes('1 more stream')", "the other one")
    page.wait("document.getElementById('map-value').getAttribute('aria-label')?.startsWith('Value of')", "the map")
    page.run(KEEP)
    page.run("[...document.querySelectorAll('#map-value-save button')].find(b => b.textContent === 'SVG').click()")
    page.wait("'value.svg' in saved", "the picture")
    followed = page.run("import('/path.js').then(({shownStream}) => shownStream())")
    assert [name for name in ("arm", "leg") if f">{name}<" in page.run("saved['value.svg']")] == [followed]
    shoot(page, "robots")
    # And on a curve.
    choose(page, "axis-y", "")
    page.wait("document.getElementById('maps').classList.contains('single')", "a curve")
    page.wait(f"{words}.includes('at place 0.25 m;') || {words}.includes('at place 0.75 m;')", "the places on it")
    markers = "import('/value.js').then(({shownMarkers}) => shownMarkers().map(({at}) => at.length))"
    when(lambda: page.run(markers) == [1, 1], "marks on the curve")
    # A state in which an episode terminated has no value, and no picture needs to reach there.
    seq, last = {"arm": (300, [0.25, 0.5]), "leg": (1, [0.75, 0.75])}[followed]
    end = {"states": np.array([last, [9.0, 9.0]]), "rewards": np.zeros(1), "terminated": np.array([True])}
    push.send(pack({"stream": followed, "seq": seq, **end}))
    page.wait(f"{words}.includes('at place 9 m, outside of the picture')", "a place that is not on it")
    assert_clean(page, daemon)


def test_the_last_failure_shows_what_the_value_said_before_it(start: Start, page: Browser) -> None:
    daemon = start(*QUIET, "critic.drift_sensitivity=off", config='state_dim = 1\nstate_names = ["step"]\n')
    push, sent = daemon.push(), 0
    steps = np.arange(21.0)[:, None]
    # Episodes of 20 steps fail at the last one, which costs 1: before it the value is -1, -0.5, -0.25, ...
    fall = {"states": steps, "rewards": -(steps[:-1, 0] == 19).astype(float), "terminated": steps[:-1, 0] == 19}
    for _ in range(60):
        push.send(pack({"stream": "arm", "seq": sent, **fall}))
        sent += 20
    # A stream beside it that never fails, and another episode that has not failed.
    push.send(
        pack({"stream": "calm", "seq": 0, "states": steps, "rewards": np.zeros(20), "truncated": np.arange(20) == 19})
    )
    control = daemon.control()
    control.wait_for_learned(sent + 20)
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    push.send(pack({"stream": "arm", "seq": sent, "states": steps[:8], "rewards": np.zeros(7)}))
    learned(daemon, sent + 27)
    page.open(f"{address(daemon)}#critic=default&stream=arm")
    page.wait("document.getElementById('path-failure')?.disabled === false", "that there was a failure")
    # Of a few rows each has a point of its own.
    choose(page, "path-rows", "100")
    page.run("document.getElementById('path-failure').click()")
    out = "(document.getElementById('path-out')?.textContent ?? '')"
    page.wait(f"/ the episode terminated$/.test({out})", "the failure")
    assert f"row {sent - 1}" in page.run(out).replace("\u202f", "")
    page.run("document.getElementById('path').focus()")
    for before, expected in enumerate([-1.0, -0.5, -0.25, -0.125]):
        if before:
            page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
        page.wait(f"{out}.replace('\u202f', '').startsWith('row {sent - 1 - before},')", "the row before")
        value, came = map(number, re.findall(r"value ([−0-9.]+) ± .* return ([−0-9.]+) ", page.run(out))[0])
        assert abs(value - expected) < 0.1, (before, value, expected)
        assert abs(came - expected) < 1e-6, (before, came)
    shoot(page, "failure")
    page.run("document.getElementById('path-live').click()")
    page.wait("document.getElementById('path-live').hidden", "the newest rows again")
    # Of a stream without a failure there is none to go to.
    choose(page, "path-stream", "=calm")
    page.wait("document.getElementById('path-failure').disabled", "that there was none")
    assert_clean(page, daemon)


def test_of_thirty_streams_the_rows_around_a_worst_state_are_its_own(start: Start, page: Browser) -> None:
    daemon = start_field(start, "critic.dictionary_max=12", "critic.drift_sensitivity=off")
    corner = np.array([0.75, 0.2])
    generator, push = np.random.default_rng(8), daemon.push()
    names = [f"robot-{k:02}" for k in range(30)]
    for batch in range(8):
        for row in range(40):
            for name in names:
                state = generator.uniform(0, 1, (1, 3))
                spike = bool((np.abs(state[0, 1:] - corner) < 0.1).all())
                reward = state[:, 0] + 6.0 * spike
                message = {"states": state, "next_states": state, "rewards": reward, "terminated": np.ones(1, bool)}
                push.send(pack({"stream": name, "seq": 40 * batch + row, **message}))
    learned(daemon, 30 * 320)
    # Axes on which the error is not to be seen, averaged: a click chooses better ones, and a place.
    page.open(f"{address(daemon)}#critic=default&x=0&y=1&others=averaged")
    page.wait("document.querySelectorAll('#worst li').length === 10", "the worst states")
    page.wait("document.getElementById('mode').value === 'average'", "the average")
    page.wait("document.getElementById('path-stream').options.length === 31", "all streams to choose from")
    page.wait("document.getElementById('robots')?.textContent.includes('29 more streams')", "the streams on the map")
    page.wait("document.documentElement.scrollWidth <= 1400", "the width of the screen")
    button = page.run(
        "(li => { li.querySelector('button').click(); return li.textContent; })(document.querySelector('#worst li'))"
    )
    stream, offset = re.findall(r"(robot-\d\d), row ([\d\u202f]+)", button)[0]
    offset = int(offset.replace("\u202f", ""))
    axes = "['axis-x', 'axis-y'].map(id => document.getElementById(id).selectedOptions[0].textContent)"
    when(lambda: page.run(axes) == ["slope", "load"], "better axes")
    page.wait("document.getElementById('mode').value === 'slice'", "a slice")
    page.wait("document.getElementById('slice').textContent.startsWith('at position = ')", "the slice")
    out = "(document.getElementById('path-out')?.textContent ?? '')"
    page.wait(f"{out}.replaceAll('\u202f', '').startsWith('row {offset},')", "the row itself, marked")
    offsets = page.run("import('/path.js').then(({pathColumns}) => pathColumns().offset)")
    behind = [each for each in offsets if each > offset]
    assert min(60, (9600 - offset) // 30 - 1) <= len(behind) <= 60, (offset, len(behind))
    # All of them are rows of that robot: every thirtieth.
    assert {each % 30 for each in offsets} == {int(stream[-2:])}
    shoot(page, "thirty-streams")
    assert_clean(page, daemon)


def test_it_is_said_whether_the_last_adoption_helped(start: Start, page: Browser) -> None:
    daemon = start_field(start, "critic.dictionary_max=60", "critic.drift_sensitivity=off")
    field = Field(daemon, dim=3)
    page.open(address(daemon))
    page.wait("document.getElementById('trust-adopted')", "the page")
    hidden(page, "trust-adopted")

    def go_on(condition: str, what: str) -> None:
        def sent_and_true() -> bool:
            # The first model is smooth over the whole range: it cannot follow this.
            field.send(60, lambda states: 3 * np.sin(12 * states[:, 0]))
            time.sleep(0.3)
            return page.holds(condition)

        when(sent_and_true, what)

    page.run("import('/known.js').then(({known}) => { window.known = known; })")
    go_on("window.known.calibration[0]?.[0].generations.length", "returns")
    # Rows that are learned after the adoption would have returns since.
    learned(daemon, field.sent)
    assert daemon.control().ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    words = "(document.getElementById('trust-adopted')?.textContent ?? '')"
    page.wait(f"{words}.endsWith('too few returns since to say whether it helped.')", "that it is not known yet")
    # Returns scatter by 0.05 about the truth.
    errors = f"/error ([0-9.]+) since, ([0-9.]+) before/.exec({words}).slice(1).map(Number)"
    much = f"(([since, before]) => since < before / 2 && since < 0.6)({errors})"
    go_on(f"{words}.includes('it has helped') && {much}", "that it has helped")
    mark = "document.querySelector('#marks [data-kind=adopted]').textContent"
    page.wait(f"{mark}.includes(' before: it has helped')", "the same beside the mark")
    shoot(page, "adoption-helped")
    assert_clean(page, daemon)


def test_the_page_counts_down_to_models_and_says_what_was_shown(start: Start, page: Browser) -> None:
    daemon = start_field(start, "critic.drift_sensitivity=off")
    field = Field(daemon, dim=3)
    field.send(100, lambda states: states[:, 0])
    page.open(address(daemon))
    page.wait("document.getElementById('view')?.hidden === false", "a model")
    # Here models are selected on request alone, and no demo runs.
    hidden(page, "trust-next", "ended")
    # At one moment, so that no news come between.
    said = page.run("""(async () => {
        const [{ critic, known }, { trust }] = [await import('/known.js'), await import('/trust.js')];
        const { offset, recent_streams } = known.status;
        const time = recent_streams.field.last_seen;
        known.status.time = time;
        const words = (refit, status = {}) => {
            Object.assign(critic().refit, refit);
            Object.assign(known.status, status);
            trust();
            return document.getElementById('trust-next').textContent;
        };
        known.ended = 'The demo has ended. It was short.';
        return [
            words({ running: false, next_at: offset + 300, started: 1, last: { seconds: 10 } }, { rows_per_second: 10 }),
            words({}, { rows_per_second: 1e-9 }),
            words({}, { rows_per_second: 10, time: time + 60 }),
            words({ next_at: offset }, { time }),
            words({ running: true, started: 2, spent: null }),
            words({ spent: 0.43 }, { time: time + 4 }),
            words({ spent: 1 }, { time: time + 12 }),
            document.getElementById('ended').textContent,
        ];
    })()""")
    assert said == [
        "The next model is selected after 300 more rows, in about 30 s.",
        "The next model is selected after 300 more rows.",
        "The next model is selected after 300 more rows.",
        "A model is due to be selected, and waits for its turn.",
        "A model is being selected: 0 s so far, about 10 s left if it takes as long as the last one.",
        "A model is being selected, 43 % of its budget spent: 4 s so far, about 6 s left if it takes as long as the last one.",
        "A model is being selected, 100 % of its budget spent: 12 s so far.",
        "The demo has ended. It was short.",
    ]
    # A line is broken where nothing has come, an episode ended or began, and nowhere else.
    pieces = "import('/strip.js').then(({pieces}) => pieces(%s))"
    silent = {"seconds": [-9.0, -8.9, -8.8, -1.0, -0.9, -0.8], "end": [0] * 6, "starts": [0] * 6}
    assert page.run(pieces % silent) == [[0, 2], [3, 5]]
    assert page.run(pieces % {**silent, "end": [0, 0, 0, 0, 1, 0]}) == [[0, 2], [3, 4], [5, 5]]
    slow = {"seconds": [-50, -40, -30, -20, -10, 0], "end": [0] * 6, "starts": [0] * 6}
    assert page.run(pieces % slow) == [[0, 5]]
