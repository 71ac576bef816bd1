"""Sampling for the duration of a command, a process or a given time."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from railwright.errors import RailwrightError
from railwright.process import Attached
from railwright.sampling.processes import find_descendants, find_job_processes, find_namespace_processes
from railwright.sampling.recording import Recorded
from railwright.sampling.session import INTERVAL_S, Session
from railwright.sampling.sources import CpuOwner, find_sources
from railwright.topology.sources.root import live_root
from railwright.watch.gpus import CPU_SHARE, Gpus
from railwright.watch.seen import Run

_LOOK_S, _SAME_LOOKS, _MAX_LOOKS = 0.2, 3, 25
"""Watching starts once the command has started no process for 0.6 s, after 5 s at most."""
_LOOK_EVERY_S = 5

Tell = Callable[[Recorded], None]


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a watch, its duration and its outputs."""

    whose: CpuOwner = CpuOwner()
    command: tuple[str, ...] = ()
    seconds: float | None = None
    record: Path | int | None = None
    output_to_error: bool = False
    """Whether the command writes its standard output to our standard error."""
    interval_s: float = INTERVAL_S
    gpu_cpu_share: float = CPU_SHARE
    """The fraction of a core that reading NVML may take."""


def follow(watch: Watch, tell: Tell) -> tuple[Recorded, Run]:
    """Sample until the command or process ends, the time is over, or an interrupt arrives.

    The time counts from the first sample: opening the sources may take seconds on a busy machine.
    `tell` gets the recording so far each second. Raises UsageError, CannotJudge.
    """
    with Gpus(watch.interval_s, watch.gpu_cpu_share) as gpus:  # first, since opening them takes seconds
        return _follow(watch, tell, gpus)


def _follow(watch: Watch, tell: Tell, gpus: Gpus) -> tuple[Recorded, Run]:
    child = Attached(watch.command, output_to_error=watch.output_to_error) if watch.command else None
    try:
        whose = watch.whose if child is None else watch.whose._replace(pid=wait_settled(child))
        pid = whose.pid
        found = gpus.add_to(find_sources(whose))
        with Session(found, watch.record, watch.command, watch.interval_s, gpus) as session:
            later = _record(watch, session, child, pid, tell)
            status = None if child is None else child.end()
            recorded, costs = session.finish()
    finally:
        if child is not None:
            child.end()
    return recorded, Run(
        command_status=status,
        lost_ticks=costs.lost + costs.late,
        sampling_cpu_s=costs.cpu_s + gpus.cpu_s,
        started_later=later,
        gpus_trouble=gpus.trouble(),
    )


def _record(watch: Watch, session: Session, child: Attached | None, pid: int | None, tell: Tell) -> int:
    """Record until the end. Returns the number of processes that the watched one started meanwhile."""
    known = {source.path for source in session.recording.about.sources}
    of_processes = any(source.is_of_a_process for source in session.recording.about.sources)
    later: set[int] = set()
    end_s = None if watch.seconds is None else time.monotonic() + watch.seconds
    try:
        for second in itertools.count(1):
            wait_s = 1.0 if end_s is None else max(0.0, min(1.0, end_s - time.monotonic()))
            ended = wait_for(child, wait_s)
            session.fetch()
            tell(session.recording.recorded())
            if second % _LOOK_EVERY_S == 0 and of_processes:
                later |= {
                    process
                    for process in _find_present_processes(watch.whose._replace(pid=pid))
                    if f"/proc/{process}/stat" not in known
                }
            over = end_s is not None and time.monotonic() >= end_s
            if ended or over or (watch.whose.pid is not None and not _exists(watch.whose.pid)):
                break
    except KeyboardInterrupt:  # the samples so far are the answer
        pass
    return len(later)


def _find_present_processes(whose: CpuOwner) -> list[int]:
    """Return the target's present processes."""
    with contextlib.suppress(RailwrightError):  # all of them may have ended
        if whose.job:
            return find_job_processes(whose.job, live_root())
        if whose.namespace:
            return find_namespace_processes()
    return find_descendants(whose.pid) if whose.pid is not None else []


def wait_settled(child: Attached) -> int | None:
    """Return the command's process once it has stopped starting others, as launchers do; None if it has ended."""
    before: list[int] = []
    same = 0
    for _ in range(_MAX_LOOKS):
        if wait_for(child, _LOOK_S):
            return None
        now = find_descendants(child.pid)
        same = same + 1 if now == before else 0
        if same == _SAME_LOOKS:
            break
        before = now
    return child.pid


def wait_for(child: Attached | None, seconds: float) -> bool:
    """Wait up to `seconds` and report whether the command has ended."""
    if child is None:
        time.sleep(seconds)
        return False
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
