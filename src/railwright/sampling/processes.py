"""The processes of a job on this machine: descendants of a process, members of a namespace or of a Slurm job."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import PurePosixPath

from railwright.errors import CannotJudge, UsageError
from railwright.topology.sources.root import Root, live_root

_JOB, _NODE = "SLURM_JOB_ID", "SLURMD_NODENAME"
_CLOCK = "railwright.watch.clock"
"""Railwright's own program that runs as a step of the job."""


def find_descendants(pid: int, root: Root | None = None) -> list[int]:
    """Return the current descendants of a process, by the parent in /proc/PID/stat."""
    root = root or live_root()
    children: dict[int, list[int]] = {}
    for process in _processes(root):
        children.setdefault(_parent(process, root), []).append(process)
    found, left = [], [pid]
    while left:
        started = children.get(left.pop(), [])
        found += started
        left += started
    return sorted(found)


def find_namespace_processes() -> list[int]:
    """Return all processes in our network namespace except ourselves, our ancestors and our descendants.

    Raises CannotJudge if there are none.
    """
    ours, excluded = os.stat("/proc/self/ns/net").st_ino, _own_processes(live_root())  # noqa: PTH116 - a link to no file
    found = [process for process in _processes(live_root()) if process not in excluded and _namespace(process) == ours]
    if not found:
        raise CannotJudge("no process runs in this network namespace", hint="start the job before watching it")
    return found


def find_job_cgroup(job: int, root: Root) -> str | None:
    """Return the v2 control group of a Slurm job here, below /sys/fs/cgroup; None if there is none."""
    for process in _processes(root):
        for line in root.text(f"proc/{process}/cgroup").splitlines():
            parts = PurePosixPath(line.removeprefix("0::")).parts
            if line.startswith("0::/") and f"job_{job}" in parts:
                return "/".join(parts[1 : parts.index(f"job_{job}") + 1])
    return None


def find_job_processes(job: int, root: Root) -> list[int]:
    """Return the processes of a Slurm job on this node, by its v1 control groups and by their environment.

    Raises UsageError if no such process is visible.
    """
    excluded = _own_processes(root)
    found = [process for process in _processes(root) if process not in excluded and _is_of_job(process, job, root)]
    if found:
        return found
    if shutil.which("scontrol") is None:
        reason = f"job {job} has no process on this machine, and Slurm is not installed"
        raise UsageError(reason, hint="--job takes the number of a Slurm job that has processes here")
    reason = f"job {job} has no process here that this user may inspect"
    raise UsageError(reason, hint=f"see its nodes: squeue --job {job}; watch them: --job {job} --slurm")


def _is_of_job(pid: int, job: int, root: Root) -> bool:
    if any(f"job_{job}" in PurePosixPath(line).parts for line in root.text(f"proc/{pid}/cgroup").splitlines()):
        return True
    environment = _read_words(f"proc/{pid}/environ", root)
    if f"{_JOB}={job}" not in environment or _CLOCK in _read_words(f"proc/{pid}/cmdline", root):
        return False
    ours = f"{_NODE}={os.environ.get(_NODE, '')}"  # several nodes may share a machine
    return ours == f"{_NODE}=" or ours in environment or not any(word.startswith(f"{_NODE}=") for word in environment)


def _read_words(path: str, root: Root) -> list[str]:
    found = root.read_bytes(path)
    return found.decode("utf-8", "replace").split("\0") if isinstance(found, bytes) else []


def _own_processes(root: Root) -> set[int]:
    """Return the ids of this process, its ancestors and its descendants."""
    found, ancestor = {os.getpid(), *find_descendants(os.getpid(), root)}, os.getppid()
    while ancestor > 1 and ancestor not in found:
        found.add(ancestor)
        ancestor = _parent(ancestor, root)
    return found


def _processes(root: Root) -> Iterator[int]:
    return (int(name) for name in root.names("proc") if name.isdigit())


def _parent(pid: int, root: Root) -> int:
    rest = root.text(f"proc/{pid}/stat").rpartition(")")[2].split()
    return int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 0


def _namespace(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116
    except OSError:
        return 0
