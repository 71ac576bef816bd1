"""`railwright setup`: installs optional parts that package dependencies cannot express."""

from __future__ import annotations

import click

from railwright.errors import RailwrightError
from railwright.options.help import Command

_TIMEOUT_S = 1800.0


@click.command(cls=Command)
@click.argument("part", type=click.Choice(["nixl"]))
def setup(part: str) -> int:
    """Install an optional part into this Python environment.

    nixl: the NIXL transfer library without its declared dependency on torch, which is not needed here. The version and
    the hash of each wheel are pinned.
    """
    import sys
    from importlib import resources

    from railwright.process import run

    pip = (sys.executable, "-P", "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:",
           "--disable-pip-version-check", "--requirement")  # fmt: skip
    with resources.as_file(resources.files("railwright.verbs") / f"{part}.requirements.txt") as requirements:
        finished = run([*pip, str(requirements)], timeout_s=_TIMEOUT_S)
    if finished.returncode:
        last = finished.output[-1] if finished.output else ""
        reason = f"installing {part} failed ({finished.describe()}): {last}"
        raise RailwrightError(reason, hint="check that a package index is reachable")
    click.echo(f"{part} is installed")
    return 0
