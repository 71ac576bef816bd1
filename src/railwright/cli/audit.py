"""`railwright audit`: looks for every fault we know in the settings of a machine, or of many that should be alike."""

from __future__ import annotations

from railwright.cli.command import argument, command, json_option, option
from railwright.cli.machine_option import FROM_FLAGS, MachineCommand

COMMAND = command(
    "audit",
    "audit:audit",
    """The settings that keep paths from their limit, each with evidence and remedy.

    Several machines are held against each other: what most of them have is the reference for the others.

    \b
    railwright audit
    railwright audit --from capture.jsonl
    railwright audit --from captures/*.jsonl
    railwright audit --hosts host0,host1,host2
    railwright audit --known-bad known-bad.toml
    railwright audit --fix numa_balancing_on
    """,
    option(
        *FROM_FLAGS,
        "machine",
        metavar="DIR|FILE|SHAPE",
        help="A captured directory or .jsonl, a saved .json, or a shape with changes. More may follow."
        " Default: this machine.",
    ),
    option("--hosts", metavar="HOST,HOST...", help="Audit these hosts, over ssh or in netns:NAME."),
    option("--ssh-config", metavar="FILE", help="For ssh to the --hosts, instead of ~/.ssh/config."),
    option(
        "--known-bad",
        "bad_file",
        metavar="FILE",
        help="A list of bad firmware and software, like examples/known-bad.toml.",
    ),
    option("--fix", "fix", metavar="FAULT", help="Show the one setting of the kernel that would mend this fault here."),
    option("--apply", "how", flag_value="apply", help="With --fix: change it, until the machine starts anew."),
    option("--hold", "how", flag_value="hold", help="With --fix: change it, until Ctrl-C or another end, and undo it."),
    option("--undo", "how", flag_value="undo", help="With --fix: give back what --apply changed."),
    json_option("Print one JSON record for each fault, and of several machines for each difference."),
    argument("more", nargs=-1, metavar="[DIR|FILE]..."),
    cls=MachineCommand,
)
