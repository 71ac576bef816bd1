"""The interface's other end, on the node: up, and a port of a bridge that forwards its packets."""

from __future__ import annotations

import shlex

from railwright.errors import CannotJudge
from railwright.net.recorded import Recorded
from railwright.net.view import Attached, Bad, Check, Note, View, require_seen


def _judge(view: View, note: Note) -> str:
    end = require_seen(view.host_end)
    state = ("up" if end.up else "down") + ("" if end.carrier else ", no carrier")
    place = f"a port of {end.master}" if end.master else "no port of a bridge"
    note(end.name, f"{state}, {place}, MTU {end.mtu_bytes} bytes", "/sys/class/net")
    if not end.up:
        raise Bad(f"{end.name}, the other end, is down", f"ip link set {shlex.quote(end.name)} up")
    if not end.carrier:
        raise Bad(f"{end.name}, the other end, has no carrier", "is the cable plugged in, and is the leaf's port up?")
    if end.kind == "PF":
        return f"the VF has no representor, so its NIC forwards by itself; {end.name}, its PF, is up"
    attached = view.attached
    if not end.master and isinstance(attached, Attached) and attached.flows_wanted:
        return (
            f"{end.name} is up, a port of the bridge of {attached.rail}"  # in userspace, which the kernel does not show
        )
    by_ovs = isinstance(view.recorded, Recorded) and any(plugin.type == "ovs" for plugin in view.recorded.plugins)
    if not end.master and by_ovs:
        why = f"{end.name} is up, and the kernel knows no bridge of it: that of Open vSwitch may be in userspace"
        raise CannotJudge(why, hint=f"ovs-vsctl port-to-br {shlex.quote(end.name)}")
    if not end.master:
        says = f"{end.name}, the other end, is no port of a bridge: nothing forwards its packets"
        raise Bad(says, "which bridge is it of? ovs-vsctl list-ports BRIDGE; restart the pod")
    return f"{end.name} is up, {place}"


CHECK = Check("port", _judge, after=("interface",))
