"""MPI collectives on 32-bit floats, with sums as reductions: the timed loops of `mpi_collectives.c`."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_double, c_int, c_int64, c_ssize_t, c_void_p
from typing import TYPE_CHECKING, Protocol

from railwright.native.library import fields, function, seconds_array
from railwright.native.memory import Buffer
from railwright.native.mpi import bind, check_result
from railwright.results.records import Verification

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""The operations in the order of the C enumeration."""
FLOAT_BYTES = 4
MOST_FLOATS = 2**31 - 1
"""The maximum count, because MPI counts are C ints."""
MOST_RANKS = 1024
"""The maximum number of ranks for which a float holds every sum of the pattern exactly."""
PATTERN = "every float against splitmix64 of its position and its source ranks"


class AnyMemory(Protocol):
    """Host or GPU memory."""

    address: int
    size_bytes: int


class _Collective(Structure):
    """The layout of `struct rw_collective` in mpi_collectives.c."""

    _fields_ = (
        *fields(c_ssize_t, "comm", "type", "sum"),
        *fields(c_int, "kind", "count", "rank", "ranks"),
    )


class Pattern:
    """The data that each rank sends in an operation, and the result that it must receive. Needs no MPI.

    `count` is the number of all floats for all_reduce, and of one rank's share for the others.
    """

    def __init__(self, operation: str, count: int, rank: int, ranks: int) -> None:
        if not 1 <= count <= MOST_FLOATS or not 0 <= rank < ranks <= MOST_RANKS:
            raise ValueError(f"{operation} of {count} floats by rank {rank} of {ranks} cannot be checked")
        kind = OPERATIONS.index(operation)
        self._what = _Collective(kind=kind, count=count, rank=rank, ranks=ranks)
        share, whole = count * FLOAT_BYTES, count * FLOAT_BYTES * ranks
        self.sent_bytes = share if operation in ("all_reduce", "all_gather") else whole
        self.received_bytes = share if operation in ("all_reduce", "reduce_scatter") else whole

    def fill(self, out: Buffer, into: Buffer) -> None:
        """Write this rank's data to send, and poison to the receive buffer.

        Raises ValueError if a buffer is too small.
        """
        self._check_fits(out, self.sent_bytes)
        self._check_fits(into, self.received_bytes)
        fill = function("rw_collective_fill", None, POINTER(_Collective), c_void_p, c_void_p)
        fill(ctypes.byref(self._what), out.address, into.address)

    def verify(self, into: Buffer) -> Verification:
        """Check all data that this rank received. A wrong float counts as four wrong bytes."""
        self._check_fits(into, self.received_bytes)
        count = function("rw_collective_wrong", c_int64, POINTER(_Collective), c_void_p)
        wrong = count(ctypes.byref(self._what), into.address)
        return Verification(method=PATTERN, bytes_checked=self.received_bytes, bytes_wrong=wrong * FLOAT_BYTES)

    @staticmethod
    def _check_fits(buffer: AnyMemory, size_bytes: int) -> None:
        if buffer.size_bytes < size_bytes:
            raise ValueError(f"a buffer must have at least {size_bytes} bytes, got {buffer.size_bytes}")


class Collective(Pattern):
    """An operation at one size over all ranks of a communicator. Raises CannotJudge if MPI cannot be timed."""

    def __init__(self, comm: Intracomm, operation: str, count: int) -> None:
        from mpi4py import MPI

        super().__init__(operation, count, comm.rank, comm.size)
        bind("rw_collectives_bind")
        self._comm = comm  # keeps the handle below valid
        self._what.comm = MPI._handleof(comm)
        self._what.type = MPI._handleof(MPI.FLOAT)
        self._what.sum = MPI._handleof(MPI.SUM)

    def time(self, out: AnyMemory, into: AnyMemory, *, warm: int, operations: int, samples: int) -> list[float]:
        """Return the seconds per operation of each sample: a barrier, then `operations` back to back.

        The clock is this rank's, from its exit of the barrier to the end of its last operation. Collective.
        """
        self._check_fits(out, self.sent_bytes)
        self._check_fits(into, self.received_bytes)
        seconds = seconds_array(samples)
        loop = function(
            "rw_collective", c_int, POINTER(_Collective), c_void_p, c_void_p, c_int, c_int, c_int, POINTER(c_double)
        )
        check_result(loop(ctypes.byref(self._what), out.address, into.address, warm, operations, samples, seconds))
        return list(seconds)
