"""How a launch reaches network namespaces that others made, like those of pods: by name, as `ip netns` shows them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from railwright.errors import CannotJudge, UsageError, unknown_name
from railwright.lab.reach import NamespaceReach, first_that_arrives
from railwright.lab.state import NETNS
from railwright.lab.traffic import Route
from railwright.process import ask

PREFIX = "netns:"
"""What a host of `--hosts` begins with that is such a namespace."""
_MOST_NAME_BYTES = 64  # its ranks get it for a hostname, and the kernel takes no longer one
_ASK_S = 10.0


class _Address(msgspec.Struct, frozen=True):
    """The part of `ip -json address` that is used of an address."""

    local: str
    family: str
    scope: str = ""


class _Interface(msgspec.Struct, frozen=True):
    """The part of `ip -json address` that is used of an interface."""

    ifname: str
    flags: tuple[str, ...] = ()
    addr_info: tuple[_Address, ...] = ()


@dataclass(frozen=True)
class NetnsReach(NamespaceReach):
    """Namespaces that take part, whose ranks have `hosts` as hostnames. Raises UsageError for one that is not there."""

    hosts: tuple[str, ...]
    only: tuple[str, ...] = ()
    """The interfaces to use; none: those that all of them have."""
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """The namespace of each host that has another name."""

    name = "namespaces"
    rate_bytes_per_s = None  # not known

    def fabric(self, _interfaces: Sequence[str]) -> None:
        """Nobody knows what joins namespaces."""

    def __post_init__(self) -> None:
        if os.geteuid() != 0:
            raise UsageError("entering network namespaces needs root", hint="run it with sudo")
        there = _there()
        for host in self.hosts:
            if self._name(host) not in there:
                raise unknown_name("network namespace", self._name(host), there)
            if len(host.encode()) > _MOST_NAME_BYTES:
                hint = f"give it one of at most {_MOST_NAME_BYTES} bytes: ip netns attach NAME PID"
                raise UsageError(f"{host} is too long for the hostname of its ranks", hint=hint)

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interfaces that are up with an address in every namespace. Raises UsageError if there are none."""
        if self.only:
            return self.only
        every = [set(self._interfaces(host)) for host in self.hosts]
        shared = sorted(set.intersection(*every))
        if not shared:
            what = f"{' and '.join(self.hosts[:2])} have no interface of the same name that is up and has an address"
            raise UsageError(what, hint="name them: --interfaces net1")
        return tuple(shared)

    def part(self, hosts: tuple[str, ...]) -> NetnsReach:
        """Some of these namespaces, reached without the others."""
        return NetnsReach(hosts, self.only, self.namespaces)

    def argv_in(self, node: str, argv: Sequence[str]) -> list[str]:
        """The argument list that runs `argv` in a namespace."""
        return ["ip", "netns", "exec", self._name(node), *argv]

    def address(self) -> str:
        """The first namespace's address on the first interface in use."""
        there = self._interfaces(self.hosts[0])
        return next(there[name][0].local for name in self.interfaces if name in there)

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """The address of each namespace on the first of some interfaces."""
        return tuple(self._interfaces(host)[interfaces[0]][0].local for host in self.hosts)

    def check(self) -> None:
        """Send packets from the first to each other one. Raises CannotJudge, naming those that get none."""
        for host in self.hosts:
            if not any("LOOPBACK" in one.flags for one in self._up(host)):
                hint = f"ip -n {self._name(host)} link set lo up"
                raise CannotJudge(f"{host}: lo is down, and MPI's ranks find the daemon beside them by it", hint=hint)
        self._check("see ip -n NAMESPACE address, ip -n NAMESPACE route and what lies between them")

    def _trouble(self, host: str, port: int) -> str:
        """The reason why a host cannot be reached by any interface in use; IPv4 is tried before IPv6."""
        ways = self._ways(host)
        no_way = f"no {' or '.join(self.interfaces)} is up with an address"
        why = first_that_arrives(self, ways, port) if ways else no_way
        return f"{host} cannot be reached from {self.hosts[0]}: {why}" if why else ""

    def _ways(self, host: str) -> list[Route]:
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
        """The addresses that other hosts can know, IPv4 first, of each interface that is up and has any."""
        found = {}
        for interface in self._up(host):
            known = [one for one in interface.addr_info if one.scope == "global"]
            if known and "LOOPBACK" not in interface.flags:
                found[interface.ifname] = sorted(known, key=lambda one: one.family != "inet")
        return found

    def _up(self, host: str) -> list[_Interface]:
        """The interfaces that are up. Raises CannotJudge if they cannot be read."""
        ended = ask(["ip", "-netns", self._name(host), "-json", "address"], timeout_s=_ASK_S)
        try:
            if ended.returncode != 0:
                raise CannotJudge(f"the interfaces of {host} cannot be read: {' '.join(ended.output)[:200]}")
            found = msgspec.json.decode("".join(ended.output), type=list[_Interface])
        except msgspec.MsgspecError as error:
            raise CannotJudge(f"the interfaces of {host} cannot be read: {error}") from error
        return [one for one in found if "UP" in one.flags]

    def _namespace(self, name: str) -> str:
        return str(NETNS / self._name(name))

    def _name(self, host: str) -> str:
        return self.namespaces.get(host, host)


def _there() -> list[str]:
    try:
        return sorted(path.name for path in NETNS.iterdir())
    except OSError:
        return []
