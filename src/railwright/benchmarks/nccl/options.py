"""Options of the NCCL benchmarks, and the sizes, launches and plan that follow from them.

Sizes, rates and rounding are nccl-tests' (`railwright.busbw`, `*GetCollByteCount` in its sources).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.nccl import gpus as nccl_gpus
from railwright.benchmarks.nccl.gpus import AUTO, GPUS_HELP, LIBRARY_HELP, Gpus, parse_gpus, parse_library
from railwright.benchmarks.options import Options, choice, option, yes_or_no
from railwright.busbw import PER_RANK_COUNTED, busbw_factor
from railwright.units import GIB, MIB, parse_sizes

FREE = "free"
ALGORITHMS = ("Ring", "Tree", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
OUT_OF_PLACE, IN_PLACE = "out of place", "in place"
OF_SENDS = frozenset({"all_to_all", "send_recv"})
"""Operations made of sends and receives.

NCCL chooses no algorithm for them, and NCCL_ALGO and NCCL_PROTO have no effect.

NCCL does not define their result in place either; nccl-tests times them there and checks nothing.
"""
FLOAT_BYTES = 4
OPERATIONS = 20
"""Operations in one measurement, as nccl-tests' -n."""

_LEAST_GPUS = 2
_ALIGNED_FLOATS = 4  # a share is a multiple of 16 bytes
_LARGE_BYTES = 64 * MIB
_SAMPLES, _SAMPLES_OF_LARGE = 5, 3

# For the plan, on the slow side: NCCL's start, an operation's time, and its rate over PCIe.
_ESTIMATE_START_S = 4.0
_ESTIMATE_START_OF_A_GPU_S = 0.5
_ESTIMATE_OPERATION_S = 50e-6
_ESTIMATE_BYTES_PER_S = 20e9
_HOST_BYTES = GIB  # of a process with CUDA and NCCL loaded
_FOURFOLD = 4
"""A quarter of the PCIe rate, as through host memory of the other socket, is slow but does not hang."""


class Size(NamedTuple):
    """An operation's size in floats (as NCCL's function takes them) and in bytes."""

    floats: int
    size_bytes: int
    """The size as nccl-tests counts it."""
    sent_bytes: int
    received_bytes: int


def count_samples(size_bytes: int) -> int:
    """Return the number of measurements of a size."""
    return _SAMPLES if size_bytes < _LARGE_BYTES else _SAMPLES_OF_LARGE


class NcclOptions(Options, frozen=True):
    """Options of an NCCL operation."""

    sizes: tuple[int, ...] = option("8,1M,1G", "sizes of the operation, like 8:8G:x2", parse_sizes)
    gpus: Gpus = option("all", GPUS_HELP, parse_gpus(_LEAST_GPUS))
    placements: tuple[str, ...] = option(
        f"{OUT_OF_PLACE},{IN_PLACE}", "out of place, in place", choice(OUT_OF_PLACE, IN_PLACE)
    )
    ranks_in: tuple[str, ...] = option(
        "processes",
        "processes (one for each GPU), threads (of one process)",
        choice("processes", "threads"),
        "ranks_in",
    )
    launched: tuple[str, ...] = option(
        "plain", "plain, graph (the operations as one CUDA graph)", choice("plain", "graph")
    )
    buffers: tuple[str, ...] = option(
        "plain", "plain, registered, symmetric (windows, NCCL 2.27)", choice("plain", "registered", "symmetric")
    )
    evidence: bool = option("yes", "yes: read NCCL's choice from its own log of an untimed operation; or no", yes_or_no)
    library: str = option(AUTO, LIBRARY_HELP, parse_library)


class ForcedOptions(NcclOptions, frozen=True):
    """Options of an operation whose algorithm and protocol can be forced."""

    algorithms: tuple[str, ...] = option(
        FREE, f"free (NCCL's own choice), {', '.join(ALGORITHMS)}", choice(FREE, *ALGORITHMS)
    )
    protocols: tuple[str, ...] = option(
        FREE, f"free (NCCL's own choice), {', '.join(PROTOCOLS)}", choice(FREE, *PROTOCOLS)
    )


