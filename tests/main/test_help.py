"""The --help output of every verb and its subcommands."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from railwright import verbs
from railwright.main import VERBS, cli


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


def test_a_folder_of_verbs_holds_verbs_alone() -> None:
    assert {module.name for module in pkgutil.iter_modules(verbs.__path__)} == set(VERBS)


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


@pytest.mark.parametrize("words", [*commands(cli)], ids=" ".join)
def test_examples_come_first_and_every_option_stands_once(words: tuple[str, ...]) -> None:
    output = CliRunner().invoke(cli, [*words, "--help"]).output
    options = output.index("--help ")
    if "Examples:" in output:
        assert output.index("Examples:") < output.index("\nOptions:") < options
    shown = [line for line in output.splitlines() if line.startswith("  -")]
    assert len(shown) == len(set(shown))


def test_options_are_in_sections_and_output_is_the_last() -> None:
    output = CliRunner().invoke(cli, ["prove", "--help"]).output
    sections = [line[:-1] for line in output.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections[:2] == ["Examples", "Options"]
    assert {"Measuring", "Hosts", "Verdict", "Kubernetes", "Containers"} <= set(sections)
    assert sections[-1] == "Output"
    assert len(sections) == len(set(sections))
