"""Off-policy evaluation: the return of another policy, from the transitions of the one that acted.

```python
found = evaluate(rows, np.full((len(rows["states"]), 2), 0.5), actions="discrete:2", discount=0.95)
print(found)
```

`evaluate` runs `criticd evaluate` on arrays. The other policy may be given as arrays, as a function, as an ONNX file,
or by the endpoint of a `PolicyServer`, which answers for a policy in another process or on another machine.

`python -m criticd.policies net.onnx` serves an ONNX file at tcp://127.0.0.1:5760, or where --bind says. Then
`criticd evaluate --policy tcp://127.0.0.1:5760` asks it. It needs the package onnxruntime.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import zmq

from criticd import _frames, _program
from criticd._evaluation import Array, Estimate, Evaluation, Policy, Weights, ask, evaluation_of
from criticd._frames import Table
from criticd._network import Network
from criticd._output import text_of, whole
from criticd._protocol import Invalid, pack, unpack

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Estimate", "Evaluation", "Policy", "PolicyServer", "Weights", "ask", "evaluate", "write_policy"]


def evaluate(
    rows: Table,
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
      "target_probs" (n,). Or any table that `criticd.fit` takes, with `options` that name its columns.
    - `policy`: the other policy, asked in the state of each transition. An array has its answers in `rows["states"]`,
      or, for tables without, one for each transition. Without it "target_probs" has the probabilities with which it
      takes the actions.
    - `actions`: "discrete:N" or "box": with it a Q is fitted. Needed with `policy`.
    - `options`: further options of `criticd evaluate`, such as {"ess_min": 50, "state": ["x", "battery"]}.

    Raises `Invalid` for arrays of the wrong shape, and with the column or the option at fault, `CriticdError` with the
    message of `criticd evaluate`, or if that has not ended within `timeout_s`, FileNotFoundError without the program;
    and what `ask` raises for the policy.
    """
    named = {"discount": float(discount), "actions": actions, **(options or {})}
    with tempfile.TemporaryDirectory(prefix="criticd-") as name, contextlib.ExitStack() as opened:
        directory = Path(name)
        words = _program.words_of(named, directory)
        table = _frames.written(rows, directory)
        if policy is not None:
            states = rows["states"] if isinstance(rows, Mapping) and "states" in rows else None
            words.append(f"--policy={_asked(policy, states, actions, directory, opened)}")
        printed, _ = _program.run(
            "evaluate", table, [*words, "--json"], given=not table.is_relative_to(directory), timeout_s=timeout_s
        )
    return evaluation_of(json.loads(printed))


def _asked(
    policy: Policy,
    states: npt.ArrayLike | None,
    actions: str | None,
    directory: Path,
    opened: contextlib.ExitStack,
) -> str | Path:
    """What `criticd evaluate` takes answers from: a file of those in `states`, or the endpoint of who gives them."""
    if states is not None:
        at = np.asarray(states, dtype=np.float64)
        policy = ask(policy, at[:, np.newaxis] if at.ndim == 1 else at)
    elif isinstance(policy, str) and "://" in policy:
        return policy
    elif callable(policy) or isinstance(policy, str | os.PathLike):
        # The program alone knows which rows of the table are transitions.
        return opened.enter_context(PolicyServer(policy)).endpoint
    answers = np.asarray(policy, dtype=np.float64)
    write_policy(directory / "policy.csv", answers[:, np.newaxis] if answers.ndim == 1 else answers, actions)
    return directory / "policy.csv"


def write_policy(path: str | os.PathLike[str], answers: Array, actions: str | None) -> None:
    """Write a file for `criticd evaluate --policy`: the answers of `ask`, for actions "discrete:N" or "box"."""
    count = answers.shape[1]
    discrete = actions is not None and actions.startswith("discrete:")
    if discrete and count > 1:
        names = [f"prob_{k}" for k in range(count)]
    else:
        names = ["action"] if count == 1 else [f"action_{k}" for k in range(count)]
    with whole(path) as file, text_of(file) as text:
        writer = csv.writer(text)
        writer.writerow(names)
        writer.writerows([repr(float(value)) for value in row] for row in answers)


class PolicyServer:
    """Answers for a policy at an endpoint, as long as a `with` block lasts.

    - `policy`: a function of states (n, D), see `Policy`, or the path of an ONNX file.
    - `endpoint`: where to listen; port 0 takes a free one. The attribute `endpoint` has the one in use.

    A request is a MessagePack map {"v": 1, "states": (n, D)}, the answer {"v": 1, "policy": (n, C) or (n, A)}, or
    {"v": 1, "error": {"message": ...}}.
    """

    def __init__(
        self,
        policy: Callable[[Array], npt.ArrayLike] | str | os.PathLike[str],
        endpoint: str = "tcp://127.0.0.1:0",
    ) -> None:
        self._policy = Network(Path(policy)) if isinstance(policy, str | os.PathLike) else policy
        self._ended = threading.Event()
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
            states = np.asarray(unpack(request).get("states"), dtype=np.float64)
            if states.ndim != 2:
                raise Invalid("states", "a request has an array (n, D) of them")
            return pack({"policy": ask(self._policy, states)})
        except Exception as error:
            return pack({"error": {"message": f"{type(error).__name__}: {error}"}})

    def close(self) -> None:
        """Stop answering."""
        self._ended.set()
        self._thread.join()
        if isinstance(self._policy, Network):
            self._policy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve an ONNX file until interrupted: `python -m criticd.policies`. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m criticd.policies", description="Serve a policy for `criticd evaluate --policy ENDPOINT`."
    )
    parser.add_argument(
        "file", metavar="FILE", help="ONNX model whose first output is probabilities (n, C), or actions"
    )
    parser.add_argument(
        "--bind", metavar="ENDPOINT", default="tcp://127.0.0.1:5760", help="where to listen [default: %(default)s]"
    )
    given = parser.parse_args(arguments)
    # Whatever is wrong with the file or the endpoint, its words are what helps: onnxruntime has exceptions of its own.
    try:
        server = PolicyServer(given.file, given.bind)
    except Exception as error:
        print(f"cannot serve {given.file} at {given.bind}: {error}", file=sys.stderr)
        return 1
    with server:
        print(f"{given.file} answers at {server.endpoint}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
