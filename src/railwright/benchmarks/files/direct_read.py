"""What the two direct-read benchmarks share: the plan, the passes and their results.

Every pass is untimed checked or timed unchecked, never both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.base import Job, Plan, Rank
from railwright.benchmarks.files.cpu_cost import cpu_settings, kernel_threads_cpu_s
from railwright.benchmarks.files.direct_file import SEED, device_of, test_file
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
    random_order,
    results_of,
    wrong_pages,
)
from railwright.native.files import Extent, read_pass
from railwright.native.memory import PATTERN
from railwright.results.model import Result, Verification
from railwright.units import format_size, parse_size

__all__ = ["OPTIONS", "SEED", "Target", "blank", "measure", "plan", "random_order", "test_file"]

_PASSES = 7

OPTIONS = options(verb="read", sizes="4K,1M", pages="small,huge")


class Target(NamedTuple):
    """Something to read: a descriptor open with O_DIRECT, and where in it the pattern's bytes lie."""

    fd: int
    extents: tuple[Extent, ...]


def plan(job: Job) -> Plan:
    """What reading a test file in the folder of the options costs, and why that cannot be done."""
    folder, size = job.options["directory"], parse_size(job.options["file-size"])
    every, passes = points(job.options), 1 + _PASSES
    return Plan(
        path=_path(job),
        seconds=2 + passes * sum(point.planned_s(size) for point in every),
        memory_bytes=memory_bytes(job.options),
        moved_bytes=size + passes * sum(point.blocks(size) * point.size for point in every),
        files=(f"a nameless file of {format_size(size)} in {folder}",),
        waived=problem(job, "read"),
    )


def _path(job: Job) -> str:
    return f"{device_of(job.topology, job.options['directory'])}>{job.memory_of(0)}"


def blank(rank: Rank, benchmark: str, method: str) -> Result:
    """A record with everything but parameters and values."""
    return Result(benchmark=benchmark, quantity="bandwidth_bytes_per_s", path=_path(rank.job), method=method)


def measure(rank: Rank, common: Result, target: Target) -> Iterator[Result]:
    """All points, each with one checked pass and then timed passes."""
    for point in points(rank.job.options):
        yield from _measure_point(rank, common, target, point)


def _measure_point(rank: Rank, common: Result, target: Target, point: Point) -> Iterator[Result]:
    rank.step(f"{common.benchmark} {point}")
    with buffers_of(point) as buffers:
        pages = pages_evidence(buffers)
        if why := wrong_pages(point, pages):
            yield replace(common, outcome="waived", reason=why, parameters={"size_bytes": point.size})
            return
        engine, evidence = engine_of(rank.job.options["engine"], target.fd, buffers, point.size)
        offsets, positions = block_order(target.extents, point.size, point.order)
        cpus = cpus_of(rank, point)
        work = (target.fd, engine, offsets, positions, point.size, point.depth, buffers)
        checked = read_pass(*work, seed=SEED, check=True, cpus=cpus)
        before = kernel_threads_cpu_s()
        passes = [read_pass(*work, seed=SEED, check=False, cpus=cpus) for _ in range(_PASSES)]
        after = kernel_threads_cpu_s()
    moved = len(offsets) * point.size
    kernel_s = None if before is None or after is None else after - before
    measured = replace(
        common,
        parameters=parameters_of(point, engine),
        settings={"passes": _PASSES, "reads_per_pass": len(offsets), "o_direct": True,
                  "cpus": ",".join(map(str, cpus)), **cpu_settings(passes, moved, kernel_s)},
        verification=Verification(method=PATTERN, bytes_checked=moved, bytes_wrong=checked.wrong_bytes),
        evidence=(evidence, pages),
    )  # fmt: skip
    yield from results_of(measured, point, len(offsets), passes)
