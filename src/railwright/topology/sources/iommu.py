"""The IOMMU's treatment of each PCI function: the kernel's groups of functions, with the kind of each group's domain.

`identity` passes addresses through; `DMA` and `DMA-FQ` translate them (Linux
Documentation/ABI/testing/sysfs-kernel-iommu_groups).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from railwright.topology.settings import IOMMU_DOMAIN, IOMMU_OFF, SETTING
from railwright.topology.sources import text
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.root import Root, Unreadable
from railwright.topology.sources.settings import NOT_HELD

GROUPS = "sys/kernel/iommu_groups"
_KNOWN = frozenset({"identity", "DMA", "DMA-FQ", "blocked", "unmanaged", "auto"})
_MAX_GROUPS = 4096


def read_domains(root: Root, wanted: Collection[str], notes: Notes) -> dict[str, str]:
    """Return PCI address to the kind of its domain, or `off`; unknown ones are left out."""
    listed = root.list(GROUPS)
    if isinstance(listed, Unreadable):
        if listed.is_absent and root.holds_settings:
            return dict.fromkeys(wanted, IOMMU_OFF)
        if wanted:
            notes.missing(SETTING, NOT_HELD if listed.is_absent else f"/{GROUPS} {listed.reason}", IOMMU_DOMAIN)
        return {}
    found = dict.fromkeys(wanted, IOMMU_OFF)
    for group in [name for name in listed if re.fullmatch(r"\d{1,6}", name)][:_MAX_GROUPS]:
        members = set(root.names(f"{GROUPS}/{group}/devices")) & found.keys()
        if members:
            kind = text.word(root.read(f"{GROUPS}/{group}/type"))
            for address in members:
                found[address] = kind
    unknown = [address for address, kind in found.items() if kind not in _KNOWN and kind != IOMMU_OFF]
    if unknown:
        notes.missing(SETTING, f"/{GROUPS}/*/type does not say", IOMMU_DOMAIN)
    return {address: kind for address, kind in found.items() if address not in unknown}
