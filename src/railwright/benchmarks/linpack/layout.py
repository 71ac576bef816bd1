"""The layout of Linpack on a machine: ranks and threads by NUMA node, the grid, the block, and the largest N."""

from __future__ import annotations

import math

from railwright.benchmarks.job import Machine, cpus_by_node
from railwright.benchmarks.linpack.problem import Grid, Team, largest_order, memory_on_host
from railwright.errors import UsageError
from railwright.limits.limit import Constant, Source
from railwright.units import format_size

_FAQ = Source("HPL frequently asked questions", "netlib.org/benchmark/hpl/faqs.html")
FILL = Constant(0.8, "share of the free memory that the matrix fills, unless n or fill is given", _FAQ)
BLOCK = Constant(192, "rows of a block, unless nb is given; good values are 32 to 256", _FAQ)
FLAT = Grid(1, 0)
"""A single row of ranks: no message per pivot, as HPL's authors advise for a simple Ethernet (the FAQ above)."""
_MOST_GRIDS_SHOWN = 4


def choose_team(machine: Machine, ranks: int, threads: int) -> Team:
    """Return the number of a host's ranks and of the threads of each; chooses those that are 0.

    By default a host has one rank for each NUMA node with usable CPUs and a thread for each of the node's cores, so
    that no thread writes to another node's memory. With `threads` alone, as many ranks as fill the cores. Raises
    UsageError for more threads than CPUs.
    """
    nodes, cpus = cpus_by_node(machine), len(machine.cpus)
    cores = count_cores(machine)
    sharing = max(1, len(machine.hosts)) if machine.hosts_share_cpus else 1
    if machine.hosts:
        ranks = machine.ranks_per_host
    ranks = ranks or (max(1, cores // threads) if threads else max(1, min(len(nodes), cores)))
    threads = threads or max(1, cores // (ranks * sharing))
    if not machine.hosts_share_cpus and ranks * threads > cpus:
        asked = f"{ranks} ranks with {threads} threads each"
        raise UsageError(f"{asked} need {ranks * threads} CPUs, but only {cpus} CPUs may be used",
                         hint=f"give -o threads={max(1, cores // ranks)}, or fewer ranks")  # fmt: skip
    return Team(ranks, threads)


def count_cores(machine: Machine) -> int:
    """Count the usable cores; two CPUs that are threads of one core count once."""
    cores = 0
    for node, cpus in cpus_by_node(machine).items():
        all_cores = next((cpu.facts.get("cores") for cpu in machine.topology.of_kind("cpu") if cpu.numa == node), None)
        cores += min(len(cpus), all_cores) if isinstance(all_cores, int) and all_cores else len(cpus)
    return max(1, cores)


def list_cpus(machine: Machine, place: int, ranks: int) -> tuple[int, ...]:
    """Return the CPUs of rank `place` of a host: its part of the usable CPUs, or one CPU if ranks share them."""
    cpus = machine.cpus
    if ranks >= len(cpus):
        return (cpus[place % len(cpus)],)
    return cpus[place * len(cpus) // ranks : (place + 1) * len(cpus) // ranks]


def list_grids(ranks: int) -> list[Grid]:
    """List the grids of this many ranks, the flattest first: 1x4, 2x2, 4x1."""
    return [Grid(rows, ranks // rows) for rows in range(1, ranks + 1) if ranks % rows == 0]


def choose_grid(asked: Grid, ranks: int) -> Grid:
    """Return the requested grid; FLAT is one row of all ranks."""
    return Grid(1, ranks) if asked == FLAT else asked


def best_grid(ranks: int) -> Grid:
    """Return the grid nearest to a square with no more rows than columns, as HPL's authors advise."""
    rows = next(rows for rows in range(math.isqrt(ranks), 0, -1) if ranks % rows == 0)
    return Grid(rows, ranks // rows)


def refuse_other_grid(grid: Grid, ranks: int) -> None:
    """Raise UsageError for a grid with another number of ranks, and suggest grids that fit."""
    if grid.ranks == ranks:
        return
    near = sorted(list_grids(ranks), key=lambda one: abs(one.rows - one.columns))[:_MOST_GRIDS_SHOWN]
    fitting = ", ".join(str(one) for one in sorted(near))
    raise UsageError(f"a grid of {grid} needs {grid.ranks} ranks, got {ranks}",
                     hint=f"give -o grid={fitting.replace(', ', ' or ')}, or other ranks")  # fmt: skip


def order_that_fits(available_bytes: int | None, fill: float, block: int, grid: Grid, team: Team) -> int:
    """Return the N that fills the share `fill` of the memory.

    Raises UsageError if no block fits or the memory is unknown.
    """
    if available_bytes is None:
        raise UsageError("cannot read the free memory", hint="give -o n=")
    order = largest_order(fill * available_bytes, block, grid, team)
    if not order:
        needed = memory_on_host(block, block, grid, team)
        raise UsageError(
            f"{team.ranks} ranks need {format_size(needed)} before any matrix, but {format_size(available_bytes)} are "
            f"free, of which {fill:.0%} may be used".replace("%", " %"),
            hint="give fewer ranks with more threads each",
        )
    return order


def grown_order(alone: int, hosts: int, block: int) -> int:
    """Return the N with as much of the matrix per host as a single host has, in whole blocks."""
    return alone if hosts == 1 else max(1, round(alone * math.sqrt(hosts) / block)) * block


def refuse_too_large(order: int, available_bytes: int | None, block: int, grid: Grid, team: Team) -> None:
    """Raise UsageError for an N that exceeds a host's free memory, and suggest one that fits."""
    need = memory_on_host(order, block, grid, team)
    if available_bytes is None or need <= available_bytes:
        return
    fits = largest_order(FILL.value * available_bytes, block, grid, team)
    reason = f"N = {order} needs {format_size(need)} of memory on a host, but {format_size(available_bytes)} are free"
    raise UsageError(reason, hint=f"N = {fits} would fit" if fits else "give fewer ranks with more threads each")
