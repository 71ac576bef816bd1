"""The interface's packets that the bridge dropped during the check, by reason."""

from __future__ import annotations

from railwright.net.view import NOT_ATTACHED, Bad, Check, Note, Unseen, View, require_seen

_SPOOFED, _NO_LEAF, _REFUSED = "spoofed", "no_leaf", "refused_dscp"


def _judge(view: View, note: Note) -> str:
    before, after = require_seen(view.attached), require_seen(view.attached_after)
    before, after = require_seen(before or NOT_ATTACHED), require_seen(after or NOT_ATTACHED)
    rail, rail_after = require_seen(view.rail), require_seen(view.rail_after)
    if not after.dropped or not rail_after.dropped:
        require_seen(Unseen("railwrightd has no counters for it", "railwrightd status"))
    own, of_rail = _count_increase(before.dropped, after.dropped), _count_increase(rail.dropped, rail_after.dropped)
    note("of it alone", _format_counters(after.dropped, own), "railwrightd list")
    note(f"of all on {after.rail}", _format_counters(rail_after.dropped, of_rail), "railwrightd status")
    if count := own.get(_SPOOFED, 0):
        says = f"{count} of its packets were dropped as {_SPOOFED} during the check: not from its own MAC and address"
        raise Bad(says, f"find the program in the pod that sends from other addresses; {view.inside('ip address')}")
    if count := own.get(_REFUSED, 0):
        says = (
            f"{count} of its packets were dropped as {_REFUSED} during the check, which sends RoCE's congestion"
            " notifications (DSCP 48 to UDP port 4791)"
        )
        raise Bad(says, f"allow their DSCP by dscp.cnp or dscp.allow of {after.rail} in railwrightd's configuration")
    if count := of_rail.get(_NO_LEAF, 0):
        says = f"{count} packets were dropped on {after.rail} during the check: the leaf's MAC address is not known"
        raise Bad(says, "railwrightd status; ip neighbour on the node: does the leaf answer?")
    return f"dropped in total: {_format_counters(after.dropped, {})}; none as {_SPOOFED} or {_REFUSED} during the check"


def _count_increase(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {reason: packets - before.get(reason, 0) for reason, packets in after.items()}


def _format_counters(counters: dict[str, int], moved: dict[str, int]) -> str:
    shown = [
        f"{reason} {packets}" + (f" (+{moved[reason]})" if moved.get(reason) else "")
        for reason, packets in sorted(counters.items())
        if packets
    ]
    return ", ".join(shown) or "nothing"


CHECK = Check("drops", _judge, after=("interface", "address"), is_ours=True)
