"""File reads at a depth (`files.c`): io_uring by raw system calls, or a pool of pread threads."""

from __future__ import annotations

import array
import errno
import os
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint64, c_void_p
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.native.library import NativeError, function, seconds_array
from railwright.native.memory import Buffer

Engine = Literal["io_uring", "threads"]

_LOOPS: dict[Engine, str] = {"io_uring": "rw_read_uring", "threads": "rw_read_threads"}
_MAX_EXTENTS = 4096
# Extents whose place on the device is not final or not plain bytes (linux/fiemap.h: UNKNOWN, DELALLOC, ENCODED,
# DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL, UNWRITTEN).
_UNUSABLE_EXTENT = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800


class _Reads(Structure):
    """Laid out as `struct rw_reads` in files.c."""

    _fields_ = (
        ("fd", c_int),
        ("depth", c_int),
        ("count", c_int64),
        ("bytes", c_int64),
        ("from_", c_void_p),
        ("means", c_void_p),
        ("buffers", c_void_p),
        ("latencies", POINTER(c_double)),
        ("seed", c_uint64),
        ("check", c_int),
        ("wrong", c_int64),
        ("elapsed", c_double),
    )


class Pass(NamedTuple):
    """One pass over a list of reads."""

    elapsed_s: float
    latencies_s: list[float]
    wrong_bytes: int


class Extent(NamedTuple):
    """A run of a file's bytes on its block device."""

    logical: int
    physical: int
    length: int


def read_pass(
    fd: int,
    engine: Engine,
    offsets: array.array[int],
    positions: array.array[int],
    size_bytes: int,
    depth: int,
    buffers: Buffer,
    *,
    seed: int,
    check: bool,
) -> Pass:
    """Read `size_bytes` at each offset, `depth` at a time; `positions` says which part of the pattern each one is.

    With `check` every byte is compared (and the time is not to be used). Raises NativeError with the errno.
    """
    latencies = seconds_array(len(offsets))
    reads = _Reads(
        fd=fd,
        depth=depth,
        count=len(offsets),
        bytes=size_bytes,
        from_=offsets.buffer_info()[0],
        means=positions.buffer_info()[0],
        buffers=buffers.address,
        latencies=latencies,
        seed=seed,
        check=int(check),
    )
    code = function(_LOOPS[engine], c_int, POINTER(_Reads))(byref(reads))
    if code:
        raise NativeError(f"read with {engine}", code, os.strerror(-code) if -1000 < code < 0 else "")
    return Pass(reads.elapsed, list(latencies), reads.wrong)


def io_uring_works(fd: int, buffer: Buffer, size_bytes: int) -> str:
    """Why io_uring cannot be used here, or an empty string. Containers often forbid it (EPERM)."""
    nothing = array.array("q", [0])
    try:
        read_pass(fd, "io_uring", nothing, nothing, size_bytes, 1, buffer, seed=0, check=False)
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
