"""What the two direct-read benchmarks share: the test file, engines, passes and results.

The file is written with a pattern of its position and has no name (O_TMPFILE, or unlinked at once), so that nothing
is left behind whatever ends the run. Every pass is untimed checked or timed unchecked, never both.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from railwright.benchmarks.base import Job, Option, Plan, Rank, choice, one_of, whole_number
from railwright.errors import CannotJudge
from railwright.native.files import Engine, Extent, io_uring_works, read_pass
from railwright.native.memory import PATTERN, Buffer
from railwright.results.model import Evidence, Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.model import Topology
from railwright.units import KIB, MIB, format_size, parse_size, parse_sizes

SEED = 20
_PASSES = 7
_ESTIMATE_BYTES_PER_S = 0.5e9
_SMALL_BYTES = 64 * KIB
_MOST_LATENCIES = 4096
_WRITE_BYTES = 4 * MIB
_MOST_READS_PER_PASS = 65_536
_MOST_DEPTH = 4096
_MOST_READ_BYTES = 2**30
"""The kernel ends one read a page short of 2 GiB."""
_FILE_MULTIPLE_BYTES = 4096
_HUGE_PAGE_BYTES = 2 * MIB

OPTIONS = (
    Option("directory", ".", "the folder on the file system to measure", str),
    Option("file-size", "256M", "size of the test file, like 256M", parse_size),
    Option("sizes", "4K,1M", "sizes of one read, like 4K,1M", parse_sizes),
    Option("depth", "32", "reads in flight at sizes below 64 KiB", whole_number(_MOST_DEPTH)),
    Option("large-depth", "4", "reads in flight from 64 KiB up", whole_number(_MOST_DEPTH)),
    Option("pages", "small,huge", "pages of the buffers from 64 KiB up: small, huge, or both", choice("small", "huge")),
    Option("engine", "auto", "auto, io_uring or threads", one_of("auto", "io_uring", "threads")),
)


class Target(NamedTuple):
    """Something to read: a descriptor open with O_DIRECT, and where in it the pattern's bytes lie."""

    fd: int
    extents: tuple[Extent, ...]


def plan(job: Job) -> Plan:
    """What reading a test file in the folder of the options costs, and why that cannot be done."""
    folder, size = job.options["directory"], parse_size(job.options["file-size"])
    return Plan(
        path=f"{device_of(job.topology, folder)}>{job.memory_of(0)}",
        seconds=2 + 10 * size / _ESTIMATE_BYTES_PER_S,
        memory_bytes=memory_bytes(job.options),
        moved_bytes=size + (1 + _PASSES) * sum(_reads(size, one) * one for one in parse_sizes(job.options["sizes"])),
        files=(f"a nameless file of {format_size(size)} in {folder}",),
        waived=problem(job),
    )


