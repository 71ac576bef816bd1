"""The independent systems on which the bands of NCCL's collectives rest, by the fabric that decides.

A band without any says so, and only a value below half of it is slow.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.bands import extend_doubt
from railwright.limits.limit import Expected
from railwright.limits.traffic import domains
from railwright.limits.tuning import uses_gpudirect_tcp
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import EfaLink, EthernetLink, InfinibandLink, NvlinkLink, XgmiLink

_NO_SYSTEM_SHARE = 0.5
_WHY_NO_SYSTEM = "no published run on this kind of fabric is known"
SYSTEMS: dict[str, tuple[str, ...]] = {
    "NVSwitch": (
        "2, 4 and 8 H200 of docs/measured", "8 H200 of Azure", "8 B200 of GKE", "8 A100 in public notes",
        "8 B200 of EC2 p6",
    ),
    "NVLink of several hosts": ("72 GB200 of one domain",),
    "NVLink between GPUs": ("8 V100 of a hybrid cube mesh", "4 V100 with two NVLinks a pair"),
    "Infinity Fabric": ("8 MI300X of AAC8", "8 MI300X of Azure"),
    "PCIe": (
        "8 RTX 5090, NCCL issue 1639", "RTX 4090, open-gpu-kernel-modules issue 36", "8 RTX PRO 6000, root topology",
        "RTX 4090, chlc.cc", "aikitoria's open-gpu-kernel-modules", "RTX PRO 6000, pcie-bandwidth",
    ),
    "InfiniBand": (
        "two hosts of H100, dgx-06 and dgx-07", "32 hosts of GB200", "hosts of 8 H100 and 8 mlx5", "Yandex A100",
    ),
    "RoCE": ("two hosts of 4 GH200 over Slingshot", "two hosts of MI300X", "two hosts of H200", "two GKE A4"),
    "EFA": ("2 to 32 hosts of EC2 p5",),
    "TCP that bypasses the kernel": ("two hosts of 8 H100, GPUDirect-TCPXO",),
}  # fmt: skip
"""Fabric -> systems, from testdata/calibration and docs/measured. TCP between hosts is doubtful for its own reasons."""


def find_fabric(cluster: Cluster) -> str:
    """Return the name of the fabric that decides the rate of a collective: a key of SYSTEMS, or another name."""
    host = cluster.host
    if domains(cluster) == 1:
        if cluster.hosts > 1:
            return "NVLink of several hosts"
        if host.of_kind("nvswitch"):
            return "NVSwitch"
        protocols = {type(link.protocol) for link in host.links}
        joined = {NvlinkLink: "NVLink between GPUs", XgmiLink: "Infinity Fabric"}
        return next((name for kind, name in joined.items() if kind in protocols), "PCIe")
    if uses_gpudirect_tcp(cluster):
        return "TCP that bypasses the kernel"
    names = {_name_port(link.protocol) for _, link in ports(host)}
    return names.pop() if len(names) == 1 else "several kinds of ports"


def _name_port(protocol: object) -> str:
    if isinstance(protocol, InfinibandLink):
        return "InfiniBand"
    if isinstance(protocol, EfaLink):
        return "EFA"
    return "RoCE" if isinstance(protocol, EthernetLink) and protocol.rdma else "TCP"


def add_evidence(band: Expected, cluster: Cluster) -> Expected:
    """Return the band with the number of systems on which it rests, and a wide doubtful range if there is none."""
    systems = len(SYSTEMS.get(find_fabric(cluster), ()))
    band = replace(band, systems=systems)
    return band if systems else extend_doubt(band, band.low * _NO_SYSTEM_SHARE, _WHY_NO_SYSTEM)
