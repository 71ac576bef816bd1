"""A job seen from outside: its curves, and what they tell of its iterations."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from railwright.diagnosis.iterations.simulate import parse_job
from railwright.diagnosis.iterations.trial import tried
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.launch.exclusive import measuring_alone
from railwright.report.watch_html import render_watched_html
from railwright.report.watch_text import cost_lines, now_line, simulated_job_lines, watched_lines
from railwright.sampling.recording import Recorded, read_recording
from railwright.verbs.write import refuse_no_page, write
from railwright.watch.cost import Other, Own, cost
from railwright.watch.follow import Watch, follow
from railwright.watch.seen import Run, curves_of, seen

_PLAIN_EVERY_S = 10
_LEAST_TICKS = 15


def watch(
    command: tuple[str, ...],
    pid: int | None,
    cgroup: str | None,
    seconds: float | None,
    rate: float,
    gpu_cpu: float,
    record: str | None,
    recording: str | None,
    simulated: str | None,
    output: str | None,
    with_cost: bool,
    cost_of: str | None,
    pairs: int,
    force: bool,
    as_json: bool,
) -> int:
    """Watch, read a recording or simulate, and print what was seen; the exit status. Raises UsageError."""
    refuse_no_page(output)
    things = {"--simulate": simulated, "--from": recording, "--pid": pid, "--cgroup": cgroup, "a command": command}
    _refuse_mixed({**things, "--cost": with_cost or None, "--cost-of": cost_of})
    if with_cost or cost_of is not None:
        return _cost(cost_of, pairs, force, as_json)
    if simulated is not None:
        found = tried(parse_job(simulated.split()))
        _print(found, simulated_job_lines(found), as_json)
        return EXIT_OK
    if recording is not None:
        recorded, run = read_recording(Path(recording)), Run()
    else:
        if not command and pid is None and seconds is None:
            raise UsageError("how long to watch is not clear", hint="give --seconds, --pid, or -- COMMAND")
        wanted = Watch(
            pid=pid,
            cgroup=cgroup,
            command=command,
            seconds=seconds,
            record=_writable(record),
            output_to_error=as_json,
            interval_s=1 / rate,
            gpu_cpu_share=gpu_cpu / 100,
        )
        recorded, run = follow(wanted, _Teller(quiet=bool(command)))
    watched = seen(recorded, run)
    if output is not None:
        write(output, render_watched_html(watched, curves_of(recorded, run)))
    _print(watched, watched_lines(watched), as_json)
    return EXIT_UNJUDGED if watched.ticks < _LEAST_TICKS or watched.command_status else EXIT_OK


def _cost(cost_of: str | None, pairs: int, force: bool, as_json: bool) -> int:
    """Measure what a monitor costs; 0: shown to be below the threshold, 1: above it, 3: neither."""
    monitor = Own() if cost_of is None else Other(_words(cost_of))
    with measuring_alone(force):
        found = cost(monitor, pairs, lambda text: click.echo(text, err=True))
    _print(found, cost_lines(found), as_json)
    if found.slowed_by_high < found.threshold:
        return EXIT_OK
    return EXIT_SLOW if found.slowed_by_low > found.threshold else EXIT_UNJUDGED


def _words(text: str) -> list[str]:
    """The words of a command, quoted as for a shell, which is not asked. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text[:60]!r} is no command: {error}", hint="see how it is quoted") from error
    if not words:
        raise UsageError("--cost-of has no command", hint="give one: --cost-of 'nvidia-smi -l 1'")
    return words


def _refuse_mixed(given: dict[str, object]) -> None:
    """Raises UsageError for two things to watch."""
    named = [name for name, value in given.items() if value not in (None, ())]
    if len(named) > 1 and set(named) != {"--cgroup", "a command"}:
        raise UsageError(f"what to watch is not clear: {' and '.join(named)}", hint="give one of them")


def _writable(record: str | None) -> Path | None:
    """Raises UsageError before anything is started."""
    if record is None:
        return None
    path = Path(record)
    try:
        path.open("wb").close()
    except OSError as error:
        raise UsageError(f"cannot write {record}: {error.strerror}", hint="choose another file") from error
    return path


class _Teller:
    """What goes on now, each second in place on a terminal, else a line now and then; nothing beside a command."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._calls = 0
        self._in_place = sys.stderr.isatty()

    def __call__(self, recorded: Recorded) -> None:
        self._calls += 1
        if self._quiet or (not self._in_place and self._calls % _PLAIN_EVERY_S):
            return
        line = now_line(recorded)
        click.echo(f"\r\x1b[K{line}" if self._in_place else line, err=True, nl=not self._in_place)


def _print(record: msgspec.Struct, lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(record).decode())
        return
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    for line in lines:
        click.echo(line)
