"""NCCL benchmarks' choice of GPUs, library and CPUs."""

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
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import UsageError, unknown_name
from railwright.native import cuda
from railwright.native.nccl import Team
from railwright.native.nccl_library import Library
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.devices import Scalar
from railwright.topology.gpus import nvidia_gpus, why_unusable

AUTO = "auto"
NVLS_VARIABLE = "NCCL_NVLS_ENABLE"
GPUS_HELP = "all, a number (the first GPUs), or names like gpu2,gpu5"
LIBRARY_HELP = f"{AUTO}, or the path of a libnccl.so.2"

_ALL = "all"
_MOST_GPUS = 72
_MOST_TEXT = _MOST_GPUS * len("gpu71, ")
_GPU = re.compile(r"gpu(0|[1-9][0-9]{0,3})")


class Gpus(NamedTuple):
    """The requested GPUs: the first few, some by name, or all."""

    first: int = 0
    names: tuple[str, ...] = ()

    @property
    def record_names(self) -> str:
        """The names for a record; empty if none were given."""
        return ",".join(self.names)

    def of(self, machine: Machine) -> tuple[str, ...]:
        """Return the ids of the GPUs. Raises UsageError for a name that the machine does not have."""
        usable = gpu_job.list_usable(machine)
        if not self.names:
            return usable[: self.first] if self.first else usable
        found = {gpu.id: gpu for gpu in nvidia_gpus(machine.topology)}
        for name in self.names:
            if found and name not in found:
                raise unknown_name("GPU", name, found)
        return self.names


def parse_gpus(least: int) -> Callable[[str], Gpus]:
    """Return a parser of at least `least` GPUs, by number or by name."""

    def parse(text: str) -> Gpus:
        names = _parse_names(text)
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{name} is named {names.count(name)} times")
        if names and len(names) < least:
            raise UsageError(f"at least {least} GPUs are needed, got {len(names)}")
        if names or text == _ALL:
            return Gpus(names=names)
        if not is_whole(text, _MOST_GPUS, least):
            what = f"{_ALL!r}, a whole number from {least} to {_MOST_GPUS}, or GPUs by name like gpu2,gpu5"
            raise UsageError(f"must be {what}, got {text[:40]!r}")
        return Gpus(first=int(text))

    return parse


def _parse_names(text: str) -> tuple[str, ...]:
    """Return the GPUs named in the text, in order; empty for a number, `all` or invalid text."""
    parts = tuple(part.strip() for part in text.split(",")) if len(text) <= _MOST_TEXT else ()
    return parts if all(_GPU.fullmatch(part) for part in parts) else ()


def parse_library(text: str) -> str:
    """Parse the path of a library, or return an empty string to search for NCCL. Raises UsageError."""
    if not text or "\0" in text or len(text) > 4096:
        raise UsageError(f"must be the path of a library, got {text[:40]!r}")
    return "" if text == AUTO else text


def count_on_host(machine: Machine, ids: tuple[str, ...]) -> int:
    """Return the number of ranks on each host: one for each GPU, or as many as the user gave.

    Hosts that are namespaces of one machine share its GPUs out.
    """
    if not machine.hosts:
        return len(ids)
    if machine.ranks_per_host > 1:
        return machine.ranks_per_host
    return max(1, len(ids) // len(machine.hosts)) if machine.hosts_share_gpus else len(ids)


def path(job: AnyJob, ranks: tuple[int, ...] = ()) -> str:
    """Return the path from the first rank's GPU to the last one's: `gpu0>gpu7`, between hosts `gpu0@0>gpu7@1`.

    `ranks` are those of a group, by default all. Hosts are numbered within the group.
    """
    gpus = job.gpus
    if not job.hosts or not gpus:
        return f"{gpus[0].id}>{gpus[-1].id}" if gpus else "gpu0>gpu1"
    each = job.ranks // len(job.hosts)
    among = ranks or tuple(range(job.ranks))
    hosts = list(dict.fromkeys(rank // each for rank in among))
    first, last = job.find_gpu(among[0]).id, job.find_gpu(among[-1]).id
    return f"{first}@0>{last}@{len(hosts) - 1}" if len(hosts) > 1 else f"{first}>{last}"


def tell_hosts_apart(job: AnyJob, rank: int) -> dict[str, Scalar]:
    """Make NCCL take namespaces of one machine for hosts; returns the variables for the record. Call it before NCCL.

    NCCL would otherwise connect them through the machine's own memory.
    """
    if not job.hosts or not job.machine.hosts_share_gpus:
        return {}
    os.environ["NCCL_HOSTID"] = job.hosts[rank * len(job.hosts) // job.ranks]
    os.environ["NCCL_MNNVL_ENABLE"] = "0"
    return {"hosts_in_one_machine": True}


def waiver_reason(job: AnyJob, least: int) -> str:
    """Return the reason why the launch cannot run, as far as known without loading libraries, or an empty string."""
    asked, library = job.options.gpus, job.options.library
    reason = _find_problem(job, asked.names) if asked.names else gpu_job.waiver_reason(job, asked.first or least)
    if not reason and library and not Path(library).exists():
        return f"there is no NCCL at {library}"
    return reason


def _find_problem(job: AnyJob, names: tuple[str, ...]) -> str:
    """Return the reason why named GPUs cannot be used, or an empty string."""
    found = {gpu.id: gpu for gpu in nvidia_gpus(job.topology)}
    if not found:
        return gpu_job.waiver_reason(job)
    return "; ".join(why for name in names if (why := why_unusable(found[name])))


def open_gpu_and_nccl(rank: AnyRank) -> tuple[cuda.Device, Library]:
    """Open this rank's GPU and NCCL. Raises Unavailable on all ranks if one of them lacks either. Collective."""
    rank.step("CUDA")
    device = open_on_all_ranks(rank, lambda: cuda.Device(rank.job.find_gpu(rank.comm.rank).address))
    rank.step("load NCCL")
    return device, open_on_all_ranks(rank, lambda: Library(rank.job.options.library))


def connect_ranks(rank: AnyRank, device: cuda.Device, library: Library) -> Team:
    """Connect all ranks, each a process with a GPU, in a communicator. Collective."""
    rank.step("ncclCommInitRank")
    unique_id = rank.comm.bcast(library.unique_id() if rank.index == 0 else b"")
    return Team(library, [device], "all_reduce", unique_id, comm=rank.comm)


def bind_near_gpu(job: AnyJob, rank: int | None) -> str:
    """Bind this process to all CPUs near its rank's GPU (or the job's, without a rank), and return them as text.

    NCCL's own threads need other CPUs than the first thread's. nccl-tests is not bound either. On a host of several the
    process may use all CPUs, since the job's are those of the parent's host.
    """
    if job.hosts and not job.machine.hosts_share_gpus:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        return "all"
    near = () if rank is None else job.list_gpu_cpus(job.find_gpu(rank))
    cpus = near or job.cpus
    os.sched_setaffinity(0, cpus)
    return format_cpu_list(cpus)


def nvls_is_off() -> bool:
    """Report whether the environment disables multicast over NVLink (NVLS), which Railwright never enables again."""
    return os.environ.get(NVLS_VARIABLE) == "0"


def nvls_settings() -> dict[str, Scalar]:
    """Return a record's note that NVLS is off, or nothing."""
    return {"nvls": f"off ({NVLS_VARIABLE}=0)"} if nvls_is_off() else {}
