"""Order statistics compared with their definitions, and the interval compared with a simulation."""

from __future__ import annotations

import math
import random

import pytest
from msgspec.structs import replace

from railwright.results.statistics import explain_invalid_summary, median_interval, quantile, round_samples, summarise


def samples(seed: int) -> list[float]:
    """Return 1 to 40 values of one of three distributions, one of which has ties."""
    rng = random.Random(seed)
    count = rng.randint(1, 40)
    shape = seed % 3
    draw = {0: lambda: rng.random(), 1: lambda: float(rng.randint(0, 3)), 2: lambda: math.exp(rng.gauss(0, 3))}[shape]
    return [draw() for _ in range(count)]


def by_definition(values: list[float], fraction: float) -> float:
    """Return the quantile of type 7: the polygon through (i / (n - 1), x_i) at `fraction`."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return ordered[0]
    for index in range(len(ordered) - 1):
        left, right = index / (len(ordered) - 1), (index + 1) / (len(ordered) - 1)
        if left <= fraction <= right:
            share = (fraction - left) / (right - left)
            return ordered[index] * (1 - share) + ordered[index + 1] * share
    raise AssertionError(fraction)


@pytest.mark.parametrize("seed", range(60))
def test_a_quantile_is_that_of_the_definition(seed):
    values = samples(seed)
    for fraction in (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0):
        assert quantile(sorted(values), fraction) == pytest.approx(by_definition(values, fraction), rel=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_a_summary_holds_what_it_says_in_any_order_of_samples(seed):
    values = samples(seed)
    summary = summarise(values)
    assert summary.count == len(values)
    assert (summary.minimum, summary.maximum) == (min(values), max(values))
    assert summary.median == pytest.approx(by_definition(values, 0.5), rel=1e-9)
    assert summary.p99 == pytest.approx(by_definition(values, 0.99), rel=1e-9)
    assert summary.minimum <= summary.median_low <= summary.median <= summary.median_high <= summary.maximum
    assert {summary.median_low, summary.median_high} <= set(values)
    random.Random(seed).shuffle(values)
    assert summarise(values) == summary


@pytest.mark.parametrize("count", [6, 7, 10, 11, 20, 31, 100, 1000])
def test_the_interval_of_the_median_covers_it_by_the_binomial_distribution(count):
    """The interval misses the median if both ends are on one side of it; the probability depends on ranks alone."""
    ranks = median_interval(list(range(count)))
    low, high = int(ranks[0]), int(ranks[1])
    below = sum(math.comb(count, k) for k in range(low + 1)) / 2**count
    above = sum(math.comb(count, k) for k in range(high + 1, count + 1)) / 2**count
    coverage = 1 - below - above
    assert coverage >= 0.95
    if count >= 31:
        assert coverage <= 0.985, "an interval that covers more says less than it could"


@pytest.mark.parametrize("count", [8, 30, 200])
def test_the_interval_of_the_median_covers_it_in_simulation(count):
    rng = random.Random(2024)
    trials, true_median, covered = 2000, math.log(2), 0
    for _ in range(trials):
        low, high = median_interval(sorted(rng.expovariate(1.0) for _ in range(count)))
        covered += low <= true_median <= high
    assert covered / trials > 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


def test_with_few_values_the_interval_is_the_whole_range():
    assert median_interval([1.0, 2.0, 9.0]) == (1.0, 9.0)
    assert median_interval([4.0]) == (4.0, 4.0)


@pytest.mark.parametrize("bad", [[], [math.nan], [1.0, math.inf], [-math.inf]])
def test_what_is_no_sample_is_refused(bad):
    with pytest.raises(ValueError, match="at least one sample, all of them finite"):
        summarise(bad)


@pytest.mark.parametrize("value", [1.23456789e-7, 9.9999999e-1, 123456789.0, 0.0, 5e-324])
def test_rounding_keeps_six_significant_digits(value):
    (kept,) = round_samples([value])
    assert kept == pytest.approx(value, rel=5e-6)
    assert f"{kept:.5e}" == f"{value:.5e}"
    assert round_samples([kept]) == (kept,)


@pytest.mark.parametrize("seed", range(60))
def test_a_summary_of_samples_is_possible_whatever_they_are(seed):
    values = samples(seed)
    for scale in (1.0, 1e-300, 1e300, -1e-3):
        assert explain_invalid_summary(summarise([value * scale for value in values])) == ""


def test_numbers_that_no_samples_have_are_named():
    summary = summarise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    for name in ("minimum", "median_low", "median", "median_high", "p99"):
        assert name in explain_invalid_summary(replace(summary, **{name: 1e308})), name
    for name in ("maximum", "median_low", "median", "median_high", "p99"):
        assert name in explain_invalid_summary(replace(summary, **{name: -1.0})), name
    for value in (math.inf, -math.inf, math.nan):
        assert explain_invalid_summary(replace(summary, p99=value)) == f"the p99 of its summary is {value}"
    assert explain_invalid_summary(replace(summary, count=0)) == "its summary counts 0 samples"
    assert explain_invalid_summary(replace(summary, maximum=summary.p99 * (1 - 1e-15))) == "", "what rounding makes"
