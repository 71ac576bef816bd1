"""Repetition of a recorded run with the same command, hosts, rank order and environment.

The comparison of the two runs reports remaining differences, such as versions. A record may come from an untrusted
source, so files that it names are not loaded or started.
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
from railwright.secrecy import HIDDEN
from railwright.workflows import compared as comparisons
from railwright.workflows.judged import note
from railwright.workflows.kubernetes import NAMES as KUBERNETES_NAMES
from railwright.workflows.slurm import NAMES

_FILE_OPTIONS = ("library", "solver", "program", "dat")
"""Benchmark options whose value is a file."""
_IGNORED_PARAMETERS = ("output", "as_json", "force", "verbose", "dry_run", "silence", "require", "repeat", *NAMES,
         *KUBERNETES_NAMES)  # fmt: skip
"""Parameters that do not affect the measurement. They are read from the new command."""
_MAX_WORDS, _MAX_WORD_CHARACTERS = 1000, 16_384


def build_repetition(arguments: Arguments) -> Arguments:
    """Combine the recorded arguments with the new ones, and set the recorded environment.

    Raises UsageError for a record that cannot or must not be repeated.
    """
    if arguments.names or arguments.options:
        raise UsageError("--repeat excludes benchmark names and -o", hint="leave them out: the record contains them")
    _refuse_overwriting(arguments.repeat, arguments.output)
    recorded = load(Path(arguments.repeat)).run
    for option, job in (("slurm", "a Slurm job"), ("kubernetes", "a Kubernetes job")):
        if f"--{option}" in recorded.command and not getattr(arguments, option):
            raise UsageError(f"the record is of {job}", hint=f"add --{option} with the options of the job")
    given = _recorded_options(recorded, click.get_current_context().command)
    _replay_environment(recorded.context.environment)
    return Arguments(**vars(arguments) | given | {"repeat": None})


def _recorded_options(run: Run, command: click.Command) -> dict[str, Any]:
    """Parse the recorded command. Raises UsageError if it is not `run`, or if it names files."""
    words = list(run.command)
    if words[1:2] != ["run"]:
        reason = f"the record must be of `railwright run`, got {' '.join(words[:2])[:80]!r}"
        raise UsageError(reason, hint="give a record of railwright run")
    if len(words) > _MAX_WORDS or any(len(word) > _MAX_WORD_CHARACTERS for word in words):
        raise UsageError(
            f"the recorded command must be at most {_MAX_WORDS} words of {_MAX_WORD_CHARACTERS} characters"
        )
    try:
        given = command.make_context("run", words[2:], resilient_parsing=False).params
    except click.ClickException as error:
        reason = f"the recorded command cannot be parsed: {error.format_message()[:200]}"
        raise UsageError(reason, hint="the record is of another version; type the command yourself") from error
    if given["repeat"] is not None:
        raise UsageError("the record is itself a repetition", hint=f"repeat the first: {given['repeat'][:200]}")
    named = [name for name in ("mpirun", "ssh_config") if given.get(name)]
    named += [text[:80] for text in given["options"] if text.partition("=")[0].rpartition(".")[2] in _FILE_OPTIONS]
    if named:
        hint = f"check it, and run it yourself: {' '.join(words)[:200]}"
        raise UsageError(f"the recorded command names a file to load or start ({named[0]})", hint=hint)
    return {name: value for name, value in given.items() if name not in _IGNORED_PARAMETERS}


def _replay_environment(recorded: dict[str, str]) -> None:
    """Set the recorded variables, and unset other variables of the measured libraries.

    Raises UsageError for another variable, for a value with a NUL, and for a path that is not set already.
    """
    now = read_environment()
    for name, value in recorded.items():
        if not is_recorded(name):
            reason = f"the record sets {name[:60]!r}, which is not a variable of a measured library"
            raise UsageError(reason, hint="remove it from the record")
        if "\0" in value:
            reason = f"the record sets {name[:60]!r} to a value with a NUL character"
            raise UsageError(reason, hint="remove it from the record")
        if HIDDEN in value and now.get(name) != value:
            hint = f"set it yourself: export {name}=..."
            raise UsageError(f"the record holds {name} without its secret", hint=hint)
        if "/" in value and now.get(name) != value:
            hint = f"check it, and set it yourself: export {name}={value[:200]}"
            raise UsageError(f"the record sets {name} to a path, which may load a file", hint=hint)
    for name in now.keys() - recorded.keys():
        note(f"repeat: unset {name}, which the record does not have")
        del os.environ[name]
    for name, value in recorded.items():
        if now.get(name) != value:
            note(f"repeat: set {name}={value} as recorded")
            os.environ[name] = value


def show_comparison(arguments: Arguments, status: int) -> int:
    """Print the comparison of the recorded run and the new one. Returns the combined exit status."""
    comparison = compare(load(Path(arguments.repeat)), load(Path(arguments.output)))
    shown = comparisons.show(comparison, as_json=arguments.as_json)
    return shown if status == EXIT_OK else status


def _refuse_overwriting(record: str, output: str) -> None:
    """Raise UsageError if the new run would overwrite the record."""
    folder = Path(record) if Path(record).is_dir() else Path(record).parent
    if folder.resolve() == Path(output).resolve():
        raise UsageError(f"{output} contains the record to repeat", hint="give the new run another folder: -O out2")
