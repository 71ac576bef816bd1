"""ScaLAPACK for Linpack: MKL's from its wheel or the loader's path, or a library that the user names.

MKL's layers refer to each other cyclically, so they are opened lazily and globally (RTLD_LAZY, RTLD_GLOBAL), which
ctypes alone does not do. Its BLACS is built for Open MPI and for the ABI of MPICH; mpi4py shows which one applies.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_double, c_int, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from railwright.errors import CannotJudge
from railwright.installation import find_installation
from railwright.native import linpack, mpi
from railwright.native.library import Closing
from railwright.native.memory import Buffer
from railwright.native.vendor_libraries import NO_MKL, candidates

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_RTLD_LAZY = 1
_DENSE = 1
"""The kind of a descriptor: a dense matrix (DTYPE_)."""
_VERSION_BYTES = 198
_NEEDED = ("blacs_get_", "blacs_gridinit_", "blacs_gridexit_", "pdgetrf_", "pdgetrs_", "dgemm_")


class Solved(NamedTuple):
    """The outcome of a factorization and its substitution."""

    seconds: float
    cpu_s: float
    """CPU seconds of all threads of this rank in the same time."""
    singular_at: int
    """The first zero pivot, counted from 1; 0 if there is none."""


class Scalapack:
    """The loaded libraries. Raises CannotJudge if they are missing or lack a function."""

    def __init__(self, named: str, threads: int, *, mpich_abi: bool) -> None:
        _open(mpi.library_path())  # global, because mpi4py opens it locally and BLACS uses its data
        self._libraries = [
            _open(name, named) for name in ([named] if named else _list_libraries(threads, mpich_abi=mpich_abi))
        ]
        missing = [name for name in _NEEDED if self._find(name) is None]
        if missing:
            raise CannotJudge(f"ScaLAPACK lacks {', '.join(missing)}; {_next_step(named)}")
        self.version = self._version() or (named and f"named: {named[:200]}") or "unknown"
        set_progress = self._find("mkl_set_progress")
        if set_progress is not None:
            set_progress.restype, set_progress.argtypes = c_void_p, (c_void_p,)
            set_progress(linpack.progress_address())

    def _find(self, name: str) -> Any:  # noqa: ANN401 - ctypes has no name for a function
        return next((getattr(one, name) for one in reversed(self._libraries) if hasattr(one, name)), None)

    def call(self, name: str, *arguments: object) -> None:
        """Call a Fortran subroutine."""
        subroutine = self._find(name)
        assert subroutine is not None
        subroutine.restype = None
        subroutine(*arguments)

    def _version(self) -> str:
        """Return MKL's version text, or an empty string for another library."""
        say = self._find("mkl_get_version_string") or self._find("MKL_Get_Version_String")
        if say is None:
            return ""
        say.restype = None
        text = ctypes.create_string_buffer(_VERSION_BYTES + 1)
        say(text, _VERSION_BYTES)
        return " ".join(text.value.decode("ascii", "replace").split())

    @property
    def has_lapack(self) -> bool:
        """Whether one process can solve by LAPACK, without a grid."""
        return all(self._find(name) is not None for name in ("dgetrf_", "dgetrs_"))

    def solve(self, order: int, matrix: Buffer, right_side: Buffer, pivots: Buffer) -> Solved:
        """Solve A x = b by dgetrf and dgetrs in this process alone, in place: A becomes its factors, b becomes x."""
        size, one, singular = c_int(order), c_int(1), c_int(0)
        a, b, swaps = (c_void_p(one.address) for one in (matrix, right_side, pivots))

        def substitute() -> int:
            status = c_int(0)
            self.call(
                "dgetrs_", c_char_p(b"N"), byref(size), byref(one), a, byref(size), swaps, b, byref(size), byref(status)
            )
            return status.value

        return _time_steps(
            "dgetrf", singular, lambda: self.call("dgetrf_", byref(size), byref(size), a, byref(size), swaps,
                                                  byref(singular)), substitute)  # fmt: skip

    def multiply(self, order: int, a: Buffer, b: Buffer, product: Buffer) -> float:
        """Return the seconds of product = a b, with square column-major matrices."""
        no, size, one, zero = c_char_p(b"N"), c_int(order), c_double(1.0), c_double(0.0)
        start = time.perf_counter()
        self.call(
            "dgemm_", no, no, byref(size), byref(size), byref(size), byref(one), c_void_p(a.address), byref(size),
            c_void_p(b.address), byref(size), byref(zero), c_void_p(product.address), byref(size),
        )  # fmt: skip
        return time.perf_counter() - start


