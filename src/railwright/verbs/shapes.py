"""`railwright shapes [WORD]`: lists the machines that are known by name, or prints one as a file."""

from __future__ import annotations

import click

from railwright.errors import EXIT_OK, UsageError
from railwright.options.completion import complete_shape
from railwright.options.help import Command
from railwright.options.output import json_option


@click.command(cls=Command)
@click.argument("words", metavar="[WORD | show SHAPE | parts [WORD]]", nargs=-1, shell_complete=complete_shape)
@json_option("Print one JSON record for each machine.")
def shapes(words: tuple[str, ...], as_json: bool) -> int:
    """List the machines that are known by name, or only those with WORD in their name, GPU or maker.

    Use a name with --host or --from, optionally with changes, like hgx-h100 nics=2.
    `show` prints a machine as a TOML file for --host, to change. `parts` lists the parts that such a file can name.

    \b
    railwright shapes
    railwright shapes h200
    railwright shapes show hgx-h100 nics=4 > machine.toml
    railwright shapes parts connectx
    """
    match words:
        case ("show", *named):
            _show(" ".join(named), as_json=as_json)
        case ("parts", *filters) if len(filters) < 2:
            _list_parts("".join(filters).lower(), as_json=as_json)
        case () | (_,):
            _list_shapes("".join(words), as_json=as_json)
        case _:
            raise UsageError("only one word can be looked for", hint=f"railwright shapes {words[0][:60]}")
    return EXIT_OK


def _list_shapes(word: str, *, as_json: bool) -> None:
    from railwright.report.formats.json_line import json_line
    from railwright.report.text.collectives import labelled
    from railwright.topology.shapes import SHAPES
    from railwright.topology.shapes.catalogue import CATALOGUE

    aliases = CATALOGUE.names.shapes

    def describe(name: str) -> str:
        shape = SHAPES[name]
        gpu = shape.gpu.name if shape.gpu is not None else ""
        return " ".join((name, *aliases[name], shape.title, gpu)).lower()

    found = [name for name in SHAPES if word.lower() in describe(name)]
    if not found:
        raise UsageError(
            f"no known machine has {word[:60]!r} in its name, GPU or maker", hint="list all with: railwright shapes"
        )
    for name in found:
        if as_json:
            click.echo(json_line({"shape": name, "title": SHAPES[name].title, "aliases": aliases[name]}))
            continue
        also = f" (also {', '.join(aliases[name])})" if aliases[name] else ""
        click.echo("\n".join([name, *labelled("", f"{SHAPES[name].title}{also}")]))


def _show(named: str, *, as_json: bool) -> None:
    """Print a shape with its changes as a file: all parts in full, each with its sources."""
    from railwright.report.formats.json_line import json_line
    from railwright.report.formats.shape_toml import render_shape
    from railwright.topology.plan import apply_changes
    from railwright.topology.sources.load import name_shape

    if not named:
        raise UsageError("show needs the name of a machine", hint="railwright shapes show hgx-h100")
    shape = apply_changes(*name_shape(named))
    click.echo(json_line(shape) if as_json else render_shape(shape), nl=as_json)


def _list_parts(word: str, *, as_json: bool) -> None:
    """Print the names that a machine's file can give for its parts."""
    from railwright.report.formats.json_line import json_line
    from railwright.topology.shapes.catalogue import CATALOGUE

    rows = [
        (kind, key, getattr(part, "name", "") or part.source)
        for kind, known in CATALOGUE.parts().items()
        for key, part in known.items()
        if word in f"{kind} {key} {getattr(part, 'name', '')}".lower()
    ]
    if not rows:
        raise UsageError(f"no part has {word[:60]!r} in its name", hint="list all with: railwright shapes parts")
    for kind, key, title in rows:
        click.echo(
            json_line({"kind": kind, "part": key, "title": title}) if as_json else f"{kind:6}  {key:28}  {title}"
        )
