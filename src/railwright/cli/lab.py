"""`railwright lab`: an emulated fabric on this machine: hosts, leaves, spines, BGP, ECMP, rates, injected faults."""

from __future__ import annotations

import click

from railwright.cli.command import argument, command, group, json_option, option

_NAME = option("--name", metavar="NAME", help="Which lab, where there are several.")
_JSON = json_option("Print the record that the text is made from.")

COMMAND = group(
    "lab",
    """An emulated fabric on this machine: network namespaces, real BGP and ECMP, rates, faults. Needs root.

    \b
    railwright lab up hgx-h100 nics=2 --count 4
    railwright lab status
    railwright lab exec host0 -- ping -c 3 10.1.0.4
    railwright run mpi_all_reduce --lab lab --hosts host0,host2
    railwright lab fault link_slow leaf0 spine0
    railwright lab heal
    railwright lab down
    """,
    command(
        "up",
        "lab:make",
        "Make a lab of a cluster file (TOML), or of a shape and a count, and wait until all its routes are there.",
        argument("words", nargs=-1, required=True, metavar="FILE|SHAPE [KEY=VALUE ...]"),
        option("--count", "-k", type=int, help="How many hosts."),
        option("--name", default="lab", show_default=True, help="Of the lab; several may be up at once."),
        option("--leaf-hosts", type=int, help="Hosts that share their leaves, without a cluster file. [half of them]"),
        option("--spines", type=int, help="Where the cluster file does not say how many. [2]"),
        option("--rate", default="200Mb/s", show_default=True, help="Of a NIC's port; none: as fast as it goes."),
        option("--mtu", "mtu_bytes", type=int, default=9000, show_default=True, help="Of every link, in bytes."),
        option("--frr", type=click.Choice(["8", "10"]), default="8", show_default=True, help="FRR's release."),
        option("--ovs", is_flag=True, help="Give each host an Open vSwitch of its own."),
        option("--ssh", is_flag=True, help="Give each host an sshd, for its loopback addresses and a key of the lab."),
        option("--ipv6-only", is_flag=True, help="No IPv4, and two global IPv6 addresses on each port."),
        option("--most-nodes", type=int, default=64, show_default=True, help="Refuse a larger lab."),
        option("--dry-run", is_flag=True, help="Print what would be made, as JSON, and make nothing."),
    ),
    command(
        "status",
        "lab:status",
        """The labs on this machine: their nodes, addresses, and what routes are missing.

        Exit status 1 where routes are missing, 3 where a lab never came up.
        """,
        option("--name", help="Of the lab. [all]"),
        json_option("Print one JSON record for each lab."),
    ),
    command(
        "exec",
        "lab:become",
        "Run a command in a node's namespace; its exit status is the command's.",
        option("--name", help="Of the lab, where there are several."),
        argument("node"),
        argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT ...]"),
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    ),
    command(
        "fault",
        "lab_faults:put_in",
        """Put a fault into the lab; without one, list those that there are.

        \b
        railwright lab fault
        railwright lab fault link_slow leaf0 spine1 rate=20Mb/s
        railwright lab fault loss leaf0:spine1 spine1 fraction=1%
        railwright lab fault cursed_route host0 host3 spine=spine1
        """,
        argument("words", nargs=-1, metavar="[FAULT WORDS...]"),
        _NAME,
        _JSON,
    ),
    command(
        "heal",
        "lab_faults:take_out",
        "Take faults out of the lab, by id or by name; all of them without any.",
        argument("which", nargs=-1, metavar="[ID|FAULT...]"),
        _NAME,
        _JSON,
    ),
    command(
        "probe",
        "lab_faults:try_traffic",
        """Send packets from host A to host B: what arrives, how late, how fast, and over which switches.

        Everything is one way, from A to B. Exit status 1: packets were lost, or a flow had no connection.
        """,
        argument("source", metavar="A"),
        argument("destination", metavar="B"),
        _NAME,
        option("--rail", type=click.IntRange(0), default=0, show_default=True, help="Between the NICs of which rail."),
        option(
            "--flows", type=click.IntRange(1, 128), default=16, show_default=True, help="Of different source ports."
        ),
        option("--packets", type=click.IntRange(1), default=40, show_default=True, help="UDP packets of each flow."),
        option(
            "--bytes", "size_bytes", type=click.IntRange(12), default=200, show_default=True, help="In each packet."
        ),
        option("--seconds", type=float, default=1.0, show_default=True, help="That TCP sends."),
        option("--ipv6", is_flag=True, help="With IPv6 addresses."),
        _JSON,
    ),
    command(
        "down",
        "lab:end",
        "End a lab, also one that was interrupted: processes, namespaces, files.",
        option("--name", help="Of the lab, where there are several."),
        option("--all", "every", is_flag=True, help="All labs."),
    ),
)
