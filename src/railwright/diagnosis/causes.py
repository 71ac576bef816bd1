"""Which of the faults that were found can explain one slow path."""

from __future__ import annotations

from railwright.faults.model import Finding
from railwright.topology.model import Path


def causes_of(benchmark: str, path_id: str, path: Path | None, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that sit on this path or on this benchmark, the surest first."""
    places = {benchmark, path_id}
    if path is not None:
        places.update(path.devices, (link.id for link in path.links))
    order = ("seen", "likely", "possible", "could not look")
    concerned = [finding for finding in findings if places & set(finding.where)]
    return tuple(sorted(concerned, key=lambda finding: order.index(finding.certainty)))
