"""The READMEs' snippets, run as they stand there but for the ports."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time

import pytest
from client import PATIENCE_S, ROOT, when
from conftest import Start

PORTS = {"5750": "ingest", "5751": "control", "5752": "publish"}


@pytest.mark.parametrize("document", ["README.md", "proto/README.md"])
def test_the_snippets_run(start: Start, document: str) -> None:
    # The one refit is asked for, so that the model does not change between the snippet's look at it and ours.
    daemon = start("critic.discount=0.9", "critic.refit_first_rows=0")
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert len(snippets) == {"README.md": 3, "proto/README.md": 2}[document]
    send, read, *alone = [
        re.sub(r"tcp://127\.0\.0\.1:(\d+)", lambda found: daemon.endpoints[PORTS[found[1]]], text) for text in snippets
    ]
    # Those that use the package find the daemon here.
    environment = {**os.environ, "CRITICD_DATA_DIR": str(daemon.directory / "data")}
    # The second may wait for news: rows keep coming meanwhile.
    subprocess.run([sys.executable, "-c", send], check=True, timeout=PATIENCE_S, env=environment)
    control = daemon.control()
    control.wait_for_learned(1000)
    control.ask("value", states=[[0.5]], min_offset=1000)
    control.ask("refit", wait=True)
    reader = subprocess.Popen([sys.executable, "-c", read], stdout=subprocess.PIPE, text=True, env=environment)
    seqs = itertools.count()

    def has_ended() -> bool:
        control.ask("append", stream="more", seq=next(seqs), state=[0.5], next_state=[0.55], reward=-0.5)
        time.sleep(0.1)
        return reader.poll() is not None

    when(has_ended, "what the snippet prints")
    output, _ = reader.communicate(timeout=PATIENCE_S)
    assert reader.returncode == 0
    numbers = [float(text) for text in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", output)]
    expected = control.ask("value", states=[[0.5]])["mean"][0]
    assert any(abs(number - expected) < 0.5 for number in numbers), (output, expected)
    # Those that need no daemon.
    for code in alone:
        subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
