"""Lists the counters that this machine can sample, with their devices, and those it could not read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from railwright.errors import UsageError
from railwright.sampling.processes import (
    find_descendants,
    find_job_cgroup,
    find_job_processes,
    find_namespace_processes,
)
from railwright.topology.sources import text
from railwright.topology.sources.counters import find_counters
from railwright.topology.sources.root import Root, Unreadable, live_root
from railwright.units import format_count

Kind = Literal["processor", "network", "rdma", "disk", "power", "gpu", "nvlink", "pcie", "held", "clock"]
"""`held`: time that a GPU spent below its requested clocks. `clock`: the host's clock against another's."""
_OF_MACHINE = {"user": 0, "nice": 1, "system": 2}
_OF_PROCESS = {"user": 11, "system": 12}
"""Fields of proc(5): in /proc/stat after `cpu`, in /proc/PID/stat after the name of the program."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WORD_BYTES = 4
"""The unit of port_xmit_data and port_rcv_data: InfiniBand Architecture Specification, PortCountersExtended."""
_SECTOR_BYTES = 512
"""The unit of /proc/diskstats for every drive: Linux Documentation/admin-guide/iostats.rst."""
_POWERCAP = "sys/devices/virtual/powercap/intel-rapl"
_DISK = re.compile(r"(sd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+)")
_SANE = re.compile(r"[A-Za-z0-9_.:@-]{1,32}")
_MOST = 256
_MAX_PROCESSES = 64
_OF_ONE_PROCESS = re.compile(r"cpu\.\d+\.")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A counter in a file, or a number in the memory shared by the program that reads NVML."""

    name: str
    """The source's name, such as `net.eth0.tx`."""
    kind: Kind
    unit: Literal["s", "bytes", "J", "W", "Hz", "C", "%"]
    scale: float
    """The size of a counter step, in `unit`."""
    path: str
    key: str = ""
    """The word at the start of the line."""
    field: int = 0
    """The index of the field after `key`."""
    shared: str = ""
    """The other users whose activity it counts as well."""
    gauge: bool = False
    """Whether it holds a current value instead of a count."""
    late: bool = False
    """Whether its samples arrive late, with their own timestamps."""
    seldom: bool = False
    """Whether it is read at most once a second."""

    @property
    def is_of_a_process(self) -> bool:
        """Whether it is the processor time of a single process."""
        return _OF_ONE_PROCESS.match(self.name) is not None


@dataclass
class Found:
    """The available sources, and those that could not be read, with the reason."""

    sources: list[Source] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    """The owner of the processor time: `this machine`, `process 1234`."""


class CpuOwner(NamedTuple):
    """The owner of the sampled CPU time: one of these fields, else the whole machine."""

    pid: int | None = None
    cgroup: str | None = None
    job: int | None = None
    """The number of a Slurm job."""
    namespace: bool = False
    """Whether to sample the processes in our network namespace, such as a lab's host."""


def find_sources(whose: CpuOwner | None = None, root: Root | None = None) -> Found:
    """Find all sources, with the CPU time of the machine or a part of it. Raises UsageError, CannotJudge.

    A process is visible to its owner and to root.
    """
    root, whose = root or live_root(), whose or CpuOwner()
    found = Found(scope="this machine")
    cgroup = whose.cgroup or (find_job_cgroup(whose.job, root) if whose.job else None)
    if cgroup is not None:
        _add_cgroup(root, cgroup, found)
        found.scope = f"job {whose.job}, {found.scope}" if whose.job else found.scope
    elif whose.job:
        _add_processes(find_job_processes(whose.job, root), f"job {whose.job}, ", found)
    elif whose.namespace:
        _add_processes(find_namespace_processes(), "this network namespace, ", found)
    elif whose.pid is not None:
        _add_process(root, whose.pid, found)
    if cgroup is None and not whose.namespace:
        found.sources += _add_machine()  # only this counts processes that start later
    _network(root, "self" if whose.pid is None else str(whose.pid), found)
    _rdma(root, found)
    _disks(root, found)
    _power(root, found)
    return found


def _cpu(path: str, key: str, fields: dict[str, int], scale: float, name: str, shared: str) -> Iterator[Source]:
    for part, number in fields.items():
        yield Source(name=f"{name}.{part}", kind="processor", unit="s", scale=scale, path=f"/{path}", key=key,
                     field=number, shared=shared)  # fmt: skip


def _add_machine() -> Iterator[Source]:
    return _cpu("proc/stat", "cpu", _OF_MACHINE, 1 / _TICKS_PER_S, "cpu", "all that runs on this machine")


