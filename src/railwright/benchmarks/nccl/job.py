"""What every benchmark that runs NCCL asks of its job: which GPUs, which library, which CPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import structs

from railwright.benchmarks.base import Job, Option, Variant
from railwright.benchmarks.gpu import job as gpu_job
from railwright.errors import UsageError, unknown_name
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.gpus import nvidia_gpus, why_unusable
from railwright.topology.model import Device, Scalar

AUTO = "auto"
NVLS_VARIABLE = "NCCL_NVLS_ENABLE"

_ALL = "all"
_MOST_GPUS = 72
_MOST_TEXT = _MOST_GPUS * len("gpu71, ")
_GPU = re.compile(r"gpu(0|[1-9][0-9]{0,3})")


def gpus_option(least: int) -> Option:
    """Which GPUs: at least so many, by their number or by their names."""
    return Option("gpus", _ALL, "all, the first so many, or by name like gpu2,gpu5", _gpus_from(least))


def _gpus_from(least: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        names = _names(text)
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{name} is named {names.count(name)} times")
        if names and len(names) < least:
            raise UsageError(f"{len(names)} GPU is named, at least {least} are needed")
        whole = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_GPUS))
        if text != _ALL and not names and not (whole and least <= int(text) <= _MOST_GPUS):
            what = f"{_ALL!r}, a whole number from {least} to {_MOST_GPUS}, or GPUs by name like gpu2,gpu5"
            raise UsageError(f"not {what}: {text[:40]!r}")

    return check


def _names(text: str) -> tuple[str, ...]:
    """The GPUs that the option names, in its order; none where it is a number or `all`, or cannot be read."""
    parts = tuple(part.strip() for part in text.split(",")) if len(text) <= _MOST_TEXT else ()
    return parts if all(_GPU.fullmatch(part) for part in parts) else ()


def with_gpus(settled: Mapping[str, str], variant: Variant) -> Variant:
    """The variant on the GPUs that the option names; they are varied then, and so stand in every record."""
    names = _names(settled["gpus"])
    if not names:
        return variant
    return structs.replace(variant, gpus=names, parameters={**variant.parameters, "gpus": ",".join(names)})


def _check_library(text: str) -> None:
    if not text or "\0" in text or len(text) > 4096:
        raise UsageError(f"not a path of a library: {text[:40]!r}")


LIBRARY_OPTION = Option("library", AUTO, f"{AUTO}, or the path of a libnccl.so.2", _check_library)


def named_library(job: Job) -> str:
    """The library that the user named, empty where NCCL is to be looked for."""
    library = job.options["library"]
    return "" if library == AUTO else library


def gpus_of(job: Job) -> tuple[Device, ...]:
    """The GPUs of the launch, one for each rank of NCCL's."""
    wanted = job.options["gpus"]
    return job.gpus if wanted == _ALL or _names(wanted) else job.gpus[: int(wanted)]


def in_threads(job: Job) -> bool:
    """Whether the launch is one process with a thread for each GPU."""
    return job.variant.parameters.get("ranks_in") == "threads"


def processes(job: Job) -> int:
    """How many processes the launch has."""
    return 1 if in_threads(job) else max(1, len(gpus_of(job)))


def path(job: Job) -> str:
    """From the first rank's GPU to the last one's."""
    gpus = gpus_of(job)
    return f"{gpus[0].id}>{gpus[-1].id}" if gpus else "gpu0>gpu1"


def waived(job: Job, least: int) -> str:
    """Why the launch cannot be, as far as that is known without loading anything; empty where it can.

    Raises UsageError where a GPU is named that the machine, which has some, has not.
    """
    wanted, library = job.options["gpus"], named_library(job)
    names = _names(wanted)
    reason = _why_not(job, names) if names else gpu_job.waived(job, least if wanted == _ALL else int(wanted))
    if not reason and library and not Path(library).exists():
        return f"there is no NCCL at {library}"
    return reason


def _why_not(job: Job, names: tuple[str, ...]) -> str:
    """Why GPUs that were named cannot be used; empty where they can. Raises UsageError for one that is not there."""
    found = {gpu.id: gpu for gpu in nvidia_gpus(job.topology)}
    if not found:
        return gpu_job.waived(job)
    for name in names:
        if name not in found:
            raise unknown_name("GPU", name, found)
    return "; ".join(why for name in names if (why := why_unusable(found[name])))


def widen(job: Job, rank: int | None) -> str:
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
