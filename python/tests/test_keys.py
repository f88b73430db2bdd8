"""Encrypted connections of every client: needs a daemon built with `--features curve`."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, ROOT

import criticd.aio
from criticd import Client, Keys, Refused, Sender, Subscriber
from criticd.testing import Daemon

BINARY = Path(os.environ.get("CRITICD_CURVE_BIN", ROOT / "target" / "curve" / "criticd"))
encrypted = pytest.mark.skipif(not BINARY.exists(), reason="there is no criticd built with --features curve")

# A pair that everybody knows, from ZeroMQ's documentation.
PUBLIC = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
SECRET = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with encrypted sockets for `arm`, which may append, and `planner`, which may do everything."""
    for name in ("daemon", "arm", "planner"):
        subprocess.run([BINARY, "keys", "make", name, "--dir", tmp_path], check=True, capture_output=True)
    lines = [f'curve_{name} = "tcp://127.0.0.1:0"' for name in ("ingest", "control", "publish")]
    lines.append(f'curve_secret_key = "{tmp_path / "daemon.key_secret"}"')
    for name, rights in (("arm", '["append"]'), ("planner", '["append", "query", "administer"]')):
        public = keys(tmp_path, name).public
        lines += ["[[clients]]", f'name = "{name}"', f'key = "{public}"', f"rights = {rights}"]
    with Daemon(*CALM, "critic.warmup_rows=20", config="\n".join(lines), program=BINARY) as daemon:
        yield daemon


def keys(directory: Path, name: str) -> Keys:
    return Keys.load(directory / f"{name}.key_secret", directory / "daemon.key")


def walk(rows: int) -> np.ndarray:
    return 0.5 * np.sin(np.arange(rows + 1) / 5.0)[:, None]


@encrypted
def test_every_client_speaks_with_keys(daemon: Daemon, tmp_path: Path) -> None:
    arm, planner, states = keys(tmp_path, "arm"), keys(tmp_path, "planner"), walk(200)
    ends = daemon.endpoints
    with Subscriber(ends.curve_publish, ends.curve_control, keys=planner) as critic:
        # A key that may append finds its place and gets its acknowledgements.
        with Sender(ends.curve_control, stream="a", reliable=True, keys=arm) as sender:
            sender.send_trajectory(states, states[:-1, 0])
            assert sender.flush(PATIENCE_S)
        with Sender(data_dir=daemon.data_dir, stream="b", session="s", reliable=True, resume=True, keys=arm) as sender:
            sender.send_trajectory(states, states[:-1, 0])
            assert sender.flush(PATIENCE_S)
        with Sender(ends.curve_ingest, stream="c", keys=arm) as sender:
            sender.send_trajectory(states, states[:-1, 0])
            assert sender.flush(PATIENCE_S)
        with Client(data_dir=daemon.data_dir, keys=planner) as client:
            found = client.value([[0.1]], min_offset=600, timeout_s=PATIENCE_S)
            assert found.offset >= 600
            assert {name: stream.rows for name, stream in client.streams().items()} == {"a": 200, "b": 200, "c": 200}
        model = critic.wait(PATIENCE_S, offset=600)
        np.testing.assert_allclose(model([[0.1]]), found.mean, rtol=1e-6)
    with Client(ends.curve_control, keys=arm) as client, pytest.raises(Refused, match="unauthorised"):
        client.value([[0.1]])


@encrypted
def test_asyncio_speaks_with_keys(daemon: Daemon, tmp_path: Path) -> None:
    planner, states = keys(tmp_path, "planner"), walk(100)

    async def talk() -> None:
        ends = daemon.endpoints
        async with criticd.aio.Sender(ends.curve_control, stream="a", reliable=True, keys=planner) as sender:
            await sender.send_trajectory(states, states[:-1, 0])
            assert await sender.flush(PATIENCE_S)
        async with criticd.aio.Client(ends.curve_control, keys=planner) as client:
            assert (await client.value([[0.1]], min_offset=100, timeout_s=PATIENCE_S)).offset >= 100
        async with criticd.aio.Subscriber(ends.curve_publish, ends.curve_control, keys=planner) as critic:
            assert (await critic.wait(PATIENCE_S, offset=100)).transitions >= 100

    asyncio.run(talk())


def test_a_secret_is_not_shown_and_a_wrong_key_is_refused(tmp_path: Path) -> None:
    found = Keys(PUBLIC, SECRET, PUBLIC)
    assert SECRET not in repr(found) and PUBLIC in repr(found)
    for bad in (SECRET[1:], SECRET + "x", "~" * 40):
        with pytest.raises(ValueError, match="secret is no key") as error:
            Keys(PUBLIC, bad, PUBLIC)
        assert bad not in str(error.value)
    file = tmp_path / "arm.key_secret"
    file.write_text(f'metadata\ncurve\n    public-key = "{PUBLIC}"\n    secret-key = "{SECRET}"\n')
    file.chmod(0o640)
    with pytest.raises(ValueError, match="chmod 600") as error:
        Keys.load(file, PUBLIC)
    assert SECRET not in str(error.value)
    file.chmod(0o600)
    assert Keys.load(file, PUBLIC) == found
    file.write_text(SECRET)
    with pytest.raises(ValueError, match="is it a key file"):
        Keys.load(file, PUBLIC)
    with pytest.raises(OSError, match="nowhere"):
        Keys.load(tmp_path / "nowhere", PUBLIC)


def test_with_keys_there_is_no_default_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRITICD_DATA_DIR", raising=False)
    with pytest.raises(ValueError, match="say where"):
        Client(keys=Keys(PUBLIC, SECRET, PUBLIC))
