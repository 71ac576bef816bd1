"""Charts as SVG that reads without a script; `report.js` adds pointing and zooming.

A chart is as wide as the space that it gets, from a phone to a sheet of paper, so its coordinates are those of a phone.
Its colours and strokes are classes of `report.css`. Paths of data use absolute M, L, H and V, which the script maps
when it zooms; the shapes of marks are relative, or markers, so they keep their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import msgspec

from railwright.diagnosis.verdicts.judged import State
from railwright.groups import group_by_key
from railwright.report.pictures.axes import Axis

WIDTH = 440.0
"""The width of a chart in its own coordinates."""
TEXT_PX = 11
_LETTER = 0.56
"""The mean width of a letter, as a share of its height."""
_TICK_GAP = 10

_LANE_PX, _LANE_MIDDLE = 34.0, 0.68
_LANE_LETTERS = 70

Points = Sequence[tuple[float, float]]

# The marks of six curves; colour must never be the only sign.
_MARKS = (
    "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
    "M-3-3h6v6h-6z",
    "M0-4.4l4.4 4.4-4.4 4.4-4.4-4.4z",
    "M0-4.2l4.2 7.4h-8.4z",
    "M-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
    "M0-4.8l1.3 3.2 3.4.2-2.6 2.2.8 3.4-2.9-1.8-2.9 1.8.8-3.4-2.6-2.2 3.4-.2z",
)
# The signs of verdicts around a mark, in the shapes of `wording.STATES`.
_VERDICTS: dict[State, str] = {
    "slow": "M0 8.5l-8-13.5h16z",
    "suspicious": "M0-8.5l8 13.5h-16z",
    "failed": "M-6-6l12 12m0-12l-12 12",
}
SIGNED: tuple[State, ...] = tuple(_VERDICTS)
"""The verdicts that have a sign of their own in a chart."""


LEVEL = "M2 7 14 7 26 7"
"""The shape of a line in a legend."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table behind a figure."""

    series: str
    size: str
    cells: tuple[str, ...]
    state: State


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a legend: its words, and the style, the marker and the shape of its sample, 28 wide and 14 high."""

    words: str
    style: str
    marker: str = ""
    shape: str = LEVEL


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart with a summary in words, its legend, and its table of numbers, if it has one."""

    title: str
    summary: str
    svg: str
    note: str = ""
    """A line below the title."""
    legend: tuple[Entry, ...] = ()
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def row_groups(self) -> list[tuple[str, list[Row]]]:
        """The rows of each series; `report.js` counts them in this order."""
        return [*group_by_key(self.rows, lambda row: row.series)]


def markers() -> str:
    """Return the definitions of all markers, once for a page."""
    marks = [(f"m{number}", f"s{number}", shape) for number, shape in enumerate(_MARKS, 1)]
    marks += [(f"m{number}o", f"s{number} open", _MARKS[number - 1]) for number in (1, 3)]
    marks += [(state, f"sign {state}", shape) for state, shape in _VERDICTS.items()]
    return "".join(
        f'<marker id="{name}" markerUnits="userSpaceOnUse" markerWidth="22" markerHeight="22" viewBox="-11 -11 22 22">'
        f'<path class="{style}" d="{shape}"/></marker>'
        for name, style, shape in marks
    )


