"""The cause of a launcher's failure: the messages of Open MPI, PRRTE, MPICH and Slurm that tell it, and this machine.

A launcher that lacks a file, a process or shared memory often prints only its consequence. So the limits and file
systems under which it ran are inspected as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import socket
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from railwright.units import format_size

_KNOWN = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in (
    (r"oom[_-]kill|out[ -]of[ -]memory|oom killed", "a process exceeded the memory limit"),
    (r"not enough space for|no space left on device", "a file system is full"),
    (r"too many open files|limit on number of pipes", "too many files are open"),
    (r"limit on number of children|unable to fork|cannot fork|fork failed|can't start new thread",
     "too many processes or threads run"),
    (r"available (?:network )?interface|no usable (?:network )?interface", "no network interface is usable"),
    (r"read-only file system", "a file system is read-only"),
    (r"due to time limit", "the time limit of the job is over"),
    (r"cancelled at .* due to node failure|node failure", "a node of the job failed"),
    (r"not enough slots", "the hosts have too few slots"),
    (r"cannot allocate memory", "memory cannot be allocated"),
))  # fmt: skip
"""Words of help-*.txt of Open MPI 5 and PRRTE 3, of Hydra, of srun and slurmstepd, and of errno."""
_FEW = 256
"""The limit of files and processes below which MPI is known to fail."""
_SMALL_BYTES = 16 * 2**20
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only inspected
_CGROUPS = Path("/sys/fs/cgroup")
_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1


def find_cause(output: Sequence[str]) -> str:
    """Return the cause that a launcher's output tells, or an empty string."""
    return next((cause for pattern, cause in _KNOWN for line in output if pattern.search(line)), "")


def observe(kills_before: int = 0) -> Iterator[str]:
    """Yield what this machine lacks for a launch.

    `kills_before` is the number of processes that the memory limit of our cgroup had ended when the launch began.
    """
    if (kills := count_memory_kills() - kills_before) > 0:
        yield f"the memory limit of its cgroup ended {kills} of its processes"
    for limit, words in (
        (resource.RLIMIT_NOFILE, "open files (ulimit -n)"),
        (resource.RLIMIT_NPROC, "processes (ulimit -u)"),
    ):
        most = resource.getrlimit(limit)[0]
        if 0 <= most < _FEW:
            yield f"the limit is {most} {words}"
    if (most_processes := _read_cgroup("pids", "pids.max").strip()).isdecimal() and int(most_processes) < _FEW:
        yield f"the limit of its cgroup is {most_processes} processes (pids.max)"
    yield from _observe_folder(_SHARED_MEMORY)
    with contextlib.suppress(OSError):  # FileNotFoundError: no folder for temporary files is usable
        yield from _observe_folder(Path(tempfile.gettempdir()))
    if not _is_loopback_up():
        yield "the interface lo is down"


def _is_loopback_up() -> bool:
    """Report whether lo of our network namespace is up, or unknown. /sys may be that of another namespace."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, _SIOCGIFFLAGS, struct.pack("16s24x", b"lo"))
        return bool(struct.unpack_from("H", answer, 16)[0] & _IFF_UP)
    return True


def _observe_folder(folder: Path) -> Iterator[str]:
    try:
        found = os.statvfs(folder)
    except OSError:
        yield f"{folder} does not exist"
        return
    free = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        yield f"{folder} is read-only"
    elif not os.access(folder, os.W_OK):
        yield f"{folder} is not writable"
    elif free < _SMALL_BYTES:
        yield f"{folder} has only {format_size(free)} free"


def count_memory_kills() -> int:
    """Return how many processes the memory limit of our cgroup has ended. 0 if it is unknown."""
    text = _read_cgroup("memory", "memory.events", "memory.oom_control")
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _read_cgroup(controller: str, name: str, name_in_version_1: str = "") -> str:
    """Return a file of our cgroup, of version 2 or 1. Empty if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text("ascii", "replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            folder = _CGROUPS / (controller if controllers else "") / path.lstrip("/")
            with contextlib.suppress(OSError):  # both versions may be mounted, each with some controllers
                return (folder / (name_in_version_1 or name if controllers else name)).read_text("ascii", "replace")
    return ""
