"""What every benchmark that runs NCCL asks of its machine: which GPUs, which library, which CPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from railwright.benchmarks.benchmark import AnyJob, AnyRank
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.job import Machine
from railwright.benchmarks.options import is_whole
from railwright.benchmarks.together import on_all
from railwright.errors import UsageError, unknown_name
from railwright.native import cuda
from railwright.native.nccl import Team
from railwright.native.nccl_library import Library
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.devices import Scalar
from railwright.topology.gpus import nvidia_gpus, why_unusable

AUTO = "auto"
NVLS_VARIABLE = "NCCL_NVLS_ENABLE"
GPUS_HELP = "all, the first so many, or by name like gpu2,gpu5"
LIBRARY_HELP = f"{AUTO}, or the path of a libnccl.so.2"

_ALL = "all"
_MOST_GPUS = 72
_MOST_TEXT = _MOST_GPUS * len("gpu71, ")
_GPU = re.compile(r"gpu(0|[1-9][0-9]{0,3})")


class Gpus(NamedTuple):
    """Which GPUs were asked for: the first so many, those with these names, or all of them."""

    first: int = 0
    names: tuple[str, ...] = ()

    @property
    def in_records(self) -> str:
        """The names as they stand in a record; nothing where none was named."""
        return ",".join(self.names)

    def of(self, machine: Machine) -> tuple[str, ...]:
        """Their ids. Raises UsageError where one is named that the machine, which has some, has not."""
        usable = gpu_job.usable_of(machine)
        if not self.names:
            return usable[: self.first] if self.first else usable
        found = {gpu.id: gpu for gpu in nvidia_gpus(machine.topology)}
        for name in self.names:
            if found and name not in found:
                raise unknown_name("GPU", name, found)
        return self.names


def parse_gpus(least: int) -> Callable[[str], Gpus]:
    """A parser of GPUs: at least so many, by their number or by their names."""

    def parse(text: str) -> Gpus:
        names = _names(text)
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{name} is named {names.count(name)} times")
        if names and len(names) < least:
            raise UsageError(f"{len(names)} GPU is named, at least {least} are needed")
        if names or text == _ALL:
            return Gpus(names=names)
        if not is_whole(text, _MOST_GPUS, least):
            what = f"{_ALL!r}, a whole number from {least} to {_MOST_GPUS}, or GPUs by name like gpu2,gpu5"
            raise UsageError(f"not {what}: {text[:40]!r}")
        return Gpus(first=int(text))

    return parse


def _names(text: str) -> tuple[str, ...]:
    """The GPUs that the text names, in its order; none where it is a number or `all`, or cannot be read."""
    parts = tuple(part.strip() for part in text.split(",")) if len(text) <= _MOST_TEXT else ()
    return parts if all(_GPU.fullmatch(part) for part in parts) else ()


def parse_library(text: str) -> str:
    """The path of the library that is named; empty where NCCL is to be looked for. Raises UsageError."""
    if not text or "\0" in text or len(text) > 4096:
        raise UsageError(f"not a path of a library: {text[:40]!r}")
    return "" if text == AUTO else text


def path(job: AnyJob) -> str:
    """From the first rank's GPU to the last one's."""
    gpus = job.gpus
    return f"{gpus[0].id}>{gpus[-1].id}" if gpus else "gpu0>gpu1"


def waived(job: AnyJob, least: int) -> str:
    """Why the launch cannot be, as far as that is known without loading anything; empty where it can."""
    asked, library = job.options.gpus, job.options.library
    reason = _why_not(job, asked.names) if asked.names else gpu_job.waived(job, asked.first or least)
    if not reason and library and not Path(library).exists():
        return f"there is no NCCL at {library}"
    return reason


def _why_not(job: AnyJob, names: tuple[str, ...]) -> str:
    """Why GPUs that were named cannot be used; empty where they can."""
    found = {gpu.id: gpu for gpu in nvidia_gpus(job.topology)}
    if not found:
        return gpu_job.waived(job)
    return "; ".join(why for name in names if (why := why_unusable(found[name])))


def opened(rank: AnyRank) -> tuple[cuda.Device, Library]:
    """This rank's GPU and NCCL. Raises Unavailable, on all ranks alike, where one of them has not both. Collective."""
    rank.step("CUDA")
    device = on_all(rank, lambda: cuda.Device(rank.job.gpu_of(rank.comm.rank).address))
    rank.step("load NCCL")
    return device, on_all(rank, lambda: Library(rank.job.options.library))


def connected(rank: AnyRank, device: cuda.Device, library: Library) -> Team:
    """A communicator of all ranks, each a process with a GPU. Collective."""
    rank.step("ncclCommInitRank")
    unique_id = rank.comm.bcast(library.unique_id() if rank.index == 0 else b"")
    return Team(library, [device], "all_reduce", unique_id, comm=rank.comm)


def widen(job: AnyJob, rank: int | None) -> str:
    """Let this process use every CPU near its rank's GPU (without a rank, of the job), and say which those are.

    NCCL's own threads run beside its first one, as they do beside nccl-tests, which is bound to no CPU.
    """
    near = () if rank is None else job.cpus_near(job.gpu_of(rank))
    cpus = near or job.cpus
    os.sched_setaffinity(0, cpus)
    return format_cpu_list(cpus)


def nvls_is_off() -> bool:
    """Whether the environment forbids multicast over NVLink; nothing here ever allows it again."""
    return os.environ.get(NVLS_VARIABLE) == "0"


def nvls_settings() -> dict[str, Scalar]:
    """That it is off, for the record; nothing where it is not."""
    return {"nvls": f"off ({NVLS_VARIABLE}=0)"} if nvls_is_off() else {}
