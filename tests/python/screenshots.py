"""Pictures of the page as references, and how a picture differs from its reference.

    target/python/bin/python tests/python/screenshots.py [SCENE...]

makes references again, to be looked at before a commit. Each scene is a daemon with a stream from a fixed seed,
refitted on request, at rest. What depends on the clock is replaced in the page before the picture is taken: times, rates,
time lines, pairs of the calibration and memory. A reference is half as wide as the picture and has 256 colours.

`difference` compares means of blocks, so that another font, which moves letters by a few pixels, is no difference,
and neither is noise. It finds cards that are missing, moved or of another size, colours of maps and themes, and
broken layouts. It does not find wrong words, wrong numbers, or anything smaller than a block; the other tests of the
page look at those.
"""

from __future__ import annotations

import io
import json
import math
import random
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from browser import Browser
from client import BINARY, PATIENCE_S, ROOT, Daemon, pack, when
from dashboard import history
from peers import free_port
from PIL import Image

FOLDER = Path(__file__).with_name("screenshots")
REDUCED = 2
COLOURS = 256
# Side of a block in pixels of a reference.
BLOCK = 12
# A block differs if the mean of one of its colours does by more than this, of 255.
LEVEL = 20.0
# Share of a picture's blocks that may differ.
SHARE = 0.06

HIDDEN = """
#version { visibility: hidden !important }
* { animation: none !important; transition: none !important; caret-color: transparent !important }
"""
# The page's policy refuses a style element.
HIDE = f"(document.adoptedStyleSheets = [new CSSStyleSheet()])[0].replaceSync({json.dumps(HIDDEN)})"


# Once it is frozen a page hears no news. What it waits for is counted, and what it has been told to ask for again.
DEAF = """window.EventSource = class extends EventSource {
    set onmessage(heard) { super.onmessage = (event) => { if (!window.frozen) heard(event); }; }
};
window.waiting = 0; window.refused = {}; const ask = window.fetch;
window.fetch = async (...of) => {
    waiting += 1;
    try {
        const reply = await ask(...of);
        refused[String(of[0]).split('?')[0]] = reply.status === 503;
        return reply;
    } finally { waiting -= 1; }
};"""
ANSWERED = "waiting === 0 && !Object.values(refused).some(Boolean)"
# Replaces what depends on the clock: 2 h 30 min of a daemon that ends at 12:00, with returns that scatter by what the model
# says. `planted` marks are shown as well.
FIXED = r"""(async (planted) => {
    const { known } = await import('/known.js');
    window.frozen = true;
    const now = Date.UTC(2030, 0, 1, 12) / 1000;
    const wave = (k, of) => Math.sin(of * k) * 0.6 + Math.sin(2.3 * of * k) * 0.4;
    const points = 300;
    const columns = {
        time: (k) => now - 2 * (points - 1 - k),
        offset: (k) => (known.status.offset * k) / points,
        rows_per_second: (k) => 100 + 4 * wave(k, 0.21),
        refused: () => Object.values(known.status.rejected).reduce((sum, n) => sum + n, 0),
        queue_ingest: () => 0, queue_calls: () => 0, window_bytes: () => 4e6, resident_bytes: (k) => 4e7 + 1e4 * k,
        error: (k) => 0.4 + 0.5 * Math.exp(-k / 60) + 0.03 * wave(k, 0.17), bias: (k) => 0.05 * wave(k, 0.13),
        coverage: (k) => 0.9 + 0.03 * wave(k, 0.11), held_out_error: () => 0.12, score: (k) => 1 + 0.1 * wave(k, 0.1),
        score_recent: (k) => 1.1 + 0.2 * wave(k, 0.3), dictionary_size: (k) => 50 + k / 30, running_chains: () => 1,
        generation: () => 2, log_evidence: () => null,
    };
    const list = (name) => Array.from({ length: points }, (_, k) => columns[name](k));
    const last = (name) => name.slice(name.lastIndexOf('.') + 1);
    for (const name of known.columns) known.history[name] = list(last(name));
    known.quality = known.quality.map(() => [0.4, 0.9]);
    Object.assign(known.status, { time: now, uptime_s: 9000, rows_per_second: 101.3 });
    // A folder of a name as long as that of this run would wrap the text elsewhere.
    const { read_only } = known.status;
    if (read_only) known.status.read_only = read_only.replace(/[^\s"]*\/data\//g, '/var/lib/criticd/');
    for (const stream of Object.values(known.status.recent_streams)) stream.last_seen = now - 0.5;
    for (const mark of known.marks.values()) Object.assign(mark, { time: now - 300 + mark.number, seconds: 1.2 });
    for (const mark of planted) known.marks.set(1000 + mark.number, { ...mark, number: 1000 + mark.number, time: now - 60 });
    known.status.critics.forEach((critic, k) => {
        // Of those that are not shown there is no more than the list needs.
        if (critic.brief) return;
        Object.assign(critic.adoption_pause_ms, { count: 1, p50: 20, p99: 20, max: 20 });
        const pairs = Array.from({ length: 200 }, (_, j) => {
            const predicted = -3 + 3 * ((j * 0.618034) % 1);
            return [predicted, predicted + 0.4 * 1.9 * wave(j, 1.7), 0.4, 5 + (j % 4), critic.generation];
        });
        const summary = { count: 200, correlation: 0.91, rms: 0.41, bias: 0.01, within_90: 0.905 };
        const generations = critic.generation > 1 ? [[1, 100, 0.61, 0.1, 0.83, null], [2, 100, 0.4, 0.01, 0.91, 1]] : [[1, 100, 0.4, 0.01, 0.91, null]];
        known.calibration[k] = known.calibration[k].map(() => ({ pairs: critic.kernel ? pairs : [], summary, generations }));
        // What the daemon says of itself stays; what it says of the returns is that of those above.
        const cause = (words) => words.split('. ')[0];
        critic.trust?.forEach((trust) => {
            for (const reason of trust.reasons) if (read_only) reason.text = reason.text.replaceAll(cause(read_only), cause(known.status.read_only));
            if (planted.length) trust.reasons.push({ level: 'warn', text: 'rewards and values are lower than predicted, probably since row 1\u202f100; moved: angle',
                remedy: 'A second model is learning the new rows and takes over once it predicts better.' });
            trust.sentence = trust.sentence.replace(/(in the last|since the) [^.]+/, 'in the last 2 h');
            if ((trust.level === 'never' && !trust.reasons.length) || critic.provisional) return;
            const level = trust.reasons.length === 0 ? 'good' : trust.reasons.some((reason) => reason.level === 'bad') ? 'bad' : 'warn';
            const [sign, title] = { good: ['●', 'The values can be believed'], warn: ['▲', 'Believe the values with care'],
                bad: ['■', 'Do not believe the values'] }[level];
            const quiet = planted.length ? '' : '; nothing has drifted in the last 2 h';
            if (critic.kernel) Object.assign(trust, { level, sign, title,
                sentence: `Returns were predicted to within 0.4 (rms); 92 % of them fell in their 90 % interval${quiet}.` });
        });
    });
    // All parts are drawn again.
    for (let k = 0; k < 2; k += 1) document.getElementById('theme').click();
})"""


