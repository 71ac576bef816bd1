"""What `train_step` can be asked for, and what follows from it before anything runs: its points and its plan."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import NamedTuple

from railwright.benchmarks.base import Job, Option, Plan, Variant, choice, one_of, whole_number
from railwright.benchmarks.nccl import job as nccl_job
from railwright.benchmarks.nccl.job import AUTO
from railwright.benchmarks.train.buckets import SINGLE, TENSOR, cut, parse_buckets
from railwright.benchmarks.train.model import Model, parse_model
from railwright.busbw import factor
from railwright.errors import UsageError
from railwright.native.train_load import ELEMENT_BYTES
from railwright.topology.model import Device, Scalar
from railwright.units import GIB, MIB

WAYS = ("torch", "gemm", "none")
_MOST_ITERATIONS = 10_000
_MOST_COMPUTE_MS = 60_000
_MOST_BATCH = 4096
_MOST_SECONDS = 86_400
_ANY = "any"

# For the plan, on the slow side of what two H200 took (docs/measured/2026-11-22-gpu-2xh200): 63 s with PyTorch, of
# which 31 s were iterations of 25 ms and 64 images on 132 multiprocessors at 1.98 GHz; 33 s and 26 s with cuBLAS.
_ESTIMATE_TORCH_START_S, _ESTIMATE_START_S = 35.0, 10.0
_ESTIMATE_IMAGE_CYCLES = 1.5e8  # of one multiprocessor
_ESTIMATE_IMAGE_S = 2e-3  # of a GPU whose multiprocessors and clock nobody knows
_ESTIMATE_BYTES_PER_S, _ESTIMATE_NVLINK_BYTES_PER_S = 20e9, 100e9
_ESTIMATE_CHECKED_BYTES_PER_S = 0.5e9
_HOST_BYTES = 4 * GIB  # of a process with PyTorch, CUDA and NCCL loaded
_CHECKED_AT_ONCE_BYTES = 64 * MIB
_TENFOLD = 10
"""Gradients reduced at a tenth of the estimate are slow, and no hang."""

HEARD_OF_S = 10.0
"""As long as a rank may time iterations without a word to its launcher, or for one that takes longer."""
LEAST_ITERATIONS = 10
"""Of a point that is ended by its time."""


class Point(NamedTuple):
    """One way to do a step."""

    dtype: str
    buckets: str
    """As `train_buckets.parse_bucket` reads it."""
    overlap: bool


OPTIONS = (
    Option("model", "resnet50", "resnet50, or a number of parameters like 25.6M or 7B", parse_model),
    Option("dtypes", "fp32,fp16", "fp32, fp16, bf16", choice(*ELEMENT_BYTES)),
    Option("buckets", f"25M,{SINGLE}", f"sizes like 25M, {SINGLE} (one for all gradients), {TENSOR} (one for each)",
           parse_buckets),
    Option("overlap", "yes,no", "yes: a bucket goes as soon as it is complete; no: all go after the backward pass",
           choice("yes", "no")),
    Option("compute", AUTO, f"{AUTO} (the first that can be), {', '.join(WAYS)}", one_of(AUTO, *WAYS)),
    Option("compute-ms", "50", "milliseconds that a compute phase without PyTorch shall last",
           whole_number(_MOST_COMPUTE_MS)),
    Option("batch", "64", "images of a step with PyTorch, for each GPU", whole_number(_MOST_BATCH)),
    Option("iterations", "100", "timed iterations, after one that is not", whole_number(_MOST_ITERATIONS)),
    Option("most-seconds", _ANY, f"{_ANY}, or end the iterations of a point after so many seconds, with at least "
           f"{LEAST_ITERATIONS}", lambda text: _seconds(text)),
    nccl_job.gpus_option(1),
    nccl_job.LIBRARY_OPTION,
)  # fmt: skip


def variants(settled: Mapping[str, str]) -> tuple[Variant, ...]:
    """One launch, on the GPUs that were named, if any."""
    return (nccl_job.with_gpus(settled, Variant()),)


def points(options: Mapping[str, str]) -> tuple[Point, ...]:
    """Every way that settled options ask for, each once. One bucket for all is complete last: never overlapped."""
    found = (
        Point(dtype, buckets, overlap == "yes" and buckets != SINGLE)
        for dtype in choice(*ELEMENT_BYTES)(options["dtypes"])
        for buckets in parse_buckets(options["buckets"])
        for overlap in choice("yes", "no")(options["overlap"])
    )
    return tuple(dict.fromkeys(found))


def _seconds(text: str) -> float:
    """How long the iterations of a point may last. Raises UsageError."""
    return float("inf") if text == _ANY else float(whole_number(_MOST_SECONDS)(text))


def portion(options: Mapping[str, str], done: int, spent_s: float, once_s: float) -> int:
    """How many iterations come next without a word to the launcher, 0 at the end of a point.

    `done` have taken `spent_s`, and the last of them `once_s`.
    """
    left, room_s = int(options["iterations"]) - done, _seconds(options["most-seconds"]) - spent_s
    once_s = max(once_s, 1e-6)
    if room_s < once_s and done >= LEAST_ITERATIONS:
        return 0
    allowed = max(room_s / once_s, LEAST_ITERATIONS - done, 1)
    return int(min(left, allowed, max(1, HEARD_OF_S / once_s)))


def cut_short(options: Mapping[str, str], done: int) -> dict[str, Scalar]:
    """For the record of a point that its time ended before all its iterations; nothing where it had them all."""
    if done >= int(options["iterations"]):
        return {}
    return {"iterations_wanted": int(options["iterations"]), "ended_after_s": int(options["most-seconds"])}


def _compute_s(options: Mapping[str, str], model: Model, gpus: tuple[Device, ...]) -> tuple[float, float]:
    """Estimates of one compute phase, and of all that comes before the first."""
    asked = options["compute"]
    has_torch = model.tensors and (
        asked == "torch" or (asked == AUTO and importlib.util.find_spec("torch") is not None)
    )
    if not has_torch:
        return 0.0 if asked == "none" else int(options["compute-ms"]) * 1e-3, _ESTIMATE_START_S
    speeds = [(gpu.facts.get("sm_count"), gpu.facts.get("sm_clock_max_hz")) for gpu in gpus]
    cycles = [count * hz for count, hz in speeds if isinstance(count, int) and isinstance(hz, float) and count and hz]
    image_s = _ESTIMATE_IMAGE_CYCLES / min(cycles) if cycles and len(cycles) == len(gpus) else _ESTIMATE_IMAGE_S
    return int(options["batch"]) * image_s, _ESTIMATE_TORCH_START_S


def plan(job: Job) -> Plan:
    """The plan of all points; the memory is the host's, for gradients lie on the GPUs."""
    options, ranks, gpus = job.options, nccl_job.processes(job), nccl_job.gpus_of(job)
    model = parse_model(options["model"])
    compute, seconds = _compute_s(options, model, gpus)
    joined = all(gpu.facts.get("nvlinks_active") for gpu in gpus)
    longest_s, moved = seconds, 0
    for point in points(options):
        size = model.parameters * ELEMENT_BYTES[point.dtype]
        sent = float(factor("all_reduce", ranks)) * size
        round_s = 2 * (compute + sent / (_ESTIMATE_NVLINK_BYTES_PER_S if joined else _ESTIMATE_BYTES_PER_S))
        check_s = 3 * size / _ESTIMATE_CHECKED_BYTES_PER_S
        by_time = max(LEAST_ITERATIONS, _seconds(options["most-seconds"]) / max(round_s, 1e-6))
        rounds = int(min(int(options["iterations"]), by_time)) + 1
        seconds += rounds * round_s + check_s
        longest_s = max(longest_s, HEARD_OF_S + _TENFOLD * 2 * round_s, _TENFOLD * check_s)
        moved += int((2 * rounds + 2) * ranks * sent)
    return Plan(
        path=nccl_job.path(job),
        seconds=seconds,
        memory_bytes=ranks * (_HOST_BYTES + _CHECKED_AT_ONCE_BYTES),
        moved_bytes=moved,
        waived=_waived(job, model),
        longest_step_s=min(seconds, longest_s),
    )


def _waived(job: Job, model: Model) -> str:
    """Why the launch cannot be, as far as that is known without loading anything."""
    options = job.options
    reason = nccl_job.waived(job, 1)
    if reason:
        return reason
    if not model.tensors and options["compute"] == "torch":
        return "compute=torch is ResNet-50: give model=resnet50, or compute=gemm"
    try:
        for point in points(options):
            if point.buckets == TENSOR and not model.tensors:
                return f"a model given by its number of parameters has no tensors: buckets={TENSOR} cannot be"
            cut(point.buckets, model.gradients, ELEMENT_BYTES[point.dtype], divisible=not model.tensors)
    except UsageError as error:
        return error.message
    return ""
