"""Buffers with a known pattern, memory copies, core-to-core latency and machine noise (`memory.c`)."""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import POINTER, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

from railwright.errors import CannotJudge
from railwright.native.library import Closing, checked, function, seconds_array
from railwright.results.records import Verification
from railwright.units import format_size

PATTERN = "every byte against splitmix64 of its position"
SMALL_PAGE_BYTES = 4096
_ANY_NODE = -1
_NOT_PLACED = {
    errno.EINVAL: "the kernel has no such node, or does not let this process use it",
    errno.EPERM: "a container needs CAP_SYS_NICE to place memory, as by `docker run --cap-add SYS_NICE`",
    errno.ENOSYS: "this kernel knows no NUMA nodes",
}


class MayNotPlace(CannotJudge):
    """This process may neither place memory on a NUMA node nor see where it lies: a container's filter forbids it."""


class Buffer(Closing):
    """Anonymous memory, touched before use, on huge pages where there are any or on small ones. A context manager.

    With `node` it comes from that NUMA node alone. Raises CannotJudge where it cannot, MayNotPlace where it may not.
    """

    def __init__(self, size_bytes: int, *, huge: bool = True, node: int | None = None) -> None:
        status = c_int(0)
        allocate = function("rw_alloc_on", c_void_p, c_size_t, c_int, c_int, POINTER(c_int))
        address = allocate(size_bytes, int(huge), _ANY_NODE if node is None else node, ctypes.byref(status))
        if address is None:
            if -status.value in errno.errorcode:
                raise _refused(f"cannot place memory on NUMA node {node}", -status.value)
            raise CannotJudge(f"cannot allocate {format_size(size_bytes)} of memory", hint="choose smaller sizes")
        self.address: int = address
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Give the memory back."""
        function("rw_free", c_int, c_void_p, c_size_t)(self.address, self.size_bytes)

    def pages_on(self, node: int) -> int:
        """How many of its pages of 4 KiB the kernel has on a NUMA node. Raises CannotJudge where it does not say,
        MayNotPlace where this process may not ask.
        """
        found = function("rw_pages_on", c_int64, c_void_p, c_size_t, c_int)(self.address, self.size_bytes, node)
        if found < 0:
            raise _refused("cannot see on which NUMA node memory lies", -found)
        return int(found)

    @property
    def pages(self) -> int:
        """All of its pages of 4 KiB, the last one perhaps in part."""
        return -(-self.size_bytes // SMALL_PAGE_BYTES)

    def huge_bytes(self) -> int | None:
        """How much of the mapping lies on huge pages, by /proc/self/smaps; None where that cannot be read."""
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
        """How many bytes from `start` on differ from the pattern that starts at byte `position`."""
        size = self.size_bytes - start if size_bytes is None else size_bytes
        count = function("rw_count_wrong", c_int64, c_void_p, c_size_t, c_uint64, c_uint64)
        return int(count(self.address + start, size, seed, position))

    def verify(self, seed: int, size_bytes: int) -> Verification:
        """The data check over the first `size_bytes`."""
        return Verification(method=PATTERN, bytes_checked=size_bytes, bytes_wrong=self.count_wrong(seed, size_bytes))


def _refused(what: str, code: int) -> CannotJudge:
    meaning = f" ({_NOT_PLACED[code]})" if code in _NOT_PLACED else ""
    kind = MayNotPlace if code == errno.EPERM else CannotJudge
    return kind(f"{what}: {os.strerror(code)}{meaning}")


def pin(cpu: int) -> None:
    """Bind the calling thread to one CPU. Raises NativeError."""
    checked(f"bind to CPU {cpu}", function("rw_pin", c_int, c_int)(cpu))


def copy(target: Buffer, source: Buffer, size_bytes: int, *, inner: int, warm: int, samples: int) -> list[float]:
    """Seconds per copy; each sample is the mean of `inner` copies."""
    seconds = seconds_array(samples)
    loop = function("rw_copy", c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, POINTER(c_double))
    checked("memory copy", loop(target.address, source.address, size_bytes, inner, warm, samples, seconds))
    return list(seconds)


def copy_threads(cpus: list[int], size_bytes: int, *, inner: int, samples: int) -> tuple[list[float], Verification]:
    """Seconds in which every thread, one on each CPU, copied `size_bytes` once; and the check of all of it."""
    seconds, wrong = seconds_array(samples), c_int64(0)
    loop = function(
        "rw_copy_threads", c_int, c_int, POINTER(c_int), c_size_t, c_int, c_int, POINTER(c_double), POINTER(c_int64)
    )
    cpu_array = (c_int * len(cpus))(*cpus)
    code = loop(len(cpus), cpu_array, size_bytes, inner, samples, seconds, ctypes.byref(wrong))
    checked(f"memory copy on {len(cpus)} threads", code)
    check = Verification(method=PATTERN, bytes_checked=len(cpus) * size_bytes, bytes_wrong=wrong.value)
    return list(seconds), check


def core_latency(cpu: int, partner_cpu: int, *, inner: int, samples: int) -> list[float]:
    """Seconds for one cache line to go from one core to another (half the round trip)."""
    seconds = seconds_array(samples)
    loop = function("rw_core_latency", c_int, c_int, c_int, c_int, c_int, POINTER(c_double))
    checked(f"cache line between CPU {cpu} and {partner_cpu}", loop(cpu, partner_cpu, inner, samples, seconds))
    return list(seconds)


def fixed_work(work: int, quanta: int) -> list[float]:
    """Seconds of each of `quanta` equal pieces of work, timed without a gap."""
    seconds = seconds_array(quanta)
    checked("noise", function("rw_noise", c_int, c_int, c_int, POINTER(c_double))(work, quanta, seconds))
    return list(seconds)
