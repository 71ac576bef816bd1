"""The hosts of a launch: which, how many ranks on each, and how they are reached.

`ssh` reaches those of a cluster; `lab.reach` those of a lab, which are namespaces of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from railwright.errors import UsageError
from railwright.results.records import Fabric

MOST_HOSTS = 512
"""As many as `stream` may hear with one rank on each."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%A-Za-z0-9]*")
_MOST_NAME_CHARACTERS = 253  # RFC 1035
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,15}")


class Reach(Protocol):
    """A way to start programs on hosts."""

    @property
    def name(self) -> str:
        """The name of the way, for messages and records: `ssh`."""

    @property
    def shares_files(self) -> bool:
        """Whether a rank there sees our files and our sockets."""

    @property
    def shares_cpus(self) -> bool:
        """Whether hosts run on the same CPUs, as the namespaces or containers of one machine do."""

    @property
    def host_cpus(self) -> float | None:
        """The CPUs that each host may take of those that all share. None where nothing holds it back."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interfaces that MPI and UCX use by default. Empty if they are to choose."""

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The rate at which a host can send, if it is known. Plans estimate their length with it."""

    def fabric(self, interfaces: Sequence[str]) -> Fabric | None:
        """The links between the hosts by those interfaces, or the defaults, where their rates are known."""

    def part(self, hosts: tuple[str, ...]) -> Reach:
        """The way to some of the hosts, without the others."""

    def check(self) -> None:
        """Raises CannotJudge, naming host and cause, where one cannot be reached. Takes bounded time."""

    def around(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs mpirun."""

    def agent(self, scratch: Path) -> list[str]:
        """The program, with its first words, that mpirun calls with a host and a command line."""

    def address(self) -> str:
        """The address of mpirun, as the other hosts see it. Call `check` first."""

    def addresses(self) -> tuple[str, ...]:
        """Our own addresses, as the hosts see them. Call `check` first."""

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """The address of each host on the first of some interfaces; without any, the one that it is reached at.

        Raises UsageError for a host that has none there. Call `check` first.
        """


@dataclass(frozen=True)
class Hosts:
    """The hosts of a launch, as the command line names them."""

    names: tuple[str, ...]
    ranks_per_host: int
    reach: Reach
    interfaces: tuple[str, ...] = ()
    first: int = 0
    """Of a group that two others are merged to, how many of the names are the first one's; 0: it is no such group."""
    grows_to: int = 0
    """How many hosts groups may grow to; 0: they do not grow."""

    @property
    def ranks(self) -> int:
        """The number of ranks on all hosts."""
        return len(self.names) * self.ranks_per_host

    @property
    def fabric(self) -> Fabric | None:
        """The links between them that the ranks use, where their rates are known."""
        return self.reach.fabric(self.interfaces)

    def part(self, names: tuple[str, ...]) -> Hosts:
        """Some of the hosts, reached without any of the others."""
        return Hosts(names, self.ranks_per_host, self.reach.part(names), self.interfaces)

    @property
    def used_interfaces(self) -> tuple[str, ...]:
        """The interfaces of the command line, else the defaults of the reach."""
        return self.interfaces or self.reach.interfaces


def parse_hosts(text: str) -> tuple[str, ...]:
    """`host0,host1`, each once. Raises UsageError: a name is given to ssh, and must not look like an option."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > _MOST_NAME_CHARACTERS:
            raise UsageError(f"not the name or address of a host: {name[:60]!r}", hint="write --hosts host0,host1")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{twice[0]} is given twice", hint="--ranks-per-host says how many ranks each host has")
    if not 2 <= len(names) <= MOST_HOSTS:
        raise UsageError(f"{len(names)} host was given" if len(names) < 2 else f"{len(names)} hosts were given",
                         hint=f"give 2 to {MOST_HOSTS}; without --hosts this host alone is measured")  # fmt: skip
    return names


def parse_interfaces(text: str) -> tuple[str, ...]:
    """`eth0,eth1`. Raises UsageError."""
    names = tuple(part.strip() for part in text.split(",")) if text else ()
    for name in names:
        if not _INTERFACE.fullmatch(name):
            raise UsageError(f"not the name of an interface: {name[:60]!r}", hint="write --interfaces eth0,eth1")
    return names
