"""Sources are found in the kernel's files, and those that cannot be read are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.sampling.sources import CpuOwner, find_sources
from railwright.topology.sources.root import DirectoryRoot

STAT = "4711 (a) b (c)) S 1 4711 4711 0 -1 4194304 1 0 0 0 250 40 0 0 20 0 1 0 100 0 0\n"
DEV = """Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  100 1 0 0 0 0 0 0  200 1 0 0 0 0 0 0
  eth0:  300 1 0 0 0 0 0 0  400 1 0 0 0 0 0 0
bad name\x1b:  1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
"""
DISKS = """ 254       0 vda 20 1 512 9 21 5 1024 10 0 11 12 0 0 0 0
   7       0 loop0 1 1 1 1 1 1 1 1 1 1 1
"""


def machine(folder: Path) -> DirectoryRoot:
    files = {
        "proc/stat": "cpu  10 2 3 4\ncpu0 10 2 3 4\n",
        "proc/4711/stat": STAT,
        "proc/4712/stat": STAT.replace("4711", "4712").replace("S 1 ", "S 4711 ", 1),
        "proc/4713/stat": STAT.replace("4711", "4713").replace("S 1 ", "S 2 ", 1),
        "proc/4711/net/dev": DEV,
        "proc/self/net/dev": DEV,
        "proc/diskstats": DISKS,
        "sys/fs/cgroup/job/cpu.stat": "usage_usec 30\nuser_usec 20\nsystem_usec 10\n",
        "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/energy_uj": "no",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return DirectoryRoot(folder, "machine")


def test_a_machine_has_processor_interfaces_and_drives(tmp_path: Path) -> None:
    found = find_sources(root=machine(tmp_path))
    assert [one.name for one in found.sources] == [
        "cpu.user", "cpu.nice", "cpu.system", "net.lo.rx", "net.lo.tx", "net.eth0.rx", "net.eth0.tx", "disk.vda.read",
        "disk.vda.write",
    ]  # fmt: skip
    assert {one.shared for one in found.sources} >= {"all that runs on this machine", "all that uses this interface"}
    assert found.missing == {"power.intel-rapl:0": "it is no number"}
    assert found.scope == "this machine"


def test_a_process_is_watched_with_what_it_started(tmp_path: Path) -> None:
    found = find_sources(CpuOwner(pid=4711), root=machine(tmp_path))
    assert [one.name for one in found.sources][:4] == [
        "cpu.4711.user",
        "cpu.4711.system",
        "cpu.4712.user",
        "cpu.4712.system",
    ]
    assert "cpu.user" in [one.name for one in found.sources]
    assert [one.is_of_a_process for one in found.sources][3:5] == [True, False]
    assert found.scope == "process 4711 and 1 that it started"
    assert {one.path for one in found.sources if one.kind == "network"} == {"/proc/4711/net/dev"}


def test_a_control_group_has_its_own_time(tmp_path: Path) -> None:
    for name in ("job", "/sys/fs/cgroup/job", "/job/"):
        found = find_sources(CpuOwner(cgroup=name), root=machine(tmp_path))
        assert [(one.name, one.key, one.shared) for one in found.sources[:2]] == [
            ("cpu.user", "user_usec", ""),
            ("cpu.system", "system_usec", ""),
        ]


def test_a_job_of_slurm_is_found_by_its_control_group_or_its_processes(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (tmp_path / "proc/4711/environ").write_bytes(b"A=1\0SLURM_JOB_ID=77\0")
    (tmp_path / "proc/4712/cgroup").write_text("4:cpu:/slurm/uid_0/job_77/step_0\n")
    (tmp_path / "proc/4713/environ").write_bytes(b"SLURM_JOB_ID=777\0")
    found = find_sources(CpuOwner(job=77), root=root)
    assert found.scope == "job 77, 2 processes"
    assert {one.name for one in found.sources if one.is_of_a_process} >= {"cpu.4711.user", "cpu.4712.user"}
    (tmp_path / "proc/4713/cgroup").write_text("0::/job/job_78/step_0\n")
    (tmp_path / "sys/fs/cgroup/job/job_78").mkdir()
    (tmp_path / "sys/fs/cgroup/job/job_78/cpu.stat").write_text("user_usec 20\nsystem_usec 10\n")
    found = find_sources(CpuOwner(job=78), root=root)
    assert found.scope == "job 78, control group /sys/fs/cgroup/job/job_78"
    assert not any(one.is_of_a_process for one in found.sources)


@pytest.mark.parametrize(("words", "says"), [
    ({"job": 5}, "job 5 (is not on this machine|has no process here)"),
    ({"pid": 1}, "process 1 cannot be watched: does not exist"),
    ({"cgroup": "none"}, "does not exist"),
    ({"cgroup": "../../proc"}, "is not a control group"),
])  # fmt: skip
def test_what_is_not_there_cannot_be_watched(words: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        find_sources(CpuOwner(**words), root=machine(tmp_path))
