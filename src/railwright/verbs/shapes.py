"""`railwright shapes [WORD]`: lists the machines that are known by name."""

from __future__ import annotations

import click

from railwright.errors import EXIT_OK, UsageError
from railwright.options.completion import complete_shape
from railwright.options.help import Command
from railwright.options.output import json_option


@click.command(cls=Command)
@click.argument("word", metavar="[WORD]", required=False, default="", shell_complete=complete_shape)
@json_option("Print one JSON record for each machine.")
def shapes(word: str, as_json: bool) -> int:
    """List the machines that are known by name, or only those with WORD in their name, GPU or maker.

    Use a name with --host or --from, optionally with changes, like hgx-h100 nics=2.

    \b
    railwright shapes
    railwright shapes h200
    """
    from railwright.report.formats.json_line import json_line
    from railwright.report.text.collectives import labelled
    from railwright.topology.shapes import SHAPES

    def words(name: str) -> str:
        shape = SHAPES[name]
        return " ".join((name, *shape.aliases, shape.title, shape.gpu.name if shape.gpu is not None else "")).lower()

    found = [name for name in SHAPES if word.lower() in words(name)]
    if not found:
        raise UsageError(
            f"no known machine has {word[:60]!r} in its name, GPU or maker", hint="list all with: railwright shapes"
        )
    for name in found:
        shape = SHAPES[name]
        if as_json:
            click.echo(json_line({"shape": name, "title": shape.title, "aliases": shape.aliases}))
            continue
        also = f" (also {', '.join(shape.aliases)})" if shape.aliases else ""
        click.echo("\n".join([name, *labelled("", f"{shape.title}{also}")]))
    return EXIT_OK
