"""State of an RDMA port beyond its rate: the GIDs of RoCE, ECN, trust mode, bond, and errors since its start.

Only the kind of each address is reported. Linux Documentation/ABI/stable/sysfs-class-infiniband has the files;
`ecn` and `qos` below a netdev are created only by the drivers of MLNX_OFED and DOCA-OFED.
"""

from __future__ import annotations

import ipaddress
import re

from railwright.topology.devices import EthernetLink, Scalar
from railwright.topology.settings import NONE
from railwright.topology.sources import text
from railwright.topology.sources.network import IWARP, NicPort
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.root import DirectoryRoot, Root, Unreadable

ROCE_GIDS, ECN, ERRORS = "roce_gids", "roce_ecn", "port_errors"
BOND, BOND_MODE, BOND_PORTS = "bond", "bond_mode", "bond_ports"
_QOS = {
    "trust_mode": "qos/trust",
    "cnp_dscp": "ecn/roce_np/cnp_dscp",
    "cnp_priority": "ecn/roce_np/cnp_802p_prio",
}
"""Files below a netdev: the field of a packet that gives its priority, and the DSCP and priority of CNPs."""
_BONDS = "sys/devices/virtual/net"
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,32}")
_MAX_GIDS = 256
_MAX_EMPTY_RUN = 32
"""The number of empty entries in a row that ends the table of up to 256. Deleted pods left up to 14
(NVIDIA/nccl#551).
"""
_VERSION = {"RoCE v2": "v2", "IB/RoCE v1": "v1"}
_NETDEV = re.compile(r"[A-Za-z0-9_.:-]{1,32}")
_PRIORITIES = 8
_ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_discards",
)  # fmt: skip
"""InfiniBand Architecture Specification, PortCounters. Congestion (port_xmit_wait) and drops of VL15 are no errors."""
_MLX5_ERRORS = ("local_ack_timeout_err", "req_transport_retries_exceeded", "rx_icrc_encapsulated")
"""NVIDIA, mlx5 counters: packets without an answer, requests given up, damaged RoCE packets. On a healthy fabric
adaptive routing increments the others too (out_of_sequence, packet_seq_err).
"""


def read_port(root: Root, port: NicPort, notes: Notes) -> dict[str, Scalar | None]:
    """Return facts of the NIC that has the port; none for a port without RDMA."""
    if not port.rdma_path:
        return {}
    facts: dict[str, Scalar | None] = {ERRORS: _read_errors(root, port)}
    if isinstance(port.link, EthernetLink) and port.rdma_transport != IWARP:
        gids = _read_gids(root, port, notes)
        facts |= {ROCE_GIDS: gids, ECN: _read_ecn(root, port)}
        facts |= read_qos(root, port.netdev_path) | _find_bond(root, gids or "")
    return facts


def read_qos(root: Root, netdev_path: str) -> dict[str, str]:
    """Return trust mode, and DSCP and priority of congestion notifications (CNP), as far as the driver shows them."""
    words = {name: text.word(root.read(f"{netdev_path}/{file}")) for name, file in _QOS.items()} if netdev_path else {}
    return {name: word for name, word in words.items() if _WORD.fullmatch(word)}


def read_bond(root: Root, name: str) -> dict[str, str]:
    """Return name, mode and ports of a bond; empty for a netdev that is none.

    With RoCE LAG the RDMA device of the first port serves the whole bond.
    """
    mode = text.word(root.read(f"{_BONDS}/{name}/bonding/mode")).partition(" ")[0]
    ports = [
        port for port in text.word(root.read(f"{_BONDS}/{name}/bonding/slaves")).split() if _NETDEV.fullmatch(port)
    ]
    return {BOND: name, BOND_MODE: mode, BOND_PORTS: " ".join(ports)} if _WORD.fullmatch(mode) and ports else {}


def find_netdevs(root: DirectoryRoot, name: str) -> list[str]:
    """Return the network interfaces of a RoCE port like `mlx5_0:1`: its netdev, or all ports of its bond."""
    device, _, port = name.partition(":")
    netdev = text.word(root.read(f"{root.follow(f'sys/class/infiniband/{device}')}/ports/{port}/gid_attrs/ndevs/0"))
    return read_bond(root, netdev).get(BOND_PORTS, netdev).split() if _NETDEV.fullmatch(netdev) else []


