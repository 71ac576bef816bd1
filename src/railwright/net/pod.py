"""Reads a pod's network namespace, by `ip` and from its /sys, without changing it."""

from __future__ import annotations

import ipaddress
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from railwright.errors import CannotJudge, UsageError
from railwright.lab.state import ENTER, NETNS
from railwright.net.view import Address, KernelWay, Neighbour, Port, PortAddress, Route, Unseen
from railwright.process import ChildResult, query, run
from railwright.reading import InvalidContent, decode_json

_INSIDE = Path(__file__).with_name("inside.py")
_ASK_S, _ROLE_S = 20.0, 2.0
_HOSTNAME = "pod"
_UNUSABLE_FLAGS = {"tentative", "dadfailed"}
_LINK_LOCAL_SCOPES = {"link", "host"}

Answer = TypeVar("Answer")


class _AddressInfo(msgspec.Struct):
    """The fields read from `ip -json -details address`."""

    local: str = ""
    prefixlen: int = 0
    scope: str = ""
    tentative: bool = False
    dadfailed: bool = False


class _LinkInfo(msgspec.Struct):
    info_kind: str = ""


class _Link(msgspec.Struct):
    ifname: str
    flags: list[str] = []
    mtu: int = 0
    address: str = ""
    ifindex: int = 0
    link_index: int = 0
    linkinfo: _LinkInfo | None = None
    addr_info: list[_AddressInfo] = []


class Hop(msgspec.Struct):
    """The next hop of a route."""

    dev: str = ""
    gateway: str | None = None


class KernelRoute(msgspec.Struct):
    """The fields read from `ip -json route`."""

    dst: str
    dev: str = ""
    gateway: str | None = None
    nexthops: list[Hop] = []
    type: str = "unicast"
    table: str = "main"
    protocol: str = "no protocol"
    metric: int = 0

    @property
    def hops(self) -> list[Hop]:
        """All next hops of the route."""
        return self.nexthops or [Hop(self.dev, self.gateway)]


class _Neighbour(msgspec.Struct):
    dst: str
    dev: str
    lladdr: str = ""
    state: list[str] = []


class _Device(msgspec.Struct):
    pci: str
    driver: str
    is_vf: bool
    rdma: dict[str, str]
    gids: dict[str, list[str]] = {}


class _Devices(msgspec.Struct):
    interfaces: dict[str, _Device]
    rdma_shared: bool | None
    verbs_files: list[str]


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's network namespace. `ports` holds every interface except the loopback."""

    ports: dict[str, Port]
    rdma_shared: bool | None
    verbs_files: tuple[str, ...] | Unseen


def netns_path(given: str) -> str:
    """Return the path of a network namespace given by path, or by name as in `ip netns`.

    Raises UsageError if it is not a network namespace or cannot be opened, or if we are not root.
    """
    path = Path(given) if "/" in given else NETNS / given
    try:
        if os.geteuid() != 0:
            hint = "run this with sudo, or inside the pod"
            raise UsageError("entering a pod's network namespace requires root", hint=hint)
        with path.open("rb") as file:
            # Files in /run/netns and /proc/PID/ns/net belong to the kernel's nsfs and are empty and read-only.
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode) or kind.st_dev != Path("/proc/self/ns/net").stat().st_dev:
                raise UsageError(f"{path} is not a network namespace", hint="see ip netns, or give /proc/PID/ns/net")
    except OSError as error:
        hint = "see ip netns, or give /proc/PID/ns/net of a process of the pod"
        raise UsageError(f"{path} cannot be opened: {error.strerror}", hint=hint) from error
    return str(path)


def is_same_netns(first: str, second: str) -> bool:
    """Report whether two paths are the same namespace. False if one of them cannot be read."""
    try:
        return os.path.samefile(first, second)  # noqa: PTH121 - two of them need not be paths of ours
    except OSError:
        return False


