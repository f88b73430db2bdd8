"""Pictures of the page as references, and how a picture differs from its reference.

    target/python/bin/python tests/python/screenshots.py [SCENE...] 

makes references again, to be looked at before a commit. Each scene is a daemon with a stream from a fixed seed,
refitted on request, at rest. Parts that depend on the clock are hidden before the picture is taken: times, rates, time
lines, calibration, processor and memory. A reference is half as wide as the picture and has 32 colours.

`difference` compares means of blocks, so that another font, which moves letters by a few pixels, is no difference,
and neither is noise. It finds cards that are missing, moved or of another size, colours of maps and themes, and
broken layouts. It does not find wrong words, wrong numbers, or anything smaller than a block; the other tests of the
page look at those.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from browser import Browser
from client import BINARY, Daemon, pack
from PIL import Image

FOLDER = Path(__file__).with_name("screenshots")
REDUCED = 2
COLOURS = 32
# Side of a block in pixels of a reference.
BLOCK = 12
# A block differs if the mean of one of its colours does by more than this, of 255.
LEVEL = 20.0
# Share of a picture's blocks that may differ.
SHARE = 0.06

HIDDEN = """
time, #vitals dd, #version, #lines canvas, #lines-more canvas, .line b, #calibration, #groups, #model dd, #marks, #path,
#path-note, #worst, #map-error, #error-note, #live-text, #trust-line span, #streams td { visibility: hidden !important }
* { animation: none !important; transition: none !important; caret-color: transparent !important }
"""
# The page's policy refuses a style element.
HIDE = f"(document.adoptedStyleSheets = [new CSSStyleSheet()])[0].replaceSync({json.dumps(HIDDEN)})"


@dataclass
class Look:
    """How a page is looked at."""

    width: int = 1440
    height: int = 900
    mobile: bool = False
    dark: bool = False


PHONE = Look(390, 844, mobile=True)


def settings(dim: int, critics: int = 1) -> str:
    """A configuration; names and units are those of a robot."""
    names = ["angle", "speed", "load", "current", "voltage", "temperature"] + [f"sensor {k}" for k in range(6, dim)]
    critic = "discount = 0.7\nrefit_first_rows = 0\nrefit_score_drop = 0\ndictionary_max = 60\nrefit_budget_s = 60\n"
    many = "".join(f'[[critic]]\nname = "joint-{k}"\n{critic}' for k in range(critics))
    one = f'[[critic]]\nname = "main"\n{critic}'
    return f"state_dim = {dim}\nstate_names = {names[:dim]}\n" + (many if critics > 1 else one)


def walk(daemon: Daemon, dim: int, rows: int = 1200) -> None:
    """A particle that is pulled to the middle, learned and refitted. The first two coordinates cost."""
    generator, push, control = np.random.default_rng(5), daemon.push(), daemon.control()
    weights = np.zeros(dim)
    weights[: min(dim, 2)] = [1.0, 0.4][: min(dim, 2)]
    for seq in range(0, rows, 40):
        states = [generator.normal(size=dim)]
        for _ in range(40):
            states.append(0.9 * states[-1] + 0.3 * generator.normal(size=dim))
        costs = -(np.array(states[:-1]) ** 2) @ weights
        ends = np.array([False] * 39 + [True])
        batch = {"states": np.array(states), "rewards": costs, "truncated": ends}
        push.send(pack({"stream": "walk", "session": "run", "seq": seq, **batch}))
    control.wait_for_offset(rows)


def refit(daemon: Daemon, critic: str = "main") -> None:
    daemon.control().ask("refit", critic=critic, wait=True, timeout_s=600)


def learned(dim: int) -> Callable[[Path, ExitStack], Daemon]:
    """A daemon that has learned a walk of `dim` numbers."""

    def start(folder: Path, stack: ExitStack) -> Daemon:
        daemon = Daemon(folder, config=settings(dim))
        stack.callback(daemon.close)
        walk(daemon, dim)
        refit(daemon)
        return again(daemon, settings(dim), stack)

    return start


def again(daemon: Daemon, config: str, stack: ExitStack) -> Daemon:
    """The same daemon after a restart: the states on its page then depend on the rows, and not on when they came."""
    daemon.terminate()
    daemon.close()
    after = Daemon(daemon.directory, config=config)
    stack.callback(after.close)
    return after


def of_critics(count: int) -> Callable[[Path, ExitStack], Daemon]:
    def start(folder: Path, stack: ExitStack) -> Daemon:
        daemon = Daemon(folder, config=settings(2, count))
        stack.callback(daemon.close)
        walk(daemon, 2, 400)
        refit(daemon, "joint-0")
        return again(daemon, settings(2, count), stack)

    return start


def empty(folder: Path, stack: ExitStack) -> Daemon:
    daemon = Daemon(folder, config=settings(2))
    stack.callback(daemon.close)
    return daemon


def refused(folder: Path, stack: ExitStack) -> Daemon:
    daemon = learned(2)(folder, stack)
    daemon.push().send(pack({"stream": "other", "states": np.zeros((5, 3)), "rewards": np.zeros(4)}))
    control, deadline = daemon.control(), time.monotonic() + 60
    while not control.ask("status")["rejected"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return daemon


def read_only(folder: Path, stack: ExitStack) -> Daemon:
    """The files of the journal are gone, so that nothing can be stored."""
    daemon = learned(2)(folder, stack)
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (folder / "data" / name).rename(folder / name)
    control, deadline = daemon.control(), time.monotonic() + 60
    while not control.ask("status")["read_only"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return daemon


class Starting:
    """A daemon that learns its journal again: the page of a long start is all that it shows."""

    def __init__(self, before: Daemon) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [BINARY, "serve", "--config", str(before.config), "--data-dir", str(before.directory / "data")]
        for name in ("ingest", "control", "publish"):
            command += [f"--{name}", "tcp://127.0.0.1:0"]
        self.endpoints = {"http": address}
        self.process = subprocess.Popen([*command, "--http", address], stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def recovering(folder: Path, stack: ExitStack) -> Starting:
    """A start that takes a minute: ten thousand rows, weights after every fourth, and no checkpoint."""
    slow = "dictionary_max = 400\ntolerance = 1e-6\nrefresh_rows = 4\nrefit_first_rows = 0\nrefit_score_drop = 0\n"
    before = Daemon(folder, config=f'[[critic]]\nname = "main"\n{slow}')
    stack.callback(before.close)
    push, generator = before.push(), np.random.default_rng(5)
    states = generator.normal(size=(10_001, 6))
    for k in range(0, 10_000, 500):
        push.send(pack({"states": states[k : k + 501], "rewards": states[k : k + 500, 0]}))
    before.control().wait_for_offset(10_000, 600)
    before.kill()
    for checkpoint in (folder / "data").glob("checkpoint-*"):
        checkpoint.unlink()
    starting = Starting(before)
    stack.callback(starting.close)
    return starting


@dataclass
class Scene:
    """The subject of a picture."""

    start: Callable[[Path, ExitStack], Daemon | Starting]
    look: Look
    # Whether there is a model to be seen.
    model: bool = True
    # Runs after the page has loaded.
    then: Callable[[Daemon | Starting, Browser], None] = lambda daemon, page: None


# Seconds until all that a page asks for is drawn.
DRAWN_S = 4.0


def gone(daemon: Daemon | Starting, page: Browser) -> None:
    # Maps and errors are computed in the daemon's spare time: none come once it is gone.
    time.sleep(DRAWN_S)
    daemon.process.kill()
    page.wait("document.body.classList.contains('gone')", "the page notices")


SCENES = {
    "desktop": Scene(learned(2), Look()),
    "desktop-dark": Scene(learned(2), Look(dark=True)),
    "phone": Scene(learned(2), PHONE),
    "phone-dark": Scene(learned(2), Look(390, 844, mobile=True, dark=True)),
    "one-variable": Scene(learned(1), Look()),
    "six-variables": Scene(learned(6), Look()),
    "twenty-variables": Scene(learned(20), Look()),
    "hundred-critics": Scene(of_critics(100), Look()),
    "empty": Scene(empty, Look(), model=False),
    "refused": Scene(refused, Look()),
    "read-only": Scene(read_only, Look()),
    "recovering": Scene(recovering, Look(), model=False),
    "gone": Scene(learned(2), Look(), then=gone),
}


def reach(address: str) -> None:
    """Wait until an address takes connections."""
    host, port = address.split(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, address
            time.sleep(0.05)


def settle(page: Browser, name: str) -> None:
    """Wait until a page shows its scene, and hide what depends on the clock."""
    model = SCENES[name].model
    page.wait(
        "document.getElementById('view')?.hidden === false" if model else "document.body?.innerText.length > 100", name
    )
    if model:
        page.wait("document.querySelectorAll('#relevance .relevance-row').length > 0", f"{name}: relevances")
    page.run(f"({HIDE}, 0)")


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Browser]:
    """A page that shows a scene, at rest, without what depends on the clock."""
    scene = SCENES[name]
    with ExitStack() as stack:
        daemon = scene.start(folder, stack)
        page = Browser()
        stack.callback(page.close)
        look = scene.look
        page.size(look.width, look.height, mobile=look.mobile, dark=look.dark)
        reach(daemon.endpoints["http"])
        page.open(f"http://{daemon.endpoints['http']}/")
        settle(page, name)
        scene.then(daemon, page)
        # Maps and errors are computed in the daemon's spare time.
        time.sleep(DRAWN_S)
        yield page


def shoot(page: Browser, folder: Path) -> Image.Image:
    """The first fold, reduced."""
    path = folder / "picture.png"
    page.screenshot(path, whole=False)
    return reduced(Image.open(path))


def reduced(picture: Image.Image) -> Image.Image:
    small = picture.convert("RGB").reduce(REDUCED)
    return small.quantize(COLOURS, dither=Image.Dither.NONE)


def blocks(picture: Image.Image) -> npt.NDArray[np.float64]:
    """(rows, columns, 3): mean colours of the blocks."""
    pixels = np.asarray(picture.convert("RGB"), np.float64)
    rows, columns = pixels.shape[0] // BLOCK, pixels.shape[1] // BLOCK
    whole = pixels[: rows * BLOCK, : columns * BLOCK]
    return whole.reshape(rows, BLOCK, columns, BLOCK, 3).mean(axis=(1, 3))


def difference(picture: Image.Image, reference: Image.Image) -> float:
    """Share of the blocks that differ; 1 for pictures of another size."""
    if picture.size != reference.size:
        return 1.0
    return float((np.abs(blocks(picture) - blocks(reference)).max(axis=2) > LEVEL).mean())


def main() -> None:
    """Make the references of the scenes named, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        with tempfile.TemporaryDirectory() as folder, opened(name, Path(folder) / "d") as page:
            picture = shoot(page, Path(folder))
            file = io.BytesIO()
            picture.save(file, "PNG", optimize=True)
            (FOLDER / f"{name}.png").write_bytes(file.getvalue())
            print(f"{name}: {len(file.getvalue())} bytes")


if __name__ == "__main__":
    main()
