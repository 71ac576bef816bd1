"""What can be wrong: a fault looks for itself in facts, and can be laid into a healthy topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from railwright.limits.case import Case
from railwright.results.bounds import Declarations
from railwright.results.model import Evidence, Result
from railwright.topology.model import PcieLink, Scalar, Topology

Certainty = Literal["seen", "likely", "possible", "could not look"]


class Place(str):
    """What a finding points at, in the words that reports and records print; its class says what kind of thing it is.

    One that is of no other kind has nothing to do with a single point of a run, like `environment`.
    """

    __slots__ = ()


class OfPart(Place):
    """A device or a link of the machine, by its id."""

    __slots__ = ()


class OfPath(Place):
    """A path, `gpu0>memory0`: a finding that names paths is about those alone."""

    __slots__ = ()


class OfBenchmark(Place):
    """A benchmark, by its name."""

    __slots__ = ()


class OfParameter(Place):
    """The points that were measured with that value of a parameter: `processes 1`."""

    __slots__ = ()

    def __new__(cls, name: str, value: Scalar) -> OfParameter:
        """The words of a parameter and its value."""
        return super().__new__(cls, f"{name} {value}")


class OfLog(Place):
    """What a log names: a host, a rank, a channel or a NIC of NCCL, or the log itself."""

    __slots__ = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A fault that was found (or could not be looked for), with its evidence and remedy."""

    fault: str
    where: tuple[Place, ...]
    certainty: Certainty
    says: str
    """One sentence: what is wrong and with which value."""
    costs: str = ""
    """What it takes away, with its source; empty where that is not known."""
    remedy: str = ""
    evidence: tuple[Evidence, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a fault may look at."""

    topology: Topology
    results: tuple[Result, ...] = ()
    environment: dict[str, str] = {}
    """Environment variables that were set (NCCL_*, UCX_* ...), as `results.model.Context` records them."""
    declarations: Declarations = {}
    """What the results' benchmarks declare: by it a fault tells collectives from the rest."""


class Supposed(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster would be if a fault were there: how it would be seen in measurements, and how to tell."""

    fault: str
    says: str
    """What is supposed, as a clause: `one NIC of each host is not used`."""
    case: Case
    tell_apart: str
    """The command or look that would tell it from the others."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. `look` and `degrade` are pure; `degrade` is None where a fault is not in the topology."""

    name: str
    summary: str
    look: Callable[[Facts], tuple[Finding, ...]]
    needs_results: bool = False
    """True where only measurements can show it, so that an audit of settings alone cannot look for it."""
    degrade: Callable[[Topology, str], Topology] | None = None
    """(topology, device or link id) -> the topology as it would be with this fault there."""
    suppose: Callable[[Case], tuple[Supposed, ...]] | None = None
    """The ways in which it could be there, for `explain`; None where it changes no curve."""


def with_host(case: Case, host: Topology) -> Case:
    """The case with other machines: a cluster is as fast as its slowest host, so one faulty host stands for all."""
    return msgspec.structs.replace(case, cluster=msgspec.structs.replace(case.cluster, host=host))


def with_pcie(topology: Topology, where: str, change: Callable[[PcieLink], PcieLink]) -> Topology:
    """The topology with one PCIe link changed: how a fault of such a link is laid into a healthy machine."""
    links = tuple(
        msgspec.structs.replace(link, protocol=change(link.protocol))
        if link.id == where and isinstance(link.protocol, PcieLink)
        else link
        for link in topology.links
    )
    return msgspec.structs.replace(topology, links=links)