@dataclass
class Look:
    """How a page is looked at."""

    width: int = 1440
    height: int = 900
    mobile: bool = False
    dark: bool = False


PHONE = Look(390, 844, mobile=True)
DARK = Look(dark=True)


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
    weights[: min(dim, 2)] = [1.0, 0.7][: min(dim, 2)]
    for seq in range(0, rows, 40):
        states = [generator.normal(size=dim)]
        for _ in range(40):
            states.append(0.9 * states[-1] + 0.3 * generator.normal(size=dim))
        costs = -(np.array(states[:-1]) ** 2) @ weights
        ends = np.array([False] * 39 + [True])
        batch = {"states": np.array(states), "rewards": costs, "truncated": ends}
        push.send(pack({"stream": "walk", "session": "run", "seq": seq, **batch}))
    control.wait_for_learned(rows)


def refit(daemon: Daemon, critic: str = "main") -> None:
    """Adopt a second model. The page keeps the models that its watcher has seen, so each is left until then."""
    seen(daemon, 1)
    assert daemon.control().ask("refit", critic=critic, wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
    seen(daemon, 2)


def seen(daemon: Daemon, generation: int) -> None:
    """Wait until the page has taken in a model of the first critic, and its adoption."""

    def has_come() -> bool:
        page = history(daemon)
        adopted = any(mark["event"] == "adopted" for mark in page["marks"])
        return generation in page["kept"]["generations"][0] and (generation == 1 or adopted)

    when(has_come, f"generation {generation} on the page")


def learned(dim: int) -> Callable[[Path, ExitStack], Daemon]:
    """A daemon that has learned a walk of `dim` numbers."""

    def start(folder: Path, stack: ExitStack) -> Daemon:
        daemon = Daemon(folder, config=settings(dim))
        stack.callback(daemon.close)
        walk(daemon, dim, 2400 if dim > 6 else 1200)
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


def provisional(folder: Path, stack: ExitStack) -> Daemon:
    """A model that no refit has chosen: one is due after more rows."""
    config = settings(2).replace("refit_first_rows = 0", "refit_first_rows = 100000")
    daemon = Daemon(folder, config=config)
    stack.callback(daemon.close)
    walk(daemon, 2)
    seen(daemon, 1)
    return again(daemon, config, stack)


Episode = tuple[Sequence[Sequence[float]], list[float], list[float], bool]
"""States, one more than rewards; rewards; actions, if any; and whether it is cut: others end in a terminal state."""


def missions(source: random.Random) -> Iterator[Episode]:
    """The rover of the README drives home."""
    mission = runpy.run_path(str(ROOT / "examples" / "python" / "rover.py"))["mission"]
    for _ in range(60):
        at = source.uniform(0.1, 1.9), source.uniform(0.1, 1.3), source.uniform(20, 90)
        rows = list(mission(source, *at))
        yield [row[:3] for row in rows] + [rows[-1][:3]], [-row[3] for row in rows], [], False


def crossings(source: random.Random) -> Iterator[Episode]:
    """Cells of a grid are crossed to the right, with detours: the row of cells does not matter."""
    for _ in range(90):
        x, y = source.randrange(10), source.randrange(11)
        states = [(float(x), float(y))]
        while x < 10:
            step = source.choice(((1, 0), (1, 0), (-1, 0), (0, 1), (0, -1)))
            x, y = max(x + step[0], 0), min(max(y + step[1], 0), 10)
            states.append((float(x), float(y)))
        yield states, [-1.0] * (len(states) - 1), [], False


def falls(source: random.Random) -> Iterator[Episode]:
    """A pole on a cart that is pushed at random falls: CartPole-v1."""
    for _ in range(60):
        x, v, angle, spin = (source.uniform(-0.05, 0.05) for _ in range(4))
        states, actions = [(x, v, angle, spin)], list[float]()
        while abs(angle) < 0.21 and abs(x) < 2.4:
            actions.append(float(source.randrange(2)))
            push = (20 * actions[-1] - 10 + 0.05 * spin**2 * math.sin(angle)) / 1.1
            turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
            pull = push - 0.05 * turn * math.cos(angle) / 1.1
            x, v, angle, spin = x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn
            states.append((x, v, angle, spin))
        yield states, [1.0] * len(actions), actions, False


def swings(source: random.Random) -> Iterator[Episode]:
    """The pendulum of `criticd demo`: a motor that is too weak to lift it at once, and a step of 0.05 s."""
    for _ in range(60):
        angle, speed = source.uniform(-math.pi, math.pi), source.uniform(-8, 8)
        states = [(angle, speed)]
        while len(states) <= 60 and not (abs(angle) < 0.1 and abs(speed) < 0.5):
            hold, lack = -18.81 * angle - 6 * speed, 9.81 * (1 - math.cos(angle)) - speed**2 / 2
            torque = (
                hold if abs(angle) < 0.5 and abs(hold) < 7.5 else math.copysign(max(-5, min(5 * lack, 5)), lack * speed)
            )
            torque = max(-5, min(torque + source.uniform(-0.5, 0.5), 5))
            for _ in range(50):
                speed += 0.001 * (9.81 * math.sin(angle) - 0.01 * speed + torque)
                angle += 0.001 * speed
            angle = (angle + math.pi) % (2 * math.pi) - math.pi
            states.append((angle, speed))
        rewards = [-0.05 * (angle**2 + 0.2 * speed**2) for angle, speed in states[:-1]]
        yield states, rewards, [], len(states) > 60


def world(
    episodes: Callable[[random.Random], Iterator[Episode]], general: str, critic: str
) -> Callable[[Path, ExitStack], Daemon]:
    """A daemon that has learned episodes of a world, and selected a model."""

    def start(folder: Path, stack: ExitStack) -> Daemon:
        quiet = "refit_first_rows = 0\nrefit_score_drop = 0\ndictionary_max = 120\nrefit_budget_s = 60\n"
        config = f'{general}\n[[critic]]\nname = "main"\n{quiet}{critic}\n'
        daemon = Daemon(folder, config=config)
        stack.callback(daemon.close)
        push, sent = daemon.push(), 0
        for states, rewards, actions, cut in episodes(random.Random(1)):
            ends = np.arange(len(rewards)) == len(rewards) - 1
            how = "truncated" if cut else "terminated"
            batch = {"states": np.array(states), "rewards": np.array(rewards), how: ends}
            batch.update({"actions": np.array(actions)} if actions else {})
            push.send(pack({"stream": "walk", "session": "run", "seq": sent, **batch}))
            sent += len(rewards)
        control = daemon.control()
        control.wait_for_learned(sent)
        if "improve" in critic:
            # By itself, as soon as there is a model.
            seen(daemon, 2)
        assert control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)["outcome"] == "adopted"
        seen(daemon, control.ask("status")["critics"][0]["generation"])
        return again(daemon, config, stack)

    return start


