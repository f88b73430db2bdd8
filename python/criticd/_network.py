"""A network in an ONNX file, run by a process of its own.

A file may hold a loop without end, ask for more memory than there is, or crash the runtime. Limits on time and memory
hold for that process, and whatever happens to it is a `CriticdError` here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from criticd import _network_process as process
from criticd._protocol import CriticdError

if TYPE_CHECKING:
    from typing_extensions import Self

TIMEOUT_S = 30.0
"""How long loading may take, and each answer."""
MEMORY_BYTES = 4 << 30


class NoPolicy(CriticdError, TimeoutError):
    """A policy does not answer in time: one that is asked over a socket, or a network."""


class Network:
    """The first output of a network, probabilities or actions, as a function of states (n, D), until it is closed.

    Raises `NoPolicy` where loading or an answer takes longer than `timeout_s`, `CriticdError` where the runtime refuses
    the file or the states or needs more than 4 GiB, ImportError without the package onnxruntime.
    """

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        if importlib.util.find_spec("onnxruntime") is None:
            raise ImportError("a policy of ONNX needs the package onnxruntime: pip install onnxruntime")
        self._path, self._timeout_s = path, timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._running()

    def __call__(self, states: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        child = self._running()
        assert child.stdin is not None
        # If it has gone, there is no answer, which says why.
        with contextlib.suppress(BrokenPipeError):
            process.write(child.stdin, process.ARRAY, process.packed(states))
        return process.unpacked(self._answer(child, f"answered {len(states)} states"))

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started if there is none or the last one has ended."""
        if self._child is not None:
            return self._child
        command = [sys.executable, "-P", process.__file__, str(self._path), str(self._timeout_s), str(MEMORY_BYTES)]
        # What can be imported here can be there.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        self._child = child
        try:
            self._answer(child, "been loaded")
        except CriticdError:
            self.close()
            raise
        return child

    def _answer(self, child: subprocess.Popen[bytes], what: str) -> bytes:
        assert child.stdout is not None
        try:
            found = process.read(child.stdout)
        except BaseException:
            # The answer that is still to come must not be taken for that to the next question.
            self.close()
            raise
        if found is None:
            status = child.wait()
            self.close()
            if status == -signal.SIGALRM:
                raise NoPolicy(
                    f"the network {self._path} has not {what} within {self._timeout_s:g} s, and was stopped: if it has"
                    " no endless loop, give a function that runs it, which may take any time"
                )
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise CriticdError(f"the process of the network {self._path} ended ({how}) before it had {what}")
        kind, body = found
        if kind == process.WORDS:
            raise CriticdError(f"the network {self._path} has not {what}: {body.decode(errors='replace')}")
        return body

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            # What could not be written is of no use any more.
            with contextlib.suppress(BrokenPipeError), child:
                child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
