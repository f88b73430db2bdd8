"""The page of a fleet: what its status says, for a browser."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from criticd._fleet_status import FleetStatus
from criticd._protocol import CriticdError

_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>criticd fleet</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif }
body { margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem; text-align: right }
th:first-child, td:first-child, td:last-child, th:last-child { text-align: left }
.bad { border-left: .3rem solid #c33; padding-left: .6rem }
</style>
"""
_COLUMNS = ("worker", "rows", "lag", "streams", "heard", "journal", "rows learned", "fault")


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s ago"


def _row(cells: tuple[str, ...], kind: str = "td") -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"


def as_json(status: FleetStatus) -> str:
    """The same as JSON, with the lag of each worker."""
    of = dataclasses.asdict(status)
    for told, each in zip(of["workers"], status.workers, strict=True):
        told["lag"] = each.lag
    return json.dumps(of)


def page_of(status: FleetStatus) -> str:
    """The page."""
    epoch = f"epoch {status.generation}" if status.generation else "no epoch yet"
    age = "" if status.age_s is None else f", model of {_ago(status.age_s)}"
    said = [f"{status.merged} of {status.rows} rows are in the model{age}."]
    if status.coming:
        said.append(f"Epoch {status.coming} is coming: workers learn their rows in it.")
    if status.selecting:
        said.append("A model is being selected.")
    if status.owes:
        said.append("Rows that were taken back had a part in this epoch: another one is selected.")
    moved = [f"{stream} is at worker-{worker}" for stream, worker in status.moved.items()]
    moved += [f"{stream} is on its way" for stream in status.moving]
    if moved:
        said.append(f"Streams that have moved: {', '.join(moved)}.")
    wrong = [f"{status.lost} rows are lost: their journals are gone."] if status.lost else []
    wrong += [status.fault] if status.fault else []
    lines = [f"<p>{escape(text)}</p>" for text in said]
    lines += [f'<p class="bad">{escape(text)}</p>' for text in wrong]
    workers = [
        (
            each.name,
            f"{each.rows}",
            f"{each.lag}",
            f"{each.streams}",
            _ago(each.heard_s),
            f"{each.journal_bytes / 2**20:.1f} MiB",
            "all" if each.caught_up else "learns on",
            each.fault or "",
        )
        for each in status.workers
    ]
    table = "".join([_row(_COLUMNS, "th"), *map(_row, workers)])
    return f"{_HEAD}<h1>Fleet of {len(status.workers)}: {epoch}</h1>{''.join(lines)}<table>{table}</table></html>\n"


class Page:
    """Serves the page at `address`, and the status as JSON at `/status`, until it is closed."""

    def __init__(self, status: Callable[[], FleetStatus], host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            """Answers a browser."""

            def do_GET(self) -> None:
                """The two pages that there are."""
                kinds = {"/": "text/html; charset=utf-8", "/status": "application/json"}
                kind, code = kinds.get(self.path, "text/plain; charset=utf-8"), 200
                try:
                    if self.path not in kinds:
                        code, text = 404, "there is / and /status\n"
                    elif self.path == "/":
                        text = page_of(status())
                    else:
                        text = as_json(status())
                except CriticdError as error:
                    kind, code, text = "text/plain; charset=utf-8", 503, f"{error}\n"
                body = text.encode()
                self.send_response(code)
                for name, value in {
                    "Content-Type": kind,
                    "Content-Length": str(len(body)),
                    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
                    "Cache-Control": "no-store",
                }.items():
                    self.send_header(name, value)
                if code == 503:
                    self.send_header("Refresh", "2")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *values: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            """Of the family of the address."""

            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        self._server = Server((host, port), Handler)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="criticd-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
