"""`railwright audit`: looks for every fault we know in the machine's settings."""

from __future__ import annotations

from railwright.cli.command import command, json_option
from railwright.cli.machine_option import MACHINE, MachineCommand

COMMAND = command(
    "audit",
    "audit:audit",
    "The settings that keep paths from their limit, each with evidence and remedy.",
    MACHINE,
    json_option("Print one JSON record for each fault."),
    cls=MachineCommand,
)
