"""The thread that samples counters (`sampler.c`)."""

from __future__ import annotations

import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_uint, c_uint64, c_void_p
from typing import NamedTuple

from railwright.native.library import NativeError, checked, function

NO_VALUE = 2**64 - 1
_FETCHED_ROWS = 256


class Row(NamedTuple):
    """All values at one time of the machine's monotonic clock; None where a file was not read, or could not be."""

    at_s: float
    values: list[int | None]


class Costs(NamedTuple):
    """What sampling took."""

    rows: int
    lost: int
    """Rows for which there was no room: nobody fetched."""
    late: int
    """Ticks that were left out, because the thread was not run in time."""
    cpu_s: float


class Sampler:
    """Numbers out of files. First all files and values are named, then it starts; `end` always has to be called."""

    def __init__(self) -> None:
        self._at = function("rw_sampler_new", c_void_p)()
        if not self._at:
            raise NativeError("sampling", -1003)
        self._values = 0

    def file(self, path: str) -> int:
        """Keep a file open; its number. Raises OSError."""
        number: int = function("rw_sampler_file", c_int, c_void_p, c_char_p)(self._at, os.fsencode(path))
        if number < 0:
            raise OSError(-number, os.strerror(-number), path)
        return number

    def memory(self, address: int) -> int:
        """Read numbers of 64 bits that another program keeps up to date there; the number of this place, as of a file.

        A value of it is found by its `field` alone. The memory must stay until `end`. Raises NativeError.
        """
        number: int = function("rw_sampler_memory", c_int, c_void_p, c_void_p)(self._at, address)
        if number < 0:
            raise NativeError("sampling", number)
        return number

    def value(self, file: int, key: str, field: int) -> None:
        """The next value of a row: the field behind the line's first word, of a file. Raises NativeError."""
        add = function("rw_sampler_value", c_int, c_void_p, c_int, c_char_p, c_int)
        if add(self._at, file, key.encode(), field) < 0:
            raise NativeError("sampling", -1, "too many values, or too long a name")
        self._values += 1

    def cost_s(self, file: int) -> float | None:
        """What reading a file takes; None where it cannot be read."""
        seconds: float = function("rw_sampler_cost", c_double, c_void_p, c_int, c_int)(self._at, file, 9)
        return None if seconds < 0 else seconds

    def every(self, file: int, ticks: int) -> None:
        """Read a file at each so many ticks only."""
        function("rw_sampler_every", None, c_void_p, c_int, c_uint)(self._at, file, ticks)

    def start(self, interval_s: float, spread: float) -> None:
        """Begin; ticks lie anywhere in this part of their interval. Raises NativeError."""
        code = function("rw_sampler_start", c_int, c_void_p, c_double, c_double)(self._at, interval_s, spread)
        checked("sampling", code)

    def fetch(self) -> list[Row]:
        """The rows since the last call."""
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
        """Since the start."""
        counts, cpu = (c_uint64 * 3)(), c_double()
        function("rw_sampler_told", None, c_void_p, POINTER(c_uint64), POINTER(c_double))(self._at, counts, byref(cpu))
        return Costs(counts[0], counts[1], counts[2], cpu.value)

    def end(self) -> None:
        """End the thread and close the files."""
        if self._at:
            function("rw_sampler_end", None, c_void_p)(self._at)
            self._at = None
