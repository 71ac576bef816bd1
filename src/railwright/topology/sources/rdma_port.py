"""State of an RDMA port beyond its rate: the GIDs of RoCE, ECN, and errors since its start.

Only the kind of each address is reported. Linux Documentation/ABI/stable/sysfs-class-infiniband has the files;
`ecn` below a netdev is created only by the drivers of MLNX_OFED and DOCA-OFED.
"""

from __future__ import annotations

import ipaddress
import re

from railwright.topology.devices import EthernetLink, Scalar
from railwright.topology.settings import NONE
from railwright.topology.sources import text
from railwright.topology.sources.network import IWARP, NicPort
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.root import Root, Unreadable

ROCE_GIDS, ECN, ERRORS = "roce_gids", "roce_ecn", "port_errors"
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
        facts |= {ROCE_GIDS: _read_gids(root, port, notes), ECN: _read_ecn(root, port)}
    return facts


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
