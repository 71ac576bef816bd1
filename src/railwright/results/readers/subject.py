"""What the rows of another tool's table are about. Every reader says it, so that whoever judges needs no names."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["collective", "messages", "copies", "files", "linpack", "other"]
_GPU_WORDS = ("vram", "cuda", "d", "device", "gpu")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of thing that was measured, which decides what the rows are held against."""

    kind: Kind = "other"
    """`messages` are a stream from one device to another, so that a path can be named for it; each row of
    `copies` names its own."""
    transport: Literal["nccl", "library", "verbs", "none"] = "none"
    """Who moves the data: NCCL, a library with transports of its own (MPI, UCX, NIXL), or verbs of one NIC alone."""
    both_ways: bool = False
    """Whether the rates are sums of both directions."""
    from_gpu: bool = False
    """Whether the data comes from a GPU's memory. If the table does not say, it is host memory."""
    to_gpu: bool = False


def is_gpu_memory(word: object) -> bool:
    """Whether a tool's word for an end of a transfer means a GPU's memory."""
    return str(word).lower() in _GPU_WORDS
