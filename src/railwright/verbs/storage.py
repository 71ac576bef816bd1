"""`railwright storage`: the configuration of GPUDirect Storage for a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError, unknown_name
from railwright.options.group import Group
from railwright.options.machine import MachineCommand, load_machine, machine_option
from railwright.options.output import json_option, print_answer, write

if TYPE_CHECKING:
    from railwright.topology.devices import Topology

_MAX_BYTES = 2**20


@click.group(cls=Group)
def storage() -> None:
    """Write or check the configuration of GPUDirect Storage for a machine.

    \b
    railwright storage cufile-json                        for this machine, to the terminal
    railwright storage cufile-json --check /etc/cufile.json
    """


@storage.command(cls=MachineCommand)
@machine_option
@click.option(
    "--address",
    "given",
    multiple=True,
    metavar="NIC=ADDRESS",
    help="A NIC's IPv4 address, if the machine is not this one. Once for each NIC.",
)
@click.option("--check", "checked", metavar="FILE", help="Check this file against the machine instead.")
@json_option("Print one JSON record for each setting.")
@click.argument("file", required=False)
def cufile_json(
    machine: str | None, given: tuple[str, ...], checked: str | None, as_json: bool, file: str | None
) -> int:  # fmt: skip
    """Write cuFile's configuration from the topology, to FILE or the terminal, with the reason for each line.

    With --check an existing file is checked against the machine. Exit status then: 0 all ok, 1 something is bad,
    2 wrong usage, 3 something could not be checked and nothing is bad.
    """
    from pathlib import Path

    from railwright.checks.cufile_settings import check, decode_properties, recommend_settings
    from railwright.reading import read_bounded
    from railwright.report.formats.cufile_json import render_cufile_json, setting_lines

    topology = load_machine(machine)
    addresses = _read_addresses(topology) if machine is None else {}
    addresses |= dict(_parse_pair(text, topology) for text in given)
    if checked is not None:
        if file is not None:
            raise UsageError("--check and FILE exclude each other", hint=f"leave out {file[:60]!r}")
        told = check(topology, decode_properties(read_bounded(Path(checked), _MAX_BYTES)), addresses)
        print_answer(told, lambda: setting_lines(told), as_json=as_json)
        states = {setting.state for setting in told}
        return EXIT_SLOW if "bad" in states else EXIT_UNJUDGED if "not looked" in states else EXIT_OK
    settings = recommend_settings(topology, addresses)
    if as_json or file is None:
        print_answer(settings, lambda: render_cufile_json(topology.name, settings).removesuffix("\n"), as_json=as_json)
    else:
        write(file, render_cufile_json(topology.name, settings))
    return EXIT_OK


def _read_addresses(topology: Topology) -> dict[str, str]:
    """Read the addresses of this machine's NICs from the kernel."""
    from railwright.topology.sources.interface_address import ipv4_address

    found = {nic.id: ipv4_address(str(nic.facts.get("netdev", ""))) for nic in topology.of_kind("nic")}
    return {name: address for name, address in found.items() if address is not None}


def _parse_pair(text: str, topology: Topology) -> tuple[str, str]:
    import ipaddress

    name, equals, address = text.partition("=")
    nics = {nic.id: nic.id for nic in topology.of_kind("nic")}
    nics |= {str(nic.facts[fact]): nic.id for nic in topology.of_kind("nic") for fact in ("netdev", "rdma_device")
             if nic.facts.get(fact)}  # fmt: skip
    try:
        ipaddress.IPv4Address(address)
    except ValueError as error:
        hint = "write --address nic0=10.0.0.1"
        raise UsageError(f"--address must be NIC=ADDRESS, got {text[:60]!r}", hint=hint) from error
    if not equals or name not in nics:
        raise unknown_name("NIC", name, nics)
    return nics[name], address
