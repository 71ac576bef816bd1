"""A link that is down at once and permanently; routing notices and goes around it."""

from __future__ import annotations

from railwright.lab.faults.effects import Effect, Fault, PortDown, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, _, _ = values.cable("one", "other")
    # The upper end: a host's port could lose its addresses if it were set down.
    return (PortDown(cable.b, cable.b_port),)


FAULT = Fault(
    name="link_down",
    summary="A link is down in both directions.",
    arguments={"one": None, "other": None},
    effects=_effects,
)