def namespace_argv(netns: str | None, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` in a namespace with its /sys. None means our own namespace."""
    if netns is None:
        return list(argv)
    return [*ENTER, "enter", netns, _HOSTNAME, *argv]


def roles_argv(netns: str | None, roles: Sequence[dict[str, Any]]) -> list[str]:
    """Return the command line that runs roles of `inside.py` in a namespace, in order."""
    return namespace_argv(netns, [sys.executable, "-I", str(_INSIDE), msgspec.json.encode(roles).decode()])


def run_roles(netns: str | None, roles: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run roles of `inside.py` and return their records. Raises CannotJudge if it fails or a record is missing."""
    ended = run(roles_argv(netns, roles), timeout_s=_ASK_S + _ROLE_S * len(roles))
    found = _decode(ended, list[dict[str, Any]], f"{roles[0]['role']} in {netns or 'this namespace'}")
    if len(found) != len(roles):
        raise CannotJudge(f"{netns or 'this namespace'} must return {len(roles)} records, got {len(found)}")
    return found


def read_pod(netns: str | None) -> Pod:
    """Read a namespace. Raises CannotJudge if it cannot be entered, or if `ip` fails in it."""
    links = [link for link in ip(netns, list[_Link], "-details", "address") if "LOOPBACK" not in link.flags]
    routes = _read_routes(netns)
    neighbours = ip(netns, list[_Neighbour], "neighbour")
    names = [link.ifname for link in links]
    (record,) = run_roles(netns, [{"role": "devices", "interfaces": names}])
    try:
        devices = msgspec.convert(record, _Devices)
        ports = {link.ifname: _make_port(link, routes, neighbours, devices.interfaces[link.ifname]) for link in links}
    except (msgspec.ValidationError, KeyError, ValueError) as error:
        raise CannotJudge(f"cannot parse the record of {netns or 'this namespace'}: {error}") from error
    only_inside = Unseen("the pod's files are visible only inside it", "run railwright net check in the pod")
    verbs_files = tuple(devices.verbs_files) if netns is None else only_inside
    return Pod(ports=ports, rdma_shared=devices.rdma_shared, verbs_files=verbs_files)


def find_routes(netns: str | None, targets: Sequence[Address]) -> tuple[KernelWay, ...]:
    """Return the kernel's route to each address for a program that does not set a source address.

    Raises CannotJudge if the kernel cannot be asked.
    """
    if not targets:
        return ()
    (record,) = run_roles(netns, [{"role": "ways", "targets": [str(target) for target in targets]}])
    if "ways" not in record:
        raise CannotJudge(f"the kernel cannot be asked for its routes: {record.get('error')}")
    return tuple(KernelWay(target, *record["ways"][str(target)]) for target in targets)


def ip(netns: str | None, kind: type[Answer], *words: str) -> Answer:
    """Run `ip -json` in a namespace and decode its output. Raises CannotJudge if that fails."""
    try:
        ended = query(namespace_argv(netns, ["ip", "-json", *words]), timeout_s=_ASK_S)
    except UsageError as error:
        raise CannotJudge(error.message, hint="install iproute2") from error
    return _decode(ended, kind, f"ip {' '.join(words)} in {netns or 'this namespace'}")


def _decode(ended: ChildResult, kind: type[Answer], command: str) -> Answer:
    output = "".join(ended.output)
    if ended.returncode != 0 or ended.timed_out:
        status = "it timed out" if ended.timed_out else ended.describe()
        raise CannotJudge(f"{command}: {status}: {output[-300:]}", hint="is the pod running? is iproute2 installed?")
    try:
        return decode_json(output or "[]", kind)
    except InvalidContent as error:
        raise CannotJudge(f"cannot parse {command}: {error}: {output[:200]}") from error


def _make_port(link: _Link, routes: dict[str, list[Route]], neighbours: list[_Neighbour], device: _Device) -> Port:
    return Port(
        name=link.ifname,
        up="UP" in link.flags,
        carrier="LOWER_UP" in link.flags,
        mac=link.address,
        mtu_bytes=link.mtu,
        kind=link.linkinfo.info_kind if link.linkinfo else "",
        index=link.ifindex,
        peer_index=link.link_index,
        **msgspec.structs.asdict(device),
        addresses=tuple(
            PortAddress(
                ipaddress.ip_address(one.local),
                one.prefixlen,
                one.scope not in _LINK_LOCAL_SCOPES,
                " ".join(sorted(word for word in _UNUSABLE_FLAGS if getattr(one, word))),
            )
            for one in link.addr_info
            if one.local
        ),
        routes=tuple(routes.get(link.ifname, ())),
        neighbours=tuple(
            Neighbour(ipaddress.ip_address(one.dst), one.lladdr, tuple(one.state))
            for one in neighbours
            if one.dev == link.ifname
        ),
    )


def _read_routes(netns: str | None) -> dict[str, list[Route]]:
    """Return the unicast routes by interface. A route with several next hops appears at each of their interfaces."""
    found: dict[str, list[Route]] = {}
    for family, everything in (("-4", "0.0.0.0/0"), ("-6", "::/0")):
        for route in ip(netns, list[KernelRoute], family, "route", "show", "table", "all"):
            if route.type != "unicast":
                continue
            destination = ipaddress.ip_network(everything if route.dst == "default" else route.dst, strict=False)
            for hop in route.hops:
                gateway = ipaddress.ip_address(hop.gateway) if hop.gateway else None
                found.setdefault(hop.dev, []).append(Route(destination, gateway, route.table))
    return found
