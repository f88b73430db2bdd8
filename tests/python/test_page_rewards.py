"""Names and units of rewards, on the page, in pictures and after a restart."""

from __future__ import annotations

import re
import subprocess
import time
import xml.etree.ElementTree as Xml
from pathlib import Path

import browser
import numpy as np
import pytest
from browser import Browser
from client import BINARY, PATIENCE_S, Daemon, pack, settles, when
from conftest import Start
from dashboard import KEEP, address, assert_clean, choose, point_until, shoot, shown, text

pytestmark = pytest.mark.skipif(
    browser.BINARY is None, reason="NOT TESTED: the dashboard, since there is no chromium (apt-get install chromium)"
)

CONFIG = """state_dim = 2
state_names = ["place [m]", "load"]
reward_names = ["energy [J]", "comfort"]
[[critic]]
name = "both"
rewards = [0, 1]
discount = 0.5
refit_first_rows = 0
refit_score_drop = 0.0
"""


def send(daemon: Daemon, rows: int, sent: int = 0) -> int:
    """Episodes of one step whose first reward is about the place, and whose second is about twice the load less three."""
    generator = np.random.default_rng(sent + 3)
    states = generator.uniform(0, 1, (rows, 2))
    rewards = np.stack([states[:, 0], 2 * states[:, 1] - 3], axis=1) + 0.05 * generator.normal(size=(rows, 2))
    ends = np.ones(rows, bool)
    batch = {"states": states, "next_states": states, "rewards": rewards, "terminated": ends}
    daemon.push().send(pack({"stream": "arm", "seq": sent, **batch}))
    daemon.control().wait_for_offset(sent + rows)
    return sent + rows


def send_until_verified(page: Browser, daemon: Daemon, sent: int) -> None:
    """Rows until returns say whether to believe the values of both rewards: each second some states are followed."""
    said = "known.status?.critics[0].trust?.every(({sentence}) => sentence.includes('were predicted to within'))"

    def sent_and_verified() -> bool:
        nonlocal sent
        sent = send(daemon, 200, sent)
        time.sleep(1.1)
        return bool(page.run(f"import('/known.js').then(({{known}}) => Boolean({said}))"))

    when(sent_and_verified, "values that are verified")


def test_rewards_have_names_and_units_on_the_page(start: Start, page: Browser) -> None:
    daemon = start(config=CONFIG)
    sent = send(daemon, 600)
    page.open(address(daemon))
    page.wait("document.getElementById('value-note')?.textContent.includes('sum of energy [J]')", "what is summed")
    send_until_verified(page, daemon, sent)
    page.wait("/of energy were predicted to within [0-9.]+ J/.test(document.getElementById('trust-line').textContent)", "trust")
    options = "[...document.querySelectorAll('#head option')].map((each) => each.textContent)"
    shown(page, "head-choice")
    when(lambda: page.run(options) == ["energy [J]", "comfort"], "both rewards")
    valued = "/: value [−0-9.]+ ± [0-9.]+ J \\(1 std\\) ·/.test(document.getElementById('map-value-out').textContent)"
    point_until(page, "map-value", 0.5, 0.5, valued, "a value")
    page.wait("document.querySelector('#worst b')?.textContent.includes(' J ')", "an error")
    page.wait("/RMS error [0-9.]+ J/.test(document.getElementById('calibration-text').textContent)", "calibration")
    page.wait("/^[0-9.]+ J$/.test(document.querySelector('#lines .line b').textContent.trim())", "the error over time")
    page.wait("document.getElementById('path-note').textContent.includes(' rows of arm')", "the trajectory")
    # What a picture says is in its SVG: the bar's unit, and the lane of rewards.
    page.run(KEEP)
    for canvas, words in [("map-value", "[J]"), ("map-error", "[J]"), ("path", "energy [J]"), ("path", "value [J]")]:
        page.run(f"[...document.querySelectorAll('#{canvas}-save button')].find(b => b.textContent === 'SVG').click()")
        found = f"Object.entries(saved).some(([name, file]) => name.endsWith('svg') && file.includes('>{words}<'))"
        page.wait(found, f"{words} in {canvas}")
        if canvas == "path":
            ends = "Object.values(saved).some((file) => />−[0-9.]+ to [0-9.]+</.test(file))"
            page.wait(ends, "the ends of the lane of rewards")
        page.run("saved = {}; 0")
    shoot(page, "rewards")
    # The second reward has a name and no unit.
    choose(page, "head", "1")
    page.wait("document.getElementById('value-note').textContent.endsWith('sum of comfort')", "the other reward")
    page.wait("!document.getElementById('map-value-out').textContent.includes(' J')", "a value without a unit")
    # Trust, calibration and errors are its own: it lies between -3 and -1.
    page.wait("/Returns of comfort were predicted to within [0-9.]+ .rms.;/.test(document.getElementById('trust-line').textContent)", "trust")
    pairs = "import('/known.js').then(({compared}) => compared().pairs.map(([predicted, realised]) => realised))"

    def are_its_own() -> None:
        returns = page.run(pairs)
        assert len(returns) >= 30 and -3.3 < min(returns) and max(returns) < -0.7, returns

    settles(are_its_own)
    page.wait("/^[0-9.]+$/.test(document.querySelector('#lines .line b').textContent.trim())", "its error over time")
    assert_clean(page, daemon)


