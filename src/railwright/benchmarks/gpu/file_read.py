"""Reads of a file into GPU memory: GPUDirect Storage, cuFile's compatibility mode, and Railwright's pinned buffers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from railwright.benchmarks.benchmark import Benchmark, Plan
from railwright.benchmarks.files.direct_file import SEED
from railwright.benchmarks.files.direct_io import Point, declare_results, time_passes
from railwright.benchmarks.gpu import file as gpu_file
from railwright.benchmarks.gpu.file import POISON, GpuFileJob, GpuFileOptions, GpuFileRank, RouteCase, Target
from railwright.native.memory import PATTERN
from railwright.results.records import Result, Verification
from railwright.results.workload import Files

_PASSES = 7


def _plan(job: GpuFileJob) -> Plan:
    return gpu_file.plan_passes(job, passes=_PASSES, write=False)


def _run(rank: GpuFileRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(gpu_file.find_path(rank.job, write=False))
    return gpu_file.measure_points(rank, blank, partial(_measure, rank, blank))


def _measure(rank: GpuFileRank, common: Result, target: Target, point: Point) -> Iterator[Result]:
    """Make a counted pass and then timed passes, and check the GPU's memory after both."""
    rank.step(gpu_file.name_step(rank.job, point))
    work = gpu_file.assign_work(rank, target, point)
    with gpu_file.prepare_pass(target, work) as one_pass:
        target.buffer.set_bytes(POISON)
        seen = gpu_file.observe_pass(rank, target, work, one_pass, write=False)
        wrong = work.count_wrong(target.buffer, SEED)
        target.buffer.set_bytes(POISON)
        passes, cost = time_passes(lambda: [one_pass(False) for _ in range(_PASSES)], work.region_bytes)
        wrong += work.count_wrong(target.buffer, SEED)
    check = Verification(method=f"{PATTERN}, on the GPU", bytes_checked=2 * work.region_bytes, bytes_wrong=wrong)
    yield from gpu_file.results(common, target, work, seen, passes, cost, check)


BENCHMARK = Benchmark(
    name="gpu_file_read",
    summary="direct reads of a file into GPU memory: GPUDirect Storage, its compatibility mode, pinned buffers",
    method="gdsio -x 0, 1 and 2: O_DIRECT, each block at most once a pass, as many workers as operations in flight",
    results=declare_results(Files(of="drive", upper_only=True)),
    options=GpuFileOptions,
    case=RouteCase,
    launches=gpu_file.launches,
    plan=_plan,
    run=_run,
    after_crash=gpu_file.skip_crashed_points,
)
