"""The types of the status are those of the table that is made from the daemon's own type."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from criticd import _status

TABLE = Path(__file__).resolve().parents[2] / "proto" / "status.md"
WORDS = {int: "uint", float: "number", str: "string", bool: "bool", type(None): "nil"}
TYPES = {
    name: of
    for name, of in vars(_status).items()
    if is_typeddict(of) and of.__module__ == _status.__name__ and not name.startswith("_")
}


def table() -> dict[str, dict[str, tuple[str, bool]]]:
    """Of each map the keys, with their type and whether they may be left out."""
    found: dict[str, dict[str, tuple[str, bool]]] = {}
    for section in TABLE.read_text().split("\n## ")[1:]:
        rows = re.findall(r"^\| `(\w+)`(\??) \| ([^|]+) \|", section, re.MULTILINE)
        kinds = {key: (re.sub(r"\[(\w+)\]\([^)]*\)", r"\1", kind), bool(mark)) for key, mark, kind in rows}
        found[section.split("\n", 1)[0]] = kinds
    return found


def word(of: Any) -> str:
    """How the table writes a type."""
    if get_origin(of) is NotRequired:
        return word(get_args(of)[0])
    if get_origin(of) in (Union, types.UnionType):
        return " or ".join(word(part) for part in get_args(of))
    if get_origin(of) is list:
        return f"list of {word(get_args(of)[0])}"
    if get_origin(of) is dict and get_args(of)[1] is not Any:
        return f"map from names to {word(get_args(of)[1])}"
    if get_origin(of) is dict:
        return "dict"
    return WORDS[of] if of in WORDS else str(of.__name__)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_type_has_the_keys_of_its_table(name: str) -> None:
    rows, of = table()[name], TYPES[name]
    assert set(rows) == set(of.__annotations__) | {key for base in inherited(of) for key in base}
    hints = get_type_hints(of, include_extras=True)
    for key, (kind, optional) in rows.items():
        found = word(hints[key])
        # Large maps that are for reading by eye are left open.
        if optional and not found.endswith(" or nil"):
            # What may be left out is not nil as well.
            kind = kind.removesuffix(" or nil")
        assert found == kind or (found.startswith("dict") and kind.split(" or ")[0] in table()), f"{name}.{key}"
        left_out = get_origin(hints[key]) is NotRequired or key in of.__optional_keys__
        assert optional == left_out, f"{name}.{key}"


def inherited(of: Any) -> list[dict[str, Any]]:
    """Annotations of the types that a type extends."""
    return [base.__annotations__ for base in getattr(of, "__orig_bases__", ()) if is_typeddict(base)]


def test_every_table_has_a_type_or_is_left_open() -> None:
    open_maps = {"LastRefit", "StructureFound", "VariableFound", "DirectionFound", "SelectionFound"}
    open_maps |= {"CandidateFound", "LambdaFound", "DriftAlarm", "MovedVariable", "ImprovementFound", "SplitFound"}
    open_maps |= {"DictionaryFound", "RuleFound", "TrialFound"}
    assert set(table()) == set(TYPES) | open_maps
