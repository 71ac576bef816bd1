"""Which processes of this machine are one job's: those that a process started, of a namespace, of a Slurm job."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import PurePosixPath

from railwright.errors import CannotJudge, UsageError
from railwright.topology.sources.root import Root, live_root

_JOB, _NODE = "SLURM_JOB_ID", "SLURMD_NODENAME"
_CLOCK = "railwright.watch.clock"
"""A program of ours that runs as a step of the job."""


def descendants(pid: int, root: Root | None = None) -> list[int]:
    """All that descend from a process now, by the parent in /proc/PID/stat."""
    root = root or live_root()
    children: dict[int, list[int]] = {}
    for one in _processes(root):
        children.setdefault(_parent(one, root), []).append(one)
    found, left = [], [pid]
    while left:
        mine = children.get(left.pop(), [])
        found += mine
        left += mine
    return sorted(found)


def of_our_namespace() -> list[int]:
    """All of our network namespace but ourselves and what we came from. Raises CannotJudge where there is none."""
    ours, own = os.stat("/proc/self/ns/net").st_ino, _own(live_root())  # noqa: PTH116 - a link to no file
    found = [one for one in _processes(live_root()) if one not in own and _namespace(one) == ours]
    if not found:
        raise CannotJudge("no process runs in this network namespace", hint="start the job before it is watched")
    return found


def cgroup_of_job(job: int, root: Root) -> str | None:
    """The control group of version 2 that Slurm made for a job here, below /sys/fs/cgroup; None where it made none."""
    for one in _processes(root):
        for line in root.text(f"proc/{one}/cgroup").splitlines():
            parts = PurePosixPath(line.removeprefix("0::")).parts
            if line.startswith("0::/") and f"job_{job}" in parts:
                return "/".join(parts[1 : parts.index(f"job_{job}") + 1])
    return None


def of_job(job: int, root: Root) -> list[int]:
    """The processes of a Slurm job on this node, by its older control groups and by their environment.

    Raises UsageError where no such process can be seen.
    """
    own = _own(root)
    found = [one for one in _processes(root) if one not in own and _is_of_job(one, job, root)]
    if found:
        return found
    if shutil.which("scontrol") is None:
        reason = f"job {job} is not on this machine, and neither is Slurm"
        raise UsageError(reason, hint="--job takes the number of a Slurm job that has processes here")
    reason = f"job {job} has no process here that we may look at"
    raise UsageError(reason, hint=f"see its nodes: squeue --job {job}; watch them: --job {job} --slurm")


def _is_of_job(pid: int, job: int, root: Root) -> bool:
    if any(f"job_{job}" in PurePosixPath(line).parts for line in root.text(f"proc/{pid}/cgroup").splitlines()):
        return True
    given = _words(f"proc/{pid}/environ", root)
    if f"{_JOB}={job}" not in given or _CLOCK in _words(f"proc/{pid}/cmdline", root):
        return False
    ours = f"{_NODE}={os.environ.get(_NODE, '')}"  # several nodes may be one machine
    return ours == f"{_NODE}=" or ours in given or not any(one.startswith(f"{_NODE}=") for one in given)


def _words(path: str, root: Root) -> list[str]:
    found = root.read_bytes(path)
    return found.decode("utf-8", "replace").split("\0") if isinstance(found, bytes) else []


def _own(root: Root) -> set[int]:
    """Ourselves, what we came from, and what we have started."""
    found, one = {os.getpid(), *descendants(os.getpid(), root)}, os.getppid()
    while one > 1 and one not in found:
        found.add(one)
        one = _parent(one, root)
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
