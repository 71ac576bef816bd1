"""Which of a file's pages the kernel holds in memory, and how it is told to let go of them."""

from __future__ import annotations

import ctypes
import mmap
import os

from railwright.native.library import NativeError

_FAILED = ctypes.c_void_p(-1).value


def resident_bytes(fd: int) -> int:
    """How many bytes of a file lie in the page cache, in whole pages (mincore). Raises NativeError.

    The kernel tells it only to those who own the file or may write to it, and says "all" to others.
    """
    size = os.fstat(fd).st_size
    if not size:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        raise _refused()
    try:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
            raise _refused()
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return min(size, mmap.PAGESIZE * sum(one & 1 for one in bytes(pages)))


def _refused() -> NativeError:
    code = ctypes.get_errno()
    return NativeError("pages of the file", code, os.strerror(code))


def drop(fd: int) -> None:
    """Write back what is dirty of a file, and ask the kernel to forget its pages."""
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
