"""Designs side by side as a page: a Pareto picture for each collective, and the tables of `whatif_text`.

The page shares its policy and its figures with the report of a run (`offline_page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from railwright.expected.designs import Design, Question, busbw_limit, find_front, find_price
from railwright.groups import group_by_key
from railwright.report.pages.offline_page import render_page
from railwright.report.pictures import axes
from railwright.report.pictures.chart import Entry, Figure, Panel, chart, label, plot_box
from railwright.report.text import collectives as collective_text
from railwright.report.text import whatif as whatif_text
from railwright.report.text import wording
from railwright.units import format_count

_ROOM = 1.14
"""The width of the picture, as a multiple of the dearest design's cost."""
_LETTER, _LINE = 0.018, 0.08
"""The share of the picture that a letter and a line of a name take."""


class _Mark(NamedTuple):
    """A design in the picture of one collective."""

    design: Design
    label: str
    price: float
    speed: float
    is_best: bool
    """Whether no other design beats it in this picture."""


def render_designs_html(designs: Sequence[Design], question: Question) -> str:
    """Render the whole page, which needs no network. Its pictures have the designs that can be compared by cost."""
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
    named = zip(designs, labels, strict=True)
    _, shown = max(group_by_key(named, lambda pair: pair[0].compared_by), key=lambda group: len(group[1]))
    places = range(len(designs[0].collectives)) if len(shown) > 1 or len(designs) == 1 else ()
    drawn = [_picture([design for design, _ in shown], [label for _, label in shown], place) for place in places]
    return render_page("whatif.html.j2", drawn, fields)


def _picture(designs: Sequence[Design], labels: Sequence[str], place: int) -> Figure:
    """Draw limit against cost: designs on the Pareto front are filled and joined, the others are open."""
    best = find_front(designs, place)
    marks = [
        _Mark(design, name, find_price(design), busbw_limit(design, place), design in best)
        for design, name in zip(designs, labels, strict=True)
    ]
    marks.sort(key=lambda mark: not mark.is_best)
    against = "cost" if designs[0].cost is not None else "switch ports"
    title = f"{designs[0].collectives[place].collective}: busbw against {against}"
    summary = f"On the front: {', '.join(mark.label for mark in marks if mark.is_best)}"
    legend = [Entry(words="Pareto", style="front s1", marker="m1")]
    if not all(mark.is_best for mark in marks):
        legend.append(Entry(words="beaten", style="marks", marker="m3o"))
    return Figure(title=title, summary=summary, svg=_drawing(title, summary, marks, place), legend=tuple(legend))


def _drawing(title: str, summary: str, marks: Sequence[_Mark], place: int) -> str:
    """Draw the marks; both axes begin at zero, so distances are shares, with room for the names."""
    height = 292.0
    dearest, cost = max(mark.price for mark in marks) or 1.0, marks[0].design.cost
    across = f"cost, {wording.escape(cost.currency)}" if cost is not None else "switch ports in use"
    x = axes.linear_axis(dearest, "short", _short, room=_ROOM)
    panel = Panel(
        plot_box(height), x, axes.rate_axis("bandwidth_bytes_per_s", [1.12 * max(mark.speed for mark in marks)])
    )
    front = sorted((mark.price, mark.speed) for mark in marks if mark.is_best)
    panel.steps(front, "front s1", "")
    for mark, side in zip(marks, _sides(marks), strict=True):
        point = (mark.price, mark.speed)
        panel.line([point], "marks", "m1" if mark.is_best else "m3o", title=_pointed(mark, place))
        if side:
            panel.words(point, mark.label, anchor=side)
    return chart(
        title, summary, height, [panel], label(panel.left + panel.width / 2, height - 3, across, anchor="middle")
    )


def _sides(marks: Sequence[_Mark]) -> list[str]:
    """Place each name: it ends or starts at its mark; a name that would be cut or overlap is left out."""
    dearest = max(mark.price for mark in marks) or 1.0
    fastest = max(mark.speed for mark in marks)
    where = [(mark.price / dearest, mark.speed / fastest) for mark in marks]
    sides: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for number, mark in enumerate(marks):
        (across, up), width = where[number], _LETTER * len(mark.label)
        others = [(x, x, y) for x, y in where[:number] + where[number + 1 :]]
        for side, start in (("end", across - width), ("start", across)):
            fits = start >= 0 and start + width <= _ROOM
            if fits and all(
                abs(up - row) >= _LINE or start >= end + _LETTER or begin >= start + width + _LETTER
                for begin, end, row in taken + others
            ):
                sides.append(side)
                taken.append((start, start + width, up))
                break
        else:
            sides.append("")
    return sides


def _pointed(mark: _Mark, place: int) -> str:
    """Return the lines that a pointer shows."""
    rate, cost = mark.design.collectives[place].busbw_bytes_per_s, mark.design.cost
    against = format_count(mark.design.parts.switch_ports, "switch port")
    lines = [
        mark.label,
        f"limit {wording.quantity('bandwidth_bytes_per_s', rate.limit)}",
        f"expected {collective_text.rate_words(rate)}",
        whatif_text.money(cost.total, cost.currency) if cost is not None else against,
    ]
    return "\n".join(lines)


def _short(value: float) -> str:
    """Format a number like `4 M`, `250 k` or `512`."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"
