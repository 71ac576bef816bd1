"""Completions of names for the shell: collectives, benchmarks, checks and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_collective(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """List the collectives that begin with a word."""
    from railwright.busbw import OPERATIONS

    return _select(OPERATIONS, begun)


def complete_benchmark(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """List the benchmarks that begin with a word, or with the last word of a list with commas."""
    from railwright.benchmarks.registry import EVERY

    before, comma, last = begun.rpartition(",")
    return [f"{before}{comma}{name}" for name in _select((benchmark.name for benchmark in EVERY), last)]


def complete_check(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """List the checks and faults that begin with a word."""
    from railwright.faults.every_check import EVERY_CHECK

    return _select((check.name for check in EVERY_CHECK), begun)


def complete_shape(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """List the shapes that begin with a word, or else files."""
    from click.shell_completion import CompletionItem

    from railwright.topology.shapes import ALIASES, SHAPES

    return [CompletionItem(name) for name in _select((*SHAPES, *ALIASES), begun)] or [
        CompletionItem(begun, type="file")
    ]


def complete_files(command: click.Command) -> None:
    """Let the shell complete files where a parameter of the command takes a file, a folder or a run."""
    for parameter in command.params:
        words = (parameter.metavar or "").replace("|", " ").replace(".", " ").strip("[]")
        if isinstance(parameter.type, click.types.StringParamType) and any(word in words for word in _FILES):
            parameter.type = click.Path()


_FILES = ("FILE", "DIR", "FOLDER", "PATH", "RUN", "SPEC", "RECORD")
"""The words of a metavar that stand for a file."""


def _select(names: Iterable[str], begun: str) -> list[str]:
    return sorted(name for name in names if name.lower().startswith(begun.lower()))
