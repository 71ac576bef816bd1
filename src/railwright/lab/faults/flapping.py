"""A link that goes down and up repeatedly, so that routing never settles. `down` and `up` are seconds."""

from __future__ import annotations

from railwright.lab.faults.effects import Effect, Fault, PortFlaps, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, _, _ = values.cable("one", "other")
    # The upper end, for the reason given in link_down.
    return (PortFlaps(cable.b, cable.b_port, values.number("down", 0.05, 3600), values.number("up", 0.05, 3600)),)


FAULT = Fault(
    name="flapping",
    summary="A link goes down and up repeatedly.",
    arguments={"one": None, "other": None, "down": "1", "up": "4"},
    effects=_effects,
)
