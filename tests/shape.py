#!/usr/bin/env python3
"""Measure the shape of the Rust sources: lengths, widths, circles of imports, dependencies that nothing names.

Circles of imports are found in the Python package too, words that have another spelling in what users read, and in
documents the names of files, tests, and items of types that are not there. Words that stand in the place of a noun are
counted, and may only become fewer.

Run by tests/run.sh; by hand: `python3 tests/shape.py`, with `--draw` the imports between crates and folders as Graphviz
(`python3 tests/shape.py --draw | dot -Tsvg > imports.svg`). Unit tests (`#[cfg(test)]`) are not counted. Exceptions stand
in the tables below, each with its reason. tests/python/test_shape.py tests this script.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES, FILE_LINES, FIELDS = 80, 800, 20

LONG_FUNCTIONS: dict[str, str] = {}
LONG_FILES: dict[str, str] = {
    "crates/protocol/src/wire/status.rs": "a table: the keys of the status, each with its description",
}
WIDE_STRUCTS: dict[str, str] = {
    "crates/protocol/src/wire/status.rs Status": "a message: its fields are its keys",
    "crates/protocol/src/wire/status.rs CriticStatus": "a message: its fields are its keys",
    "crates/protocol/src/wire/status.rs RefitFound": "a message: its fields are its keys",
    "crates/daemon/src/config.rs ConfigParts": "a table: its fields are the settings",
    "src/commands/fit.rs Fit": "a command: its fields are its options",
    "crates/learner/src/model/written.rs Written": "a file: its fields are its keys",
    "crates/learner/src/settings.rs Settings": "a table: its fields are the settings of a critic",
    "crates/learner/src/snapshot.rs Snapshot": "a publication: its fields are its keys",
    "crates/learner/src/refit/report.rs RefitReport": "a report: its fields are what a refit found",
}
# Words of which users see one spelling alone, each with that one.
WORDS = {r"\w\.msgpack\b": "a model's file is NAME.model", r"(?i)(?<!_)\bsd\b": "a standard deviation is std"}
# Words in the place of a noun, and names of constants without one, each with how often it may stand: these numbers may only fall.
RATCHET = {
    r"(?i)\bthose\s+of\b": 52,
    r"(?i)\bthat\s+of\b": 22,
    r"(?i)\bso\s+many\b": 36,
    r"(?i)\b(?:is|are)\s+told\b": 6,
    r"\bconst (?:ROWS|ROUNDS|AT_ONCE|FAR|LOOK|MAX|MIN|MOST|LEAST):": 9,
}
# Names of types that stand for more than two types, and runs of six lines of code that stand twice: these may only fall, too.
MEANINGS, REPEATED = 0, 1
# Where they are counted.
COUNTED = (
    "src/**/*.rs",
    "crates/*/src/**/*.rs",
    "crates/daemon/src/http/page/*.[jh]*",
    "python/criticd/*.py",
    "python/README.md",
    "proto/*.md",
    "README.md",
    "ARCHITECTURE.md",
    "docs/**/*.md",
)
# Where users read.
READ = ("src/commands/**/*.rs", "crates/daemon/src/http/page/*.[jh]*", "python/criticd/*.py", "python/README.md", "README.md", "docs/**/*.md")
# Documents that name files of these folders, from the folder on or from one further in.
DOCUMENTS = ("*.md", "docs/*.md", "proto/README.md", "python/README.md")
FOLDERS = ("benches", "crates", "docs", "examples", "fuzz", "packaging", "proto", "python", "src", "tests")
NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./{{}},*-]*|[\w./{{}},*-]+\.(?:rs|py|js|ts|sh|cddl))`")
# A test or another function of a file, and an item of a type.
FUNCTION = re.compile(r"`([\w./-]+\.rs)?::(\w+)`")
ITEM = re.compile(r"`(?:\w+::)*([A-Z]\w+)::(\w+)(?:\(\))?`")
OF_TYPE = re.compile(r"\b(?:struct|enum|trait|impl)\b([^;{(]*)")
# Files that documents name and that a build makes.
MADE = {"python/criticd/_learner.abi3.so"}
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
# The first name of a path, of an import or of a macro.
FIRST_NAME = re.compile(r"(?<![\w:.])(\w+)\s*::|\buse\s+(\w+)|\bextern\s+crate\s+(\w+)")


def without_text(text: str) -> str:
    """The text with comments, strings and characters blanked."""
    return TOKEN.sub(lambda match: blank(match.group()), text)


def code_of(text: str) -> str:
    """As `without_text`, and without what is compiled for unit tests only."""
    code = without_text(text)
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

    def __init__(self, root: Path, crate: str, folder: Path, path: Path) -> None:
        parts = path.relative_to(folder / "src").with_suffix("").parts
        # The program is a crate of its own, which uses the library.
        program = folder == root and parts[0] == "main"
        self.crate, self.code = crate, code_of(path.read_text(encoding="utf-8"))
        names = (part for part in parts if part not in ("mod", "lib", "main"))
        self.place = ("program" if program else crate, *names)
        self.name = str(path.relative_to(root))
        self.lines = len(self.code.rstrip().splitlines())


def packages(root: Path) -> dict[str, Path]:
    """The folder of each package with sources of the project's own, by the name of its library."""
    folders = [root, *sorted(path.parent for path in root.glob("crates/*/Cargo.toml"))]
    name = re.compile(r'^name = "([^"]+)"', re.MULTILINE)
    found = {}
    for folder in folders:
        named = name.search((folder / "Cargo.toml").read_text(encoding="utf-8"))
        if named is not None:
            found[named.group(1).replace("-", "_")] = folder
    return found


