"""`railwright judge FILE`: a results file judged again, with today's limits, on any machine."""

from __future__ import annotations

from pathlib import Path

import click

from railwright.cli.measuring import report
from railwright.errors import UsageError


@click.command("judge")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--output", "-O", type=click.Path(path_type=Path), help="Folder for the reports.")
@click.option("--json", "as_json", is_flag=True, help="Print the judged records instead of the report.")
def COMMAND(results: Path, output: Path | None, as_json: bool) -> int:  # noqa: N802 - see cli/prove.py
    """Judge RESULTS (a results.jsonl or its folder) again and write its reports, beside it if no folder is given."""
    from railwright.results.store import load

    file = load(results)
    folder = output or (results if results.is_dir() else results.parent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot write reports to {folder}: {error.strerror}"
        raise UsageError(reason, hint="choose another folder with --output") from error
    return report(file, folder, as_json=as_json)
