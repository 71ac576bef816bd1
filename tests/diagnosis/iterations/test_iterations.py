"""Curves of simulated jobs: period and shares are found, and none is reported without repetition."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from railwright.diagnosis.iterations.analysis import estimate_iterations
from railwright.diagnosis.iterations.records import Iterations
from railwright.diagnosis.iterations.samples import Curve, resample
from railwright.diagnosis.iterations.simulate import parse_job, simulate_job
from railwright.diagnosis.iterations.trial import SimulatedJob, run_trial

LONG = bool(os.environ.get("RAILWRIGHT_TEST_LONG"))
JOBS = 1_000 if LONG else 16
SHARE = 0.03
MANY_SAMPLES = 30


def look(words: str) -> Iterations:
    return estimate_iterations(simulate_job(parse_job(words.split())).curves)


def some_jobs(seed: int) -> Iterator[str]:
    """Prime-numbered and other periods, drifting, with noise and missing samples, from few samples to many."""
    random = Random(seed)
    for number in range(JOBS):
        rate, seconds = random.choice([(50, 12), (100, 8), (20, 30), (100, 20)])
        least = 3.3 / rate
        period = random.choice([0.101, 0.211, 0.503, 0.701, 0.997, least * (seconds / 6 / least) ** random.random()])
        compute = random.uniform(0.05, 1)
        exposed = random.uniform(0, 1 - compute)
        words = {
            "period": max(period, least),
            "compute": compute,
            "communication": exposed + random.uniform(0, compute),
            "exposed": exposed,
            "noise": random.choice([0, 0.05, 0.1, 0.2, 0.3]),
            "drift": random.choice([0, 0, 0.005, 0.01, -0.02, 0.05]),
            "missing": random.choice([0, 0.02, 0.1]),
            "rate": rate,
            "seconds": seconds,
            "seed": seed * JOBS + number,
        }
        yield " ".join(f"{name}={value:.6g}" for name, value in words.items())


def problems(words: str, found: SimulatedJob) -> Iterator[str]:
    truth, seen = found.truth, found.estimate
    if seen is None:
        yield found.why_none
        return
    rate = found.words["rate"]
    if abs(seen.period_s - truth.period_s) > max(0.01 * truth.period_s, 1 / (rate * truth.iterations)):
        yield f"period {seen.period_s}, it is {truth.period_s}"
    if found.others or seen.second_period_s:
        yield f"more than one period: {seen.second_period_s} {found.others}"
    if rate * truth.period_s < MANY_SAMPLES:
        return
    for name in ("compute", "communication", "exposed"):
        value = getattr(seen, name)
        if value is None or abs(value - getattr(truth, name)) > SHARE:
            yield f"{name} {value}, it is {getattr(truth, name)}"
    if seen.best_gain_low is not None and not seen.best_gain_low <= 1 / (1 - min(truth.exposed, 0.999)) + 1e-9:
        yield f"best gain from {seen.best_gain_low}, exposed is {truth.exposed}"


@pytest.mark.parametrize("seed", range(8 if LONG else 1))
def test_jobs_that_nobody_has_seen_are_seen_through(seed: int) -> None:
    wrong = [
        f"{words}: {problem}"
        for words in some_jobs(seed)
        for problem in problems(words, run_trial(parse_job(words.split())))
    ]
    assert wrong == []


def test_nothing_is_claimed_below_three_updates_of_the_source() -> None:
    # At 100 Hz periods of 12.5 and 13 ms have aliases of 50 and 43 ms if samples are taken at even times.
    for period in ("0.02", "0.025", "0.029", "0.0125", "0.013"):
        for noise in ("0", "0.1"):
            found = look(f"period={period} seconds=10 noise={noise}")
            assert "below 3 updates" in found.why_none, (period, noise, found.estimates)


def test_fewer_than_five_iterations_are_no_period() -> None:
    assert "repeats often enough" in look("period=5 rate=20 seconds=20").why_none
    assert look("period=3.5 rate=20 seconds=20").estimates


def steps(random: Random, count: int) -> list[float]:
    """Work without a period: steps of random length."""
    values: list[float] = []
    while len(values) < count:
        values += [float(len(values) % 2)] * max(1, round(random.expovariate(1 / 20)))
    return values[:count]


def test_curves_without_a_period_have_none() -> None:
    claims = 0
    for seed in range(10):
        random = Random(seed)
        count = random.choice([200, 500, 1000])
        walk = [0.0]
        while len(walk) < count:
            walk.append(0.95 * walk[-1] + random.gauss(0, 1))
        for values in ([random.gauss(0, 1) for _ in range(count)], walk, steps(random, count), [1.0] * count):
            ends = [0.01 * number for number in range(1, count + 1)]
            found = estimate_iterations(
                [Curve("compute", 0.0, ends, values), Curve("traffic", 0.0, ends, [1 - one for one in values])]
            )
            claims += bool(found.estimates)
            assert found.estimates or found.why_none
    assert claims <= 1  # of 40: chance may cause one


def test_two_jobs_are_told_apart_and_have_no_shares() -> None:
    (found,) = look("period=0.7 second=1.1 seconds=40").estimates
    assert found.period_s == pytest.approx(0.7, rel=0.01)
    assert found.second_period_s == pytest.approx(1.1, rel=0.01)
    assert found.exposed is None
    assert "two jobs" in found.why_no_shares


def test_a_job_that_changes_its_period_has_two_stretches() -> None:
    found = sorted(look("period=0.7 change=1.1 seconds=40").estimates, key=lambda one: one.from_s)
    assert [one.period_s for one in found] == pytest.approx([0.7, 1.1], rel=0.01)
    assert found[0].to_s == pytest.approx(20, abs=1.5)
    assert [one.exposed for one in found] == pytest.approx([0.4, 0.4], abs=SHARE)


def test_a_drift_is_no_change() -> None:
    (found,) = look("period=0.7 drift=0.2 seconds=40").estimates
    assert found.drift == pytest.approx(0.2, abs=0.02)
    assert found.exposed == pytest.approx(0.4, abs=SHARE)


def test_what_never_stops_is_on_all_the_time_and_what_is_not_there_never() -> None:
    (found,) = look("compute=1 communication=0.5 exposed=0 seconds=20").estimates
    assert (found.compute, found.exposed) == (1, 0)
    (found,) = look("compute=0.5 communication=0 exposed=0 seconds=20").estimates
    assert (found.communication, found.exposed, found.best_gain) == (0, 0, 1)


def test_the_begins_of_iterations_are_where_computing_begins() -> None:
    truth = simulate_job(
        parse_job(["period=0.5", "noise=0", "seconds=10", "compute=0.5", "communication=0.5", "seed=3"])
    )
    (found,) = estimate_iterations(truth.curves).estimates
    curve = truth.curves[0]
    for begin in found.begins_s[1:-1]:
        near = [
            value for end, value in zip(curve.ends_s, curve.values, strict=True) if begin + 0.03 < end < begin + 0.2
        ]
        before = [
            value for end, value in zip(curve.ends_s, curve.values, strict=True) if begin - 0.2 < end < begin - 0.03
        ]
        assert min(near) > max(before)


def test_the_noise_of_an_idle_device_has_no_iterations() -> None:
    (work,) = simulate_job(parse_job(["seconds=20", "period=0.7", "exposed=0.3"])).curves[:1]
    idle_s, step_s = 12.0, work.ends_s[1] - work.ends_s[0]
    ends = [number * step_s for number in range(1, int(idle_s / step_s) + 1)]
    noise = [80 + (0.3 if end % 0.4 < 0.2 else 0.0) for end in ends]
    curve = Curve("compute", 0.0, [*ends, *(idle_s + end for end in work.ends_s)],
                  [*noise, *(80 + 500 * value for value in work.values)], 1.0)  # fmt: skip
    alone = estimate_iterations([Curve("compute", 0.0, ends, noise, 1.0)])
    assert [one.period_s for one in alone.estimates] == [pytest.approx(0.4, rel=0.01)]
    (found,) = estimate_iterations([curve]).estimates
    assert (found.period_s, found.from_s > 10) == (pytest.approx(0.7, rel=0.01), True)


def test_without_traffic_or_samples_the_reason_is_told() -> None:
    truth = simulate_job(parse_job(["seconds=20"]))
    (found,) = estimate_iterations(truth.curves[:1]).estimates
    assert found.why_no_shares == "no counter measures traffic"
    assert found.period_s == pytest.approx(0.7, rel=0.01)
    assert "a period needs at least 15" in estimate_iterations([]).why_none
    assert "7 samples" in look("period=1 rate=2 seconds=4").why_none


def test_a_missing_sample_is_in_the_mean_of_the_next() -> None:
    grid = resample([Curve("compute", 0.0, [1.0, 3.0, 4.0], [1.0, 2.0, 4.0])], 1.0)
    assert grid.compute == [1, 2, 2, 4]
