"""The parts that reads and writes between files and GPU memory share: options, ways, evidence and passes.

A block's offset in the file is its offset in the GPU's memory, so one comparison of that memory checks a whole pass.
Each way is a separate launch, because cuFile reads its settings once per process.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Plan, Rank, skip_crashed
from railwright.benchmarks.files import direct_file, direct_io
from railwright.benchmarks.files.direct_io import FileOptions, Point
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
from railwright.units import format_size

SHARED, OWN = "shared", "own"
BOUNCE = "bounce"
WAYS = ("gds", "cufile compat", BOUNCE)
POISON = 0xA5


class GpuFileOptions(FileOptions, frozen=True):
    """Options of direct I/O between a file and a GPU's memory."""

    ways: tuple[str, ...] = option(
        ",".join(WAYS),
        f"gds (no fallback), cufile compat, {BOUNCE} (Railwright's pinned buffers), or several",
        choice(*WAYS),
    )
    files: tuple[str, ...] = option(
        SHARED, f"{SHARED} (one file for all threads), {OWN} (a file for each of io-threads), or both",
        choice(SHARED, OWN),
    )  # fmt: skip


class RouteCase(Case, frozen=True, kw_only=True):
    """The route of a launch's data, and whether each thread has its own file (`own`)."""

    way: str
    files: str = ""


GpuFileJob = Job[GpuFileOptions, RouteCase]
GpuFileRank = Rank[GpuFileOptions, RouteCase]


def launches(options: GpuFileOptions, machine: Machine) -> tuple[Launch[RouteCase], ...]:
    """Return a launch for each way and each division into files."""
    gpus = gpu_job.list_usable(machine)
    cases = (RouteCase(way=way, files=OWN if files == OWN else "") for files in options.files for way in options.ways)
    return tuple(Launch(case=case, gpus=gpus) for case in cases)


def list_points(job: GpuFileJob) -> tuple[Point, ...]:
    """Return the points of the host's benchmark; the buffers have no choice of pages."""
    return direct_io.list_points(job.options, ("",))


def name_step(job: GpuFileJob, point: Point) -> str:
    """Return a rank's step name for a point."""
    own = ", a file for each thread" if job.case.files else ""
    return f"{job.benchmark} {job.case.way} {point}{own}"


def skip_crashed_points(job: GpuFileJob, results: Sequence[Result]) -> GpuFileJob | None:
    """Return a job with the points after cuFile's crash, or None if no point crashed or none is left."""
    steps = [name_step(job, point) for point in list_points(job)]
    return skip_crashed(job, results, steps, keys=("size_bytes", "depth", "threads", "order"))


def find_path(job: GpuFileJob, *, write: bool) -> str:
    """Return the path from the drive to the rank's GPU, or the reverse."""
    drive = direct_file.find_device(job.topology, job.options.directory)
    gpu = job.find_gpu(0).id if job.gpus else "gpu"
    return f"{gpu}>{drive}" if write else f"{drive}>{gpu}"


def plan_passes(job: GpuFileJob, *, passes: int, write: bool) -> Plan:
    """Estimate the cost, or return the reason why it cannot run. Only a rank may try whether cuFile works."""
    plan = direct_io.plan_passes(
        find_path(job, write=write),
        job.options,
        list_points(job),
        passes=1 + passes,
        written=1 + passes if write else 0,
        start_s=3,
        waived=gpu_job.waiver_reason(job) or (_find_part_problem(job) if job.case.files else ""),
    )
    if not job.case.files:
        return plan
    return dataclasses.replace(plan, files=(f"{plan.files[0]}, in parts for each number of threads",))


def part_bytes(options: GpuFileOptions, threads: int) -> int:
    """Return the size of each thread's own file."""
    return options.file_size // threads // direct_file.FILE_MULTIPLE_BYTES * direct_file.FILE_MULTIPLE_BYTES


def _find_part_problem(job: GpuFileJob) -> str:
    """Return the reason why a file per thread cannot be made, or an empty string."""
    options = job.options
    for point in list_points(job):
        if point.size_bytes > part_bytes(options, point.threads):
            own = f"{format_size(part_bytes(options, point.threads))}, the size of each of the {point.threads} files"
            return f"a block must be at most {own}, got {format_size(point.size_bytes)}: increase file-size"
    return direct_file.room_problem(options.directory, len(options.io_threads) * options.file_size)


class Target(NamedTuple):
    """The files and buffers of a launch's passes."""

    files: dict[int, tuple[int, ...]]
    """File descriptors by number of threads; key 0 has the file that all threads share."""
    way: str
    buffer: DeviceBuffer
    driver: CuFile | None
    """None if the data goes through Railwright's own buffers."""


@contextlib.contextmanager
def open_target(rank: GpuFileRank, files: dict[int, tuple[int, ...]]) -> Iterator[Target]:
    """Allocate GPU memory as large as the file, and open cuFile's driver if the way needs it. Raises CannotJudge."""
    way = rank.job.case.way
    rank.step("GPU memory")
    size = rank.job.options.file_size
    with Device(rank.job.find_gpu(0).address) as device, DeviceBuffer(device, size) as buffer:
        if way == BOUNCE:
            yield Target(files, way, buffer, None)
            return
        rank.step(f"cuFile for {way}")
        os.sched_setaffinity(0, rank.job.list_rank_cpus(0))  # for cuFile's threads; the workers bind themselves
        with contextlib.ExitStack() as stack:
            driver: CuFile | None = None
            named: dict[int, tuple[int, ...]] = {}
            for threads, fds in files.items():
                for fd in fds:
                    with direct_file.reopen_named(fd, rank.job.options.directory) as again:
                        stack.callback(os.close, again)
                        if driver is None:
                            driver = stack.enter_context(CuFile(rank.scratch, _cufile_way(way), again, buffer))
                        else:
                            driver.register(again)
                    named[threads] = (*named.get(threads, ()), again)
            yield Target(named, way, buffer, driver)


