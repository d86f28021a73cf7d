"""Puts the list of what the wheel needs (CycloneDX) into the wheel: dist-info/sboms/sbom.cdx.json."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SbomHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        subprocess.run([sys.executable, str(root / "scripts" / "sbom.py"), "sbom"], check=True)
        build_data["sbom_files"].append("build/sbom.cdx.json")