class Way(Case, frozen=True, kw_only=True):
    """The parameters that a launch varies. Algorithm and protocol are named unless their option is `free` alone."""

    launched: str
    ranks_in: str
    buffers: str = "plain"
    algorithm: str = ""
    protocol: str = ""
    gpus: str = ""

    @property
    def uses_threads(self) -> bool:
        """Whether the launch is one process with a thread per GPU."""
        return self.ranks_in == "threads"


NcclJob = Job[NcclOptions, Way]
NcclRank = Rank[NcclOptions, Way]


def launches(options: NcclOptions, machine: Machine) -> tuple[Launch[Way], ...]:
    """Return a launch for each launch method, kind of buffer, and forced algorithm and protocol."""
    forced: list[tuple[str, ...]] = [(FREE,), (FREE,)]
    if isinstance(options, ForcedOptions):
        forced = [options.algorithms, options.protocols]
    named = [values != (FREE,) for values in forced]
    ids = options.gpus.of(machine)
    ways = itertools.product(options.ranks_in, options.launched, options.buffers, *forced)
    return tuple(
        Launch(
            case=Way(
                launched=launched,
                ranks_in=ranks_in,
                buffers=buffers,
                algorithm=algorithm if named[0] else "",
                protocol=protocol if named[1] else "",
                gpus=options.gpus.record_names,
            ),
            environment={
                variable: value
                for variable, value in (("NCCL_ALGO", algorithm), ("NCCL_PROTO", protocol))
                if value != FREE
            },
            ranks=1 if ranks_in == "threads" else max(1, len(ids)),
            gpus=ids,
        )
        for ranks_in, launched, buffers, algorithm, protocol in ways
    )


def sizes(operation: str, asked: tuple[int, ...], ranks: int) -> tuple[Size, ...]:
    """Return the requested sizes without duplicates, in whole floats; a rank's share is a multiple of 16 bytes."""
    found = (round_size(operation, size, ranks) for size in asked)
    return tuple({size.floats: size for size in found}.values())


def round_size(operation: str, size_bytes: int, ranks: int) -> Size:
    """Round a size down as nccl-tests does, to at least one float or one multiple of 16 bytes for each rank."""
    if operation not in PER_RANK_COUNTED:
        count = max(1, size_bytes // FLOAT_BYTES)
        whole = count * FLOAT_BYTES
        return Size(count, whole, whole, whole)
    count = max(1, size_bytes // FLOAT_BYTES // ranks // _ALIGNED_FLOATS) * _ALIGNED_FLOATS
    share = count * FLOAT_BYTES
    whole = share * ranks
    sent, received = {"all_gather": (share, whole), "reduce_scatter": (whole, share)}.get(operation, (whole, whole))
    return Size(count, whole, sent, received)


def plan(operation: str, job: NcclJob) -> Plan:
    """Plan all sizes; the memory is the host's, because the GPUs' is limited to their free memory."""
    ranks = max(2, len(job.gpus))
    placements = len(job.options.placements)
    seconds, moved = _ESTIMATE_START_S + _ESTIMATE_START_OF_A_GPU_S * ranks, 0
    longest_s = seconds
    for size in sizes(operation, job.options.sizes, ranks):
        often = count_samples(size.size_bytes) * (OPERATIONS + 1) + 2
        one = float(busbw_factor(operation, ranks)) * size.size_bytes
        step_s = often * (_ESTIMATE_OPERATION_S + one / _ESTIMATE_BYTES_PER_S)
        longest_s = max(longest_s, step_s)
        seconds += placements * step_s
        moved += int(placements * often * ranks * one)
    return Plan(
        path=nccl_gpus.path(job),
        seconds=seconds,
        memory_bytes=job.ranks * _HOST_BYTES,
        moved_bytes=moved,
        waived=waiver_reason(job),
        longest_step_s=min(seconds, _FOURFOLD * longest_s),
    )


def waiver_reason(job: NcclJob) -> str:
    """Return the reason why the launch cannot run, as far as known without loading libraries."""
    reason = nccl_gpus.waiver_reason(job, _LEAST_GPUS)
    algorithm = job.case.algorithm
    if not reason and algorithm.startswith("NVLS") and nccl_gpus.nvls_is_off():
        needs = "" if algorithm == "NVLS" else f"{algorithm} needs NVLS: "
        return f"{needs}{nccl_gpus.NVLS_VARIABLE}=0 switches NVLS off"
    return reason
