"""Tools of the page: comparing, averaging, saving, looking words up, finding one of many critics."""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree

import browser
import numpy as np
import pytest
from browser import Browser
from client import PATIENCE_S, Daemon, pack, settles, when
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
    number,
    point,
    point_until,
    says,
    shoot,
    shown,
    start_field,
    start_walk,
    text,
)

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)


def test_two_critics_are_compared_on_one_scale(start: Start, page: Browser) -> None:
    # The second reward is higher by 2 everywhere: so is its value.
    quiet = "refit_first_rows = 0\nrefit_score_drop = 0.0\ndiscount = 0.5"
    critics = f'[[critic]]\nname = "low"\n{quiet}\n[[critic]]\nname = "high"\nrewards = [1]\n{quiet}\n'
    daemon = start(config='state_dim = 2\nstate_names = ["place [m]", "speed"]\n' + critics)
    generator = np.random.default_rng(3)
    states = generator.uniform(0, 1, (900, 2))
    rewards = np.stack([states[:, 0], states[:, 0] + 2], axis=1) + 0.05 * generator.normal(size=(900, 1))
    daemon.push().send(
        pack({"states": states, "next_states": states, "rewards": rewards, "terminated": np.ones(900, bool)})
    )
    page.open(address(daemon))
    page.wait("document.querySelector('#against option[value=\"critic high\"]')", "the other critic")
    choose(page, "against", "critic high")
    page.wait("document.getElementById('difference-note')?.textContent.includes('root mean square')", "the difference")
    shown(page, "other-card", "difference-card")
    hidden(page, "deviation-card")
    # What is hatched is named on each.
    for card in ("other-card", "difference-card"):
        page.wait(f"document.querySelector('#{card} .legend').innerText.includes('not known')", card)

    def are_apart_on_one_scale() -> None:
        apart = number(re.findall(r"places ([−0-9.]+) ", text(page, "difference-note"))[0])
        assert abs(apart - 2) < 0.2, apart
        label = "document.getElementById('{}').getAttribute('aria-label')"
        ends = [page.run(label.format(canvas)).split("from ")[1] for canvas in ("map-value", "map-other")]
        # Both have the scale that holds both.
        low, high = map(number, ends[0].split(" to "))
        assert ends[0] == ends[1] and low < 0.6 and high > 2.4, ends

    settles(are_apart_on_one_scale)
    lower = "/lower than high/.test(document.getElementById('map-difference-out').textContent)"
    point_until(page, "map-difference", 0.5, 0.6, lower, "the sign")
    # A unit stands behind its number, and behind the name on the axis.
    both = "/^place [0-9.]+ m, speed [0-9.]+:.*high [0-9.]+ · difference −[12]/"
    point_until(page, "map-value", 0.5, 0.6, f"{both}.test(document.getElementById('map-value-out').textContent)", "both")
    shoot(page, "compared")
    # The address leads back to it.
    page.wait("location.hash.includes('against=critic+high')", "the address")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('difference-note')?.textContent.includes('root mean square')", "the same view")
    page.wait("document.getElementById('against').value === 'critic high'", "the other critic")
    assert_clean(page, daemon)


