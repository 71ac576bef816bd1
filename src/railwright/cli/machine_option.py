"""`--from DIR|FILE|SHAPE [key=value ...]`, the same in every command that asks about a machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from railwright.topology.cluster import Cluster

_FLAGS = ("--from", "--host")
_CHANGE = re.compile(r"[a-z][a-z-]{0,40}=\S*")


def machine_option(command: Any) -> Any:  # noqa: ANN401 (click's decorators are typed so)
    """Adds `--from` (or `--host`); the value is given to the command as `machine`, ready for `sources.load.load`."""
    return click.option(
        *_FLAGS,
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
        if word in _FLAGS and position < len(args):
            joined.append(args[position])
            position += 1
        elif not word.startswith(tuple(f"{flag}=" for flag in _FLAGS)):
            continue
        while position < len(args) and _CHANGE.fullmatch(args[position]):
            joined[-1] += f" {args[position]}"
            position += 1
    return joined + args[position:]


def cluster_options(command: Any) -> Any:  # noqa: ANN401
    """Adds `--host`, `--count` and `--cluster`, for `the_cluster`."""
    command = click.option("--cluster", "cluster_file", metavar="FILE", help="A cluster file (TOML), with its fabric.")(
        command
    )
    command = click.option("--count", "-k", type=int, help="How many such hosts, joined without blocking.")(command)
    return machine_option(command)


def the_cluster(machine: str | None, count: int | None, cluster_file: str | None) -> Cluster:
    """The cluster that the options name. Raises UsageError."""
    from pathlib import Path

    from railwright.errors import UsageError
    from railwright.topology.cluster import cluster_of
    from railwright.topology.sources.cluster_file import load_cluster
    from railwright.topology.sources.load import load

    if cluster_file is None:
        return cluster_of(load(machine), 1 if count is None else count)
    if machine is not None:
        raise UsageError("--cluster names the machines, so --host says them twice", hint="give one of the two")
    found = load_cluster(Path(cluster_file))
    if count is None:
        return found
    return cluster_of(found.host, count, found.fabric, found.storage, found.name)


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
