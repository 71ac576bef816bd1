"""Terminal report of a container compared with its host."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from railwright.checks.finding import Finding
from railwright.diagnosis.fleet.container import Entered, Unlike
from railwright.report.pages.page import Page
from railwright.report.text.comparison import render_comparison
from railwright.report.text.findings import finding_lines
from railwright.results.compare import Comparison


def render_container(
    entered: Entered, differ: Sequence[Unlike], inside: Sequence[Finding], compared: Comparison | None, console: Console
) -> None:
    """Print the namespaces entered, the differences, the container's own faults, and all paths; A is the host."""
    page = Page(console)
    page.line(f"container of process {entered.pid} ({entered.program}) against this host", "bold")
    page.line(f"taken      {', '.join(entered.taken)}")
    for item in entered.left:
        page.line(f"not taken  {item}")
    for side, reason in entered.troubles.items():
        page.line(f"{side}: {reason}", "bold yellow")
    page.heading("Differences" if differ else "The facts read of the machine do not differ")
    for difference in differ:
        host, container = _format_value(difference.host), _format_value(difference.container)
        page.line(f"{difference.what}: {host} on the host, {container} in the container", indent=2)
    page.heading("Faults of the container alone" if inside else "The container has no fault of its own")
    for finding in inside:
        page.line(finding.fault, "bold", indent=2)
        for line in finding_lines(finding):
            page.line(line, indent=4)
    page.console.print()
    if compared is None:
        page.line("Nothing to compare.", "bold")
    else:
        render_comparison(compared, console, _meaning(compared, inside))


def _meaning(compared: Comparison, inside: Sequence[Finding]) -> str:
    """Explain the exit status when a fault of the container decided it, else return an empty string."""
    slower = any(point.statement == "slower" for point in compared.points)
    has_fault = any(finding.certainty in ("seen", "likely") for finding in inside)
    return "the container has a fault that its host does not have" if has_fault and not slower else ""


def _format_value(value: str | None) -> str:
    return "absent" if value is None else value
