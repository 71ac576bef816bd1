"""Analyses a simulated job, and records the estimate with the truth."""

from __future__ import annotations

import msgspec

from railwright.diagnosis.iterations.analysis import estimate_iterations
from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.simulate import Job, simulate_job
from railwright.diagnosis.iterations.singles import estimate_variation


class TrueJob(msgspec.Struct, frozen=True, kw_only=True):
    """The truth of a simulation; shares are parts of the period."""

    period_s: float
    """The mean of the iterations that began and ended in the recording."""
    iterations: int
    """The number of these iterations."""
    variation: float
    """The deviation of single iterations as a part of the period."""
    compute: float
    communication: float
    exposed: float
    best_gain: float | None
    """1 / (1 - exposed); None if everything is exposed communication."""


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="watch-simulated"):
    """The record of `railwright watch --simulate`."""

    words: dict[str, float]
    """All parameters of the simulation, including defaults."""
    truth: TrueJob
    estimate: Estimate | None
    """The estimate of the longest stretch; None if `why_none` is set."""
    others: tuple[Estimate, ...]
    """The estimates of other stretches, if the period changes."""
    why_none: str


def run_trial(job: Job) -> SimulatedJob:
    """Simulate a job and analyse its curves like those of a real job."""
    truth = simulate_job(job)
    found = estimate_iterations(truth.curves)
    lasted = truth.iterations_s
    return SimulatedJob(
        words=job._asdict(),
        truth=TrueJob(
            period_s=sum(lasted) / len(lasted) if lasted else job.period,
            iterations=len(lasted),
            variation=estimate_variation(lasted),
            compute=job.compute,
            communication=job.communication,
            exposed=job.exposed,
            best_gain=1 / (1 - job.exposed) if job.exposed < 1 else None,
        ),
        estimate=found.estimates[0] if found.estimates else None,
        others=found.estimates[1:],
        why_none=found.why_none,
    )
