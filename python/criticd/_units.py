"""Names with units in brackets behind them, as in "energy [J]"."""

from __future__ import annotations

import re

_UNIT = re.compile(r"^(.*\S)\s*\[([^\]]+)\]$")


def split_name(name: str) -> tuple[str, str]:
    """A name and its unit, which is empty where it has none."""
    found = _UNIT.match(name)
    return (found[1], found[2]) if found else (name, "")
