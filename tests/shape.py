#!/usr/bin/env python3
"""Measure the shape of the Rust sources: lengths, widths, circles of imports, dependencies that nothing names.

Run by tests/run.sh; by hand: `python3 tests/shape.py`, with `--draw` the imports between crates and folders as Graphviz.
Unit tests (`#[cfg(test)]`) are not counted. Exceptions stand in the tables below, each with its reason.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = {"criticd": ROOT, "criticd_learner": ROOT / "crates" / "learner"}
FUNCTION_LINES, FILE_LINES, FIELDS = 80, 800, 20

LONG_FUNCTIONS: dict[str, str] = {}
LONG_FILES: dict[str, str] = {}
WIDE_STRUCTS: dict[str, str] = {
    "src/wire/status.rs Status": "a message: its fields are its keys",
    "src/wire/status.rs RefitFound": "a message: its fields are its keys",
    "src/config.rs ConfigParts": "a table: its fields are the settings",
    "src/commands/fit.rs Fit": "a command: its fields are its options",
    "crates/learner/src/settings.rs Settings": "a table: its fields are the settings of a critic",
    "crates/learner/src/report.rs RefitReport": "a report: its fields are what is told of a refit",
}
# Files that use one another, in the order of the alphabet.
CIRCLES: dict[tuple[str, ...], str] = {}
# Dependencies that a build needs although no file names them.
UNNAMED: dict[str, str] = {}

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^u]|\\u\{[^}]*\}|[^'\\])'""",
    re.DOTALL,
)
FOR_TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?(?:mod|fn|use|impl)\b[^;{]*")
FIELD = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:r#)?\w+\s*:(?!:)", re.MULTILINE)
NAMED = re.compile(r"\b(?:crate|super|self|criticd|criticd_learner)(?:::\w+)+")


def code_of(text: str) -> str:
    """The text with comments, strings and characters blanked, and without what is compiled for unit tests only."""
    code = TOKEN.sub(lambda match: blank(match.group()), text)
    while (found := FOR_TESTS.search(code)) is not None:
        end = block_end(code, found.end()) if code[found.end()] == "{" else found.end() + 1
        code = code[: found.start()] + blank(code[found.start() : end]) + code[end:]
    return code


def blank(text: str) -> str:
    """As many lines, with nothing on them."""
    return re.sub(r"[^\n]", " ", text)


def block_end(code: str, start: int) -> int:
    """Where the block ends whose brace stands at `start`."""
    depth = 0
    for place in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[place], 0)
        if depth == 0:
            return place + 1
    raise ValueError("a brace is not closed")


def functions(code: str) -> list[tuple[str, int]]:
    """Name and length of each function, from its signature to its last brace, in lines."""
    found = []
    for match in re.finditer(r"\bfn\s+(\w+)", code):
        body = re.compile(r"[{;]").search(code, signature_end(code, match.end()))
        if body is not None and body.group() == "{":
            found.append((match.group(1), code.count("\n", match.start(), block_end(code, body.start())) + 1))
    return found


