"""What a fault that was found slows down, and by how much: the machine's limits with it, held against those without.

Limits only: what a fault costs beyond them (stalls, retries, jitter) shows in a measurement alone. A path whose limit
is not known on either side is left out, so that an empty answer says nothing of what a fault costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from railwright.checks.outcome import Slowed
from railwright.errors import RailwrightError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import rows_inside
from railwright.limits.limit import Limit, NoLimit
from railwright.topology.cluster import cluster_of
from railwright.topology.devices import Topology
from railwright.topology.routes import paths_that_matter

Mend = Callable[[Topology], tuple[Topology, Topology]]
_COLLECTIVES = ("all_reduce", "all_to_all")
_HOSTS = (1, 2)
"""The machine alone, and with another like it, where NICs decide."""
_SAME = 1 - 1e-6


def slowed(mend: Mend, topology: Topology) -> tuple[Slowed, ...]:
    """Paths that lose the same are told together, those that lose most first."""
    now, without = mend(topology)
    losses: dict[tuple[float, float], list[str]] = {}
    for what, is_now, could_be in (*_paths(now, without), *_collectives(now, without)):
        if is_now < could_be * _SAME:
            losses.setdefault((is_now, could_be), []).append(what)
    return tuple(
        Slowed(what=tuple(names), with_fault_bytes_per_s=is_now, without_bytes_per_s=could_be)
        for (is_now, could_be), names in sorted(losses.items(), key=lambda one: one[0][0] / one[0][1])
    )


def _paths(now: Topology, without: Topology) -> Iterator[tuple[str, float, float]]:
    both = [path for path in paths_that_matter(without) if path in set(paths_that_matter(now))]
    rows = (rows_inside(Machine(cluster=cluster_of(host, 1)), both) for host in (now, without))
    for one, other in zip(*rows, strict=True):
        rates = [_rate(limit) for limit in (one.limit, other.limit)]
        if None not in rates:
            yield one.path, rates[0] or 0.0, rates[1] or 0.0


def _rate(limit: Limit | NoLimit) -> float | None:
    if isinstance(limit, Limit) and limit.quantity == "bandwidth_bytes_per_s":
        return limit.value
    return None


def _collectives(now: Topology, without: Topology) -> Iterator[tuple[str, float, float]]:
    for hosts in _HOSTS:
        for name in _COLLECTIVES:
            rates = [_busbw(machine, hosts, name) for machine in (now, without)]
            if None not in rates:
                where = "on this host" if hosts == 1 else f"over {hosts} such hosts"
                yield f"{name} {where} (busbw)", rates[0] or 0.0, rates[1] or 0.0


def _busbw(machine: Topology, hosts: int, collective: str) -> float | None:
    """In bytes/s; None where the machine's limits do not tell it."""
    if not machine.of_kind("gpu"):
        return None
    try:
        return collective_row(cluster_of(machine, hosts), collective).busbw_bytes_per_s.limit
    except RailwrightError:
        return None
