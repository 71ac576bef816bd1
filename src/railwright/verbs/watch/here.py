"""`watch` on this machine: a running job, or a recording."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from railwright.errors import EXIT_OK, EXIT_UNJUDGED, UsageError
from railwright.options.arguments import Arguments
from railwright.options.output import print_answer, write
from railwright.report.pages.watch import render_watched_html
from railwright.report.text.watch import now_line, watched_lines
from railwright.sampling.recording import Recorded, read_recording
from railwright.sampling.sources import CpuOwner
from railwright.verbs.watch.live import HostBins, Live
from railwright.watch.follow import Watch, follow
from railwright.watch.now import Bins
from railwright.watch.seen import Run, analyse, compute_curves
from railwright.workflows.hosts import resolve_hosts
from railwright.writing import open_growing, record_mode

_STDOUT_NAME, _STDOUT_FD = "-", 1
_MIN_TICKS = 15


def watch(arguments: Arguments) -> int:
    """Watch until the job or the time ends, print the analysis, and return the exit status. Raises UsageError."""
    wanted = build_watch(arguments)
    resolve_hosts(None, lab=arguments.lab, ssh_config=arguments.ssh_config)
    if arguments.record == _STDOUT_NAME:
        follow(replace(wanted, record=_STDOUT_FD, output_to_error=True), lambda _recorded: None)
        return EXIT_OK
    if not arguments.command and arguments.pid is None and arguments.seconds is None:
        raise UsageError(
            "watch requires --seconds, --pid or a command", hint="add --seconds 60, --pid PID, or -- COMMAND"
        )
    with Live(partial(_update_bins, Bins()), _format_line, quiet=bool(arguments.command)) as live:
        recorded, run = follow(replace(wanted, record=_check_writable(arguments.record)), live)
    return _show(recorded, run, arguments)


def build_watch(arguments: Arguments) -> Watch:
    """Build the settings of a watch."""
    return Watch(
        whose=CpuOwner(pid=arguments.pid, cgroup=arguments.cgroup, job=arguments.job, namespace=arguments.here),
        command=arguments.command,
        seconds=arguments.seconds,
        output_to_error=arguments.as_json,
        interval_s=1 / arguments.rate,
        gpu_cpu_share=arguments.gpu_cpu / 100,
    )


def replay(arguments: Arguments) -> int:
    """Print the analysis of a recording, and return the exit status. Raises UsageError."""
    return _show(read_recording(Path(arguments.command[0])), Run(), arguments)


def _update_bins(bins: Bins, recorded: Recorded) -> HostBins:
    bins.take(recorded)
    return [("", bins)]


def _format_line(told: HostBins) -> str:
    return " ".join(one if isinstance(one, str) else now_line(one) for _, one in told)


def _show(recorded: Recorded, run: Run, arguments: Arguments) -> int:
    watched = analyse(recorded, run)
    if arguments.output is not None:
        write(arguments.output, render_watched_html(watched, compute_curves(recorded, run)))
    print_answer([watched], lambda: watched_lines(watched), as_json=arguments.as_json)
    return EXIT_UNJUDGED if watched.ticks < _MIN_TICKS or watched.command_status else EXIT_OK


def _check_writable(record: str | None) -> Path | None:
    """Return the path of the recording. Raises UsageError if it cannot be written."""
    if record is None:
        return None
    path = Path(record)
    try:
        open_growing(path, record_mode(), empty=True).close()
    except OSError as error:
        raise UsageError(f"cannot write {record}: {error.strerror}", hint="choose another file") from error
    return path
