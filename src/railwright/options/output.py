"""The options for output formats (records, a page), and the output itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import click

from railwright.errors import UsageError
from railwright.options.group import combine
from railwright.terminal import fit, wants_colour


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

        for record in records:
            click.echo(json_line(record))
    else:
        print_text(text())


def print_text(text: str | Iterable[str]) -> None:
    """Print lines, wrapped at the width of a terminal, with verdicts in colour there."""
    for lines in [text] if isinstance(text, str) else text:
        for line in lines.split("\n"):
            fitted = fit(line.rstrip())
            click.echo(_paint(fitted) if wants_colour() else fitted)


_STYLES: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"fg": "cyan"}, ("ok", "met", "Accepted", "Right", "faster")),
    ({"fg": "yellow", "bold": True},
     ("slow", "bad", "Found", "not met", "Not accepted", "slower", "seen", "likely")),
    ({"fg": "magenta", "bold": True}, ("suspicious",)),
    ({"fg": "red", "bold": True}, ("failed",)),
    ({"dim": True}, ("unknown", "not judged", "not looked", "not run", "cannot tell")),
)  # fmt: skip
"""The styles of verdicts, like those of `report.text.wording`; a word always says the same."""
_STYLE_OF = {word: style for style, words in _STYLES for word in words}
_WORDS = "|".join(sorted(_STYLE_OF, key=len, reverse=True))
_FIRST = re.compile(rf"^(\s*(?:verdict +)?)({_WORDS})(?=[:,]|  |$)")
_LAST = re.compile(rf"((?:  |: ))({_WORDS})$")


def _paint(line: str) -> str:
    """Colour a verdict that begins or ends a line."""

    def coloured(found: re.Match[str]) -> str:
        return found[1] + click.style(found[2], **_STYLE_OF[found[2]])

    painted, count = _FIRST.subn(coloured, line, count=1)
    return painted if count else _LAST.sub(coloured, line)


def write(file: str, text: str) -> None:
    """Write a text file. Raises UsageError if that fails."""
    from railwright.writing import PUBLIC, write_file

    try:
        write_file(file, text, PUBLIC)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="choose another file") from error
