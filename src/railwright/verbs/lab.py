"""`railwright lab`: emulates a fabric on this machine with hosts, leaves, spines, BGP, ECMP, rates and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.group import Group
from railwright.options.machine import resolve_cluster
from railwright.options.output import json_option, print_answer

if TYPE_CHECKING:
    from railwright.topology.cluster import Cluster

_name_option = click.option("--name", metavar="NAME", help="Name of the lab, if there are several.")


@click.group(cls=Group)
def lab() -> None:
    """Emulate a fabric on this machine with network namespaces, real BGP and ECMP, rates and faults. Requires root.

    \b
    railwright lab up hgx-h100 nics=2 --count 4
    railwright lab status
    railwright lab exec host0 -- ping -c 3 10.1.0.4
    railwright run mpi_all_reduce --lab lab --hosts host0,host2
    railwright lab fault link_slow leaf0 spine0
    railwright lab heal
    railwright lab down
    """


@lab.command()
@click.argument("words", nargs=-1, required=True, metavar="FILE|SHAPE [KEY=VALUE ...]")
@click.option("--count", "-k", type=int, help="Number of hosts.")
@click.option("--name", default="lab", show_default=True, help="Name of the lab; several may be up at once.")
@click.option("--leaf-hosts", type=int, help="Hosts per group of leaves, without a cluster file. [half of the hosts]")
@click.option("--spines", type=int, help="Number of spines, if the cluster file does not give it. [2]")
@click.option("--rate", default="200Mb/s", show_default=True, help="Rate of a NIC's port; none means unlimited.")
@click.option("--mtu", "mtu_bytes", type=int, default=9000, show_default=True, help="MTU of every link, in bytes.")
@click.option("--frr", type=click.Choice(["8", "10"]), default="8", show_default=True, help="FRR's release.")
@click.option("--ovs", is_flag=True, help="Give each host its own Open vSwitch.")
@click.option("--ssh", is_flag=True, help="Give each host an sshd on its loopback addresses, with a key of the lab.")
@click.option("--ipv6-only", is_flag=True, help="Use no IPv4, and two global IPv6 addresses on each port.")
@click.option("--most-nodes", type=int, default=64, show_default=True, help="Maximum number of nodes.")
@click.option("--dry-run", is_flag=True, help="Print the plan as JSON and create nothing.")
def up(
    words: tuple[str, ...],
    count: int | None,
    rate: str,
    dry_run: bool,
    **options: Any,  # noqa: ANN401 - the rest of `PlanOptions`
) -> int:
    """Create a lab from a cluster file (TOML), or from a shape and a count, and wait for all its routes."""
    import time

    import msgspec

    from railwright.lab import build
    from railwright.lab.plan import PlanOptions, plan
    from railwright.terminal import escape_json
    from railwright.units import parse_line_rate

    given = options | {"rate_bits_per_s": None if rate == "none" else parse_line_rate(rate)}
    decided = plan(_make_cluster(words, count), msgspec.convert(given, PlanOptions))
    if dry_run:
        click.echo(escape_json(msgspec.json.format(msgspec.json.encode(decided)).decode()))
        return EXIT_OK
    begun = time.monotonic()
    build.up(decided, lambda text: click.echo(text, err=True))
    click.echo(f"lab {decided.name} is up after {time.monotonic() - begun:.1f} s: {decided.summary()}")
    return EXIT_OK


def _make_cluster(words: tuple[str, ...], count: int | None) -> Cluster:
    if len(words) == 1 and words[0].endswith(".toml"):
        return resolve_cluster(None, count, words[0])
    if count is None:
        raise UsageError("a shape requires --count", hint="add --count 4, or give a cluster file (TOML)")
    return resolve_cluster(" ".join(words), count, None)


@lab.command()
@click.option("--name", help="Name of the lab. [all labs]")
@json_option("Print one JSON record for each lab.")
def status(name: str | None, as_json: bool) -> int:
    """Show the labs on this machine: nodes, addresses and missing routes.

    Exit status: 0 all labs are complete, 1 routes are missing, 3 a lab never came up.
    """
    import os
    from concurrent.futures import ThreadPoolExecutor
    from functools import partial

    from railwright.lab import state
    from railwright.lab.status import observe
    from railwright.report.lab_text import status_lines

    state.require_root()
    names = [state.open_lab(name).name] if name is not None else state.names()
    worst = EXIT_OK
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as executor:
        for each in names:
            seen = observe(state.open_lab(each), executor)
            worst = max(worst, {"up": EXIT_OK, "incomplete": EXIT_SLOW, "interrupted": EXIT_UNJUDGED}[seen.state])
            print_answer([seen], partial(status_lines, seen), as_json=as_json)
    if not names and not as_json:
        click.echo("there is no lab here")
    return worst


@lab.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--name", help="Name of the lab, if there are several.")
@click.argument("node")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT ...]")
def enter(name: str | None, node: str, argv: tuple[str, ...]) -> None:
    """Run a command in a node's namespace, and exit with its status."""
    import os

    from railwright.lab import state

    state.require_root()
    words = state.open_lab(name).argv_in(node, argv[1:] if argv[0] == "--" else argv)
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted


