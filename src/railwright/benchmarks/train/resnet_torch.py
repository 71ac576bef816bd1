"""A real forward and backward pass of ResNet-50 by PyTorch, with gradients placed for the all-reduce.

Every gradient is a view into one flat tensor, in the order of the backward pass, as in DistributedDataParallel with
`gradient_as_bucket_view`. A hook on each parameter reports its complete gradient. PyTorch is imported only in ranks and
only if installed; it is no dependency.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from railwright.benchmarks.train.buckets import Bucket
from railwright.benchmarks.train.model import CLASSES, EXPANSION, STAGES, STEM_CHANNELS
from railwright.errors import CannotJudge

IMAGE_PIXELS = 224
LEAST_VERSION = (2, 1)
"""The first version with hooks after the accumulation of a gradient."""
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

Reduce = Callable[[int, int], None]
"""Sums a bucket over all ranks. Takes its number and the handle of the stream to run behind."""


def load() -> Any:  # noqa: ANN401 - torch is typed where it is installed, and only there
    """Load torch. Raises CannotJudge if it is missing, older than 2.1 or sees no GPU."""
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CannotJudge(f"PyTorch cannot be imported: {reason}", hint="give compute=gemm") from error
    version = tuple(int(part) for part in str(torch.__version__).split(".")[:2] if part.isdecimal())
    if version < LEAST_VERSION:
        raise CannotJudge(f"PyTorch {torch.__version__} is older than 2.1", hint="give compute=gemm")
    if not torch.cuda.is_available():
        raise CannotJudge("PyTorch sees no GPU", hint="it may be a build for CPUs, or for a newer driver")
    return torch


def resnet50(torch: Any) -> Any:  # noqa: ANN401
    """Build the model of `model.resnet50_shapes` with random weights, its parameters in the same order."""
    nn = torch.nn

    def convolution(given: int, made: int, size: int, stride: int = 1) -> list[Any]:
        """Return a convolution without a bias, because a normalisation follows it."""
        whole = nn.Conv2d(given, made, size, stride=stride, padding=size // 2, bias=False)
        return [whole, nn.BatchNorm2d(made)]

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        """1x1, 3x3 and 1x1 convolutions with a shortcut around them."""

        def __init__(self, given: int, width: int, stride: int, *, first: bool) -> None:
            super().__init__()
            made = width * EXPANSION
            self.body = nn.Sequential(
                *convolution(given, width, 1), nn.ReLU(inplace=True),
                *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
                *convolution(width, made, 1),
            )  # fmt: skip
            self.shortcut = nn.Sequential(*convolution(given, made, 1, stride)) if first else nn.Identity()
            self.end = nn.ReLU(inplace=True)

        def forward(self, images: Any) -> Any:  # noqa: ANN401
            return self.end(self.body(images) + self.shortcut(images))

    layers = [*convolution(3, STEM_CHANNELS, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    channels = STEM_CHANNELS
    for width, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1, first=block == 0))
            channels = width * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class Trainer:
    """A model with a batch of random images on a device, and its gradients in one flat tensor.

    `stream` is the handle of the stream on which all of it runs; None on a CPU, which only tests use.
    """

    def __init__(
        self,
        torch: Any,  # noqa: ANN401
        model: Any,  # noqa: ANN401
        dtype: str,
        batch: int,
        *,
        device: str,
        stream: int | None,
        seed: int,
        pixels: int = IMAGE_PIXELS,
    ) -> None:
        self._torch, self._stream = torch, None
        if stream is not None:
            self._stream = torch.cuda.ExternalStream(stream, device=device)
        kind = getattr(torch, _DTYPES[dtype])
        with self._use_stream():
            torch.manual_seed(seed)  # ranks have different images, so that their gradients differ
            self._model = model.to(device=device, dtype=kind, memory_format=torch.channels_last)
            images = torch.randn(batch, 3, pixels, pixels, device=device, dtype=kind)
            self._images = images.contiguous(memory_format=torch.channels_last)
            self._labels = torch.randint(CLASSES, (batch,), device=device)
            parameters = list(reversed(list(self._model.parameters())))
            self.counts = tuple(parameter.numel() for parameter in parameters)
            self.flat = torch.zeros(sum(self.counts), device=device, dtype=kind)
            self._place(parameters)
        self._bucket_of: list[int] = []
        self._sizes: list[int] = []
        self._missing: list[int] = []
        self._next = 0
        self._reduce: Reduce | None = None

    def _use_stream(self) -> Any:  # noqa: ANN401
        return self._torch.cuda.stream(self._stream) if self._stream is not None else self._torch.enable_grad()

    def _place(self, parameters: Sequence[Any]) -> None:
        """Make gradients views of the flat tensor with their parameters' strides, and hook each parameter."""
        first = 0
        for index, parameter in enumerate(parameters):
            part = self.flat[first : first + parameter.numel()]
            parameter.grad = part.as_strided(parameter.size(), parameter.stride())
            parameter.register_post_accumulate_grad_hook(lambda _gradient, index=index: self._count_arrival(index))
            first += parameter.numel()

    @property
    def address(self) -> int:
        """Return the gradients' address."""
        return int(self.flat.data_ptr())

    def use(self, buckets: Sequence[Bucket]) -> None:
        """Use these buckets of whole tensors from the next step on."""
        self._bucket_of, self._sizes, number, first = [], [0] * len(buckets), 0, 0
        for count in self.counts:
            while first >= buckets[number].end:
                number += 1
            self._bucket_of.append(number)
            self._sizes[number] += 1
            first += count

    def _count_arrival(self, index: int) -> None:
        """Handle a complete gradient: buckets are reduced in order, the same on every rank, once all before are
        complete.
        """
        if self._reduce is None:
            return
        self._missing[self._bucket_of[index]] -= 1
        while self._next < len(self._missing) and not self._missing[self._next]:
            self._reduce(self._next, self._current())
            self._next += 1

    def _current(self) -> int:
        """Return the stream on which autograd placed the gradient."""
        return int(self._torch.cuda.current_stream().cuda_stream) if self._stream is not None else 0

    def step(self, reduce: Reduce | None) -> None:
        """Zero the gradients and run both passes; calls `reduce` for each bucket as soon as it is complete."""
        self._reduce, self._missing, self._next = reduce, list(self._sizes), 0
        with self._use_stream():
            self.flat.zero_()
            loss = self._torch.nn.functional.cross_entropy(self._model(self._images).float(), self._labels)
            loss.backward()
        self._reduce = None
        if reduce is not None and self._next < len(self._sizes):
            raise RuntimeError(f"only {self._next} of {len(self._sizes)} buckets were completed by the backward pass")
