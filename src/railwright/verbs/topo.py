"""A machine's topology: shown, captured, exported."""

from __future__ import annotations

from pathlib import Path

import click

from railwright.errors import CannotJudge, UsageError
from railwright.report.formats.nccl_xml import render_nccl_xml
from railwright.report.pictures.topology import render_topology_svg
from railwright.report.text.topology import render_topology
from railwright.topology.devices import Topology
from railwright.topology.sources.capture import capture
from railwright.topology.sources.look import this_machine_with_tools
from railwright.topology.sources.saved import encode_topology
from railwright.verbs.machine import the_machine
from railwright.verbs.write import write


def show(machine: str | None, as_json: bool, svg: str | None) -> None:
    """Print the topology, and draw it where a picture is wanted."""
    topology = _known(machine)
    if svg is not None:
        write(svg, render_topology_svg(topology))
    click.echo(encode_topology(topology).decode() if as_json else render_topology(topology), nl=False)


def write_capture(destination: str, redact: bool) -> None:
    """Write down this machine, and say where."""
    done = capture(this_machine_with_tools(), Path(destination), redact=redact)
    click.echo(f"{done.destination}: {done.files} files, {len(done.topology.devices)} devices", nl=False)
    click.echo(f", {done.unreadable} could not be read (see capture.json)" if done.unreadable else "")
    if not redact:
        click.echo("It holds serial numbers and host names; add --redact before sending it to others.")
    click.echo(f"Read it with: railwright topo --from {done.destination}")


def export(machine: str | None, nccl_xml: bool, guests: tuple[str, ...], file: str | None) -> None:
    """Write another program's file. Raises UsageError."""
    if not nccl_xml:
        raise UsageError("no format is named", hint="add --nccl-xml")

    pairs = {}
    for pair in guests:
        host, equals, guest = pair.partition("=")
        if not equals:
            raise UsageError(f"not a pair of addresses: {pair[:60]!r}", hint="write HOST=GUEST")
        pairs[host.lower()] = guest.lower()
    text = render_nccl_xml(_known(machine), pairs)
    if file is None:
        click.echo(text, nl=False)
    else:
        write(file, text)


def _known(machine: str | None) -> Topology:
    """The topology, or CannotJudge where nothing at all could be read."""
    topology = the_machine(machine)
    if not topology.links and not any(device.facts.get("threads") for device in topology.of_kind("cpu")):
        why = "; ".join(f"{item.what}: {item.why}" for item in topology.unknown[:4])
        raise CannotJudge(f"nothing of {topology.name} could be read: {why}", hint="are /sys and /proc mounted?")
    return topology
