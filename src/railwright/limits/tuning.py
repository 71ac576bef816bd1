"""NCCL's tuning model, by which it chooses: the time per step and the highest rate of each algorithm and protocol.

All figures are from src/graph/tuning.cc of NCCL 2.30.7. A domain stands for a node of that file: hosts that share
NVSwitches are one domain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from railwright.busbw import busbw_factor
from railwright.limits import rccl
from railwright.limits.limit import Constant
from railwright.limits.sources import (
    LL_MEASURED,
    NCCL_LATENCY,
    NCCL_LINES,
    NCCL_TOPO,
    NCCL_TUNING,
    OFI_LATENCY,
    SRD_LATENCY,
    TCPXO_MEASURED,
)
from railwright.limits.traffic import compute_major, domain_hosts, domains
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import EfaLink, Topology
from railwright.units import BITS_PER_BYTE

_LATENCY_US: dict[tuple[str, str, str], Constant] = {
    (algorithm, medium, protocol): Constant(us, "us", NCCL_TUNING)
    for algorithm, medium, times in (
        ("tree", "base", {"LL": 6.8, "LL128": 14.0, "Simple": 8.4}),
        ("ring", "base", {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}),
        ("tree", "NVLink", {"LL": 0.6, "LL128": 1.25, "Simple": 4.0}),
        ("ring", "NVLink", {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}),
        ("nvls", "NVLink", {"Simple": 25}),
        ("nvlstree", "NVLink", {"Simple": 25}),
        ("tree", "PCIe", {"LL": 1.0, "LL128": 1.9, "Simple": 4.0}),
        ("ring", "PCIe", {"LL": 1.0, "LL128": 2.5, "Simple": 5.7}),
        ("tree", "network", {"LL": 5.0, "LL128": 8.5, "Simple": 14}),
        ("ring", "network", {"LL": 2.7, "LL128": 4.0, "Simple": 14.0}),
        ("nvlstree", "network", {"Simple": 20.9}),
    )
    for protocol, us in times.items()
}
# (algorithm, protocol) -> share of the bandwidth, in one domain and in several
_SHARE: dict[tuple[str, str], tuple[Constant, Constant]] = {
    key: (
        Constant(single, "of the bandwidth, one domain", NCCL_TUNING),
        Constant(several, "of the bandwidth", NCCL_TUNING),
    )
    for key, single, several in (
        (("ring", "LL"), 0.5, 0.5),
        (("ring", "LL128"), 0.92, 0.92),
        (("tree", "LL"), 1 / 3.8, 1 / 3.8),
        (("tree", "LL128"), 7 / 9, 120 / 128),
    )
}
# protocol -> share of the bytes sent that is data; the rest is flags
_DATA = {
    "LL": Constant(4 / 8, "of the bytes sent, LL", NCCL_LINES),
    "LL128": Constant(120 / 128, "of the bytes sent, LL128", NCCL_LINES),
}
_PLATEAU = {
    old: Constant(times, "times the latency, Ring and Simple over domains", NCCL_TUNING)
    for old, times in ((True, 1.9), (False, 1.4))
}
_PLATEAU_FROM = Constant(64, "bytes for each channel and rank", NCCL_TUNING)
_AMPERE = Constant(8, "compute capability (major)", NCCL_TUNING)
_BLACKWELL = Constant(10, "compute capability (major)", NCCL_TUNING)
_OVERHEAD_US = {
    amd: Constant(us, "us to post one step to the network", NCCL_TUNING) for amd, us in ((False, 1.0), (True, 2.0))
}
_SIMPLE_POSTS = Constant(3, "times the posting time with Simple", NCCL_TUNING)
# compute capability (major) -> GB/s of LL in one domain; AMD CPU -> in 2 domains, in more
_LL_CAP_ONE_DOMAIN = {
    major: Constant(rate * 1e9, "bytes/s busbw of LL, one domain", NCCL_TUNING)
    for major, rate in ((7, 39.0), (8, 87.7), (9, 141.0), (10, 282.0))
}
_LL_CAP = {
    amd: tuple(Constant(rate * 1e9, "bytes/s busbw of LL over domains", NCCL_TUNING) for rate in rates)
    for amd, rates in ((False, (39.0, 20.4)), (True, (22.5, 19.0)))
}
# (algorithm, protocol or "") -> compute capability (major) -> bytes/s busbw a channel in 2 domains, in more
_CHANNEL_CAP: dict[tuple[str, str], dict[int, tuple[Constant, Constant]]] = {
    key: {
        major: (
            Constant(two * 1e9, "bytes/s busbw per channel, 2 domains", NCCL_TUNING),
            Constant(more * 1e9, "bytes/s busbw per channel, more domains", NCCL_TUNING),
        )
        for major, two, more in rates
    }
    for key, rates in (
        (("ring", "LL128"), ((7, 20.0, 20.0), (8, 20.0, 20.0), (9, 36.7, 36.7), (10, 40.0, 40.0))),
        (("tree", "LL128"), ((7, 20.0, 20.0), (8, 20.0, 20.0), (9, 36.7, 29.0), (10, 31.67, 20.0))),
        (("tree", ""), ((7, 18.5, 10.0), (8, 23.6, 17.8), (9, 41.4, 36.0), (10, 42.8, 24.0))),
        (("nvlstree", ""), ((9, 57.7, 45.5), (10, 96.0, 80.0))),
    )
}
_CAP_UNCERTAINTY = Constant(0.1, "of NCCL's caps, up and down", NCCL_LATENCY)
_LL_CAP_UNCERTAINTY = Constant(0.15, "of NCCL's cap on LL, up and down", LL_MEASURED)
_MAX_HEADS = Constant(32, "channels of NVLSTree", NCCL_TOPO)
# NCCL doubles channels if they are few and fast (src/graph/search.cc).
_DOUBLED_FROM = Constant(25e9, "bytes/s per channel", NCCL_TOPO)
_ALWAYS_DOUBLED_FROM = Constant(50e9, "bytes/s per channel", NCCL_TOPO)
_FEW = Constant(4, "channels", NCCL_TOPO)
# compute capability (major) -> channels over racks: all of a GPU's NVLinks at 45 GB/s a channel, the next speed below a
# port of 400 Gb/s (src/graph/search.cc)
_RACK_CHANNELS = {
    major: Constant(number, "channels that a GPU's NVLinks carry", NCCL_TOPO) for major, number in ((9, 8), (10, 16))
}
# protocol -> a tree's share of its bandwidth at 64 B, 128 B ... 256 MiB
_TREE_SHARE = {
    protocol: tuple(Constant(tenths / 10, "of a tree's bandwidth", NCCL_TUNING) for tenths in found)
    for protocol, found in (
        ("LL", (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10)),
        ("LL128", (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10)),
        ("Simple", (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9)),
    )
}
_FIRST_BITS = Constant(6, "bits of the first of these sizes, 64 B", NCCL_TUNING)
# line rate of an EFA port, and whether the GPUs are older than Ampere -> us that the plugin reports to NCCL
_EFA_US = {
    key: Constant(us, "us of the network, as the plugin reports to NCCL", OFI_LATENCY)
    for key, us in (((False, False), 75.0), ((False, True), 150.0), ((True, False), 35.0))
}
_FAST_EFA = Constant(200e9, "bits/s a port, EFA of the third generation", OFI_LATENCY)
_TCP_US = (
    Constant(43.0, "us of the network, GPUDirect-TCPXO, low", TCPXO_MEASURED),
    Constant(1.25 * 51.0, "us of the network, GPUDirect-TCPXO, high: a quarter above 51 us", TCPXO_MEASURED),
)
_TCP_LL_BYTES = Constant(16 * 2**20, "bytes, up to which the plugin's tables were seen to choose LL", TCPXO_MEASURED)
_SRD_US = Constant(14.6, "us, the network alone", SRD_LATENCY)


def network_us(cluster: Cluster) -> tuple[float, float]:
    """Return the network plugin's latency per step between domains in us: (real, as reported to NCCL).

    The plugins of InfiniBand and RoCE report nothing (src/transport/net_ib), so both are 0.
    """
    if uses_gpudirect_tcp(cluster):
        return _TCP_US[0].value, _TCP_US[1].value
    found = [link.protocol for _, link in ports(cluster.host) if isinstance(link.protocol, EfaLink)]
    if not found or domains(cluster) < 2:
        return 0.0, 0.0
    fast = (found[0].line_rate_bits_per_s or 0.0) >= _FAST_EFA.value
    old = not fast and compute_major(cluster.host) < _AMPERE.value
    return _SRD_US.value, _EFA_US[(fast, old)].value


def uses_gpudirect_tcp(cluster: Cluster) -> bool:
    """Report whether data between domains uses TCP that bypasses the kernel (GPUDirect-TCPX and TCPXO)."""
    return domains(cluster) > 1 and any(nic.facts.get("gpudirect_tcp") is True for nic, _ in ports(cluster.host))


def may_be_ll(cluster: Cluster, size_bytes: float) -> bool:
    """Report whether a plugin may choose LL at a size where NCCL would not."""
    return size_bytes <= _TCP_LL_BYTES.value and uses_gpudirect_tcp(cluster)


def protocols(cluster: Cluster, algorithm: str) -> Iterator[str]:
    """Return the protocols of an algorithm there."""
    known = _latencies(cluster)
    return (protocol for name, medium, protocol in known if (name, medium) == (algorithm, "NVLink"))


def _latencies(cluster: Cluster) -> dict[tuple[str, str, str], Constant]:
    return rccl.LATENCY_US if rccl.is_used(cluster) else _LATENCY_US


def latency_us(
    cluster: Cluster, collective: str, algorithm: str, protocol: str, size_bytes: float, plugin_us: float
) -> float:
    """Return NCCL's latency of an operation without its bytes, in us; each step between domains adds `plugin_us`."""
    count, ranks = domains(cluster), cluster.ranks
    gpus = cluster.gpus_per_host * domain_hosts(cluster)
    known = _latencies(cluster)
    inside = known[(algorithm, _medium(cluster, algorithm), protocol)].value
    lone = "tree" if gpus == 1 else algorithm  # with one GPU in a domain the network is not hidden
    network, start = (
        _find_latency_us(known, lone, "network", protocol),
        _find_latency_us(known, algorithm, "base", protocol),
    )
    outside = network + plugin_us * (2 if protocol == "Simple" else 1)
    levels = int(math.log2(count))
    if algorithm == "tree":
        return start + 2 * ((gpus - 1) * inside + levels * outside)
    if algorithm != "ring":
        return start + inside + 2 * levels * outside
    rounds = 2 if collective == "all_reduce" else 1
    if count > 1:
        posts = _OVERHEAD_US[cluster.host.has_amd_cpu].value
        inside = max(inside, posts * (_SIMPLE_POSTS.value if protocol == "Simple" else 1))
    times = 1.0
    if protocol == "Simple" and count > 1 and collective == "all_reduce" and known is _LATENCY_US:
        enough = size_bytes / (channels(cluster) * ranks) >= _PLATEAU_FROM.value
        times = _PLATEAU[compute_major(cluster.host) < _AMPERE.value].value if enough else 1.0
    between = rounds * (count - 1)
    return times * (start + (rounds * (ranks - 1) - between) * inside + between * outside)


