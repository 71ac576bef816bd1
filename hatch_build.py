"""Builds the timed loops into one shared library with a C compiler: no vendor header or library, no Python API.

A wheel also has the manual pages, rendered from the help of the commands.

`cc` or `$CC` builds the library for this machine. With RAILWRIGHT_WHEEL_FOR=x86_64 or aarch64, Zig's C compiler builds
it for any Linux of that architecture with glibc 2.28 or later (`make wheels`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"]
ARCHITECTURES = ("x86_64", "aarch64")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)[^)]*\)")


class NativeBuildHook(BuildHookInterface):
    """Compiles src/railwright/native/*.c, renders the manual pages, and tags the wheel: its platform, any Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the files of the wheel are collected."""
        if version == "standard":  # an editable wheel has no data of its own
            self._pages = tempfile.mkdtemp(prefix="railwright-man-")
            build_data["shared_data"] |= _render_man_pages(Path(self.root, "src"), Path(self._pages))
        architecture = os.environ.get("RAILWRIGHT_WHEEL_FOR", "")
        compiler, platform = _compiler_for(architecture) if architecture else _local_compiler()
        folder = Path(self.root, "src/railwright/native")
        sources = sorted(str(path) for path in folder.glob("*.c"))
        try:
            subprocess.run([*compiler, *FLAGS, "-o", str(folder / "_loops.so"), *sources, "-ldl"], check=True)
        except OSError as error:
            raise SystemExit(
                f"a C compiler is needed to build the timed loops: {compiler[0]}: {error.strerror}"
            ) from error
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"{' '.join(compiler)} cannot build the timed loops: exit status {error.returncode}"
            ) from error
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append("src/railwright/native/_loops.so")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after the wheel is built."""
        del build_data, artifact_path
        if version == "standard":
            shutil.rmtree(self._pages, ignore_errors=True)


class ReadmeHook(MetadataHookInterface):
    """Makes README the description of the package, where relative links would lead nowhere: only their text remains."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling before it writes the metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": LINK.sub(r"\2", text)}


def _render_man_pages(source: Path, folder: Path) -> dict[str, str]:
    """Write a page for each command into the folder. Returns the place of each in an installation."""
    sys.path.insert(0, str(source))
    try:
        from railwright import __version__
        from railwright.main import cli
        from railwright.options.man_page import render_man_pages
    finally:
        sys.path.remove(str(source))
    pages = render_man_pages(cli, __version__)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {str(folder / name): f"share/man/man1/{name}" for name in pages}


def _local_compiler() -> tuple[list[str], str]:
    """Return this machine's compiler, which `CC` may name with arguments, and its platform."""
    try:
        words = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise SystemExit(f"CC must be a command line, got {os.environ['CC']!r}: {error}") from error
    return words, sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _compiler_for(architecture: str) -> tuple[list[str], str]:
    """Return the compiler and the platform of a wheel for an architecture."""
    if architecture not in ARCHITECTURES:
        raise SystemExit(f"RAILWRIGHT_WHEEL_FOR must be {' or '.join(ARCHITECTURES)}, got {architecture!r}")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.2.28", "-s"]
    return zig, f"manylinux_2_28_{architecture}"
