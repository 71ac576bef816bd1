"""Timed copies to, from and between GPUs, and pointers followed through memory (`cuda_copies.c`)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_uint, c_uint64, c_void_p
from typing import NamedTuple

from railwright.native.cuda import COMPUTE_THREADS, Device, DeviceBuffer, PinnedBuffer, checked
from railwright.native.library import fields, function, seconds_array
from railwright.native.memory import Buffer
from railwright.results.records import Verification

POINTER_BYTES = 8
CHAIN_STRIDE_BYTES = 128
"""One pointer to a cache line of a GPU, so that no load is answered by the one before it."""

CHAIN_CHECK = "the last pointer must be the one that so many loads lead to"

Place = DeviceBuffer | Buffer
"""Where a copy begins or ends: memory of a GPU, pinned host memory, or host memory that is not pinned."""


class _Copy(Structure):
    """Laid out as `struct rw_copy` in cuda_copies.c."""

    _fields_ = (
        *fields(c_void_p, "context", "kernel", "spin", "target_context", "source_context"),
        *fields(c_uint64, "target", "source", "bytes"),
        *fields(c_uint, "grid", "block"),
    )


class Copy(NamedTuple):
    """One direction: `by` is the GPU whose copy engine does it, or with `kernel` its multiprocessors."""

    target: Place
    source: Place
    size_bytes: int
    by: Device
    kernel: bool = False
    staged: bool = False
    """Between two GPUs that do not reach each other's memory: the driver takes the data through the host."""

    def held_back(self) -> bool:
        """Whether its stream may wait for a flag.

        Enqueuing from or to memory that is not pinned waits for the GPU, and what the driver stages through the host
        may: it would wait for a stream that waits for us.
        """
        reached = all(isinstance(place, DeviceBuffer | PinnedBuffer) for place in (self.target, self.source))
        return reached and not self.staged


class Copies(NamedTuple):
    """Seconds of one copy, for each sample; and in how many samples the other way did not run all the time."""

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
    """Each sample: `warm` copies, then `copies` back to back, timed by events on the GPU.

    Their stream is held back until all are enqueued, where that may be (`Copy.held_back`).
    `other` runs `others` times at the same time in a stream of its own, let go by the same flag.
    Raises NativeError.
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
    checked("copy", code)
    return Copies(list(seconds), uncovered.value)


def time_copy_and_wait(copy: Copy, *, warm: int, samples: int) -> list[float]:
    """Seconds from the call of one copy until the host knows that it is done, by its clock. Raises NativeError."""
    seconds = seconds_array(samples)
    loop = function("rw_cuda_copy_and_wait", c_int, POINTER(_Copy), c_int, c_int, POINTER(c_double))
    checked("copy", loop(byref(_c_copy(copy, hold=False)), warm, samples, seconds))
    return list(seconds)


class Chain:
    """Pointers in a circle through the first `size_bytes` of `place`, 128 bytes apart, in random order."""

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
        """The pointer that so many loads must arrive at."""
        follow = function("rw_chain_follow", c_uint64, c_char_p, c_uint64, c_uint64)
        return int(follow(self._image, self.start, loads))

    def time_loads(self, by: Device, loads: int, samples: int) -> tuple[list[float], Verification]:
        """Seconds of one load by one thread of a GPU, the mean of `loads` for each sample. Raises NativeError.

        The check is that they end at the right pointer: a single wrong one leads elsewhere.
        """
        seconds = seconds_array(samples)
        loop = function(
            *("rw_cuda_chase", c_int, c_void_p, c_void_p, c_uint64, c_uint64, c_uint64, c_int, POINTER(c_double))
        )
        counter = by.counter()
        kernel = by.kernel("chase")
        checked("loads", loop(by.context, kernel, self.start, loads, counter.address, samples, seconds))
        seen = int.from_bytes(counter.read(POINTER_BYTES), "little")
        wrong = POINTER_BYTES if seen != self.end_after(loads) else 0
        check = Verification(method=CHAIN_CHECK, bytes_checked=loads * POINTER_BYTES, bytes_wrong=wrong)
        return list(seconds), check
