"""Where the flows of the interface run: those of a VF in the NIC; or why not."""

from __future__ import annotations

import re

from railwright.net.model import NOT_ATTACHED, Attached, CachedFlow, Check, Line, Unseen, View
from railwright.results.model import Evidence

_NAME = "offload"
_SHOWN = 3
# What ovs-vswitchd answers itself on every datapath: ARP, and neighbour discovery (ICMPv6 133 to 137).
_ANSWERED = re.compile(r"eth_type\(0x0806\)|icmpv6\(type=13[3-7]")


def _look(view: View) -> Line:
    attached = view.attached
    if not isinstance(attached, Attached):
        return view.not_looked(_NAME, attached or NOT_ATTACHED)
    if isinstance(view.cached, Unseen):
        return view.not_looked(_NAME, view.cached)
    mine = [flow for flow in view.cached if flow.in_port == attached.host_interface]
    data = [flow for flow in mine if flow.actions != "drop" and not _ANSWERED.search(flow.match)]
    if not data:
        why = f"the datapath has no flow of {attached.host_interface} now: it has sent no data"
        return view.not_looked(_NAME, Unseen(why, "look while the pod sends, or name a peer with --to"))
    software = [flow for flow in data if not flow.offloaded]
    counted = f"{len(data) - len(software)} of {len(data)} cached flows run in hardware"
    why = "; ".join(sorted({flow.why for flow in software if flow.why})) or "the datapath does not say why"
    evidence = [_evidence(flow) for flow in (software or data)[:_SHOWN]]
    if software and attached.device_id:
        return view.line(_NAME, (f"{counted}: {why}", "docs/node-network.md: What a NIC can take"), "", evidence)
    fine = f"{counted}; {attached.host_interface} is no VF's, so that there is no NIC to run them: {why}"
    return view.line(_NAME, ("", ""), fine if software else counted, evidence)


def _evidence(flow: CachedFlow) -> Evidence:
    where = f"hardware ({flow.layer})" if flow.offloaded else f"software ({flow.layer})"
    value = f"{flow.packets} packets, {flow.match} -> {flow.actions}"
    return Evidence(claim=where, value=value, seen="railwrightd flows")


CHECK = Check("offload", "the flows of a VF run in the NIC", _look)
