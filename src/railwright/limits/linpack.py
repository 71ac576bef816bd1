"""Linpack: the limit is the GPUs' FP64 rate, and for our own solver what its grid must move between hosts.

Other solvers have no term for the network: over the published systems its share cannot be separated from everything
else (fitted to ten systems it misses three others by 19 to 26 %).
"""

from __future__ import annotations

import re

from railwright.limits.limit import Constant, Limit, NoLimit, Source, Step
from railwright.limits.sources import FP64_TENSOR, TOP500
from railwright.topology.devices import Device, Topology
from railwright.topology.gpu_models import is_model
from railwright.topology.shapes import SHAPES
from railwright.units import format_flops

WHOLE_CORES = Constant(
    0.97,
    "of the time of a rank's cores, in which it computes or polls",
    Source("Railwright docs/limits.md", "files and Linpack"),
)
_BEYOND_MEMORY = Constant(1.05, "of the GPUs' memory filled by the matrix", TOP500)


_MODEL = re.compile(r"\b(?:[A-Z]{1,4}[0-9]{2,4}[A-Z]?|PCIE|NVL)\b")


def fp64_limit(host: Topology, gpus: int, order: int) -> Limit | NoLimit:
    """Return the limit in flop/s of `gpus` GPUs like those of `host`, for any solver of a matrix of `order` rows."""
    model = first_gpu(host)
    rate = fp64_rate(model) if model else None
    if model is None or rate is None:
        why = "no FP64 rate is known for these GPUs" if model else f"{host.name} has no GPU: no FP64 rate is known"
        return NoLimit(quantity="flop_per_s", why=why, missing=("gpu0: fp64_tensor_flop_per_s",))
    value = rate * gpus
    because = f"{gpus} x {model.name}, FP64 matrix rate"
    if (share := memory_share(model, gpus, order)) > _BEYOND_MEMORY.value:
        because += f"; the matrix takes {share:.2f} times the GPUs' memory, so part of it lies outside"
    return Limit(
        quantity="flop_per_s",
        value=value,
        kind="derived",
        because=because,
        bottleneck="gpu0",
        derivation=(Step(text=f"{gpus} GPUs x {format_flops(rate)} FP64", value=format_flops(value)),),
        sources=(FP64_TENSOR,),
    )


def bytes_into_host(order: int, grid: tuple[int, int], gpus_each: int) -> float:
    """Return the fewest bytes that a host receives in an LU of `order` rows on a grid filled row by row.

    A panel has order^2 / 2 elements in all, and so have the rows of U. Each GPU needs the panels of its row of the grid
    and the rows of U of its column; what one GPU of the host has, the others get from it.
    """
    rows, columns = grid
    here = range(min(gpus_each, rows * columns))
    of_rows, of_columns = len({gpu // columns for gpu in here}) / rows, len({gpu % columns for gpu in here}) / columns
    return 8 * order**2 / 2 * (of_rows * (1 - of_columns) + of_columns * (1 - of_rows))


def first_gpu(host: Topology) -> Device | None:
    """Return the GPU that stands for all GPUs of a host; None without GPUs."""
    return next(iter(host.of_kind("gpu")), None)


def memory_share(model: Device, gpus: int, order: int) -> float:
    """Return the share of the GPUs' memory that the matrix takes; 0 if their memory is unknown."""
    each = memory_bytes(model)
    return 8 * order**2 / (gpus * each) if each else 0.0


def memory_bytes(model: Device) -> int:
    """Return the memory of a GPU in bytes; 0 if unknown."""
    memory = model.facts.get("memory_bytes")
    return memory if isinstance(memory, int) else 0


def fp64_rate(gpu: Device) -> float | None:
    """Return the FP64 rate of a GPU in flop/s: the topology's fact, else the rate of the shapes' GPUs of the same model
    and form factor; None if they differ.
    """
    fact = gpu.facts.get("fp64_tensor_flop_per_s")
    if isinstance(fact, int | float):
        return float(fact)
    kind = _parse_kind(gpu.name)
    parts = (shape.gpu for shape in SHAPES.values() if kind and shape.gpu is not None)
    alike = [part for part in parts if _parse_kind(part.name) == kind]
    with_that_memory = [part for part in alike if is_model(gpu.name, part.name)]
    rates = {part.fp64_tensor_flop_per_s for part in with_that_memory or alike}
    return rates.pop() if len(rates) == 1 else None


def _parse_kind(name: str) -> frozenset[str]:
    """Return the model and form factor in a name: `H100` and `PCIE` for `NVIDIA H100 PCIe`; empty without a model."""
    words = set(_MODEL.findall(name.upper()))
    return frozenset(words) if any(any(letter.isdigit() for letter in word) for word in words) else frozenset()
