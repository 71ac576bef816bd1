"""A route that is slow for one source and destination only, on one leaf-spine-leaf combination.

All other pairs are fast on the same links, and so is this pair over the other spines: ECMP sends only some of its
flows there, so a rerun with other source ports is sometimes fast. `spine` defaults to the first spine, `rail` to all
rails of the source, and `rate`, the remaining rate of the uplink, to a tenth of its full rate.
"""

from __future__ import annotations

from railwright.errors import UsageError, unknown_name
from railwright.lab.faults.effects import Effect, Fault, PairRate, Values
from railwright.lab.nodes import Cable, Node


def _effects(values: Values) -> tuple[Effect, ...]:
    source, destination = values.node("source", "host"), values.node("destination", "host")
    near, far = _leaves(values, source), _leaves(values, destination)
    # A rail's packets stay on their rail: if both hosts have the same leaf there, they cross no spine.
    uplinks = [
        (rail, cable)
        for rail in _rails(values, source)
        if rail in far and far[rail] != near[rail]
        for cable in values.plan.cables_of(near[rail])
        if cable.a == near[rail]
    ]
    if not uplinks:
        hint = "choose two hosts of different leaves"
        raise UsageError(f"no spine lies between {source.name} and {destination.name}", hint=hint)
    spine = _spine(values, [cable for _, cable in uplinks])
    found = []
    for rail, cable in uplinks:
        if cable.b == spine:
            pair = source.rail(rail).addresses, destination.rail(rail).addresses
            found.append(PairRate(cable.a, cable.a_port, *pair, values.rate_below("rate", cable.rate_bits_per_s)))
    return tuple(found)


def _leaves(values: Values, host: Node) -> dict[int, str]:
    """Return the leaf of each rail of a host."""
    cables = values.plan.cables_of(host.name)
    return {cable.rail: cable.peer_of(host.name) for cable in cables if cable.rail is not None}


def _rails(values: Values, source: Node) -> list[int]:
    if values.given("rail"):
        return [source.rail(int(values.number("rail", 0, 1000))).rail]
    return [port.rail for port in source.rails]


def _spine(values: Values, uplinks: list[Cable]) -> str:
    spines = sorted({cable.b for cable in uplinks}, key=lambda name: (len(name), name))
    spine = values.words["spine"] or spines[0]
    if spine not in spines:
        raise unknown_name(f"switch above {uplinks[0].a}", spine, spines)
    return spine


FAULT = Fault(
    name="cursed_route",
    summary="One source and destination are slow, over one leaf-spine-leaf combination only.",
    arguments={"source": None, "destination": None, "spine": "", "rail": "", "rate": ""},
    effects=_effects,
)
