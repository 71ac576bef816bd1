"""Builds the timed loops into one shared library with plain `cc`: no vendor header or library, no Python API."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"]


class NativeBuildHook(BuildHookInterface):
    """Compiles src/railwright/native/*.c and tags the wheel for this platform, any Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the files of the wheel are collected."""
        del version  # "standard" or "editable": the library is built alike
        folder = Path(self.root, "src/railwright/native")
        library = folder / "_loops.so"
        sources = sorted(str(path) for path in folder.glob("*.c"))
        compiler = os.environ.get("CC", "cc")
        try:
            subprocess.run([compiler, *FLAGS, "-o", str(library), *sources, "-ldl"], check=True)
        except FileNotFoundError as error:
            raise SystemExit(f"railwright needs a C compiler to build its timed loops: {compiler} not found") from error
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append("src/railwright/native/_loops.so")
