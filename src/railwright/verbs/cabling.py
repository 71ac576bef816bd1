"""`railwright cabling CLUSTER SEEN`: compares discovered cables with planned ones, without sending packets."""

from __future__ import annotations

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.help import Command
from railwright.options.machine import load_planned_cluster
from railwright.options.output import json_option, print_answer


@click.command(cls=Command)
@click.argument("cluster")
@click.argument("seen")
@json_option()
def cabling(cluster: str, seen: str, as_json: bool) -> int:
    """Compare cables with those planned, and list missing, swapped and misplaced ones.

    CLUSTER is a cluster file with fabric.cables. SEEN is the output of ibnetdiscover, or for Ethernet a folder with
    one NAME.json per node, the output of `lldpctl -f json`.

    Exit status: 0 all as planned, 1 a cable differs, 3 something could not be checked.

    \b
    railwright cabling cluster.toml ibnetdiscover.txt
    railwright cabling cluster.toml lldp/ --json
    """
    from pathlib import Path

    from railwright.diagnosis.localise.cabling import check_cabling
    from railwright.report.text.locate import cabling_lines
    from railwright.topology.cabling import parse_cables
    from railwright.topology.sources.cables import read_cabling

    planned = parse_cables(load_planned_cluster(cluster).fabric.cables)
    if not planned:
        raise UsageError(
            f"{cluster[:200]} must list cables, got none", hint="see fabric.cables in docs/cluster-file.md"
        )
    found = check_cabling(planned, read_cabling(Path(seen)))
    print_answer([found], lambda: cabling_lines(found), as_json=as_json)
    if found.findings:
        return EXIT_SLOW
    return EXIT_UNJUDGED if found.not_looked_at else EXIT_OK
