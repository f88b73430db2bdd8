"""What the page says of quality: critics that need attention, heads, curves, comparison with the truth, and accessibility."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import browser
import numpy as np
import pytest
from browser import Browser, Navigated
from client import BINARY, PATIENCE_S, Daemon, pack, settles, when
from conftest import Start
from dashboard import (
    KEEP,
    Field,
    Walk,
    address,
    assert_clean,
    choose,
    hidden,
    learned,
    number,
    says,
    shoot,
    shown,
    start_field,
    start_walk,
    text,
)
from packages import package
from screenshots import reach, recovering

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)
SVG = "{http://www.w3.org/2000/svg}"


def save(page: Browser, button: str, file: str) -> ElementTree.Element:
    """A picture of the page as SVG."""
    page.run(f"if (!window.saved) {{ {KEEP.removesuffix('; 0')}; }} delete saved['{file}']; 0")
    page.run(f"[...document.querySelectorAll('#{button} button')].find(b => b.textContent === 'SVG').click()")
    page.wait(f"'{file}' in saved", file)
    return ElementTree.fromstring(page.run(f"saved['{file}']"))


def words_of(picture: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}text")]


def test_the_bar_says_how_many_critics_need_attention(start: Start, page: Browser) -> None:
    quiet = (
        'refit_first_rows = 0\nrefit_score_drop = 0.0\ndictionary_max = 20\ndiscount = 0.5\ndrift_sensitivity = "off"'
    )
    critics = "".join(f'[[critic]]\nname = "arm-{k:02}"\nrewards = [{int(k == 17)}]\n{quiet}\n' for k in range(20))
    daemon = start(config="state_dim = 1\n" + critics)
    generator, push, sent = np.random.default_rng(3), daemon.push(), 0

    def send(shift: float) -> None:
        nonlocal sent
        states = generator.uniform(0, 1, (60, 1))
        rewards = states + np.array([0.0, shift]) + 0.1 * generator.normal(size=(60, 1))
        ends = np.ones(60, bool)
        push.send(pack({"seq": sent, "states": states, "next_states": states, "rewards": rewards, "terminated": ends}))
        sent += 60

    page.open(address(daemon))

    def go_on(shift: float, condition: str, what: str) -> None:
        def sent_and_true() -> bool:
            send(shift)
            time.sleep(0.3)
            return page.holds(condition)

        when(sent_and_true, what)

    page.wait("document.getElementById('attention')", "the page")
    page.run("import('/known.js').then(({newest}) => { window.newest = newest; })")
    covered = "newest('arm-17', 'coverage') > 0.8 && newest('arm-02', 'coverage') > 0.8"
    go_on(0.0, f"{covered} && document.getElementById('attention').hidden", "returns, and none that needs attention")
    # The reward of one of them rises: its values are too low from here on.
    attention = "document.getElementById('attention')"
    one = f"{attention}.textContent === '▲ 1 of 20 critics needs attention' && {attention}.title.startsWith('arm-17: ')"
    go_on(4.0, f"!{attention}.hidden && {one}", "that one needs attention")
    shoot(page, "attention")
    page.run("document.getElementById('attention').click()")
    first = "document.querySelector('#critics-list li')?.textContent"
    page.wait(f"{first}?.startsWith('arm-17')", "it comes first")
    page.wait(f"/only \\d+ % of the last \\d+ returns|values are too low by [0-9.]+/.test({first})", "why")
    assert_clean(page, daemon)


def test_thousands_of_heads_are_searched_and_any_of_them_is_shown_on_the_map(start: Start, page: Browser) -> None:
    form = '{{ name = "joint-{k}", cumulant = {{ kind = "state", index = {index} }}, discount = 0.5 }}'
    heads = ", ".join(form.format(k=k, index=k % 2) for k in range(2000))
    daemon = start(
        config='state_dim = 2\nstate_names = ["angle", "speed"]\n'
        f"[[critic]]\ndiscount = 0.5\nrefit_first_rows = 0\ndictionary_max = 60\nheads = [{heads}]\n"
    )
    control, field = daemon.control(), Field(daemon)
    # Of so many heads a row in 500 is followed, and a head needs forty returns.
    for _ in range(100):
        field.send(300, lambda states: states[:, 0])
    learned(daemon, field.sent)
    page.open(f"{address(daemon)}#critic=default&x=0&y=1")
    listed = "[...document.querySelectorAll('#heads-list li')].map(li => li.textContent)"
    page.wait(f"{listed}.length === 10", "ten of them")
    says(page, "heads-note", "2\u202f000 heads; the least known first")
    # Of some of them returns are known: those whose intervals hold worst are listed before.
    when(lambda: control.ask("status")["critics"][0]["heads"]["verified"] > 0, "heads that are verified")
    page.wait("document.querySelectorAll('#heads-worst li').length === 10", "the ten whose intervals hold worst")
    covered = "[...document.querySelectorAll('#heads-worst .details')].map(each => parseFloat(each.textContent))"
    away = [abs(share - 90) for share in page.run(covered)]
    assert away == sorted(away, reverse=True), away
    page.run(
        "(f => { f.value = 'joint-1234'; f.dispatchEvent(new Event('input')); })(document.getElementById('heads-find'))"
    )
    page.wait(f"{listed}.length === 1 && {listed}[0].startsWith('joint-1234')", "the one that is meant")
    # A row's own state is its return here, since each row ends its episode: the map of joint-1234 is the angle.
    page.run("document.querySelector('#heads-list button').click()")
    page.wait("document.getElementById('named-word').textContent === 'Head joint-1234'", "its map")
    shown(page, "named-back")
    hidden(page, "against-choice")
    page.run(KEEP)

    def rows() -> list[list[float]]:
        page.run("delete saved['value.csv']")
        page.run("[...document.querySelectorAll('#map-value-save button')].find(b => b.textContent === 'CSV').click()")
        page.wait("'value.csv' in saved", "the numbers")
        return [[float(v) for v in row.split(",")] for row in page.run("saved['value.csv']").strip().split("\n")[1:]]

    def is_the_angle() -> None:
        wrong = [abs(value - angle) for angle, _, value, *_ in rows()]
        assert np.median(wrong) < 0.1, np.median(wrong)

    settles(is_the_angle)
    shoot(page, "head")
    # The address leads back to it, and the button to the value.
    page.wait("location.hash.includes('head=joint-1234')", "the address")
    there = page.run("location.href")
    page.open("about:blank")
    page.open(there)
    page.wait("document.getElementById('named-word')?.textContent === 'Head joint-1234'", "the same map")
    page.run("document.getElementById('named-back').click()")
    page.wait("document.getElementById('named-word').textContent === ''", "the value")
    assert_clean(page, daemon)


def test_a_curve_shows_its_data_and_what_is_not_known_and_its_range_stays(start: Start, page: Browser) -> None:
    quiet = (
        "critic.refit_first_rows=0",
        "critic.refit_score_drop=0",
        "critic.discount=0.5",
        "critic.dictionary_max=80",
    )
    daemon = start(*quiet, config='state_dim = 2\nstate_names = ["place", "load"]\n')
    generator = np.random.default_rng(3)
    # Places between 3 and 7 are never visited; the value changes quickly, so that nothing is known of them.
    places = np.concatenate([generator.uniform(0, 3, 500), generator.uniform(7, 10, 500)])
    states = np.stack([generator.permutation(places), generator.uniform(0, 1, 1000)], axis=1)
    rewards = np.sin(5 * states[:, 0]) + 0.02 * generator.normal(size=1000)
    ends = np.ones(1000, bool)
    daemon.push().send(pack({"states": states, "next_states": states, "rewards": rewards, "terminated": ends}))
    control = daemon.control()
    control.wait_for_learned(1000)
    assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    page.open(f"{address(daemon)}#critic=default&x=0&y=")
    page.wait("document.getElementById('maps')?.classList.contains('single')", "a curve")
    page.wait("document.getElementById('map-legend').offsetHeight > 0", "that some of it is not known")
    # A rug of visited states, without a choice: thin bars of one height.
    hidden(page, "recent-choice")

    def has_a_rug() -> None:
        rectangles = save(page, "map-value-save", "value.svg").iter(f"{SVG}rect")
        assert sum(each.get("width") == "1" and each.get("height") == "9" for each in rectangles) > 50

    settles(has_a_rug)
    unknown = "import('/value.js').then(({unknownOfCurve}) => unknownOfCurve())"

    def is_unknown_in_the_middle() -> None:
        flags = page.run(unknown)
        share = [flags[round(v * (len(flags) - 1))] for v in (0.1, 0.2, 0.5, 0.8, 0.9)]
        assert share == [False, False, True, False, False], flags

    settles(is_unknown_in_the_middle)
    picture = save(page, "map-value-save", "value.svg")
    shoot(page, "curve-unknown")
    # Another slice has the same range.
    before = words_of(picture)
    answered = "entry.name.includes('/api/map') && entry.responseStatus === 200"
    asked = f"performance.getEntriesByType('resource').filter(entry => {answered})"
    pictures = page.run(f"{asked}.length")
    page.run(
        "(s => { s.value = s.max; s.dispatchEvent(new Event('input')); })(document.querySelector('#sliders input'))"
    )
    page.wait(f"{asked}.length > {pictures} && document.getElementById('slice').textContent !== ''", "another slice")
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    time.sleep(2)
    numbers = [
        [word for word in words if re.fullmatch(r"[−0-9.]+", word)]
        for words in (before, words_of(save(page, "map-value-save", "value.svg")))
    ]
    assert numbers[0] == numbers[1], numbers
    assert_clean(page, daemon)


@pytest.mark.long
def test_a_model_is_compared_with_the_truth(page: Browser, tmp_path: Path) -> None:
    command = [BINARY, "demo", "gridworld", "--seconds", "12", "--stay", "--out", "grid.png"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "until Ctrl-C" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        (url,) = re.findall(r"stays at (http://\S+) until Ctrl-C", said)
        page.open(url)
        page.wait("document.querySelector('#against option[value=truth]')", "the truth in the list")
        choose(page, "against", "truth")
        note = "document.getElementById('difference-note').textContent"
        page.wait(f"/at visited places [0-9.]+ .root mean square/.test({note})", "the difference")

        def is_close_to_the_truth() -> None:
            apart = number(re.findall(r"places ([0-9.·⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+) ", page.run(note))[0])
            ends = page.run("document.getElementById('map-other').getAttribute('aria-label')")
            low, high = map(number, re.findall(r"from ([−0-9.]+) to ([−0-9.]+)", ends)[0])
            assert text(page, "other-title") == "What is true"
            assert apart < 0.15 * (high - low), (apart, low, high)

        settles(is_close_to_the_truth)
        shoot(page, "truth")
        demo.send_signal(signal.SIGINT)
        demo.wait(PATIENCE_S)


def test_refits_that_wait_are_seen(start: Start, page: Browser) -> None:
    critics = "".join(
        f'[[critic]]\nname = "arm-{k}"\ndiscount = 0.9\nrefit_first_rows = 400\nrefit_budget_s = 20\n' for k in range(6)
    )
    daemon = start(config="state_dim = 4\n" + critics)
    page.open(address(daemon))
    # Once it hears what the daemon says: the first of the queue is soon done.
    page.wait("(document.getElementById('vitals')?.textContent ?? '').startsWith('rows0')", "the page")
    page.wait("document.getElementById('live').dataset.state === 'live'", "its connection")
    generator, push, control, sent = np.random.default_rng(3), daemon.push(), daemon.control(), 0

    def all_are_due() -> None:
        nonlocal sent
        while sent < max(critic["refit"]["next_at"] for critic in control.ask("status")["critics"]):
            states = np.sin(generator.normal(size=(3001, 4)).cumsum(axis=0) * 0.1)
            push.send(pack({"seq": sent, "states": states, "rewards": np.sin(5 * states[:-1, 0])}))
            sent += 3000

    def is_over() -> bool:
        status = control.ask("status")
        refits = [critic["refit"] for critic in status["critics"]]
        return status["offset"] == sent and not any(refit["running"] or refit["due"] for refit in refits)

    all_are_due()
    waits = "document.getElementById('vitals').textContent.match(/refits wait([0-9]+)/)?.[1]"
    seen = set[int]()

    def all_done() -> bool:
        now = page.run(waits)
        if now is not None:
            seen.add(int(now))
        elif is_over():
            # Where this process or the page stood still it has seen too few of them.
            all_are_due()
        return len(seen) >= 3

    when(all_done, "a queue that grows shorter", 5 * PATIENCE_S)
    # The page may hear of the first of them late.
    assert max(seen) <= 5, seen


def test_on_a_phone_trust_comes_first_then_the_trajectory_then_the_map(start: Start, page: Browser) -> None:
    daemon = start_walk(start)
    page.size(390, 844, mobile=True, scale=2)
    walk = Walk(daemon, seed=3)
    for _ in range(20):
        walk.send(20)
    page.open(address(daemon))
    page.wait("document.querySelectorAll('#worst li').length > 0", "the page")
    # At one moment: parts that arrive move those below.
    parts = ["trust", "trajectory", "view", "time", "wrong"]
    shown(page, *parts)
    tops = f"{parts}.map(part => document.getElementById(part).getBoundingClientRect().top)"

    def stand_in_this_order() -> None:
        assert (found := page.run(tops)) == sorted(found), found

    settles(stand_in_this_order)
    assert_clean(page, daemon)


def test_reward_stream_and_kind_of_error_are_in_the_address(start: Start, page: Browser) -> None:
    daemon = start(
        config='state_dim = 2\n[[critic]]\nname = "both"\ndiscount = 0.5\nrewards = [1, 0]\nrefit_first_rows = 0\n'
    )
    generator, push = np.random.default_rng(4), daemon.push()
    for seq in range(0, 400, 40):
        states = generator.uniform(0, 1, (40, 2))
        batch = {"states": states, "next_states": states, "rewards": states, "terminated": np.ones(40, bool)}
        push.send(pack({"stream": "arm", "seq": seq, **batch}))
        time.sleep(0.2)
    page.open(f"{address(daemon)}#critic=both&x=0&y=1&reward=1&error=td&stream=arm")
    page.wait("document.getElementById('head')?.value === '1'", "the reward")
    asked = "performance.getEntriesByType('resource').some(entry => /api.path.*head=1.*stream=arm/.test(entry.name))"
    page.wait(asked, "its trajectory")
    page.wait("document.getElementById('error-kind').value === 'td'", "the kind of error")
    page.wait(
        "location.hash.includes('reward=1') && location.hash.includes('error=td') && location.hash.includes('stream=arm')",
        "the address",
    )
    # The line is about the reward that is shown.
    page.wait("/of reward 1/.test(document.getElementById('trust-line').textContent)", "trust")
    choose(page, "error-kind", "error")
    page.wait("!location.hash.includes('error=')", "the other kind")
    assert_clean(page, daemon)


def test_a_screen_reader_hears_of_another_level_alone(start: Start, page: Browser) -> None:
    daemon = start_field(start, "critic.dictionary_max=30", "critic.drift_sensitivity=off")
    field = Field(daemon, dim=3)
    page.open(address(daemon))
    page.wait("document.getElementById('trust-said')", "the page")
    said = "[document.getElementById('trust-said').textContent, document.getElementById('trust').dataset.level]"
    page.run(
        f"window.heard = []; new MutationObserver(() => heard.push({said}))"
        ".observe(document.getElementById('trust-said'), {childList: true, characterData: true, subtree: true}); 0"
    )
    lines = set()

    def many_lines() -> bool:
        field.send(60, lambda states: states[:, 0])
        time.sleep(0.3)
        lines.add(text(page, "trust-line"))
        return len(lines) > 5

    when(many_lines, "numbers that change")
    heard = page.run("heard")
    # Once for each level, and of the numbers nothing.
    assert all(one != other and of != then for (one, of), (other, then) in pairwise(heard)), heard
    assert len(heard) < len(lines), (heard, lines)
    assert page.run("document.querySelectorAll('#trust [role=status]').length") == 1
    assert_clean(page, daemon)


def serious(page: Browser) -> list[list[str]]:
    script = (package("axe-core", "4.11.1") / "axe.min.js").read_text()
    page.run(f"{script}; 0")
    found = page.run("axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html)]))")
    return [each for each in found if each[0] in ("serious", "critical")]


def of_many(start: Start, page: Browser) -> Daemon:
    """The list of critics is open, two of them are compared."""
    quiet = "refit_first_rows = 0\nrefit_score_drop = 0.0\ndictionary_max = 20\ndiscount = 0.5"
    critics = "".join(f'[[critic]]\nname = "arm-{k:02}"\n{quiet}\n' for k in range(14))
    daemon = start(config="state_dim = 2\n" + critics)
    field = Field(daemon)
    for _ in range(5):
        field.send(60, lambda states: states[:, 0])
    page.open(address(daemon))
    page.wait("document.querySelector('#against option[value=\"critic arm-03\"]')", "the critics")
    choose(page, "against", "critic arm-03")
    page.wait("document.getElementById('difference-note').textContent.includes('root mean square')", "the difference")
    page.run("document.getElementById('critics').open = true")
    page.wait("document.querySelectorAll('#critics-list li').length === 10", "the list")
    return daemon


def amber(start: Start, page: Browser) -> Daemon:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=9).send(200)
    daemon.push().send(pack({"stream": "other", "seq": 0, "states": np.zeros((3, 5)), "rewards": np.zeros(2)}))
    page.open(address(daemon))
    page.wait("document.getElementById('trust')?.dataset.level === 'warn'", "an amber line")
    return daemon


def red(start: Start, page: Browser) -> Daemon:
    daemon = start_walk(start, dim=2)
    Walk(daemon, dim=2, seed=9).send(200)
    daemon.control().wait_for_offset(200)
    data = daemon.directory / "data"
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        os.rename(data / name, daemon.directory / name)
    page.open(address(daemon))
    page.wait("document.getElementById('trust')?.dataset.level === 'bad'", "a red line")

    def is_said_once() -> None:
        words = text(page, "trust-why")
        assert words.count("Do not stop") == 1 and words.count("Deleted files") == 1, words

    settles(is_said_once)
    return daemon


def of_actions(start: Start, page: Browser) -> Daemon:
    settings = 'inputs = "state_action"\nactions = ["left", "right"]\nsuccessor = "sarsa"\ndiscount = 0.5\nrefit_first_rows = 0\n'
    daemon = start(config=f"state_dim = 2\n[[critic]]\n{settings}")
    generator = np.random.default_rng(3)
    states, actions = generator.normal(size=(301, 2)), generator.integers(0, 2, 300).astype(float)
    daemon.push().send(pack({"states": states, "rewards": states[:-1, 0], "actions": actions}))
    page.open(address(daemon))
    page.wait("document.getElementById('map-chosen')?.getAttribute('aria-label').includes('left')", "the actions")
    return daemon


# Each scene, and each look.
LOOKS = [("desktop", of_many), ("desktop", amber), ("desktop", red), ("desktop", of_actions), ("dark", of_many), ("phone", of_many)]
# The rest of their combinations.
FURTHER = [(look, scene) for look in ("dark", "phone") for scene in (amber, red, of_actions)]


@pytest.mark.parametrize(
    ("look", "scene"), [*LOOKS, *(pytest.param(*each, marks=pytest.mark.nightly) for each in FURTHER)]
)
def test_axe_finds_nothing_serious_in_any_scene(
    start: Start, page: Browser, look: str, scene: Callable[[Start, Browser], Daemon]
) -> None:
    if look == "phone":
        page.size(390, 844, mobile=True, scale=2)
    else:
        page.size(1400, 900, dark=look == "dark")
    daemon = scene(start, page)
    assert serious(page) == []
    assert_clean(page, daemon)


@pytest.mark.nightly
@pytest.mark.long
def test_a_long_start_shows_its_progress_and_then_the_page(page: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        starting = recovering(tmp_path / "d", stack)
        reach(starting.endpoints["http"])
        page.open(f"http://{starting.endpoints['http']}/")
        shares = set()

        def goes_on() -> bool:
            try:
                found = re.match(r"criticd starts: (\d+) %", page.run("document.title"))
            except Navigated:
                return False  # it loads itself anew
            if found:
                shares.add(int(found[1]))
            return len(shares) >= 3

        when(goes_on, "progress")
        page.wait("/recovering: \\d+ of 60000 rows/.test(document.body.innerText)", "how many rows there are")
        # It learns sixty thousand rows before.
        vitals = "document.getElementById('vitals').textContent"
        page.wait(f"{vitals}.startsWith('rows60')", "the page itself", 5 * PATIENCE_S)
        page.wait("document.getElementById('view').hidden === false", "its map")
