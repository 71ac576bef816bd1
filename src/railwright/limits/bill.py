"""The network parts of a cluster and what they cost: counts are exact, prices are the user's.

hosts     K; each has N NIC ports on one or more NICs (two ports of one card are one NIC).
NIC cable one for each NIC port, to a leaf.
optics    two for each optical cable, one at each end: of all cables, of those between switches, or of none.
ports     those that are used; what a half-empty switch costs more is not counted (its switches are).
"""

from __future__ import annotations

from math import isfinite
from typing import Literal

import msgspec
from msgspec.structs import asdict

from railwright.errors import UsageError
from railwright.limits.switches import SwitchTier, described, non_blocking
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import Topology
from railwright.units import format_line_rate

Optics = Literal["all", "switches", "none"]
"""Which cables are optical: all, those between switches only, or none."""

MOST_PRICE = 1e9


class Parts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the network of a cluster is made of."""

    gpu_hosts: int
    nics: int
    """Cards: two ports of one card are one NIC."""
    nic_ports: int
    nic_cables: int
    switch_cables: int
    optics: int
    leaf_switches: int
    leaf_ports: int
    """To NICs."""
    leaf_uplink_ports: int
    spine_switches: int
    """With those of every higher tier."""
    spine_ports: int
    tiers: tuple[SwitchTier, ...]

    @property
    def cables(self) -> int:
        """To NICs and between switches."""
        return self.nic_cables + self.switch_cables

    @property
    def switch_ports(self) -> int:
        """Of all switches, as far as they are used."""
        return self.leaf_ports + self.leaf_uplink_ports + self.spine_ports

    def priced(self) -> dict[str, int]:
        """How many of each key of the price list there are."""
        return {
            "gpu_host": self.gpu_hosts,
            "nic": self.nics,
            "cable": self.cables,
            "optic": self.optics,
            "leaf_port": self.leaf_ports + self.leaf_uplink_ports,
            "spine_port": self.spine_ports,
        }


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A price list: one price for each kind of part, whatever its rate, in one currency."""

    title: str
    """Who says so and when; printed with every cost."""
    currency: str
    gpu_host: float | None = None
    nic: float | None = None
    cable: float | None = None
    optic: float | None = None
    leaf_port: float | None = None
    spine_port: float | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In the price list's currency."""

    currency: str
    total: float
    by_part: dict[str, float]


def parts_of(cluster: Cluster, radix: int, optics: Optics = "all") -> Parts:
    """The parts of the cluster's fabric, or of a non-blocking one of switches of `radix` ports where it has no tiers.

    Raises UsageError for NICs of several rates, whose switches cannot be counted as one kind.
    """
    port_rate_bits_per_s(cluster.host)  # refuses several rates
    rails = len(ports(cluster.host))
    fabric, hosts = cluster.fabric, cluster.hosts
    tiers = described(fabric, hosts, rails) if fabric.tiers else non_blocking(hosts, rails, radix)
    leaf, above = tiers[0], tiers[1:]
    between = sum(tier.ports_up for tier in tiers)
    optical = {"all": hosts * rails + between, "switches": between, "none": 0}[optics]
    return Parts(
        gpu_hosts=hosts,
        nics=hosts * _cards(cluster.host),
        nic_ports=hosts * rails,
        nic_cables=hosts * rails,
        switch_cables=between,
        optics=2 * optical,
        leaf_switches=leaf.switches,
        leaf_ports=leaf.ports_down,
        leaf_uplink_ports=leaf.ports_up,
        spine_switches=sum(tier.switches for tier in above),
        spine_ports=sum(tier.ports_down + tier.ports_up for tier in above),
        tiers=tiers,
    )


def port_rate_bits_per_s(host: Topology) -> float | None:
    """The line rate of the host's NIC ports; None where it is not known. Raises UsageError for several rates."""
    rates = {getattr(link.protocol, "line_rate_bits_per_s", None) for _, link in ports(host)}
    if len(rates) > 1:
        words = ", ".join(sorted("unknown" if rate is None else format_line_rate(rate) for rate in rates))
        raise UsageError(
            f"the host has NIC ports of several rates ({words}), so the switch ports are not of one kind",
            hint="save the topology without the NICs that are not part of the GPU network",
        )
    return next(iter(rates), None)


def _cards(host: Topology) -> int:
    nics = {nic.id for nic, _ in ports(host)}
    cards = {card.id for card in host.of_kind("card")}
    above = {link.b: link.a for link in host.links if link.a in cards and link.b in nics}
    return len({above.get(nic, nic) for nic in nics})


def check_prices(prices: Prices) -> None:
    """Raises UsageError for a price that makes no sense."""
    for key, price in asdict(prices).items():
        if isinstance(price, int | float) and not (isfinite(price) and 0 <= price <= MOST_PRICE):
            raise UsageError(f"the price of {key} is {price}", hint=f"give 0 to {MOST_PRICE:g}")


def cost_of(parts: Parts, prices: Prices) -> Cost:
    """Number times price, part by part. Raises UsageError that names every price that is missing."""
    counts = parts.priced()
    missing = [key for key, number in counts.items() if number and getattr(prices, key) is None]
    if missing:
        raise UsageError(
            f"the price list has no {', '.join(missing)}", hint="add it; a price of 0 leaves a part out of the cost"
        )
    by_part = {key: number * (getattr(prices, key) or 0.0) for key, number in counts.items()}
    return Cost(currency=prices.currency, total=sum(by_part.values()), by_part=by_part)
