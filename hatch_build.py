"""Builds the timed loops into one shared library with a C compiler: no vendor header or library, no Python API.

`cc` or `$CC` builds the library for this machine. With RAILWRIGHT_WHEEL_FOR=x86_64 or aarch64, Zig's C compiler builds
it for any Linux of that architecture with glibc 2.28 or later (`make wheels`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"]
ARCHITECTURES = ("x86_64", "aarch64")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)[^)]*\)")


class NativeBuildHook(BuildHookInterface):
    """Compiles src/railwright/native/*.c and tags the wheel for its platform, any Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the files of the wheel are collected."""
        del version  # "standard" or "editable": the library is built alike
        architecture = os.environ.get("RAILWRIGHT_WHEEL_FOR", "")
        compiler, platform = _compiler_for(architecture) if architecture else _local_compiler()
        folder = Path(self.root, "src/railwright/native")
        sources = sorted(str(path) for path in folder.glob("*.c"))
        try:
            subprocess.run([*compiler, *FLAGS, "-o", str(folder / "_loops.so"), *sources, "-ldl"], check=True)
        except FileNotFoundError as error:
            raise SystemExit(f"a C compiler is needed to build the timed loops: {compiler[0]} not found") from error
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"{' '.join(compiler)} cannot build the timed loops: exit status {error.returncode}"
            ) from error
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append("src/railwright/native/_loops.so")


class ReadmeHook(MetadataHookInterface):
    """Makes README the description of the package, where relative links would lead nowhere: only their text remains."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling before it writes the metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": LINK.sub(r"\2", text)}


def _local_compiler() -> tuple[list[str], str]:
    """Return this machine's compiler and platform."""
    return [os.environ.get("CC", "cc")], sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _compiler_for(architecture: str) -> tuple[list[str], str]:
    """Return the compiler and the platform of a wheel for an architecture."""
    if architecture not in ARCHITECTURES:
        raise SystemExit(f"RAILWRIGHT_WHEEL_FOR must be {' or '.join(ARCHITECTURES)}, got {architecture!r}")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.2.28", "-s"]
    return zig, f"manylinux_2_28_{architecture}"
