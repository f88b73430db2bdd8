"""What a person asks of the page, on streams whose truth is known: is it getting better, is it wrong or only unsure, where was the robot."""

from __future__ import annotations

import base64
import io
import re
import time

import browser
import numpy as np
import numpy.typing as npt
import pytest
from browser import Browser
from client import Array, pack, settles, when
from conftest import Start
from dashboard import KEEP, Field, address, assert_clean, learned, number, point_until, shoot, start_field, text
from PIL import Image

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)
QUIET = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "critic.drift_sensitivity=off")


@pytest.mark.long
def test_the_error_falls_while_a_stream_that_stays_the_same_is_learned(start: Start, page: Browser) -> None:
    daemon = start_field(start, "critic.dictionary_max=300", "critic.tolerance=1e-4", "critic.drift_sensitivity=off")
    field = Field(daemon, dim=3)
    page.open(address(daemon))
    page.wait("document.getElementById('lines')", "the page")
    page.run("import('/known.js').then(({series}) => { window.errors = () => series('error').filter(v => v !== null); })")
    heading = (
        "[...document.querySelectorAll('.line h3')].map(h => h.textContent).find(text => /^(RMS )?[Ee]rror/.test(text))"
    )

    def more(rows: int) -> None:
        # It takes some hundred rows to learn. Returns scatter by 0.05 about it, and vary by 1.5.
        field.send(rows, lambda states: 1.5 * np.sin(5 * states).sum(axis=1))
        time.sleep(0.4)

    def heard() -> bool:
        """However late the page hears of the rows before."""
        return page.holds(f"import('/known.js').then(({{known}}) => known.status.offset >= {field.sent})")

    def first() -> bool:
        if heard():
            more(12)
        return page.run("errors().length") > 0

    when(first, "the first errors")
    began = page.run("errors()[0]")
    assert began > 0.25, began
    # After as many rows each time: how many numbers the page has of them depends on the clock.
    curve = [began]

    def better() -> bool:
        if heard():
            curve.append(page.run("errors().at(-1)"))
            more(30)
        return curve[-1] < began / 3

    when(better, "that it is getting better")
    # Each number is of the newest hundred returns: the curve falls bit by bit.
    early, late = (np.mean(part) for part in np.array_split(curve, 2))
    print(np.round(curve, 3), early, late)
    assert early > 1.3 * late, curve
    # The page shows the same number above the curve.
    # Time lines are drawn a moment after the numbers have come.
    page.wait(f"Number(/[0-9.]+/.exec({heading} ?? '')?.[0]) < {began / 2}", "the curve")
    shoot(page, "better")
    assert_clean(page, daemon)


def columns(page: Browser, canvas: str, file: str) -> dict[str, npt.NDArray[np.float64]]:
    """The numbers behind a map, by their names; not a number where there is none."""
    page.run("window.saved ? delete window.saved['" + file + "'] : 0")
    page.run(f"[...document.querySelectorAll('#{canvas}-save button')].find(b => b.textContent === 'CSV').click()")
    page.wait(f"'{file}' in (window.saved ?? {{}})", file)
    head, *rows = page.run(f"saved['{file}']").strip().split("\n")
    numbers = np.array([[float(v) if v else np.nan for v in row.split(",")] for row in rows])
    return dict(zip(head.split(","), numbers.T, strict=True))


def test_where_it_is_wrong_is_told_from_where_it_is_unsure(start: Start, page: Browser) -> None:
    daemon = start_field(start, "critic.dictionary_max=12", "critic.drift_sensitivity=off")
    field = Field(daemon, dim=3)
    corner, empty = np.array([0.25, 0.3]), np.array([0.85, 0.8])

    def reward(states: Array) -> Array:
        # Twelve states cannot carry a narrow spike; there are rows enough on it to be sure of the mean.
        spike = (np.abs(states[:, :2] - corner) < 0.1).all(axis=1)
        return states[:, 0] + 6.0 * spike

    # Nothing is ever seen of another corner.
    for _ in range(20):
        states = field.generator.uniform(0, 1, (260, 3))
        states = states[~(np.abs(states[:, :2] - empty) < 0.2).all(axis=1)][:200]
        rewards = reward(states) + 0.05 * field.generator.normal(size=len(states))
        batch = {"states": states, "next_states": states, "rewards": rewards, "terminated": np.ones(len(states), bool)}
        field.push.send(pack({"stream": "field", "seq": field.sent, **batch}))
        field.sent += len(states)
    learned(daemon, field.sent)
    # A map of short lengthscales, so that what is next to the corner says little of it.
    page.open(f"{address(daemon)}#critic=default&x=0&y=1")
    page.wait("document.querySelectorAll('#worst li').length === 10", "the worst states")
    page.wait("!document.getElementById('error-card').hidden", "the map of errors")
    page.wait("document.getElementById('map-value').getAttribute('aria-label').startsWith('Value of')", "the map")
    page.run(KEEP)

    def near(of: dict[str, npt.NDArray[np.float64]], place: Array, reach: float) -> npt.NDArray[np.bool_]:
        return (np.abs(of["position"] - place[0]) < reach) & (np.abs(of["slope"] - place[1]) < reach)

    def is_told_apart() -> None:
        value, wrong = columns(page, "map-value", "value.csv"), columns(page, "map-error", "error.csv")
        known = wrong["returns"] > 0
        spike = near(wrong, corner, 0.09) & known
        elsewhere = known & ~near(wrong, corner, 0.25)
        assert spike.sum() >= 3 and np.mean(wrong["error"][spike]) > 3
        assert np.abs(wrong["error"][elsewhere]).mean() < 1, "it is right elsewhere"
        # At the spike it is sure of itself, as sure as elsewhere; in the corner where no row was it is not, and no error is known.
        sure = value["deviation"]
        at_spike, at_rest = sure[near(value, corner, 0.09)], sure[~near(value, empty, 0.25)]
        at_empty = sure[near(value, empty, 0.1)]
        assert at_spike.mean() < 1.3 * np.median(at_rest), (at_spike.mean(), np.median(at_rest))
        assert at_spike.mean() < np.mean(wrong["error"][spike]) / 10
        assert at_empty.mean() > 1.5 * at_spike.mean(), (at_empty.mean(), at_spike.mean())
        assert wrong["returns"][near(wrong, empty, 0.12)].sum() == 0

    settles(is_told_apart)
    shoot(page, "wrong-not-unsure")
    assert_clean(page, daemon)


