"""The network parts of a cluster and their cost: counts are exact, prices are the user's.

hosts     K; each has N NIC ports on one or more NICs (two ports of one card are one NIC).
NIC cable one for each NIC port, to a leaf.
optics    two for each optical cable, one at each end: of all cables, of cables between switches, or of none.
ports     only ports in use; the extra price of a half-empty switch is not counted (its switches are).
"""

from __future__ import annotations

from math import isfinite
from typing import Literal

import msgspec
from msgspec.structs import asdict

from railwright.errors import UsageError
from railwright.limits.switches import SwitchTier, count_described, count_non_blocking
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import Topology
from railwright.units import format_line_rate

Optics = Literal["all", "switches", "none"]
"""The cables that are optical: all, only those between switches, or none."""

MAX_PRICE = 1e9


class Parts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of a cluster's network."""

    gpu_hosts: int
    nics: int
    """Number of cards: two ports of one card are one NIC."""
    nic_ports: int
    nic_cables: int
    switch_cables: int
    optics: int
    leaf_switches: int
    leaf_ports: int
    """Leaf ports that lead to NICs."""
    leaf_uplink_ports: int
    spine_switches: int
    """Switches of the spine and of every higher tier."""
    spine_ports: int
    tiers: tuple[SwitchTier, ...]

    @property
    def cables(self) -> int:
        """The number of cables, to NICs and between switches."""
        return self.nic_cables + self.switch_cables

    @property
    def switch_ports(self) -> int:
        """The number of ports in use on all switches."""
        return self.leaf_ports + self.leaf_uplink_ports + self.spine_ports

    def count_priced_parts(self) -> dict[str, int]:
        """Return the number of parts for each key of the price list."""
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
    """The author and date of the prices, printed with every cost."""
    currency: str
    gpu_host: float | None = None
    nic: float | None = None
    cable: float | None = None
    optic: float | None = None
    leaf_port: float | None = None
    spine_port: float | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a network, in the currency of the price list."""

    currency: str
    total: float
    by_part: dict[str, float]


def count_parts(cluster: Cluster, radix: int, optics: Optics = "all") -> Parts:
    """Count the parts of the cluster's fabric, or of a non-blocking fabric if the cluster has no tiers.

    Switches of the non-blocking fabric have `radix` ports.
    Raises UsageError for NICs of several rates, whose switches cannot be counted as one kind.
    """
    port_rate_bits_per_s(cluster.host)  # raises UsageError for several rates
    rails = len(ports(cluster.host))
    fabric, hosts = cluster.fabric, cluster.hosts
    tiers = count_described(fabric, hosts, rails) if fabric.tiers else count_non_blocking(hosts, rails, radix)
    leaf, above = tiers[0], tiers[1:]
    between = sum(tier.ports_up for tier in tiers)
    optical = {"all": hosts * rails + between, "switches": between, "none": 0}[optics]
    return Parts(
        gpu_hosts=hosts,
        nics=hosts * _count_cards(cluster.host),
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
    """Return the line rate of the host's NIC ports, None if unknown. Raises UsageError for several rates."""
    rates = {getattr(link.protocol, "line_rate_bits_per_s", None) for _, link in ports(host)}
    if len(rates) > 1:
        words = ", ".join(sorted("unknown" if rate is None else format_line_rate(rate) for rate in rates))
        raise UsageError(
            f"the host's NIC ports must all have one rate to count switch ports, got {words}",
            hint="save the topology without the NICs that are not part of the GPU network",
        )
    return next(iter(rates), None)


def _count_cards(host: Topology) -> int:
    nics = {nic.id for nic, _ in ports(host)}
    cards = {card.id for card in host.of_kind("card")}
    above = {link.b: link.a for link in host.links if link.a in cards and link.b in nics}
    return len({above.get(nic, nic) for nic in nics})


def check_prices(prices: Prices) -> None:
    """Check that every price is a number in range. Raises UsageError."""
    for key, price in asdict(prices).items():
        if isinstance(price, int | float) and not (isfinite(price) and 0 <= price <= MAX_PRICE):
            raise UsageError(
                f"the price of {key} must be 0 to {MAX_PRICE:g}, got {price}", hint="correct it in the price list"
            )


def compute_cost(parts: Parts, prices: Prices) -> Cost:
    """Multiply counts by prices. Raises UsageError that names every missing price."""
    counts = parts.count_priced_parts()
    missing = [key for key, number in counts.items() if number and getattr(prices, key) is None]
    if missing:
        raise UsageError(
            f"the price list has no {', '.join(missing)}", hint="add it, or give 0 to leave the part out of the cost"
        )
    by_part = {key: number * (getattr(prices, key) or 0.0) for key, number in counts.items()}
    return Cost(currency=prices.currency, total=sum(by_part.values()), by_part=by_part)
