"""A daemon that is measured: its memory, its signs of life to a service manager, and the answers of a client."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgpack
import zmq
import zmq.auth
from attacks import DIM, HALF_MESSAGES, Ends, dealer, pack, rows

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("CRITICD_BIN", str(ROOT / "target/dist/criticd"))
PATIENCE_S = 120.0
# As `WatchdogSec` of examples/systemd.
WATCHDOG_S = 30.0
# What a daemon is expected to keep under attack: the longest SIGTERM, and the longest answers beyond the scheduler's
# delay.
STOP_MAX_S = 10.0
LATE_MAX_MS = {"ping": 100.0, "value": 100.0, "append": 1000.0, "status": 1000.0, "healthz": 1000.0}
# Some attacks fill one queue alone, so they may take no more than that: of long messages of clients half of 64 MiB may
# have begun, and every connection may have a short one.
PEAK_MAX_MIB = {HALF_MESSAGES: 192.0}
# Settings of a daemon whose rows have an action each.
CONTINUOUS = [
    "critic.inputs=state_action",
    "critic.actions={ low = [0.0], high = [1.0] }",
    "critic.successor=sarsa",
]
ADVISOR = """
[[advisor]]
name = "advisor"
lengthscales = [0.001]
outputs = [{ mean = 0.0, deviation = 1.0 }, { mean = 0.0, deviation = 1.0 }]
"""


def without_refits(dictionary: int) -> list[str]:
    """Settings of a daemon with the most streams there may be, which selects no model by itself."""
    settings = [f"critic.dictionary_max={dictionary}", "critic.tolerance=1e-6", "critic.refit_first_rows=0"]
    return [*settings, "critic.refit_score_drop=0.0", "sync=os", "streams_max=65536"]


def keys_of(binary: str, directory: Path) -> tuple[Ends, str]:
    """Keys of a client that may do everything, and settings of a daemon with encrypted sockets for it."""
    for name in ("daemon", "client"):
        subprocess.run([binary, "keys", "make", name, "--dir", str(directory)], check=True, stdout=subprocess.DEVNULL)
    server, _ = zmq.auth.load_certificate(directory / "daemon.key_secret")
    public, secret = zmq.auth.load_certificate(directory / "client.key_secret")
    assert secret is not None
    lines = [f'curve_{name} = "tcp://127.0.0.1:0"' for name in ("ingest", "control", "publish")]
    lines += [f'curve_secret_key = "{directory / "daemon.key_secret"}"', "[[clients]]", 'name = "client"']
    lines += [f'key = "{public.decode()}"', 'rights = ["append", "query", "administer"]', ""]
    keys = {"server_key": server.decode(), "public_key": public.decode(), "secret_key": secret.decode()}
    return keys, "\n".join(lines)


class Watchdog:
    """A service manager that measures the longest time between two signs of life (`WATCHDOG=1`) of a daemon."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock, self.longest_s = path, threading.Lock(), 0.0
        # When the daemon was ready, and when it gave the last sign; both None before that.
        self.ready: float | None = None
        self.fed: float | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        threading.Thread(target=self.listen, daemon=True).start()

    def environment(self) -> dict[str, str]:
        """The environment of a daemon that is to give signs of life."""
        kept = {key: value for key, value in os.environ.items() if key != "WATCHDOG_PID"}
        return kept | {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": str(round(1e6 * WATCHDOG_S))}

    def listen(self) -> None:
        """Until the socket is shut down."""
        while message := self.socket.recv(4096):
            lines = message.decode().splitlines()
            with self.lock:
                now = time.monotonic()
                if "READY=1" in lines:
                    self.ready = now
                if "WATCHDOG=1" in lines:
                    self.longest_s, self.fed = max(self.longest_s, self.since(now)), now

    def since(self, now: float) -> float:
        """How long ago the last sign was; of a daemon that gave none, how long it has been ready."""
        began = self.ready if self.fed is None else self.fed
        return 0.0 if began is None else now - began

    def gap_s(self) -> float:
        """The longest gap by now, also if it has not ended."""
        with self.lock:
            return max(self.longest_s, self.since(time.monotonic()))

    def close(self) -> None:
        """Listen no more."""
        self.socket.shutdown(socket.SHUT_RDWR)


class Daemon:
    """`criticd serve` on free ports of this machine; its data, settings and log are in a directory."""

    def __init__(
        self, binary: str, directory: Path, settings: list[str], config: str = "", encrypted: bool = False
    ) -> None:
        self.directory, file = directory, directory / "settings.toml"
        keys, curve = keys_of(binary, directory) if encrypted else ({}, "")
        file.write_text(curve + config)
        command = [binary, "serve", "--config", str(file), "--data-dir", str(directory), "--http", "127.0.0.1:0"]
        for name in ("ingest", "control", "publish"):
            command += [f"--{name}", "tcp://127.0.0.1:0"]
        for setting in settings:
            command += ["--set", setting]
        (directory / "notify").unlink(missing_ok=True)
        self.watchdog = Watchdog(directory / "notify")
        started = time.monotonic()
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=self.watchdog.environment())
        while not (directory / "endpoints.json").exists():
            if self.process.poll() is not None:
                raise RuntimeError(f"the daemon has not started:\n{(directory / 'log').read_text()}")
            time.sleep(0.01)
        self.ready_s = time.monotonic() - started
        self.ends: Ends = json.loads((directory / "endpoints.json").read_text()) | keys
        self.itself_mib = self.memory_mib("VmRSS")

    def memory_mib(self, what: str) -> float:
        """A line of the process's status, such as `VmHWM`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return float(line.split()[1]) / 1024
        raise RuntimeError(what)

    def core_seconds(self) -> float:
        """Processor time of the thread that learns."""
        total = 0.0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "core":
                total += int((task / "schedstat").read_text().split()[0]) * 1e-9
        return total

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The reply to one request, or nothing if none comes."""
        asking = dealer(self.ends)
        reply = answer(asking, op, **fields)
        asking.close()
        return reply

    def teach(self, acts: bool = False) -> None:
        """Its first model, of 2048 rows; with actions if rows have them."""
        for k in range(8):
            fields: dict[str, Any] = {"states": rows(256 * k, 256), "rewards": [0.5] * 256}
            fields |= {"actions": [(k * j % 7) / 7 for j in range(256)]} if acts else {}
            self.ask("append", stream="first", seq=256 * k, **fields)
        self.ask("value", states=[[0.5] * DIM], min_offset=2048, **({"actions": [0.5]} if acts else {}))

    def know(self, streams: int) -> None:
        """Wait until it knows `streams` streams."""
        while self.ask("status").get("streams", streams) < streams:
            time.sleep(0.5)

    def stated_mib(self) -> float:
        """The bound that it states on its memory."""
        memory = self.ask("status").get("memory", {})
        return float(memory.get("queues_bytes_max", 0) + memory.get("kept_bytes_max", 0)) / 2**20 + self.itself_mib

    def page(self, path: str) -> str:
        """A page of the daemon's HTTP server."""
        with urllib.request.urlopen(f"http://{self.ends['http']}{path}", timeout=PATIENCE_S) as page:
            return str(page.read().decode())

    def metric(self, sample: str) -> float:
        """A number of /metrics, by its name with its labels."""
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.page("/metrics"), re.MULTILINE)
        return float(found[1]) if found else float("nan")

    def stop(self) -> float:
        """Send SIGTERM; the seconds until the process has ended."""
        asked = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(100)
        except subprocess.TimeoutExpired:
            return float("inf")
        return time.monotonic() - asked

    def measure_end(self) -> dict[str, float]:
        """What the daemon took so far, and how long it takes to stop."""
        taken = {"peak_mib": self.memory_mib("VmHWM"), "watchdog_s": self.watchdog.gap_s()}
        return taken | {"stop_s": self.stop()}

    def close(self) -> None:
        """End it at once, if it runs."""
        self.process.kill()
        self.process.wait()
        self.watchdog.close()


