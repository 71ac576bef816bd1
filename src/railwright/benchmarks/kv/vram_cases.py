"""Between which two memories `kv_vram` moves data, who posts it, and from how many processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from railwright.benchmarks.base import Job, Option, choice
from railwright.benchmarks.kv.transfer import Point
from railwright.benchmarks.kv.vram_pairs import GPU_TO_GPU
from railwright.native import nixl
from railwright.results.readers.ucx_protocols import Memories
from railwright.topology.model import Scalar

_ALL_LINKS = (GPU_TO_GPU, "gpu-host", "host-gpu")
"""Initiator's memory and the other one: the side that is named first posts."""
_LINKS = choice(*_ALL_LINKS)
_PROCESSES = choice("2", "1")
_HOSTS = choice("pinned", "pageable")

CASES = (
    Option("links", ",".join(_ALL_LINKS), "initiator-other, of gpu-gpu, gpu-host and host-gpu", _LINKS),
    Option("processes", "2,1", "2, 1 (one agent between memories of its own), or both", _PROCESSES),
    Option("host", "pinned", "host memory: pinned, pageable, or both", _HOSTS),
)


class Case(NamedTuple):
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

    def place(self, job: Job, buffer: str, rank: int) -> str:
        """The id of the device that holds a buffer of a rank."""
        if buffer == self.host:
            return job.memory_of(rank)
        return job.gpu_of(1 if buffer == "other gpu" else 0).id

    def path(self, job: Job, operation: nixl.Operation) -> str:
        """From where the data comes to where it goes."""
        other = 1 if self.processes == 2 else 0
        ours, theirs = self.place(job, self.ours, 0), self.place(job, self.theirs, other)
        return f"{ours}>{theirs}" if operation == "WRITE" else f"{theirs}>{ours}"

    def parameters(self, job: Job, point: Point) -> dict[str, Scalar]:
        """What was varied; the kind of host memory only where there is one."""
        kind: dict[str, Scalar] = {"host": self.host} if self.host else {}
        return {
            "size_bytes": point.size,
            "operation": point.operation,
            "initiator": self.place(job, self.ours, 0),
            "processes": self.processes,
            **kind,
        }


def cases(options: Mapping[str, str], gpus: int) -> list[Case]:
    """What the options ask for; GPU to GPU inside one process only where there are two GPUs."""
    return [
        Case(link, int(processes), host)
        for processes in _PROCESSES(options["processes"])
        for link in _LINKS(options["links"])
        for host in (("",) if link == GPU_TO_GPU else _HOSTS(options["host"]))
        if link != GPU_TO_GPU or processes == "2" or gpus > 1
    ]