def signature_end(code: str, start: int) -> int:
    """Behind the parameters of a function: array types within them have semicolons of their own."""
    depth = 0
    for place in range(code.index("(", start), len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    raise ValueError("a parenthesis is not closed")


def structs(code: str) -> list[tuple[str, int]]:
    """Name and number of fields of each struct."""
    found = []
    for match in re.finditer(r"\bstruct\s+(\w+)[^;{(]*\{", code):
        body = code[match.end() : block_end(code, match.end() - 1) - 1]
        found.append((match.group(1), len(FIELD.findall(body))))
    return found


class Module:
    """A file of a crate and its place among the modules."""

    def __init__(self, crate: str, path: Path, text: str) -> None:
        parts = path.relative_to(CRATES[crate] / "src").with_suffix("").parts
        self.crate, self.path, self.code = crate, path, code_of(text)
        self.place = (crate, *(part for part in parts if part not in ("mod", "lib", "main")))
        self.name = str(path.relative_to(ROOT))
        self.lines = sum(1 for line in self.code.rstrip().splitlines())


def flat(tree: str) -> list[list[str]]:
    """The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = re.sub(r"\s+as\s+\w+", "", tree).strip()
    brace = tree.find("{")
    if brace < 0:
        return [[part.strip() for part in tree.split("::") if part.strip() not in ("", "*")]]
    head = [part.strip() for part in tree[:brace].split("::") if part.strip()]
    inner, depth, start, found = tree[brace + 1 : tree.rindex("}")], 0, 0, []
    for place, sign in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            if inner[start:place].strip():
                found += [head + path for path in flat(inner[start:place])]
            start = place + 1
    return found


def imports(module: Module, modules: dict[tuple[str, ...], Module]) -> set[tuple[str, ...]]:
    """The modules that a module names."""
    used = [path for match in re.finditer(r"\buse\s+([^;]+);", module.code) for path in flat(match.group(1))]
    used += [match.group().split("::") for match in NAMED.finditer(module.code)]
    found = set()
    for path in used:
        place = resolve(path, module.place, modules)
        while place is not None and len(place) > 1 and place not in modules:
            place = place[:-1]
        # A file and the module that it is a part of are one: what its parts share stands there.
        if place is not None and place in modules and place != module.place[: len(place)]:
            found.add(place)
    return found


def resolve(
    path: list[str], here: tuple[str, ...], modules: dict[tuple[str, ...], Module]
) -> tuple[str, ...] | None:
    """The place that a path means, seen from a module; none if it is of another crate."""
    if not path:
        return None
    if path[-1] == "self" and len(path) > 1:
        path = path[:-1]
    first, rest = path[0], tuple(path[1:])
    if first == "crate":
        # The daemon names parts of the learner as its own.
        if here[0] == "criticd" and rest[:1] in (("learner",), ("math",), ("sim",), ("snapshot",), ("transition",)):
            return ("criticd_learner", *(rest[1:] if rest[0] == "learner" else rest))
        return (here[0], *rest)
    if first == "self":
        return (*here, *rest)
    if first == "super":
        place = here
        while path and path[0] == "super":
            place, path = place[:-1], path[1:]
        return (*place, *path)
    if (*here, first) in modules:
        return (*here, *path)
    if first in CRATES:
        return (first, *rest)
    return None


def circles(edges: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Groups of more than one that reach one another (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(tuple(sorted(group)))

    sys.setrecursionlimit(10_000)
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def unused(package: Path) -> list[str]:
    """Dependencies of a package that none of its sources names, comments left aside."""
    manifest = tomllib.loads((package / "Cargo.toml").read_text())
    named = set()
    for folder in ("src", "tests", "benches", "examples", "fuzz_targets"):
        for path in (package / folder).rglob("*.rs"):
            named |= set(re.findall(r"\b\w+\b", re.sub(r"//[^\n]*", "", path.read_text())))
    wanted = {**manifest.get("dependencies", {}), **manifest.get("dev-dependencies", {})}
    return [name for name in wanted if name.replace("-", "_") not in named and name not in UNNAMED]


def main() -> int:
    """Say what is wrong; how many faults there are."""
    sys.stdout.reconfigure(encoding="utf-8")
    modules: dict[tuple[str, ...], Module] = {}
    for crate, folder in CRATES.items():
        for path in sorted((folder / "src").rglob("*.rs")):
            # The program beside the library is a crate of its own, which uses the library.
            if path == ROOT / "src" / "main.rs" or path.is_relative_to(ROOT / "src" / "commands"):
                module = Module(crate, path, path.read_text())
                module.place = ("program", *module.place[1:])
            else:
                module = Module(crate, path, path.read_text())
            modules[module.place] = module
    faults: list[str] = []
    used: dict[str, set[str]] = defaultdict(set)

    def check(what: str, table: dict[str, str], name: str, found: int, most: int) -> None:
        if found <= most:
            return
        used[what].add(name)
        if name not in table:
            faults.append(f"{name}: {found} {what}, at most {most}")

    files: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        check("lines", LONG_FILES, module.name, module.lines, FILE_LINES)
        for name, lines in functions(module.code):
            check("lines of a function", LONG_FUNCTIONS, f"{module.name} {name}", lines, FUNCTION_LINES)
        for name, fields in structs(module.code):
            check("fields", WIDE_STRUCTS, f"{module.name} {name}", fields, FIELDS)
        targets = imports(module, modules)
        files[module.name] = {modules[place].name for place in targets}
        for place in targets:
            here, there = folder_of(module.place), folder_of(place)
            if here != there:
                folders[here].add(there)
    for kind, edges in (("files", files), ("folders", folders)):
        for circle in circles(edges):
            used["circle"].add(str(circle))
            if circle not in CIRCLES:
                faults.append(f"{kind} that use one another: {', '.join(circle)}")
                inside = [(a, b) for a in circle for b in sorted(edges[a]) if b in circle]
                faults += [f"    {a} -> {b}" for a, b in inside] if len(inside) < 40 else []
    for package in (ROOT, ROOT / "crates" / "learner", ROOT / "fuzz"):
        manifest = (package / "Cargo.toml").relative_to(ROOT)
        faults += [f"{manifest}: nothing names the dependency {name}" for name in unused(package)]
    for what, table in (("lines", LONG_FILES), ("lines of a function", LONG_FUNCTIONS), ("fields", WIDE_STRUCTS)):
        faults += [
            f"{name} is no exception any more: take it out of the table" for name in table if name not in used[what]
        ]
    if "--draw" in sys.argv:
        print("digraph imports {")
        print(*(f'  "{a}" -> "{b}";' for a in sorted(folders) for b in sorted(folders[a])), sep="\n")
        print("}")
    print(*faults, sep="\n", file=sys.stderr)
    return len(faults)


def folder_of(place: tuple[str, ...]) -> str:
    """The crate, and in it the folder or the file at the top, that a module belongs to."""
    return "/".join(place[:2])


if __name__ == "__main__":
    sys.exit(min(1, main()))
