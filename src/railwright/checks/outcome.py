"""What came of a check on one machine: a check that has nothing to look at is not fine."""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.checks.check import Check, Facts, Way
from railwright.checks.finding import Finding

State = Literal["found", "fine", "does not apply", "could not look"]


class Slowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path or a collective that the fault slows down, by the limits of the machine with and without it."""

    what: tuple[str, ...]
    """Paths that lose the same, like `gpu0>nic0`, or one collective with its hosts."""
    with_fault_bytes_per_s: float
    without_bytes_per_s: float


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="check", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """What came of looking for a fault."""

    fault: str
    """The name of the check."""
    summary: str
    state: State
    because: str = ""
    """Why it does not apply or could not be looked for; a finding says so itself."""
    findings: tuple[Finding, ...] = ()
    checklist: tuple[Way, ...] = ()
    slows: tuple[Slowed, ...] = ()


def look_for(check: Check, facts: Facts) -> CheckOutcome:
    """Run a check. A finding counts wherever it was found; without one the machine must have what it needs."""
    findings = check.look(facts)
    state: State = "fine"
    because = ""
    if findings:
        blind = all(finding.certainty == "could not look" for finding in findings)
        state = "could not look" if blind else "found"
    elif because := check.lacks(facts.topology):
        state = "does not apply"
    elif because := next((why for ask in check.asks if (why := ask(facts.topology))), ""):
        state = "could not look"
    ways = check.checklist(facts.topology) if check.checklist is not None and state != "does not apply" else ()
    return CheckOutcome(
        fault=check.name, summary=check.summary, state=state, because=because, findings=findings, checklist=ways
    )
