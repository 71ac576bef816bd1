"""Options of `train_step`, and the points and plan that follow from them."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.nccl import gpus as nccl_gpus
from railwright.benchmarks.nccl.gpus import AUTO, GPUS_HELP, LIBRARY_HELP, Gpus, parse_gpus, parse_library
from railwright.benchmarks.options import Options, choice, option, single_choice, whole_number, word_or
from railwright.benchmarks.train.buckets import SINGLE, TENSOR, cut, parse_buckets
from railwright.benchmarks.train.model import Model, parse_model
from railwright.busbw import busbw_factor
from railwright.errors import UsageError
from railwright.native.train_load import ELEMENT_BYTES
from railwright.topology.devices import Scalar
from railwright.units import GIB, MIB

WAYS = ("torch", "gemm", "none")
_MOST_ITERATIONS = 10_000
_MOST_COMPUTE_MS = 60_000
_MOST_BATCH = 4096
_MOST_SECONDS = 86_400
_ANY = "any"

# For the plan, on the slow side of two H200 (docs/measured/2xh200): 63 s with PyTorch, of which 31 s were iterations of
# 25 ms and 64 images on 132 multiprocessors at 1.98 GHz; 33 s and 26 s with cuBLAS.
_ESTIMATE_TORCH_START_S, _ESTIMATE_START_S = 35.0, 10.0
_ESTIMATE_IMAGE_CYCLES = 1.5e8  # of one multiprocessor
_ESTIMATE_IMAGE_S = 2e-3  # of a GPU with unknown multiprocessors and clock
_ESTIMATE_BYTES_PER_S, _ESTIMATE_NVLINK_BYTES_PER_S = 20e9, 100e9
_ESTIMATE_CHECKED_BYTES_PER_S = 0.5e9
_HOST_BYTES = 4 * GIB  # of a process with PyTorch, CUDA and NCCL loaded
_CHECKED_AT_ONCE_BYTES = 64 * MIB
_TENFOLD = 10
"""Gradients reduced at a tenth of the estimated rate are slow but do not hang."""

REPORT_WITHIN_S = 10.0
"""The longest time for which a rank times iterations before it reports to its launcher; a single iteration may take
longer.
"""
LEAST_ITERATIONS = 10
"""The fewest iterations of a point that ends early."""


class Point(NamedTuple):
    """The parameters of a step."""

    dtype: str
    buckets: str
    """The text that `buckets.parse_bucket` reads."""
    overlap: bool


class TrainOptions(Options, frozen=True):
    """Options of training iterations."""

    model: Model = option("resnet50", "resnet50, or a number of parameters like 25.6M or 7B", parse_model)
    dtypes: tuple[str, ...] = option("fp32,fp16", "fp32, fp16, bf16", choice(*ELEMENT_BYTES))
    buckets: tuple[str, ...] = option(
        f"25M,{SINGLE}", f"sizes like 25M, {SINGLE} (one for all gradients), {TENSOR} (one for each)", parse_buckets
    )
    overlap: tuple[str, ...] = option(
        "yes,no",
        "yes: reduce a bucket as soon as it is complete; no: reduce all after the backward pass",
        choice("yes", "no"),
    )
    compute: str = option(AUTO, f"{AUTO} (the first that works), {', '.join(WAYS)}", single_choice(AUTO, *WAYS))
    compute_ms: int = option(
        "50", "duration of a compute phase without PyTorch, in milliseconds", whole_number(_MOST_COMPUTE_MS)
    )
    batch: int = option("64", "images per GPU in a step with PyTorch", whole_number(_MOST_BATCH))
    iterations: int = option("100", "timed iterations, after an untimed one", whole_number(_MOST_ITERATIONS))
    most_seconds: int | None = option(
        _ANY,
        f"{_ANY}, or the seconds after which a point ends, though not before {LEAST_ITERATIONS} iterations",
        word_or(_ANY, None, whole_number(_MOST_SECONDS)),
    )
    gpus: Gpus = option("all", GPUS_HELP, parse_gpus(1))
    library: str = option(AUTO, LIBRARY_HELP, parse_library)

    @property
    def limit_s(self) -> float:
        """The time limit of a point's iterations."""
        return float("inf") if self.most_seconds is None else float(self.most_seconds)

    def points(self) -> tuple[Point, ...]:
        """List the ways to do a step, without duplicates. A single bucket completes last and is never overlapped."""
        found = (
            Point(dtype, buckets, overlap == "yes" and buckets != SINGLE)
            for dtype in self.dtypes
            for buckets in self.buckets
            for overlap in self.overlap
        )
        return tuple(dict.fromkeys(found))

    def portion(self, done: int, spent_s: float, once_s: float) -> int:
        """Return the iterations to do before the next report to the launcher, 0 at the end of a point.

        `done` have taken `spent_s`, and the last of them `once_s`.
        """
        left, room_s = self.iterations - done, self.limit_s - spent_s
        once_s = max(once_s, 1e-6)
        if room_s < once_s and done >= LEAST_ITERATIONS:
            return 0
        allowed = max(room_s / once_s, LEAST_ITERATIONS - done, 1)
        return int(min(left, allowed, max(1, REPORT_WITHIN_S / once_s)))

    def cut_short(self, done: int) -> dict[str, Scalar]:
        """Return a record's note that a point ended early, or nothing if all iterations ran."""
        if done >= self.iterations or self.most_seconds is None:
            return {}
        return {"iterations_wanted": self.iterations, "ended_after_s": self.most_seconds}


