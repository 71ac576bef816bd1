"""Every fault we know, looked for in the settings of a machine."""

from __future__ import annotations

import click

from railwright.diagnosis.diagnose import exit_status
from railwright.errors import EXIT_OK, EXIT_UNJUDGED
from railwright.faults.fault import Facts
from railwright.faults.registry import FAULTS
from railwright.launch.context import environment
from railwright.report.findings_text import finding_lines
from railwright.report.records import FindingRecord, json_line
from railwright.topology.sources.load import load


def audit(machine: str | None, as_json: bool) -> int:
    """Print the findings; the exit status."""
    # What is set here says something of this machine only.
    facts = Facts(topology=load(machine), environment=environment() if machine is None else {})
    looked = [fault for fault in FAULTS if not fault.needs_results or facts.environment]
    found = [(fault, fault.look(facts)) for fault in looked]
    findings = [finding for _, some in found for finding in some]
    if as_json:
        for finding in findings:
            click.echo(json_line(FindingRecord(finding=finding)))
    else:
        click.echo(f"audit of {facts.topology.name}: {len(found)} faults looked for, {len(findings)} findings")
        for fault, some in found:
            click.echo(f"\n{fault.name}: {fault.summary}")
            for finding in some:
                for line in finding_lines(finding):
                    click.echo(f"  {line}")
            if not some:
                click.echo("  not found")
    status = exit_status((), findings)
    return EXIT_OK if status == EXIT_UNJUDGED and not findings else status
