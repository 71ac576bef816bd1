"""The MTU from end to end: a packet as large as the interface sends arrives whole, with fragmenting forbidden."""

from __future__ import annotations

import shlex

from railwright.net.model import Attached, Check, Echo, Line, Port, Unseen, View
from railwright.results.model import Evidence

_NAME = "mtu"


def _look(view: View) -> Line:
    port = view.port
    if port is None:
        return view.no_port(_NAME)
    evidence = [Evidence(claim=port.name, value=f"{port.mtu_bytes} bytes", seen="ip address")]
    if isinstance(view.host_mtu_bytes, int) and isinstance(view.attached, Attached):
        other = view.attached.host_interface
        evidence.append(Evidence(claim=other, value=f"{view.host_mtu_bytes} bytes", seen="/sys/class/net"))
        if view.host_mtu_bytes < port.mtu_bytes:
            says = f"{port.name} sends {port.mtu_bytes} bytes, and {other} takes no more than {view.host_mtu_bytes}"
            return view.line(_NAME, (says, _lower(view, port, view.host_mtu_bytes)), "", evidence)
    if isinstance(view.echoes, Unseen):
        return view.not_looked(_NAME, view.echoes, evidence)
    evidence += [
        Evidence(claim=str(one.target), value=_words(one), seen="echo requests that may not be fragmented")
        for one in view.echoes
    ]
    fine = f"packets of {port.mtu_bytes} bytes arrive and come back"
    return view.line(_NAME, _trouble(view, port, view.echoes), fine, evidence)


def _words(one: Echo) -> str:
    whole = f"{one.full_answered} of {one.full_sent} of {one.full_bytes} bytes answered"
    return whole if one.full_answered else f"{whole}, largest {one.largest_bytes} bytes"


def _trouble(view: View, port: Port, echoes: tuple[Echo, ...]) -> tuple[str, str]:
    narrow = [one for one in echoes if not one.full_answered]
    if not narrow:
        return "", ""
    worst = min(narrow, key=lambda one: one.largest_bytes)
    if not worst.largest_bytes:
        return f"{worst.target} answers no packet of any size", "see reach"
    says = f"{port.name} sends {port.mtu_bytes} bytes, and {worst.target} answers none above {worst.largest_bytes}"
    return says, f"{_lower(view, port, worst.largest_bytes)}; or raise the MTU of what lies between"


def _lower(view: View, port: Port, mtu_bytes: int) -> str:
    return view.inside(f"ip link set {shlex.quote(port.name)} mtu {mtu_bytes}")


CHECK = Check(
    "mtu",
    "packets as large as the interface sends arrive whole",
    _look,
    after=("interface", "address", "route", "gateway", "flows", "bgp", "leaf", "reach"),
)
