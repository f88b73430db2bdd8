"""The page beside its references, which `screenshots.py` makes and whose comparison it explains."""

from __future__ import annotations

import time
from pathlib import Path

import browser
import pytest
from PIL import Image
from screenshots import FOLDER, SCENES, SHARE, difference, opened, settle, shoot

needs_chromium = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: pictures of the dashboard, since there is no chromium"
)


def test_there_is_a_small_reference_of_each_scene() -> None:
    files = {file.stem: file.stat().st_size for file in FOLDER.glob("*.png")}
    assert files.keys() == SCENES.keys()
    assert sum(files.values()) < 1_000_000


def test_references_differ_from_each_other() -> None:
    """A comparison that passes anything would pass these."""
    of = {name: Image.open(FOLDER / f"{name}.png") for name in SCENES}
    pairs = [("desktop", "desktop-dark"), ("desktop", "empty"), ("phone", "phone-dark"), ("desktop", "phone")]
    for one, other in [*pairs, ("desktop", "one-variable"), ("desktop", "gone")]:
        assert difference(of[one], of[other]) > 2 * SHARE, (one, other)
    assert all(difference(picture, picture) == 0 for picture in of.values())


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("name", list(SCENES))
def test_the_page_looks_as_its_reference(tmp_path: Path, name: str) -> None:
    reference, deadline = Image.open(FOLDER / f"{name}.png"), time.monotonic() + 60
    with opened(name, tmp_path / "d") as page:
        # The daemon answers a page within a share of its time: on a busy machine the last part may come late.
        while (found := difference(shoot(page, tmp_path), reference)) >= SHARE and time.monotonic() < deadline:
            time.sleep(2)
    print(f"{name}: {found:.4f} of the blocks differ")
    assert found < SHARE, f"{name}: {found:.3f}; the picture is {tmp_path / 'picture.png'}"


@needs_chromium
@pytest.mark.slow
def test_a_changed_layout_is_found(tmp_path: Path) -> None:
    reference = Image.open(FOLDER / "desktop.png")
    planted = {
        "a card is missing": "document.querySelector('#map-value').closest('.card, figure').remove()",
        "cards are one below the other": "document.querySelector('#maps').style.display = 'block'",
        "a map has no colours": "document.querySelector('#map-value').style.filter = 'grayscale(1)'",
        "all is larger by a tenth": "document.body.style.zoom = 1.1",
    }
    with opened("desktop", tmp_path / "d") as page:
        deadline = time.monotonic() + 60
        while difference(shoot(page, tmp_path), reference) >= SHARE:
            assert time.monotonic() < deadline, "the page does not look as its reference"
            time.sleep(2)
        for what, change in planted.items():
            page.run(f"({change}, 0)")
            time.sleep(1)
            found = difference(shoot(page, tmp_path), reference)
            print(f"{what}: {found:.4f} of the blocks differ")
            assert found > SHARE, what
            page.run("location.reload()")
            time.sleep(1)
            settle(page, "desktop")
