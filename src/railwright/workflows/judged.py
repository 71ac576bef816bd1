"""Output of a judged run: on the terminal, as report.html and as metrics.txt."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.acceptance.agreement import Spec
from railwright.diagnosis.acceptance.lines import LineState
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Diagnosis, State
from railwright.diagnosis.verdicts.policy import Requirement
from railwright.errors import RailwrightError
from railwright.options.output import write
from railwright.report.formats.openmetrics import render_openmetrics
from railwright.report.formats.records import json_lines
from railwright.report.pages.page import standard_output
from railwright.report.pages.run import render_html
from railwright.report.text.acceptance import summarize
from railwright.report.text.run import render
from railwright.report.view import View, build_view
from railwright.results.records import ResultFile
from railwright.results.store import RESULTS_NAME
from railwright.terminal import drop_output
from railwright.workflows.acceptance import Evidence, print_sheet
from railwright.writing import PUBLIC, write_file

_STATE_OF_SHEET: dict[LineState, State] = {"met": "ok", "not met": "slow", "not judged": "unknown"}


def report(file: ResultFile, output: Path, *, as_json: bool, required: tuple[Requirement, ...] = (),
           spec: Spec | None = None, results: Path | None = None, verbose: bool = False) -> int:  # fmt: skip
    """Judge a run, write report.html and metrics.txt into `output`, print the run, and return the exit status.

    With `spec` the acceptance sheet decides the status, and its verdict comes first. The sheet
    cites `results`, or by default the file in `output`.
    The files are written first. A failure of one output does not prevent the others.
    """
    diagnosis = diagnose(file, DECLARATIONS, required)
    view = view_file(file, diagnosis)
    if spec is not None:
        evidence = Evidence(spec, output)
        evidence.add(results or output / RESULTS_NAME, file, diagnosis)
        sheet = evidence.sheet()
        note(f"wrote {evidence.page}")
        judged = replace(diagnosis, exit_status=sheet.exit_status)
        view = view._replace(
            diagnosis=judged,
            state=_STATE_OF_SHEET[sheet.state],
            answer=summarize(sheet),
            relative=f"{view.answer}. {view.relative}".rstrip(". "),
            closing="The acceptance sheet decides the exit status.",
        )
    troubles: list[Exception] = []
    for name, make in _pages(view).items():
        try:
            _write(output / name, make())
        except Exception as trouble:  # even an internal error in a page must not prevent the report on the terminal
            troubles.append(trouble)
    show(view, as_json=as_json, verbose=verbose)
    if spec is not None:
        with _reader_may_leave():
            print_sheet(sheet, as_json=as_json)
    if troubles:
        raise troubles[0]
    return view.diagnosis.exit_status


def view_file(file: ResultFile, diagnosis: Diagnosis) -> View:
    """Build the view of a judged file that all reports render."""
    return build_view(file.run, diagnosis, file.end, file.results)


def write_page(file: ResultFile, diagnosis: Diagnosis, folder: Path) -> None:
    """Write report.html of a judged file into a folder. Raises RailwrightError."""
    write(str(folder / "report.html"), render_html(view_file(file, diagnosis)))


def _pages(view: View) -> dict[str, Callable[[], str]]:
    return {"report.html": lambda: render_html(view), "metrics.txt": lambda: render_openmetrics(view)}


def show(view: View, *, as_json: bool, verbose: bool = False) -> None:
    """Print a judged run."""
    with _reader_may_leave():
        if as_json:
            for line in json_lines(view):
                click.echo(line)
        else:
            render(view, standard_output(), DECLARATIONS, verbose=verbose)


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Ignore a closed pipe, as of `| head`, or a lost terminal, so that the exit status is still the measurement's."""
    try:
        yield
        click.echo(nl=False)
    except (BrokenPipeError, SystemExit):  # rich ends the program with SystemExit when the pipe is broken
        drop_output()
    except OSError as error:
        if error.errno != errno.EIO:  # a full disk matters
            raise
        drop_output()


def _write(path: Path, text: str) -> None:
    """Write a report atomically, so that a partial one never replaces an older one. Raises RailwrightError."""
    try:
        write_file(path, text, PUBLIC)
    except OSError as error:
        hint = "the results are kept; `railwright judge` writes reports again"
        raise RailwrightError(f"cannot write {path}: {error.strerror}", hint=hint) from error
    note(f"wrote {path}")


def note(text: str) -> None:
    """Print a line on standard error. Write errors are ignored, so that a measurement continues."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)
