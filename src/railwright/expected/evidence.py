"""The independent systems on which the bands of NCCL's collectives rest, by the fabric that decides and the collective.

A collective that NCCL runs over its ring alone also rests on other systems whose ring was measured there: the ring of
an all_reduce is that of a reduce_scatter and of an all_gather, one after the other, over the same channels. A band
without any says so, and only a value below half of it is slow.
"""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from railwright.expected.bands import extend_doubt
from railwright.limits.limit import Expected
from railwright.limits.traffic import ALGORITHMS, domains
from railwright.limits.tuning import uses_gpudirect_tcp
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import GPU_LINKS, EfaLink, EthernetLink, InfinibandLink, XgmiLink
from railwright.units import format_count

_NO_SYSTEM_SHARE = 0.5
_WHY_NO_SYSTEM = "no published run of that collective on this kind of fabric is known"
_H200 = "2, 4 and 8 H200 of docs/measured"
_SPARKS = (
    "2 and 4 DGX Spark of one owner", "dgx-spark-playbooks pull request 103", "two DGX Spark of mprg",
    "two stacked DGX Spark", "two Dell Pro Max GB10",
)  # fmt: skip
_P5 = "2 to 32 hosts of EC2 p5"
_SUPERCOMPUTERS = ("JUPITER, 2 to 16 hosts of GH200", "Snellius, 2 and 4 hosts of four H100")
SYSTEMS: dict[str, dict[str, tuple[str, ...]]] = {
    "NVSwitch": {
        "all_reduce": (
            _H200, "8 H200 of Azure", "8 B200 of GKE", "8 A100 in public notes", "8 B200 of EC2 p6", "8 A100 of OCI",
            "8 A100 of Azure", "8 B300 of OCI", "8 A100 of EC2 p4d",
        ),
        "all_gather": (_H200, "two B200, thread 014", "8 A100, thread 042"),
        "reduce_scatter": (_H200, "8 A100, thread 121"),
        "broadcast": (_H200, "12 V100 of a DGX-2"),
        "reduce": ("12 V100 of a DGX-2",),
        "all_to_all": (_H200, "8 B300 of OCI", "4 GB300 of OCI"),
        "send_recv": (_H200,),
    },
    "NVLink of several hosts": {
        "all_reduce": ("72 GB200 of one domain", "GB300 of OCI, 2 and 16 hosts"),
        "all_to_all": ("GB300 of OCI, 2 and 16 hosts",),
    },
    "NVLink between GPUs": {
        "all_reduce": ("8 V100 of a hybrid cube mesh", "4 V100 with two NVLinks a pair", "two bridged A100 PCIe"),
        "send_recv": ("two of four A100 with NV4",),
    },
    "Infinity Fabric": {
        "all_reduce": (
            "8 MI300X of AAC8", "8 MI300X of Azure", "8 MI300X of AMD's acceptance guide", "8 MI300X of HPE",
            "8 MI355X of OCI",
        ),
        "all_to_all": ("8 MI355X of OCI",),
    },
    "PCIe": {
        "all_reduce": (
            "8 RTX 5090, NCCL issue 1639", "RTX 4090, open-gpu-kernel-modules issue 36",
            "8 RTX PRO 6000, root topology", "RTX 4090, chlc.cc", "aikitoria's open-gpu-kernel-modules",
            "RTX PRO 6000, pcie-bandwidth",
        ),
        "send_recv": ("8 RTX 5090, notes on nccl-tests",),
    },
    "InfiniBand": {
        "all_reduce": (
            "two hosts of H100, dgx-06 and dgx-07", "32 hosts of GB200", "hosts of 8 H100 and 8 mlx5", "Yandex A100",
            "two hosts of H100, Nebius", "two hosts of H200, Run:ai", "two hosts of A100, Azure",
            "two hosts of four A100, KAUST",
        ),
        "all_gather": _SUPERCOMPUTERS,
        "reduce_scatter": _SUPERCOMPUTERS,
        "all_to_all": _SUPERCOMPUTERS,
        "send_recv": ("2 and 4 hosts of 8 B200, Together AI",),
    },
    "RoCE": {
        "all_reduce": (
            "two hosts of 4 GH200 over Slingshot", "two hosts of MI300X", "two hosts of H200", "two GKE A4",
            "two hosts of A100, OCI", "two hosts of B300, OCI", *_SPARKS[:2],
        ),
        "all_gather": (*_SPARKS, "two GKE A3 Ultra", "two GKE A4", "two GKE A4X Max in two domains"),
        "reduce_scatter": _SPARKS[:1],
        "all_to_all": (_SPARKS[0], "two hosts of B300, OCI"),
        "send_recv": ("2 to 8 hosts of four GH200 over Slingshot, NCCL issue 1272",),
    },
    "EFA": {
        "all_reduce": (_P5, "two EC2 p4de", "2 to 8 EC2 p3dn", "two hosts of notes on DeepEP"),
        "all_gather": (_P5,),
        "all_to_all": (_P5, "two hosts of notes on DeepEP"),
    },
    "TCP that bypasses the kernel": {
        "all_reduce": ("two hosts of 8 H100, GPUDirect-TCPXO",),
        "all_gather": ("two A3 Mega of dstack", "two A3 High of GKE"),
    },
}  # fmt: skip
"""Fabric -> collective -> systems, from testdata and docs/measured; TCP between hosts has doubts of its own."""
_RING_ALL_REDUCE: dict[str, tuple[str, ...]] = {
    "NVLink between GPUs": SYSTEMS["NVLink between GPUs"]["all_reduce"],
    "Infinity Fabric": SYSTEMS["Infinity Fabric"]["all_reduce"],
    "PCIe": SYSTEMS["PCIe"]["all_reduce"],
    "InfiniBand": ("pairs of A100 hosts, nccl-tests issue 106", "hosts of H100 with four NICs, thread 050"),
}
"""Fabric -> systems whose all_reduce was a ring: no other algorithm was faster, or the job chose it."""