def _add_process(root: Root, pid: int, found: Found) -> None:
    """Add a process and its present descendants: utime and stime of proc(5), fields 14 and 15."""
    answer = root.read(f"proc/{pid}/stat")
    if isinstance(answer, Unreadable):
        raise UsageError(
            f"process {pid} cannot be watched: {answer.reason}", hint="give the --pid of a running process"
        )
    started = find_descendants(pid, root)
    _add_processes([pid, *started], "", found)
    found.scope = f"process {pid}" + (f" and {len(started)} that it started" if started else "")


def _add_processes(pids: Sequence[int], owner: str, found: Found) -> None:
    found.scope = owner + format_count(len(pids), "process", "processes")
    for pid in pids[:_MAX_PROCESSES]:
        found.sources += _cpu(f"proc/{pid}/stat", ")", _OF_PROCESS, 1 / _TICKS_PER_S, f"cpu.{pid}", "")
    if len(pids) > _MAX_PROCESSES:
        found.missing["processes"] = f"only the first {_MAX_PROCESSES} of {len(pids)} are watched"


def _add_cgroup(root: Root, cgroup: str, found: Found) -> None:
    """Add a control group, by its full path or below /sys/fs/cgroup: cpu.stat of version 2."""
    path = PurePosixPath("sys/fs/cgroup") / cgroup.removeprefix("/sys/fs/cgroup").strip("/")
    if ".." in path.parts:
        raise UsageError(f"{cgroup[:80]!r} is not a control group", hint="give its path below /sys/fs/cgroup")
    answer = root.read(f"{path}/cpu.stat")
    if isinstance(answer, Unreadable) or "user_usec" not in answer:
        reason = answer.reason if isinstance(answer, Unreadable) else "it is not of version 2"
        raise UsageError(f"/{path}/cpu.stat cannot be watched: {reason}", hint="give a path below /sys/fs/cgroup")
    found.scope = f"control group /{path}"
    for part in ("user", "system"):
        found.sources.append(Source(name=f"cpu.{part}", kind="processor", unit="s", scale=1e-6,
                                    path=f"/{path}/cpu.stat", key=f"{part}_usec"))  # fmt: skip


def _network(root: Root, process: str, found: Found) -> None:
    """Add the bytes of each interface in the process's network namespace."""
    path = f"proc/{process}/net/dev"
    answer = root.read(path)
    if isinstance(answer, Unreadable):
        found.missing["network"] = f"/{path} {answer.reason}"
        return
    for line in answer.splitlines()[2 : 2 + _MOST]:
        name = line.partition(":")[0].strip()
        if _SANE.fullmatch(name):
            for way, number in (("rx", 0), ("tx", 8)):
                source = Source(name=f"net.{name}.{way}", kind="network", unit="bytes", scale=1, path=f"/{path}",
                                key=f"{name}:", field=number, shared="all that uses this interface")  # fmt: skip
                found.sources.append(source)


def _rdma(root: Root, found: Found) -> None:
    for name, directories in find_counters(root).directories.items():
        for way, file in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")) if name.startswith("rdma.") else ():
            source = Source(name=f"{name}.{way}", kind="rdma", unit="bytes", scale=_WORD_BYTES,
                            path=f"/{directories[0]}/{file}", shared="all that uses this port")  # fmt: skip
            _add_number(root, found, source)


def _disks(root: Root, found: Found) -> None:
    """Add the sectors of whole drives from /proc/diskstats, whose lines begin with two numbers and the name."""
    for line in root.text("proc/diskstats").splitlines()[:_MOST]:
        words = line.split()
        if len(words) < 10 or not _DISK.fullmatch(words[2]):
            continue
        key = line[: line.index(words[2]) + len(words[2])].strip() + " "
        for way, number in (("read", 2), ("write", 6)):
            found.sources.append(Source(name=f"disk.{words[2]}.{way}", kind="disk", unit="bytes", scale=_SECTOR_BYTES,
                                        path="/proc/diskstats", key=key, field=number,
                                        shared="all that uses this drive"))  # fmt: skip


def _power(root: Root, found: Found) -> None:
    """Add RAPL, the energy of each CPU package, which only root may read since Linux 5.10."""
    zones = [name for name in root.names(_POWERCAP) if re.fullmatch(r"intel-rapl:\d{1,3}", name)]
    if not zones:
        found.missing["power of the CPUs"] = "this machine shows no RAPL"
    for name in zones[:_MOST]:
        source = Source(name=f"power.{name}", kind="power", unit="J", scale=1e-6,
                        path=f"/{_POWERCAP}/{name}/energy_uj", shared="all that runs on this CPU")  # fmt: skip
        _add_number(root, found, source)


def _add_number(root: Root, found: Found, source: Source) -> None:
    """Add a source whose file holds a single number, or the reason why it cannot be read."""
    answer = root.read(source.path[1:])
    if text.number(answer) is not None:
        found.sources.append(source)
    else:
        why = f"{source.path} {answer.reason}" if isinstance(answer, Unreadable) else "it is no number"
        found.missing[source.name] = why
