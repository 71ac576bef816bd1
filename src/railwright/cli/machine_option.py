"""`--from DIR|FILE|SHAPE [key=value ...]`, the same in every command that asks about a machine."""

from __future__ import annotations

import re

import click

from railwright.cli.command import Group, option

_FLAGS = ("--from", "--host")
_CHANGE = re.compile(r"[A-Za-z][A-Za-z_-]{0,40}=\S*")

MACHINE = option(
    *_FLAGS,
    "machine",
    metavar="DIR|FILE|SHAPE",
    help="A captured directory or .jsonl, a saved .json, or a shape with changes like: hgx-h100 nics=2."
    " Default: this machine.",
)
"""`machine`, ready for `sources.load.load`."""

CLUSTER = (
    MACHINE,
    option("--count", "-k", type=int, help="How many such hosts, joined without blocking."),
    option("--cluster", "cluster_file", metavar="FILE", help="A cluster file (TOML), with its fabric."),
)
"""`machine`, `count` and `cluster_file`, for `verbs.cluster.the_cluster`."""


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
        if word in _FLAGS and position < len(args):
            joined.append(args[position])
            position += 1
        elif not word.startswith(tuple(f"{flag}=" for flag in _FLAGS)):
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


class MachineGroup(Group):
    """A group with `--from` and changes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Joins the changes before click sees them."""
        return super().parse_args(ctx, join_changes(args))