rover = world(
    missions,
    'state_dim = 3\nstate_names = ["x [km]", "y [km]", "battery [%]"]\nreward_names = ["time [min]"]',
    "discount = 1",
)
demo = world(swings, 'state_dim = 2\nstate_names = ["angle [rad]", "speed [rad/s]"]', "discount = 0.9")
gridworld = world(crossings, 'state_dim = 2\nstate_names = ["x [cells]", "y [cells]"]', "discount = 0.95")
# Its first model is made of all 1360 rows: how many an improvement sweeps over does not hang on the clock.
cart_pole = world(
    falls,
    'state_dim = 4\nstate_names = ["position [m]", "speed [m/s]", "angle [rad]", "spin [rad/s]"]',
    'discount = 0.95\ninputs = "state_action"\nactions = ["left", "right"]\nsuccessor = "improve"\nwarmup_rows = 1360',
)


def refused(folder: Path, stack: ExitStack) -> Daemon:
    daemon = learned(2)(folder, stack)
    daemon.push().send(pack({"stream": "other", "states": np.zeros((5, 3)), "rewards": np.zeros(4)}))
    control = daemon.control()
    when(lambda: control.ask("status")["rejected"], "a refusal")
    return daemon


def read_only(folder: Path, stack: ExitStack) -> Daemon:
    """The files of the journal are gone, so that nothing can be stored."""
    daemon = learned(2)(folder, stack)
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (folder / "data" / name).rename(folder / name)
    control = daemon.control()
    when(lambda: control.ask("status")["read_only"], "a daemon that notices it")
    return daemon


