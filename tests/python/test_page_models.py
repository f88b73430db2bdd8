"""What the page says of models: whose judgement it shows, which two it compares, and what it knows of one behind "details"."""

from __future__ import annotations

import re
import subprocess
import sys

import browser
import numpy as np
import pytest
from browser import Browser
from client import PATIENCE_S, pack, settles, when
from conftest import Start
from dashboard import (
    KEEP,
    Field,
    Walk,
    address,
    assert_clean,
    choose,
    hidden,
    history,
    learned,
    says,
    shoot,
    shown,
    start_walk,
    text,
)

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)
QUIET = 'refit_first_rows = 0\nrefit_score_drop = 0.0\ndiscount = 0.5\ndrift_sensitivity = "off"\n'
ASKED = "performance.getEntriesByType('resource').map(entry => entry.name).filter(name => name.includes('/api/map'))"


def test_the_daemon_alone_judges_which_critics_need_attention(start: Start, page: Browser) -> None:
    critics = "".join(f'[[critic]]\nname = "{name}"\n{QUIET}' for name in ("near", "far"))
    daemon = start(config=f"state_dim = 1\n{critics}")
    field = Field(daemon, dim=1)
    field.send(200, lambda states: states[:, 0])
    page.open(address(daemon))
    page.wait("document.getElementById('view')?.hidden === false", "the page")
    # A message that is refused is a reason for care about every value, and about no critic of its own.
    daemon.push().send(pack({"stream": "other", "states": np.zeros((5, 3)), "rewards": np.zeros(4)}))
    page.wait("document.getElementById('trust').dataset.level === 'warn'", "an amber line")
    said = "import('/known.js').then(({known}) => JSON.stringify(known.status.critics.map(each => each.trust[0].reasons)))"
    when(lambda: "of" in page.run(said), "reasons")
    hidden(page, "attention")
    concerns = (
        "import('/attention.js').then(({concerns, rank}) => [concerns(%s), rank(%s)])"  # of one critic
    )
    reason = "{level: '%s', of: '%s', text: 'values are too low', remedy: ''}"
    critic = "{name: 'gone', trust: [{reasons: [%s]}, {reasons: [%s]}]}"

    def found(level: str, of: str) -> list[object]:
        each = critic % ((reason % (level, of),) * 2)
        return page.run(concerns % (each, each))

    assert found("warn", "critic") == [["values are too low"], 0]
    assert found("bad", "critic") == [["values are too low"], 3]
    assert found("warn", "daemon") == [[], -1]
    assert_clean(page, daemon)


def test_nothing_is_believed_of_a_daemon_that_does_not_answer(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=16).send(200)
    page.open(address(daemon))
    page.wait("document.getElementById('trust')?.hidden === false", "the line")
    # As if its values had just been found to be right.
    page.run("document.getElementById('pause').click()")
    page.run(
        "import('/known.js').then(({known}) => { Object.assign(known.status.critics[0].trust[0], {level: 'good', sign: '●',"
        " title: 'The values can be believed', sentence: 'Returns were predicted to within 0.4 (rms).'}); })"
    )
    daemon.terminate()
    page.wait("document.body.classList.contains('gone')", "that it is gone")
    page.wait("document.getElementById('trust').dataset.level === 'wait'", "a neutral line")

    def believes_nothing() -> None:
        line = text(page, "trust-line")
        assert re.match(r"As of \d\d:\d\d; the daemon does not answer\. It last said: ", line), line
        assert "can be believed" not in line and text(page, "trust-sign") == "○"
        assert "does not answer" in text(page, "trust-said")

    settles(believes_nothing)


def test_a_difference_is_hatched_where_either_model_does_not_know(start: Start, page: Browser) -> None:
    # The states of one critic are used up on one side.
    critics = "".join(f'[[critic]]\nname = "{name}"\ndictionary_max = {most}\n{QUIET}' for name, most in [("wide", 400), ("few", 8)])
    daemon = start(config=f'state_dim = 2\nstate_names = ["place", "load"]\n{critics}')
    push, control, generator = daemon.push(), daemon.control(), np.random.default_rng(3)
    for k, low in enumerate((0.0, 7.0)):
        states = np.stack([generator.uniform(low, low + 3, 500), generator.uniform(0, 1, 500)], axis=1)
        batch = {"states": states, "next_states": states, "rewards": states[:, 0], "terminated": np.ones(500, bool)}
        push.send(pack({"stream": "arm", "seq": 500 * k, **batch}))
        control.wait_for_offset(500 * (k + 1))
    # Models and ranges that are shown follow what is learned.
    control.ask("value", states=np.zeros((1, 2)), critics=["wide", "few"], min_offset=1000)
    when(lambda: (history(daemon)["states"]["high"] or [0])[0] > 9, "the range")
    page.open(f"{address(daemon)}#critic=wide&x=0&y=1&against=critic+few")
    page.wait("document.getElementById('difference-note')?.textContent.includes('root mean square')", "the difference")
    fades = "import('/value.js').then(({veils}) => veils().map(veil => [0.15, 0.85].map(at => veil.at(at, 0.5))))"
    page.wait("import('/value.js').then(({veils}) => veils().every(Boolean))", "what is known")
    unknown = 0.494

    def is_hatched_on_one_side() -> None:
        of_shown, of_other, of_difference = page.run(fades)
        assert of_shown[0] < unknown and of_shown[1] < unknown, of_shown
        assert of_other[0] < unknown < of_other[1], of_other
        assert of_difference[0] < unknown < of_difference[1], of_difference

    settles(is_hatched_on_one_side)
    shoot(page, "compared-unknown")
    assert_clean(page, daemon)


