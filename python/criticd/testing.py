"""A daemon of one's own, for tests and examples."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from criticd._protocol import CriticdError, Endpoints
from criticd.client import Client
from criticd.sender import Sender
from criticd.subscriber import Subscriber

_SOCKETS = ("ingest", "control", "publish")


def binary() -> Path:
    """The program `criticd`: CRITICD_BIN, or what is in the search path. FileNotFoundError if there is none."""
    found = os.environ.get("CRITICD_BIN") or shutil.which("criticd")
    if found is None:
        raise FileNotFoundError("there is no program `criticd`: install it, or name it in CRITICD_BIN")
    return Path(found)


class Daemon:
    """`criticd serve` on ports that are free, in a directory of its own, which goes when it is closed.

    `settings` are KEY=VALUE pairs for `--set`; `config` is the text of a configuration file; `endpoints` may pin some
    of `ingest`, `control`, `publish` and `http`, the last of which may be "off". With `directory` it works there, and
    leaves it. Returns when all sockets are ready; raises `CriticdError` with the log if the program ends before.
    """

    def __init__(
        self,
        *settings: str,
        config: str = "",
        directory: str | os.PathLike[str] | None = None,
        endpoints: Mapping[str, str] | None = None,
        program: str | os.PathLike[str] | None = None,
        timeout_s: float = 20.0,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="criticd-") if directory is None else None
        self.directory = Path(self._temporary.name if self._temporary else os.fspath(directory or "."))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = self.directory / "data"
        self.config = self.directory / "criticd.toml"
        self.config.write_text(config)
        self._settings, self._timeout_s = settings, timeout_s
        self._program = Path(program) if program is not None else binary()
        self._process: subprocess.Popen[bytes] | None = None
        free = {**dict.fromkeys(_SOCKETS, "tcp://127.0.0.1:0"), "http": "127.0.0.1:0"}
        self.endpoints = Endpoints(**{**free, **(endpoints or {})})
        self.start()

    def start(self) -> None:
        """Start it again, on the endpoints that it had, in the directory that it had."""
        if self.alive():
            raise CriticdError("it runs already")
        file = self.data_dir / "endpoints.json"
        file.unlink(missing_ok=True)
        command = [str(self._program), "serve", "--config", str(self.config), "--data-dir", str(self.data_dir)]
        for name in _SOCKETS:
            command += [f"--{name}", getattr(self.endpoints, name)]
        command += ["--http", self.endpoints.http or "off"]
        for setting in self._settings:
            command += ["--set", setting]
        # Settings come from the arguments alone, not from whoever runs the tests.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CRITICD_")}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=environment)
        deadline = time.monotonic() + self._timeout_s
        while not file.exists():
            if not self.alive() or time.monotonic() > deadline:
                self.kill()
                raise CriticdError(f"criticd did not start:\n{self.log()}")
            time.sleep(0.005)
        self.endpoints = Endpoints.read(self.data_dir)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of its process."""
        if self._process is None:
            raise CriticdError("it was never started")
        return self._process.pid

    def log(self) -> str:
        """What it has said so far."""
        return (self.directory / "log").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it ends at once, and cleans nothing up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, and wait; its exit code."""
        if self._process is None:
            raise CriticdError("it was never started")
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def restart(self) -> None:
        """Kill it, and start it again on the same endpoints."""
        self.kill()
        self.start()

    def client(self, **options: Any) -> Client:
        """A client of it."""
        return Client(self.endpoints.control, **options)

    def sender(self, *, reliable: bool = False, **options: Any) -> Sender:
        """A sender to it."""
        return Sender(self.endpoints.control if reliable else self.endpoints.ingest, reliable=reliable, **options)

    def subscriber(self, **options: Any) -> Subscriber:
        """A subscriber to it."""
        return Subscriber(self.endpoints.publish, self.endpoints.control, **options)

    def close(self) -> None:
        """End it, and remove what was made for it."""
        self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
