"""The reach of a launch into existing network namespaces, such as pods', by their names in `ip netns`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from railwright.errors import CannotJudge, UsageError, unknown_name
from railwright.lab.reach import NamespaceReach, try_routes
from railwright.lab.state import NETNS
from railwright.lab.traffic import Route
from railwright.process import query

PREFIX = "netns:"
"""The prefix of a host in `--hosts` that is a network namespace."""
_MAX_NAME_BYTES = 64  # the ranks' hostname, which the kernel limits to this
_ASK_S = 10.0


class _Address(msgspec.Struct, frozen=True):
    """The fields of an address that are read from `ip -json address`."""

    local: str
    family: str
    scope: str = ""


class _Interface(msgspec.Struct, frozen=True):
    """The fields of an interface that are read from `ip -json address`."""

    ifname: str
    flags: tuple[str, ...] = ()
    addr_info: tuple[_Address, ...] = ()


@dataclass(frozen=True)
class NetnsReach(NamespaceReach):
    """The namespaces of a launch, with `hosts` as the hostnames of ranks. Raises UsageError for a missing namespace."""

    only: tuple[str, ...] = ()
    """The interfaces to use; if empty, those that all namespaces have."""
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """The namespace of each host whose name differs from it."""

    name = "namespaces"
    rate_bytes_per_s = None  # unknown
    host_cpus = None  # no known limit holds a namespace to a part of the CPUs

    def fabric(self, _interfaces: Sequence[str]) -> None:
        """Return None: the links between namespaces are unknown."""

    def __post_init__(self) -> None:
        if os.geteuid() != 0:
            raise UsageError("entering network namespaces requires root", hint="run it with sudo")
        existing = _list_namespaces()
        for host in self.hosts:
            if self._namespace_name(host) not in existing:
                raise unknown_name("network namespace", self._namespace_name(host), existing)
            if len(host.encode()) > _MAX_NAME_BYTES:
                hint = f"give the namespace a name of at most {_MAX_NAME_BYTES} bytes: ip netns attach NAME PID"
                raise UsageError(f"host names must have at most {_MAX_NAME_BYTES} bytes, got {host}", hint=hint)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Return the interfaces that are up with an address in every namespace. Raises UsageError if there are none."""
        if self.only:
            return self.only
        host_interfaces = [set(self._interfaces(host)) for host in self.hosts]
        shared = sorted(set.intersection(*host_interfaces))
        if not shared:
            reason = f"{' and '.join(self.hosts[:2])} have no interface of the same name that is up and has an address"
            raise UsageError(reason, hint="name them: --interfaces net1")
        return tuple(shared)

    def argv_in(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the argument list that runs `argv` in a namespace."""
        return ["ip", "netns", "exec", self._namespace_name(node), *argv]

    def address(self) -> str:
        """Return the first namespace's address on the first interface in use."""
        interfaces = self._interfaces(self.hosts[0])
        return next(interfaces[name][0].local for name in self.interfaces if name in interfaces)

    def find_addresses(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """Return the address of each namespace on the first of these interfaces."""
        return tuple(self._interfaces(host)[interfaces[0]][0].local for host in self.hosts)

    def check(self) -> None:
        """Send packets from the first host to every other. Raises CannotJudge, naming the hosts that received none."""
        for host in self.hosts:
            if not any("LOOPBACK" in interface.flags for interface in self._list_up(host)):
                hint = f"ip -n {self._namespace_name(host)} link set lo up"
                raise CannotJudge(
                    f"{host}: lo is down, and MPI ranks connect to their local daemon through it", hint=hint
                )
        self._check("check ip -n NAMESPACE address, ip -n NAMESPACE route and the links between them")

    def _trouble(self, host: str, port: int) -> str:
        """Return why no interface in use reaches a host, trying IPv4 before IPv6; empty if one does."""
        ways = self._list_routes(host)
        no_interface = f"{' or '.join(self.interfaces)} must be up with an address"
        reason = try_routes(self, ways, port) if ways else no_interface
        return f"{host} cannot be reached from {self.hosts[0]}: {reason}" if reason else ""

    def _list_routes(self, host: str) -> list[Route]:
        first, other = self._interfaces(self.hosts[0]), self._interfaces(host)
        found = []
        for name in self.interfaces:
            families = {one.family: one.local for one in reversed(other.get(name, ()))}
            for one in first.get(name, ()):
                if one.family in families:
                    way = Route(source=self.hosts[0], source_address=one.local, destination=host,
                                destination_address=families[one.family], rail=0)  # fmt: skip
                    found.append(way)
        return found

    def _interfaces(self, host: str) -> dict[str, list[_Address]]:
        """Return the global addresses, IPv4 first, of each interface that is up and has any."""
        found = {}
        for interface in self._list_up(host):
            known = [address for address in interface.addr_info if address.scope == "global"]
            if known and "LOOPBACK" not in interface.flags:
                found[interface.ifname] = sorted(known, key=lambda address: address.family != "inet")
        return found

    def _list_up(self, host: str) -> list[_Interface]:
        """Return the interfaces that are up. Raises CannotJudge if they cannot be read."""
        ended = query(["ip", "-netns", self._namespace_name(host), "-json", "address"], timeout_s=_ASK_S)
        try:
            if ended.returncode != 0:
                raise CannotJudge(f"the interfaces of {host} cannot be read: {' '.join(ended.output)[:200]}")
            found = msgspec.json.decode("".join(ended.output), type=list[_Interface])
        except msgspec.MsgspecError as error:
            raise CannotJudge(f"the interfaces of {host} cannot be read: {error}") from error
        return [interface for interface in found if "UP" in interface.flags]

    def _namespace(self, name: str) -> str:
        return str(NETNS / self._namespace_name(name))

    def _namespace_name(self, host: str) -> str:
        return self.namespaces.get(host, host)


def _list_namespaces() -> list[str]:
    try:
        return sorted(path.name for path in NETNS.iterdir())
    except OSError:
        return []
