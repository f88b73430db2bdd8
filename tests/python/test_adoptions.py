"""Models change hands under a running stream, and nobody who asks ever notices more than a new generation."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter

import numpy as np
import pytest
import zmq
from client import PATIENCE_S, Control, Daemon, Map, Refused, evaluate, pack, rounding, when
from conftest import Start
from environments import Stream


class Streaming(threading.Thread):
    """Send batches of 20 rows, about `rate` rows a second, until told to stop."""

    def __init__(self, daemon: Daemon, rate: float) -> None:
        super().__init__(daemon=True)
        self.push, self.rate, self.sent, self.over = daemon.push(), rate, 0, threading.Event()
        self.streams = [Stream("Pendulum-v1", seed, 0.5) for seed in range(3)]

    def run(self) -> None:
        while not self.over.is_set():
            for number, stream in enumerate(self.streams):
                self.push.send(pack({"stream": f"copy-{number}", "session": "run", **stream.batch(20)}))
                self.sent += 20
            time.sleep(60 / self.rate)

    def stop(self) -> int:
        self.over.set()
        self.join()
        return self.sent


class Asking(threading.Thread):
    """Query all the time. An answer must be that of the snapshot with its generation and offset."""

    def __init__(self, daemon: Daemon, states: np.ndarray) -> None:
        super().__init__(daemon=True)
        self.control: Control = daemon.control()
        self.states, self.over = states, threading.Event()
        self.failures: list[str] = []
        self.answers = self.compared = 0
        self.generations: set[int] = set()
        self.longest_s = 0.0

    def run(self) -> None:
        last = (0, 0)
        means: dict[tuple[int, int], np.ndarray] = {}
        while not self.over.is_set():
            try:
                began = time.monotonic()
                answer = self.control.ask("value", states=self.states, variance=True)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                key = (answer["generation"], answer["offset"])
                if key < last or key[1] < last[1]:
                    self.failures.append(f"{key} after {last}")
                if key in means and not np.array_equal(means[key], answer["mean"]):
                    self.failures.append(f"two answers for {key}")
                means = {key: answer["mean"]}
                last = key
                self.generations.add(key[0])
                self.answers += 1
                if self.answers % 5 == 0:
                    self.compare(answer)
            except (Refused, TimeoutError, AssertionError, zmq.ZMQError) as error:
                self.failures.append(repr(error))
                return

    def compare(self, answer: Map) -> None:
        snapshot = self.control.ask("snapshot", variance=True)
        if (snapshot["generation"], snapshot["offset"]) != (answer["generation"], answer["offset"]):
            return
        mean, _ = evaluate(snapshot, self.states)
        slack = 1e-9 * np.abs(mean) + rounding(snapshot, self.states)[0]
        if not (np.abs(mean - answer["mean"]) <= slack).all():
            self.failures.append(f"generation {answer['generation']} answered as another one")
        self.compared += 1

    def stop(self) -> None:
        self.over.set()
        self.join()


@pytest.mark.parametrize("adoptions", [10, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.long])])
def test_adoptions_under_load(start: Start, adoptions: int) -> None:
    """No row is lost or learned twice by them, and an answer is always that of one model, which it names."""
    daemon = start(
        "critic.discount=0.95",
        # A tolerance that fills the dictionary: the pause is to be measured at this size.
        "critic.dictionary_max=200",
        "critic.tolerance=1e-7",
        # A hundred models are chosen by returns, as by default; ten by the evidence, so that each takes a moment.
        f"critic.selection={'returns' if adoptions > 10 else 'evidence'}",
        "critic.evidence_rows=100",
        "critic.starts=1",
        "critic.refit_budget_s=0.2",
        "critic.refit_first_rows=0",
        "critic.refit_score_drop=0",
        "window_rows=4000",
    )
    control = daemon.control()
    streaming = Streaming(daemon, rate=1500)
    streaming.start()
    control.wait_for_offset(500)
    places = [Stream("Pendulum-v1", 50 + seed).state for seed in range(20)]
    control.ask("value", states=np.array(places), min_offset=500)
    asking = Asking(daemon, np.array(places))
    asking.start()
    adopted = rejected = 0
    reasons: Counter[str] = Counter()
    generation = control.ask("snapshot")["generation"]
    began = time.monotonic()
    while adopted < adoptions:
        outcome = control.ask("refit", wait=True, timeout_s=5 * PATIENCE_S)
        if outcome["outcome"] == "adopted":
            adopted += 1
            assert outcome["generation"] == generation + 1
            # However late the one who asks gets its turn.
            heard = outcome["generation"]
            when(lambda: asking.failures or heard in asking.generations, "an answer of the new model")  # noqa: B023
        else:
            rejected += 1
            reasons[re.sub(r"[0-9.-]+", "_", outcome["reason"])] += 1
            assert outcome["generation"] == generation
            assert rejected < 10 * adoptions, reasons
        generation = outcome["generation"]
    seconds = time.monotonic() - began
    sent = streaming.stop()
    status = control.wait_for_learned(sent)
    # Under the stream a snapshot is often newer than the answer before it: these are the rest.
    when(lambda: asking.failures or asking.compared > 20, "answers that are compared with snapshots")
    asking.stop()
    critic = status["critics"][0]
    pause = critic["adoption_pause_ms"]
    print(
        f"\n{adopted} adoptions and {rejected} rejections {dict(reasons)} in {seconds:.0f} s, {sent} rows, "
        f"{asking.answers} answers of {len(asking.generations)} generations, {asking.compared} compared with snapshots, "
        f"slowest {1000 * asking.longest_s:.0f} ms; dictionary {critic['dictionary_size']}, learner's pause at an adoption: "
        f"median {pause['p50']:.3f}, 99 % {pause['p99']:.3f}, longest {pause['max']:.3f} ms"
    )
    assert asking.failures == []
    assert set(range(2, adoptions + 2)) <= asking.generations
    # No row is lost or learned twice: neither by the stream nor by the model that took over.
    assert status["offset"] == sent == critic["learned"]
    assert sum(s["rows"] for s in control.ask("streams")["streams"].values()) == sent
    assert status["rejected"] == {}
    assert critic["generation"] == generation == adopted + 1
    refit = critic["refit"]
    assert (refit["started"], refit["adopted"]) == (adopted + rejected, adopted)
    assert refit["rejected"] + refit["failed"] == rejected
    answer = control.ask("value", states=asking.states, min_offset=sent)
    assert answer["offset"] == sent and answer["generation"] == generation
