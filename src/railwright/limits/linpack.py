"""Linpack: the limit is the GPUs' FP64 rate; what is expected is what peers with the same GPU reach.

There is no term for the network: over the published systems its share cannot be told from that of everything else
(fitted to ten systems it misses three others by 19 to 26 %), so nothing is extrapolated. A band is the range of 9 of 10
systems of the TOP500 with that GPU; a matrix that fills less of the memory lowers its low end as the order does.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import msgspec

from railwright.limits.limit import Constant, Expected, Limit, NoLimit, Source, Step
from railwright.limits.sources import FP64_TENSOR, TOP500
from railwright.topology.devices import Device, Topology
from railwright.topology.shapes import gpus as known_gpus
from railwright.topology.shapes.parts import GpuPart
from railwright.units import format_flops

WHOLE_CORES = Constant(
    0.97,
    "of the time of a rank's cores, in which it computes or polls",
    Source("Railwright docs/limits.md", "files and Linpack"),
)
_FULL_MEMORY = Constant(0.7, "of the GPUs' memory in the matrix, from where runs are compared", TOP500)
_LEAST_MEMORY = Constant(0.2, "of the GPUs' memory in the matrix: a smaller one says nothing", TOP500)
_BEYOND_MEMORY = Constant(1.05, "of the GPUs' memory in the matrix", TOP500)
_LARGE_MEMORY = Constant(70e9, "bytes, between the 40 and 80 GB models", TOP500)


_MODEL = re.compile(r"\b(?:[A-Z]{1,4}[0-9]{2,4}[A-Z]?|PCIE|NVL)\b")
_GPU_PARTS = tuple(part for part in vars(known_gpus).values() if isinstance(part, GpuPart))


class _Peers(NamedTuple):
    """Which GPUs: words that their name has and has not. Then the range in flop/s a GPU."""

    name: str
    has: tuple[str, ...]
    has_not: tuple[str, ...]
    large: bool
    low: Constant
    high: Constant


_PCIE = ("PCIe", "NVL", "PCIE")
_PEERS = tuple(
    _Peers(
        name,
        has,
        has_not,
        large,
        Constant(low, f"flop/s a GPU, {name}, low", TOP500),
        Constant(high, f"flop/s a GPU, {name}, high", TOP500),
    )
    for name, has, has_not, large, low, high in (
        ("A100 80 GB", ("A100",), (), True, 10.0e12, 17.2e12),
        ("A100 40 GB", ("A100",), (), False, 9.4e12, 14.5e12),
        ("GH200", ("GH200",), (), False, 29e12, 47.5e12),
        ("H200", ("H200",), ("GH200", *_PCIE), False, 40e12, 51e12),
        ("H100 SXM", ("H100",), _PCIE, False, 27.5e12, 48.5e12),
        ("H100 PCIe, two systems alone", ("H100",), (), False, 24e12, 39e12),
        ("V100", ("V100",), (), False, 3.2e12, 6.3e12),
        ("MI250X, half of one", ("MI250X",), (), False, 13.8e12, 21.3e12),
        ("MI300A", ("MI300A",), (), False, 37.5e12, 52.5e12),
    )
)


def fp64_limit(host: Topology, gpus: int, order: int) -> Limit | NoLimit:
    """Limit in flop/s of `gpus` GPUs like those of `host`, whatever solves the matrix of `order` rows."""
    model = _model(host)
    rate = fp64_rate(model) if model else None
    if model is None or rate is None:
        why = "no FP64 rate is known for these GPUs" if model else f"{host.name} has no GPU: no FP64 rate is known"
        return NoLimit(quantity="flop_per_s", why=why, missing=("gpu0: fp64_tensor_flop_per_s",))
    value = rate * gpus
    because = f"{gpus} x {model.name}, FP64 matrix rate"
    if (filled := _filled(model, gpus, order)) > _BEYOND_MEMORY.value:
        because += f"; the matrix takes {filled:.2f} times the GPUs' memory, so that part of it is elsewhere"
    return Limit(
        quantity="flop_per_s",
        value=value,
        kind="derived",
        because=because,
        bottleneck="gpu0",
        derivation=(Step(text=f"{gpus} GPUs x {format_flops(rate)} FP64", value=format_flops(value)),),
        sources=(FP64_TENSOR,),
    )


def hpl_limit(host: Topology, gpus: int, order: int) -> tuple[Limit | NoLimit, Expected | None]:
    """(limit, band) in flop/s of NVIDIA's or AMD's own HPL, which the systems of the TOP500 ran."""
    limit, model = fp64_limit(host, gpus, order), _model(host)
    if isinstance(limit, NoLimit) or model is None:
        return limit, None
    peers, filled = _peers(model), _filled(model, gpus, order)
    if incomparable := _incomparable(peers is not None, filled):
        return msgspec.structs.replace(limit, because=f"{limit.because}: an upper limit alone, {incomparable}"), None
    return limit, _band(peers, gpus, filled, limit.value) if peers else None


def _band(peers: _Peers, gpus: int, filled: float, limit_flop_per_s: float) -> Expected:
    """What peers reach, its low end lower as the order of the matrix is."""
    low, high = peers.low.value * min(1.0, math.sqrt(filled / _FULL_MEMORY.value)), peers.high.value
    each = f"{format_flops(low)} to {format_flops(high)} a GPU"
    return Expected(
        quantity="flop_per_s",
        low=low * gpus,
        high=min(high * gpus, limit_flop_per_s),
        because=f"{each}, what 9 of 10 systems of the TOP500 with {peers.name} reach",
        sources=(TOP500,),
    )


def _model(host: Topology) -> Device | None:
    return next(iter(host.of_kind("gpu")), None)


def _filled(model: Device, gpus: int, order: int) -> float:
    """Share of the GPUs' memory that the matrix takes; 0 where nobody says how much they have."""
    memory_bytes = _memory_bytes(model)
    return 8 * order**2 / (gpus * memory_bytes) if memory_bytes else 0.0


