"""The paths that a fault slows down, and by how much: the machine's limits with and without the fault.

Other costs of a fault (stalls, retries, jitter) need a measurement. Paths with an unknown limit on either side are
left out, so an empty answer does not mean that the fault costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from railwright.checks.outcome import Slowed
from railwright.errors import RailwrightError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import list_host_rows
from railwright.limits.limit import Limit, NoLimit
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import Topology
from railwright.topology.routes import list_main_paths

Mend = Callable[[Topology], tuple[Topology, Topology]]
_COLLECTIVES = ("all_reduce", "all_to_all")
_HOSTS = (1, 2)
"""A single machine, and two of them, where NICs decide."""
_SAME_RATE = 1 - 1e-6


def find_slowed(mend: Mend, topology: Topology) -> tuple[Slowed, ...]:
    """Return the slowed paths, those with the same loss together and the largest loss first."""
    now, without = mend(topology)
    losses: dict[tuple[float, float], list[str]] = {}
    for name, is_now, could_be in (*_compare_paths(now, without), *_compare_collectives(now, without)):
        if is_now < could_be * _SAME_RATE:
            losses.setdefault((is_now, could_be), []).append(name)
    return tuple(
        Slowed(what=tuple(names), with_fault_bytes_per_s=is_now, without_bytes_per_s=could_be)
        for (is_now, could_be), names in sorted(losses.items(), key=lambda item: item[0][0] / item[0][1])
    )


def _compare_paths(now: Topology, without: Topology) -> Iterator[tuple[str, float, float]]:
    both = [path for path in list_main_paths(without) if path in set(list_main_paths(now))]
    rows = (list_host_rows(Machine(cluster=build_cluster(host, 1)), both) for host in (now, without))
    for row, other in zip(*rows, strict=True):
        rates = [_rate(limit) for limit in (row.limit, other.limit)]
        if None not in rates:
            yield row.path, rates[0] or 0.0, rates[1] or 0.0


def _rate(limit: Limit | NoLimit) -> float | None:
    if isinstance(limit, Limit) and limit.quantity == "bandwidth_bytes_per_s":
        return limit.value
    return None


def _compare_collectives(now: Topology, without: Topology) -> Iterator[tuple[str, float, float]]:
    for hosts in _HOSTS:
        for name in _COLLECTIVES:
            rates = [_busbw_limit(machine, hosts, name) for machine in (now, without)]
            if None not in rates:
                where = "on this host" if hosts == 1 else f"over {hosts} such hosts"
                yield f"{name} {where} (busbw)", rates[0] or 0.0, rates[1] or 0.0


def _busbw_limit(machine: Topology, hosts: int, collective: str) -> float | None:
    """Return the busbw limit in bytes/s; None if the machine's limits do not determine it."""
    if not machine.of_kind("gpu"):
        return None
    try:
        return collective_row(build_cluster(machine, hosts), collective).busbw_bytes_per_s.limit
    except RailwrightError:
        return None