def test_another_critic_is_compared_by_the_same_reward(start: Start, page: Browser) -> None:
    quiet = "discount = 0.5\nrefit_first_rows = 0\nrefit_score_drop = 0.0\n"
    others = f'[[critic]]\nname = "turned"\nrewards = [1, 0]\n{quiet}[[critic]]\nname = "first"\nrewards = [0]\n{quiet}'
    daemon = start(config=CONFIG + others)
    send(daemon, 600)
    page.open(f"{address(daemon)}#critic=both&x=0&y=1")
    page.wait("document.querySelector('#against option[value=\"critic turned\"]')", "the others")
    words = "[...document.querySelectorAll('#against optgroup:last-child option')].map((each) => each.textContent)"
    when(lambda: page.run(words) == ["turned", "first"], "both of them")
    page.wait("document.getElementById('head')?.options.length === 2", "the rewards")
    choose(page, "head", "1")
    # One that does not learn the reward is compared by its first, which is named.
    when(lambda: page.run(words) == ["turned", "first: energy"], "the reward that differs")
    asked = "performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => name.includes('/api/map'))"
    for name, head in (("turned", 0), ("first", 0)):
        choose(page, "against", f"critic {name}")
        page.wait(f"{asked}.some((name) => name.includes('critic={name}&head={head}'))", f"the map of {name}")
    apart = "import('/value.js').then(({valueColumns}) => Math.max(...valueColumns().difference.map(Math.abs)) %s)"
    # The comfort of the first critic lies between -3 and -1, the energy of the other between 0 and 1.
    page.wait("document.getElementById('other-title').textContent === 'first: energy'", "whose map it is")
    page.wait(apart % "> 0.8", "how far apart they are")
    # These two have learned the same reward from the same rows.
    choose(page, "against", "critic turned")
    page.wait("document.getElementById('other-title').textContent === 'turned'", "the other map")
    page.wait(apart % "< 0.3", "that they are alike")
    choose(page, "head", "0")
    page.wait(f"{asked}.some((name) => name.includes('critic=turned&head=1'))", "its second reward beside the first")
    assert_clean(page, daemon)


def test_the_terminal_says_what_the_page_says(start: Start, page: Browser) -> None:
    daemon = start(config=CONFIG)
    sent = send(daemon, 600)
    page.open(address(daemon))
    page.wait("document.getElementById('trust')?.hidden === false", "the line")
    send_until_verified(page, daemon, sent)
    # States of another length are refused.
    daemon.push().send(pack({"stream": "other", "seq": 0, "states": np.zeros((3, 5)), "rewards": np.zeros((2, 2))}))
    page.wait("document.getElementById('trust').dataset.level === 'warn'", "an amber line")
    command = [BINARY, "status", "--control", daemon.endpoints["control"], "--timeout", f"{PATIENCE_S:.0f}"]

    def said() -> str:
        done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
        return " ".join(done.stdout.split())

    def is_the_same() -> None:
        shell = said()
        assert "1 message was refused" in shell
        assert "▲ Believe the values with care. Returns of energy" in shell
        for words in ("trust-line", "trust-why"):
            # What lasts goes on while it is compared.
            lasting = r"; (?:nothing has drifted (?:in the last|since the) [^.]+|drift is not watched yet)\."
            parts = re.split(lasting, " ".join(text(page, words).split()))
            assert all(part[1:] in shell for part in parts if part), (parts, shell)

    settles(is_the_same)
    assert_clean(page, daemon)


def test_names_of_rewards_may_change_at_a_restart_and_change_nothing_that_is_learned(start: Start, tmp_path: Path) -> None:
    daemon = start(config=CONFIG.replace('reward_names = ["energy [J]", "comfort"]\n', ""))
    send(daemon, 300)
    states = np.array([[0.25, 0.5], [0.75, 0.5]])
    before = daemon.control().ask("value", states=states, critic="both", min_offset=300)
    assert "reward_names" not in daemon.control().ask("snapshot", critic="both")
    daemon.terminate()
    daemon = start(config=CONFIG)
    after = daemon.control().ask("value", states=states, critic="both", min_offset=300)
    assert np.array_equal(before["mean"], after["mean"]) and before["generation"] == after["generation"]
    assert "set_aside" not in daemon.log()
    control = daemon.control()
    assert control.ask("snapshot", critic="both")["reward_names"] == ["energy [J]", "comfort"]
    (critic,) = control.ask("status")["critics"]
    assert (critic["reward_names"], critic["rewards"]) == (["energy [J]", "comfort"], [0, 1])

    # The file of the model has them, and a picture of it.
    model, out = tmp_path / "model", tmp_path / "value.svg"
    run = [BINARY, "snapshot", "--control", daemon.endpoints["control"], "--critic", "both", "--out", str(model)]
    run += ["--timeout", f"{PATIENCE_S:.0f}"]
    subprocess.run(run, check=True, timeout=PATIENCE_S)
    for reward, words in [("0", "sum of energy [J] over place [m]"), ("1", "sum of comfort over place [m]")]:
        command = [BINARY, "plot", str(model), "--out", str(out), "--reward", reward]
        done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
        assert words in done.stderr and Xml.parse(out), done.stderr
    # An average goes over the states of the journal, beside the running daemon.
    command = [BINARY, "plot", str(model), "--out", str(out), "--marginal", "--curve"]
    command += ["--visited", str(daemon.directory / "data")]
    done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
    assert "averaged over 64 visited states" in done.stderr and Xml.parse(out), done.stderr
    # So do a trajectory and errors, with the rewards that the critic learns.
    data, table = str(daemon.directory / "data"), tmp_path / "along.csv"
    command = [BINARY, "plot", str(model), "--out", str(table), "--trajectory", data, "--reward", "1", "--rows", "50"]
    done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
    assert "sum of comfort along 50 rows of stream" in done.stderr, done.stderr
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert len(rows) == 51 and rows[0][0] == "offset" and all(-3.3 < float(row[5]) < -0.7 for row in rows[1:])
    command = [BINARY, "plot", str(model), "--out", str(out), "--errors", data]
    done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
    assert done.stdout.startswith("Where the model is most wrong") and "offset" in done.stdout and Xml.parse(out), done
