"""The page of a critic of action values: maps of the largest Q and of its action, and returns of episodes."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from browser import Browser
from client import Daemon, pack
from conftest import Start
from dashboard import address, assert_clean, shoot, shown
from test_page_tools import text

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
    page.wait("document.getElementById('map-chosen')?.getAttribute('aria-label').includes('left')", "the actions")
    assert all(shown(page, card) for card in ("chosen-card", "deviation-card", "episodes", "selection"))
    assert not any(shown(page, card) for card in ("empty", "trajectory", "trio", "mode-choice"))
    assert text(page, "q-word") == "Largest Q" and page.run("document.getElementById('value-word').hidden")
    label = page.run("document.getElementById('map-chosen')?.getAttribute('aria-label')")
    assert "right" in label and "stay" in label, label
    # "place" is across: far to the left the action that leads back is the one to the right.
    for across, word in ((0.22, "action right"), (0.8, "action left")):
        pointed(page, "map-chosen", across, f"textContent.includes('{word}')")
    assert text(page, "episodes-note").startswith("60 episodes; mean of the last 10: −")
    pointed(page, "map-value", 0.3, "textContent.includes('action ')")
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
    assert text(page, "chosen-note").startswith("first coordinate")
    shoot(page, "actions-box")
    assert_clean(page, daemon)
