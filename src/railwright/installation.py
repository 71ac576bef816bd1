"""The origin of this installation, and the command that adds an optional part to it.

A wheel file, a clone and an index need different commands, and so do pip, pipx, uv, conda and the container image. The
metadata of the installed package tells them apart (PEP 610 for the origin).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

Installer = Literal["pip", "pipx", "uv", "uv tool", "image"]

PYTHON = (sys.executable, "-P") if sys.version_info >= (3, 11) else (sys.executable,)
"""The interpreter of child processes, without modules of the working folder where it can leave them out."""
PACKAGE = "railwright"
IMAGE_MARK = "railwright-image"
"""The INSTALLER of the package in the container image (scripts/build_image)."""
_IN_CONDA_FORGE = ("openmpi", "mpich", "mkl", "pyarrow", "h5py")
"""The packages with the same name on conda-forge. railwright itself is not there, and NVIDIA's have other names."""
_NAME = re.compile(r"[^\w.-]")
"""The end of a package's name in a requirement."""


class Installation(NamedTuple):
    """The program that installed this package, and the origin that it was given."""

    installer: Installer
    python: str
    """The interpreter, as pip is started with it: `pip` alone if the PATH finds the pip of this environment."""
    origin: str = ""
    """The URL of a wheel, a source archive, a folder or a repository; empty for an index."""
    is_editable: bool = False
    requirements: tuple[str, ...] = ()
    """The requirements of all extras, with their markers."""
    conda: tuple[str, ...] = ()
    """The words of conda's command that installs packages in this environment; empty without conda."""

    def add_extra(self, extra: str) -> str:
        """Return the command that installs an extra of this package, or its packages if the origin cannot be named.

        pipx and uv would look for this package itself again: what came from a folder of wheels, no index may have.
        """
        folder, parts = _local_path(self.origin), _select(self.requirements, extra)
        is_gone = not folder.exists() if folder is not None else not self.origin and self._is_alone
        if parts and (is_gone or self._has_conda(parts)):
            return self.add(*parts)
        source = f" @ {self.origin}" if self.origin else ""
        words = ["--editable", f"{folder}[{extra}]"] if self.is_editable else [f"{PACKAGE}[{extra}]{source}"]
        if self._is_alone:
            return shlex.join([*self.installer.split(), "install", "--force", *words])
        return self._command(*words)

    def add(self, *packages: str) -> str:
        """Return the command that installs other packages beside this one."""
        if self.installer == "pipx":
            return shlex.join(["pipx", "inject", PACKAGE, *packages])
        if self._has_conda(packages):
            return shlex.join([*self.conda, *packages])
        return self._command(*packages)

    @property
    def _is_alone(self) -> bool:
        """Report whether the environment was made for this package alone."""
        return self.installer in ("pipx", "uv tool")

    def _has_conda(self, packages: Sequence[str]) -> bool:
        names = [_NAME.split(package, maxsplit=1)[0] for package in packages]
        return bool(self.conda and names) and all(name in _IN_CONDA_FORGE for name in names)

    def _command(self, *words: str) -> str:
        if self.installer == "image":
            return "scripts/build-image --with FILE, with the requirements in FILE"
        if self.installer in ("uv", "uv tool"):
            return shlex.join(["uv", "pip", "install", "--python", self.python, *words])
        pip = ["pip"] if self.python == "pip" else [self.python, "-m", "pip"]
        return shlex.join([*pip, "install", *words])


def find_installation() -> Installation:
    """Read how this package was installed. A tree that was never installed counts as installed from an index."""
    import importlib.metadata

    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return Installation("pip", _pip(), conda=find_conda())
    origin, is_editable = _read_origin(package.read_text("direct_url.json") or "{}")
    installer = _find_installer((package.read_text("INSTALLER") or "").strip())
    python = _pip() if installer == "pip" else sys.executable
    return Installation(installer, python, origin, is_editable, tuple(package.requires or ()), find_conda())


def find_conda() -> tuple[str, ...]:
    """Return the words of conda's command that installs packages in this environment; empty outside of conda's."""
    if not Path(sys.prefix, "conda-meta").is_dir():
        return ()
    program = next((name for name in ("conda", "mamba", "micromamba") if shutil.which(name)), "")
    program = program or next((path for name in ("CONDA_EXE", "MAMBA_EXE") if (path := os.environ.get(name))), "")
    place = () if os.environ.get("CONDA_PREFIX") == sys.prefix else ("--prefix", sys.prefix)
    return (program, "install", *place, "--channel", "conda-forge") if program else ()


def has_pip() -> bool:
    """Report whether this environment has pip. Environments of uv have none."""
    return importlib.util.find_spec("pip") is not None


def _pip() -> str:
    found = shutil.which("pip")
    return "pip" if found and Path(found).parent == Path(sys.executable).parent else sys.executable


def _find_installer(name: str) -> Installer:
    if name == IMAGE_MARK:
        return "image"
    if Path(sys.prefix, "pipx_metadata.json").exists():
        return "pipx"
    if Path(sys.prefix, "uv-receipt.toml").exists():
        return "uv tool"
    return "uv" if name == "uv" or not has_pip() else "pip"


def _read_origin(text: str) -> tuple[str, bool]:
    """Return the URL of a direct_url.json as a requirement takes it, and whether a folder is installed in place."""
    try:
        origin = json.loads(text)
        url, repository = str(origin.get("url", "")), origin.get("vcs_info")
        if repository:
            return f"{repository['vcs']}+{url}@{repository['commit_id']}", False
        return url, bool(origin.get("dir_info", {}).get("editable", False))
    except (ValueError, AttributeError, KeyError, TypeError):
        return "", False


def _local_path(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _select(requirements: tuple[str, ...], extra: str) -> list[str]:
    """Return the requirements of an extra, without markers."""
    ends = (f"extra == '{extra}'", f'extra == "{extra}"')
    return [text.partition(";")[0].strip() for text in requirements if text.rstrip(" )").endswith(ends)]
