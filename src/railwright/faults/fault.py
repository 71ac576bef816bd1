"""The interface of a fault: it lays itself into a healthy topology, and supposes itself in a cluster for `explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from railwright.checks.check import Check
from railwright.limits.case import Case
from railwright.topology.devices import Topology

EVERY_TRANSPORT = frozenset({"nccl", "library", "verbs", "sockets"})
ONLY_NCCL = frozenset({"nccl"})
NOT_VERBS = EVERY_TRANSPORT - {"verbs", "sockets"}
"""A tool of verbs, or of plain sockets, has no other transport, and no memory but the one it was given."""


class Supposed(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster would be if a fault were there: how it would be seen in measurements, and how to tell."""

    fault: str
    says: str
    """What is supposed, as a clause: `one NIC of each host is not used`."""
    case: Case
    tell_apart: str
    """The command or look that would tell it from the others."""


Ways = Iterator[Supposed]


class Fault(Check, frozen=True, kw_only=True):
    """One fault, as its file describes it: a check, with what it does to a machine. All of its functions are pure."""

    ways: Callable[[Case], Ways]
    """The ways in which it could be there, each with the case that gives its curve."""
    degrade: Callable[[Topology, str], Topology] | None = None
    """(topology, device or link id) -> the topology as it would be with this fault; None where no topology shows it."""
    transports: frozenset[str] = EVERY_TRANSPORT
    """What moves the data where it can be at all, in the words of `results.workload.Transport`."""
    collectives: frozenset[str] = frozenset()
    """The collectives that it can slow at all, as NCCL calls them; empty where it can slow any."""

    def can_be_of(self, transport: str, operation: str) -> bool:
        """Whether a tool with that transport can have it, in a collective of that name; no transport is none of these.

        A fault of the machine itself can be of every tool.
        """
        known = transport not in EVERY_TRANSPORT or transport in self.transports
        return known and (not self.collectives or not operation or operation in self.collectives)

    def suppose(self, case: Case) -> tuple[Supposed, ...]:
        """The case in every way in which the fault could be there."""
        return tuple(self.ways(case))

    def supposed(self, says: str, case: Case, tell_apart: str) -> Supposed:
        """One way in which this fault could be there."""
        return Supposed(fault=self.name, says=says, case=case, tell_apart=tell_apart)
