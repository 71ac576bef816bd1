"""Findings as plain lines, for `audit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.checks.check import Way
from railwright.checks.finding import Finding
from railwright.checks.outcome import CheckOutcome, Slowed, State
from railwright.groups import group_by_key
from railwright.report.text import wording
from railwright.units import format_bandwidth


def finding_lines(finding: Finding) -> Iterator[str]:
    """Yield a finding's statement, places, cost, evidence and remedy."""
    yield f"{finding.certainty}: {wording.escape(finding.says)}"
    yield f"  where   {wording.escape(', '.join(finding.where))}"
    if finding.costs:
        yield f"  costs   {finding.costs}"
    for seen in finding.evidence:
        yield f"  seen    {wording.escape(f'{seen.claim} {seen.value} ({seen.seen})')}"
    if finding.remedy:
        yield f"  remedy  {finding.remedy}"


_MAX_SLOWED = 5
_MAX_PATHS = 4


def slowed_lines(slows: Sequence[Slowed]) -> Iterator[str]:
    """Yield the paths that lose most, with their limits with and without the fault."""
    for loss in slows[:_MAX_SLOWED]:
        names = wording.join_first(loss.what, _MAX_PATHS)
        now, best = (format_bandwidth(rate) for rate in (loss.with_fault_bytes_per_s, loss.without_bytes_per_s))
        yield f"limit   {wording.escape(names)}: {now}, without this fault {best}"
    if len(slows) > _MAX_SLOWED:
        yield f"limit   and {len(slows) - _MAX_SLOWED} other losses: --json prints all"


_ANSWER_WORDS = {True: "yes", False: "no", None: "not known"}


def checklist_lines(way: Way) -> Iterator[str]:
    """Yield the verdict on a way, then each of its conditions."""
    yield f"{way.way}: {way.verdict}" + (f": {wording.escape(way.because)}" if way.because else "")
    for condition in way.asked:
        seen = f" ({wording.escape(condition.seen)})" if condition.seen else ""
        yield f"  {_ANSWER_WORDS[condition.there]:<9} {wording.escape(condition.what)}{seen}"


_STATE_WORDS: dict[State, str] = {
    "found": "found",
    "could not look": "could not be checked",
    "fine": "checked and fine",
    "does not apply": "do not apply",
}


def audit_lines(name: str, outcomes: Sequence[CheckOutcome]) -> Iterator[str]:
    """Yield the faults grouped by outcome; faults that do not apply share a line for each reason."""
    by_state = {state: [outcome for outcome in outcomes if outcome.state == state] for state in _STATE_WORDS}
    counts = ", ".join(f"{len(group)} {_STATE_WORDS[state]}" for state, group in by_state.items())
    yield f"audit of {name}, {len(outcomes)} faults: {counts}"
    for state, group in by_state.items():
        if group:
            yield ""
            yield f"{_STATE_WORDS[state]}:"
        for outcome in group if state != "does not apply" else ():
            yield f"  {outcome.fault}: {outcome.summary}" + (f" ({outcome.because})" if outcome.because else "")
            yield from (f"    {line}" for finding in outcome.findings for line in finding_lines(finding))
            yield from (f"      {line}" for line in slowed_lines(outcome.slows))
            yield from (f"    {line}" for way in outcome.checklist for line in checklist_lines(way))
    for reason, group in group_by_key(by_state["does not apply"], lambda outcome: outcome.because):
        yield f"  {reason}: {', '.join(outcome.fault for outcome in group)}"
    if not by_state["fine"] and not by_state["found"]:
        yield ""
        yield "None of them could be checked here, so this says nothing about the machine."
