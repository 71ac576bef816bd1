"""The machine that a verb is asked about, with a word where the capture it was read from is not whole."""

from __future__ import annotations

import click

from railwright.topology.devices import Topology
from railwright.topology.sources.load import damage, load


def the_machine(text: str | None) -> Topology:
    """The machine of `topology.sources.load`, as `told` says it. Raises UsageError."""
    return told(load(text))


def told(topology: Topology) -> Topology:
    """The topology; on standard error, that lines of its capture are missing or broken: then devices may be too."""
    if why := damage(topology):
        click.echo(f"railwright: {why}: devices and links may be missing", err=True)
        click.echo("hint: capture the machine again, or copy the whole file", err=True)
    return topology
