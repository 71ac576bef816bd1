"""What the NCCL benchmarks can be asked for, and what follows from it before anything runs: sizes, launches, the plan.

Sizes, rates and rounding are nccl-tests' (`railwright.busbw`, `*GetCollByteCount` in its sources).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from railwright.benchmarks import gpu_job
from railwright.benchmarks.base import Job, Option, Plan, Variant, choice, one_of
from railwright.busbw import DIVIDED, factor
from railwright.errors import UsageError
from railwright.topology.model import Device, Scalar
from railwright.units import GIB, MIB, parse_sizes

FREE = "free"
ALGORITHMS = ("Ring", "Tree", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
OUT_OF_PLACE, IN_PLACE = "out of place", "in place"
UNDEFINED_IN_PLACE = frozenset({"all_to_all", "send_recv"})
"""NCCL defines no result for them in place; nccl-tests times them and checks nothing."""
WITHOUT_ALGORITHM = frozenset({"all_to_all", "send_recv"})
"""Made of sends and receives, for which NCCL chooses no algorithm and NCCL_ALGO and NCCL_PROTO say nothing."""
FLOAT_BYTES = 4
OPERATIONS = 20
"""In one measurement, as nccl-tests' -n."""
LIBRARY_AUTO = "auto"
NVLS_VARIABLE = "NCCL_NVLS_ENABLE"

_ALIGNED_FLOATS = 4  # a share is a multiple of 16 bytes
_ALL = "all"
_MOST_GPUS = 72
_LARGE_BYTES = 64 * MIB
_SAMPLES, _SAMPLES_OF_LARGE = 5, 3

# For the plan, on the slow side: what NCCL needs to start, what an operation takes, what it moves over PCIe.
_ESTIMATE_START_S = 4.0
_ESTIMATE_START_OF_A_GPU_S = 0.5
_ESTIMATE_OPERATION_S = 50e-6
_ESTIMATE_BYTES_PER_S = 20e9
_HOST_BYTES = GIB  # of a process with CUDA and NCCL loaded


class Size(NamedTuple):
    """One operation's size in floats (as NCCL's function takes them) and in bytes."""

    floats: int
    size_bytes: int
    """As nccl-tests counts it."""
    sent_bytes: int
    received_bytes: int


def samples_of(size_bytes: int) -> int:
    """How many measurements there are of one size."""
    return _SAMPLES if size_bytes < _LARGE_BYTES else _SAMPLES_OF_LARGE


def _gpus_option(text: str) -> int:
    """How many GPUs, 0 for all. Raises UsageError."""
    if text == _ALL:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > 2 or not 2 <= int(text) <= _MOST_GPUS:
        raise UsageError(f"not {_ALL!r} or a whole number from 2 to {_MOST_GPUS}: {text[:40]!r}")
    return int(text)


def _library_option(text: str) -> str:
    if not text or "\0" in text or len(text) > 4096:
        raise UsageError(f"not a path of a library: {text[:40]!r}")
    return text


def options(operation: str, sizes: str) -> tuple[Option, ...]:
    """The options of one operation's benchmark."""
    placements = OUT_OF_PLACE if operation in UNDEFINED_IN_PLACE else f"{OUT_OF_PLACE},{IN_PLACE}"
    forced = (
        Option("algorithms", FREE, f"free (NCCL's own choice), {', '.join(ALGORITHMS)}", choice(FREE, *ALGORITHMS)),
        Option("protocols", FREE, f"free (NCCL's own choice), {', '.join(PROTOCOLS)}", choice(FREE, *PROTOCOLS)),
    )
    return (
        Option("sizes", sizes, "sizes of the operation, like 8:8G:x2", parse_sizes),
        Option("gpus", _ALL, "all, or the first so many GPUs", _gpus_option),
        Option("placements", placements, "out of place, in place", choice(OUT_OF_PLACE, IN_PLACE)),
        Option("ranks_in", "processes", "processes (one for each GPU), threads (of one process)",
               choice("processes", "threads")),
        Option("launched", "plain", "plain, graph (the operations as one CUDA graph)", choice("plain", "graph")),
        Option("buffers", "plain", "plain, registered, symmetric (windows, NCCL 2.27)",
               choice("plain", "registered", "symmetric")),
        *(() if operation in WITHOUT_ALGORITHM else forced),
        Option("evidence", "yes", "yes: NCCL's own log of an untimed operation tells what it chose; no",
               one_of("yes", "no")),
        Option("library", LIBRARY_AUTO, "auto, or the path of a libnccl.so.2", _library_option),
    )  # fmt: skip


