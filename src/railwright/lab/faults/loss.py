"""A link that loses packets at random in one direction: a dirty fibre, a bad cable."""

from __future__ import annotations

from railwright.lab.faults.model import Argument, Effect, Fault, PortLoss, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, _, receiver = values.cable("from", "to")
    fraction = values.number("fraction", 0.000001, 1.0)
    spared = values.choice("routing", "spared", "hit") == "spared"
    return (PortLoss(receiver.name, cable.port_of(receiver.name), fraction, spared),)


FAULT = Fault(
    name="loss",
    summary="A link loses packets at random in one direction.",
    arguments=(
        Argument(name="from", summary="the end that sends"),
        Argument(name="to", summary="the end where packets are missing"),
        Argument(name="fraction", summary="of the packets that are lost", default="10%"),
        Argument(name="routing", summary="whether BGP and neighbour discovery are spared or hit", default="spared"),
    ),
    effects=_effects,
)
