"""Rows per second that a fleet takes in: durable, learned, and in the model. `python benchmarks/fleet.py --workers 2`.

Each producer is a process with a stream for each worker. Rows have four state variables and come in blocks. Without
`--workers` it is one `Learner` in this process, without a journal.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from criticd import Learner
from criticd._fleet_pool import stable_hash
from criticd.fleet import Fleet, Patience, Producer

CRITIC: dict[str, Any] = {"discount": 0.95, "lambda": 0.7, "kernel": "isotropic", "linear_columns": "never"}
DIM = 4
PATIENCE = Patience(call_s=120)


def drive(seed: int, rows: int) -> dict[str, Any]:
    """Rows of a robot that is pulled to the middle, in episodes of 200."""
    draw = np.random.default_rng(seed)
    states, following = np.empty((rows, DIM)), np.empty((rows, DIM))
    noise = draw.normal(0, 0.3, (rows, DIM))
    state = draw.normal(0, 1, DIM)
    for i in range(rows):
        states[i] = state
        state = 0.9 * state + noise[i]
        following[i] = state
    truncated = np.arange(rows) % 200 == 199
    return {"states": states, "rewards": -(following**2).sum(axis=1), "next_states": following, "truncated": truncated}


def streams(workers: int, number: int) -> list[str]:
    """Names of streams of a producer, one for each worker."""
    names = (f"robot {number}.{k}" for k in range(10_000))
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(stable_hash(name) % workers, name)
        if len(found) == workers:
            break
    return list(found.values())


def produce(producer: Producer, workers: int, number: int, rows: int, block: int) -> None:
    """Send rows."""
    names, columns = streams(workers, number), drive(number, block)
    for k in range(rows // block):
        producer.learn(**columns, stream=names[(k + number) % workers])


def said(rows: int, took: float, spent: float | None) -> str:
    """A rate in words; without the processor time where that is not known."""
    cost = "" if spent is None else f"; {1e6 * spent / rows:.2f} us of processor time a row"
    return f"{rows} rows in {took:.1f} s, {rows / took:.0f} rows/s{cost}"


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--ray", action="store_true", help="as actors of Ray")
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--block", type=int, default=4096)
    parser.add_argument("--dictionary", type=int, default=100)
    asked = parser.parse_args()
    settings = {**CRITIC, "dictionary_max": asked.dictionary}
    sample = [drive(1000 + k, 1000) for k in range(4)]
    if not asked.workers:
        with Learner(refit_first_rows=0, refit_score_drop=0, drift_sensitivity="off", **settings) as learner:
            for columns in sample:
                learner.learn(**columns)
            learner.refit()
            columns = drive(0, asked.block)
            began, spent = time.monotonic(), time.process_time()
            for _ in range(asked.rows // asked.block):
                learner.learn(**columns)
            took, elements = time.monotonic() - began, len(learner.snapshot(False).dictionary)
        print(f"one Learner, {elements} elements: {said(asked.rows, took, time.process_time() - spent)}")
        return
    started: Callable[..., Fleet] = Fleet
    if asked.ray:
        import ray

        import criticd.ray

        ray.init(log_to_driver=False, include_dashboard=False, num_cpus=asked.workers + 1)
        started = partial(criticd.ray.start, name="bench")
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("CRITICD_BENCH_DIR")) as directory,
        started(asked.workers, directory=directory, select_rows=None, patience=PATIENCE, **settings) as fleet,
    ):
        for k, columns in enumerate(sample):
            fleet.learn(**columns, stream=f"sample {k}")
        fleet.select()
        rows = asked.rows // asked.producers
        arguments = [(fleet.producer(), asked.workers, k, rows, asked.block) for k in range(asked.producers)]
        began = time.monotonic()
        if asked.ray:
            task = ray.remote(num_cpus=0)(produce)
            ray.get([task.remote(*each) for each in arguments])
        else:
            processes = [multiprocessing.get_context("spawn").Process(target=produce, args=each) for each in arguments]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        model = fleet.merge()
        took = time.monotonic() - began
        sent, elements = model.offset - 4000, len(model.dictionary)
    # Of all parts and producers, the first rows and their selection included; actors are no children of this process.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_all = None if asked.ray else used.ru_utime + used.ru_stime
    print(f"{asked.workers} workers, {elements} elements: {said(sent, took, of_all)}")


if __name__ == "__main__":
    main()
