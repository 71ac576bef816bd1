"""The leaf's own table: it forwards the pod's addresses. Only where the leaf can be asked."""

from __future__ import annotations

from railwright.net.model import Check, Line, Unseen, View
from railwright.results.model import Evidence

_NAME = "leaf"


def _look(view: View) -> Line:
    if isinstance(view.leaf, Unseen):
        return view.not_looked(_NAME, view.leaf)
    evidence = [
        Evidence(claim=str(address), value=route.words, seen="ip route in the leaf's namespace")
        for address, route in view.leaf.items()
    ]
    missing = [str(address) for address, route in view.leaf.items() if not route.forwards]
    says = f"the leaf does not forward to {' and '.join(missing)}" if missing else ""
    remedy = "on the leaf: ip route; vtysh -c 'show bgp summary', its filters for this session, maximum-prefix"
    return view.line(_NAME, (says, remedy), " and ".join(route.words for route in view.leaf.values()), evidence)


CHECK = Check("leaf", "the rail's leaf has a route to its addresses", _look, after=("address", "bgp"))
