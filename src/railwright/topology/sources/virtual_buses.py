"""Devices on a hypervisor's own bus instead of PCI: Hyper-V's VMBus and Xen's front ends."""

from __future__ import annotations

import re

from railwright.topology.sources.root import Root

_DEVICES = "sys/devices"
_XEN = re.compile(r"(vif|vbd)-\d{1,7}")
_ACPI_HOLDER = re.compile(r"LNXSYSTM:\d+|LNXSYBUS:\d+|ACPI\d+:\d+|MSFT1000:\d+|VMBUS:\d+")
_VMBUS_DEVICE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CARRIER = re.compile(r"net|block|host\d+")
_DEPTH = 5


def scan_virtual_buses(root: Root) -> dict[str, frozenset[str]]:
    """Return path to directory names for every device of a hypervisor's bus with a network or block device."""
    found: dict[str, frozenset[str]] = {}
    for name in root.names(_DEVICES):
        if _XEN.fullmatch(name):
            found[f"{_DEVICES}/{name}"] = frozenset(root.names(f"{_DEVICES}/{name}"))
        elif _ACPI_HOLDER.fullmatch(name):
            _scan_vmbus(root, f"{_DEVICES}/{name}", 0, found)
    return {path: names for path, names in sorted(found.items()) if any(map(_CARRIER.fullmatch, names))}


def _scan_vmbus(root: Root, path: str, depth: int, found: dict[str, frozenset[str]]) -> None:
    for name in root.names(path):
        below = f"{path}/{name}"
        if _VMBUS_DEVICE.fullmatch(name):
            found[below] = frozenset(root.names(below))
        elif depth < _DEPTH and _ACPI_HOLDER.fullmatch(name):
            _scan_vmbus(root, below, depth + 1, found)
