"""Optional parts, installed into this Python environment."""

from __future__ import annotations

import sys
from importlib import resources

import click

from railwright.errors import RailwrightError
from railwright.process import run

_PIP = (sys.executable, "-P", "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:",
        "--disable-pip-version-check", "--requirement")  # fmt: skip
"""With the hashes of every wheel, and without the dependencies that wheels declare."""
_TIMEOUT_S = 1800.0


def setup(part: str) -> int:
    """Install the part. Raises RailwrightError where pip fails."""
    with resources.as_file(resources.files("railwright.verbs") / f"{part}.requirements.txt") as requirements:
        finished = run([*_PIP, str(requirements)], timeout_s=_TIMEOUT_S)
    if finished.returncode:
        last = finished.output[-1] if finished.output else ""
        reason = f"installing {part} failed ({finished.describe()}): {last}"
        raise RailwrightError(reason, hint="is a package index reachable?")
    click.echo(f"{part} is installed")
    return 0
