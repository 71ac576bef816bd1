"""The compute phases of `train_step`: PyTorch's ResNet-50, cuBLAS, or a kernel that only computes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

from railwright.benchmarks.nccl.gpus import AUTO
from railwright.benchmarks.together import Unavailable, open_on_all_ranks
from railwright.benchmarks.train import resnet_torch as train_torch
from railwright.benchmarks.train.buckets import Bucket, cut, last_parts, slices
from railwright.benchmarks.train.model import LAYERS, Model
from railwright.benchmarks.train.options import Point, TrainRank
from railwright.native.cuda import Device, DeviceBuffer, Stream
from railwright.native.train import Gradients, Step, Timed
from railwright.native.train_load import ELEMENT_BYTES, Cublas, Kind, Load
from railwright.topology.devices import Scalar

_TORCH_WARM_UP = 5
"""Steps in which PyTorch and cuDNN allocate, and choose their kernels."""


class Way(NamedTuple):
    """The library for compute that every rank has, with its requirements."""

    name: Kind | Literal["torch"]
    fallback: str
    """The reason why an earlier choice is unavailable; empty if this is the first choice."""
    torch: Any
    cublas: Cublas | None


def find_torch(rank: TrainRank, model: Model) -> Way | None:
    """Return PyTorch if every rank has it, or None if the model or `compute` excludes it. Collective.

    Call it before NCCL is loaded: PyTorch must find the NCCL that it was built with. A way without torch gives the
    reason in `fallback`. Raises Unavailable on all ranks if torch is required.
    """
    asked = rank.job.options.compute
    if asked not in (AUTO, "torch") or not model.tensors:
        return None
    rank.step("import torch")
    try:
        return Way("torch", "", open_on_all_ranks(rank, train_torch.load), None)
    except Unavailable as error:
        if asked == "torch":
            raise
        return Way("torch", error.message, None, None)


def choose(rank: TrainRank, device: Device, stream: Stream, torch: Way | None) -> Way:
    """Return the first way that every rank supports among those that `compute` allows. Collective.

    Raises Unavailable on all ranks if a rank lacks the requested way.
    """
    asked = rank.job.options.compute
    if asked == "none":
        return Way("none", "", None, None)
    if torch is not None and torch.torch is not None:
        return torch
    fallback = torch.fallback if torch is not None else ""
    rank.step("cuBLAS")
    try:
        return Way("gemm", fallback, None, open_on_all_ranks(rank, lambda: Cublas(device, stream)))
    except Unavailable as error:
        if asked == "gemm":
            raise
        reason = f"{fallback}; {error.message}" if fallback else error.message
        return Way("burn", reason, None, None)


@contextmanager
def open_phase(rank: TrainRank, way: Way, device: Device, stream: Stream, model: Model, dtype: str) -> Iterator[Phase]:
    """Open and calibrate the compute phase of one dtype; frees its memory at the end. Collective."""
    rank.step(f"{way.name} {dtype}")
    if way.name == "torch":
        yield _TorchPhase(rank, way.torch, device, stream, dtype)
        way.torch.cuda.empty_cache()
        return
    layers = slices(model.parameters, LAYERS)
    held = ExitStack()  # closed only after success: freeing memory waits for a GPU that may wait for a dead rank
    memory = held.enter_context(DeviceBuffer(device, model.parameters * ELEMENT_BYTES[dtype]))
    load = held.enter_context(Load(way.name, layers, dtype, device, rank=rank.index, cublas=way.cublas))
    memory.set_bytes(0)
    load.calibrate(rank.job.options.compute_ms * 1e-3, memory.address, stream)
    load.set(*rank.comm.bcast(load.size))  # the same work on all ranks, so that a slow GPU shows
    yield _LoadPhase(Gradients(memory.address, model.parameters, dtype), load, model, layers, way)
    held.close()


class _LoadPhase:
    """Matrix products or the burn kernel: an iteration is one call of the C library."""

    def __init__(self, gradients: Gradients, load: Load, model: Model, layers: Sequence[int], way: Way) -> None:
        self.gradients, self.load = gradients, load
        self._model, self._layers = model, layers
        self.settings: dict[str, Scalar] = {"compute": way.name}
        if way.cublas is not None:
            self.settings["compute"] = f"gemm (cuBLAS {way.cublas.version})"
            self.settings |= {"tokens": load.size[0], "repeats": load.size[1], "flop": load.flops}

    def cut(self, point: Point) -> tuple[tuple[int, int, int], ...]:
        """Return the first element, count and completing layer of each bucket; divides anywhere if the model has no
        tensors.
        """
        buckets = _cut(self._model, point)
        return tuple(
            (bucket.first, bucket.elements, layer)
            for bucket, layer in zip(buckets, last_parts(buckets, self._layers), strict=True)
        )

    def run(self, step: Step, point: Point, *, warm: int, samples: int) -> Timed:
        """Time iterations in C, without Python between them."""
        del point  # the step already has it
        return step.run(warm=warm, samples=samples)

    def once(self, step: Step, point: Point) -> None:
        """Run an iteration in C."""
        del point
        step.once()


class _TorchPhase:
    """PyTorch's forward and backward pass; NCCL is called by its hooks, or after it."""

    def __init__(self, rank: TrainRank, torch: Any, device: Device, stream: Stream, dtype: str) -> None:  # noqa: ANN401
        batch = rank.job.options.batch
        torch.cuda.set_device(device.ordinal)
        torch.backends.cudnn.benchmark = True  # images keep their size, as in training
        self._stream = stream
        self._trainer = train_torch.Trainer(
            torch, train_torch.resnet50(torch), dtype, batch, device=f"cuda:{device.ordinal}", stream=stream.handle,
            seed=rank.index,
        )  # fmt: skip
        counts = self._trainer.counts
        self._model = Model("resnet50", counts, tensors=True)
        self.gradients = Gradients(self._trainer.address, sum(counts), dtype)
        self.load = Load("none", (sum(counts),), dtype, device)
        self.settings: dict[str, Scalar] = {
            "compute": f"torch {torch.__version__}",
            "batch": batch,
            "cudnn": str(torch.backends.cudnn.version()),
            "tf32": bool(torch.backends.cudnn.allow_tf32),
        }
        self._trainer.use(cut("single", counts, 1, divisible=False))
        for _ in range(_TORCH_WARM_UP):
            self._trainer.step(None)
        stream.synchronize()

    def cut(self, point: Point) -> tuple[tuple[int, int, int], ...]:
        """Return the same for whole tensors, with 0 as the layer, because the hooks report complete buckets."""
        buckets = _cut(self._model, point)
        self._trainer.use(buckets)
        return tuple((bucket.first, bucket.elements, 0) for bucket in buckets)

    def run(self, step: Step, point: Point, *, warm: int, samples: int) -> Timed:
        """Time iterations as `rw_train_run` does: with communication, without, and the communication alone, in turn."""
        timed = Timed([], [], [], [])
        for number in range(-warm, samples):
            iteration = self._iterate(step, point, communicates=True)
            compute = self._iterate(step, point, communicates=False)
            device = step.between_marks()
            alone = step.run(warm=0, samples=1, only_communication=True).communication
            if number >= 0:
                for seconds, part in zip((iteration, compute, device, *alone), timed, strict=True):
                    part.append(seconds)
        return timed

    def once(self, step: Step, point: Point) -> None:
        """Run one iteration with communication."""
        self._iterate(step, point, communicates=True)

    def _iterate(self, step: Step, point: Point, *, communicates: bool) -> float:
        def reduce(bucket: int, after: int) -> None:
            step.reduce(bucket, 1, after)

        buckets = step.bucket_count
        start = time.monotonic()
        if not communicates:
            step.mark(end=False)
        self._trainer.step(reduce if communicates and point.overlap else None)
        if communicates and not point.overlap:
            step.reduce(0, buckets, self._stream.handle)
        if not communicates:
            step.mark(end=True)
        return step.finish(communicates=communicates) - start


Phase = _LoadPhase | _TorchPhase
"""A compute phase of one dtype, with its gradients on the GPU."""


def _cut(model: Model, point: Point) -> tuple[Bucket, ...]:
    return cut(point.buckets, model.gradients, ELEMENT_BYTES[point.dtype], divisible=not model.tensors)
