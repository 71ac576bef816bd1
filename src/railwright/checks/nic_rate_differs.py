"""A port that runs at a lower rate than others of its model: fewer lanes, an older cable, or the switch's setting.

sysfs does not show the maximum rate of a port, so the other ports are the baseline; `mlxlink` shows the maximum.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.topology.changes import change_links
from railwright.topology.cluster import ports
from railwright.topology.devices import Link, NetworkLink, Topology
from railwright.units import format_line_rate


def _signs(facts: Facts) -> Findings:
    best = _highest_rates(facts.topology)
    for nic, link in ports(facts.topology):
        rate = _line_rate(link)
        if rate is not None and rate < best.get(nic.name, 0.0):
            now, fastest = format_line_rate(rate), format_line_rate(best[nic.name])
            yield CHECK.finding(
                (nic.id,),
                f"the port of {nic.id} runs at {now}, others of its model at {fastest}",
                ("line rate", now, "speed of the netdev, rate of the RDMA port"),
                costs=f"{1 - rate / best[nic.name]:.0%} of the port; a collective over all NICs waits for it",
            )


def _highest_rates(topology: Topology) -> dict[str, float]:
    """Map NIC names to the highest rate of their ports, for names with at least two ports."""
    rates: dict[str, list[float]] = {}
    for nic, link in ports(topology):
        if nic.name and (rate := _line_rate(link)) is not None:
            rates.setdefault(nic.name, []).append(rate)
    return {name: max(some) for name, some in rates.items() if len(some) > 1}


def _line_rate(link: Link) -> float | None:
    return link.protocol.line_rate_bits_per_s if isinstance(link.protocol, NetworkLink) else None


def _lacks_siblings(topology: Topology) -> str:
    return "" if _highest_rates(topology) else "no two NICs of one model with known rates"


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    best = _highest_rates(topology)
    best_rates = {link.id: best[nic.name] for nic, link in ports(topology) if nic.name in best and _line_rate(link)}

    def change(link: Link) -> Link:
        if link.id not in best_rates or not isinstance(link.protocol, NetworkLink):
            return link
        return replace(link, protocol=replace(link.protocol, line_rate_bits_per_s=best_rates[link.id]))

    return topology, change_links(topology, change)


CHECK = Check(
    name="nic_rate_differs",
    summary="a port runs slower than others of its model",
    # Cards with one chip are sold in several rates, and storage cards are often slower.
    certainty="possible",
    right="ports of one model run at the same rate",
    remedy="mlxlink -d DEVICE shows the capabilities of both ends; check the cable, the optics and the switch port",
    signs=_signs,
    needs=(needs.settings, needs.nic, _lacks_siblings),
    mend=_build_with_and_without,
)
