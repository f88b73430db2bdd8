"""Models of different streams as one: `criticd merge`, with the program that the package brings."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from criticd import _program
from criticd._protocol import Invalid
from criticd.snapshot import Snapshot


def merge(
    models: Sequence[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str] | None = None,
    rename_streams: bool = False,
) -> Snapshot:
    """The model of one learner of all rows, out of MODEL files of learners of different streams.

    ```python
    both = criticd.merge(["north.model", "south.model"], out="both.model")
    ```

    The files have sums: `criticd fit --sums` writes them, `fit --like` in the epoch of another model, and
    `Learner.save`. With `out` the result is written there, with its sums, so that it can be merged again. With
    `rename_streams` the name of its file stands before the name of each stream. The order of the files changes no bit.

    Raises `CriticdError` where models are of different epochs, or a stream is in two of them, and says what to do.
    """
    paths = [Path(model) for model in models]
    if len(paths) < 2:
        raise Invalid("models", f"must be two files at least, {len(paths)} given")
    with tempfile.TemporaryDirectory(prefix="criticd-") as place:
        made = Path(place, "merged.model")
        words = [*map(str, paths[1:]), f"--out={made}", "--json", *(["--rename-streams"] if rename_streams else [])]
        _program.run("merge", paths[0], words, given=True)
        if out is not None:
            shutil.copyfile(made, out)
        return Snapshot.load(made)
