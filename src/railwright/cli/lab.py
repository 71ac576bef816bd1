"""`railwright lab`: an emulated fabric on this machine: hosts, leaves, spines, BGP, ECMP, rates, injected faults."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError, unknown_name

if TYPE_CHECKING:
    from railwright.lab.model import LabPlan
    from railwright.lab.status import LabStatus
    from railwright.topology.cluster import Cluster

_OTHERS = ("fault", "heal", "probe")


class LabVerbs(click.Group):
    """`up` and its like from this file; those that put faults in and try traffic from `cli.lab_faults`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        """All, in the order in which a lab is used."""
        own = list(self.commands)
        return [*own[:-1], *_OTHERS, *own[-1:]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name. Raises UsageError, with the nearest names."""
        if cmd_name in _OTHERS:
            module = importlib.import_module("railwright.cli.lab_faults")
            return next((command for command in module.lab_fault_commands if command.name == cmd_name), None)
        found = super().get_command(ctx, cmd_name)
        if found is None:
            raise unknown_name("lab command", cmd_name, self.list_commands(ctx))
        return found


@click.group("lab", cls=LabVerbs)
def COMMAND() -> None:  # noqa: N802 - see cli/prove.py
    """An emulated fabric on this machine: network namespaces, real BGP and ECMP, rates, faults. Needs root.

    \b
    railwright lab up hgx-h100 nics=2 --count 4
    railwright lab status
    railwright lab exec host0 -- ping -c 3 10.1.0.4
    railwright run mpi_all_reduce --lab lab --hosts host0,host2
    railwright lab fault link_slow leaf0 spine0
    railwright lab heal
    railwright lab down
    """  # noqa: D301 - click takes the backspace itself as the mark of lines to keep


@COMMAND.command("up")
@click.argument("words", nargs=-1, required=True, metavar="FILE|SHAPE [KEY=VALUE ...]")
@click.option("--count", "-k", type=int, help="How many hosts.")
@click.option("--name", default="lab", show_default=True, help="Of the lab; several may be up at once.")
@click.option("--leaf-hosts", type=int, help="Hosts that share their leaves, without a cluster file. [half of them]")
@click.option("--spines", type=int, help="Where the cluster file does not say how many. [2]")
@click.option("--rate", default="200Mb/s", show_default=True, help="Of a NIC's port; none: as fast as it goes.")
@click.option("--mtu", "mtu_bytes", type=int, default=9000, show_default=True, help="Of every link, in bytes.")
@click.option("--frr", type=click.Choice(["8", "10"]), default="8", show_default=True, help="FRR's release.")
@click.option("--ovs", is_flag=True, help="Give each host an Open vSwitch of its own.")
@click.option("--ssh", is_flag=True, help="Give each host an sshd, for its loopback addresses and a key of the lab.")
@click.option("--ipv6-only", is_flag=True, help="No IPv4, and two global IPv6 addresses on each port.")
@click.option("--most-nodes", type=int, default=64, show_default=True, help="Refuse a larger lab.")
@click.option("--dry-run", is_flag=True, help="Print what would be made, as JSON, and make nothing.")
def up(  # one option each
    words: tuple[str, ...],
    count: int | None,
    name: str,
    leaf_hosts: int | None,
    spines: int | None,
    rate: str,
    mtu_bytes: int,
    frr: str,
    ovs: bool,
    ssh: bool,
    ipv6_only: bool,
    most_nodes: int,
    dry_run: bool,
) -> int:
    """Make a lab of a cluster file (TOML), or of a shape and a count, and wait until all its routes are there."""
    import msgspec

    from railwright.lab.plan import PlanOptions, plan
    from railwright.units import parse_line_rate

    given = {
        "name": name, "frr": frr, "ovs": ovs, "ssh": ssh, "ipv6_only": ipv6_only, "mtu_bytes": mtu_bytes,
        "leaf_hosts": leaf_hosts, "spines": spines, "most_nodes": most_nodes,
        "rate_bits_per_s": None if rate == "none" else parse_line_rate(rate),
    }  # fmt: skip
    decided = plan(_cluster(words, count), msgspec.convert(given, PlanOptions))
    if dry_run:
        click.echo(msgspec.json.format(msgspec.json.encode(decided)).decode())
        return EXIT_OK
    return _make(decided)


def _make(plan: LabPlan) -> int:
    import time

    from railwright.lab.build import up as make

    begun = time.monotonic()
    make(plan, lambda text: click.echo(text, err=True))
    click.echo(f"lab {plan.name} is up after {time.monotonic() - begun:.1f} s: {plan.summary()}")
    return EXIT_OK


def _cluster(words: tuple[str, ...], count: int | None) -> Cluster:
    from pathlib import Path

    from railwright.cli.machine_option import the_cluster

    if len(words) == 1 and Path(words[0]).suffix == ".toml":
        return the_cluster(None, count, words[0])
    if count is None:
        raise UsageError("the number of hosts is not given", hint="add --count 4, or give a cluster file (TOML)")
    return the_cluster(" ".join(words), count, None)


@COMMAND.command("status")
@click.option("--name", help="Of the lab. [all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each lab.")
def status(name: str | None, as_json: bool) -> int:
    """The labs on this machine: their nodes, addresses, and what routes are missing.

    Exit status 1 where routes are missing, 3 where a lab never came up.
    """
    from concurrent.futures import ThreadPoolExecutor

    import msgspec

    from railwright.lab import state
    from railwright.lab.status import observe

    state.require_root()
    names = [state.open_lab(name).name] if name is not None else state.names()
    worst = EXIT_OK
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as executor:
        for each in names:
            seen = observe(state.open_lab(each), executor)
            worst = max(worst, {"up": EXIT_OK, "incomplete": EXIT_SLOW, "interrupted": EXIT_UNJUDGED}[seen.state])
            click.echo(msgspec.json.encode(seen).decode() if as_json else _status_text(seen))
    if not names and not as_json:
        click.echo("there is no lab here")
    return worst


def _status_text(seen: LabStatus) -> str:
    lines = [f"lab {seen.name}: {seen.state}"]
    for node in seen.nodes:
        routes = f"{node.routes_expected - node.routes_incomplete} of {node.routes_expected} routes"
        lacking = f", missing through {', '.join(node.ports_lacking[:6])}" if node.ports_lacking else ""
        text = (
            f"{node.name:<12} AS {node.asn}  {node.processes} processes  {routes}{lacking}  {' '.join(node.addresses)}"
        )
        lines.append(f"  {text}")
    if seen.ssh_config is not None:
        lines.append(f"  from host to host: ssh -F {seen.ssh_config} {seen.nodes[0].name}")
    return "\n".join(lines)


@COMMAND.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--name", help="Of the lab, where there are several.")
@click.argument("node")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT ...]")
def execute(name: str | None, node: str, argv: tuple[str, ...]) -> None:
    """Run a command in a node's namespace; its exit status is the command's."""
    from railwright.lab import state

    state.require_root()
    words = state.open_lab(name).argv_in(node, argv[1:] if argv[0] == "--" else argv)
    # Becomes the command: its terminal, signals and exit status are its own.
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted


@COMMAND.command("down")
@click.option("--name", help="Of the lab, where there are several.")
@click.option("--all", "every", is_flag=True, help="All labs.")
def down(name: str | None, every: bool) -> int:
    """End a lab, also one that was interrupted: processes, namespaces, files."""
    from railwright.lab import remove, state

    state.require_root()
    if every:
        if name is not None:
            raise UsageError("--all ends every lab, so --name says nothing", hint="give one of the two")
        ended = remove.down_all()
    else:
        ended = [state.open_lab(name).name]
        remove.down(ended[0])
    click.echo(f"ended {', '.join(ended)}" if ended else "there is no lab here")
    return EXIT_OK
