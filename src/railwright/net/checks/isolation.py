"""Real packets between tenants: none arrives, in either direction."""

from __future__ import annotations

from railwright.errors import CannotJudge
from railwright.net.view import Bad, Check, Isolation, Note, View, require_seen

_REMEDY = (
    "look for flows whose cookie does not begin with 0x7277, railwrightd's: ovs-ofctl -O OpenFlow14 dump-flows BRIDGE;"
    " if the tenants are meant to talk, create a TenantPeering"
)


def _judge(view: View, note: Note) -> str:
    tried = require_seen(view.isolations)
    for one in tried:
        words = f"{one.heard} of {one.sent} arrived; {_proves_nothing(one) or 'the gateways of both answer'}"
        note(f"{one.sender} to {one.receiver}", words, "a listener at the receiver's interface")
    for one in tried:
        if one.heard:
            says = f"{one.heard} of {one.sent} packets of {one.sender} arrived at {one.receiver}, of another tenant"
            raise Bad(says, _REMEDY)
    for one in tried:
        if why := _proves_nothing(one):
            says = f"no packet of {one.sender} arrived at {one.receiver}, which proves nothing: {why}"
            raise CannotJudge(says, hint="fix that first, or name another pod with --stranger-netns")
    sent = sum(one.sent for one in tried)
    return f"0 of {sent} packets arrived between {tried[0].sender} and {tried[0].receiver}"


def _proves_nothing(one: Isolation) -> str:
    """Return why the absence of packets does not prove isolation. Empty if it does."""
    if not one.sent:
        return f"{one.sender} could not send"
    if not one.sender_works:
        return f"the gateway of {one.sender} does not answer it"
    if not one.receiver_works:
        return f"the gateway of {one.receiver} does not answer it"
    return f"the listener lost {one.lost} frames" if one.lost else ""


CHECK = Check("isolation", _judge)