class DistributedGrid(Closing):
    """A BLACS grid over all ranks, in row-major order. A context manager."""

    def __init__(self, library: Scalapack, rows: int, columns: int) -> None:
        self._library = library
        self.context = c_int(-1)
        library.call("blacs_get_", byref(c_int(-1)), byref(c_int(0)), byref(self.context))
        library.call("blacs_gridinit_", byref(self.context), c_char_p(b"R"), byref(c_int(rows)), byref(c_int(columns)))

    def close(self) -> None:
        """Leave the grid."""
        self._library.call("blacs_gridexit_", byref(self.context))

    def solve(
        self, comm: Intracomm, order: int, block: int, lead: int, matrix: Buffer, right_side: Buffer, pivots: Buffer
    ) -> Solved:
        """Solve A x = b by pdgetrf and pdgetrs, in place: A becomes its factors, b becomes x. Collective."""
        of_matrix, of_right_side = (self._descriptor(order, columns, block, lead) for columns in (order, 1))
        size, one, singular = c_int(order), c_int(1), c_int(0)
        a, b, swaps = (c_void_p(one.address) for one in (matrix, right_side, pivots))

        def substitute() -> int:
            status = c_int(0)
            self._library.call(
                "pdgetrs_", c_char_p(b"N"), byref(size), byref(one), a, byref(one), byref(one), of_matrix, swaps,
                b, byref(one), byref(one), of_right_side, byref(status),
            )  # fmt: skip
            return status.value

        comm.Barrier()
        return _time_steps(
            "pdgetrf", singular, lambda: self._library.call("pdgetrf_", byref(size), byref(size), a, byref(one),
                                                            byref(one), of_matrix, swaps, byref(singular)),
            substitute)  # fmt: skip

    def _descriptor(self, rows: int, columns: int, block: int, lead: int) -> ctypes.Array[c_int]:
        """Return a ScaLAPACK descriptor: kind, context, shape, blocks, first rank, leading dimension."""
        return (c_int * 9)(_DENSE, self.context.value, rows, columns, block, block, 0, 0, lead)


def _time_steps(name: str, singular: c_int, factor: Callable[[], None], substitute: Callable[[], int]) -> Solved:
    """Time both steps, without the substitution if a pivot was zero. Raises CannotJudge."""
    linpack.columns_done(reset=True)
    start, start_cpu = time.perf_counter(), time.process_time()
    factor()
    status = 0 if singular.value else substitute()
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
    if singular.value < 0:
        raise CannotJudge(f"{name} rejects its argument {-singular.value}")
    if status:
        raise CannotJudge(f"the substitution after {name} rejects its argument {-status}")
    return Solved(seconds, cpu_s, singular.value)


def _list_libraries(threads: int, *, mpich_abi: bool) -> list[str]:
    """Return MKL's libraries in loading order."""
    threading = ["libiomp5.so", "libmkl_intel_thread.so"] if threads > 1 else ["libmkl_sequential.so"]
    blacs = "libmkl_blacs_intelmpi_lp64.so" if mpich_abi else "libmkl_blacs_openmpi_lp64.so"
    return ["libmkl_core.so", *threading, "libmkl_intel_lp64.so", blacs, "libmkl_scalapack_lp64.so"]


def _open(name: str, named: str = "") -> ctypes.CDLL:
    """Open the first file of a library that loads, whatever its version. Raises CannotJudge."""
    program = ctypes.CDLL(None)
    program.dlopen.restype, program.dlopen.argtypes = c_void_p, (c_char_p, c_int)
    program.dlerror.restype = c_char_p
    files = [name] if "/" in name else [f"{name}{version}" for version in (".2", ".3", "")]
    reasons: list[str] = []
    for file in candidates(*files):
        handle = program.dlopen(file.encode(), _RTLD_LAZY | ctypes.RTLD_GLOBAL)
        if handle:
            return ctypes.CDLL(file, handle=handle)
        reasons.append((program.dlerror() or b"").decode("utf-8", "replace"))
    # The step is in the message itself, because a record keeps no hint.
    raise CannotJudge(f"no ScaLAPACK can be loaded: {reasons[0][:300]}; {_next_step(named)}")


def _next_step(named: str) -> str:
    """Return the way to a ScaLAPACK that works: another one instead of the named, or MKL."""
    if named:
        return "give another library=PATH"
    if platform.machine() == "aarch64":
        return NO_MKL
    return f"{find_installation().add_extra('hpl')}, or name a ScaLAPACK with -o library=PATH"
