"""A daemon that a program starts for itself."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
import urllib.request
from pathlib import Path

import pytest
from conftest import CALM, PATIENCE_S

import criticd
from criticd import CriticdError, Daemon
from criticd._status import CriticStatus, Status
from criticd.daemon import binary


def test_a_block_has_a_daemon_and_leaves_nothing() -> None:
    with Daemon("critic.discount=0.5", *CALM) as daemon, daemon.client() as client:
        assert daemon.alive() and str(daemon.pid) in repr(daemon) and daemon.endpoints.control in repr(daemon)
        with daemon.sender(reliable=True) as sender:
            sender.send_trajectory([[float(row)] for row in range(101)], [1.0] * 100)
            assert sender.flush(PATIENCE_S)
        assert client.value([0.0], min_offset=100).offset == 100
        assert client.status()["critics"][0]["discount"] == 0.5
        assert daemon.dashboard is not None
        with urllib.request.urlopen(daemon.dashboard + "healthz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        directory = daemon.directory
    assert not daemon.alive() and "not running" in repr(daemon) and not directory.exists()
    daemon.close()


def test_a_directory_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "criticd.toml").write_text("[[critic]]\ndiscount = 0.25\n")
    for run in range(2):
        with Daemon(*CALM, directory=tmp_path) as daemon, daemon.client() as client:
            assert client.status()["critics"][0]["discount"] == 0.25
            assert client.status()["offset"] == 10 * run
            client.append(stream=f"run-{run}", seq=0, states=[[float(row)] for row in range(11)], rewards=[0.0] * 10)
        # It was not killed: it had the time to say so.
        assert "event=stop" in daemon.log() or "stopped" in daemon.log()
    assert (tmp_path / "data").is_dir()


def test_a_daemon_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(CriticdError, match="dicsount"):
        Daemon("critic.dicsount=0.5")
    with Daemon(directory=tmp_path) as daemon:
        with pytest.raises(CriticdError, match="did not start"):
            Daemon(directory=tmp_path)
        # The one that was there first is still found.
        with criticd.Client(data_dir=daemon.data_dir) as client:
            assert client.ping() >= 0
    with pytest.raises(FileNotFoundError):
        Daemon(program=tmp_path / "nothing")


def test_it_ends_with_the_program(tmp_path: Path) -> None:
    options = f"directory={str(tmp_path)!r}, timeout_s={PATIENCE_S}"
    script = f"import criticd; daemon = criticd.Daemon({options}); print(daemon.pid)"
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.stdout), 0)


def test_a_forked_process_leaves_it_alone() -> None:
    with Daemon() as daemon:
        child = os.fork()
        if child == 0:
            daemon.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert daemon.alive() and daemon.directory.exists()


def test_which_program_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRITICD_BIN", "/somewhere/criticd")
    assert binary() == Path("/somewhere/criticd")
    monkeypatch.delenv("CRITICD_BIN")
    installed, found = tmp_path / "installed", tmp_path / "found"
    for folder in (installed, found):
        folder.mkdir()
        (folder / "criticd").write_text("#!/bin/sh\n")
        (folder / "criticd").chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda name, scheme: str(installed))
    monkeypatch.setenv("PATH", str(found))
    # The one of the wheel goes with this package; another one in the path may be of another version.
    assert binary() == installed / "criticd"
    (installed / "criticd").unlink()
    assert binary() == found / "criticd"
    (found / "criticd").unlink()
    with pytest.raises(FileNotFoundError, match="install") as missing:
        binary()
    assert "CRITICD_BIN" in str(missing.value)


def test_the_types_of_the_status_are_those_of_the_daemon() -> None:
    with Daemon(*CALM) as daemon, daemon.client() as client:
        empty = client.status()
        with daemon.sender(reliable=True) as sender:
            sender.send_trajectory([[float(row % 7)] for row in range(201)], [1.0] * 200)
            assert sender.flush(PATIENCE_S)
        client.value([0.0], min_offset=200)
        client.refit(wait=True, timeout_s=5 * PATIENCE_S)
        client.checkpoint()
        status = client.status()
    assert typing.get_type_hints(Status).keys() <= status.keys() and not {"v", "id", "ok"} & status.keys()
    keys = typing.get_type_hints(CriticStatus, include_extras=True)
    model = {key for key, of in keys.items() if typing.get_origin(of) is typing.NotRequired}
    always = keys.keys() - model
    assert always <= empty["critics"][0].keys() and not model & empty["critics"][0].keys()
    assert (always | model) <= status["critics"][0].keys()
    _check(status, Status)
    _check(empty, Status)


def _check(value: object, wanted: object) -> None:
    """A value is of a type, as far as dictionaries, lists and plain values go."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if typing.is_typeddict(wanted):
        assert isinstance(value, dict)
        for key, hint in typing.get_type_hints(wanted).items():
            if key in value:
                _check(value[key], hint)
    elif origin is list:
        assert isinstance(value, list)
        for item in value:
            _check(item, parts[0])
    elif origin is dict:
        assert isinstance(value, dict)
        for item in value.values():
            _check(item, parts[1])
    elif parts:
        if value is not None or type(None) not in parts:
            kinds = [part for part in parts if part is not type(None)]
            _check(value, next(part for part in kinds if (typing.get_origin(part) is list) == isinstance(value, list)))
    elif wanted is float:
        assert isinstance(value, float | int)
    elif wanted is not typing.Any:
        assert isinstance(value, typing.cast(type, wanted)), (value, wanted)


def test_objects_describe_themselves_in_a_line() -> None:
    with (
        Daemon(*CALM, "critic.warmup_rows=20") as daemon,
        daemon.client() as client,
        daemon.subscriber() as critic,
        daemon.sender(stream="arm") as sender,
    ):
        assert "no model yet" in repr(critic) and daemon.endpoints.control in repr(client)
        sender.send_trajectory([[float(row % 7)] for row in range(101)], [1.0] * 100)
        assert sender.flush(PATIENCE_S)
        critic.wait(PATIENCE_S, offset=100)
        assert "100 rows" in repr(critic) and "'arm'" in repr(sender) and "100 rows taken" in repr(sender)
        for thing in (daemon, client, critic, sender, critic.latest):
            assert len(repr(thing)) < 300 and "\n" not in repr(thing) and "criticd." in repr(thing)


def test_the_version_is_that_of_the_package() -> None:
    assert criticd.__version__[0].isdigit()
