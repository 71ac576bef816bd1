"""The hosts of a launch: their names, the ranks on each, and how they are reached.

A plan needs `PlannedHosts`, whose reach may be `NoReach`. Only `Hosts` can start programs: `ssh` reaches the hosts of a
cluster, `slurm` those of a job, and `lab.reach` those of a lab, which are namespaces of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from railwright.errors import UsageError
from railwright.results.records import Fabric

if TYPE_CHECKING:
    from typing import Self  # there since Python 3.11

MAX_HOSTS = 512
"""The maximum number of hosts, since `stream` can serve this number of connections, one per host."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%A-Za-z0-9]*")
_MAX_NAME_CHARACTERS = 253  # RFC 1035
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,15}")


class PlannedReach(Protocol):
    """The properties of a reach that a plan needs."""

    @property
    def name(self) -> str:
        """The name of the reach in messages and records, such as `ssh`."""

    @property
    def shares_cpus(self) -> bool:
        """Whether the hosts share CPUs, as namespaces or containers of one machine do."""

    @property
    def shares_files(self) -> bool:
        """Whether ranks on the hosts see our files, sockets and devices, as in namespaces of this machine."""

    @property
    def host_cpus(self) -> float | None:
        """The share of the common CPUs that each host may use, in CPUs. None if it is not limited."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interfaces that MPI and UCX use by default. Empty lets them choose."""

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The rate at which a host can send, if known. Plans estimate their duration by it."""

    def fabric(self, interfaces: Sequence[str]) -> Fabric | None:
        """Return the links between the hosts over the interfaces or the defaults. None if their rates are unknown."""

    def part(self, hosts: tuple[str, ...]) -> Self:
        """Return a reach of these hosts only."""


class Reach(PlannedReach, Protocol):
    """A way to start programs on hosts, such as ssh."""

    def check(self) -> None:
        """Raise CannotJudge, with host and cause, if a host cannot be reached. Takes bounded time."""

    def wrap_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv`, an mpirun command, where mpirun must be started."""

    def agent(self, scratch: Path) -> list[str]:
        """Return the agent's program and its leading arguments. mpirun appends a host and a command line."""

    def address(self) -> str:
        """Return the address of mpirun as the other hosts see it. Call `check` first."""

    def addresses(self) -> tuple[str, ...]:
        """Return our own addresses as the hosts see them. Empty if they see our files. Call `check` first."""

    def find_addresses(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """Return each host's address on the first of the interfaces. Without interfaces, that at which it is reached.

        Raises UsageError for a host that has no address there. Call `check` first.
        """


@dataclass(frozen=True)
class NoReach:
    """The reach of hosts that only a plan needs, such as those of a job that is not submitted yet."""

    name: str
    shares_cpus: bool = False
    interfaces: tuple[str, ...] = ()
    rate_bytes_per_s: float | None = None
    host_cpus: float | None = None
    shares_files: bool = False

    def fabric(self, _interfaces: Sequence[str]) -> None:
        """Return None: the links between the hosts are unknown."""

    def part(self, _hosts: tuple[str, ...]) -> Self:
        """Return a reach of these hosts only."""
        return self


@dataclass(frozen=True)
class PlannedHosts:
    """The hosts of a launch, with all that a plan needs."""

    names: tuple[str, ...]
    ranks_per_host: int
    reach: PlannedReach
    interfaces: tuple[str, ...] = ()
    paired: bool = False
    """Whether these two hosts are one pair of several."""
    first: int = 0
    """In a group that merges two others, the number of hosts of the first. 0 in any other group."""
    grows_to: int = 0
    """The number of hosts that groups may grow to. 0 means that groups do not grow."""
    _parts: dict[tuple[str, ...], Self] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def ranks(self) -> int:
        """The number of ranks on all hosts."""
        return len(self.names) * self.ranks_per_host

    @property
    def fabric(self) -> Fabric | None:
        """The links between the hosts that the ranks use. None if their rates are unknown."""
        return self.reach.fabric(self.interfaces)

    @property
    def used_interfaces(self) -> tuple[str, ...]:
        """The interfaces of the command line, or else the defaults of the reach."""
        return self.interfaces or self.reach.interfaces

    def part(self, names: tuple[str, ...]) -> Self:
        """Return the named hosts only. The result is cached, so that each host is probed only once."""
        if names == self.names:
            return self
        if names not in self._parts:
            self._parts[names] = replace(self, names=names, reach=self.reach.part(names))
        return self._parts[names]


@dataclass(frozen=True)
class Hosts(PlannedHosts):
    """The hosts of a launch, on which programs can be started."""

    reach: Reach


def parse_hosts(text: str) -> tuple[str, ...]:
    """Parse `host0,host1`.

    Raises UsageError for duplicates, for fewer than 2 or more than `MAX_HOSTS` hosts, and for an invalid name, such as
    one that ssh could read as an option.
    """
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARACTERS:
            raise UsageError(f"host must be a name or an address, got {name[:60]!r}", hint="write --hosts host0,host1")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{twice[0]} is given twice", hint="use --ranks-per-host for several ranks on a host")
    if not 2 <= len(names) <= MAX_HOSTS:
        raise UsageError(f"--hosts must name 2 to {MAX_HOSTS} hosts, got {len(names)}",
                         hint="leave out --hosts to measure this host alone")  # fmt: skip
    return names


def parse_interfaces(text: str) -> tuple[str, ...]:
    """Parse `eth0,eth1`. Empty for an empty text. Raises UsageError for an invalid name."""
    names = tuple(part.strip() for part in text.split(",")) if text else ()
    for name in names:
        if not _INTERFACE.fullmatch(name):
            raise UsageError(f"interface must be a name, got {name[:60]!r}", hint="write --interfaces eth0,eth1")
    return names
