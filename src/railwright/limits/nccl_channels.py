"""The number of channels for a message between GPUs of one host, and their rate.

A message to one peer gets few channels, because NCCL shares them out as if every rank sent to all others at once. Only
parts of more than 16 MiB per channel double their number. So the channels limit a ring of sends that is large enough to
fill a link, and more so with more ranks.

Between hosts a message takes the NICs nearest to its GPU, not those of the other GPUs.
"""

from __future__ import annotations

from railwright.limits.limit import Constant, NoLimit
from railwright.limits.path import link_limit
from railwright.limits.sources import NCCL_P2P, P2P_MEASURED
from railwright.limits.traffic import domains
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import NvlinkLink
from railwright.topology.paths import Affinity

_CHANNELS_PER_LINK = Constant(2, "channels to a peer per NVLink to it", NCCL_P2P)
_MAX_CHANNELS = Constant(32, "channels: the 24 for collectives, rounded up to a power of two", NCCL_P2P)
_MIN_PART_BYTES = Constant(64 * 1024, "bytes for one channel, an eighth of a chunk", NCCL_P2P)
_MAX_PART_BYTES = Constant(16 * 1024 * 1024, "bytes for one channel, 32 chunks", NCCL_P2P)
_CHANNEL_LOW = Constant(19.0e9, "bytes/s per channel, copied through NCCL's own buffers, low", P2P_MEASURED)
_CHANNEL_HIGH = Constant(
    1.1 * 20.4e9, "bytes/s per channel, high: a tenth above the highest measured rate", P2P_MEASURED
)


def band_bytes_per_s(cluster: Cluster, size_bytes: int) -> tuple[float, float]:
    """Return (low, high) of the rate of a message's channels; infinite unless NVLink joins the GPUs of one host."""
    links = [link.protocol.links for link in cluster.host.links if isinstance(link.protocol, NvlinkLink)]
    if cluster.hosts > 1 or not links:
        return float("inf"), float("inf")
    used = channels(cluster.ranks, min(links), size_bytes)
    return used * _CHANNEL_LOW.value, used * _CHANNEL_HIGH.value


def near_ports_bytes_per_s(cluster: Cluster) -> float:
    """Return the rate of the ports nearest to the GPU that sends to the next host; infinite if none are known."""
    gpus = cluster.host.of_kind("gpu")
    if domains(cluster) < 2 or not gpus:
        return float("inf")
    near = Affinity(cluster.host).nearest(gpus[-1].id)
    limits = [link_limit(port) for nic, port in ports(cluster.host) if nic.id in near]
    found = [limit.value for limit in limits if not isinstance(limit, NoLimit)]
    return sum(found) if found and len(found) == len(limits) else float("inf")


def channels(ranks: int, links: int, size_bytes: int) -> int:
    """Return the number of channels of a message between GPUs joined by `links` NVLinks, in one host with `ranks`
    ranks.
    """
    maximum = 1 << (min(int(_CHANNELS_PER_LINK.value) * links, int(_MAX_CHANNELS.value)) - 1).bit_length()
    found = maximum
    while found * ranks > maximum and found > 1:
        found //= 2
    found = min(found, -(-size_bytes // int(_MIN_PART_BYTES.value)))
    while size_bytes > found * _MAX_PART_BYTES.value and 2 * found <= maximum:
        found *= 2
    return found
