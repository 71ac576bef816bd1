"""The slowdown from pairs of runs without and with an addition, and its interval."""

from __future__ import annotations

from random import Random

import pytest

from railwright.results.paired import estimate_slowdown, student_975


def pairs(count: int, slower: float, noise: float, seed: int) -> list[tuple[float, float]]:
    random = Random(seed)
    found = []
    for _ in range(count):
        drift = random.uniform(0.8, 1.2)  # of the machine, the same for both runs of a pair
        found.append((drift * random.gauss(1, noise), drift * (1 + slower) * random.gauss(1, noise)))
    return found


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = sum(
        low <= 0.03 <= high
        for seed in range(400)
        for _, low, high, _ in [estimate_slowdown(pairs(12, 0.03, 0.02, seed), 0.005)]
    )
    assert 365 <= held <= 395


def test_what_costs_little_is_shown_or_the_pairs_that_would() -> None:
    sure = estimate_slowdown(pairs(50, 0.001, 0.001, 1), 0.005)
    assert sure.high < 0.005
    unsure = estimate_slowdown(pairs(10, 0.0, 0.02, 2), 0.005)
    assert unsure.high > 0.005
    assert unsure.pairs_needed is not None
    assert unsure.pairs_needed > 10
    again = estimate_slowdown(pairs(4 * unsure.pairs_needed, 0.0, 0.02, 4), 0.005)
    assert again.high < 0.005


def test_what_costs_much_is_shown_and_no_number_of_pairs_denies_it() -> None:
    found = estimate_slowdown(pairs(20, 0.04, 0.005, 1), 0.005)
    assert found.low > 0.005
    assert found.mean == pytest.approx(0.04, abs=0.01)
    assert found.pairs_needed is None


def test_no_pairs_tell_nothing() -> None:
    for given in ([], [(1.0, 1.0)], [(1.0, 0.0), (1.0, 1.0)]):
        with pytest.raises(ValueError, match="two pairs"):
            estimate_slowdown(given, 0.005)


def test_student_comes_near_to_the_normal_distribution() -> None:
    assert [student_975(degrees) for degrees in (1, 30)] == [12.706, 2.042]
    assert student_975(60) == pytest.approx(2.000, abs=0.001)
    assert student_975(10**6) == pytest.approx(1.95996, abs=1e-4)
