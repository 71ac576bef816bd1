"""`railwright judge FILE`: judges a results file again with the current limits, on any machine."""

from __future__ import annotations

import click

from railwright.errors import UsageError
from railwright.options.help import Command
from railwright.options.measuring import accept_option, records_option, require_option, verbose_option


@click.command(cls=Command)
@click.argument("results", type=click.Path())
@click.option("--output", "-O", type=click.Path(), help="Folder for the reports.")
@require_option
@accept_option
@verbose_option
@records_option
def judge(
    results: str, output: str | None, require: tuple[str, ...], accept: str | None, verbose: bool, as_json: bool
) -> int:
    """Judge RESULTS (a results.jsonl or its folder) again and write its reports, by default next to it."""
    from pathlib import Path

    from railwright.results.store import RESULTS_NAME, load
    from railwright.workflows.acceptance import load_spec
    from railwright.workflows.judged import report
    from railwright.workflows.requirements import load_requirements

    path, spec = Path(results), load_spec(accept, require)
    file = load(path)
    folder = Path(output) if output else path if path.is_dir() else path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot write reports to {folder}: {error.strerror}"
        raise UsageError(reason, hint="choose another folder with --output") from error
    return report(
        file,
        folder,
        as_json=as_json,
        verbose=verbose,
        required=load_requirements(require),
        spec=spec,
        results=path / RESULTS_NAME if path.is_dir() else path,
    )
