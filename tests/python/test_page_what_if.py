"""Questions of the page to the model of the transition: what the robot would do for another reward, and where it will be."""

from __future__ import annotations

import json
import re
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import browser
import numpy as np
import pytest
from browser import Browser
from client import PATIENCE_S, Daemon, Map, pack, settles, when
from conftest import Start
from dashboard import KEEP, address, assert_clean, choose, hidden, point, says, shoot, shown, text
from packages import package

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)
QUIET = "discount = 0.9\nrefit_first_rows = 0\nrefit_score_drop = 0.0\ndictionary_max = 60\nrefit_budget_s = 2\n"
CONFIG = f"""
state_dim = 2
state_names = ["place [m]", "load"]

[[critic]]
name = "q"
inputs = "state_action"
actions = ["left", "right"]
world = true
drift_sensitivity = "off"
{QUIET}
"""
ROWS = 1600


def walk(start: Start, config: str = CONFIG) -> Daemon:
    """A daemon without a model yet that has seen a walk by steps of 0.2 m to the left or to the right, between walls at -1 m and 1 m, in chains of 20."""
    daemon = start(config=config)
    push, random = daemon.push(), np.random.default_rng(5)
    for first in range(0, ROWS, 20):
        states = np.empty((21, 2))
        states[:, 1] = random.uniform(0, 1)
        states[0, 0] = random.uniform(-1, 1)
        actions = random.integers(0, 2, 20)
        for k in range(20):
            states[k + 1, 0] = np.clip(states[k, 0] + (0.2 if actions[k] else -0.2) + random.uniform(-0.01, 0.01), -1, 1)
        batch = {"states": states, "rewards": -np.abs(states[:-1, 0]), "actions": actions.astype(float)}
        push.send(pack({"stream": "walk", "session": "run", "seq": first, **batch, "truncated": np.arange(20) == 19}))
    daemon.control().wait_for_learned(ROWS)
    return daemon


def learn(start: Start, config: str = CONFIG) -> Daemon:
    """The same daemon with a model of it."""
    daemon = walk(start, config)
    assert daemon.control().ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    return daemon


def look(page: Browser, daemon: Daemon, rest: str = "") -> None:
    page.open(f"{address(daemon)}#critic=q&x=0&y=1{rest}")
    page.wait("document.getElementById('what-if')?.hidden === false", "the control")
    # A key unfolds it, as it does other folds.
    if not page.run("document.getElementById('what-if').open"):
        page.run("document.querySelector('#what-if > summary').focus()")
        press(page, "Enter", "\r")
    page.wait("document.getElementById('what-if').open", "the questions")


def press(page: Browser, key: str, words: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        code = {"Enter": 13, "ArrowLeft": 37}[key]
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=words)


def ask(page: Browser, form: str, **fields: str) -> None:
    for name, value in fields.items():
        page.run(f"document.getElementById('{form}-{name}').value = {json.dumps(value)}")
    page.run(f"document.getElementById('{form}-form').requestSubmit()")


def answer(daemon: Daemon, path: str, **query: object) -> Map:
    """What a page is answered, once it is."""
    found: list[Map] = []

    def is_there() -> bool:
        try:
            with urlopen(f"{address(daemon)}api/{path}?{urlencode(query)}", timeout=PATIENCE_S) as reply:
                found.append(json.load(reply))
        except HTTPError as error:
            assert error.code == 503, error.read()
        return found != []

    when(is_there, "an answer")
    return found[0]


