"""What the NCCL benchmarks share: from one launch to its results, and the benchmark of one operation."""

from __future__ import annotations

import os
from collections.abc import Iterator

from railwright.benchmarks.base import Benchmark, Rank, choice
from railwright.benchmarks.nccl import job as nccl_job
from railwright.benchmarks.nccl import options as nccl_options
from railwright.benchmarks.nccl.launch import Launch, Point, Refused
from railwright.benchmarks.nccl.options import IN_PLACE, OPERATIONS, OUT_OF_PLACE, Size
from railwright.busbw import factor
from railwright.limits.model import Quantity
from railwright.native import cuda
from railwright.native.mpi_collectives import PATTERN
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.gpus import runs
from railwright.topology.model import Scalar
from railwright.units import format_size

PROOF_SIZES = "8,1M,1G"
ALL_SIZES = "8:8G:x2"

_MOST_OF_FREE = 0.6
_KEPT_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_MAX_NCHANNELS",
                   "NCCL_MIN_NCHANNELS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")  # fmt: skip


def run(operation: str, measured: Benchmark, rank: Rank) -> Iterator[Result]:
    """The operation at every size over all GPUs, in every placement; from the first process alone."""
    try:
        launch = Launch(operation, rank)
    except Refused as refusal:
        yield from _waived(measured, rank, str(refusal))
        return
    sizes = nccl_options.sizes(operation, rank.job, launch.team.ranks)
    free = launch.free_bytes()
    most = int(_MOST_OF_FREE * free / 2)
    for size in sizes:
        if size.size_bytes > most:
            reason = f"does not fit: {format_size(free)} of GPU memory are free, and two buffers may take 60 % of it"
            yield from _waived(measured, rank, f"{format_size(size.size_bytes)} {reason}", size)
    fitting = tuple(size for size in sizes if size.size_bytes <= most)
    if not fitting:
        return
    try:
        launch.allocate(fitting, most)
    except Refused as refusal:
        yield from _waived(measured, rank, str(refusal))
        return
    launch.warm()
    for size in fitting:
        yield from _size(measured, launch, size)
    launch.close()


def _size(measured: Benchmark, launch: Launch, size: Size) -> Iterator[Result]:
    rank = launch.rank
    for placement in choice(OUT_OF_PLACE, IN_PLACE)(rank.job.options["placements"]):
        rank.step(f"{measured.name} {format_size(size.size_bytes)} {placement}")
        if placement == IN_PLACE and launch.operation in nccl_options.UNDEFINED_IN_PLACE:
            reason = f"NCCL defines no result of {launch.operation} in place, so its data cannot be checked"
            yield from _waived(measured, rank, reason, size, placement)
            continue
        try:
            point = launch.measure(size, placement)
        except Refused as refusal:
            yield from _waived(measured, rank, str(refusal), size, placement)
            continue
        if rank.index == 0:
            yield from _results(measured, launch, point)


def _waived(
    measured: Benchmark, rank: Rank, reason: str, size: Size | None = None, placement: str = ""
) -> Iterator[Result]:
    """That it was not measured, and why: from the first process alone."""
    if rank.index:
        return
    parameters = dict(rank.job.variant.parameters)
    if size is not None:
        parameters |= {"size_bytes": size.size_bytes}
    if placement:
        parameters |= {"placement": placement}
    yield Result(
        benchmark=measured.name,
        quantity=measured.quantities[0],
        path=nccl_job.path(rank.job),
        outcome="waived",
        reason=reason,
        method=measured.method,
        parameters=parameters,
        ranks=max(1, len(nccl_job.gpus_of(rank.job))),
    )


def _results(measured: Benchmark, launch: Launch, point: Point) -> Iterator[Result]:
    """The time and both rates, from the same samples."""
    rates = [point.size.size_bytes / second for second in point.seconds]
    bus = float(factor(launch.operation, launch.team.ranks))
    yield _result(measured, launch, point, "bandwidth_bytes_per_s", rates, {"rate": "algbw"})
    yield _result(measured, launch, point, "bandwidth_bytes_per_s", [bus * rate for rate in rates], {"rate": "busbw"})
    yield _result(measured, launch, point, "latency_s", point.seconds, {})


