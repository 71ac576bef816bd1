"""A host that is slow in all it does: little CPU for its processes, and NICs that are slow both ways.

`share` is of one CPU, for all processes of the host together; `rate` is what is left of each NIC, a tenth of its rate
without it.
"""

from __future__ import annotations

from railwright.lab.faults.effects import Effect, Fault, PortRate, SlowCpu, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    host = values.node("host", "host")
    found: list[Effect] = [SlowCpu(host.name, values.number("share", 0.01, 1.0))]
    for cable in values.plan.cables_of(host.name):
        rate = values.rate_below("rate", cable.rate_bits_per_s)
        found += [PortRate(cable.a, cable.a_port, rate), PortRate(cable.b, cable.b_port, rate)]
    return tuple(found)


FAULT = Fault(
    name="host_slow",
    summary="A host has little CPU, and slow NICs in both directions.",
    arguments={"host": None, "share": "10%", "rate": ""},
    effects=_effects,
)
