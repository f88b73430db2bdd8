"""The page beside its references, which `screenshots.py` makes and whose comparison it explains."""

from __future__ import annotations

from pathlib import Path

import browser
import pytest
from client import when
from PIL import Image
from screenshots import FOLDER, SCENES, SHARE, difference, opened, settle, shoot

pytestmark = pytest.mark.nightly
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
@pytest.mark.long
@pytest.mark.parametrize("name", list(SCENES))
def test_the_page_looks_as_its_reference(tmp_path: Path, name: str) -> None:
    reference = Image.open(FOLDER / f"{name}.png")
    found = 1.0

    def looks_alike() -> bool:
        nonlocal found
        found = difference(shoot(page, tmp_path), reference)
        return found < SHARE

    with opened(name, tmp_path / "d") as page:
        # The browser may draw late.
        when(looks_alike, f"{name} as its reference; the picture is {tmp_path / 'picture.png'}")
    print(f"{name}: {found:.4f} of the blocks differ")


@needs_chromium
@pytest.mark.long
def test_a_changed_layout_is_found(tmp_path: Path) -> None:
    reference = Image.open(FOLDER / "desktop.png")
    planted = {
        "a card is missing": "document.querySelector('#map-value').closest('.card, figure').remove()",
        "cards are one below the other": "document.querySelector('#maps').style.display = 'block'",
        "a map has no colours": "document.querySelector('#map-value').style.filter = 'grayscale(1)'",
        "all is larger by a tenth": "document.body.style.zoom = 1.1",
    }
    with opened("desktop", tmp_path / "d") as page:
        for what, change in planted.items():
            when(lambda: difference(shoot(page, tmp_path), reference) < SHARE, "the page as its reference")
            page.run(f"({change}, 0)")
            when(lambda: difference(shoot(page, tmp_path), reference) > SHARE, what)
            page.run("window.before = true; location.reload()")
            page.wait("window.before === undefined && document.readyState === 'complete'", "the page anew")
            settle(page, "desktop")
