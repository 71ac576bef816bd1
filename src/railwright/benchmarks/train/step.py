"""A training-shaped iteration: a compute phase, and the sum of its gradients over all GPUs by NCCL.

Each GPU has one MPI process. The timing is comm_bench's (github.com/chainer/comm_bench): the host's clock over a whole
iteration, with the end of the stream and a barrier inside; the first iteration is discarded. Iterations with
communication, without it, and the communication alone take turns, so that a drifting clock affects all three alike, and
the time that communication adds to an iteration (`exposed`) is a difference of neighbours.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark
from railwright.benchmarks.job import Case
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.record import complete, failed_if, format_wrong, waived
from railwright.benchmarks.together import waive_unavailable
from railwright.benchmarks.train import phases
from railwright.benchmarks.train.options import OnGpus, Point, TrainOptions, TrainRank, launches, plan
from railwright.busbw import busbw_factor
from railwright.native import cuda, nccl
from railwright.native.train import PATTERN, Step, Timed
from railwright.native.train_load import ELEMENT_BYTES
from railwright.results.declarations import Declaration
from railwright.results.records import Result, Verification
from railwright.results.workload import Collective, Unlimited
from railwright.topology.devices import Scalar
from railwright.topology.gpus import format_runs

_METHOD = (
    "comm_bench: host clock over compute phase and all-reduce, stream synchronised and MPI barrier inside; in turn "
    "with iterations without communication and with the communication alone; mean over ranks"
)
_WARM_UP = 1


class _Measurements(NamedTuple):
    """The measurements of a point over all ranks; seconds are means over ranks."""

    timed: Timed
    wrong: tuple[int, ...]
    """Wrong elements of known gradients' sum on each rank."""
    sums: tuple[int, ...]
    """A checksum of each rank's gradients after an iteration, which must be equal on all."""
    buckets: tuple[int, ...]
    """The elements of each bucket."""


def _run(rank: TrainRank) -> Iterator[Result]:
    return waive_unavailable(rank, _blank(rank, _WaivedCase(model=rank.job.options.model.name)), _measure_all(rank))


def _measure_all(rank: TrainRank) -> Iterator[Result]:
    """Measure all points. Yields results on rank 0 only."""
    options = rank.job.options
    cpus = gpus.bind_near_gpu(rank.job, rank.index)  # PyTorch's own threads need CPUs as well
    torch = phases.find_torch(rank, options.model)
    device, library = gpus.open_gpu_and_nccl(rank)
    stream = cuda.Stream(device)
    way = phases.choose(rank, device, stream, torch)
    team = gpus.connect_ranks(rank, device, library)
    used = format_runs(gpu.id for gpu in rank.job.gpus)
    kept: dict[str, Scalar] = {"gpus": used, "nccl": library.version, "gpu": device.name, "cpus": cpus}
    if way.fallback:
        kept["compute_because"] = way.fallback
    every = options.points()
    for dtype in dict.fromkeys(point.dtype for point in every):
        reason = _too_large(rank, device, dtype)
        if reason:
            if rank.index == 0:
                yield waived(_blank(rank, _WaivedCase(model=options.model.name, dtype=dtype)), reason)
            continue
        with phases.open_phase(rank, way, device, stream, options.model, dtype) as phase:
            for point in (one for one in every if one.dtype == dtype):
                seen = _measure(rank, team, device, stream, phase, point)
                if rank.index == 0:
                    yield from _results(rank, point, seen, {**phase.settings, **kept})
    rank.step("ncclCommDestroy")
    team.close()


def _too_large(rank: TrainRank, device: cuda.Device, dtype: str) -> str:
    """Return the reason, the same on all ranks, why the gradients do not fit, or an empty string. Collective."""
    free = min(rank.comm.allgather(device.free_bytes()))
    size = rank.job.options.model.parameters * ELEMENT_BYTES[dtype]
    if size <= 0.9 * free:
        return ""
    return f"{size / 1e9:.3g} GB of {dtype} gradients do not fit: {free / 1e9:.3g} GB of GPU memory is free"


def _measure(
    rank: TrainRank, team: nccl.Team, device: cuda.Device, stream: cuda.Stream, phase: phases.Phase, point: Point
) -> _Measurements:
    """Measure a point. Collective."""
    name = f"train_step {point.dtype} buckets {point.buckets}, overlap {'yes' if point.overlap else 'no'}"
    buckets = phase.cut(point)
    step = Step(rank.comm, team, device, phase.gradients, stream, phase.load, buckets, overlap=point.overlap)
    rank.step(f"{name}: data check")
    wrong = step.count_wrong()
    timed = _time_iterations(rank, phase, step, point, name)
    rank.step(f"{name}: the same on all ranks")
    phase.once(step, point)
    sums = step.checksum()
    step.close()
    ranks = rank.comm.allgather((timed, wrong, sums))
    return _Measurements(
        Timed(*(_mean([each[0][part] for each in ranks]) for part in range(len(timed)))),
        tuple(each[1] for each in ranks),
        tuple(each[2] for each in ranks),
        tuple(bucket[1] for bucket in buckets),
    )


