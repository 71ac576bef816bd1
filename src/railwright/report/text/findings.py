"""Findings as plain lines, for `audit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.checks.check import Way
from railwright.checks.finding import Finding
from railwright.checks.outcome import CheckOutcome, Slowed, State
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


_TOLD: dict[State, str] = {
    "found": "found",
    "could not look": "could not be looked for",
    "fine": "looked for and fine",
    "does not apply": "do not apply",
}


def audit_lines(name: str, outcomes: Sequence[CheckOutcome]) -> Iterator[str]:
    """Every fault by what came of the look for it; those that do not apply in a line for each reason."""
    by_state = {state: [one for one in outcomes if one.state == state] for state in _TOLD}
    counts = ", ".join(f"{len(some)} {_TOLD[state]}" for state, some in by_state.items())
    yield f"audit of {name}, {len(outcomes)} faults: {counts}"
    for state, some in by_state.items():
        if some:
            yield ""
            yield f"{_TOLD[state]}:"
        for one in some if state != "does not apply" else ():
            yield f"  {one.fault}: {one.summary}" + (f" ({one.because})" if one.because else "")
            yield from (f"    {line}" for finding in one.findings for line in finding_lines(finding))
            yield from (f"      {line}" for line in slowed_lines(one.slows))
            yield from (f"    {line}" for way in one.checklist for line in way_lines(way))
    for because in dict.fromkeys(one.because for one in by_state["does not apply"]):
        yield f"  {because}: {', '.join(one.fault for one in by_state['does not apply'] if one.because == because)}"
    if not by_state["fine"] and not by_state["found"]:
        yield ""
        yield "None of them could be looked for here: this says nothing of the machine."
