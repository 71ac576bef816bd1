"""Manual pages (roff, section 1), generated from the help of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from railwright.options.help import group_options, split_help

_EXIT_STATUS = (
    ("0", "All is as expected."),
    ("1", "Something is slow or misconfigured."),
    ("2", "A usage error or an internal error."),
    ("3", "Something could not be judged."),
)


def render_man_pages(top: click.Command, version: str) -> dict[str, str]:
    """Render the pages of a command and of all below it, by file name."""
    root = click.Context(top, info_name="railwright", **top.context_settings)
    return {f"{name_page(each)}.1": render_man_page(each, version) for each in list_commands(root)}


def list_commands(context: click.Context) -> Iterator[click.Context]:
    """Yield the command of a context, and all commands below it, each with its context."""
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from list_commands(click.Context(below, parent=context, info_name=name))


def name_page(context: click.Context) -> str:
    """Return the name of a command's page, like `railwright-lab-up`."""
    return context.command_path.replace(" ", "-")


def render_man_page(context: click.Context, version: str) -> str:
    """Render the page of a command."""
    return "\n".join(_lines(context, version)) + "\n"


def _lines(context: click.Context, version: str) -> Iterator[str]:
    command = context.command
    first, examples, rest = split_help(inspect.cleandoc(command.help or ""))
    yield f'.TH "{name_page(context).upper()}" "1" "" "railwright {version}" "Railwright"'
    yield ".SH NAME"
    yield f"{_escape(name_page(context))} \\- {_escape(command.get_short_help_str(limit=200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_escape(context.command_path)}"
    yield _escape(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for text in (first, *rest):
        yield ".PP"
        yield _escape(" ".join(text.split()))
    if examples:
        yield from (".SH EXAMPLES", ".nf", *map(_escape, examples), ".fi")
    for section, records in group_options(command, context).items():
        yield f".SH {section.upper()}"
        for names, text in records:
            yield from (".TP", f"\\fB{_escape(names)}\\fR", _escape(text) or " ")
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            page = f"\\fB{_escape(name_page(context))}\\-{_escape(name)}\\fR(1)"
            yield from (".TP", page, _escape(below.get_short_help_str(limit=200)))
    yield ".SH EXIT STATUS"
    for status, meaning in _EXIT_STATUS:
        yield from (".TP", f"\\fB{status}\\fR", meaning)
    if context.parent is not None:
        yield from (".SH SEE ALSO", f"\\fB{_escape(name_page(context.parent))}\\fR(1)")


def _escape(text: str) -> str:
    """Escape roff's signs; a line that begins with a dot or an apostrophe would be a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
