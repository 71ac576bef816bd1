"""Buffers with a known pattern, memory copies, core-to-core latency and machine noise (`memory.c`)."""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import POINTER, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

from railwright.errors import CannotJudge
from railwright.native.library import Closing, check_result, function, seconds_array
from railwright.results.records import Verification
from railwright.units import format_size

PATTERN = "every byte against splitmix64 of its position"
SMALL_PAGE_BYTES = 4096
_ANY_NODE = -1
_PLACEMENT_ERRORS = {
    errno.EINVAL: "the kernel has no such node, or denies it to this process",
    errno.EPERM: "a container needs CAP_SYS_NICE to place memory, as with `docker run --cap-add SYS_NICE`",
    errno.ENOSYS: "this kernel does not support NUMA nodes",
}


class MayNotPlace(CannotJudge):
    """The error of a container whose filter forbids placing memory on a NUMA node and querying its location."""


class Buffer(Closing):
    """Anonymous memory, touched before use, on huge pages if available, otherwise on small ones. A context manager.

    With `node` all of it is on that NUMA node. Raises CannotJudge if the memory cannot be allocated or placed there,
    and MayNotPlace if this process may not place it.
    """

    def __init__(self, size_bytes: int, *, huge: bool = True, node: int | None = None) -> None:
        status = c_int(0)
        allocate = function("rw_alloc_on", c_void_p, c_size_t, c_int, c_int, POINTER(c_int))
        address = allocate(size_bytes, int(huge), _ANY_NODE if node is None else node, ctypes.byref(status))
        if address is None:
            if -status.value in errno.errorcode:
                raise _placement_error(f"cannot place memory on NUMA node {node}", -status.value)
            raise CannotJudge(f"cannot allocate {format_size(size_bytes)} of memory", hint="choose smaller sizes")
        self.address: int = address
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Free the memory."""
        function("rw_free", c_int, c_void_p, c_size_t)(self.address, self.size_bytes)

    def pages_on(self, node: int) -> int:
        """Count the 4 KiB pages on a NUMA node.

        Raises CannotJudge if the kernel does not report it, and MayNotPlace if this process may not query it.
        """
        found = function("rw_pages_on", c_int64, c_void_p, c_size_t, c_int)(self.address, self.size_bytes, node)
        if found < 0:
            raise _placement_error("cannot determine the NUMA node of memory", -found)
        return int(found)

    @property
    def pages(self) -> int:
        """The number of 4 KiB pages, including a partial last one."""
        return -(-self.size_bytes // SMALL_PAGE_BYTES)

    def huge_bytes(self) -> int | None:
        """Return the bytes of the mapping on huge pages, from /proc/self/smaps; None if that is unreadable."""
        try:
            lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return None
        inside = False
        for line in lines:
            first, dash, rest = line.partition("-")
            if dash and " " in rest and ":" not in first:
                inside = int(first, 16) <= self.address < int(rest.split()[0], 16)
            elif inside and line.startswith("AnonHugePages:"):
                return int(line.split()[1]) * 1024
        return None

    def fill(self, seed: int, size_bytes: int | None = None, position: int = 0) -> None:
        """Write the pattern of `seed` that starts at byte `position` (a multiple of 8)."""
        size = self.size_bytes if size_bytes is None else size_bytes
        function("rw_fill", None, c_void_p, c_size_t, c_uint64, c_uint64)(self.address, size, seed, position)

    def count_wrong(self, seed: int, size_bytes: int | None = None, position: int = 0, start: int = 0) -> int:
        """Count the bytes from `start` on that differ from the pattern that starts at byte `position`."""
        size = self.size_bytes - start if size_bytes is None else size_bytes
        count = function("rw_count_wrong", c_int64, c_void_p, c_size_t, c_uint64, c_uint64)
        return int(count(self.address + start, size, seed, position))

    def verify(self, seed: int, size_bytes: int) -> Verification:
        """Check the first `size_bytes`."""
        return Verification(method=PATTERN, bytes_checked=size_bytes, bytes_wrong=self.count_wrong(seed, size_bytes))


def _placement_error(what: str, code: int) -> CannotJudge:
    meaning = f" ({_PLACEMENT_ERRORS[code]})" if code in _PLACEMENT_ERRORS else ""
    kind = MayNotPlace if code == errno.EPERM else CannotJudge
    return kind(f"{what}: {os.strerror(code)}{meaning}")


def pin(cpu: int) -> None:
    """Bind the calling thread to a CPU. Raises NativeError."""
    check_result(f"bind to CPU {cpu}", function("rw_pin", c_int, c_int)(cpu))


def copy(target: Buffer, source: Buffer, size_bytes: int, *, inner: int, warm: int, samples: int) -> list[float]:
    """Return seconds per copy. Each sample is the mean of `inner` copies."""
    seconds = seconds_array(samples)
    loop = function("rw_copy", c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, POINTER(c_double))
    check_result("memory copy", loop(target.address, source.address, size_bytes, inner, warm, samples, seconds))
    return list(seconds)


def copy_threads(cpus: list[int], size_bytes: int, *, inner: int, samples: int) -> tuple[list[float], Verification]:
    """Return the seconds in which a thread on each CPU copied `size_bytes` once, and the check of all copies."""
    seconds, wrong = seconds_array(samples), c_int64(0)
    loop = function(
        "rw_copy_threads", c_int, c_int, POINTER(c_int), c_size_t, c_int, c_int, POINTER(c_double), POINTER(c_int64)
    )
    cpu_array = (c_int * len(cpus))(*cpus)
    code = loop(len(cpus), cpu_array, size_bytes, inner, samples, seconds, ctypes.byref(wrong))
    check_result(f"memory copy on {len(cpus)} threads", code)
    check = Verification(method=PATTERN, bytes_checked=len(cpus) * size_bytes, bytes_wrong=wrong.value)
    return list(seconds), check


def core_latency(cpu: int, partner_cpu: int, *, inner: int, samples: int) -> list[float]:
    """Return the seconds for a cache line to go from one core to another (half the round trip)."""
    seconds = seconds_array(samples)
    loop = function("rw_core_latency", c_int, c_int, c_int, c_int, c_int, POINTER(c_double))
    check_result(f"cache line between CPU {cpu} and {partner_cpu}", loop(cpu, partner_cpu, inner, samples, seconds))
    return list(seconds)


def fixed_work(work: int, quanta: int) -> list[float]:
    """Return the seconds of each of `quanta` equal pieces of work, timed without a gap."""
    seconds = seconds_array(quanta)
    check_result("noise", function("rw_noise", c_int, c_int, c_int, POINTER(c_double))(work, quanta, seconds))
    return list(seconds)
