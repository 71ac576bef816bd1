"""Watches several hosts at once, each by its own railwright; a host that dies or falls silent affects no other.

Hosts are reached as in `prove --hosts`: `launch.hosts.Reach` gives the program that takes a host and a command line.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from railwright.installation import PYTHON
from railwright.launch.hosts import Hosts
from railwright.launch.scratch import scratch_folder
from railwright.process import Attached
from railwright.sampling.sources import CpuOwner
from railwright.watch.afar import Tell, WatchedHost
from railwright.watch.follow import Watch, wait_for, wait_settled

_PYTHON = (*PYTHON, "-m")
_SILENT_S = 20.0
"""A host sends a batch each second; ssh itself gives up after 15 s of silence."""
_FIRST_S = 60.0
"""The time until the first batch: GPU drivers may take half a minute to open."""
_OVERTIME_S = 90.0
_ENDED_S = 15.0


def follow_hosts(hosts: Hosts, watch: Watch, folder: Path | None, tell: Tell) -> tuple[list[WatchedHost], int | None]:
    """Watch all hosts until our command ends, the time is over, or an interrupt arrives.

    The time counts from the moment at which each host has begun or has failed.
    Returns the hosts in order, with their recordings, and the command's status. `folder` receives the recordings.
    """
    child = Attached(watch.command, output_to_error=watch.output_to_error) if watch.command else None
    try:
        if child is not None:
            wait_settled(child)
        with _start_hosts(hosts, watch, folder) as afar:
            _wait_for_end(afar, child, watch.seconds, tell)
        return afar, None if child is None else child.end()
    finally:
        if child is not None:
            child.end()


@contextlib.contextmanager
def _start_hosts(hosts: Hosts, watch: Watch, folder: Path | None) -> Iterator[list[WatchedHost]]:
    with scratch_folder() as scratch:
        agent = hosts.reach.agent(scratch)
        clock, line = (
            shlex.join([*_PYTHON, "railwright.watch.clock"]),
            shlex.join([*_PYTHON, *_watch_arguments(hosts, watch)]),
        )
        afar = [
            WatchedHost(
                host, [*agent, host, clock], [*agent, host, line], recording_file(folder, host) if folder else None
            )
            for host in hosts.names
        ]
        threads = [threading.Thread(target=one.run) for one in afar]
        try:
            for thread in threads:
                thread.start()
            yield afar
        finally:
            _end(afar)
            for thread in threads:
                thread.join(_ENDED_S)


def recording_file(folder: Path, host: str) -> Path:
    """Return the file of a host's recording."""
    return folder / f"{host.replace('/', '_').replace(':', '_')}.arrows"


def _watch_arguments(hosts: Hosts, watch: Watch) -> list[str]:
    """Return the arguments of the command on each host."""
    whose = (
        watch.whose._replace(namespace=True) if hosts.reach.shares_files and watch.whose == CpuOwner() else watch.whose
    )
    given = {
        "--seconds": watch.seconds,
        "--rate": 1 / watch.interval_s,
        "--gpu-cpu": 100 * watch.gpu_cpu_share,
        "--cgroup": whose.cgroup,
        "--job": whose.job,
    }
    words = [word for name, value in given.items() if value is not None for word in (name, _format_option(value))]
    return ["railwright", "watch", "--record", "-", *["--here"] * whose.namespace, *words]


def _format_option(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _wait_for_end(afar: Sequence[WatchedHost], child: Attached | None, seconds: float | None, tell: Tell) -> None:
    begun_s = math.inf
    try:
        while child is not None or not all(one.is_done for one in afar):
            ended = wait_for(child, 1.0)
            now_s = time.monotonic()
            for one in afar:
                longest_s = _SILENT_S if one.recorded() is not None else _FIRST_S
                if now_s - one.heard_s > longest_s and not one.is_done:
                    one.end(f"silent for {now_s - one.heard_s:.0f} s")
            tell(afar)
            if begun_s == math.inf and all(one.recorded() is not None or one.is_done for one in afar):
                begun_s = now_s
            over_s = 0.0 if child is not None else _OVERTIME_S
            if ended or (seconds is not None and now_s - begun_s > seconds + over_s):
                break
    except KeyboardInterrupt:  # the rows so far are the answer
        pass


def _end(afar: Sequence[WatchedHost]) -> None:
    """End all hosts in parallel."""
    enders = [threading.Thread(target=one.end) for one in afar]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join(_ENDED_S)
