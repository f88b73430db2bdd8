"""The evaluation in C says what the package says, of every kernel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from test_models import KINDS, of, states_for


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no compiler for C")
    made = tmp_path_factory.mktemp("c") / "value"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([compiler, *flags, ROOT / "examples" / "c" / "value.c", "-o", made, "-lm"], check=True)
    return made


@pytest.mark.parametrize("profile", ["gaussian", "matern52"])
@pytest.mark.parametrize("kind", ["isotropic", "ard", "factor"])
@pytest.mark.parametrize("kinds", list(KINDS))
def test_c_says_the_same(tmp_path: Path, program: Path, profile: str, kind: str, kinds: str) -> None:
    snapshot = of(profile, kind, kinds, rewards=2)
    snapshot.save(tmp_path / "model.msgpack")
    states = states_for(snapshot, 5)
    expected = snapshot(states, std=True, known=True)
    assert expected.std is not None and expected.known is not None
    for state, *wanted in zip(states, expected.mean[:, 0], expected.std, expected.known, strict=True):
        numbers = [repr(float(number)) for number in state]
        command = [str(program), str(tmp_path / "model.msgpack"), *numbers]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        np.testing.assert_allclose([float(number) for number in said[1::2]], wanted, rtol=1e-7, atol=1e-7)


def test_what_is_no_model_is_refused(tmp_path: Path, program: Path) -> None:
    of("gaussian", "ard", "real").save(tmp_path / "model.msgpack")
    content = (tmp_path / "model.msgpack").read_bytes()
    for length in range(0, len(content), 97):
        (tmp_path / "torn").write_bytes(content[:length])
        done = subprocess.run([program, tmp_path / "torn", "0", "0", "0"], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr, length
    done = subprocess.run([program, tmp_path / "model.msgpack", "0"], capture_output=True, text=True)
    assert done.returncode == 2 and "3 numbers" in done.stderr
