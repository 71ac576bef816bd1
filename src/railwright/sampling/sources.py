"""What can be sampled here, and what it belongs to; what could not be read is named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from railwright.errors import UsageError
from railwright.sampling.processes import cgroup_of_job, descendants, of_job, of_our_namespace
from railwright.topology.sources import text
from railwright.topology.sources.counters import find_counters
from railwright.topology.sources.root import Root, Unreadable, live_root
from railwright.units import count

Kind = Literal["processor", "network", "rdma", "disk", "power", "gpu", "nvlink", "pcie", "held", "clock"]
"""`held`: time in which a GPU was held below the clocks that it wanted. `clock`: of the host, against another's."""
_OF_MACHINE = {"user": 0, "nice": 1, "system": 2}
_OF_PROCESS = {"user": 11, "system": 12}
"""Fields of proc(5): of /proc/stat behind `cpu`, of /proc/PID/stat behind the name of the program."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WORD_BYTES = 4
"""Of port_xmit_data and port_rcv_data: InfiniBand Architecture Specification, PortCountersExtended."""
_SECTOR_BYTES = 512
"""Of /proc/diskstats whatever the drive's own: Linux Documentation/admin-guide/iostats.rst."""
_POWERCAP = "sys/devices/virtual/powercap/intel-rapl"
_DISK = re.compile(r"(sd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+)")
_SANE = re.compile(r"[A-Za-z0-9_.:@-]{1,32}")
_MOST = 256
_MOST_PROCESSES = 64
_OF_ONE = re.compile(r"cpu\.\d+\.")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A counter in a file, or a number in the memory that the program shares which asks NVML."""

    name: str
    """`net.eth0.tx`."""
    kind: Kind
    unit: Literal["s", "bytes", "J", "W", "Hz", "C", "%"]
    scale: float
    """What one step of the counter is, in its unit."""
    path: str
    key: str = ""
    """The word with which the line begins."""
    field: int = 0
    """Of what follows."""
    shared: str = ""
    """Whose counts it holds as well."""
    gauge: bool = False
    """Whether it tells what is now, and does not count."""
    late: bool = False
    """Whether it comes later, with times of its own."""
    seldom: bool = False
    """Whether it is read once a second at most."""

    @property
    def is_of_a_process(self) -> bool:
        """Whether it is the processor's time of one process."""
        return _OF_ONE.match(self.name) is not None


@dataclass
class Found:
    """The sources, and what could not be read, with the reason."""

    sources: list[Source] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    """What the processor's time is of: `this machine`, `process 1234`."""


class Whose(NamedTuple):
    """Whose CPU time is wanted: one of these, else the machine's."""

    pid: int | None = None
    cgroup: str | None = None
    job: int | None = None
    """Of Slurm."""
    namespace: bool = False
    """What runs in our network namespace, as the hosts of a lab are such."""


def find_sources(whose: Whose | None = None, root: Root | None = None) -> Found:
    """Everything that can be sampled, with the CPU time of the whole machine or a part. Raises UsageError, CannotJudge.

    A process can be seen where its owner is us, or we are root.
    """
    root, whose = root or live_root(), whose or Whose()
    found = Found(scope="this machine")
    cgroup = whose.cgroup or (cgroup_of_job(whose.job, root) if whose.job else None)
    if cgroup is not None:
        _of_cgroup(root, cgroup, found)
        found.scope = f"job {whose.job}, {found.scope}" if whose.job else found.scope
    elif whose.job:
        _of_processes(of_job(whose.job, root), f"job {whose.job}, ", found)
    elif whose.namespace:
        _of_processes(of_our_namespace(), "this network namespace, ", found)
    elif whose.pid is not None:
        _of_process(root, whose.pid, found)
    if cgroup is None and not whose.namespace:
        found.sources += _of_machine()  # what processes start later is in there alone
    _network(root, "self" if whose.pid is None else str(whose.pid), found)
    _rdma(root, found)
    _disks(root, found)
    _power(root, found)
    return found


