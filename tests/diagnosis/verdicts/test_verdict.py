"""Verdicts fail closed."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from railwright.diagnosis.verdicts.verdict import PointRole, doubt_unless_launches_agree, judge, judge_result
from railwright.limits.limit import Expected, Limit, NoLimit, Quantity, Source
from railwright.results.records import Result, Verification

SOURCE = (Source(title="a test"),)
CLEAN = Verification(method="a test", bytes_checked=100, bytes_wrong=0)
WRONG = Verification(method="a test", bytes_checked=100, bytes_wrong=1)
EMPTY = Verification(method="a test", bytes_checked=0, bytes_wrong=0)


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
    assert judge("measured", "", value, *bandwidth(), CLEAN).state == state


@pytest.mark.parametrize(
    ("value", "state"), [(1e-6, "ok"), (2e-6, "ok"), (0.99e-6, "ok"), (0.97e-6, "suspicious"), (2.1e-6, "slow")]
)
def test_a_latency_is_read_upwards_from_its_floor(value: float, state: str) -> None:
    assert judge("measured", "", value, *latency(), CLEAN).state == state


def test_the_share_of_a_limit_is_1_at_best_and_nothing_has_none() -> None:
    nothing = NoLimit(quantity="bandwidth_bytes_per_s", why="unknown machine")
    for value, limits, share in (
        (50e9, bandwidth(), 0.5),
        (2e-6, latency(), 0.5),
        (100e9, bandwidth(), 1.0),
        (0.0, bandwidth(), None),
        (0.0, latency(), None),
        (None, bandwidth(), None),
        (50e9, (nothing, None), None),
    ):
        result = Result(benchmark="b", quantity=limits[0].quantity, path="p")
        assert judge_result(result, value, limits, CLEAN).fraction_of_limit == share, (value, limits)


def test_without_limit_or_band_nothing_is_ok() -> None:
    nothing = NoLimit(quantity="bandwidth_bytes_per_s", why="unknown machine")
    assert judge("measured", "", 50e9, nothing, None, CLEAN).state == "unknown"
    assert judge("measured", "", 50e9, *bandwidth(low=None), CLEAN).state == "unknown"
    assert judge("measured", "", 1.5e-6, *latency(high=None), CLEAN).state == "unknown"


@pytest.mark.parametrize("quantity", ["latency_s", "bandwidth_bytes_per_s"])
def test_without_a_limit_nothing_is_said_of_any_value_and_with_one_nothing_is_not_possible(quantity) -> None:
    none = NoLimit(quantity=quantity, why="nobody knows")
    assert judge("measured", "", 0.0, none, None, CLEAN).state == "unknown"
    limit = Limit(quantity=quantity, value=1.0, kind="derived", because="a test", sources=(SOURCE,))
    assert judge("measured", "", 0.0, limit, None, CLEAN).state == "suspicious"


def test_above_the_limit_is_suspicious_even_without_a_band() -> None:
    assert judge("measured", "", 150e9, *bandwidth(low=None), CLEAN).state == "suspicious"


def test_wrong_bytes_fail_whatever_the_speed() -> None:
    verdict = judge("measured", "", 90e9, *bandwidth(), WRONG)
    assert verdict.state == "failed"
    assert "1 wrong byte" in verdict.why


def test_only_a_measured_value_can_be_ok() -> None:
    """Only a verified value in its band is ok, in all combinations of outcome, value, limit, band and data check."""
    values = (None, -1.0, 0.0, float("nan"), float("inf"), 90e9)
    all_bounds = (bandwidth(), bandwidth(low=None), (NoLimit(quantity="bandwidth_bytes_per_s", why="?"), None))
    outcomes = ("measured", "waived", "failed")
    checks = (CLEAN, WRONG, EMPTY, None)
    for outcome, value, (limit, band), check in itertools.product(outcomes, values, all_bounds, checks):
        verdict = judge(outcome, "because", value, limit, band, check)  # type: ignore[arg-type]
        provably_fine = outcome == "measured" and value == 90e9 and band is not None and check is CLEAN
        assert (verdict.state == "ok") == provably_fine, (outcome, value, limit, check)
        assert verdict.why


def test_between_two_edges_of_a_ceiling_that_varied_nothing_can_be_said() -> None:
    limit, band = bandwidth(limit=100e9, low=50e9)
    assert band is not None
    varied = replace(band, doubtful_to=30e9)
    for value, state in ((51e9, "ok"), (49e9, "unknown"), (30e9, "unknown"), (29e9, "slow")):
        assert judge("measured", "", value, limit, varied, CLEAN).state == state


def test_a_reference_is_not_judged_unless_it_failed_was_not_verified_or_is_above_its_limit():
    limit, band = bandwidth()
    none = NoLimit(quantity="bandwidth_bytes_per_s", why="no document")

    def state(value, limit=none, expected=None, seen=CLEAN, outcome="measured"):
        return judge(outcome, "", value, limit, expected, seen, PointRole(is_reference=True)).state

    assert state(1e9) == "reference"
    assert state(90e9, limit) == "reference"
    assert state(90e9, limit, band) == "ok"
    assert state(1e9, limit, band) == "slow"
    assert state(110e9, limit) == "suspicious"
    assert state(1e9, seen=None) == state(1e9, limit, seen=EMPTY) == "unknown"
    assert state(1e9, seen=WRONG) == state(None, outcome="failed") == "failed"
    assert state(0.0) == "unknown"


def test_what_is_unknown_names_what_would_judge_it():
    none = NoLimit(quantity="bandwidth_bytes_per_s", why="w", missing=("memory0: memory channels",))
    assert judge("measured", "", 1.0, none, None, CLEAN).needs == "a shape file with memory0: memory channels"
    asked = judge("measured", "", 1.0, none, None, CLEAN, PointRole(needs="railwright run tcp_stream"))
    assert asked.needs == "railwright run tcp_stream"
    assert judge("measured", "", 9e9, bandwidth()[0], None, CLEAN).needs


@pytest.mark.parametrize(
    ("medians", "state"),
    [
        ((40e9,), "slow"),
        ((40e9, 41e9, 42e9), "slow"),
        ((40e9, 41e9, 85e9), "unknown"),
        ((20e9, 41e9, 42e9), "unknown"),
    ],
)
def test_launches_that_disagree_are_in_doubt_and_never_slow(medians, state):
    result = Result(benchmark="b", quantity="bandwidth_bytes_per_s", path="a>b")
    point = judge_result(result, sorted(medians)[len(medians) // 2], bandwidth(), CLEAN)
    found = doubt_unless_launches_agree(point, medians)
    assert found.verdict.state == state
    assert bool(found.verdict.needs) == (state == "unknown")


@pytest.mark.parametrize(
    ("varies", "fraction", "state"),
    [(1.0, 1.1, "ok"), (1.0, 1.12, "suspicious"), (1.5, 1.49, "ok"), (1.5, 1.51, "suspicious"), (9.0, 1.99, "ok"),
     (9.0, 2.01, "suspicious")],
)  # fmt: skip
def test_a_ceiling_makes_nothing_suspicious_within_what_its_own_launches_differ_by(varies, fraction, state):
    for limit, band in (bandwidth(), latency()):
        value = limit.value / fraction if limit.quantity == "latency_s" else limit.value * fraction
        ceiling = replace(limit, kind="measured_ceiling", varies=varies)
        assert judge("measured", "", value, ceiling, band, CLEAN).state == state
        assert judge("measured", "", value, replace(ceiling, kind="derived"), band, CLEAN).state == "suspicious"
