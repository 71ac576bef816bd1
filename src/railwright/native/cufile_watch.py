"""The data paths that cuFile's operations took, from every available counter during a pass.

cuFile itself counts since 1.15 (`CUfileStatsLevel3_t` of cufile.h): single operations by GPU, and batches. nvidia-fs
counts for the whole machine. The kernel counts a process's reads and writes by system calls, of which nvidia-fs uses
none. `benchmarks/gpu_file_route.py` interprets the counts.
"""

from __future__ import annotations

import ctypes
import re
import struct
from ctypes import c_int, c_void_p
from pathlib import Path
from typing import NamedTuple

from railwright.native import cufile
from railwright.native.cufile import Properties
from railwright.native.library import NativeError, function

_PER_GPU, _WORDS, _GPUS = struct.Struct("<16s29Q"), struct.Struct("<Q"), struct.Struct("<I")
_MOST_GPUS, _STATISTICS_BYTES, _LEVEL = 16, 65536, 3
_GPU_COUNT_AT = (1024, 1136)
"""The offsets of the GPU count in CUfileStatsLevel3_t: until 1.18, and since the previous level grew by readv."""
_BYTES_AT, _BATCHES_AT, _BATCH_BYTES_AT = 96, 320, 416
_GPU_BYTES, _GPU_COUNTS = {False: 0, True: 13}, {False: slice(4, 8), True: slice(17, 21)}
"""The positions in a GPU's values after its id, for reads and writes: bytes; total, p2p, nvfs and posix."""
_NO_STATISTICS = -1001
_DRIVER = Path("/proc/driver/nvidia-fs/stats")
_DRIVER_COUNTS = {verb: re.compile(rf"^{verb}\s*:\s*n=\d+\s+ok=(\d+)\s", re.MULTILINE) for verb in ("Reads", "Writes")}
_MOST_TEXT = 2**16


class PathCounts(NamedTuple):
    """The numbers of reads or writes by the path that they took."""

    total: int
    p2pdma: int
    nvidia_fs: int
    posix: int
    mixed: int = 0
    """Batches that took several paths."""


class Observation(NamedTuple):
    """The counts of a pass. None marks a count that is not available here."""

    write: bool
    operations: int
    moved_bytes: int
    counted: PathCounts | None
    """The count by cuFile."""
    uncounted: str
    """The reason why cuFile did not count; empty if it did."""
    by_driver: int | None
    """Operations of nvidia-fs in the same time, of all processes."""
    called_bytes: int | None
    """The bytes that this process read or wrote by system calls in the same time, as counted by the kernel."""
    properties: Properties | None
    log: str


class Watch:
    """An observation of cuFile's counters. It begins when the object is created."""

    def __init__(self, folder: Path, *, write: bool, bound: bool = True) -> None:
        """`folder` holds cuFile's log; `bound` reports whether `rw_cufile_bind` has found the library."""
        self._folder, self._write, self._bound = folder, write, bound
        self._before, self._uncounted = _read_counters() if bound else (b"", "libcufile is not loaded")
        self._driver, self._called = driver_operations(write=write), called_bytes(write=write)

    def end(self, operations: int, moved_bytes: int) -> Observation:
        """Return the counts since the start."""
        by_driver, called = driver_operations(write=self._write), called_bytes(write=self._write)
        counted, uncounted = (
            (None, self._uncounted) if self._uncounted else _read_counts(self._before, write=self._write)
        )
        return Observation(
            write=self._write,
            operations=operations,
            moved_bytes=moved_bytes,
            counted=counted,
            uncounted=uncounted,
            by_driver=None if by_driver is None or self._driver is None else by_driver - self._driver,
            called_bytes=None if called is None or self._called is None else called - self._called,
            properties=_properties() if self._bound else None,
            log=cufile.log(self._folder),
        )


