"""A lab broken and mended, and its traffic looked at."""

from __future__ import annotations

import click
import msgspec

from railwright.errors import EXIT_OK, EXIT_SLOW
from railwright.lab import state
from railwright.lab.faults.applied import Applied, applied, apply, heal
from railwright.lab.faults.registry import FAULTS, fault_named
from railwright.lab.traffic import Probe, Sizes, probe, route
from railwright.units import format_duration


def put_in(words: tuple[str, ...], name: str | None, as_json: bool) -> int:
    """Put a fault into the lab, or list all; the exit status. Raises UsageError."""
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


def take_out(which: tuple[str, ...], name: str | None, as_json: bool) -> int:
    """Take faults out; the exit status. Raises UsageError for one that is not there."""
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


def try_traffic(
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
    """Send, and print what arrived; the exit status. Raises UsageError."""
    state.require_root()
    lab = state.open_lab(name)
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
