"""What the results of schema version 1 are held against, frozen: archived records are judged as they were.

Their benchmarks' own declarations may change; this table does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from railwright.limits.limit import Quantity
from railwright.results.bounds import (
    Bound,
    CacheLine,
    Collective,
    CopiedBlocks,
    Declaration,
    Declarations,
    DriveLinks,
    GpuCopy,
    GpuLoad,
    GpuTransfer,
    Gradients,
    MemoryChannels,
    Nothing,
    PathLinks,
    RawDevice,
    Supply,
    ThreadCopies,
)
from railwright.topology.devices import Scalar

_RATE: Quantity = "bandwidth_bytes_per_s"
_ALL: tuple[Quantity, ...] = (_RATE, "latency_s", "operations_per_s")
_WITHIN_A_HOST = Nothing(why="no document says what a collective reaches inside one host")
_OF_MESSAGES = Nothing(why="no document gives a rate of messages")
_OF_COPIES = Nothing(why="no document gives the latency of this path")


def _each(
    bound: Bound, when: Mapping[str, tuple[Scalar | None, ...]] | None = None, supplies: Supply | None = None
) -> tuple[Declaration, ...]:
    return tuple(Declaration(quantity, bound, when or {}, supplies=supplies) for quantity in _ALL)


def _messages(times: int = 1, counted_by: str = "") -> tuple[Declaration, ...]:
    tcp = {"transport": ("tcp",)}
    return (
        Declaration("latency_s", CacheLine(for_messages=True), {"transport": ("shm",)}),
        Declaration("latency_s", CacheLine()),
        Declaration(_RATE, ThreadCopies(times=times, counted_by=counted_by, upper_only=True), tcp),
        Declaration(_RATE, ThreadCopies(times=times, counted_by=counted_by)),
        Declaration("messages_per_s", _OF_MESSAGES),
        Declaration("operations_per_s", _OF_MESSAGES),  # also of messages, in records until 0.1
    )


def _collective(operation: str) -> tuple[Declaration, ...]:
    return (
        Declaration(_RATE, Collective(operation=operation)),
        Declaration("latency_s", Collective(operation=operation)),
    )


VERSION_1: Declarations = {
    "memory_stream": (Declaration(_RATE, PathLinks()),),
    "memory_copy": (
        Declaration(_RATE, MemoryChannels(), {"threads": (1,)}, supplies="thread copy"),
        Declaration(_RATE, MemoryChannels()),
    ),
    "core_latency": (
        Declaration(
            "latency_s", Nothing(why="no document gives the latency between two cores"), supplies="cache line"
        ),
    ),
    "mpi_latency": _messages(),
    "mpi_bandwidth": _messages(),
    "mpi_message_rate": _messages(),
    "mpi_bidirectional": _messages(times=2),
    "kv_transfer": (
        Declaration("latency_s", PathLinks(), {"operation": ("metadata",)}),
        *_messages(counted_by="threads"),
    ),
    "kv_cache": _each(CopiedBlocks()),
    "kv_file": (
        *_each(DriveLinks(), {"memory": ("VRAM",)}),
        *_each(DriveLinks(), {"operation": ("WRITE", None)}),
        *_each(RawDevice()),
    ),
    "device_read": _each(PathLinks(), supplies="raw device"),
    "file_read": _each(RawDevice()),
    "file_write": _each(DriveLinks()),
    "gpu_file_read": _each(DriveLinks()),
    "gpu_file_write": _each(DriveLinks()),
    "gpu_copy": (Declaration(_RATE, GpuCopy()),),
    "gpu_latency": (
        Declaration(
            "latency_s",
            Nothing(why="no document gives the latency of a GPU's own memory"),
            {"kind": ("chase",)},
            ends="same",
            supplies="gpu load",
        ),
        Declaration("latency_s", GpuLoad(), {"kind": ("chase",)}),
        Declaration("latency_s", _OF_COPIES),
    ),
    "kv_vram": (Declaration(_RATE, GpuTransfer()), Declaration("latency_s", _OF_COPIES)),
    "train_step": (
        Declaration(_RATE, Gradients()),
        Declaration("latency_s", Nothing(why="how long a training step takes is the model's, not a link's")),
    ),
    **{
        f"mpi_{name}": (Declaration(_RATE, _WITHIN_A_HOST), Declaration("latency_s", _WITHIN_A_HOST))
        for name in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
    },
    **{
        f"nccl_{name}": _collective(name)
        for name in ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "send_recv")
    },
}  # fmt: skip
