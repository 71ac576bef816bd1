"""`--from DIR|FILE|SHAPE [key=value ...]`, the same in every command that asks about a machine."""

from __future__ import annotations

import importlib
import os
import re

import click

from railwright.cli.command import Group, option

FROM_FLAGS = ("--from", "--host", "--shape")
_CHANGE = re.compile(r"[A-Za-z][A-Za-z_-]{0,40}=\S*")
_BARE = re.compile(
    r"ib|infiniband|roce(v?2)?|efa|[ehnx]dr|\d{1,4}(\.\d+)?[gt](b(it)?(ps|/s)?)?"  # changes that need no key
    r"|nvl\d{0,3}|sxm\d?|pcie|ada|pro|v\d|\d{1,2}x|x\d{1,2}|\d{4}|\d{2,3}gb|(a|b|h|l|v|gb|gh|mi)\d{2,3}[aesx]?",
    re.IGNORECASE,
)
"""Words that are a part of a shape's name or change it, and that nothing else on a command line is."""


def _shapes(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The names that a word can become, for the completion of a shell."""
    known = importlib.import_module("railwright.topology.shapes")
    return [name for name in (*known.SHAPES, *known.ALIASES) if name.lower().startswith(begun.lower())]


MACHINE = option(
    *FROM_FLAGS,
    "machine",
    metavar="DIR|FILE|SHAPE",
    shell_complete=_shapes,
    help="A captured directory or .jsonl, a saved .json, NCCL's topology XML, the text of nvidia-smi topo -m (with"
    " gpu=H100 nic-rate=400Gb/s), or a shape with changes like: hgx-h100 nics=2. Default: this machine.",
)
"""`machine`, ready for `sources.load.load`."""

CLUSTER = (
    MACHINE,
    option("--count", "--nodes", "-k", "count", type=int, help="How many such hosts, joined without blocking."),
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
        if word in FROM_FLAGS and position < len(args):
            joined.append(args[position])
            position += 1
        elif not word.startswith(tuple(f"{flag}=" for flag in FROM_FLAGS)):
            continue
        while position < len(args) and _is_of_machine(args[position]):
            joined[-1] += f" {args[position]}"
            position += 1
    return joined + args[position:]


def _is_of_machine(word: str) -> bool:
    """Whether a word behind a shape belongs to it: a change, or more of its name where no file has that name."""
    if _CHANGE.fullmatch(word) is not None:
        return True
    return _BARE.fullmatch(word) is not None and not os.path.exists(word)  # noqa: PTH110 - without pathlib


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
