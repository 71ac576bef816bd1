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
from railwright.topology.devices import EfaLink, EthernetLink, InfinibandLink, Topology
from railwright.topology.shapes import canonical_name
from railwright.units import format_line_rate, parse_line_rate

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


Price = float | dict[str, float]
"""A price for a part of any kind, or one for each kind: `{ "400Gb/s" = 1500, "800Gb/s" = 3000 }`."""


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A price list in one currency. The kinds of a GPU host are shapes, those of all other parts are port rates."""

    title: str
    """The author and date of the prices, printed with every cost."""
    currency: str
    gpu_host: Price | None = None
    nic: Price | None = None
    cable: Price | None = None
    optic: Price | None = None
    leaf_port: Price | None = None
    spine_port: Price | None = None


class Kinds(msgspec.Struct, frozen=True):
    """The kinds of a design's parts: parts of unlike kinds have no common price."""

    host: str
    """The shape with the changes that alter the host itself, like `hgx-h100 pcie=4`."""
    port: str
    """The NIC ports, and so all switch ports, cables and optics: `400 Gb/s InfiniBand`."""
    rate_bits_per_s: float | None = None

    def find_price(self, part: str, prices: Prices) -> float | None:
        """Return the price of a part of this kind; None if the list has none."""
        price: Price | None = getattr(prices, part)
        if not isinstance(price, dict):
            return price
        if part != _HOST:
            return next((each for kind, each in price.items() if self._has_rate(kind)), None)
        named = {canonical_name(kind) or kind: each for kind, each in price.items()}
        return named.get(self.host, named.get(self.host.partition(" ")[0]))

    def _has_rate(self, kind: str) -> bool:
        rate, _, protocol = kind.partition(" ")
        return parse_line_rate(rate) == self.rate_bits_per_s and self.port.lower().endswith(protocol.strip().lower())

    def list_shared(self, parts: Parts, prices: Prices | None) -> tuple[str, ...]:
        """Return the kinds that the cost does not distinguish: designs that differ in one cannot be compared by it.

        Without prices the cost is the number of switch ports.
        """
        if prices is None:
            return (f"switch ports of {self.port}",)
        single = {
            part
            for part, number in parts.count_priced_parts().items()
            if number and getattr(prices, part) and not isinstance(getattr(prices, part), dict)
        }
        hosts = (f"hosts of {self.host}",) if _HOST in single else ()
        return (*hosts, f"network parts of {self.port}") if single - {_HOST} else hosts


_HOST = "gpu_host"
_PROTOCOLS: dict[type, str] = {EthernetLink: "Ethernet", InfinibandLink: "InfiniBand", EfaLink: "EFA"}
_SETTINGS = ("mtu", "gpudirect", "protocol", "p2p", "mnnvl", "nics", "nic-rate", "nic-protocol")
"""The changes that alter the network or a setting, and leave the price of the host as it is."""


def find_kinds(host: Topology) -> Kinds:
    """Return the kinds of a host's parts. Raises UsageError for NICs of several rates."""
    words = [word for word in host.name.split() if word.partition("=")[0] not in _SETTINGS]
    rate = port_rate_bits_per_s(host)
    protocols = sorted({_PROTOCOLS[type(link.protocol)] for _, link in ports(host)})
    port = f"{format_line_rate(rate) if rate is not None else 'unknown rate'} {' and '.join(protocols)}"
    return Kinds(" ".join(words), port, rate)


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a network, in the currency of the price list."""

    currency: str
    total: float
    by_part: dict[str, float]


def count_parts(cluster: Cluster, radix: int, optics: Optics = "all") -> Parts:
    """Count the parts of the cluster's fabric, or of a non-blocking fabric if the cluster has no tiers.

    Switches have `radix` ports, where the cluster's tiers do not give their number.
    Raises UsageError for NICs of several rates, whose switches cannot be counted as one kind.
    """
    port_rate_bits_per_s(cluster.host)  # raises UsageError for several rates
    rails = len(ports(cluster.host))
    fabric, hosts = cluster.fabric, cluster.hosts
    tiers = count_described(fabric, hosts, rails, radix) if fabric.tiers else count_non_blocking(hosts, rails, radix)
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
    """Check that every price is a number in range, and every kind but a host's a rate. Raises UsageError."""
    for key, given in asdict(prices).items():
        kinds = given if isinstance(given, dict) else {"": given}
        for kind, price in kinds.items():
            if kind and key != _HOST:
                parse_line_rate(kind.partition(" ")[0])
            if isinstance(price, int | float) and not (isfinite(price) and 0 <= price <= MAX_PRICE):
                name = f"{key} {kind[:60]}".strip()
                raise UsageError(
                    f"the price of {name} must be 0 to {MAX_PRICE:g}, got {price}", hint="correct it in the price list"
                )


def compute_cost(parts: Parts, prices: Prices, kinds: Kinds) -> Cost:
    """Multiply counts by prices. Raises UsageError that names every missing price."""
    counts = {key: number for key, number in parts.count_priced_parts().items() if number}
    found = {key: kinds.find_price(key, prices) for key in counts}
    missing = [
        f"{key} of {kinds.host if key == _HOST else kinds.port}" if getattr(prices, key) is not None else key
        for key, price in found.items()
        if price is None
    ]
    if missing:
        raise UsageError(
            f"the price list has no {', '.join(missing)}", hint="add it, or give 0 to leave the part out of the cost"
        )
    by_part = {key: number * (found.get(key) or 0.0) for key, number in parts.count_priced_parts().items()}
    return Cost(currency=prices.currency, total=sum(by_part.values()), by_part=by_part)