def test_a_critic_of_actions_beside_those_of_states_has_a_map_of_its_own(start: Start, page: Browser) -> None:
    quiet = "refit_first_rows = 0\nrefit_score_drop = 0.0\ndiscount = 0.5"
    of_actions = 'inputs = "state_action"\nactions = ["left", "stay", "right"]'
    settings = {"v": quiet, "w": quiet, "q": f"{quiet}\n{of_actions}"}
    critics = "".join(f'[[critic]]\nname = "{name}"\n{own}\n' for name, own in settings.items())
    daemon = start(config=f"state_dim = 4\n{critics}")
    generator = np.random.default_rng(3)
    states = generator.normal(size=(901, 4)).cumsum(axis=0) * 0.1
    actions = generator.integers(0, 3, 900).astype(float)
    daemon.push().send(pack({"states": states, "rewards": np.sin(states[:-1, 0]), "actions": actions}))
    page.open(address(daemon))
    page.wait("document.querySelector('#against option[value=\"critic w\"]')", "the critics")
    choose(page, "critic", "2")
    page.wait("!document.getElementById('q-word').hidden", "the map of the best action")
    page.wait("document.getElementById('model').textContent.includes('dictionary')", "its model")
    shown(page, "selection", "time", "chosen-card")
    hidden(page, "heads")
    number_now = "import('/known.js').then(({ known }) => known.number)"
    seen = page.run(number_now)
    when(lambda: page.run(number_now) > seen + 2, "seconds")
    choose(page, "critic", "0")
    page.wait("document.getElementById('q-word').hidden", "the map of the first")
    when(lambda: page.run(number_now) > seen + 4, "another second")
    hidden(page, "empty")
    # The list says where the other map is of another kind.
    names = "[...document.querySelectorAll('#against optgroup:last-child option')].map((o) => o.textContent)"
    when(lambda: page.run(names) == ["w", "q: largest Q"], "the others")
    choose(page, "against", "critic q")
    page.wait("document.getElementById('other-title').textContent === 'q: largest Q'", "the largest Q beside")
    largest = "/: Q [−0-9]/.test(document.getElementById('map-other-out').textContent)"
    point_until(page, "map-other", 0.5, 0.6, largest, "a Q where the pointer is")
    # An average is not compared with a slice.
    choose(page, "mode", "average")
    page.wait("!document.querySelector('#against option[value=\"critic q\"]')", "a list without it")
    page.wait("document.getElementById('against').value === ''", "nothing beside it")
    assert_clean(page, daemon)


def test_two_critics_of_actions_are_compared(start: Start, page: Browser) -> None:
    of_actions = 'refit_first_rows = 0\nrefit_score_drop = 0.0\ninputs = "state_action"\nactions = ["left", "right"]'
    # The second sees the opposite rewards: where one chooses left, the other chooses right, at all states that are far from the middle.
    critics = "".join(
        f'[[critic]]\nname = "{name}"\nrewards = [{column}]\ndiscount = 0.0\n{of_actions}\n'
        for column, name in enumerate(("near", "far"))
    )
    daemon = start(config=f'state_dim = 2\nreward_names = ["a", "b"]\n{critics}')
    generator = np.random.default_rng(3)
    states = generator.uniform(-1, 1, (1501, 2))
    actions = generator.integers(0, 2, 1500).astype(float)
    reward = states[:-1, 0] * (2 * actions - 1)
    daemon.push().send(pack({"states": states, "rewards": np.stack([reward, -reward], axis=1), "actions": actions}))
    page.open(f"{address(daemon)}#critic=near&x=0&y=1")
    page.wait("document.querySelector('#against option[value=\"critic far\"]')", "the other critic")
    choose(page, "against", "critic far")
    note = "document.getElementById('difference-note').textContent"
    page.wait(f"/another action is best at (100|9[0-9](\\.[0-9])?) %/.test({note})", "where they choose differently")
    both = "/action right · far: left/.test(document.getElementById('map-value-out').textContent)"
    point_until(page, "map-value", 0.75, 0.5, both, "both actions")
    shoot(page, "compared-actions")
    assert_clean(page, daemon)


