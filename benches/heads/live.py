#!/usr/bin/env python3
"""How well the heads of a running daemon predict the returns of another run, by the deviations that it has verified.

    benches/heads/live.py ant.npz ant-heads.json later.npz [--faster 10] [--dictionary-max 400]

A daemon gets the rows of the first run at `faster` times the speed at which they were recorded, and refits by itself. Then
it answers for the states of the later run. For each timescale: the share of later returns inside the 90 % interval, with
deviations of single returns as the daemon rescales them by what it has verified, and without that; and the unexplained
variance. A return counts where at most 1 % of its weight is missing at an end of its chain. `criticd` is the program in
CRITICD_BIN or on the path.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from judge import Z90, quantiles, returns, unexplained

import criticd
from criticd.daemon import Daemon

# States times heads of one question.
ANSWERS = 65_536


def send(daemon, table, faster):
    """The table's episodes, each when its last row was recorded."""
    began, first = time.monotonic(), table["time"][0]
    ends = np.flatnonzero(table["terminated"] | table["truncated"])
    bounds = np.unique(np.append(ends + 1, len(table["reward"])))
    with criticd.Sender(daemon.endpoints.control, stream="ant", reliable=True, timeout_s=600) as sender:
        for start, end in zip(np.append(0, bounds[:-1]), bounds):
            late = (table["time"][end - 1] - first) / faster - (time.monotonic() - began)
            time.sleep(max(0.0, late))
            states = np.vstack([table["state"][start:end], table["next_state"][end - 1]])
            sender.send_trajectory(
                states,
                table["reward"][start:end],
                actions=table["action"][start:end],
                times=table["time"][start:end],
                terminated=bool(table["terminated"][end - 1]),
                truncated=bool(table["truncated"][end - 1]),
            )
        sender.flush(600)


def settle(client, rows):
    """Wait until all is learned and no refit runs."""
    while True:
        status = client.status()
        critic = status["critics"][0]
        if critic["learned"] >= rows and not critic["refit"]["running"]:
            return critic
        time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("heads")
    parser.add_argument("later")
    parser.add_argument("--faster", type=float, default=10.0)
    parser.add_argument("--dictionary-max", type=int, default=400)
    arguments = parser.parse_args()
    table, later = dict(np.load(arguments.table)), dict(np.load(arguments.later))
    heads = json.loads(Path(arguments.heads).read_text())
    shape = f"state_dim = {table['state'].shape[1]}\n"
    config = f'{shape}[[critic]]\nname = "main"\ndictionary_max = {arguments.dictionary_max}\ndrift_sensitivity = "off"\n'
    with Daemon(config=config, timeout_s=600) as daemon, daemon.client() as client:
        client.add_heads(heads)
        send(daemon, table, arguments.faster)
        critic = settle(client, len(table["reward"]))
        print(f"generation {critic['generation']}, {critic['dictionary_size']} dictionary states")
        scales = {head["name"]: head["timescale"] for head in heads}
        factors = {name: of.factor for name, of in client.list_heads().items()}
        for seconds in sorted(set(scales.values())):
            y, missing = returns(later, seconds)
            judged = np.flatnonzero(missing < 0.01)
            some = [head for head in heads if head["timescale"] == seconds]
            some = [head for head in some if np.var(y[judged, head["cumulant"]["index"]]) > 1e-12]
            if len(judged) < 1000 or not some:
                continue
            names = [head["name"] for head in some]
            page = ANSWERS // len(names)
            answers = [
                client.heads(later["state"][judged[k : k + page]], names, returns=True)
                for k in range(0, len(judged), page)
            ]
            mean = np.vstack([answer.mean for answer in answers])
            deviation = np.sqrt(np.vstack([answer.return_variance for answer in answers]))
            found = {"coverage": [], "coverage without the factor": [], "factor": [], "unexplained": []}
            for k, head in enumerate(some):
                target, factor = y[judged, head["cumulant"]["index"]], factors[head["name"]] or 1.0
                error = np.abs(target - mean[:, k])
                found["coverage"].append(np.mean(error <= Z90 * deviation[:, k]))
                found["coverage without the factor"].append(np.mean(error <= Z90 * deviation[:, k] / factor))
                found["factor"].append(factor)
                found["unexplained"].append(unexplained(target, mean[:, k]))
            print(f"timescale {seconds:g} s, {len(some)} heads, {len(judged)} returns")
            for key, values in found.items():
                print(f"  {key}: {quantiles(values)}", flush=True)


if __name__ == "__main__":
    main()
