"""What reads of files into GPU memory and writes from it share: options, ways, what really ran, and the passes.

A block's offset in the file is its place in the GPU's memory, so one look at that memory checks a whole pass.
Each way is a launch of its own: cuFile reads its settings once in a process.
"""

from __future__ import annotations

import array
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.after_crash import cases_behind
from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.files import direct_io
from railwright.benchmarks.files.direct_file import device_of, over_test_file, with_name
from railwright.benchmarks.files.direct_io import FileOptions, Point, block_order, points, results_of
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.gpu.file_route import route_evidence, wrong_route
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.options import choice, option
from railwright.benchmarks.record import failed_if, waived
from railwright.errors import CannotJudge
from railwright.native import cufile
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer, driver_version
from railwright.native.cufile import CuFile, Way
from railwright.native.cufile_watch import Watch
from railwright.native.files import Extent, Pass
from railwright.results.records import Evidence, Result, Verification
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.devices import Scalar

BOUNCE = "bounce"
WAYS = ("gds", "cufile compat", BOUNCE)
POISON = 0xA5


class GpuFileOptions(FileOptions, frozen=True):
    """What direct operations on a file are asked for whose other end is a GPU's memory."""

    ways: tuple[str, ...] = option(
        ",".join(WAYS),
        f"gds (no fallback), cufile compat, {BOUNCE} (pinned buffers of our own), or several",
        choice(*WAYS),
    )


class ByWay(Case, frozen=True, kw_only=True):
    """Which way the data of a launch goes."""

    way: str


GpuFileJob = Job[GpuFileOptions, ByWay]
GpuFileRank = Rank[GpuFileOptions, ByWay]


def launches(options: GpuFileOptions, machine: Machine) -> tuple[Launch[ByWay], ...]:
    """A launch for each way."""
    gpus = gpu_job.usable_of(machine)
    return tuple(Launch(case=ByWay(way=way), gpus=gpus) for way in options.ways)


def points_of(job: GpuFileJob) -> tuple[Point, ...]:
    """Those of the host's benchmark; buffers have no choice of pages."""
    return points(job.options, ("",))


def step_of(job: GpuFileJob, point: Point) -> str:
    """What a rank calls the measurement of a point."""
    return f"{job.benchmark} {job.case.way} {point}"


def after_crash(job: GpuFileJob, results: Sequence[Result]) -> GpuFileJob | None:
    """The points behind the one in which cuFile crashed; None where it was none of them, or the last one."""
    steps = [step_of(job, point) for point in points_of(job)]
    return cases_behind(job, results, steps, keys=("size_bytes", "depth", "threads", "order"))


def path_of(job: GpuFileJob, *, write: bool) -> str:
    """From the drive to the rank's GPU, or back."""
    drive = device_of(job.topology, job.options.directory)
    gpu = job.gpu_of(0).id if job.gpus else "gpu"
    return f"{gpu}>{drive}" if write else f"{drive}>{gpu}"


def plan_of(job: GpuFileJob, *, passes: int, write: bool) -> Plan:
    """What it costs and why it cannot be done. Whether cuFile can be used only a rank may try."""
    return direct_io.plan_of(
        path_of(job, write=write),
        job.options,
        points_of(job),
        passes=1 + passes,
        written=1 + passes if write else 0,
        start_s=3,
        waived=gpu_job.waived(job),
    )


class Target(NamedTuple):
    """What the passes of a launch work on."""

    fd: int
    way: str
    buffer: DeviceBuffer
    driver: CuFile | None
    """None where the data goes through buffers of our own."""


@contextlib.contextmanager
def opened(rank: GpuFileRank, fd: int) -> Iterator[Target]:
    """The GPU's memory, as large as the file, and cuFile's driver where the way needs it. Raises CannotJudge."""
    way = rank.job.case.way
    rank.step("GPU memory")
    size = rank.job.options.file_size
    with Device(rank.job.gpu_of(0).address) as device, DeviceBuffer(device, size) as buffer:
        if way == BOUNCE:
            yield Target(fd, way, buffer, None)
            return
        rank.step(f"cuFile for {way}")
        os.sched_setaffinity(0, rank.job.cpus_beside(0))  # for cuFile's own threads; our workers bind themselves
        with contextlib.ExitStack() as stack:
            with with_name(fd, rank.job.options.directory) as named:
                stack.callback(os.close, named)
                driver = stack.enter_context(CuFile(rank.scratch, _cufile_way(way), named, buffer))
            yield Target(named, way, buffer, driver)


