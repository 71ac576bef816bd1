"""Designs side by side as a page: a Pareto picture for each collective, and the tables of `whatif_text`.

The page shares its policy and its figures with the report of a run (`offline_page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from railwright.expected.designs import Design, Question, busbw_limit, find_front, find_price
from railwright.report.pages.offline_page import Figure, plotly_text, render_page
from railwright.report.pictures import axes
from railwright.report.text import collectives as collective_text
from railwright.report.text import whatif as whatif_text
from railwright.report.text import wording
from railwright.units import format_count

_INK, _MUTED, _FIRST = "--ink", "--muted", "--series-1"
_ROOM = 1.14
"""The width of the picture, as a multiple of the dearest design's cost."""
_LETTER, _LINE = 0.027, 0.08
"""The share of a phone's picture that a letter and a line of a name take: 7 of 260 and 20 of 250 points."""


class _Mark(NamedTuple):
    """A design in the picture of one collective."""

    design: Design
    label: str
    price: float
    speed: float
    is_best: bool
    """Whether no other design beats it in this picture."""


def render_designs_html(designs: Sequence[Design], question: Question) -> str:
    """Render the whole page, which needs no network. Raises RailwrightError if plotly.js cannot be embedded."""
    labels = whatif_text.labels(designs)
    fields = {
        "title": whatif_text.title_words(designs),
        "designs": designs,
        "named": dict(zip((design.name for design in designs), labels, strict=True)),
        "notes": whatif_text.notes(designs, question),
        "show": whatif_text,
        "rate_words": collective_text.rate_words,
        "priced": question.prices is not None,
    }
    drawn = [_picture(designs, labels, place) for place in range(len(designs[0].collectives))]
    return render_page("whatif.html.j2", drawn, fields)


def _picture(designs: Sequence[Design], labels: Sequence[str], place: int) -> Figure:
    """Draw limit against cost: designs on the Pareto front are filled and joined, the others are open."""
    best = find_front(designs, place)
    joined = best if len({design.compared_by for design in designs}) == 1 else ()
    marks = [
        _Mark(design, label, find_price(design), busbw_limit(design, place), design in best)
        for design, label in zip(designs, labels, strict=True)
    ]
    marks.sort(key=lambda mark: not mark.is_best)
    sides = _sides(marks)
    front_line = {
        "type": "scatter", "mode": "lines", "showlegend": False, "hoverinfo": "skip",
        "x": [find_price(design) for design in joined], "y": [busbw_limit(design, place) for design in joined],
        "line": {"color": _FIRST, "width": 1.5, "dash": "dot", "shape": "hv"},
    }  # fmt: skip
    kinds = ((True, "Pareto", "circle", _FIRST), (False, "beaten", "diamond-open", _INK))
    drawn = [
        _trace([mark for mark in marks if mark.is_best == is_best], place, name, symbol, colour, sides)
        for is_best, name, symbol, colour in kinds
    ]
    against = "cost" if designs[0].cost is not None else "switch ports"
    return Figure(
        title=f"{designs[0].collectives[place].collective}: busbw against {against}",
        summary=f"On the front: {', '.join(mark.label for mark in marks if mark.is_best)}",
        data=(front_line, *(trace for trace in drawn if trace["x"])),
        layout=_layout(marks),
    )


def _sides(marks: Sequence[_Mark]) -> dict[str, str]:
    """Place each name left or right of its mark; names that would be cut or overlap have no entry."""
    dearest = max(mark.price for mark in marks) or 1.0
    fastest = max(mark.speed for mark in marks)
    where = [(mark.price / dearest, mark.speed / fastest) for mark in marks]
    found: dict[str, str] = {}
    taken: list[tuple[float, float, float]] = []
    for number, mark in enumerate(marks):
        (across, up), width = where[number], _LETTER * len(mark.label)
        others = [(x, x, y) for x, y in where[:number] + where[number + 1 :]]
        for side, start in (("top left", across - width), ("top right", across)):
            fits = start >= 0 and start + width <= _ROOM
            if fits and all(
                abs(up - row) >= _LINE or start >= end + _LETTER or begin >= start + width + _LETTER
                for begin, end, row in taken + others
            ):
                found[mark.label] = side
                taken.append((start, start + width, up))
                break
    return found


def _trace(
    marks: Sequence[_Mark], place: int, name: str, symbol: str, colour: str, sides: dict[str, str]
) -> dict[str, Any]:
    """Return the trace of the designs of a kind; `sides` has the designs whose name fits."""
    return {
        "type": "scatter", "mode": "markers+text", "name": name,
        "x": [mark.price for mark in marks], "y": [mark.speed for mark in marks],
        "marker": {"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
        "text": [plotly_text(mark.label) if mark.label in sides else "" for mark in marks],
        "textposition": [sides.get(mark.label, "top left") for mark in marks],
        "textfont": {"color": _INK}, "cliponaxis": False,
        "hovertext": [_hover(mark, place) for mark in marks], "hoverinfo": "text",
    }  # fmt: skip


def _hover(mark: _Mark, place: int) -> str:
    rate, cost = mark.design.collectives[place].busbw_bytes_per_s, mark.design.cost
    against = format_count(mark.design.parts.switch_ports, "switch port")
    lines = [
        f"<b>{plotly_text(mark.label)}</b>",
        f"limit {wording.quantity('bandwidth_bytes_per_s', rate.limit)}",
        f"expected {collective_text.rate_words(rate)}",
        plotly_text(whatif_text.money(cost.total, cost.currency)) if cost is not None else against,
    ]
    return "<br>".join(lines)


def _layout(marks: Sequence[_Mark]) -> dict[str, Any]:
    """Build the layout: both axes begin at zero, so distances are shares, with room for the names."""
    dearest, cost = max(mark.price for mark in marks) or 1.0, marks[0].design.cost
    speeds = [mark.speed for mark in marks]
    layout = axes.dot_layout("bandwidth_bytes_per_s", speeds, [""])
    bandwidth = layout["xaxis"]
    unit = plotly_text(f" {wording.escape(cost.currency)}") if cost is not None else ""
    ticks = axes.linear_ticks(dearest, room=1.1)
    words = [f"{_short(tick)}{unit if tick else ''}" for tick in ticks]
    title = {} if cost is not None else {"title": {"text": "switch ports in use", "font": {"color": _MUTED}}}
    return {
        **layout,
        "xaxis": {**axes.AXIS, **title, "tickvals": ticks, "ticktext": words, "range": [0, dearest * _ROOM]},
        "yaxis": {**bandwidth, "range": [0, max(speeds) * 1.2]},
        "legend": {**layout["legend"], "y": -0.2},
        "height": 360,
        "margin": {**layout["margin"], "l": 68},
    }


def _short(value: float) -> str:
    """Format a number like `4 M`, `250 k` or `512`."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"
