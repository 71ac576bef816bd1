"""The options that say how an answer is given: as records, as a page; and the files that a user asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from railwright.errors import UsageError


def json_option(text: str = "Print the record that the text is made from.") -> Callable[[Any], Any]:
    """`--json`, given to the work as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def page_option(text: str) -> Callable[[Any], Any]:
    """`--output`, refused for a name that no browser would open as a page."""
    return click.option("--output", "-O", metavar="FILE.html", callback=_page, help=text)


def _page(_context: click.Context, _option: click.Parameter, output: str | None) -> str | None:
    if output is not None and not output.lower().endswith((".html", ".htm")):
        raise UsageError(f"{output[:200]!r} is not the name of a page", hint="--output writes HTML: name it FILE.html")
    return output


def print_answer(records: Iterable[object], text: Callable[[], str | Iterable[str]], *, as_json: bool) -> None:
    """Print the records as JSON, one a line, or else the text, which is made only then."""
    if as_json:
        from railwright.report.formats.json_line import json_line

        said: str | Iterable[str] = map(json_line, records)
    else:
        said = text()
    for line in [said] if isinstance(said, str) else said:
        click.echo(line)


def write(file: str, text: str) -> None:
    """Write the file. Raises UsageError."""
    from pathlib import Path

    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="choose another file") from error
