"""The reach of a launch into the hosts of a lab: it enters their namespaces, without ssh.

The classes satisfy `launch.hosts.Reach`; neither layer imports the other. `netns_reach` does the same for namespaces
outside a lab.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from railwright.errors import UnreachableHosts, UsageError
from railwright.lab.fabric import build_fabric
from railwright.lab.faults import cpu
from railwright.lab.state import ENTER, NETNS, Lab
from railwright.lab.traffic import Ends, Route, route, send_packets, source_ports
from railwright.results.records import Fabric
from railwright.writing import write_file

if TYPE_CHECKING:
    from typing import Self  # there since Python 3.11

_PACKETS, _INTERVAL_S = 10, 0.02
_HOSTS_FILE = "namespaces.json"


@dataclass(frozen=True)
class NamespaceReach(ABC):
    """The common base of the reaches whose hosts are namespaces of this machine."""

    hosts: tuple[str, ...]

    shares_files = True
    """Processes on the hosts see this machine's files and sockets."""
    shares_cpus = True
    """All hosts use the CPUs of this machine."""

    def part(self, hosts: tuple[str, ...]) -> Self:
        """Return the reach to a part of the hosts."""
        return replace(self, hosts=hosts)

    def wrap_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` on the first host and ends its children with it."""
        return [*ENTER, "head", self._namespace(self.hosts[0]), self.hosts[0], *argv]

    def agent(self, scratch: Path) -> list[str]:
        """Return the program to run instead of ssh: AGENT HOST COMMAND."""
        file = scratch / _HOSTS_FILE
        write_file(file, msgspec.json.encode({name: self._namespace(name) for name in self.hosts}))
        return [*ENTER, "agent", str(file)]

    def addresses(self) -> tuple[str, ...]:
        """Return no addresses: the hosts share this machine's files and need none."""
        return ()

    def _check(self, hint: str) -> None:
        """Send packets from the first host to every other. Raises UnreachableHosts, naming those that received none."""
        others = self.hosts[1:]
        if not others:
            return
        with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as executor:
            found = executor.map(self._trouble, others, source_ports(len(others)))
            troubles = {host: why for host, why in zip(others, found, strict=True) if why}
        if troubles:
            raise UnreachableHosts(troubles, hint=hint)

    @abstractmethod
    def _trouble(self, host: str, port: int) -> str:
        """Return why no packet from the first host reaches a host; empty if one does."""

    @abstractmethod
    def _namespace(self, name: str) -> str:
        """Return the path of a host's namespace."""


def try_routes(ends: Ends, ways: Sequence[Route], port: int) -> str:
    """Return why no packet arrives by any of the routes; empty if one arrives."""
    refused = 0
    for way in ways:
        (seen,) = send_packets(ends, way, (port,), packets=_PACKETS, interval_s=_INTERVAL_S)
        if seen.received:
            return ""
        refused += seen.refused
    count = _PACKETS * len(ways)
    return "it has no route there" if refused == count else f"none of {count} packets arrived"


@dataclass(frozen=True)
class LabReach(NamespaceReach):
    """The hosts of a lab in a launch. Raises UsageError for a name that is not a host of the lab."""

    lab: Lab

    def __post_init__(self) -> None:
        for name in self.hosts:
            node = self.lab.plan.node(name)
            if node.kind != "host":
                hint = "ranks run on hosts: see railwright lab status"
                raise UsageError(f"{name} is a {node.kind} of lab {self.lab.name}", hint=hint)

    @property
    def name(self) -> str:
        """The name of the reach, for messages and records."""
        return f"lab {self.lab.name}"

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The ports of all rails, which are the same on every host."""
        return tuple(rail.port for rail in self.lab.plan.node(self.hosts[0]).rails)

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The rate of all ports of a host together in one direction; None if no port has a rate."""
        cables = self.lab.plan.cables_of(self.hosts[0])
        rates = [cable.rate_bits_per_s for cable in cables if cable.rate_bits_per_s is not None]
        return sum(rates) / 8 if rates else None

    @property
    def host_cpus(self) -> float | None:
        """The maximum number of CPUs that a host may use, by its cgroup; None if a host has no limit."""
        quotas = [cpu.read_quota(self.lab, name) for name in self.hosts]
        held = [quota for quota in quotas if quota is not None]
        return max(held) if len(held) == len(quotas) else None

    def fabric(self, interfaces: Sequence[str]) -> Fabric | None:
        """Return the fabric between the hosts at the rates of the plan, without the lab's faults."""
        used = interfaces or self.interfaces
        rails = [rail for rail in self.lab.plan.node(self.hosts[0]).rails if rail.port in used]
        return build_fabric(self.lab.plan, self.hosts, rails)

    def address(self) -> str:
        """Return the address of the first host, for the daemons of the others: IPv4 if it has one."""
        return self.lab.plan.node(self.hosts[0]).rails[0].addresses[0]

    def find_addresses(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """Return the address of each host on the first given port, or on its first rail: IPv4 if it has one."""
        wanted = next(iter(interfaces or self.interfaces))
        ports = (port for host in self.hosts for port in self.lab.plan.node(host).rails if port.port == wanted)
        return tuple(port.addresses[0] for port in ports)

    def check(self) -> None:
        """Send packets from the first host to every other. Raises UnreachableHosts, naming those that received none."""
        self._check(f"see railwright lab status and railwright lab fault --name {self.lab.name}")

    def _trouble(self, host: str, port: int) -> str:
        """Return why no rail reaches a host; empty if one does."""
        plan = self.lab.plan
        ways = [route(plan, self.hosts[0], host, rail=port.rail) for port in plan.node(host).rails]
        why = try_routes(self.lab, ways, port)
        return f"{host} cannot be reached from {self.hosts[0]} in {self.name}: {why}" if why else ""

    def _namespace(self, name: str) -> str:
        return str(NETNS / self.lab.namespace(name))