def test_what_was_missed_does_not_move_the_reader(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=3)
    walk = Walk(daemon, dim=3, seed=5)
    walk.send(300)
    page.open(address(daemon))
    page.wait("document.querySelectorAll('#sliders input').length === 1", "a slider")
    page.run(
        "(input => { input.value = input.max; input.dispatchEvent(new Event('input')); })"
        "(document.querySelector('#sliders input'))"
    )
    place = "document.querySelector('#sliders output').textContent"
    mine = page.run(place)

    def asked() -> int:
        page.run("0")  # What the browser has reported meanwhile is read with its answer.
        return sum("/api/history" in url for url in page.requests())

    def miss_a_frame() -> None:
        before = asked()
        page.run("import('/known.js').then(({ known }) => { known.number = -1; })")
        when(lambda: asked() > before, "a question")
        when(lambda: page.run("import('/known.js').then(({ known }) => known.number > 0)"), "an answer")

    miss_a_frame()
    page.wait("document.getElementById('vitals').textContent.startsWith('rows300')", "the numbers")
    assert page.run(place) == mine
    # What it misses while it stands still is asked for afterwards.
    pause = "document.getElementById('pause').click()"
    page.run(pause)
    before = asked()
    page.run("import('/known.js').then(({ known }) => { known.number = -1; })")
    walk.send(100)
    daemon.shared_control().wait_for_offset(400)
    time.sleep(2.5)
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    assert page.run("document.getElementById('vitals').textContent").startswith("rows300") and asked() == before
    page.run(pause)
    page.wait("document.getElementById('vitals').textContent.startsWith('rows400')", "the newest numbers")
    assert asked() > before and page.run(place) == mine
    assert_clean(page, daemon)


def test_an_earlier_model_is_compared_with(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=1)
    walk = Walk(daemon, dim=1, seed=13)
    page.open(address(daemon))
    for _ in range(20):
        walk.send(20)
    control = daemon.control()
    control.wait_for_learned(walk.sent)
    page.wait("document.getElementById('model')?.textContent.startsWith('generation1')", "the first model")
    assert not page.run("document.querySelector('#against option[value^=generation]')")
    # Those models are kept that the watcher of the page has seen.
    when(lambda: 1 in history(daemon)["kept"]["generations"][0], "a model that is kept")
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    page.wait("document.querySelector('#against option[value=\"generation 1\"]')", "the first generation in the list")
    choose(page, "against", "generation 1")
    # One variable: two curves.
    page.wait("/dashed: generation 1; they differ at/.test(document.getElementById('value-note').textContent)", "both")
    hidden(page, "difference-card")
    shoot(page, "compared-curve")
    assert_clean(page, daemon)
    # A restart keeps it.
    daemon.terminate()
    after = start_walk(start, dim=1)
    page.open(address(after))
    page.wait(
        "document.querySelector('#against option[value=\"generation 1\"]')", "the first generation after a restart"
    )
    choose(page, "against", "generation 1")
    page.wait("/dashed: generation 1; they differ at/.test(document.getElementById('value-note').textContent)", "both")


def test_an_average_goes_over_the_other_variables(start: Start, page: Browser) -> None:
    daemon = start_field(start)
    field = Field(daemon, dim=3)
    for _ in range(12):
        field.send(100, lambda states: states[:, 0] + 4 * states[:, 2])
    daemon.control().wait_for_offset(field.sent)
    page.open(f"{address(daemon)}#critic=default&x=0&y=1&at=0.5,0.5,1&span=600")

    def value() -> float:
        point(page, "map-value", 0.47, 0.56)
        found = re.search(r"position ([−0-9.]+), slope [−0-9.]+: value ([−0-9.]+) ±", text(page, "map-value-out"))
        # Without the part that the position adds.
        return number(found[2]) - number(found[1]) if found else float("nan")

    page.wait("document.getElementById('slice')?.textContent === 'at load = 1'", "the slice")
    when(lambda: abs(value() - 4.0) < 0.4, "the value where the load is 1")
    choose(page, "mode", "average")
    page.wait(
        "document.getElementById('slice').textContent === 'averaged over load, as visited'", "that it is an average"
    )
    when(lambda: abs(value() - 2.0) < 0.4, "the value averaged over all loads")
    hidden(page, "others")
    says(page, "deviation-note", "typical state")
    shoot(page, "averaged")
    page.wait("location.hash.includes('others=averaged')", "the address")
    choose(page, "mode", "slice")
    when(lambda: abs(value() - 4.0) < 0.4, "the slice again")
    assert_clean(page, daemon)


