"""The example in C++ is built and run against a real daemon."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, Start, when


def test_cpp(start: Start, tmp_path: Path) -> None:
    missing = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    if not missing and not any(Path(place, "zmq.hpp").exists() for place in ("/usr/include", "/usr/local/include")):
        missing = ["zmq.hpp"]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: apt-get install g++ make libzmq3-dev cppzmq-dev")
    source = ROOT / "examples" / "cpp"
    make = ["make", "-f", str(source / "Makefile"), f"VPATH={source}", "CXXFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
    subprocess.run(make, cwd=tmp_path, check=True, timeout=5 * PATIENCE_S)
    # It takes few messages ahead, so that the rest lies in the kernel when the producer ends.
    daemon = start("inbox_messages=64")

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
    # One that ends while the daemon stores nothing, since its files are elsewhere, and so reads nothing.
    with daemon.client() as client:
        files = [daemon.data_dir / name for name in ("journal.sqlite", "journal.sqlite-wal")]
        for file in files:
            file.rename(tmp_path / file.name)
        when(lambda: client.status()["read_only"], "it stores nothing")
        assert sender("8000", "ends") == "8000 rows sent, 0 dropped\n"
        # Several turns of the timer by which the daemon looks at connections that wait.
        time.sleep(0.5)
        for file in files:
            (tmp_path / file.name).rename(file)
        when(lambda: client.status()["offset"] == 2100 + 8000, "all are learned")
        assert client.status()["connections_broken"] == {}
    # Rest is worth more than a drawn spring.
    assert value.mean[0] > value.mean[1]
