"""What `train_step` can be asked for, and what follows from it before anything runs: its points and its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from railwright.benchmarks import nccl_job
from railwright.benchmarks.base import Job, Option, Plan, choice, one_of, whole_number
from railwright.benchmarks.nccl_job import AUTO
from railwright.benchmarks.train_buckets import SINGLE, TENSOR, cut, parse_buckets
from railwright.benchmarks.train_model import Model, parse_model
from railwright.busbw import factor
from railwright.errors import UsageError
from railwright.native.train_load import ELEMENT_BYTES
from railwright.units import GIB, MIB

WAYS = ("torch", "gemm", "none")
_MOST_ITERATIONS = 10_000
_MOST_COMPUTE_MS = 60_000
_MOST_BATCH = 4096

# For the plan, on the slow side: PyTorch, CUDA and NCCL to start, ResNet-50 on one image, NCCL over PCIe, the check.
_ESTIMATE_START_S = 20.0
_ESTIMATE_IMAGE_S = 2e-3
_ESTIMATE_BYTES_PER_S = 20e9
_ESTIMATE_CHECKED_BYTES_PER_S = 0.5e9
_HOST_BYTES = 4 * GIB  # of a process with PyTorch, CUDA and NCCL loaded
_CHECKED_AT_ONCE_BYTES = 64 * MIB
_TENFOLD = 10
"""Gradients reduced at a tenth of the estimate are slow, and no hang."""

HEARD_OF_S = 10.0
"""As long as a rank may time iterations without a word to its launcher, or for one that takes longer."""


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
    nccl_job.gpus_option(1),
    nccl_job.LIBRARY_OPTION,
)  # fmt: skip


def points(options: Mapping[str, str]) -> tuple[Point, ...]:
    """Every way that settled options ask for, each once. One bucket for all is complete last: never overlapped."""
    found = (
        Point(dtype, buckets, overlap == "yes" and buckets != SINGLE)
        for dtype in choice(*ELEMENT_BYTES)(options["dtypes"])
        for buckets in parse_buckets(options["buckets"])
        for overlap in choice("yes", "no")(options["overlap"])
    )
    return tuple(dict.fromkeys(found))


def plan(job: Job) -> Plan:
    """The plan of all points; the memory is the host's, for gradients lie on the GPUs."""
    options, ranks = job.options, nccl_job.processes(job)
    model, rounds = parse_model(options["model"]), int(options["iterations"]) + 1
    compute = max(int(options["compute-ms"]) * 1e-3, int(options["batch"]) * _ESTIMATE_IMAGE_S)
    seconds, longest_s, moved = _ESTIMATE_START_S, _ESTIMATE_START_S, 0
    for point in points(options):
        size = model.parameters * ELEMENT_BYTES[point.dtype]
        sent = float(factor("all_reduce", ranks)) * size
        round_s, check_s = 2 * (compute + sent / _ESTIMATE_BYTES_PER_S), 3 * size / _ESTIMATE_CHECKED_BYTES_PER_S
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
