"""The result of a check: a finding, with its places and its certainty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from railwright.groups import group_by_key
from railwright.results.records import Evidence
from railwright.topology.devices import Scalar
from railwright.topology.gpus import format_runs

Certainty = Literal["seen", "likely", "possible", "could not look"]
_MAX_NAMED = 4
"""The number of parts that a sentence names."""


class Place(str):
    """The place of a finding, as printed in reports and records; the subclass gives its kind.

    A plain Place, such as `environment`, concerns no single point of a run.
    """

    __slots__ = ()


class PartPlace(Place):
    """A device or a link of the machine, by its id."""

    __slots__ = ()


class PathPlace(Place):
    """A path such as `gpu0>memory0`; a finding that names paths applies to those only."""

    __slots__ = ()


class BenchmarkPlace(Place):
    """A benchmark, by its name."""

    __slots__ = ()


class ParameterPlace(Place):
    """The points measured with one value of a parameter, such as `processes 1`."""

    __slots__ = ()

    def __new__(cls, name: str, value: Scalar) -> ParameterPlace:
        """Build the place from a parameter's name and value."""
        return super().__new__(cls, f"{name} {value}")


class LogPlace(Place):
    """A name from an NCCL log (a host, rank, channel or NIC), or the log itself."""

    __slots__ = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A fault that was found or could not be checked for, with evidence and remedy."""

    fault: str
    """The name of the check."""
    where: tuple[Place, ...]
    certainty: Certainty
    says: str
    """A sentence that states the problem and the value seen."""
    costs: str = ""
    """The performance lost, with the source of the figure; empty if unknown."""
    remedy: str = ""
    evidence: tuple[Evidence, ...] = ()


def merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Merge findings that differ only in their parts: eight NICs with the same fault give one finding."""
    found: list[Finding] = []
    for _, alike in group_by_key(findings, _key_without_parts):
        first = alike[0]
        if len(alike) == 1:
            found.append(first)
            continue
        says = first.says
        for place, part in sorted(enumerate(first.where), key=lambda item: -len(item[1])):
            says = says.replace(part, _format_names([other.where[place] for other in alike]))
        where = tuple(place for other in alike for place in other.where)
        found.append(msgspec.structs.replace(first, where=where, says=says))
    return tuple(found)


def _key_without_parts(finding: Finding) -> tuple[object, ...]:
    """Return a key that ignores part names; findings whose sentences name no part share a key only per place."""
    says = finding.says
    parts = all(isinstance(place, PartPlace) for place in finding.where)
    for place, part in sorted(enumerate(finding.where), key=lambda item: -len(item[1])) if parts else ():
        says = says.replace(part, f"\0{place}\0")
    unnamed = () if parts and says != finding.says else finding.where
    return finding.fault, finding.certainty, says, finding.costs, finding.remedy, unnamed, len(finding.where)


def _format_names(names: list[Place]) -> str:
    """Format the names as ranges, and only the first few if there are many."""
    listed = format_runs(names)
    shown = listed.split(", ")
    return listed if len(shown) <= _MAX_NAMED else f"{', '.join(shown[:_MAX_NAMED])} and {len(names) - _MAX_NAMED} more"
