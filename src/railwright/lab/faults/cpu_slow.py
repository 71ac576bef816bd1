"""A host with little CPU and full-speed NICs: `share` is the part of one CPU that all of its processes get together.

With the same share on every host, hosts do not take CPU from each other while the machine's CPUs cover all shares.
Twice as many hosts are then twice as fast, even on one machine.
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
