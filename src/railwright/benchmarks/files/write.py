"""Direct writes to a file (O_DIRECT) by io_uring, or by pools of threads where io_uring is forbidden.

The benchmark writes only blocks of its own nameless test file, never a device. The blocks have been written before, so
that timed writes overwrite and allocate nothing. Writes wear the drive, so `prove` never runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.files import direct_io
from railwright.benchmarks.files.direct_file import find_device, measure_test_file
from railwright.benchmarks.files.direct_io import DirectOptions, Point, PointPasses, Target
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import option, whole_number, yes_or_no
from railwright.benchmarks.record import draw_seed
from railwright.native.files import STAMPED, Blocks, Extent, read_pass, write_pass
from railwright.results.records import Result, Verification
from railwright.results.workload import Files

_MOST_PASSES = 1000


class WriteOptions(DirectOptions, frozen=True):
    """Options of writes."""

    passes: int = option("5", "timed passes over the file at each point", whole_number(_MOST_PASSES))
    fsync: bool = option("yes", "yes: an fsync after each pass, timed separately; or no", yes_or_no)


WriteRank = Rank[WriteOptions, Case]


def _plan(job: Job[WriteOptions, Case]) -> Plan:
    """Estimate the time and the drive's wear, or give the reason why writes cannot run."""
    options = job.options
    every = direct_io.list_points(options, options.pages)
    return direct_io.plan_passes(_path(job), options, every, passes=1 + options.passes, written=options.passes)


def _path(job: Job[WriteOptions, Case]) -> str:
    return f"{job.find_memory(0)}>{find_device(job.topology, job.options.directory)}"


def _run(rank: WriteRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(_path(rank.job))
    yield from measure_test_file(rank, blank, partial(_measure, rank, blank))


def _measure(rank: WriteRank, blank: Result, fd: int) -> Iterator[Result]:
    for point in direct_io.list_points(rank.job.options, rank.job.options.pages):
        yield from _measure_point(rank, blank, fd, point)


def _measure_point(rank: WriteRank, blank: Result, fd: int, point: Point) -> Iterator[Result]:
    """Time passes with different patterns, so that stale data is detected; then read the last one back."""
    options, seed = rank.job.options, draw_seed()

    def make_passes(blocks: Blocks, cpus: Sequence[int]) -> PointPasses:
        seeds = range(seed, seed + options.passes)
        passes, cost = direct_io.time_passes(
            lambda: [write_pass(blocks, seed=one, sync=options.fsync, cpus=cpus) for one in seeds], blocks.moved_bytes
        )
        rank.step(f"{blank.benchmark} {point}: reading back")
        checked = read_pass(blocks, seed=seeds[-1], check=True, stamped=True, cpus=cpus)
        check = Verification(method=STAMPED, bytes_checked=blocks.moved_bytes, bytes_wrong=checked.wrong_bytes)
        settings = {"passes": len(passes), "writes_per_pass": len(blocks.offsets), "pattern_seed": seed}
        return PointPasses(passes, cost, check, {**settings, "fsync": "yes" if options.fsync else "no"})

    target = Target(fd, (Extent(0, 0, options.file_size),))
    yield from direct_io.measure_point(rank, blank, target, point, make_passes, {"operation": "write"})


BENCHMARK = Benchmark(
    name="file_write",
    summary="direct writes from host memory to a file",
    method="fio randwrite over a filled file: O_DIRECT, each block at most once a pass, a fixed number in flight per "
    "thread",
    results=direct_io.declare_results(Files(of="drive", upper_only=True)),
    options=WriteOptions,
    defaults={"sizes": "4K:1M:x4", "pages": "huge"},
    plan=_plan,
    run=_run,
)
