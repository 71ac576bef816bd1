"""Errors of a job, and texts that have nothing to judge, as plain text, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.checks.finding import Finding
from railwright.explain.noted import Noted
from railwright.report.text import wording
from railwright.report.text.collectives import labelled
from railwright.report.text.explain import format_findings
from railwright.report.text.nccl import failure_lines


def render_errors(errors: Sequence[Finding]) -> str:
    """Render the errors of a job, each with its line and the next step."""
    return "\n".join(failure_lines(errors))


def render_noted(noted: Noted) -> str:
    """Render a text that has nothing to judge: why, what it tells, and the next step."""
    lines = [wording.escape(noted.tool), ""]
    lines += labelled("verdict", f"unknown: {noted.says[0]}")
    lines += labelled("note", *noted.says[1:]) if noted.says[1:] else []
    lines += format_findings("findings on this machine", noted.findings)
    lines += labelled("next", noted.remedy) if noted.remedy else []
    return "\n".join([*lines, ""])
