"""NIC ports: the network and RDMA devices below PCI functions and below the buses of a hypervisor."""

from __future__ import annotations

import re

import msgspec

from railwright.topology.sources import text
from railwright.topology.sources.root import Root

# Representors of VFs and SFs stand beside their physical function's own netdev (Linux net/core/devlink port names).
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+([vs]f\d+|hpf)?")
_SANE_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,32}")
_MAX_RATE_BITS_PER_S = 10**14


class NicPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port of a NIC. None is 'the machine does not say'."""

    netdev: str
    netdev_path: str
    rdma_device: str
    rdma_port: int
    rdma_path: str
    link_layer: str
    """`Ethernet` or `InfiniBand`."""
    line_rate_bits_per_s: float | None
    mtu_bytes: int | None
    """Of the netdev; what one InfiniBand packet carries is not in sysfs."""
    state: str
    firmware: str
    representors: int


def find_ports(root: Root, path: str, entries: frozenset[str]) -> tuple[NicPort, ...]:
    """The ports of one PCI function or virtual bus device, in port order; none if it is not a NIC."""
    below = [f"{path}/{name}" for name in sorted(entries) if re.fullmatch(r"virtio\d+", name)]
    holders = {path: entries} | {holder: frozenset(text.names(root, holder)) for holder in below}
    return tuple(port for holder, names in holders.items() for port in _ports_in(root, holder, names))


def _ports_in(root: Root, path: str, entries: frozenset[str]) -> list[NicPort]:
    netdevs, representors = _netdevs(root, path) if "net" in entries else ({}, 0)
    rdma = _rdma_ports(root, path) if "infiniband" in entries else {}
    ports = []
    for port in sorted({*netdevs, *rdma}):
        ports.append(_read_port(root, port, netdevs.get(port, ""), rdma.get(port, ""), representors))
        representors = 0  # counted once
    return ports


def _netdevs(root: Root, path: str) -> tuple[dict[int, str], int]:
    """Port number to the path of its netdev, and how many representors there are."""
    found: dict[int, str] = {}
    representors = 0
    for name in text.names(root, f"{path}/net"):
        netdev = f"{path}/net/{name}"
        if not _SANE_NAME.fullmatch(name):
            continue
        if _REPRESENTOR.fullmatch(text.word(root.read(f"{netdev}/phys_port_name"))):
            representors += 1
            continue
        port = text.number(root.read(f"{netdev}/dev_port"))
        found.setdefault((port or 0) + 1 if port is None or 0 <= port < 64 else 1, netdev)
    return found, representors


def _rdma_ports(root: Root, path: str) -> dict[int, str]:
    """Port number to the path of that port of the RDMA device."""
    found: dict[int, str] = {}
    for device in text.names(root, f"{path}/infiniband"):
        if not _SANE_NAME.fullmatch(device):
            continue
        for name in text.names(root, f"{path}/infiniband/{device}/ports"):
            port = text.number(name)
            if port is not None and 1 <= port <= 64:
                found.setdefault(port, f"{path}/infiniband/{device}/ports/{name}")
    return found


def _read_port(root: Root, port: int, netdev: str, rdma: str, representors: int) -> NicPort:
    device = rdma.split("/")[-3] if rdma else ""
    device_path = rdma.rpartition("/ports/")[0]
    layer = text.word(root.read(f"{rdma}/link_layer")) if rdma else ""
    speed = text.number(root.read(f"{netdev}/speed")) if netdev else None
    rate = float(speed) * 1e6 if speed is not None and 0 < speed * 1e6 <= _MAX_RATE_BITS_PER_S else None
    if rate is None and rdma:
        rate = _rdma_rate(text.word(root.read(f"{rdma}/rate")))
    mtu = text.number(root.read(f"{netdev}/mtu")) if netdev else None
    if layer not in ("Ethernet", "InfiniBand"):
        is_infiniband = netdev and text.number(root.read(f"{netdev}/type")) == _ARPHRD_INFINIBAND
        layer = "InfiniBand" if is_infiniband else "Ethernet"
    state = text.word(root.read(f"{netdev}/operstate")) if netdev else ""
    rdma_state = text.word(root.read(f"{rdma}/state")).rpartition(": ")[2].lower() if rdma else ""
    if layer == "InfiniBand" or not state:
        state = {"active": "up"}.get(rdma_state, rdma_state) or state
    return NicPort(
        netdev=netdev.rpartition("/")[2],
        netdev_path=netdev,
        rdma_device=device,
        rdma_port=port if rdma else 0,
        rdma_path=rdma,
        link_layer=layer,
        # A port that is down still answers with the rate of its last or lowest link (mlx5: 10 Gb/s).
        line_rate_bits_per_s=None if state == "down" else rate,
        mtu_bytes=mtu if mtu is not None and 0 < mtu <= 1 << 20 else None,
        state=state,
        firmware=text.word(root.read(f"{device_path}/fw_ver")) if rdma else "",
        representors=representors,
    )


_ARPHRD_INFINIBAND = 32
"""`type` of an IP-over-InfiniBand netdev (Linux include/uapi/linux/if_arp.h)."""


def _rdma_rate(rate: str) -> float | None:
    """`400 Gb/sec (4X NDR)` as bits per second."""
    match = re.match(r"(\d{1,5}(?:\.\d)?) Gb/sec", rate)
    return float(match.group(1)) * 1e9 if match and float(match.group(1)) > 0 else None
