"""Infinity Fabric between AMD GPUs: links times the rate of one, each direction.

No band: AMD does not publish the protocol's overhead, and no measured figures of healthy machines are at hand.
"""

from __future__ import annotations

from railwright.limits.model import Constant, Expected, Limit, NoLimit, Step
from railwright.limits.sources import CDNA2, CDNA3
from railwright.topology.model import Link, XgmiLink
from railwright.units import format_bandwidth

LINK_RATE: dict[int, Constant] = {
    3: Constant(value=50e9, unit="bytes/s a link and direction", source=CDNA2),
    4: Constant(value=64e9, unit="bytes/s a link and direction", source=CDNA3),
}


def limit(link: Link) -> tuple[Limit | NoLimit, Expected | None]:
    """The limit of the Infinity Fabric links between two GPUs, each direction."""
    protocol = link.protocol
    assert isinstance(protocol, XgmiLink)
    rate = LINK_RATE.get(protocol.generation)
    if rate is None or protocol.links < 1:
        why = f"Infinity Fabric generation {protocol.generation} with {protocol.links} links is not known"
        return NoLimit(quantity="bandwidth_bytes_per_s", why=why, missing=(f"{link.id}: rate of a link",)), None
    value = protocol.links * rate.value
    name = f"Infinity Fabric {protocol.generation} x{protocol.links}"
    found = Limit(
        quantity="bandwidth_bytes_per_s",
        value=value,
        kind="derived",
        because=f"{name}, between {link.a} and {link.b}",
        bottleneck=link.id,
        derivation=(Step(text=f"{name} at {format_bandwidth(rate.value)} each", value=format_bandwidth(value)),),
        sources=(rate.source,),
    )
    return found, None
