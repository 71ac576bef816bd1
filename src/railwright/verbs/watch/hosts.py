"""`watch --hosts`: a job on several hosts, on one time axis; and several recordings of one."""

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
from railwright.runs.hosts import resolve_hosts
from railwright.sampling.recording import read_recording
from railwright.verbs.watch.here import build_watch
from railwright.verbs.watch.live import HostBins, Live
from railwright.watch.afar import Afar
from railwright.watch.follow import Watch
from railwright.watch.follow_hosts import file_of, follow_hosts
from railwright.watch.now import Bins
from railwright.watch.seen_hosts import CommonTime, OneHost, WatchedHosts, common_curves, has_one_clock, seen_together

_MOST_SHOWN = 3


def watch(arguments: Arguments) -> int:
    """Watch those that were named, and print what was seen; the exit status. Raises UsageError, CannotJudge."""
    if arguments.slurm:
        _enter_job(arguments.job)
    started_by = "auto" if arguments.slurm else None
    hosts = resolve_hosts(arguments.hosts, lab=arguments.lab, ssh_config=arguments.ssh_config, slurm=started_by)
    assert hosts is not None
    return watch_hosts(hosts, build_watch(arguments), arguments.record, arguments.output, as_json=arguments.as_json)


def watch_hosts(hosts: Hosts, wanted: Watch, folder: str | None, output: str | None, *, as_json: bool) -> int:
    """Watch them, and print what was seen; the exit status. `folder`: for the recording of each. Raises UsageError."""
    if not wanted.command and wanted.seconds is None:
        raise UsageError("how long to watch is not clear", hint="give --seconds, or -- COMMAND")
    bins = {host: Bins() for host in hosts.names}
    with Live(partial(_told, bins), _line, quiet=bool(wanted.command)) as live:
        afar, status = follow_hosts(hosts, wanted, _folder(folder, hosts), live)
    told = {one.host: OneHost(recorded=one.recorded(), trouble=one.trouble) for one in afar}
    found = seen_together(told, wanted.command, status)
    return _show(found, told, output, as_json=as_json)


def replay(arguments: Arguments) -> int:
    """The same of recordings that were kept; the exit status. Raises UsageError."""
    told: dict[str, OneHost] = {}
    for file in arguments.command:
        recorded = read_recording(Path(file))
        host = recorded.about.host or Path(file).stem
        if host in told:
            raise UsageError(f"{file} is a second recording of {host[:60]}", hint="give one of each host")
        told[host] = OneHost(recorded=recorded)
    return _show(seen_together(told), told, arguments.output, as_json=arguments.as_json)


def _enter_job(job: int | None) -> None:
    """Make a Slurm job the one around us, as Slurm's commands take it; None: it is. Raises UsageError, CannotJudge."""
    if job is not None:
        os.environ["SLURM_JOB_NODELIST"] = read_job_nodes(job)
        os.environ["SLURM_JOB_ID"] = str(job)
    elif not is_inside_job(os.environ):
        raise UsageError("--slurm watches the nodes of a job, and none surrounds us", hint="name it: --job 4711")


def _show(found: WatchedHosts, told: dict[str, OneHost], output: str | None, *, as_json: bool) -> int:
    if output is not None:
        there = {host: one.recorded for host, one in told.items() if one.recorded is not None and one.recorded.times_s}
        clock = has_one_clock(list(there.values()))
        zero_s = min((CommonTime(one, clock)(one.times_s[0]) for one in there.values()), default=0.0)
        curves = {host: common_curves(one, zero_s, one_clock=clock) for host, one in there.items()}
        write(output, render_watched_hosts_html(found, curves))
    print_answer([found], lambda: watched_hosts_lines(found), as_json=as_json)
    if found.stragglers:
        return EXIT_SLOW
    return EXIT_UNJUDGED if found.command_status or any(one.trouble for one in found.hosts) else EXIT_OK


def _folder(folder: str | None, hosts: Hosts) -> Path | None:
    """Made, and its files may be written. Raises UsageError before anything is started."""
    if folder is None:
        return None
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        file_of(path, hosts.names[0]).open("wb").close()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}", hint="--record takes a folder here") from error
    return path


def _told(bins: dict[str, Bins], afar: Sequence[Afar]) -> HostBins:
    return [(one.host, _told_by(one, bins[one.host])) for one in afar]


def _told_by(one: Afar, bins: Bins) -> Bins | str:
    recorded = one.recorded()
    if one.trouble or recorded is None:
        return one.trouble or "nothing yet"
    bins.take(recorded)
    return bins


def _line(told: HostBins) -> str:
    """Of the first hosts."""
    words = [f"{host}: {one if isinstance(one, str) else now_line(one).strip()}" for host, one in told[:_MOST_SHOWN]]
    return "   ".join([*words, *[f"and {len(told) - _MOST_SHOWN} more"] * (len(told) > _MOST_SHOWN)])
