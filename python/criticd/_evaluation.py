"""Findings about a policy, its answers however it is given, and the requests that have the daemon judge it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zmq

from criticd._network import TIMEOUT_S, Network, NoPolicy
from criticd._protocol import Ask, CriticdError, Invalid, Malformed, Message, Steps, pack, unpack
from criticd._values import numbers

Array = npt.NDArray[np.float64]

Policy = npt.ArrayLike | Callable[[Array], npt.ArrayLike] | str | os.PathLike[str]
"""Answers of a policy in states (n, D): probabilities of C discrete actions (n, C), or its actions (n,) or (n, A).

As an array for the states at hand, a function of states, the path of an ONNX file, or an endpoint such as
"tcp://127.0.0.1:5760".
"""

_ROWS_PER_REQUEST = 4096
_REPLY_BYTES_MAX = 64 << 20
_WORDS = 1000
"""Letters of a server's words that are passed on."""
ROWS = 10_000
"""Rows that an evaluation takes where nothing says how many."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A return from the states where episodes began, in the unit of rewards.

    `error` is its standard error, None where one episode alone says something. `interval` holds the truth nine times of
    ten; it is None where the episodes do not support one.
    """

    value: float
    error: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Weights:
    """Importance weights of episodes.

    - `ess`: effective number of episodes; `ess_earned`: the same of each weight times what the episode earned.
    - `largest`, `mean` and `mean_error`: of the weights; the mean is 1 if the probabilities are right.
    - `zero_share`: share of the episodes that the other policy would never take, from 0 to 1.
    """

    ess: float
    ess_earned: float
    largest: float
    mean: float
    mean_error: float | None
    zero_share: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The findings of `evaluate`.

    - `estimates`: by name: "is", "wis" and "pdis" where probabilities are known, "fqe" with a fitted Q, "dr" with both.
    - `weights`: None without probabilities.
    - `trace_gap`: nats that the dictionary of the fitted Q leaves open; None without one.
    - `refused`: sentences that say why estimates have no interval. `warnings`: further ones.
    """

    transitions: int
    episodes: int
    estimates: dict[str, Estimate]
    weights: Weights | None
    trace_gap: float | None
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


def ask(policy: Policy, states: npt.ArrayLike) -> Array:
    """Answers of `policy` in `states` (n, D): probabilities (n, C) or actions (n, A).

    An ONNX file runs in a process of its own: it may take 30 s to load and for each 4096 states, and 4 GiB of memory.
    Raises `Invalid` where the answers are not a row of finite numbers for each state, `CriticdError` where a network or
    a server fails; where one is late, that is a TimeoutError too.
    """
    at = np.ascontiguousarray(states, dtype=np.float64)
    if isinstance(policy, Network):
        return _piece_by_piece(policy, at)
    if isinstance(policy, str | os.PathLike):
        text = os.fspath(policy)
        if "://" in text:
            return _over_socket(text, at)
        with Network(Path(text)) as network:
            return ask(network, at)
    return _table(policy(at) if callable(policy) else policy, len(at))


def _table(answers: npt.ArrayLike, count: int, first: int = 0) -> Array:
    """The answers in `count` states, the first of which is state `first` of all, as rows of finite numbers."""
    found = numbers(answers, "policy")
    if found.ndim == 1:
        found = found[:, np.newaxis]
    if found.ndim != 2 or len(found) != count:
        raise Invalid("policy", f"must answer {count} states with as many rows, not with the shape {found.shape}")
    if not np.isfinite(found).all():
        index = first + int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise Invalid("policy", "answers with what is no finite number", index)
    return found


def _piece_by_piece(policy: Callable[[Array], npt.ArrayLike], states: Array) -> Array:
    parts = []
    for first in range(0, len(states), _ROWS_PER_REQUEST):
        piece = states[first : first + _ROWS_PER_REQUEST]
        parts.append(_table(policy(piece), len(piece), first))
        if parts[-1].shape[1] != parts[0].shape[1]:
            widths = f"{parts[-1].shape[1]} numbers, and those before with {parts[0].shape[1]}"
            raise Invalid("policy", f"answers with {widths}", first)
    return np.concatenate(parts) if parts else np.zeros((0, 1))


def _over_socket(endpoint: str, states: Array, timeout_s: float = TIMEOUT_S) -> Array:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, _REPLY_BYTES_MAX)

    def answer(piece: Array) -> Any:
        socket.send(pack({"states": piece}))
        if not socket.poll(int(1000 * timeout_s)):
            raise NoPolicy(
                f"no policy at {endpoint} answered within {timeout_s:g} s: is `python -m criticd.policies` running?"
            )
        reply = unpack(socket.recv())
        if "error" in reply:
            error = reply["error"]
            words = str(error.get("message") if isinstance(error, Mapping) else error)
            raise CriticdError(f"the policy at {endpoint}: {words[:_WORDS]}")
        if "policy" not in reply:
            raise Malformed(f"the answer of {endpoint} has no key `policy`")
        return reply["policy"]

    try:
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise Invalid("policy", f"{endpoint} is no endpoint such as tcp://127.0.0.1:5760: {error}") from error
        return _piece_by_piece(answer, states)
    finally:
        socket.close()


def evaluation_of(document: Mapping[str, Any]) -> Evaluation:
    """The findings, as `criticd evaluate --json` and the daemon write them."""

    def estimate(found: Mapping[str, Any]) -> Estimate:
        interval = found["interval"]
        return Estimate(found["value"], found["error"], None if interval is None else (interval[0], interval[1]))

    weights = document.get("weights")
    names = Weights.__dataclass_fields__
    return Evaluation(
        transitions=document["transitions"],
        episodes=document["episodes"],
        estimates={name: estimate(found) for name, found in document["estimates"].items()},
        weights=None if weights is None else Weights(**{name: weights[name] for name in names}),
        trace_gap=document.get("trace_gap"),
        refused=tuple(document["refused"]),
        warnings=tuple(document["warnings"]),
    )


def requests(
    policy: Policy | None, rows: int | None, first: int | None, critic: str | None, options: Message
) -> Steps[Evaluation]:
    """Have a daemon judge a policy; the findings.

    The states come page by page, and `policy` answers each page at once. `options` are fields of `evaluate`.
    """
    count = ROWS if rows is None else rows
    span: Message = {"last": count} if first is None else {"from": first}
    fields: Message = dict(options) if critic is None else {"critic": critic, **options}
    if policy is None:
        return evaluation_of((yield Ask("evaluate", {**span, **fields})))
    discrete = is_discrete((yield Ask("status", {})), critic)
    if isinstance(policy, str | os.PathLike) or callable(policy):
        page = yield Ask("rows", span)
        start = page["from"]
        end = min(page["end"], start + count)
        answers = []
        with contextlib.ExitStack() as opened:
            # One process for all pages.
            if isinstance(policy, str | os.PathLike) and "://" not in os.fspath(policy):
                policy = opened.enter_context(Network(Path(policy)))
            while True:
                answers.append(ask(policy, np.array(page["states"])[: end - page["from"]]))
                if page["next"] >= end:
                    break
                page = yield Ask("rows", {"from": page["next"]})
        found = np.concatenate(answers)
    else:
        found = numbers(policy, "policy")
        found = found[:, np.newaxis] if found.ndim == 1 else found
        start = (yield Ask("rows", {"last": len(found)}))["from"] if first is None else first
    name = "probs" if discrete and found.shape[1] > 1 else "actions"
    return evaluation_of((yield Ask("evaluate", {"from": start, name: found, **fields})))


def is_discrete(status: Message, critic: str | None) -> bool:
    """Whether the actions of a critic are numbered; True where the daemon will say what is wrong."""
    for found in status["critics"]:
        if critic in (None, found["name"]):
            return (found.get("actions") or {}).get("kind") != "box"
    return True
