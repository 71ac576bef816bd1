"""`railwright topo`: shows a machine as text, picture, record, capture or NCCL file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from railwright.errors import CannotJudge, UsageError
from railwright.options.machine import MachineCommand, MachineGroup, load_machine, machine_option
from railwright.options.output import json_option, print_text, write

if TYPE_CHECKING:
    from railwright.topology.devices import Topology


@click.group(cls=MachineGroup, invoke_without_command=True)
@machine_option
@json_option()
@click.option("--svg", metavar="FILE", help="Also write a picture.")
@click.option("--as-shape", is_flag=True, help="Print the machine as a TOML file for --host, to keep or to change.")
@click.pass_context
def topo(context: click.Context, machine: str | None, as_json: bool, svg: str | None, as_shape: bool) -> None:
    """Show a machine: PCIe tree, links, and which NICs each GPU reaches.

    \b
    railwright topo
    railwright topo --from hgx-h100 nics=2
    railwright topo --from capture.jsonl --svg machine.svg
    railwright topo --as-shape > machine.toml
    """
    after = context.invoked_subcommand
    if after is not None:
        if machine is not None or as_json or svg is not None or as_shape:
            raise UsageError(f"options must follow {after!r}", hint=f"write them after {after}")
        return

    from railwright.report.pictures.topology import render_topology_svg
    from railwright.report.text.topology import render_topology
    from railwright.terminal import escape_json
    from railwright.topology.sources.saved import encode_topology

    if as_shape and as_json:
        raise UsageError("--as-shape and --json exclude each other", hint="give one")
    topology = _load_readable(machine)
    if svg is not None:
        write(svg, render_topology_svg(topology))
    if as_shape:
        click.echo(_render_as_shape(topology), nl=False)
    elif as_json:
        click.echo(escape_json(encode_topology(topology).decode()), nl=False)
    else:
        print_text(render_topology(topology).removesuffix("\n"))


@topo.command()
@click.argument("destination", metavar="DIR")
@click.option("--redact", is_flag=True, help="Replace serial numbers, UUIDs, addresses and host names.")
def capture(destination: str, redact: bool) -> None:
    """Capture this machine for analysis elsewhere.

    DIR becomes a directory, or a single file if it ends in .jsonl.
    """
    from pathlib import Path

    from railwright.topology.sources import capture as captures
    from railwright.topology.sources.look import this_machine_with_tools

    done = captures.capture(this_machine_with_tools(), Path(destination), redact=redact)
    click.echo(f"{done.destination}: {done.files} files, {len(done.topology.devices)} devices", nl=False)
    click.echo(f", {done.unreadable} could not be read (see capture.json)" if done.unreadable else "")
    if not redact:
        click.echo("It contains serial numbers and host names; add --redact before you share it.")
    click.echo(f"Read it with: railwright topo --from {done.destination}")


@topo.command(cls=MachineCommand)
@machine_option
@click.option("--nccl-xml", is_flag=True, help="Write the file for NCCL_TOPO_FILE.")
@click.option(
    "--guest",
    "guests",
    multiple=True,
    metavar="HOST=GUEST",
    help="PCI address of a device here and in the VM that the file is for. Once for each device of the VM.",
)
@click.argument("file", required=False)
def export(machine: str | None, nccl_xml: bool, guests: tuple[str, ...], file: str | None) -> None:
    """Export the topology in another program's format, to FILE or the terminal."""
    from railwright.report.formats.nccl_xml import render_nccl_xml

    if not nccl_xml:
        raise UsageError("export requires a format", hint="add --nccl-xml")
    pairs = {}
    for pair in guests:
        host, equals, guest = pair.partition("=")
        if not equals:
            raise UsageError(f"--guest must be HOST=GUEST, got {pair[:60]!r}", hint="write HOST=GUEST")
        pairs[host.lower()] = guest.lower()
    text = render_nccl_xml(_load_readable(machine), pairs)
    if file is None:
        click.echo(text, nl=False)
    else:
        write(file, text)


def _render_as_shape(topology: Topology) -> str:
    """Return the machine as a file for --host; comments tell where the machine differs from it."""
    from railwright.report.formats.shape_toml import render_shape
    from railwright.topology.expand import expand_shape
    from railwright.topology.to_shape import list_differences, to_shape

    shape = to_shape(topology)
    return render_shape(shape, list_differences(topology, expand_shape(shape, topology.name, {})))


def _load_readable(machine: str | None) -> Topology:
    """Load the topology. Raises CannotJudge if it has neither links nor CPUs."""
    topology = load_machine(machine)
    if not topology.links and not any(device.facts.get("threads") for device in topology.of_kind("cpu")):
        why = "; ".join(f"{item.what}: {item.why}" for item in topology.unknown[:4])
        raise CannotJudge(
            f"nothing of {topology.name} could be read: {why}", hint="check that /sys and /proc are mounted"
        )
    return topology
