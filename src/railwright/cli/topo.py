"""`railwright topo`: what is there, as text, picture, record, capture or NCCL file."""

from __future__ import annotations

from railwright.cli.command import argument, command, json_option, option
from railwright.cli.machine_option import MACHINE, MachineCommand, MachineGroup

_COMMANDS = (
    command(
        "capture",
        "topo:write_capture",
        """Write down this machine for others to look at.

        DIR becomes a directory, or one file if it ends in .jsonl.
        """,
        argument("destination", metavar="DIR"),
        option("--redact", is_flag=True, help="Replace serial numbers, UUIDs, addresses and host names."),
    ),
    command(
        "export",
        "topo:export",
        "Write another program's file, to FILE or the terminal.",
        MACHINE,
        option("--nccl-xml", "nccl_xml", is_flag=True, help="As the file that NCCL reads by NCCL_TOPO_FILE."),
        option(
            "--guest",
            "guests",
            multiple=True,
            metavar="HOST=GUEST",
            help="PCI address of a device here, and in the VM that the file is for. Once for each device the VM has.",
        ),
        argument("file", required=False),
        cls=MachineCommand,
    ),
)
COMMAND = command(
    "topo",
    "topo:show",
    """Show a machine: PCIe tree, links, and which NICs each GPU reaches.

    \b
    railwright topo
    railwright topo --from hgx-h100 nics=2
    railwright topo --from capture.jsonl --svg machine.svg
    """,
    MACHINE,
    json_option("Print the record that the text is made from."),
    option("--svg", metavar="FILE", help="Write a picture as well."),
    cls=MachineGroup,
    invoke_without_command=True,
    commands=_COMMANDS,
)
