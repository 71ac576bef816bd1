"""`railwright shapes [WORD]`: the machines that are known by name."""

from __future__ import annotations

from railwright.cli.command import argument, command, json_option

COMMAND = command(
    "shapes",
    "shapes:list_shapes",
    """The machines that are known by name, those with WORD in their name, GPU or maker alone.

    Any of them is a machine for --host and --from, with changes like: hgx-h100 nics=2.

    \b
    railwright shapes
    railwright shapes h200
    """,
    argument("word", metavar="[WORD]", required=False, default=""),
    json_option("Print one JSON record for each machine."),
)
