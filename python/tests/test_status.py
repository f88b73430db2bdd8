"""The types of the status are made from the protocol's table, which is made from the daemon's own type."""

from __future__ import annotations

import keyword
import os
import re
from dataclasses import fields

from conftest import ROOT

from criticd.subscriber import ALARMS, CHANGES, Alarm

MODULE = ROOT / "python" / "criticd" / "_status.py"
WORDS = {"uint": "int", "number": "float", "string": "str", "nil": "None"}
# Large maps that are for reading by eye.
WORDS |= {"DriftAlarm": "dict[str, Any]", "LastRefit": "dict[str, Any]"}


def typed(kind: str, left_out: bool = False) -> str:
    """A type of the table in Python."""
    if kind.startswith("list of "):
        # A list that may be left out is not nil as well; in others an element may be.
        return f"list[{typed(kind.removeprefix('list of ').removesuffix(' or nil' if left_out else ''))}]"
    if kind.startswith("map from names to "):
        return f"dict[str, {typed(kind.removeprefix('map from names to '))}]"
    return " | ".join(typed(part) if " or " in kind else WORDS.get(part, part) for part in kind.split(" or "))


def keys_of(section: str) -> dict[str, str]:
    """The keys of one map of the table, with their types."""
    rows = re.findall(r"^\| `(\w+)`(\??) \| ([^|]+) \|", section, re.MULTILINE)
    types = [(key, mark, typed(re.sub(r"\[(\w+)\]\([^)]*\)", r"\1", kind), bool(mark))) for key, mark, kind in rows]
    return {key: f"NotRequired[{of}]" if mark else of for key, mark, of in types}


def class_of(name: str, section: str) -> str:
    """The type of one map of the table."""
    about = section.split("\n\n")[1].split(". ")[0].removesuffix(".")
    keys, base, before = keys_of(section), "TypedDict", ""
    # A word of the language cannot stand in a class.
    odd = {key: keys.pop(key) for key in list(keys) if keyword.iskeyword(key)}
    if odd:
        base = f"_Of{name}"
        items = ", ".join(f'"{key}": {of}' for key, of in odd.items())
        before = f'{base} = TypedDict("{base}", {{{items}}})\n\n\n'
    lines = "".join(f"    {key}: {of}\n" for key, of in keys.items())
    return f'\n\n{before}class {name}({base}):\n    """{about}."""\n\n{lines}'


def classes() -> str:
    """`Status`, and what it is made of."""
    sections = {text.split("\n")[0]: text for text in (ROOT / "proto" / "status.md").read_text().split("\n## ")[1:]}
    named = ["Status"]
    for name in named:
        found = re.findall(r"\w+", " ".join(keys_of(sections[name]).values()))
        named += [other for other in dict.fromkeys(found) if other in sections and other not in named]
    return "".join(class_of(name, sections[name]) for name in named)


def test_the_types_are_made_from_the_table() -> None:
    found = MODULE.read_text()
    wanted = found.partition("\n\nclass Status")[0] + classes()
    if "CRITICD_WRITE" in os.environ:
        MODULE.write_text(wanted)
    assert "CRITICD_WRITE" in os.environ or found == wanted, "the module says how it is written anew"


def test_the_events_that_a_subscriber_hears_are_in_the_table() -> None:
    kinds = {text.split("\n")[0]: text for text in (ROOT / "proto" / "events.md").read_text().split("\n## ")[1:]}
    assert {*CHANGES, *ALARMS} <= set(kinds)
    assert all("[ForetoldFall](#foretoldfall)" in kinds[kind] for kind in ALARMS)
    assert set(keys_of(kinds["ForetoldFall"])) == {field.name for field in fields(Alarm)} - {"raised"}
    for kind in CHANGES:
        assert "[DriftAlarm](status.md#driftalarm)" in kinds[kind] or {"critic", "offset"} <= set(keys_of(kinds[kind]))
