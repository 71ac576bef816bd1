"""The reads of `file_read`, from the raw block device; they measure the file system's limit.

The benchmark reads the blocks of a test file where the file system reports them, so that the data can be checked and
lies where `file_read` would read it. It needs permission to read the device node and never writes to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from railwright.benchmarks.benchmark import Benchmark, Plan
from railwright.benchmarks.files import read
from railwright.benchmarks.files.direct_file import measure_test_file
from railwright.benchmarks.files.direct_io import DirectOptions, Target, declare_results
from railwright.benchmarks.files.read import DirectJob, DirectRank
from railwright.errors import CannotJudge
from railwright.native import files
from railwright.results.records import Result
from railwright.results.workload import Files


def _find_node(folder: str) -> str:
    """Find the block device node of a folder's file system. Raises CannotJudge if there is no readable one."""
    number = Path(folder).stat().st_dev
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/uevent")
    try:
        name = next(
            line.removeprefix("DEVNAME=")
            for line in link.read_text("utf-8").splitlines()
            if line.startswith("DEVNAME=")
        )
    except (OSError, StopIteration):
        raise CannotJudge(f"{folder} does not lie on one block device of this machine") from None
    node = f"/dev/{name}"
    try:
        found = Path(node).stat()
    except OSError as error:
        raise CannotJudge(f"{node}: {error.strerror}") from error
    if not stat.S_ISBLK(found.st_mode) or found.st_rdev != number:
        raise CannotJudge(f"{node} is not the device of {folder}")
    return node


def _open_device(node: str) -> int:
    """Open the device for direct reads. Raises CannotJudge; device cgroups may refuse root as well."""
    try:
        return os.open(node, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise CannotJudge(f"{node} cannot be read directly: {error.strerror}") from error


def _plan(job: DirectJob) -> Plan:
    plan = read.plan(job)
    if plan.waived:
        return plan
    try:
        os.close(_open_device(_find_node(job.options.directory)))
    except CannotJudge as error:
        return replace(plan, waived=error.message)
    return plan


def _run(rank: DirectRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(read.path(rank.job))

    def measure(fd: int) -> Iterator[Result]:
        extents = tuple(files.extents(fd))
        device = _open_device(_find_node(rank.job.options.directory))
        try:
            yield from read.measure(rank, blank, Target(device, extents))
        finally:
            os.close(device)

    yield from measure_test_file(rank, blank, measure)


BENCHMARK = Benchmark(
    name="device_read",
    summary="direct reads of a file's blocks from the raw block device",
    method="as file_read, on the block device itself: the ceiling of the file system",
    results=declare_results(Files(of="drive"), "raw device", is_reference=True),
    options=DirectOptions,
    plan=_plan,
    run=_run,
)
