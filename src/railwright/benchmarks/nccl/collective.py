"""The parts that NCCL benchmarks share: the run of a launch, and the benchmark of an operation."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.nccl import gpus, options
from railwright.benchmarks.nccl.group import Group, Point, Refused
from railwright.benchmarks.nccl.options import NcclOptions, NcclRank, Size, Way
from railwright.benchmarks.record import complete, failed_if, format_wrong, rates, waived
from railwright.native import cuda
from railwright.native.mpi_collectives import PATTERN
from railwright.results.declarations import Declaration
from railwright.results.records import Result, Verification
from railwright.results.workload import Collective
from railwright.topology.devices import Scalar
from railwright.topology.gpus import format_runs
from railwright.units import format_size

_ALL_SIZES = {"sizes": "8:8G:x2"}
_MOST_OF_FREE = 0.6
_KEPT_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_MAX_NCHANNELS",
                   "NCCL_MIN_NCHANNELS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")  # fmt: skip

NcclBenchmark = Benchmark[NcclOptions, Way]


def run(benchmark: NcclBenchmark, operation: str, rank: NcclRank) -> Iterator[Result]:
    """Run the operation at every size over all GPUs in every placement; yields from the first process alone."""
    try:
        yield from (result for result in _run_ranks(benchmark, operation, rank) if rank.index == 0)
    except Refused as refusal:
        if rank.index == 0:
            yield waived(_blank(benchmark, rank), str(refusal))


def _run_ranks(benchmark: NcclBenchmark, operation: str, rank: NcclRank) -> Iterator[Result]:
    group = Group(operation, rank)
    sizes = options.sizes(operation, rank.job.options.sizes, group.team.ranks)
    free = group.free_bytes()
    most = int(_MOST_OF_FREE * free / 2)
    for size in (size for size in sizes if size.size_bytes > most):
        reason = f"does not fit: {format_size(free)} of GPU memory is free, and two buffers may take 60 % of it"
        yield waived(_blank(benchmark, rank, size), f"{format_size(size.size_bytes)} {reason}")
    fitting = tuple(size for size in sizes if size.size_bytes <= most)
    if not fitting:
        return
    group.allocate(fitting, most)
    group.warm()
    for size in fitting:
        for placement in rank.job.options.placements:
            yield from _measure(benchmark, group, size, placement)
    group.close()


def _measure(benchmark: NcclBenchmark, group: Group, size: Size, placement: str) -> Iterator[Result]:
    """Measure one size in one placement: the time and both rates, from the same samples."""
    rank, operation = group.rank, group.operation
    rank.step(f"{benchmark.name} {format_size(size.size_bytes)} {placement}")
    blank = _blank(benchmark, rank, size, placement)
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
        settings=_settings(group),
        ranks=group.team.ranks,
        verification=Verification(method=PATTERN, bytes_checked=checked, bytes_wrong=wrong),
        evidence=point.evidence,
    )
    yield from rates(blank, operation, group.team.ranks, size.size_bytes, point.seconds)
    yield complete(blank, point.seconds, "latency_s")


def _blank(benchmark: NcclBenchmark, rank: NcclRank, size: Size | None = None, placement: str = "") -> Result:
    placed: dict[str, Scalar] = {} if size is None else {"size_bytes": size.size_bytes}
    if placement:
        placed["placement"] = placement
    blank = benchmark.blank(gpus.path(rank.job), rank.job.case, ranks=max(1, len(rank.job.gpus)))
    return replace(blank, parameters=placed | blank.parameters)


def _settings(group: Group) -> dict[str, Scalar]:
    composed = {"all_to_all": "ncclAlltoAll" if group.library.has("ncclAlltoAll") else "ncclSend and ncclRecv"}
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
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
