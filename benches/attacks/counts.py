"""The attacks of an outside review, made as often as the review made them: `run.py --counts`.

The review measured commit b48e42f with scripts of its own, on a machine with 2 cores and a load of 5 to 30. `REVIEWED`
has its figures as data. Left out are attacks of which the review measured no delay and no memory (what a socket type, a
right or a header of HTTP gives), its fuzzing, whose targets are in `fuzz`, and 400 connections to a daemon with 200
descriptors: the daemon does not start with so few.

A bystander sends `ping` every 10 ms, as the review's did. Besides, one thread asks for `status`, which the learner
answers, and one for /healthz, twice a second. An attack is over when the last request is answered, or the last
connection is closed. It is cut short after `--seconds`; "made" then says how often it was made by then. Where the
attacker never reads, "answered" says how many of its requests the daemon has read. Exit status 1: beyond the
scheduler's longest delay a `ping` takes longer than 100 ms, or `status` or /healthz longer than 1 s; or what holds for
the other attacks does not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attacks
import counted
import zmq.auth
from attacks import DEALS, SNAPSHOT, VISIT, Ends, dealer, pack
from counted import OPEN, Make, Tally, ask, cycle, endless, many, never_read, noise, on_each, subscribers, turns, visits
from daemon import ADVISOR, LATE_MAX_MS, Bystander, Daemon, answer, percentile, within_bounds, without_refits

# ---- what the review found


@dataclass(frozen=True)
class Reviewed:
    """An attack, and what the review measured of it.

    `then` has the longest `ping`, and how late the bystander woke, in milliseconds; `then_mb` the most memory. A daemon
    that is `empty` has no model; it needs `state_dim` to say how much memory it may take. `stop_s` after all requests
    were made the daemon gets its SIGTERM.
    """

    name: str
    count: str
    then: str
    then_mb: str
    make: Make
    empty: bool = False
    streams: int = 0
    unread: bool = False
    stop_s: float | None = None
    settings: list[str] = field(default_factory=list)
    curve: bool = False


STATUS, PING = pack({"id": 1, "op": "status"}), b"\x04\x07\x04PING\x00\x00"
STREAMS = pack({"id": 1, "op": "streams"})
# As an outside review measured commit b48e42f.
REVIEWED = [
    Reviewed("frame headers of 1 MiB to 2^64", "216", "162 / 15", "18", visits(counted.headers)),
    Reviewed(
        "a long message, then 10^8 empty ones, on ingest and on control",
        "2 x 10^8",
        "499 / 282",
        "20",
        counted.empty_messages,
    ),
    Reviewed(
        "40 MB of frames of 2 bytes that are not the last",
        "3",
        "91 / 47",
        "20",
        visits(lambda: on_each(b"\x01\x00" * 20_000_000)),
    ),
    Reviewed(
        "garbage, HTTP, TLS, versions, mechanisms",
        "432",
        "26 / 21",
        "20",
        visits(lambda: cycle(432, *counted.GARBAGE), at_once=144),
    ),
    Reviewed("mutated handshakes and frames, FIN and RST", "6 000", "84 / 55", "26", counted.mutants),
    Reviewed("silent connections, half greetings", "2 x 2 100", "120 / 84", "26", counted.silence),
    Reviewed(
        "connects, half of them with a handshake",
        "18 000",
        "135 / 39",
        "26",
        visits(lambda: cycle(18_000, b"", DEALS, names=("control",)), leave_s=0.0),
    ),
    Reviewed(
        "connects, 500 a second, RST in mid-frame",
        "10 000",
        "165 / 64",
        "flat",
        visits(
            lambda: cycle(10_000, DEALS + b"\x00\xfaabc", names=("control",)), leave_s=0.0, reset=True, per_second=500.0
        ),
    ),
    Reviewed(
        "killed in mid-message",
        "300",
        "22 / 57",
        "flat",
        visits(lambda: cycle(300, OPEN["ingest"] + b"\x01\x03abc", names=("ingest",)), leave_s=0.0, reset=True),
    ),
    Reviewed(
        "identities: twice the same, none, long ones",
        "30",
        "51 / 101",
        "flat",
        visits(counted.identities, at_once=30, leave_s=2.0),
    ),
    Reviewed(
        "properties of 3 kB to 1 MB, 400 properties",
        "21",
        "127 / 87",
        "flat",
        visits(counted.metadata, at_once=21, leave_s=2.0),
    ),
    Reviewed("handshakes of a byte a second", "500", "186 / 570", "19", counted.slowly),
    Reviewed(attacks.HALF_MESSAGES, "5 x 400", "104 / 95", "457", counted.half_messages),
    Reviewed(
        "connects, RST at once",
        "2 000",
        "75 / 46",
        "flat",
        visits(lambda: cycle(2000, b""), leave_s=0.0, reset=True),
    ),
    Reviewed("10^5 topics of one connection; of libzmq", "2", "53 / 40", "flat", counted.topics),
    Reviewed(
        "topics of 4 kB to 1 MB; 20 000 times on and off",
        "6",
        "14 / 58",
        "flat",
        visits(counted.long_topics, leave_s=2.0),
    ),
    Reviewed("2 to 10^5 parts", "15", "79 / 161", "flat", visits(counted.parts, leave_s=2.0)),
    Reviewed("PING without end, 1 connection", "1", "144 / 33", "flat", noise("control", PING, 1)),
    Reviewed("PING without end, 10 connections", "10", "900 / 14", "flat", noise("control", PING, 10)),
    Reviewed("commands of 2 bytes, control, 1 connection", "1", "1 268 / 13", "flat", noise("control", b"\x04\x00", 1)),
    Reviewed(
        "commands of 2 bytes, control, 10 connections", "10", "2 660 / 6", "flat", noise("control", b"\x04\x00", 10)
    ),
    Reviewed(
        "commands of 2 bytes, ingest, 10 connections", "10", "4 372 / 8", "flat", noise("ingest", b"\x04\x00", 10)
    ),
    Reviewed("empty requests, 1 connection", "1", "38 / 25", "flat", noise("control", b"\x00\x00", 1, reads=True)),
    Reviewed("empty messages, ingest, 10 connections", "10", "59 / 39", "flat", noise("ingest", b"\x00\x00", 10)),
    Reviewed("1 MiB of junk, ingest, 4 connections", "926", "74 / 49", "39", counted.junk),
    Reviewed(
        "`status` without end, 1 client that never reads",
        "",
        "50 / 117",
        "",
        never_read(endless(STATUS), ahead=1000),
        unread=True,
    ),
    Reviewed(
        "`status` without end, 20 clients that never read",
        "",
        "488 / 81",
        "421 from before",
        never_read(endless(STATUS), clients=20, ahead=1000),
        unread=True,
    ),
    Reviewed("400 clients of libzmq at once", "400", "", "flat", counted.crowd),
    Reviewed("300 clients that vanish after 50 requests each", "15 000", "", "flat", counted.vanish),
    Reviewed("`value`, 1 MiB, wrong dimension", "300", "12 712 / 3", "306", ask(many(attacks.value_of_bytes(), 300))),
    Reviewed(
        "`ping` with an unknown key of 1 MB", "300", "2 122 / 18", "", ask(many(attacks.ping_with(1_000_000), 300))
    ),
    Reviewed(
        "`ping` with an unknown key of 1 MB",
        "1 500",
        "12 222 / 19",
        "832",
        ask(many(attacks.ping_with(1_000_000), 1500)),
    ),
    Reviewed(
        "`value`, 20 000 states with variance", "2 560", "7 309 / 45", "", ask(many(attacks.value_of_many(), 2560))
    ),
    Reviewed(
        "`snapshot` as lists, `status`, `ping` in turns",
        "25 000",
        "283 / 314",
        "flat",
        ask(turns(25_000, SNAPSHOT, {"op": "status"}, {"op": "ping"})),
    ),
    Reviewed(
        "`min_offset`, 1 MiB each, before a model",
        "300",
        "10 348 / 32, then over 30 000",
        "2 544",
        ask(many(attacks.value_of_bytes(min_offset=2**62), 300)),
        empty=True,
        settings=["state_dim=15"],
    ),
    Reviewed("`min_offset`, small", "10 000", "68 / 48", "flat", ask(many(attacks.SHORT_WAITER, 10_000))),
    Reviewed(
        "`append`, 4000 x 254 one-byte numbers, before a model",
        "400",
        "3 over 30 000 / 25",
        "4 393",
        ask(lambda: itertools.islice(attacks.appends_of_bytes(), 400)),
        empty=True,
        settings=["state_dim=254"],
    ),
    Reviewed(
        "streams with long names",
        "70 000",
        "40 / 36",
        "160",
        ask(lambda: (attacks.row_of_stream(number, id=1, op="append") for number in range(70_000))),
    ),
    Reviewed(
        "`streams`, 65 536 of them, never read",
        "2 000",
        "510 / 250; `status` 88 600",
        "3 611",
        never_read(many(STREAMS, 2000)),
        streams=65_536,
        unread=True,
    ),
    Reviewed(
        "`streams`, 65 536 of them, never read, SIGTERM after 2 s",
        "1 000",
        "SIGTERM over 100 s",
        "",
        never_read(many(STREAMS, 1000)),
        streams=65_536,
        unread=True,
        stop_s=2.0,
    ),
    Reviewed(
        "`refit`, half of them with `wait`",
        "3 000",
        "60 / 51",
        "61",
        ask(turns(3000, {"op": "refit", "wait": True}, {"op": "refit"})),
    ),
    Reviewed("`checkpoint`", "3 000", "328 / 208", "69", ask(turns(3000, {"op": "checkpoint"}))),
    Reviewed("`append` and `checkpoint` in turns", "136", "328 / 208", "69", counted.pairs),
    Reviewed("subscribers, 30 of them never read", "400", "704 / 122", "79", subscribers(400, 30)),
    Reviewed("subscribers from two addresses", "900", "59 / 6", "+8", subscribers(900, 0, second_address=True)),
    Reviewed(
        "subscribers that never read, a model every 10 ms, 25 s",
        "5",
        "21 / 11",
        "118",
        counted.models_unread,
        settings=["snapshot_interval_ms=10"],
    ),
    Reviewed(
        "SSE visitors",
        "500",
        "400 / 280; /healthz over 20 000",
        "26",
        visits(lambda: cycle(500, VISIT, names=("http",)), at_once=500, leave_s=20.0),
    ),
    Reviewed("half HTTP requests", "64", "181 / 67; /healthz 15 000", "flat", counted.half_requests),
    Reviewed("visitors that ask every 10 s", "64", "181 / 67; /healthz never", "flat", counted.keep_alive),
    Reviewed(
        "CURVE: `value`, 1 MiB, of a client that may only append",
        "60",
        "2 424 / 9",
        "109",
        counted.encrypted,
        curve=True,
    ),
]


# ---- how the daemon fares


def ping(ends: Ends, seen: Any, over: Any, results: Any) -> None:
    """Ask every 10 ms until it is over; `seen` tells that the first reply is there."""
    client = Bystander(ends)
    while not over.is_set() and not client.lost:
        client.ask("ping")
        seen.set()
    results.put(client.found)


class Looker:
    """Asks the daemon for something twice a second, beside the attack, and keeps how long it waited for answers."""

    def __init__(self, ask: Callable[[], object], over: Any) -> None:
        self.ask, self.over, self.longest_s, self.count, self.since = ask, over, 0.0, 0, time.monotonic()
        self.answered = False
        threading.Thread(target=self.look, daemon=True).start()

    def look(self) -> None:
        """Ask until it is over; who is refused asks again, and waits no less for that."""
        while not self.over.is_set():
            self.since, self.answered = time.monotonic(), False
            while not self.answered and not self.over.is_set():
                try:
                    self.ask()
                    self.answered = True
                except OSError:
                    time.sleep(0.05)
            self.longest_s = max(self.longest_s, time.monotonic() - self.since)
            self.count += self.answered
            self.answered = True
            time.sleep(0.5)

    def longest_ms(self) -> float:
        """The longest wait, in milliseconds, also if it has not ended."""
        return 1e3 * max(self.longest_s, 0.0 if self.answered else time.monotonic() - self.since)


def has_curve(binary: str) -> bool:
    """Whether it was built with encryption."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            keys(binary, Path(folder))
        except subprocess.CalledProcessError:
            return False
    return True


