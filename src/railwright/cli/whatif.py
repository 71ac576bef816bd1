"""`railwright whatif`: designs of a cluster side by side: limits, bill of network parts, cost; measures nothing."""

from __future__ import annotations

import click

from railwright.cli.command import command, json_option, option
from railwright.cli.machine_option import MachineCommand

COMMAND = command(
    "whatif",
    "whatif:whatif",
    """Hold designs of a cluster side by side: what each can reach, what it is made of, what it costs.

    Without a cluster file the fabric is a non-blocking Clos of one to three tiers.

    \b
    railwright whatif --count 16 --host hgx-h100 --vary nics=2,4,8
    railwright whatif --count 16 --host hgx-h100 nics=4 --host hgx-h100 nics=8 nic-rate=200Gb/s
    railwright whatif --cluster cluster.toml --vary nics=2,4,8 --prices prices.toml --output designs.html
    """,
    option(
        "--from",
        "--host",
        "machines",
        multiple=True,
        metavar="SHAPE|FILE",
        help="A host with changes like: hgx-h100 nics=2. Once for each design.",
    ),
    option(
        "--vary", multiple=True, metavar="KEY=A,B,...", help="Designs of one host, like nics=2,4,8; several multiply."
    ),
    option("--count", "-k", type=int, help="How many hosts."),
    option("--cluster", "cluster_file", metavar="FILE", help="A cluster file (TOML), for its fabric."),
    option(
        "--collective",
        "-c",
        "collectives",
        multiple=True,
        metavar="NAME",
        help="Default: all_reduce, all_gather, all_to_all. The first decides the Pareto mark.",
    ),
    option("--prices", "price_file", metavar="FILE", help="A price list (TOML), like examples/prices.toml."),
    option("--radix", type=int, help="Ports of a switch, at the rate of the NICs' ports, without a cluster file. [64]"),
    option(
        "--optics",
        type=click.Choice(["all", "switches", "none"]),
        default="all",
        show_default=True,
        help="Optical cables: all, those between switches, or none.",
    ),
    option("--output", "-O", metavar="FILE.html", help="Write a page with the Pareto pictures as well."),
    json_option("Print one JSON record for each design."),
    cls=MachineCommand,
)
