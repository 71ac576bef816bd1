"""A training-shaped iteration: a compute phase, and its gradients added up over all GPUs by NCCL.

One process for each GPU under MPI. Timed as comm_bench times (github.com/chainer/comm_bench): the host's clock over
all of an iteration, the end of the stream and a barrier inside; one iteration is thrown away.
Iterations with communication, without it, and the communication alone take turns, so that a clock that drifts meets
all three, and what communication adds to an iteration (`exposed`) is a difference of neighbours.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from railwright.benchmarks.base import Benchmark, Rank
from railwright.benchmarks.nccl import job as nccl_job
from railwright.benchmarks.train import options as train_options
from railwright.benchmarks.train import phases as train_phases
from railwright.benchmarks.train.model import Model, parse_model
from railwright.benchmarks.train.options import Point
from railwright.busbw import factor
from railwright.limits.model import Quantity
from railwright.native import cuda, nccl
from railwright.native.train import PATTERN, Step, Timed
from railwright.native.train_load import ELEMENT_BYTES
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.gpus import runs
from railwright.topology.model import Scalar

_METHOD = (
    "comm_bench: host clock over compute phase and all-reduce, stream synchronised and MPI barrier inside; in turn "
    "with iterations without communication and with the communication alone; mean over ranks"
)
_WARM_UP = 1


class _Seen(NamedTuple):
    """One point, over all ranks; seconds are means over them."""

    timed: Timed
    wrong: tuple[int, ...]
    """Elements of known gradients' sum that are wrong, on each rank."""
    sums: tuple[int, ...]
    """A number of each rank's gradients after an iteration, which must be the same on all."""
    buckets: tuple[int, ...]
    """The elements of each."""


def _run(rank: Rank) -> Iterator[Result]:
    """All points; yields from rank 0 alone."""
    model = parse_model(rank.job.options["model"])
    cpus = nccl_job.widen(rank.job, rank.index)  # PyTorch's own threads run beside this one, too
    try:
        torch = train_phases.with_torch(rank, model)
        device, library = _open(rank)
        stream = cuda.Stream(device)
        way = train_phases.choose(rank, device, stream, torch)
    except train_phases.Unavailable as error:
        yield from _waived(rank, model, error.message)
        return
    team = _connect(rank, device, library)
    gpus = runs(gpu.id for gpu in nccl_job.gpus_of(rank.job))
    kept: dict[str, Scalar] = {"gpus": gpus, "nccl": library.version, "gpu": device.name, "cpus": cpus}
    if way.fallback:
        kept["compute_because"] = way.fallback
    every = train_options.points(rank.job.options)
    for dtype in dict.fromkeys(point.dtype for point in every):
        reason = _too_large(rank, device, model, dtype)
        if reason:
            yield from _waived(rank, model, reason, dtype)
            continue
        with train_phases.opened(rank, way, device, stream, model, dtype) as phase:
            for point in (one for one in every if one.dtype == dtype):
                seen = _measure(rank, team, device, stream, phase, point)
                if rank.index == 0:
                    yield from _results(rank, model, point, seen, {**phase.settings, **kept})
    rank.step("ncclCommDestroy")
    team.close()


def _open(rank: Rank) -> tuple[cuda.Device, nccl.Library]:
    """This rank's GPU and NCCL. Raises Unavailable, on all ranks alike, where one of them has not both. Collective."""
    address = nccl_job.gpus_of(rank.job)[rank.comm.rank].address
    rank.step("CUDA")
    device = train_phases.on_all(rank, lambda: cuda.Device(address))
    rank.step("load NCCL")
    return device, train_phases.on_all(rank, lambda: nccl.Library(nccl_job.named_library(rank.job)))


def _connect(rank: Rank, device: cuda.Device, library: nccl.Library) -> nccl.Team:
    rank.step("ncclCommInitRank")
    unique_id = rank.comm.bcast(library.unique_id() if rank.index == 0 else b"")
    return nccl.Team(library, [device], "all_reduce", unique_id, comm=rank.comm)


def _too_large(rank: Rank, device: cuda.Device, model: Model, dtype: str) -> str:
    """Why the gradients do not fit, on every rank alike; empty where they do. Collective."""
    free, size = min(rank.comm.allgather(device.free_bytes())), model.parameters * ELEMENT_BYTES[dtype]
    if size <= 0.9 * free:
        return ""
    return f"{size / 1e9:.3g} GB of {dtype} gradients do not fit: {free / 1e9:.3g} GB of GPU memory are free"


def _measure(
    rank: Rank, team: nccl.Team, device: cuda.Device, stream: cuda.Stream, phase: train_phases.Phase, point: Point
) -> _Seen:
    """Collective."""
    name = f"train_step {point.dtype} buckets {point.buckets}, overlap {'yes' if point.overlap else 'no'}"
    buckets = phase.cut(point)
    step = Step(rank.comm, team, device, phase.gradients, stream, phase.load, buckets, overlap=point.overlap)
    rank.step(f"{name}: data check")
    wrong = step.count_wrong()
    timed = _time(rank, phase, step, point, name)
    rank.step(f"{name}: the same on all ranks")
    phase.once(step, point)
    sums = step.checksum()
    step.close()
    ranks = rank.comm.allgather((timed, wrong, sums))
    return _Seen(
        Timed(*(_mean([each[0][part] for each in ranks]) for part in range(len(timed)))),
        tuple(each[1] for each in ranks),
        tuple(each[2] for each in ranks),
        tuple(bucket[1] for bucket in buckets),
    )


