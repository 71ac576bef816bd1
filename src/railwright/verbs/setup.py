"""Optional parts, installed into this Python environment."""

from __future__ import annotations

import sys
from importlib import resources

import click

from railwright.errors import RailwrightError
from railwright.launch.install import install


def setup(part: str) -> int:
    """Install the part. Raises RailwrightError where pip fails."""
    with resources.as_file(resources.files("railwright.launch") / f"{part}.requirements.txt") as requirements:
        finished = install(sys.executable, requirements)
    if finished.returncode:
        last = finished.output[-1] if finished.output else ""
        reason = f"installing {part} failed ({finished.describe()}): {last}"
        raise RailwrightError(reason, hint="is a package index reachable?")
    click.echo(f"{part} is installed")
    return 0
