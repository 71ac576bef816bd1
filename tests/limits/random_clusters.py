"""Seeded random machines and clusters, small enough for the full program."""

from __future__ import annotations

import random

from railwright.topology.cluster import Fabric, Tier, build_cluster
from railwright.topology.devices import (
    Device,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    Link,
    NvlinkLink,
    PcieLink,
    SmpLink,
    Topology,
)


def random_host(rng: random.Random, most_gpus: int = 3) -> Topology:
    """Return a machine of one or two sockets, GPUs and NICs under switches or root ports, with NVLink by switch, in
    pairs or none.
    """
    devices = [Device(id="host0", kind="host")]
    links = []
    sockets = rng.choice((1, 2))
    devices += [Device(id=f"cpu{socket}", kind="cpu", numa=socket) for socket in range(sockets)]
    if sockets == 2:
        links.append(Link(a="cpu0", b="cpu1", protocol=SmpLink(name="UPI")))
    uppers = []
    for number in range(rng.randint(1, 3)):
        cpu = f"cpu{rng.randrange(sockets)}"
        devices.append(Device(id=f"root_port{number}", kind="root_port"))
        links.append(Link(a=cpu, b=f"root_port{number}", protocol=InternalLink(name="root complex")))
        uppers.append(f"root_port{number}")
        if rng.random() < 0.7:
            devices.append(Device(id=f"switch{number}", kind="pcie_switch"))
            links.append(Link(a=f"root_port{number}", b=f"switch{number}", protocol=_pcie(rng)))
            uppers[-1] = f"switch{number}"
    gpus = rng.randint(1, most_gpus)
    for number in range(gpus):
        devices.append(Device(id=f"gpu{number}", kind="gpu", facts={"compute_capability": "8.0"}))
        links.append(Link(a=rng.choice(uppers), b=f"gpu{number}", protocol=_pcie(rng)))
    joined = rng.random()
    if joined < 0.4:
        devices.append(Device(id="nvswitch0", kind="nvswitch"))
        links += [
            Link(a="nvswitch0", b=f"gpu{number}", protocol=NvlinkLink(generation=3, links=rng.randint(1, 12)))
            for number in range(gpus)
        ]
    elif joined < 0.6 and gpus > 1:
        links.append(Link(a="gpu0", b="gpu1", protocol=NvlinkLink(generation=3, links=rng.randint(1, 4))))
    for number in range(rng.randint(1, 3)):
        devices.append(Device(id=f"nic{number}", kind="nic"))
        links.append(Link(a=rng.choice(uppers), b=f"nic{number}", protocol=_pcie(rng)))
        rate = rng.choice((25e9, 100e9, 200e9, 400e9))
        port = rng.choice((EthernetLink(line_rate_bits_per_s=rate, mtu_bytes=9000, rdma=True),
                           InfinibandLink(line_rate_bits_per_s=rate, mtu_bytes=4096)))  # fmt: skip
        links.append(Link(a=f"nic{number}", b="fabric0", protocol=port))
    devices.append(Device(id="fabric0", kind="fabric"))
    return Topology(name="random", source="saved", devices=tuple(devices), links=tuple(links))


def random_cluster(seed: int, most_gpus: int = 3, most_hosts: int = 4):
    """Return a cluster whose groups are full: no fabric, a fat tree of two or three tiers, or rails."""
    rng = random.Random(seed)
    host = random_host(rng, most_gpus)
    hosts = rng.choice([count for count in (2, 3, 4) if count <= most_hosts])
    if len(host.of_kind("gpu")) * hosts < 2 or rng.random() < 0.3:
        return build_cluster(host, hosts)
    group = rng.choice([size for size in (1, 2, 3, 4) if hosts % size == 0])
    tiers = [Tier(name="leaf", hosts=group, oversubscription=rng.choice((0.5, 1.0, 2.0, 3.0)))]
    tiers.append(Tier(name="spine", hosts=hosts if hosts % group == 0 else group * 4))
    return build_cluster(host, hosts, Fabric(rail_optimised=rng.random() < 0.5, tiers=tuple(tiers)))


def _pcie(rng: random.Random) -> PcieLink:
    return PcieLink(gt_per_s=rng.choice((8.0, 16.0, 32.0)), width=rng.choice((4, 8, 16)), max_payload_bytes=256)
