"""Output of a comparison of two runs."""

from __future__ import annotations

import click

from railwright.report.formats.records import comparison_lines
from railwright.report.pages.page import standard_output
from railwright.report.text.comparison import render_comparison
from railwright.results.compare import Comparison


def show(comparison: Comparison, *, as_json: bool) -> int:
    """Print the comparison and return its exit status."""
    if as_json:
        for line in comparison_lines(comparison):
            click.echo(line)
    else:
        render_comparison(comparison, standard_output())
    return comparison.exit_status
