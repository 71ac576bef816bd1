"""`railwright limits`: what each path of a machine can reach, and why; measures nothing."""

from __future__ import annotations

import click

from railwright.cli.machine_option import MachineCommand, machine_option


@click.command("limits", cls=MachineCommand)
@click.argument("paths", nargs=-1, metavar="['SOURCE>TARGET']...")
@machine_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each path.")
def COMMAND(paths: tuple[str, ...], machine: str | None, as_json: bool) -> int:  # noqa: N802 - see cli/prove.py
    """The limit of each path, with the narrowest link and its source.

    A path is two device ids, like 'gpu0>nic0' (quote the >); without one, the paths that matter are shown.

    railwright limits 'gpu0>fabric0' --from hgx-h100 nics=2 nic-rate=200Gb/s
    """
    import msgspec

    from railwright.errors import EXIT_OK, EXIT_UNJUDGED
    from railwright.limits.model import Limit
    from railwright.limits.table import limits_of, paths_that_matter
    from railwright.report.limits_text import render_limits
    from railwright.topology.sources.load import load

    topology = load(machine)
    rows = limits_of(topology, paths or paths_that_matter(topology))
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
    else:
        click.echo(render_limits(topology, rows))
    return EXIT_OK if rows and all(isinstance(row.limit, Limit) for row in rows) else EXIT_UNJUDGED
