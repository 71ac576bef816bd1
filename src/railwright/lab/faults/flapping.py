"""A link that goes down and up again and again, so that routing never comes to rest."""

from __future__ import annotations

from railwright.lab.faults.model import Argument, Effect, Fault, PortFlaps, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, _, _ = values.cable("one", "other")
    # The upper end, as in link_down.
    return (PortFlaps(cable.b, cable.b_port, values.number("down", 0.05, 3600), values.number("up", 0.05, 3600)),)


FAULT = Fault(
    name="flapping",
    summary="A link goes down and up again and again.",
    arguments=(
        Argument(name="one", summary="an end of the link"),
        Argument(name="other", summary="its other end"),
        Argument(name="down", summary="seconds that it is down", default="1"),
        Argument(name="up", summary="seconds that it is up", default="4"),
    ),
    effects=_effects,
)
