"""Reads of a file into GPU memory: GPUDirect Storage, cuFile's compatibility mode, and pinned buffers of our own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from railwright.benchmarks.base import Benchmark, Job, Plan, Rank
from railwright.benchmarks.files.cpu_cost import kernel_threads_cpu_s
from railwright.benchmarks.files.direct_file import SEED, over_test_file
from railwright.benchmarks.files.direct_io import Point, results_of
from railwright.benchmarks.gpu import file as gpu_file
from railwright.benchmarks.gpu.file import POISON, Target
from railwright.native.memory import PATTERN
from railwright.results.model import Result, Verification

_PASSES = 7


def _plan(job: Job) -> Plan:
    return gpu_file.plan_of(job, passes=_PASSES, write=False)


def _run(rank: Rank) -> Iterator[Result]:
    path = gpu_file.path_of(rank.job, write=False)
    blank = Result(benchmark=BENCHMARK.name, quantity="bandwidth_bytes_per_s", path=path, method=BENCHMARK.method)
    over = partial(gpu_file.over_ways, rank, blank, measure=partial(_measure, rank, blank))
    yield from over_test_file(rank, blank, over)


def _measure(rank: Rank, common: Result, target: Target) -> Iterator[Result]:
    for point in gpu_file.points_left(rank.job):
        yield from _measure_point(rank, common, target, point)


def _measure_point(rank: Rank, common: Result, target: Target, point: Point) -> Iterator[Result]:
    """One counted pass, then timed ones; what is in the GPU's memory is checked after both."""
    rank.step(gpu_file.step_of(rank.job, point))
    work = gpu_file.work_of(rank, point)
    with gpu_file.passes_of(target, work) as one_pass:
        target.buffer.set_bytes(POISON, work.region_bytes)
        route, elsewhere = gpu_file.counted_pass(rank, target, work, one_pass, write=False)
        wrong = target.buffer.count_wrong(SEED, work.region_bytes)
        target.buffer.set_bytes(POISON, work.region_bytes)
        before = kernel_threads_cpu_s()
        passes = [one_pass(False) for _ in range(_PASSES)]
        after = kernel_threads_cpu_s()
        wrong += target.buffer.count_wrong(SEED, work.region_bytes)
    kernel_s = None if before is None or after is None else after - before
    measured = replace(
        common,
        outcome="failed" if elsewhere else "measured",
        reason=elsewhere,
        parameters=gpu_file.parameters_of(target, point, "read"),
        settings=gpu_file.settings_of(target, work, passes, kernel_s),
        verification=Verification(
            method=f"{PATTERN}, on the GPU", bytes_checked=2 * work.region_bytes, bytes_wrong=wrong
        ),
        evidence=(route,),
    )
    yield from results_of(measured, point, len(work.offsets), passes)


BENCHMARK = Benchmark(
    name="gpu_file_read",
    summary="direct reads of a file into GPU memory: GPUDirect Storage, its compatibility mode, pinned buffers",
    method="gdsio -x 0, 1 and 2: O_DIRECT, each block at most once a pass, as many workers as operations in flight",
    quantities=("bandwidth_bytes_per_s", "operations_per_s", "latency_s"),
    ranks=1,
    plan=_plan,
    run=_run,
    options=gpu_file.options_of(verb="read", sizes="4K,1M"),
    variants=gpu_file.variants,
    after_crash=gpu_file.after_crash,
    uses_gpus=True,
)
