"""`railwright setup`: installs optional parts that a plain dependency cannot express."""

from __future__ import annotations

import click

from railwright.cli.command import argument, command

COMMAND = command(
    "setup",
    "setup:setup",
    """Install an optional part into this Python environment.

    nixl: the NIXL transfer library without its declared dependency on torch, which it does not need here; the exact
    version and the hash of each wheel are fixed.
    """,
    argument("part", type=click.Choice(["nixl"])),
)
