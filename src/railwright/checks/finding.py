"""What a check reports: a finding, the places it points at, and how certain it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from railwright.groups import grouped
from railwright.results.records import Evidence
from railwright.topology.devices import Scalar
from railwright.topology.gpus import runs

Certainty = Literal["seen", "likely", "possible", "could not look"]
_MOST_NAMED = 4
"""Parts that a sentence names."""


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
    """The name of the check."""
    where: tuple[Place, ...]
    certainty: Certainty
    says: str
    """One sentence: what is wrong and with which value."""
    costs: str = ""
    """What it takes away, with its source; empty where that is not known."""
    remedy: str = ""
    evidence: tuple[Evidence, ...] = ()


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
