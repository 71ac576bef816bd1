"""NCCL for the ranks: ctypes sets up communicators and buffers, `nccl.c` has the timed calls.

Only ranks may use this module, because NCCL loads CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_size_t, c_ssize_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, Literal

from railwright.errors import CannotJudge
from railwright.native import cuda, mpi, nccl_errors
from railwright.native.library import fields, function, seconds_array
from railwright.native.nccl_library import Library as Library
from railwright.native.nccl_library import UniqueId

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
"""The operations in the order of the C enumeration."""
Buffers = Literal["plain", "registered", "symmetric"]

_SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
_WARM, _TIME, _ONCE = range(3)


class RankOfTeam(Structure):
    """The layout of `struct rw_nccl_rank` in nccl.c."""

    _fields_ = (
        *fields(c_void_p, "comm", "context", "stream"),
        *fields(c_uint64, "out", "into"),
        ("rank", c_int),
    )


class Operation(Structure):
    """An operation at one size, with the layout of `struct rw_nccl` in nccl.c."""

    _fields_ = (
        ("comm", c_ssize_t),
        *fields(c_size_t, "count", "sent_bytes", "received_bytes", "largest_bytes"),
        *fields(c_int, "kind", "ranks", "here", "in_place", "graph", "operations"),
    )


class Borrowed(cuda.DeviceBuffer):
    """GPU memory that another object frees."""

    def __init__(self, device: cuda.Device, address: int, size_bytes: int) -> None:
        self.device, self.address, self.size_bytes = device, address, size_bytes

    def close(self) -> None:
        """Do nothing, because another object frees the memory."""


class Team:
    """The ranks of this process in a communicator, one per device, each with a stream and two buffers.

    Creating it is collective over all ranks. `comm` is the MPI communicator if other processes have ranks.
    """

    def __init__(
        self,
        library: Library,
        devices: Sequence[cuda.Device],
        operation: str,
        unique_id: bytes,
        *,
        comm: Intracomm | None = None,
    ) -> None:
        self.library, self.devices, self.operation, self.mpi = library, tuple(devices), operation, comm
        self.ranks = comm.size if comm is not None else len(devices)
        self.first = comm.rank if comm is not None else 0
        self.streams = [cuda.Stream(device) for device in devices]
        self.size_bytes = 0
        self.members = (RankOfTeam * len(devices))()
        for index, device in enumerate(devices):
            self.members[index].context, self.members[index].stream = device.context, self.streams[index].handle
            self.members[index].rank = self.first + index
        self._communicators = (c_void_p * len(devices))()
        self._initialise(unique_id)
        if comm is not None:
            mpi.bind("rw_nccl_bind_mpi")

    def _initialise(self, unique_id: bytes) -> None:
        config, shared = self.library.config(self.operation), UniqueId.from_buffer_copy(unique_id)
        self.library.call("ncclGroupStart")
        for index, device in enumerate(self.devices):
            device.make_current()
            rank = c_int(self.first + index)
            place = byref(self._communicators, index * ctypes.sizeof(c_void_p))
            self.library.call("ncclCommInitRankConfig", place, c_int(self.ranks), shared, rank, byref(config))
        self.library.call("ncclGroupEnd")
        for index, member in enumerate(self.members):
            member.comm = self._communicators[index]

    def allocate(self, size_bytes: int, buffers: Buffers) -> str:
        """Allocate two buffers for each rank, by ncclMemAlloc (2.19) as nccl-tests does, and register them if asked.

        Returns the method of allocation. Raises NcclError, and CannotJudge if the library or the communicator does not
        support the registration.
        """
        ours = self.library.has("ncclMemAlloc")
        needed = {"registered": "ncclCommRegister", "symmetric": "ncclCommWindowRegister"}.get(buffers)
        if needed and not (ours and self.library.has(needed)):
            raise CannotJudge(f"NCCL {self.library.version} has no {needed}: {buffers} buffers are not possible")
        self.size_bytes = size_bytes
        for member, device in zip(self.members, self.devices, strict=True):
            device.make_current()
            member.out, member.into = (self._memory(device, size_bytes, ours=ours) for _ in range(2))
        if needed:
            self._register(needed, buffers)
        return "ncclMemAlloc" if ours else "cuMemAlloc"

    def _memory(self, device: cuda.Device, size_bytes: int, *, ours: bool) -> int:
        if not ours:
            return cuda.DeviceBuffer(device, size_bytes).address  # lives as long as the process
        address = c_void_p()
        self.library.call("ncclMemAlloc", byref(address), c_size_t(size_bytes))
        assert address.value is not None
        return address.value

    def _register(self, name: str, buffers: Buffers) -> None:
        """Register all buffers in one group, because ncclCommWindowRegister is collective."""
        handles = []
        flags = (c_int(_SYMMETRIC),) if buffers == "symmetric" else ()
        self.library.call("ncclGroupStart")
        for member, device in zip(self.members, self.devices, strict=True):
            device.make_current()
            for address in (member.out, member.into):
                handles.append(c_void_p())
                comm, size = c_void_p(member.comm), c_size_t(self.size_bytes)
                self.library.call(name, comm, c_void_p(address), size, byref(handles[-1]), *flags, comm=comm)
        self.library.call("ncclGroupEnd")
        if buffers == "symmetric" and not all(handle.value for handle in handles):
            raise CannotJudge("NCCL offers no symmetric window here: not every GPU has access to every other's memory")

    def describe_operation(
        self, count: int, sizes_bytes: tuple[int, int, int], *, in_place: bool, graph: bool, operations: int
    ) -> Operation:
        """Describe an operation with `count` floats in NCCL's sense, and its bytes sent, received and buffered."""
        sent, received, largest = sizes_bytes
        if not 0 < max(sent, received) <= largest <= self.size_bytes:
            raise ValueError(f"an operation of {max(sent, received)} bytes exceeds buffers of {self.size_bytes}")
        return Operation(
            comm=_mpi_handle(self.mpi),
            count=count,
            sent_bytes=sent,
            received_bytes=received,
            largest_bytes=largest,
            kind=OPERATIONS.index(self.operation),
            ranks=self.ranks,
            here=len(self.devices),
            in_place=in_place,
            graph=graph,
            operations=operations,
        )

    def places(self, what: Operation, index: int) -> tuple[int, int]:
        """Return the send and receive addresses of a rank's first operation, as nccl.c computes them."""
        member = self.members[index]
        out, into = (member.into if what.in_place else member.out), member.into
        if what.in_place and self.operation == "all_gather":
            out += member.rank * what.sent_bytes
        if what.in_place and self.operation == "reduce_scatter":
            into += member.rank * what.received_bytes
        return out, into

    def close(self) -> None:
        """Destroy this process's communicators. The process's exit frees the rest."""
        for member in self.members:
            self.library.call("ncclCommDestroy", c_void_p(member.comm))

    def time(self, what: Operation, samples: int) -> list[list[float]]:
        """Return `samples` seconds per operation for each rank of this process. Raises NativeError. Collective."""
        seconds = seconds_array(samples * len(self.devices))
        self._run(what, _TIME, seconds, samples)
        return [list(seconds[index * samples : (index + 1) * samples]) for index in range(len(self.devices))]

    def once(self, what: Operation) -> None:
        """Run an operation, launched like the timed ones, and wait. Raises NativeError. Collective."""
        self._run(what, _ONCE)

    def warm(self, what: Operation) -> None:
        """Run an operation without a graph, and wait. Raises NativeError. Collective."""
        self._run(what, _WARM)

    def _run(self, what: Operation, task: int, seconds: ctypes.Array[c_double] | None = None, samples: int = 0) -> None:
        loop = function("rw_nccl_run", c_int, POINTER(Operation), POINTER(RankOfTeam), c_int, c_int, POINTER(c_double))
        code = loop(byref(what), self.members, task, samples, seconds)
        self.check_result(f"NCCL {self.operation}", code)

    def check_result(self, what: str, code: int) -> None:
        """Check the return value of a loop. Raises NativeError with the error text of the library that failed."""
        comm = c_void_p(self.members[0].comm)
        nccl_errors.check_result(what, code, lambda result: self.library.error_text(result, comm))


def _mpi_handle(comm: Intracomm | None) -> int:
    if comm is None:
        return 0
    from mpi4py import MPI

    return MPI._handleof(comm)
