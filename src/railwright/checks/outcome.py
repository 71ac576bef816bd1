"""The outcome of a check on one machine; a check that has nothing to inspect is not fine."""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.checks.check import Check, Facts, Way
from railwright.checks.finding import Finding

State = Literal["found", "fine", "does not apply", "could not look"]


class Slowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path or collective that the fault slows down, with its limit with and without the fault."""

    what: tuple[str, ...]
    """Paths with the same loss, such as `gpu0>nic0`, or one collective with its hosts."""
    with_fault_bytes_per_s: float
    without_bytes_per_s: float


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="check", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """The outcome of a check for a fault."""

    fault: str
    """The name of the check."""
    summary: str
    right: str
    """The statement that holds if the state is `fine`."""
    state: State
    because: str = ""
    """The reason why the check does not apply or could not look; findings carry their own reason."""
    findings: tuple[Finding, ...] = ()
    checklist: tuple[Way, ...] = ()
    slows: tuple[Slowed, ...] = ()
    fix: str = ""
    """The command that fixes the finding on the machine itself; empty if only the remedy does."""


def look_for(check: Check, facts: Facts) -> CheckOutcome:
    """Run a check. Findings decide the state; otherwise the check applies only if the machine meets its needs."""
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
    fix = f"railwright audit --fix {check.name} --apply" if state == "found" and check.can_fix(facts.topology) else ""
    return CheckOutcome(
        fault=check.name,
        summary=check.summary,
        right=check.right,
        state=state,
        because=because,
        findings=findings,
        checklist=ways,
        fix=fix,
    )