def find_fabric(cluster: Cluster) -> str:
    """Return the name of the fabric that decides the rate of a collective: a key of SYSTEMS, or another name."""
    host = cluster.host
    if domains(cluster) == 1:
        if cluster.hosts > 1:
            return "NVLink of several hosts"
        if host.of_kind("nvswitch"):
            return "NVSwitch"
        joined = (protocol for protocol in (link.protocol for link in host.links) if isinstance(protocol, GPU_LINKS))
        first = next(joined, None)
        if isinstance(first, XgmiLink):
            return first.name or "Infinity Fabric"
        return "PCIe" if first is None else "NVLink between GPUs"
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


def list_systems(cluster: Cluster, collective: str) -> tuple[str, ...]:
    """Return the systems on which the band of a collective rests."""
    return SYSTEMS.get(find_fabric(cluster), {}).get(collective, ())


def list_rings(cluster: Cluster, collective: str) -> tuple[str, ...]:
    """Return further systems that measured the ring which is the collective's only algorithm; none for others."""
    if ALGORITHMS[collective] != ("ring",):
        return ()
    fabric = find_fabric(cluster)
    known = SYSTEMS.get(fabric, {})
    rings = (known.get(name, ()) for name, algorithms in ALGORITHMS.items() if algorithms == ("ring",))
    found = dict.fromkeys((*itertools.chain.from_iterable(rings), *_RING_ALL_REDUCE.get(fabric, ())))
    return tuple(name for name in found if name not in known.get(collective, ()))


def add_evidence(band: Expected, cluster: Cluster, collective: str) -> Expected:
    """Return the band with the number of systems on which it rests, and a wide doubtful range if there is none."""
    systems, rings = len(list_systems(cluster, collective)), len(list_rings(cluster, collective))
    rests = format_count(systems, "independent system") if systems else f"no published {collective}"
    if rings and systems:
        rests += f" and {rings} with the same ring"
    elif rings:
        rests = f"{format_count(rings, 'system')} with the same ring and {rests}"
    band = replace(band, systems=systems + rings, because=f"{band.because}; rests on {rests}")
    return band if systems + rings else extend_doubt(band, band.low * _NO_SYSTEM_SHARE, _WHY_NO_SYSTEM)
