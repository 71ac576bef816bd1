"""The models whose training is imitated: ResNet-50 tensor by tensor, or any number of parameters. Pure; no torch.

ResNet-50 is that of He et al. 2016 (Deep Residual Learning for Image Recognition, table 1) with 1,000 classes:
25,557,032 parameters in 161 tensors. The stride of a stage is at its 3x3 convolution, which does not affect the
parameters.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from railwright.errors import UsageError

RESNET50 = "resnet50"
CLASSES = 1000
EXPANSION = 4
"""The ratio of a block's output channels to its width."""
STEM_CHANNELS = 64
LEAST_PARAMETERS = 10_000
MOST_PARAMETERS = 200 * 10**9
LAYERS = 32
"""The layers of a model given by its number of parameters: those of LLaMA 7B."""

_COUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMB]?)", re.IGNORECASE | re.ASCII)
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


class Stage(NamedTuple):
    """A stage of ResNet-50: bottleneck blocks of a width, the first with a stride."""

    width: int
    blocks: int
    stride: int


STAGES = (Stage(64, 3, 1), Stage(128, 4, 2), Stage(256, 6, 2), Stage(512, 3, 2))


class Model(NamedTuple):
    """A model's gradient sizes for the all-reduce, in the order in which a backward pass completes them."""

    name: str
    gradients: tuple[int, ...]
    tensors: bool
    """Whether the gradients are a real model's tensors; else they may be divided anywhere."""

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return sum(self.gradients)


def parse_model(text: str) -> Model:
    """Parse `resnet50`, or a number of parameters such as `25.6M` or `7B` (decimal: B = 10^9). Raises UsageError."""
    name = text.strip()
    if name.lower() == RESNET50:
        counts = tuple(math.prod(shape) for shape in reversed(resnet50_shapes()))
        return Model(RESNET50, counts, tensors=True)
    match = _COUNT.fullmatch(name)
    if match is None:
        raise UsageError(f"invalid model: {name[:40]!r}", hint=f"write {RESNET50}, or a number of parameters like 7B")
    count = round(float(match.group(1)) * _SCALE[match.group(2).upper()])
    if not LEAST_PARAMETERS <= count <= MOST_PARAMETERS:
        raise UsageError(
            f"a model must have {LEAST_PARAMETERS:,} to {MOST_PARAMETERS:,} parameters, got {name}",
            hint="give a number like 7B",
        )
    return Model(name.upper(), (count,), tensors=False)


def resnet50_shapes() -> tuple[tuple[int, ...], ...]:
    """Return the shape of every parameter of ResNet-50 in layer order: weights, then scale and shift."""
    shapes: list[tuple[int, ...]] = [(STEM_CHANNELS, 3, 7, 7), *_normalisation_shapes(STEM_CHANNELS)]
    channels = STEM_CHANNELS
    for stage in STAGES:
        for block in range(stage.blocks):
            out = stage.width * EXPANSION
            shapes += [(stage.width, channels, 1, 1), *_normalisation_shapes(stage.width)]
            shapes += [(stage.width, stage.width, 3, 3), *_normalisation_shapes(stage.width)]
            shapes += [(out, stage.width, 1, 1), *_normalisation_shapes(out)]
            if block == 0:
                shapes += [(out, channels, 1, 1), *_normalisation_shapes(out)]
            channels = out
    return (*shapes, (CLASSES, channels), (CLASSES,))


def _normalisation_shapes(channels: int) -> list[tuple[int, ...]]:
    """Return the shapes of a batch normalisation's scale and shift."""
    return [(channels,), (channels,)]
