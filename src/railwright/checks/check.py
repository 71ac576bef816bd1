"""The interface of a check, which finds one misconfiguration in the facts and gives its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from railwright.checks.finding import BenchmarkPlace, Certainty, Finding, PartPlace, PathPlace, Place, merge_findings
from railwright.checks.host_settings import host_id
from railwright.checks.settings import Settings, short
from railwright.results.declarations import Declarations
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Topology

_PREFIXES = ("NCCL_", "UCX_")


class Prerequisite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A prerequisite of a way."""

    what: str
    there: bool | None
    """Whether the machine meets it; None if that could not be read."""
    seen: str = ""


class Way(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An alternative mechanism for the same task, and whether it is available on this machine."""

    way: str
    verdict: Literal["in use", "possible", "missing", "cannot be told"]
    because: str
    """The missing or unreadable prerequisites, or the evidence of use; empty for a way that is only possible."""
    asked: tuple[Prerequisite, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the running kernel that fixes the finding until the next reboot."""

    files: str
    """The files that hold the setting, relative to `/`; `*` matches part of a name."""
    value: str
    beside: str = ""
    """A file with a number beside each of the files; only files where it is at least `least` change."""
    least: int = 0


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command that fixes the finding until the next reboot, and the command that undoes it."""

    words: tuple[str, ...]
    undo: tuple[str, ...]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a check."""

    topology: Topology
    results: tuple[Result, ...] = ()
    environment: dict[str, str] = {}
    """The recorded environment variables (NCCL_*, UCX_* ...), as in `results.records.Context`."""
    declarations: Declarations = {}
    """Declarations of the results' benchmarks; a check uses them to distinguish collectives from the rest."""


Findings = Iterator[Finding]
EvidenceTuple = tuple[str, str, str]
"""Evidence as a tuple: the claim, its value, and its source."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check, as its file defines it. All of its functions are pure."""

    name: str
    summary: str
    """The misconfiguration as a clause."""
    right: str
    """The statement that holds without the misconfiguration: `io_uring is available`."""
    certainty: Certainty = "seen"
    """The default certainty of its findings; `costs` and `remedy` are their default cost and remedy."""
    costs: str = ""
    remedy: str = ""
    settings: Settings | None = None
    """The environment variables that cause the misconfiguration."""
    signs: Callable[[Facts], Findings] | None = None
    """Yields findings from the facts, except those from `settings`."""
    needs_results: bool = False
    """True if only measurements reveal the misconfiguration, so that an audit of settings cannot run the check."""
    needs: tuple[Callable[[Topology], str], ...] = ()
    """The parts that a machine must have for the check to apply (`checks.needs`)."""
    asks: tuple[Callable[[Topology], str], ...] = ()
    """Return the reason why a required fact was not read, or an empty string. `fine` requires all of these facts."""
    checklist: Callable[[Topology], tuple[Way, ...]] | None = None
    """Lists the ways that avoid the misconfiguration, each with its prerequisites."""
    mend: Callable[[Topology], tuple[Topology, Topology]] | None = None
    """Returns two topologies for the limits: the machine with the fault, and the machine without it."""
    change: Callable[[Topology], Change | tuple[Command, ...]] | None = None
    """Returns the kernel setting or the commands that fix the finding, or no commands if this machine cannot be fixed
    from here. The field is None if no change that can be undone fixes the finding.
    """

    def look(self, facts: Facts) -> tuple[Finding, ...]:
        """Return the findings, including those for facts that could not be read."""
        from_settings = self.setting_findings(self.settings, facts) if self.settings is not None else ()
        return merge_findings((*from_settings, *(self.signs(facts) if self.signs is not None else ())))

    def can_fix(self, topology: Topology) -> bool:
        """Report whether `change` fixes the finding on this machine."""
        return self.change is not None and self.change(topology) != ()

    def lacks(self, topology: Topology) -> str:
        """Return the reason why the check does not apply, or an empty string if it does."""
        return next((lack for need in self.needs if (lack := need(topology))), "")

    def finding(
        self,
        where: Iterable[str],
        says: str,
        *evidence: Evidence | EvidenceTuple,
        certainty: Certainty | None = None,
        costs: str | None = None,
        remedy: str = "",
    ) -> Finding:
        """Return a finding of this check. A plain string in `where` is the id of a part."""
        return Finding(
            fault=self.name,
            where=tuple(place if isinstance(place, Place) else PartPlace(place) for place in where),
            certainty=certainty or self.certainty,
            says=says,
            costs=self.costs if costs is None else costs,
            remedy=remedy or self.remedy,
            evidence=tuple(map(_build_evidence, evidence)),
        )

    def host_finding(
        self,
        facts: Facts,
        says: str,
        *evidence: EvidenceTuple,
        certainty: Certainty | None = None,
        costs: str | None = None,
    ) -> Finding:
        """Return a finding about the machine's host."""
        return self.finding((host_id(facts.topology),), says, *evidence, certainty=certainty, costs=costs)

    def result_findings(self, signs: Iterable[tuple[Result, str, Evidence]]) -> Iterator[Finding]:
        """Yield a finding for each benchmark and reason, with the paths and evidence of all its results."""
        found: dict[tuple[str, str], list[tuple[PathPlace, Evidence]]] = {}
        for result, why, item in signs:
            found.setdefault((result.benchmark, why), []).append((PathPlace(result.path), item))
        for (benchmark, why), points in found.items():
            paths = dict.fromkeys(path for path, _ in points)
            yield self.finding((BenchmarkPlace(benchmark), *paths), why, *dict.fromkeys(item for _, item in points))

    def blind(self, where: Iterable[str], says: str, *, remedy: str) -> Finding:
        """Return a finding for facts that could not be read."""
        return self.finding(where, says, certainty="could not look", costs="", remedy=remedy)

    def setting_findings(self, settings: Settings, facts: Facts) -> Findings:
        """Yield a finding for each recorded setting that causes the misconfiguration."""
        places: dict[tuple[str, str], dict[Place, str]] = {}
        for name, value, where, seen in _list_recorded_settings(facts):
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


def _build_evidence(seen: Evidence | EvidenceTuple) -> Evidence:
    if isinstance(seen, Evidence):
        return seen
    claim, value, source = seen
    return Evidence(claim=claim, value=value, seen=source)


def _list_recorded_settings(facts: Facts) -> Iterator[tuple[str, str, Place, str]]:
    """Yield name, value, place and source of the run's environment variables and the results' NCCL and UCX settings."""
    for name, value in facts.environment.items():
        yield name, value, Place("environment"), "environment of the run"
    for result in facts.results:
        for name, setting in result.settings.items():
            if name.startswith(_PREFIXES):
                yield name, str(setting), BenchmarkPlace(result.benchmark), f"settings of {result.benchmark}"