def keys(binary: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Settings of a daemon with an encrypted control socket and a client that may append; the client's keys."""
    for name in ("daemon", "arm"):
        subprocess.run([binary, "keys", "make", name, "--dir", str(folder)], check=True, capture_output=True)
    pair = {name: zmq.auth.load_certificate(folder / f"{name}.key_secret") for name in ("daemon", "arm")}
    public, secret, server = pair["arm"][0], pair["arm"][1] or b"", pair["daemon"][0]
    config = f'curve_control = "tcp://127.0.0.1:0"\ncurve_secret_key = "{folder / "daemon.key_secret"}"\n'
    config += f'[[clients]]\nname = "arm"\nkey = "{public.decode()}"\nrights = ["append"]\n'
    return config, {"public": public.decode(), "secret": secret.decode(), "server": server.decode()}


def go(number: int, ends: Ends, tally: Tally) -> None:
    """Make an attack, in a process of its own, until it is over or the daemon has stopped."""
    with contextlib.suppress(ConnectionRefusedError):
        REVIEWED[number].make(ends, tally)


def measure(binary: str, number: int, seconds: float) -> dict[str, Any]:
    """What an attack costs, made as often as the review made it, or for a number of seconds."""
    row, context = REVIEWED[number], multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        config, more = keys(binary, Path(folder)) if row.curve else (ADVISOR, {})
        daemon = Daemon(binary, Path(folder), [*without_refits(100), *row.settings], config)
        tally, made, over = Tally(context), [], context.Event()
        try:
            if not row.empty:
                daemon.teach()
            if row.streams:
                # One more is known from the first rows.
                _push = attacks.make_streams(daemon.ends, row.streams - 1)
                daemon.know(row.streams)
            figures: dict[str, Any] = {"attack": row.name, "count": row.count, "stated_mib": daemon.stated_mib()}
            received = daemon.metric(RECEIVED)
            seen, results = context.Event(), context.Queue()
            made.append(context.Process(target=ping, args=(daemon.ends, seen, over, results), daemon=True))
            made[-1].start()
            seen.wait()
            asking = dealer(daemon.ends)
            status = Looker(lambda: answer(asking, "status"), over)
            health = Looker(lambda: daemon.page("/healthz"), over)
            began = time.monotonic()
            made.append(context.Process(target=go, args=(number, daemon.ends | more, tally), daemon=True))
            made[-1].start()
            while made[-1].is_alive() and time.monotonic() < began + seconds:
                if row.stop_s is not None and tally.made >= int(row.count.replace(" ", "")):
                    time.sleep(row.stop_s)
                    break
                time.sleep(0.05)
            figures |= {"seconds": time.monotonic() - began, "cut_short": made[-1].is_alive()}
            if row.stop_s is None:
                # What the attack leaves behind.
                time.sleep(1.0)
            figures |= {"status": status.longest_ms(), "healthz": health.longest_ms()}
            over.set()
            found = results.get()
            answered = tally.answered
            if row.unread:
                answered = round(daemon.metric(RECEIVED) - received) - len(found["ping"]) - status.count
            figures |= daemon.measure_end()
        finally:
            for process in made:
                process.kill()
            daemon.close()
    figures |= {op: [percentile(found[op], 0.5), percentile(found[op], 0.99), max(found[op])] for op in FOUND}
    return figures | {"made": tally.made, "answered": max(answered, 0), "then": row.then, "then_mb": row.then_mb}


RECEIVED = 'criticd_received_messages_total{socket="control"}'
FOUND = ("ping", "scheduler")
NAMES = [
    "attack",
    "count",
    "made",
    "answered",
    "s",
    "ping / scheduler, ms",
    "status; /healthz, ms",
    "peak MiB (stated)",
]
NAMES += ["watchdog, s", "stop, s", "then: ping / scheduler, ms", "then: peak MB"]


def grouped(number: int) -> str:
    """A number with a space between thousands; nothing for 0."""
    return f"{number:,}".replace(",", " ") if number else ""


def counts(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """A line for each attack of the review; whether the daemon kept its bounds in all of them."""
    print("`then`: as an outside review measured commit b48e42f.\n")
    print(f"| {' | '.join(NAMES)} |\n|{' --- |' * len(NAMES)}")
    all_figures: list[dict[str, Any]] = []
    holds = True
    for number, row in enumerate(REVIEWED):
        if given.only not in row.name:
            continue
        if row.curve and not has_curve(given.binary):
            left = [row.name, row.count, "built without CURVE", *[""] * (len(NAMES) - 5), row.then, row.then_mb]
            print(f"| {' | '.join(left)} |", flush=True)
            continue
        figures = measure(given.binary, number, given.seconds)
        all_figures.append(figures)
        late = {"ping": figures["ping"][2], "status": figures["status"], "healthz": figures["healthz"]}
        holds &= all(late[op] - figures["scheduler"][2] <= LATE_MAX_MS[op] for op in late) and within_bounds(figures)
        cells = [
            row.name,
            row.count,
            grouped(figures["made"]),
            grouped(figures["answered"]),
            f"{figures['seconds']:.0f}",
        ]
        cells += [f"{figures['ping'][2]:.0f} / {figures['scheduler'][2]:.0f}"]
        cells += [f"{figures['status']:.0f}; {figures['healthz']:.0f}"]
        cells += [f"{figures['peak_mib']:.0f} ({figures['stated_mib']:.0f})", f"{figures['watchdog_s']:.1f}"]
        cells += [f"{figures['stop_s']:.1f}", row.then, row.then_mb]
        print(f"| {' | '.join(cells)} |", flush=True)
    return all_figures, holds