def _cufile_way(way: str) -> Way:
    return "gds" if way == "gds" else "cufile compat"


def over_ways(rank: GpuFileRank, blank: Result, measure: Callable[[Target], Iterator[Result]]) -> Iterator[Result]:
    """What `measure` yields for a test file; `blank` waived with cuFile's own reason where the way cannot be gone."""

    def over(fd: int) -> Iterator[Result]:
        with contextlib.ExitStack() as stack:
            try:
                target = stack.enter_context(opened(rank, fd))
            except CannotJudge as error:
                if rank.job.case.way == BOUNCE:
                    raise
                yield waived(blank, error.message, rank.job.case.parameters())
                return
            yield from measure(target)

    yield from over_test_file(rank, blank, over)


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
        return len(self.offsets) * self.point.size_bytes


def work_of(rank: GpuFileRank, point: Point) -> Work:
    """So many workers as there are operations in flight, round and round over the CPUs near the GPU."""
    region = point.blocks(rank.job.options.file_size) * point.size_bytes
    offsets, _ = block_order((Extent(0, 0, region),), point.size_bytes, point.order)
    near = rank.job.cpus_near(rank.job.gpu_of(0)) or rank.job.cpus
    workers = point.depth * point.threads
    return Work(point, offsets, tuple(near[worker % len(near)] for worker in range(workers)))


@contextlib.contextmanager
def passes_of(target: Target, work: Work) -> Iterator[OnePass]:
    """A function that makes one pass; between the first and the last the pinned buffers stay."""
    with contextlib.ExitStack() as stack:
        through: CuFile | PinnedBuffer = target.driver or stack.enter_context(
            PinnedBuffer(target.buffer.device, work.point.size_bytes * len(work.cpus))
        )
        yield lambda write: cufile.gpu_pass(
            *(target.fd, target.buffer, through, work.offsets, work.point.size_bytes, work.cpus), write=write
        )


def counted_pass(
    rank: GpuFileRank, target: Target, work: Work, one_pass: OnePass, *, write: bool
) -> tuple[Evidence, str]:
    """One pass that is not timed: which way its data really took, and why that is not the one that was asked for."""
    if target.driver is None:
        one_pass(write)
        return Evidence(claim="route", value="pinned buffers", seen="our own reads, writes and copies"), ""
    watch = Watch(rank.scratch, write=write)
    one_pass(write)
    evidence = route_evidence(watch.end(len(work.offsets), work.region_bytes))
    return evidence, wrong_route(target.way, evidence)


def results(
    common: Result,
    target: Target,
    work: Work,
    seen: tuple[Evidence, str],
    passes: list[Pass],
    cost: dict[str, Scalar],
    check: Verification,
    varied: dict[str, Scalar] | None = None,
) -> Iterator[Result]:
    """The records of a point: what the passes gave and cost, with which software, and which way the data took."""
    route, elsewhere = seen
    settings: dict[str, Scalar] = {
        "passes": len(passes),
        "operations_per_pass": len(work.offsets),
        "workers": len(work.cpus),
        "o_direct": True,
        "cuda_driver": driver_version(),
        "cpus": ",".join(map(str, dict.fromkeys(work.cpus))),
        **cost,
    }
    if target.driver is not None:
        own = cufile.properties()
        settings["library_cpus"] = format_cpu_list(os.sched_getaffinity(0))
        settings |= {"nvidia_fs": own.nvidia_fs, "cufile_version": own.version, "cufile_may_fall_back": own.compatible}
    done = replace(
        failed_if(common, elsewhere),
        parameters={**work.point.parameters(), "way": target.way, **(varied or {})},
        settings=settings,
        verification=check,
        evidence=(route,),
    )
    yield from results_of(done, work.point, len(work.offsets), passes)
