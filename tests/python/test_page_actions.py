"""The page of a critic of action values: maps of the largest Q and of its action, and returns of episodes."""

from __future__ import annotations

import re
import time

import browser
import numpy as np
import pytest
from browser import Browser
from client import Daemon, pack, settles, when
from conftest import Start
from dashboard import address, assert_clean, hidden, says, shoot, shown, text

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)
CONFIG = """
state_dim = 2
state_names = ["place", "load"]

[[critic]]
name = "q"
inputs = "state_action"
actions = %s
successor = "improve"
improve_rows = 200
discount = 0.9
refit_first_rows = 0
dictionary_max = 60
"""


def send(daemon: Daemon, box: bool, episodes: int = 60) -> None:
    """Episodes of ten steps in which the action that leads to the middle pays most."""
    random = np.random.default_rng(2)
    push, sent = daemon.push(), 0
    for _ in range(episodes):
        states = random.uniform(-1, 1, (11, 2))
        if box:
            actions = random.uniform(-1, 1, 10)
            rewards = -np.abs(states[:-1, 0] + actions)
        else:
            actions = random.integers(0, 3, 10).astype(float)
            rewards = -np.abs(states[:-1, 0] + actions - 1)
        batch = {"states": states, "rewards": rewards, "actions": actions, "truncated": np.arange(10) == 9}
        push.send(pack({"stream": "agent", "session": "run", "seq": sent, **batch}))
        sent += 10


def pointed(page: Browser, canvas: str, across: float, is_said: str) -> None:
    """Point at a canvas until its numbers are these: parts that arrive meanwhile may move it."""
    moved = f"""(canvas => {{
        const {{left, top, width, height}} = canvas.getBoundingClientRect();
        const at = {{bubbles: true, clientX: left + {across} * width, clientY: top + 0.5 * height}};
        canvas.dispatchEvent(new PointerEvent('pointermove', at));
        return Boolean(document.getElementById('{canvas}-out').{is_said});
    }})(document.getElementById('{canvas}'))"""
    page.wait(moved, is_said)


def test_the_best_action_has_a_map_with_names_and_episodes_have_returns(start: Start, page: Browser) -> None:
    daemon = start(config=CONFIG % '["left", "stay", "right"]')
    send(daemon, box=False)
    page.open(address(daemon))
    # A busy daemon learns the rows in parts: the first map may be of few.
    label = "(document.getElementById('map-chosen')?.getAttribute('aria-label') ?? '')"
    page.wait(f"['left', 'stay', 'right'].every(word => {label}.includes(word))", "the actions")
    shown(page, "chosen-card", "deviation-card", "episodes", "selection")
    hidden(page, "empty", "calibration", "mode-choice", "value-word")
    assert text(page, "q-word") == "Largest Q"
    # "place" is across: far to the left the action that leads back is the one to the right.
    for across, word in ((0.22, "action right"), (0.8, "action left")):
        pointed(page, "map-chosen", across, f"textContent.includes('{word}')")
    note = "document.getElementById('episodes-note').textContent"
    page.wait(f"{note}.startsWith('60 episodes; mean of the last 10: −')", "returns")
    pointed(page, "map-value", 0.3, "textContent.includes('action ')")
    # What it learns is the value of the best actions, and no return says whether that is right: nothing waits for one.
    page.wait("document.getElementById('trust')?.dataset.level === 'never'", "the line")
    says(page, "trust-line", "Not verified: these are values of the best actions")
    titles = page.run("[...document.querySelectorAll('.line:not([hidden]) h3')].map(h => h.textContent)")
    assert not any(title.startswith(("Error", "Bias", "Returns in")) for title in titles), titles
    page.wait("document.getElementById('robots').textContent.startsWith('◆ agent is at place ')", "where it is")
    # Q of the actions taken, along the trajectory: the return that came is that of another policy.
    page.wait("/^\\d+ rows of agent/.test(document.getElementById('path-note').textContent)", "the trajectory")
    hidden(page, "path-came")
    assert "return is known" not in text(page, "path-note")
    page.run("document.getElementById('path').focus()")
    for _ in range(3):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    # The marked row may be one whose best action earns nothing: Q has either sign.
    said = r"/: Q −?[0-9.]+ ± [0-9.]+ \(2 std\) · reward .* · TD error −?[0-9.]+/.test(document.getElementById('path-out').textContent)"
    page.wait(said, "Q")
    # The pointer rests on the map: what it draws anew takes nothing from the keys.
    (row,) = re.findall("^row [^,]*", text(page, "path-out"))
    page.size(1300, 900)
    page.run("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(drawn))))")
    assert text(page, "path-out").startswith(f"{row},")
    page.size(1400, 900)
    # The place and the action matter, the load does not.
    # Those shown first may be of a model that knew little.
    def place_and_action_matter() -> bool:
        rows = page.run("[...document.querySelectorAll('.relevance-row')].map(row => row.textContent)")
        shares = dict(re.findall(r"^([a-z]+)(?:.*?(\d+) %)?", row)[0] for row in rows)
        shares = {name: int(share or 0) for name, share in shares.items()}
        ordered = list(shares) == ["place", "load", "action"]
        return ordered and shares["place"] > 30 and shares["action"] > 30 and shares["load"] < 15

    page.wait("document.querySelectorAll('.relevance-row').length === 3", "the variables")
    when(place_and_action_matter, "the shares")
    # No return says where it is wrong; reward and next value do.
    page.wait("document.querySelectorAll('#worst li').length > 0 && document.getElementById('error-card').offsetHeight > 0", "errors")
    hidden(page, "error-kind")
    says(page, "error-note", "TD error: reward and next value − Q")
    # Of four maps none stands alone in its row.
    def stand_in_pairs() -> None:
        maps = "[...document.querySelectorAll('#maps > figure')].filter(m => m.offsetHeight).map(m => m.offsetTop)"
        tops = page.run(maps)
        assert len(tops) == 4 and all(tops.count(top) == 2 for top in tops), tops

    settles(stand_in_pairs)
    shoot(page, "actions")
    assert_clean(page, daemon)


