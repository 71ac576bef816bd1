"""The bands of rates that NCCL reaches on each kind of link, from measurements of healthy machines and NCCL's own
planning figures. They are never limits.

Each resource of the flow program has a band (low, high) in bytes/s. The program is solved with all lows and with all
highs. So the band of a collective follows from its links and is not fitted to any system.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from railwright.limits import pcie, rccl, sources, tuning
from railwright.limits.case import Case
from railwright.limits.flow_graph import Resource
from railwright.limits.limit import Constant
from railwright.limits.traffic import compute_major, domain_hosts
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Device, EthernetLink, NvlinkLink, PcieLink, SmpLink, Topology, XgmiLink

# NVLink generation -> NCCL's planning rate of one link
_NVLINK: dict[int, Constant] = {
    1: Constant(18.0e9, "bytes/s per link and direction, SM60", sources.NCCL_TOPO),
    2: Constant(20.0e9, "bytes/s per link and direction, SM70", sources.NCCL_TOPO),
    3: Constant(20.0e9, "bytes/s per link and direction, SM80", sources.NCCL_TOPO),
    4: Constant(20.6e9, "bytes/s per link and direction, SM90", sources.NCCL_TOPO),
    5: Constant(40.1e9, "bytes/s per link and direction, SM100", sources.NCCL_TOPO),
}
_NVLINK_OTHERS_LOW = Constant(0.77, "of NCCL's planning rate, all_gather and others", sources.H200_GATHERS)
# The ring of an all_reduce passes its data to a neighbour as send_recv does, over the same links and channels.
_NVLINK_DIRECT_LOW = Constant(0.85, "of NCCL's planning rate, over links without a switch", sources.NVLINK_SENDS)
_NVLINK_SHARE = (
    Constant(0.90, "of NCCL's planning rate, low", sources.NVLINK_RINGS),
    Constant(1.02, "of NCCL's planning rate, high", sources.NVLINK_RINGS),
)
# compute capability (major) -> NVLS's share of the planning rate
_NVLS: dict[int, Constant] = {
    9: Constant(0.85, "of NVLink's planning rate, NVLS", sources.NCCL_TUNING),
    10: Constant(0.74, "of NVLink's planning rate, NVLS", sources.NCCL_TUNING),
}
_NVLS_OVER_HOSTS = Constant(0.594 / 0.74, "of NVLS in one host, over a rack, low", sources.NVL72_MEASURED)
_CAP_UNCERTAINTY = Constant(0.1, "of NCCL's caps on trees, up and down", sources.NCCL_LATENCY)
_STEADY = ("all_reduce", "send_recv")
TREE_SHARE = Constant(0.92, "of the ring's rate on the same links", sources.NCCL_TUNING)
_XGMI_SHARE = (
    Constant(0.65, "of links x rate, low", sources.AMD_XGMI),
    Constant(0.75, "of links x rate, high", sources.AMD_XGMI),
)
_NIC_SHARE = (
    Constant(0.82, "of a port's payload rate, low", sources.NCCL_ON_NICS),
    Constant(0.98, "of a port's payload rate, high", sources.NCCL_ON_NICS),
)
TCP_BAND = (
    Constant(1.2e9, "bytes/s per port over sockets, low", sources.NCCL_SOCKETS),
    Constant(6e9, "bytes/s per port over sockets, high", sources.NCCL_SOCKETS),
)
_ALL_TO_ALL_LOW = Constant(0.75, "of a port's payload rate, many peers at once", sources.P5_ALL_TO_ALL)
# NCCL plans PCIe with 12, 24, 48 GB/s for Gen3, 4, 5 x16: this share of its raw rate
_PCIE_LOW = Constant(48 / 63.02, "of the raw rate", sources.NCCL_TOPO)
# class of CPU -> GPU-to-GPU rate across its sockets: NCCL's planning rate, and the highest rate measured
_SOCKETS: dict[str, tuple[Constant, Constant]] = {
    name: (Constant(low, "bytes/s, GPU to GPU", sources.NCCL_TOPO), Constant(high, "bytes/s, GPU to GPU, high", seen))
    for name, low, high, seen in (
        ("Broadwell", 6e9, 14.4e9, sources.CROSS_NUMA_MEASURED),
        ("Skylake", 10e9, 24e9, sources.CROSS_NUMA_MEASURED),
        ("Sapphire Rapids", 22e9, 52.8e9, sources.CROSS_NUMA_MEASURED),
        ("Emerald Rapids", 40e9, 96e9, sources.CROSS_NUMA_MEASURED),
        ("Zen 2", 16e9, 25e9, sources.ROME_SOCKETS_MEASURED),
        ("Zen 3 or 4", 16e9, 43e9, sources.CROSS_NUMA_MEASURED),
        ("AMD", 16e9, 56e9, sources.CROSS_NUMA_MEASURED),
        ("Arm", 6e9, 14.4e9, sources.CROSS_NUMA_MEASURED),
    )
}
# class of CPU -> the same for data through host memory
_SOCKETS_THROUGH_MEMORY = {
    "Sapphire Rapids": Constant(25e9, "bytes/s, GPU to GPU through host memory, low", sources.NO_P2P_MEASURED)
}
# AMD's family and lowest model of each class, newest first
_AMD_MODELS: dict[str, tuple[Constant, Constant]] = {
    name: (Constant(family, "family", sources.LINUX_ZEN), Constant(model, "model", sources.LINUX_ZEN))
    for name, family, model in (("AMD", 26, 0), ("Zen 3 or 4", 25, 0), ("Zen 2", 23, 48))
}
# Intel model numbers of family 6, the lowest of each class
_INTEL_MODELS: dict[str, Constant] = {
    "Emerald Rapids": Constant(207, "model", sources.NCCL_TOPO),
    "Sapphire Rapids": Constant(143, "model", sources.NCCL_TOPO),
    "Skylake": Constant(85, "model", sources.NCCL_TOPO),
    "Broadwell": Constant(0, "model", sources.NCCL_TOPO),
}
_ACROSS_CPU_LOW = Constant(16e9, "bytes/s between PCIe devices through a CPU", sources.NCCL_412)
_GPUS_ACROSS_CPU = Constant(0.55, "of a GPU's PCIe link, to another through a CPU", sources.CROSS_NUMA_MEASURED)
_WITHOUT_PEERS = (
    Constant(0.45, "of a GPU's PCIe link, through host memory, low", sources.NO_P2P_MEASURED),
    Constant(0.66, "of a GPU's PCIe link, through host memory, high", sources.NO_P2P_MEASURED),
)
_C2C_SHARE = Constant(0.8, "of the rate, low", sources.P2C_MEASURED)


class Band(NamedTuple):
    """The rate of a resource on healthy machines, in bytes/s; `low` is None if no document gives it."""

    low: float | None
    high: float


_UNKNOWN = Band(None, math.inf)


class Bands:
    """The band of every resource of one machine, for one collective and algorithm."""

    def __init__(self, case: Case, collective: str, algorithm: str) -> None:
        self._case = case
        self._host = case.cluster.host
        self._collective = collective
        self._gpus = {gpu.id for gpu in case.cluster.host.of_kind("gpu")}
        self._reducing = algorithm in ("nvls", "nvlstree", "collnet")
        self._no_peers = any(host.facts.get("peer_to_peer") is False for host in self._host.of_kind("host"))
        self._through_memory = case.through_memory or self._no_peers
        self._nics_below_switches = _every_gpu_has_a_nic_at_its_switch(self._host)
        self._share = TREE_SHARE.value if algorithm == "tree" else 1.0
        slower = algorithm == "tree" and case.cluster.hosts > 1 and rccl.is_used(case.cluster)
        self._low = rccl.TREE_LOW.value / TREE_SHARE.value if slower else 1.0

    def find(self, resource: Resource) -> Band:
        """Return the band of a resource."""
        at_a_gpu = self._gpus & {resource.link.a, resource.link.b}
        cap = self._case.gpu_cap_bytes_per_s if at_a_gpu else math.inf
        low, high = self._find_band(resource)
        if at_a_gpu and self._no_peers and low is not None:
            rate = resource.limit_bytes_per_s
            low, high = min(low, _WITHOUT_PEERS[0].value * rate), min(high, _WITHOUT_PEERS[1].value * rate)
        maximum = resource.limit_bytes_per_s
        return Band(
            None if low is None else min(min(low, cap) * self._share * self._low, maximum),
            min(min(high, cap) * self._share, maximum),
        )

    def _find_band(self, resource: Resource) -> Band:
        rate, protocol = resource.limit_bytes_per_s, resource.link.protocol
        if resource.kind in ("NIC port", "uplinks"):
            cap = self._case.port_cap_bytes_per_s if resource.kind == "NIC port" else math.inf
            if isinstance(protocol, EthernetLink) and not protocol.rdma and not self._bypasses_kernel(resource):
                return Band(min(TCP_BAND[0].value, cap, rate), min(TCP_BAND[1].value, cap, rate))
            low = _ALL_TO_ALL_LOW if self._collective == "all_to_all" else _NIC_SHARE[0]
            return Band(min(low.value * rate, cap), min(_NIC_SHARE[1].value * rate, cap))
        if isinstance(protocol, NvlinkLink):
            return self._nvlink_band(protocol)
        if isinstance(protocol, XgmiLink):
            return _UNKNOWN if protocol.name else Band(_XGMI_SHARE[0].value * rate, _XGMI_SHARE[1].value * rate)
        if isinstance(protocol, PcieLink):
            raw = pcie.raw_rate(protocol.gt_per_s or 0.0, protocol.width or 0)
            if raw is None:
                return Band(math.inf, math.inf) if self._is_not_counted(resource) else _UNKNOWN
            return Band(_PCIE_LOW.value * raw, rate)
        if resource.kind == "C2C":
            return Band(_C2C_SHARE.value * rate, rate)
        return self._socket_band(resource) if isinstance(protocol, SmpLink) else self._cpu_band(resource)

    def _bypasses_kernel(self, resource: Resource) -> bool:
        """Report whether NCCL's plugin for that NIC moves TCP data past the kernel into GPU memory (GPUDirect-TCPX)."""
        nic = self._host.device(resource.link.a)
        return nic is not None and nic.facts.get("gpudirect_tcp") is True

    def _is_not_counted(self, resource: Resource) -> bool:
        """Report whether the link is assumed wide enough: a NIC's own slot, or a GPU in the CPU's package, which has no
        slot.
        """
        ends = [self._host.device(end) for end in (resource.link.a, resource.link.b)]
        known = [end for end in ends if end is not None]
        return any(end.kind in ("nic", "card") or end.facts.get("integrated") is True for end in known)

    def _nvlink_band(self, protocol: NvlinkLink) -> Band:
        planned, reached = _NVLINK.get(protocol.generation), self._nvls_shares() if self._reducing else (1.0, 1.0)
        if planned is None or reached is None:
            return _UNKNOWN
        rate = planned.value * protocol.links
        low = _NVLINK_SHARE[0] if self._collective in _STEADY else _NVLINK_OTHERS_LOW
        if self._collective in _STEADY and not self._host.of_kind("nvswitch"):
            low = _NVLINK_DIRECT_LOW
        return Band(low.value * rate * reached[0], _NVLINK_SHARE[1].value * rate * reached[1])

    def _nvls_shares(self) -> tuple[float, float] | None:
        """Return the shares (low, high) of NVLS; low is lower over the hosts of a rack, from the one rack measured."""
        found = _NVLS.get(compute_major(self._host))
        if found is None:
            return None
        over_hosts = domain_hosts(self._case.cluster) > 1
        return found.value * (_NVLS_OVER_HOSTS.value if over_hosts else 1.0), found.value

    def _socket_band(self, resource: Resource) -> Band:
        if resource.link.protocol == SmpLink(name="in socket"):
            return Band(math.inf if self._through_memory else _ACROSS_CPU_LOW.value, math.inf)
        cpu = self._host.device(resource.link.a)
        name = _cpu_class(cpu) if cpu else ""
        if name not in _SOCKETS:
            return _UNKNOWN
        low, high = _SOCKETS[name]
        through_memory = _SOCKETS_THROUGH_MEMORY.get(name) if self._no_peers else None
        return Band((through_memory or low).value, high.value)

    def _cpu_band(self, resource: Resource) -> Band:
        """Return the band of peer-to-peer traffic through a root complex; Grace passes it at the full rate (P2C)."""
        cpu = self._host.device(resource.link.a)
        directly = not self._through_memory
        crosses = directly and cpu is not None and cpu.kind == "cpu" and _cpu_class(cpu) != "Arm"
        return Band(max(_ACROSS_CPU_LOW.value, self._peer_rate()) if crosses else math.inf, math.inf)

    def _peer_rate(self) -> float:
        """Return the minimum rate between GPUs through a CPU, from their slowest link; 0 if NICs' data crosses it."""
        if self._case.cluster.hosts > 1 and not self._nics_below_switches:
            return 0.0
        links = [link.protocol for link in self._host.links if link.b in self._gpus]
        rates = [pcie.raw_rate(link.gt_per_s or 0.0, link.width or 0) for link in links if isinstance(link, PcieLink)]
        return _GPUS_ACROSS_CPU.value * min((rate for rate in rates if rate is not None), default=0.0)


