"""What systemd is told, and the example's unit file."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from client import BINARY, PATIENCE_S, ROOT
from conftest import Start

UNIT = ROOT / "examples" / "systemd" / "criticd.service"


def test_systemd_is_told_and_fed(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        daemon = start()
        # A start feeds the watchdog, and asks for time, before it is ready.
        while (message := manager.recv(4096)).startswith((b"WATCHDOG=1", b"EXTEND_TIMEOUT_USEC=")):
            pass
        assert message == b"READY=1\n"
        for _ in range(3):
            assert manager.recv(4096) == b"WATCHDOG=1\n"
        daemon.process.terminate()
        while (message := manager.recv(4096)) == b"WATCHDOG=1\n":
            pass
        assert message == b"STOPPING=1\n"
        assert daemon.process.wait(PATIENCE_S) == 0


def test_the_unit_leaves_time_for_a_stop() -> None:
    # The daemon learns what it has received for a second at most, and writes a checkpoint (docs/guarantees.md).
    assert "TimeoutStopSec=30" in UNIT.read_text().splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_file_is_understood(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/criticd", str(BINARY)))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    # It also looks at units that the machine itself has; only what it says of ours counts.
    said = [line for line in (checked.stdout + checked.stderr).splitlines() if "criticd" in line]
    assert said == []
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", unit], capture_output=True, text=True
    )
    assert rated.returncode == 0, rated.stdout[-500:]
