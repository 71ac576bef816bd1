"""What the bridge dropped of the interface while we looked, by reason."""

from __future__ import annotations

from railwright.net.model import NOT_ATTACHED, Attached, Check, Line, Unseen, View
from railwright.results.model import Evidence

_NAME = "drops"
_SPOOFED, _NO_LEAF = "spoofed", "no_leaf"


def _look(view: View) -> Line:
    before, after, rail, rail_after = view.attached, view.attached_after, view.rail, view.rail_after
    if not isinstance(before, Attached) or not isinstance(after, Attached):
        unseen = next((one for one in (before, after) if isinstance(one, Unseen)), NOT_ATTACHED)
        return view.not_looked(_NAME, unseen)
    if isinstance(rail, Unseen):
        return view.not_looked(_NAME, rail)
    if isinstance(rail_after, Unseen):
        return view.not_looked(_NAME, rail_after)
    if not after.dropped or not rail_after.dropped:
        return view.not_looked(_NAME, Unseen("railwrightd tells no counters of it", "railwrightd status"))
    own, of_rail = _moved(before.dropped, after.dropped), _moved(rail.dropped, rail_after.dropped)
    evidence = [
        Evidence(claim="of it alone", value=_words(after.dropped, own), seen="railwrightd list"),
        Evidence(claim=f"of all on {after.rail}", value=_words(rail_after.dropped, of_rail), seen="railwrightd status"),
    ]
    trouble = ("", "")
    if count := own.get(_SPOOFED, 0):
        says = f"{count} packets of it were dropped meanwhile as {_SPOOFED}: not from its own MAC and address"
        trouble = says, f"who in the pod sends from other addresses? {view.inside('ip address')}"
    elif count := of_rail.get(_NO_LEAF, 0):
        says = f"{count} packets were dropped on {after.rail} meanwhile: the leaf's MAC address is not known"
        trouble = says, "railwrightd status; ip neighbour on the node: does the leaf answer?"
    return view.line(_NAME, trouble, f"in all {_words(after.dropped, {})}; none meanwhile as {_SPOOFED}", evidence)


def _moved(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {reason: packets - before.get(reason, 0) for reason, packets in after.items()}


def _words(counters: dict[str, int], moved: dict[str, int]) -> str:
    shown = [
        f"{reason} {packets}" + (f" (+{moved[reason]})" if moved.get(reason) else "")
        for reason, packets in sorted(counters.items())
        if packets
    ]
    return ", ".join(shown) or "nothing"


CHECK = Check("drops", "nothing that it sends is dropped as somebody else's", _look, after=("interface", "address"))
