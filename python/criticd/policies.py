"""Off-policy evaluation: the return of another policy, from the transitions of the one that acted.

`evaluate` runs `criticd evaluate` on arrays. The other policy may be given as arrays, as a function, as an ONNX file,
or by the endpoint of a `PolicyServer`, which answers for a policy in another process or on another machine.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import zmq

from criticd._protocol import CriticdError, Invalid, Malformed, Unreachable, pack, unpack
from criticd.daemon import binary

Array = npt.NDArray[np.float64]

Policy = npt.ArrayLike | Callable[[Array], npt.ArrayLike] | str | os.PathLike[str]
"""Answers of a policy in states (n, D): probabilities of C discrete actions (n, C), or its actions (n,) or (n, A).

As an array for the states at hand, a function of states, the path of an ONNX file, or an endpoint such as
"tcp://127.0.0.1:5760".
"""

_ROWS_PER_REQUEST = 4096


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


def evaluate(
    rows: Mapping[str, npt.ArrayLike],
    policy: Policy | None = None,
    *,
    actions: str | None = None,
    discount: float = 0.99,
    options: Mapping[str, Any] | None = None,
    timeout_s: float = 3600.0,
) -> Evaluation:
    """Evaluate a policy by the transitions `rows` of another one.

    - `rows`: arrays by the names of NPZ tables: "states" (n, D), "actions" (n,) or (n, A), "rewards", "terminated" and
      "truncated" (n,), and where known "next_states", "streams", "behavior_probs" (or "action_prob", "pscore", ...) and
      "target_probs" (n,).
    - `policy`: the other policy's answers in `rows["states"]`; without it "target_probs" has the probabilities with
      which it takes the actions.
    - `actions`: "discrete:N" or "box": with it a Q is fitted. Needed with `policy`.
    - `options`: further options of `criticd evaluate`, such as {"ess-min": 50, "rho-max": 20}.

    Raises `Invalid` for arrays of the wrong shape, `CriticdError` with the message of `criticd evaluate`, `Unreachable`
    if a policy's endpoint does not answer, FileNotFoundError without the program.
    """
    arrays = {name: np.asarray(values) for name, values in rows.items()}
    if "states" not in arrays:
        raise Invalid("states", "missing")
    words = ["--discount", repr(float(discount))]
    if actions is not None:
        words += ["--actions", actions]
    for name, value in (options or {}).items():
        words += [f"--{name}", str(value)]
    with tempfile.TemporaryDirectory(prefix="criticd-") as name:
        directory = Path(name)
        # numpy types the arrays' names as its own flags.
        np.savez(directory / "rows.npz", **arrays)  # type: ignore[arg-type]
        if policy is not None:
            states = np.asarray(arrays["states"], dtype=np.float64)
            answers = ask(policy, states[:, np.newaxis] if states.ndim == 1 else states)
            write_policy(directory / "policy.csv", answers, actions)
            words += ["--policy", str(directory / "policy.csv")]
        command = [str(binary()), "evaluate", str(directory / "rows.npz"), "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise CriticdError(done.stderr.strip())
    return _read(json.loads(done.stdout))


def ask(policy: Policy, states: npt.ArrayLike) -> Array:
    """Answers of `policy` in `states` (n, D): probabilities (n, C) or actions (n, A)."""
    at = np.ascontiguousarray(states, dtype=np.float64)
    if isinstance(policy, str | os.PathLike):
        text = os.fspath(policy)
        found = _over_socket(text, at) if "://" in text else _by_onnx(Path(text), at)
    else:
        found = np.asarray(policy(at) if callable(policy) else policy, dtype=np.float64)
    if found.ndim == 1:
        found = found[:, np.newaxis]
    if found.ndim != 2 or len(found) != len(at):
        raise Invalid("policy", f"must answer {len(at)} states with as many rows, not with the shape {found.shape}")
    if not np.isfinite(found).all():
        index = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise Invalid("policy", "answers with what is no finite number", index)
    return found


def write_policy(path: str | os.PathLike[str], answers: Array, actions: str | None) -> None:
    """Write a file for `criticd evaluate --policy`: the answers of `ask`, for actions "discrete:N" or "box"."""
    count = answers.shape[1]
    discrete = actions is not None and actions.startswith("discrete:")
    if discrete and count > 1:
        names = [f"prob_{k}" for k in range(count)]
    else:
        names = ["action"] if count == 1 else [f"action_{k}" for k in range(count)]
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([repr(float(value)) for value in row] for row in answers)


class PolicyServer:
    """Answers for a policy at an endpoint, as long as a `with` block lasts.

    - `policy`: a function of states (n, D), see `Policy`.
    - `endpoint`: where to listen; port 0 takes a free one. The attribute `endpoint` has the one in use.

    A request is a MessagePack map {"v": 1, "states": (n, D)}, the answer {"v": 1, "policy": (n, C) or (n, A)}, or
    {"v": 1, "error": {"message": ...}}.
    """

    def __init__(self, policy: Callable[[Array], npt.ArrayLike], endpoint: str = "tcp://127.0.0.1:0") -> None:
        self._policy, self._ended = policy, threading.Event()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(endpoint)
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = threading.Thread(target=self._answer, name="criticd-policy", daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while not self._ended.is_set():
            if self._socket.poll(100):
                self._socket.send(self._reply(self._socket.recv()))
        self._socket.close()

    def _reply(self, request: bytes) -> bytes:
        # The reply carries any exception of the policy: this thread has no caller.
        try:
            return pack({"policy": ask(self._policy, unpack(request).get("states", ()))})
        except Exception as error:
            return pack({"error": {"message": f"{type(error).__name__}: {error}"}})

    def close(self) -> None:
        """Stop answering."""
        self._ended.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _over_socket(endpoint: str, states: Array, timeout_s: float = 30.0) -> Array:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.connect(endpoint)
        parts = []
        for start in range(0, len(states), _ROWS_PER_REQUEST):
            socket.send(pack({"states": states[start : start + _ROWS_PER_REQUEST]}))
            if not socket.poll(int(1000 * timeout_s)):
                raise Unreachable(endpoint, timeout_s)
            reply = unpack(socket.recv())
            if "error" in reply:
                raise CriticdError(f"the policy at {endpoint}: {reply['error'].get('message')}")
            if "policy" not in reply:
                raise Malformed(f"the answer of {endpoint} has no key `policy`")
            part = np.asarray(reply["policy"], dtype=np.float64)
            parts.append(part[:, np.newaxis] if part.ndim == 1 else part)
        return np.concatenate(parts) if parts else np.zeros((0, 1))
    finally:
        socket.close()


def _by_onnx(path: Path, states: Array) -> Array:
    """The first output of the model: probabilities or actions."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("a policy of ONNX needs the package onnxruntime: pip install onnxruntime") from error
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    if given.type not in kinds:
        raise Invalid("policy", f"{path} takes {given.type}, not floating-point states")
    (answers, *_) = session.run(None, {given.name: states.astype(kinds[given.type])})
    return np.asarray(answers, dtype=np.float64)


def _read(document: Mapping[str, Any]) -> Evaluation:
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
