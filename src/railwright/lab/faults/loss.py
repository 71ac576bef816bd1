"""A link that loses packets at random in one direction: a dirty fibre, a bad cable.

`from` is the sending end and `to` the end that drops packets. With `routing=spared`, BGP and neighbour discovery pass;
with `routing=hit` they are dropped like the rest.
"""

from __future__ import annotations

from railwright.lab.faults.effects import Effect, Fault, PortLoss, Values


def _effects(values: Values) -> tuple[Effect, ...]:
    cable, _, receiver = values.cable("from", "to")
    fraction = values.number("fraction", 0.000001, 1.0)
    spared = values.choice("routing", "spared", "hit") == "spared"
    return (PortLoss(receiver.name, cable.port_of(receiver.name), fraction, spared),)


FAULT = Fault(
    name="loss",
    summary="A link loses packets at random in one direction.",
    arguments={"from": None, "to": None, "fraction": "10%", "routing": "spared"},
    effects=_effects,
)
