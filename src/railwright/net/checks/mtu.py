"""The end-to-end MTU: a packet at the interface's MTU arrives unfragmented."""

from __future__ import annotations

import shlex

from railwright.net.recorded import HostEnd
from railwright.net.view import Bad, Check, Echo, Note, View, require_seen


def _judge(view: View, note: Note) -> str:
    port, end = view.existing_port(), view.host_end
    note(port.name, f"{port.mtu_bytes} bytes", "ip address")
    if isinstance(end, HostEnd):
        note(end.name, f"{end.mtu_bytes} bytes", "/sys/class/net")
        if end.mtu_bytes < port.mtu_bytes:
            says = f"{port.name} sends {port.mtu_bytes} bytes, and {end.name} takes no more than {end.mtu_bytes}"
            raise Bad(says, view.inside(f"ip link set {shlex.quote(port.name)} mtu {end.mtu_bytes}"))
    echoes = require_seen(view.echoes)
    for one in echoes:
        note(str(one.target), _describe_echo(one), "echo requests that may not be fragmented")
    if narrow := [one for one in echoes if not one.full_answered]:
        worst = min(narrow, key=lambda one: one.largest_bytes)
        if not worst.largest_bytes:
            raise Bad(f"{worst.target} answers no packet of any size", "see the check reach")
        sends = f"{port.name} sends packets of {port.mtu_bytes} bytes"
        says = f"{sends}, but {worst.target} answers none above {worst.largest_bytes}"
        lower = view.inside(f"ip link set {shlex.quote(port.name)} mtu {worst.largest_bytes}")
        raise Bad(says, f"{lower}; or raise the MTU of the path")
    return f"packets of {port.mtu_bytes} bytes arrive and come back"


def _describe_echo(one: Echo) -> str:
    whole = f"{one.full_answered} of {one.full_sent} of {one.full_bytes} bytes answered"
    return whole if one.full_answered else f"{whole}, largest {one.largest_bytes} bytes"


CHECK = Check("mtu", _judge, after=("interface", "address", "route", "gateway", "flows", "bgp", "leaf", "reach"))
