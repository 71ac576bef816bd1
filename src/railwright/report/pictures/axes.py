"""The frames of a report's figures: axes, ticks with units, and margins that suit a phone."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from railwright.limits.limit import Quantity
from railwright.report.text import wording

_SIZE_TICKS = 6
_MAX_DECADES = 12
_SMALLEST, _LARGEST = 1e-300, 1e300
"""The bounds of an axis: between them, a margin and the next power of ten are still finite."""
_ROOM_FOR_BAND = 3.0
"""A band may exceed all medians and limits by this factor; a single bad sample must not flatten the curves."""

_LINE_PX = 16
"""The height of a line of a label in `_FRAME`'s font."""

AXIS = {
    "gridcolor": "--line",
    "linecolor": "--muted",
    "tickcolor": "--muted",
    "tickfont": {"color": "--muted"},
    "zeroline": False,
}
_FRAME: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": "--ink", "size": 12},
    "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.12, "yanchor": "top", "font": {"color": "--ink"}},
    "hoverlabel": {"bgcolor": "--surface", "bordercolor": "--muted", "font": {"color": "--ink"}, "align": "left"},
    "hovermode": "closest",
}


def curve_layout(
    quantity: Quantity, sizes: Sequence[float], values: Sequence[float], bands: Sequence[float]
) -> dict[str, Any]:
    """Build the frame of values over sizes, both logarithmic. All values must be above 0."""
    low, high = min(values), max(values)
    low = _drawable(max(min((*bands, low)), low / _ROOM_FOR_BAND) / 1.3)
    high = _drawable(min(max((*bands, high)), high * _ROOM_FOR_BAND) * 1.3)
    ticks = _ticks(quantity, _logarithmic_ticks(low, high))
    return {
        **_FRAME,
        "xaxis": {**AXIS, **_size_ticks(sizes), "type": "log"},
        "yaxis": {**AXIS, **ticks, "type": "log", "range": [math.log10(low), math.log10(high)]},
        "height": 380,
        "margin": {"l": 68, "r": 14, "t": 12, "b": 40},
    }


def dot_layout(quantity: Quantity, values: Sequence[float], labels: Collection[str]) -> dict[str, Any]:
    """Build the frame of a row of marks for each label, the first on top; values start at 0.

    Lines of a label are separated by <br>.
    """
    rows, most_lines = len(labels), max(label.count("<br>") + 1 for label in labels)
    high = _drawable(max(values))
    names = {"automargin": True, "type": "category", "showgrid": False, "range": [rows - 0.4, -0.6]}
    return {
        **_FRAME,
        "xaxis": {**AXIS, **_ticks(quantity, linear_ticks(high, room=1.08)), "range": [0, high * 1.08]},
        "yaxis": {**AXIS, **names},
        "height": 70 + rows * max(56, 10 + _LINE_PX * most_lines),
        "margin": {"l": 8, "r": 14, "t": 12, "b": 40},
    }


def _drawable(value: float) -> float:
    return min(max(value, _SMALLEST), _LARGEST)


def _size_ticks(sizes: Sequence[float]) -> dict[str, Any]:
    step = max(1, math.ceil(len(sizes) / _SIZE_TICKS))
    shown = sizes[::-step][::-1]  # the largest size always has a tick, because most headlines are there
    return {"tickvals": list(shown), "ticktext": [wording.scalar("size_bytes", size) for size in shown]}


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """Return ticks at 1, 2 and 5 times each power of ten.

    If the ends differ by a factor of 200 or more, only the powers have ticks; of many powers, only every n-th.
    """
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    decades = decades[:: max(1, len(decades) // _MAX_DECADES)]
    steps = (1, 2, 5) if high / low < 200 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if low / 3 <= tick <= high * 3]


def linear_ticks(high: float, *, room: float) -> list[float]:
    """Return zero and at most four multiples of 1, 2 or 5 times a power of ten, up to `room` times `high`."""
    decade = 10.0 ** math.floor(math.log10(high))
    step = next(part * decade for part in (0.5, 1.0, 2.0, 5.0) if high / (part * decade) <= 4)
    return [step * place for place in range(math.floor(high * room / step) + 1)]


def _ticks(quantity: Quantity, values: list[float]) -> dict[str, Any]:
    words = []
    for value in values:
        number, _, unit = wording.quantity(quantity, value).partition(" ")
        words.append(f"{float(number):g} {unit}" if value else "0")  # `10 GB/s` for `10.0 GB/s`: a tick is exact
    return {"tickvals": values, "ticktext": words}
