"""A container and its host: ranks adopt the namespaces, cgroup and limits of the container, which the test creates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import wait_until
from tests.schemas import fits

from railwright.lab.faults.cpu import remove_cgroup
from railwright.launch.containers.surroundings import read_surroundings, write_agent

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: namespaces need root")]

SHOW = """
import ctypes, json, os, resource, socket
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(425, 1, None)
print(json.dumps({
    "host name": socket.gethostname(), "interfaces": os.listdir("/sys/class/net"),
    "devices": sorted(os.listdir("/dev")),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize, "cpus": sorted(os.sched_getaffinity(0)),
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK), "cgroup": open("/proc/self/cgroup").read(),
    "capabilities": int(status["CapEff"], 16), "io_uring": ctypes.get_errno(), "firmware": os.listdir("/sys/firmware"),
    "oom": open("/proc/self/oom_score_adj").read().strip(), "pid": os.getpid(),
    "ipc": os.readlink("/proc/self/ns/ipc"),
    "variables": {name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "UCX_"))},
}))
"""
EPERM = 1


class Container(NamedTuple):
    pid: int
    cpu: int
    group: Path
    ipc: str


def the_group() -> tuple[Path, dict[str, str]]:
    """Return the path of a new control group, and the files that limit it to one and a half CPUs."""
    name = f"rwt-container-{os.getpid()}"
    first, second = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    if (first / "cpu.cfs_quota_us").exists():
        return first / name, {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}
    return second / name, {"cpu.max": "150000 100000"}


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    """A process with a small /dev and /dev/shm, little locked memory, one CPU, no network and a seccomp filter."""
    group, ration = the_group()
    group.mkdir()
    for file, value in ration.items():
        (group / file).write_text(value)
    program = Path(__file__).with_name("container_program.py")
    argv = ["unshare", "--mount", "--net", "--ipc", "--uts", "--cgroup", sys.executable, "-I", str(program)]
    own = {"UCX_TLS": "tcp,self", "NCCL_TOPO_FILE": "/etc/topology.xml", "OMPI_COMM_WORLD_RANK": "3"}
    process = subprocess.Popen([*argv, str(group / "cgroup.procs")], env=os.environ | own)
    try:
        comm = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: process.poll() is not None or comm.read_text() == "sleep\n", "the container's process")
        assert process.poll() is None
        ipc = str(Path(f"/proc/{process.pid}/ns/ipc").readlink())
        yield Container(process.pid, min(os.sched_getaffinity(0)), group, ipc)
    finally:
        process.kill()
        process.wait()
        assert remove_cgroup(group, lambda _process: None, within_s=30)


def inside(container: Container, tmp_path: Path, line: str) -> subprocess.Popen[str]:
    agent = write_agent(read_surroundings(container.pid), tmp_path)
    return subprocess.Popen([*agent, "container", line], stdout=subprocess.PIPE, text=True)


def test_a_program_has_what_the_container_has(container, tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")  # in our environment, but not in that of the container
    (tmp_path / "show.py").write_text(SHOW)  # ranks see this host's files
    process = inside(container, tmp_path, f"{sys.executable} -I {tmp_path}/show.py")
    told = json.loads(process.communicate()[0])
    assert process.returncode == 0
    assert told["host name"] == "box"
    assert told["interfaces"] == ["lo"]
    assert told["devices"] == ["null", "random", "shm", "urandom", "zero"]
    assert told["shm"] == 48 * 2**20
    assert told["cpus"] == [container.cpu]
    assert told["memlock"] == [2**16, 2**16]
    assert not told["capabilities"] & (1 << 19 | 1 << 14)
    assert told["io_uring"] == EPERM
    assert told["firmware"] == []
    assert told["oom"] == "1000"
    assert told["ipc"] == container.ipc
    assert told["variables"] == {"UCX_TLS": "tcp,self"}
    # The host is unchanged, and the container's own process still runs.
    assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize != 48 * 2**20
    assert "\nState:\tS" in Path(f"/proc/{container.pid}/status").read_text()
    assert "\nTracerPid:\t0" in Path(f"/proc/{container.pid}/status").read_text()


def test_a_program_is_in_the_containers_cgroup_and_ends_with_its_keeper(container, tmp_path):
    process = inside(container, tmp_path, "setsid sleep 3600 & exec sleep 3600")

    def others() -> set[str]:
        return set((container.group / "cgroup.procs").read_text().split()) - {str(container.pid)}

    wait_until(lambda: len(others()) == 4, "the keeper, its first process and both sleeps in the group")
    process.kill()
    process.communicate()
    wait_until(lambda: not others(), "all of them gone")


def test_what_cannot_be_taken_is_told(container):
    seen = read_surroundings(container.pid)
    assert seen.left == (
        "program files: this host's, with all libraries",
        "NCCL_TOPO_FILE: names a file of the container",
    )
    taken = {"network", "IPC", "host name", "/dev with /dev/shm", "/sys", "limits", "1 seccomp filter"}
    assert taken <= set(seen.taken)
    assert f"CPUs {container.cpu}" in seen.taken


def test_both_sides_are_measured_and_what_differs_is_told(railwright, container):
    words = ("run", "tcp_stream", "--force", "-o", "sizes=64K", "-o", "pages=small", "--launches", "2")
    done = railwright(*words, "--in-namespaces-of", str(container.pid), "--against", "host", "--json")
    assert done.status == 3, done.err  # two launches show no difference beyond noise
    records = [json.loads(line) for line in done.out.splitlines()]
    first = records[0]
    fits(first, "container")
    assert first["record"] == "container"
    assert "troubles" not in first
    differ = {one["what"]: (one.get("host"), one.get("container")) for one in records if one["record"] == "unlike"}
    assert differ["host dev_shm_bytes"][1] == "48 MiB"
    assert differ["host memlock_bytes"][1] == "65536"
    assert differ["host may_lock_memory"] == ("True", "False")
    assert differ["host seccomp"] == ("off", "filter")
    assert differ["host cpus_allowed"][1] == str(container.cpu)
    assert differ["host cpu_quota"][1] == "1.5"
    found = {one["finding"]["fault"]: one["finding"]["certainty"] for one in records if one["record"] == "finding"}
    assert found["cpu_quota_set"] == "possible"
    points = [one for one in records if one["record"] == "compared"]
    assert {one["benchmark"] for one in points} == {"tcp_stream"}
    assert {len(one[side]["launches"]) for one in points for side in ("a", "b")} == {2}
    for side in ("host", "container"):
        assert (railwright.output / "hosts" / side / "report.html").exists()
        assert {one.launch for one in railwright.results("tcp_stream", railwright.output / "hosts" / side)} == {0, 1}
    railwright.expect_nothing_left()


def test_what_is_no_container_is_refused(railwright):
    ended = subprocess.Popen(["true"])
    ended.wait()
    done = railwright("run", "memory_copy", "--in-namespaces-of", str(ended.pid), "--against", "host")
    assert done.status == 2
    assert f"process {ended.pid} does not exist or cannot be inspected" in done.message()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--in-namespaces-of", "1"), "--in-namespaces-of and --against require each other"),
        (("--against", "host"), "--in-namespaces-of and --against require each other"),
        (
            ("--in-namespaces-of", "1", "--against", "host", "--screen"),
            "--screen and --in-namespaces-of exclude each other",
        ),
        (
            ("--in-namespaces-of", "1", "--against", "host", "--require", "x"),
            "--require and --in-namespaces-of exclude",
        ),
    ],
)
def test_words_that_do_not_go_together_are_refused(answer, words, says):
    done = answer("run", "memory_copy", *words)
    assert done.status == 2
    assert says in done.message()
