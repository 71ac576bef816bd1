"""A simulated training step over all ranks: timed iterations in `train.c`, the data check in `train_check.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_ssize_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from railwright.errors import CannotJudge
from railwright.native.cuda import Device, Stream
from railwright.native.library import fields, function, seconds_array
from railwright.native.memory import Buffer
from railwright.native.mpi import bind
from railwright.native.nccl import Team
from railwright.native.train_load import ELEMENT_BYTES, Load, LoadStruct

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

NCCL_TYPES = {"fp32": 7, "fp16": 6, "bf16": 9}
"""ncclDataType_t."""
MOST_RANKS = 255
"""The maximum number of ranks for which every type holds each sum of the pattern exactly."""
PATTERN = "every gradient against integers by its position and its source ranks"

_STAGING_BYTES = 64 << 20


class _Bucket(Structure):
    """The layout of `struct rw_bucket` in train.h."""

    _fields_ = (("first", c_int64), ("count", c_int64), ("ready_after", c_int64))


class _Train(Structure):
    """The layout of `struct rw_train` in train.h."""

    _fields_ = (
        ("load", POINTER(LoadStruct)),
        ("buckets", POINTER(_Bucket)),
        *fields(c_int, "bucket_count", "overlap"),
        ("gradients", c_uint64),
        *fields(c_int64, "count", "element_bytes"),
        *fields(c_int, "type", "rank", "ranks"),
        ("mpi_comm", c_ssize_t),
        *fields(c_void_p, "nccl_comm", "all_reduce", "context", "compute", "communication"),
        *fields(c_void_p, "ready", "done", "begin", "end"),
    )


class Timed(NamedTuple):
    """The seconds of this rank, a list for each part."""

    iteration: list[float]
    compute: list[float]
    """A whole iteration without communication, also by the host's clock."""
    device: list[float]
    """The compute phase of those iterations by the GPU's clock."""
    communication: list[float]


class Gradients(NamedTuple):
    """The location of this rank's gradients on its GPU, in the order in which a backward pass completes them."""

    address: int
    elements: int
    dtype: str

    @property
    def size_bytes(self) -> int:
        """The bytes of all gradients."""
        return self.elements * ELEMENT_BYTES[self.dtype]


class Step:
    """A configuration of a training step: gradients, buckets, overlap.

    `team` has the communicator, and the communication runs in its stream. Methods are collective over all ranks unless
    they say otherwise.
    """

    def __init__(
        self,
        comm: Intracomm,
        team: Team,
        device: Device,
        gradients: Gradients,
        compute: Stream,
        load: Load,
        buckets: Sequence[tuple[int, int, int]],
        *,
        overlap: bool,
    ) -> None:
        """Each of `buckets` is a first element, a count, and the number of the layer whose backward pass fills it."""
        from mpi4py import MPI

        if comm.size > MOST_RANKS:
            raise CannotJudge(f"the check supports at most {MOST_RANKS} ranks, got {comm.size}")
        bind("rw_train_bind")
        self._comm, self._team, self._load, self.gradients = comm, team, load, gradients
        self._buckets = (_Bucket * len(buckets))(*(_Bucket(*bucket) for bucket in buckets))
        self._what = _Train(
            load=ctypes.pointer(load.struct), buckets=self._buckets, bucket_count=len(buckets), overlap=int(overlap),
            gradients=gradients.address, count=gradients.elements, element_bytes=ELEMENT_BYTES[gradients.dtype],
            type=NCCL_TYPES[gradients.dtype], rank=comm.rank, ranks=comm.size, mpi_comm=MPI._handleof(comm),
            nccl_comm=team.members[0].comm, all_reduce=_address(team.library.path, "ncclAllReduce"),
            context=device.context, compute=compute.handle, communication=team.streams[0].handle,
        )  # fmt: skip
        self._call("events", "rw_train_open")

    def _call(self, what: str, name: str, types: Sequence[Any] = (), *arguments: object) -> None:
        """Call a loop with the step and arguments of these types. Raises NativeError."""
        self._team.check_result(what, function(name, c_int, POINTER(_Train), *types)(byref(self._what), *arguments))

    def close(self) -> None:
        """Destroy its events. Not collective."""
        function("rw_train_close", c_int, POINTER(_Train))(byref(self._what))

    @property
    def bucket_count(self) -> int:
        """The number of all-reduces in an iteration."""
        return len(self._buckets)

    def run(self, *, warm: int, samples: int, only_communication: bool = False) -> Timed:
        """Time iterations with communication, without it, and communication alone, alternating.

        With `only_communication` the first two are skipped, and their times are 0.
        """
        compute, iteration, device, communication = (seconds_array(samples) for _ in range(4))
        both = (None, None) if only_communication else (iteration, compute)
        types = (c_int, c_int, *[POINTER(c_double)] * 4)
        self._call("training step", "rw_train_run", types, warm, samples, *both, device, communication)
        return Timed(list(iteration), list(compute), list(device), list(communication))

    def once(self) -> None:
        """Run an untimed iteration."""
        self._call("training step", "rw_train_once")

    def mark(self, *, end: bool) -> None:
        """Mark the begin or end of a compute phase that another library enqueues. Not collective."""
        self._call("event", "rw_train_mark", (c_int,), int(end))

    def between_marks(self) -> float:
        """Return the seconds between the marks by the GPU's clock, after `finish`. Not collective."""
        seconds = c_double()
        self._call("event", "rw_train_elapsed", (POINTER(c_double),), byref(seconds))
        return seconds.value

    def reduce(self, first: int, count: int, after: int) -> None:
        """Enqueue the all-reduces of some buckets after the current work of a stream (a handle). Thread-safe."""
        self._call("all-reduce", "rw_train_reduce", (c_int, c_int, c_void_p), first, count, after)

    def finish(self, *, communicates: bool) -> float:
        """Wait for this iteration and for all ranks. Returns `time.monotonic` right afterwards."""
        now = c_double()
        self._call("training step", "rw_train_finish", (c_int, POINTER(c_double)), int(communicates), byref(now))
        return now.value

    def count_wrong(self) -> int:
        """Sum known gradients over all ranks, bucket by bucket, and count the wrong elements on this rank."""
        wrong, room = c_uint64(), (c_void_p, c_int64)
        with Buffer(_STAGING_BYTES) as staging:
            self._call("known gradients", "rw_train_give", room, staging.address, _STAGING_BYTES)
            self.finish(communicates=False)
            self.reduce(0, len(self._buckets), self._what.compute)
            self.finish(communicates=True)
            types = (*room, POINTER(c_uint64))
            self._call("data check", "rw_train_wrong", types, staging.address, _STAGING_BYTES, byref(wrong))
        return wrong.value

    def checksum(self) -> int:
        """Return a checksum that depends on every byte of the gradients and on its position. Not collective."""
        found = c_uint64()
        with Buffer(_STAGING_BYTES) as staging:
            types = (c_void_p, c_int64, POINTER(c_uint64))
            self._call("checksum", "rw_train_checksum", types, staging.address, _STAGING_BYTES, byref(found))
        return found.value


def _address(library: str, name: str) -> int | None:
    """Return the address of a function in a loaded library."""
    return ctypes.cast(getattr(ctypes.CDLL(library), name), c_void_p).value
