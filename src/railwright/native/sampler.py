"""The thread that samples counters (`sampler.c`)."""

from __future__ import annotations

import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_uint, c_uint64, c_void_p
from typing import NamedTuple

from railwright.native.library import NativeError, check_result, function

NO_VALUE = 2**64 - 1
_FETCHED_ROWS = 256


class Row(NamedTuple):
    """All values at one time of the machine's monotonic clock; None for a file that was not read or not readable."""

    at_s: float
    values: list[int | None]


class Costs(NamedTuple):
    """The cost of sampling."""

    rows: int
    lost: int
    """Rows that were lost because the earlier ones were not fetched."""
    late: int
    """Ticks that were skipped because the thread ran too late."""
    cpu_s: float


class Sampler:
    """A sampler of numbers in files. Add all files and values, then start it. `end` must always be called."""

    def __init__(self) -> None:
        self._at = function("rw_sampler_new", c_void_p)()
        if not self._at:
            raise NativeError("sampling", -1003)
        self._values = 0

    def file(self, path: str) -> int:
        """Open a file for sampling. Returns its number. Raises OSError if it cannot be opened."""
        number: int = function("rw_sampler_file", c_int, c_void_p, c_char_p)(self._at, os.fsencode(path))
        if number < 0:
            raise OSError(-number, os.strerror(-number), path)
        return number

    def memory(self, address: int, *, once: bool) -> int:
        """Add shared memory in which another program maintains 64-bit numbers. Returns a number like that of a file.

        Its values are found by `field` alone. With `once`, a value that was read is None until it is written again.
        The memory must stay until `end`. Raises NativeError.
        """
        number: int = function("rw_sampler_memory", c_int, c_void_p, c_void_p, c_int)(self._at, address, once)
        if number < 0:
            raise NativeError("sampling", number)
        return number

    def value(self, file: int, key: str, field: int) -> None:
        """Add a value to the rows: the given field after the first word of a line. Raises NativeError."""
        add = function("rw_sampler_value", c_int, c_void_p, c_int, c_char_p, c_int)
        if add(self._at, file, key.encode(), field) < 0:
            raise NativeError("sampling", -1, "too many values, or too long a name")
        self._values += 1

    def cost_s(self, file: int) -> float | None:
        """Return the seconds that reading a file takes; None if it is unreadable."""
        seconds: float = function("rw_sampler_cost", c_double, c_void_p, c_int, c_int)(self._at, file, 9)
        return None if seconds < 0 else seconds

    def every(self, file: int, ticks: int) -> None:
        """Read a file only at every `ticks`-th tick."""
        function("rw_sampler_every", None, c_void_p, c_int, c_uint)(self._at, file, ticks)

    def start(self, interval_s: float, spread: float) -> None:
        """Start sampling. `spread` is the share of the interval within which ticks lie. Raises NativeError."""
        code = function("rw_sampler_start", c_int, c_void_p, c_double, c_double)(self._at, interval_s, spread)
        check_result("sampling", code)

    def fetch(self) -> list[Row]:
        """Return the rows since the last call."""
        take = function("rw_sampler_fetch", c_int, c_void_p, POINTER(c_double), POINTER(c_uint64), c_int)
        times, values = (c_double * _FETCHED_ROWS)(), (c_uint64 * (_FETCHED_ROWS * self._values))()
        rows: list[Row] = []
        while True:
            count = take(self._at, times, values, _FETCHED_ROWS)
            for number in range(count):
                row = values[number * self._values : (number + 1) * self._values]
                rows.append(Row(times[number], [None if value == NO_VALUE else value for value in row]))
            if count < _FETCHED_ROWS:
                return rows

    def costs(self) -> Costs:
        """Return the cost since the start."""
        counts, cpu = (c_uint64 * 3)(), c_double()
        function("rw_sampler_told", None, c_void_p, POINTER(c_uint64), POINTER(c_double))(self._at, counts, byref(cpu))
        return Costs(counts[0], counts[1], counts[2], cpu.value)

    def end(self) -> None:
        """End the thread and close the files."""
        if self._at:
            function("rw_sampler_end", None, c_void_p)(self._at)
            self._at = None
