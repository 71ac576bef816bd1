"""A link that is down, at once and for good; routing sees it and goes around."""

from __future__ import annotations

from railwright.lab.faults.model import Argument, Effect, Fault, PortDown, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, _, _ = values.cable("one", "other")
    # The upper end: a host's port that goes down itself could lose its addresses.
    return (PortDown(cable.b, cable.b_port),)


FAULT = Fault(
    name="link_down",
    summary="A link is down in both directions.",
    arguments=(
        Argument(name="one", summary="an end of the link"),
        Argument(name="other", summary="its other end"),
    ),
    effects=_effects,
)
