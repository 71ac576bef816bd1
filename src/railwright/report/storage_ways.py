"""Files to and from memory by each way, in one table and one figure: with GPUDirect Storage and without it.

From the records of direct reads and writes, whichever benchmark made them: those with a `way` to a GPU, and those of
the same drive and host memory. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from railwright.limits.limit import Quantity
from railwright.report.pages.offline_page import Figure, plotly_text
from railwright.report.pictures import axes
from railwright.report.text import wording
from railwright.results.records import Result, size_of
from railwright.topology.devices import Scalar
from railwright.units import format_duration

TITLE = "Files by each way"
COLUMNS = ("size", "at once", "way", "rate", "median", "p99", "CPU s/GB", "gain")
NOTE = (
    "At once: threads x operations in flight of each. CPU s/GB: CPU seconds of the process for 10^9 bytes. "
    "Gain: of cuFile over pinned buffers (bounce)."
)
HOST, WITHOUT = "host memory", "bounce"
_WAYS = (HOST, "bounce", "cufile compat", "gds")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
_KEY = ("size_bytes", "threads", "depth")
_NEEDED = {*_KEY, "order"}


class WayRow(NamedTuple):
    """One way at one point."""

    way: str
    quantity: Quantity
    rate: float
    """The median of the launches' medians, bytes/s or operations/s."""
    median_s: float | None
    p99_s: float | None
    cpu_s_per_gb: float | None


class WayPoint(NamedTuple):
    """One size, depth and number of threads, by each way that was measured."""

    parameters: dict[str, Scalar]
    ways: tuple[WayRow, ...]

    def gain(self, row: WayRow) -> float | None:
        """How many times as fast as through pinned buffers; None for host memory, and where those were not measured."""
        without = next((other.rate for other in self.ways if other.way == WITHOUT), 0.0)
        return row.rate / without if without and row.way not in (HOST, WITHOUT) else None


class WayTable(NamedTuple):
    """All points of one direction and order at one drive."""

    title: str
    points: tuple[WayPoint, ...]


def way_tables(results: Iterable[Result]) -> tuple[WayTable, ...]:
    """A table for each drive, direction and order where anything was measured by more than one way."""
    tables: dict[str, dict[tuple[Scalar, ...], dict[str, list[Result]]]] = {}
    for one in results:
        size = size_of(one.parameters)
        if one.outcome != "measured" or one.summary is None or size is None or not one.parameters.keys() >= _NEEDED:
            continue
        source, _, target = one.path.partition(">")
        is_write = one.parameters.get("operation") == "write"
        verb, drive = ("Writes", target) if is_write else ("Reads", source)
        own = "a file for each thread" if one.parameters.get("files") == "own" else ""
        title = ", ".join(filter(None, (verb, drive, str(one.parameters.get("order", "")), own)))
        key = tuple(one.parameters.get(name, "") for name in _KEY)
        way = str(one.parameters.get("way", HOST))
        tables.setdefault(title, {}).setdefault(key, {}).setdefault(way, []).append(one)
    found = []
    for title, points in tables.items():
        rows = tuple(_point(key, ways) for key, ways in points.items())
        if any(len(row.ways) > 1 for row in rows):
            found.append(WayTable(wording.visible(title), rows))
    return tuple(found)


def _point(key: Sequence[Scalar], ways: dict[str, list[Result]]) -> WayPoint:
    known = sorted(ways, key=lambda way: _WAYS.index(way) if way in _WAYS else len(_WAYS))
    rows = tuple(row for way in known if (row := _row(way, ways[way])) is not None)
    return WayPoint({name: value for name, value in zip(_KEY, key, strict=True) if value != ""}, rows)


def _row(way: str, results: Sequence[Result]) -> WayRow | None:
    """Of several kinds of pages the faster one."""
    kinds: dict[Scalar, list[Result]] = {}
    for one in results:
        kinds.setdefault(one.parameters.get("pages", ""), []).append(one)
    rows = [row for group in kinds.values() if (row := _of_kind(way, group)) is not None]
    return max(rows, key=lambda row: row.rate, default=None)


def _of_kind(way: str, results: Sequence[Result]) -> WayRow | None:
    rates = [one for one in results if one.quantity != "latency_s"]
    if not rates:
        return None
    times = [one for one in results if one.quantity == "latency_s"]
    costs = [one.settings.get("cpu_s_per_gb") for one in rates]
    known = [float(cost) for cost in costs if isinstance(cost, int | float)]
    return WayRow(
        way=way,
        quantity=rates[0].quantity,
        rate=statistics.median(one.summary.median for one in rates if one.summary is not None),
        median_s=_median([one.summary.median for one in times if one.summary is not None]),
        p99_s=_median([one.summary.p99 for one in times if one.summary is not None]),
        cpu_s_per_gb=_median(known),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def cells(point: WayPoint, row: WayRow) -> tuple[str, ...]:
    """A line of the table, in the order of COLUMNS."""
    gain = point.gain(row)
    return (
        wording.size_words(point.parameters),
        f"{point.parameters.get('threads', 1)} x {point.parameters.get('depth', 1)}",
        wording.visible(row.way),
        wording.quantity(row.quantity, row.rate),
        wording.ABSENT if row.median_s is None else format_duration(row.median_s),
        wording.ABSENT if row.p99_s is None else format_duration(row.p99_s),
        wording.ABSENT if row.cpu_s_per_gb is None else f"{row.cpu_s_per_gb:.3g}",
        wording.ABSENT if gain is None else f"{gain:.2f}",
    )


def lines(tables: Iterable[WayTable]) -> Iterator[str]:
    """The tables as text, each under its title."""
    for table in tables:
        rows = [COLUMNS, *(cells(point, row) for point in table.points for row in point.ways)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        yield table.title
        for row in rows:
            yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def figures(tables: Iterable[WayTable]) -> tuple[Figure, ...]:
    """A figure for each table and quantity: a line for each point, a mark for each way."""
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
        caption="Higher is better. A mark for each way: median of the launches. The table of ways has the numbers.",
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
