"""`railwright run NAME...`: single benchmarks with all their options."""

from __future__ import annotations

from typing import Any

import click

from railwright.cli.hosts_option import hosts_options, refuse_shared_memory, the_hosts
from railwright.cli.measuring import measure, measuring_options


@click.command("run")
@click.argument("names", nargs=-1, metavar="NAME...")
@measuring_options(launches=1)
@hosts_options
def COMMAND(  # noqa: N802 - see cli/prove.py
    names: tuple[str, ...],
    hosts: str | None,
    ranks_per_host: int | None,
    lab: str | None,
    ssh_config: str | None,
    interfaces: str | None,
    **asked: Any,  # noqa: ANN401
) -> int:
    """Run single benchmarks; without a name, list them with their options.

    \b
    railwright run mpi_latency -o transports=shm
    railwright run mpi_all_reduce --hosts node1,node2 --ranks-per-host 4
    railwright run kv_transfer --lab lab --hosts host0,host2
    """  # noqa: D301
    placed = the_hosts(hosts, ranks_per_host, lab, ssh_config, interfaces)
    refuse_shared_memory(placed, asked["options"])
    if names:
        return measure(names, hosts=placed, **asked)
    from railwright.benchmarks.options import options_of
    from railwright.benchmarks.registry import BENCHMARKS, EVERY

    for benchmark in EVERY:
        alone = "" if benchmark in BENCHMARKS else " (not part of prove)"
        click.echo(f"{benchmark.name:18} {benchmark.summary}{alone}")
        click.echo(f"{'':18} method: {benchmark.method}")
        for name, (_, option) in options_of(benchmark.options).items():
            default = benchmark.defaults.get(name, option.default)
            click.echo(f"{'':18} -o {benchmark.name}.{name}={default}    {option.help}")
    return 0