def _result(
    measured: Benchmark,
    launch: Launch,
    point: Point,
    quantity: Quantity,
    samples: list[float],
    varied: dict[str, Scalar],
) -> Result:
    reason = _failure(point)
    checked = point.size.received_bytes * launch.team.ranks
    placed: dict[str, Scalar] = {"size_bytes": point.size.size_bytes, "placement": point.placement}
    return Result(
        benchmark=measured.name,
        quantity=quantity,
        path=nccl_job.path(launch.job),
        outcome="failed" if reason else "measured",
        reason=reason,
        method=measured.method,
        parameters=placed | launch.job.variant.parameters | varied,
        settings=_settings(launch),
        ranks=launch.team.ranks,
        samples=tuple(samples),
        summary=summarise(samples),
        verification=Verification(method=PATTERN, bytes_checked=checked, bytes_wrong=sum(point.bytes_wrong)),
        evidence=point.evidence,
    )


def _settings(launch: Launch) -> dict[str, Scalar]:
    composed = {"all_to_all": "ncclAlltoAll" if launch.library.has("ncclAlltoAll") else "ncclSend and ncclRecv"}
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    settings: dict[str, Scalar] = {
        "gpus": runs(gpu.id for gpu in nccl_job.gpus_of(launch.job)),
        "nccl": launch.library.version,
        "library": launch.library.path,
        "cuda": cuda.driver_version(),
        "operations": OPERATIONS,
        "warm_up": 1,
        "element": "float32",
        "allocated_by": launch.allocated_by,
        "largest_bytes": launch.largest_bytes,
        "cpus": launch.cpus,
        **nccl_job.nvls_settings(),
    }
    if launch.operation in composed:
        settings["made_of"] = composed[launch.operation]
    if kept:
        settings["environment"] = " ".join(f"{name}={value}" for name, value in kept.items())[:300]
    return settings


def _failure(point: Point) -> str:
    """Why a measured size does not count, empty where it does."""
    wrong = [f"{count} bytes on rank {rank}" for rank, count in enumerate(point.bytes_wrong) if count]
    if not wrong:
        return ""
    more = f" and on {len(wrong) - 3} more ranks" if len(wrong) > 3 else ""
    return f"wrong result at {format_size(point.size.size_bytes)}: {', '.join(wrong[:3])}{more}"


def benchmark(operation: str, summary: str, sizes: str = PROOF_SIZES) -> Benchmark:
    """The benchmark of one operation."""
    measured = Benchmark(
        name=f"nccl_{operation}",
        summary=summary,
        method=(
            "nccl-tests 2.19.6: float sum, 20 operations enqueued after an untimed one and a barrier, host clock until "
            "the stream is empty, mean over ranks, buffers moved along, size and busbw factor as nccl-tests; the data "
            "check is of one untimed operation before them"
        ),
        quantities=("bandwidth_bytes_per_s", "latency_s"),
        ranks=2,
        plan=lambda job: nccl_options.plan(operation, job),
        run=lambda rank: run(operation, measured, rank),
        options=nccl_options.options(operation, sizes),
        variants=nccl_options.variants,
        needs_mpi=True,
        ranks_for=nccl_job.processes,
        uses_gpus=True,
    )
    return measured


COLLECTIVES = (
    benchmark("all_reduce", "NCCL all_reduce: the sum of all ranks' floats, on every rank"),
    benchmark("all_gather", "NCCL all_gather: every rank's share, on every rank"),
    benchmark("reduce_scatter", "NCCL reduce_scatter: the sum of all ranks' floats, a share on each rank"),
    benchmark("all_to_all", "NCCL all-to-all: a share from every rank to every rank"),
)
ON_REQUEST = (
    benchmark("send_recv", "NCCL send and receive in a ring: each rank sends to the next", ALL_SIZES),
    benchmark("broadcast", "NCCL broadcast: the first rank's floats, on every rank", ALL_SIZES),
)