def picture(page: Browser, canvas: str) -> npt.NDArray[np.int16]:
    """The pixels of a canvas, (rows, columns, 3)."""
    url = page.run(f"document.getElementById('{canvas}').toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGB"), np.int16)


def at_rest(page: Browser, canvas: str) -> npt.NDArray[np.int16]:
    """The pixels of a canvas once it has been the same for a second."""
    last = picture(page, canvas)

    def rests() -> bool:
        nonlocal last
        time.sleep(1)
        before, last = last, picture(page, canvas)
        return np.array_equal(before, last)

    when(rests, "a picture at rest")
    return last


@pytest.mark.long
def test_the_pointer_on_the_strip_moves_the_point_on_the_map_and_back(start: Start, page: Browser) -> None:
    daemon = start(*QUIET, "critic.discount=0.5", config='state_dim = 2\nstate_names = ["place", "load"]\n')
    steps = np.arange(121)
    # Once round a circle: each place is that of one row.
    states = np.stack([np.cos(steps / 20), np.sin(steps / 20)], axis=1)
    batch = {"states": states, "rewards": states[:-1, 0], "truncated": steps[:-1] == 119}
    daemon.push().send(pack({"stream": "arm", "seq": 0, **batch}))
    learned(daemon, 120)
    page.open(f"{address(daemon)}#critic=default&x=0&y=1&stream=arm")
    out, above = "document.getElementById('path-out').textContent", "document.getElementById('map-value-out').textContent"
    page.wait("(document.getElementById('path-note')?.textContent ?? '').startsWith('120 rows of arm')", "the trajectory")
    page.wait("document.getElementById('map-value').getAttribute('aria-label').startsWith('Value of')", "the map")
    page.wait("document.getElementById('robots').textContent.startsWith('◆ arm ')", "the mark of the stream on it")
    page.wait("document.getElementById('error-card').offsetHeight > 0", "all parts")

    # How places follow from shares of the picture: the map says where the pointer is.
    def place(across: float, up: float) -> Array:
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
        page.wait(f"{above} === ''", "no place")
        point_until(page, "map-value", across, up, f"/^place .*, load .*: /.test({above})", "a place")
        return np.array([number(v) for v in re.findall(r"(?:place|load) ([−0-9.]+)", page.run(above))])

    shares = np.array([0.3, 0.3]), np.array([0.7, 0.7])
    low, high = (place(*share) for share in shares)
    slope = (high - low) / 0.4

    def on_map(at: Array) -> Array:
        return shares[0] + (at - low) / slope

    def away() -> npt.NDArray[np.int16]:
        """The map once the pointer is elsewhere."""
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
        page.wait(f"{out} === ''", "nothing pointed out")
        return at_rest(page, "map-value")

    for across in (0.35, 0.8):
        before = away()
        point_until(page, "path", across, 0.5, f"{out}.startsWith('row ')", "a row")
        row = int(re.findall(r"^row (\d+),", page.run(out))[0])
        at = np.array([number(v) for v in re.findall(r"(?:place|load) ([−0-9.]+)", page.run(out))])
        assert np.allclose(at, states[row], atol=2e-3), (row, at)
        # What has changed on the map is a mark about that place.
        when(lambda: bool((np.abs(picture(page, "map-value") - before).max(axis=2) > 40).any()), "a mark")
        during = at_rest(page, "map-value")
        # And goes with the pointer: the mark of the stream changes as well, once, when that has fallen silent.
        after = away()
        changed = np.minimum(*(np.abs(during - other).max(axis=2) for other in (before, after))) > 40
        rows, across_pixels = np.nonzero(changed)
        found = np.array([across_pixels.mean() / changed.shape[1], 1 - rows.mean() / changed.shape[0]])
        assert np.abs(found - on_map(at)).max() < 0.03, (found, on_map(at))

        # Back: the pointer on the map at the place of another row finds that row.
        other = (row + 40) % 120
        target = on_map(states[other])
        point_until(page, "map-value", *target, f"{out}.startsWith('row ')", "the row that is there")
        back = int(re.findall(r"^row (\d+),", page.run(out))[0])
        assert abs(back - other) <= 1, (back, other)
    shoot(page, "strip-and-map")
    assert text(page, "path-note").startswith("120 rows of arm")
    assert_clean(page, daemon)