def test_pictures_are_saved_with_what_they_show(start: Start, page: Browser) -> None:
    daemon = start_walk(start)
    walk = Walk(daemon, seed=14)
    walk.send(200)
    walk.start()
    page.open(f"{address(daemon)}#critic=default&x=0&y=1&at=0,0,1.5&span=600")
    page.wait("document.getElementById('slice')?.textContent === 'at temperature = 1.5'", "the slice")
    page.wait("document.querySelectorAll('#worst li').length === 10", "the errors")
    page.wait("!document.getElementById('calibration').hidden", "a calibration")
    page.run(KEEP)
    page.wait("!document.getElementById('groups').hidden", "groups of the pairs")
    page.run("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")
    names = ["value", "deviation", "error", "trajectory", "calibration", "over-time", "worst-states", "relevance"]
    names += ["streams", "groups"]
    wanted = [f"{name}.{kind}" for name in names for kind in ("png", "svg", "csv")]
    wanted += ["model.csv", "model-selection.svg"]

    def all_are_saved() -> None:
        page.run("saved = {}; 0")
        page.run("[...document.querySelectorAll('.save')].forEach(button => button.click())")
        time.sleep(1)
        # Some answers may not have arrived yet: there is nothing to save before.
        assert page.run(f"{wanted}.filter(name => !(name in saved))") == []
        for name in names:
            root = ElementTree.fromstring(page.run(f"saved['{name}.svg']"))
            words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
            if name in ("value", "deviation"):
                # Axes, and the slice.
                assert {"angle", "speed", "at temperature = 1.5"} <= set(words), words
                assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) >= 1
            if name == "error":
                # It is over all other variables: no slice.
                said = " ".join(map(str, words))
                assert "whatever their other variables were" in said and "temperature = " not in said, words
            if name == "worst-states":
                assert sum(" than predicted" in str(text) for text in words) == 10, words
                # All of them are on it, although the page's list scrolls.
                lowest = max(float(each.get("y", 0)) for each in root.iter("{http://www.w3.org/2000/svg}text"))
                assert lowest < float(root.get("height", 0)), root.attrib
            if name == "relevance":
                assert any(re.match(r"angle: \d+ %", str(text)) for text in words), words
            if name == "streams":
                assert "walk" in words and any(re.match(r"last seq .* rows · seen ", str(text)) for text in words), words
            if name == "groups":
                assert {"By predicted", "By rows until known", "By return"} <= set(words), words
                # A long line is broken.
                assert re.search(r": \d+ returns · bias .* in their 90 % interval", " ".join(map(str, words))), words
            if name == "over-time":
                assert any(str(text).startswith("Error") for text in words), words
        head, *rows = page.run("saved['value.csv']").strip().split("\n")
        assert head == "angle,speed,temperature,value,deviation" and len(rows) == 96 * 72
        assert {row.split(",")[2] for row in rows} == {"1.5"}
        assert page.run("saved['error.csv']").startswith("angle,speed,returns,error,td_error\n")
        assert page.run("saved['worst-states.csv']").startswith(
            "angle,speed,temperature,error,spread,td,count,stream,offset"
        )
        assert page.run("saved['over-time.csv']").startswith("time,offset,")
        assert page.run("saved['streams.csv']").startswith("stream,session,next_seq,rows,last_seen\nwalk,run,")
        assert page.run("saved['groups.csv']").startswith("by,from,to,count,bias,error,within_90\npredicted,")

    settles(all_are_saved)
    walk.stop()
    assert page.faults() == []


