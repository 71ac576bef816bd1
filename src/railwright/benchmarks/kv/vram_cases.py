"""Between which two memories `kv_vram` moves data, who posts it, and from how many processes."""

from __future__ import annotations

from typing import NamedTuple

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.job import Case
from railwright.native import nixl
from railwright.results.readers.ucx.protocols import Memories

GPU_TO_GPU = "gpu-gpu"
LINKS = (GPU_TO_GPU, "gpu-host", "host-gpu")
"""Initiator's memory and the other one: the side that is named first posts."""


class VramCase(Case, frozen=True, kw_only=True):
    """A point as it stands in a record. The kind of host memory only where there is one."""

    size_bytes: int
    operation: nixl.Operation
    initiator: str
    processes: int
    host: str = ""


class Move(NamedTuple):
    """Two memories, and who moves data between them."""

    link: str
    processes: int
    host: str
    """`pinned` or `pageable`, empty where both are GPUs."""

    @property
    def ours(self) -> str:
        """The initiator's memory, `gpu` or the kind of host memory."""
        return self.host if self.link == "host-gpu" else "gpu"

    @property
    def theirs(self) -> str:
        """The other one: on rank 1, or in the same process on rank 0."""
        return self.host if self.link == "gpu-host" else "gpu" if self.link == "host-gpu" else "other gpu"

    @property
    def memories(self) -> Memories:
        """As UCX calls the local and the remote one."""
        return "host" if self.ours == self.host else "cuda", "host" if self.theirs == self.host else "cuda"

    def place(self, job: AnyJob, buffer: str, rank: int) -> str:
        """The id of the device that holds a buffer of a rank."""
        if buffer == self.host:
            return job.memory_of(rank)
        return job.gpu_of(1 if buffer == "other gpu" else 0).id

    def path(self, job: AnyJob, operation: nixl.Operation) -> str:
        """From where the data comes to where it goes."""
        other = 1 if self.processes == 2 else 0
        ours, theirs = self.place(job, self.ours, 0), self.place(job, self.theirs, other)
        return f"{ours}>{theirs}" if operation == "WRITE" else f"{theirs}>{ours}"

    def case(self, job: AnyJob, size_bytes: int, operation: nixl.Operation) -> VramCase:
        """What was varied at one point."""
        return VramCase(
            size_bytes=size_bytes,
            operation=operation,
            initiator=self.place(job, self.ours, 0),
            processes=self.processes,
            host=self.host,
        )
