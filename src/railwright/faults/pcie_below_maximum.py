"""A PCIe link that trained slower or narrower than both its ends could.

The usual causes are a badly seated card or cable, a wrong slot, or a BIOS setting. GPUs lower their rate when idle
(power saving), so that a lower rate of an idle GPU is only possibly a fault, while a lower width always is one.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.faults.model import Facts, Fault, Finding, with_pcie
from railwright.limits.pcie import raw_rate
from railwright.results.model import Evidence
from railwright.topology.model import Link, PcieLink, Topology


def _look(facts: Facts) -> tuple[Finding, ...]:
    gpus = {device.id for device in facts.topology.of_kind("gpu")}
    return tuple(
        finding
        for link in facts.topology.links
        if isinstance(link.protocol, PcieLink)
        for finding in _look_at(link, link.protocol, idle_gpu=bool(gpus & {link.a, link.b}))
    )


def _look_at(link: Link, pcie: PcieLink, *, idle_gpu: bool) -> tuple[Finding, ...]:
    narrow = bool(pcie.width and pcie.max_width and pcie.width < pcie.max_width)
    slow = bool(pcie.gt_per_s and pcie.max_gt_per_s and pcie.gt_per_s < pcie.max_gt_per_s)
    if not (pcie.gt_per_s and pcie.width):
        return (_could_not_look(link),)
    if not (narrow or slow):
        return ()
    best_rate, best_width = pcie.max_gt_per_s or pcie.gt_per_s, pcie.max_width or pcie.width
    now, best = raw_rate(pcie.gt_per_s, pcie.width), raw_rate(best_rate, best_width)
    says = f"{link.id} runs at {pcie.gt_per_s:g} GT/s x{pcie.width}, both ends can do {best_rate:g} GT/s x{best_width}"
    return (
        Finding(
            fault=FAULT.name,
            where=(link.id,),
            certainty="possible" if idle_gpu and not narrow else "seen",
            says=says,
            costs=f"{1 - now / best:.0%} of the link's raw rate" if now and best else "",
            remedy="reseat the card or cable, check slot and BIOS, then compare current_link_speed and "
            "current_link_width with their maximum under load",
            evidence=(
                Evidence(
                    claim="link",
                    value=f"{pcie.gt_per_s:g} GT/s x{pcie.width}",
                    seen="current_link_speed, current_link_width",
                ),
            ),
        ),
    )  # fmt: skip


def _could_not_look(link: Link) -> Finding:
    return Finding(
        fault=FAULT.name,
        where=(link.id,),
        certainty="could not look",
        says=f"the trained rate and width of {link.id} cannot be read",
        remedy="look at current_link_speed and current_link_width of its two ends in /sys/bus/pci/devices",
    )


def _degrade(topology: Topology, where: str) -> Topology:
    """The link `where` at half its width."""
    return with_pcie(topology, where, lambda link: replace(link, width=max(1, (link.width or 2) // 2)))


FAULT = Fault(
    name="pcie_below_maximum",
    summary="a PCIe link trained below what both its ends can do",
    look=_look,
    degrade=_degrade,
)
