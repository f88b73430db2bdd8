"""The dashboard in a real browser. Without Chromium (Debian's package `chromium`) these tests are skipped, loudly."""

from __future__ import annotations

import math
import os
import re
import resource
import threading
import time
from collections.abc import Callable

import browser
import numpy as np
import pytest
from browser import Browser
from client import PATIENCE_S, Array, Daemon, Refused, pack, settles, when
from conftest import Start
from dashboard import (
    HEARD,
    PRINT,
    Field,
    Walk,
    address,
    assert_clean,
    choose,
    hidden,
    point,
    point_until,
    says,
    shoot,
    shown,
    start_field,
    start_walk,
)
from packages import package
from peers import free_port

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)


def test_the_page_follows_what_is_learned(start: Start, page: Browser) -> None:
    daemon = start_walk(start, settings=["alarm={below=-1.0,false_alarms=0.1}"])
    page.open(address(daemon))
    # Nothing there yet: it says what to do, with the daemon's own endpoint.
    page.wait("document.getElementById('empty-title')?.textContent === 'No rows yet'", "the empty state")
    assert daemon.endpoints["ingest"] in page.run("document.getElementById('empty-text').textContent")
    # The example has states of as many numbers as the settings say.
    assert "sender.send([0.0, 0.0, 0.0], -1.0" in page.run("document.getElementById('empty-code').textContent")
    shoot(page, "empty")

    walk = Walk(daemon)
    walk.send(20)
    page.wait(
        "document.getElementById('empty-title').textContent === '20 of 32 rows'", "the rows until the first model"
    )
    walk.send(20)
    page.wait(f"{PRINT}('map-value') !== {PRINT}('map-deviation')", "a first heat map")
    says(page, "model", "alarm", "more at or above it must come first")
    hidden(page, "empty")
    shown(page, "deviation-card")

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
    control.wait_for_learned(600)
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    page.wait("document.querySelector('#marks [data-kind=adopted]')", "the mark of the adoption")
    page.wait("document.querySelector('#marks [data-kind=adopted] .details').textContent.includes('→')", "its changes")
    text = page.run("document.querySelector('#marks [data-kind=adopted]').textContent")
    assert "Generation 2 adopted" in text and "lengthscale" in text and "held-out returns" in text
    assert "held-out errors: " in text and "λ 0 " in text
    page.run("document.getElementById('time-more').open = true")
    # Held-out returns have selected the model: their error is shown, and no place is left for an evidence that is none.
    lines = "[...document.querySelectorAll('.line:not([hidden]) h3')].map(h => h.textContent)"
    page.wait(f"{lines}.some(line => /^Held-out error0[.]/.test(line))", "the error of the selection")
    assert not page.run(f"{lines}.some(line => line.startsWith('Log evidence'))")
    says(page, "model-details", "held-out error")
    # The alarm can be raised, and has a record.
    says(page, "model", "raised", "of the other returns, 10 % asked for")
    widths = "[...document.querySelectorAll('#relevance .track i')].map(bar => parseFloat(bar.style.width))"
    page.wait(f"{widths}[0] > 80 && {widths}[1] < 20 && {widths}[2] < 20", "what matters most")
    page.wait("document.getElementById('calibration-text').textContent.includes('90 % interval')", "a calibration")
    shoot(page, "adopted")

    # Whoever does not see the pictures hears what they show, and everything that can be set has a name.
    unnamed = """[...document.querySelectorAll('canvas, button, select, input')].filter(e => e.offsetHeight > 0 &&
        !(e.getAttribute('aria-label') || e.closest('label')?.textContent.trim() || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    assert page.run(unnamed) == []

    # Somebody points at the map: numbers, at that place.
    numbers = "/angle .*: value .* ± .* % known/.test(document.getElementById('map-value-out').textContent)"
    point_until(page, "map-value", 0.5, 0.67, numbers, "the numbers there")
    # The same place is marked on all other maps.
    page.run("import('/value.js').then(({linkedMaps}) => { window.linkedMaps = linkedMaps; })")
    point_until(page, "map-value", 0.5, 0.67, "linkedMaps() >= 2", "the same place elsewhere")
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

    for x, y in [("2", "1"), ("1", "0"), ("0", "2")]:
        before = page.run(f"{PRINT}('map-value')")
        choose(page, "axis-x", x)
        choose(page, "axis-y", y)
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
    choose(page, "axis-y", "")
    page.wait("document.getElementById('maps').classList.contains('single')", "a curve")
    hidden(page, "deviation-card")
    shoot(page, "curve")
    # The history is there although the page was opened late.
    page.wait("document.querySelectorAll('.line canvas').length === 12", "the time lines")
    page.run("document.getElementById('time-more').open = true")
    lines = "[...document.querySelectorAll('.line:not([hidden]) h3')].map(h => h.textContent)"
    page.wait(f"{lines}.some(line => line.startsWith('Log score') && line.includes('nats'))", "numbers beside them")
    # Light and dark.
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.run("document.getElementById('theme').click()")
    page.wait(f"{ground} !== '{light}'", "another ground")
    page.open(address(daemon))
    page.wait(
        f"document.querySelectorAll('.line canvas').length === 12 && {ground} !== '{light}'",
        "the theme that was chosen",
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
    rows = "[...document.querySelectorAll('.relevance-row')].map(row => row.textContent)"
    page.wait(f"{rows}.some(row => /^state 1\\d+ % lengthscale 1[.]73/.test(row))", "the length along the circle")
    page.wait(f"{rows}.some(row => /^state 2\\d+ % category/.test(row))", "the category")
    page.wait(f"{rows}.some(row => /^state 0.* lengthscale 1[.]/.test(row))", "the other")
    says(page, "model-plain", "state 1 repeats after 6.28.")
    says(page, "model", "ard, matern52")
    # Nothing has been selected: neither an evidence nor an error has a place.
    assert "evidence" not in page.run("document.getElementById('model').textContent")
    # Time lines are drawn after the rest.
    page.wait("document.querySelectorAll('.line:not([hidden])').length === 10", "the time lines")
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
    control.wait_for_learned(sent)
    # The first selection: from here on it is known how large errors are.
    control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)
    for _ in range(60):
        feed(100, 1.0)
    control.wait_for_offset(sent)
    page.open(address(daemon))
    level = "document.getElementById('trust')?.dataset.level"
    feed(200, 1.0)
    page.wait(f"['good', 'wait'].includes({level})", "a line that is not amber")
    assert not page.run("document.querySelector('#marks [data-kind=drift]')")

    # Just enough rows for the alarm: the second model has too few to take over.
    while control.ask("status")["critics"][0]["drift"]["alarms"] == 0:
        assert sent < 16_000, "no alarm"
        feed(50, -1.0)
        # Alarms come with what is learned.
        control.ask("value", states=[[0.0]], min_offset=sent)
    # Returns that contradict the model may turn the line amber before the alarm is heard of.
    why = "document.getElementById('trust-why').textContent"
    page.wait(f"{level} === 'warn' && {why}.includes('lower than predicted')", "an amber line")
    says(page, "trust-why", "since row 1", "second model")
    # A shape beside the colour.
    page.wait("document.getElementById('trust-sign').textContent === '▲'", "a shape")
    shoot(page, "drift")
    mark = "document.querySelector('#marks [data-kind=drift]')?.textContent"
    page.wait(f"{mark}?.includes('The world has changed')", "the mark of the change")

    # Rows go on, and a model of what is now answers: the line no longer says that the world has changed.
    changed = "document.getElementById('trust-why').textContent.includes('lower than predicted, probably since')"

    def is_over() -> bool:
        feed(200, -1.0)
        control.ask("value", states=[[0.0]], min_offset=sent)
        time.sleep(0.2)
        return not page.run(changed)

    when(is_over, "that it has not changed since")
    swaps = "[...document.querySelectorAll('#marks [data-kind=adopted]')].map(mark => mark.textContent)"
    page.wait(f"{swaps}.some(text => text.includes('the second model has taken over'))", "the mark of the swap")
    assert_clean(page, daemon)


def test_a_planted_error_is_among_the_worst_states_and_a_click_goes_there(start: Start, page: Browser) -> None:
    # Twelve states cannot carry a narrow spike.
    daemon = start_field(start, "critic.dictionary_max=12", "critic.drift_sensitivity=off")
    field = Field(daemon, dim=3)
    corner = np.array([0.75, 0.2])

    def reward(states: Array) -> Array:
        spike = (np.abs(states[:, :2] - corner) < 0.08).all(axis=1)
        return states[:, 0] + 6.0 * spike

    page.open(address(daemon))
    for _ in range(30):
        field.send(200, reward)
    daemon.control().wait_for_offset(field.sent)
    worst = "[...document.querySelectorAll('#worst li')]"
    page.wait(f"{worst}.length === 10", "the worst states")
    texts = f"{worst}.map(li => li.querySelector('button').textContent)"
    page.wait(f"{worst}.some(li => Number(li.dataset.error) > 2)", "the planted error")

    def place(words: str) -> dict[str, float]:
        """A worst state by the names of its variables."""
        pairs = re.findall(r"([a-z]+) ([−0-9.]+)", words)
        return {name: float(value.replace("−", "-")) for name, value in pairs}

    def is_first() -> bool:
        first = place(page.run(f"{texts}[0]"))
        near = abs(first["position"] - corner[0]) < 0.13 and abs(first["slope"] - corner[1]) < 0.13
        return near and "higher than predicted" in page.run(f"{worst}[0].textContent")

    # The page was open before: its first list may be about a part of the rows.
    when(is_first, "the planted error as the first")
    page.wait("!document.getElementById('error-card').hidden", "the map of errors")
    shoot(page, "worst")

    # A click puts the other variables where that state has them, and shows the rows around it.
    button = f"{worst}[0].querySelector('button')"
    first = place(page.run(f"(button => {{ button.click(); return button.textContent; }})({button})"))

    def others_stand_there() -> bool:
        axes = page.run("['axis-x', 'axis-y'].map(id => document.getElementById(id).selectedOptions[0].textContent)")
        others = page.run("document.getElementById('others-summary').textContent")
        return all(name in axes or f"{name} {value:g}" in others for name, value in first.items())

    when(others_stand_there, f"the other variables as in {first}")
    page.wait("!document.getElementById('path-live').hidden", "the rows around it")
    page.wait("document.getElementById('path-note').textContent.includes(' about row ')", "whose rows")
    assert_clean(page, daemon)


def test_a_planted_bias_is_seen_over_time(start: Start, page: Browser) -> None:
    # Trackers would follow the shift within a few rows; under white noise there are none.
    daemon = start_field(start, "critic.dictionary_max=30", "critic.drift_sensitivity=off", "critic.noise=white")
    field = Field(daemon, dim=3)
    page.open(address(daemon))
    line = "[...document.querySelectorAll('.line h3')].map(h => h.textContent).find(text => text.startsWith('Bias'))"

    def bias() -> float:
        found = re.search(r"Bias([−0-9.]+)(?:·10(⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]+))? ", page.run(line) or "")
        if not found:
            return math.nan
        return 0.0 if found[2] else float(found[1].replace("−", "-"))

    def feed_until(condition: Callable[[], bool], what: str, shift: float) -> None:
        def sent_and_true() -> bool:
            field.send(100, lambda states: states[:, 0] + shift)
            time.sleep(0.1)
            return condition()

        when(sent_and_true, what)

    control = daemon.control()
    field.send(600, lambda states: states[:, 0])
    control.wait_for_learned(field.sent)
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    feed_until(lambda: abs(bias()) < 0.1, "no bias", 0.0)
    level = "document.getElementById('trust').dataset.level"
    page.wait(f"{level} === 'good'", "a green line")
    page.wait("document.getElementById('trust-line').textContent.includes('Returns were predicted to within')", "how right")
    seconds = "import('/known.js').then(({series}) => series('bias').length)"
    good = page.run(seconds)
    # From here on returns are higher by 3. The model weighs all rows alike and follows slowly.
    # A batch has 4096 rows at most.
    for _ in range(2):
        field.send(2500, lambda states: states[:, 0])
    page.wait(f"{seconds.replace('length', f'length > {good}')}", "some seconds of it")
    shifted = page.run(seconds)
    feed_until(lambda: bias() > 1.0, "the bias", 3.0)
    # The curve of it: flat about zero, and then far above.
    curve = page.run("import('/known.js').then(({series}) => series('bias'))")
    flat = [value for value in curve[good - 1 : shifted] if value is not None]
    assert flat and max(map(abs, flat)) < 0.3, curve
    page.wait("import('/known.js').then(({series}) => series('bias').at(-1) > 1)", "the end of the curve")
    why = "document.getElementById('trust-why').textContent.toLowerCase()"
    page.wait(f"{level} === 'warn' && {why}.includes('values are too low by')", "an amber line")
    page.run("document.getElementById('groups').open = true")
    biases = "[...document.querySelectorAll('#by-value tr')].slice(1).map(row => row.children[2].textContent)"
    page.wait(f"{biases}.some(text => /^[+][0-9.]+$/.test(text) && Number(text) > 0.5)", "a group that is too low")
    shoot(page, "bias")
    assert_clean(page, daemon)


def test_the_trajectory_shows_what_was_predicted_and_what_came(start: Start, page: Browser) -> None:
    daemon = start(
        "critic.discount=0.5", "critic.refit_first_rows=0", config='state_dim = 2\nstate_names = ["place", "time"]\n'
    )
    push, sent = daemon.push(), 0
    # Episodes of 20 steps; the reward is 1 at the last one: the value rises towards it.
    steps = np.arange(21.0)
    episode = {
        "states": np.stack([np.sin(steps / 5), steps], axis=1),
        "rewards": (steps[:-1] == 19).astype(float),
        "terminated": steps[:-1] == 19,
    }
    for _ in range(40):
        push.send(pack({"stream": "arm", "seq": sent, **episode}))
        sent += 20
    daemon.control().wait_for_offset(sent)
    page.open(address(daemon))
    note = "(document.getElementById('path-note')?.textContent ?? '')"
    page.wait(f"{note}.includes(' rows of arm')", "the trajectory")
    choose(page, "path-rows", "400")
    page.wait(f"{note}.startsWith('400 rows of arm') && {note}.endsWith('of 100 %')", "its last rows")
    # Somebody points at it, by key: the newest row ends an episode.
    page.run("document.getElementById('path').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    out = "document.getElementById('path-out').textContent"
    page.wait(f"/return 1 .*reward 1 .*the episode terminated/.test({out})", "its last row")
    for _ in range(2):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    page.wait(f"/return 0[.]25 .*reward 0 /.test({out})", "two rows before")
    # The pointer on the map finds a row of the trajectory, and the place there is pointed out.
    page.run("document.getElementById('path').blur()")
    shoot(page, "trajectory")

    def is_found() -> bool:
        for k in range(60):
            point(page, "map-value", 0.12 + 0.7 * k / 60, 0.5)
            time.sleep(0.05)
            if page.run(out).startswith("row "):
                return True
        return False

    when(is_found, "a row at the pointer")
    assert_clean(page, daemon)


def test_an_address_leads_to_what_was_shown_and_numbers_can_be_saved(start: Start, page: Browser) -> None:
    daemon = start_walk(start)
    walk = Walk(daemon, seed=7)
    for _ in range(20):
        walk.send(20)
    view = "critic=default&x=2&y=0&at=0,1.25,0&span=7200"
    page.open(f"{address(daemon)}#{view}")
    axes = "['axis-x', 'axis-y'].map(id => document.getElementById(id).value).join()"
    page.wait(f"document.getElementById('axis-x')?.options.length === 3 && {axes} === '2,0'", "the axes of the address")
    page.wait("document.getElementById('slice').textContent === 'at speed = 1.25'", "where the third stands")
    page.wait("document.querySelector('#spans [aria-pressed=true]').textContent === '2 h'", "the span of the address")
    # What is chosen later is in the address.
    page.run("document.getElementById('swap').click()")
    page.wait("location.hash.includes('x=0&y=2&at=')", "the new address")

    # The picture and its numbers as files.
    page.run(
        "window.saved = []; window.bodies = []; const blobs = URL.createObjectURL;"
        "URL.createObjectURL = blob => { blob.text().then(text => bodies.push(text)); return blobs.call(URL, blob); };"
        "HTMLAnchorElement.prototype.click = function () { saved.push(this.download); }; 0"
    )
    page.wait("document.getElementById('path-note').textContent.includes('rows of walk')", "the trajectory")
    page.run("[...document.querySelectorAll('#path-save button')].forEach(button => button.click())")
    page.wait("saved.includes('trajectory.csv') && saved.includes('trajectory.png')", "two files")
    page.wait("bodies.some(text => /^offset,(seconds,)?angle,temperature,value,deviation,/.test(text))", "the numbers")

    # Paused, the page stands still while the daemon goes on.
    page.run("document.getElementById('pause').click()")
    before = page.run("document.getElementById('vitals').textContent")
    walk.send(40)
    daemon.control().wait_for_offset(walk.sent)
    time.sleep(2.5)
    assert page.run("document.getElementById('vitals').textContent") == before
    page.run("document.getElementById('pause').click()")
    page.wait(f"document.getElementById('vitals').textContent.startsWith('rows{walk.sent}')", "that it follows again")


def test_rows_that_are_refused_turn_the_line_amber(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=9).send(100)
    page.open(address(daemon))
    page.wait("['wait', 'good'].includes(document.getElementById('trust')?.dataset.level)", "the line")
    daemon.push().send(pack({"stream": "other", "seq": 0, "states": np.zeros((3, 5)), "rewards": np.zeros(2)}))
    page.wait("document.getElementById('trust').dataset.level === 'warn'", "an amber line")
    # The event that says why may be taken in after the status that counts it.
    why = "document.getElementById('trust-why').textContent"
    for words in ("wrong_dimension from other", "1 message was refused", "sender of other", "criticd reset"):
        page.wait(f"{why}.includes('{words}')", words)
    assert_clean(page, daemon)


def test_a_checkpoint_that_fails_turns_the_line_amber_until_one_is_written(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=9).send(100)
    page.open(address(daemon))
    page.wait("['wait', 'good'].includes(document.getElementById('trust')?.dataset.level)", "the line")
    control, data = daemon.control(), daemon.directory / "data"
    control.ask("checkpoint")
    (checkpoint,) = data.glob("checkpoint-*")
    limit = checkpoint.stat().st_size // 2
    assert limit > 4 * (data / "journal.sqlite-wal").stat().st_size, "there is room for rows"
    control.ask("append", stream="other", seq=0, states=np.eye(2), rewards=np.zeros(1))
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    with pytest.raises(Refused, match="could not be written"):
        control.ask("checkpoint")
    why = "document.getElementById('trust-why').textContent"
    page.wait(f"{why}.includes('No checkpoint can be written: ')", "why it is amber")
    page.wait("document.getElementById('trust').dataset.level === 'warn'", "an amber line")
    page.wait(f"{why}.includes('Mend the cause')", "what to do")
    reason = control.ask("status")["journal"]["checkpoint_failure"]
    when(lambda: reason in page.run(why), reason)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    control.ask("append", stream="other", seq=1, states=np.eye(2), rewards=np.zeros(1))
    control.ask("checkpoint")
    page.wait("document.getElementById('trust').dataset.level !== 'warn'", "that it is well again")
    assert_clean(page, daemon)


def test_deleted_files_call_for_no_restart(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=9).send(100)
    page.open(address(daemon))
    page.wait("['wait', 'good'].includes(document.getElementById('trust')?.dataset.level)", "the line")
    data = daemon.directory / "data"
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (data / name).rename(daemon.directory / name)
    page.wait("document.getElementById('trust').dataset.level === 'bad'", "a red line")

    def is_said_once() -> None:
        words = page.run("document.getElementById('trust-why').textContent")
        assert "was deleted or replaced" in words, words
        assert words.count("Do not stop") == 1 and "then restart" not in words, words

    settles(is_said_once)
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (daemon.directory / name).rename(data / name)
    assert_clean(page, daemon)


def test_axe_finds_nothing_serious(start: Start, page: Browser) -> None:
    daemon = start_walk(start)
    walk = Walk(daemon, seed=11)
    for _ in range(20):
        walk.send(20)
    script = (package("axe-core", "4.11.1") / "axe.min.js").read_text()
    for dark in (False, True):
        page.size(1400, 900, dark=dark)
        page.open(address(daemon))
        page.wait("document.querySelectorAll('#worst li').length > 0", "the page")
        page.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
        page.run(f"{script}; 0")
        found = page.run("axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html)]))")
        assert [each for each in found if each[0] in ("serious", "critical")] == []
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
    hidden(page, "head-choice")
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
    shown(page, "head-choice")
    page.wait("document.getElementById('model').textContent.includes('0.9')", "its discount")
    assert_clean(page, daemon)


def test_a_state_of_one_number_is_a_curve(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=1)
    walk = Walk(daemon, dim=1, seed=2)
    for _ in range(15):
        walk.send(20)
    page.open(address(daemon))
    page.wait("document.getElementById('maps')?.classList.contains('single')", "a curve")
    page.wait("document.getElementById('axis-y-label').hidden", "no second axis")
    page.wait("document.getElementById('map-value').getAttribute('aria-label').startsWith('Value of')", "what it shows")
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
    page.wait(width, "the width of the screen")
    walk = Walk(daemon, seed=3)
    for _ in range(20):
        walk.send(20)
    control = daemon.control()
    control.wait_for_learned(walk.sent)
    control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)
    # Names of others' making are as long as they like.
    daemon.push().send(pack({"stream": "x" * 200, "seq": 0, **walk.rows(20)}))
    page.wait("document.querySelector('#marks [data-kind=adopted]')", "the page")
    page.wait("document.getElementById('streams')?.textContent.includes('xxx')", "the long name")
    page.wait(width, "the width of the screen")
    wide = """[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 391)
        .map(e => e.id || e.tagName)
        .filter(e => !['TABLE', 'TR', 'TD', 'TH', 'THEAD', 'streams', 'CODE', 'empty-code'].includes(e))"""
    page.wait(f"{wide}.length === 0", "nothing that is wider")
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
    # Ports that nobody else is given while there is no daemon.
    endpoints = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("ingest", "control", "publish")}
    endpoints["http"] = f"127.0.0.1:{free_port()}"
    daemon = start_walk(start, dim=2, endpoints=endpoints)
    Walk(daemon, dim=2).send(200)
    page.open(address(daemon))
    page.wait(
        "document.getElementById('live')?.dataset.state === 'live' && !document.getElementById('view').hidden",
        "the page",
    )
    daemon.terminate()
    page.wait("document.getElementById('live').dataset.state === 'lost'", "that it is gone")
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


def flooded(start: Start, rows: int) -> tuple[Daemon, Flood]:
    """A daemon that has taken so many rows, and takes as many as it can."""
    quiet = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "window_rows=50000")
    # Nor is it cut off within a message, which would be lost, where this process stands still.
    daemon = start("critic.discount=0.9", "critic.dictionary_max=200", "limits.stall_timeout_ms=600000", *quiet)
    flood = Flood(daemon)
    flood.start()
    daemon.control().wait_for_offset(rows)
    return daemon, flood


SEEN = "document.querySelectorAll('#relevance .relevance-row').length === 4"

# Characters of a message about one critic with four variables, whatever the rate is.
MESSAGE_MAX = 16_000


def test_news_stay_small_and_in_order_at_full_speed(start: Start, page: Browser) -> None:
    """What a page costs the stream is measured by benches/page.py."""
    daemon, flood = flooded(start, 10_000)
    page.call("Page.addScriptToEvaluateOnNewDocument", source=HEARD)
    page.open(address(daemon))
    page.wait(SEEN, "the page")
    page.wait("heard.length > 8", "news")
    flood.stop()
    numbers, sizes = zip(*page.run("heard"), strict=True)
    assert all(np.diff(numbers) >= 1), numbers
    assert max(sizes) < MESSAGE_MAX, sizes
    # The page has missed nothing that counts: it shows the last row. What was sent last is still on its way.
    total = 256 * flood.sent
    assert daemon.control().wait_for_offset(total)["offset"] == total
    page.wait(f"import('/known.js').then(({{known}}) => known.status.offset === {total})", "all rows")
    assert_clean(page, daemon)


@pytest.mark.nightly
@pytest.mark.long
def test_a_page_left_open_does_not_grow(start: Start, page: Browser) -> None:
    """Memory of page and daemon at full speed. CRITICD_SOAK_S sets for how long."""
    seconds = float(os.environ.get("CRITICD_SOAK_S", "60"))
    # Until the window is full, its memory grows.
    daemon, flood = flooded(start, 100_000)
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
    # Memory of an adoption comes and goes: what stays is what grows.
    assert sorted(resident[5:])[2] < 1.2 * max(resident[:5]) + 10
    assert_clean(page, daemon)
