"""Compares hosts of one job, and single iterations, from curves with a known truth."""

from __future__ import annotations

from random import Random

import pytest

from railwright.diagnosis.iterations.analysis import estimate_iterations
from railwright.diagnosis.iterations.simulate import parse_job, simulate_job
from railwright.diagnosis.iterations.stragglers import Compared, HostIterations, Straggler, compare_hosts, stragglers
from railwright.diagnosis.iterations.trial import run_trial
from railwright.sampling.offset import estimate_offset, interpolate_change

PERIOD_S, COUNT = 0.5, 60


def hosts(longer: dict[str, float] | None = None, later: dict[str, float] | None = None, seed: int = 1):
    """Four hosts of one job whose iterations vary by chance."""
    random, begin_s, begins = Random(seed), 3.0, []
    for _ in range(COUNT):
        begins.append(begin_s)
        begin_s += PERIOD_S * random.gauss(1, 0.02)
    found = {}
    for name in ("a", "b", "c", "d"):
        noisy = [one + (later or {}).get(name, 0.0) + random.gauss(0, 0.003) for one in begins]
        found[name] = HostIterations(
            period_s=PERIOD_S * random.gauss(1, 0.001), period_half_width_s=0.001, from_s=3.0, to_s=noisy[-1],
            recorded_to_s=40.0, begins_s=tuple(noisy), sample_s=0.01, clock_half_width_s=0.0002,
            computed_s=tuple(0.3 + (longer or {}).get(name, 0.0) + random.gauss(0, 0.003) for _ in noisy[1:]),
        )  # fmt: skip
    return found


def held(given: dict[str, HostIterations], **words: bool) -> tuple[dict[str, Compared], list[tuple[str, str]]]:
    every = compare_hosts(given, one_clock=words.get("one_clock", True))
    found = stragglers(given, ["silent"] if "silent" in words else [], every)
    return every, [(one.host, one.how) for one in found]


def test_hosts_that_do_alike_are_no_stragglers() -> None:
    for seed in range(20):
        every, found = held(hosts(seed=seed))
        assert not found, seed
        assert all(one.iterations == COUNT - 1 for one in every.values())


def test_a_host_that_computes_longer_or_begins_later_is_named_with_how_much() -> None:
    every, found = held(hosts(longer={"c": 0.06}))
    assert found == [("c", "computes longer")]
    assert every["c"].longer_s == pytest.approx(0.06, abs=0.005)
    assert every["c"].longest > 0.9
    every, found = held(hosts(later={"b": 0.05}))
    assert found == [("b", "begins later")]
    assert every["b"].later_s == pytest.approx(0.05, abs=0.005)
    assert held(hosts(later={"b": 0.05}), one_clock=False)[1] == []
    assert held(hosts(longer={"c": 0.01}))[1] == []


def test_begins_are_held_against_each_other_around_the_circle() -> None:
    every, found = held(hosts(later={"a": -0.245, "b": 0.245, "c": -0.25, "d": 0.25}))
    assert found == [], "half a period earlier and later is the same"
    assert all(abs(one.later_s or 0.0) < 0.015 for one in every.values())


def test_hosts_out_of_step_are_named() -> None:
    given = hosts()
    one = given["d"]
    given["d"] = HostIterations(period_s=0.6, period_half_width_s=0.001, from_s=3.0, to_s=33.0, recorded_to_s=40.0)
    assert held(given, silent=True)[1] == [("silent", "no period"), ("d", "another period")]
    given["d"] = HostIterations(
        period_s=one.period_s, period_half_width_s=0.001, from_s=3.0, to_s=15.0, recorded_to_s=40.0,
        begins_s=one.begins_s[:20], computed_s=one.computed_s[:19], sample_s=0.01,
    )  # fmt: skip
    assert held(given)[1] == [("d", "stops early")]
    given["d"] = HostIterations(
        period_s=one.period_s, period_half_width_s=0.001, from_s=3.0, to_s=15.0, recorded_to_s=15.1,
        begins_s=one.begins_s[:20], computed_s=one.computed_s[:19], sample_s=0.01,
    )  # fmt: skip
    assert held(given)[1] == [], "it was watched no longer"
    longer = hosts(longer={"a": 0.1})
    assert isinstance(stragglers(longer, [], compare_hosts(longer, one_clock=True))[0], Straggler)


def test_single_iterations_vary_as_much_as_was_simulated() -> None:
    for words in (
        "period=0.7 jitter=0.05 noise=0.1 seed=3",
        "period=0.5 jitter=0.03 noise=0.05 seed=4 compute=0.4",
        "period=0.7 jitter=0 noise=0.2 seed=5",
        "period=0.9 jitter=0 drift=0.2 noise=0.02 seed=6",
    ):
        found = run_trial(parse_job([*words.split(), "seconds=30"]))
        assert found.estimate is not None
        assert found.estimate.variation == pytest.approx(found.truth.variation, abs=0.015), words
    few = run_trial(parse_job(["period=0.27", "jitter=0.005", "rate=50", "seconds=30"])).estimate
    assert few is not None
    assert 0.01 < (few.variation or 0.0) < 0.03, "the noise of 13 samples an iteration"


def test_levels_that_differ_between_iterations_are_no_variation_of_their_length() -> None:
    random = Random(1)
    (work,) = simulate_job(parse_job(["period=0.7", "compute=0.6", "seconds=30"])).curves[:1]
    heights = [random.uniform(0.7, 1.3) for _ in range(50)]
    values = [value * heights[int(end / 0.7)] for end, value in zip(work.ends_s, work.values, strict=True)]
    (found,) = estimate_iterations([work._replace(values=values)]).estimates
    assert found.compute == pytest.approx(0.6, abs=0.03)
    assert found.variation is not None
    assert found.variation < 0.01


def test_a_gpu_that_computes_at_two_levels_never_waits() -> None:
    (work,) = simulate_job(parse_job(["period=0.7", "compute=0.6", "seconds=30"])).curves[:1]
    curve = work._replace(values=[2400 + 600 * value for value in work.values], off_share=0.7)
    (found,) = estimate_iterations([curve]).estimates
    assert (found.compute, found.variation) == (1.0, None)
    (found,) = estimate_iterations([curve._replace(off_share=1.0)]).estimates
    assert found.compute == pytest.approx(0.6, abs=0.03)


def test_the_offset_of_a_clock_is_that_of_the_shortest_round_trip() -> None:
    assert estimate_offset([(10.0, 3.1, 11.0), (12.0, 4.0, 12.002), (13.0, 5.1, 13.1)]) == pytest.approx((8.001, 0.001))
    known = [(0.0, 0.0), (10.0, 1e-3)]
    assert [interpolate_change(known, at_s) for at_s in (-1, 5, 20)] == pytest.approx([0.0, 0.5e-3, 1e-3])
    assert interpolate_change([], 5.0) == 0.0
