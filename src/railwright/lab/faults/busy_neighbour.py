"""A link that other traffic shares: steady packets without congestion control, in one direction.

The packets go to the link's all-nodes group (ff02::1), to a port without a listener, so they cross this link only.
`from` is the sending end, and `share` the offered load as a fraction of the link's rate.
"""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.lab.faults.effects import Effect, Fault, PortBusy, Values

_PACKET_BYTES = 1500  # a full queue still has room for short packets when long ones no longer fit


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, sender, _ = values.cable("from", "to")
    if cable.rate_bits_per_s is None:
        raise UsageError("the link of busy_neighbour must have a rate", hint="make the lab with --rate 100Mb/s")
    rate = values.number("share", 0.01, 1.5) * cable.rate_bits_per_s
    return (PortBusy(sender.name, cable.port_of(sender.name), rate, min(cable.mtu_bytes, _PACKET_BYTES)),)


FAULT = Fault(
    name="busy_neighbour",
    summary="Other traffic fills a link in one direction.",
    arguments={"from": None, "to": None, "share": "90%"},
    effects=_effects,
)
