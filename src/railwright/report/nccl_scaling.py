"""The scaling of NCCL over growing groups of hosts: the busbw of each against that of the smallest between hosts.

Works on the judged points of NCCL benchmarks with `among=growing`. Pure, text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import group_by_key
from railwright.report.text import wording
from railwright.results.records import find_size
from railwright.units import format_bandwidth, format_size

TITLES = ("hosts", "ranks", "size", "busbw", "efficiency", "")
_HOSTS = "group_hosts"
_SEVERAL = 2


def scaling_lines(points: Iterable[Judged]) -> Iterator[str]:
    """Yield the tables as text, each under its title."""
    for title, rows in scaling_tables(points):
        yield from wording.table_lines(title, [TITLES, *rows])


def scaling_tables(points: Iterable[Judged]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield a title and rows for each curve with groups of several sizes, at its largest size."""
    for title, curve in group_by_key(filter(_is_usable, points), _curve):
        largest = max(find_size(point.parameters) or 0 for point in curve)
        # Shares are rounded to whole floats, so the sizes of groups differ a little.
        groups = {_hosts(point): point for point in curve if 2 * (find_size(point.parameters) or 0) > largest}
        base = next((groups[hosts] for hosts in sorted(groups) if hosts >= _SEVERAL), None)
        if base is not None and len(groups) > 1:
            yield wording.escape(title), [_row(groups[hosts], base) for hosts in sorted(groups)]


def _is_usable(point: Judged) -> bool:
    """Report whether the point is a measured busbw of a growing group."""
    is_rate = point.quantity == "bandwidth_bytes_per_s" and point.parameters.get("rate") == "busbw"
    return is_rate and point.outcome == "measured" and bool(point.value) and _hosts(point) > 0


def _hosts(point: Judged) -> int:
    found = point.parameters.get(_HOSTS)
    return found if isinstance(found, int) else 0


def _curve(point: Judged) -> str:
    return f"{point.benchmark}  {wording.parameter_words(point.parameters, without=(_HOSTS, 'size_bytes'))}"


def _row(point: Judged, base: Judged) -> tuple[str, ...]:
    """Return a row. A group of one host has no efficiency, because its ranks use other links."""
    hosts, value, whole = _hosts(point), point.value or 0.0, base.value or 1.0
    size = format_size(find_size(point.parameters) or 0)
    efficiency = f"{value / whole:.2f}" if hosts >= _SEVERAL else wording.ABSENT
    state = wording.state_word(point.verdict.state)
    return str(hosts), str(point.ranks), size, format_bandwidth(value), efficiency, state