def test_words_are_explained_at_hover_and_focus(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=15)
    walk.send(200)
    page.open(address(daemon))
    page.wait("document.querySelector('#model .term[data-term=generation]')", "the words of the model")
    # Each word has a description that screen readers find.
    orphans = """[...document.querySelectorAll('.term')].filter(word => word.tabIndex !== 0 ||
        !document.getElementById(word.getAttribute('aria-describedby'))?.textContent).map(word => word.textContent)"""
    page.wait(f"{orphans}.length === 0 && document.querySelectorAll('.term').length > 12", "words with a meaning")
    page.run("document.getElementById('model-fold').open = true")
    page.run("document.querySelector('#model .term[data-term=generation]').focus()")
    page.wait("!document.getElementById('tip').hidden", "the meaning")
    says(page, "tip", "each adoption raises it")
    # News leaves the focus where it is.
    before = text(page, "vitals")
    walk.send(40)
    page.wait(f"document.getElementById('vitals').textContent !== {before!r}", "news")
    assert page.run("document.activeElement.dataset.term") == "generation"
    shown(page, "tip")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
    hidden(page, "tip")
    # By pointer; and all of them at the end.
    page.run("document.activeElement.blur()")

    def hovered() -> bool:
        # Parts that arrive meanwhile may move it.
        page.run("document.querySelector('figure .term').scrollIntoView({block: 'center'})")
        x, y = page.run(
            "(box => [box.x + box.width / 2, box.y + box.height / 2])"
            "(document.querySelector('figure .term').getBoundingClientRect())"
        )
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return text(page, "tip").startswith("Expected discounted sum")

    when(hovered, "the meaning")
    assert page.run("document.querySelectorAll('#glossary dt').length") >= 20
    assert_clean(page, daemon)


def test_one_of_many_critics_is_found_and_the_worst_come_first(start: Start, page: Browser) -> None:
    quiet = "refit_first_rows = 0\nrefit_score_drop = 0.0\ndictionary_max = 20\ndiscount = 0.5"
    critics = "".join(f'[[critic]]\nname = "arm-{k:02}"\n{quiet}\n' for k in range(30))
    daemon = start(config="state_dim = 1\n" + critics)
    field = Field(daemon, dim=1)
    for _ in range(5):
        field.send(60, lambda states: states[:, 0])
    page.open(address(daemon))
    page.wait("document.getElementById('critics-now')?.textContent === 'arm-00'", "the list")
    hidden(page, "critic-choice")
    shown(page, "critics")
    page.run("document.getElementById('critics').open = true")
    listed = "[...document.querySelectorAll('#critics-list li button')].map(b => b.textContent)"
    page.wait(f"{listed}.length === 10", "ten of them")
    shoot(page, "critics")
    page.run(
        "(f => { f.value = 'ARM-2'; f.dispatchEvent(new Event('input')); })(document.getElementById('critics-find'))"
    )
    page.wait(f"{listed}.every(name => name.startsWith('arm-2')) && {listed}.length === 10", "those that are meant")
    rows = "import('/known.js').then(({known}) => known.history['%s'].length)"
    when(lambda: page.run(rows % "time") > 4, "a past")
    page.run("[...document.querySelectorAll('#critics-list button')].find(b => b.textContent === 'arm-27').click()")
    page.wait("document.getElementById('critics-now').textContent === 'arm-27'", "the chosen one")
    page.wait("location.hash.includes('critic=arm-27')", "its address")
    page.wait("!document.getElementById('critics').open", "a list that is closed")
    # Its past has been asked for and its news come; of the others only what the list shows is sent.
    page.wait("document.getElementById('model').textContent.includes('dictionary')", "its model")
    critics = "import('/known.js').then(({known}) => known.status.critics.map(each => [each.name, Boolean(each.brief)]))"
    when(lambda: [name for name, brief in page.run(critics) if not brief] == ["arm-27"], "it alone in full")
    columns = "import('/known.js').then(({known}) => [...new Set(known.columns.map(name => name.split('.')[0]))])"
    when(lambda: [name for name in page.run(columns) if name.startswith("arm")] == ["arm-27"], "its columns alone")
    number = page.run("import('/known.js').then(({known}) => known.number)")
    field.send(60, lambda states: states[:, 0])
    learned = "import('/known.js').then(({critic}) => [critic().name, critic().learned])"
    when(lambda: page.run(learned) == ["arm-27", field.sent], "its news")
    assert page.run("import('/known.js').then(({known}) => known.number)") > number
    # At one moment: each second one comes to both.
    lengths = "['arm-27.generation', 'time'].map(name => known.history[name].length)"
    own, times = page.run(f"import('/known.js').then(({{known}}) => {lengths})")
    assert own == times
    assert_clean(page, daemon)


