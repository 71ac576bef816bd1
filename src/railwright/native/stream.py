"""STREAM's kernels (`stream.c`) on bound threads."""

from __future__ import annotations

from ctypes import POINTER, byref, c_double, c_int, c_size_t
from typing import NamedTuple

from railwright.native.library import check_result, function, seconds_array
from railwright.results.records import Verification

KERNELS = ("copy", "scale", "add", "triad")
WORDS_MOVED = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
"""The words read and written per index, as STREAM counts them."""
WORD_BYTES = 8


class Passes(NamedTuple):
    """The seconds of every timed pass by kernel, and the check of all three arrays."""

    seconds: dict[str, list[float]]
    check: Verification


def stream(cpus: list[int], words_per_thread: int, passes: int) -> Passes:
    """Run the kernels on a thread per CPU, each over its own arrays. The first pass is dropped."""
    times = seconds_array(passes * len(KERNELS))
    wrong = c_double(0)
    loop = function("rw_stream", c_int, c_int, POINTER(c_int), c_size_t, c_int, POINTER(c_double), POINTER(c_double))
    code = loop(len(cpus), (c_int * len(cpus))(*cpus), words_per_thread, passes, times, byref(wrong))
    check_result(f"STREAM on {len(cpus)} threads", code)
    seconds = {name: list(times)[number :: len(KERNELS)][1:] for number, name in enumerate(KERNELS)}
    check = Verification(
        method="every word against the value that this number of passes gives",
        bytes_checked=3 * len(cpus) * words_per_thread * WORD_BYTES,
        bytes_wrong=int(wrong.value) * WORD_BYTES,
    )
    return Passes(seconds, check)
