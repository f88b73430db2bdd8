"""The example in C++ is built and run against a real daemon."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, Start


def test_cpp(start: Start, tmp_path: Path) -> None:
    missing = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    if not missing and not any(Path(place, "zmq.hpp").exists() for place in ("/usr/include", "/usr/local/include")):
        missing = ["zmq.hpp"]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: apt-get install g++ make libzmq3-dev cppzmq-dev")
    source = ROOT / "examples" / "cpp"
    make = ["make", "-f", str(source / "Makefile"), f"VPATH={source}", "CXXFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
    subprocess.run(make, cwd=tmp_path, check=True, timeout=5 * PATIENCE_S)
    daemon = start()

    def sender(*arguments: str) -> str:
        command = [str(tmp_path / "sender"), daemon.endpoints.ingest, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    assert sender("1500") == "1500 rows sent, 0 dropped\n"
    assert sender("600", "another") == "600 rows sent, 0 dropped\n"
    with daemon.client() as client:
        value = client.value([[0.0, 0.0], [1.0, 0.0]], min_offset=2100)
        status, streams = client.status(), client.streams()
    assert (status["offset"], status["rejected"]) == (2100, {})
    assert {name: (stream.rows, stream.next_seq) for name, stream in streams.items()} == {
        "cpp": (1500, 1500),
        "another": (600, 600),
    }
    assert status["critics"][0]["counts"]["cuts"] == 1500 // 200 + 600 // 200
    # Rest is worth more than a drawn spring.
    assert value.mean[0] > value.mean[1]