def tree_cap(cluster: Cluster, algorithm: str) -> tuple[float, float] | None:
    """Return NCCL's own cap on the busbw of trees over domains as (low, high) in bytes/s; None without a cap."""
    maximum = tuning.channel_cap(cluster, algorithm) if algorithm in ("tree", "nvlstree") else math.inf
    return (
        None
        if math.isinf(maximum)
        else ((1 - _CAP_UNCERTAINTY.value) * maximum, (1 + _CAP_UNCERTAINTY.value) * maximum)
    )


def _every_gpu_has_a_nic_at_its_switch(host: Topology) -> bool:
    """Report whether every GPU is below a PCIe switch that has a NIC."""
    switches = {switch.id for switch in host.of_kind("pcie_switch")}
    near = {kind: {link.a for link in host.links if link.b in ids} for kind, ids in (
        ("gpu", {gpu.id for gpu in host.of_kind("gpu")}),
        ("nic", {part.id for kind in ("nic", "card") for part in host.of_kind(kind)}),
    )}  # fmt: skip
    return near["gpu"] <= switches & near["nic"]


def _cpu_class(cpu: Device) -> str:
    """Return the class of a CPU: NCCL's (src/graph/topo.cc), and AMD's by generation."""
    facts = cpu.facts
    if facts.get("architecture") == "arm64":
        return "Arm"
    family, model = facts.get("family"), facts.get("model")
    if facts.get("vendor") == "AuthenticAMD":
        known = isinstance(family, int) and isinstance(model, int)
        return next(
            (
                name
                for name, lowest in _AMD_MODELS.items()
                if known and (family, model) >= tuple(number.value for number in lowest)
            ),
            "AMD",
        )
    if facts.get("vendor") != "GenuineIntel" or not isinstance(model, int):
        return ""
    return next(name for name, lowest in _INTEL_MODELS.items() if model >= lowest.value)
