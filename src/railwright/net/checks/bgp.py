"""BGP: the session with the rail's leaf is up, and the pod's addresses were sent to it."""

from __future__ import annotations

from collections.abc import Mapping

from railwright.net.view import NOT_ATTACHED, Address, Attached, Bad, Check, Note, Rail, Unseen, View, require_seen

_PART = "PART_ROUTES"
_REMEDY = "railwrightd status; vtysh -c 'show bgp summary' on the node; is the leaf's port up?"
_RESTART_POD = "are frr-provider or railwright-cni in the network's chain? restart the pod"


def _judge(view: View, note: Note) -> str:
    attached = view.attached
    if attached is None:
        raise Bad(f"{NOT_ATTACHED.why}: its addresses are not announced", _RESTART_POD)
    by_frr = {} if isinstance(view.announced, Unseen) else view.announced
    if isinstance(attached, Unseen) or isinstance(view.rail, Unseen):
        _note_what_frr_says(by_frr, note)
        # Without the daemon, FRR still reports its advertisements, but a missing one need not be a fault.
        if isinstance(attached, Unseen) and by_frr and all(by_frr.values()):
            peers = sorted({peer for sent_to in by_frr.values() for peer in sent_to})
            return f"FRR has sent the addresses to {' and '.join(peers)}"
    attached, rail = require_seen(attached), require_seen(view.rail)
    prefixes = " ".join(_host_prefix(one) for one in attached.addresses)
    later = view.attached_after if isinstance(view.attached_after, Attached) else attached
    # The state after all packets: a session that was down before may have come back.
    now = view.rail_after if isinstance(view.rail_after, Rail) else rail
    note(f"session of {attached.rail}", _session(rail, now), "railwrightd status")
    note("sent to the leaf", "yes" if later.advertised else "no", "railwrightd list")
    _note_what_frr_says(by_frr, note)
    for problem in now.problems:
        if "BGP" in problem:
            note("problem", problem, "railwrightd status")
    if _PART not in attached.parts:
        raise Bad("no plugin requested routes: its addresses are not announced", _RESTART_POD)
    if not now.session_established:
        raise Bad(
            f"the session of {attached.rail} with its leaf is down: other nodes have no route to {prefixes}", _REMEDY
        )
    # The daemon also reports False if FRR answers too slowly, so it is asked twice, seconds apart, and FRR as well.
    sent = isinstance(view.announced, dict) and all(by_frr.get(one) for one in attached.addresses)
    if not (attached.advertised or later.advertised or sent):
        raise Bad(f"{prefixes} were not sent to the leaf of {attached.rail}", _REMEDY)
    return f"{prefixes} were sent to the leaf"


def _session(before: Rail, after: Rail) -> str:
    first, last = ("established" if one.session_established else "down" for one in (before, after))
    return last if first == last else f"{first}, and {last} after the packets"


def _note_what_frr_says(by_frr: Mapping[Address, tuple[str, ...]], note: Note) -> None:
    for address, peers in by_frr.items():
        note(_host_prefix(address), f"sent to {', '.join(peers) or 'nobody'}", "vtysh")


def _host_prefix(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


CHECK = Check("bgp", _judge, is_ours=True)
