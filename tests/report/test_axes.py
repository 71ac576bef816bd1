"""The axes of figures accept every value that a results file may contain."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest

from railwright.report.pictures import axes

SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
VALUES = (SMALLEST, 1e-320, 1e-300, 1e-9, 1.0, 5e11, 1e300, 1e308, LARGEST)


def numbers(part: object) -> list[float]:
    if isinstance(part, dict):
        return [number for item in part.values() for number in numbers(item)]
    if isinstance(part, list | tuple):
        return [number for item in part for number in numbers(item)]
    return [part] if isinstance(part, int | float) else []


@pytest.mark.parametrize(("low", "high"), [*itertools.combinations_with_replacement(VALUES, 2)])
def test_every_number_of_an_axis_is_finite(low: float, high: float) -> None:
    for quantity in ("latency_s", "bandwidth_bytes_per_s"):
        curve = axes.curve_layout(quantity, [8, 2**62], [low, high], [low, high])
        dots = axes.dot_layout(quantity, [low, high], ["one", "other"])
        assert all(math.isfinite(number) for number in (*numbers(curve), *numbers(dots)))
        assert b"null" not in msgspec.json.encode([curve, dots])
        assert len(curve["yaxis"]["tickvals"]) <= 30
        assert curve["yaxis"]["range"][0] <= curve["yaxis"]["range"][1]


def test_ticks_of_a_usual_span_are_every_power_of_ten() -> None:
    layout = axes.curve_layout("bandwidth_bytes_per_s", [8, 64], [1e6, 4e11], [])
    assert [tick for tick in layout["yaxis"]["tickvals"] if 1e6 <= tick <= 1e11] == [
        pytest.approx(10.0**decade) for decade in range(6, 12)
    ]
