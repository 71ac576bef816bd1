"""HPL's matrix and the check of its solution (`linpack.c`)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_uint64, c_void_p
from typing import TYPE_CHECKING

from railwright.native.library import NativeError, fields, function, loops
from railwright.native.memory import Buffer

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

PATTERN = "integers: the sum of every row of C must equal that of A B exactly"


class _Hpl(Structure):
    """The layout of `struct rw_hpl` in linpack.c."""

    _fields_ = (
        *fields(c_int64, "order", "block", "rows", "columns", "row", "column"),
        ("seed", c_uint64),
    )


class Problem:
    """The part of [A b] of the rank at `place`, in blocks of `block` over `grid` (rows, columns) of ranks."""

    def __init__(self, order: int, block: int, grid: tuple[int, int], place: tuple[int, int], seed: int) -> None:
        self._struct = _Hpl(order, block, *grid, *place, seed)
        self._order = order
        self._holds_right_side = place[1] == 0

    def generate_columns(self, matrix: Buffer, lead: int, first: int, end: int) -> None:
        """Write columns `first` up to `end` of A's part, `lead` rows apart, from the start of the buffer."""
        write = function("rw_hpl_matrix", None, POINTER(_Hpl), c_void_p, c_int64, c_int64, c_int64)
        write(byref(self._struct), matrix.address, lead, first, end)

    def generate_right_side(self, right_side: Buffer) -> None:
        """Write b's part, which only the first column of ranks holds."""
        if self._holds_right_side:
            self._right_side(right_side, None, back=False)

    def _right_side(self, held: Buffer, every: ctypes.Array[c_double] | None, *, back: bool) -> None:
        function("rw_hpl_right_side", None, POINTER(_Hpl), c_void_p, c_void_p, c_int)(
            byref(self._struct), held.address, every, int(back)
        )

    def gather(self, comm: Intracomm, solution: Buffer) -> ctypes.Array[c_double]:
        """Return x on every rank, from parts distributed like b. Collective."""
        from mpi4py import MPI

        x = (c_double * self._order)()
        if self._holds_right_side:
            self._right_side(solution, x, back=True)
        comm.Allreduce(MPI.IN_PLACE, [x, MPI.DOUBLE])
        return x

    def norms(self, comm: Intracomm, solution: Buffer) -> tuple[float, float, float, float]:
        """Return the maximum norms of A x - b, of A, of x and of b, with x distributed like b. Collective."""
        from mpi4py import MPI

        x = self.gather(comm, solution)
        product, sums = ((c_double * self._order)() for _ in range(2))
        multiply = function("rw_hpl_multiply", None, POINTER(_Hpl), c_void_p, c_void_p, c_void_p)
        multiply(byref(self._struct), x, product, sums)
        for vector in (product, sums):
            comm.Allreduce(MPI.IN_PLACE, [vector, MPI.DOUBLE])
        return norms(self._order, self._struct.seed, x, product, sums)


def norms(
    order: int, seed: int, x: ctypes.Array[c_double], product: ctypes.Array[c_double], sums: ctypes.Array[c_double]
) -> tuple[float, float, float, float]:
    """Return the maximum norms of A x - b, of A, of x and of b, from A x and the sums of |A| along the rows."""
    found = (c_double * 4)()
    find = function("rw_hpl_norms", None, POINTER(_Hpl), *[c_void_p] * 3, POINTER(c_double))
    find(byref(_Hpl(order=order, seed=seed)), x, product, sums, found)
    return found[0], found[1], found[2], found[3]


def write_integers(buffer: Buffer, count: int, seed: int) -> None:
    """Write `count` integers as doubles, for a product that can be checked exactly."""
    function("rw_hpl_integers", None, c_void_p, c_int64, c_uint64)(buffer.address, count, seed)


def wrong_rows(order: int, a: Buffer, b: Buffer, product: Buffer) -> int:
    """Count the rows with a wrong sum in the product of two square matrices. Raises NativeError."""
    count = function("rw_hpl_wrong_rows", c_int64, c_int64, *[c_void_p] * 3)
    wrong = int(count(order, a.address, b.address, product.address))
    if wrong < 0:
        raise NativeError("check of dgemm", wrong)
    return wrong


def progress_address() -> int:
    """Return the address of the progress callback for MKL."""
    address = ctypes.cast(loops().rw_hpl_progress, c_void_p).value
    assert address is not None
    return address


def columns_done(*, reset: bool = False) -> int:
    """Return the number of columns done that MKL last reported since the reset; 0 if it reported none."""
    return int(function("rw_hpl_columns_done", c_int, c_int)(int(reset)))
