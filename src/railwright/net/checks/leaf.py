"""The leaf's routes: the leaf forwards to the pod's addresses. It is judged only if the leaf's table can be read."""

from __future__ import annotations

from railwright.net.view import Bad, Check, Note, View, require_seen

_REMEDY = "on the leaf: ip route; vtysh -c 'show bgp summary', its filters for this session, maximum-prefix"


def _judge(view: View, note: Note) -> str:
    routes = require_seen(view.leaf)
    for address, route in routes.items():
        note(str(address), route.words, "ip route in the leaf's namespace")
    if missing := [str(address) for address, route in routes.items() if not route.forwards]:
        raise Bad(f"the leaf does not forward to {' and '.join(missing)}", _REMEDY)
    return " and ".join(route.words for route in routes.values())


CHECK = Check("leaf", _judge, after=("address", "bgp"))
