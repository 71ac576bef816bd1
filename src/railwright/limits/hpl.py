"""Linpack: the limit is the GPUs' FP64 rate; what is expected is what peers with the same GPU reach.

There is no term for the network: over the published systems its share cannot be told from that of everything else
(fitted to ten systems it misses three others by 19 to 26 %), so nothing is extrapolated. A band is the range of 9 of 10
systems of the TOP500 with that GPU; a matrix that fills less of the memory lowers its low end as the order does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from railwright.limits.limit import Constant, Expected, Limit, NoLimit, Step
from railwright.limits.sources import FP64_TENSOR, TOP500
from railwright.topology.devices import Topology
from railwright.units import format_flops

_FULL_MEMORY = Constant(0.7, "of the GPUs' memory in the matrix, from where runs are compared", TOP500)
_LEAST_MEMORY = Constant(0.2, "of the GPUs' memory in the matrix: a smaller one says nothing", TOP500)
_BEYOND_MEMORY = Constant(1.05, "of the GPUs' memory in the matrix", TOP500)
_LARGE_MEMORY = Constant(70e9, "bytes, between the 40 and 80 GB models", TOP500)


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


def hpl_limit(host: Topology, gpus: int, order: int) -> tuple[Limit | NoLimit, Expected | None]:
    """(limit, band) in flop/s of Linpack with a matrix of `order` rows over `gpus` GPUs like those of `host`."""
    model = host.of_kind("gpu")[0] if host.of_kind("gpu") else None
    rate = model.facts.get("fp64_tensor_flop_per_s") if model else None
    if model is None or not isinstance(rate, int | float):
        why = "no FP64 rate is known for these GPUs" if model else f"{host.name} has no GPU: no FP64 rate is known"
        return NoLimit(quantity="flop_per_s", why=why, missing=("gpu0: fp64_tensor_flop_per_s",)), None
    value = float(rate) * gpus
    step = Step(text=f"{gpus} GPUs x {format_flops(float(rate))} FP64", value=format_flops(value))
    memory = model.facts.get("memory_bytes")
    memory_bytes = memory if isinstance(memory, int) else 0
    peers = _peers(model.name, memory_bytes)
    filled = 8 * order**2 / (gpus * memory_bytes) if memory_bytes else 0.0
    incomparable = _incomparable(peers is not None, filled)
    because = f"{gpus} x {model.name}, FP64 matrix rate"
    if filled > _BEYOND_MEMORY.value:
        because += f"; the matrix takes {filled:.2f} times the GPUs' memory, so that part of it is elsewhere"
    limit = Limit(
        quantity="flop_per_s",
        value=value,
        kind="derived",
        because=f"{because}: an upper limit alone, {incomparable}" if incomparable else because,
        bottleneck="gpu0",
        derivation=(step,),
        sources=(FP64_TENSOR,),
    )
    if peers is None or incomparable:
        return limit, None
    low, high = peers.low.value * min(1.0, math.sqrt(filled / _FULL_MEMORY.value)), peers.high.value
    each = f"{format_flops(low)} to {format_flops(high)} a GPU"
    band = Expected(
        quantity="flop_per_s",
        low=low * gpus,
        high=min(high * gpus, value),
        because=f"{each}, what 9 of 10 systems of the TOP500 with {peers.name} reach",
        sources=(TOP500,),
    )
    return limit, band


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


def _peers(name: str, memory_bytes: int) -> _Peers | None:
    for one in _PEERS:
        named = any(word in name for word in one.has) and not any(word in name for word in one.has_not)
        if named and (memory_bytes >= _LARGE_MEMORY.value or not one.large):
            return one
    return None
