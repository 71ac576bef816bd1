"""LU of HPL's matrix by our own schedule on GPUs (`lu.c`), with cuBLAS and NCCL. Only ranks may use this module."""

from __future__ import annotations

import ctypes
import time
from contextlib import ExitStack
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import TYPE_CHECKING, NamedTuple, cast

from railwright.errors import CannotJudge
from railwright.native import cuda
from railwright.native.cuda_partition import Streams
from railwright.native.gpu_matrix import Matrix, Place
from railwright.native.library import Closing, fields, function
from railwright.native.nccl import Borrowed, Library, Team
from railwright.native.nccl_errors import check_result
from railwright.native.train_load import Cublas

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_KERNELS = ("search", "tell", "eliminate", "copy", "collect", "distribute", "assemble", "sum")
"""In the order of the enumeration in lu.c."""
_DOUBLE_BYTES, _INDEX_BYTES, _HEAD = 8, 4, 4
_LISTS = 7
"""Indices for each row of a block: see list_rows in lu.c."""
_CHUNK = 8192
"""The columns whose rows change places at once."""
_MOST_GRID_ROWS = 64


class Tuning(NamedTuple):
    """Choices that change the speed and nothing else."""

    leaf: int = 16
    """The columns of a panel that are eliminated one by one before the next product of matrices; at most 64."""
    multiprocessors: int = 8
    """The multiprocessors that only panels use; 0: they share all."""
    threads: int = 256
    """Threads of a block; a power of two, at most 512."""
    blocks_each: int = 4
    """Blocks of threads on each multiprocessor."""


class _Lu(Structure):
    """The layout of `struct rw_lu` in lu.c."""

    _fields_ = (
        ("here", Place),
        *fields(c_uint64, "place", "collected", "top"),
        ("lists", c_uint64 * 2),
        *fields(c_uint64, "right_side", "parts", "x"),
        *fields(c_int64, "chunk", "leaf", "panel_blocks", "panel_threads", "blocks"),
        *fields(c_void_p, "pivots", "moved"),
        ("host_lists", c_void_p * 2),
        ("host_pivots", c_void_p * 2),
        *fields(c_void_p, "context", "panel_stream", "update_stream", "panel_blas", "update_blas"),
        *fields(c_void_p, "row_comm", "column_comm", "update_comm"),
        ("kernels", c_void_p * len(_KERNELS)),
        ("ready", c_void_p * 2),
        ("updated", c_void_p * 2),
        ("columns_ready", c_void_p),
    )


