"""SR-IOV virtual functions (VFs) that this process uses in place of their physical function (PF), as a pod does.

A pod sees the PCI functions of the whole machine, but only the network devices of its own namespace. So a VF counts
as its NIC if the VF has a network device here and its PF has none. The PCIe link is the PF's: the registers of a VF
show none. Linux Documentation/ABI/testing/sysfs-bus-pci has the files of a PF; `sriov/N` below it is created only by
the drivers of MLNX_OFED and DOCA-OFED.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from railwright.topology.devices import Scalar
from railwright.topology.sources import text
from railwright.topology.sources.network import NicPort, find_ports
from railwright.topology.sources.pci import PciFunction
from railwright.topology.sources.root import Root

FUNCTION, PHYSICAL, NUMBER, RATE_LIMIT = "function", "physical_function", "vf", "vf_rate_limit_bits_per_s"
"""Facts of a NIC that is a VF: `VF`, the address of its PF, its number there, and the rate to which it may send."""
_MAX_VFS = 4096
_MAX_RATE_MBITS = 10_000_000
_CONFIGURED = re.compile(r"(?m)^MaxTxRate\s*:\s*(\d{1,8})\s*$")


class UsedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function that this process uses, with its NIC ports."""

    function: PciFunction
    """A VF's has the link and the configuration space of its PF."""
    ports: tuple[NicPort, ...] = ()
    facts: dict[str, Scalar] = {}
    """The facts of a VF."""


def select_functions(root: Root, functions: Mapping[str, PciFunction]) -> list[UsedFunction]:
    """Return the functions without VFs that another process uses, and without PFs that VFs here stand for."""
    ports = {address: find_ports(root, one.path, one.entries) for address, one in functions.items()}
    physical = _find_physical(root, functions)
    used = {
        address: of
        for address, of in physical.items()
        if _has_netdev(ports[address]) and not _has_netdev(ports[of[0].address])
    }
    hidden = {of.address for of, _ in used.values()}
    found = []
    for address, function in functions.items():
        if address in used:
            found.append(_describe(root, function, ports[address], *used[address]))
        elif address not in hidden and address not in physical and not function.is_virtual_function:
            # In a virtual machine the PF is out of sight, and only the device's name tells.
            facts: dict[str, Scalar] = {FUNCTION: "VF"} if function.name.endswith(" VF") else {}
            found.append(UsedFunction(function=function, ports=ports[address], facts=facts))
    return found


def _has_netdev(ports: tuple[NicPort, ...]) -> bool:
    return any(port.netdev for port in ports)


def _find_physical(root: Root, functions: Mapping[str, PciFunction]) -> dict[str, tuple[PciFunction, int]]:
    """Return the PF and the number of each VF, by the PF's offset, stride and number of VFs."""
    found: dict[str, tuple[PciFunction, int]] = {}
    for function in functions.values():
        if "sriov_numvfs" not in function.entries:
            continue
        names = ("sriov_numvfs", "sriov_offset", "sriov_stride")
        count, offset, stride = (text.number(root.read(f"{function.path}/{name}")) for name in names)
        if count is None or offset is None or stride is None or not 0 < count <= _MAX_VFS:
            continue
        first = _routing_id(function) + offset
        domain = function.address.partition(":")[0]
        for number in range(count if stride > 0 or count == 1 else 0):
            address = _format_address(domain, first + number * stride)
            if address in functions and address != function.address:
                found.setdefault(address, (function, number))
    return found


def _routing_id(function: PciFunction) -> int:
    bus, device, place = (int(part, 16) for part in re.split("[:.]", function.address)[1:])
    return bus << 8 | device << 3 | place


def _format_address(domain: str, routing_id: int) -> str:
    return f"{domain}:{routing_id >> 8:02x}:{routing_id >> 3 & 31:02x}.{routing_id & 7}"


def _describe(
    root: Root, function: PciFunction, ports: tuple[NicPort, ...], physical: PciFunction, number: int
) -> UsedFunction:
    facts: dict[str, Scalar] = {FUNCTION: "VF", PHYSICAL: physical.address, NUMBER: number}
    limit = read_rate_limit(root, physical.path, number)
    if limit is not None:
        facts[RATE_LIMIT] = limit
        ports = tuple(_limit_port(port, limit) for port in ports)
    numa = function.numa if function.numa is not None else physical.numa
    seen = msgspec.structs.replace(function, link=physical.link, config=physical.config, numa=numa)
    return UsedFunction(function=seen, ports=ports, facts=facts)


def read_rate_limit(root: Root, physical: str, number: int) -> float | None:
    """Return the rate to which a VF may send, in bit/s; None without a limit, or if the driver does not show it."""
    folder = f"{physical}/sriov/{number}"
    configured = _CONFIGURED.search(root.text(f"{folder}/config"))
    rate = int(configured[1]) if configured else text.number(root.read(f"{folder}/max_tx_rate"))
    return 1e6 * rate if rate is not None and 0 < rate <= _MAX_RATE_MBITS else None


def _limit_port(port: NicPort, limit: float) -> NicPort:
    rate = port.link.line_rate_bits_per_s
    if rate is None and port.state == "down":
        return port
    link = msgspec.structs.replace(port.link, line_rate_bits_per_s=limit if rate is None else min(rate, limit))
    return msgspec.structs.replace(port, link=link)
