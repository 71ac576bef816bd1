"""Findings as plain lines, for `audit`."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.faults.fault import Finding
from railwright.report import wording


def finding_lines(finding: Finding) -> Iterator[str]:
    """What is wrong, where, what it costs, how that is known and what to do."""
    yield f"{finding.certainty}: {wording.visible(finding.says)}"
    yield f"  where   {wording.visible(', '.join(finding.where))}"
    if finding.costs:
        yield f"  costs   {finding.costs}"
    for seen in finding.evidence:
        yield f"  seen    {wording.visible(f'{seen.claim} {seen.value} ({seen.seen})')}"
    if finding.remedy:
        yield f"  remedy  {finding.remedy}"
