"""An imitated training step over all ranks: the timed iterations of `train.c` and the data check of `train_check.c`."""

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
"""Up to here every type holds each sum of the pattern exactly."""
PATTERN = "every gradient against whole numbers by its position and the ranks they are from"

_STAGING_BYTES = 64 << 20


class _Bucket(Structure):
    """Laid out as `struct rw_bucket` in train.h."""

    _fields_ = (("first", c_int64), ("count", c_int64), ("ready_after", c_int64))


class _Train(Structure):
    """Laid out as `struct rw_train` in train.h."""

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
    """Seconds of this rank, a list for each part."""

    iteration: list[float]
    compute: list[float]
    """A whole iteration without communication, by the host's clock as well."""
    device: list[float]
    """The compute phase of those by the GPU's own clock."""
    communication: list[float]


class Gradients(NamedTuple):
    """Where this rank's gradients lie on its GPU, in the order in which a backward pass completes them."""

    address: int
    elements: int
    dtype: str

    @property
    def size_bytes(self) -> int:
        """All of them."""
        return self.elements * ELEMENT_BYTES[self.dtype]


class Step:
    """One way to do a training step: gradients, buckets, overlap.

    `team` has the communicator, and in its stream the communication runs. Methods are collective over all ranks where
    they do not say otherwise.
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
        """`buckets` are first element, count, and the number of the layer whose backward pass completes them."""
        from mpi4py import MPI

        if comm.size > MOST_RANKS:
            raise CannotJudge(f"{comm.size} ranks cannot be checked, at most {MOST_RANKS}")
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
        """Call a loop, which takes the step and arguments of these types. Raises NativeError."""
        self._team.checked(what, function(name, c_int, POINTER(_Train), *types)(byref(self._what), *arguments))

    def close(self) -> None:
        """Give its events back. Not collective."""
        function("rw_train_close", c_int, POINTER(_Train))(byref(self._what))

    @property
    def bucket_count(self) -> int:
        """How many all-reduces an iteration has."""
        return len(self._buckets)

    def run(self, *, warm: int, samples: int, only_communication: bool = False) -> Timed:
        """Timed iterations in turn: with communication, without, and the communication alone."""
        compute, iteration, device, communication = (seconds_array(samples) for _ in range(4))
        both = (None, None) if only_communication else (iteration, compute)
        types = (c_int, c_int, *[POINTER(c_double)] * 4)
        self._call("training step", "rw_train_run", types, warm, samples, *both, device, communication)
        return Timed(list(iteration), list(compute), list(device), list(communication))

    def once(self) -> None:
        """One iteration that is not timed."""
        self._call("training step", "rw_train_once")

    def mark(self, *, end: bool) -> None:
        """Where a compute phase that others put on the compute stream begins or ends. Not collective."""
        self._call("event", "rw_train_mark", (c_int,), int(end))

    def between_marks(self) -> float:
        """Seconds from the one mark to the other by the GPU's own clock, after `finish`. Not collective."""
        seconds = c_double()
        self._call("event", "rw_train_elapsed", (POINTER(c_double),), byref(seconds))
        return seconds.value

    def reduce(self, first: int, count: int, after: int) -> None:
        """Enqueue the all-reduces of some buckets behind what a stream (its handle) holds now. Any thread may."""
        self._call("all-reduce", "rw_train_reduce", (c_int, c_int, c_void_p), first, count, after)

    def finish(self, *, communicates: bool) -> float:
        """Wait for this iteration and for all ranks; what `time.monotonic` said right after."""
        now = c_double()
        self._call("training step", "rw_train_finish", (c_int, POINTER(c_double)), int(communicates), byref(now))
        return now.value

    def count_wrong(self) -> int:
        """Add known gradients up over all ranks, bucket by bucket, and count the elements that are wrong here."""
        wrong, room = c_uint64(), (c_void_p, c_int64)
        with Buffer(_STAGING_BYTES) as staging:
            self._call("known gradients", "rw_train_give", room, staging.address, _STAGING_BYTES)
            self.finish(communicates=False)
            self.reduce(0, len(self._buckets), self._what.compute)
            self.finish(communicates=True)
            look = (*room, POINTER(c_uint64))
            self._call("data check", "rw_train_wrong", look, staging.address, _STAGING_BYTES, byref(wrong))
        return wrong.value

    def checksum(self) -> int:
        """A number that depends on every byte of the gradients as they are now, and on its position. Not collective."""
        found = c_uint64()
        with Buffer(_STAGING_BYTES) as staging:
            look = (c_void_p, c_int64, POINTER(c_uint64))
            self._call("checksum", "rw_train_checksum", look, staging.address, _STAGING_BYTES, byref(found))
        return found.value


def _address(library: str, name: str) -> int | None:
    """Where a function of a library is that is loaded already."""
    return ctypes.cast(getattr(ctypes.CDLL(library), name), c_void_p).value
