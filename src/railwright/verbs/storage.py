"""cuFile's configuration from the topology: written, or held against a file that is there."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import click

from railwright.checks.cufile_settings import check, properties_in, wanted
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError, unknown_name
from railwright.report.formats.cufile_json import render_cufile_json, told_lines
from railwright.report.formats.json_line import json_line
from railwright.topology.devices import Topology
from railwright.topology.sources.interface_address import ipv4_address
from railwright.topology.sources.root import read_bounded
from railwright.verbs.machine import the_machine
from railwright.verbs.write import write

_MOST_BYTES = 2**20


def cufile_json(
    machine: str | None, given: tuple[str, ...], checked: str | None, as_json: bool, file: str | None
) -> int:  # fmt: skip
    """Print or write the configuration, or what is wrong with one; the exit status."""
    topology = the_machine(machine)
    addresses = _of_interfaces(topology) if machine is None else {}
    addresses |= dict(_pair(text, topology) for text in given)
    if checked is not None:
        if file is not None:
            raise UsageError("--check only reads", hint=f"leave {file[:60]!r} out")
        return _check(topology, checked, addresses, as_json)
    settings = wanted(topology, addresses)
    if as_json:
        for setting in settings:
            click.echo(json_line(setting))
    elif file is None:
        click.echo(render_cufile_json(topology.name, settings), nl=False)
    else:
        write(file, render_cufile_json(topology.name, settings))
    return EXIT_OK


def _check(topology: Topology, file: str, addresses: dict[str, str], as_json: bool) -> int:
    told = check(topology, properties_in(read_bounded(Path(file), _MOST_BYTES)), addresses)
    for line in map(json_line, told) if as_json else told_lines(told):
        click.echo(line)
    states = {one.state for one in told}
    return EXIT_SLOW if "bad" in states else EXIT_UNJUDGED if "not looked" in states else EXIT_OK


def _of_interfaces(topology: Topology) -> dict[str, str]:
    """The addresses of this machine's NICs, those that the kernel tells."""
    found = {nic.id: ipv4_address(str(nic.facts.get("netdev", ""))) for nic in topology.of_kind("nic")}
    return {name: address for name, address in found.items() if address is not None}


def _pair(text: str, topology: Topology) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    nics = {nic.id: nic.id for nic in topology.of_kind("nic")}
    nics |= {str(nic.facts[fact]): nic.id for nic in topology.of_kind("nic") for fact in ("netdev", "rdma_device")
             if nic.facts.get(fact)}  # fmt: skip
    try:
        ipaddress.IPv4Address(address)
    except ValueError as error:
        hint = "write --address nic0=10.0.0.1"
        raise UsageError(f"not a NIC and an IPv4 address: {text[:60]!r}", hint=hint) from error
    if not equals or name not in nics:
        raise unknown_name("NIC", name, nics)
    return nics[name], address
