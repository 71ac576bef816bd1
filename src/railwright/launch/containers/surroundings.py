"""The surroundings of a container, read from one of its processes, and the agent that runs ranks in them.

Ranks keep this host's program files. The report lists the surroundings that they adopt and those that they cannot.
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
from railwright.units import format_count
from railwright.writing import write_file

HOST, CONTAINER = "host", "container"
_OWN = Path("/proc/self")
_PROGRAM = Path(__file__).with_name("enter.py")
_FILE = "inside.json"
_JOINED_NAMESPACES = {"net": "network", "ipc": "IPC", "uts": "host name", "cgroup": "cgroup namespace"}
_OTHER_NAMESPACES = {"user": "user namespace", "pid": "process ids", "time": "time namespace"}
_LIMITS = {
    name: getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK",
                 "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_RTPRIO", "RLIMIT_RTTIME",
                 "RLIMIT_SIGPENDING", "RLIMIT_STACK")
}  # fmt: skip
_LAUNCHER_PREFIXES = ("OMPI_", "PRTE_", "PMIX_", "MPIR_")
"""Variables that connect ranks of the container's own MPI. Our ranks would try to join them."""
_MAX_CAPABILITIES = 64
_MAX_BYTES = 2**20


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of a container's process, for `enter.py`."""

    pid: int
    program: str
    """The name of the process, for the report."""
    started: int
    """The start time in clock ticks since boot, which identifies the process if its id is reused."""
    namespaces: tuple[str, ...]
    cgroups: tuple[str, ...]
    limits: dict[str, tuple[int, int]]
    cpus: tuple[int, ...]
    capabilities: int
    """A bit mask of the effective capabilities."""
    dropped: tuple[int, ...]
    no_new_privileges: bool
    filters: tuple[str, ...]
    environment: dict[str, str]
    unset: tuple[str, ...]
    left: tuple[str, ...]
    """The surroundings that are not adopted, each with the reason or the replacement."""

    @property
    def taken(self) -> tuple[str, ...]:
        """The surroundings that are adopted, as text, such as `network` or `limits`."""
        found = [words for name, words in _JOINED_NAMESPACES.items() if name in self.namespaces]
        found += ["/dev with /dev/shm", "/sys"] * ("mnt" in self.namespaces)
        found += [format_count(len(self.cgroups), "cgroup")] * bool(self.cgroups)
        found += ["limits", f"CPUs {format_cpu_list(self.cpus)}", f"capabilities {self.capabilities:x}"]
        found += [format_count(len(self.filters), "seccomp filter")] * bool(self.filters)
        found += [f"environment ({', '.join(sorted(self.environment))})"] * bool(self.environment)
        return tuple(found)


def read_surroundings(pid: int) -> Surroundings:
    """Read the surroundings of a process.

    Raises UsageError if we are not root, or if the process does not exist or cannot be inspected.
    """
    if os.geteuid() != 0:
        raise UsageError("entering a container's namespaces requires root", hint="run it with sudo")
    proc = Path("/proc", str(pid))
    try:
        if not (proc / "exe").readlink().name:
            raise FileNotFoundError
        status, started, program = _read_status(proc), _read_start_time(proc), _read(proc / "comm").strip()
        differ = {path.name for path in (proc / "ns").iterdir() if _is_other_namespace(path)}
        groups, no_groups = _find_cgroups(_read(proc / "cgroup"), _read(_OWN / "mountinfo"))
        variables = dict(_parse_environment((proc / "environ").read_bytes()[:_MAX_BYTES]))
        limits = {name: resource.prlimit(pid, number) for name, number in _LIMITS.items()}
        cpus = tuple(sorted(os.sched_getaffinity(pid)))
    except (OSError, ValueError, IndexError) as error:
        hint = "give the host's process id of a program in the container, from docker inspect or crictl inspect"
        raise UsageError(f"process {pid} does not exist or cannot be inspected", hint=hint) from error
    filters, why_none = _read_seccomp(pid, status)
    user = status.get("Uid", "0").split()[0]
    permitted = 0 if "user" in differ else int(status["CapEff"], 16)
    # A path would refer to a file of this host, or load a file of the container in /dev/shm as root.
    variables_taken = {name: value for name, value in variables.items() if "/" not in value}
    return Surroundings(
        pid=pid,
        program=program,
        started=started,
        namespaces=tuple(name for name in ("mnt", *_JOINED_NAMESPACES) if name in differ),
        cgroups=groups,
        limits=limits,
        cpus=cpus,
        capabilities=permitted,
        dropped=tuple(number for number in _known_capabilities() if not permitted >> number & 1),
        no_new_privileges=status.get("NoNewPrivs") == "1",
        filters=filters,
        environment=variables_taken,
        unset=tuple(sorted(name for name in os.environ if _is_taken(name) and name not in variables_taken)),
        left=(
            "program files: this host's, with all libraries",
            *(f"{words}: not the container's" for name, words in _OTHER_NAMESPACES.items() if name in differ),
            *([f"user {user}: ranks are root, limited to the rights of that process"] if user != "0" else []),
            *no_groups,
            *why_none,
            *_describe_confinement(proc),
            *(f"{name}: names a file of the container" for name in sorted(set(variables) - set(variables_taken))),
        ),
    )


