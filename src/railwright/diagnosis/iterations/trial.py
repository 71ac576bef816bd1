"""One simulated job, looked at, beside what is true."""

from __future__ import annotations

import msgspec

from railwright.diagnosis.iterations.analysis import told
from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.simulate import Job, simulated
from railwright.diagnosis.iterations.singles import variation_of


class TrueJob(msgspec.Struct, frozen=True, kw_only=True):
    """What was simulated; shares are parts of the period."""

    period_s: float
    """In the mean of the iterations that began and ended in the recording."""
    iterations: int
    """Those."""
    variation: float
    """By how much single iterations differ, a deviation as a part of the period."""
    compute: float
    communication: float
    exposed: float
    best_gain: float | None
    """1 / (1 - exposed); None where all is exposed communication."""


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="watch-simulated"):
    """The record of `railwright watch --simulate`."""

    words: dict[str, float]
    """Everything that was simulated, with what was not given."""
    truth: TrueJob
    estimate: Estimate | None
    """Of the longest stretch; None: `why_none`."""
    others: tuple[Estimate, ...]
    """Of other stretches, where the period changes."""
    why_none: str


def tried(job: Job) -> SimulatedJob:
    """Simulate a job, and look at its curves as at any other's."""
    truth = simulated(job)
    found = told(truth.curves)
    lasted = truth.iterations_s
    return SimulatedJob(
        words=job._asdict(),
        truth=TrueJob(
            period_s=sum(lasted) / len(lasted) if lasted else job.period,
            iterations=len(lasted),
            variation=variation_of(lasted),
            compute=job.compute,
            communication=job.communication,
            exposed=job.exposed,
            best_gain=1 / (1 - job.exposed) if job.exposed < 1 else None,
        ),
        estimate=found.estimates[0] if found.estimates else None,
        others=found.estimates[1:],
        why_none=found.why_none,
    )
