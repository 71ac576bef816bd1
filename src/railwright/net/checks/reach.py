"""Real packets to pods of the same tenant: they arrive, and answers come back."""

from __future__ import annotations

from railwright.net.view import Bad, Check, Note, View, require_seen
from railwright.units import format_duration

_REMEDY = "is the peer of the same tenant, and does it answer echo requests? run railwright net check for it as well"


def _judge(view: View, note: Note) -> str:
    echoes = require_seen(view.echoes)
    for one in echoes:
        took = f", {format_duration(one.round_trip_s)} there and back" if one.round_trip_s is not None else ""
        words = f"{one.answered} of {one.sent} answered{took}" + (f", {one.error}" if one.error else "")
        note(str(one.target), words, f"echo requests from {one.source}")
    if lossy := [one for one in echoes if one.answered < one.sent]:
        says = (f"{one.target} answers {one.answered} of {one.sent} echo requests" for one in lossy)
        raise Bad("; ".join(says), _REMEDY)
    return f"{' and '.join(str(one.target) for one in echoes)} answer all echo requests"


CHECK = Check("reach", _judge, after=("interface", "address", "route", "gateway", "flows", "bgp", "leaf"))
