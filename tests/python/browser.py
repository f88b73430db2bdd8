"""Headless Chromium, driven over its DevTools protocol: it hangs with server-sent events if driven in simpler ways."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import websocket
from client import PATIENCE_S, when

BINARY = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


# What the browser says of a page that is being left, or has only been begun.
LEAVING = (
    "Inspected target navigated or closed",
    "Execution context was destroyed.",
    "Cannot find default execution context",
    "Cannot find context with specified id",
    "Promise was collected",
)
# A daemon that has no time for an answer says so, and the page asks again (crates/daemon/src/http/mod.rs): on a busy machine that may be.
ASK_AGAIN = "the server responded with a status of 503"


class Navigated(Exception):
    """The page went elsewhere, or loaded itself anew, while it was asked."""


class Threw(Exception):
    """An expression threw in the page."""


class Browser:
    """One page of a browser of its own. Everything it says on its console, and every request, is written down."""

    def __init__(self) -> None:
        assert BINARY, "there is no chromium"
        self.profile = tempfile.mkdtemp(prefix="criticd-browser-")
        self.process = subprocess.Popen(
            [BINARY, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
            + [
                "--remote-debugging-port=0",
                "--remote-allow-origins=*",
                "--hide-scrollbars",
                f"--user-data-dir={self.profile}",
            ]
            + ["--disable-background-networking", "--disable-component-update", "about:blank"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        port = self._port()
        self.count, self.events = 0, list[dict[str, Any]]()
        address = f"ws://127.0.0.1:{port}/devtools/browser/{self.id}"
        self.socket = websocket.create_connection(address, timeout=PATIENCE_S)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session: str | None = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # Without limits the browser keeps what it received, for a developer who might look at it.
        self.call("Network.enable", maxTotalBufferSize=1, maxResourceBufferSize=1)
        # What a page has asked for is looked up in this list, which otherwise ends at 250: a few minutes of a page.
        more = "performance.setResourceTimingBufferSize(10_000)"
        self.call("Page.addScriptToEvaluateOnNewDocument", source=more)

    session: str | None = None
    thrown = ""

    def _port(self) -> int:
        file = Path(self.profile) / "DevToolsActivePort"

        def is_written() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError("chromium did not start")
            return file.exists() and len(file.read_text().splitlines()) == 2

        when(is_written, "chromium's port")
        port, path = file.read_text().splitlines()
        self.id = path.rsplit("/", 1)[1]
        return int(port)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol; events that come meanwhile are kept."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            reply = json.loads(self.socket.recv())
            if reply.get("id") == self.count:
                if reply.get("error", {}).get("message") in LEAVING:
                    raise Navigated(method)
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self._note(reply)

    def _note(self, event: dict[str, Any]) -> None:
        # What the tests look at; the rest, data received for instance, would only grow.
        kept = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.requestWillBeSent")
        if event.get("method") in kept:
            self.events.append(event)

    def size(self, width: int, height: int, *, mobile: bool = False, scale: float = 1, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Threw(result["exceptionDetails"])
        return result["result"].get("value")

    def holds(self, script: str) -> bool:
        """Whether an expression, or what it promises, counts as true now: one that throws, as of a missing part, does not."""
        self.thrown = ""
        try:
            return bool(self.run(f"(async () => Boolean(await ({script})))()"))
        except Navigated:
            return False  # a page that loads itself anew is asked again
        except Threw as error:
            self.thrown = f"{error}; "
            return False

    def wait(self, script: str, what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until an expression holds."""
        try:
            when(lambda: self.holds(script), what, timeout_s)
        except TimeoutError as error:
            words = self.run("document.body.innerText")
            raise TimeoutError(f"{error}; {self.thrown}the page says {words!r}") from None

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def faults(self) -> list[str]:
        """Errors and warnings of the page so far, but for answers that it was told to ask for again."""
        out = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                out.append(json.dumps(parameters["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                out.append(json.dumps(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                if ASK_AGAIN not in parameters["entry"]["text"]:
                    out.append(json.dumps(parameters["entry"]))
        return out

    def requests(self) -> list[str]:
        """Addresses that the page has asked for so far."""
        sent = (event["params"]["request"]["url"] for event in self.events if "Network" in event["method"])
        return list(sent)

    def memory_mib(self) -> float:
        """Memory of JavaScript after its garbage has been collected."""
        self.call("HeapProfiler.collectGarbage")
        return self.call("Runtime.getHeapUsage")["usedSize"] / 2**20

    def resident_mib(self) -> float:
        """Memory of all of the browser's processes, each with its share of what they have in common."""
        total = 0
        for process in Path("/proc").iterdir():
            try:
                if self.profile.encode() in (process / "cmdline").read_bytes():
                    lines = (process / "smaps_rollup").read_text().splitlines()
                    total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            except (OSError, StopIteration):
                continue
        return total / 1024

    def processor_seconds(self) -> float:
        """Processor time of all of the browser's processes so far."""
        total = 0
        for process in Path("/proc").iterdir():
            try:
                if self.profile.encode() in (process / "cmdline").read_bytes():
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                    total += sum(map(int, fields[11:13]))
            except OSError:
                continue
        return total / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
