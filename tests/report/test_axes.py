"""The axes of figures accept every value that a results file may contain."""

from __future__ import annotations

import itertools
import json
import math

import pytest

from railwright.report.pictures import axes

SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
VALUES = (SMALLEST, 1e-320, 1e-300, 1e-9, 1.0, 5e11, 1e300, 1e308, LARGEST)


@pytest.mark.parametrize(("low", "high"), [*itertools.combinations_with_replacement(VALUES, 2)])
def test_every_number_of_an_axis_is_finite(low: float, high: float) -> None:
    for quantity in ("latency_s", "bandwidth_bytes_per_s"):
        for axis in (axes.value_axis(quantity, [low, high], [low, high]), axes.rate_axis(quantity, [low, high])):
            places = [axis.place(value) for value in (low, high, *(value for value, _ in axis.ticks))]
            assert all(map(math.isfinite, (axis.low, axis.high, *places)))
            assert axis.low < axis.high
            assert len(axis.ticks) <= 30
            assert json.loads(axis.json) == [axis.low, axis.high, int(axis.is_log), quantity]
    assert math.isfinite(axes.size_axis([8, 2**62]).place(high))


def test_ticks_of_a_usual_span_are_every_power_of_ten() -> None:
    axis = axes.value_axis("bandwidth_bytes_per_s", [1e6, 4e11], [])
    assert axis.ticks == tuple((pytest.approx(10.0**decade), words) for decade, words in [
        (6, "1 MB/s"), (7, "10 MB/s"), (8, "0.1 GB/s"), (9, "1 GB/s"), (10, "10 GB/s"), (11, "100 GB/s")])  # fmt: skip
    assert axes.rate_axis("latency_s", [4.2e-6]).ticks[:2] == ((0, "0"), (pytest.approx(2e-6), "2 us"))


def test_a_value_has_its_place_between_the_ends() -> None:
    sizes = axes.size_axis([8, 8**3, 8**5])
    assert sizes.place(8**3) == pytest.approx(0.5)
    assert 0 < sizes.place(8) < 0.05
    assert axes.linear_axis(200, "plain W", str, room=1.0).place(50) == 0.25
