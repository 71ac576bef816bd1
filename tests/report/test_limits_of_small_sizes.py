"""A limit that bounds nothing, like that of a few bytes, is neither printed nor drawn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Diagnosis, Judged
from railwright.errors import EXIT_OK
from railwright.limits.limit import Expected, Limit, Source
from railwright.report.pages.run import render_html
from railwright.report.pictures.series import limit_value
from railwright.report.text import wording
from railwright.report.view import build_view

from . import sample
from .test_text import rendered

BAND = Expected(quantity="latency_s", low=6.3e-6, high=39.5e-6, because="NCCL's ring", sources=(Source(title="NCCL"),))


def point(floor_s: float) -> Judged:
    floor = Limit(quantity="latency_s", value=floor_s, kind="derived", because="ring: NVLink 4 x18")
    first = next(candidate for candidate in sample.diagnosis().points if candidate.outcome == "measured")
    return replace(first, quantity="latency_s", value=9.7e-6, limit=floor, expected=BAND,
                   fraction_of_limit=floor_s / 9.7e-6)  # fmt: skip


@pytest.mark.parametrize(
    ("floor_s", "limit", "share"), [(1.8e-11, "-", "-"), (6e-8, "-", "-"), (4.08e-6, "4.08 us", "0.42")]
)
def test_a_floor_far_below_the_band_is_not_shown(floor_s: float, limit: str, share: str) -> None:
    head = point(floor_s)
    assert wording.limit_and_share(head) == (limit, share)
    assert (not limit_value(head)) == (limit == wording.ABSENT)
    path = replace(sample.diagnosis().paths[0], quantity="latency_s", headline=head)
    judged = Diagnosis(points=(head,), paths=(path,), findings=(), exit_status=EXIT_OK)
    shown = wording.quantity("latency_s", floor_s)
    for report in (rendered(140, diagnosis=judged), render_html(build_view(sample.run(), judged, sample.end(), ()))):
        assert (shown in report) == (limit != wording.ABSENT)
        assert "6.30 us to 39.5 us" in report


def test_a_limit_without_a_band_is_shown() -> None:
    assert wording.limit_and_share(replace(point(1e-9), expected=None))[0] == "1.00 ns"
    assert wording.limit_and_share(None) == ("-", "-")