def test_heads_are_searched_and_the_least_known_come_first(start: Start, page: Browser) -> None:
    form = '{{ name = "joint-{k}", cumulant = {{ kind = "state", index = {index} }}, discount = 0.{reach} }}'
    heads = ", ".join(form.format(k=k, index=k % 2, reach=k % 9) for k in range(25))
    daemon = start(
        config='state_dim = 2\nstate_names = ["angle [rad]", "speed"]\n'
        f"[[critic]]\ndiscount = 0.5\nrefit_first_rows = 0\nheads = [{heads}]\n"
    )
    walk = Walk(daemon, dim=2, seed=18)
    for _ in range(20):
        walk.send(20)
    page.open(address(daemon))
    listed = "[...document.querySelectorAll('#heads-list li')].map(li => li.textContent)"
    page.wait(f"{listed}.length === 10", "ten of them")
    says(page, "heads-note", "25 heads; the least known first")
    words = page.run(listed)
    unknown = "[...document.querySelectorAll('#heads-list li span:not(.details)')].map(span => span.textContent)"
    shares = [float(re.match(r"([0-9.]+) % unknown", line)[1]) for line in page.run(unknown)]
    assert shares == sorted(shares, reverse=True), words
    assert all(re.search(r"(angle|speed), discount 0", line) for line in words), words
    page.run(
        "(f => { f.value = 'Joint-2'; f.dispatchEvent(new Event('input')); })(document.getElementById('heads-find'))"
    )
    # joint-2, and joint-20 to joint-24.
    page.wait(f"{listed}.length === 6 && {listed}.every(line => line.startsWith('joint-2'))", "those that are meant")
    says(page, "heads-note", "6 of 25 found")
    # The map of a head has the unit of what it sums: joint-20 the angle.
    page.run("document.querySelector('[data-head=\"joint-20\"]').click()")
    page.wait("document.getElementById('named-word').textContent === 'Head joint-20'", "its map")
    readout = "document.getElementById('map-value-out').textContent"
    unit = f"/: joint-20 [−0-9.]+ ± [0-9.]+ rad \\(1 std\\)/.test({readout})"
    point_until(page, "map-value", 0.5, 0.5, unit, "its unit")
    page.run("document.getElementById('named-back').click()")
    page.run("document.getElementById('heads').scrollIntoView()")
    shoot(page, "heads")
    assert_clean(page, daemon)


def test_a_page_without_its_daemon_dims_and_says_since_when(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=16).send(200)
    page.open(address(daemon))
    page.wait("document.getElementById('view')?.hidden === false", "the page")
    daemon.terminate()
    page.wait("document.body.classList.contains('gone')", "that it is gone")
    opacity = "Number(getComputedStyle(document.getElementById('%s')).opacity)"
    page.wait(f"{opacity % 'view'} < 0.7 && {opacity % 'vitals'} < 0.7", "dim")
    # What the daemon has said last is read, not looked through.
    page.wait(f"{opacity % 'trust'} === 1", "a line that is not dim")
    assert page.run("getComputedStyle(document.querySelector('main')).opacity") == "1"
    first = text(page, "live-text")
    assert re.search(r"no connection to the daemon since \d\d:\d\d:\d\d", first), first
    shoot(page, "gone")
    # It stays the moment at which the connection was lost.
    time.sleep(3)
    assert text(page, "live-text") == first


def start_wide(start: Start, dim: int) -> Daemon:
    quiet = ("critic.refit_first_rows=0", "critic.discount=0.5", "critic.dictionary_max=40")
    daemon = start(*quiet, config=f"state_dim = {dim}\n")
    generator = np.random.default_rng(17)
    states = generator.normal(size=(301, dim))
    daemon.push().send(pack({"stream": "wide", "seq": 0, "states": states, "rewards": states[:-1, 3]}))
    return daemon


