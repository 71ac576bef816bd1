"""The option `--from DIR|FILE|SHAPE [key=value ...]`, which selects the machine in every command that uses one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from railwright.errors import UsageError
from railwright.options.completion import complete_shape
from railwright.options.group import Group, combine
from railwright.options.help import Command

if TYPE_CHECKING:
    from railwright.topology.cluster import Cluster
    from railwright.topology.devices import Topology

FROM_FLAGS = ("--from", "--host", "--shape")
_CHANGE = re.compile(r"[A-Za-z][A-Za-z_-]{0,40}=\S*")
_BARE = re.compile(
    r"ib|infiniband|roce(v?2)?|efa|[ehnx]dr|\d{1,4}(\.\d+)?[gt](b(it)?(ps|/s)?)?"  # changes without a key
    r"|nvl\d{0,3}|sxm\d?|pcie|ada|pro|v\d|\d{1,2}x|x\d{1,2}|\d{4}|\d{2,3}gb|(a|b|h|l|v|gb|gh|mi)\d{2,3}[aesx]?",
    re.IGNORECASE,
)
"""Words that belong to a shape's name or change it. No other argument has this form."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,60}")
_DEVICE = re.compile(r"(gpu|nic|cpu|memory|switch|nvswitch|fabric|card|root_port|host|nvme|sd)\w{0,20}\d")
_PAIR = r"([a-z][a-z0-9]{0,40}(?:@\d{1,7})?)\s?(?:->|=>|>|:|→|,)\s?([a-z][a-z0-9]{0,40}(?:@\d{1,7})?)"


machine_option = combine(
    click.option(
        *FROM_FLAGS,
        "machine",
        metavar="DIR|FILE|SHAPE",
        shell_complete=complete_shape,
        help="A captured directory or .jsonl, a saved .json, NCCL's topology XML, the output of nvidia-smi topo -m"
        " (with gpu=H100 nic-rate=400Gb/s), or a shape with changes, like hgx-h100 nics=2. Default: this machine.",
    ),
    section="Machine",
)
"""Sets `machine`, which `load_machine` takes."""

gpus_option = click.option("--gpus", type=int, metavar="N", help="Number of GPUs, from which follows that of hosts.")
cluster_options = combine(
    machine_option,
    click.option("--count", "--nodes", "-k", "count", type=int, help="Number of such hosts, on a non-blocking fabric."),
    gpus_option,
    click.option("--cluster", "cluster_file", metavar="FILE", help="A cluster file (TOML) that describes the fabric."),
    section="Machine",
)
"""Sets `machine`, `count`, `gpus` and `cluster_file` for `resolve_cluster`."""


def join_changes(args: list[str], may_belong: Callable[[str], bool] = lambda _: False) -> list[str]:
    """Join the words after `--from SHAPE` into one argument, so that `--from hgx-h100 nics=2` needs no quotes.

    `may_belong` tells which unknown words belong to the machine, so that an error about the machine names them.
    """
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
        while position < len(args) and (_belongs_to_machine(args[position]) or may_belong(args[position])):
            joined[-1] += f" {args[position]}"
            position += 1
    return joined + args[position:]


def _belongs_to_machine(word: str) -> bool:
    """Report whether a word after a shape belongs to it: a change, or a part of its name that is not a file."""
    if _CHANGE.fullmatch(word) is not None:
        return True
    return _BARE.fullmatch(word) is not None and not os.path.exists(word)  # noqa: PTH110 - without pathlib


def _is_word(word: str) -> bool:
    return not word.startswith("-")


def is_device(word: str) -> bool:
    """Report whether a word is the id of a device, like `gpu0`."""
    return _DEVICE.fullmatch(word) is not None


def _may_be_name(word: str) -> bool:
    """Report whether a word may be a misspelt part of a machine's name: not a file, a shape, a path or a device."""
    if _WORD.fullmatch(word) is None or is_device(word) or os.path.exists(word):  # noqa: PTH110 - without pathlib
        return False
    from railwright.topology.shapes import canonical_name

    return canonical_name(word) is None


