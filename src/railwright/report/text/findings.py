"""Findings as plain lines, for `audit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.checks.check import Way
from railwright.checks.finding import Finding
from railwright.checks.outcome import CheckOutcome, Slowed, State
from railwright.groups import group_by_key
from railwright.report.text import wording
from railwright.units import format_bandwidth, format_count


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


_WAY_REASONS = {"missing": "unmet: ", "cannot be told": "unread: "}
_ANSWER_WORDS = {True: "yes", False: "no", None: "not known"}


def checklist_lines(way: Way) -> Iterator[str]:
    """Yield the verdict on a way, then each of its conditions."""
    reason = _WAY_REASONS.get(way.verdict, "")
    yield f"{way.way}: {way.verdict}" + (f": {reason}{wording.escape(way.because)}" if way.because else "")
    for condition in way.asked:
        seen = f" ({wording.escape(condition.seen)})" if condition.seen else ""
        yield f"  {_ANSWER_WORDS[condition.there]:<9} {wording.escape(condition.what)}{seen}"


_HEADINGS: dict[State, str] = {
    "found": "Found",
    "could not look": "Could not be checked",
    "fine": "Right",
    "does not apply": "Does not apply here",
}


def audit_lines(name: str, outcomes: Sequence[CheckOutcome]) -> Iterator[str]:
    """Yield the answer, then the checks grouped by outcome; those that do not apply share a line for each reason."""
    by_state = {state: [outcome for outcome in outcomes if outcome.state == state] for state in _HEADINGS}
    yield f"audit of {wording.escape(name)}: {answer_words(outcomes)}"
    for state, group in by_state.items():
        if group:
            yield ""
            yield f"{_HEADINGS[state]}:"
        for outcome in group if state != "does not apply" else ():
            says = outcome.right if state == "fine" else outcome.summary
            yield f"  {outcome.fault}: {says}" + (f" ({outcome.because})" if outcome.because else "")
            yield from (f"    {line}" for finding in outcome.findings for line in finding_lines(finding))
            yield from (f"      {line}" for line in slowed_lines(outcome.slows))
            if state == "found":
                yield f"      fix     {outcome.fix or 'not by railwright: follow the remedy'}"
            yield from (f"    {line}" for way in outcome.checklist for line in checklist_lines(way))
    for reason, group in group_by_key(by_state["does not apply"], lambda outcome: outcome.because):
        yield f"  {reason}: {', '.join(outcome.fault for outcome in group)}"


def answer_words(outcomes: Sequence[CheckOutcome]) -> str:
    """Summarize the outcomes of an audit in a clause."""
    found, blind, fine, other = (sum(outcome.state == state for outcome in outcomes) for state in _HEADINGS)
    rest = "".join(
        f", {number} {words}"
        for number, words in ((blind, "could not be checked"), (other, "do not apply here"))
        if number
    )
    if found:
        return f"{format_count(found, 'setting')} of {found + blind + fine} to look at{rest}"
    if fine:
        return f"all {fine} settings that could be checked are right{rest}" if blind else (
            f"all {fine} settings that apply are right{rest}")  # fmt: skip
    return f"nothing could be checked, so this says nothing about the machine{rest}"
