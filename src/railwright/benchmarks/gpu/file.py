"""What reads of files into GPU memory and writes from it share: options, ways, what really ran, and the passes.

A block's offset in the file is its place in the GPU's memory, so one look at that memory checks a whole pass.
Each way is a launch of its own: cuFile reads its settings once in a process.
"""

from __future__ import annotations

import array
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.after_crash import cases_behind
from railwright.benchmarks.base import Job, Option, Plan, Rank, Variant, choice
from railwright.benchmarks.files.cpu_cost import cpu_settings
from railwright.benchmarks.files.direct_file import FILL_BYTES, device_of, with_name
from railwright.benchmarks.files.direct_io import Point, block_order, options, points, problem
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.gpu.file_route import route_evidence, wrong_route
from railwright.errors import CannotJudge
from railwright.native import cufile
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer, driver_version
from railwright.native.cufile import CuFile, Way
from railwright.native.cufile_watch import Watch
from railwright.native.files import Extent, Pass
from railwright.results.model import Evidence, Result
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.model import Scalar
from railwright.units import format_size, parse_size

BOUNCE = "bounce"
WAYS = ("gds", "cufile compat", BOUNCE)
POISON = 0xA5
_LEFT_OUT = ("pages", "engine")
_ways = choice(*WAYS)


def options_of(*, verb: str, sizes: str) -> tuple[Option, ...]:
    """Those of the host's benchmark that mean something here, and the ways."""
    kept = (one for one in options(verb=verb, sizes=sizes, pages="huge") if one.name not in _LEFT_OUT)
    there = f"gds (no fallback), cufile compat, {BOUNCE} (pinned buffers of our own), or several"
    return (*kept, Option("ways", ",".join(WAYS), there, _ways))


def variants(given: Mapping[str, str]) -> tuple[Variant, ...]:
    """A launch for each way."""
    return tuple(Variant(parameters={"way": way}) for way in _ways(given["ways"]))


def points_of(given: Mapping[str, str]) -> tuple[Point, ...]:
    """Those of the host's benchmark; buffers have no choice of pages."""
    return points({**given, "pages": "huge"})


def points_left(job: Job) -> tuple[Point, ...]:
    """Those that this launch has to measure."""
    return points_of(job.options)[job.first_case :]


def step_of(job: Job, point: Point) -> str:
    """What a rank calls the measurement of a point."""
    return f"{job.benchmark} {job.variant.parameters['way']} {point.without_pages}"


def after_crash(job: Job, results: Sequence[Result]) -> Job | None:
    """The points behind the one in which cuFile crashed; None where it was none of them, or the last one."""
    steps = [step_of(job, point) for point in points_of(job.options)]
    return cases_behind(job, results, steps, keys=("size_bytes", "depth", "threads", "order"))


def path_of(job: Job, *, write: bool) -> str:
    """From the drive to the rank's GPU, or back."""
    drive = device_of(job.topology, job.options["directory"])
    gpu = job.gpu_of(0).id if job.gpus else "gpu"
    return f"{gpu}>{drive}" if write else f"{drive}>{gpu}"


def plan_of(job: Job, *, passes: int, write: bool) -> Plan:
    """What it costs and why it cannot be done. Whether cuFile can be used only a rank may try."""
    folder, size = job.options["directory"], parse_size(job.options["file-size"])
    every = points_of(job.options)
    moved = (1 + passes) * sum(point.blocks(size) * point.size for point in every)
    wear = f", and over it again: {format_size(size + moved)} of wear on the drive in each launch" if write else ""
    settled = {**job.options, "pages": "huge"}
    return Plan(
        path=path_of(job, write=write),
        seconds=3 + (1 + passes) * sum(point.planned_s(size) for point in every),
        memory_bytes=FILL_BYTES + max(point.in_flight_bytes for point in every),
        moved_bytes=size + moved,
        files=(f"a nameless file of {format_size(size)} in {folder}{wear}",),
        waived=gpu_job.waived(job) or problem(replace(job, options=settled), "write" if write else "read"),
    )


class Target(NamedTuple):
    """What the passes of a launch work on."""

    fd: int
    way: str
    buffer: DeviceBuffer
    driver: CuFile | None
    """None where the data goes through buffers of our own."""