def variants(settled: Mapping[str, str]) -> tuple[Variant, ...]:
    """One launch for each way to launch, to hold buffers, and to force an algorithm and a protocol."""
    ways = (
        choice("processes", "threads")(settled["ranks_in"]),
        choice("plain", "graph")(settled["launched"]),
        choice("plain", "registered", "symmetric")(settled["buffers"]),
        choice(FREE, *ALGORITHMS)(settled.get("algorithms", FREE)),
        choice(FREE, *PROTOCOLS)(settled.get("protocols", FREE)),
    )
    return tuple(_variant(settled, *way) for way in itertools.product(*ways))


def _variant(
    settled: Mapping[str, str], ranks_in: str, launched: str, buffers: str, algorithm: str, protocol: str
) -> Variant:
    parameters: dict[str, Scalar] = {"launched": launched, "ranks_in": ranks_in}
    if buffers != "plain":
        parameters["buffers"] = buffers
    environment = {}
    for name, variable, value in (("algorithm", "NCCL_ALGO", algorithm), ("protocol", "NCCL_PROTO", protocol)):
        if settled.get(f"{name}s", FREE) != FREE:
            parameters[name] = value
        if value != FREE:
            environment[variable] = value
    return Variant(parameters=parameters, environment=environment)


def in_threads(job: Job) -> bool:
    """Whether the launch is one process with a thread for each GPU."""
    return job.variant.parameters["ranks_in"] == "threads"


def gpus_of(job: Job) -> tuple[Device, ...]:
    """The GPUs of the launch, one for each rank of NCCL's."""
    return job.gpus[: _gpus_option(job.options["gpus"]) or None]


def processes(job: Job) -> int:
    """How many processes the launch has."""
    return 1 if in_threads(job) else max(1, len(gpus_of(job)))


def sizes(operation: str, job: Job, ranks: int) -> tuple[Size, ...]:
    """What is asked for, each size once, in whole floats; a share of a rank is a multiple of 16 bytes."""
    found = (size_of(operation, size, ranks) for size in parse_sizes(job.options["sizes"]))
    return tuple({size.floats: size for size in found}.values())


def size_of(operation: str, size_bytes: int, ranks: int) -> Size:
    """A size rounded down as nccl-tests does, at least one float or one multiple of 16 bytes for each rank."""
    if operation not in DIVIDED:
        count = max(1, size_bytes // FLOAT_BYTES)
        whole = count * FLOAT_BYTES
        return Size(count, whole, whole, whole)
    count = max(1, size_bytes // FLOAT_BYTES // ranks // _ALIGNED_FLOATS) * _ALIGNED_FLOATS
    share = count * FLOAT_BYTES
    whole = share * ranks
    sent, received = {"all_gather": (share, whole), "reduce_scatter": (whole, share)}.get(operation, (whole, whole))
    return Size(count, whole, sent, received)


def path(job: Job) -> str:
    """From the first rank's GPU to the last one's."""
    gpus = gpus_of(job)
    return f"{gpus[0].id}>{gpus[-1].id}" if gpus else "gpu0>gpu1"


def plan(operation: str, job: Job) -> Plan:
    """The plan of all sizes; the memory is the host's: on the GPUs no more is taken than what is free there."""
    ranks = max(2, len(gpus_of(job)))
    placements = len(choice(OUT_OF_PLACE, IN_PLACE)(job.options["placements"]))
    seconds, moved = _ESTIMATE_START_S + _ESTIMATE_START_OF_A_GPU_S * ranks, 0
    for size in sizes(operation, job, ranks):
        often = placements * (samples_of(size.size_bytes) * (OPERATIONS + 1) + 2)
        one = float(factor(operation, ranks)) * size.size_bytes
        seconds += often * (_ESTIMATE_OPERATION_S + one / _ESTIMATE_BYTES_PER_S)
        moved += int(often * ranks * one)
    return Plan(
        path=path(job),
        seconds=seconds,
        memory_bytes=processes(job) * _HOST_BYTES,
        moved_bytes=moved,
        waived=waived(job),
    )


def waived(job: Job) -> str:
    """Why the launch cannot be, as far as that is known without loading anything."""
    reason = gpu_job.waived(job, _gpus_option(job.options["gpus"]) or 2)
    if reason:
        return reason
    library = job.options["library"]
    if library != LIBRARY_AUTO and not Path(library).exists():
        return f"there is no NCCL at {library}"
    algorithm = str(job.variant.parameters.get("algorithm", ""))
    if algorithm.startswith("NVLS") and nvls_is_off():
        return f"{algorithm} needs NVLS, which {NVLS_VARIABLE}=0 switches off"
    return ""


def nvls_is_off() -> bool:
    """Whether the environment forbids multicast over NVLink; nothing here ever allows it again."""
    return os.environ.get(NVLS_VARIABLE) == "0"
