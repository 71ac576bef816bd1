"""`--from DIR|FILE|SHAPE [key=value ...]`, the same in every command that asks about a machine."""

from __future__ import annotations

import re
from typing import Any

import click

_CHANGE = re.compile(r"[a-z][a-z-]{0,40}=\S*")


def machine_option(command: Any) -> Any:  # noqa: ANN401 (click's decorators are typed so)
    """Adds `--from`; the value is given to the command as `machine`, ready for `sources.load.load`."""
    return click.option(
        "--from",
        "machine",
        metavar="DIR|FILE|SHAPE",
        help="A captured directory or .jsonl, a saved .json, or a shape with changes like: hgx-h100 nics=2."
        " Default: this machine.",
    )(command)


def join_changes(args: list[str]) -> list[str]:
    """Joins the words after `--from SHAPE` to one argument, so that `--from hgx-h100 nics=2` needs no quotes."""
    joined: list[str] = []
    position = 0
    while position < len(args):
        word = args[position]
        joined.append(word)
        position += 1
        if word == "--":
            break
        if word == "--from" and position < len(args):
            joined.append(args[position])
            position += 1
        elif not word.startswith("--from="):
            continue
        while position < len(args) and _CHANGE.fullmatch(args[position]):
            joined[-1] += f" {args[position]}"
            position += 1
    return joined + args[position:]


class MachineCommand(click.Command):
    """A command with `--from` and changes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Joins the changes before click sees them."""
        return super().parse_args(ctx, join_changes(args))


class MachineGroup(click.Group):
    """A group with `--from` and changes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Joins the changes before click sees them."""
        return super().parse_args(ctx, join_changes(args))
