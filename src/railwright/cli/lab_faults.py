"""`railwright lab fault`, `heal`, `probe`: break a lab, mend it, and look at its traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from railwright.errors import EXIT_OK, EXIT_SLOW
from railwright.units import format_duration

if TYPE_CHECKING:
    from railwright.lab.faults.applied import Applied
    from railwright.lab.state import Lab
    from railwright.lab.traffic import Probe

_name_option = click.option("--name", metavar="NAME", help="Which lab, where there are several.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the record that the text is made from.")


@click.command("fault")
@click.argument("words", nargs=-1, metavar="[FAULT WORDS...]")
@_name_option
@_json_option
def fault_command(words: tuple[str, ...], name: str | None, as_json: bool) -> int:
    """Put a fault into the lab; without one, list those that there are.

    \b
    railwright lab fault
    railwright lab fault link_slow leaf0 spine1 rate=20Mb/s
    railwright lab fault loss leaf0:spine1 spine1 fraction=1%
    railwright lab fault cursed_route host0 host3 spine=spine1
    """  # noqa: D301
    from railwright.lab import state
    from railwright.lab.faults.applied import applied, apply
    from railwright.lab.faults.registry import fault_named

    if not words:
        return _list_faults(name, as_json)
    state.require_root()
    fault = fault_named(words[0])
    lab = state.open_lab(name)
    with state.locked(lab.name):
        new = apply(lab, fault, list(words[1:]))
        standing = applied(lab)
    if as_json:
        _print_record([one for one in standing if one.id == new.id])
    else:
        click.echo(f"{new.id}  {new.describe()}")
        click.echo(f"take it out with: railwright lab heal {new.id}", err=True)
    return EXIT_OK


def _list_faults(name: str | None, as_json: bool) -> int:
    from railwright.lab import state
    from railwright.lab.faults.applied import applied
    from railwright.lab.faults.registry import FAULTS

    lab = state.open_lab(name) if name is not None or len(state.names()) == 1 else None
    there = applied(lab) if lab is not None else ()
    if as_json:
        _print_record(there)
        return EXIT_OK
    for fault in FAULTS:
        click.echo(fault.usage())
        click.echo(f"    {fault.summary}")
    if lab is not None:
        click.echo(f"\nin lab {lab.name} now:" if there else f"\nlab {lab.name} has no fault")
        _print_faults(there)
    return EXIT_OK


@click.command("heal")
@click.argument("which", nargs=-1, metavar="[ID|FAULT...]")
@_name_option
@_json_option
def heal_command(which: tuple[str, ...], name: str | None, as_json: bool) -> int:
    """Take faults out of the lab, by id or by name; all of them without any."""
    from railwright.lab import state
    from railwright.lab.faults.applied import heal

    state.require_root()
    lab = state.open_lab(name)
    with state.locked(lab.name):
        healed = heal(lab, which)
    if as_json:
        _print_record(healed)
    elif healed:
        click.echo("healed:")
        _print_faults(healed)
    else:
        click.echo(f"lab {lab.name} had no fault")
    return EXIT_OK


@click.command("probe")
@click.argument("source", metavar="A")
@click.argument("destination", metavar="B")
@_name_option
@click.option("--rail", type=click.IntRange(0), default=0, show_default=True, help="Between the NICs of which rail.")
@click.option("--flows", type=click.IntRange(1, 128), default=16, show_default=True, help="Of different source ports.")
@click.option("--packets", type=click.IntRange(1), default=40, show_default=True, help="UDP packets of each flow.")
@click.option("--bytes", "size_bytes", type=click.IntRange(12), default=200, show_default=True, help="In each packet.")
@click.option("--seconds", type=float, default=1.0, show_default=True, help="That TCP sends.")
@click.option("--ipv6", is_flag=True, help="With IPv6 addresses.")
@_json_option
def probe_command(
    source: str,
    destination: str,
    name: str | None,
    rail: int,
    flows: int,
    packets: int,
    size_bytes: int,
    seconds: float,
    ipv6: bool,
    as_json: bool,
) -> int:
    """Send packets from host A to host B: what arrives, how late, how fast, and over which switches.

    Everything is one way, from A to B. Exit status 1: packets were lost, or a flow had no connection.
    """
    from railwright.lab import state
    from railwright.lab.traffic import Sizes, probe, route

    state.require_root()
    lab: Lab = state.open_lab(name)
    way = route(lab.plan, source, destination, rail=rail, ipv6=ipv6)
    seen = probe(lab, way, Sizes(flows=flows, packets=packets, size_bytes=size_bytes, duration_s=seconds))
    if as_json:
        _print_record(seen)
    else:
        _print_probe(seen)
    return EXIT_SLOW if seen.lost or any(one.failed_flows for one in seen.ways) else EXIT_OK


def _print_probe(seen: Probe) -> None:
    way = seen.route
    click.echo(f"{way.source} {way.source_address} to {way.destination} {way.destination_address}, rail {way.rail}")
    for one in seen.ways:
        delay = "nothing arrived"
        if one.delay_median_s is not None and one.delay_max_s is not None:
            delay = f"one way {format_duration(one.delay_median_s)}, at most {format_duration(one.delay_max_s)}"
        flows = f"{len(one.source_ports)} flow{'' if len(one.source_ports) == 1 else 's'}"
        rate = f"TCP {one.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mb/s"
        if one.failed_flows:
            rate += f" ({one.failed_flows} without a connection)"
        click.echo(f"  {' '.join(one.nodes)}: {flows}, {one.lost} of {one.sent} packets lost, {delay}, {rate}")
    click.echo(f"  TCP in all {seen.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mb/s")


def _print_faults(faults: tuple[Applied, ...]) -> None:
    for one in faults:
        click.echo(f"{one.id}  {one.describe()}")


def _print_record(record: object) -> None:
    click.echo(msgspec.json.encode(record).decode())


lab_fault_commands: tuple[click.Command, ...] = (fault_command, heal_command, probe_command)