def test_a_plan_is_shown_beside_the_present_values(start: Start, page: Browser) -> None:
    daemon = learn(start)
    look(page, daemon)
    page.wait("document.getElementById('map-chosen')?.getAttribute('aria-label').includes('left')", "the present actions")
    hidden(page, "plan-card", "plan-action-card", "plan-back")
    ask(page, "plan", reward="-abs(place - 0.6)")
    said = r"Planned for -abs\(place - 0\.6\) \(known everywhere\), discount 0\.9: −?[0-9.]+ ± [0-9.]+ \(1 std\) from where episodes begin\."
    page.wait(f"/^{said}/.test(document.getElementById('plan-said').textContent)", "the plan in words")
    says(page, "plan-said", "of what follows is supported by no row.", "Spectral radius ", "of the successors is lost.")
    says(page, "plan-said", "prefers the action of the plan in ", "of the states.", "Of generation 2, at row 1\u202f600.")
    # The rewards of the rows lead to 0 m, this one leads to 0.6 m.
    other = r"/Another action than now is best at ([0-9.]+) % of the visited places/"
    page.wait(f"Number({other}.exec(document.getElementById('plan-said').textContent)?.[1]) > 10", "where it differs")
    shown(page, "map-value", "map-chosen", "plan-card", "plan-action-card", "plan-back")
    hidden(page, "deviation-card", "error-card")
    says(page, "plan-note", "for -abs(place - 0.6), discount 0.9")

    def points(across: float, words: str) -> None:
        def is_said() -> bool:
            point(page, "map-plan-action", across, 0.5)
            return bool(re.search(words, text(page, "map-plan-action-out")))

        when(is_said, words)

    points(0.3, "action right")
    points(0.6, "action right · now left")
    points(0.83, "action left · now left")
    tops = "['map-value', 'map-plan', 'map-chosen', 'map-plan-action'].map(id => document.getElementById(id).getBoundingClientRect().top)"

    def stand_in_pairs() -> None:
        value, plan, chosen, best = page.run(tops)
        assert value == plan < chosen == best

    settles(stand_in_pairs)
    shoot(page, "what-if")
    # What a page is answered is what a peer is answered.
    own = answer(daemon, "plan", critic="q", reward="-abs(place - 0.6)")
    theirs = daemon.control().ask("plan", reward="-abs(place - 0.6)")
    assert {key: own[key] for key in ("value", "error", "radius", "unsupported", "alike")} == {
        key: theirs[key] for key in ("value", "error", "radius", "unsupported", "alike")
    }
    # The address leads back to it.
    page.wait("location.hash.includes('plan=%3A-abs')", "the address")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('plan-said')?.textContent.startsWith('Planned for -abs(place - 0.6) ')", "the same plan")
    assert page.run("document.getElementById('plan-reward').value") == "-abs(place - 0.6)"
    shown(page, "plan-card", "plan-action-card")
    assert_clean(page, daemon)
    # Over one variable it is a curve, of the reward of the rows as well.
    choose(page, "axis-y", "")
    ask(page, "plan", reward="", discount="0.5")
    says(page, "plan-said", "(learned from the rows), discount 0.5")
    shown(page, "plan-card")
    hidden(page, "plan-action-card")
    shoot(page, "what-if-curve")
    page.run("document.getElementById('plan-back').click()")
    hidden(page, "plan-card", "plan-back")
    page.wait("!location.hash.includes('plan=') && document.getElementById('plan-said').textContent === ''", "the present alone")
    assert_clean(page, daemon)
    # What is wrong is named, and nothing is shown.
    ask(page, "plan", reward="speed", discount="")
    says(page, "plan-said", "Refused: reward: speed names something", "state variables are place")
    hidden(page, "plan-card")
    ask(page, "plan", reward="(place", discount="")
    says(page, "plan-said", "Refused: reward: (place")


