"""Where the program `criticd` is."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


def binary() -> Path:
    """The program `criticd`.

    It is the file that the environment variable CRITICD_BIN names, else the one that was installed with this package,
    else the first in the search path. Raises FileNotFoundError if there is none.
    """
    named = os.environ.get("CRITICD_BIN")
    if named:
        return Path(named)
    # Where an installer puts the programs of a wheel: of this environment, and of the user.
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    for scheme in schemes:
        installed = Path(sysconfig.get_path("scripts", scheme), "criticd")
        if os.access(installed, os.X_OK) and not installed.is_dir():
            return installed
    found = shutil.which("criticd")
    if found is None:
        raise FileNotFoundError(
            "there is no program `criticd`: install the wheel of your platform, which holds it, or build it "
            "with `cargo install --profile dist --path .` in a checkout; or name the file in the environment variable "
            "CRITICD_BIN"
        )
    return Path(found)
