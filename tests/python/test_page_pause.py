"""A page that stands still: nothing of what it shows, reads out or saves changes until it goes on."""

from __future__ import annotations

import time

import browser
import pytest
from browser import Browser
from conftest import Start
from dashboard import KEEP, Walk, address, assert_clean, start_walk

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)


def test_a_page_that_stands_still_shows_and_saves_one_moment(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=5)
    walk.send(300)
    page.open(address(daemon))
    page.wait("document.getElementById('vitals')?.textContent.startsWith('rows300')", "the rows")
    page.run("document.getElementById('time-more').open = true")
    page.run(KEEP)
    pause = "document.getElementById('pause').click()"
    page.run(pause)

    def saved() -> str:
        page.run("delete saved['over-time.csv']")
        page.run("[...document.querySelectorAll('#time-save button')].find(b => b.textContent === 'CSV').click()")
        page.wait("'over-time.csv' in saved", "the numbers")
        return page.run("saved['over-time.csv']")

    before = saved()
    walk.send(100)
    daemon.shared_control().wait_for_offset(400)
    time.sleep(2.5)
    # By key to the newest place of a time line: it is that of the moment.
    line = "[...document.querySelectorAll('.line')].find(line => line.textContent.startsWith('Rows taken in'))"
    page.run(f"{line}.querySelector('canvas').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
    page.wait("document.getElementById('time-out').textContent.startsWith('0 s ago')", "where the pointer is")
    assert page.run(f"{line}.querySelector('b').textContent.trim()") == "300"
    # Another theme draws all of it again.
    page.run("document.getElementById('theme').click()")
    assert saved() == before
    page.run("document.activeElement.blur()")
    # It goes on with what has come, and without asking for the past again.
    asked = "performance.getEntriesByType('resource').filter(entry => entry.name.includes('/api/history')).length"
    questions = page.run(asked)
    page.run(pause)
    page.wait("document.getElementById('vitals').textContent.startsWith('rows400')", "the newest numbers")
    page.wait(f"{line}.querySelector('b').textContent.trim() === '400'", "the same in the time line")
    after = saved()
    assert after.startswith(before.rstrip("\n")) and len(after) > len(before), "each second of the pause"
    assert page.run(asked) == questions
    assert_clean(page, daemon)