@contextlib.contextmanager
def opened(rank: Rank, fd: int) -> Iterator[Target]:
    """The GPU's memory, as large as the file, and cuFile's driver where the way needs it. Raises CannotJudge."""
    way = str(rank.job.variant.parameters["way"])
    rank.step("GPU memory")
    size = parse_size(rank.job.options["file-size"])
    with Device(rank.job.gpu_of(0).address) as device, DeviceBuffer(device, size) as buffer:
        if way == BOUNCE:
            yield Target(fd, way, buffer, None)
            return
        rank.step(f"cuFile for {way}")
        os.sched_setaffinity(0, rank.job.cpus_beside(0))  # for cuFile's own threads; our workers bind themselves
        with contextlib.ExitStack() as stack:
            with with_name(fd, rank.job.options["directory"]) as named:
                stack.callback(os.close, named)
                driver = stack.enter_context(CuFile(rank.scratch, _cufile_way(way), named, buffer))
            yield Target(named, way, buffer, driver)


def _cufile_way(way: str) -> Way:
    return "gds" if way == "gds" else "cufile compat"


def over_ways(rank: Rank, blank: Result, fd: int, measure: Callable[[Target], Iterator[Result]]) -> Iterator[Result]:
    """What `measure` yields; `blank` waived with cuFile's own reason where the way cannot be gone."""
    parameters: dict[str, Scalar] = {"way": str(rank.job.variant.parameters["way"])}
    with contextlib.ExitStack() as stack:
        try:
            target = stack.enter_context(opened(rank, fd))
        except CannotJudge as error:
            if parameters["way"] == BOUNCE:
                raise
            yield replace(blank, outcome="waived", reason=error.message, parameters=parameters)
            return
        yield from measure(target)


OnePass = Callable[[bool], Pass]
"""Makes a pass over all blocks: writes the file, or reads it."""


class Work(NamedTuple):
    """One point's blocks, and who moves them."""

    point: Point
    offsets: array.array[int]
    cpus: tuple[int, ...]

    @property
    def region_bytes(self) -> int:
        """The first bytes of the file and of the GPU's memory, all of which one pass moves."""
        return len(self.offsets) * self.point.size


def work_of(rank: Rank, point: Point) -> Work:
    """So many workers as there are operations in flight, round and round over the CPUs near the GPU."""
    region = point.blocks(parse_size(rank.job.options["file-size"])) * point.size
    offsets, _ = block_order((Extent(0, 0, region),), point.size, point.order)
    near = rank.job.cpus_near(rank.job.gpu_of(0)) or rank.job.cpus
    workers = point.depth * point.threads
    return Work(point, offsets, tuple(near[worker % len(near)] for worker in range(workers)))


@contextlib.contextmanager
def passes_of(target: Target, work: Work) -> Iterator[OnePass]:
    """A function that makes one pass; between the first and the last the pinned buffers stay."""
    with contextlib.ExitStack() as stack:
        through: CuFile | PinnedBuffer = target.driver or stack.enter_context(
            PinnedBuffer(target.buffer.device, work.point.size * len(work.cpus))
        )
        yield lambda write: cufile.gpu_pass(
            *(target.fd, target.buffer, through, work.offsets, work.point.size, work.cpus), write=write
        )


def counted_pass(rank: Rank, target: Target, work: Work, one_pass: OnePass, *, write: bool) -> tuple[Evidence, str]:
    """One pass that is not timed: which way its data really took, and why that is not the one that was asked for."""
    if target.driver is None:
        one_pass(write)
        return Evidence(claim="route", value="pinned buffers", seen="our own reads, writes and copies"), ""
    watch = Watch(rank.scratch, write=write)
    one_pass(write)
    evidence = route_evidence(watch.end(len(work.offsets), work.region_bytes))
    return evidence, wrong_route(target.way, evidence)


def parameters_of(target: Target, point: Point, verb: str) -> dict[str, Scalar]:
    """What was varied, as it stands in the record."""
    return {
        "size_bytes": point.size,
        "depth": point.depth,
        "threads": point.threads,
        "order": point.order,
        "way": target.way,
        **({"operation": verb} if verb == "write" else {}),
    }


def settings_of(target: Target, work: Work, passes: list[Pass], kernel_s: float | None) -> dict[str, Scalar]:
    """What the passes cost, and with which software."""
    moved = len(work.offsets) * work.point.size
    found: dict[str, Scalar] = {
        "passes": len(passes),
        "operations_per_pass": len(work.offsets),
        "workers": len(work.cpus),
        "o_direct": True,
        "cuda_driver": driver_version(),
        "cpus": ",".join(map(str, dict.fromkeys(work.cpus))),
        **cpu_settings(passes, moved, kernel_s),
    }
    if target.driver is not None:
        own = cufile.properties()
        found["library_cpus"] = format_cpu_list(os.sched_getaffinity(0))
        found |= {"nvidia_fs": own.nvidia_fs, "cufile_version": own.version, "cufile_may_fall_back": own.compatible}
    return found