def algbw(
    cluster: Cluster, collective: str, algorithm: str, protocol: str, size_bytes: float, large: float, passed: int
) -> float:
    """Return the rate of the protocol at that size over links that carry `large`, both bytes/s algbw.

    `passed` is 1 to raise NCCL's own caps by their uncertainty, -1 to lower them by it, and 0 to leave them.
    """
    if rccl.is_used(cluster):
        return large * (rccl.LL_SHARE[algorithm].value if protocol == "LL" else 1.0)
    share = _SHARE.get((algorithm, protocol))
    rate = large * (share[domains(cluster) > 1].value if share else 1.0)
    of_ll = (1 + passed * _LL_CAP_UNCERTAINTY.value) * _ll_cap(cluster, protocol)
    maximum = min(of_ll, (1 + passed * _CAP_UNCERTAINTY.value) * channel_cap(cluster, algorithm, protocol))
    rate = min(rate, maximum / float(busbw_factor(collective, cluster.ranks)))
    return rate * _tree_share(cluster, collective, algorithm, protocol, size_bytes)


def data_share(protocol: str) -> float:
    """Return the share of a protocol's bytes that is data: a limit of the software that no link can exceed."""
    share = _DATA.get(protocol)
    return share.value if share else 1.0


def channel_cap(cluster: Cluster, algorithm: str, protocol: str = "") -> float:
    """Return NCCL's cap on the rate of all channels together over domains, bytes/s busbw; inf without a cap."""
    count, major = domains(cluster), min(compute_major(cluster.host), int(_BLACKWELL.value))
    if count < 2:
        return math.inf
    found = [_CHANNEL_CAP.get((algorithm, name), {}).get(major) for name in {protocol, ""}]
    used = channels(cluster)
    if algorithm == "nvlstree":
        used = min(_count_links_out(cluster), int(_MAX_HEADS.value))
    return min((used * pair[count > 2].value for pair in found if pair is not None), default=math.inf)


