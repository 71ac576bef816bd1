"""`watch --hosts`: a job on several hosts on a common time axis, or its recordings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.launch.hosts import Hosts
from railwright.launch.slurm.allocation import is_inside_job, read_job_nodes
from railwright.options.arguments import Arguments
from railwright.options.output import print_answer, write
from railwright.report.pages.watch_hosts import render_watched_hosts_html
from railwright.report.text.watch import now_line
from railwright.report.text.watch_hosts import watched_hosts_lines
from railwright.sampling.recording import read_recording
from railwright.verbs.watch.here import build_watch
from railwright.verbs.watch.live import HostBins, Live
from railwright.watch.afar import WatchedHost
from railwright.watch.follow import Watch
from railwright.watch.follow_hosts import follow_hosts, recording_file
from railwright.watch.now import Bins
from railwright.watch.seen_hosts import (
    CommonTime,
    HostRecording,
    WatchedHosts,
    align_curves,
    analyse_hosts,
    has_one_clock,
)
from railwright.workflows.hosts import resolve_hosts
from railwright.writing import open_growing, record_mode

_MAX_SHOWN = 3


def watch(arguments: Arguments) -> int:
    """Watch the named hosts, print the analysis, and return the exit status. Raises UsageError, CannotJudge."""
    if arguments.slurm:
        _enter_job(arguments.job)
    started_by = "auto" if arguments.slurm else None
    hosts = resolve_hosts(arguments.hosts, lab=arguments.lab, ssh_config=arguments.ssh_config, slurm=started_by)
    assert hosts is not None
    return watch_hosts(hosts, build_watch(arguments), arguments.record, arguments.output, as_json=arguments.as_json)


def watch_hosts(hosts: Hosts, wanted: Watch, folder: str | None, output: str | None, *, as_json: bool) -> int:
    """Watch hosts, print the analysis, and return the exit status. Raises UsageError.

    `folder` receives a recording of each host.
    """
    if not wanted.command and wanted.seconds is None:
        raise UsageError("watch requires --seconds or a command", hint="add --seconds 60, or -- COMMAND")
    bins = {host: Bins() for host in hosts.names}
    with Live(partial(_update_bins, bins), _format_line, quiet=bool(wanted.command)) as live:
        afar, status = follow_hosts(hosts, wanted, _create_folder(folder, hosts), live)
    told = {one.host: HostRecording(recorded=one.recorded(), trouble=one.trouble) for one in afar}
    found = analyse_hosts(told, wanted.command, status)
    return _show(found, told, output, as_json=as_json)


def replay(arguments: Arguments) -> int:
    """Print the analysis of recordings, and return the exit status. Raises UsageError."""
    told: dict[str, HostRecording] = {}
    for file in arguments.command:
        recorded = read_recording(Path(file))
        host = recorded.about.host or Path(file).stem
        if host in told:
            raise UsageError(f"{file} is a second recording of {host[:60]}", hint="give one recording per host")
        told[host] = HostRecording(recorded=recorded)
    return _show(analyse_hosts(told), told, arguments.output, as_json=arguments.as_json)


def _enter_job(job: int | None) -> None:
    """Set the environment to that of a Slurm job. None means the surrounding job. Raises UsageError, CannotJudge."""
    if job is not None:
        os.environ["SLURM_JOB_NODELIST"] = read_job_nodes(job)
        os.environ["SLURM_JOB_ID"] = str(job)
    elif not is_inside_job(os.environ):
        raise UsageError("--slurm requires a surrounding job or --job", hint="add --job 4711")


def _show(found: WatchedHosts, told: dict[str, HostRecording], output: str | None, *, as_json: bool) -> int:
    if output is not None:
        recordings = {
            host: recording.recorded
            for host, recording in told.items()
            if recording.recorded is not None and recording.recorded.times_s
        }
        clock = has_one_clock(list(recordings.values()))
        zero_s = min(
            (CommonTime(recording, clock)(recording.times_s[0]) for recording in recordings.values()), default=0.0
        )
        curves = {host: align_curves(recording, zero_s, one_clock=clock) for host, recording in recordings.items()}
        write(output, render_watched_hosts_html(found, curves))
    print_answer([found], lambda: watched_hosts_lines(found), as_json=as_json)
    if found.stragglers:
        return EXIT_SLOW
    return EXIT_UNJUDGED if found.command_status or any(recording.trouble for recording in found.hosts) else EXIT_OK


def _create_folder(folder: str | None, hosts: Hosts) -> Path | None:
    """Create the folder of the recordings. Raises UsageError if it cannot be written."""
    if folder is None:
        return None
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        open_growing(recording_file(path, hosts.names[0]), record_mode(), empty=True).close()
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}", hint="with several hosts --record must name a folder"
        ) from error
    return path


def _update_bins(bins: dict[str, Bins], afar: Sequence[WatchedHost]) -> HostBins:
    return [(host.host, _read_answer(host, bins[host.host])) for host in afar]


def _read_answer(host: WatchedHost, bins: Bins) -> Bins | str:
    recorded = host.recorded()
    if host.trouble or recorded is None:
        return host.trouble or "nothing yet"
    bins.take(recorded)
    return bins


def _format_line(told: HostBins) -> str:
    """Return the state of the first three hosts in one line."""
    words = [
        f"{host}: {state if isinstance(state, str) else now_line(state).strip()}" for host, state in told[:_MAX_SHOWN]
    ]
    return "   ".join([*words, *[f"and {len(told) - _MAX_SHOWN} more"] * (len(told) > _MAX_SHOWN)])
