"""A recorded run once more: the same words, ranks in the same order on the same hosts, the same environment.

What differs all the same, like versions, is told by the comparison of the two runs. A record may come from anywhere,
so what it names to be loaded or started is not taken from it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from railwright.errors import EXIT_OK, UsageError
from railwright.launch.environment import is_recorded, read_environment
from railwright.options.arguments import Arguments
from railwright.results.compare import compare
from railwright.results.records import Run
from railwright.results.store import load
from railwright.runs import compared as comparisons
from railwright.runs.judged import note
from railwright.runs.kubernetes import NAMES as OF_KUBERNETES
from railwright.runs.slurm import NAMES

_FILES = ("library", "solver", "program", "dat")
"""Options of benchmarks that name a file."""
_OURS = ("output", "as_json", "force", "verbose", "dry_run", "silence", "require", "repeat", *NAMES,
         *OF_KUBERNETES)  # fmt: skip
"""What is said anew, and is no part of how it was measured."""
_MOST_WORDS, _MOST_WORD_CHARACTERS = 1000, 16_384


def build_repetition(arguments: Arguments) -> Arguments:
    """What a record says, with what is said anew, in its environment. Raises UsageError."""
    if arguments.names or arguments.options:
        raise UsageError("--repeat takes benchmarks and options from the record", hint="leave out what it names")
    _refuse_overwriting(arguments.repeat, arguments.output)
    recorded = load(Path(arguments.repeat)).run
    for way, job in (("slurm", "a Slurm job"), ("kubernetes", "pods of Kubernetes")):
        if f"--{way}" in recorded.command and not getattr(arguments, way):
            raise UsageError(f"the record is of {job}", hint=f"say --{way} once more, and of what job")
    given = _recorded_options(recorded, click.get_current_context().command)
    _replay_environment(recorded.context.environment)
    return Arguments(**vars(arguments) | given | {"repeat": None})


def _recorded_options(run: Run, command: click.Command) -> dict[str, Any]:
    """The parameters of the recorded command. Raises UsageError for one that is not `run`, or that names files."""
    words = list(run.command)
    if words[1:2] != ["run"]:
        what = f"the record is of {' '.join(words[:2])[:80]!r}"
        raise UsageError(what, hint="--repeat takes one of railwright run")
    if len(words) > _MOST_WORDS or any(len(word) > _MOST_WORD_CHARACTERS for word in words):
        raise UsageError("the recorded command is longer than any that can be typed")
    try:
        given = command.make_context("run", words[2:], resilient_parsing=False).params
    except click.ClickException as error:
        what = f"the recorded command is not understood: {error.format_message()[:200]}"
        raise UsageError(what, hint="the record is of another version; write the command yourself") from error
    if given["repeat"] is not None:
        raise UsageError("the record is a repetition itself", hint=f"repeat the first: {given['repeat'][:200]}")
    named = [name for name in ("mpirun", "ssh_config") if given.get(name)]
    named += [text[:80] for text in given["options"] if text.partition("=")[0].rpartition(".")[2] in _FILES]
    if named:
        hint = f"look at it, and run it yourself: {' '.join(words)[:200]}"
        raise UsageError(f"the recorded command names a file to be loaded or started ({named[0]})", hint=hint)
    return {name: value for name, value in given.items() if name not in _OURS}


def _replay_environment(recorded: dict[str, str]) -> None:
    """Set what was set then and unset the rest of what is recorded. Raises UsageError for a value that names a file."""
    now = read_environment()
    for name, value in recorded.items():
        if not is_recorded(name) or "\0" in value:
            raise UsageError(f"the record sets {name[:60]!r}, which is no variable of a library that is measured")
        if "/" in value and now.get(name) != value:
            hint = f"look at it, and set it yourself: export {name}={value[:200]}"
            raise UsageError(f"the record sets {name} to what may be a file to be loaded", hint=hint)
    for name in now.keys() - recorded.keys():
        note(f"repeat: {name} was not set then, and is left out")
        del os.environ[name]
    for name, value in recorded.items():
        if now.get(name) != value:
            note(f"repeat: {name}={value} as it was then")
            os.environ[name] = value


def show_comparison(arguments: Arguments, status: int) -> int:
    """Print the recorded run and the new one side by side; the exit status of both together."""
    comparison = compare(load(Path(arguments.repeat)), load(Path(arguments.output)))
    shown = comparisons.show(comparison, as_json=arguments.as_json)
    return shown if status == EXIT_OK else status


def _refuse_overwriting(record: str, output: str) -> None:
    """Raises UsageError where the new run would take the place of the record."""
    folder = Path(record) if Path(record).is_dir() else Path(record).parent
    if folder.resolve() == Path(output).resolve():
        raise UsageError(f"{output} has the record that is repeated", hint="give the new run another folder: -O out2")
