"""A host with little CPU, while its NICs stay as they are: `share` is of one CPU, for all of its processes together.

With the same share on every host, as many of them as there are CPUs for do not take anything from each other: so hosts
that share a machine can be twice as fast as half of them.
"""

from __future__ import annotations

from railwright.lab.faults.effects import Effect, Fault, SlowCpu, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    return (SlowCpu(values.node("host", "host").name, values.number("share", 0.01, 1.0)),)


FAULT = Fault(
    name="cpu_slow",
    summary="A host has little CPU.",
    arguments={"host": None, "share": "10%"},
    effects=_effects,
)
