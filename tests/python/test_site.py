"""The documents: they build without a warning, their programs run, and no error is left out of them."""

from __future__ import annotations

import html
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from client import BINARY, PATIENCE_S, ROOT
from mcap.writer import Writer

import criticd
from criticd import tables

DOCS = ROOT / "docs"


@pytest.mark.nightly
@pytest.mark.long
def test_the_site_builds_and_has_the_whole_package(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    listed, page = (tmp_path / "api.html").read_text(), ""
    for name in set(criticd.__all__) - {"__version__"}:
        assert f'href="api/criticd.{name}.html"' in listed, name
        page += (tmp_path / "api" / f"criticd.{name}.html").read_text()
        assert f'id="criticd.{name}"' in page, name
    page += "".join((tmp_path / "api" / f"criticd.{module}.html").read_text() for module in ("tables", "gym"))
    for method in ("Sender.send", "Snapshot.gradient", "Client.value", "tables.read_mcap", "gym.wrap_vector"):
        assert f'id="criticd.{method}"' in page, method
    # They show what the docstrings say, not their names alone.
    texts = [html.unescape(re.sub(r"<[^>]*>", "", text)) for text in (listed, page)]
    for described in (criticd.Snapshot.gradient, criticd.Client.new_policy, tables.read_mcap):
        assert (inspect.getdoc(described) or "?").splitlines()[0].replace("`", "") in texts[1]
    assert (criticd.Sender.__doc__ or "?").splitlines()[0] in texts[0]
    # Nothing on a page is loaded from elsewhere.
    loaded = re.findall(r"<(?:script|img|link)[^>]* (?:src|href)=\"?(https?://[^\" >]+)", listed + page)
    assert loaded == []


@dataclass
class Snippet:
    """A program of a document. `name` is the file that it is kept in; `made` the recording that it wants there."""

    language: str
    code: str
    note: str


def snippets(page: Path) -> list[Snippet]:
    found = re.findall(r"(?:<!-- (.*?) -->\n)?```(python|sh)\n(.*?)```", page.read_text(), re.DOTALL)
    return [Snippet(language, code, note) for note, language, code in found]


def record(path: Path) -> None:
    """The recording of the recipe: 200 messages of a position, a voltage and a cost, with a pause in the middle."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("any", "jsonschema", b"{}")
        topics = {name: writer.register_channel(name, "json", schema) for name in ("/odom", "/battery", "/cost")}
        for row in range(200):
            time = row * 100_000_000 + (10**10 if row >= 100 else 0)
            place = (row % 100) / 50 - 1
            messages = {
                "/odom": {"position": {"x": place}},
                "/battery": {"voltage": 12 - row / 100},
                "/cost": {"data": place**2},
            }
            for topic, message in messages.items():
                writer.add_message(topics[topic], time, json.dumps(message).encode(), time)
        writer.finish()


RUN = [
    "tutorial.md",
    "concepts.md",
    "troubleshooting.md",
    "operations.md",
    *(f"recipes/{path.name}" for path in sorted((DOCS / "recipes").iterdir())),
]


def there(note: str) -> bool:
    """Whether the packages are installed that a program needs, as its note says: the gate does without them."""
    names = note.removeprefix("needs: ").split() if note.startswith("needs: ") else []
    return all(importlib.util.find_spec(name) for name in names)


def run_page(name: str, folder: Path) -> str:
    """What the programs of a page print, run one after the other in a folder, the Python ones in one process."""
    said, session = "", ""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "criticd").symlink_to(BINARY)
    # A link would not be a Python of this environment.
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CRITICD_BIN": BINARY, "MPLBACKEND": "Agg"}
    # Daemons that a page starts keep their data in the folder, and leave the usual ports to others.
    environment |= {f"CRITICD_{socket}": "tcp://127.0.0.1:0" for socket in ("INGEST", "CONTROL", "PUBLISH")}
    environment |= {"XDG_STATE_HOME": str(folder / "state"), "CRITICD_HTTP": "127.0.0.1:0"}
    environment.pop("CRITICD_DATA_DIR", None)

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def finish() -> str:
        nonlocal session
        code, session = session, ""
        return run(sys.executable, "-c", code) if code else ""

    for snippet in snippets(DOCS / name):
        if snippet.note.startswith("not run: ") or "pip install" in snippet.code or not there(snippet.note):
            continue
        if snippet.note.startswith("make: "):
            record(folder / snippet.note.removeprefix("make: "))
        if snippet.language == "python" and snippet.note.endswith(".py"):
            (folder / snippet.note).write_text(snippet.code)
        elif snippet.language == "python":
            session += snippet.code
        else:
            said += finish() + run("bash", "-eu", "-c", snippet.code)
    return said + finish()


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("page", RUN)
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    said = run_page(page, tmp_path)
    if page == "tutorial.md":
        # The values are those of missions that the model has not seen.
        (correlation,) = re.findall(r"^correlation ([0-9.]+)$", said, re.MULTILINE)
        (share,) = re.findall(r"^the 90 % interval holds (\d+)%$", said, re.MULTILINE)
        assert float(correlation) > 0.95 and int(share) > 75
        assert "extrapolated" in said and "criticd.Daemon" not in said
    if page == "operations.md":
        assert "has ended" in said and "bytes would come back" in said and "The data is in" in said
    if page == "recipes/skills.md":
        assert "near: fast" in said and "far: careful" in said and "never seen: careful" in said
    if page == "recipes/regression.md":
        ((error, share),) = re.findall(r"^error ([0-9.]+) .* holds ([0-9]+) %$", said, re.MULTILINE)
        # A single measurement is off by 0.1.
        assert float(error) < 0.05 and 84 <= int(share) <= 96
        assert "extrapolated" in said and "has ended" in said
    if page == "recipes/planner.md":
        # From 0.8 the way to more reward is down.
        assert float(re.findall(r"best plan: (-?[0-9.]+)", said)[0]) < 0


def test_every_page_with_programs_is_run_or_says_why_not() -> None:
    # The other pages are reference: their programs are commands for a machine that is not there.
    reference = {"access", "actions", "api", "configuration", "drift", "glossary", "guarantees", "index", "limits"}
    reference |= {"acting", "advisors", "mean-functions", "what-if"}
    reference |= {"dashboard", "heads", "mathematics", "model-selection", "performance", "reproduction", "tables"}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert pages == {*RUN, *(f"{name}.md" for name in reference)}
    for page in RUN:
        for snippet in snippets(DOCS / page):
            if snippet.note.startswith("not run: "):
                assert len(snippet.note) > 30, page


def test_no_document_installs_what_is_not_there() -> None:
    # A package of this name on a public index would be somebody else's.
    wrong = re.compile(r"(?:(?:pip|conda|brew|apt(?:-get)?|cargo|uv) install|uvx|pipx run)[^\n`#]* '?criticd(?![-\w*/]|_\*)")
    sources = [path for folder in ("docs", "examples", "python", "proto") for path in (ROOT / folder).rglob("*.*")]
    for path in [ROOT / "README.md", *sources]:
        if path.suffix in (".md", ".py", ".toml", ".rs"):
            assert wrong.findall(path.read_text()) == [], path


def test_documents_name_commands_and_options_that_exist() -> None:
    known: dict[str, set[str]] = {}

    def options(*command: str) -> set[str]:
        name = " ".join(command)
        if name not in known:
            done = subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, timeout=PATIENCE_S)
            known[name] = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])\b", done.stdout)) if done.returncode == 0 else set()
        return known[name]

    count = 0
    for page in [ROOT / "README.md", ROOT / "python" / "README.md", ROOT / "proto" / "README.md", *DOCS.rglob("*.md")]:
        text = page.read_text().replace("\\\n", " ")
        commands = re.findall(r"`(criticd [a-z][^`]*)`", text)
        for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
            commands += re.findall(r"(?:^|[|;&] *|nohup )(criticd [a-z][^\n#|;&>]*)", block, re.MULTILINE)
        for command in commands:
            words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", command).split()[1:]
            there = options(words[0])
            assert there, (page, command)
            if words[1:] and re.fullmatch("[a-z-]+", words[1]):
                there = there | options(*words[:2])
            named = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z=-].*|-[a-z]", word)}
            assert named <= there, (page, command, named - there)
            count += 1
    assert count > 150


def test_documents_name_events_and_metrics_that_exist() -> None:
    sources = "".join(path.read_text() for folder in ("src", "crates") for path in (ROOT / folder).rglob("*.rs"))
    pages = [*ROOT.glob("*.md"), *(ROOT / "proto").glob("*.md"), ROOT / "python" / "README.md", *DOCS.rglob("*.md")]
    texts = "".join(page.read_text() for page in pages if page.name not in ("CHANGELOG.md", "HISTORY.md"))
    # Those of a table of former names are former ones.
    before, former = texts.split("### Names that changed before the first release")
    texts = before + former.split("\n## ", 1)[1]
    events = set(re.findall(r"event=([a-z_]+)", texts))
    assert len(events) > 10 and [name for name in events if f"event={name} " not in sources] == []
    # The unit and the kind of a metric are added to the name that the source has.
    named = re.findall(r"\bcriticd_([a-z_]+)\b(?!::)", texts)
    metrics = {re.sub("(_seconds|_bytes)?(_total)?$", "", name) for name in named}
    there = set(re.findall(r'"(?:criticd_)?([a-z_]+)"', (ROOT / "crates/daemon/src/http/metrics.rs").read_text()))
    assert len(metrics) > 40 and metrics <= there, metrics - there


def headings() -> set[str]:
    """What the headings of the troubleshooting page name in code."""
    lines = re.findall(r"^### (.*)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    return {name for line in lines for name in re.findall(r"`(\w+)`", line)}


def test_every_error_code_has_a_heading() -> None:
    table = (ROOT / "proto" / "README.md").read_text().split("### Errors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    codes = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert len(codes) > 15 and codes <= headings(), codes - headings()


def test_every_warning_has_a_heading() -> None:
    sources = [path.read_text() for folder in ("src", "crates") for path in (ROOT / folder).rglob("*.rs")]
    pattern = r"\b(?:warn|error)!\(\s*\"event=(\w+)"
    events = {event for source in sources for event in re.findall(pattern, source)}
    assert len(events) > 20 and events <= headings(), events - headings()


def test_every_alert_is_explained() -> None:
    rules = yaml.safe_load((ROOT / "examples" / "alerts.yml").read_text())["groups"][0]["rules"]
    text = (DOCS / "troubleshooting.md").read_text()
    for rule in rules:
        assert f"| `{rule['alert']}` |" in text, rule["alert"]
