"""A NIC whose PCIe read requests are small: at 512 bytes it needs eight requests to read 4096.

Mellanox, Understanding PCIe Configuration for Maximum Performance, sets 4096 (`MaxReadReq`): a NIC reads all data that
it sends. GPUs and drives keep many requests in flight, so their request size has no known cost.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Command, Facts, Findings
from railwright.checks.commands import set_pcie_control
from railwright.checks.parts import find_uplink, group_ids
from railwright.topology.cluster import ports
from railwright.topology.devices import Device, Link, NetworkLink, PcieLink, Topology
from railwright.topology.gpus import format_runs

_BEST_BYTES = 4096
_CERTAIN_BYTES = 256
_SIZE_BITS = 0x7000
"""Firmware sets 512 and many machines run well with it; a smaller value is a mistake."""
_FAST_BITS_PER_S = 100e9


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    small = group_ids(_fast_nics(topology), lambda nic: _request_bytes(topology, nic))
    for size, names in small.items():
        if size < _BEST_BYTES:
            yield CHECK.finding(
                names,
                f"PCIe read requests of {format_runs(names)} are {size} bytes, but {_BEST_BYTES} is possible",
                ("MaxReadRequest", f"{size} B", "PCIe Device Control register"),
                certainty="likely" if size <= _CERTAIN_BYTES else "possible",
            )


def _fast_nics(topology: Topology) -> tuple[Device, ...]:
    """Return the NICs whose port is fast enough for the request size to matter, without duplicates."""
    fast = {nic.id: nic for nic, link in ports(topology) if _line_rate(link) >= _FAST_BITS_PER_S}
    return tuple(fast.values())


def _line_rate(link: Link) -> float:
    return (isinstance(link.protocol, NetworkLink) and link.protocol.line_rate_bits_per_s) or 0.0


def _request_bytes(topology: Topology, nic: Device) -> int | None:
    link = find_uplink(topology, nic.id)
    return link.protocol.max_read_request_bytes if link and isinstance(link.protocol, PcieLink) else None


def _explain_unread(topology: Topology) -> str:
    blind = [nic.id for nic in _fast_nics(topology) if _request_bytes(topology, nic) is None]
    return f"MaxReadRequest of {format_runs(blind)} cannot be read (root may read it)" if blind else ""


def _build_commands(topology: Topology) -> tuple[Command, ...]:
    """Return the writes to bits 14:12 of the register, which hold the power of two above 128 bytes."""
    found = ((nic, _request_bytes(topology, nic)) for nic in _fast_nics(topology) if nic.address)
    return tuple(
        set_pcie_control(nic, _SIZE_BITS, _encode_size(_BEST_BYTES), _encode_size(size))
        for nic, size in found
        if size is not None and size < _BEST_BYTES
    )


def _encode_size(size_bytes: int) -> int:
    return (size_bytes // 128).bit_length() - 1 << 12


CHECK = Check(
    name="read_request_small",
    summary="a NIC's PCIe read requests are smaller than possible",
    right="the PCIe read requests of NICs are large",
    costs="unknown from settings alone: measure with ib_write_bw or nccl-tests before and after"
    " (Mellanox, Understanding PCIe Configuration)",
    remedy="lspci -vv -s ADDRESS | grep MaxReadReq; setpci -s ADDRESS CAP_EXP+8.w shows the register: the"
    " first of its four digits is 5 for 4096 bytes; the BIOS or a service sets it at every start",
    signs=_signs,
    needs=(needs.settings, needs.nic, needs.some(_fast_nics, "no NIC of 100 Gb/s or more")),
    asks=(_explain_unread,),
    change=_build_commands,
)