def _cufile_way(way: str) -> Way:
    return "gds" if way == "gds" else "cufile compat"


Measure = Callable[[Target, Point], Iterator[Result]]


def measure_points(rank: GpuFileRank, blank: Result, measure: Measure) -> Iterator[Result]:
    """Yield the results of each point, or `blank` as waived if cuFile or the file system refuses the way."""
    try:
        with contextlib.ExitStack() as stack:
            files = _open_files(rank, stack)
            try:
                target = stack.enter_context(open_target(rank, files))
            except CannotJudge as error:
                if rank.job.case.way == BOUNCE:
                    raise
                yield waived(blank, error.message, rank.job.case.parameters())
                return
            for point in list_points(rank.job)[rank.job.first_case :]:
                yield from measure(target, point)
    except direct_file.NoDirectFile as error:
        yield waived(blank, error.message, rank.job.case.parameters())


def _open_files(rank: GpuFileRank, stack: contextlib.ExitStack) -> dict[int, tuple[int, ...]]:
    """Make one file that all threads share (key 0), or a file per thread for each number of threads.

    Each thread's file has its own part of the pattern.
    """
    options = rank.job.options
    rank.step("writing the test file")
    if not rank.job.case.files:
        return {0: (stack.enter_context(direct_file.test_file(options.directory, options.file_size)),)}
    found = {}
    for threads in options.io_threads:
        part = part_bytes(options, threads)
        parts = (direct_file.test_file(options.directory, part, number * part) for number in range(threads))
        found[threads] = tuple(stack.enter_context(one) for one in parts)
    return found


OnePass = Callable[[bool], Pass]
"""Makes a pass over all blocks; its argument tells whether to write the file or to read it."""


class Work(NamedTuple):
    """The blocks of a point and the workers that move them."""

    point: Point
    offsets: array.array[int]
    """The block offsets of each file."""
    cpus: tuple[int, ...]
    files: tuple[int, ...]
    part_bytes: int
    """The distance between consecutive files' bytes, in the pattern and in the GPU's memory."""

    @property
    def file_bytes(self) -> int:
        """The bytes at the start of each file that a pass moves."""
        return len(self.offsets) * self.point.size_bytes

    @property
    def region_bytes(self) -> int:
        """The bytes that a pass moves."""
        return len(self.files) * self.file_bytes

    @property
    def starts(self) -> tuple[int, ...]:
        """The offsets of the files' bytes in the pattern and in the GPU's memory."""
        return tuple(number * self.part_bytes for number in range(len(self.files)))

    def count_wrong(self, buffer: DeviceBuffer, seed: int) -> int:
        """Count the bytes in the GPU's memory that differ from the pattern."""
        return sum(buffer.count_wrong(seed, self.file_bytes, position=start, start=start) for start in self.starts)


def assign_work(rank: GpuFileRank, target: Target, point: Point) -> Work:
    """Assign a worker to each operation in flight, round robin over files and CPUs near the GPU."""
    options = rank.job.options
    files = target.files.get(point.threads, target.files.get(0, ()))
    part = part_bytes(options, point.threads) if rank.job.case.files else options.file_size
    region = min(part // point.size_bytes, max(1, direct_io.MOST_BLOCKS_PER_PASS // len(files))) * point.size_bytes
    offsets, _ = direct_io.order_blocks((Extent(0, 0, region),), point.size_bytes, point.order)
    near = rank.job.list_gpu_cpus(rank.job.find_gpu(0)) or rank.job.cpus
    workers = point.depth * point.threads
    return Work(point, offsets, tuple(near[worker % len(near)] for worker in range(workers)), files, part)


@contextlib.contextmanager
def prepare_pass(target: Target, work: Work) -> Iterator[OnePass]:
    """Yield a function that makes one pass; the pinned buffers live until the context ends."""
    with contextlib.ExitStack() as stack:
        through: CuFile | PinnedBuffer = target.driver or stack.enter_context(
            PinnedBuffer(target.buffer.device, work.point.size_bytes * len(work.cpus))
        )
        yield lambda write: cufile.gpu_pass(
            *(work.files, target.buffer, through, work.offsets, work.point.size_bytes, work.cpus),
            write=write, stride=work.part_bytes,
        )  # fmt: skip


def observe_pass(
    rank: GpuFileRank, target: Target, work: Work, one_pass: OnePass, *, write: bool
) -> tuple[Evidence, str]:
    """Make an untimed pass; return the route of its data, and the reason if it is not the requested one."""
    if target.driver is None:
        one_pass(write)
        return Evidence(claim="route", value="pinned buffers", seen="Railwright's own reads, writes and copies"), ""
    watch = Watch(rank.scratch, write=write)
    one_pass(write)
    evidence = route_evidence(watch.end(len(work.files) * len(work.offsets), work.region_bytes))
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
    """Yield the records of a point, with its rates, CPU cost, software and route."""
    route, elsewhere = seen
    settings: dict[str, Scalar] = {
        "passes": len(passes),
        "operations_per_pass": len(work.files) * len(work.offsets),
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
        parameters={
            **work.point.parameters(),
            "way": target.way,
            **({} if 0 in target.files else {"files": OWN}),
            **(varied or {}),
        },
        settings=settings,
        verification=check,
        evidence=(route,),
    )
    yield from direct_io.record_passes(done, work.point, len(work.files) * len(work.offsets), passes)
