"""Real packets to pods of the same tenant: they arrive, and answers come back."""

from __future__ import annotations

from railwright.net.model import Check, Echo, Line, Unseen, View
from railwright.results.model import Evidence
from railwright.units import format_duration

_NAME = "reach"
_REMEDY = "is the peer of the same tenant, and does it answer echo requests? run railwright net check for it as well"


def _look(view: View) -> Line:
    if isinstance(view.echoes, Unseen):
        return view.not_looked(_NAME, view.echoes)
    evidence = [
        Evidence(claim=str(one.target), value=_words(one), seen=f"echo requests from {one.source}")
        for one in view.echoes
    ]
    lossy = [one for one in view.echoes if one.answered < one.sent]
    says = "; ".join(f"{one.target} answers {one.answered} of {one.sent} echo requests" for one in lossy)
    fine = f"{' and '.join(str(one.target) for one in view.echoes)} answer all echo requests"
    return view.line(_NAME, (says, _REMEDY), fine, evidence)


def _words(one: Echo) -> str:
    took = f", {format_duration(one.round_trip_s)} there and back" if one.round_trip_s is not None else ""
    return f"{one.answered} of {one.sent} answered{took}" + (f", {one.error}" if one.error else "")


CHECK = Check(
    "reach",
    "pods of its tenant answer",
    _look,
    after=("interface", "address", "route", "gateway", "flows", "bgp", "leaf"),
)