class MachineCommand(Command):
    """A command with `--from` and changes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the changes before click parses them. Without arguments of its own, every word is the machine's."""
        takes_words = any(isinstance(parameter, click.Argument) for parameter in self.params)
        return super().parse_args(ctx, join_changes(args, _may_be_name if takes_words else _is_word))


class MachineGroup(Group):
    """A group with `--from` and changes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the changes before click parses them."""
        return super().parse_args(ctx, join_changes(args, lambda word: _is_word(word) and word not in self.commands))


def load_machine(text: str | None, *, by_board: bool = True) -> Topology:
    """Load a machine with `topology.sources.load`, and warn of damage. Raises UsageError if that fails."""
    from railwright.topology.sources.load import load

    return warn_of_damage(load(text, by_board=by_board))


def warn_of_damage(topology: Topology) -> Topology:
    """Print a warning if lines of a topology's capture are missing or broken. Returns the topology."""
    from railwright.topology.sources.load import damage

    if why := damage(topology):
        click.echo(f"railwright: {why}; devices and links may be missing", err=True)
        click.echo("hint: capture the machine again, or copy the whole file", err=True)
    return topology


def resolve_cluster(
    machine: str | None, count: int | None, cluster_file: str | None, gpus: int | None = None
) -> Cluster:
    """Build the cluster that the options describe. A single host is a cluster of one.

    Raises UsageError for conflicting options and for files that cannot be loaded.
    """
    from railwright.topology.cluster import build_cluster

    refuse_both(count, gpus)
    if cluster_file is None:
        host, hosts = load_hosts(machine, count, gpus)
        return build_cluster(host, 1 if hosts is None else hosts)
    if machine is not None:
        raise UsageError("--cluster and --host exclude each other", hint="give one of the two")
    found = load_planned_cluster(cluster_file)
    hosts = derive_count(found.host, count, gpus)
    if hosts is None:
        return found
    return build_cluster(found.host, hosts, found.fabric, found.storage, found.name)


def refuse_both(count: int | None, gpus: int | None) -> None:
    """Raise UsageError if both hosts and GPUs are counted."""
    if count is not None and gpus is not None:
        raise UsageError("--count and --gpus exclude each other", hint="--count is a number of hosts, --gpus of GPUs")


def load_hosts(machine: str | None, count: int | None, gpus: int | None) -> tuple[Topology, int | None]:
    """Load the machine, and return it with the number of hosts; None if neither hosts nor GPUs were counted.

    Fewer GPUs than a shape has are so many GPUs of one host, not a board with fewer. Raises UsageError for GPUs that do
    not fill whole hosts.
    """
    host = load_machine(machine)
    is_whole = machine is None or host.source != "shape" or any(word.startswith("gpus=") for word in machine.split())
    if gpus is not None and not is_whole and 0 < gpus < len(host.of_kind("gpu")):
        return load_machine(f"{machine} gpus={gpus}", by_board=False), 1
    return host, derive_count(host, count, gpus)


def derive_count(host: Topology, count: int | None, gpus: int | None) -> int | None:
    """Return the number of hosts, from that of GPUs if it was given. Raises UsageError."""
    from railwright.topology.cluster import count_hosts

    return count if gpus is None else count_hosts(host, gpus)


def load_planned_cluster(file: str) -> Cluster:
    """Load a cluster file, and warn of damage to its host's capture. Raises UsageError if that fails."""
    from pathlib import Path

    from railwright.topology.sources.cluster_file import load_cluster

    found = load_cluster(Path(file))
    warn_of_damage(found.host)
    return found


def normalize_path(text: str, sign: str) -> str:
    """Rewrite a pair of devices like `gpu0->gpu1` with `sign` as the separator. Returns other text unchanged."""
    found = re.fullmatch(_PAIR, text.strip())
    return f"{found[1]}{sign}{found[2]}" if found is not None else text
