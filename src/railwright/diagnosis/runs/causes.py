"""Selects the findings that can explain a slow path."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.checks.finding import Finding, ParameterPlace, PathPlace, Place
from railwright.diagnosis.verdicts.judged import Judged
from railwright.results.records import Evidence
from railwright.topology.devices import Path


def find_causes(slow: Sequence[Judged], path: Path | None, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings on the path or benchmark of a curve's slow points, the most certain first.

    `path` is that of the points, if known. A finding that names paths applies only to those: the same benchmark or
    device on another path proves nothing. A finding that names a parameter (`ucx pipeline`) applies to points measured
    with that value, and one with evidence from points (`ucx_protocol`) to points with the same evidence.
    """
    order = ("seen", "likely", "possible", "could not look")
    concerned = [
        finding
        for finding in findings
        if any(_concerns(finding.where, point, path) and _was_seen(finding, point) for point in slow)
    ]
    return tuple(sorted(concerned, key=lambda finding: order.index(finding.certainty)))


def _concerns(where: tuple[Place, ...], judged: Judged, path: Path | None) -> bool:
    names = {judged.benchmark, *judged.path.split(">")}
    if path is not None:
        names.update(path.devices, (link.id for link in path.links))
    paths = {place for place in where if isinstance(place, PathPlace)}
    varied = {place for place in where if isinstance(place, ParameterPlace)}
    others = set(where) - paths - varied
    if varied - {ParameterPlace(name, value) for name, value in judged.parameters.items()}:
        return False
    if not paths:
        return bool(others & names)
    return judged.path in paths and (not others or bool(others & names))


def _was_seen(finding: Finding, judged: Judged) -> bool:
    """Report whether the point has the finding's evidence. A claim that is `unknown` or absent matches all."""
    rests_on, seen = (_values_by_claim(evidence) for evidence in (finding.evidence, judged.evidence))
    return all(seen[claim] & {*values, "unknown"} for claim, values in rests_on.items() if claim in seen)


def _values_by_claim(evidence: tuple[Evidence, ...]) -> dict[str, set[str]]:
    """Return the values of each claim."""
    found: dict[str, set[str]] = {}
    for item in evidence:
        found.setdefault(item.claim, set()).add(item.value)
    return found