class Panel:
    """An area of a chart with its own vertical axis. `decimals` are those of its coordinates."""

    def __init__(self, box: tuple[float, float, float, float], x: Axis, y: Axis, *, decimals: int = 1) -> None:
        self.left, self.top, self.width, self.height = box
        self.x, self.y = x, y
        self._decimals = decimals
        self._drawn: list[str] = []

    def _number(self, value: float) -> str:
        return f"{value:.{self._decimals}f}".rstrip("0").rstrip(".") or "0"

    def _format_x(self, value: float) -> str:
        return self._number(self.width * self.x.place(value))

    def _format_y(self, value: float) -> str:
        return self._number(self.height * (1 - self.y.place(value)))

    def _pairs(self, points: Points) -> Iterable[str]:
        return (f"{self._format_x(x)} {self._format_y(y)}" for x, y in points)

    def line(self, points: Points, style: str, marker: str = "", *, row: int | None = None, title: str = "") -> None:
        """Draw a line through the points, with a marker at each.

        `row` is the place of the first point in the figure's table, where the next points follow; a `title` names a
        single point.
        """
        attributes = f' data-row="{row}"' if row is not None else ""
        style = f"{style} {marker}" if marker else style
        end = f"><title>{escape(title)}</title></path>" if title else "/>"
        self._drawn.append(f'<path class="{style}"{attributes} d="M{" ".join(self._pairs(points))}"{end}')

    def area(self, lows: Points, highs: Points, style: str) -> None:
        """Fill the area between two lines of points from left to right."""
        self._drawn.append(f'<path class="{style}" d="M{" ".join(self._pairs((*lows, *reversed(highs))))}z"/>')

    def ticks(self, points: Points, style: str, shape: str) -> None:
        """Draw a small mark at each point; its shape is relative to it."""
        self._drawn.append(f'<path class="{style}" d="{"".join(f"M{pair}{shape}" for pair in self._pairs(points))}"/>')

    def steps(self, points: Points, style: str, name: str) -> None:
        """Draw a curve that keeps each value until the next; `name` is what a pointer shows."""
        (first_x, first_y), rest = points[0], points[1:]
        steps = "".join(f"H{self._format_x(x)}V{self._format_y(y)}" for x, y in rest)
        start = f"M{self._format_x(first_x)} {self._format_y(first_y)}"
        self._drawn.append(f'<path class="{style}" data-curve="{escape(name)}" d="{start}{steps}"/>')

    def verticals(self, values: Sequence[float], style: str) -> None:
        """Draw lines over the whole height."""
        lines = "".join(f"M{self._format_x(value)} 0V{self._number(self.height)}" for value in values)
        self._drawn.append(f'<path class="{style}" d="{lines}"/>')

    def words(self, point: tuple[float, float], words: str, *, anchor: str) -> None:
        """Write a name beside a point."""
        (pair,) = self._pairs([point])
        x, y = pair.split()
        step = -8 if anchor == "end" else 8
        self._drawn.append(f'<text x="{x}" y="{y}" dx="{step}" dy="-6" text-anchor="{anchor}">{escape(words)}</text>')

    def svg(self, *, x_words: bool) -> str:
        """Return the panel with its axes; several panels share the words of their horizontal axis."""
        return (
            f"<g class=\"panel\" data-x='{escape(self.x.json)}' data-y='{escape(self.y.json)}'>"
            f'<g class="x">{self._x_ticks(with_words=x_words)}</g><g class="y">{self._y_ticks()}</g>'
            f'<svg class="plot" x="{self.left:g}" y="{self.top:g}" width="{self.width:g}" height="{self.height:g}">'
            f"{''.join(self._drawn)}</svg></g>"
        )

    def _x_ticks(self, *, with_words: bool) -> str:
        grid, words, right = [], [], WIDTH + 2 * _TICK_GAP
        bottom = self.top + self.height
        for value, text in sorted(self.x.ticks, reverse=True):
            x, half = self.left + self.width * self.x.place(value), len(text) * TEXT_PX * _LETTER / 2
            x_words = min(x, WIDTH - half)
            if x_words + half > right - _TICK_GAP:
                continue
            grid.append(f"M{self._number(x)} {self.top:g}V{bottom:g}")
            words.append(f'<text x="{self._number(x_words)}" y="{bottom + 15:g}">{escape(text)}</text>')
            right = x_words - half
        return f'<path d="{"".join(grid)}"/>{"".join(words) if with_words else ""}'

    def _y_ticks(self) -> str:
        grid, words = [], []
        for value, text in self.y.ticks:
            y = self.top + self.height * (1 - self.y.place(value))
            grid.append(f"M{self.left:g} {self._number(y)}H{self.left + self.width:g}")
            words.append(f'<text x="{self.left - 6:g}" y="{self._number(y + 4)}">{escape(text)}</text>')
        return f'<path d="{"".join(grid)}"/>{"".join(words)}'


class LaneChart:
    """A chart of lanes below each other, each under its label, with a common axis of values."""

    def __init__(self, x: Axis, labels: Sequence[str]) -> None:
        self.middles = [len(labels) - number - _LANE_MIDDLE for number in range(len(labels))]
        """The vertical position of each lane's marks."""
        self._height = _LANE_PX * len(labels)
        self.panel = Panel((8, 8, WIDTH - 16, self._height), x, Axis(0, len(labels), (), "plain "))
        self._labels = "".join(
            label(8, 20 + _LANE_PX * number, _cut(words), "lane") for number, words in enumerate(labels)
        )
        for middle in self.middles:
            self.panel.line([(x.low, middle), (x.high, middle)], "track")

    def svg(self, title: str, summary: str) -> str:
        """Return the whole chart."""
        return chart(title, summary, self._height + 30, [self.panel], self._labels)


def _cut(words: str) -> str:
    return words if len(words) <= _LANE_LETTERS else f"{words[: _LANE_LETTERS - 2]}.."


def plot_box(height: float) -> tuple[float, float, float, float]:
    """Return the area of the only panel of a chart: the margins have room for the ticks' words."""
    return 68, 8, WIDTH - 78, height - 42


def chart(title: str, summary: str, height: float, panels: Sequence[Panel], labels: str = "") -> str:
    """Return a chart of panels below each other, the last with the words of the horizontal axis.

    `labels` are elements of our own outside of the panels.
    """
    drawn = "".join(panel.svg(x_words=panel is panels[-1]) for panel in panels)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {height:g}" role="img"><title>{escape(title)}</title>'
        f"<desc>{escape(summary)}</desc>{labels}{drawn}</svg>"
    )


def label(x: float, y: float, words: str, style: str = "", anchor: str = "") -> str:
    """Return text of a chart outside of its panels."""
    return (
        f'<text x="{x:g}" y="{y:g}"{f" class={chr(34)}{style}{chr(34)}" if style else ""}'
        f"{f' text-anchor={chr(34)}{anchor}{chr(34)}' if anchor else ''}>{escape(words)}</text>"
    )
