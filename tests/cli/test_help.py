"""What --help says, of every verb and of the verbs under it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from railwright.cli.main import VERBS, cli


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*words, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


def test_every_verb_is_looked_at() -> None:
    assert {words[0] for words in commands(cli)} == set(VERBS)
    assert any(len(words) > 1 for words in commands(cli))


def command_at(words: tuple[str, ...]) -> click.Command:
    found: click.Command = cli
    for word in words:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word) or pytest.fail(f"there is no {word}")
    return found


@pytest.mark.parametrize("words", list(commands(cli)), ids=" ".join)
def test_the_work_of_a_command_takes_what_the_command_gives(words: tuple[str, ...]) -> None:
    command = command_at(words)
    if command.callback is None:
        assert isinstance(command, click.Group)
        return
    module, _, function = command.callback.__qualname__.partition(":")
    work = inspect.signature(getattr(importlib.import_module(f"railwright.verbs.{module}"), function))
    work.bind(**{param.name: None for param in command.params})


@pytest.mark.parametrize("words", [(), *commands(cli)], ids=" ".join)
def test_no_help_shows_what_was_meant_for_the_formatter(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*words, "--help"])
    assert done.exit_code == 0
    assert "\\" not in done.output
    assert "\b" not in done.output


@pytest.mark.parametrize("verb", ["limits", "explain", "run"])
def test_each_example_stands_on_a_line_of_its_own(verb: str) -> None:
    lines = CliRunner().invoke(cli, [verb, "--help"]).output.splitlines()
    examples = [line for line in lines if line.startswith(f"  railwright {verb} ")]
    assert len(examples) >= 2
    assert all(line.count("railwright") == 1 for line in examples)
