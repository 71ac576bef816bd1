"""A PCIe link that trained slower or narrower than both ends support.

The usual causes are a badly seated card or cable, a wrong slot, or a BIOS setting. GPUs lower their rate when idle
to save power, so a lower rate of a GPU is only possibly a fault, while a lower width always is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.parts import list_pcie_uplinks
from railwright.faults.cases import crosses_network, gpus_use_pcie, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.pcie import raw_rate
from railwright.topology.changes import change_pcie
from railwright.topology.cluster import ports
from railwright.topology.devices import GT_PER_S, Device, Link, PcieLink, Topology
from railwright.units import format_count

_PARTS = {1: "half", 2: "a quarter"}
"""The number of halvings and the remaining share of lanes."""


def _signs(facts: Facts) -> Findings:
    gpus = {device.id for device in facts.topology.of_kind("gpu")}
    unknown: list[Link] = []
    for link in facts.topology.links:
        pcie = link.protocol
        if not isinstance(pcie, PcieLink):
            continue
        if not pcie.gt_per_s or not pcie.width:
            unknown.append(link)
            continue
        rate, width = pcie.max_gt_per_s or pcie.gt_per_s, pcie.max_width or pcie.width
        if pcie.width < width or pcie.gt_per_s < rate:
            now, best = raw_rate(pcie.gt_per_s, pcie.width), raw_rate(rate, width)
            trained = f"{pcie.gt_per_s:g} GT/s x{pcie.width}"
            may_be_idle = bool(gpus & {link.a, link.b}) and not pcie.width < width
            yield FAULT.finding(
                (link.id,),
                f"{link.id} runs at {trained}, but both ends support {rate:g} GT/s x{width}",
                ("link", trained, "current_link_speed, current_link_width"),
                certainty="possible" if may_be_idle else "seen",
                costs=f"{1 - now / best:.0%} of the link's raw rate" if now and best else "",
            )
    if unknown:
        yield FAULT.blind(
            (link.id for link in unknown),
            f"the trained rate and width of {len(unknown)} PCIe links cannot be read",
            remedy="check current_link_speed and current_link_width of their ends in /sys/bus/pci/devices",
        )


def _degrade(topology: Topology, where: str) -> Topology:
    """Halve the width of the link `where`."""
    return change_pcie(topology, [where], lambda link: replace(link, width=max(1, (link.width or 2) // 2)))


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    return topology, change_pcie(topology, [link.id for link in topology.links], _restore_maximum)


def _restore_maximum(link: PcieLink) -> PcieLink:
    return replace(link, width=link.max_width or link.width, gt_per_s=link.max_gt_per_s or link.gt_per_s)


def _hypotheses(case: Case) -> Hypotheses:
    """Yield hypotheses with slower links of all GPUs or NICs.

    A collective waits for the slowest, so a single slow link costs as much.
    """
    host = case.cluster.host
    if crosses_network(case) or gpus_use_pcie(case):
        yield from _list_variants(case, "GPUs", host.of_kind("gpu"), _PARTS if gpus_use_pcie(case) else (1,))
    if crosses_network(case):
        yield from _list_variants(case, "NICs", tuple(nic for nic, _ in ports(host)), (1,))


def _list_variants(case: Case, parts: str, devices: tuple[Device, ...], steps: Iterable[int]) -> Hypotheses:
    links = [link.id for link in list_pcie_uplinks(case.cluster.host, devices)]
    for step in steps:
        for says, change in (
            (f"the {parts} have {_PARTS[step]} of their PCIe lanes", partial(_narrow_link, by=2**step)),
            (
                f"the PCIe links of the {parts} run {format_count(step, 'generation')} lower",
                partial(_lower_generation, by=step),
            ),
        ):
            host = change_pcie(case.cluster.host, links, change)
            if host != case.cluster.host:
                tell_apart = (
                    "under load: lspci -vv -s ADDRESS | grep LnkSta (Speed, Width, downgraded), or railwright audit"
                )
                yield FAULT.supposed(says, replace_host(case, host), tell_apart)


def _narrow_link(link: PcieLink, *, by: int) -> PcieLink:
    """Set a link to its maximum width divided by `by`; a link that is already narrower stays unchanged."""
    maximum = link.max_width or link.width
    if not maximum or maximum < by:
        return link
    part = maximum // by
    return link if link.width is not None and link.width <= part else replace(link, width=part)


def _lower_generation(link: PcieLink, *, by: int) -> PcieLink:
    """Set a link `by` generations below its maximum; a link that is already slower stays unchanged."""
    maximum = link.max_gt_per_s or link.gt_per_s
    below = sorted(rate for rate in GT_PER_S.values() if maximum and rate < maximum)
    if len(below) < by or (link.gt_per_s is not None and link.gt_per_s <= below[-by]):
        return link
    return replace(link, gt_per_s=below[-by])


FAULT = Fault(
    name="pcie_below_maximum",
    summary="a PCIe link trained below the maximum of both its ends",
    right="every PCIe link runs at the maximum of both its ends",
    remedy="reseat the card or cable, check slot and BIOS, then compare current_link_speed and "
    "current_link_width with their maximum under load",
    signs=_signs,
    needs=(needs.pcie_link,),
    mend=_build_with_and_without,
    degrade=_degrade,
    ways=_hypotheses,
)
