"""The axes of charts: their range, their ticks with units, and the place of a value between their ends."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from railwright.limits.limit import Quantity
from railwright.report.text import wording

_MAX_DECADES = 12
_SMALLEST, _LARGEST = 1e-300, 1e300
"""The bounds of an axis: between them, a margin and the next power of ten are still finite."""
_ROOM_FOR_BAND = 3.0
"""A band may exceed all medians and limits by this factor; a single bad sample must not flatten the curves."""
_MARGIN = 1.5
"""The room beyond the extreme values of a logarithmic axis, as a factor, for the signs around them."""
_ROOM = 1.08
"""The end of a linear axis, as a multiple of the largest value."""
_OUTSIDE = 2.0
"""The distance to which a value beyond an end is drawn, in lengths of the axis."""


class Axis(NamedTuple):
    """An axis from `low` to `high`, both above 0 if it is logarithmic.

    `report.js` reads its ends and its unit to draw the ticks of a part of it.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    unit: str
    """A quantity, `size_bytes`, `plain UNIT`, or `short UNIT` for numbers like 4 M."""
    is_log: bool = False
    title: str = ""

    def place(self, value: float) -> float:
        """Return the position of a value: 0 at the low end and 1 at the high end."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (math.log10(number) for number in (_drawable(value), low, high))
        return min(max((value - low) / (high - low), -_OUTSIDE), 1 + _OUTSIDE)

    @property
    def json(self) -> str:
        """Return the ends, the kind and the unit for `report.js`."""
        return json.dumps([self.low, self.high, int(self.is_log), self.unit], separators=(",", ":"))


def _drawable(value: float) -> float:
    return min(max(value, _SMALLEST), _LARGEST)


def size_axis(sizes: Sequence[float]) -> Axis:
    """Return a logarithmic axis of sizes in bytes, with a little room at both ends."""
    room = max((max(sizes) / min(sizes)) ** 0.03, 1.01)
    ticks = tuple((size, wording.scalar("size_bytes", size)) for size in sorted(sizes, reverse=True))
    return Axis(min(sizes) / room, max(sizes) * room, ticks, "size_bytes", is_log=True, title="size")


def value_axis(quantity: Quantity, values: Sequence[float], bands: Sequence[float]) -> Axis:
    """Return a logarithmic axis that shows all values, and bands as far as they do not flatten them.

    All values must be above 0.
    """
    low, high = min(values), max(values)
    low = _drawable(max(min((*bands, low)), low / _ROOM_FOR_BAND) / _MARGIN)
    high = max(_drawable(min(max((*bands, high)), high * _ROOM_FOR_BAND) * _MARGIN), _MARGIN * low)
    words = [(value, _tick_words(quantity, value)) for value in _logarithmic_ticks(low, high)]
    return Axis(low, high, tuple(words), quantity, is_log=True)


def rate_axis(quantity: Quantity, values: Sequence[float]) -> Axis:
    """Return an axis of values from 0."""
    return linear_axis(max(values), quantity, lambda value: _tick_words(quantity, value))


def linear_axis(high: float, unit: str, words: Callable[[float], str], *, room: float = _ROOM) -> Axis:
    """Return an axis from 0 with the ticks' words."""
    high = _drawable(high)
    return Axis(0.0, high * room, tuple((value, words(value)) for value in linear_ticks(high, room=room)), unit)


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """Return ticks at 1, 2 and 5 times each power of ten.

    If the ends differ by a factor of 200 or more, only the powers have ticks; of many powers, only every n-th.
    """
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    decades = decades[:: max(1, len(decades) // _MAX_DECADES)]
    steps = (1, 2, 5) if high / low < 200 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def linear_ticks(high: float, *, room: float) -> list[float]:
    """Return zero and at most four multiples of 1, 2 or 5 times a power of ten, up to `room` times `high`."""
    decade = 10.0 ** math.floor(math.log10(high))
    step = next(part * decade for part in (0.5, 1.0, 2.0, 5.0) if high / (part * decade) <= 4)
    return [step * place for place in range(math.floor(high * room / step) + 1)]


def _tick_words(quantity: Quantity, value: float) -> str:
    number, _, unit = wording.quantity(quantity, value).partition(" ")
    return f"{float(number):g} {unit}" if value else "0"  # `10 GB/s` for `10.0 GB/s`: a tick is exact
