"""The process that runs a network: `criticd._network` starts this file with a path, seconds and bytes.

Messages go through stdin and stdout: a letter, the length of what follows, and that, an array as in NPY files or words.
States come, answers go. Nothing of criticd is imported here, so that the process starts quickly.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ARRAY, WORDS = b"a", b"w"
_HEAD = struct.Struct("<cQ")
_INPUTS = {"tensor(float)": np.float32, "tensor(double)": np.float64}
_OUTPUTS = {f"tensor({name})" for name in ("float16", "float", "double", "bool")} | {
    f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_NUMBERS_PER_STATE = 2048
"""Numbers for which the replies of a `PolicyServer` have room."""


def write(stream: IO[bytes], kind: bytes, body: bytes) -> None:
    """Write a message."""
    stream.write(_HEAD.pack(kind, len(body)) + body)
    stream.flush()


def read(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The kind of the next message and what it holds; None if the other end has gone."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, length = _HEAD.unpack(head)
    body = stream.read(length)
    return (kind, body) if len(body) == length else None


def packed(array: Array) -> bytes:
    """An array as the bytes of a message."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpacked(body: bytes) -> Array:
    """The array of a message."""
    found: Array = np.load(io.BytesIO(body), allow_pickle=False)
    return found


def _loaded(path: str, memory_bytes: int) -> Callable[[Array], Array]:
    import onnxruntime

    # Some systems have no such limit, and some a lower one that stays.
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    options = onnxruntime.SessionOptions()
    # Whatever it would log as an error it raises too.
    options.log_severity_level = 4
    session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1:
        raise ValueError(f"it has {len(inputs)} inputs, and a policy has one: states (n, D)")
    if inputs[0].type not in _INPUTS:
        raise TypeError(f"it takes {inputs[0].type}, not floating-point states")
    if outputs[0].type not in _OUTPUTS:
        raise TypeError(f"its first output is {outputs[0].type}, not probabilities or actions as an array of numbers")

    def answer(states: Array) -> Array:
        (found,) = session.run([outputs[0].name], {inputs[0].name: states.astype(_INPUTS[inputs[0].type])})
        if found.size > len(states) * _NUMBERS_PER_STATE:
            raise ValueError(f"it answers {len(states)} states with the shape {found.shape}")
        return np.asarray(found, dtype=np.float64)

    return answer


def main() -> None:
    """Load the network, say so, and answer until stdin ends."""
    path, timeout_s, memory_bytes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    # Whatever prints to stdout does not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # The parent handles Ctrl-C. The alarm ends this process whatever it is doing, even after the parent has gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def within_time(work: Callable[[], Array | None]) -> bool:
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        try:
            found = work()
            kind, body = ARRAY, b"" if found is None else packed(found)
        except Exception as error:
            kind, body = WORDS, f"{type(error).__name__}: {error}".encode(errors="replace")
        signal.setitimer(signal.ITIMER_REAL, 0)
        write(answers, kind, body)
        return kind == ARRAY

    network: list[Callable[[Array], Array]] = []
    if within_time(lambda: network.append(_loaded(path, memory_bytes))):
        while (asked := read(sys.stdin.buffer)) is not None:
            within_time(partial(network[0], unpacked(asked[1])))


if __name__ == "__main__":
    main()