def _time(rank: Rank, phase: train_phases.Phase, step: Step, point: Point, name: str) -> Timed:
    """All iterations, in portions after which the launcher hears of it. Collective."""
    wanted = rank.job.options["iterations"]
    timed = Timed([], [], [], [])
    rank.step(f"{name}: iteration 1 of {wanted}")
    portion, warm, spent_s = 1, _WARM_UP, 0.0
    while portion:
        more = phase.run(step, point, warm=warm, samples=portion)
        for whole, part in zip(timed, more, strict=True):
            whole.extend(part)
        spent_s += sum(more.iteration) + sum(more.compute) + sum(more.communication)
        once_s, done = more.iteration[-1] + more.compute[-1] + more.communication[-1], len(timed.iteration)
        # Every rank has its own clock, and all must take as many: the first one's word holds.
        portion, warm = rank.comm.bcast(train_options.portion(rank.job.options, done, spent_s, once_s)), 0
        rank.step(f"{name}: {done} of {wanted} iterations")
    return timed


def _mean(rows: list[list[float]]) -> list[float]:
    return [sum(one) / len(rows) for one in zip(*rows, strict=True)]


def _waived(rank: Rank, model: Model, reason: str, dtype: str = "") -> Iterator[Result]:
    """One record for what cannot be, from rank 0."""
    if rank.index == 0:
        varied: dict[str, Scalar] = {"model": model.name, **({"dtype": dtype} if dtype else {})}
        varied |= rank.job.variant.parameters
        yield Result(benchmark=BENCHMARK.name, quantity="latency_s", path=nccl_job.path(rank.job),
                     outcome="waived", reason=reason, method=_METHOD, parameters=varied, ranks=rank.size)  # fmt: skip


def _results(rank: Rank, model: Model, point: Point, seen: _Seen, kept: dict[str, Scalar]) -> Iterator[Result]:
    """The four parts of an iteration, and the rate of the communication alone."""
    timed, size = seen.timed, model.parameters * ELEMENT_BYTES[point.dtype]
    exposed = [whole - without for whole, without in zip(timed.iteration, timed.compute, strict=True)]
    kept = {
        **kept,
        "parameters": model.parameters,
        "gradients": len(model.gradients) if model.tensors else 0,
        "gradient_bytes": size,
        "buckets": len(seen.buckets),
        "largest_bucket_bytes": max(seen.buckets) * ELEMENT_BYTES[point.dtype],
        "warm_up": _WARM_UP,
        **train_options.cut_short(rank.job.options, len(timed.iteration)),
        "operation": "sum, in place",
        "device_compute_s": statistics.median(timed.device),
        **nccl_job.nvls_settings(),
    }
    parts = {"iteration": timed.iteration, "compute": timed.compute, "exposed": exposed,
             "communication": timed.communication}  # fmt: skip
    for part, samples in parts.items():
        spread: dict[str, Scalar] = {"mean_s": statistics.fmean(samples), "std_s": statistics.pstdev(samples)}
        yield _result(rank, model, point, seen, "latency_s", samples, {"part": part}, {**kept, **spread})
    if rank.size == 1:
        return  # nothing goes over any link
    bus = float(factor("all_reduce", rank.size))
    rates = [bus * size / second for second in timed.communication]
    varied: dict[str, Scalar] = {"part": "communication", "rate": "busbw"}
    yield _result(rank, model, point, seen, "bandwidth_bytes_per_s", rates, varied, kept)


def _result(
    rank: Rank, model: Model, point: Point, seen: _Seen, quantity: Quantity, samples: list[float],
    varied: dict[str, Scalar], kept: dict[str, Scalar],
) -> Result:  # fmt: skip
    reason = _failure(seen)
    element = ELEMENT_BYTES[point.dtype]
    return Result(
        benchmark=BENCHMARK.name,
        quantity=quantity,
        path=nccl_job.path(rank.job),
        outcome="failed" if reason else "measured",
        reason=reason,
        method=_METHOD,
        parameters={
            **varied,
            "model": model.name,
            "dtype": point.dtype,
            "buckets": point.buckets,
            "overlap": "yes" if point.overlap else "no",
            **rank.job.variant.parameters,
        },
        settings=kept,
        ranks=rank.size,
        samples=tuple(samples),
        summary=summarise(samples),
        verification=Verification(
            method=PATTERN,
            bytes_checked=model.parameters * element * rank.size,
            bytes_wrong=sum(seen.wrong) * element,
        ),
    )


def _failure(seen: _Seen) -> str:
    """Why a measured point does not count, empty where it does."""
    wrong = [f"{count} gradients on rank {rank}" for rank, count in enumerate(seen.wrong) if count]
    if wrong:
        more = f" and on {len(wrong) - 3} more ranks" if len(wrong) > 3 else ""
        return f"wrong sum of known gradients: {', '.join(wrong[:3])}{more}"
    other = [str(rank) for rank, one in enumerate(seen.sums) if one != seen.sums[0]]
    if other:
        return f"after an iteration the gradients of rank 0 are not those of rank {', '.join(other[:8])}"
    return ""


BENCHMARK = Benchmark(
    name="train_step",
    summary="A training iteration: compute phase and gradient all-reduce by NCCL",
    method=_METHOD,
    quantities=("latency_s", "bandwidth_bytes_per_s"),
    ranks=2,
    plan=train_options.plan,
    run=_run,
    options=train_options.OPTIONS,
    variants=train_options.variants,
    needs_mpi=True,
    uses_gpus=True,
    ranks_for=nccl_job.processes,
)
