"""`railwright man [VERB]...`: prints the manual page of a verb, or writes those of all."""

from __future__ import annotations

import click

from railwright import __version__
from railwright.errors import EXIT_OK
from railwright.options.help import Command


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[VERB]...")
@click.option("--output", "-O", metavar="DIR", help="Write the pages of all verbs into this folder instead.")
@click.pass_context
def man(context: click.Context, words: tuple[str, ...], output: str | None) -> int:
    """Print the manual page of a verb, or of railwright itself.

    \b
    railwright man prove | man -l -
    railwright man --output ~/.local/share/man/man1 && man railwright-prove

    A wheel installs the pages, so that `man railwright-prove` finds them if its commands are on PATH.
    """
    from railwright.options.man_page import render_man_pages

    pages = render_man_pages(context.find_root().command, __version__)
    if output is None:
        click.echo(_find(pages, words), nl=False)
        return EXIT_OK
    _write(output, pages)
    click.echo(f"wrote {len(pages)} pages into {output}")
    return EXIT_OK


def _find(pages: dict[str, str], words: tuple[str, ...]) -> str:
    from railwright.errors import unknown_name

    name = f"{'-'.join(('railwright', *words))}.1"
    if name not in pages:
        known = (page[len("railwright-") : -len(".1")].replace("-", " ") for page in pages if page != "railwright.1")
        raise unknown_name("verb", " ".join(words), known)
    return pages[name]


def _write(folder: str, pages: dict[str, str]) -> None:
    """Write the pages. Raises UsageError if the folder cannot be made."""
    from pathlib import Path

    from railwright.errors import UsageError
    from railwright.options.output import write

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}", hint="choose another folder") from error
    for name, text in pages.items():
        write(str(Path(folder) / name), text)
