"""The parts that direct reads and writes share: options, points, block order, engines and results."""

from __future__ import annotations

import array
import bisect
import itertools
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import AnyRank, Plan
from railwright.benchmarks.files.cpu_cost import cpu_settings, kernel_threads_cpu_s
from railwright.benchmarks.files.direct_file import FILL_BYTES, folder_problem
from railwright.benchmarks.job import Case
from railwright.benchmarks.options import Options, choice, option, single_choice, whole_numbers
from railwright.benchmarks.pages import allocate_buffer, choose_pages, pages_evidence, pages_option, wrong_pages
from railwright.benchmarks.record import complete, format_cpus, latencies, sample_stride, waived
from railwright.errors import CannotJudge
from railwright.limits.limit import Quantity
from railwright.native.files import Blocks, Engine, Extent, Pass, io_uring_works
from railwright.native.memory import Buffer
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result, Verification
from railwright.results.workload import Baseline, Files
from railwright.topology.devices import Scalar
from railwright.units import KIB, format_size, parse_size, parse_sizes

_SMALL_BYTES = 64 * KIB
MOST_BLOCKS_PER_PASS = 65_536
_MOST_DEPTH = 4096
_MOST_THREADS = 256
_MOST_VALUES = 16
_MOST_OPERATION_BYTES = 2**30
"""The kernel ends a read or write one page short of 2 GiB."""
_SECTOR_BYTES = 512
_PLANNED_BYTES_PER_S = 1e9
_PLANNED_OPERATIONS_PER_S = 75e3
"""Both measured on a virtual disk (docs/measured/host-paths); used for the plan only."""

Order = tuple["array.array[int]", "array.array[int]"]
"""Offsets in the descriptor, and the pattern position of each."""


