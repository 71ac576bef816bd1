"""Transfers between files and memory by each way, with and without GPUDirect Storage, as a table and a figure.

Uses the records of direct reads and writes of any benchmark: those with a `way` to a GPU, and those between the same
drive and host memory. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from railwright.groups import group_by_key
from railwright.limits.limit import Quantity
from railwright.report.pictures import axes
from railwright.report.pictures.chart import Entry, Figure, LaneChart
from railwright.report.text import wording
from railwright.results.records import Result, find_size
from railwright.topology.devices import Scalar
from railwright.units import format_duration

TITLE = "Files by each way"
COLUMNS = ("size", "at once", "way", "rate", "median", "p99", "CPU s/GB", "gain")
NOTE = (
    "At once: threads x operations in flight per thread. CPU s/GB: CPU seconds of the process per 10^9 bytes. "
    "Gain: rate of cuFile over that of pinned buffers (bounce)."
)
HOST, WITHOUT = "host memory", "bounce"
_WAYS = (HOST, "bounce", "cufile compat", "gds")
_KEY = ("size_bytes", "threads", "depth")
_NEEDED = {*_KEY, "order"}


class WayRow(NamedTuple):
    """The measurements of a way at a point."""

    way: str
    quantity: Quantity
    rate: float
    """The median of the launches' medians, bytes/s or operations/s."""
    median_s: float | None
    p99_s: float | None
    cpu_s_per_gb: float | None


class WayPoint(NamedTuple):
    """A size, depth and number of threads, with each way that was measured."""

    parameters: dict[str, Scalar]
    ways: tuple[WayRow, ...]

    def gain(self, row: WayRow) -> float | None:
        """Return the rate over that of pinned buffers; None for these and host memory, or if they were not measured."""
        without = next((other.rate for other in self.ways if other.way == WITHOUT), 0.0)
        return row.rate / without if without and row.way not in (HOST, WITHOUT) else None


class WayTable(NamedTuple):
    """All points of a direction and order at a drive."""

    title: str
    points: tuple[WayPoint, ...]


def way_tables(results: Iterable[Result]) -> tuple[WayTable, ...]:
    """Build a table for each drive, direction and order that was measured by more than one way."""
    found = []
    for title, group in group_by_key(filter(_is_usable, results), _title):
        points = tuple(_point(parameters, same) for parameters, same in group_by_key(group, _key))
        if any(len(point.ways) > 1 for point in points):
            found.append(WayTable(wording.escape(title), points))
    return tuple(found)


def _is_usable(result: Result) -> bool:
    sized = find_size(result.parameters) is not None and result.parameters.keys() >= _NEEDED
    return result.outcome == "measured" and result.summary is not None and sized


def _title(result: Result) -> str:
    source, _, target = result.path.partition(">")
    verb, drive = ("Writes", target) if result.parameters.get("operation") == "write" else ("Reads", source)
    files = "a file for each thread" if result.parameters.get("files") == "own" else ""
    return ", ".join(filter(None, (verb, drive, str(result.parameters.get("order", "")), files)))


def _key(result: Result) -> tuple[Scalar, ...]:
    return tuple(result.parameters[name] for name in _KEY)


def _point(key: Sequence[Scalar], results: Sequence[Result]) -> WayPoint:
    """Build a point; if a way was measured with several kinds of pages, the fastest counts."""
    rows = []
    for way, way_results in group_by_key(results, lambda result: str(result.parameters.get("way", HOST))):
        kinds = [
            _row(way, same) for _, same in group_by_key(way_results, lambda result: result.parameters.get("pages", ""))
        ]
        if fastest := max(filter(None, kinds), key=lambda row: row.rate, default=None):
            rows.append(fastest)
    rows.sort(key=lambda row: _WAYS.index(row.way) if row.way in _WAYS else len(_WAYS))
    return WayPoint(dict(zip(_KEY, key, strict=True)), tuple(rows))


def _row(way: str, results: Sequence[Result]) -> WayRow | None:
    rates = [result for result in results if result.quantity != "latency_s"]
    if not rates:
        return None
    times = [result.summary for result in results if result.quantity == "latency_s" and result.summary is not None]
    costs = [result.settings.get("cpu_s_per_gb") for result in rates]
    return WayRow(
        way=way,
        quantity=rates[0].quantity,
        rate=statistics.median(result.summary.median for result in rates if result.summary is not None),
        median_s=_median([result.median for result in times]),
        p99_s=_median([result.p99 for result in times]),
        cpu_s_per_gb=_median([float(cost) for cost in costs if isinstance(cost, int | float)]),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def cells(point: WayPoint, row: WayRow) -> tuple[str, ...]:
    """Return a line of the table, in the order of COLUMNS."""
    gain = point.gain(row)
    return (
        wording.size_words(point.parameters),
        f"{point.parameters['threads']} x {point.parameters['depth']}",
        wording.escape(row.way),
        wording.quantity(row.quantity, row.rate),
        wording.ABSENT if row.median_s is None else format_duration(row.median_s),
        wording.ABSENT if row.p99_s is None else format_duration(row.p99_s),
        wording.ABSENT if row.cpu_s_per_gb is None else f"{row.cpu_s_per_gb:.3g}",
        wording.ABSENT if gain is None else f"{gain:.2f}",
    )


def lines(tables: Iterable[WayTable]) -> Iterator[str]:
    """Yield the tables as text, each under its title."""
    for table in tables:
        rows = [cells(point, row) for point in table.points for row in point.ways]
        yield from wording.table_lines(table.title, [COLUMNS, *rows])


def figures(tables: Iterable[WayTable]) -> tuple[Figure, ...]:
    """Build a figure for each table and quantity, with a row for each point and a mark for each way."""
    found = []
    for table in tables:
        for quantity in dict.fromkeys(row.quantity for point in table.points for row in point.ways):
            points = [point for point in table.points if any(row.quantity == quantity for row in point.ways)]
            found.append(_figure(table.title, quantity, points))
    return tuple(found)


def _figure(title: str, quantity: Quantity, points: Sequence[WayPoint]) -> Figure:
    """Draw a lane for each point, with a mark for each way."""
    rows = [(point, row) for point in points for row in point.ways]
    rates = [row.rate for _, row in rows]
    ways = sorted({row.way for _, row in rows}, key=_marker)
    title = f"{title}, by each way, {wording.QUANTITY_WORDS[quantity]}"
    span = f"{wording.quantity(quantity, min(rates))} to {wording.quantity(quantity, max(rates))}"
    lanes = LaneChart(axes.rate_axis(quantity, rates), [", ".join(cells(point, point.ways[0])[:2]) for point in points])
    for point, middle in zip(points, lanes.middles, strict=True):
        for row in point.ways:
            words = "\n".join(cells(point, row)[2:5])
            lanes.panel.line([(row.rate, middle)], "marks", _marker(row.way), title=words)
    summary = f"{title}: {span}. Ways: {', '.join(map(wording.escape, ways))}."
    return Figure(
        title=title,
        summary=summary,
        svg=lanes.svg(title, summary),
        legend=tuple(Entry(words=wording.escape(way), style="marks", marker=_marker(way)) for way in ways),
        caption="Higher is better. Each mark is the median of a way's launches. The table of ways has the numbers.",
    )


def _marker(way: str) -> str:
    return f"m{_WAYS.index(way) + 1 if way in _WAYS else len(_WAYS) + 1}"
