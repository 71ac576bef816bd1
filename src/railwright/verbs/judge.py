"""A results file judged again, with today's limits."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError
from railwright.results.store import RESULTS_NAME, load
from railwright.verbs.acceptance import the_spec
from railwright.verbs.judged import report
from railwright.verbs.requirements import the_requirements


def judge(
    results: str, output: str | None, require: tuple[str, ...], accept: str | None, verbose: bool, as_json: bool
) -> int:
    """Write and print the reports; the exit status."""
    path, spec = Path(results), the_spec(accept, require)
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
        required=the_requirements(require),
        spec=spec,
        results=path / RESULTS_NAME if path.is_dir() else path,
    )
