"""The package as somebody gets it: its README, its types, its wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, Start

import criticd

PACKAGE = ROOT / "python"


def test_the_readmes_snippets_run(start: Start, tmp_path: Path) -> None:
    # The one marked `with-keys` needs a daemon that has some: test_keys.py has it. `with-sb3` brings PyTorch.
    snippets = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(snippets) == 9
    first, second = start(), start("critic.discount=0.9")
    rows = [f"{k // 20},{k % 20},{12 - k % 20 / 10},{k % 3},{k % 20 == 19}" for k in range(200)]
    (tmp_path / "missions.csv").write_text("\n".join(["mission,x,battery,cost,arrived", *rows, ""]))
    # The second is of another environment than the others, whose states are of one number; the last starts its own.
    daemons = (second, first, second, second, first, second, second, second, second)
    for daemon, snippet in zip(daemons, snippets, strict=True):
        environment = {**os.environ, "CRITICD_DATA_DIR": str(daemon.data_dir), "MPLBACKEND": "Agg"}
        done = subprocess.run(
            [sys.executable, "-c", snippet],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
    with second.client() as client:
        assert client.status()["offset"] == 1000
    assert {"walker.model", "walker.onnx", "walker.png"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("tool", [["mypy"], ["ruff", "check"], ["ruff", "format", "--check"]], ids=" ".join)
def test_the_sources_please_the_tools(tool: list[str], tmp_path: Path) -> None:
    options = ["--cache-dir", str(tmp_path)] if "format" not in tool else ["--no-cache"]
    sources = ["criticd", "tests", "benchmarks", "hatch_build.py", str(ROOT / "examples" / "python")]
    sources += [str(ROOT / "packaging" / "build"), str(ROOT / "examples" / "ros2")]
    done = subprocess.run(
        [sys.executable, "-m", *tool, *options, *sources],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def wheel_of(folder: Path, **environment: str) -> Path:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(PACKAGE)]
    subprocess.run(command, check=True, timeout=5 * PATIENCE_S, env={**os.environ, **environment})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.parametrize("learner", [False, True])
def test_a_wheel_with_the_program_is_for_its_platform_and_any_python_3(tmp_path: Path, learner: bool) -> None:
    program, module = tmp_path / "program", tmp_path / "module"
    program.write_bytes(b"what packaging/build makes")
    module.write_bytes(b"and what crates/python makes")
    files = {"CRITICD_WHEEL_BINARY": str(program), "CRITICD_WHEEL_LEARNER": str(module) if learner else ""}
    wheel = wheel_of(tmp_path, **files, CRITICD_WHEEL_PLATFORM="manylinux_2_34_x86_64")
    assert wheel.name == f"criticd-{criticd.__version__}-py3-none-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        if learner:
            assert archive.read("criticd/_learner.abi3.so") == module.read_bytes()
        (script,) = [name for name in archive.namelist() if name.endswith(".data/scripts/criticd")]
        assert archive.read(script) == program.read_bytes()
        (facts,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        tags = {"Root-Is-Purelib: false", "Tag: py3-none-manylinux_2_34_x86_64"}
        assert tags <= set(archive.read(facts).decode().splitlines())


def test_what_is_installed_is_typed_and_whole(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path)
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = {f"criticd/{path.name}" for path in (PACKAGE / "criticd").iterdir() if path.suffix in (".py", ".typed")}
    assert {"criticd/py.typed", "criticd/gym.py", "criticd/aio.py"} <= modules <= inside
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in inside if name.endswith("/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        (metadata,) = [name for name in inside if name.endswith("/METADATA")]
        facts = archive.read(metadata).decode()
    assert f"Version: {criticd.__version__}\n" in facts and "License-Expression: MIT\n" in facts
    # A link out of the package leads nowhere once it is installed.
    assert "](../" not in facts


def test_every_public_name_is_described() -> None:
    for name in criticd.__all__:
        thing = getattr(criticd, name)
        if isinstance(thing, str):
            continue
        assert thing.__doc__, name
        for key, value in vars(thing).items():
            if not key.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{key}"