def _reads(file_bytes: int, size: int) -> int:
    return min(file_bytes // size, _MOST_READS_PER_PASS)


def problem(job: Job) -> str:
    """Why direct reads cannot be measured in the folder given, or an empty string. Touches nothing."""
    folder = Path(job.options["directory"])
    wanted = parse_size(job.options["file-size"])
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written to"
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < wanted + 64 * MIB:
        has = format_size(free.f_bavail * free.f_frsize)
        return f"{folder} has {has} free, the test file needs {format_size(wanted)} and 64 MiB to spare"
    if wanted % _FILE_MULTIPLE_BYTES:
        return f"the test file must be a multiple of {_FILE_MULTIPLE_BYTES} bytes, not {wanted}"
    return _problem_of_sizes(parse_sizes(job.options["sizes"]), wanted)


def _problem_of_sizes(sizes: tuple[int, ...], file_bytes: int) -> str:
    if max(sizes) > file_bytes:
        return f"a read is larger than the test file of {format_size(file_bytes)}"
    if max(sizes) > _MOST_READ_BYTES:
        return f"one read ends at {format_size(_MOST_READ_BYTES)}, {format_size(max(sizes))} was asked for"
    if any(size % 512 for size in sizes):
        return "direct reads must be multiples of 512 bytes"
    return ""


def memory_bytes(options: Mapping[str, str]) -> int:
    """What a rank allocates: a buffer for each read in flight, and the one that the file is written from."""
    return _WRITE_BYTES + max(size * _depth(options, size) for size in parse_sizes(options["sizes"]))


def _depth(options: Mapping[str, str], size: int) -> int:
    return int(options["depth"] if size < _SMALL_BYTES else options["large-depth"])


def device_of(topology: Topology, folder: str) -> str:
    """The id of the drive that a folder lies on: the topology's device, or the kernel's device number."""
    try:
        number = Path(folder).stat().st_dev
    except OSError:
        return "drive?"
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    names = [link.resolve().name, link.resolve().parent.name] if link.exists() else []
    found = next((name for name in names if topology.device(name) is not None), None)
    return found or (names[0] if names else f"dev{os.major(number)}:{os.minor(number)}")


@contextlib.contextmanager
def test_file(job: Job) -> Iterator[int]:
    """A nameless file full of the pattern, synced, open with O_DIRECT. Raises CannotJudge (full disk, tmpfs ...)."""
    folder, size = job.options["directory"], parse_size(job.options["file-size"])
    try:
        fd = _open_nameless(folder)
    except OSError as error:
        reason = f"cannot make a direct test file in {folder}: {error.strerror}"
        raise CannotJudge(reason, hint="choose another directory=...") from error
    try:
        with Buffer(_WRITE_BYTES) as buffer:
            for position in range(0, size, _WRITE_BYTES):
                buffer.fill(SEED, position=position)
                chunk = (ctypes.c_char * min(_WRITE_BYTES, size - position)).from_address(buffer.address)
                _write_all(fd, memoryview(chunk), position)
        os.fsync(fd)
        yield fd
    except OSError as error:
        reason = f"writing the test file in {folder}: {error.strerror}"
        raise CannotJudge(reason, hint="free some space, or choose another directory=...") from error
    finally:
        os.close(fd)


def _write_all(fd: int, chunk: memoryview, position: int) -> None:
    """A nearly full disk takes a part, and says why only when it is asked for the rest."""
    while written := os.pwrite(fd, chunk, position):
        chunk, position = chunk[written:], position + written
        if not chunk:
            return
    raise OSError(errno.EIO, "the disk takes no more")


def _open_nameless(folder: str) -> int:
    flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    path = Path(folder, f".railwright-{os.getpid()}")
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    finally:
        path.unlink(missing_ok=True)  # a file system without O_DIRECT makes the file and then refuses to open it


def measure(rank: Rank, benchmark: str, method: str, target: Target) -> Iterator[Result]:
    """All sizes, large ones by each kind of page: a read into small pages is a list of as many pieces."""
    pages = choice("small", "huge")(rank.job.options["pages"])
    for size in parse_sizes(rank.job.options["sizes"]):
        for kind in pages if size >= _SMALL_BYTES else pages[:1]:
            yield from _measure_size(rank, benchmark, method, target, size, kind)


def _measure_size(rank: Rank, benchmark: str, method: str, target: Target, size: int, pages: str) -> Iterator[Result]:
    """One checked pass, then timed passes."""
    options = rank.job.options
    depth = _depth(options, size)
    rank.step(f"{benchmark} {format_size(size)} depth {depth} {pages} pages")
    # At least one huge page, so that a small buffer can lie on one.
    room = max(size * depth, _HUGE_PAGE_BYTES) if pages == "huge" else size * depth
    with Buffer(room, huge=pages == "huge") as buffers:
        pages_seen = _pages_evidence(buffers)
        if pages_seen.value != pages:
            yield _waived(rank, benchmark, method, size, f"{pages} pages were asked for, but {pages_seen.seen}")
            return
        engine, evidence = _engine(options["engine"], target.fd, buffers, size)
        offsets, positions = random_order(target.extents, size)
        checked = read_pass(target.fd, engine, offsets, positions, size, depth, buffers, seed=SEED, check=True)
        passes = [
            read_pass(target.fd, engine, offsets, positions, size, depth, buffers, seed=SEED, check=False)
            for _ in range(_PASSES)
        ]
    common = Result(
        benchmark=benchmark,
        quantity="latency_s",
        path=f"{device_of(rank.job.topology, options['directory'])}>{rank.job.memory_of(0)}",
        method=method,
        parameters={"size_bytes": size, "depth": depth, "pages": pages, "engine": engine},
        settings={"passes": _PASSES, "reads_per_pass": len(offsets), "order": "random",
                  "o_direct": True, "cpus": str(rank.job.cpu_of(0))},
        verification=Verification(method=PATTERN, bytes_checked=len(offsets) * size, bytes_wrong=checked.wrong_bytes),
        evidence=(evidence, pages_seen),
    )  # fmt: skip
    yield from _as_results(common, size, len(offsets), [(one.elapsed_s, one.latencies_s) for one in passes])


def _waived(rank: Rank, benchmark: str, method: str, size: int, reason: str) -> Result:
    return Result(
        benchmark=benchmark,
        quantity="bandwidth_bytes_per_s",
        path=f"{device_of(rank.job.topology, rank.job.options['directory'])}>{rank.job.memory_of(0)}",
        method=method,
        parameters={"size_bytes": size},
        outcome="waived",
        reason=reason,
    )


def _as_results(common: Result, size: int, reads: int, passes: list[tuple[float, list[float]]]) -> Iterator[Result]:
    from msgspec.structs import replace

    if size < _SMALL_BYTES:
        rates = tuple(reads / elapsed for elapsed, _ in passes)
        yield replace(common, quantity="operations_per_s", samples=rates, summary=summarise(rates))
    else:
        rates = tuple(reads * size / elapsed for elapsed, _ in passes)
        yield replace(common, quantity="bandwidth_bytes_per_s", samples=rates, summary=summarise(rates))
    latencies = [latency for _, many in passes for latency in many]
    summary = summarise(latencies)  # of all of them; the record keeps every n-th
    every = -(-len(latencies) // _MOST_LATENCIES)
    yield replace(
        common,
        samples=tuple(latencies[::every]),
        summary=summary,
        settings={**common.settings, "samples_kept": f"1 of {every}"},
    )


def _pages_evidence(buffers: Buffer) -> Evidence:
    """What the kernel says of the buffers' mapping: it may refuse huge pages, or join small ones by itself."""
    huge = buffers.huge_bytes()
    if huge is None:
        return Evidence(claim="pages", value="unknown", seen="/proc/self/smaps cannot be read")
    kind = "huge" if huge >= buffers.size_bytes / 2 else "small"
    return Evidence(claim="pages", value=kind, seen=f"AnonHugePages: {format_size(huge)} of the buffers' mapping")


def _engine(wanted: str, fd: int, buffers: Buffer, size: int) -> tuple[Engine, Evidence]:
    """The engine that runs, and how that is known: it is tried, since containers often forbid io_uring."""
    if wanted == "threads":
        return "threads", Evidence(claim="engine", value="threads", seen="chosen by the option engine=threads")
    refusal = io_uring_works(fd, buffers, size)
    if not refusal:
        return "io_uring", Evidence(claim="engine", value="io_uring", seen="io_uring_setup and a first read succeeded")
    if wanted == "io_uring":
        raise CannotJudge(f"io_uring does not work here: {refusal}", hint="use engine=threads")
    return "threads", Evidence(claim="engine", value="threads", seen=f"io_uring was refused: {refusal}")


def random_order(extents: tuple[Extent, ...], size: int) -> tuple[array.array[int], array.array[int]]:
    """Every whole block of the extents once, in random order: (offsets in the descriptor, positions in the pattern)."""
    places = [
        (extent.physical + start, extent.logical + start)
        for extent in extents
        for start in range(0, extent.length - size + 1, size)
    ]
    random.Random(size).shuffle(places)
    del places[_MOST_READS_PER_PASS:]
    if not places:
        raise CannotJudge(
            f"no extent of the test file holds a read of {format_size(size)}", hint="choose smaller sizes"
        )
    return array.array("q", [place for place, _ in places]), array.array("q", [position for _, position in places])