def _time_iterations(rank: TrainRank, phase: phases.Phase, step: Step, point: Point, name: str) -> Timed:
    """Time all iterations in portions, each followed by a report to the launcher. Collective."""
    wanted = rank.job.options.iterations
    timed = Timed([], [], [], [])
    rank.step(f"{name}: iteration 1 of {wanted}")
    portion, warm, spent_s = 1, _WARM_UP, 0.0
    while portion:
        more = phase.run(step, point, warm=warm, samples=portion)
        for whole, part in zip(timed, more, strict=True):
            whole.extend(part)
        spent_s += sum(more.iteration) + sum(more.compute) + sum(more.communication)
        once_s, done = more.iteration[-1] + more.compute[-1] + more.communication[-1], len(timed.iteration)
        # Ranks have different clocks but must take equally many iterations: rank 0 decides.
        portion, warm = rank.comm.bcast(rank.job.options.portion(done, spent_s, once_s)), 0
        rank.step(f"{name}: {done} of {wanted} iterations")
    return timed


def _mean(rows: list[list[float]]) -> list[float]:
    return [sum(one) / len(rows) for one in zip(*rows, strict=True)]


class _WaivedCase(Case, frozen=True, kw_only=True):
    model: str
    dtype: str = ""


class _PartCase(Case, frozen=True, kw_only=True):
    part: str
    rate: str = ""
    model: str
    dtype: str
    buckets: str
    overlap: str


def _blank(rank: TrainRank, case: Case) -> Result:
    blank = BENCHMARK.blank(gpus.path(rank.job), case, ranks=rank.size)
    return replace(blank, parameters=blank.parameters | rank.job.case.parameters())


def _results(rank: TrainRank, point: Point, seen: _Measurements, kept: dict[str, Scalar]) -> Iterator[Result]:
    """Yield the four parts of an iteration, and the rate of the communication alone."""
    model, timed, element = rank.job.options.model, seen.timed, ELEMENT_BYTES[point.dtype]
    size = model.parameters * element
    kept = {
        **kept,
        "parameters": model.parameters,
        "gradients": len(model.gradients) if model.tensors else 0,
        "gradient_bytes": size,
        "buckets": len(seen.buckets),
        "largest_bucket_bytes": max(seen.buckets) * element,
        "warm_up": _WARM_UP,
        **rank.job.options.cut_short(len(timed.iteration)),
        "operation": "sum, in place",
        "device_compute_s": statistics.median(timed.device),
        **gpus.nvls_settings(),
    }
    check = Verification(method=PATTERN, bytes_checked=size * rank.size, bytes_wrong=sum(seen.wrong) * element)

    def blank(part: str, rate: str = "") -> Result:
        overlap = "yes" if point.overlap else "no"
        case = _PartCase(
            part=part, rate=rate, model=model.name, dtype=point.dtype, buckets=point.buckets, overlap=overlap
        )
        return failed_if(replace(_blank(rank, case), settings=kept, verification=check), _failure(seen))

    exposed = [whole - without for whole, without in zip(timed.iteration, timed.compute, strict=True)]
    parts = {"iteration": timed.iteration, "compute": timed.compute, "exposed": exposed,
             "communication": timed.communication}  # fmt: skip
    for part, samples in parts.items():
        spread: dict[str, Scalar] = {"mean_s": statistics.fmean(samples), "std_s": statistics.pstdev(samples)}
        yield complete(blank(part), samples, settings={**kept, **spread})
    if rank.size > 1:  # otherwise no link carries data
        bus = float(busbw_factor("all_reduce", rank.size))
        rates = [bus * size / second for second in timed.communication]
        yield complete(blank("communication", "busbw"), rates, "bandwidth_bytes_per_s")


def _failure(seen: _Measurements) -> str:
    """Return the reason why a measured point is invalid, or an empty string."""
    if wrong := format_wrong(seen.wrong, "gradients"):
        return f"wrong sum of known gradients: {wrong}"
    other = [str(rank) for rank, one in enumerate(seen.sums) if one != seen.sums[0]]
    if other:
        return f"after an iteration the gradients of rank 0 differ from those of rank {', '.join(other[:8])}"
    return ""


BENCHMARK = Benchmark(
    name="train_step",
    summary="A training iteration: compute phase and gradient all-reduce by NCCL",
    method=_METHOD,
    results=(
        Declaration("latency_s", Unlimited(why="the duration of a training step depends on the model, not on a link")),
        Declaration("bandwidth_bytes_per_s", Collective(operation="all_reduce", in_buckets=True)),
    ),
    options=TrainOptions,
    case=OnGpus,
    launches=launches,
    plan=plan,
    run=_run,
)
