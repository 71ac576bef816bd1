"""Every fault we know, looked for in the settings of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from railwright.diagnosis.diagnose import exit_status
from railwright.errors import EXIT_OK, EXIT_UNJUDGED
from railwright.faults.check import Check, State, check
from railwright.faults.fault import Facts
from railwright.faults.registry import FAULTS
from railwright.launch.context import environment
from railwright.report.findings_text import finding_lines
from railwright.report.records import json_line
from railwright.verbs.machine import the_machine

_TOLD: dict[State, str] = {
    "found": "found",
    "could not look": "could not be looked for",
    "fine": "looked for and fine",
    "does not apply": "do not apply",
}


def audit(machine: str | None, as_json: bool) -> int:
    """Print what was looked for and what came of it; the exit status."""
    # What is set here says something of this machine only.
    facts = Facts(topology=the_machine(machine), environment=environment() if machine is None else {})
    checks = [check(fault, facts) for fault in FAULTS if not fault.needs_results or facts.environment]
    lines = map(json_line, checks) if as_json else _text(facts.topology.name, checks)
    for line in lines:
        click.echo(line)
    return _status(checks)


def _status(checks: Sequence[Check]) -> int:
    """That of the findings; where nothing was found, 3 if something could not be looked at, or nothing applied."""
    findings = [finding for one in checks for finding in one.findings]
    if findings:
        return exit_status((), findings)
    states = {one.state for one in checks}
    return EXIT_UNJUDGED if "could not look" in states or "fine" not in states else EXIT_OK


def _text(name: str, checks: Sequence[Check]) -> Iterator[str]:
    by_state = {state: [one for one in checks if one.state == state] for state in _TOLD}
    counts = ", ".join(f"{len(some)} {_TOLD[state]}" for state, some in by_state.items())
    yield f"audit of {name}, {len(checks)} faults: {counts}"
    for state, some in by_state.items():
        if some:
            yield ""
            yield f"{_TOLD[state]}:"
        yield from _one_line_a_reason(some) if state == "does not apply" else _one_by_one(some)
    if not by_state["fine"] and not by_state["found"]:
        yield ""
        yield "None of them could be looked for here: this says nothing of the machine."


def _one_by_one(checks: Sequence[Check]) -> Iterator[str]:
    for one in checks:
        yield f"  {one.fault}: {one.summary}" + (f" ({one.because})" if one.because else "")
        for finding in one.findings:
            yield from (f"    {line}" for line in finding_lines(finding))


def _one_line_a_reason(checks: Sequence[Check]) -> Iterator[str]:
    reasons = dict.fromkeys(one.because for one in checks)
    for because in reasons:
        yield f"  {because}: {', '.join(one.fault for one in checks if one.because == because)}"