class OnGpus(Case, frozen=True, kw_only=True):
    """The named GPUs, if any."""

    gpus: str = ""


TrainJob = Job[TrainOptions, OnGpus]
TrainRank = Rank[TrainOptions, OnGpus]


def launches(options: TrainOptions, machine: Machine) -> tuple[Launch[OnGpus], ...]:
    """Return a launch with a process for each GPU."""
    ids = options.gpus.of(machine)
    return (Launch(case=OnGpus(gpus=options.gpus.record_names), ranks=max(1, len(ids)), gpus=ids),)


def _estimate_compute(job: TrainJob) -> tuple[float, float]:
    """Estimate the time of one compute phase, and of the preparation before the first."""
    options, model, gpus = job.options, job.options.model, job.gpus
    asked = options.compute
    has_torch = model.tensors and (
        asked == "torch" or (asked == AUTO and importlib.util.find_spec("torch") is not None)
    )
    if not has_torch:
        return 0.0 if asked == "none" else options.compute_ms * 1e-3, _ESTIMATE_START_S
    speeds = [(gpu.facts.get("sm_count"), gpu.facts.get("sm_clock_max_hz")) for gpu in gpus]
    cycles = [count * hz for count, hz in speeds if isinstance(count, int) and isinstance(hz, float) and count and hz]
    image_s = _ESTIMATE_IMAGE_CYCLES / min(cycles) if cycles and len(cycles) == len(gpus) else _ESTIMATE_IMAGE_S
    return options.batch * image_s, _ESTIMATE_TORCH_START_S


def plan(job: TrainJob) -> Plan:
    """Plan all points; the memory is the host's, because gradients lie on the GPUs."""
    options, ranks, model = job.options, job.ranks, job.options.model
    compute, seconds = _estimate_compute(job)
    joined = all(gpu.facts.get("nvlinks_active") for gpu in job.gpus)
    longest_s, moved = seconds, 0
    for point in options.points():
        size = model.parameters * ELEMENT_BYTES[point.dtype]
        sent = float(busbw_factor("all_reduce", ranks)) * size
        round_s = 2 * (compute + sent / (_ESTIMATE_NVLINK_BYTES_PER_S if joined else _ESTIMATE_BYTES_PER_S))
        check_s = 3 * size / _ESTIMATE_CHECKED_BYTES_PER_S
        by_time = max(LEAST_ITERATIONS, options.limit_s / max(round_s, 1e-6))
        rounds = int(min(options.iterations, by_time)) + 1
        seconds += rounds * round_s + check_s
        longest_s = max(longest_s, REPORT_WITHIN_S + _TENFOLD * 2 * round_s, _TENFOLD * check_s)
        moved += int((2 * rounds + 2) * ranks * sent)
    return Plan(
        path=nccl_gpus.path(job),
        seconds=seconds,
        memory_bytes=ranks * (_HOST_BYTES + _CHECKED_AT_ONCE_BYTES),
        moved_bytes=moved,
        waived=_waiver_reason(job),
        longest_step_s=min(seconds, longest_s),
    )


def _waiver_reason(job: TrainJob) -> str:
    """Return the reason why the launch cannot run, as far as known without loading libraries."""
    options, model = job.options, job.options.model
    reason = nccl_gpus.waiver_reason(job, 1)
    if reason:
        return reason
    if not model.tensors and options.compute == "torch":
        return "compute=torch is ResNet-50: give model=resnet50, or compute=gemm"
    try:
        for point in options.points():
            if point.buckets == TENSOR and not model.tensors:
                return f"buckets={TENSOR} needs a model with tensors, got a number of parameters"
            cut(point.buckets, model.gradients, ELEMENT_BYTES[point.dtype], divisible=not model.tensors)
    except UsageError as error:
        return error.message
    return ""
