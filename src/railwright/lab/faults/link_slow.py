"""A link that is slow in one direction: a lane that failed, a bad optic, a port that negotiated less.

`from` is the end that sends slowly; `rate` is what is left, a tenth of the link's rate without it.
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
