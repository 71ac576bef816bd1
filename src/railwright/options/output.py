"""The options for output formats (records, a page), and the output itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from railwright.errors import UsageError
from railwright.options.group import combine


def json_option(text: str = "Print the underlying record.") -> Callable[[Any], Any]:
    """Return the option `--json`, which sets `as_json`."""
    return combine(click.option("--json", "as_json", is_flag=True, help=text), section="Output")


def page_option(text: str) -> Callable[[Any], Any]:
    """Return the option `--output`, which accepts only the name of an HTML file."""
    return combine(
        click.option("--output", "-O", metavar="FILE.html", callback=_check_page, help=text), section="Output"
    )


def _check_page(_context: click.Context, _option: click.Parameter, output: str | None) -> str | None:
    if output is not None and not output.lower().endswith((".html", ".htm")):
        raise UsageError(f"--output must name an HTML page, got {output[:200]!r}", hint="write FILE.html")
    return output


def print_answer(records: Iterable[object], text: Callable[[], str | Iterable[str]], *, as_json: bool) -> None:
    """Print the records as JSON, one per line, or else the text, which is built only if needed."""
    if as_json:
        from railwright.report.formats.json_line import json_line

        output: str | Iterable[str] = map(json_line, records)
    else:
        output = text()
    for line in [output] if isinstance(output, str) else output:
        click.echo(line)


def write(file: str, text: str) -> None:
    """Write a text file. Raises UsageError if that fails."""
    from pathlib import Path

    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="choose another file") from error