@pytest.mark.parametrize("dim", [20, 348])
def test_many_variables_keep_the_layout(start: Start, page: Browser, dim: int) -> None:
    daemon = start_wide(start, dim)
    page.open(address(daemon))
    page.wait(f"document.getElementById('axis-x')?.options.length === {dim}", "the axes")
    page.wait("document.querySelectorAll('.relevance-row').length === 12", "the most relevant")
    page.wait(f"/{dim - 12} variables/.test(document.getElementById('relevance-more').textContent)", "how many more")
    page.wait(f"/ and {dim - 2 - 6} more/.test(document.getElementById('slice').textContent)", "the slice")
    page.wait("document.querySelectorAll('#sliders input').length === 12", "as many sliders")
    page.wait("document.documentElement.scrollWidth <= 1400", "the width of the screen")
    # Each of them can be reached, and files name all.
    last = page.run(f"import('/relevance.js').then(({{ranked}}) => ranked()[{dim - 1}])")
    find = "(f => { f.value = 'state %s'; f.dispatchEvent(new Event('input')); })(document.getElementById('sliders-find'))"
    page.run(find % last)
    page.run("(s => { s.value = s.max; s.dispatchEvent(new Event('input')); })(document.querySelector('#sliders input'))")
    moved = f"import('/known.js').then(({{chosen, known}}) => chosen.at[{last}] > known.states.median[{last}])"
    page.wait(moved, "where it stands")
    columns = "import('/axes.js').then(({fixedColumns}) => Object.keys(fixedColumns(1)).length)"
    assert page.run(columns) == dim - 2
    assert page.run("import('/axes.js').then(({sliceWords}) => sliceWords(Infinity))").count(" = ") == dim - 2
    # Pictures keep their proportions.
    shape = "(c => c.clientWidth / c.clientHeight)(document.getElementById('map-value'))"
    page.wait(f"1.2 < {shape} && {shape} < 1.6", "the proportions of a map")
    page.wait("document.documentElement.scrollHeight < 4000", "a page that is not too long")
    shoot(page, f"variables-{dim}")
    assert_clean(page, daemon)


def test_a_trajectory_is_not_drawn_across_the_edge_of_an_angle(start: Start, page: Browser) -> None:
    config = """state_dim = 2
        state_names = ["angle [rad]", "speed [rad/s]"]
        [[critic]]
        discount = 0.5
        refit_first_rows = 0
        state_kinds = ["periodic:6.283185307179586", "real"]"""
    daemon = start(config=config)
    # Round and round, at a speed that varies a little.
    steps = np.arange(301)
    angles = (0.2 * steps + np.pi) % (2 * np.pi) - np.pi
    states = np.stack([angles, np.sin(steps / 40)], axis=1)
    daemon.push().send(pack({"stream": "wheel", "seq": 0, "states": states, "rewards": np.cos(angles[:-1])}))
    page.open(address(daemon))
    page.wait("document.getElementById('path-note')?.textContent.includes('rows of wheel')", "the trajectory")
    parts = "import('/path.js').then(path => path.unbroken({}).map(part => part.length))"
    assert page.run(parts.format("[[2.9, 0], [3.1, 0], [-3.1, 0], [-2.9, 0]]")) == [2, 2]
    assert page.run(parts.format("[[0, 0.1], [0.2, 0.1], [0.4, 0.2]]")) == [3]
    # A leap over more than half of what the other one has gone through.
    assert page.run(parts.format("[[0, -0.9], [0.1, 0.9]]")) == [1, 1]
    shoot(page, "wheel")
    assert_clean(page, daemon)


