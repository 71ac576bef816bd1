"""A job seen from outside: its curves, and what they tell of its iterations."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from railwright.diagnosis.iterations.simulate import parse_job
from railwright.diagnosis.iterations.trial import tried
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.report.pages.watch import render_watched_html
from railwright.report.text.watch import cost_lines, now_line, simulated_job_lines, watched_lines
from railwright.run.exclusive import measuring_alone
from railwright.sampling.recording import Recorded, read_recording
from railwright.sampling.sources import Whose
from railwright.verbs.hosts import the_hosts
from railwright.verbs.watch_hosts import enter_job, look_again, watch_hosts
from railwright.verbs.watch_live import Live, Told
from railwright.verbs.write import refuse_no_page, write
from railwright.watch.cost import Other, Own, cost
from railwright.watch.follow import Watch, follow
from railwright.watch.now import Bins
from railwright.watch.seen import Run, curves_of, seen

_STANDARD_OUTPUT, _OURS = "-", 1
_LEAST_TICKS = 15


def watch(
    command: tuple[str, ...],
    recording: bool,
    simulated: str | None,
    output: str | None,
    with_cost: bool,
    cost_of: str | None,
    pairs: int,
    force: bool,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - for `_watch_now`
) -> int:
    """Watch, read recordings or simulate, and print what was seen; the exit status. Raises UsageError."""
    refuse_no_page(output)
    things = {f"--{name}": asked[name] or None for name in ("pid", "cgroup", "job", "here")}
    things |= {"--simulate": simulated, "--from": recording or None, "--cost": with_cost or None, "--cost-of": cost_of}
    _refuse_mixed(things, command if not recording else ())
    afar = {f"--{name.replace('_', '-')}": asked[name] for name in ("hosts", "lab", "ssh_config", "slurm")}
    _refuse_afar([name for name, value in afar.items() if value], things)
    if with_cost or cost_of is not None:
        return _cost(cost_of, pairs, force, as_json)
    if simulated is not None:
        found = tried(parse_job(simulated.split()))
        _print(found, simulated_job_lines(found), as_json)
        return EXIT_OK
    if recording:
        return _look_again(command, output, as_json=as_json)
    return _watch_now(command, output, as_json=as_json, **asked)


def _watch_now(
    command: tuple[str, ...],
    output: str | None,
    pid: int | None,
    cgroup: str | None,
    job: int | None,
    here: bool,
    hosts: str | None,
    lab: str | None,
    ssh_config: str | None,
    slurm: bool,
    seconds: float | None,
    rate: float,
    gpu_cpu: float,
    record: str | None,
    as_json: bool,
) -> int:
    wanted = Watch(
        whose=Whose(pid=pid, cgroup=cgroup, job=job, namespace=here),
        command=command,
        seconds=seconds,
        output_to_error=as_json,
        interval_s=1 / rate,
        gpu_cpu_share=gpu_cpu / 100,
    )
    if slurm:
        enter_job(job)
    placed = the_hosts(hosts, None, lab, ssh_config, None, "auto" if slurm else None)
    if placed is not None:
        return watch_hosts(placed, wanted, record, output, as_json=as_json)
    if record == _STANDARD_OUTPUT:
        follow(replace(wanted, record=_OURS, output_to_error=True), lambda _recorded: None)
        return EXIT_OK
    if not command and pid is None and seconds is None:
        raise UsageError("how long to watch is not clear", hint="give --seconds, --pid, or -- COMMAND")
    bins = Bins()
    with Live(partial(_told, bins), _line, quiet=bool(command)) as live:
        recorded, run = follow(replace(wanted, record=_writable(record)), live)
    return _show(recorded, run, output, as_json)


def _told(bins: Bins, recorded: Recorded) -> Told:
    bins.take(recorded)
    return [("", bins)]


def _line(told: Told) -> str:
    return " ".join(one if isinstance(one, str) else now_line(one) for _, one in told)


def _look_again(files: tuple[str, ...], output: str | None, *, as_json: bool) -> int:
    if not files:
        raise UsageError("--from has no recording", hint="give one: --from job.arrows; of several hosts all of them")
    if len(files) > 1:
        return look_again(files, output, as_json=as_json)
    return _show(read_recording(Path(files[0])), Run(), output, as_json)


def _show(recorded: Recorded, run: Run, output: str | None, as_json: bool) -> int:
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


def _refuse_mixed(given: dict[str, object], command: tuple[str, ...]) -> None:
    """Raises UsageError for two things to watch; a command may run beside a group or job that is watched."""
    named = [name for name, value in given.items() if value is not None]
    alone = not command or named in ([], ["--cgroup"], ["--job"])
    if len(named) > 1 or not alone:
        both = " and ".join([*named, *["a command"] * bool(command)])
        raise UsageError(f"what to watch is not clear: {both}", hint="give one of them")


def _refuse_afar(afar: list[str], things: dict[str, object]) -> None:
    """Raises UsageError for what is not looked at on other hosts."""
    of_hosts = ("--cgroup", "--job")
    other = next((name for name, value in things.items() if value is not None and name not in of_hosts), "")
    if afar and other:
        raise UsageError(f"{other} is of this machine, and {afar[0]} names others", hint="give one of them")


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


def _print(record: msgspec.Struct, lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(record).decode())
        return
    for line in lines:
        click.echo(line)
