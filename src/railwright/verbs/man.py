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
    """
    from railwright.options.man_page import list_commands, name_page, render_man_page

    top = context.find_root().command
    root = click.Context(top, info_name="railwright", **top.context_settings)
    pages = {name_page(each): each for each in list_commands(root)}
    if output is None:
        click.echo(render_man_page(_find(pages, words), __version__), nl=False)
        return EXIT_OK
    _write(output, {f"{name}.1": render_man_page(each, __version__) for name, each in pages.items()})
    click.echo(f"wrote {len(pages)} pages into {output}")
    return EXIT_OK


def _find(pages: dict[str, click.Context], words: tuple[str, ...]) -> click.Context:
    from railwright.errors import unknown_name

    name = "-".join(("railwright", *words))
    if name not in pages:
        known = (page.removeprefix("railwright-").replace("-", " ") for page in pages if page != "railwright")
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
