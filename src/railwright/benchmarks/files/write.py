"""Direct writes to a file (O_DIRECT) by io_uring, or by pools of threads where io_uring is forbidden.

Only blocks of a nameless test file of our own are written, never a device. They have been written once before, so that
what is timed overwrites them and allocates nothing. It wears the drive, so `prove` never runs it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, one_of, whole_number
from railwright.benchmarks.files.cpu_cost import cpu_settings, kernel_threads_cpu_s
from railwright.benchmarks.files.direct_file import device_of, over_test_file
from railwright.benchmarks.files.direct_io import (
    Point,
    block_order,
    buffers_of,
    cpus_of,
    engine_of,
    memory_bytes,
    options,
    pages_evidence,
    parameters_of,
    points,
    problem,
    results_of,
    wrong_pages,
)
from railwright.native.files import STAMPED, Extent, Pass, read_pass, write_pass
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.units import format_size, parse_size

_MOST_PASSES = 1000
_SEED_BYTES = 6
"""Of the pattern, drawn by each launch: the next run must not write what deduplicating storage knows already."""

OPTIONS = (
    *options(verb="write", sizes="4K:1M:x4", pages="huge"),
    Option("passes", "5", "timed passes over the file at each point", whole_number(_MOST_PASSES)),
    Option("fsync", "yes", "yes: an fsync after each pass, timed apart; or no", one_of("yes", "no")),
)


def _plan(job: Job) -> Plan:
    """What writing costs, with the wear of the drive, and why that cannot be done."""
    folder, size = job.options["directory"], parse_size(job.options["file-size"])
    every, passes = points(job.options), int(job.options["passes"])
    written = size + passes * sum(point.blocks(size) * point.size for point in every)
    read_back = sum(point.blocks(size) * point.size for point in every)
    file = f"a nameless file of {format_size(size)} in {folder}"
    return Plan(
        path=_path(job),
        seconds=2 + (1 + passes) * sum(point.planned_s(size) for point in every),
        memory_bytes=memory_bytes(job.options),
        moved_bytes=written + read_back,
        files=(f"{file}, and over it again: {format_size(written)} of wear on the drive in each launch",),
        waived=problem(job, "write"),
    )


def _path(job: Job) -> str:
    return f"{job.memory_of(0)}>{device_of(job.topology, job.options['directory'])}"


def _run(rank: Rank) -> Iterator[Result]:
    blank = Result(
        benchmark=BENCHMARK.name, quantity="bandwidth_bytes_per_s", path=_path(rank.job), method=BENCHMARK.method
    )
    yield from over_test_file(rank, blank, partial(_measure, rank, blank))


def _measure(rank: Rank, common: Result, fd: int) -> Iterator[Result]:
    seed, passes = int.from_bytes(os.urandom(_SEED_BYTES)), int(rank.job.options["passes"])
    for number, point in enumerate(points(rank.job.options)):
        yield from _measure_point(rank, common, fd, point, seed + number * passes)


def _measure_point(rank: Rank, common: Result, fd: int, point: Point, seed: int) -> Iterator[Result]:
    """Timed passes, each of another pattern, so that what an earlier one wrote is wrong; then the last is read back."""
    given = rank.job.options
    rank.step(f"{common.benchmark} {point}")
    with buffers_of(point) as buffers:
        pages = pages_evidence(buffers)
        if why := wrong_pages(point, pages):
            yield replace(common, outcome="waived", reason=why, parameters={"size_bytes": point.size})
            return
        engine, evidence = engine_of(given["engine"], fd, buffers, point.size)
        offsets, positions = block_order((Extent(0, 0, parse_size(given["file-size"])),), point.size, point.order)
        cpus = cpus_of(rank, point)
        work = (fd, engine, offsets, positions, point.size, point.depth, buffers)
        seeds = range(seed, seed + int(given["passes"]))
        before = kernel_threads_cpu_s()
        passes = [write_pass(*work, seed=one, sync=given["fsync"] == "yes", cpus=cpus) for one in seeds]
        after = kernel_threads_cpu_s()
        rank.step(f"{common.benchmark} {point}: reading back")
        checked = read_pass(*work, seed=seeds[-1], check=True, stamped=True, cpus=cpus)
    moved = len(offsets) * point.size
    kernel_s = None if before is None or after is None else after - before
    measured = replace(
        common,
        parameters={**parameters_of(point, engine), "operation": "write"},
        settings={"passes": len(passes), "writes_per_pass": len(offsets), "o_direct": True, "fsync": given["fsync"],
                  "pattern_seed": seed, "cpus": ",".join(map(str, cpus)), **cpu_settings(passes, moved, kernel_s)},
        verification=Verification(method=STAMPED, bytes_checked=moved, bytes_wrong=checked.wrong_bytes),
        evidence=(evidence, pages),
    )  # fmt: skip
    yield from results_of(measured, point, len(offsets), passes)
    if given["fsync"] == "yes":
        yield _fsync(measured, passes)


def _fsync(measured: Result, passes: list[Pass]) -> Result:
    """The time of the fsync that followed each pass: what the file system and the drive had yet to make durable."""
    seconds = tuple(one.sync_s for one in passes)
    settings = {key: value for key, value in measured.settings.items() if "cpu_" not in key}
    return replace(
        measured,
        quantity="latency_s",
        parameters={**measured.parameters, "operation": "fsync"},
        settings={**settings, "median_of_pass_s": statistics.median(one.elapsed_s for one in passes)},
        samples=seconds,
        summary=summarise(seconds),
    )


BENCHMARK = Benchmark(
    name="file_write",
    summary="direct writes from host memory to a file",
    method="fio randwrite, file laid out: O_DIRECT, each block at most once a pass, so many in flight on each thread",
    quantities=("bandwidth_bytes_per_s", "operations_per_s", "latency_s"),
    ranks=1,
    plan=_plan,
    run=_run,
    options=OPTIONS,
)
