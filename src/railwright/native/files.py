"""File reads and writes at a queue depth (`files.c`): io_uring by raw system calls, or pools of pread and pwrite."""

from __future__ import annotations

import array
import errno
import os
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint64, c_void_p
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.native.library import NativeError, check_result, fields, function, seconds_array, system_error
from railwright.native.memory import Buffer

Engine = Literal["io_uring", "threads"]

STAMPED = "every byte against splitmix64 of its place in the block and, in each sector's first word, in the file"
_CHECK_NOTHING, _CHECK_PATTERN, _CHECK_STAMPED = range(3)
_SHORT_WRITE = -1101
_MAX_EXTENTS = 4096
# Extents whose position on the device is not final, or that are not plain bytes (linux/fiemap.h: UNKNOWN, DELALLOC,
# ENCODED, DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL, UNWRITTEN).
_UNUSABLE_EXTENT = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800


class _Pass(Structure):
    """The layout of `struct rw_pass` in files.c."""

    _fields_ = (
        *fields(c_int, "fd", "threads", "depth", "write"),
        *fields(c_int64, "count", "bytes"),
        *fields(c_void_p, "at", "means"),
        ("cpus", POINTER(c_int)),
        ("buffers", c_void_p),
        ("latencies", POINTER(c_double)),
        ("seed", c_uint64),
        *fields(c_int, "check", "sync"),
        ("wrong", c_int64),
        *fields(c_double, "elapsed", "sync_elapsed", "cpu"),
    )


class Pass(NamedTuple):
    """The result of a pass over a list of blocks."""

    elapsed_s: float
    latencies_s: list[float]
    wrong_bytes: int
    sync_s: float = 0.0
    """The duration of the fsync after the last operation, not included in `elapsed_s`."""
    cpu_s: float = 0.0
    """CPU seconds of the whole process during the pass (getrusage), including the kernel's io_uring workers."""


class Extent(NamedTuple):
    """A contiguous range of a file's bytes on its block device."""

    logical: int
    physical: int
    length: int


class Blocks(NamedTuple):
    """The blocks of a pass, processed `depth` at a time on each thread, through buffers of sufficient size."""

    fd: int
    engine: Engine
    offsets: array.array[int]
    positions: array.array[int]
    """The position of each block in the pattern."""
    size_bytes: int
    depth: int
    buffers: Buffer

    @property
    def moved_bytes(self) -> int:
        """The bytes that one pass moves."""
        return len(self.offsets) * self.size_bytes


def read_pass(blocks: Blocks, *, seed: int, check: bool, stamped: bool = False, cpus: Sequence[int] = ()) -> Pass:
    """Read all blocks.

    Each of `cpus` has a bound thread with its own part of the list. Without `cpus` a single thread runs unbound. With
    `check` every byte is compared with the pattern, or with the output of `write_pass` if `stamped`; the times are then
    meaningless. Raises NativeError with the errno.
    """
    kind = (_CHECK_STAMPED if stamped else _CHECK_PATTERN) if check else _CHECK_NOTHING
    return _run("read", _Pass(seed=seed, check=kind), blocks, cpus)


def write_pass(blocks: Blocks, *, seed: int, sync: bool, cpus: Sequence[int] = ()) -> Pass:
    """Write all blocks, with the threads of `read_pass`. With `sync` an fsync follows, timed separately.

    A block holds the pattern of `seed`, and each sector's first word that of its position in the file: `STAMPED`.
    Raises NativeError with the errno.
    """
    return _run("write", _Pass(seed=seed, write=1, sync=int(sync)), blocks, cpus)


def _run(verb: str, one: _Pass, blocks: Blocks, cpus: Sequence[int]) -> Pass:
    one.fd, one.depth, one.bytes = blocks.fd, blocks.depth, blocks.size_bytes
    one.threads, one.count = max(len(cpus), 1), len(blocks.offsets)
    if blocks.buffers.size_bytes < one.threads * one.depth * one.bytes or len(blocks.positions) != one.count:
        raise ValueError("the buffers and positions must fit the pass")  # the C loop would run past their ends
    bound = (c_int * len(cpus))(*cpus)
    latencies = seconds_array(one.count)
    one.at, one.means = blocks.offsets.buffer_info()[0], blocks.positions.buffer_info()[0]
    one.cpus = bound if cpus else None
    one.buffers, one.latencies = blocks.buffers.address, latencies
    code = function("rw_file_pass", c_int, POINTER(_Pass), c_int)(byref(one), int(blocks.engine == "io_uring"))
    check_result(f"{verb} with {blocks.engine}", code, meaning(code))
    return Pass(one.elapsed, list(latencies), one.wrong, one.sync_elapsed, one.cpu)


def meaning(code: int) -> str:
    """Describe an error of a pass. Returns an empty string if only the loops know it."""
    if code == _SHORT_WRITE:
        return "the file system accepted only part of a write, as when it is full"
    return system_error(code)


def io_uring_works(fd: int, buffer: Buffer, size_bytes: int) -> str:
    """Explain why io_uring does not work here.

    Returns an empty string if it does. Containers often forbid it (EPERM).
    """
    nothing = array.array("q", [0])
    try:
        read_pass(Blocks(fd, "io_uring", nothing, nothing, size_bytes, 1, buffer), seed=0, check=False)
    except NativeError as error:
        return str(error)
    return ""


def extents(fd: int) -> list[Extent]:
    """Return the extents of a file on its block device.

    Raises CannotJudge if the file system does not report them, or if one has no plain location on the device.
    """
    end = os.fstat(fd).st_size
    rows = (c_uint64 * (4 * _MAX_EXTENTS))()
    found = function("rw_file_extents", c_int, c_int, c_int, POINTER(c_uint64))(fd, _MAX_EXTENTS, rows)
    if found < 0:
        reason = os.strerror(-found) if -found in errno.errorcode else f"error {found}"
        raise CannotJudge(f"the file system does not report the location of a file (FIEMAP): {reason}")
    result = []
    for row in range(found):
        logical, physical, length, flags = rows[4 * row : 4 * row + 4]
        if flags & _UNUSABLE_EXTENT:
            raise CannotJudge(f"part of the file has no plain location on the device (FIEMAP flags 0x{flags:x})")
        # The last block of the file system extends beyond the end of the file.
        result.append(Extent(logical, physical, min(length, max(0, end - logical))))
    return result
