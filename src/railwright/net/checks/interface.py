"""The pod's interface: there, up, with a carrier, and with the MAC address that the flows know."""

from __future__ import annotations

import shlex

from railwright.net.model import Attached, Check, Line, Port, View
from railwright.results.model import Evidence

_NAME = "interface"


def _look(view: View) -> Line:
    port = view.port
    if port is None:
        says = f"the pod has no interface {view.interface}, though railwrightd has an attachment of that name"
        return view.line(_NAME, (says, "somebody took it away since the pod started: start the pod anew"), "")
    evidence = [Evidence(claim=port.name, value=_words(port), seen="ip address")]
    if port.pci:
        evidence.append(Evidence(claim="PCI", value=f"{port.pci} {port.driver}".strip(), seen="/sys/class/net"))
    fine = f"up with {port.mac}, {'a VF' if port.is_vf else port.kind or 'no VF'}"
    return view.line(_NAME, _trouble(view, port), fine, evidence)


def _words(port: Port) -> str:
    state = ("up" if port.up else "down") + ("" if port.carrier else ", no carrier")
    return f"{state}, {port.mac}, MTU {port.mtu_bytes} bytes, {port.kind or 'hardware'}"


def _trouble(view: View, port: Port) -> tuple[str, str]:
    name, attached = shlex.quote(port.name), view.attached
    if not port.up:
        return f"{port.name} is down", view.inside(f"ip link set {name} up")
    if not port.carrier:
        other = attached.host_interface if isinstance(attached, Attached) else ""
        says = f"{port.name} has no carrier: its other end{f', {other},' if other else ''} is down or gone"
        return says, f"on the node: ip link set {shlex.quote(other or 'PORT')} up"
    if not isinstance(attached, Attached):
        return "", ""
    if port.mac.lower() != attached.mac.lower():
        says = f"{port.name} has the MAC address {port.mac}, and the flows let {attached.mac} send alone"
        return says, view.inside(f"ip link set {name} address {shlex.quote(attached.mac)}")
    if attached.device_id and port.pci.lower() != attached.device_id.lower():
        says = f"{port.name} is {port.pci or 'no PCI function'}, and {attached.device_id} was attached"
        return says, "another interface has taken its name: start the pod anew"
    return "", ""


CHECK = Check("interface", "it is up, has a carrier and the MAC address that was attached", _look)
