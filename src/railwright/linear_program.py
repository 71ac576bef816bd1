"""Linear programs by HiGHS: maximise an objective over variables >= 0 under named rows.

HiGHS comes as a shared library in the `highsbox` wheel and is called by its C interface, because its Python
package needs numpy, which alone would be half of the install.
Every row keeps its name, so that a dual value can be told in words.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

_ROW_WISE = 2
_MAXIMIZE = -1
_OPTIMAL, _INFEASIBLE, _UNBOUNDED_OR_INFEASIBLE, _UNBOUNDED = 7, 8, 9, 10
_STATUS_WORDS = {_INFEASIBLE: "infeasible", _UNBOUNDED_OR_INFEASIBLE: "unbounded", _UNBOUNDED: "unbounded"}
_TIME_LIMIT_S = 60.0


class NoSolution(Exception):
    """The program has no finite best: `why` is infeasible, unbounded or HiGHS's own status."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Solution(NamedTuple):
    """The best objective, the value of each variable, and per row how fast the objective grows with its bound."""

    objective: float
    values: tuple[float, ...]
    duals: dict[str, float]


class _Rows:
    """Named rows in HiGHS's row-wise form. Rows with one name are an error: a dual would have two meanings."""

    def __init__(self) -> None:
        self.bounds: dict[str, tuple[float, float]] = {}
        self.starts = array("i", [0])
        self.columns = array("i")
        self.factors = array("d")

    def add(self, name: str, terms: Mapping[int, float], low: float, high: float) -> None:
        if name in self.bounds:
            raise ValueError(f"two rows are named {name!r}")
        self.bounds[name] = (low, high)
        if 0 in terms.values():
            terms = {column: factor for column, factor in terms.items() if factor}
        self.columns.extend(terms)
        self.factors.extend(terms.values())
        self.starts.append(len(self.columns))

    def copy(self) -> _Rows:
        """The same rows, to add more to."""
        copied = _Rows()
        copied.bounds = dict(self.bounds)
        copied.starts, copied.columns, copied.factors = self.starts[:], self.columns[:], self.factors[:]
        return copied


class Program:
    """A program under construction, which can be solved again and again under other bounds."""

    def __init__(self) -> None:
        self._objective = array("d")
        self._rows = _Rows()

    def variable(self, objective: float = 0.0) -> int:
        """A new variable >= 0; returns its number."""
        self._objective.append(objective)
        return len(self._objective) - 1

    def at_least(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Sum of terms >= bound."""
        self._rows.add(name, terms, bound, math.inf)

    def equal(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Sum of terms = bound."""
        self._rows.add(name, terms, bound, bound)

    def solve(self, at_most: Mapping[str, tuple[Mapping[int, float], float]]) -> Solution:
        """The optimum where the sums of the terms given are at most their bounds. Raises NoSolution.

        An infinite bound is no row at all.
        """
        rows = self._rows.copy()
        for name, (terms, bound) in at_most.items():
            if math.isfinite(bound):
                rows.add(name, terms, -math.inf, bound)
        library = _highs()
        handle = ctypes.c_void_p(library.Highs_create())
        try:
            library.Highs_setBoolOptionValue(handle, b"output_flag", 0)
            library.Highs_setDoubleOptionValue(handle, b"time_limit", _TIME_LIMIT_S)
            library.Highs_setIntOptionValue(handle, b"threads", 1)
            self._pass(library, handle, rows)
            library.Highs_run(handle)
            status = library.Highs_getModelStatus(handle)
            if status != _OPTIMAL:
                raise NoSolution(_STATUS_WORDS.get(status, f"HiGHS model status {status}"))
            return self._solution(library, handle, rows)
        finally:
            library.Highs_destroy(handle)

    def _pass(self, library: ctypes.CDLL, handle: ctypes.c_void_p, rows: _Rows) -> None:
        columns = len(self._objective)
        least, most = array("d", [0.0]) * columns, array("d", [math.inf]) * columns
        lows, highs = (array("d", (bounds[end] for bounds in rows.bounds.values())) for end in (0, 1))
        status = library.Highs_passLp(
            handle, columns, len(rows.bounds), len(rows.columns), _ROW_WISE, _MAXIMIZE, ctypes.c_double(0.0),
            _doubles(self._objective), _doubles(least), _doubles(most), _doubles(lows), _doubles(highs),
            _integers(rows.starts), _integers(rows.columns), _doubles(rows.factors),
        )  # fmt: skip
        if status < 0:
            raise NoSolution("HiGHS refused the program")

    def _solution(self, library: ctypes.CDLL, handle: ctypes.c_void_p, rows: _Rows) -> Solution:
        columns, count = len(self._objective), len(rows.bounds)
        values, column_duals = (ctypes.c_double * columns)(), (ctypes.c_double * columns)()
        activity, duals = (ctypes.c_double * count)(), (ctypes.c_double * count)()
        library.Highs_getSolution(handle, values, column_duals, activity, duals)
        objective = library.Highs_getObjectiveValue(handle)
        return Solution(objective, tuple(values), dict(zip(rows.bounds, duals, strict=True)))


def _doubles(values: array[float]) -> ctypes.Array[ctypes.c_double]:
    return (ctypes.c_double * len(values)).from_buffer(values)


def _integers(values: array[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values)).from_buffer(values)


@cache
def _highs() -> ctypes.CDLL:
    import highsbox

    library = ctypes.CDLL(f"{highsbox.highs_lib_dir()}/libhighs.so")
    library.Highs_create.restype = ctypes.c_void_p
    library.Highs_getObjectiveValue.restype = ctypes.c_double
    library.Highs_setDoubleOptionValue.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double)
    return library
