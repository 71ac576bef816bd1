"""A port that came up at a lower rate than others of its kind: fewer lanes, an older cable, or a switch port set so.

sysfs does not say what a port could do, so that the others are the reference; `mlxlink` does.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.topology.changes import with_links
from railwright.topology.cluster import ports
from railwright.topology.devices import Link, NetworkLink, Topology
from railwright.units import format_line_rate


def _signs(facts: Facts) -> Findings:
    best = _best(facts.topology)
    for nic, link in ports(facts.topology):
        rate = _rate(link)
        if rate is not None and rate < best.get(nic.name, 0.0):
            now, most = format_line_rate(rate), format_line_rate(best[nic.name])
            yield CHECK.finding(
                (nic.id,),
                f"the port of {nic.id} runs at {now}, others of its kind at {most}",
                ("line rate", now, "speed of the netdev, rate of the RDMA port"),
                costs=f"{1 - rate / best[nic.name]:.0%} of the port; a collective over all NICs waits for it",
            )


def _best(topology: Topology) -> dict[str, float]:
    """Name of a NIC to the highest rate of its ports; only of NICs that have a name and are not alone."""
    rates: dict[str, list[float]] = {}
    for nic, link in ports(topology):
        if nic.name and (rate := _rate(link)) is not None:
            rates.setdefault(nic.name, []).append(rate)
    return {name: max(some) for name, some in rates.items() if len(some) > 1}


def _rate(link: Link) -> float | None:
    return link.protocol.line_rate_bits_per_s if isinstance(link.protocol, NetworkLink) else None


def _alone(topology: Topology) -> str:
    return "" if _best(topology) else "no two NICs of one kind whose rates are known"


def _mend(topology: Topology) -> tuple[Topology, Topology]:
    best = _best(topology)
    of_port = {link.id: best[nic.name] for nic, link in ports(topology) if nic.name in best and _rate(link)}

    def change(link: Link) -> Link:
        if link.id not in of_port or not isinstance(link.protocol, NetworkLink):
            return link
        return replace(link, protocol=replace(link.protocol, line_rate_bits_per_s=of_port[link.id]))

    return topology, with_links(topology, change)


CHECK = Check(
    name="nic_rate_differs",
    summary="a port runs slower than others of its kind",
    # Cards of one chip are sold for several rates, and those for storage are often slower ones.
    certainty="possible",
    remedy="mlxlink -d DEVICE shows what both ends can do; look at cable, optics and the switch port",
    signs=_signs,
    needs=(needs.settings, needs.nic, _alone),
    mend=_mend,
)
