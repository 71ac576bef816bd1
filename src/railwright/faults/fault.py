"""What can be wrong: a fault looks for itself in facts, and can be laid into a healthy topology."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from railwright.faults.settings import Settings, short
from railwright.groups import grouped
from railwright.limits.case import Case
from railwright.results.declarations import Declarations
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Scalar, Topology
from railwright.topology.gpus import runs

Certainty = Literal["seen", "likely", "possible", "could not look"]
_PREFIXES = ("NCCL_", "UCX_")
_MOST_NAMED = 4
"""Parts that a sentence names."""


EVERY_TRANSPORT = frozenset({"nccl", "library", "verbs", "sockets"})
OF_NCCL = frozenset({"nccl"})
NOT_OF_VERBS = EVERY_TRANSPORT - {"verbs", "sockets"}
"""A tool of verbs, or of plain sockets, has no other transport, and no memory but the one it was given."""


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


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing that a way takes."""

    what: str
    there: bool | None
    """None where nobody could look."""
    seen: str = ""


class Way(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One way of doing something, and whether this machine can go it."""

    way: str
    verdict: Literal["in use", "possible", "missing", "cannot be told"]
    because: str
    """What is missing, or could not be looked at, or shows its use; empty where it is only possible."""
    asked: tuple[Asked, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the running kernel that mends a fault, until the machine starts anew."""

    files: str
    """The files that have it, below `/`; `*` stands for a part of a name."""
    value: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a fault may look at."""

    topology: Topology
    results: tuple[Result, ...] = ()
    environment: dict[str, str] = {}
    """Environment variables that were set (NCCL_*, UCX_* ...), as `results.records.Context` records them."""
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


Findings = Iterator[Finding]
Ways = Iterator[Supposed]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, as its file describes it. All of its functions are pure."""

    name: str
    summary: str
    settings: Settings | None = None
    """The environment variables that make it."""
    signs: Callable[[Facts], Findings] | None = None
    """What else shows it."""
    needs_results: bool = False
    """True where only measurements can show it, so that an audit of settings alone cannot look for it."""
    needs: tuple[Callable[[Topology], str], ...] = ()
    """What a machine must have for the fault to be there at all (`faults.needs`)."""
    asks: tuple[Callable[[Topology], str], ...] = ()
    """What must have been read for `fine` to be true: each says why it was not, empty where it was."""
    checklist: Callable[[Topology], tuple[Way, ...]] | None = None
    """The ways in which the machine can do without the fault, each with all that it takes."""
    asks_nvml: bool = False
    """Whether NVIDIA's library alone says so: where it is silent nobody has looked."""
    transports: frozenset[str] = EVERY_TRANSPORT
    """What moves the data where it can be at all, in the words of `results.readers.subject.Subject.transport`."""
    collectives: frozenset[str] = frozenset()
    """The collectives that it can slow at all, as NCCL calls them; empty where it can slow any."""
    degrade: Callable[[Topology, str], Topology] | None = None
    """(topology, device or link id) -> the topology as it would be with this fault; None where no topology shows it."""
    mend: Callable[[Topology], tuple[Topology, Topology]] | None = None
    """(topology) -> the machine as limits know it with the fault that was found there, and as it would be without."""
    change: Callable[[Topology], Change] | None = None
    """What would mend it where it was found; None where no single setting of the kernel does."""
    ways: Callable[[Case], Ways] | None = None
    """The ways in which it could be there, for `explain`; None where it changes no curve."""

    def look(self, facts: Facts) -> tuple[Finding, ...]:
        """The fault where the facts show it, and where it could not be looked for."""
        made = self.made_by(self.settings, facts) if self.settings is not None else ()
        return one_for_all_alike((*made, *(self.signs(facts) if self.signs is not None else ())))

    def can_be_of(self, transport: str, operation: str) -> bool:
        """Whether a tool with that transport can have it, in a collective of that name; no transport is none of these.

        A fault of the machine itself can be of every tool.
        """
        known = transport not in EVERY_TRANSPORT or transport in self.transports
        return known and (not self.collectives or not operation or operation in self.collectives)

    def lacks(self, topology: Topology) -> str:
        """Why the fault cannot be there, in words; empty where it can."""
        return next((lack for need in self.needs if (lack := need(topology))), "")

    def suppose(self, case: Case) -> tuple[Supposed, ...]:
        """The case in every way in which the fault could be there."""
        return tuple(self.ways(case)) if self.ways is not None else ()

    def finding(
        self,
        where: Iterable[Place],
        says: str,
        *evidence: Evidence,
        certainty: Certainty = "seen",
        costs: str = "",
        remedy: str,
    ) -> Finding:
        """This fault, found."""
        return Finding(
            fault=self.name,
            where=tuple(where),
            certainty=certainty,
            says=says,
            costs=costs,
            remedy=remedy,
            evidence=evidence,
        )

    def supposed(self, says: str, case: Case, tell_apart: str) -> Supposed:
        """One way in which this fault could be there."""
        return Supposed(fault=self.name, says=says, case=case, tell_apart=tell_apart)

    def made_by(self, settings: Settings, facts: Facts) -> Findings:
        """A finding for each recorded setting that makes the fault."""
        places: dict[tuple[str, str], dict[Place, str]] = {}
        for name, value, where, seen in _recorded(facts):
            if name in settings.causes and settings.causes[name].when(value):
                places.setdefault((name, value), {}).setdefault(where, seen)
        for (name, value), found in places.items():
            set_to = f"{name}={short(value)}"
            yield self.finding(
                found,
                f"{set_to} {settings.causes[name].does}",
                Evidence(claim="setting", value=set_to, seen=next(iter(found.values()))),
                costs=settings.costs,
                remedy=settings.remedy,
            )


def _recorded(facts: Facts) -> Iterator[tuple[str, str, Place, str]]:
    """(name, value, where, how it is known)."""
    for name, value in facts.environment.items():
        yield name, value, Place("environment"), "environment of the run"
    for result in facts.results:
        for name, setting in result.settings.items():
            if name.startswith(_PREFIXES):
                yield name, str(setting), OfBenchmark(result.benchmark), f"settings of {result.benchmark}"


def one_for_all_alike(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, with one for all parts of which the same is said: for eight NICs one and not eight."""
    found: list[Finding] = []
    for _, alike in grouped(findings, _said_of_any):
        first = alike[0]
        if len(alike) == 1:
            found.append(first)
            continue
        says = first.says
        for place, part in sorted(enumerate(first.where), key=lambda one: -len(one[1])):
            says = says.replace(part, _listed([one.where[place] for one in alike]))
        where = tuple(place for one in alike for place in one.where)
        found.append(msgspec.structs.replace(first, where=where, says=says))
    return tuple(found)


def _said_of_any(finding: Finding) -> tuple[object, ...]:
    """What a finding says without the names of its parts; alike where it names none, so that all parts are one."""
    says = finding.says
    parts = all(isinstance(place, OfPart) for place in finding.where)
    for place, part in sorted(enumerate(finding.where), key=lambda one: -len(one[1])) if parts else ():
        says = says.replace(part, f"\0{place}\0")
    unnamed = () if parts and says != finding.says else finding.where
    return finding.fault, finding.certainty, says, finding.costs, finding.remedy, unnamed, len(finding.where)


def _listed(names: list[Place]) -> str:
    """The names, as a run where they are one, the first few where they are many."""
    listed = runs(names)
    shown = listed.split(", ")
    return (
        listed if len(shown) <= _MOST_NAMED else f"{', '.join(shown[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
    )


def with_host(case: Case, host: Topology) -> Case:
    """The case with other machines: a cluster is as fast as its slowest host, so one faulty host stands for all."""
    return msgspec.structs.replace(case, cluster=msgspec.structs.replace(case.cluster, host=host))
