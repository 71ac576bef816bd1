"""A driver's own samples are merged into the rows of their time, which wait for them for a limited time."""

from __future__ import annotations

from railwright.native.sampler import Row
from railwright.sampling.late import LateSamples
from railwright.sampling.sources import Source

SOURCES = [
    Source(name="net.rx", kind="network", unit="bytes", scale=1, path="/x"),
    Source(name="gpu0.power", kind="gpu", unit="W", scale=1, path="nvml", gauge=True, late=True),
]


def rows(*times: float) -> list[Row]:
    return [Row(at_s, [1, 77]) for at_s in times]


def told(found: list[Row]) -> list[tuple[float, int | None]]:
    return [(row.at_s, row.values[1]) for row in found]


def test_rows_wait_for_what_belongs_to_them() -> None:
    come: list[tuple[float, int]] = [(0.9, 5), (1.01, 6)]
    late = LateSamples(SOURCES, lambda: {"gpu0.power": come})
    late.add(rows(1.0, 1.02, 1.04))
    assert told(late.ready()) == [(1.0, 5)]
    assert not late.is_complete
    come[:] = [(1.03, 7), (1.05, 8)]
    late.add(rows(1.06))
    assert told(late.ready()) == [(1.02, 6), (1.04, 7)]
    come[:] = []
    late.add(())
    assert told(late.ready()) == []
    assert told(late.ready(all_of_them=True)) == [(1.06, 8)]
    assert late.is_complete


def test_a_driver_that_samples_no_more_holds_nothing_up() -> None:
    late = LateSamples(SOURCES, lambda: {"gpu0.power": []})
    late.add(rows(1.0, 2.0, 3.6))
    assert told(late.ready()) == [(1.0, None)]


def test_without_such_sources_rows_go_on_as_they_are() -> None:
    late = LateSamples(SOURCES[:1], dict)
    late.add(rows(1.0, 2.0))
    assert told(late.ready()) == [(1.0, 77), (2.0, 77)]
    assert late.is_complete
