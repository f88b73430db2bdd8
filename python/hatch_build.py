"""Build hook: puts the program and the learner into the wheel of a platform; without them the wheel is pure Python."""

from __future__ import annotations

import os
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface[Any]):
    """Takes the files that the environment names.

    CRITICD_WHEEL_BINARY is the program, CRITICD_WHEEL_LEARNER the module that crates/python makes, and
    CRITICD_WHEEL_PLATFORM the wheel's platform tag, by default this machine's.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the program as a script, which installers put where programs of the environment are, and the module."""
        program, learner = (os.environ.get(f"CRITICD_WHEEL_{what}") for what in ("BINARY", "LEARNER"))
        if self.target_name != "wheel" or version == "editable" or not (program or learner):
            return
        if program:
            build_data["shared_scripts"][program] = "criticd"
        if learner:
            build_data["force_include"][learner] = "criticd/_learner.abi3.so"
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        platform = os.environ.get("CRITICD_WHEEL_PLATFORM", here)
        build_data["pure_python"] = False
        # The module is for 3.10 and later, as the package is.
        build_data["tag"] = f"py3-none-{platform}"
