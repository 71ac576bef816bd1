"""Verdicts fail closed."""

from __future__ import annotations

import itertools

import pytest

from railwright.diagnosis.verdict import judge
from railwright.limits.model import Expected, Limit, NoLimit, Quantity, Source

SOURCE = (Source(title="a test"),)


def bandwidth(limit: float = 100e9, low: float | None = 80e9) -> tuple[Limit, Expected | None]:
    return bounds("bandwidth_bytes_per_s", limit, low, None)


def latency(floor: float = 1e-6, high: float | None = 2e-6) -> tuple[Limit, Expected | None]:
    return bounds("latency_s", floor, floor if high else None, high)


def bounds(quantity: Quantity, limit: float, low: float | None, high: float | None) -> tuple[Limit, Expected | None]:
    band = Expected(quantity=quantity, low=low, high=high, because="a test", sources=SOURCE) if low else None
    return Limit(quantity=quantity, value=limit, kind="derived", because="a test", sources=SOURCE), band


@pytest.mark.parametrize(
    ("value", "state"),
    [(80e9, "ok"), (100e9, "ok"), (102e9, "ok"), (102.1e9, "suspicious"), (79.9e9, "slow"), (1.0, "slow")],
)
def test_a_bandwidth_is_ok_only_within_its_band(value: float, state: str) -> None:
    assert judge("measured", "", value, *bandwidth(), 0).state == state


@pytest.mark.parametrize(
    ("value", "state"), [(1e-6, "ok"), (2e-6, "ok"), (0.99e-6, "ok"), (0.97e-6, "suspicious"), (2.1e-6, "slow")]
)
def test_a_latency_is_read_upwards_from_its_floor(value: float, state: str) -> None:
    assert judge("measured", "", value, *latency(), 0).state == state


def test_without_limit_or_band_nothing_is_ok() -> None:
    nothing = NoLimit(quantity="bandwidth_bytes_per_s", why="unknown machine")
    assert judge("measured", "", 50e9, nothing, None, 0).state == "unknown"
    assert judge("measured", "", 50e9, *bandwidth(low=None), 0).state == "unknown"
    assert judge("measured", "", 1.5e-6, *latency(high=None), 0).state == "unknown"


def test_above_the_limit_is_suspicious_even_without_a_band() -> None:
    assert judge("measured", "", 150e9, *bandwidth(low=None), 0).state == "suspicious"


def test_wrong_bytes_fail_whatever_the_speed() -> None:
    verdict = judge("measured", "", 90e9, *bandwidth(), 1)
    assert verdict.state == "failed"
    assert "1 wrong byte" in verdict.why


def test_only_a_measured_value_can_be_ok() -> None:
    """Every combination of outcome, value, limit, band and wrong bytes: ok only for a verified value in its band."""
    values = (None, -1.0, 0.0, float("nan"), float("inf"), 90e9)
    all_bounds = (bandwidth(), bandwidth(low=None), (NoLimit(quantity="bandwidth_bytes_per_s", why="?"), None))
    outcomes = ("measured", "waived", "failed")
    for outcome, value, (limit, band), wrong in itertools.product(outcomes, values, all_bounds, (0, 7)):
        verdict = judge(outcome, "because", value, limit, band, wrong)  # type: ignore[arg-type]
        provably_fine = outcome == "measured" and value == 90e9 and band is not None and wrong == 0
        assert (verdict.state == "ok") == provably_fine, (outcome, value, limit, wrong)
        assert verdict.why
