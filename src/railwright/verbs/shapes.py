"""The machines that are known by name."""

from __future__ import annotations

import click
import msgspec

from railwright.errors import EXIT_OK, UsageError
from railwright.report.text.collectives import labelled
from railwright.topology.shapes import SHAPES
from railwright.topology.shapes.parts import Shape


def list_shapes(word: str, as_json: bool) -> int:
    """Print the machines that a word names, all of them without one; the exit status. Raises UsageError for none."""
    found = {name: shape for name, shape in SHAPES.items() if word.lower() in _words(name, shape)}
    if not found:
        raise UsageError(f"no known machine has {word[:60]!r} in its name", hint="railwright shapes lists them all")
    for name, shape in found.items():
        if as_json:
            record = {"shape": name, "title": shape.title, "aliases": shape.aliases}
            click.echo(msgspec.json.encode(record).decode())
            continue
        also = f" (also {', '.join(shape.aliases)})" if shape.aliases else ""
        click.echo(name)
        for line in labelled("", f"{shape.title}{also}"):
            click.echo(line)
    return EXIT_OK


def _words(name: str, shape: Shape) -> str:
    gpu = shape.gpu.name if shape.gpu is not None else ""
    return " ".join((name, *shape.aliases, shape.title, gpu)).lower()
