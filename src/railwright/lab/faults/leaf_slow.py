"""A switch with slow ports: a shared buffer, a line card or a CPU that forwards in software.

`rate` is the remaining rate at which each port sends; it defaults to a tenth of the full rate.
"""

from __future__ import annotations

from railwright.errors import UsageError
from railwright.lab.faults.effects import Effect, Fault, PortRate, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    leaf = values.node("leaf", "leaf", "spine", "superspine")
    cables = values.plan.cables_of(leaf.name)
    if not cables:
        raise UsageError(f"{leaf.name} has no cable", hint="see railwright lab status")
    rates = [values.rate_below("rate", cable.rate_bits_per_s) for cable in cables]
    return tuple(PortRate(leaf.name, cable.port_of(leaf.name), rate) for cable, rate in zip(cables, rates, strict=True))


FAULT = Fault(
    name="leaf_slow",
    summary="Every port of a switch sends slowly.",
    arguments={"leaf": None, "rate": ""},
    effects=_effects,
)
