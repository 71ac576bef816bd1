"""The parts that NCCL benchmarks share: the run of a launch, and the benchmark of an operation."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.nccl import gpus, options
from railwright.benchmarks.nccl.group import Group, Point, Refused
from railwright.benchmarks.nccl.network import Network
from railwright.benchmarks.nccl.options import NcclOptions, NcclRank, Size, Way
from railwright.benchmarks.nccl.subgroups import Subgroup, describe, list_rounds
from railwright.benchmarks.record import complete, failed_if, format_wrong, rates, waived
from railwright.native import cuda
from railwright.native.mpi_collectives import PATTERN
from railwright.results.declarations import Declaration
from railwright.results.records import Result, Verification
from railwright.results.workload import Collective
from railwright.topology.devices import Scalar
from railwright.topology.gpus import format_runs
from railwright.units import format_size

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_ALL_SIZES = {"sizes": "8:8G:x2"}
_MOST_OF_FREE = 0.6
_MACHINE_VARIABLES = ("NCCL_HOSTID", "NCCL_COMM_ID", "NCCL_DEBUG_FILE")
"""Names of hosts and files, which do not decide the rate."""

NcclBenchmark = Benchmark[NcclOptions, Way]


def run(benchmark: NcclBenchmark, operation: str, rank: NcclRank) -> Iterator[Result]:
    """Run the operation at every size in every placement, over all GPUs or over each group of them.

    Only the first rank of a group yields its results.
    """
    job, comm = rank.job, None if rank.job.case.uses_threads else rank.comm
    if not job.hosts:
        yield from _run_group(Bench(benchmark, operation, rank), comm)
        return
    each = job.ranks // len(job.hosts)
    for groups in list_rounds(job.case.among, len(job.hosts), each):
        mine = next((group for group in groups if rank.index in group.ranks(each)), None)
        color = groups.index(mine) if mine is not None else len(groups)
        part = rank.comm.Split(color, rank.index)
        if mine is not None:
            yield from _run_group(Bench(benchmark, operation, rank, mine), cast("Intracomm", part))
        part.Free()
        rank.step(f"{benchmark.name}: wait for the other groups")
        rank.meet()


class Bench(NamedTuple):
    """A benchmark of an operation in a rank, and its group over several hosts."""

    benchmark: NcclBenchmark
    operation: str
    rank: NcclRank
    among: Subgroup | None = None

    def blank(self, size: Size | None = None, placement: str = "") -> Result:
        """Return a record without samples."""
        job, placed = self.rank.job, dict[str, Scalar]()
        if size is not None:
            placed["size_bytes"] = size.size_bytes
        if placement:
            placed["placement"] = placement
        path, ranks, settings = gpus.path(job), max(1, len(job.gpus)), dict[str, Scalar]()
        if self.among is not None:
            each = job.ranks // len(job.hosts)
            members = self.among.ranks(each)
            ids = tuple(job.find_gpu(place).id for place in range(each))
            path, ranks = gpus.path(job, members), len(members)
            placed |= describe(job.case.among, self.among, job.hosts, ids)
            settings["hosts"] = ",".join(job.hosts[host] for host in self.among.hosts)
        blank = self.benchmark.blank(path, job.case, ranks=ranks)
        return replace(blank, parameters=placed | blank.parameters, settings=settings)


def _run_group(bench: Bench, comm: Intracomm | None) -> Iterator[Result]:
    """Measure in one group. Yields from its first rank alone."""
    leads = comm is None or comm.rank == 0
    try:
        yield from (result for result in _run_sizes(bench, comm) if leads)
    except Refused as refusal:
        if leads:
            yield waived(bench.blank(), str(refusal))


def _run_sizes(bench: Bench, comm: Intracomm | None) -> Iterator[Result]:
    operation, job = bench.operation, bench.rank.job
    group = Group(operation, bench.rank, comm)
    sizes = options.sizes(operation, job.options.sizes, group.team.ranks)
    free = group.free_bytes()
    most = int(_MOST_OF_FREE * free / 2)
    fitting = []
    for size in sizes:
        reason = options.takes_too_long(operation, size, group.team.ranks, job)
        if size.size_bytes > most:
            room = f"{format_size(free)} of GPU memory is free, and two buffers may take 60 % of it"
            reason = f"{format_size(size.size_bytes)} does not fit: {room}"
        if reason:
            yield waived(bench.blank(size), reason)
        else:
            fitting.append(size)
    if not fitting:
        return
    group.allocate(tuple(fitting), most)
    group.warm()
    network = group.find_network()
    for size in fitting:
        for placement in job.options.placements:
            yield from _measure(bench, group, network, size, placement)
    group.close()


def _measure(bench: Bench, group: Group, network: Network, size: Size, placement: str) -> Iterator[Result]:
    """Measure one size in one placement: the time and both rates, from the same samples."""
    operation = group.operation
    bench.rank.step(f"{bench.benchmark.name} {format_size(size.size_bytes)} {placement}")
    blank = bench.blank(size, placement)
    if placement == options.IN_PLACE and operation in options.OF_SENDS:
        yield waived(blank, f"NCCL defines no result of {operation} in place, so its data cannot be checked")
        return
    try:
        point = group.measure(size, placement)
    except Refused as refusal:
        yield waived(blank, str(refusal))
        return
    checked, wrong = size.received_bytes * group.team.ranks, sum(point.bytes_wrong)
    blank = replace(
        failed_if(blank, _failure(point)),
        settings=blank.settings | _settings(group) | network.settings,
        ranks=group.team.ranks,
        verification=Verification(method=PATTERN, bytes_checked=checked, bytes_wrong=wrong),
        evidence=(*point.evidence, *network.evidence),
    )
    yield from rates(blank, operation, group.team.ranks, size.size_bytes, point.seconds)
    yield complete(blank, point.seconds, "latency_s")


def _settings(group: Group) -> dict[str, Scalar]:
    composed = {"all_to_all": "ncclAlltoAll" if group.library.has("ncclAlltoAll") else "ncclSend and ncclRecv"}
    kept = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("NCCL_") and name not in _MACHINE_VARIABLES
    }
    settings: dict[str, Scalar] = {
        "gpus": format_runs(gpu.id for gpu in group.job.gpus),
        "nccl": group.library.version,
        "library": group.library.path,
        "cuda": cuda.driver_version(),
        "operations": options.OPERATIONS,
        "warm_up": 1,
        "element": "float32",
        "allocated_by": group.allocated_by,
        "largest_bytes": group.largest_bytes,
        "cpus": group.cpus,
        **gpus.nvls_settings(),
        **group.told_apart,
    }
    if group.operation in composed:
        settings["made_of"] = composed[group.operation]
    if kept:
        settings["environment"] = " ".join(f"{name}={value}" for name, value in kept.items())[:300]
    return settings


def _failure(point: Point) -> str:
    """Return the reason why a measured size is invalid, or an empty string."""
    wrong = format_wrong(point.bytes_wrong, "bytes")
    return wrong and f"wrong result at {format_size(point.size.size_bytes)}: {wrong}"


def _benchmark(operation: str, summary: str, defaults: dict[str, str] | None = None) -> NcclBenchmark:
    """Return the benchmark of one operation."""
    flow = Collective(operation=operation)
    out_of_place = {"placements": options.OUT_OF_PLACE} if operation in options.OF_SENDS else {}
    benchmark: NcclBenchmark = Benchmark(
        name=f"nccl_{operation}",
        summary=summary,
        method=(
            "nccl-tests 2.19.6: float sum, 20 operations enqueued after an untimed one and a barrier, host clock until "
            "the stream is empty, mean over ranks, buffers moved along, size and busbw factor as nccl-tests; the data "
            "check is of one untimed operation before them"
        ),
        results=(Declaration("bandwidth_bytes_per_s", flow), Declaration("latency_s", flow)),
        options=NcclOptions if operation in options.OF_SENDS else options.ForcedOptions,
        defaults={**out_of_place, **(defaults or {})},
        case=Way,
        launches=options.launches,
        plan=functools.partial(options.plan, operation),
        run=lambda rank: run(benchmark, operation, rank),
        spans_hosts=True,
        rank_for_each_gpu=True,
    )
    return benchmark


COLLECTIVES = (
    _benchmark("all_reduce", "NCCL all_reduce: the sum of all ranks' floats, on every rank"),
    _benchmark("all_gather", "NCCL all_gather: every rank's share, on every rank"),
    _benchmark("reduce_scatter", "NCCL reduce_scatter: the sum of all ranks' floats, a share on each rank"),
    _benchmark("all_to_all", "NCCL all-to-all: a share from every rank to every rank"),
)
ON_REQUEST = (
    _benchmark("send_recv", "NCCL send and receive in a ring: each rank sends to the next", _ALL_SIZES),
    _benchmark("broadcast", "NCCL broadcast: the first rank's floats, on every rank", _ALL_SIZES),
)