def _read_counters() -> tuple[bytes, str]:
    """Start libcufile's statistics on the first call. Returns its counters, or the reason why there are none."""
    code = function("rw_cufile_count", c_int, c_int)(_LEVEL)
    if code == _NO_STATISTICS:
        return b"", "this version of libcufile has no counters"
    if code:
        return b"", f"cannot start libcufile's statistics: {cufile.meaning(code)}"
    room = (ctypes.c_ubyte * _STATISTICS_BYTES)()
    code = function("rw_cufile_counted", c_int, c_void_p)(ctypes.addressof(room))
    return bytes(room), f"cannot read libcufile's counters: {cufile.meaning(code)}" if code else ""


def _read_counts(before: bytes, *, write: bool) -> tuple[PathCounts | None, str]:
    """Return the counts since `before`, or the reason why there are none."""
    after, why = _read_counters()
    found = None if why else read_counters(before, after, write=write)
    return found, "" if found is not None else why or "libcufile's counters do not show the path"


def _properties() -> Properties | None:
    try:
        return cufile.properties()
    except NativeError:
        return None


def read_counters(before: bytes, after: bytes, *, write: bool) -> PathCounts | None:
    """Compare two CUfileStatsLevel3_t of unknown version. Returns None if neither layout reveals the path.

    The counts of GPUs are trusted if their bytes match the bytes moved, which also reveals the layout. The total of
    operations would not, because libcufile 1.15 counts each one twice there. Host memory belongs to no GPU.
    """
    words = zip(_WORDS.iter_unpack(after), _WORDS.iter_unpack(before), strict=True)
    since = b"".join(_WORDS.pack((new - old) % 2**64) for (new,), (old,) in words)
    by_gpu = (_sum_gpus(since, at, *_GPUS.unpack_from(after, at), write=write) for at in _GPU_COUNT_AT)
    found = [one for one in (next(filter(None, by_gpu), None), _count_batches(since, write=write)) if one is not None]
    return PathCounts(*map(sum, zip(*found, strict=True))) if found else None


def _sum_gpus(since: bytes, at: int, gpus: int, *, write: bool) -> PathCounts | None:
    """Return the sum over all GPUs if their number lies at `at`."""
    moved = struct.unpack_from("<2Q", since, _BYTES_AT)
    if not any(moved) or not 1 <= gpus <= _MOST_GPUS:
        return None
    rows = [_PER_GPU.unpack_from(since, at + 8 + gpu * _PER_GPU.size) for gpu in range(gpus)]
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    counted = PathCounts(*sums[_GPU_COUNTS[write]])
    return counted if (sums[_GPU_BYTES[False]], sums[_GPU_BYTES[True]]) == moved and counted.total else None


def _count_batches(since: bytes, *, write: bool) -> PathCounts | None:
    """Return the counts of batches, which do not separate directions, if all batches had this direction."""
    moved = struct.unpack_from("<2Q", since, _BATCH_BYTES_AT)
    if not moved[write] or moved[not write]:
        return None
    # Each is followed by its number of failures.
    nvidia_fs, p2pdma, aio, uring, mixed, total = struct.unpack_from("<12Q", since, _BATCHES_AT)[::2]
    return PathCounts(total, p2pdma, nvidia_fs, aio + uring, mixed) if total else None


def driver_operations(*, write: bool) -> int | None:
    """Return the successful reads or writes of nvidia-fs since it was loaded, over all processes.

    Returns None if the driver is not loaded or does not count (`rw_stats_enabled` is off).
    """
    try:
        with _DRIVER.open(encoding="utf-8", errors="replace") as file:
            found = _DRIVER_COUNTS["Writes" if write else "Reads"].search(file.read(_MOST_TEXT))
    except OSError:
        return None
    return int(found[1]) if found else None


def called_bytes(*, write: bool) -> int | None:
    """Return the bytes that all threads of this process moved by system calls; None if the kernel does not count.

    Asynchronous I/O and mapped memory are not included.
    """
    try:
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines())
        return int(fields["wchar" if write else "rchar"])
    except (OSError, ValueError, KeyError):
        return None