def answer(asking: zmq.Socket[bytes], op: str, **fields: Any) -> dict[str, Any]:
    """The reply on a socket that waits for no other, or nothing if none comes."""
    asking.send(pack({"id": 1, "op": op, **fields}))
    if not asking.poll(round(1000 * PATIENCE_S)):
        return {}
    reply: dict[str, Any] = msgpack.unpackb(asking.recv(), strict_map_key=False)
    return reply


class Bystander:
    """A client that means well, asks in turns every 10 ms, and keeps how long it waited, in milliseconds."""

    def __init__(self, ends: Ends, acts: bool = False) -> None:
        self.asking, self.acts, self.seq, self.lost = dealer(ends), acts, 0, False
        self.found: dict[str, list[float]] = {"ping": [], "value": [], "append": [], "scheduler": []}

    def ask(self, op: str) -> None:
        """Sleep 10 ms, then ask; with actions if rows have them."""
        before = time.monotonic()
        time.sleep(0.01)
        self.found["scheduler"].append(1e3 * (time.monotonic() - before - 0.01))
        fields: dict[str, Any] = {}
        if op == "value":
            fields = {"states": [[0.5] * DIM], "variance": True} | ({"actions": [0.5]} if self.acts else {})
        elif op == "append":
            state, successor = rows(self.seq, 1)
            fields = {"stream": "bystander", "seq": self.seq, "state": state, "next_state": successor, "reward": 0.5}
            fields |= {"action": 0.5} if self.acts else {}
        before = time.monotonic()
        reply = answer(self.asking, op, **fields)
        self.found[op].append(1e3 * (time.monotonic() - before))
        self.lost = not reply
        self.seq += op == "append" and bool(reply.get("ok"))


def bystand(ends: Ends, seconds: float, acts: bool, results: Any) -> None:
    """Ask in turns for so long; lists of milliseconds, by what was asked."""
    client, deadline = Bystander(ends, acts), time.monotonic() + seconds
    while time.monotonic() < deadline and not client.lost:
        for op in ("ping", "value", "append"):
            if not client.lost:
                client.ask(op)
    results.put(client.found)


def within_bounds(figures: dict[str, Any]) -> bool:
    """Whether memory, signs of life and SIGTERM kept what the daemon states."""
    most = min(figures["stated_mib"], PEAK_MAX_MIB.get(figures["attack"], figures["stated_mib"]))
    in_time = figures["stop_s"] <= STOP_MAX_S and figures["watchdog_s"] <= WATCHDOG_S
    return bool(figures["peak_mib"] <= most and in_time)


def percentile(values: list[float], share: float) -> float:
    """Of unordered values; NaN if there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
