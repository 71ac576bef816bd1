"""An IOMMU that translates the addresses of GPUs, NICs and drives instead of passing them through.

Translated requests go to the root complex, even those to a device under the same switch, and each needs a table
lookup (NCCL User Guide, Troubleshooting; NVIDIA GPUDirect Storage, Installation and Troubleshooting).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.host_settings import IN_A_GUEST, is_arm, is_virtual, why_unread
from railwright.checks.parts import group_ids
from railwright.faults.acs_redirect import redirect_peers
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.topology.devices import Device, DeviceKind, Topology
from railwright.topology.gpus import format_runs
from railwright.topology.settings import IOMMU_DOMAIN

_KINDS: tuple[DeviceKind, ...] = ("gpu", "nic", "drive")
_TRANSLATED = frozenset({"DMA", "DMA-FQ"})
_REMEDY = "on the kernel's command line, and reboot; the type of the group must then be identity"
_VIRTIO = "1af4:"
"""The PCI vendor of virtio, whose devices access only the guest's memory."""


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    devices = [
        device for device in topology.of_kind(*_KINDS) if not str(device.facts.get("pci_id", "")).startswith(_VIRTIO)
    ]
    translated = {kind: names for kind, names in group_ids(devices, _domain).items() if kind in _TRANSLATED}
    direct = {device.id for device in devices if device.kind != "drive"}
    for kind, names in translated.items():
        guest, peers = is_virtual(topology), direct & set(names)
        change = "iommu=pt" if not is_arm(topology) else "iommu.passthrough=1"
        yield FAULT.finding(
            names,
            f"the IOMMU translates the addresses of {format_runs(names)}",
            ("IOMMU domain", kind, "/sys/kernel/iommu_groups/*/type"),
            certainty="likely" if topology.of_kind("gpu") and peers and not guest else "possible",
            remedy=f"{change} in the guest; {IN_A_GUEST}" if guest else f"{change} {_REMEDY}",
        )


def _domain(device: Device) -> str | None:
    value = device.facts.get(IOMMU_DOMAIN)
    return value if isinstance(value, str) else None


def _explain_unread(topology: Topology) -> str:
    blind = [device.id for device in topology.of_kind(*_KINDS) if device.address and IOMMU_DOMAIN not in device.facts]
    return f"{why_unread(topology, IOMMU_DOMAIN)} (of {format_runs(blind)})" if blind else ""


def _no_pci_device(topology: Topology) -> str:
    return "" if any(device.address for device in topology.of_kind(*_KINDS)) else "no GPU, NIC or drive on PCI"


def _hypotheses(case: Case) -> Hypotheses:
    """Yield the detour of acs_redirect as a hypothesis if there is one host.

    Between hosts no measurement distinguishes the two, so only acs_redirect yields it.
    """
    detour = redirect_peers(case) if case.cluster.hosts == 1 else None
    if detour is not None:
        yield FAULT.supposed(
            "the IOMMU translates the GPUs' addresses, so peer-to-peer requests go to the root complex",
            detour,
            "cat /proc/cmdline (iommu=pt or intel_iommu=off is correct), cat /sys/kernel/iommu_groups/*/type (DMA"
            " translates, identity does not)",
        )


FAULT = Fault(
    name="iommu_translates",
    summary="the IOMMU translates every address of a GPU, NIC or drive",
    right="the IOMMU does not translate addresses of GPUs, NICs and drives",
    costs="peer-to-peer traffic crosses the root complex, and may hang (NCCL User Guide, Troubleshooting)",
    signs=_signs,
    needs=(needs.settings, _no_pci_device),
    asks=(_explain_unread,),
    ways=_hypotheses,
)
