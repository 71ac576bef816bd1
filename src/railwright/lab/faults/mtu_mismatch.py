"""A port with a smaller MTU than its peer: long packets towards it vanish silently, short ones pass.

In the other direction the port's own node knows its MTU and answers that a packet is too long. Linux's veth drops
arriving packets that are longer than the receiving port's MTU, as a switch does. `low` is the end with the smaller MTU,
`mtu` its MTU in bytes; `high` keeps the link's MTU.
"""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.lab.faults.effects import MIN_MTU_BYTES, Effect, Fault, PortMtu, PortSegments, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, low, high = values.cable("low", "high")
    mtu = int(values.number("mtu", MIN_MTU_BYTES, 65535))
    if mtu >= cable.mtu_bytes:
        raise UsageError(f"mtu must be below the link's {cable.mtu_bytes}, got {mtu}", hint="give a lower MTU")
    # Without PortSegments, TCP would cross in 64 KiB packets, which a veth passes regardless of its MTU.
    return (PortMtu(low.name, cable.port_of(low.name), mtu), PortSegments(high.name, cable.port_of(high.name)))


FAULT = Fault(
    name="mtu_mismatch",
    summary="One end of a link has a smaller MTU than the other.",
    arguments={"low": None, "high": None, "mtu": "1500"},
    effects=_effects,
)
