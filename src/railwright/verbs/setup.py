"""`railwright setup`: installs optional parts that package dependencies cannot express."""

from __future__ import annotations

import click

from railwright.errors import RailwrightError, UsageError
from railwright.options.help import Command

_TIMEOUT_S = 1800.0


@click.command(cls=Command)
@click.argument("part", metavar="PART", type=click.Choice(["nixl"]))
@click.option("--wheels", metavar="FOLDER", help="Install from the wheels in this folder, without a package index.")
def setup(part: str, wheels: str | None) -> int:
    """Install an optional part into this Python environment.

    nixl: the NIXL transfer library without its declared dependency on torch, which is not needed here. The version and
    the hash of each wheel are pinned.
    """
    from importlib import resources
    from pathlib import Path

    from railwright.process import run

    with resources.as_file(resources.files("railwright.verbs") / f"{part}.requirements.txt") as requirements:
        pinned = requirements.read_text(encoding="utf-8").split()[0]
        hint = "check that a package index is reachable, or give a folder with --wheels"
        words = [*_find_pip(part), "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        if wheels is not None:
            hint = f"fill the folder where an index is reachable: pip download --no-deps --dest FOLDER {pinned}"
            if not any(Path(wheels).glob("*.whl")):
                raise UsageError(f"--wheels must name a folder with wheels, got {wheels}", hint=hint)
            words += ["--no-index", "--find-links", wheels]
        finished = run([*words, "--requirement", str(requirements)], timeout_s=_TIMEOUT_S)
    if finished.returncode:
        last = finished.output[-1] if finished.output else ""
        raise RailwrightError(f"installing {part} failed ({finished.describe()}): {last}", hint=hint)
    click.echo(f"{part} is installed")
    return 0


def _find_pip(part: str) -> list[str]:
    """Return the command that installs into this environment. Raises UsageError if there is none."""
    import shutil
    import sys

    from railwright.installation import PYTHON, find_installation, has_pip

    if find_installation().installer == "image":
        raise UsageError(
            f"the image is read-only, so {part} must be built into it",
            hint="build it without --without-nixl: scripts/build-image",
        )
    if has_pip():
        return [*PYTHON, "-m", "pip", "--disable-pip-version-check", "install"]
    if shutil.which("uv"):
        return ["uv", "pip", "install", "--python", sys.executable]
    raise UsageError(f"{sys.prefix} has no pip, and there is no uv", hint="python -m ensurepip, or install uv")
