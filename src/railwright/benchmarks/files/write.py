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

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.files import direct_io
from railwright.benchmarks.files.direct_file import device_of, over_test_file
from railwright.benchmarks.files.direct_io import DirectOptions, Point
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import option, whole_number, yes_or_no
from railwright.benchmarks.record import joined, measured, waived
from railwright.native.files import STAMPED, Extent, Pass, read_pass, write_pass
from railwright.results.bounds import DriveLinks
from railwright.results.model import Result, Verification
from railwright.units import format_size

_MOST_PASSES = 1000
_SEED_BYTES = 6
"""Of the pattern, drawn by each launch: the next run must not write what deduplicating storage knows already."""


class WriteOptions(DirectOptions, frozen=True):
    """What writes are asked for."""

    passes: int = option("5", "timed passes over the file at each point", whole_number(_MOST_PASSES))
    fsync: bool = option("yes", "yes: an fsync after each pass, timed apart; or no", yes_or_no)


WriteRank = Rank[WriteOptions, Case]


def _plan(job: Job[WriteOptions, Case]) -> Plan:
    """What writing costs, with the wear of the drive, and why that cannot be done."""
    options, size = job.options, job.options.file_size
    every = direct_io.points(options, options.pages)
    read_back = sum(point.blocks(size) * point.size_bytes for point in every)
    written = size + options.passes * read_back
    file = f"a nameless file of {format_size(size)} in {options.directory}"
    return Plan(
        path=_path(job),
        seconds=2 + (1 + options.passes) * sum(point.planned_s(size) for point in every),
        memory_bytes=direct_io.memory_bytes(every),
        moved_bytes=written + read_back,
        files=(f"{file}, and over it again: {format_size(written)} of wear on the drive in each launch",),
        waived=direct_io.problem(options, every, "write"),
    )


def _path(job: Job[WriteOptions, Case]) -> str:
    return f"{job.memory_of(0)}>{device_of(job.topology, job.options.directory)}"


def _run(rank: WriteRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(_path(rank.job))
    yield from over_test_file(rank, blank, partial(_measure, rank, blank))


def _measure(rank: WriteRank, blank: Result, fd: int) -> Iterator[Result]:
    seed, options = int.from_bytes(os.urandom(_SEED_BYTES)), rank.job.options
    for number, point in enumerate(direct_io.points(options, options.pages)):
        yield from _measure_point(rank, blank, fd, point, seed + number * options.passes)


def _measure_point(rank: WriteRank, blank: Result, fd: int, point: Point, seed: int) -> Iterator[Result]:
    """Timed passes, each of another pattern, so that what an earlier one wrote is wrong; then the last is read back."""
    options = rank.job.options
    rank.step(f"{blank.benchmark} {point}")
    with direct_io.buffers_of(point) as buffers:
        pages = direct_io.pages_evidence(buffers)
        if why := direct_io.wrong_pages(point, pages):
            yield waived(blank, why, {"size_bytes": point.size_bytes})
            return
        engine, evidence = direct_io.engine_of(options.engine, fd, buffers, point.size_bytes)
        offsets, positions = direct_io.block_order((Extent(0, 0, options.file_size),), point.size_bytes, point.order)
        cpus = direct_io.cpus_of(rank, point)
        work = (fd, engine, offsets, positions, point.size_bytes, point.depth, buffers)
        seeds = range(seed, seed + options.passes)
        moved = len(offsets) * point.size_bytes
        passes, cost = direct_io.timed_passes(
            lambda: [write_pass(*work, seed=one, sync=options.fsync, cpus=cpus) for one in seeds], moved
        )
        rank.step(f"{blank.benchmark} {point}: reading back")
        checked = read_pass(*work, seed=seeds[-1], check=True, stamped=True, cpus=cpus)
    common = replace(
        blank,
        parameters={**point.parameters(), "engine": engine, "operation": "write"},
        settings={"passes": len(passes), "writes_per_pass": len(offsets), "o_direct": True,
                  "fsync": "yes" if options.fsync else "no", "pattern_seed": seed, "cpus": joined(cpus), **cost},
        verification=Verification(method=STAMPED, bytes_checked=moved, bytes_wrong=checked.wrong_bytes),
        evidence=(evidence, pages),
    )  # fmt: skip
    yield from direct_io.results_of(common, point, len(offsets), passes)
    if options.fsync:
        yield _fsync(common, passes)


def _fsync(common: Result, passes: list[Pass]) -> Result:
    """The time of the fsync that followed each pass: what the file system and the drive had yet to make durable."""
    settings = {key: value for key, value in common.settings.items() if "cpu_" not in key}
    settings["median_of_pass_s"] = statistics.median(one.elapsed_s for one in passes)
    seconds = [one.sync_s for one in passes]
    return measured(common, seconds, "latency_s", {"operation": "fsync"}, settings=settings)


BENCHMARK = Benchmark(
    name="file_write",
    summary="direct writes from host memory to a file",
    method="fio randwrite, file laid out: O_DIRECT, each block at most once a pass, so many in flight on each thread",
    results=direct_io.declared(DriveLinks()),
    options=WriteOptions,
    defaults={"sizes": "4K:1M:x4", "pages": "huge"},
    plan=_plan,
    run=_run,
)
