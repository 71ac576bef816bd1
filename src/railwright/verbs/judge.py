"""`railwright judge FILE`: judges a results file again with the current limits, on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from railwright.errors import UsageError
from railwright.options.help import Command
from railwright.options.measuring import accept_option, records_option, require_option, verbose_option

if TYPE_CHECKING:
    from pathlib import Path

    from railwright.verbs.prove.kept import KeptCluster


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
    """Judge RESULTS again and write its reports, by default next to it.

    RESULTS is a results.jsonl, its folder, or the folder of `railwright prove --hosts`, whose hosts and pairs are
    judged together.
    """
    from pathlib import Path

    from railwright.results.store import RESULTS_NAME, load
    from railwright.workflows.acceptance import load_spec
    from railwright.workflows.judged import report
    from railwright.workflows.requirements import load_requirements

    path = Path(results)
    if path.is_dir() and not (path / RESULTS_NAME).exists():
        from railwright.verbs.prove.kept import read_kept

        if (kept := read_kept(path)) is not None:
            return _judge_hosts(path, kept, output, verbose, require=require, accept=accept, as_json=as_json)
    spec = load_spec(accept, require)
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


def _judge_hosts(path: Path, kept: KeptCluster, output: str | None, verbose: bool, **given: Any) -> int:  # noqa: ANN401
    """Judge the folder of a proof of several hosts. Raises UsageError for options of a single host."""
    from railwright.options.arguments import Arguments
    from railwright.verbs.prove.hosts import judge_hosts

    if output is not None or verbose:
        option = "--verbose" if verbose else "--output"
        hint = "leave it out: the pages of the folder are written again, and each host has its own below hosts/"
        raise UsageError(f"{option} does not work with the folder of several hosts", hint=hint)
    return judge_hosts(path, kept, Arguments(**given))
