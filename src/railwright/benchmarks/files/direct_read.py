"""What the two direct-read benchmarks share: the plan, the passes and their results.

Every pass is untimed checked or timed unchecked, never both.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.files import direct_io
from railwright.benchmarks.files.direct_file import SEED, device_of
from railwright.benchmarks.files.direct_io import DirectOptions, Done, Point, Target, Work
from railwright.benchmarks.job import Case, Job
from railwright.native.files import read_pass
from railwright.native.memory import PATTERN
from railwright.results.records import Result, Verification

_PASSES = 7

DirectJob = Job[DirectOptions, Case]
DirectRank = Rank[DirectOptions, Case]


def plan(job: DirectJob) -> Plan:
    """What reading a test file in the folder of the options costs, and why that cannot be done."""
    options = job.options
    every = direct_io.points(options, options.pages)
    return direct_io.plan_of(path(job), options, every, passes=1 + _PASSES)


def path(job: DirectJob) -> str:
    """From the drive that the folder lies on to the memory of the rank."""
    return f"{device_of(job.topology, job.options.directory)}>{job.memory_of(0)}"


def measure(rank: DirectRank, blank: Result, target: Target) -> Iterator[Result]:
    """All points, each with one checked pass and then timed passes."""
    for point in direct_io.points(rank.job.options, rank.job.options.pages):
        yield from _measure_point(rank, blank, target, point)


def _measure_point(rank: DirectRank, blank: Result, target: Target, point: Point) -> Iterator[Result]:
    def done(work: Work) -> Done:
        checked = read_pass(*work.blocks, seed=SEED, check=True, cpus=work.cpus)
        passes, cost = direct_io.timed_passes(
            lambda: [read_pass(*work.blocks, seed=SEED, check=False, cpus=work.cpus) for _ in range(_PASSES)],
            work.moved_bytes,
        )
        check = Verification(method=PATTERN, bytes_checked=work.moved_bytes, bytes_wrong=checked.wrong_bytes)
        return Done(passes, cost, check, {"passes": _PASSES, "reads_per_pass": work.operations})

    yield from direct_io.measure_point(rank, blank, target, point, done)
