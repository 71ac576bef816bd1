"""Linear programs, solved by HiGHS: maximise an objective over variables >= 0 under named rows.

HiGHS comes as a shared library in the `highsbox` wheel and is called through its C interface, because its Python
package needs numpy, which alone would be half of the install.
Every row keeps its name, so that a dual value can be explained in words.
"""

from __future__ import annotations

import ctypes
import math
import weakref
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
    """The program has no finite optimum. `why` is `infeasible`, `unbounded`, or another reason with HiGHS's status."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Solution(NamedTuple):
    """The optimal objective, the value of each variable, and the dual of each row: d(objective) / d(bound)."""

    objective: float
    values: tuple[float, ...]
    duals: dict[str, float]


class Program:
    """A program under construction, which can be solved repeatedly with different bounds.

    Row names must be unique, because a dual is reported by row name.
    """

    def __init__(self) -> None:
        self._objective = array("d")
        self._bounds: dict[str, tuple[float, float]] = {}
        self._starts, self._columns, self._factors = array("i", [0]), array("i"), array("d")
        self._model: ctypes.c_void_p | None = None
        """The model in HiGHS. None before the first solve."""

    def add_variable(self, objective: float = 0.0) -> int:
        """Add a variable >= 0 and return its number."""
        self._objective.append(objective)
        return len(self._objective) - 1

    def add_upper_bound(self, name: str, terms: Mapping[int, float]) -> None:
        """Require the sum of terms to be at most the bound that is passed to `solve`."""
        self._add(name, terms, -math.inf, math.inf)

    def add_lower_bound(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Require the sum of terms to be at least the bound."""
        self._add(name, terms, bound, math.inf)

    def add_equality(self, name: str, terms: Mapping[int, float], bound: float) -> None:
        """Require the sum of terms to equal the bound."""
        self._add(name, terms, bound, bound)

    def _add(self, name: str, terms: Mapping[int, float], low: float, high: float) -> None:
        if name in self._bounds:
            raise ValueError(f"two rows are named {name!r}")
        if self._model is not None:
            raise ValueError(f"row {name!r} cannot be added after the program was solved")
        self._bounds[name] = (low, high)
        if 0 in terms.values():
            terms = {column: factor for column, factor in terms.items() if factor}
        self._columns.extend(terms)
        self._factors.extend(terms.values())
        self._starts.append(len(self._columns))

    def solve(self, at_most: Mapping[str, float], *, anew: bool = True) -> Solution:
        """Return the optimum with each row in `at_most` at most its bound, which may be infinite. Raises NoSolution.

        Without `anew` the solver starts from the last optimum, which is faster. If there are several optima, the
        result may then be a different one.
        """
        bounds = self._bounds | {name: (-math.inf, bound) for name, bound in at_most.items()}
        library = _load_highs()
        if self._model is None:
            self._model = self._build_model(library, bounds)
        else:
            if anew:
                library.Highs_clearSolver(self._model)
            for number, (name, ends) in enumerate(bounds.items()):
                if name in at_most:
                    library.Highs_changeRowBounds(self._model, number, *ends)
        library.Highs_run(self._model)
        status = library.Highs_getModelStatus(self._model)
        if status != _OPTIMAL:
            raise NoSolution(_STATUS_WORDS.get(status, f"HiGHS model status {status}"))
        return self._solution(library, self._model)

    def _build_model(self, library: ctypes.CDLL, bounds: Mapping[str, tuple[float, float]]) -> ctypes.c_void_p:
        """Build the HiGHS model, which is destroyed together with this program."""
        model = ctypes.c_void_p(library.Highs_create())
        weakref.finalize(self, library.Highs_destroy, model)
        library.Highs_setBoolOptionValue(model, b"output_flag", 0)
        library.Highs_setDoubleOptionValue(model, b"time_limit", _TIME_LIMIT_S)
        library.Highs_setIntOptionValue(model, b"threads", 1)
        columns = len(self._objective)
        lower, upper = array("d", [0.0]) * columns, array("d", [math.inf]) * columns
        lows, highs = (array("d", (ends[side] for ends in bounds.values())) for side in (0, 1))
        status = library.Highs_passLp(
            model, columns, len(bounds), len(self._columns), _ROW_WISE, _MAXIMIZE, ctypes.c_double(0.0),
            _doubles(self._objective), _doubles(lower), _doubles(upper), _doubles(lows), _doubles(highs),
            _integers(self._starts), _integers(self._columns), _doubles(self._factors),
        )  # fmt: skip
        if status < 0:
            raise NoSolution("HiGHS refused the program")
        return model

    def _solution(self, library: ctypes.CDLL, model: ctypes.c_void_p) -> Solution:
        columns, count = len(self._objective), len(self._bounds)
        values, column_duals = (ctypes.c_double * columns)(), (ctypes.c_double * columns)()
        activity, duals = (ctypes.c_double * count)(), (ctypes.c_double * count)()
        library.Highs_getSolution(model, values, column_duals, activity, duals)
        objective = library.Highs_getObjectiveValue(model)
        return Solution(objective, tuple(values), dict(zip(self._bounds, duals, strict=True)))


def _doubles(values: array[float]) -> ctypes.Array[ctypes.c_double]:
    return (ctypes.c_double * len(values)).from_buffer(values)


def _integers(values: array[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values)).from_buffer(values)


@cache
def _load_highs() -> ctypes.CDLL:
    import highsbox

    library = ctypes.CDLL(f"{highsbox.highs_lib_dir()}/libhighs.so")
    library.Highs_create.restype = ctypes.c_void_p
    library.Highs_getObjectiveValue.restype = ctypes.c_double
    library.Highs_setDoubleOptionValue.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double)
    library.Highs_changeRowBounds.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_double)
    return library
