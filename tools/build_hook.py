"""Hook of hatchling: a wheel and an sdist have the commit that they were built of, a release (`HARMONY_RELEASE=1`) an empty one."""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Adds the file with the commit."""

    PLUGIN_NAME = "custom"
    _made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file, and add it to the build. An editable installation reads the checkout itself."""
        if version == "editable":
            return
        root = Path(self.root)
        checkout = runpy.run_path(str(root / "conformance" / "harmony_conformance" / "runtime" / "checkout.py"))
        name = checkout["COMMIT_FILE"]
        self._made = Path(mkdtemp())
        commit = "" if os.environ.get("HARMONY_RELEASE") else checkout["commit_of"](root)
        (self._made / name).write_text(f"{commit}\n", encoding="utf-8")
        place = name if self.target_name == "sdist" else f"harmony_conformance/{name}"
        build_data["force_include"][str(self._made / name)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file."""
        del version, build_data, artifact_path
        if self._made is not None:
            shutil.rmtree(self._made)