def write_agent(inside: Surroundings, scratch: Path) -> list[str]:
    """Write the surroundings to a file, and return the program to run instead of ssh: AGENT SIDE COMMAND."""
    file = scratch / _FILE
    write_file(file, msgspec.json.encode(inside))
    return [sys.executable, "-I", str(_PROGRAM), str(file)]


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")


def _read_status(proc: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in _read(proc / "status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _read_start_time(proc: Path) -> int:
    """Return field 22 of proc_pid_stat(5). The process name before it may contain any character."""
    return int(_read(proc / "stat").rpartition(")")[2].split()[19])


def _is_other_namespace(theirs: Path) -> bool:
    ours = _OWN / "ns" / theirs.name
    return theirs.name.isalpha() and ours.exists() and theirs.readlink() != ours.readlink()


def _known_capabilities() -> range:
    last = int(_read(Path("/proc/sys/kernel/cap_last_cap")))
    return range(min(last + 1, _MAX_CAPABILITIES))


def _find_cgroups(groups: str, mounts: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the cgroup.procs files of the groups in `/proc/PID/cgroup`, and notes on groups without one here.

    Named hierarchies impose no limits and are left out.
    """
    found, missing = [], []
    places = dict(_list_hierarchies(mounts))
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers.startswith("name="):
            continue
        mount = next((places[name] for name in controllers.split(",") if name in places), None)
        if mount is None or path.startswith("/.."):
            missing.append(f"cgroup {controllers or 'v2'}:{path}: not below a mount of this host")
        else:
            found.append(f"{mount}{path.rstrip('/')}/cgroup.procs")
    return tuple(found), missing


def _list_hierarchies(mounts: str) -> Iterator[tuple[str, str]]:
    """Yield each controller (empty for cgroup v2) with the mount point of its root."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) > 4 and len(kind) > 2 and fields[3] == "/":
            if kind[0] == "cgroup2":
                yield "", fields[4]
            elif kind[0] == "cgroup":
                yield from ((option, fields[4]) for option in kind[2].split(","))


def _read_seccomp(pid: int, status: dict[str, str]) -> tuple[tuple[str, ...], list[str]]:
    if status.get("Seccomp", "0") == "0":
        return (), []
    try:
        filters = read_filters(pid)
    except OSError as error:
        return (), [f"seccomp: filters cannot be read: {error.strerror}"]
    if uses_supervisor(filters):
        return filters, ["seccomp: calls that the container's supervisor handles fail here"]
    return filters, []


def _describe_confinement(proc: Path) -> Iterator[str]:
    """Yield the AppArmor profile or SELinux label if it differs from ours."""
    try:
        label, ours = (_read(process / "attr" / "current").strip("\0\n") for process in (proc, _OWN))
    except OSError:
        return
    if label and label != ours:
        yield f"security profile {label[:80]}"


def _parse_environment(environ: bytes) -> Iterator[tuple[str, str]]:
    for entry in environ.decode("utf-8", "surrogateescape").split("\0"):
        name, equals, value = entry.partition("=")
        if equals and re.fullmatch(r"[A-Z0-9_]{1,100}", name) and _is_taken(name) and value.isprintable():
            yield name, value


def _is_taken(name: str) -> bool:
    return is_recorded(name) and not name.startswith(_LAUNCHER_PREFIXES)
