"""HPL's matrix in a GPU's memory, and the norms of its residual (`lu_kernels.h`). Only ranks may use this module."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import Structure, c_double, c_int64, c_uint64
from typing import TYPE_CHECKING, NamedTuple

from railwright.native import cuda, linpack
from railwright.native.library import Closing, fields

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_DOUBLE_BYTES = 8
_ALIGNED_ROWS = 32
_MULTIPLIER, _WORD = 6364136223846793005, 2**64
"""X(k+1) = _MULTIPLIER X(k) + 1 mod _WORD, as in linpack.c."""


class Place(Structure):
    """The layout of `struct rw_lu_place` in lu_place.h."""

    _fields_ = (
        ("a", c_uint64),
        ("panels", c_uint64 * 2),
        *fields(c_uint64, "message", "messages", "candidates", "singular"),
        *fields(c_int64, "lead", "local_rows", "local_columns", "order", "block", "rows", "columns", "row", "column"),
    )


class Part(NamedTuple):
    """A GPU's part of the matrix, in blocks over `grid` (rows, columns) of GPUs.

    Its `columns` include b, the column after A, if the part is that of [A b].
    """

    order: int
    block: int
    grid: tuple[int, int]
    place: tuple[int, int]
    rows: int
    columns: int

    @property
    def lead(self) -> int:
        """The rows from a column to the next one."""
        return max(_ALIGNED_ROWS, -(-self.rows // _ALIGNED_ROWS) * _ALIGNED_ROWS)

    @property
    def size_bytes(self) -> int:
        """The memory of the part."""
        return _DOUBLE_BYTES * self.lead * max(1, self.columns)


class Matrix(Closing):
    """A part in a GPU's memory, generated from `seed`. A context manager. Raises CannotJudge if it does not fit."""

    def __init__(self, device: cuda.Device, part: Part, seed: int) -> None:
        self.device, self.part, self._seed = device, part, seed
        self._held = ExitStack()
        self.buffer = self._held.enter_context(cuda.DeviceBuffer(device, part.size_bytes))
        self.struct = Place(
            a=self.buffer.address, lead=part.lead, local_rows=part.rows, local_columns=part.columns,
            order=part.order, block=part.block, rows=part.grid[0], columns=part.grid[1],
            row=part.place[0], column=part.place[1],
        )  # fmt: skip
        self._on_gpu = self._held.enter_context(cuda.DeviceBuffer(device, ctypes.sizeof(Place)))

    def close(self) -> None:
        """Free the memory."""
        self._held.close()

    def upload(self) -> int:
        """Copy the description to the GPU, and return its address there."""
        self._on_gpu.write(bytes(self.struct))
        return self._on_gpu.address

    def generate(self) -> None:
        """Write the elements, and wait."""
        place, blocks = self.upload(), 8 * self.device.multiprocessors
        cuda.launch(self.device, "lu_generate", blocks, 128, place, self._seed, *_skip(self.part.order))
        self.device.synchronize()

    def norms(self, comm: Intracomm, solution: ctypes.Array[c_double]) -> tuple[float, float, float, float]:
        """Return the maximum norms of A x - b, of A, of x and of b. `solution` is x on every rank. Collective."""
        from mpi4py import MPI

        size = _DOUBLE_BYTES * self.part.order
        found = [(c_double * self.part.order)() for _ in range(2)]
        with ExitStack() as held:
            x, *sums = (held.enter_context(cuda.DeviceBuffer(self.device, size)) for _ in range(3))
            x.copy_from(ctypes.addressof(solution), size)
            for vector in sums:
                vector.set_bytes(0)
            arguments = (self.upload(), self._seed, *_skip(self.part.order), x.address, *(one.address for one in sums))
            cuda.launch(self.device, "lu_multiply", 8 * self.device.multiprocessors, 128, *arguments)
            self.device.synchronize()
            for vector, into in zip(sums, found, strict=True):
                vector.copy_to(ctypes.addressof(into), size)
        for on_host in found:
            comm.Allreduce(MPI.IN_PLACE, [on_host, MPI.DOUBLE])
        return linpack.norms(self.part.order, self._seed, solution, *found)


def _skip(steps: int) -> tuple[int, int]:
    """Return the factor and the summand that lead from an element of HPL's sequence to the one `steps` later."""
    factor, more, power, add = 1, 0, _MULTIPLIER, 1
    while steps:
        if steps & 1:
            factor, more = power * factor % _WORD, (power * more + add) % _WORD
        power, add = power * power % _WORD, (power * add + add) % _WORD
        steps >>= 1
    return factor, more
