"""Reads and writes of a file at a depth (`files.c`): io_uring by raw system calls, or pools of pread and pwrite."""

from __future__ import annotations

import array
import errno
import os
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint64, c_void_p
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.native.library import NativeError, checked, fields, function, seconds_array, system_error
from railwright.native.memory import Buffer

Engine = Literal["io_uring", "threads"]

STAMPED = "every byte against splitmix64 of its place in the block and, in each sector's first word, in the file"
_CHECK_NOTHING, _CHECK_PATTERN, _CHECK_STAMPED = range(3)
_SHORT_WRITE = -1101
_MAX_EXTENTS = 4096
# Extents whose place on the device is not final or not plain bytes (linux/fiemap.h: UNKNOWN, DELALLOC, ENCODED,
# DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL, UNWRITTEN).
_UNUSABLE_EXTENT = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800


class _Pass(Structure):
    """Laid out as `struct rw_pass` in files.c."""

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
    """One pass over a list of blocks."""

    elapsed_s: float
    latencies_s: list[float]
    wrong_bytes: int
    sync_s: float = 0.0
    """How long the fsync after the last operation took; it is not part of `elapsed_s`."""
    cpu_s: float = 0.0
    """CPU seconds of the whole process during the pass (getrusage), with the kernel's workers of a ring."""


class Extent(NamedTuple):
    """A run of a file's bytes on its block device."""

    logical: int
    physical: int
    length: int


class Blocks(NamedTuple):
    """The blocks that a pass reads or writes, `depth` at a time on each thread, through buffers that have the room."""

    fd: int
    engine: Engine
    offsets: array.array[int]
    positions: array.array[int]
    """Which part of the pattern each block is."""
    size_bytes: int
    depth: int
    buffers: Buffer

    @property
    def moved_bytes(self) -> int:
        """By one pass."""
        return len(self.offsets) * self.size_bytes


def read_pass(blocks: Blocks, *, seed: int, check: bool, stamped: bool = False, cpus: Sequence[int] = ()) -> Pass:
    """Read all blocks.

    There is one thread bound to each of `cpus`, each with its own part of the list, or one that is not bound. With
    `check` every byte is compared with the pattern, or with what `write_pass` writes where `stamped` (and the time is
    not to be used). Raises NativeError with the errno.
    """
    kind = (_CHECK_STAMPED if stamped else _CHECK_PATTERN) if check else _CHECK_NOTHING
    return _run("read", _Pass(seed=seed, check=kind), blocks, cpus)


def write_pass(blocks: Blocks, *, seed: int, sync: bool, cpus: Sequence[int] = ()) -> Pass:
    """Write all blocks, as `read_pass` reads them; with `sync` an fsync follows, timed apart.

    A block is the pattern of `seed`, and the first word of each sector is that of its position: `STAMPED`.
    Raises NativeError with the errno.
    """
    return _run("write", _Pass(seed=seed, write=1, sync=int(sync)), blocks, cpus)


def _run(verb: str, one: _Pass, blocks: Blocks, cpus: Sequence[int]) -> Pass:
    one.fd, one.depth, one.bytes = blocks.fd, blocks.depth, blocks.size_bytes
    one.threads, one.count = max(len(cpus), 1), len(blocks.offsets)
    if blocks.buffers.size_bytes < one.threads * one.depth * one.bytes or len(blocks.positions) != one.count:
        raise ValueError("the buffers or the positions do not fit the pass")  # C would go beyond their ends
    bound = (c_int * len(cpus))(*cpus)
    latencies = seconds_array(one.count)
    one.at, one.means = blocks.offsets.buffer_info()[0], blocks.positions.buffer_info()[0]
    one.cpus = bound if cpus else None
    one.buffers, one.latencies = blocks.buffers.address, latencies
    code = function("rw_file_pass", c_int, POINTER(_Pass), c_int)(byref(one), int(blocks.engine == "io_uring"))
    checked(f"{verb} with {blocks.engine}", code, meaning(code))
    return Pass(one.elapsed, list(latencies), one.wrong, one.sync_elapsed, one.cpu)


def meaning(code: int) -> str:
    """An error of a pass in words; empty where only the loops know."""
    if code == _SHORT_WRITE:
        return "the file system took only a part of a write, as it does when there is no more room"
    return system_error(code)


def io_uring_works(fd: int, buffer: Buffer, size_bytes: int) -> str:
    """Why io_uring cannot be used here, or an empty string. Containers often forbid it (EPERM)."""
    nothing = array.array("q", [0])
    try:
        read_pass(Blocks(fd, "io_uring", nothing, nothing, size_bytes, 1, buffer), seed=0, check=False)
    except NativeError as error:
        return str(error)
    return ""


def extents(fd: int) -> list[Extent]:
    """Where a file's bytes lie on its block device. Raises CannotJudge where the file system cannot say."""
    end = os.fstat(fd).st_size
    rows = (c_uint64 * (4 * _MAX_EXTENTS))()
    found = function("rw_file_extents", c_int, c_int, c_int, POINTER(c_uint64))(fd, _MAX_EXTENTS, rows)
    if found < 0:
        reason = os.strerror(-found) if -found in errno.errorcode else f"error {found}"
        raise CannotJudge(f"the file system does not say where a file lies (FIEMAP): {reason}")
    result = []
    for row in range(found):
        logical, physical, length, flags = rows[4 * row : 4 * row + 4]
        if flags & _UNUSABLE_EXTENT:
            raise CannotJudge(f"part of the file has no plain place on the device (FIEMAP flags 0x{flags:x})")
        # The last block of the file system reaches beyond the file's end.
        result.append(Extent(logical, physical, min(length, max(0, end - logical))))
    return result