class Point(Case, frozen=True):
    """The parameters of a point, as in a record."""

    size_bytes: int
    depth: int
    threads: int
    order: str
    pages: str = ""
    """`small` or `huge`; empty if the buffers have no choice of pages."""

    @property
    def in_flight_bytes(self) -> int:
        """The buffers of all operations in flight, in bytes."""
        return self.size_bytes * self.depth * self.threads

    def blocks(self, file_bytes: int) -> int:
        """Return the number of operations in a pass over a file of this size."""
        return min(file_bytes // self.size_bytes, MOST_BLOCKS_PER_PASS)

    def planned_s(self, file_bytes: int) -> float:
        """Estimate the length of a pass."""
        count = self.blocks(file_bytes)
        return max(count * self.size_bytes / _PLANNED_BYTES_PER_S, count / _PLANNED_OPERATIONS_PER_S)

    def __str__(self) -> str:
        threads = f" x {self.threads} threads" if self.threads > 1 else ""
        pages = f" {self.pages} pages" if self.pages else ""
        return f"{format_size(self.size_bytes)} {self.order} depth {self.depth}{threads}{pages}"


_depths = whole_numbers(_MOST_DEPTH, _MOST_VALUES)


class FileOptions(Options, frozen=True):
    """Options of direct I/O on a file."""

    directory: str = option(".", "the folder on the file system to measure", str)
    file_size: int = option("256M", "size of the test file, like 256M", parse_size)
    sizes: tuple[int, ...] = option("4K,1M", "sizes of one operation, like 4K,1M or 4K:1M:x4", parse_sizes)
    depth: tuple[int, ...] = option("32", "operations in flight per thread at sizes below 64 KiB, like 1,32", _depths)
    large_depth: tuple[int, ...] = option("4", "operations in flight per thread from 64 KiB up, like 4,16", _depths)
    io_threads: tuple[int, ...] = option(
        "1",
        "threads, each with its own ring or pool and its own part of the file, like 1,4",
        whole_numbers(_MOST_THREADS, _MOST_VALUES),
    )
    order: tuple[str, ...] = option("random", "random, sequential, or both", choice("random", "sequential"))


class DirectOptions(FileOptions, frozen=True):
    """Options of direct I/O between a file and host memory."""

    pages: tuple[str, ...] = pages_option("small,huge", "the buffers")
    engine: str = option("auto", "auto, io_uring or threads", single_choice("auto", "io_uring", "threads"))


def list_points(options: FileOptions, pages: tuple[str, ...]) -> tuple[Point, ...]:
    """List all combinations, sizes outermost. Large sizes use each kind of page: small pages split their blocks."""
    found = []
    for size in options.sizes:
        is_small = size < _SMALL_BYTES
        axes = (
            options.depth if is_small else options.large_depth,
            options.io_threads,
            options.order,
            choose_pages(size, pages),
        )
        found += [Point(size, *rest) for rest in itertools.product(*axes)]
    return tuple(found)


def plan_passes(
    path: str, options: FileOptions, every: Sequence[Point], *, passes: int, written: int = 0, start_s: float = 2.0,
    waived: str = "",
) -> Plan:  # fmt: skip
    """Plan `passes` passes over a test file, `written` of which write it, or give the reason why they cannot run."""
    size = options.file_size
    per_pass = sum(point.blocks(size) * point.size_bytes for point in every)
    wear = format_size(size + written * per_pass)
    again = f", then overwrites it: {wear} written to the drive in each launch" if written else ""
    return Plan(
        path=path,
        seconds=start_s + passes * sum(point.planned_s(size) for point in every),
        memory_bytes=memory_bytes(every),
        moved_bytes=size + passes * per_pass,
        files=(f"a nameless file of {format_size(size)} in {options.directory}{again}",),
        waived=waived or _find_problem(options, every, "write" if written else "read"),
    )


def _find_problem(options: FileOptions, every: Sequence[Point], verb: str) -> str:
    """Return the reason why direct I/O cannot be measured in the folder, or an empty string. Has no side effects."""
    return folder_problem(options.directory, options.file_size) or next(
        (why for point in every if (why := _find_point_problem(point, options.file_size, verb))), ""
    )


def _find_point_problem(point: Point, file_bytes: int, verb: str) -> str:
    size = point.size_bytes
    if size > file_bytes:
        return f"a {verb} is larger than the test file of {format_size(file_bytes)}"
    if size > _MOST_OPERATION_BYTES:
        return f"a {verb} must be at most {format_size(_MOST_OPERATION_BYTES)}, got {format_size(size)}"
    if size % _SECTOR_BYTES:
        return f"direct {verb}s must be multiples of {_SECTOR_BYTES} bytes"
    if point.threads > point.blocks(file_bytes):
        blocks = f"the {point.blocks(file_bytes)} blocks of {format_size(size)} in the test file"
        return f"{blocks} are not enough for {point.threads} threads"
    return ""


def memory_bytes(every: Sequence[Point]) -> int:
    """Return the memory of a rank: a buffer for each operation in flight, and the one that fills the file."""
    return FILL_BYTES + max(point.in_flight_bytes for point in every)


def choose_engine(wanted: str, fd: int, buffers: Buffer, size: int) -> tuple[Engine, Evidence]:
    """Choose the engine by trying io_uring, which containers often forbid, and return the evidence."""
    if wanted == "threads":
        return "threads", Evidence(claim="engine", value="threads", seen="chosen by the option engine=threads")
    refusal = io_uring_works(fd, buffers, size)
    if not refusal:
        return "io_uring", Evidence(claim="engine", value="io_uring", seen="io_uring_setup and a first read succeeded")
    if wanted == "io_uring":
        raise CannotJudge(f"io_uring does not work here: {refusal}", hint="use engine=threads")
    return "threads", Evidence(claim="engine", value="threads", seen=f"io_uring was refused: {refusal}")


def order_blocks(extents: Sequence[Extent], size: int, order: str) -> Order:
    """List whole blocks of the extents in order, each once, at most 65,536. Raises CannotJudge if there are none."""
    ends = list(itertools.accumulate(extent.length // size for extent in extents))
    total = ends[-1] if ends else 0
    if not total:
        reason = f"no extent of the test file holds a block of {format_size(size)}"
        raise CannotJudge(reason, hint="choose smaller sizes")
    count = min(total, MOST_BLOCKS_PER_PASS)
    chosen = range(count) if order == "sequential" else random.Random(size).sample(range(total), count)
    offsets, positions = array.array("q"), array.array("q")
    for number in chosen:
        which = bisect.bisect_right(ends, number)
        extent = extents[which]
        within = (number - (ends[which - 1] if which else 0)) * size
        offsets.append(extent.physical + within)
        positions.append(extent.logical + within)
    return offsets, positions


class Target(NamedTuple):
    """A descriptor open with O_DIRECT, and the place of the pattern's bytes in it."""

    fd: int
    extents: tuple[Extent, ...]


class PointPasses(NamedTuple):
    """The results of the passes over a point."""

    passes: list[Pass]
    cost: dict[str, Scalar]
    check: Verification
    settings: dict[str, Scalar]


def measure_point(
    rank: AnyRank,
    blank: Result,
    target: Target,
    point: Point,
    do: Callable[[Blocks, Sequence[int]], PointPasses],
    varied: dict[str, Scalar] | None = None,
) -> Iterator[Result]:
    """Yield the results of a point whose passes `do` makes, or the record as waived if its pages are unavailable."""
    rank.step(f"{blank.benchmark} {point}")
    with allocate_buffer(point.pages, point.in_flight_bytes) as buffers:
        pages = pages_evidence(buffers)
        if why := wrong_pages(point.pages, pages):
            yield waived(blank, why, {"size_bytes": point.size_bytes})
            return
        engine, evidence = choose_engine(rank.job.options.engine, target.fd, buffers, point.size_bytes)
        offsets, positions = order_blocks(target.extents, point.size_bytes, point.order)
        cpus = [
            rank.job.find_cpu(thread) for thread in range(point.threads)
        ]  # the CPUs of the rank's NUMA node come first
        done = do(Blocks(target.fd, engine, offsets, positions, point.size_bytes, point.depth, buffers), cpus)
    common = replace(
        blank,
        parameters={**point.parameters(), "engine": engine, **(varied or {})},
        settings={**done.settings, "o_direct": True, "cpus": format_cpus(cpus), **done.cost},
        verification=done.check,
        evidence=(evidence, pages),
    )
    yield from record_passes(common, point, len(offsets), done.passes)


def time_passes(make: Callable[[], list[Pass]], bytes_per_pass: int) -> tuple[list[Pass], dict[str, Scalar]]:
    """Run the passes and return them with their CPU cost."""
    before = kernel_threads_cpu_s()
    passes = make()
    after = kernel_threads_cpu_s()
    kernel_s = None if before is None or after is None else after - before
    return passes, cpu_settings(passes, bytes_per_pass, kernel_s)


def record_passes(common: Result, point: Point, operations: int, passes: Sequence[Pass]) -> Iterator[Result]:
    """Yield a point's rate, one sample per pass, and the latencies of its operations and of fsync."""
    small = point.size_bytes < _SMALL_BYTES
    amount = operations if small else operations * point.size_bytes
    settings = dict(common.settings)
    synced = any(one.sync_s for one in passes)
    if synced:
        settings["median_with_fsync"] = statistics.median(amount / (one.elapsed_s + one.sync_s) for one in passes)
    rates = [amount / one.elapsed_s for one in passes]
    yield complete(common, rates, "operations_per_s" if small else "bandwidth_bytes_per_s", settings=settings)
    every = [latency for one in passes for latency in one.latencies_s]
    yield latencies(common, every, settings={**common.settings, "samples_kept": f"1 of {sample_stride(len(every))}"})
    if synced:
        yield _fsync_result(common, passes)


def _fsync_result(common: Result, passes: Sequence[Pass]) -> Result:
    """Return the times of the fsync after each pass, in which the file system and drive make data durable."""
    settings = {key: value for key, value in common.settings.items() if "cpu_" not in key}
    settings["median_of_pass_s"] = statistics.median(one.elapsed_s for one in passes)
    seconds = [one.sync_s for one in passes]
    return complete(common, seconds, "latency_s", {"operation": "fsync"}, settings=settings)


def declare_results(
    workload: Files, supplies: Baseline | None = None, *, is_reference: bool = False
) -> tuple[Declaration, ...]:
    """Declare the limits of all quantities of direct reads or writes."""
    quantities: tuple[Quantity, ...] = ("bandwidth_bytes_per_s", "operations_per_s", "latency_s")
    return tuple(Declaration(one, workload, supplies=supplies, is_reference=is_reference) for one in quantities)
