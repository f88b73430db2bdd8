"""A daemon of one's own: started here, on free ports, and ended with the program."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from criticd._binary import binary as binary
from criticd._protocol import CriticdError, Endpoints
from criticd.client import Client
from criticd.sender import Sender
from criticd.subscriber import Subscriber

if TYPE_CHECKING:
    from typing_extensions import Self

_SOCKETS = ("ingest", "control", "publish")


def _identity(file: Path) -> tuple[int, int] | None:
    """Changes when the file is written again; None while there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


class Daemon:
    """`criticd serve` on free ports of this machine, as long as a `with` block or this program lasts.

    ```python
    with Daemon("critic.discount=0.95") as daemon, daemon.client() as client:
        print(client.status()["offset"], daemon.dashboard)
    ```

    - `settings`: KEY=VALUE pairs, such as "critic.discount=0.95", which go before the configuration file.
    - `config`: text of a configuration file. Without it `criticd.toml` in the directory is read, if it exists.
    - `directory`: where the daemon keeps its data, configuration and log. They stay when it ends, and the next daemon
      there goes on with them. Without it the daemon works in a temporary directory, which is removed at the end.
    - `endpoints`: fixes some of `ingest`, `control`, `publish` and `http`. The last may be "off".
    - `program`: the file to start instead of `binary()`.
    - `timeout_s`: how long it may take until all sockets are ready.

    It is stopped when the program exits, but a program that is killed by a signal leaves it running. Raises
    `CriticdError` with the daemon's log if it does not start, FileNotFoundError
    if there is no program.
    """

    def __init__(
        self,
        *settings: str,
        config: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        endpoints: Mapping[str, str] | None = None,
        program: str | os.PathLike[str] | None = None,
        timeout_s: float = 20.0,
    ) -> None:
        self._program = Path(program) if program is not None else binary()
        self._settings, self._timeout_s = settings, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        free = {**dict.fromkeys(_SOCKETS, "tcp://127.0.0.1:0"), "http": "127.0.0.1:0"}
        self.endpoints = Endpoints(**{**free, **(endpoints or {})})
        self._temporary = directory is None
        self._owner = os.getpid()
        self.directory = Path(tempfile.mkdtemp(prefix="criticd-") if directory is None else directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = self.directory / "data"
        self.config = self.directory / "criticd.toml"
        atexit.register(self.close)
        try:
            if config is not None or not self.config.exists():
                self.config.write_text(config or "")
            self.start()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        raise CriticdError("a Daemon stays in its process, which ends it: give the other one endpoints or data_dir")

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.alive() else "not running"
        return f"<criticd.Daemon {state}, control {self.endpoints.control}, data {self.data_dir}>"

    def start(self) -> None:
        """Start it again, with the endpoints and the directory that it had."""
        if self.alive():
            raise CriticdError("the daemon runs already")
        # A daemon that was killed has left its file, and one that still runs there keeps it.
        file, before = self.data_dir / "endpoints.json", _identity(self.data_dir / "endpoints.json")
        command = [str(self._program), "serve", "--config", str(self.config), "--data-dir", str(self.data_dir)]
        for name in _SOCKETS:
            command += [f"--{name}", getattr(self.endpoints, name)]
        command += ["--http", self.endpoints.http or "off"]
        for setting in self._settings:
            command += ["--set", setting]
        # Settings come from the arguments alone, not from the environment of this program.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CRITICD_")}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=environment)
        deadline = time.monotonic() + self._timeout_s
        while _identity(file) in (None, before):
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
            raise CriticdError("the daemon was never started")
        return self._process.pid

    @property
    def dashboard(self) -> str | None:
        """Address of its page for browsers, None if that is off."""
        return None if self.endpoints.http is None else f"http://{self.endpoints.http}/"

    def log(self) -> str:
        """What it has logged so far."""
        return (self.directory / "log").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it ends at once, and cleans nothing up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, and wait: its exit code. Raises `subprocess.TimeoutExpired`."""
        if self._process is None:
            raise CriticdError("the daemon was never started")
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def restart(self) -> None:
        """Kill it, and start it again on the same endpoints."""
        self.kill()
        self.start()

    def client(self, **options: Any) -> Client:
        """A client of it, with the options of `Client`."""
        return Client(self.endpoints.control, **options)

    def sender(self, *, reliable: bool = False, **options: Any) -> Sender:
        """A sender to it, with the options of `Sender`."""
        if reliable:
            return Sender(self.endpoints.control, reliable=True, **options)
        return Sender(data_dir=self.data_dir, **options)

    def subscriber(self, **options: Any) -> Subscriber:
        """A subscriber to it, with the options of `Subscriber`."""
        return Subscriber(self.endpoints.publish, self.endpoints.control, **options)

    def close(self) -> None:
        """Stop it as SIGTERM does, after 10 seconds by force, and remove its temporary directory."""
        # A forked child has a copy of this object, but the daemon is the parent's.
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        if self.alive():
            try:
                self.terminate()
            except subprocess.TimeoutExpired:
                self.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