def _cpu(path: str, key: str, fields: dict[str, int], scale: float, name: str, shared: str) -> Iterator[Source]:
    for part, number in fields.items():
        yield Source(name=f"{name}.{part}", kind="processor", unit="s", scale=scale, path=f"/{path}", key=key,
                     field=number, shared=shared)  # fmt: skip


def _of_machine() -> Iterator[Source]:
    return _cpu("proc/stat", "cpu", _OF_MACHINE, 1 / _TICKS_PER_S, "cpu", "all that runs on this machine")


def _of_process(root: Root, pid: int, found: Found) -> None:
    """The process and those that it has started until now: utime and stime of proc(5), field 14 and 15."""
    answer = root.read(f"proc/{pid}/stat")
    if isinstance(answer, Unreadable):
        raise UsageError(f"process {pid} cannot be watched: {answer.reason}", hint="give the --pid of one that runs")
    started = descendants(pid, root)
    _of_processes([pid, *started], "", found)
    found.scope = f"process {pid}" + (f" and {len(started)} that it started" if started else "")


def _of_processes(pids: Sequence[int], of: str, found: Found) -> None:
    found.scope = of + count(len(pids), "process", "processes")
    for one in pids[:_MOST_PROCESSES]:
        found.sources += _cpu(f"proc/{one}/stat", ")", _OF_PROCESS, 1 / _TICKS_PER_S, f"cpu.{one}", "")
    if len(pids) > _MOST_PROCESSES:
        found.missing["processes"] = f"only the first {_MOST_PROCESSES} of {len(pids)} are watched"


def _of_cgroup(root: Root, cgroup: str, found: Found) -> None:
    """A control group, by its path below /sys/fs/cgroup or as a whole: cpu.stat of version 2."""
    path = PurePosixPath("sys/fs/cgroup") / cgroup.removeprefix("/sys/fs/cgroup").strip("/")
    if ".." in path.parts:
        raise UsageError(f"{cgroup[:80]!r} is no control group", hint="give its path below /sys/fs/cgroup")
    answer = root.read(f"{path}/cpu.stat")
    if isinstance(answer, Unreadable) or "user_usec" not in answer:
        reason = answer.reason if isinstance(answer, Unreadable) else "it is not of version 2"
        raise UsageError(f"/{path}/cpu.stat cannot be watched: {reason}", hint="give a path below /sys/fs/cgroup")
    found.scope = f"control group /{path}"
    for part in ("user", "system"):
        found.sources.append(Source(name=f"cpu.{part}", kind="processor", unit="s", scale=1e-6,
                                    path=f"/{path}/cpu.stat", key=f"{part}_usec"))  # fmt: skip


def _network(root: Root, process: str, found: Found) -> None:
    """Bytes of each interface of the process's network namespace."""
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
    """Sectors of whole drives, of /proc/diskstats: its lines begin with two numbers and the name."""
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
    """RAPL: energy of each CPU package, which only root may read since Linux 5.10."""
    zones = [name for name in root.names(_POWERCAP) if re.fullmatch(r"intel-rapl:\d{1,3}", name)]
    if not zones:
        found.missing["power of the CPUs"] = "this machine shows no RAPL"
    for name in zones[:_MOST]:
        source = Source(name=f"power.{name}", kind="power", unit="J", scale=1e-6,
                        path=f"/{_POWERCAP}/{name}/energy_uj", shared="all that runs on this CPU")  # fmt: skip
        _add_number(root, found, source)


def _add_number(root: Root, found: Found, source: Source) -> None:
    """A source whose file holds one number, or why it cannot be read."""
    answer = root.read(source.path[1:])
    if text.number(answer) is not None:
        found.sources.append(source)
    else:
        why = f"{source.path} {answer.reason}" if isinstance(answer, Unreadable) else "it is no number"
        found.missing[source.name] = why
