"""Real packets between tenants: none arrives, in either direction."""

from __future__ import annotations

from railwright.net.model import Check, Isolation, Line, Unseen, View
from railwright.results.model import Evidence

_NAME = "isolation"
_REMEDY = (
    "look for flows whose cookie does not begin with 0x7277, railwrightd's: ovs-ofctl -O OpenFlow14 dump-flows BRIDGE;"
    " are the tenants meant to talk? then make a TenantPeering"
)


def _look(view: View) -> Line:
    if isinstance(view.isolations, Unseen):
        return view.not_looked(_NAME, view.isolations)
    evidence = [
        Evidence(claim=f"{one.sender} to {one.receiver}", value=_words(one), seen="an ear at the receiver's interface")
        for one in view.isolations
    ]
    arrived = [one for one in view.isolations if one.heard]
    if arrived:
        worst = arrived[0]
        says = f"{worst.heard} of {worst.sent} packets of {worst.sender} arrived at {worst.receiver}, of another tenant"
        return view.line(_NAME, (says, _REMEDY), "", evidence)
    for one in view.isolations:
        if why := _proves_nothing(one):
            says = f"no packet of {one.sender} arrived at {one.receiver}, which proves nothing: {why}"
            hint = "mend that first, or name another pod with --stranger-netns"
            return view.not_looked(_NAME, Unseen(says, hint), evidence)
    sent = sum(one.sent for one in view.isolations)
    fine = f"0 of {sent} packets arrived between {view.isolations[0].sender} and {view.isolations[0].receiver}"
    return view.line(_NAME, ("", ""), fine, evidence)


def _words(one: Isolation) -> str:
    return f"{one.heard} of {one.sent} arrived; {_proves_nothing(one) or 'the gateways of both answer'}"


def _proves_nothing(one: Isolation) -> str:
    """Why it says nothing that none arrived; empty where it says that they are kept apart."""
    if not one.sent:
        return f"{one.sender} could send nothing"
    if not one.sender_works:
        return f"the gateway of {one.sender} does not answer it"
    if not one.receiver_works:
        return f"the gateway of {one.receiver} does not answer it"
    return f"the ear lost {one.lost} frames" if one.lost else ""


CHECK = Check("isolation", "nothing passes between it and a pod of another tenant", _look)
