"""`railwright audit`: checks the settings of a machine, or of several similar ones, for known faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.options.completion import complete_check, complete_shape
from railwright.options.hosts import hosts_option, ssh_config_option
from railwright.options.machine import FROM_FLAGS, MachineCommand, load_machine
from railwright.options.output import json_option, print_answer

if TYPE_CHECKING:
    from railwright.checks.check import Check, Facts
    from railwright.checks.known_bad import KnownBad
    from railwright.checks.outcome import CheckOutcome

_MAX_BAD_BYTES = 2**20


@click.command(cls=MachineCommand)
@click.option(
    *FROM_FLAGS,
    "machine",
    metavar="DIR|FILE|SHAPE",
    shell_complete=complete_shape,
    help="A captured directory or .jsonl, a saved .json, or a shape with changes. Several may be given."
    " Default: this machine.",
)
@hosts_option("Audit these hosts, reached by ssh or given as netns:NAME.")
@ssh_config_option
@click.option(
    "--known-bad", "bad_file", metavar="FILE", help="A list of bad firmware and software, like examples/known-bad.toml."
)
@click.option("--fix", metavar="FAULT", shell_complete=complete_check, help="Show the settings that fix this fault.")
@click.option("--apply", "how", flag_value="apply", help="With --fix: change it until the next reboot.")
@click.option("--hold", "how", flag_value="hold", help="With --fix: change it until Ctrl-C or a signal, then undo it.")
@click.option("--undo", "how", flag_value="undo", help="With --fix: undo what --apply changed.")
@click.option("--yes", is_flag=True, help="With --apply: do not ask before the change.")
@json_option("Print one JSON record for each fault, and with several machines for each difference.")
@click.argument("more", nargs=-1, metavar="[DIR|FILE]...")
def audit(
    machine: str | None,
    hosts: str | None,
    ssh_config: str | None,
    bad_file: str | None,
    fix: str | None,
    how: str | None,
    yes: bool,
    as_json: bool,
    more: tuple[str, ...],
) -> int:
    """Find settings that keep paths from their limit, with evidence and remedy.

    Several machines are compared with each other: the values of the majority are the baseline.

    \b
    railwright audit
    railwright audit --from capture.jsonl
    railwright audit --from captures/*.jsonl
    railwright audit --hosts host0,host1,host2
    railwright audit --known-bad known-bad.toml
    railwright audit --fix numa_balancing_on
    """
    from railwright.verbs.audit.fix import audit_fix
    from railwright.verbs.audit.fleet import audit_fleet, audit_hosts
    from railwright.workflows.hosts import resolve_hosts

    if yes and (fix is None or how != "apply"):
        raise UsageError("--yes requires --fix FAULT --apply", hint="write --fix FAULT --apply --yes")
    if fix is not None or how is not None:
        if fix is None or machine is not None or hosts is not None or bad_file is not None or as_json or more:
            raise UsageError(
                "--fix FAULT applies to a single fault of this machine",
                hint="give it alone, with --apply, --hold or --undo",
            )
        return audit_fix(fix, how or "show", is_agreed=yes)
    reached = resolve_hosts(hosts, ssh_config=ssh_config)
    if reached is not None and (machine is not None or more):
        raise UsageError("--hosts and --from exclude each other", hint="give one of the two")
    if more and reached is None and machine is None:
        raise UsageError(f"{more[0][:60]!r} requires --from", hint="write --from before the first machine")
    bad = _load_known_bad(bad_file)
    if reached is not None:
        return audit_hosts(reached, as_json, bad)
    if machine is not None and more:
        return audit_fleet((machine, *more), as_json, bad)
    return _audit(machine, as_json, bad)


def _load_known_bad(file: str | None) -> tuple[KnownBad, ...]:
    from pathlib import Path

    from railwright.checks.known_bad import decode_known_bad
    from railwright.reading import read_bounded

    return () if file is None else decode_known_bad(read_bounded(Path(file), _MAX_BAD_BYTES), file[:200])


def _audit(machine: str | None, as_json: bool, bad: Sequence[KnownBad]) -> int:
    """Audit one machine, print the outcomes, and return the exit status."""
    from railwright.checks.check import Facts
    from railwright.checks.known_bad import check_known_bad
    from railwright.faults.every_check import EVERY_CHECK
    from railwright.launch.environment import read_environment
    from railwright.report.text.findings import audit_lines
    from railwright.topology.sources.look import look_with_tools

    # Our environment applies only to this machine.
    topology = look_with_tools() if machine is None else load_machine(machine)
    facts = Facts(topology=topology, environment=read_environment() if machine is None else {})
    outcomes = [_run_check(check, facts) for check in EVERY_CHECK if not check.needs_results or facts.environment]
    outcomes += [check_known_bad(entry, topology) for entry in bad]
    print_answer(outcomes, lambda: audit_lines(topology.name, outcomes), as_json=as_json)
    return _status(outcomes)


def _run_check(check: Check, facts: Facts) -> CheckOutcome:
    """Run a check. If it finds a fault, add the paths that the fault slows, according to the limits."""
    from msgspec.structs import replace

    from railwright.checks.outcome import look_for
    from railwright.faults.slowed import find_slowed

    outcome = look_for(check, facts)
    if check.mend is None or not any(finding.certainty != "could not look" for finding in outcome.findings):
        return outcome
    return replace(outcome, slows=find_slowed(check.mend, facts.topology))


def _status(outcomes: Sequence[CheckOutcome]) -> int:
    """Return 1 for a fault, 3 if something could not be checked or no check applied, and otherwise 0."""
    certainties = {finding.certainty for outcome in outcomes for finding in outcome.findings}
    if certainties & {"seen", "likely"}:
        return EXIT_SLOW
    states = {outcome.state for outcome in outcomes}
    # A possible fault may be intended, so it is shown but does not change the status.
    blind = "could not look" in states | certainties
    return EXIT_UNJUDGED if blind or not states & {"fine", "found"} else EXIT_OK
