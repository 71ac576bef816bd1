"""Which of the faults that were found can explain one slow path."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.checks.finding import Finding, OfParameter, OfPath, Place
from railwright.diagnosis.verdicts.judged import Judged
from railwright.results.records import Evidence
from railwright.topology.devices import Path


def causes_of(slow: Sequence[Judged], path: Path | None, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that sit on the path or on the benchmark of a curve's slow points, the surest first.

    `path` is that of the points, if known. A finding that names paths is about those alone: its benchmark or a device
    of it on another path proves nothing. One that names a parameter (`ucx pipeline`) is about the points that were
    measured with that value, and one whose evidence is of points (`ucx_protocol`) about those of which the same was
    seen.
    """
    order = ("seen", "likely", "possible", "could not look")
    concerned = [
        finding
        for finding in findings
        if any(_concerns(finding.where, point, path) and _was_seen(finding, point) for point in slow)
    ]
    return tuple(sorted(concerned, key=lambda finding: order.index(finding.certainty)))


def _concerns(where: tuple[Place, ...], judged: Judged, path: Path | None) -> bool:
    own = {judged.benchmark, *judged.path.split(">")}
    if path is not None:
        own.update(path.devices, (link.id for link in path.links))
    paths = {place for place in where if isinstance(place, OfPath)}
    varied = {place for place in where if isinstance(place, OfParameter)}
    others = set(where) - paths - varied
    if varied - {OfParameter(name, value) for name, value in judged.parameters.items()}:
        return False
    if not paths:
        return bool(others & own)
    return judged.path in paths and (not others or bool(others & own))


def _was_seen(finding: Finding, judged: Judged) -> bool:
    """Whether the point has the evidence that the finding rests on. A claim that is `unknown`, or absent, fits all."""
    rests_on, seen = (_values(evidence) for evidence in (finding.evidence, judged.evidence))
    return all(seen[claim] & {*values, "unknown"} for claim, values in rests_on.items() if claim in seen)


def _values(evidence: tuple[Evidence, ...]) -> dict[str, set[str]]:
    """The values that the evidence has for each claim."""
    found: dict[str, set[str]] = {}
    for one in evidence:
        found.setdefault(one.claim, set()).add(one.value)
    return found
