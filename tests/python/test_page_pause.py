"""A page that stands still: nothing of what it shows, reads out or saves changes until it goes on."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from browser import Browser
from client import when
from conftest import Start
from dashboard import HEARD, KEEP, Walk, address, assert_clean, start_walk

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)


def test_a_page_that_stands_still_shows_and_saves_one_moment(start: Start, page: Browser) -> None:
    daemon = start_walk(start, dim=2)
    walk = Walk(daemon, dim=2, seed=5)
    walk.send(300)
    page.call("Page.addScriptToEvaluateOnNewDocument", source=HEARD)
    page.open(address(daemon))
    page.wait("document.getElementById('vitals').textContent.startsWith('rows300')", "the rows")
    page.run("document.getElementById('time-more').open = true")
    page.run(KEEP)
    pause = "document.getElementById('pause').click()"
    line = "[...document.querySelectorAll('.line')].find(line => line.textContent.startsWith('Rows taken in'))"
    page.wait(f"{line}.querySelector('b').textContent.trim() === '300'", "the rows in the time line")

    def saved() -> str:
        page.run("delete saved['over-time.csv']")
        page.run("[...document.querySelectorAll('#time-save button')].find(b => b.textContent === 'CSV').click()")
        page.wait("'over-time.csv' in saved", "the numbers")
        return page.run("saved['over-time.csv']")

    def one_moment_is_kept() -> bool:
        """Whether all news came meanwhile: a page that has lost some on a busy machine asks for everything anew."""
        rows = walk.sent
        first = page.run("heard.length")
        page.run(pause)
        before = saved()
        walk.send(100)
        daemon.shared_control().wait_for_offset(rows + 100)
        page.wait(f"heard.length > {first} + 2", "news")
        # By key to the newest place of a time line: it is that of the moment.
        page.run(f"{line}.querySelector('canvas').focus()")
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
        page.wait("document.getElementById('time-out').textContent.startsWith('0 s ago')", "where the pointer is")
        assert page.run(f"{line}.querySelector('b').textContent.trim()") == str(rows)
        # Another theme draws all of it again.
        page.run("document.getElementById('theme').click()")
        assert saved() == before
        page.run("document.activeElement.blur()")
        # It goes on with what has come, and without asking for the past again.
        asked = "performance.getEntriesByType('resource').filter(entry => entry.name.includes('/api/history')).length"
        questions = page.run(asked)
        page.run(pause)
        page.wait(f"document.getElementById('vitals').textContent.startsWith('rows{rows + 100}')", "the newest numbers")
        page.wait(f"{line}.querySelector('b').textContent.trim() === '{rows + 100}'", "the same in the time line")
        after = saved()
        again = page.run(asked)
        numbers = [number for number, _ in page.run(f"heard.slice({max(0, first - 1)})")]
        if any(step > 1 for step in np.diff(numbers)):
            return False
        assert after.startswith(before.rstrip("\n")) and len(after) > len(before), "each second of the pause"
        assert again == questions
        return True

    when(one_moment_is_kept, "a pause in which no news are lost")
    assert_clean(page, daemon)
