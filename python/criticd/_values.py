"""Numbers and flags as programs have them: numpy's, Python's and other libraries'.

What is neither is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd._protocol import Array, Invalid, Message

_FLOAT = np.dtype(np.float64)
_NUMBERS = "fiub"
"""Kinds of numpy's types that hold numbers: floats, integers with and without sign, bool."""
_NO_NUMBERS = {"U": "text", "S": "text", "c": "complex numbers", "M": "dates", "m": "durations"}
_MASKED = "has masked values: leave their rows out"
_SHOWN = 60
"""Letters of a wrong value that are shown."""
_COLUMNS = ("state", "next_state", "reward", "action", "discount", "time")
_OF_POLICIES = ("behavior_prob", "target_prob", "next_action", "next_action_probs")


def numbers(value: npt.ArrayLike, name: str) -> Array:
    """An array of numbers. Raises `Invalid` for what is none: None, texts, complex numbers, dates."""
    try:
        found = np.asarray(value)
        # Nearly always: this is on the way of every row.
        if found.dtype is _FLOAT and not isinstance(value, np.ma.MaskedArray):
            return found
        if (why := _no_numbers(value, found)) is not None:
            raise Invalid(name, why)
        return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(name, f"must hold numbers ({error})") from error


def _is_masked(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())


def _no_numbers(value: Any, found: npt.NDArray[Any]) -> str | None:
    """Why an array does not hold numbers, if something is known to be wrong with it."""
    if _is_masked(value):
        return _MASKED
    if found.dtype.kind == "O":
        if any(item is None for item in found.flat):
            return "must hold numbers, and has None: leave out rows that lack one"
        if any(isinstance(item, str | bytes) for item in found.flat):
            return "must hold numbers, and has text: make numbers of it first, float(text)"
    elif found.dtype.kind not in _NUMBERS:
        what = _NO_NUMBERS.get(found.dtype.kind, str(found.dtype))
        how = ", float(text)" if what == "text" else ""
        return f"must hold numbers, and has {what}: make numbers of them first{how}"
    return None


def flag(value: Any, name: str, row: int | None = None) -> bool:
    """A flag: a bool, or one of the integers 0 and 1. Raises `Invalid` for anything else.

    Python takes almost anything for true, the text "False" among it.
    """
    if value is True or value is False:
        return bool(value)
    try:
        found = np.asarray(value)
    except ValueError:
        found = np.empty(2)
    if found.ndim == 0 and found.dtype.kind in "biu" and found in (0, 1):
        return bool(found)
    shown = repr(value.item() if isinstance(value, np.generic) else value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    raise Invalid(name, f"must be True, False, 1 or 0, not {shown}{_remedy(value, found)}", row)


def _remedy(value: Any, found: npt.NDArray[Any]) -> str:
    """How to make a flag of what is none."""
    if value is None:
        return ": leave it out where it is False"
    if found.ndim:
        return ": give one for each row"
    if found.dtype.kind in "US":
        return ': make it of the text, text == "True"'
    return ": make it of the number, number == 1" if found.dtype.kind in _NUMBERS else ""


def flags(value: npt.ArrayLike | None, name: str, rows: int) -> npt.NDArray[np.bool_]:
    """Flags (rows,), each as `flag` has it; all False without any."""
    if value is None:
        return np.zeros(rows, np.bool_)
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise Invalid(name, f"must be one flag for each of the {rows} rows ({error})") from error
    if found.shape != (rows,):
        raise Invalid(name, f"must be ({rows},), one flag for each row, not {found.shape}")
    if _is_masked(value):
        raise Invalid(name, _MASKED)
    if found.dtype.kind == "b":
        return found
    return np.array([flag(item, name, row) for row, item in enumerate(found)], np.bool_)


def checked(rows: Mapping[str, Any]) -> Message:
    """The keys of an `append`, with flags as such. Raises `Invalid` where a number or a flag is none."""
    found = dict(rows)
    for name in _COLUMNS + _OF_POLICIES:
        for key in (name, name + "s"):
            if found.get(key) is not None:
                numbers(found[key], key)
    for name in ("terminated", "truncated"):
        value = found.get(name)
        if value is not None:
            several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
            found[name] = flags(value, name, len(value)) if several else flag(value, name)
    return found
