"""A tight load on all cores (`load.c`), which reveals disturbances."""

from __future__ import annotations

from ctypes import c_double, c_int, c_long

from railwright.native.library import NativeError, function


def load_s(threads: int, rounds: int) -> float:
    """Return the seconds of all rounds of the load on `threads` threads, which meet after each. Raises NativeError."""
    seconds: float = function("rw_load", c_double, c_int, c_long)(threads, rounds)
    if seconds < 0:
        raise NativeError("the load", int(seconds))
    return seconds
