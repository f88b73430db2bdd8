"""Build hook: puts the program into the wheel of a platform (packaging/build); without it the wheel is pure Python."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface[Any]):
    """CRITICD_WHEEL_BINARY names the program, CRITICD_WHEEL_PLATFORM the wheel's platform tag."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the program as a script of the wheel, which installers put where programs of the environment are."""
        program = os.environ.get("CRITICD_WHEEL_BINARY")
        if self.target_name != "wheel" or version == "editable" or program is None:
            return
        build_data["shared_scripts"][program] = "criticd"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['CRITICD_WHEEL_PLATFORM']}"
