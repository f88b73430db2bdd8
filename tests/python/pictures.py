"""Make the pictures of the documents again: the README's rover, and the dashboard while the demo runs.

    target/python/bin/python tests/python/pictures.py [PROGRAM]        target/release/criticd, unless another is given

Needs Chromium, and the environment that tests/run.sh makes. `cargo run --release --example gridworld`, `pendulum` and `documents` make those of docs/reproduction.md.
"""

from __future__ import annotations

import os
import re
import shutil
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


def rover(program: Path) -> None:
    """The README's first picture, by the commands that stand below it."""
    (commands,) = re.findall(r"```sh\n(python3 examples/python/rover.py.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "examples").symlink_to(ROOT / "examples")
        Path(folder, "criticd").symlink_to(program)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-eu", "-c", commands], check=True, cwd=folder, env=environment)
        shutil.copy(Path(folder, "rover.png"), ROOT / "docs" / "rover.png")
    print(ROOT / "docs" / "rover.png")


def main() -> None:
    """The pictures, into docs/."""
    program = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "release" / "criticd").resolve()
    rover(program)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [program, "demo", "pendulum", "--seconds", str(LEARNED_S)]
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


if __name__ == "__main__":
    main()
