"""Writes of a file from GPU memory: GPUDirect Storage, cuFile's compatibility mode, and Railwright's pinned buffers.

The benchmark writes only blocks of its own nameless test file, never a device. Writes wear the drive, so `prove` never
runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.files.direct_file import count_wrong
from railwright.benchmarks.files.direct_io import Point, declare_results, time_passes
from railwright.benchmarks.gpu import file as gpu_file
from railwright.benchmarks.gpu.file import GpuFileOptions, RouteCase, Target
from railwright.benchmarks.job import Job
from railwright.benchmarks.options import option, whole_number
from railwright.benchmarks.record import draw_seed
from railwright.native.memory import PATTERN
from railwright.results.records import Result, Verification
from railwright.results.workload import Files

_MOST_PASSES = 1000


class WriteOptions(GpuFileOptions, frozen=True):
    """Options of writes."""

    passes: int = option("5", "timed passes over the file at each point", whole_number(_MOST_PASSES))


WriteJob = Job[WriteOptions, RouteCase]
WriteRank = Rank[WriteOptions, RouteCase]


def _plan(job: WriteJob) -> Plan:
    return gpu_file.plan_passes(job, passes=job.options.passes, write=True)


def _run(rank: WriteRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(gpu_file.find_path(rank.job, write=True))
    return gpu_file.measure_points(rank, blank, partial(_measure, rank, blank))


def _measure(rank: WriteRank, common: Result, target: Target, point: Point) -> Iterator[Result]:
    """Make a counted pass and then timed passes with another pattern, and read the file back by pread."""
    rank.step(gpu_file.name_step(rank.job, point))
    work, seed = gpu_file.assign_work(rank, target, point), draw_seed()
    with gpu_file.prepare_pass(target, work) as one_pass:
        target.buffer.fill(seed)
        seen = gpu_file.observe_pass(rank, target, work, one_pass, write=True)
        target.buffer.fill(seed + 1)
        passes, cost = time_passes(lambda: [one_pass(True) for _ in range(rank.job.options.passes)], work.region_bytes)
    rank.step(f"{gpu_file.name_step(rank.job, point)}: reading back")
    each = zip(work.files, work.starts, strict=True)
    wrong = sum(count_wrong(fd, seed + 1, work.file_bytes, start) for fd, start in each)
    check = Verification(method=PATTERN, bytes_checked=work.region_bytes, bytes_wrong=wrong)
    cost["pattern_seed"] = seed + 1
    yield from gpu_file.results(common, target, work, seen, passes, cost, check, {"operation": "write"})


BENCHMARK = Benchmark(
    name="gpu_file_write",
    summary="direct writes of a file from GPU memory: GPUDirect Storage, its compatibility mode, pinned buffers",
    method="gdsio -x 0, 1 and 2: O_DIRECT over a filled file, each block at most once a pass, as many workers as "
    "operations in flight",
    results=declare_results(Files(of="drive", upper_only=True)),
    options=WriteOptions,
    case=RouteCase,
    launches=gpu_file.launches,
    plan=_plan,
    run=_run,
    after_crash=gpu_file.skip_crashed_points,
)
