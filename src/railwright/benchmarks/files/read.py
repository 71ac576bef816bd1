"""Direct reads of a file (O_DIRECT) by io_uring, or by pools of threads where io_uring is forbidden.

`device_read` makes the same passes. A pass is either checked and untimed, or timed and unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.files import direct_io
from railwright.benchmarks.files.direct_file import SEED, find_device, measure_test_file
from railwright.benchmarks.files.direct_io import DirectOptions, Point, PointPasses, Target
from railwright.benchmarks.job import Case, Job
from railwright.native.files import Blocks, Extent, read_pass
from railwright.native.memory import PATTERN
from railwright.results.records import Result, Verification
from railwright.results.workload import Files

_PASSES = 7

DirectJob = Job[DirectOptions, Case]
DirectRank = Rank[DirectOptions, Case]


def plan(job: DirectJob) -> Plan:
    """Plan the reads of a test file in the options' folder, or give the reason why they cannot run."""
    options = job.options
    every = direct_io.list_points(options, options.pages)
    return direct_io.plan_passes(path(job), options, every, passes=1 + _PASSES)


def path(job: DirectJob) -> str:
    """Return the path from the folder's drive to the rank's memory."""
    return f"{find_device(job.topology, job.options.directory)}>{job.find_memory(0)}"


def measure(rank: DirectRank, blank: Result, target: Target) -> Iterator[Result]:
    """Measure all points, each with one checked pass and then timed passes."""
    for point in direct_io.list_points(rank.job.options, rank.job.options.pages):
        yield from _measure_point(rank, blank, target, point)


def _measure_point(rank: DirectRank, blank: Result, target: Target, point: Point) -> Iterator[Result]:
    def make_passes(blocks: Blocks, cpus: Sequence[int]) -> PointPasses:
        checked = read_pass(blocks, seed=SEED, check=True, cpus=cpus)
        passes, cost = direct_io.time_passes(
            lambda: [read_pass(blocks, seed=SEED, check=False, cpus=cpus) for _ in range(_PASSES)], blocks.moved_bytes
        )
        check = Verification(method=PATTERN, bytes_checked=blocks.moved_bytes, bytes_wrong=checked.wrong_bytes)
        return PointPasses(passes, cost, check, {"passes": _PASSES, "reads_per_pass": len(blocks.offsets)})

    yield from direct_io.measure_point(rank, blank, target, point, make_passes)


def _run(rank: DirectRank) -> Iterator[Result]:
    whole = Extent(0, 0, rank.job.options.file_size)
    blank = BENCHMARK.blank(path(rank.job))
    yield from measure_test_file(rank, blank, lambda fd: measure(rank, blank, Target(fd, (whole,))))


BENCHMARK = Benchmark(
    name="file_read",
    summary="direct reads of a file into host memory",
    method="fio randread: O_DIRECT, each block at most once a pass, a fixed number in flight per thread",
    results=direct_io.declare_results(Files(), "file read"),
    options=DirectOptions,
    plan=plan,
    run=_run,
)
