"""What the rows of another tool's table are about. Every reader says it, so that whoever judges needs no names."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["collective", "exchange", "messages", "copies", "files", "memory", "linpack", "other"]
_GPU_WORDS = ("vram", "cuda", "d", "device", "gpu")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of thing that was measured, which decides what the rows are held against."""

    kind: Kind = "other"
    """`messages` are a stream from one device to another; each row of `copies` names its own path. An `exchange` is a
    collective of MPI, whose times are judged and not its rates."""
    operation: str = ""
    """What an exchange does, as NCCL calls it: `all_reduce`."""
    of_each_rank: bool = False
    """Whether the size of an exchange is what one rank has for each other, and not that of all together."""
    transport: Literal["nccl", "library", "verbs", "sockets", "none"] = "none"
    """Who moves the data: NCCL, a library with transports of its own (MPI, UCX, NIXL), verbs of one NIC, or TCP."""
    both_ways: bool = False
    """Whether the rates are sums of both directions."""
    one_at_a_time: bool = False
    """Whether each message waits for the one before it, so that its latency is in the rate."""
    between_two: bool = False
    """Whether the rows are of two devices though they are no stream: latencies, rates of messages, atomics."""
    from_gpu: bool = False
    """Whether the data comes from a GPU's memory. If the table does not say, it is host memory."""
    to_gpu: bool = False
    pages: Literal["small", ""] = ""
    """Of messages between two processes: the pages that their buffers in host memory lie on, where that is known."""

    @property
    def takes_path(self) -> bool:
        """Whether a path from one device to another can be named for it."""
        return self.kind == "messages" or self.between_two


def is_gpu_memory(word: object) -> bool:
    """Whether a tool's word for an end of a transfer means a GPU's memory."""
    return str(word).lower() in _GPU_WORDS
