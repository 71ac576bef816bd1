"""The interface's flows: the rail's bridge has all flows that railwrightd requires."""

from __future__ import annotations

from railwright.errors import CannotJudge
from railwright.net.view import NOT_ATTACHED, Attached, Bad, Check, Note, Rail, View, require_seen

_PART = "PART_FLOWS"
_RESTART_POD = "are ovs-provider or railwright-cni in the network's chain? restart the pod"


def _judge(view: View, note: Note) -> str:
    attached = require_seen(view.attached)
    if attached is None:
        raise Bad(f"{NOT_ATTACHED.why}: no flow lets its packets pass", _RESTART_POD)
    # The state after all packets counts, or the first if the later one could not be read.
    looks = [one for one in (view.attached_after, attached) if isinstance(one, Attached) and one.counted]
    if not looks:
        raise CannotJudge("railwrightd could not ask the bridge for its flows", hint="railwrightd status")
    attached = looks[0]
    installed, wanted, port = attached.flows_installed, attached.flows_wanted, attached.host_interface
    note("flows", f"{installed} installed, {wanted} wanted", "railwrightd list")
    if isinstance(view.rail, Rail):
        for problem in view.rail.problems:
            note("problem", problem, "railwrightd status")
    if _PART not in attached.parts:
        raise Bad("no plugin requested flows: its packets cannot pass", _RESTART_POD)
    if isinstance(view.rail, Rail) and not view.rail.switch_ready:
        raise Bad(f"the bridge of {attached.rail} is not ready", "railwrightd status says why")
    if not wanted:
        says = f"railwrightd cannot install any flow for it: is {port} still a port of the rail's bridge?"
        raise Bad(says, "ovs-vsctl list-ports of the rail's bridge; railwrightd's log; restart the pod")
    if installed != wanted:
        says = f"{installed} of {wanted} flows are on the bridge"
        raise Bad(says, "railwrightd repairs them within seconds; otherwise its log has the reason")
    return f"all {wanted} are on the bridge, for its port {port}"


CHECK = Check("flows", _judge, is_ours=True)
