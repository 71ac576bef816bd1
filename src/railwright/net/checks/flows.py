"""The flows of the interface: as many on the rail's bridge as railwrightd wants there."""

from __future__ import annotations

from railwright.net.model import NOT_ATTACHED, Attached, Check, Line, Rail, Unseen, View
from railwright.results.model import Evidence

_NAME = "flows"
_PART = "PART_FLOWS"
_START_ANEW = "are ovs-provider or railwright-cni in the network's chain? start the pod anew"


def _look(view: View) -> Line:
    attached = view.attached
    if isinstance(attached, Unseen):
        return view.not_looked(_NAME, attached)
    if attached is None:
        return view.line(_NAME, (f"{NOT_ATTACHED.why}: no flow lets its packets pass", _START_ANEW), "")
    # The later look, once all packets were sent, is the one that counts, unless only the first could be taken.
    looks = [one for one in (view.attached_after, attached) if isinstance(one, Attached) and one.counted]
    if not looks:
        return view.not_looked(
            _NAME, Unseen("railwrightd could not ask the bridge for its flows", "railwrightd status")
        )
    attached = looks[0]
    counted = f"{attached.flows_installed} installed, {attached.flows_wanted} wanted"
    evidence = [Evidence(claim="flows", value=counted, seen="railwrightd list")]
    problems = view.rail.problems if isinstance(view.rail, Rail) else ()
    evidence += [Evidence(claim="problem", value=one, seen="railwrightd status") for one in problems]
    fine = f"all {attached.flows_wanted} are on the bridge, for its port {attached.host_interface}"
    return view.line(_NAME, _trouble(view, attached), fine, evidence)


def _trouble(view: View, attached: Attached) -> tuple[str, str]:
    if _PART not in attached.parts:
        return "no plugin asked for flows: nothing lets its packets pass", _START_ANEW
    if isinstance(view.rail, Rail) and not view.rail.switch_ready:
        return f"the bridge of {attached.rail} is not ready", "railwrightd status says why"
    if not attached.flows_wanted:
        says = f"railwrightd can make no flow for it: is {attached.host_interface} still a port of the rail's bridge?"
        return says, "ovs-vsctl list-ports of the rail's bridge; railwrightd's log; start the pod anew"
    if attached.flows_installed != attached.flows_wanted:
        says = f"{attached.flows_installed} of {attached.flows_wanted} flows are on the bridge"
        return says, "railwrightd puts them right within seconds; if it does not, its log says why"
    return "", ""


CHECK = Check("flows", "the bridge has the flows that railwrightd wants", _look)