def channels(cluster: Cluster) -> int:
    """Return the channels over domains that NCCL's search finds: one a NIC, at most one a GPU; few fast ones are
    doubled.
    """
    found = _count_links_out(cluster)
    if domain_hosts(cluster) > 1:
        maximum = _RACK_CHANNELS.get(min(compute_major(cluster.host), int(_BLACKWELL.value)))
        return min(found, int(maximum.value)) if maximum else found
    rates = [getattr(link.protocol, "line_rate_bits_per_s", None) or 0.0 for _, link in ports(cluster.host)]
    each = sum(rates) * domain_hosts(cluster) / found / BITS_PER_BYTE
    newer = compute_major(cluster.host) > _AMPERE.value
    if each < _DOUBLED_FROM.value or (newer and each < _ALWAYS_DOUBLED_FROM.value and found > _FEW.value):
        return found
    return 2 * found


def _count_links_out(cluster: Cluster) -> int:
    """Return the number of links out of a domain: its NIC ports, or its GPUs if there are fewer."""
    return max(1, min(len(ports(cluster.host)), cluster.gpus_per_host)) * domain_hosts(cluster)


def _ll_cap(cluster: Cluster, protocol: str) -> float:
    if protocol != "LL":
        return math.inf
    count, major = (
        domains(cluster),
        min(max(compute_major(cluster.host), min(_LL_CAP_ONE_DOMAIN)), max(_LL_CAP_ONE_DOMAIN)),
    )
    return _LL_CAP_ONE_DOMAIN[major].value if count < 2 else _LL_CAP[cluster.host.has_amd_cpu][count > 2].value


