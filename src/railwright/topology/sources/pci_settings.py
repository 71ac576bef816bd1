"""Settings of single PCI functions: their write ordering, their address translation, and a GPU's BAR1."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.topology.devices import Scalar
from railwright.topology.settings import IOMMU_DOMAIN
from railwright.topology.sources import pci_names, text
from railwright.topology.sources.iommu import read_domains
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.pci import PciFunction
from railwright.topology.sources.pci_devices import Unit
from railwright.topology.sources.root import Root, Unreadable

_MEMORY_64 = 0x00100000
"""IORESOURCE_MEM_64 (Linux include/linux/ioport.h): a BAR of two registers, so the next line is empty."""
_MAX_BAR_BYTES = 1 << 50


def read_pci_settings(root: Root, units: Sequence[Unit], notes: Notes) -> dict[str, dict[str, Scalar | None]]:
    """Return facts by PCI address; None means unknown."""
    functions = {unit.function.address: unit.function for unit in units}
    domains = read_domains(root, functions.keys(), notes)
    gpus = {unit.function.address for unit in units if unit.kind == "gpu"}
    return {
        address: {
            "ats_enabled": function.config.ats_enabled,
            "ats_capable": function.config.ats_capable,
            "relaxed_ordering": function.config.relaxed_ordering,
            IOMMU_DOMAIN: domains.get(address),
            "bar1_bytes": _bar1_bytes(root, function) if address in gpus else None,
        }
        for address, function in functions.items()
    }


def _bar1_bytes(root: Root, function: PciFunction) -> int | None:
    """Return the size of an NVIDIA GPU's BAR1 from the lines `START END FLAGS` of its resources; 0 if it has none.

    BAR1 is the BAR after the first, which has 32 bits up to A100 and 64 bits from H100 on.
    """
    content = root.read(f"{function.path}/resource")
    if isinstance(content, Unreadable) or function.vendor != pci_names.NVIDIA:
        return None
    lines = [[text.number(word, 16) for word in line.split()] for line in content.splitlines()[:3]]
    if len(lines) < 3 or any(len(line) != 3 or None in line for line in lines):
        return None
    start, end, _ = lines[2 if (lines[0][2] or 0) & _MEMORY_64 else 1]
    if start is None or end is None:
        return None
    if start == end == 0:
        return 0
    return size if start >= 0 and 0 < (size := end - start + 1) <= _MAX_BAR_BYTES else None
