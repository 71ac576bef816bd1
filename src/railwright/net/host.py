"""The other end of a pod's interface on the node: a VF's representor, its PF without one, or the peer of a veth."""

from __future__ import annotations

import re
from pathlib import Path

from railwright.errors import CannotJudge
from railwright.net.recorded import HostEnd
from railwright.net.view import ON_THE_NODE, Port

_REPRESENTOR = re.compile(r"(?:c\d+)?pf(\d+)vf(\d+)")
_FLAG_UP, _CARRIER = 0x1, "1"


def read_host_end(port: Port, name: str, netns: str | None, sys: Path = Path("/sys")) -> HostEnd:
    """Read the other end of an interface.

    `name` is the one that was attached; empty if it is unknown, and then the kernel finds it. Raises CannotJudge
    inside a pod, and if there is no other end.
    """
    if netns is None:
        raise CannotJudge("the other end is on the node", hint=ON_THE_NODE)
    kind = "representor" if port.is_vf else ""
    name = name or (_find_representor(port.pci, sys) if port.is_vf else _find_peer(port, sys))
    if not name and port.is_vf:
        name, kind = _find_pf(port.pci, sys), "PF"
    folder = sys / "class/net" / name
    if not name or not folder.exists():
        raise CannotJudge(f"the other end of {port.name}{f', {name},' if name else ''} is not on this node")
    return HostEnd(
        name=name,
        up=bool(int(_read(folder / "flags") or "0", 16) & _FLAG_UP),
        carrier=_read(folder / "carrier") == _CARRIER,
        mtu_bytes=int(_read(folder / "mtu") or 0),
        master=(folder / "master").resolve().name if (folder / "master").exists() else "",
        kind=kind,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # the carrier of an interface that is down, among others
        return ""


def _find_peer(port: Port, sys: Path) -> str:
    """Return the veth whose number and whose other end's number are those that the pod's veth gives.

    Empty if there is none: the other end may be in another namespace.
    """
    wanted = (str(port.peer_index), str(port.index))
    if not port.peer_index or port.peer_index == port.index:
        return ""  # every interface that is no veth gives its own number twice
    for net in (sys / "class/net").iterdir():
        if (_read(net / "ifindex"), _read(net / "iflink")) == wanted:
            return net.name
    return ""


def _find_pf(pci: str, sys: Path) -> str:
    nets = sys / "bus/pci/devices" / pci / "physfn/net"
    return min((one.name for one in nets.iterdir() if _is_uplink(one)), default="") if nets.exists() else ""


def _is_uplink(net: Path) -> bool:
    return _REPRESENTOR.search(_read(net / "phys_port_name")) is None


def _find_representor(pci: str, sys: Path) -> str:
    """Return the representor of a VF: the port of its PF's switch that the driver names after it."""
    device = sys / "bus/pci/devices" / pci
    pf = device / "physfn"
    number = next((one.name[6:] for one in pf.glob("virtfn*") if one.resolve() == device.resolve()), "")
    switch = {_read(one / "phys_switch_id") for one in pf.glob("net/*")} - {""}
    for net in (sys / "class/net").iterdir():
        named = _REPRESENTOR.search(_read(net / "phys_port_name"))
        function = pf.resolve().name.rpartition(".")[2]
        if named and named.groups() == (function, number) and _read(net / "phys_switch_id") in switch:
            return net.name
    return ""