def _find_bond(root: Root, gids: str) -> dict[str, str]:
    """Return the bond whose addresses a GID table has: it or a VLAN above it, `bond0.7`, is the netdev of an entry."""
    names = dict.fromkeys(entry.rpartition("/")[2].partition(".")[0] for entry in gids.split())
    return next(filter(None, (read_bond(root, name) for name in names if _NETDEV.fullmatch(name))), {})


def gid_kind(gid: str) -> str:
    """Return `IPv4`, `IPv6` or `link-local`; `empty` for zeros, and an empty text for other text."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return ""
    if int(address) in (0, 0xFE80 << 112):
        return "empty"
    if address.ipv4_mapped is not None:
        return "IPv4"
    return "link-local" if address.is_link_local else "IPv6"


def _read_gids(root: Root, port: NicPort, notes: Notes) -> str | None:
    """Return `0:v1/link-local/eth2 3:v2/IPv4/eth2`: index, RoCE version, kind of address and netdev of each."""
    found: list[str] = []
    empty = 0
    for index in range(_MAX_GIDS):
        answer = root.read(f"{port.rdma_path}/gids/{index}")
        if isinstance(answer, Unreadable) and not answer.is_absent:
            notes.missing("GIDs", f"/{answer.path} {answer.reason}", port.rdma_device)
            return None
        kind = "empty" if isinstance(answer, Unreadable) else gid_kind(text.word(answer))
        if isinstance(answer, Unreadable) and index == 0:
            notes.missing("GIDs", "sysfs or the capture does not hold them", port.rdma_device)
            return None
        empty = empty + 1 if kind == "empty" else 0
        if isinstance(answer, Unreadable) or empty == _MAX_EMPTY_RUN:
            break
        if kind == "empty":
            continue
        version = _VERSION.get(text.word(root.read(f"{port.rdma_path}/gid_attrs/types/{index}")))
        netdev = text.word(root.read(f"{port.rdma_path}/gid_attrs/ndevs/{index}"))
        if not kind or version is None:
            notes.missing("GIDs", f"entry {index} is no address with a version of RoCE", port.rdma_device)
            return None
        found.append(f"{index}:{version}/{kind}/{netdev if _NETDEV.fullmatch(netdev) else '?'}")
    return " ".join(found) or NONE


def _read_ecn(root: Root, port: NicPort) -> str | None:
    """Return `on` if every priority has ECN both ways, `off` if none has, else the priorities; None if not shown.

    Notifying the sender (np) is a single switch of the port, which any priority sets; slowing down (rp) is set for each
    priority (NVIDIA, How to configure DCQCN for ConnectX-4).
    """
    on = {way: _enabled_priorities(root, f"{port.netdev_path}/ecn/roce_{way}/enable") for way in ("np", "rp")}
    if not port.netdev_path or None in on.values():
        return None
    both = (on["rp"] or []) if on["np"] else []
    if len(both) == _PRIORITIES:
        return "on"
    return f"on for priority {', '.join(map(str, both))}" if both else "off"


def _enabled_priorities(root: Root, path: str) -> list[int] | None:
    values = [text.number(root.read(f"{path}/{priority}")) for priority in range(_PRIORITIES)]
    if any(value not in (0, 1) for value in values):
        return None
    return [priority for priority, value in enumerate(values) if value]


def _read_errors(root: Root, port: NicPort) -> str | None:
    """Return `symbol_error 12, link_downed 3` since the port started; `none`; None without counters."""
    files = {name: f"{port.rdma_path}/counters/{name}" for name in _ERRORS}
    files |= {name: f"{port.rdma_path}/hw_counters/{name}" for name in _MLX5_ERRORS}
    counts = {name: text.number(root.read(file)) for name, file in files.items()}
    known = {name: value for name, value in counts.items() if value is not None and value >= 0}
    if not known:
        return None
    return ", ".join(f"{name} {value}" for name, value in known.items() if value) or NONE
