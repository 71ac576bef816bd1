"""The datapath of the interface's flows: a VF's flows run in the NIC, and otherwise the datapath gives the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable

from railwright.errors import CannotJudge
from railwright.net.view import NOT_ATTACHED, Attached, Bad, CachedFlow, Check, Note, View, require_seen

_MAX_SHOWN_FLOWS = 3
# ovs-vswitchd itself answers ARP and neighbour discovery (ICMPv6 133 to 137) on every datapath.
_ARP_OR_ND = re.compile(r"eth_type\(0x0806\)|icmpv6\(type=13[3-7]")


def _judge(view: View, note: Note) -> str:
    attached = require_seen(view.attached or NOT_ATTACHED)
    data = find_data_flows(attached, require_seen(view.cached))
    if not data:
        why = f"the datapath has no flow of {attached.host_interface} now: it has sent no data"
        raise CannotJudge(why, hint="repeat while the pod sends, or name a peer with --to")
    software = [flow for flow in data if not flow.offloaded]
    for flow in (software or data)[:_MAX_SHOWN_FLOWS]:
        where = f"{'hardware' if flow.offloaded else 'software'} ({flow.layer})"
        note(where, f"{flow.packets} packets, {flow.match} -> {flow.actions}", "railwrightd flows")
    counted = f"{len(data) - len(software)} of {len(data)} cached flows run in hardware"
    if not software:
        return counted
    why = "; ".join(sorted({flow.why for flow in software if flow.why})) or "the datapath gives no reason"
    if attached.device_id:
        raise Bad(f"{counted}: {why}", "see the docs of railwrightd for the flows that a NIC can offload")
    return f"{counted}; {attached.host_interface} does not belong to a VF, so no NIC can run them: {why}"


def find_data_flows(attached: Attached, cached: Iterable[CachedFlow]) -> list[CachedFlow]:
    """Return the flows of an interface's own packets that the datapath forwards."""
    mine = (flow for flow in cached if flow.in_port == attached.host_interface and flow.actions != "drop")
    return [flow for flow in mine if not _ARP_OR_ND.search(flow.match)]


CHECK = Check("offload", _judge)
