"""`railwright net`: a pod's GPU network."""

from __future__ import annotations

from railwright.cli.command import command, group, json_option, option

COMMAND = group(
    "net",
    """A pod's GPU network, as `railwrightd` and its CNI plugins lay it.

    \b
    railwright net check --pod team-a/trainer-0           on the pod's node, as root
    railwright net check                                  inside the pod; says what it cannot see from there
    railwright net check --netns /proc/4711/ns/net
    """,
    command(
        "check",
        "net:check_pod",
        """Look at a pod's rail interfaces, from the pod to the leaf, by evidence and by real packets.

        Exit status: 0 all ok, 1 something is bad, 2 wrong usage, 3 something could not be looked at and nothing is bad.
        """,
        option("--pod", metavar="NAMESPACE/NAME", help="A pod of this node."),
        option("--netns", metavar="PATH|NAME", help="A pod's network namespace."),
        option(
            "--interface", "interfaces", multiple=True, metavar="NAME", help="Only this one. [all that are attached]"
        ),
        option("--to", multiple=True, metavar="ADDRESS", help="Of a pod of the same tenant, on any node."),
        option("--peer-netns", metavar="PATH|NAME", help="A pod of the same tenant on this machine."),
        option("--stranger-netns", metavar="PATH|NAME", help="A pod of another tenant here. [one that is attached]"),
        option("--leaf-netns", "leaves", multiple=True, metavar="RAIL=PATH|NAME", help="A rail's leaf, in a lab."),
        option("--railwrightd", "program", metavar="PATH", help="The daemon's program. [on PATH]"),
        option("--socket", metavar="PATH", help="The daemon's socket. [its default]"),
        option("--config", metavar="PATH", help="The daemon's configuration. [its default]"),
        option("--vty-socket", metavar="FOLDER", help="Of FRR's daemons. [its default]"),
        option("--without", multiple=True, metavar="CHECK", help="Leave a check out; the last line says so."),
        option("--evidence", is_flag=True, help="Show what was seen for what is ok, too."),
        json_option("Print one JSON record for each check."),
    ),
)
