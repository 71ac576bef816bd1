"""What the NCCL benchmarks can be asked for, and what follows from it before anything runs: sizes, launches, the plan.

Sizes, rates and rounding are nccl-tests' (`railwright.busbw`, `*GetCollByteCount` in its sources).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from railwright.benchmarks.base import Job, Option, Plan, Variant, choice, one_of
from railwright.benchmarks.nccl import job as nccl_job
from railwright.busbw import DIVIDED, factor
from railwright.topology.model import Scalar
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

_LEAST_GPUS = 2
_ALIGNED_FLOATS = 4  # a share is a multiple of 16 bytes
_LARGE_BYTES = 64 * MIB
_SAMPLES, _SAMPLES_OF_LARGE = 5, 3

# For the plan, on the slow side: what NCCL needs to start, what an operation takes, what it moves over PCIe.
_ESTIMATE_START_S = 4.0
_ESTIMATE_START_OF_A_GPU_S = 0.5
_ESTIMATE_OPERATION_S = 50e-6
_ESTIMATE_BYTES_PER_S = 20e9
_HOST_BYTES = GIB  # of a process with CUDA and NCCL loaded
_FOURFOLD = 4
"""A quarter of what is moved over PCIe, as through host memory of the other socket, is slow and no hang."""


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


def options(operation: str, sizes: str) -> tuple[Option, ...]:
    """The options of one operation's benchmark."""
    placements = OUT_OF_PLACE if operation in UNDEFINED_IN_PLACE else f"{OUT_OF_PLACE},{IN_PLACE}"
    forced = (
        Option("algorithms", FREE, f"free (NCCL's own choice), {', '.join(ALGORITHMS)}", choice(FREE, *ALGORITHMS)),
        Option("protocols", FREE, f"free (NCCL's own choice), {', '.join(PROTOCOLS)}", choice(FREE, *PROTOCOLS)),
    )
    return (
        Option("sizes", sizes, "sizes of the operation, like 8:8G:x2", parse_sizes),
        nccl_job.gpus_option(_LEAST_GPUS),
        Option("placements", placements, "out of place, in place", choice(OUT_OF_PLACE, IN_PLACE)),
        Option("ranks_in", "processes", "processes (one for each GPU), threads (of one process)",
               choice("processes", "threads")),
        Option("launched", "plain", "plain, graph (the operations as one CUDA graph)", choice("plain", "graph")),
        Option("buffers", "plain", "plain, registered, symmetric (windows, NCCL 2.27)",
               choice("plain", "registered", "symmetric")),
        *(() if operation in WITHOUT_ALGORITHM else forced),
        Option("evidence", "yes", "yes: NCCL's own log of an untimed operation tells what it chose; no",
               one_of("yes", "no")),
        nccl_job.LIBRARY_OPTION,
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
    return tuple(nccl_job.with_gpus(settled, _variant(settled, *way)) for way in itertools.product(*ways))


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


def plan(operation: str, job: Job) -> Plan:
    """The plan of all sizes; the memory is the host's: on the GPUs no more is taken than what is free there."""
    ranks = max(2, len(nccl_job.gpus_of(job)))
    placements = len(choice(OUT_OF_PLACE, IN_PLACE)(job.options["placements"]))
    seconds, moved = _ESTIMATE_START_S + _ESTIMATE_START_OF_A_GPU_S * ranks, 0
    longest_s = seconds
    for size in sizes(operation, job, ranks):
        often = samples_of(size.size_bytes) * (OPERATIONS + 1) + 2
        one = float(factor(operation, ranks)) * size.size_bytes
        step_s = often * (_ESTIMATE_OPERATION_S + one / _ESTIMATE_BYTES_PER_S)
        longest_s = max(longest_s, step_s)
        seconds += placements * step_s
        moved += int(placements * often * ranks * one)
    return Plan(
        path=nccl_job.path(job),
        seconds=seconds,
        memory_bytes=nccl_job.processes(job) * _HOST_BYTES,
        moved_bytes=moved,
        waived=waived(job),
        longest_step_s=min(seconds, _FOURFOLD * longest_s),
    )


def waived(job: Job) -> str:
    """Why the launch cannot be, as far as that is known without loading anything."""
    reason = nccl_job.waived(job, _LEAST_GPUS)
    algorithm = str(job.variant.parameters.get("algorithm", ""))
    if not reason and algorithm.startswith("NVLS") and nccl_job.nvls_is_off():
        needs = "" if algorithm == "NVLS" else f"{algorithm} needs NVLS: "
        return f"{needs}{nccl_job.NVLS_VARIABLE}=0 switches NVLS off"
    return reason
