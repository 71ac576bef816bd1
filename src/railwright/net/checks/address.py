"""The interface's addresses: those that were attached, and no others, usable."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from railwright.net.model import Address, Attached, Check, Line, Port, View
from railwright.results.model import Evidence

_NAME = "address"


def _look(view: View) -> Line:
    port = view.port
    if port is None:
        return view.no_port(_NAME)
    words = " ".join(f"{one.address}/{one.prefix_length}" for one in port.addresses if one.is_global) or "none"
    evidence = [Evidence(claim="addresses", value=words, seen="ip address")]
    if isinstance(view.attached, Attached):
        evidence.append(Evidence(claim="attached", value=_list(view.attached.addresses), seen="railwrightd list"))
    else:
        words += "; whether that is what was attached is not known here"
    return view.line(_NAME, _trouble(view, port), words, evidence)


def _trouble(view: View, port: Port) -> tuple[str, str]:
    there = {one.address: one for one in port.addresses if one.is_global}
    device = shlex.quote(port.name)
    if isinstance(view.attached, Attached):
        missing = [one for one in view.attached.addresses if one not in there]
        if missing:
            says = f"{port.name} lacks {_list(missing)}, which was attached and is routed here"
            command = f"ip address add {missing[0]}/{missing[0].max_prefixlen} dev {device}"
            return says, f"{view.inside(command)}; who took it away?"
        strange = [one for one in there if one not in view.attached.addresses]
        if strange:
            says = f"{port.name} has {_list(strange)} too, which was not attached: what it sends from there is dropped"
            return says, view.inside(f"ip address del {strange[0]}/{there[strange[0]].prefix_length} dev {device}")
    if not there:
        return f"{port.name} has no address but link-local ones", "see the network's ipam, then start the pod anew"
    for one in there.values():
        if one.trouble:
            says = f"{one.address} is {one.trouble}: the kernel does not send from it"
            return says, "does another interface have it? " + view.inside(f"ip -6 address show dev {device}")
    return "", ""


def _list(addresses: Iterable[Address]) -> str:
    return " ".join(str(one) for one in addresses)


CHECK = Check("address", "its addresses are those that were attached", _look, after=("interface",))
