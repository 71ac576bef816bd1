"""Every fault we know, looked for in the settings of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from railwright.checks.check import Check, Facts
from railwright.checks.known_bad import KnownBad, decode_known_bad, known_bad
from railwright.checks.outcome import CheckOutcome, State, look_for
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.faults.every_check import EVERY_CHECK
from railwright.faults.slowed import slowed
from railwright.launch.environment import environment
from railwright.report.formats.json_line import json_line
from railwright.report.text.findings import finding_lines, slowed_lines, way_lines
from railwright.topology.sources.look import looked_over
from railwright.topology.sources.root import read_bounded
from railwright.verbs.audit_fix import audit_fix
from railwright.verbs.audit_fleet import audit_fleet, audit_hosts
from railwright.verbs.hosts import the_hosts
from railwright.verbs.machine import the_machine

_MOST_BAD_BYTES = 2**20
_TOLD: dict[State, str] = {
    "found": "found",
    "could not look": "could not be looked for",
    "fine": "looked for and fine",
    "does not apply": "do not apply",
}


def audit(
    machine: str | None,
    hosts: str | None,
    ssh_config: str | None,
    bad_file: str | None,
    fix: str | None,
    how: str | None,
    as_json: bool,
    more: tuple[str, ...],
) -> int:
    """Print what was looked for and what came of it; the exit status."""
    if fix is not None or how is not None:
        if fix is None or machine is not None or hosts is not None or bad_file is not None or as_json or more:
            raise UsageError(
                "--fix FAULT is for one fault of this machine", hint="give it alone, with --apply, --hold or --undo"
            )
        return audit_fix(fix, how or "show")
    reached = the_hosts(hosts, None, None, ssh_config, None)
    if reached is not None and (machine is not None or more):
        raise UsageError("--hosts and --from are two ways to name machines", hint="give one of the two")
    if reached is not None:
        return audit_hosts(reached, as_json, _bad(bad_file))
    if more and machine is None:
        raise UsageError(f"what {more[0][:60]!r} is for is not said", hint="write --from before the first machine")
    if machine is not None and more:
        return audit_fleet((machine, *more), as_json, _bad(bad_file))
    # What is set here says something of this machine only.
    topology = looked_over() if machine is None else the_machine(machine)
    facts = Facts(topology=topology, environment=environment() if machine is None else {})
    outcomes = [_looked(check, facts) for check in EVERY_CHECK if not check.needs_results or facts.environment]
    outcomes += [known_bad(entry, facts.topology) for entry in _bad(bad_file)]
    lines = map(json_line, outcomes) if as_json else _text(facts.topology.name, outcomes)
    for line in lines:
        click.echo(line)
    return _status(outcomes)


def _bad(file: str | None) -> tuple[KnownBad, ...]:
    return decode_known_bad(read_bounded(Path(file), _MOST_BAD_BYTES), file[:200]) if file is not None else ()


def _looked(check: Check, facts: Facts) -> CheckOutcome:
    """What came of a check; where it found something, what the limits say that it costs."""
    told = look_for(check, facts)
    if check.mend is None or not any(one.certainty != "could not look" for one in told.findings):
        return told
    return replace(told, slows=slowed(check.mend, facts.topology))


def _status(outcomes: Sequence[CheckOutcome]) -> int:
    """1 for what is wrong; else 3 if something could not be looked at, or nothing applied."""
    certainties = {finding.certainty for one in outcomes for finding in one.findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    states = {one.state for one in outcomes}
    # What is only possible may be meant: it is shown, and nothing is wrong.
    blind = "could not look" in states | certainties
    return EXIT_UNJUDGED if blind or not states & {"fine", "found"} else EXIT_OK


def _text(name: str, outcomes: Sequence[CheckOutcome]) -> Iterator[str]:
    by_state = {state: [one for one in outcomes if one.state == state] for state in _TOLD}
    counts = ", ".join(f"{len(some)} {_TOLD[state]}" for state, some in by_state.items())
    yield f"audit of {name}, {len(outcomes)} faults: {counts}"
    for state, some in by_state.items():
        if some:
            yield ""
            yield f"{_TOLD[state]}:"
        yield from _one_line_a_reason(some) if state == "does not apply" else _one_by_one(some)
    if not by_state["fine"] and not by_state["found"]:
        yield ""
        yield "None of them could be looked for here: this says nothing of the machine."


def _one_by_one(outcomes: Sequence[CheckOutcome]) -> Iterator[str]:
    for one in outcomes:
        yield f"  {one.fault}: {one.summary}" + (f" ({one.because})" if one.because else "")
        for finding in one.findings:
            yield from (f"    {line}" for line in finding_lines(finding))
        yield from (f"      {line}" for line in slowed_lines(one.slows))
        for way in one.checklist:
            yield from (f"    {line}" for line in way_lines(way))


def _one_line_a_reason(outcomes: Sequence[CheckOutcome]) -> Iterator[str]:
    reasons = dict.fromkeys(one.because for one in outcomes)
    for because in reasons:
        yield f"  {because}: {', '.join(one.fault for one in outcomes if one.because == because)}"
