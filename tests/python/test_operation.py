"""What an operator meets: disks that take nothing, files that vanish, long starts, logs for machines."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, ROOT, Control, Daemon, Refused, receive, settles, when
from conftest import Start
from peers import free_port

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
        when(lambda: client.ask("status")["read_only"], "it is read-only")
        assert client.ask("status")["offset"] == 500
        assert client.ask("value", states=[[0.0, 0.0]], min_offset=500)["offset"] == 500
        with pytest.raises(Refused, match="read_only"):
            append(client, 500, 10)
        when(lambda: get(f"127.0.0.1:{http}", "/readyz")[0] == 503, "it is not ready")
        when(lambda: "read-only" in get(f"127.0.0.1:{http}", "/readyz")[1], "it says why")
        assert get(f"127.0.0.1:{http}", "/healthz")[0] == 200
        when(lambda: "criticd_read_only 1.0" in get(f"127.0.0.1:{http}", "/metrics")[1], "the metric says so")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        when(lambda: client.ask("status")["read_only"] is None, "it can write again")
        append(client, 500, 10)
        when((daemon.directory / "data" / "endpoints.json").exists, "endpoints.json is there")
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
    when(lambda: control.ask("status")["read_only"], "it is noticed")
    why = control.ask("status")["read_only"]
    assert "deleted or replaced" in why and "Do not stop" in why
    with pytest.raises(Refused, match="read_only"):
        append(control, 100, 10)
    # It goes on trying, and makes no new files.
    time.sleep(2.5)
    assert control.ask("status")["read_only"] == why and not (data / "journal.sqlite").exists()
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (aside / name).rename(data / name)
    when(lambda: control.ask("status")["read_only"] is None, "they are back")
    append(control, 100, 10)
    daemon.kill()
    assert start().shared_control().ask("status")["offset"] == 110


def test_a_checkpoint_that_failed_is_not_taken_for_one(start: Start) -> None:
    daemon = start()
    control, data = daemon.shared_control(), daemon.directory / "data"
    append(control, 0, 200)
    first = control.ask("checkpoint")["offset"]
    append(control, 200, 10)
    limit = next(data.glob("checkpoint-*")).stat().st_size // 2
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for _ in range(2):
        with pytest.raises(Refused, match="could not be written"):
            control.ask("checkpoint")
    assert control.ask("status")["journal"]["checkpoint_offset"] == first == 200
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # The last one before the end, though nothing has come since.
    assert daemon.terminate()[0] == 0
    assert start().shared_control().ask("status")["recovered"]["from_checkpoint"] == 210


@pytest.mark.parametrize("what", ["files", "directory"])
def test_the_page_saves_what_a_daemon_without_files_has(start: Start, tmp_path: Path, what: str) -> None:
    page = (ROOT / "docs" / "operations.md").read_text().split("## Deleted files")[1]
    (program,) = re.findall(r"```sh\n(.*?)```", page.split("\n## ")[0], re.DOTALL)
    assert "tcp://127.0.0.1:5751" in program
    daemon = start()
    control, data = daemon.shared_control(), daemon.directory / "data"
    append(control, 0, 300)
    control.ask("checkpoint")
    append(control, 300, 200)
    control.ask("value", states=STATES[:1], min_offset=500)
    if what == "files":
        (data / "journal.sqlite").unlink()
        (data / "journal.sqlite-wal").unlink()
    else:
        # What is being written meanwhile comes after.
        when(lambda: shutil.rmtree(data, ignore_errors=True) or not data.exists(), "the directory is gone")
    when(lambda: control.ask("status")["read_only"], "it is noticed")
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    (programs / "criticd").symlink_to(BINARY)
    program = program.replace("tcp://127.0.0.1:5751", daemon.endpoints["control"])
    program = program.replace("--control $control", f"--control $control --timeout {PATIENCE_S:.0f}")
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    saved = subprocess.run(
        ["bash", "-eu", "-c", program],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert saved.returncode == 0, saved
    assert "500 rows" in saved.stdout and re.search("^state +good$", saved.stdout, re.MULTILINE), saved.stdout
    value = control.ask("value", states=STATES[:5])["mean"]
    daemon.kill()
    (work / "states.csv").write_text("state_0,state_1\n" + "".join(f"{x},{y}\n" for x, y in STATES[:5].tolist()))
    command = [BINARY, "value", "value.model", "states.csv", "--json"]
    answer = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer
    assert np.allclose(json.loads(answer.stdout)["mean"], value, rtol=1e-9, atol=1e-9)
    (tmp_path / "again").mkdir()
    (work / "saved").rename(tmp_path / "again" / "data")
    control = start(name="again").shared_control()
    assert control.ask("status")["offset"] == 500
    assert np.allclose(control.ask("value", states=STATES[:5])["mean"], value, rtol=1e-6, atol=1e-9)
    append(control, 500, 10)


@pytest.mark.long
def test_a_long_start_answers_and_obeys(start: Start, tmp_path: Path) -> None:
    settings = [
        "critic.dictionary_max=600",
        "critic.tolerance=1e-6",
        "critic.refresh_rows=4",
        "critic.refit_first_rows=0",
    ]
    daemon, rows = start(*settings), 12_000
    append(daemon.shared_control(), 0, rows)
    daemon.kill()
    endpoints = daemon.directory / "data" / "endpoints.json"
    http = free_port()
    command = [BINARY, "serve", "--config", str(daemon.config), "--data-dir", str(daemon.directory / "data")]
    for name in ("ingest", "control", "publish"):
        command += [f"--{name}", "tcp://127.0.0.1:0"]
    command += ["--http", f"127.0.0.1:{http}", *(part for setting in settings for part in ("--set", setting))]

    def recovers() -> bool:
        try:
            code, words = get(f"127.0.0.1:{http}", "/readyz")
        except (urllib.error.URLError, ConnectionError):
            return False  # it does not listen yet
        return code == 503 and "recovering" in words

    def answers(process: subprocess.Popen[str], manager: socket.socket) -> None:
        when(lambda: recovers() or endpoints.exists() or process.poll() is not None, "that it learns its journal again")
        assert recovers() and not endpoints.exists()
        assert get(f"127.0.0.1:{http}", "/healthz") == (200, "ok\n")
        assert f"of {rows} rows" in get(f"127.0.0.1:{http}", "/")[1]
        command = [BINARY, "status", "--data-dir", str(daemon.directory / "data")]
        status = subprocess.run(command, capture_output=True, text=True, check=False)
        assert status.returncode == 1, status
        assert f"(process {process.pid}) recovers: " in status.stderr and f" of {rows} rows" in status.stderr, status
        assert f"criticd_recovery_rows {rows}" in get(f"127.0.0.1:{http}", "/metrics")[1]
        # systemd is asked for more time before its own is over, which is 90 s.
        message = manager.recv(4096).decode()
        extension = re.search(r"^EXTEND_TIMEOUT_USEC=(\d+)$", message, re.MULTILINE)
        assert extension and int(extension[1]) >= 10_000_000, message
        assert re.search(rf"^STATUS=learning the journal again: \d+ of {rows} rows$", message, re.MULTILINE), message

    def obeys(number: int) -> bool:
        """Start, look and stop. Whether all was seen: where this process stands still the start may be over before."""
        for checkpoint in (daemon.directory / "data").glob("checkpoint-*"):
            checkpoint.unlink()
        endpoints.unlink(missing_ok=True)
        notify = str(tmp_path / f"notify-{number}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(notify)
            manager.settimeout(PATIENCE_S)
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"NOTIFY_SOCKET": notify})
            is_seen = False
            try:
                answers(process, manager)
                is_seen = True
            except (AssertionError, OSError):
                if recovers() or number == 4:
                    raise
            finally:
                process.send_signal(signal.SIGTERM)
                log = process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 0 and "event=stopped" in log, log
        assert re.search(rf"event=recovering rows=\d+ of={rows}\b", log), log
        return is_seen

    assert any(map(obeys, range(5)))


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
    # At a stop it learns for a second at most what it has not learned yet.
    daemon.shared_control().wait_for_learned(20_000)
    daemon.terminate()
    # Without model selection: a refit would put a model of the window in the place of the rebuilt one.
    daemon = start("window_rows=1000", "critic.discount=0.5", "critic.refit_first_rows=0", "critic.refit_score_drop=0")
    control = daemon.shared_control()

    def is_rebuilt() -> None:
        critic = control.ask("status")["critics"][0]
        assert critic["rebuild"] is None and critic["transitions"] == 20_000, critic

    settles(is_rebuilt)
    status = control.ask("status")
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
    daemon.shared_control().ask("value", states=STATES[:1], min_offset=100)
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
        # A slow start asks for time.
        while (message := manager.recv(4096)).startswith(b"EXTEND_TIMEOUT_USEC="):
            pass
        assert message == b"READY=1\n"
        daemon.terminate()
        assert manager.recv(4096) == b"STOPPING=1\n"


def test_too_few_descriptors_are_refused_at_once(tmp_path: Path) -> None:
    command = [BINARY, "serve", "--data-dir", str(tmp_path / "data"), "--http", "off"]
    for count in (32, 120, 159):

        def few(count: int = count) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))

        refused = subprocess.run(command, capture_output=True, text=True, preexec_fn=few, timeout=PATIENCE_S)
        assert refused.returncode == 1 and "ulimit -n" in refused.stderr, refused


def test_with_as_few_descriptors_as_are_allowed_several_clients_are_served(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [BINARY, "serve", "--data-dir", str(data), "--http", "127.0.0.1:0"]
    for name in ("ingest", "control", "publish"):
        command += [f"--{name}", "tcp://127.0.0.1:0"]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))

    process = subprocess.Popen(command, preexec_fn=few)
    controls = []
    try:
        when(lambda: process.poll() is not None or (data / "endpoints.json").exists(), "it starts")
        endpoints = json.loads((data / "endpoints.json").read_text())
        controls = [Control(endpoints["control"]) for _ in range(8)]
        for k, control in enumerate(controls):
            control.ask("append", stream=f"s{k}", seq=0, state=[0.0], next_state=[1.0], reward=1.0)
        when(lambda: get(endpoints["http"], "/readyz")[0] == 200, "it is ready")
    finally:
        for control in controls:
            control.close()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_too_little_memory_for_the_settings_is_named_at_the_start(tmp_path: Path) -> None:
    data, limit = tmp_path / "data", 4 << 30
    command = [BINARY, "serve", "--data-dir", str(data), "--http", "off", "--set", "state_dim=4"]
    command += ["--set", "critic.dictionary_max=20000"]
    for name in ("ingest", "control", "publish"):
        command += [f"--{name}", "tcp://127.0.0.1:0"]

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=little, text=True)
    when(lambda: process.poll() is not None or (data / "endpoints.json").exists(), "it starts")
    process.terminate()
    log = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, log
    assert "event=memory_may_not_suffice" in log and f'allowed_by="ulimit -v" bytes={limit}' in log, log


def test_runs_are_told_apart_in_publications(start: Start) -> None:
    runs = []
    for _ in range(2):
        daemon = start("snapshot_interval_ms=2000", "critic.refit_first_rows=0")
        topics = {"snapshot", "weights", "status"}
        subscriber = daemon.subscribe(*topics)
        control = daemon.shared_control()
        run = control.ask("status")["run"]
        found: dict[str, int] = {}
        deadline = time.monotonic() + PATIENCE_S
        while set(found) != topics:
            assert time.monotonic() < deadline, found
            append(control, control.ask("status")["offset"], 50)
            topic, message = receive(subscriber)
            found[topic.split(".")[0]] = message["run"]
        assert set(found.values()) == {run}, (run, found)
        runs.append(run)
        daemon.terminate()
    assert runs[0] < runs[1]


def test_data_on_a_mount_that_may_only_be_read_are_described(start: Start) -> None:
    daemon = start()
    append(daemon.shared_control(), 0, 300)
    # A crash: the rows are in the log beside the file, which an ordinary opening would write back.
    daemon.kill()
    data = daemon.directory / "data"
    files = {path.name: path.read_bytes() for path in data.iterdir()}
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && '
    probe = mount + 'if touch "$1/probe" 2> /dev/null; then exit 9; fi'
    own = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*own, probe, "sh", data], capture_output=True).returncode:
        pytest.skip("NOT TESTED: data on a read-only mount, since this process may mount nothing")
    command = [*own, mount + '"$2" inspect "$1"', "sh", data, BINARY]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert said.returncode == 0 and "300 rows" in said.stdout, said
    assert {path.name: path.read_bytes() for path in data.iterdir()} == files
