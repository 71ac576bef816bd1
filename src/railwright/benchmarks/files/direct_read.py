"""What the two direct-read benchmarks share: the plan, the passes and their results.

Every pass is untimed checked or timed unchecked, never both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.files import direct_io
from railwright.benchmarks.files.direct_file import SEED, device_of
from railwright.benchmarks.files.direct_io import DirectOptions, Point
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.record import joined, waived
from railwright.native.files import Extent, read_pass
from railwright.native.memory import PATTERN
from railwright.results.model import Result, Verification
from railwright.units import format_size

_PASSES = 7

DirectJob = Job[DirectOptions, Case]
DirectRank = Rank[DirectOptions, Case]


class Target(NamedTuple):
    """Something to read: a descriptor open with O_DIRECT, and where in it the pattern's bytes lie."""

    fd: int
    extents: tuple[Extent, ...]


def plan(job: DirectJob) -> Plan:
    """What reading a test file in the folder of the options costs, and why that cannot be done."""
    options, size, passes = job.options, job.options.file_size, 1 + _PASSES
    every = direct_io.points(options, options.pages)
    return Plan(
        path=path(job),
        seconds=2 + passes * sum(point.planned_s(size) for point in every),
        memory_bytes=direct_io.memory_bytes(every),
        moved_bytes=size + passes * sum(point.blocks(size) * point.size_bytes for point in every),
        files=(f"a nameless file of {format_size(size)} in {options.directory}",),
        waived=direct_io.problem(options, every, "read"),
    )


def path(job: DirectJob) -> str:
    """From the drive that the folder lies on to the memory of the rank."""
    return f"{device_of(job.topology, job.options.directory)}>{job.memory_of(0)}"


def measure(rank: DirectRank, blank: Result, target: Target) -> Iterator[Result]:
    """All points, each with one checked pass and then timed passes."""
    for point in direct_io.points(rank.job.options, rank.job.options.pages):
        yield from _measure_point(rank, blank, target, point)


def _measure_point(rank: DirectRank, blank: Result, target: Target, point: Point) -> Iterator[Result]:
    rank.step(f"{blank.benchmark} {point}")
    with direct_io.buffers_of(point) as buffers:
        pages = direct_io.pages_evidence(buffers)
        if why := direct_io.wrong_pages(point, pages):
            yield waived(blank, why, {"size_bytes": point.size_bytes})
            return
        engine, evidence = direct_io.engine_of(rank.job.options.engine, target.fd, buffers, point.size_bytes)
        offsets, positions = direct_io.block_order(target.extents, point.size_bytes, point.order)
        cpus = direct_io.cpus_of(rank, point)
        work = (target.fd, engine, offsets, positions, point.size_bytes, point.depth, buffers)
        checked = read_pass(*work, seed=SEED, check=True, cpus=cpus)
        moved = len(offsets) * point.size_bytes
        passes, cost = direct_io.timed_passes(
            lambda: [read_pass(*work, seed=SEED, check=False, cpus=cpus) for _ in range(_PASSES)], moved
        )
    common = replace(
        blank,
        parameters={**point.parameters(), "engine": engine},
        settings={"passes": _PASSES, "reads_per_pass": len(offsets), "o_direct": True, "cpus": joined(cpus), **cost},
        verification=Verification(method=PATTERN, bytes_checked=moved, bytes_wrong=checked.wrong_bytes),
        evidence=(evidence, pages),
    )
    yield from direct_io.results_of(common, point, len(offsets), passes)
