"""`railwright storage`: what GPUDirect Storage has to know of a machine."""

from __future__ import annotations

from railwright.cli.command import argument, command, group, json_option, option
from railwright.cli.machine_option import MACHINE, MachineCommand

COMMAND = group(
    "storage",
    """What GPUDirect Storage has to know of a machine.

    \b
    railwright storage cufile-json                        for this machine, to the terminal
    railwright storage cufile-json --check /etc/cufile.json
    """,
    command(
        "cufile-json",
        "storage:cufile_json",
        """Write cuFile's configuration from the topology, to FILE or the terminal, with the reason of each line.

        With --check an existing one is held against the machine. Exit status then: 0 all ok, 1 something is bad,
        2 wrong usage, 3 something could not be looked at and nothing is bad.
        """,
        MACHINE,
        option("--address", "given", multiple=True, metavar="NIC=ADDRESS",
               help="A NIC's IPv4 address, where the machine is not this one. Once for each NIC."),
        option("--check", "checked", metavar="FILE", help="Hold this file against the machine instead."),
        json_option("Print one JSON record for each setting."),
        argument("file", required=False),
        cls=MachineCommand,
    ),
)  # fmt: skip
