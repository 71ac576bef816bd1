"""Linpack: the limit is the GPUs' FP64 rate; what is expected is what peers with the same GPU reach.

There is no term for the network: over the published systems its share cannot be told from that of everything else
(fitted to ten systems it misses three others by 19 to 26 %), so nothing is extrapolated. Peers are runs that fill the
memory; a run that does not is compared with none.
"""

from __future__ import annotations

from railwright.limits.model import Constant, Expected, Limit, NoLimit, Step
from railwright.limits.sources import FP64_TENSOR, TOP500
from railwright.topology.model import Topology
from railwright.units import format_flops

_FULL_MEMORY = Constant(
    value=0.85, unit="of the GPUs' memory in the matrix, from where runs are compared", source=TOP500
)
_LARGE_MEMORY = Constant(value=70e9, unit="bytes, between the 40 and 80 GB models", source=TOP500)
# (name holds, whether only with a large memory) -> flop/s a GPU of peers, low and high; the first that fits counts
_PEERS: dict[tuple[str, bool], tuple[Constant, Constant]] = {
    ("A100", True): (
        Constant(value=13.8e12, unit="flop/s a GPU, A100 80 GB, low", source=TOP500),
        Constant(value=15.8e12, unit="flop/s a GPU, A100 80 GB, high", source=TOP500),
    ),
    ("A100", False): (
        Constant(value=10.9e12, unit="flop/s a GPU, A100 40 GB, low", source=TOP500),
        Constant(value=14.3e12, unit="flop/s a GPU, A100 40 GB, high", source=TOP500),
    ),
    ("GH200", False): (
        Constant(value=29e12, unit="flop/s a GPU, GH200, low", source=TOP500),
        Constant(value=47e12, unit="flop/s a GPU, GH200, high", source=TOP500),
    ),
    ("H100", True): (
        Constant(value=36e12, unit="flop/s a GPU, H100 80 GB, low", source=TOP500),
        Constant(value=46e12, unit="flop/s a GPU, H100 80 GB, high", source=TOP500),
    ),
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
    limit = Limit(
        quantity="flop_per_s",
        value=value,
        kind="derived",
        because=f"{gpus} x {model.name}, FP64 matrix rate",
        bottleneck="gpu0",
        derivation=(step,),
        sources=(FP64_TENSOR,),
    )
    memory = model.facts.get("memory_bytes")
    filled = 8 * order**2 / (gpus * memory) if isinstance(memory, int) and memory else 0.0
    peers = _peers(model.name, memory if isinstance(memory, int) else 0)
    if peers is None or filled < _FULL_MEMORY.value:
        return limit, None
    band = Expected(
        quantity="flop_per_s",
        low=peers[0].value * gpus,
        high=min(peers[1].value * gpus, value),
        because=f"{peers[0].unit.rpartition(',')[0]}: what systems of the TOP500 reach with a full memory",
        sources=(TOP500,),
    )
    return limit, band


def _peers(name: str, memory_bytes: int) -> tuple[Constant, Constant] | None:
    for (word, large), band in _PEERS.items():
        if word in name and (memory_bytes >= _LARGE_MEMORY.value or not large):
            return band
    return None