def test_two_earlier_models_are_compared(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk, control = Walk(daemon, dim=2, seed=13), daemon.control()

    def refit_is_adopted() -> bool:
        for _ in range(15):
            walk.send(20)
        learned(daemon, walk.sent)
        # Those models are kept that the watcher of the page has seen.
        generation = control.ask("status")["critics"][0]["generation"]
        when(lambda: generation in history(daemon)["kept"]["generations"][0], "a model that is kept")
        return control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"

    # A model of few rows more may be no better than the last one, and is refused.
    for generation in (2, 3):
        assert any(refit_is_adopted() for _ in range(10)), f"no generation {generation}"
    page.open(f"{address(daemon)}#critic=default&x=0&y=1")
    page.wait("document.querySelector('#against option[value=\"generation 2\"]')", "the earlier models")
    choose(page, "against", "generation 2")
    page.wait("document.getElementById('difference-note')?.textContent.includes('root mean square')", "the difference")
    # Of an earlier model no deviation is kept: it does not know where no element of its dictionary is near.
    page.wait("import('/value.js').then(({veils}) => new Set(veils()[1].values).size <= 2)", "where nothing is near")
    choose(page, "shown", "1")
    page.wait(f"{ASKED}.some(name => /of=1(&|$)/.test(name)) && {ASKED}.some(name => /of=2(&|$)/.test(name))", "both")
    page.wait("document.getElementById('value-note').textContent === 'of generation 1'", "the first on the left")
    page.wait("document.getElementById('other-title').textContent === 'Generation 2'", "the second on the right")

    def others_are_offered() -> None:
        offers = page.run("[...document.querySelectorAll('#against option')].map(option => option.textContent)")
        assert "the present model" in offers and "generation 1" not in offers, offers

    settles(others_are_offered)
    page.wait("/generation=1&against=generation.2/.test(location.hash)", "the address")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('value-note')?.textContent === 'of generation 1'", "the same view")
    page.wait("document.getElementById('other-title').textContent === 'Generation 2'", "beside the same")
    shoot(page, "compared-earlier")
    choose(page, "shown", "")
    page.wait("document.getElementById('value-note').textContent === 'of generation 3'", "the present one")
    assert_clean(page, daemon)


def test_the_value_of_a_moment_is_shown_beside_the_present_one(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=13)
    for _ in range(30):
        walk.send(20)
        # A group for each message: a past ends where a group does.
        learned(daemon, walk.sent)
    page.open(f"{address(daemon)}#critic=default&x=0&y=1")
    page.wait("document.querySelector('#shown option[value=then]')", "the choice of a moment")
    hidden(page, "then-choice")
    choose(page, "shown", "then")
    shown(page, "then-choice")
    page.wait("document.getElementById('other-title').textContent === 'The present model'", "the present model beside it")

    def look(rows: int) -> None:
        # As a reader who lets the slider go.
        slide = f"slider.value = {rows}; slider.dispatchEvent(new Event('input')); slider.dispatchEvent(new Event('change'))"
        page.run(f"(slider => {{ {slide} }})(document.getElementById('then'))")

    look(400)
    page.wait(f"{ASKED}.some(name => /of=then%3A400(&|$)/.test(name))", "the question")
    page.wait("document.getElementById('value-note').textContent.startsWith('of generation')", "the model of then")
    page.wait("document.getElementById('difference-note')?.textContent.includes('root mean square')", "the difference")
    says(page, "then-out", "row 400")
    shoot(page, "compared-then")
    page.wait("/then=400/.test(location.hash)", "the address")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('shown')?.value === 'then'", "the same view")
    page.wait("document.getElementById('value-note').textContent.startsWith('of generation')", "the same model")
    assert_clean(page, daemon)
    look(0)
    page.wait("/had no model then/.test(document.getElementById('value-note').textContent)", "why there is none")
    choose(page, "shown", "")
    hidden(page, "then-choice")
    page.wait("!document.getElementById('value-note').textContent.includes('generation')", "the present one")


def test_over_one_variable_errors_are_a_curve_with_a_dot_for_each_state(start: Start, page: Browser) -> None:
    # Twelve states cannot carry a narrow spike.
    quiet = ("critic.refit_first_rows=0", "critic.discount=0.5", "critic.dictionary_max=12", "critic.drift_sensitivity=off")
    daemon = start(*quiet, config='state_dim = 1\nstate_names = ["place"]\nreward_names = ["cost [J]"]\n')
    field = Field(daemon, dim=1)
    page.open(address(daemon))
    for _ in range(10):
        field.send(200, lambda states: states[:, 0] + 6.0 * (np.abs(states[:, 0] - 0.75) < 0.03))
    learned(daemon, field.sent)
    page.wait("document.getElementById('maps')?.classList.contains('single')", "a curve")
    page.wait("document.getElementById('error-card').offsetHeight > 0", "the errors")
    page.wait("document.getElementById('error-note').textContent.endsWith('dots: single ones')", "dots")
    read = f"""(share => {{
        const canvas = document.getElementById('map-error'), {{left, top, width, height}} = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent('pointermove', {{bubbles: true, clientX: left + share * width, clientY: top + height / 2}}));
        return document.getElementById('map-error-out').textContent; }})"""
    page.run("document.getElementById('error-card').scrollIntoView({block: 'center'})")
    place = r"place ([0-9.]+): returns ([0-9.]+) J (higher|lower) than predicted · mean of "

    def is_off_at_the_spike() -> bool:
        errors = {}
        for k in range(60):
            page.run(f"{read}({0.06 + 0.9 * k / 60})")
            page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            if found := re.match(place, text(page, "map-error-out")):
                errors[float(found[1])] = float(found[2]) * (1 if found[3] == "higher" else -1)
        worst = max(errors, key=lambda at: abs(errors[at]), default=0.0)
        return len(errors) > 40 and abs(worst - 0.75) < 0.08 and errors[worst] > 1

    # The first answer may be about a part of the rows; there is another one every five seconds.
    when(is_off_at_the_spike, "the error at the spike")
    # Single errors are dots, and there is a file of the means.
    page.run(f"if (!window.saved) {{ {KEEP.removesuffix('; 0')}; }} 0")

    def are_saved() -> None:
        page.run("saved = {}; 0")
        page.run("[...document.querySelectorAll('#map-error-save button')].forEach(button => button.click())")
        page.wait("'error.svg' in saved && 'error.csv' in saved", "files")
        picture = page.run("saved['error.svg']")
        assert picture.count("<circle") + picture.count("<path") > 200
        assert page.run("saved['error.csv']").startswith("place,returns,error,td_error\n")

    settles(are_saved)
    shoot(page, "error-curve")
    assert_clean(page, daemon)


def test_evidence_stands_behind_details_and_the_lists_are_saved(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=5)
    for _ in range(15):
        walk.send(20)
    control = daemon.control()
    control.wait_for_learned(walk.sent)
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    daemon.push().send(pack({"stream": "other", "states": np.zeros((5, 3)), "rewards": np.zeros(4)}))
    page.open(address(daemon))
    page.wait("/log evidence|held-out error/.test(document.getElementById('model-details')?.textContent)", "the evidence")
    assert not re.search("evidence|held-out", text(page, "model")) and not page.run("document.getElementById('model-more').open")
    page.wait("document.querySelector('#findings').children.length > 0", "what the refit found")
    # What speaks to builders is folded behind a sentence each.
    folds = ["worst-fold", "marks-fold", "model-fold", "streams-fold"]
    opened = f"{folds}.map(id => document.getElementById(id).open)"
    assert page.run(opened) == [False] * 4
    says(page, "marks-plain", "; the newest, at ", ": generation 2 adopted")
    says(page, "model-plain", "Made of 300 rows")
    says(page, "streams-plain", "1 stream; the newest rows came ", "1 message was refused.")
    # A key unfolds, and the page remembers.
    page.run("document.querySelector('#marks-fold > summary').focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    page.wait("document.getElementById('marks-fold').open", "the selections")
    page.run("window.before = true; location.reload()")
    page.wait(f"window.before === undefined && {opened}.join() === 'false,true,false,false'", "the same folds anew")
    page.wait("document.querySelector('#findings').children.length > 0", "what the refit found, again")
    page.run("document.querySelector('#model-more summary').click()")
    page.wait("document.getElementById('model-more').open", "the details")
    says(page, "model-details", "log score")
    page.wait("document.querySelector('#rejected td')?.textContent === 'wrong_dimension'", "what was refused")
    page.run(f"{KEEP.removesuffix('; 0')}; 0")

    def are_saved() -> None:
        page.run("saved = {}; 0")
        for part in ("model-save", "rejected-save"):
            page.run(f"document.querySelector('#{part} button').click()")
        page.wait("'model.csv' in saved && 'refused.csv' in saved", "files")
        model = page.run("saved['model.csv']").split("\n")
        assert model[0] == "fact,value,remark" and model[1].startswith("generation,2,"), model
        assert any(line.startswith(("log evidence,", "held-out error,")) for line in model), model
        assert any(line.startswith("finding,") for line in model), model
        assert page.run("saved['refused.csv']") == "reason,messages\nwrong_dimension,1\n"

    settles(are_saved)
    assert_clean(page, daemon)


def test_lines_are_named_and_dashed_and_their_ranges_hold(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=5)
    for _ in range(15):
        walk.send(20)
    page.open(address(daemon))
    page.wait("document.querySelectorAll('.line canvas').length === 12", "the time lines")
    page.run("document.getElementById('time-more').open = true")
    page.wait("document.querySelector('#lines-more .line:not([hidden])').offsetHeight > 0", "all of them")
    page.run(f"{KEEP.removesuffix('; 0')}; 0")

    def missing() -> list[str]:
        """Names that are not in the picture: a line without numbers has none there, and those of the model come with it."""
        page.run("delete saved['over-time.svg']")
        page.run("[...document.querySelectorAll('#time-save button')].find(b => b.textContent === 'SVG').click()")
        page.wait("'over-time.svg' in saved", "a file")
        picture = page.run("saved['over-time.svg']")
        names = ("recent", "since the adoption", "ingest", "calls", "process", "rows kept")
        return [name for name in names if f">{name}</text>" not in picture]

    when(lambda: not missing(), "all names in the picture")
    picture = page.run("saved['over-time.svg']")
    assert picture.count("stroke-dasharray") >= 3
    # Numbers that move within a range, or shrink to half of it, leave it; larger ones and far smaller ones do not.
    ranges = page.run(
        "import('/lines.js').then(({steady}) => { const of = {}; return [[0, 10], [1, 9], [0, 5], [0, 14], [0, 13], [0, 3], [0, 2.8]]"
        ".map(ends => steady(of, 'one', ends)).concat([steady(of, 'two', [0, 0.1])]); })"
    )
    assert ranges[0] == ranges[1] == ranges[2] and ranges[3] == ranges[4], ranges
    assert ranges[3][1] >= 14 and ranges[5][1] < 5 and ranges[5] == ranges[6] and ranges[7][1] <= 0.2, ranges
    assert_clean(page, daemon)


def test_the_row_that_is_looked_back_on_is_in_the_address(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=5)
    for _ in range(30):
        walk.send(20)
    daemon.control().wait_for_offset(walk.sent)
    page.open(address(daemon))
    page.wait("document.getElementById('path-note')?.textContent.includes('rows of walk')", "the trajectory")
    choose(page, "path-rows", "100")
    page.wait("location.hash.includes('last=100')", "its length")
    page.run("import('/path.js').then(({lookBack}) => lookBack('walk', 250))")
    page.wait("/stream=walk&row=250/.test(location.hash)", "the row")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("/ about row 250/.test(document.getElementById('path-note')?.textContent)", "the rows about it")
    page.wait("document.getElementById('path-rows').value === '100'", "its length")
    shown(page, "path-live")
    page.run("document.getElementById('path-live').click()")
    page.wait("!location.hash.includes('row=')", "the newest rows")
    assert_clean(page, daemon)


def test_an_empty_page_has_an_example_that_runs_and_a_demo(start: Start, page: Browser) -> None:
    daemon = start(config="state_dim = 2\n")
    page.open(address(daemon))
    page.wait("document.getElementById('empty-title')?.textContent === 'No rows yet'", "the empty state")
    example = text(page, "empty-code")
    assert f'Sender("{daemon.endpoints["ingest"]}", stream="walker")' in example
    assert text(page, "empty-demo") == f"criticd demo pendulum --into={daemon.directory / 'data'}"
    shoot(page, "empty")
    subprocess.run([sys.executable, "-c", example], check=True, timeout=PATIENCE_S)
    page.wait("document.getElementById('empty').hidden", "its rows")
    # The page says what the daemon has learned so far: a busy one takes the thousand rows in parts.
    page.wait("document.getElementById('vitals').textContent.startsWith('rows1\u202f000')", "all of its rows")
    assert_clean(page, daemon)


def test_an_example_of_a_wide_state_names_a_demo_of_its_own(start: Start, page: Browser) -> None:
    daemon = start(config="state_dim = 7\n")
    page.open(address(daemon))
    page.wait("document.getElementById('empty-title')?.textContent === 'No rows yet'", "the empty state")
    assert text(page, "empty-demo") == "criticd demo pendulum --open"
    assert_clean(page, daemon)
