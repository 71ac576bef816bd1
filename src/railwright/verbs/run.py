"""Single benchmarks with all their options, on this host or between several."""

from __future__ import annotations

from typing import Any

import click

from railwright.benchmarks.options import options_of
from railwright.benchmarks.registry import BENCHMARKS, EVERY
from railwright.verbs.hosts import refuse_shared_memory, the_hosts
from railwright.verbs.measuring import measure, with_ceilings


def run(
    names: tuple[str, ...],
    hosts: str | None,
    ranks_per_host: int | None,
    lab: str | None,
    ssh_config: str | None,
    interfaces: str | None,
    alone: bool,
    **asked: Any,  # noqa: ANN401 - for `measure`
) -> int:
    """Measure, judge and report, or list the benchmarks where none is named; the exit status."""
    placed = the_hosts(hosts, ranks_per_host, lab, ssh_config, interfaces)
    refuse_shared_memory(placed, asked["options"])
    if names:
        every = names if alone else with_ceilings(names, between_hosts=placed is not None)
        return measure(every, hosts=placed, ceilings=frozenset(every) - set(names), **asked)
    for benchmark in EVERY:
        place = "" if benchmark in BENCHMARKS else " (not part of prove)"
        click.echo(f"{benchmark.name:18} {benchmark.summary}{place}")
        click.echo(f"{'':18} method: {benchmark.method}")
        for name, (_, option) in options_of(benchmark.options).items():
            default = benchmark.defaults.get(name, option.default)
            click.echo(f"{'':18} -o {benchmark.name}.{name}={default}    {option.help}")
    return 0