def _memory_bytes(model: Device) -> int:
    memory = model.facts.get("memory_bytes")
    return memory if isinstance(memory, int) else 0


def fp64_rate(gpu: Device) -> float | None:
    """Its FP64 rate: what the topology says, else that of the one known model whose name has the same words."""
    said = gpu.facts.get("fp64_tensor_flop_per_s")
    if isinstance(said, int | float):
        return float(said)
    kind = _kind_of(gpu.name)
    rates = {part.fp64_tensor_flop_per_s for part in _GPU_PARTS if _kind_of(part.name) == kind} if kind else set()
    return rates.pop() if len(rates) == 1 else None


def _kind_of(name: str) -> frozenset[str]:
    """The model and the form in a name: `H100` and `PCIE` of `NVIDIA H100 PCIe`; nothing without a model."""
    words = set(_MODEL.findall(name.upper()))
    return frozenset(words) if any(any(letter.isdigit() for letter in word) for word in words) else frozenset()


def _incomparable(has_peers: bool, filled: float) -> str:
    """Why a run can be held against no other, empty where it can. `filled`: share of the GPUs' memory, 0 if unknown."""
    if not has_peers:
        return "no system of the TOP500 with this GPU was looked up"
    if not filled:
        return "how much memory these GPUs have is not known, and runs are compared that fill it"
    if filled < _LEAST_MEMORY.value:
        shares = f"the matrix fills {filled:.0%} of the GPUs' memory, comparable runs {_FULL_MEMORY.value:.0%} and more"
        return shares.replace("%", " %")
    return ""


def _peers(model: Device) -> _Peers | None:
    for one in _PEERS:
        named = any(word in model.name for word in one.has) and not any(word in model.name for word in one.has_not)
        if named and (_memory_bytes(model) >= _LARGE_MEMORY.value or not one.large):
            return one
    return None
