"""A link that others use as well: steady packets that do not give way, in one direction.

The packets go to the link's own all-nodes group (ff02::1), to a port where nobody listens, so that they cross this
link only. `from` is the end that sends, and `share` the fraction of the link's rate that the others offer.
"""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.lab.faults.effects import Effect, Fault, PortBusy, Values

_PACKET_BYTES = 1500  # at a full queue short packets find room where long ones do not


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, sender, _ = values.cable("from", "to")
    if cable.rate_bits_per_s is None:
        raise UsageError("this link has no rate to share", hint="make the lab with --rate")
    rate = values.number("share", 0.01, 1.5) * cable.rate_bits_per_s
    return (PortBusy(sender.name, cable.port_of(sender.name), rate, min(cable.mtu_bytes, _PACKET_BYTES)),)


FAULT = Fault(
    name="busy_neighbour",
    summary="Others' traffic fills a link in one direction.",
    arguments={"from": None, "to": None, "share": "90%"},
    effects=_effects,
)