class Solver(Closing):
    """The solver of one matrix. A context manager. Raises CannotJudge if cuBLAS or memory is missing."""

    def __init__(self, matrix: Matrix, library: Library, tuning: Tuning) -> None:
        part = matrix.part
        if part.grid[0] > _MOST_GRID_ROWS:
            raise CannotJudge(f"a grid has at most {_MOST_GRID_ROWS} rows of GPUs, got {part.grid[0]}")
        self._matrix, self._library, self._device = matrix, library, matrix.device
        self._held = ExitStack()
        self._work_bytes = 0
        self.streams = self._held.enter_context(Streams(matrix.device, tuning.multiprocessors))
        short, long = (
            self._held.enter_context(Cublas(matrix.device, stream))
            for stream in (self.streams.short, self.streams.long)
        )
        for cublas in (short, long):
            cublas.use_default_math()
        check_result("bind", function("rw_lu_bind", c_int, c_void_p, c_void_p)(long.library_handle, library.handle))
        self._struct = _Lu(
            context=matrix.device.context, leaf=tuning.leaf, panel_threads=tuning.threads,
            panel_stream=self.streams.short.handle, update_stream=self.streams.long.handle,
            panel_blas=short.handle, update_blas=long.handle, chunk=max(_CHUNK, part.block),
            panel_blocks=tuning.blocks_each * (self.streams.multiprocessors or matrix.device.multiprocessors),
            blocks=8 * matrix.device.multiprocessors,
        )  # fmt: skip
        self._allocate()

    def close(self) -> None:
        """Release the memory, the communicators and the streams."""
        self._device.synchronize()
        self._held.close()

    @property
    def work_bytes(self) -> int:
        """The GPU memory beside the matrix."""
        return self._work_bytes

    def _memory(self, size_bytes: int) -> int:
        self._work_bytes += size_bytes
        return self._held.enter_context(cuda.DeviceBuffer(self._device, max(8, size_bytes))).address

    def _allocate(self) -> None:
        lu, part = self._struct, self._matrix.part
        block, message = part.block, _DOUBLE_BYTES * (_HEAD + 2 * part.block)
        here = self._matrix.struct
        for parity in range(2):
            here.panels[parity] = self._memory(_DOUBLE_BYTES * block * (block + 1 + part.rows))
            lu.lists[parity] = self._memory(_LISTS * _INDEX_BYTES * block)
            lu.host_lists[parity] = self._pinned(_LISTS * _INDEX_BYTES * block)
            lu.host_pivots[parity] = self._pinned(_DOUBLE_BYTES * block)
            lu.ready[parity], lu.updated[parity] = self._event(), self._event()
        lu.columns_ready = self._event()
        here.messages = self._memory(message * part.grid[0])
        here.message = self._memory(message) if part.grid[0] > 1 else here.messages
        here.candidates = self._memory(2 * _DOUBLE_BYTES * lu.panel_blocks)
        here.singular = self._memory(_DOUBLE_BYTES)
        lu.collected = self._memory(_DOUBLE_BYTES * 2 * block * lu.chunk)
        lu.top = self._memory(_DOUBLE_BYTES * block * lu.chunk)
        lu.right_side = self._memory(_DOUBLE_BYTES * part.rows)
        lu.parts = self._memory(_DOUBLE_BYTES * block * part.grid[1])
        lu.x = self._memory(_DOUBLE_BYTES * part.order)
        self._pivots, self._moved = (c_int64 * part.order)(), (c_int32 * part.order)()
        lu.pivots, lu.moved = ctypes.addressof(self._pivots), ctypes.addressof(self._moved)
        lu.here, lu.place = here, self._matrix.upload()
        for index, name in enumerate(_KERNELS):
            lu.kernels[index] = self._device.kernel(f"lu_{name}")

    def _pinned(self, size_bytes: int) -> int:
        return self._held.enter_context(cuda.PinnedBuffer(self._device, size_bytes)).address

    def _event(self) -> int:
        made = c_void_p()
        create = function("rw_cuda_event_open", c_int, c_void_p, POINTER(c_void_p))
        check_result("event", create(self._device.context, byref(made)))
        self._held.callback(function("rw_cuda_event_close", c_int, c_void_p), made.value)
        assert made.value is not None
        return made.value

    def connect(self, comm: Intracomm) -> None:
        """Make the communicators of this GPU's row and column of the grid. Raises NcclError. Collective."""
        self._mpi, library = comm, self._library
        lu, (rows, columns), (row, column) = self._struct, self._matrix.part.grid, self._matrix.part.place
        across, down = cast("Intracomm", comm.Split(row, column)), cast("Intracomm", comm.Split(column, row))
        if columns > 1:
            lu.row_comm = self._communicator(library, across)
        if rows > 1:
            lu.column_comm, lu.update_comm = (self._communicator(library, down) for _ in range(2))

    def _communicator(self, library: Library, ranks: Intracomm) -> int:
        unique_id = ranks.bcast(library.unique_id() if ranks.rank == 0 else b"")
        team = Team(library, [self._device], "all_reduce", unique_id, comm=ranks)
        self._held.callback(team.close)
        comm: int = team.members[0].comm
        return comm

    def solve(self) -> float:
        """Factorize and solve, and return this rank's seconds. Raises NativeError. Collective."""
        self._device.synchronize()
        Borrowed(self._device, self._struct.here.singular, _DOUBLE_BYTES).set_bytes(0)
        run = function("rw_lu_solve", c_int, POINTER(_Lu))
        self._mpi.Barrier()
        start = time.perf_counter()
        code = run(byref(self._struct))
        seconds = time.perf_counter() - start
        check_result("LU", code)
        return seconds

    def singular_at(self) -> int:
        """Return the first column without a pivot that any rank found, counted from 1; 0 if none did. Collective."""
        seen = Borrowed(self._device, self._struct.here.singular, _DOUBLE_BYTES).read(_DOUBLE_BYTES)
        return min((one for one in self._mpi.allgather(int.from_bytes(seen, "little")) if one), default=0)

    def solution(self) -> ctypes.Array[c_double]:
        """Return x on every rank. Collective."""
        from mpi4py import MPI

        order = self._matrix.part.order
        x = (c_double * order)()
        if self._matrix.part.place[0] == 0:  # every row of the grid has the unknowns of its columns
            held = Borrowed(self._device, self._struct.x, _DOUBLE_BYTES * order)
            held.copy_to(ctypes.addressof(x), _DOUBLE_BYTES * order)
        self._mpi.Allreduce(MPI.IN_PLACE, [x, MPI.DOUBLE])
        return x

    @property
    def pivots(self) -> list[int]:
        """The row that each row was exchanged with, counted from 0."""
        return list(self._pivots)
