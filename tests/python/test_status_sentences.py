"""What `criticd status` says of a model by itself is said where it is true and kept back where it is not: planted in a status.

The line of trust, findings and reasons come in words from the daemon; `crates/daemon/src/monitor/trust.rs` and `test_sentences.py` look at those.
"""

from __future__ import annotations

import copy
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
import zmq
from client import BINARY, PATIENCE_S, Map, pack, unpack
from test_sentences import sentences

KERNEL = {"kind": "ard", "profile": "matern52", "relevance": [4.0, 1.0], "signal_variance": 1.0, "bias_variance": 0.0}
CRITIC = {
    "name": "a",
    "generation": 3,
    "dictionary_size": 7,
    "dictionary_max": 9,
    "transitions": 50,
    "discount": 0.9,
    "score": 1.5,
    "log_evidence": -12.0,
    "kernel": KERNEL,
    "inputs": {"scale": [2.0, 1.0]},
    "refit": {"next_at": 650},
    "returns": {"factor": 1.25, "pairs": 431, "coverage": None},
    "drift": {"changed_at": 0, "alarms": 0, "last": None, "forked": False},
    "trust": [{"level": "good", "sign": "●", "title": "T", "sentence": "S.", "reasons": []}],
}
FOUND = {"outcome": "adopted", "trigger": "rows", "rows": 90}
RETURNS = {
    "rows": 900,
    "pieces": 12,
    "score": 0.4,
    "lambdas": [],
    "candidates": [],
    "gain": 0.002,
    "standard_error": 0.003,
}
ALARM = {
    "below": 4,
    "streams": [],
    "on": 0,
    "missing": 0,
    "raised": 9,
    "hits": 6,
    "mistaken": 3,
    "fell": 8,
    "stayed": 80,
    "missed": 2,
}
CHANGE = {"since": 400, "statistic": "lower", "size": 2.0}


def plant(**fields: object) -> Callable[[Map, Map], None]:
    return lambda critic, status: critic.update(fields)


def around(**fields: object) -> Callable[[Map, Map], None]:
    return lambda critic, status: status.update(fields)


def adopted(**found: object) -> Callable[[Map, Map], None]:
    return plant(refit={"adopted": 1, "last": {**FOUND, **found}})


def alarm(**fields: object) -> Callable[[Map, Map], None]:
    return plant(alarms=[{**ALARM, **fields}])


def changed(**fields: object) -> Callable[[Map, Map], None]:
    return plant(drift={**CRITIC["drift"], "last": CHANGE, **fields})  # type: ignore[dict-item]


def unselected(critic: Map, status: Map) -> None:
    critic["log_evidence"] = None


def without(critic: Map, status: Map) -> None:
    critic.clear()
    critic["name"] = "a"


def removed(**fields: object) -> Callable[[Map, Map], None]:
    return around(removals=[{"rows": 12, "offset": 50, "by": "us", "critics": [{"critic": "a", **fields}]}])