def test_a_part_of_the_axes_is_dragged_over_and_left_again(start: Start, page: Browser) -> None:
    daemon = start_field(start)
    field = Field(daemon, dim=3)
    for _ in range(5):
        field.send(100, lambda states: states[:, 0])
    # The ranges of the axes are those of the states that the page knows of.
    learned(daemon, field.sent)
    page.open(f"{address(daemon)}#critic=default&x=0&y=1&span=600")
    ranges = (
        "performance.getEntriesByType('resource').filter(entry => entry.name.includes('/api/map'))"
        ".map(entry => new URL(entry.name).searchParams.get('range')).at(-1)"
    )
    page.wait(f"{ranges} && document.getElementById('map-value').getAttribute('aria-label').includes('from')", "a map")
    # Parts that arrive later would move the map under the pointer.
    page.wait("document.getElementById('error-card').offsetHeight > 0", "the errors")
    page.wait("document.getElementById('path-note').textContent", "the trajectory")
    whole = [float(end) for end in page.run(ranges).split(",")]
    another = f"{ranges} !== '{','.join(f'{end:g}' for end in whole)}'"

    def is_dragged_over() -> bool:
        """Whether a part is shown then: parts of the page that arrive meanwhile may move the map from under the pointer."""
        page.run("document.getElementById('map-value').scrollIntoView({block: 'center'})")
        sides = "(b => [b.x, b.y, b.width, b.height])(document.getElementById('map-value').getBoundingClientRect())"
        left, top, width, height = page.run(sides)
        places = [(left + across * width, top + down * height) for across, down in ((0.35, 0.3), (0.5, 0.5))]
        for kind, (x, y) in (("mousePressed", places[0]), ("mouseMoved", places[1]), ("mouseReleased", places[1])):
            page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        time.sleep(0.3)
        return page.holds(f"{another} && !document.getElementById('whole').hidden")

    when(is_dragged_over, "a part")
    part = [float(end) for end in page.run(ranges).split(",")]
    assert all(part[2 * k + 1] - part[2 * k] < 0.5 * (whole[2 * k + 1] - whole[2 * k]) for k in range(2)), (part, whole)
    assert whole[0] < part[0] < part[1] < whole[1] and whole[2] < part[2] < part[3] < whole[3], (part, whole)
    page.run("document.getElementById('whole').click()")
    when(lambda: [float(end) for end in page.run(ranges).split(",")] == whole, "the whole")
    hidden(page, "whole")
    # By keys: about the pointer.
    page.run("document.getElementById('map-value').focus()")
    for key in ("ArrowLeft", "+"):
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    page.wait("!document.getElementById('whole').hidden", "a part again")
    assert_clean(page, daemon)


def test_the_part_that_is_shown_is_in_the_address(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=3)
    for _ in range(20):
        walk.send(20)
    learned(daemon, 400)
    page.open(address(daemon))
    page.wait("document.getElementById('map-value')?.getAttribute('aria-label').startsWith('Value of')", "a map")
    point_until(page, "map-value", 0.5, 0.5, "document.getElementById('map-value-out').textContent !== ''", "the place")
    page.run("document.getElementById('map-value').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="+", text="+")
    page.wait("location.hash.includes('part=')", "the part")
    ranges = "import('/axes.js').then(({rangeOf}) => [rangeOf(0), rangeOf(1)])"
    shown_part, there = page.run(ranges), page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('whole')?.hidden === false", "a part again")
    settles(lambda: np.testing.assert_allclose(page.run(ranges), shown_part, rtol=1e-4))
    page.wait("location.hash.includes('part=')", "the same address")
    page.run("document.getElementById('whole').click()")
    page.wait("!location.hash.includes('part=')", "the whole")
    whole = page.run(ranges)
    assert whole[0][0] < shown_part[0][0] and whole[0][1] > shown_part[0][1], (whole, shown_part)
    # What is no part is none.
    page.open("about:blank")
    page.open(re.sub(r"part=[^&]*", "part=3,1,nothing", there))
    page.wait("document.getElementById('map-value')?.getAttribute('aria-label').startsWith('Value of')", "a map")
    hidden(page, "whole")
    when(lambda: page.run(ranges) == whole, "the whole")
    assert_clean(page, daemon)
