"""Findings as plain lines, for `audit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.checks.check import Way
from railwright.checks.finding import Finding
from railwright.checks.outcome import Slowed
from railwright.report.text import wording
from railwright.units import format_bandwidth


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


_MOST_SLOWED = 5
_MOST_PATHS = 4


def slowed_lines(slows: Sequence[Slowed]) -> Iterator[str]:
    """What is slowed down most, with what the limits say of it: as it is, and as it would be without the fault."""
    for one in slows[:_MOST_SLOWED]:
        names = wording.first_of(one.what, _MOST_PATHS)
        now, best = (format_bandwidth(rate) for rate in (one.with_fault_bytes_per_s, one.without_bytes_per_s))
        yield f"limit   {wording.visible(names)}: {now}, without this fault {best}"
    if len(slows) > _MOST_SLOWED:
        yield f"limit   and {len(slows) - _MOST_SLOWED} other losses: --json prints all"


_THERE = {True: "yes", False: "no", None: "not known"}


def way_lines(way: Way) -> Iterator[str]:
    """Whether a way can be gone, and what it takes, line by line."""
    yield f"{way.way}: {way.verdict}" + (f": {wording.visible(way.because)}" if way.because else "")
    for one in way.asked:
        seen = f" ({wording.visible(one.seen)})" if one.seen else ""
        yield f"  {_THERE[one.there]:<9} {wording.visible(one.what)}{seen}"
