"""A container's surroundings, as one of its processes has them, and the way to run ranks in them beside the host's.

Ranks keep this host's program files. What they take, and what cannot be taken, is told in words.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.launch.containers.seccomp_filters import read_filters, uses_supervisor
from railwright.launch.environment import is_recorded
from railwright.topology.cpu_list import format_cpu_list
from railwright.units import count

HOST, CONTAINER = "host", "container"
_OWN = Path("/proc/self")
_PROGRAM = Path(__file__).with_name("enter.py")
_FILE = "inside.json"
_JOINED = {"net": "network", "ipc": "IPC", "uts": "host name", "cgroup": "cgroup namespace"}
_NOT_JOINED = {"user": "user namespace", "pid": "process ids", "time": "time namespace"}
_LIMITS = {
    name: getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK",
                 "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_RTPRIO", "RLIMIT_RTTIME",
                 "RLIMIT_SIGPENDING", "RLIMIT_STACK")
}  # fmt: skip
_OF_LAUNCHERS = ("OMPI_", "PRTE_", "PMIX_", "MPIR_")
"""These tell ranks of the container's own MPI where they belong; ours would look there."""
_MOST_CAPABILITIES = 64
_MOST_BYTES = 2**20


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of a container has, for `enter_container`."""

    pid: int
    program: str
    """Its name, for the report."""
    started: int
    """Clock ticks since the machine's start: another process of that number has another."""
    namespaces: tuple[str, ...]
    cgroups: tuple[str, ...]
    limits: dict[str, tuple[int, int]]
    cpus: tuple[int, ...]
    capabilities: int
    """A bit for each that it has."""
    dropped: tuple[int, ...]
    no_new_privileges: bool
    filters: tuple[str, ...]
    environment: dict[str, str]
    unset: tuple[str, ...]
    left: tuple[str, ...]
    """What of it is not taken, and why or what is there instead."""

    @property
    def taken(self) -> tuple[str, ...]:
        """What of it is taken, in words: `network`, `/dev`."""
        found = [words for name, words in _JOINED.items() if name in self.namespaces]
        found += ["/dev with /dev/shm", "/sys"] * ("mnt" in self.namespaces)
        found += [count(len(self.cgroups), "cgroup")] * bool(self.cgroups)
        found += ["limits", f"CPUs {format_cpu_list(self.cpus)}", f"capabilities {self.capabilities:x}"]
        found += [count(len(self.filters), "seccomp filter")] * bool(self.filters)
        found += [f"environment ({', '.join(sorted(self.environment))})"] * bool(self.environment)
        return tuple(found)


def read_surroundings(pid: int) -> Surroundings:
    """What the process has. Raises UsageError for one that is not there, and where we are not root."""
    if os.geteuid() != 0:
        raise UsageError("entering the namespaces of a container needs root", hint="run it with sudo")
    proc = Path("/proc", str(pid))
    try:
        if not (proc / "exe").readlink().name:
            raise FileNotFoundError
        status, started, program = _status(proc), _started(proc), _read(proc / "comm").strip()
        differ = {path.name for path in (proc / "ns").iterdir() if _differs(path)}
        groups, no_groups = _cgroups(_read(proc / "cgroup"), _read(_OWN / "mountinfo"))
        variables = dict(_variables((proc / "environ").read_bytes()[:_MOST_BYTES]))
        limits = {name: resource.prlimit(pid, number) for name, number in _LIMITS.items()}
        cpus = tuple(sorted(os.sched_getaffinity(pid)))
    except (OSError, ValueError, IndexError) as error:
        hint = "give the process id of a program in the container, as this host counts: docker inspect, crictl inspect"
        raise UsageError(f"there is no process {pid} that can be looked at", hint=hint) from error
    filters, why_none = _filters(pid, status)
    user = status.get("Uid", "0").split()[0]
    may = 0 if "user" in differ else int(status["CapEff"], 16)
    # A path would be one of ours, or load what the container keeps in /dev/shm, as root.
    given = {name: value for name, value in variables.items() if "/" not in value}
    return Surroundings(
        pid=pid,
        program=program,
        started=started,
        namespaces=tuple(name for name in ("mnt", *_JOINED) if name in differ),
        cgroups=groups,
        limits=limits,
        cpus=cpus,
        capabilities=may,
        dropped=tuple(number for number in _known_capabilities() if not may >> number & 1),
        no_new_privileges=status.get("NoNewPrivs") == "1",
        filters=filters,
        environment=given,
        unset=tuple(sorted(name for name in os.environ if _is_taken(name) and name not in given)),
        left=(
            "program files: those of this host, with all libraries",
            *(f"{words}: not those of the container" for name, words in _NOT_JOINED.items() if name in differ),
            *([f"user {user}: ranks are root, with the rights of that process and no more"] if user != "0" else []),
            *no_groups,
            *why_none,
            *_confined(proc),
            *(f"{name}: it names a file of the container" for name in sorted(set(variables) - set(given))),
        ),
    )


