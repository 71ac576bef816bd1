"""Buffers of MPI benchmarks in host or GPU memory, and UCX's word on how an MPI moved those of a GPU.

Only an MPI built for CUDA takes buffers in GPU memory, and chooses its own way for them. Its UCX, if it has one, logs
the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railwright.benchmarks.benchmark import AnyJob, AnyRank
from railwright.benchmarks.evidence import ucx_message_evidence
from railwright.benchmarks.gpu.job import find_address, list_usable, waiver_reason
from railwright.benchmarks.job import Case, Launch, Machine
from railwright.benchmarks.options import choice, option
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import CannotJudge
from railwright.native import mpi
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.memory import Buffer
from railwright.results.records import Evidence

HOST, GPU = "host", "gpu"
ANY = "any"
"""The transport of a launch that leaves the choice to the MPI."""
MEMORY_OPTION = option(HOST, "memory of the buffers: host, gpu (an MPI built for CUDA), or both", choice(HOST, GPU))


class Transport(Case, frozen=True, kw_only=True):
    """The transport of a launch's messages, and the memory of its buffers."""

    transport: str
    memory: str = HOST


def launch_on_gpus(machine: Machine, ranks: int) -> Launch[Transport]:
    """Return the launch whose ranks each have a GPU; hosts that share a machine's GPUs share them out."""
    names = list_usable(machine)
    each = ranks // max(1, len(machine.hosts))
    own = names if machine.hosts_share_gpus or not machine.hosts else names[:each] * max(1, len(machine.hosts))
    gpus = tuple(own[rank % len(own)] for rank in range(ranks)) if own else ()
    return Launch(case=Transport(transport=ANY, memory=GPU), ranks=ranks, gpus=gpus)


def explain_waiver(job: AnyJob) -> str:
    """Return the reason why a launch with GPU buffers cannot run here, or an empty string."""
    return waiver_reason(job) if job.case.memory == GPU else ""


def name_path(job: AnyJob, first: int, last: int) -> str:
    """Return the path between the buffers of two ranks: `memory0>memory1`, or `gpu0@0>gpu0@1` between hosts."""
    if job.case.memory == HOST or not job.gpus:
        return f"{job.find_memory(first)}>{job.find_memory(last)}"
    hosts = [f"@{rank * len(job.hosts) // job.ranks}" if job.hosts else "" for rank in (first, last)]
    return f"{job.find_gpu(first).id}{hosts[0]}>{job.find_gpu(last).id}{hosts[1]}"


def prepare_ucx(rank: AnyRank) -> None:
    """Set up the MPI's UCX for buffers in GPU memory, with a log of its protocols. Call it before MPI_Init.

    The cache of memory types in UCX misses what the driver's cuMemAlloc returns (UCX 1.22, driver 580). UCX takes the
    buffers for host memory then, and crashes. Without the cache UCX asks the driver for each message.
    """
    if rank.job.case.memory == GPU:
        os.environ.setdefault("UCX_MEMTYPE_CACHE", "n")
        os.environ.update({"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(_find_log(rank))})


def _find_log(rank: AnyRank) -> Path:
    return rank.scratch / f"mpi-ucx-{rank.index}.log"


@contextmanager
def open_gpu(rank: AnyRank) -> Iterator[Device | None]:
    """Open this rank's GPU, or nothing for host memory. Collective.

    Raises Unavailable on all ranks if one has no GPU or an MPI that does not take GPU memory.
    """
    if rank.job.case.memory == HOST:
        yield None
        return

    def open_device() -> Device:
        if not mpi.takes_gpu_memory():
            raise CannotJudge(f"{mpi.library_version()} does not take buffers in GPU memory")
        return Device(find_address(rank.job, rank.index))

    rank.step("CUDA")
    with open_on_all_ranks(rank, open_device) as device:
        device.make_current()  # the MPI library uses the context of its caller
        yield device


def list_evidence(rank: AnyRank, size_bytes: int) -> tuple[Evidence, ...]:
    """Return UCX's choice for messages of a size from GPU memory; nothing for host memory or without a log."""
    log = _find_log(rank)
    if rank.job.case.memory == HOST or not log.exists():
        return ()
    return (ucx_message_evidence(log, size_bytes),)


@contextmanager
def stage(buffer: Buffer | DeviceBuffer, size_bytes: int, *, back: bool) -> Iterator[Buffer]:
    """Give host memory for the contents of a buffer: the buffer itself, or a copy for GPU memory.

    The copy goes to the GPU when the context ends, or with `back` comes from it when the context begins.
    """
    if isinstance(buffer, Buffer):
        yield buffer
        return
    with Buffer(size_bytes) as copy:
        if back:
            buffer.copy_to(copy.address, size_bytes)
        yield copy
        if not back:
            buffer.copy_from(copy.address, size_bytes)
