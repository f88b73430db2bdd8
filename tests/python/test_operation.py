"""What an operator meets: disks that take nothing, files that vanish, long starts, logs for machines."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, Control, Daemon, Refused
from conftest import Start

STATES = np.random.default_rng(1).normal(size=(40_001, 2))


def append(control: Control, first: int, rows: int) -> None:
    for start in range(first, first + rows, 4000):
        count = min(4000, first + rows - start)
        states = STATES[start : start + count + 1]
        control.ask("append", stream="s", session="x", seq=start, states=states, rewards=states[:count, 0].copy())


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until(holds: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_start_that_cannot_write_is_read_only_until_it_can(start: Start, tmp_path: Path) -> None:
    daemon = start()
    append(daemon.shared_control(), 0, 500)
    daemon.kill()
    control, http = free_port(), free_port()
    command = [BINARY, "serve", "--data-dir", str(daemon.directory / "data"), "--control", f"tcp://127.0.0.1:{control}"]
    command += ["--ingest", "tcp://127.0.0.1:0", "--publish", "tcp://127.0.0.1:0", "--http", f"127.0.0.1:{http}"]
    log = tmp_path / "full.log"

    def no_writes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    # The log is a pipe: pipes have no size. Without a signal a write beyond the limit is an error, as on a full disk.
    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=no_writes, restore_signals=False, text=True)
    client = Control(f"tcp://127.0.0.1:{control}")
    try:
        status = client.ask("status")
        assert status["offset"] == 500 and status["read_only"], status
        assert client.ask("value", states=[[0.0, 0.0]])["offset"] == 500
        with pytest.raises(Refused, match="read_only"):
            append(client, 500, 10)
        until(lambda: get(f"127.0.0.1:{http}", "/readyz")[0] == 503, "it is not ready")
        until(lambda: "read-only" in get(f"127.0.0.1:{http}", "/readyz")[1], "it says why")
        assert get(f"127.0.0.1:{http}", "/healthz")[0] == 200
        until(lambda: "criticd_read_only 1.0" in get(f"127.0.0.1:{http}", "/metrics")[1], "the metric says so")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: client.ask("status")["read_only"] is None, "it can write again")
        append(client, 500, 10)
        until((daemon.directory / "data" / "endpoints.json").exists, "endpoints.json is there")
    finally:
        client.close()
        process.terminate()
        log.write_text(process.communicate(timeout=PATIENCE_S)[1])
    assert process.returncode == 0, log.read_text()
    assert "event=read_only" in log.read_text() and "event=writable" in log.read_text()
    daemon = start()
    assert daemon.shared_control().ask("status")["offset"] == 510


def test_files_that_vanish_are_noticed_and_can_be_put_back(start: Start, tmp_path: Path) -> None:
    daemon = start()
    control = daemon.shared_control()
    append(control, 0, 100)
    data, aside = daemon.directory / "data", tmp_path / "aside"
    aside.mkdir()
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (data / name).rename(aside / name)
    until(lambda: control.ask("status")["read_only"], "it is noticed")
    why = control.ask("status")["read_only"]
    assert "deleted or replaced" in why and "Do not stop" in why
    with pytest.raises(Refused, match="read_only"):
        append(control, 100, 10)
    # It goes on trying, and makes no new files.
    time.sleep(2.5)
    assert control.ask("status")["read_only"] == why and not (data / "journal.sqlite").exists()
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (aside / name).rename(data / name)
    until(lambda: control.ask("status")["read_only"] is None, "they are back")
    append(control, 100, 10)
    daemon.kill()
    assert start().shared_control().ask("status")["offset"] == 110


def test_a_long_start_answers_and_obeys(start: Start) -> None:
    settings = [
        "critic.dictionary_max=400",
        "critic.tolerance=1e-6",
        "critic.refresh_rows=4",
        "critic.refit_first_rows=0",
    ]
    daemon = start(*settings)
    control = daemon.shared_control()
    deadline, rows = time.monotonic() + 20, 0
    while time.monotonic() < deadline and rows < 40_000:
        append(control, rows, 500)
        rows += 500
    control.wait_for_offset(rows, 600)
    daemon.kill()
    for checkpoint in (daemon.directory / "data").glob("checkpoint-*"):
        checkpoint.unlink()
    (daemon.directory / "data" / "endpoints.json").unlink()
    http = free_port()
    command = [BINARY, "serve", "--config", str(daemon.config), "--data-dir", str(daemon.directory / "data")]
    for name in ("ingest", "control", "publish"):
        command += [f"--{name}", "tcp://127.0.0.1:0"]
    command += ["--http", f"127.0.0.1:{http}", *(part for setting in settings for part in ("--set", setting))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    seen = ""
    while "recovering" not in seen:
        assert process.poll() is None and not (daemon.directory / "data" / "endpoints.json").exists(), seen
        try:
            code, seen = get(f"127.0.0.1:{http}", "/readyz")
            assert code == 503
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.01)
    assert get(f"127.0.0.1:{http}", "/healthz") == (200, "ok\n")
    assert f"of {rows} rows" in get(f"127.0.0.1:{http}", "/")[1]
    assert f"criticd_recovery_rows {rows}" in get(f"127.0.0.1:{http}", "/metrics")[1]
    process.send_signal(signal.SIGTERM)
    log = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0 and "event=stopped" in log, log


def test_settings_that_the_journal_contradicts_are_refused(start: Start) -> None:
    daemon = start()
    append(daemon.shared_control(), 0, 100)
    daemon.terminate()
    with pytest.raises(RuntimeError, match=r"learns reward 1.*rows have 1 reward in the journal.*data_dir"):
        start("critic.rewards=[1]")
    again: Daemon = start()
    assert again.shared_control().ask("status")["critics"][0]["failed"] is None


def test_another_discount_learns_all_rows_again(start: Start) -> None:
    daemon = start("window_rows=1000")
    append(daemon.shared_control(), 0, 10_000)
    append(daemon.shared_control(), 10_000, 10_000)
    daemon.terminate()
    daemon = start("window_rows=1000", "critic.discount=0.5")
    control = daemon.shared_control()
    until(lambda: control.ask("status")["critics"][0]["rebuild"] is None, "it is rebuilt")
    status = control.ask("status")
    assert status["critics"][0]["transitions"] >= 20_000 or status["critics"][0]["refit"]["adopted"], status
    assert "discount was 0.99, is 0.5" in status["recovered"]["set_aside"][0]
    model = next((daemon.directory / "data" / "set-aside").glob("default-20000.model"))
    states = daemon.directory / "states.csv"
    states.write_text("state_0,state_1\n0.0,0.0\n")
    value = subprocess.run([BINARY, "value", model, states], capture_output=True, text=True, timeout=PATIENCE_S)
    assert value.returncode == 0, value.stderr
    done = subprocess.run(
        [BINARY, "rebuild", "--wait", "--data-dir", str(daemon.directory / "data")], capture_output=True, text=True
    )
    assert done.returncode == 0 and "rebuilt" in done.stdout, done


def test_log_lines_in_json(start: Start) -> None:
    daemon = start("log_format=json")
    append(daemon.shared_control(), 0, 100)
    daemon.terminate()
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    assert {"dashboard", "first_model", "stopped"} <= {line["event"] for line in lines}
    assert all({"time", "level"} <= set(line) for line in lines)
    assert next(line for line in lines if line["event"] == "stopped")["offset"] == 100


def test_systemd_is_told_through_an_abstract_socket(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"criticd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        daemon = start()
        assert manager.recv(4096) == b"READY=1\n"
        daemon.terminate()
        assert manager.recv(4096) == b"STOPPING=1\n"


def test_too_few_descriptors_are_refused_at_once(tmp_path: Path) -> None:
    command = [BINARY, "serve", "--data-dir", str(tmp_path / "data"), "--http", "off"]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    refused = subprocess.run(command, capture_output=True, text=True, preexec_fn=few, timeout=PATIENCE_S)
    assert refused.returncode == 1 and "ulimit -n" in refused.stderr, refused


def test_too_little_memory_for_the_settings_is_named_at_the_start(tmp_path: Path) -> None:
    data, limit = tmp_path / "data", 4 << 30
    command = [BINARY, "serve", "--data-dir", str(data), "--http", "off", "--set", "state_dim=4"]
    command += ["--set", "critic.dictionary_max=20000"]
    for name in ("ingest", "control", "publish"):
        command += [f"--{name}", "tcp://127.0.0.1:0"]

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=little, text=True)
    until(lambda: process.poll() is not None or (data / "endpoints.json").exists(), "it starts")
    process.terminate()
    log = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, log
    assert "event=memory_may_not_suffice" in log and f'allowed_by="ulimit -v" bytes={limit}' in log, log


def test_runs_are_told_apart_in_publications(start: Start) -> None:
    from client import receive

    runs = []
    for _ in range(2):
        daemon = start()
        subscriber = daemon.subscribe("snapshot.")
        control = daemon.shared_control()
        append(control, control.ask("status")["offset"], 100)
        _, snapshot = receive(subscriber)
        assert snapshot["run"] == control.ask("status")["run"]
        runs.append(snapshot["run"])
        daemon.terminate()
    assert runs[0] < runs[1]
