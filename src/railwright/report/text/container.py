"""A container beside its host on a terminal."""

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
    """What was entered, what differs there, the faults that it alone has, and all paths; A is the host."""
    page = Page(console)
    page.line(f"container of process {entered.pid} ({entered.program}) against this host", "bold")
    page.line(f"taken      {', '.join(entered.taken)}")
    for what in entered.left:
        page.line(f"not taken  {what}")
    for side, why in entered.troubles.items():
        page.line(f"{side}: {why}", "bold yellow")
    page.heading("Not alike" if differ else "Nothing that was read of the machine differs")
    for one in differ:
        page.line(f"{one.what}: {_told(one.host)} on the host, {_told(one.container)} in the container", indent=2)
    page.heading("Faults of the container alone" if inside else "The container has no fault that the host has not")
    for finding in inside:
        page.line(finding.fault, "bold", indent=2)
        for line in finding_lines(finding):
            page.line(line, indent=4)
    page.console.print()
    if compared is None:
        page.line("There is nothing to compare.", "bold")
    else:
        render_comparison(compared, console, _meaning(compared, inside))


def _meaning(compared: Comparison, inside: Sequence[Finding]) -> str:
    """What decided the exit status, where it is not the comparison; empty where it is."""
    slower = any(point.statement == "slower" for point in compared.points)
    own = any(one.certainty in ("seen", "likely") for one in inside)
    return "the container has a fault that its host has not" if own and not slower else ""


def _told(value: str | None) -> str:
    return "not there" if value is None else value
