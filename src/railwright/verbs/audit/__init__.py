"""`railwright audit`: looks for every fault we know in the settings of a machine, or of many that should be alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.hosts import ssh_config_option
from railwright.options.machine import FROM_FLAGS, MachineCommand, load_machine
from railwright.options.output import json_option, print_answer

if TYPE_CHECKING:
    from railwright.checks.check import Check, Facts
    from railwright.checks.known_bad import KnownBad
    from railwright.checks.outcome import CheckOutcome

_MOST_BAD_BYTES = 2**20


@click.command(cls=MachineCommand)
@click.option(
    *FROM_FLAGS,
    "machine",
    metavar="DIR|FILE|SHAPE",
    help="A captured directory or .jsonl, a saved .json, or a shape with changes. More may follow."
    " Default: this machine.",
)
@click.option("--hosts", metavar="HOST,HOST...", help="Audit these hosts, over ssh or in netns:NAME.")
@ssh_config_option
@click.option(
    "--known-bad", "bad_file", metavar="FILE", help="A list of bad firmware and software, like examples/known-bad.toml."
)
@click.option("--fix", metavar="FAULT", help="Show the one setting of the kernel that would mend this fault here.")
@click.option("--apply", "how", flag_value="apply", help="With --fix: change it, until the machine starts anew.")
@click.option(
    "--hold", "how", flag_value="hold", help="With --fix: change it, until Ctrl-C or another end, and undo it."
)
@click.option("--undo", "how", flag_value="undo", help="With --fix: give back what --apply changed.")
@json_option("Print one JSON record for each fault, and of several machines for each difference.")
@click.argument("more", nargs=-1, metavar="[DIR|FILE]...")
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
    """The settings that keep paths from their limit, each with evidence and remedy.

    Several machines are held against each other: what most of them have is the reference for the others.

    \b
    railwright audit
    railwright audit --from capture.jsonl
    railwright audit --from captures/*.jsonl
    railwright audit --hosts host0,host1,host2
    railwright audit --known-bad known-bad.toml
    railwright audit --fix numa_balancing_on
    """
    from pathlib import Path

    from railwright.checks.known_bad import decode_known_bad
    from railwright.runs.hosts import resolve_hosts
    from railwright.topology.sources.root import read_bounded
    from railwright.verbs.audit.fix import audit_fix
    from railwright.verbs.audit.fleet import audit_fleet, audit_hosts

    if fix is not None or how is not None:
        if fix is None or machine is not None or hosts is not None or bad_file is not None or as_json or more:
            raise UsageError(
                "--fix FAULT is for one fault of this machine", hint="give it alone, with --apply, --hold or --undo"
            )
        return audit_fix(fix, how or "show")
    reached = resolve_hosts(hosts, ssh_config=ssh_config)
    if reached is not None and (machine is not None or more):
        raise UsageError("--hosts and --from are two ways to name machines", hint="give one of the two")
    if more and reached is None and machine is None:
        raise UsageError(f"what {more[0][:60]!r} is for is not said", hint="write --from before the first machine")
    bad: tuple[KnownBad, ...] = ()
    if bad_file is not None:
        bad = decode_known_bad(read_bounded(Path(bad_file), _MOST_BAD_BYTES), bad_file[:200])
    if reached is not None:
        return audit_hosts(reached, as_json, bad)
    if machine is not None and more:
        return audit_fleet((machine, *more), as_json, bad)
    return _audit(machine, as_json, bad)


def _audit(machine: str | None, as_json: bool, bad: Sequence[KnownBad]) -> int:
    """Print what was looked for in one machine and what came of it; the exit status."""
    from railwright.checks.check import Facts
    from railwright.checks.known_bad import known_bad
    from railwright.faults.every_check import EVERY_CHECK
    from railwright.launch.environment import read_environment
    from railwright.report.text.findings import audit_lines
    from railwright.topology.sources.look import looked_over

    # What is set here says something of this machine only.
    topology = looked_over() if machine is None else load_machine(machine)
    facts = Facts(topology=topology, environment=read_environment() if machine is None else {})
    outcomes = [_looked(check, facts) for check in EVERY_CHECK if not check.needs_results or facts.environment]
    outcomes += [known_bad(entry, topology) for entry in bad]
    print_answer(outcomes, lambda: audit_lines(topology.name, outcomes), as_json=as_json)
    return _status(outcomes)


def _looked(check: Check, facts: Facts) -> CheckOutcome:
    """What came of a check; where it found something, what the limits say that it costs."""
    from msgspec.structs import replace

    from railwright.checks.outcome import look_for
    from railwright.faults.slowed import slowed

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
