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

_WARNINGS = re.compile(
    r"(?<!too many open files )\(ignored\)|cannot be preloaded \(|\bnccl (?:info|trace)\b|couldn't load driver '"
    r"|warning: rlimit_memlock is|can't propagate rlimit_|unable to create cgroup '"
    r"|step creation (?:temporarily|still) disabled, retrying|^(?:/\S{0,255}/)?libcuda\.\S{1,20}: cannot open"
    r"|^bind \[\S{1,64}\]:\d+: |^could not create directory '|^(?:hostname|sudo): "
    r"|^\W{0,9}the operating system ran out of memory|psm[23] no (?:hfi|nic) units are "
    r"|setlocale|locale settings|setting locale failed|permanently added|xauth|setpgid\(",
    re.IGNORECASE,
)
"""Lines of loaders, libraries, Slurm, ssh and shells that read like an error and end no launch."""
_KNOWN = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in (
    ((r"execvp error on file \S{0,255}hydra_\w{2,20}_proxy"
      r"|\b(?:orted|prted|hydra_\w{2,20}_proxy): (?:permission denied|cannot execute)"),
     "the launcher's daemon cannot be started on a host"),
    ((r"\b(?:orted|prted|hydra_\w{2,20}_proxy)['\"]?: (?:no such file|command not found|not found$)"
     r"|command not found: (?:orted|prted|hydra_)"),
     "the launcher's daemon is missing on a host, or not in the PATH there"),
    (r"too many open files|limit on number of pipes|sys_limits_(?:pipes|files)", "too many files are open"),
    (r"error while loading shared libraries|cannot open shared object file", "a shared library is missing on a host"),
    (r"version [`'\"]?GLIBC_[\d.]+['\"]? not found", "a program needs a newer glibc than a host has"),
    (r"version [`'\"]?(?:GLIBCXX|CXXABI)_[\d.]+['\"]? not found", "a program needs a newer libstdc++ than a host has"),
    (r"symbol lookup error|undefined symbol", "libraries of different versions are mixed"),
    (r"\[mpiexec@.{1,200}execvp error on file|\bplm_\w+_agent['\"]? was set to a path that could not be found",
     "the program that reaches the hosts, such as ssh, cannot be started"),
    (r"exec(?:ve\(\)|vp error on file).{1,200}no such file", "the program to start is missing on a host"),
    (r"exec(?:ve\(\)|vp error on file).{1,200}permission denied", "the program to start may not be executed on a host"),
    (r"exec format error|cannot execute binary file", "a program is of another architecture than the CPU"),
    (r"(?:signal|task \d+): illegal instruction|\(illegal instruction\)|illegal instruction \(",
     "a program uses instructions that the CPU lacks"),
    (r"host key verification failed", "ssh does not trust the key of a host"),
    (r"permission denied \((?:publickey|password|keyboard|gssapi|hostbased)", "a host accepted none of ssh's keys"),
    (r"could not resolve hostname|name or service not known|temporary failure in name resolution",
     "the name of a host cannot be resolved"),
    (r"too many authentication failures", "ssh offers more keys than a host accepts"),
    (r"no matching (?:host key type|key exchange method|cipher) found", "ssh and a host have no common method"),
    (r"bad owner or permissions on", "others may write a configuration of ssh, so ssh refuses it"),
    (r"pam_slurm_adopt: |has no active jobs on this node", "Slurm admits only users with a job to a host"),
    (r"connect to host \S{1,255} port \d+: ", "a host cannot be reached by ssh"),
    (r"attempt to run as root", "Open MPI refuses to run as root"),
    ((r"not built with slurm(?:'s)? (?:pmi )?support|direct launched using \W{0,2}srun"
     r"|plugin (?:name )?for mpi/pm|invalid mpi type|pmi_init.{0,40}fail|pmi2_init fail|unsupported pmi version"),
     "the launcher and the MPI library have no common PMI or PMIx"),
    (r"max locked memory|locked memory.{0,60}(?:limit|unlimited)|allocate some locked memory|memlock",
     "the limit of locked memory is too small (ulimit -l)"),
    (r"shared memory limits by 'ipcs -l'|shmget\(2\)", "the limit of System V shared memory is reached (ipcs -l)"),
    (r"non-?exist[ae]nt physical address", "a mapped file has no space behind it, as when /dev/shm is full"),
    (r"read -1, expected \d+, errno = 1\b|process_vm_\w+.{0,60}operation not permitted",
     "processes may not read each other's memory (ptrace scope or seccomp)"),
    (r"system not yet initialized", "the GPUs wait for the fabric manager"),
    (r"driver version is insufficient|driver/library version mismatch", "the GPU driver does not fit the libraries"),
    (r"(?:cuda|hip).{0,40}out[ _]of[ _]memory|cuda_error_out_of_memory", "the memory of a GPU is used up"),
    (r"oom[_-]kill|(?<!ran )out[ -]of[ -]memory|oom killed|exceeded (?:job|step) memory limit|killed process \d+ \(",
     "a process exceeded the memory limit"),
    (r"disk quota exceeded", "the quota of a file system is used up"),
    (r"stale file handle", "a file system of the network was changed or lost on a host"),
    (r"not enough space for|no space left on device", "a file system is full"),
    (r"pmix_err_file_write_failure", "PMIx could not write a file: a file system may be full"),
    ((r"limit on number of children|sys_limits_children|unable to fork|cannot fork|fork failed|can't start new thread"
      r"|(?:pthread_create|thread creation|\bfork:).{0,60}resource temporarily unavailable"),
     "too many processes or threads run"),
    ((r"available (?:network )?interface|no usable (?:network )?interface|no network interfaces? were found"
     r"|no (?:socket|usable listening) interface found|no usable transports/devices \(asked"
     r"|unable to find (?:network )?interface|none of the tcp networks specified"), "no network interface is usable"),
    (r"read-only file system", "a file system is read-only"),
    (r"partition in down state", "the partition of the job is down"),
    (r"due to time limit", "the time limit of the job is over"),
    (r"due to preemption", "another job preempted the job"),
    (r"node failure", "a node of the job failed"),
    (r"not enough slots", "the hosts have too few slots"),
    ((r"more (?:processors|nodes) requested than permitted|requested node configuration is not available"
     r"|requested nodes are busy|only allocated \d+ nodes asked for \d"),
     "the job has too few nodes or CPUs for the step"),
    (r"memory required by task is not available", "the job has too little memory for the step"),
    (r"accounting/qos policy", "the job exceeds what Slurm grants its account or QOS"),
    (r"required node not available", "a node of the job is down or reserved"),
    (r"invalid generic resource", "Slurm knows no such generic resource, such as GPUs"),
    (r"job credential (?:expired|revoked|replayed)|invalid job credential", "a host refuses the job's credential"),
    (r"invalid (?:partition|account|qos)\b", "Slurm refuses the partition, the account or the QOS"),
    (r"job \d+ has expired|expired or invalid job|invalid job id", "Slurm's job is over"),
    (r"invalid (?:feature specification|node name)", "Slurm knows no such node, or none with the feature"),
    (r"could not establish a configuration source|unable to process configuration file",
     "Slurm's configuration, slurm.conf, is missing on this host or cannot be read"),
    (r"did you start munged", "munged, by which Slurm authenticates, does not run on a host"),
    (r"slurm controller|munge|authentication credential|protocol authentication",
     "Slurm's controller does not answer, or refuses this host"),
    (r"binding (?:more processes than|processes to more) cpus|cpu binding outside of job step",
     "more processes are to be bound than cores"),
    (r"tried to bind a new process, but .{0,99}process was killed|sched_setaffinity.{0,20}invalid argument",
     "a process cannot be bound to its core"),
    (r"address already in use", "a port is in use"),
    ((r"pml \w+ cannot be selected|opened in the pml|unable to reach each other|no active messages transport"
     r"|no (?:\w+ ){0,3}transport to|getinfo(?:\(\))? failed"
     r"|psm[23]? .{0,60}(?:unable to open|no (?:nic|hfi|unit)|can't open)"),
     "no transport of MPI joins the processes"),
    (r"unable to connect from|(?<!but was )unable to complete a tcp connection|no route to host",
     "hosts cannot connect to each other by TCP (routes or a firewall)"),
    (r"lost communication with", "a host of the launch, or its network, failed"),
    (r"cannot allocate memory", "memory cannot be allocated"),
    ((r"daemon failed to report back|unable to reliably start one or more daemons|launch proxy failed"
     r"|control_cb .{0,200}assert \(!closed\) failed"),
     "a daemon of the launcher did not start on a host, or ended there"),
))  # fmt: skip
"""Words of help-*.txt of Open MPI and PRRTE, of Hydra, srun, slurmstepd and ssh, and of errno: the most exact first."""
_FEW = 256
"""The limit of files and processes below which MPI is known to fail."""
_SMALL_BYTES = 16 * 2**20
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only inspected
_CGROUPS = Path("/sys/fs/cgroup")
_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1


def find_cause(output: Sequence[str]) -> str:
    """Return the cause that a launcher's output tells, or an empty string."""
    return next((cause for pattern, cause in _KNOWN for line in output if pattern.search(line)), "")


def is_warning(line: str) -> bool:
    """Report whether a line of a launcher's output reads like an error and ends no launch."""
    return _WARNINGS.search(line) is not None


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
