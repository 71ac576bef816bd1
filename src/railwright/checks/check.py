"""The interface of a check: it looks at facts for one mistake in settings, and knows the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from railwright.checks.finding import Certainty, Finding, OfBenchmark, OfPart, Place, one_for_all_alike
from railwright.checks.host_settings import host_id
from railwright.checks.settings import Settings, short
from railwright.results.declarations import Declarations
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Topology

_PREFIXES = ("NCCL_", "UCX_")


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
    """The missing part, the part nobody could read, or the evidence of use; empty for a way that is only possible."""
    asked: tuple[Asked, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the running kernel that mends what was found, until the machine starts anew."""

    files: str
    """The files that have it, below `/`; `*` stands for a part of a name."""
    value: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a check may look at."""

    topology: Topology
    results: tuple[Result, ...] = ()
    environment: dict[str, str] = {}
    """Environment variables that were set (NCCL_*, UCX_* ...), as `results.records.Context` records them."""
    declarations: Declarations = {}
    """Declarations of the results' benchmarks; a check uses them to tell collectives from the rest."""


Findings = Iterator[Finding]
Seen = tuple[str, str, str]
"""Evidence in short: the claim, its value, and where it was seen."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check, as its file describes it. All of its functions are pure."""

    name: str
    summary: str
    certainty: Certainty = "seen"
    """How sure its findings are, with what they cost and their remedy: where a finding does not say otherwise."""
    costs: str = ""
    remedy: str = ""
    settings: Settings | None = None
    """The environment variables that it looks for."""
    signs: Callable[[Facts], Findings] | None = None
    """What else shows the mistake."""
    needs_results: bool = False
    """True where only measurements can show it, so that an audit of settings alone cannot look for it."""
    needs: tuple[Callable[[Topology], str], ...] = ()
    """What a machine must have for the check to apply at all (`checks.needs`)."""
    asks: tuple[Callable[[Topology], str], ...] = ()
    """What must have been read for `fine` to be true: each says why it was not, empty where it was."""
    checklist: Callable[[Topology], tuple[Way, ...]] | None = None
    """The ways in which the machine can do without the mistake, each with all that it takes."""
    mend: Callable[[Topology], tuple[Topology, Topology]] | None = None
    """(topology) -> the machine as limits know it with what was found there, and as it would be without."""
    change: Callable[[Topology], Change] | None = None
    """What would mend it where it was found; None where no single setting of the kernel does."""

    def look(self, facts: Facts) -> tuple[Finding, ...]:
        """What the facts show, and what could not be looked at."""
        made = self.made_by(self.settings, facts) if self.settings is not None else ()
        return one_for_all_alike((*made, *(self.signs(facts) if self.signs is not None else ())))

    def lacks(self, topology: Topology) -> str:
        """Why the check does not apply, in words; empty where it does."""
        return next((lack for need in self.needs if (lack := need(topology))), "")

    def finding(
        self,
        where: Iterable[str],
        says: str,
        *evidence: Evidence | Seen,
        certainty: Certainty | None = None,
        costs: str | None = None,
        remedy: str = "",
    ) -> Finding:
        """A finding of this check; a word of `where` that is no place is the id of a part."""
        return Finding(
            fault=self.name,
            where=tuple(place if isinstance(place, Place) else OfPart(place) for place in where),
            certainty=certainty or self.certainty,
            says=says,
            costs=self.costs if costs is None else costs,
            remedy=remedy or self.remedy,
            evidence=tuple(map(_evidence, evidence)),
        )

    def of_host(
        self, facts: Facts, says: str, *evidence: Seen, certainty: Certainty | None = None, costs: str | None = None
    ) -> Finding:
        """A finding about the machine's host."""
        return self.finding((host_id(facts.topology),), says, *evidence, certainty=certainty, costs=costs)

    def blind(self, where: Iterable[str], says: str, *, remedy: str) -> Finding:
        """A finding that nobody could look."""
        return self.finding(where, says, certainty="could not look", costs="", remedy=remedy)

    def made_by(self, settings: Settings, facts: Facts) -> Findings:
        """A finding for each recorded setting that makes the mistake."""
        places: dict[tuple[str, str], dict[Place, str]] = {}
        for name, value, where, seen in _recorded(facts):
            if name in settings.causes and settings.causes[name].when(value):
                places.setdefault((name, value), {}).setdefault(where, seen)
        for (name, value), found in places.items():
            set_to = f"{name}={short(value)}"
            yield self.finding(
                found,
                f"{set_to} {settings.causes[name].does}",
                ("setting", set_to, next(iter(found.values()))),
                certainty="seen",
                costs=settings.costs,
                remedy=settings.remedy,
            )


def _evidence(seen: Evidence | Seen) -> Evidence:
    if isinstance(seen, Evidence):
        return seen
    claim, value, source = seen
    return Evidence(claim=claim, value=value, seen=source)


def _recorded(facts: Facts) -> Iterator[tuple[str, str, Place, str]]:
    """(name, value, where, how it is known)."""
    for name, value in facts.environment.items():
        yield name, value, Place("environment"), "environment of the run"
    for result in facts.results:
        for name, setting in result.settings.items():
            if name.startswith(_PREFIXES):
                yield name, str(setting), OfBenchmark(result.benchmark), f"settings of {result.benchmark}"
