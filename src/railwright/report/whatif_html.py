"""Designs side by side as one page: a Pareto picture for each collective, and the tables of `whatif_text`.

The page, its policy and its drawing of figures are those of the report of a run (`offline_page`).
"""

from __future__ import annotations

import html as escaping
import math
from collections.abc import Sequence
from typing import Any

import msgspec

import railwright
from railwright.limits.designs import Design, Question, front, price, speed
from railwright.report import axes, whatif_text, wording
from railwright.report.offline_page import render_page

_INK, _MUTED, _FIRST = "--ink", "--muted", "--series-1"
_ROOM = 1.14
"""Where the picture ends, as a share of the dearest design."""
_LETTER, _LINE = 0.027, 0.08
"""What a letter and a line of a name take of the picture on a phone: 7 of 260 and 20 of 250 points."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the page, with what it shows in words."""

    title: str
    summary: str
    data: tuple[dict[str, Any], ...]
    layout: dict[str, Any]

    def json(self) -> dict[str, Any]:
        """What plotly.js needs."""
        return {"data": self.data, "layout": self.layout}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One design with its label."""

    label: str
    design: Design


def render_designs_html(designs: Sequence[Design], question: Question) -> str:
    """The whole page, which needs no network. Raises RailwrightError if plotly.js cannot stand in it."""
    labels = whatif_text.labels(designs)
    drawn = [_picture(designs, labels, place) for place in range(len(designs[0].collectives))]
    fields = {
        "title": whatif_text.title_words(designs),
        "views": [View(label=label, design=design) for label, design in zip(labels, designs, strict=True)],
        "named": dict(zip((design.name for design in designs), labels, strict=True)),
        "notes": whatif_text.notes(designs, question),
        "show": whatif_text,
        "priced": question.prices is not None,
        "version": railwright.__version__,
    }
    return render_page("whatif.html.j2", drawn, fields)


def _picture(designs: Sequence[Design], labels: Sequence[str], place: int) -> Picture:
    """Limit against cost: designs on the front are filled and joined, the rest are open."""
    best = front(designs, place)
    collective = designs[0].collectives[place].collective
    against = "cost" if designs[0].cost is not None else "switch ports"
    marks = list(zip(designs, labels, strict=True))
    on_front = [(design, label) for design, label in marks if design in best]
    beaten = [(design, label) for design, label in marks if design not in best]
    sides = _sides([*on_front, *beaten], place)
    data = [_front_trace(best, place), _marks(on_front, place, "Pareto", "circle", _FIRST, sides)]
    if beaten:
        data.append(_marks(beaten, place, "beaten", "diamond-open", _INK, sides))
    return Picture(
        title=f"{collective}: busbw against {against}",
        summary=f"On the front: {', '.join(label for _, label in on_front)}",
        data=tuple(data),
        layout=_layout(designs, place),
    )


def _sides(marks: Sequence[tuple[Design, str]], place: int) -> dict[str, str]:
    """At which side of its mark each name stands; without an entry it would be cut, or cover another name or mark."""
    dearest = max(price(design) for design, _ in marks) or 1.0
    fastest = max(speed(design, place) for design, _ in marks)
    where = [(price(design) / dearest, speed(design, place) / fastest) for design, _ in marks]
    found: dict[str, str] = {}
    taken: list[tuple[float, float, float]] = []
    for number, (_, label) in enumerate(marks):
        (across, up), width = where[number], _LETTER * len(label)
        others = [(x, x, y) for x, y in where[:number] + where[number + 1 :]]
        for side, start in (("top left", across - width), ("top right", across)):
            fits = start >= 0 and start + width <= _ROOM
            if fits and all(
                abs(up - row) >= _LINE or start >= end + _LETTER or begin >= start + width + _LETTER
                for begin, end, row in taken + others
            ):
                found[label] = side
                taken.append((start, start + width, up))
                break
    return found


def _front_trace(best: Sequence[Design], place: int) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "showlegend": False, "hoverinfo": "skip",
        "x": [price(design) for design in best], "y": [speed(design, place) for design in best],
        "line": {"color": _FIRST, "width": 1.5, "dash": "dot", "shape": "hv"},
    }  # fmt: skip


def _marks(
    marks: Sequence[tuple[Design, str]], place: int, name: str, symbol: str, colour: str, sides: dict[str, str]
) -> dict[str, Any]:
    """The designs of one kind, each named where `sides` has room for its name."""
    return {
        "type": "scatter", "mode": "markers+text", "name": name,
        "x": [price(design) for design, _ in marks], "y": [speed(design, place) for design, _ in marks],
        "marker": {"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
        "text": [_text(label) if label in sides else "" for _, label in marks],
        "textposition": [sides.get(label, "top left") for _, label in marks],
        "textfont": {"color": _INK}, "cliponaxis": False,
        "hovertext": [_hover(design, label, place) for design, label in marks], "hoverinfo": "text",
    }  # fmt: skip


def _hover(design: Design, label: str, place: int) -> str:
    reach = design.collectives[place]
    lines = [
        f"<b>{_text(label)}</b>",
        f"limit {wording.quantity('bandwidth_bytes_per_s', reach.busbw_bytes_per_s.limit)}",
        f"expected {whatif_text.band_words(reach.busbw_bytes_per_s)}",
        _text(price_words(design)),
    ]
    return "<br>".join(lines)


def price_words(design: Design) -> str:
    """What the designs are compared by, with its unit."""
    if design.cost is not None:
        return whatif_text.money(design.cost.total, design.cost.currency)
    return wording.count(design.parts.switch_ports, "switch port")


def _text(words: str) -> str:
    """Words for plotly.js, which reads some HTML tags in its text."""
    return escaping.escape(words, quote=False)


def _layout(designs: Sequence[Design], place: int) -> dict[str, Any]:
    """Both axes begin at nothing, so that a distance is a share; room above and beside for the names."""
    dearest = max(map(price, designs)) or 1.0
    layout = axes.dot_layout("bandwidth_bytes_per_s", [speed(design, place) for design in designs], rows=1)
    bandwidth = layout["xaxis"]
    fastest = max(speed(design, place) for design in designs)
    prices = {key: value for key, value in bandwidth.items() if key not in ("tickvals", "ticktext", "range")}
    ticks = _ticks(dearest)
    unit = _text(f" {wording.visible(designs[0].cost.currency)}" if designs[0].cost is not None else "")
    words = [f"{_short(tick)}{unit if tick else ''}" for tick in ticks]
    if designs[0].cost is None:
        prices["title"] = {"text": "switch ports in use", "font": {"color": _MUTED}}
    return {
        **layout,
        "xaxis": {**prices, "tickvals": ticks, "ticktext": words, "range": [0, dearest * _ROOM]},
        "yaxis": {**bandwidth, "range": [0, fastest * 1.2]},
        "legend": {**layout["legend"], "y": -0.2},
        "height": 360,
        "margin": {"l": 68, "r": 14, "t": 12, "b": 40},
    }


def _ticks(high: float) -> list[float]:
    """Zero and at most four multiples of 1, 2 or 5 times a power of ten."""
    decade = 10.0 ** math.floor(math.log10(high))
    step = next(part * decade for part in (0.2, 0.5, 1.0, 2.0, 5.0) if high / (part * decade) <= 4)
    return [step * place for place in range(math.floor(high * 1.1 / step) + 1)]


def _short(value: float) -> str:
    """`4 M`, `250 k`, `512`."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"
