"""The pod's interface: present, up, with a carrier, and with the MAC address that the flows expect."""

from __future__ import annotations

import shlex

from railwright.net.recorded import find_expected
from railwright.net.view import Attached, Bad, Check, Note, View


def _judge(view: View, note: Note) -> str:
    port = view.port
    if port is None:
        says = f"the pod has no interface {view.interface}, though railwrightd has an attachment of that name"
        raise Bad(says, "it was removed after the pod started: restart the pod")
    name, expected = shlex.quote(port.name), find_expected(view)
    state = ("up" if port.up else "down") + ("" if port.carrier else ", no carrier")
    note(port.name, f"{state}, {port.mac}, MTU {port.mtu_bytes} bytes, {port.kind or 'hardware'}", "ip address")
    if port.pci:
        note("PCI", f"{port.pci} {port.driver}".strip(), "/sys/class/net")
    if not port.up:
        raise Bad(f"{port.name} is down", view.inside(f"ip link set {name} up"))
    if not port.carrier:
        other = expected.host_interface if expected else ""
        says = f"{port.name} has no carrier: its other end{f', {other},' if other else ''} is down or gone"
        raise Bad(says, f"on the node: ip link set {shlex.quote(other or 'PORT')} up")
    if expected and expected.mac and port.mac.lower() != expected.mac.lower():
        wanted = "and the flows accept only" if isinstance(view.attached, Attached) else "and was attached with"
        says = f"{port.name} has the MAC address {port.mac}, {wanted} {expected.mac}"
        raise Bad(says, view.inside(f"ip link set {name} address {shlex.quote(expected.mac)}"))
    if expected and expected.device_id and port.pci.lower() != expected.device_id.lower():
        says = f"{port.name} is {port.pci or 'no PCI function'}, and {expected.device_id} was attached"
        raise Bad(says, "another interface has taken its name: restart the pod")
    return f"up with {port.mac}, {'a VF' if port.is_vf else port.kind or 'no VF'}"


CHECK = Check("interface", _judge)