# Words, and what makes them true.
PLANTED: list[tuple[str, Callable[[Map, Map], None]]] = [
    ("Nothing says yet whether to believe the values.", plant(trust=[])),
    ("none yet: too few rows have arrived", without),
    ("none: no refit has selected a model since the start", unselected),
    ("; a constant has 1", lambda critic, _: critic.update(log_evidence=None, held_out_error=0.4)),
    (
        "none: the last refit that was adopted compared no held-out returns",
        lambda critic, _: critic.update(log_evidence=None, refit={"adopted": 1}),
    ),
    ("their spread is known, and not verified yet", plant(returns={"factor": 1.0, "pairs": 0, "coverage": None})),
    ("; before that, 90 % intervals held 82 %", plant(returns={"factor": 1.0, "pairs": 9, "coverage": 0.82})),
    ("model selection has not chosen this model yet; deviations are those before any row", plant(provisional=True)),
    (
        "all rewards have been 0: nothing tells how large values may be",
        lambda critic, _: critic.update(kernel={**KERNEL, "unscaled": True}),
    ),
    (
        "rows with a half-life of 500, its gate 83 % open",
        plant(drift={**CRITIC["drift"], "tracking": {"gate": [0.83], "half_life": [500]}}),  # type: ignore[dict-item]
    ),
    ("a second model learns the rows since then", changed(forked=True)),
    ("the model has learned the rows since then", changed(changed_at=450)),
    ("the model stays", changed()),
    ("errors lower by 2 since about row 400", changed()),
    ("one is running", plant(refit={"running": True})),
    ("one is running, 43 % of its budget spent", plant(refit={"running": True, "spent": 0.43})),
    ("next at row 700", plant(refit={"next_at": 700})),
    ("on request only", plant(refit={"next_at": None})),
    (
        "last refit rejected, evidence +2.0 nats: it erred more",
        plant(
            refit={
                "last": {
                    **FOUND,
                    "outcome": "rejected",
                    "reason": "it erred more",
                    "evidence_before": 1,
                    "evidence_after": 3,
                }
            }
        ),
    ),
    ("failed: no rows; `criticd rebuild` tries again", plant(rebuild={"rows": 0, "of": 9, "failed": "no rows"})),
    ("waits, or selects a model", plant(rebuild={"rows": 0, "of": 0, "failed": None})),
    ("3 of 9 rows learned again from the journal", plant(rebuild={"rows": 3, "of": 9, "failed": None})),
    ("by held-out returns of 900 rows in 12 pieces", adopted(selection={**RETURNS, "present_stays": True})),
    ("by the evidence of 4 heads, lambda and ridge by", adopted(selection={**RETURNS, "present_stays": True}, heads=4)),
    ("kernel, lambda and ridge stay: the best errs less", adopted(selection={**RETURNS, "present_stays": True})),
    ("kernel, lambda and ridge were beaten: the best errs", adopted(selection={**RETURNS, "present_stays": False})),
    (
        "errs less by 0.1 on 70 rows that chose neither, with a standard error of 0.2",
        adopted(trial={"rows": 70, "gain": 0.1, "standard_error": 0.2}),
    ),
    ("there is no head of this name; declare it", alarm(unknown=True)),
    ("not before 3 more returns at or above it are known; 8 of 88 fell below", alarm(missing=3)),
    ("9 raised, of which 6 were right and 3 false; 2 of 8 low returns missed", alarm()),
    ("return below 4: ON, arm", alarm(on=1, streams=["arm"])),
    ("12 rows, 2 s ahead", alarm(lead_rows=12, lead_s=2)),
    ("; on at 7 % of the others (5 % asked for)", alarm(false_share=0.07, false_alarms=0.05)),
    ("; a is free of them from generation 4 on", removed(free_generation=4)),
    ("; a has subtracted them, its kernel was chosen with them", removed(subtracted=True)),
    ("; a is STALE until it has been learned again", removed(subtracted=False)),
    (
        "pending since 2001-09-09 01:46:40 UTC: the journal has the bytes of 12 rows that were taken back; `criticd stop && criticd erase`",
        around(journal={"unerased_rows": 12, "unerased_since": 1e9}),
    ),
    (
        "heads 3, 1 learning retained rows, 1 without an answer; 90 % intervals of 2 held 62 % of the returns, of far 50 %; "
        "unexplained variance at most 0.3",
        plant(
            heads={"count": 3, "learning": 1, "unsolved": 1, "verified": 2, "coverage": 0.62, "unexplained_max": 0.3}
            | {"worst": [{"name": "far", "coverage": 0.5, "pairs": 9, "bias": 0.1}]}
        ),
    ),
    ("no row is taken: no space", around(read_only="no space")),
    ("could not be written: over quota", around(journal={"checkpoint_failure": "over quota"})),
    ("so that rows may be lost: 2 by timeout", around(connections_broken={"timeout": 2})),
    (
        "arm: 5 decisions, 3 costs learned, 2 decisions wait for their cost",
        around(advisors=[{"name": "arm", "decisions": 5, "learned": 3, "waiting": 2}]),
    ),
    ("5 ms (median), 9 ms (longest) at an adoption", plant(adoption_pause_ms={"count": 2, "p50": 5.0, "max": 9.0})),
    ("share of the variance", plant(shares=[0.9, 0.1])),
]
# What stands in the sources that is none about a model: columns, units, what does not fit a screen, options.
OTHER = {
    "src/commands/status.rs": "a string takes|just been made|more lines|the least trusted|more critics|per second|criticd status$|"
    "criticd status\\\\n|evidence drop|must be from|dictionary \\{size\\}|signal variance|generation \\{\\}|nats per row|"
    "since the start \\{|: held-out error|^evidence \\{|^held-out error|no model yet|Ctrl-C|no answer|^lengthscale",
    "src/commands/status/foretold.rs": "^; \\{fell\\} of",
    "src/commands/status/missing.rs": "by their seq",
    "src/commands/status/removed.rs": "",
}


@pytest.fixture
def said() -> Iterator[Callable[[Map], str]]:
    """The words of `criticd status` to a status."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    endpoint = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"

    def ask(status: Map) -> str:
        command = [BINARY, "status", "--control", endpoint]
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert socket.poll(round(1000 * PATIENCE_S))
        frames = socket.recv_multipart()
        socket.send_multipart([*frames[:-1], pack({"id": unpack(frames[-1])["id"], "ok": True, **status})])
        words = asking.communicate(timeout=PATIENCE_S)[0]
        assert asking.returncode == 0, words
        return " ".join(words.split())

    yield ask
    socket.close()


def test_what_is_true_of_a_model_is_said_and_nothing_else(said: Callable[[Map], str]) -> None:
    plain, wrong = said({"critics": [CRITIC], "offset": 600}), []
    for words, change in PLANTED:
        status: Map = {"critics": [copy.deepcopy(CRITIC)], "offset": 600}
        change(status["critics"][0], status)
        found = said(status)
        if words not in found or words in plain:
            wrong.append(f"{words}: {found}")
    assert not wrong, "\n".join([*wrong, f"without: {plain}"])


def test_every_sentence_of_the_status_has_its_truth() -> None:
    known = " ".join(words for words, _ in PLANTED)
    unknown = []
    for path, other in OTHER.items():
        for each in sentences(path):
            runs = [run for part in re.split(r"\{[^}]*\}", each) if len(run := part.split()) > 1]
            planted = any(" ".join(run[k : k + 3]) in known for run in runs for k in range(max(1, len(run) - 2)))
            if not planted and not (other and re.search(other, each)):
                unknown.append(f"{path}: {each}")
    assert not unknown, "\n".join(unknown)
