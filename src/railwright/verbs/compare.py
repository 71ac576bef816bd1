"""Two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from railwright.errors import unknown_name
from railwright.report.formats.records import comparison_lines
from railwright.report.pages.page import standard_output
from railwright.report.text.comparison import render_comparison
from railwright.results.compare import compare
from railwright.results.store import load


def compare_runs(a: str, b: str, across: tuple[str, ...], as_json: bool) -> int:
    """Print the comparison; the exit status. Raises UsageError for a parameter that neither run has."""
    first, second = load(Path(a)), load(Path(b))
    known = {key for file in (first, second) for result in file.results for key in result.parameters}
    for name in across:
        if name not in known:
            raise unknown_name("parameter in these runs", name, known)
    comparison = compare(first, second, across)
    if as_json:
        for line in comparison_lines(comparison):
            click.echo(line)
    else:
        render_comparison(comparison, standard_output())
    return comparison.exit_status
