"""The package as somebody gets it: its README, its types, its wheel."""

from __future__ import annotations

import contextlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, ROOT, Start, when

import criticd

PACKAGE = ROOT / "python"


@pytest.mark.long
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
def test_the_sources_please_the_tools(tool: list[str]) -> None:
    # What mypy knows of libraries takes it longest.
    options = ["--cache-dir", str(ROOT / "target" / tool[0])] if "format" not in tool else ["--no-cache"]
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


# Run elsewhere, or not: these want a fleet of processes, Stable-Baselines3, a key, Ray, or minutes.
ELSEWHERE = ("criticd.fleet.", "criticd.sb3.", "criticd.Keys", "criticd.ray.", "criticd.river.", "criticd.agent")
# Public methods without an example: none is added.
METHODS_WITHOUT = 79


def described() -> dict[str, Any]:
    """What the reference has a chapter for, by name."""
    found = {}
    for name in re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE):
        with contextlib.suppress(ImportError, AttributeError):
            found[name] = pkgutil.resolve_name(name)
    return found


def examples(thing: Any) -> list[str]:
    return re.findall(r"```python\n(.*?)```", inspect.getdoc(thing) or "", re.DOTALL)


def methods(thing: Any) -> list[Any]:
    found = vars(thing).items() if inspect.isclass(thing) else ()
    return [part for key, part in found if not key.startswith("_") and callable(part)]


def test_every_public_name_is_described() -> None:
    chapters = described()
    things = {id(thing) for thing in chapters.values()}
    assert {name for name in criticd.__all__ if id(getattr(criticd, name)) not in things} == {"__version__"}
    without = 0
    for name, thing in chapters.items():
        for part in [thing, *methods(thing)]:
            lines = (inspect.getdoc(part) or "").splitlines()
            assert lines and lines[0].endswith((".", ":")) and not any(lines[1:2]), (name, part)
            without += part is not thing and not examples(part)
        # The types of the status are made from the table of the protocol.
        assert examples(thing) or name == "criticd.Status", name
    assert without <= METHODS_WITHOUT, without


@pytest.mark.long
def test_the_examples_of_the_reference_run(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advisor = '[[advisor]]\nname = "throw"\nlengthscales = [1.4]\noutputs = [{ mean = 0.0, deviation = 1.0 }]\n'
    energy = '[{ name = "energy", cumulant = { kind = "reward", index = 0 }, discount = 0.5 }]'
    daemon = start(*CALM, "critic.dictionary_max=20", "critic.discount=0.9", f"critic.heads={energy}", config=advisor)
    monkeypatch.setenv("CRITICD_DATA_DIR", str(daemon.data_dir))
    generator = np.random.default_rng(0)
    at = np.tile(np.arange(20) / 2.0, 10)
    missions = {"mission": np.repeat(np.arange(10), 20), "x": at, "battery": 12 - at / 10, "cost": at % 3}
    missions["arrived"] = at == 9.5
    log = {"episode": missions["mission"], "x": at / 10, "v": generator.normal(size=200), "battery": 12 - at / 10}
    log |= {"angle": generator.normal(size=200), "speed": generator.normal(size=200)}
    log |= {"go": generator.integers(3, size=200), "torque": generator.normal(size=200), "terminated": at == 9.5}
    states = generator.normal(size=(400, 1))
    rewards, next_states, terminated = -np.abs(states[:, 0]), 0.9 * states, np.arange(400) % 20 == 19
    rows = {"states": states, "rewards": rewards, "next_states": next_states, "terminated": terminated}
    rows |= {"actions": generator.integers(2, size=400), "behavior_probs": np.full(400, 0.5)}
    with daemon.sender(stream="walker", session="run-7", reliable=True) as sender, daemon.client() as client:
        sender.send_batch(states, rewards, next_states, terminated=terminated)
        assert sender.flush(PATIENCE_S)
        when(lambda: client.status()["critics"][0]["generation"] >= 1, "a first model")
        heads = [{"name": "energy", "cumulant": {"kind": "reward", "index": 0}, "discount": 0.5}]
        table = {"x": states[:, 0], "next_x": next_states[:, 0], "reward": rewards, "terminated": terminated}
        model = criticd.fit(table, state=["x"], reward="reward", terminated="terminated", heads=heads, discount=0.9)
        model.save("walker.model")
        for name in ("north", "south"):
            learner = criticd.Learner(discount=0.9)
            learner.learn(states, rewards, next_states, terminated=terminated, stream=name)
            learner.save(f"{name}.model")
        Path("notes.txt").write_text("no model")
        world = {**vars(criticd), **locals(), "np": np, "points": states, "heights": rewards, "criticd": criticd}
        world |= {"Learner": criticd.Learner, "critic": daemon.subscriber(), "gymnasium": gymnasium, "q": None}
        chapters = described()
        # Decisions follow a plan.
        exec(examples(chapters["criticd.plan"])[0], world)
        for name, thing in chapters.items():
            for part in [] if name.startswith(ELSEWHERE) else [thing, *methods(thing)]:
                for example in examples(part):
                    print(name, example, sep="\n")
                    exec(example, {**world, **vars(sys.modules[getattr(thing, "__module__", name)])})
