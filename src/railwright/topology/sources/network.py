"""NIC ports: the network and RDMA devices below PCI functions and below the buses of a hypervisor."""

from __future__ import annotations

import re

import msgspec

from railwright.topology.devices import EfaLink, EthernetLink, InfinibandLink
from railwright.topology.sources import text
from railwright.topology.sources.root import Root

# Representors of VFs and SFs are next to the netdev of their physical function (Linux net/core/devlink port names).
REPRESENTOR = re.compile(r"(c\d+)?pf\d+([vs]f\d+|hpf)?")
_SANE_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,32}")
_MAX_RATE_BITS_PER_S = 10**14
_ARPHRD_INFINIBAND = 32
"""`type` of an IP-over-InfiniBand netdev (Linux include/uapi/linux/if_arp.h)."""
_EFA_MTU_BYTES = 9001
"""The MTU of AWS's network; no file of an EFA gives it."""
IWARP = "iWARP"


class NicPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a NIC. None means unknown."""

    netdev: str
    netdev_path: str
    rdma_device: str
    rdma_port: int
    rdma_path: str
    link: EthernetLink | InfinibandLink | EfaLink
    """The link of the port. The MTU is the netdev's; sysfs does not show InfiniBand's."""
    state: str
    rdma_transport: str
    """`iWARP`, which is RDMA over TCP and shares nothing with RoCE; else empty."""
    firmware: str
    representors: int


def find_ports(root: Root, path: str, entries: frozenset[str]) -> tuple[NicPort, ...]:
    """Return the ports of a PCI function or virtual bus device, in port order; none if it is not a NIC."""
    below = [f"{path}/{name}" for name in sorted(entries) if re.fullmatch(r"virtio\d+", name)]
    holders = {path: entries} | {holder: frozenset(root.names(holder)) for holder in below}
    return tuple(port for holder, names in holders.items() for port in _list_ports(root, holder, names))


def _list_ports(root: Root, path: str, entries: frozenset[str]) -> list[NicPort]:
    """Return the ports; the first counts the representors of them all."""
    netdevs, representors = _find_netdevs(root, path) if "net" in entries else ({}, 0)
    rdma = _find_rdma_ports(root, path) if "infiniband" in entries else {}
    return [
        _read_port(root, port, netdevs.get(port, ""), rdma.get(port, ""), 0 if index else representors)
        for index, port in enumerate(sorted({*netdevs, *rdma}))
    ]


def _find_netdevs(root: Root, path: str) -> tuple[dict[int, str], int]:
    """Return the path of each port's netdev by port number, and the number of representors."""
    found: dict[int, str] = {}
    representors = 0
    for name in root.names(f"{path}/net"):
        netdev = f"{path}/net/{name}"
        if not _SANE_NAME.fullmatch(name):
            continue
        if REPRESENTOR.fullmatch(text.word(root.read(f"{netdev}/phys_port_name"))):
            representors += 1
            continue
        port = text.number(root.read(f"{netdev}/dev_port"))
        found.setdefault((port or 0) + 1 if port is None or 0 <= port < 64 else 1, netdev)
    return found, representors


def _find_rdma_ports(root: Root, path: str) -> dict[int, str]:
    """Return the path of each port of the RDMA devices by port number."""
    found: dict[int, str] = {}
    for device in root.names(f"{path}/infiniband"):
        if not _SANE_NAME.fullmatch(device):
            continue
        for name in root.names(f"{path}/infiniband/{device}/ports"):
            port = text.number(name)
            if port is not None and 1 <= port <= 64:
                found.setdefault(port, f"{path}/infiniband/{device}/ports/{name}")
    return found


def _read_port(root: Root, port: int, netdev: str, rdma: str, representors: int) -> NicPort:
    def read_word(path: str, name: str) -> str:
        return root.text(f"{path}/{name}") if path else ""

    device = rdma.rpartition("/ports/")[0]
    # Linux drivers/infiniband/core/sysfs.c: `4: RNIC`; an EFA, which has no kind of its own, shows `7: unspecified`.
    node_type = text.word(read_word(device, "node_type")).rpartition(": ")[2]
    layer = text.word(read_word(rdma, "link_layer"))
    if layer == "Unknown" and node_type in ("", "unspecified"):
        layer = "EFA"
    elif layer not in ("Ethernet", "InfiniBand"):
        layer = "InfiniBand" if text.number(read_word(netdev, "type")) == _ARPHRD_INFINIBAND else "Ethernet"
    state = text.word(read_word(netdev, "operstate"))
    rdma_state = text.word(read_word(rdma, "state")).rpartition(": ")[2].lower()
    if layer != "Ethernet" or not state:
        state = {"active": "up"}.get(rdma_state, rdma_state) or state
    speed, mtu = text.number(read_word(netdev, "speed")), text.number(read_word(netdev, "mtu"))
    rate = float(speed) * 1e6 if speed is not None and 0 < speed * 1e6 <= _MAX_RATE_BITS_PER_S else None
    if rate is None:
        rate = _parse_rdma_rate(text.word(read_word(rdma, "rate")))
    if state == "down":
        rate = None  # such a port still shows the rate of its last or lowest link (mlx5: 10 Gb/s)
    return NicPort(
        netdev=netdev.rpartition("/")[2],
        netdev_path=netdev,
        rdma_device=rdma.split("/")[-3] if rdma else "",
        rdma_port=port if rdma else 0,
        rdma_path=rdma,
        link=_build_link(layer, rate, mtu, rdma=bool(rdma)),
        state=state,
        rdma_transport=IWARP if node_type == "RNIC" else "",
        firmware=text.word(read_word(device, "fw_ver")),
        representors=representors,
    )


def _build_link(
    layer: str, rate: float | None, mtu: int | None, *, rdma: bool
) -> EthernetLink | InfinibandLink | EfaLink:
    if layer == "InfiniBand":
        return InfinibandLink(line_rate_bits_per_s=rate)
    if layer == "EFA":
        return EfaLink(line_rate_bits_per_s=rate, mtu_bytes=_EFA_MTU_BYTES)
    known = mtu if mtu is not None and 0 < mtu <= 1 << 20 else None
    return EthernetLink(line_rate_bits_per_s=rate, mtu_bytes=known, rdma=rdma)


def _parse_rdma_rate(rate: str) -> float | None:
    """Parse `400 Gb/sec (4X NDR)` to bits per second."""
    match = re.match(r"(\d{1,5}(?:\.\d)?) Gb/sec", rate)
    return float(match.group(1)) * 1e9 if match and float(match.group(1)) > 0 else None
