"""Help with the examples first and the options in sections."""

from __future__ import annotations

import inspect

import click

_PREFORMATTED = "\b\n"
_FIRST, _LAST = "Options", "Output"


class Command(click.Command):
    """A command whose help begins with its examples and has its options in the sections of `combine`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Its errors then know the command, which click leaves out of some."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the first paragraph, the examples, and then the rest."""
        first, examples, rest = split_help(inspect.cleandoc(self.help or ""))
        _write_text(formatter, first)
        if examples:
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        for text in rest:
            _write_text(formatter, text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section of options, and the commands of a group."""
        for name, records in group_options(self, ctx).items():
            with formatter.section(name):
                formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def split_help(text: str) -> tuple[str, list[str], list[str]]:
    """Split a help text into its first paragraph, the lines of its examples, and the other paragraphs."""
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph]
    examples = [paragraph for paragraph in paragraphs if paragraph.startswith(_PREFORMATTED)]
    texts = [paragraph for paragraph in paragraphs if paragraph not in examples]
    lines = [line for paragraph in examples for line in paragraph.removeprefix(_PREFORMATTED).splitlines()]
    return "".join(texts[:1]), lines, texts[1:]


def group_options(command: click.Command, context: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return names and help of the options by section: first those without a section, last those of the output."""
    sections: dict[str, list[tuple[str, str]]] = {_FIRST: []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            sections.setdefault(getattr(parameter, "section", _FIRST), []).append(record)
    found = sorted(sections.items(), key=lambda section: section[0] == _LAST)
    return {name: records for name, records in found if records}


def _write_text(formatter: click.HelpFormatter, text: str) -> None:
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text)
