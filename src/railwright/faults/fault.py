"""The interface of a fault, which can degrade a healthy topology and yields hypotheses for `explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from railwright.checks.check import Check
from railwright.limits.case import Case
from railwright.topology.devices import Topology

EVERY_TRANSPORT = frozenset({"nccl", "library", "verbs", "sockets"})
ONLY_NCCL = frozenset({"nccl"})
NOT_VERBS = EVERY_TRANSPORT - {"verbs", "sockets"}
"""Tools for verbs or plain sockets have no alternative transport, and use only the memory given to them."""


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothetical cluster with a fault: the case that predicts its measurements, and how to confirm the fault."""

    fault: str
    says: str
    """The hypothesis as a clause: `one NIC of each host is not used`."""
    case: Case
    tell_apart: str
    """The command that distinguishes it from other hypotheses."""


Hypotheses = Iterator[Hypothesis]


class Fault(Check, frozen=True, kw_only=True):
    """A fault, as its file defines it: a check together with the effect on a machine. All of its functions are pure."""

    ways: Callable[[Case], Hypotheses]
    """Yields hypotheses, one for each variant of the fault, with the case that predicts its curve."""
    degrade: Callable[[Topology, str], Topology] | None = None
    """Adds the fault to a topology at a device or link id; None if no topology can represent it."""
    transports: frozenset[str] = EVERY_TRANSPORT
    """The transports that can have the fault, as in `results.workload.Transport`."""
    collectives: frozenset[str] = frozenset()
    """The collectives that the fault can slow, by their NCCL names; empty means all."""

    only_gpu_memory: bool = False
    """Whether the fault concerns only data in GPU memory."""

    def can_affect(self, transport: str, operation: str, *, in_host_memory: bool = False) -> bool:
        """Report whether the fault can affect a tool with this transport in this collective and memory.

        Empty or unknown values match: a fault of the machine itself affects every tool.
        """
        known = transport not in EVERY_TRANSPORT or transport in self.transports
        known = known and not (in_host_memory and self.only_gpu_memory)
        return known and (not self.collectives or not operation or operation in self.collectives)

    def suppose(self, case: Case) -> tuple[Hypothesis, ...]:
        """Return the hypotheses that the case has this fault."""
        return tuple(self.ways(case))

    def supposed(self, says: str, case: Case, tell_apart: str) -> Hypothesis:
        """Return a hypothesis of this fault."""
        return Hypothesis(fault=self.name, says=says, case=case, tell_apart=tell_apart)
