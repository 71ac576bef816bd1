"""A link that is slow in one direction: a failed lane, a bad optic, a port that negotiated a lower rate.

`from` is the end that sends slowly. `rate` is the remaining rate; it defaults to a tenth of the link's rate.
"""

from __future__ import annotations

from railwright.lab.faults.effects import Effect, Fault, PortRate, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, sender, _ = values.cable("from", "to")
    rate = values.rate_below("rate", cable.rate_bits_per_s)
    return (PortRate(sender.name, cable.port_of(sender.name), rate),)


FAULT = Fault(
    name="link_slow",
    summary="A link is slow in one direction.",
    arguments={"from": None, "to": None, "rate": ""},
    effects=_effects,
)
