"""Linear programs by HiGHS: maximise an objective over variables >= 0 under named rows.

HiGHS comes as a shared library in the `highsbox` wheel and is called by its C interface, because its Python
package needs numpy, which alone would be half of the install.
Every row keeps its name, so that a dual value can be told in words.
"""

from __future__ import annotations

import ctypes
import math
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


class Program:
    """A program under construction. Rows with one name are an error: a dual would have two meanings."""

    def __init__(self) -> None:
        self._objective: list[float] = []
        self._rows: dict[str, tuple[dict[int, float], float, float]] = {}

    def variable(self, objective: float = 0.0) -> int:
        """A new variable >= 0; returns its number."""
        self._objective.append(objective)
        return len(self._objective) - 1

    def at_most(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Sum of terms <= bound; an infinite bound is no row at all."""
        if math.isfinite(bound):
            self._add(name, terms, -math.inf, bound)

    def at_least(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Sum of terms >= bound."""
        self._add(name, terms, bound, math.inf)

    def equal(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Sum of terms = bound."""
        self._add(name, terms, bound, bound)

    def _add(self, name: str, terms: Mapping[int, float], low: float, high: float) -> None:
        if name in self._rows:
            raise ValueError(f"two rows are named {name!r}")
        self._rows[name] = ({column: factor for column, factor in terms.items() if factor}, low, high)

    def solve(self) -> Solution:
        """The optimum. Raises NoSolution."""
        library = _highs()
        handle = ctypes.c_void_p(library.Highs_create())
        try:
            library.Highs_setBoolOptionValue(handle, b"output_flag", 0)
            library.Highs_setDoubleOptionValue(handle, b"time_limit", _TIME_LIMIT_S)
            library.Highs_setIntOptionValue(handle, b"threads", 1)
            self._pass(library, handle)
            library.Highs_run(handle)
            status = library.Highs_getModelStatus(handle)
            if status != _OPTIMAL:
                raise NoSolution(_STATUS_WORDS.get(status, f"HiGHS model status {status}"))
            return self._solution(library, handle)
        finally:
            library.Highs_destroy(handle)

    def _pass(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        columns, rows = len(self._objective), len(self._rows)
        starts, indices, factors = [0], list[int](), list[float]()
        for terms, _, _ in self._rows.values():
            indices += terms.keys()
            factors += terms.values()
            starts.append(len(indices))
        status = library.Highs_passLp(
            handle, columns, rows, len(indices), _ROW_WISE, _MAXIMIZE, ctypes.c_double(0.0),
            _doubles(self._objective), _doubles([0.0] * columns), _doubles([math.inf] * columns),
            _doubles([low for _, low, _ in self._rows.values()]), _doubles([high for *_, high in self._rows.values()]),
            _integers(starts), _integers(indices), _doubles(factors),
        )  # fmt: skip
        if status < 0:
            raise NoSolution("HiGHS refused the program")

    def _solution(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> Solution:
        columns, rows = len(self._objective), len(self._rows)
        values, column_duals = (ctypes.c_double * columns)(), (ctypes.c_double * columns)()
        activity, duals = (ctypes.c_double * rows)(), (ctypes.c_double * rows)()
        library.Highs_getSolution(handle, values, column_duals, activity, duals)
        objective = library.Highs_getObjectiveValue(handle)
        return Solution(objective, tuple(values), dict(zip(self._rows, duals, strict=True)))


def _doubles(values: list[float]) -> ctypes.Array[ctypes.c_double]:
    return (ctypes.c_double * len(values))(*values)


def _integers(values: list[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)


@cache
def _highs() -> ctypes.CDLL:
    import highsbox

    library = ctypes.CDLL(f"{highsbox.highs_lib_dir()}/libhighs.so")
    library.Highs_create.restype = ctypes.c_void_p
    library.Highs_getObjectiveValue.restype = ctypes.c_double
    library.Highs_setDoubleOptionValue.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double)
    return library
