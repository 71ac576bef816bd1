"""BGP: the session with the rail's leaf is up, and the pod's addresses were sent to it."""

from __future__ import annotations

from railwright.net.model import NOT_ATTACHED, Address, Attached, Check, Line, Rail, Unseen, View
from railwright.results.model import Evidence

_NAME = "bgp"
_PART = "PART_ROUTES"
_REMEDY = "railwrightd status; vtysh -c 'show bgp summary' on the node; is the leaf's port up?"
_START_ANEW = "are frr-provider or railwright-cni in the network's chain? start the pod anew"


def _look(view: View) -> Line:
    attached, rail = view.attached, view.rail
    if attached is None:
        return view.line(_NAME, (f"{NOT_ATTACHED.why}: nothing of it is announced", _START_ANEW), "")
    evidence = _of_frr(view)
    if isinstance(attached, Unseen):
        return _by_frr_alone(view, attached, evidence)
    if isinstance(rail, Unseen):
        return view.not_looked(_NAME, rail, evidence)
    prefixes = " ".join(_prefix(one) for one in attached.addresses)
    later = view.attached_after if isinstance(view.attached_after, Attached) else attached
    # The daemon says no also where FRR was too slow to say: it is asked twice, seconds apart, and FRR besides.
    sent = attached.advertised or later.advertised or _sent(view, attached.addresses)
    # As it is after all packets: what was down before them has come back by itself.
    now = view.rail_after if isinstance(view.rail_after, Rail) else rail
    evidence = [
        Evidence(claim=f"session of {attached.rail}", value=_session(rail, now), seen="railwrightd status"),
        Evidence(claim="sent to the leaf", value="yes" if later.advertised else "no", seen="railwrightd list"),
        *evidence,
        *(Evidence(claim="problem", value=one, seen="railwrightd status") for one in now.problems if "BGP" in one),
    ]
    return view.line(_NAME, _trouble(attached, now, prefixes, sent=sent), f"{prefixes} were sent to the leaf", evidence)


def _session(before: Rail, after: Rail) -> str:
    first, last = ("established" if one.session_established else "down" for one in (before, after))
    return last if first == last else f"{first}, and {last} after the packets"


def _trouble(attached: Attached, rail: Rail, prefixes: str, *, sent: bool) -> tuple[str, str]:
    if _PART not in attached.parts:
        return "no plugin asked for routes: nothing of it is announced", _START_ANEW
    if not rail.session_established:
        return f"the session of {attached.rail} with its leaf is down: nobody else knows {prefixes}", _REMEDY
    if not sent:
        return f"{prefixes} were not sent to the leaf of {attached.rail}", _REMEDY
    return "", ""


def _of_frr(view: View) -> list[Evidence]:
    if isinstance(view.announced, Unseen):
        return []
    return [
        Evidence(claim=_prefix(address), value=f"sent to {', '.join(peers) or 'nobody'}", seen="vtysh")
        for address, peers in view.announced.items()
    ]


def _by_frr_alone(view: View, why: Unseen, evidence: list[Evidence]) -> Line:
    """Where the daemon does not answer, FRR still does; whether what it has not sent should be, it does not know."""
    announced = {} if isinstance(view.announced, Unseen) else view.announced
    if not announced or not all(announced.values()):
        return view.not_looked(_NAME, why, evidence)
    peers = sorted({peer for peers in announced.values() for peer in peers})
    return view.line(_NAME, ("", ""), f"FRR has sent them to {' and '.join(peers)}", evidence)


def _sent(view: View, addresses: tuple[Address, ...]) -> bool:
    return not isinstance(view.announced, Unseen) and all(view.announced.get(one) for one in addresses)


def _prefix(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


CHECK = Check("bgp", "its addresses were sent to the rail's leaf", _look)
