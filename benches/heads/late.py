"""How long heads take that are added after many rows, and how far they are from heads that were always there.

    python benches/heads/late.py --rows 1000000 --dictionary-max 200 --heads 8

Rows of a walk in four dimensions with a time limit of 200 go into a daemon whose critic has half of the heads from the
start. The same heads under other names are added then. Noise and scale are given, so that both are to answer alike.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import criticd
from criticd.daemon import Daemon

DIM, EPISODE, BATCH = 4, 200, 2000


def heads(count: int, prefix: str) -> list[dict[str, object]]:
    """Sums of the state variables and the reward over up to four discounts."""
    cumulants = [{"kind": "reward", "index": 0}] + [{"kind": "state", "index": i} for i in range(DIM)]
    discounts = [0.5, 0.9, 0.97, 0.99]
    return [
        {
            "name": f"{prefix}{k}",
            "cumulant": cumulants[k % len(cumulants)],
            "discount": discounts[k % len(discounts)],
            "noise_variance": 0.5,
            "signal": 1.0,
        }
        for k in range(count)
    ]


def toml(head: dict[str, object]) -> str:
    """A head as an inline table."""
    cumulant = head["cumulant"]
    assert isinstance(cumulant, dict)
    inner = f'{{ kind = "{cumulant["kind"]}", index = {cumulant["index"]} }}'
    rest = ", ".join(f"{key} = {head[key]!r}" for key in ("discount", "noise_variance", "signal"))
    return f'{{ name = "{head["name"]}", cumulant = {inner}, {rest} }}'


def stream(control: str, rows: int) -> None:
    """Send the rows."""
    rng = np.random.default_rng(1)
    state = np.zeros(DIM)
    with criticd.Sender(control, stream="walk", reliable=True, batch_rows=BATCH, timeout_s=600) as sender:
        for start in range(0, rows, EPISODE):
            noise = rng.normal(size=(EPISODE, DIM)) * 0.2
            states = np.empty((EPISODE + 1, DIM))
            states[0] = state
            for i in range(EPISODE):
                states[i + 1] = 0.95 * states[i] + noise[i]
            rewards = np.sin(3.0 * states[:-1, 0]) + states[:-1, 1]
            sender.send_trajectory(states, rewards, truncated=True)
            state = states[-1]
            if start % 100_000 == 0:
                print(f"{start} rows sent", flush=True)


def processor_seconds(process: int) -> float:
    """What the thread has used that learns late heads."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        if name == "rebuild":
            return sum(int(field) for field in rest.split()[11:13]) / os.sysconf("SC_CLK_TCK")
    raise RuntimeError("the daemon has no such thread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dictionary-max", type=int, default=200)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--directory", help="where the daemon keeps its rows; those that are there are not sent again")
    arguments = parser.parse_args()
    here = ", ".join(toml(head) for head in heads(arguments.heads, "here"))
    config = (
        f'[[critic]]\nname = "main"\ndiscount = 0.95\ndictionary_max = {arguments.dictionary_max}\n'
        f'refit_first_rows = 0\ndrift_sensitivity = "off"\nheads = [{here}]\n'
    )
    with Daemon(config=config, directory=arguments.directory, timeout_s=600) as daemon:
        client = criticd.Client(daemon.endpoints.control, timeout_s=60)
        began = time.monotonic()
        if client.request("status")["offset"] < arguments.rows:
            stream(daemon.endpoints.control, arguments.rows)
        while client.request("status")["offset"] < arguments.rows:
            time.sleep(0.2)
        status = client.request("status")
        critic = status["critics"][0]
        print(f"{status['offset']} rows in {time.monotonic() - began:.1f} s, m = {critic['dictionary_size']}")
        new = heads(arguments.heads, "late")
        client.remove_heads(*(name for name in client.list_heads() if name.startswith("late")))
        began, used = time.monotonic(), processor_seconds(daemon.pid)
        client.add_heads(new)
        while client.request("status")["critics"][0]["heads"]["learning"] > 0:
            time.sleep(0.05)
        used = processor_seconds(daemon.pid) - used
        print(f"{arguments.heads} late heads after {time.monotonic() - began:.1f} s, {used:.1f} s of a processor")
        states = np.random.default_rng(2).normal(size=(200, DIM)) * 0.5
        names = [f"{prefix}{k}" for prefix in ("here", "late") for k in range(arguments.heads)]
        while client.heads(states, names).learning:
            time.sleep(0.1)
        answer = client.heads(states, names)
        for what, found in (("mean", np.asarray(answer.mean)), ("variance", np.asarray(answer.variance))):
            here_, late = found[:, : arguments.heads], found[:, arguments.heads :]
            error = np.abs(here_ - late).max(axis=0) / np.abs(here_).max(axis=0)
            print(f"largest difference of {what}, relative: {error.max():.1e}")


if __name__ == "__main__":
    main()