class Starting:
    """A daemon that learns its journal again: the page of a long start is all that it shows."""

    def __init__(self, before: Daemon) -> None:
        address = f"127.0.0.1:{free_port()}"
        command = [BINARY, "serve", "--config", str(before.config), "--data-dir", str(before.directory / "data")]
        for name in ("ingest", "control", "publish"):
            command += [f"--{name}", "tcp://127.0.0.1:0"]
        self.endpoints = {"http": address}
        self.process = subprocess.Popen([*command, "--http", address], stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def recovering(folder: Path, stack: ExitStack) -> Starting:
    """A start that takes half a minute: sixty thousand rows, weights after every fourth, and no checkpoint."""
    slow = "dictionary_max = 400\ntolerance = 1e-6\nrefresh_rows = 4\nrefit_first_rows = 0\nrefit_score_drop = 0\n"
    before = Daemon(folder, config=f'[[critic]]\nname = "main"\n{slow}')
    stack.callback(before.close)
    push, generator = before.push(), np.random.default_rng(5)
    states = generator.normal(size=(60_001, 6))
    for k in range(0, 60_000, 500):
        push.send(pack({"states": states[k : k + 501], "rewards": states[k : k + 500, 0]}))
    before.control().wait_for_offset(60_000)
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
    # Runs when the page has loaded, and when it stands still.
    choose: str = ""
    then: Callable[[Daemon | Starting, Browser], None] = lambda daemon, page: None
    # True of the page when all of the scene is drawn.
    drawn: str = "document.querySelectorAll('#worst li').length > 0 && document.getElementById('path-note').textContent"
    # And when what was chosen is.
    chosen: str = "true"
    # Events that are shown as well.
    planted: str = "[]"


# For so many seconds nothing that a page has asked for is wanting.
DRAWN_S = 4.0


def gone(daemon: Daemon | Starting, page: Browser) -> None:
    daemon.process.kill()
    page.wait("document.body.classList.contains('gone')", "the page notices")


def named(daemon: Daemon | Starting, page: Browser) -> None:
    """A long name of the folder would take more lines."""
    command = "document.getElementById('empty-demo').textContent"
    page.run(f"(window.frozen = true, {command} = {command}.replace(/=.*/, '=/var/lib/criticd'), 0)")


DRIFT = """[{ number: 1, event: 'drift', critic: 'main',
    unlike: 'rewards and values are lower than predicted, probably since row 1\\u202f100; moved: angle' }]"""
CHOOSE = (
    "((id, value) => { const c = document.getElementById(id); c.value = value; c.dispatchEvent(new Event('change')); })"
)


COMPARED = "document.getElementById('difference-note').textContent.includes('root mean square')"

SCENES = {
    "desktop": Scene(learned(2), Look()),
    "desktop-dark": Scene(learned(2), DARK),
    "phone": Scene(learned(2), PHONE),
    "phone-dark": Scene(learned(2), Look(390, 844, mobile=True, dark=True)),
    "one-variable": Scene(learned(1), Look()),
    "six-variables": Scene(learned(6), Look()),
    "twenty-variables": Scene(learned(20), Look()),
    "hundred-critics": Scene(of_critics(100), Look()),
    "drifted": Scene(learned(2), Look(), planted=DRIFT),
    "drifted-phone-dark": Scene(learned(2), Look(390, 844, mobile=True, dark=True), planted=DRIFT),
    "compared": Scene(of_critics(2), Look(), choose=f"{CHOOSE}('against', 'critic joint-1')", chosen=COMPARED),
    "provisional": Scene(provisional, Look()),
    "demo": Scene(demo, Look()),
    "rover": Scene(rover, Look()),
    "gridworld": Scene(gridworld, Look()),
    "cart-pole": Scene(cart_pole, Look(), drawn="document.getElementById('path-note').textContent"),
    "averaged": Scene(learned(6), Look(), choose=f"{CHOOSE}('mode', 'average')"),
    "empty": Scene(empty, Look(), model=False, then=named),
    "refused": Scene(refused, Look()),
    "read-only": Scene(read_only, Look()),
    "recovering": Scene(recovering, Look(), model=False),
    "gone": Scene(learned(2), Look(), then=gone),
}
# What a stranger sees first, in the dark and on a phone too.
for first in ("demo", "rover", "gridworld", "cart-pole", "empty", "provisional"):
    SCENES |= {f"{first}-{how}": replace(SCENES[first], look=look) for how, look in (("dark", DARK), ("phone", PHONE))}


def reach(address: str) -> None:
    """Wait until an address takes connections."""
    host, port = address.split(":")

    def takes_connections() -> bool:
        try:
            socket.create_connection((host, int(port)), PATIENCE_S).close()
        except OSError:
            return False
        return True

    when(takes_connections, address)


def settle(page: Browser, name: str) -> None:
    """Wait until a page shows its scene, and replace what depends on the clock."""
    model = SCENES[name].model
    # A page without a model has said something other than that it waits.
    said = "document.body?.innerText.length > 100 && !document.body.innerText.includes('Waiting for the daemon')"
    page.wait("document.getElementById('view')?.hidden === false" if model else said, name)
    scene = SCENES[name]
    if model:
        page.wait(scene.drawn, f"{name}: all of it")
        if scene.choose:
            page.run(f"({scene.choose}, 0)")
            page.wait(scene.chosen, f"{name}: what was chosen")
        rest(page)
        page.run(f"{FIXED}({scene.planted})")
    page.run(f"({HIDE}, 0)")


def rest(page: Browser) -> None:
    """Wait until all that a page asks for is drawn: maps and errors are computed in the daemon's spare time."""
    since = time.monotonic()

    def rests() -> bool:
        nonlocal since
        if not page.holds(ANSWERED):
            since = time.monotonic()
        return time.monotonic() - since > DRAWN_S

    when(rests, "a page at rest")


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
        page.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=DEAF)
        reach(daemon.endpoints["http"])
        page.open(f"http://{daemon.endpoints['http']}/")
        settle(page, name)
        scene.then(daemon, page)
        time.sleep(1)
        yield page


def shoot(page: Browser, folder: Path) -> Image.Image:
    """The first fold, reduced."""
    path = folder / "picture.png"
    page.screenshot(path, whole=False)
    return reduced(Image.open(path))


def reduced(picture: Image.Image) -> Image.Image:
    small = picture.convert("RGB").reduce(REDUCED)
    return small.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


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