@lab.command()
@click.argument("words", nargs=-1, metavar="[FAULT WORDS...]")
@_name_option
@json_option()
def fault(words: tuple[str, ...], name: str | None, as_json: bool) -> int:
    """Inject a fault into the lab. Without arguments, list the faults.

    \b
    railwright lab fault
    railwright lab fault link_slow leaf0 spine1 rate=20Mb/s
    railwright lab fault loss leaf0:spine1 spine1 fraction=1%
    railwright lab fault cursed_route host0 host3 spine=spine1
    """
    from railwright.lab import state
    from railwright.lab.faults.applied import apply, read_applied
    from railwright.lab.faults.registry import find_fault

    if not words:
        return _list_faults(name, as_json)
    state.require_root()
    wanted = find_fault(words[0])
    found = state.open_lab(name)
    with state.lock_lab(found.name):
        new = apply(found, wanted, list(words[1:]))
        standing = read_applied(found)
    print_answer(
        [[entry for entry in standing if entry.id == new.id]], lambda: f"{new.id}  {new.describe()}", as_json=as_json
    )
    if not as_json:
        click.echo(f"remove it with: railwright lab heal {new.id}", err=True)
    return EXIT_OK


def _list_faults(name: str | None, as_json: bool) -> int:
    from railwright.lab import state
    from railwright.lab.faults.applied import read_applied
    from railwright.lab.faults.registry import FAULTS

    found = state.open_lab(name) if name is not None or len(state.names()) == 1 else None
    there = read_applied(found) if found is not None else ()
    lines = [line for entry in FAULTS for line in (entry.usage(), f"    {entry.summary}")]
    if found is not None:
        lines += ["", f"in lab {found.name} now:" if there else f"lab {found.name} has no fault"]
    lines += [f"{entry.id}  {entry.describe()}" for entry in there]
    print_answer([there], lambda: lines, as_json=as_json)
    return EXIT_OK


@lab.command()
@click.argument("which", nargs=-1, metavar="[ID|FAULT...]")
@_name_option
@json_option()
def heal(which: tuple[str, ...], name: str | None, as_json: bool) -> int:
    """Remove faults from the lab by id or name, or all of them without arguments."""
    from railwright.lab import state
    from railwright.lab.faults import applied

    state.require_root()
    found = state.open_lab(name)
    with state.lock_lab(found.name):
        healed = applied.heal(found, which)
    lines = ["healed:", *(f"{entry.id}  {entry.describe()}" for entry in healed)]
    print_answer([healed], lambda: lines if healed else f"lab {found.name} had no fault", as_json=as_json)
    return EXIT_OK


@lab.command()
@click.argument("source", metavar="A")
@click.argument("destination", metavar="B")
@_name_option
@click.option("--rail", type=click.IntRange(0), default=0, show_default=True, help="Rail of the NICs.")
@click.option("--flows", type=click.IntRange(1, 128), default=16, show_default=True, help="Flows, by source port.")
@click.option("--packets", type=click.IntRange(1), default=40, show_default=True, help="UDP packets per flow.")
@click.option("--bytes", "size_bytes", type=click.IntRange(12), default=200, show_default=True, help="Packet size.")
@click.option("--seconds", "duration_s", type=float, default=1.0, show_default=True, help="Duration of TCP flows.")
@click.option("--ipv6", is_flag=True, help="Use IPv6 addresses.")
@json_option()
def probe(
    source: str,
    destination: str,
    name: str | None,
    rail: int,
    ipv6: bool,
    as_json: bool,
    **sizes: Any,  # noqa: ANN401 - the fields of `traffic.Sizes`
) -> int:
    """Send packets from host A to host B, and report loss, delay, rate and the switches on the way.

    All traffic is sent from A to B only. Exit status 1 means lost packets or a flow that did not connect.
    """
    from railwright.lab import state, traffic
    from railwright.report.lab_text import probe_lines

    state.require_root()
    found = state.open_lab(name)
    way = traffic.route(found.plan, source, destination, rail=rail, ipv6=ipv6)
    seen = traffic.probe(found, way, traffic.ProbeLoad(**sizes))
    print_answer([seen], lambda: probe_lines(seen), as_json=as_json)
    return EXIT_SLOW if seen.lost or any(way_seen.failed_flows for way_seen in seen.ways) else EXIT_OK


@lab.command()
@click.option("--name", help="Name of the lab, if there are several.")
@click.option("--all", "every", is_flag=True, help="End all labs.")
def down(name: str | None, every: bool) -> int:
    """End a lab, even an interrupted one, and remove its processes, namespaces and files."""
    from railwright.lab import remove, state

    state.require_root()
    if every:
        if name is not None:
            raise UsageError("--all and --name exclude each other", hint="give one of the two")
        ended = remove.down_all()
    else:
        ended = [state.open_lab(name).name]
        remove.down(ended[0])
    click.echo(f"ended {', '.join(ended)}" if ended else "there is no lab here")
    return EXIT_OK
