"""`railwright cabling CLUSTER SEEN`: cables that were seen, held against those that were planned; sends no packet."""

from __future__ import annotations

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.machine import load_planned_cluster
from railwright.options.output import json_option, print_answer


@click.command()
@click.argument("cluster")
@click.argument("seen")
@json_option()
def cabling(cluster: str, seen: str, as_json: bool) -> int:
    """Compare cables with those planned: which are missing, exchanged, or in the wrong port.

    CLUSTER is a cluster file with fabric.cables. SEEN is what ibnetdiscover printed, or for Ethernet a folder with
    NAME.json of each node, as `lldpctl -f json` prints it.

    Exit status: 0 all as planned, 1 something is not, 3 something could not be looked at.

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
        raise UsageError(f"{cluster[:200]} names no cables", hint="see fabric.cables in docs/cluster-file.md")
    found = check_cabling(planned, read_cabling(Path(seen)))
    print_answer([found], lambda: cabling_lines(found), as_json=as_json)
    if found.findings:
        return EXIT_SLOW
    return EXIT_UNJUDGED if found.not_looked_at else EXIT_OK