def test_of_a_box_the_first_coordinate_is_shown(start: Start, page: Browser) -> None:
    daemon = start(config=CONFIG % "{ low = [-1.0], high = [1.0] }")
    send(daemon, box=True)
    page.open(address(daemon))
    page.wait("document.getElementById('map-chosen')?.getAttribute('aria-label').includes('values')", "the actions")
    # Right at the left end, left at the right end.
    pointed(page, "map-chosen", 0.22, "textContent.match(/action [0-9]/)")
    pointed(page, "map-chosen", 0.8, "textContent.match(/action −[0-9]/)")
    says(page, "chosen-note", "action of the one")
    shoot(page, "actions-box")
    assert_clean(page, daemon)


def test_values_of_the_policy_that_acts_are_verified(start: Start, page: Browser) -> None:
    config = (CONFIG % '["left", "right"]').replace(
        'successor = "improve"\nimprove_rows = 200\n', 'successor = "sarsa"\n'
    )
    daemon = start(config=config.replace("discount = 0.9", "discount = 0.5"))
    push, random, sent = daemon.push(), np.random.default_rng(2), 0
    page.open(address(daemon))

    def sent_and_verified() -> bool:
        nonlocal sent
        states, actions = random.uniform(-1, 1, (101, 2)), random.integers(0, 2, 100).astype(float)
        # Going right pays 2 at once; whatever follows is alike.
        batch = {"states": states, "rewards": 2 * actions + 0.05 * random.normal(size=100), "actions": actions}
        push.send(pack({"stream": "agent", "session": "run", "seq": sent, **batch}))
        sent += 100
        time.sleep(0.3)
        return page.run(
            "(document.getElementById('trust-line')?.textContent ?? '').includes('Returns were predicted to within')"
        )

    when(sent_and_verified, "values that are verified")
    # Time lines are drawn after the rest.
    titles = "[...document.querySelectorAll('.line:not([hidden]) h3')].map(h => h.textContent)"
    page.wait(f"{titles}.some(title => title.startsWith('Error'))", "the error over time")
    # Along the trajectory Q is beside the return that came, and nearly all of it hangs on the action.
    for card in ("calibration", "relevance-card", "error-kind", "path-came"):
        page.wait(f"document.getElementById('{card}').offsetHeight > 0", card)
    page.wait("/return is known of \\d\\d %/.test(document.getElementById('path-note').textContent)", "the trajectory")
    # Those shown first may be of a model that knew little.
    rows = "[...document.querySelectorAll('.relevance-row')].map(row => row.textContent)"
    page.wait(f"{rows}.length === 3 && Number(/^action(\\d+) %/.exec({rows}[2])?.[1]) > 80", "the shares")
    # The errors shown first may be of a young model.
    off = "/returns are off by ([0-9.]+)/.exec(document.getElementById('worst-text').textContent)"
    page.wait(f"Number({off}?.[1]) < 0.6", "the errors")

    def are_of_two_kinds() -> bool:
        # The value of going right is higher by 2. The first predictions are those of a young model, and grow old.
        pairs = page.run("import('/known.js').then(({known}) => known.calibration[0][0].pairs)")[-60:]
        predicted, realised = np.array([pair[:2] for pair in pairs]).T
        if np.ptp(predicted) > 1.5 and np.corrcoef(predicted, realised)[0, 1] > 0.7:
            return True
        sent_and_verified()
        return False

    when(are_of_two_kinds, "predictions and returns of two kinds")
    shoot(page, "actions-verified")
    assert_clean(page, daemon)
