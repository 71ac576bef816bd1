"""Options of the NCCL benchmarks, and the sizes, launches and plan that follow from them.

Sizes, rates and rounding are nccl-tests' (`railwright.busbw`, `*GetCollByteCount` in its sources).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.nccl import gpus as nccl_gpus
from railwright.benchmarks.nccl.gpus import AUTO, GPUS_HELP, LIBRARY_HELP, Gpus, parse_gpus, parse_library
from railwright.benchmarks.nccl.subgroups import ALL, AMONG, list_rounds
from railwright.benchmarks.options import Options, choice, option, yes_or_no
from railwright.busbw import PER_RANK_COUNTED, busbw_factor
from railwright.errors import UsageError
from railwright.units import GIB, MIB, format_duration, format_size, parse_sizes

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

_LEAST_GPUS = _SEVERAL = 2
_ALIGNED_FLOATS = 4  # a share is a multiple of 16 bytes
_LARGE_BYTES = 64 * MIB
_SAMPLES, _SAMPLES_OF_LARGE = 5, 3

# For the plan, on the slow side: NCCL's start, an operation's time, and its rate over PCIe.
_ESTIMATE_START_S = 4.0
_ESTIMATE_START_OF_A_GPU_S = 0.5
_ESTIMATE_OPERATION_S = 50e-6
_ESTIMATE_BYTES_PER_S = 20e9
_HOST_BYTES = GIB  # of a process with CUDA and NCCL loaded
_LONGEST_S = 60.0
"""The longest time of a measurement over links of known rate, such as a lab's."""
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
    gpus: Gpus = option("all", GPUS_HELP, parse_gpus(1))
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
    among: tuple[str, ...] = option(
        ALL,
        "over several --hosts: all, pairs (of hosts), rails (one GPU of each host), growing (1, 2, 4 ... hosts)",
        choice(*AMONG),
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
    among: str = ALL

    @property
    def uses_threads(self) -> bool:
        """Whether the launch is one process with a thread per GPU."""
        return self.ranks_in == "threads"


NcclJob = Job[NcclOptions, Way]
NcclRank = Rank[NcclOptions, Way]


def launches(options: NcclOptions, machine: Machine) -> tuple[Launch[Way], ...]:
    """Return a launch for each launch method, kind of buffer, kind of group, and forced algorithm and protocol.

    Raises UsageError for options that contradict the hosts.
    """
    forced: list[tuple[str, ...]] = [(FREE,), (FREE,)]
    if isinstance(options, ForcedOptions):
        forced = [options.algorithms, options.protocols]
    named = [values != (FREE,) for values in forced]
    ids = options.gpus.of(machine)
    hosts = max(1, len(machine.hosts))
    each = nccl_gpus.count_on_host(machine, ids)
    _refuse_mixed(options, machine, len(ids), each)
    return tuple(
        Launch(
            case=Way(
                launched=launched,
                ranks_in=ranks_in,
                buffers=buffers,
                algorithm=algorithm if named[0] else "",
                protocol=protocol if named[1] else "",
                gpus=options.gpus.record_names,
                among=among,
            ),
            environment=dict(_list_variables(algorithm, protocol)),
            ranks=hosts if ranks_in == "threads" else max(1, each) * hosts,
            gpus=ids if machine.hosts_share_gpus else ids[:each],
        )
        for ranks_in, launched, buffers, among, algorithm, protocol in itertools.product(
            options.ranks_in, options.launched, options.buffers, options.among, *forced
        )
    )


def _list_variables(algorithm: str, protocol: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that force the algorithm and the protocol."""
    for variable, value in (("NCCL_ALGO", algorithm), ("NCCL_PROTO", protocol)):
        if value != FREE:
            yield variable, value


def _refuse_mixed(options: NcclOptions, machine: Machine, found: int, each: int) -> None:
    """Raise UsageError for options that need several hosts, or that a launch over several hosts does not have."""
    if not machine.hosts:
        if options.among != (ALL,):
            raise UsageError(f"among={','.join(options.among)} requires several hosts", hint="add --hosts HOST,HOST")
        if found == 1 and (options.gpus.first or options.gpus.names):
            raise UsageError(f"at least {_LEAST_GPUS} GPUs are needed in one host, got 1", hint="give -o gpus=2")
        return
    if "threads" in options.ranks_in:
        raise UsageError("ranks_in must be processes over several hosts, got threads", hint="leave out -o ranks_in=")
    if found and each > found and not machine.hosts_share_gpus:
        raise UsageError(f"a host has {found} GPUs for ranks, but {each} ranks are started on each",
                         hint=f"leave out --ranks-per-host, or give at most {found}")  # fmt: skip


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


def takes_too_long(operation: str, size: Size, ranks: int, job: NcclJob) -> str:
    """Return the reason why a size is not measured over links of known rate, or an empty string."""
    fabric = job.machine.fabric
    if fabric is None or len(job.hosts) < _SEVERAL:
        return ""
    seconds = OPERATIONS * float(busbw_factor(operation, ranks)) * size.size_bytes / fabric.ports_bytes_per_s
    if seconds <= _LONGEST_S:
        return ""
    size_text = format_size(size.size_bytes)
    return f"{size_text} would take {format_duration(seconds)} for {OPERATIONS} operations over {fabric.narrowest}"


def plan(operation: str, job: NcclJob) -> Plan:
    """Plan all sizes; the memory is the host's, because the GPUs' is limited to their free memory."""
    ranks = job.ranks if job.hosts else max(2, len(job.gpus))
    each = max(1, ranks // max(1, len(job.hosts)))
    rounds = list_rounds(job.case.among, len(job.hosts), each) if job.hosts else list_rounds(ALL, 1, ranks)
    start_s = _ESTIMATE_START_S + _ESTIMATE_START_OF_A_GPU_S * (each if job.hosts else ranks)
    seconds, moved, longest_s = start_s * len(rounds), 0, start_s
    for groups in rounds:
        largest = max(len(group.hosts) * len(group.gpus) for group in groups)
        for size in sizes(operation, job.options.sizes, largest):
            if takes_too_long(operation, size, largest, job):
                continue
            often = count_samples(size.size_bytes) * (OPERATIONS + 1) + 2
            one = float(busbw_factor(operation, largest)) * size.size_bytes
            step_s = often * (_ESTIMATE_OPERATION_S + one / _ESTIMATE_BYTES_PER_S)
            longest_s = max(longest_s, step_s)
            seconds += len(job.options.placements) * step_s
            moved += int(len(job.options.placements) * often * largest * len(groups) * one)
    return Plan(
        path=nccl_gpus.path(job),
        seconds=seconds,
        memory_bytes=each * _HOST_BYTES,
        moved_bytes=moved,
        waived=waiver_reason(job),
        longest_step_s=min(seconds, _FOURFOLD * longest_s),
    )


def waiver_reason(job: NcclJob) -> str:
    """Return the reason why the launch cannot run, as far as known without loading libraries."""
    reason = nccl_gpus.waiver_reason(job, 1 if job.hosts else _LEAST_GPUS)
    algorithm = job.case.algorithm
    if not reason and algorithm.startswith("NVLS") and nccl_gpus.nvls_is_off():
        needs = "" if algorithm == "NVLS" else f"{algorithm} needs NVLS: "
        return f"{needs}{nccl_gpus.NVLS_VARIABLE}=0 switches NVLS off"
    return reason