def write_agent(inside: Surroundings, scratch: Path) -> list[str]:
    """The program that takes ssh's place: a side, this host as it is or the container, and a command line follow it."""
    file = scratch / _FILE
    file.touch(0o600)  # the variables of somebody else's process are in it
    file.write_bytes(msgspec.json.encode(inside))
    return [sys.executable, "-I", str(_PROGRAM), str(file)]


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "surrogateescape")


def _status(proc: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in _read(proc / "status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _started(proc: Path) -> int:
    """Field 22 of proc_pid_stat(5); the name before may hold anything."""
    return int(_read(proc / "stat").rpartition(")")[2].split()[19])


def _differs(theirs: Path) -> bool:
    ours = _OWN / "ns" / theirs.name
    return theirs.name.isalpha() and ours.exists() and theirs.readlink() != ours.readlink()


def _known_capabilities() -> range:
    last = int(_read(Path("/proc/sys/kernel/cap_last_cap")))
    return range(min(last + 1, _MOST_CAPABILITIES))


def _cgroups(groups: str, mounts: str) -> tuple[tuple[str, ...], list[str]]:
    """The files that take a process into the groups (`/proc/PID/cgroup`), and what has none here.

    Hierarchies by name hold nothing back, so that they are left out.
    """
    found, missing = [], []
    places = dict(_hierarchies(mounts))
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers.startswith("name="):
            continue
        where = next((places[one] for one in controllers.split(",") if one in places), None)
        if where is None or path.startswith("/.."):
            missing.append(f"cgroup {controllers or 'v2'}:{path}: it is not below a mount of this host")
        else:
            found.append(f"{where}{path.rstrip('/')}/cgroup.procs")
    return tuple(found), missing


def _hierarchies(mounts: str) -> Iterator[tuple[str, str]]:
    """A controller, or nothing for the second version of cgroups, and where its whole hierarchy is mounted."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) > 4 and len(kind) > 2 and fields[3] == "/":
            if kind[0] == "cgroup2":
                yield "", fields[4]
            elif kind[0] == "cgroup":
                yield from ((option, fields[4]) for option in kind[2].split(","))


def _filters(pid: int, status: dict[str, str]) -> tuple[tuple[str, ...], list[str]]:
    if status.get("Seccomp", "0") == "0":
        return (), []
    try:
        filters = read_filters(pid)
    except OSError as error:
        return (), [f"seccomp: its filters cannot be read: {error.strerror}"]
    if uses_supervisor(filters):
        return filters, ["seccomp: calls that a supervisor of the container answers fail here"]
    return filters, []


def _confined(proc: Path) -> Iterator[str]:
    """AppArmor's profile or SELinux's label, where it is not ours."""
    try:
        label, ours = (_read(one / "attr" / "current").strip("\0\n") for one in (proc, _OWN))
    except OSError:
        return
    if label and label != ours:
        yield f"security profile {label[:80]}"


def _variables(environ: bytes) -> Iterator[tuple[str, str]]:
    for entry in environ.decode("utf-8", "surrogateescape").split("\0"):
        name, equals, value = entry.partition("=")
        if equals and re.fullmatch(r"[A-Z0-9_]{1,100}", name) and _is_taken(name) and value.isprintable():
            yield name, value


def _is_taken(name: str) -> bool:
    return is_recorded(name) and not name.startswith(_OF_LAUNCHERS)
