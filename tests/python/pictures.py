"""Make the pictures of the documents again: the demo's and those of the dashboard while it runs.

    target/python/bin/python tests/python/pictures.py [PROGRAM]        target/release/criticd, unless another is given

Needs Chromium, and the environment that tests/run.sh makes. `cargo run --release --example gridworld and --example pendulum` makes those of the paper's problems.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser

ROOT = Path(__file__).resolve().parents[2]
# Seconds in which the pendulum's model is selected and some hundred of its returns become known.
LEARNED_S = 60
SIZES = {"dashboard.png": (1440, 1340, False), "dashboard-phone.png": (390, 1450, True)}


def main() -> None:
    """The pictures, into docs/."""
    program = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "release" / "criticd").resolve()
    demo_picture = ROOT / "docs" / "demo-pendulum.png"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [program, "demo", "pendulum", "--seconds", str(LEARNED_S), "--out", demo_picture]
        with log.open("w") as said:
            demo = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder)
        while not (found := re.findall(r"http://[0-9.:]+/", log.read_text())):
            time.sleep(0.1)
        browser = Browser()
        time.sleep(LEARNED_S / 2)
        for name, (width, height, phone) in SIZES.items():
            browser.size(width, height, mobile=phone)
            browser.open(found[0])
            time.sleep(LEARNED_S / 6)
            browser.screenshot(ROOT / "docs" / name, whole=False)
            print(ROOT / "docs" / name)
        demo.wait(2 * LEARNED_S)
        browser.close()
    print(demo_picture)


if __name__ == "__main__":
    main()
