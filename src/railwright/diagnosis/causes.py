"""Which of the faults that were found can explain one slow path."""

from __future__ import annotations

from railwright.diagnosis.model import Judged
from railwright.faults.model import Finding
from railwright.topology.model import Path


def causes_of(judged: Judged, path: Path | None, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that sit on this path or on this benchmark, the surest first. `path` is the judged one's, if known.

    A finding that names paths is about those alone: its benchmark or a device of it on another path proves nothing.
    """
    order = ("seen", "likely", "possible", "could not look")
    concerned = [finding for finding in findings if _concerns(finding.where, judged, path)]
    return tuple(sorted(concerned, key=lambda finding: order.index(finding.certainty)))


def _concerns(where: tuple[str, ...], judged: Judged, path: Path | None) -> bool:
    own = {judged.benchmark, *judged.path.split(">")}
    if path is not None:
        own.update(path.devices, (link.id for link in path.links))
    paths = {place for place in where if ">" in place}
    varied = {place for place in where if " " in place and place.partition(" ")[0] in judged.parameters} - paths
    others = set(where) - paths - varied
    if varied - {f"{name} {value}" for name, value in judged.parameters.items()}:
        return False
    if not paths:
        return bool(others & own)
    return judged.path in paths and (not others or bool(others & own))
