"""A host that is slow in every way: little CPU for its processes, and NICs that are slow in both directions.

`share` is the part of one CPU that all processes of the host get together. `rate` is the remaining rate of each NIC; it
defaults to a tenth of the full rate.
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
