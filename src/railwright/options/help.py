"""Help with the examples first and the options in sections."""

from __future__ import annotations

import inspect

import click

_PREFORMATTED = "\b\n"
FIRST_SECTION, LAST_SECTION = "Options", "Output"


class Command(click.Command):
    """A command whose help begins with its examples and has its options in the sections of `combine`."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the first paragraph, the examples, and then the rest."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        examples = [text for text in paragraphs if text.startswith(_PREFORMATTED)]
        texts = [text for text in paragraphs if text and text not in examples]
        _write_text(formatter, texts[:1])
        if examples:
            with formatter.section("Examples"):
                for line in "\n".join(text.removeprefix(_PREFORMATTED) for text in examples).splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        _write_text(formatter, texts[1:])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section of options, those without one first, and the commands of a group."""
        sections: dict[str, list[tuple[str, str]]] = {FIRST_SECTION: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", FIRST_SECTION), []).append(record)
        for name, records in sorted(sections.items(), key=lambda section: section[0] == LAST_SECTION):
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _write_text(formatter: click.HelpFormatter, texts: list[str]) -> None:
    for text in texts:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)
