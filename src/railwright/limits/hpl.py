"""Linpack: the limit is the GPUs' FP64 rate; what is expected is what peers with the same GPU reach.

There is no term for the network: over the published systems its share cannot be told from that of everything else
(fitted to ten systems it misses three others by 19 to 26 %), so nothing is extrapolated. Peers are runs that fill the
memory; a run that does not is compared with none.
"""

from __future__ import annotations

from railwright.limits.limit import Constant, Expected, Limit, NoLimit, Step
from railwright.limits.sources import FP64_TENSOR, TOP500
from railwright.topology.devices import Topology
from railwright.units import format_flops

_FULL_MEMORY = Constant(0.85, "of the GPUs' memory in the matrix, from where runs are compared", TOP500)
_LARGE_MEMORY = Constant(70e9, "bytes, between the 40 and 80 GB models", TOP500)
# (name holds, whether only with a large memory) -> peers, flop/s a GPU low and high; the first that fits counts
_PEERS: dict[tuple[str, bool], tuple[str, Constant, Constant]] = {
    (word, large): (
        peers,
        Constant(low, f"flop/s a GPU, {peers}, low", TOP500),
        Constant(high, f"flop/s a GPU, {peers}, high", TOP500),
    )
    for word, large, peers, low, high in (
        ("A100", True, "A100 80 GB", 13.8e12, 15.8e12),
        ("A100", False, "A100 40 GB", 10.9e12, 14.3e12),
        ("GH200", False, "GH200", 29e12, 47e12),
        ("H100", True, "H100 80 GB", 36e12, 46e12),
    )
}


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
    incomparable = _incomparable(peers is not None, 8 * order**2, gpus * memory_bytes)
    because = f"{gpus} x {model.name}, FP64 matrix rate"
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
    name, low, high = peers[0], peers[1].value, peers[2].value
    each = f"{format_flops(low)} to {format_flops(high)} a GPU"
    band = Expected(
        quantity="flop_per_s",
        low=low * gpus,
        high=min(high * gpus, value),
        because=f"{each}, what systems of the TOP500 with {name} reach with a full memory",
        sources=(TOP500,),
    )
    return limit, band


def _incomparable(has_peers: bool, matrix_bytes: int, memory_bytes: int) -> str:
    """Why a run can be held against no other, empty where it can."""
    if not has_peers:
        return "no system of the TOP500 with this GPU was looked up"
    if not memory_bytes:
        return "how much memory these GPUs have is not known, and runs are compared that fill it"
    filled = matrix_bytes / memory_bytes
    if filled < _FULL_MEMORY.value:
        shares = f"the matrix fills {filled:.0%} of the GPUs' memory, comparable runs {_FULL_MEMORY.value:.0%} and more"
        return shares.replace("%", " %")
    return ""


def _peers(name: str, memory_bytes: int) -> tuple[str, Constant, Constant] | None:
    for (word, large), band in _PEERS.items():
        if word in name and (memory_bytes >= _LARGE_MEMORY.value or not large):
            return band
    return None
