"""Simulates a job with a known period: the sampled curves, and the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from railwright.diagnosis.iterations.aliases import SPREAD
from railwright.diagnosis.iterations.samples import Curve, Role
from railwright.errors import UsageError, unknown_name

_FULL_RATE_BYTES_PER_S = 25e9
_MAX_SAMPLES = 400_000
_ROUNDING = 1e-9

# name -> default, minimum, maximum
_WORDS: dict[str, tuple[float, float, float]] = {
    "period": (0.7, 1e-4, 1e5),
    "compute": (0.6, 0, 1),
    "communication": (0.5, 0, 1),
    "exposed": (0.4, 0, 1),
    "noise": (0.1, 0, 10),
    "drift": (0.0, -0.9, 0.9),
    "missing": (0.0, 0, 0.9),
    "rate": (100, 0.01, 10_000),
    "seconds": (60, 0.1, 1e6),
    "seed": (0, 0, 2**32),
    "jitter": (0.0, 0, 0.5),
    "change": (0.0, 0, 1e5),
    "second": (0.0, 0, 1e5),
}

Spans = list[tuple[float, float]]
"""Start and end of activities in seconds, ascending."""


class Job(NamedTuple):
    """The parameters of a simulation; shares are parts of the period."""

    period: float
    compute: float
    communication: float
    exposed: float
    noise: float
    """Deviation of every sample, as a part of the step between off and on."""
    drift: float
    """The increase of the period from start to end, as a part of its mean `period`."""
    missing: float
    """The share of missing samples."""
    rate: float
    seconds: float
    seed: float
    jitter: float
    """Deviation of every iteration, as a part of the period."""
    change: float
    """The period after half of the time; 0 keeps the period."""
    second: float
    """The period of a second job that shares all counters; 0 for none."""


class Truth(NamedTuple):
    """The simulated curves and their truth."""

    job: Job
    curves: tuple[Curve, Curve]
    """Activity of the processor, 0 to 1, and traffic in bytes/s."""
    iterations_s: tuple[float, ...]
    """The length of each iteration that began and ended in the recording."""


def parse_job(words: Sequence[str]) -> Job:
    """Parse words such as `period=0.7 compute=0.6 seed=7`. Raises UsageError."""
    given = {name: default for name, (default, _, _) in _WORDS.items()}
    for word in words:
        name, _, text = word.partition("=")
        if name not in _WORDS:
            raise unknown_name("word of a simulation", name, _WORDS)
        _, minimum, maximum = _WORDS[name]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not minimum <= value <= maximum or (name == "seed" and value % 1):
            raise UsageError(f"{name}={text[:20]} is out of range", hint=f"give {name}={minimum:g} to {maximum:g}")
        given[name] = value
    job = Job(**given)
    _refuse_impossible(job)
    return job


def _refuse_impossible(job: Job) -> None:
    """Check that the shares of an iteration are possible. Raises UsageError."""
    if job.exposed > job.communication + _ROUNDING:
        raise UsageError(
            f"exposed={job.exposed:g} is above communication={job.communication:g}",
            hint="exposed is the part of the communication during which nothing is computed",
        )
    if job.compute + job.exposed > 1 + _ROUNDING:
        raise UsageError(
            f"compute={job.compute:g} and exposed={job.exposed:g} are more than the whole period",
            hint="lower one of them: together they may be at most 1",
        )
    if job.communication - job.exposed > job.compute + _ROUNDING:
        raise UsageError(
            f"communication={job.communication:g} less exposed={job.exposed:g} is above compute={job.compute:g}",
            hint="communication that is not exposed overlaps computing",
        )
    if job.rate * job.seconds > _MAX_SAMPLES:
        what = f"a simulation must have at most {_MAX_SAMPLES} samples, got {job.rate * job.seconds:.0f}"
        raise UsageError(what, hint="give a lower rate, or fewer seconds")


def simulate_job(job: Job) -> Truth:
    """Simulate the sampled curves of a job."""
    random = Random(int(job.seed))
    begins = _draw_begins(job, job.period, random)
    spans = _list_spans(begins, job)
    if job.second:
        others = _list_spans(_draw_begins(job._replace(change=0.0, drift=0.0), job.second, random), job)
        spans = tuple(sorted(one + other) for one, other in zip(spans, others, strict=True))  # type: ignore[assignment]
    ends = _draw_ticks(job, random)
    idle, full = random.uniform(0.0, 0.2), random.uniform(0.6, 1.0)
    compute = _sample_curve("compute", ends, spans[0], (idle, full), job.noise, random)
    traffic = _sample_curve("traffic", ends, spans[1], (0.0, _FULL_RATE_BYTES_PER_S), job.noise, random)
    whole = [begin for begin in begins if 0 <= begin <= job.seconds]
    lasted = tuple(after - before for before, after in pairwise(whole))
    return Truth(job, (compute, traffic), lasted)


def _draw_begins(job: Job, period_s: float, random: Random) -> list[float]:
    """Return the start of each iteration; the first is before the recording, and the last ends after it."""
    at_s = -random.random() * period_s
    found = [at_s]
    while at_s < job.seconds:
        through = min(max(at_s / job.seconds, 0.0), 1.0)
        now_s = job.change if job.change and through >= 0.5 else period_s
        lasts_s = now_s * (1 + job.drift * (through - 0.5))
        at_s += lasts_s * max(0.2, 1 + job.jitter * random.gauss(0, 1)) if job.jitter else lasts_s
        found.append(at_s)
    return found


def _list_spans(begins: Sequence[float], job: Job) -> tuple[Spans, Spans]:
    """Return the spans: computing begins with the iteration; traffic begins before its end and is exposed after it."""
    compute: Spans = []
    traffic: Spans = []
    for begin_s, end_s in pairwise(begins):
        lasts_s = end_s - begin_s
        computed_s = begin_s + job.compute * lasts_s
        compute.append((begin_s, computed_s))
        traffic.append((computed_s - (job.communication - job.exposed) * lasts_s, computed_s + job.exposed * lasts_s))
    return compute, traffic


def _draw_ticks(job: Job, random: Random) -> list[float]:
    """Return the times of samples, spread within the interval as by the sampler."""
    count = int(job.rate * job.seconds)
    ticks = [(number + SPREAD * (random.random() - 0.5)) / job.rate for number in range(1, count + 1)]
    return [tick for tick in ticks if random.random() >= job.missing]


def _sample_curve(
    role: Role, ends: Sequence[float], spans: Spans, levels: tuple[float, float], noise: float, random: Random
) -> Curve:
    low, high = levels
    before_s, values, first = 0.0, [], 0
    for end_s in ends:
        while first < len(spans) and spans[first][1] <= before_s:
            first += 1
        on_s, at = 0.0, first
        while at < len(spans) and spans[at][0] < end_s:
            on_s += max(0.0, min(end_s, spans[at][1]) - max(before_s, spans[at][0]))
            at += 1
        part = on_s / (end_s - before_s)
        values.append(low + (high - low) * (part + noise * random.gauss(0, 1)))
        before_s = end_s
    return Curve(role, 0.0, ends, values, low + 0.3 * (high - low))
