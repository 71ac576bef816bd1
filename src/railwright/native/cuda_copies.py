"""Timed copies to, from and between GPUs, and pointers followed through memory (`cuda_copies.c`)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_uint, c_uint64, c_void_p
from typing import NamedTuple

from railwright.native.cuda import COMPUTE_THREADS, Device, DeviceBuffer, PinnedBuffer, check_result
from railwright.native.library import fields, function, seconds_array
from railwright.native.memory import Buffer
from railwright.results.records import Verification

POINTER_BYTES = 8
CHAIN_STRIDE_BYTES = 128
"""The distance of pointers, a cache line of a GPU, so that no load hits the line of the previous one."""

CHAIN_CHECK = "the last pointer must be the one that this number of loads leads to"

Place = DeviceBuffer | Buffer
"""An end of a copy: GPU memory, pinned host memory, or pageable host memory."""


class _Copy(Structure):
    """The layout of `struct rw_copy` in cuda_copies.c."""

    _fields_ = (
        *fields(c_void_p, "context", "kernel", "spin", "target_context", "source_context"),
        *fields(c_uint64, "target", "source", "bytes"),
        *fields(c_uint, "grid", "block"),
    )


class Copy(NamedTuple):
    """A copy in one direction. The copy engine of the GPU `by` performs it, or with `kernel` its multiprocessors."""

    target: Place
    source: Place
    size_bytes: int
    by: Device
    kernel: bool = False
    staged: bool = False
    """Whether the driver stages the data through the host, between two GPUs without peer access."""

    def held_back(self) -> bool:
        """Report whether its stream may wait for a flag.

        Enqueuing a copy of pageable memory waits for the GPU, and enqueuing a staged copy may do so. A held stream
        would never continue, because the flag is set only after everything is enqueued.
        """
        reached = all(isinstance(place, DeviceBuffer | PinnedBuffer) for place in (self.target, self.source))
        return reached and not self.staged


class Copies(NamedTuple):
    """The seconds per copy of each sample, and the number of samples that the opposite copies did not fully overlap."""

    seconds: list[float]
    uncovered: int


def _address(place: Place) -> int:
    return place.device_address if isinstance(place, PinnedBuffer) else place.address


def _context(place: Place, otherwise: Device) -> int:
    return place.device.context if isinstance(place, DeviceBuffer) else otherwise.context


def _c_copy(copy: Copy, *, hold: bool) -> _Copy:
    by = copy.by
    return _Copy(
        context=by.context,
        kernel=by.kernel("copy") if copy.kernel else None,
        spin=by.kernel("spin") if hold else None,
        target_context=_context(copy.target, by) if copy.staged else None,
        source_context=_context(copy.source, by) if copy.staged else None,
        target=_address(copy.target),
        source=_address(copy.source),
        bytes=copy.size_bytes,
        grid=by.multiprocessors,
        block=COMPUTE_THREADS,
    )


def time_copies(
    measured: Copy, other: Copy | None = None, *, warm: int, copies: int, samples: int, others: int = 0
) -> Copies:
    """Time samples of `warm` copies, then `copies` back to back, with events on the GPU.

    A flag holds their stream until all copies are enqueued, if `Copy.held_back` permits it. `other` runs `others` times
    concurrently in a separate stream, released by the same flag. Raises NativeError.
    """
    hold = measured.held_back() and (other is None or other.held_back())
    seconds, uncovered = seconds_array(samples), c_int(0)
    loop = function(
        *("rw_cuda_copies", c_int, POINTER(_Copy), POINTER(_Copy), c_int, c_int, c_int, c_int, POINTER(c_double)),
        POINTER(c_int),
    )
    second = None if other is None else byref(_c_copy(other, hold=hold))
    first = byref(_c_copy(measured, hold=hold))
    code = loop(first, second, warm, copies, others, samples, seconds, byref(uncovered))
    check_result("copy", code)
    return Copies(list(seconds), uncovered.value)


def time_copy_and_wait(copy: Copy, *, warm: int, samples: int) -> list[float]:
    """Time a copy by the host's clock, from the call until the host sees its end. Raises NativeError."""
    seconds = seconds_array(samples)
    loop = function("rw_cuda_copy_and_wait", c_int, POINTER(_Copy), c_int, c_int, POINTER(c_double))
    check_result("copy", loop(byref(_c_copy(copy, hold=False)), warm, samples, seconds))
    return list(seconds)


class Chain:
    """A cycle of pointers through the first `size_bytes` of `place`, 128 bytes apart, in random order."""

    def __init__(self, place: Place, size_bytes: int, seed: int) -> None:
        self.start = _address(place)
        self.slots = size_bytes // CHAIN_STRIDE_BYTES
        length = self.slots * CHAIN_STRIDE_BYTES
        with Buffer(length) as image:
            write = function("rw_chain_write", None, c_void_p, c_uint64, c_uint64, c_uint64, c_uint64)
            write(image.address, self.start, self.slots, CHAIN_STRIDE_BYTES, seed)
            self._image = ctypes.string_at(image.address, length)
        if isinstance(place, DeviceBuffer):
            place.write(self._image)
        else:
            ctypes.memmove(place.address, self._image, length)

    def end_after(self, loads: int) -> int:
        """Return the pointer that `loads` loads must reach."""
        follow = function("rw_chain_follow", c_uint64, c_char_p, c_uint64, c_uint64)
        return int(follow(self._image, self.start, loads))

    def time_loads(self, by: Device, loads: int, samples: int) -> tuple[list[float], Verification]:
        """Return seconds per load by one GPU thread, the mean of `loads` in each sample. Raises NativeError.

        The check compares the last pointer, because a single wrong one leads elsewhere.
        """
        seconds = seconds_array(samples)
        loop = function(
            *("rw_cuda_chase", c_int, c_void_p, c_void_p, c_uint64, c_uint64, c_uint64, c_int, POINTER(c_double))
        )
        counter = by.counter()
        kernel = by.kernel("chase")
        check_result("loads", loop(by.context, kernel, self.start, loads, counter.address, samples, seconds))
        seen = int.from_bytes(counter.read(POINTER_BYTES), "little")
        wrong = POINTER_BYTES if seen != self.end_after(loads) else 0
        check = Verification(method=CHAIN_CHECK, bytes_checked=loads * POINTER_BYTES, bytes_wrong=wrong)
        return list(seconds), check
