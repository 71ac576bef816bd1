"""Copies that are slower than those of the same table over alike paths.

Where no document gives the rate of a link, such as that between two sockets, the other copies over it show its rate.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.peers.gpus import kind_of_path
from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Copy, describe
from railwright.topology.devices import Topology
from railwright.topology.paths import Graph
from railwright.units import format_bandwidth

_HEALTHY_SHARE = 0.75
"""Our choice: above the half that a link with half of its lanes keeps, and below what healthy copies vary by."""
_FEWEST = 2


def compare_alike(file: ForeignFile, rows: Sequence[Judged], host: Topology) -> tuple[Judged, ...]:
    """Return the rows; a doubted copy far below the healthy copies over alike paths is slow.

    At least two such copies must be healthy. Copies in both directions at once are left out: those of one healthy host
    differ (docs/measured/4xh200).
    """
    if not isinstance(file.workload, Copy) or all(row.verdict.state != "unknown" for row in rows):
        return tuple(rows)
    graph = Graph(host)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, (row, result) in enumerate(zip(rows, file.results, strict=True)):
        is_one_way = describe(file.workload, result).direction != "both" and row.quantity != "latency_s"
        if is_one_way and row.value and (kind := kind_of_path(row.path, graph)):
            settings = sorted((name, value) for name, value in row.parameters.items() if value != row.path)
            groups[(kind, *settings)].append(number)
    compared = list(rows)
    for numbers in groups.values():
        healthy = [rows[number].value or 0.0 for number in numbers if rows[number].verdict.state == "ok"]
        if len(healthy) >= _FEWEST:
            for number in numbers:
                compared[number] = _compare(rows[number], healthy)
    return tuple(compared)


def _compare(row: Judged, healthy: Sequence[float]) -> Judged:
    typical, value = statistics.median(healthy), row.value or 0.0
    if row.verdict.state != "unknown" or value >= _HEALTHY_SHARE * typical:
        return row
    rates = f"{format_bandwidth(value)} is {value / typical:.2f} of the {format_bandwidth(typical)}"
    why = f"{rates} that {len(healthy)} copies over alike paths reach"
    return replace(row, verdict=Verdict(state="slow", why=why))