def _tree_share(cluster: Cluster, collective: str, algorithm: str, protocol: str, size_bytes: float) -> float:
    known = _TREE_SHARE[protocol]
    place = int(math.log2(size_bytes)) - int(_FIRST_BITS.value) if size_bytes >= 1 else -1
    blackwell = compute_major(cluster.host) >= _BLACKWELL.value and not _has_arm_cpu(cluster.host)
    is_tree = algorithm == "tree" or (algorithm == "nvlstree" and blackwell)
    if collective != "all_reduce" or not is_tree or not 0 <= place < len(known):
        return 1.0
    return known[place].value


def _find_latency_us(known: dict[tuple[str, str, str], Constant], algorithm: str, medium: str, protocol: str) -> float:
    """Return a latency of the model in us; 0 if the model does not have it."""
    found = known.get((algorithm, medium, protocol))
    return found.value if found else 0.0


def _medium(cluster: Cluster, algorithm: str) -> str:
    return "NVLink" if cluster.host.joins_gpus or algorithm in ("nvls", "nvlstree") else "PCIe"


def is_ampere_or_older(host: Topology) -> bool:
    """Report whether the GPUs are Ampere, Volta or Pascal, on which NCCL's own latencies were measured."""
    return 0 < compute_major(host) <= _AMPERE.value


def _has_arm_cpu(host: Topology) -> bool:
    return any(cpu.facts.get("architecture") == "arm64" for cpu in host.of_kind("cpu"))
