"""Transfers between files and memory by each way, with and without GPUDirect Storage, as a table and a figure.

Uses the records of direct reads and writes of any benchmark: those with a `way` to a GPU, and those between the same
drive and host memory. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from railwright.groups import group_by_key
from railwright.limits.limit import Quantity
from railwright.report.pages.offline_page import Figure, plotly_text
from railwright.report.pictures import axes
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
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
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
    labels = [_label(point) for point in points]
    rows = [(label, point, row) for label, point in zip(labels, points, strict=True) for row in point.ways]
    ways = [way for way in _WAYS if any(row.way == way for _, _, row in rows)]
    title = f"{title}, by each way, {wording.QUANTITY_WORDS[quantity]}"
    layout = axes.dot_layout(quantity, [row.rate for _, _, row in rows], set(labels))
    span = f"{wording.quantity(quantity, min(row.rate for _, _, row in rows))} to "
    return Figure(
        title=title,
        summary=f"{title}: {span}{wording.quantity(quantity, max(row.rate for _, _, row in rows))}. "
        f"Ways: {', '.join(ways)}.",
        caption="Higher is better. Each mark is the median of a way's launches. The table of ways has the numbers.",
        data=tuple(_marks(way, [(label, point, row) for label, point, row in rows if row.way == way]) for way in ways),
        layout={**layout, "showlegend": True, "height": layout["height"] + 40},
    )


def _label(point: WayPoint) -> str:
    size, at_once, *_ = cells(point, point.ways[0])
    return plotly_text(f"{size}, {at_once}"[:22])


def _marks(way: str, rows: Sequence[tuple[str, WayPoint, WayRow]]) -> dict[str, Any]:
    number = _WAYS.index(way)
    hover = ["<br>".join(map(plotly_text, (way, *cells(point, row)[3:5]))) for _, point, row in rows]
    return {
        "type": "scatter", "mode": "markers", "name": plotly_text(way),
        "x": [row.rate for _, _, row in rows], "y": [label for label, _, _ in rows],
        "text": hover, "hoverinfo": "text",
        "marker": {"color": f"--series-{number + 1}", "symbol": _SYMBOLS[number], "size": 11},
    }  # fmt: skip