def modules_of(root: Path) -> dict[tuple[str, ...], Module]:
    """All files of all packages, by their places."""
    found = {}
    for crate, folder in packages(root).items():
        for path in sorted((folder / "src").rglob("*.rs")):
            module = Module(root, crate, folder, path)
            found[module.place] = module
    return found


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
    crates = {place[0] for place in modules}
    named = re.compile(rf"\b(?:crate|super|self|{'|'.join(sorted(crates))})(?:::\w+)+")
    used = [path for match in re.finditer(r"\buse\s+([^;]+);", module.code) for path in flat(match.group(1))]
    used += [match.group().split("::") for match in named.finditer(module.code)]
    found = set()
    for path in used:
        place = resolve(path, module.place, modules, crates)
        # A crate may name parts of another as its own.
        if place is not None and place[:2] not in modules:
            place = (*aliases(place[0], modules).get(place[1:2], place[:2]), *place[2:])
        while place is not None and len(place) > 1 and place not in modules:
            place = place[:-1]
        # A file and the module that it is a part of are one: what its parts share stands there.
        if place is not None and place in modules and place != module.place[: len(place)]:
            found.add(place)
    return found


def aliases(crate: str, modules: dict[tuple[str, ...], Module]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """What the library of a crate names as its own of other crates: its name there, and where it is."""
    found = {}
    code = modules[(crate,)].code if (crate,) in modules else ""
    for tree in re.findall(r"\bpub\s+use\s+([^;]+);", code):
        name = re.fullmatch(r"\s*(\w+)\s+as\s+(\w+)\s*", tree)
        named = [(name.group(2), [name.group(1)])] if name else [(path[-1], path) for path in flat(tree)]
        found.update({(alias,): tuple(path) for alias, path in named if (path[0],) in modules})
    return found


def resolve(
    path: list[str], here: tuple[str, ...], modules: dict[tuple[str, ...], Module], crates: set[str]
) -> tuple[str, ...] | None:
    """The place that a path means, seen from a module; none if it is of another crate."""
    if not path:
        return None
    if path[-1] == "self" and len(path) > 1:
        path = path[:-1]
    first, rest = path[0], tuple(path[1:])
    if first == "crate":
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
    if first in crates:
        return (first, *rest)
    return None


def python_imports(package: Path) -> dict[str, set[str]]:
    """Which files of a Python package import which, wherever the import stands: a type alone needs a file too."""
    files = {path.stem: path for path in sorted(package.glob("*.py*")) if path.suffix in (".py", ".pyi")}
    edges = {}
    for path in files.values():
        named = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named |= {tuple(alias.name.split(".")) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                whole = ".".join(filter(None, [package.name if node.level else "", node.module]))
                named |= {(*whole.split("."), alias.name) for alias in node.names}
        of_package = {(*parts, "__init__")[1] for parts in named if parts[0] == package.name}
        found = {name if name in files else "__init__" for name in of_package} - {path.stem}
        edges[f"{package.name}/{path.name}"] = {f"{package.name}/{files[name].name}" for name in found if name in files}
    return edges


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
            group: list[str] = []
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
    """Dependencies of a package that none of its sources names; those of the package itself must be named under src."""
    manifest = tomllib.loads((package / "Cargo.toml").read_text(encoding="utf-8"))

    def names(*folders: str) -> set[str]:
        files = [path for folder in folders for path in (package / folder).rglob("*.rs")]
        code = "\n".join(without_text(path.read_text(encoding="utf-8")) for path in files)
        return {name for match in FIRST_NAME.finditer(code) for name in match.groups() if name}

    own = names("src", "fuzz_targets")
    for_tests = own | names("tests", "benches", "examples")
    wanted = [(name, own) for name in manifest.get("dependencies", {})]
    wanted += [(name, for_tests) for name in manifest.get("dev-dependencies", {})]
    return [name for name, named in wanted if name.replace("-", "_") not in named and name not in UNNAMED]


def absent(root: Path, modules: list[Module]) -> list[str]:
    """What documents name and that is not there, a line each: files, functions in them, items of types."""
    paths = [path for folder in FOLDERS for path in (root / folder, *(root / folder).rglob("*")) if path.exists()]
    there = [f"/{path.relative_to(root).as_posix()}" for path in paths]
    ours = [(name, path) for name, path in zip(there, paths, strict=True) if path.suffix == ".rs"]
    functions = {name: set(re.findall(r"\bfn (\w+)", path.read_text(encoding="utf-8"))) for name, path in ours}
    items: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        words = set(re.findall(r"\w+", module.code))
        for kind in {kind for begin in OF_TYPE.findall(module.code) for kind in re.findall(r"[A-Z]\w*", begin)}:
            items[kind] |= words
    found = []
    for page in sorted(path for pattern in DOCUMENTS for path in root.glob(pattern) if path.name != "HISTORY.md"):
        text, missing = page.read_text(encoding="utf-8"), []
        for name in sorted({*NAMED.findall(text)} - MADE):
            for parts in product(*(part.split(",") for part in re.split("[{}]", name))):
                wanted = "".join(parts).rstrip("/")
                missing += [] if any(fnmatch(path, f"*/{wanted}") for path in there) else [wanted]
        file = ""
        for named, function in FUNCTION.findall(text):
            file = named or file
            named_so = [name for name in functions if name.endswith(f"/{file}")]
            missing += [] if any(function in functions[name] for name in named_so) else [f"{file}::{function}"]
        missing += [f"{kind}::{item}" for kind, item in sorted({*ITEM.findall(text)}) if item not in items[kind]]
        found += [f"{page.relative_to(root)}: there is no {name}" for name in missing]
    return found


def counted(root: Path) -> dict[str, int]:
    """How often each word of the ratchet stands in sources and documents. A line break and the comment's sign count as a blank."""
    paths = {path for pattern in COUNTED for path in root.glob(pattern)}
    texts = [re.sub(r"\n\s*(?:///?|//!|#|\*)?\s*", " ", path.read_text(encoding="utf-8")) for path in sorted(paths)]
    return {word: sum(len(re.findall(word, text)) for text in texts) for word in RATCHET}


def many_meanings(modules: dict[tuple[str, ...], Module]) -> int:
    """How many names of structs, enums and traits stand for more than two of them."""
    names = [name for module in modules.values() for name in re.findall(r"\b(?:struct|enum|trait)\s+([A-Z]\w*)", module.code)]
    return sum(count > 2 for count in Counter(names).values())


def repeated(modules: dict[tuple[str, ...], Module]) -> int:
    """How many runs of six lines stand at more than one place: lines with code, imports left out, of a hundred signs at least."""
    runs: Counter[tuple[str, ...]] = Counter()
    for module in modules.values():
        lines = [line.strip() for line in module.code.splitlines()]
        lines = [line for line in lines if re.search(r"\w", line) and not re.match(r"(?:pub )?(?:use|mod) |#\[", line)]
        pieces = (tuple(lines[at : at + 6]) for at in range(len(lines) - 5))
        runs.update(piece for piece in pieces if sum(map(len, piece)) >= 100)
    return sum(count > 1 for count in runs.values())


def folder_of(place: tuple[str, ...]) -> str:
    """The crate, and in it the folder or the file at the top, that a module belongs to."""
    return "/".join(place[:2])


def graphs(modules: dict[tuple[str, ...], Module]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Which files name which, and which folders."""
    files: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        targets = imports(module, modules)
        files[module.name] = {modules[place].name for place in targets}
        for place in targets:
            here, there = folder_of(module.place), folder_of(place)
            if here != there:
                folders[here].add(there)
    return files, folders


def faults(root: Path) -> list[str]:
    """What is wrong with the sources below `root`, a line each."""
    modules = modules_of(root)
    found: list[str] = []
    excepted: set[str] = set()

    def check(what: str, table: dict[str, str], name: str, count: int, most: int) -> None:
        if count > most and name in table:
            excepted.add(name)
        elif count > most:
            found.append(f"{name}: {count} {what}, at most {most}")

    for module in modules.values():
        check("lines", LONG_FILES, module.name, module.lines, FILE_LINES)
        for name, lines in functions(module.code):
            check("lines of a function", LONG_FUNCTIONS, f"{module.name} {name}", lines, FUNCTION_LINES)
        for name, fields in structs(module.code):
            check("fields", WIDE_STRUCTS, f"{module.name} {name}", fields, FIELDS)
    for path in sorted(path for pattern in READ for path in root.glob(pattern) if path.name != "mathematics.md"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            said = [remedy for word, remedy in WORDS.items() if re.search(word, line)]
            found += [f"{path.relative_to(root)}:{number}: {remedy}" for remedy in said]
    for word, count in counted(root).items():
        found += [f"{word}: {count} times, at most {RATCHET[word]}; name who or what"] if count > RATCHET[word] else []
    for what, count, most in (
        ("names of types that stand for more than two", many_meanings(modules), MEANINGS),
        ("runs of six lines that stand twice", repeated(modules), REPEATED),
    ):
        found += [f"{count} {what}, at most {most}"] if count > most else []
    found += absent(root, list(modules.values()))
    package = python_imports(root / "python" / "criticd")
    for kind, edges in (*zip(("files", "folders"), graphs(modules), strict=True), ("Python files", package)):
        for circle in circles(edges):
            if circle in CIRCLES:
                excepted.add(", ".join(circle))
                continue
            found.append(f"{kind} that use one another: {', '.join(circle)}")
            inside = [(a, b) for a in circle for b in sorted(edges[a]) if b in circle]
            found += [f"    {a} -> {b}" for a, b in inside] if len(inside) < 40 else []
    for package in [*packages(root).values(), root / "fuzz"]:
        if (package / "Cargo.toml").exists():
            manifest = (package / "Cargo.toml").relative_to(root)
            found += [f"{manifest}: nothing names the dependency {name}" for name in unused(package)]
    if root == ROOT:
        names = [*LONG_FILES, *LONG_FUNCTIONS, *WIDE_STRUCTS, *(", ".join(circle) for circle in CIRCLES)]
        found += [f"{name} is no exception: take it out of the table" for name in names if name not in excepted]
    return found


def drawing(root: Path) -> str:
    """The imports between folders, those of a crate in a box, in the language of Graphviz."""
    modules = modules_of(root)
    _, edges = graphs(modules)
    lines = ["digraph imports {", "  node [shape=box];"]
    for crate in sorted({place[0] for place in modules}):
        lines.append(f'  subgraph "cluster_{crate}" {{')
        lines.append(f'    label="{crate}";')
        folders = sorted({folder_of(place) for place in modules if place[0] == crate})
        lines += [f'    "{folder}" [label="{folder.split("/")[-1]}"];' for folder in folders]
        lines.append("  }")
    lines += [f'  "{a}" -> "{b}";' for a in sorted(edges) for b in sorted(edges[a])]
    return "\n".join([*lines, "}"])


def main() -> int:
    """Draw, or say what is wrong: 1 if anything is."""
    if "--draw" in sys.argv[1:]:
        print(drawing(ROOT))
        return 0
    found = faults(ROOT)
    print(*found, sep="\n", end="\n" if found else "")
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main())