def test_a_course_is_predicted_from_a_row_and_from_a_place(start: Start, page: Browser) -> None:
    daemon = learn(start)
    look(page, daemon)
    hidden(page, "course")
    page.wait("/ row 1\u202f\\d+: a click or Enter on the map /.test(document.getElementById('course-start').textContent)", "the newest row")
    ask(page, "course", steps="6", show="abs(place)")
    says(page, "course-said", "From row 1\u202f", ", if it acts as it has: the mean over chance.", "of what follows is supported by no row.")
    says(page, "course-said", " of reward_0 there, discount 0.9.", "Dashed is what came: 1 step.")
    titles = "[...document.querySelectorAll('#course-charts h3')].filter(h => h.offsetHeight).map(h => h.textContent)"
    page.wait(f"{titles}.length === 3", "charts")
    first, second, third = page.run(titles)
    assert re.match(r"place \[m\]reach (all 6 steps|\d steps?)$", first), first
    assert second.startswith("loadreach ") and third.startswith("abs(place)reach ")
    # The place of the pointer on the map, where the other variables stand at their sliders.
    point(page, "map-value", 0.3, 0.5)
    page.wait("document.getElementById('map-value-out').textContent.includes('place')", "the pointer")
    place = r"/^From place −0\.\d+ m, load 0\.\d+: /"
    x, y = page.run("(({x, y, width, height}) => [x + 0.3 * width, y + 0.5 * height])(document.getElementById('map-value').getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    page.wait(f"{place}.test(document.getElementById('course-start').textContent)", "the place")
    page.wait("/^From place −0/.test(document.getElementById('course-said').textContent)", "its course")
    hidden(page, "course-came")
    begun = text(page, "course-start")
    # Keys do as well.
    page.run("document.getElementById('map-value').focus()")
    for _ in range(4):
        press(page, "ArrowLeft")
    page.wait("document.getElementById('map-value-out').textContent.includes('place')", "the pointer of keys")
    press(page, "Enter")
    page.wait(f"document.getElementById('course-start').textContent !== {json.dumps(begun)}", "another place")
    # The plan leads where it is to go.
    assert page.run("document.querySelector('#course-policy [value=plan]').disabled")
    ask(page, "plan", reward="-abs(place - 0.6)")
    page.wait("!document.querySelector('#course-policy [value=plan]').disabled", "the plan to follow")
    says(page, "plan-said", "Planned for ")
    ask(page, "course", policy="plan", steps="12", show="")
    says(page, "course-said", "if it follows the plan", "of -abs(place - 0.6) there")
    page.wait(f"{titles}.length === 2", "the variables of the axes alone")
    page.wait("/steps ahead: from −?[0-9.]+ to 0\\.[4-8]/.test(document.querySelector('#course-charts canvas').getAttribute('aria-label'))", "the end")
    shoot(page, "course")
    page.run(f"{KEEP.removesuffix('; 0')}; 0")
    page.run("[...document.querySelectorAll('#course-save button')].forEach(button => button.click())")
    page.wait("'course.svg' in saved && 'course.csv' in saved", "files")
    assert page.run("saved['course.csv']").startswith("step,place [m],place [m] within,place [m] came,load,")
    page.wait("/course=12&policy=plan&from=/.test(location.hash)", "the address")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('course-said')?.textContent.includes('if it follows the plan')", "the same course")
    assert page.run("document.getElementById('course-steps').value") == "12"
    assert_clean(page, daemon)
    page.run("document.getElementById('course-back').click()")
    hidden(page, "course")
    page.wait("!location.hash.includes('course=')", "the address without it")
    ask(page, "course", policy="acted", show="speed")
    says(page, "course-said", "Refused: show: speed names no state variable")


def test_what_came_after_a_row_stands_beside_its_course(start: Start, page: Browser) -> None:
    daemon = learn(start)
    look(page, daemon, "&course=8&from=row%3A1205")
    says(page, "course-said", "From row 1\u202f205, if it acts as it has", "Dashed is what came: 8 steps.")
    shown(page, "course-came")
    found = answer(daemon, "rollout", critic="q", row=1205, steps=8, show="state[0]")
    states = found["came"]["states"]
    # It is the fifth of a chain of twenty.
    assert len(states) == 16 and not found["came"]["terminated"]
    steps = np.diff([state[0] for state in states])
    assert (np.abs(steps) < 0.22).all() and len({state[1] for state in states}) == 1
    point(page, "course-charts", 0.2, 0.5)
    shoot(page, "course-came")
    # A row of the trajectory, by a click there.
    point(page, "path", 0.5, 0.5)
    page.wait("document.getElementById('path-out').textContent.startsWith('row ')", "a row")
    row = re.findall("^row ([^,]*)", text(page, "path-out"))[0]
    x, y = page.run("(({x, y, width, height}) => [x + 0.5 * width, y + 0.5 * height])(document.getElementById('path').getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    says(page, "course-start", f"From row {row}: ")
    says(page, "course-said", f"From row {row}, ")
    assert_clean(page, daemon)
    # A row that nobody has.
    page.open("about:blank")
    look(page, daemon, "&course=8&from=row%3A99999")
    says(page, "course-said", "Refused: row 99999 is no longer kept.")


# What has been answered is kept, to be changed.
KEPT = """const read = Response.prototype.json; Response.prototype.json = async function () {
    const found = await read.call(this); if ('alike' in found) window.plan = found; if (found.alive) window.course = found; return found; };"""
SAID = """(plant => {
    const said = () => {
        document.getElementById('theme').click();
        return ['plan-said', 'plan-doubts', 'course-said', 'course-doubts', 'course-charts']
            .map(id => document.getElementById(id).textContent).join(' ');
    };
    const kept = structuredClone([plan, course]);
    plant(plan, course);
    const planted = said();
    Object.assign(plan, kept[0]);
    Object.assign(course, kept[1]);
    return [planted, said()];
})"""
REACH = "Object.assign(c.variables[0], { reach: %s, reach_known: %s })"
# Words, and what makes them true of a plan p and of a course c.
PLANTED = [
    ("(learned from the rows)", "p.known = false"),
    ("(learned from the last 500 rows)", "Object.assign(p, { known: false, reward_rows: 500 })"),
    ("12 % of what follows is supported by no row.", "p.unsupported = 0.12"),
    ("Spectral radius 1.25.", "p.radius = 1.25"),
    ("0.44 of the successors is lost.", "p.model.lost = 0.44"),
    ("The map prefers the action of the plan in 83 % of the states.", "p.alike = 0.83"),
    ("the sweeps did not come to rest", "p.warnings = ['the sweeps did not come to rest']"),
    ("place [m]reach not even one step", REACH % (0, "true")),
    ("place [m]reach not known: too few later rows", REACH % (0, "false")),
    ("place [m]reach at least 3 steps: no later chains are longer", REACH % (3, "false")),
    ("place [m]reach at least 1 step: ", REACH % (1, "false")),
    ("place [m]reach 2 steps", REACH % (2, "true")),
    ("After 8 steps 40 % has not ended.", "c.alive = Array(8).fill(0.4)"),
    ("Dashed is what came: 3 steps, then the episode terminated.", "c.came = { states: c.came.states.slice(0, 4), terminated: true }"),
    ("Worth 2 ± 0.5 (1 std) of fuel there, discount 0.8.", "c.value = { mean: 2, error: 0.5, reward: 'fuel', discount: 0.8, refused: [] }"),
    ("it makes mass of nothing", "c.value = { mean: null, refused: ['it makes mass of nothing'] }"),
    ("believe the course no further than its reach", "c.warnings = ['believe the course no further than its reach']"),
]
# Words that what makes others true takes back.
TAKEN_BACK = [
    ("is supported by no row", "p.unsupported = c.unsupported = null"),
    ("Spectral radius", "p.radius = c.value.radius = null"),
    ("Worth ", "c.value = { mean: null, refused: [] }"),
    ("Dashed is what came", "c.came = null"),
]


def test_what_is_true_of_a_plan_and_of_a_course_is_said_and_nothing_else(start: Start, page: Browser) -> None:
    daemon = learn(start)
    page.call("Page.addScriptToEvaluateOnNewDocument", source=KEPT)
    look(page, daemon, "&plan=%3Aplace&course=8&from=row%3A1205")
    says(page, "plan-said", "Planned for place ")
    says(page, "course-said", "From row 1\u202f205")
    wrong = []
    for k, (words, plant) in enumerate([*PLANTED, *TAKEN_BACK]):
        found = page.run(f"{SAID}((p, c) => {{ {plant}; }})")
        said = [words in each for each in found]
        if said != ([True, False] if k < len(PLANTED) else [False, True]):
            wrong.append(f"{words}: {said}")
    assert not wrong, "\n".join(wrong)
    assert_clean(page, daemon)


def test_a_question_ends_with_who_asks_it(start: Start, page: Browser) -> None:
    daemon = learn(start)
    # The daemon is busy for ever.
    busy = """const ask = window.fetch; window.asked = 0; window.fetch = async (...of) => String(of[0]).startsWith('/api/plan')
        ? (asked += 1, new Response('being worked out\\n', { status: 503 })) : ask(...of);"""
    page.call("Page.addScriptToEvaluateOnNewDocument", source=busy)
    look(page, daemon, "&plan=%3Aplace")
    says(page, "plan-said", "The plan: being worked out.")
    page.wait("asked > 2", "questions")
    page.run("document.getElementById('plan-back').click()")
    page.wait("document.getElementById('plan-said').textContent === ''", "the end of it")
    asked = page.run("window.seen = asked")
    page.run("new Promise(later => setTimeout(later, 2500))")
    assert page.run("asked") == asked
    hidden(page, "plan-card")
    assert_clean(page, daemon)


def test_without_a_model_of_the_transition_nothing_is_offered(start: Start, page: Browser) -> None:
    daemon = learn(start, CONFIG.replace("world = true\n", ""))
    page.open(f"{address(daemon)}#critic=q&x=0&y=1&plan=%3Aplace&course=5")
    page.wait("document.getElementById('model-details')?.textContent.includes('what if')", "how to turn it on")
    says(page, "model-details", "world = true in the settings of the critic learns where actions lead")
    hidden(page, "what-if", "plan-card", "course")
    page.wait("!/plan=|course=/.test(location.hash)", "the address without them")
    assert_clean(page, daemon)


def test_what_an_address_asks_waits_for_the_model(start: Start, page: Browser) -> None:
    daemon = walk(start)
    page.open(f"{address(daemon)}#critic=q&x=0&y=1&plan=%3A-abs(place-0.6)&course=12&policy=plan&from=-0.8%2C0.5")
    page.wait("document.getElementById('course-start')?.textContent.includes('0.8 m')", "where it begins")
    hidden(page, "what-if", "plan-card", "course")
    assert daemon.control().ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    says(page, "plan-said", "Planned for -abs(place-0.6)")
    says(page, "course-said", "if it follows the plan")
    shown(page, "what-if", "map-plan", "course-charts")
    assert_clean(page, daemon)


def test_it_fits_on_a_phone_and_axe_finds_nothing_serious(start: Start, page: Browser) -> None:
    daemon = learn(start)
    script = (package("axe-core", "4.11.1") / "axe.min.js").read_text()
    rest = f"&plan=%3A{'-abs(place-0.6)'}&course=12&policy=plan&from=-0.8%2C0.5&also=abs(place)"
    for look_, size in {"light": (1400, 900), "dark": (1400, 900), "phone": (390, 844)}.items():
        page.size(*size, mobile=look_ == "phone", dark=look_ == "dark")
        page.open("about:blank")
        look(page, daemon, rest)
        says(page, "plan-said", "Planned for ")
        says(page, "course-said", "if it follows the plan")
        shown(page, "map-plan", "course-charts")
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        page.wait(wide, "no sideways scrolling")
        # No two texts lie on each other.
        overlaps = """(() => {
            const seen = [...document.querySelectorAll('#what-if label, #what-if button, #what-if b, #what-if p, #course p, #course h3, #plan-card figcaption')];
            const boxes = seen.filter(each => each.offsetHeight).map(each => [each.textContent.trim(), each.getBoundingClientRect()]);
            return boxes.flatMap(([a, p], k) => boxes.slice(k + 1).filter(([, q]) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1
                && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 1).map(([b]) => `${a} | ${b}`)); })()"""
        settles(lambda overlaps=overlaps: check(page.run(overlaps)))
        shoot(page, f"what-if-{look_}")
        page.run(script)
        found = page.run("axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html)]))")
        assert [each for each in found if each[0] in ("serious", "critical")] == [], found
    assert_clean(page, daemon)


def check(overlaps: list[str]) -> None:
    assert overlaps == []
