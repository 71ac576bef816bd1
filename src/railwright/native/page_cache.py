"""The page cache of a file: counts its pages in memory, and asks the kernel to drop them."""

from __future__ import annotations

import ctypes
import mmap
import os

from railwright.native.library import NativeError

_FAILED = ctypes.c_void_p(-1).value


def resident_bytes(fd: int) -> int:
    """Count the bytes of a file in the page cache, in whole pages (mincore). Raises NativeError.

    The kernel reports the true number only to the owner or a writer of the file; to others it reports all bytes.
    """
    size = os.fstat(fd).st_size
    if not size:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        raise _page_error()
    try:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
            raise _page_error()
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return min(size, mmap.PAGESIZE * sum(one & 1 for one in bytes(pages)))


def _page_error() -> NativeError:
    code = ctypes.get_errno()
    return NativeError("pages of the file", code, os.strerror(code))


def drop(fd: int) -> None:
    """Write back the dirty pages of a file, and ask the kernel to drop its pages."""
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
